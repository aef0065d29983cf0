"""Workflows as tools, against the real server and real upstreams."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.client import Server
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step
from upstream.upstreams import ONE, HttpUpstream, McpUpstream
from workflowlookup.library.catalog import Catalog
from workflowlookup.library.directory import DirectorySource
from workflowlookup.providers.config import Plan
from workflowlookup.tools.builtin import BUILTIN_TOOLS
from workflowlookup.tools.contract import ServerServices
from workflowlookup.tools.dynamic import DynamicTools
from workflowlookup.tools.registry import Registry

TWO = {"id": "two", "name": "Second thing", "description": "d"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


@pytest.fixture
def service(tmp_path: Path) -> Iterator[HttpUpstream]:
    with HttpUpstream(tmp_path / "svc") as made:
        yield made


@pytest.fixture
def serve(home: Path, library: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(settings: str, **environment: str) -> Server:
        write(home, settings)
        server = Server(home, directory=library, environment={"WORKFLOWLOOKUP_LOG_LEVEL": "info", **environment})
        servers.append(server)
        server.initialize()
        return server

    yield start
    for server in servers:
        server.stop()


def write(home: Path, settings: str) -> None:
    (home / "new.toml").write_text(settings)
    (home / "new.toml").replace(settings_file(home))


def workflow_tools(server: Server) -> dict[Json, Json]:
    """The tools that stand for workflows, by name."""
    tools = ask(server, "tools/list")["result"]["tools"]
    return {tool["name"]: tool for tool in tools if "workflowlookup/workflow" in tool.get("_meta", {})}


def ask(server: Server, method: str, params: JsonObject | None = None) -> Json:
    """The reply to a request; notifications before it are put aside."""
    server.send({"jsonrpc": "2.0", "id": f"ask-{method}", "method": method, "params": params})
    while True:
        message = server.receive()
        if message.get("id") == f"ask-{method}":
            return message


def call(server: Server, name: str, **arguments: Json) -> Json:
    return ask(server, "tools/call", {"name": name, "arguments": arguments})["result"]


def wait_for_tools(server: Server, *names: str) -> dict[Json, Json]:
    end = time.monotonic() + 60
    while sorted(tools := workflow_tools(server)) != sorted(names):
        assert time.monotonic() < end, f"tools are {sorted(tools)}"
        time.sleep(0.05)
    return tools


def wait_for_change(server: Server) -> None:
    while server.receive().get("method") != "notifications/tools/list_changed":
        pass


def test_a_workflow_of_a_provider_becomes_a_tool_by_itself_and_can_be_called(
    serve: Callable[..., Server], service: HttpUpstream
) -> None:
    server = serve(service.toml())
    tool = wait_for_tools(server, "deploy_a_service")["deploy_a_service"]

    assert (tool["title"], tool["description"], tool["inputSchema"]) == (
        ONE["name"],
        ONE["description"],
        ONE["inputSchema"],
    )
    assert tool["annotations"]["openWorldHint"] is True
    about = {"id": "deploy", "provider": "svc", "category": "operations", "version": "2.1.0"}
    assert tool["_meta"]["workflowlookup/workflow"] == {
        **about,
        "executionType": "async",
        "metadata": {"owner": "platform"},
    }
    result = call(server, "deploy_a_service", service="web")["structuredContent"]
    assert (result["state"], result["result"]) == ("completed", {"echo": {"service": "web"}})
    assert result["runId"]
    assert [run["input"] for run in service.runs()] == [{"service": "web"}]


def test_one_is_started_by_its_id_though_nobody_has_listed_the_tools(
    serve: Callable[..., Server], service: HttpUpstream
) -> None:
    server = serve(service.toml(), WORKFLOWLOOKUP_DISCOVERY_WAIT_SECONDS="30")
    started = call(server, "workflow_start", workflowId="svc.deploy", input={"service": "web"})

    assert started["structuredContent"]["state"] == "completed", started


def test_arguments_are_checked_by_the_whole_schema_and_nothing_is_started(
    serve: Callable[..., Server], service: HttpUpstream
) -> None:
    server = serve(service.toml())
    wait_for_tools(server, "deploy_a_service")

    refused = call(server, "deploy_a_service", service="", replicas=0, extra=1)

    assert refused["isError"] is True
    assert refused["structuredContent"]["code"] == -32602
    details = refused["structuredContent"]["data"]["details"]
    assert all(word in details for word in ("service", "replicas", "extra"))
    assert service.runs() == []


def test_a_change_is_told_once_and_nothing_else_is(serve: Callable[..., Server], service: HttpUpstream) -> None:
    server = serve("refresh_seconds = 0.2\n" + service.toml())
    wait_for_tools(server, "deploy_a_service")

    service.control(workflows=[ONE, TWO])
    wait_for_change(server)

    assert sorted(workflow_tools(server)) == ["deploy_a_service", "second_thing"]
    count = len(service.seen("list"))
    service.wait_for("list", count + 3)
    assert server.is_silent()


def test_names_stay_when_workflows_are_renamed_and_over_restarts(
    serve: Callable[..., Server], service: HttpUpstream
) -> None:
    same = [ONE, {**TWO, "name": ONE["name"]}]
    service.control(workflows=same)
    server = serve("refresh_seconds = 0.2\n" + service.toml())
    wait_for_tools(server, "deploy_a_service", "deploy_a_service_two")

    service.control(workflows=[{**ONE, "name": "Something else", "description": "new"}, same[1]])
    wait_for_change(server)
    tools = workflow_tools(server)
    assert {name: tool["title"] for name, tool in tools.items()} == {
        "deploy_a_service": "Something else",
        "deploy_a_service_two": ONE["name"],
    }
    server.stop()
    service.control(workflows=[same[1], {**ONE, "name": "Something else"}])
    again = serve("refresh_seconds = 0.2\n" + service.toml())
    tools = wait_for_tools(again, "deploy_a_service", "deploy_a_service_two")
    assert tools["deploy_a_service"]["title"] == "Something else"

    service.control(workflows=[same[1]])
    wait_for_tools(again, "deploy_a_service_two")


def test_what_is_known_of_one_that_is_away_stays_and_says_so(
    serve: Callable[..., Server], service: HttpUpstream
) -> None:
    server = serve("refresh_seconds = 0.2\n" + service.toml())
    wait_for_tools(server, "deploy_a_service")
    service.stop()
    end = time.monotonic() + 60
    while (refused := call(server, "deploy_a_service", service="x")["structuredContent"]).get("code") != -32009:
        assert time.monotonic() < end, refused
        time.sleep(0.1)

    assert "deploy_a_service" in workflow_tools(server)
    assert "cannot be reached" in refused["data"]["cause"]
    service.start()
    while "code" in (result := call(server, "deploy_a_service", service="x")["structuredContent"]):
        assert time.monotonic() < end + 60, result
        time.sleep(0.1)
    assert result["state"] == "completed"


def test_one_that_hangs_delays_neither_the_handshake_nor_the_list(
    serve: Callable[..., Server], service: HttpUpstream
) -> None:
    service.control(list="hang")

    server = serve(service.toml(timeout=60))

    assert workflow_tools(server) == {}
    service.control(list="ok")


def test_settings_take_effect_while_the_server_runs_and_broken_ones_do_not(
    serve: Callable[..., Server], service: HttpUpstream, home: Path
) -> None:
    service.control(workflows=[ONE, TWO])
    server = serve(service.toml())
    wait_for_tools(server, "deploy_a_service", "second_thing")

    write(home, 'exclude = ["category:operations"]\n' + service.toml())
    wait_for_tools(server, "second_thing")
    write(home, 'exclude = ["categ:x"]\n' + service.toml())
    server.process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert sorted(workflow_tools(server)) == ["second_thing"]
    write(home, "workflow_tools = false\n" + service.toml())
    wait_for_tools(server)
    assert "workflow_refresh" not in [tool["name"] for tool in ask(server, "tools/list")["result"]["tools"]]
    write(home, "")
    wait_for_tools(server)
    write(home, service.toml())
    wait_for_tools(server, "deploy_a_service", "second_thing")
    server.close_input()
    server.wait()
    assert "the settings were not reloaded" in server.log()


def test_as_long_as_nothing_changes_nothing_is_made_anew(library: Path) -> None:
    services = ServerServices(catalog=Catalog([DirectorySource("directories", str(library))]))
    (library / "one.json").write_text(json.dumps(document(step("only"))))
    registry = Registry(BUILTIN_TOOLS, services)
    tools = DynamicTools(services, Plan())
    tools.attach(registry)

    assert tools.refresh_if_changed() is True
    before = registry.tools
    assert tools.refresh_if_changed() is False
    assert registry.tools is before


def test_too_many_fold_into_search_and_start(serve: Callable[..., Server], service: HttpUpstream) -> None:
    flows = [
        {**ONE, "id": f"flow-{n}", "name": f"Flow {n}", "category": "odd" if n % 2 else "even"} for n in range(300)
    ]
    service.control(workflows=flows)
    server = serve(service.toml())
    end = time.monotonic() + 60
    while "workflow_search" not in (names := [tool["name"] for tool in ask(server, "tools/list")["result"]["tools"]]):
        assert time.monotonic() < end, names
        time.sleep(0.1)

    assert not any(name.startswith("flow_") for name in names)
    answer = call(server, "workflow_search", query="flow-17", category="odd", limit=1)["structuredContent"]
    (one,) = answer["workflows"]
    assert (one["workflowId"], one["tool"], one["inputSchema"]) == ("svc.flow-17", "flow_17", ONE["inputSchema"])
    for wanted in (one["workflowId"], one["tool"]):
        started = call(server, "workflow_start", workflowId=wanted, input={"service": "a"})["structuredContent"]
        assert started["state"] == "completed"
    by_name = call(server, "flow_17", service="a")["structuredContent"]  # as one who has the list from before may
    assert by_name["state"] == "completed"
    server.close_input()
    server.wait()
    assert "workflow_search and workflow_start replace them" in server.log()


def test_a_refresh_says_what_came_and_went(serve: Callable[..., Server], tmp_path: Path) -> None:
    upstream = McpUpstream(tmp_path / "up")
    server = serve("refresh_seconds = 0\n" + upstream.toml(provider=True))
    wait_for_tools(server, "deploy_a_service")
    upstream.control(workflows=[{**ONE, "description": "Another."}, TWO])

    result = call(server, "workflow_refresh")["structuredContent"]

    assert (result["added"], result["removed"], result["changed"]) == (["second_thing"], [], ["deploy_a_service"])
    assert result["providers"] == {"up": {"state": "ready", "workflows": 2}}


def test_without_a_journal_names_are_kept_in_memory_with_one_warning(
    serve: Callable[..., Server], service: HttpUpstream
) -> None:
    server = serve(service.toml(), WORKFLOWLOOKUP_JOURNAL="/proc/no/journal.sqlite")

    wait_for_tools(server, "deploy_a_service")
    server.close_input()
    server.wait()
    assert server.log().count("names of workflow tools are kept in memory only") == 1


def test_a_server_without_a_start_tool_has_workflows_as_tools_of_their_own(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    upstream = McpUpstream(tmp_path / "up")
    upstream.control(without=["workflows-start-tool"], direct=["deploy"])
    server = serve(upstream.toml(provider=True))
    wait_for_tools(server, "deploy_a_service")

    result = call(server, "deploy_a_service", service="a")["structuredContent"]

    assert (result["state"], result["result"]) == ("completed", {"echo": {"service": "a"}})
