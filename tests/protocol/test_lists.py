"""Lists that change: who is told, in both eras, once for each change and never otherwise."""

import json
from types import SimpleNamespace
from typing import cast

import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.memory_client import MemoryClient
from workflowlookup.library.catalog import CatalogView
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import LIST_POLL_SECONDS, POLL_SECONDS, Connection
from workflowlookup.tools.arguments import SchemaArguments
from workflowlookup.tools.contract import Services, Tool, WorkflowTools
from workflowlookup.tools.registry import Registry

TOOLS = "notifications/tools/list_changed"
RESOURCES = "notifications/resources/list_changed"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def tool(name: str, description: str = "Does it.", **schema: Json) -> Tool:
    return Tool(
        name=name,
        title=name,
        description=description,
        arguments=SchemaArguments(schema or {"type": "object"}),
        handler=lambda *_: {"did": name, "as": description},
    )


class Workflows:
    """Makes tools of what a test says, when it is asked to."""

    def __init__(self) -> None:
        self.wanted: list[Tool] = []
        self.made = self.wanted
        self.problem: Exception | None = None
        self.refreshes = 0

    def attach(self, registry: Registry) -> None:
        self.registry = registry

    def refresh_if_changed(self) -> bool:
        self.refreshes += 1
        if self.problem:
            raise self.problem
        if self.wanted is self.made:
            return False
        self.made = self.wanted
        return self.registry.replace(self.made)


class ListClient(MemoryClient):
    def __init__(self, version: str | None = "2025-11-25", *, is_on: bool = True, initialized: bool = True) -> None:
        self.workflows = Workflows()
        self.library = SimpleNamespace(encoded=b"[]", summaries=())
        catalog = cast("CatalogView", SimpleNamespace(snapshot=lambda: self.library))
        services = Services(catalog=catalog, open_workflows=lambda: cast("WorkflowTools", self.workflows))
        backend = Backend(lambda: services, announces_changes=lambda: is_on)
        backend.registry = Registry({"built_in": tool("built_in")}, services)
        self.connection = Connection(backend)
        if version:
            self.ask("initialize", {"protocolVersion": version, "capabilities": {}})
            if initialized:
                self.connection.handle(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def ask(self, method: str, params: JsonObject | None = None, identifier: int | str = 1) -> Json:
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params or {}}
        return self.exchange(message)

    def names(self, **params: Json) -> list[Json]:
        return [one["name"] for one in self.ask("tools/list", params)["result"]["tools"]]

    def listen(self, identifier: str, **wanted: bool) -> Json:
        self.ask("subscriptions/listen", {"notifications": wanted, "_meta": ENVELOPE}, identifier)
        return self.heard()[0]["params"]["notifications"]

    def heard(self) -> list[Json]:
        if self.connection.needs_polling:
            self.connection.poll()
        return self.sent()

    def told(self) -> list[Json]:
        return [message["method"] for message in self.heard()]


def test_the_tools_are_the_built_in_ones_and_then_the_others_by_name() -> None:
    client = ListClient()
    client.workflows.wanted = [tool("b"), tool("a"), tool("built_in", "Not this one.")]

    assert client.names() == ["built_in", "a", "b"]
    assert client.ask("built_in")["result"]["as"] == "Does it."


def test_a_change_is_announced_once_to_a_client_that_listed() -> None:
    client = ListClient()
    client.names()
    assert client.told() == []
    client.workflows.wanted = [tool("a")]

    assert client.told() == [TOOLS]
    assert client.told() == []
    assert client.names() == ["built_in", "a"]
    assert client.told() == []


def test_nothing_is_announced_before_the_first_list_or_if_the_list_itself_shows_it() -> None:
    client = ListClient()
    client.workflows.wanted = [tool("a")]
    assert not client.connection.needs_polling
    assert client.told() == []
    client.names()
    client.workflows.wanted = [tool("b")]

    assert client.names() == ["built_in", "b"]
    assert client.told() == []


def test_an_equal_new_list_is_no_change() -> None:
    client = ListClient()
    client.workflows.wanted = [tool("a"), tool("b")]
    client.names()
    client.workflows.wanted = [tool("b"), tool("a")]

    assert client.told() == []
    client.workflows.wanted = [tool("b"), tool("a", "Another.")]
    assert client.told() == [TOOLS]


@pytest.mark.parametrize("road", ["a", "tools/call"])
def test_a_new_tool_can_be_called_before_it_is_announced(road: str) -> None:
    client = ListClient()
    client.names()
    client.workflows.wanted = [tool("a")]

    reply = client.ask(road, {} if road == "a" else {"name": "a"})
    assert "a" in json.dumps(reply["result"])
    assert client.told() == [TOOLS]


def test_arguments_are_checked_against_the_current_schema_of_a_tool() -> None:
    client = ListClient()
    client.workflows.wanted = [tool("a", type="object", properties={"n": {"type": "integer"}})]
    client.names()
    assert "error" in client.ask("a", {"n": "x"})
    client.workflows.wanted = [tool("a", type="object", properties={"n": {"type": "string"}})]
    client.told()

    assert client.ask("a", {"n": "x"})["result"]["did"] == "a"


def test_a_client_that_never_sent_initialized_gets_no_notification() -> None:
    client = ListClient(initialized=False)
    client.names()
    client.workflows.wanted = [tool("a")]

    assert client.told() == []


def test_in_the_envelope_era_listen_requests_get_the_notifications() -> None:
    client = ListClient(None)
    assert client.listen("x", toolsListChanged=True, promptsListChanged=True) == {"toolsListChanged": True}
    assert client.listen("y", resourcesListChanged=True, toolsListChanged=False) == {"resourcesListChanged": True}
    client.ask("tools/list", {"_meta": ENVELOPE})
    client.ask("resources/list", {"_meta": ENVELOPE})
    client.workflows.wanted = [tool("a")]
    client.library = SimpleNamespace(encoded=b"[1]", summaries=())

    told = [(message["method"], message["params"]["_meta"][SUBSCRIPTION]) for message in client.heard()]
    assert told == [(TOOLS, "x"), (RESOURCES, "y")]


def test_without_workflow_tools_no_notifications_are_promised() -> None:
    client = ListClient(is_on=False)

    assert client.listen("x", toolsListChanged=True, resourcesListChanged=True) == {}
    capabilities = client.ask("server/discover")["result"]["capabilities"]
    assert capabilities["tools"] == {"listChanged": False, "notifyProgress": False}
    assert capabilities["resources"]["listChanged"] is False


def test_a_change_of_the_library_is_announced_to_a_client_that_listed_resources() -> None:
    client = ListClient()
    client.library = SimpleNamespace(encoded=b"[1]", summaries=())
    client.ask("resources/list")
    assert client.told() == []
    client.library = SimpleNamespace(encoded=b"[1]", summaries=())
    assert client.told() == []
    client.library = SimpleNamespace(encoded=b"[2]", summaries=())

    assert client.told() == [RESOURCES]
    assert client.told() == []


def test_a_failed_poll_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    client = ListClient()
    client.names()
    client.workflows.problem = OSError("gone")
    assert client.told() == client.told() == []
    assert len(caplog.records) == 1
    client.workflows.problem = None
    client.workflows.wanted = [tool("a")]

    assert client.told() == [TOOLS]


def test_lists_are_polled_less_often_than_calls() -> None:
    client = ListClient()
    client.names()

    assert client.connection.poll_seconds == LIST_POLL_SECONDS > POLL_SECONDS
