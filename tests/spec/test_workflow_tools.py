"""Discovery, metadata and configuration of workflow tools: requirements 1, 3, 4, 5 and 6."""

import os
import signal
import time

import pytest

from spec.stage import DEPLOY, Listener, Stage, refusal, state
from support.make import document, settings_file, write
from upstream.upstreams import ONE, McpUpstream

ANY_OBJECT = {"type": "object", "properties": {}, "additionalProperties": True}
MISFITS: dict[str, dict[str, object]] = {
    "service is missing": {},
    "service is too short": {"service": ""},
    "replicas is too small": {"service": "api", "replicas": 0},
    "replicas has the wrong type": {"service": "api", "replicas": "two"},
    "surprise is unknown": {"service": "api", "surprise": 1},
}
PLAIN = {"id": "plain", "name": "Plain", "description": "Nothing but what is required."}


# ── discovery ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("002/1.1/query-at-start", "002/1.2/register", "002/2.1/tools-list")
@pytest.mark.parametrize("kind", ["http", "mcp", "stdio"])
def test_the_workflows_that_another_system_lists_become_tools(stage: Stage, kind: str) -> None:
    upstream = stage.upstream(kind)
    stage.configure(upstream)
    server = stage.serve()

    tools = server.tools_when(DEPLOY)

    assert {"workflow_list", "workflow_get", "workflow_start"} <= tools.keys()
    assert tools[DEPLOY]["inputSchema"] == ONE["inputSchema"]


@pytest.mark.spec("002/1.1/query-at-start", "002/1.2/register")
def test_the_documents_of_the_library_become_tools(stage: Stage) -> None:
    write(stage.home / ".workflowlookup" / "workflows", document(identifier="my-review", name="My review"))

    assert "my_review" in stage.serve().tools()


@pytest.mark.spec("002/1.3/remove", "002/4.3/refresh")
def test_the_tool_of_a_removed_workflow_disappears_with_one_notification(stage: Stage) -> None:
    upstream = stage.upstream("http", workflows=[ONE, PLAIN])
    stage.configure(upstream)
    server = stage.serve()
    server.tools_when(DEPLOY, "plain")
    server.noticed.clear()

    upstream.control(workflows=[PLAIN])
    answer = state(server.end(server.begin_call("workflow_refresh")))

    assert answer["removed"] == [DEPLOY]
    assert DEPLOY not in server.tools()
    assert [message["method"] for message in server.noticed] == ["notifications/tools/list_changed"]


@pytest.mark.spec("002/1.4/list-unavailable", "002/5.1/discovery-fails", "002/5.4/retry")
def test_a_provider_that_is_down_delays_nothing_and_its_tools_appear_when_it_is_up(stage: Stage) -> None:
    upstream = stage.upstream("http")
    upstream.stop()
    stage.configure(upstream)
    began = time.monotonic()
    server = stage.serve()
    assert "workflow_list" in server.tools()
    assert time.monotonic() - began < 5

    upstream.start()
    server.hear("notifications/tools/list_changed")

    assert DEPLOY in server.tools()
    assert "svc" in server.leave()


@pytest.mark.spec("002/5.1/discovery-fails", "002/5.4/retry")
@pytest.mark.parametrize("how", ["fail", "garbage"])
def test_a_list_that_cannot_be_read_is_logged_with_its_cause_and_asked_for_again(stage: Stage, how: str) -> None:
    upstream = stage.upstream("http", list=how)
    stage.configure(upstream)
    server = stage.serve()
    upstream.wait_for("list", 2)

    upstream.control(list="ok")
    server.tools_when(DEPLOY)

    log = server.leave()
    assert "svc" in log
    assert ("500" if how == "fail" else "JSON") in log


@pytest.mark.spec("002/5.4/retry")
def test_tools_of_an_unreachable_provider_stay_listed_and_their_calls_say_so(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)
    server = stage.serve()
    server.tools_when(DEPLOY)
    upstream.stop()
    server.request("tools/call", {"name": "workflow_refresh", "arguments": {}})

    assert DEPLOY in server.tools()
    error = refusal(server.end(server.begin_call(DEPLOY, {"service": "api"})))
    assert error["code"] == -32009
    assert error["data"]["provider"] == "svc"


# ── the first list ──────────────────────────────────────────────────────────────────────────────────────────────


def mark(server: Listener) -> object:
    return server.tools()[DEPLOY]["_meta"]["workflowlookup/workflow"].get("remembered")


@pytest.mark.spec("002/1.1/remembered", "002/2.1/tools-list")
@pytest.mark.parametrize("kind", ["http", "mcp"])
def test_remembered_workflows_are_in_the_first_list_and_their_calls_wait_for_the_provider(
    stage: Stage, kind: str
) -> None:
    upstream = stage.upstream(kind)
    stage.configure(upstream)
    first = stage.serve()
    first.tools_when(DEPLOY)
    first.leave()
    upstream.freeze()
    server = stage.serve()

    assert mark(server) is True
    call = server.begin_call(DEPLOY, {"service": "api"})
    assert server.tools()  # others are answered meanwhile
    upstream.thaw()

    assert state(server.end(call))["state"] == "completed"
    assert mark(server) is None


@pytest.mark.spec("002/1.1/remembered")
def test_remembered_workflows_are_used_only_with_the_same_settings(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)
    first = stage.serve()
    first.tools_when(DEPLOY)
    first.leave()
    upstream.stop()

    stage.configure(upstream, options={"list": "GET /others"})

    assert DEPLOY not in stage.serve().tools()


@pytest.mark.spec("002/1.1/remembered", "002/5.4/retry")
def test_a_remembered_tool_whose_provider_does_not_come_is_refused_with_the_cause(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)
    first = stage.serve()
    first.tools_when(DEPLOY)
    first.leave()
    upstream.stop()
    server = stage.serve()

    error = refusal(server.end(server.begin_call(DEPLOY, {"service": "api"})))

    assert error["code"] == -32009
    assert "cannot be reached" in error["data"]["cause"]


@pytest.mark.spec("002/1.1/query-at-start", "002/2.1/tools-list")
def test_without_a_cached_list_the_first_list_waits_for_discovery(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream, discovery_wait_seconds=60)

    assert DEPLOY in stage.serve().tools()


@pytest.mark.spec("002/6.4/same-name")
def test_a_freed_name_is_not_given_to_another_workflow_and_its_own_gets_it_back(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)
    server = stage.serve()
    server.tools_when(DEPLOY)
    upstream.control(workflows=[ONE | {"id": "other"}])
    server.end(server.begin_call("workflow_refresh"))
    names = set(server.tools())
    server.leave()

    upstream.control(workflows=[ONE | {"id": "other"}, ONE])
    again = stage.serve()

    assert f"{DEPLOY}_other" in names
    assert DEPLOY not in names
    about = again.tools_when(DEPLOY)[DEPLOY]["_meta"]["workflowlookup/workflow"]
    assert about["id"] == "deploy"


# ── metadata ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("002/3.1/extract", "002/3.2/required-fields", "002/6.1/form")
def test_name_description_and_parameters_come_from_the_definition(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)

    tool = stage.serve().tools_when(DEPLOY)[DEPLOY]

    assert tool["title"] == ONE["name"]
    assert ONE["description"] in tool["description"]
    assert tool["inputSchema"] == ONE["inputSchema"]
    assert tool["annotations"]["readOnlyHint"] is False


@pytest.mark.spec("002/3.3/defaults", "002/3.5/generic-schema", "002/6.1/form")
def test_a_minimal_definition_accepts_any_object(stage: Stage) -> None:
    upstream = stage.upstream("http", workflows=[PLAIN])
    stage.configure(upstream)
    server = stage.serve()

    assert server.tools_when("plain")["plain"]["inputSchema"] == ANY_OBJECT
    done = state(server.end(server.begin_call("plain", {"anything": [1, {"at": "all"}]})))
    assert done["result"] == {"echo": {"anything": [1, {"at": "all"}]}}
    status = state(server.end(server.begin_call("workflow_status", {"runId": done["runId"]})))
    assert status["workflow"]["version"] == "1.0.0"
    stage.configure(upstream, exclude=["category:workflow"])
    server.tools_when(gone=("plain",))


@pytest.mark.spec("002/3.4/schema-validation", "002/2.5/invalid-arguments")
def test_arguments_are_checked_against_the_schema_and_nothing_is_started(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)
    server = stage.serve("2025-06-18")
    server.tools_when(DEPLOY)

    errors = {named: server.end(server.begin_call(DEPLOY, arguments))["error"] for named, arguments in MISFITS.items()}

    assert {error["code"] for error in errors.values()} == {-32602}
    assert [word for word, error in errors.items() if word.split()[0] not in error["data"]["details"]] == []
    assert upstream.seen("start") == []


@pytest.mark.spec("002/2.5/invalid-arguments")
def test_arguments_that_do_not_fit_are_a_result_since_2025_11_25(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)
    server = stage.serve("2025-11-25")
    server.tools_when(DEPLOY)

    assert refusal(server.end(server.begin_call(DEPLOY, {})))["code"] == -32602


@pytest.mark.spec("002/3.2/required-fields", "002/5.3/registration-fails", "002/6.2/missing-fields")
def test_an_incomplete_definition_is_logged_and_skipped(stage: Stage) -> None:
    bad = [{"id": "no-name", "description": "x"}, {"name": "No id", "description": "x"}, 17, {"id": "d", "name": "D"}]
    upstream = stage.upstream("stdio", workflows=[*bad, ONE])
    stage.configure(upstream)
    server = stage.serve()

    tools = server.tools_when(DEPLOY)

    assert not {"no_id", "no_name", "d"} & tools.keys()
    log = server.leave()
    assert "no-name" in log
    assert "No id" in log


@pytest.mark.spec("002/6.3/invalid-schema")
def test_an_invalid_schema_is_replaced_by_one_that_accepts_any_object(stage: Stage) -> None:
    bad = [{"type": "nonsense"}, "text", [], {"type": "array"}, {"properties": 7}]
    numbered = [{**PLAIN, "id": f"w{n}", "name": f"W{n}", "inputSchema": schema} for n, schema in enumerate(bad)]
    upstream = stage.upstream("http", workflows=numbered)
    stage.configure(upstream)
    server = stage.serve()

    tools = server.tools_when("w0")

    assert [tools[f"w{number}"]["inputSchema"] for number in range(len(bad))] == [ANY_OBJECT] * len(bad)
    assert "w4" in server.leave()


@pytest.mark.spec("002/6.4/same-name")
def test_workflows_of_the_same_name_get_names_by_their_ids_and_keep_them(stage: Stage) -> None:
    twins = [{**PLAIN, "id": f"r{number}", "name": "Report"} for number in (1, 2, 3)]
    upstream = stage.upstream("http", workflows=twins)
    stage.configure(upstream)
    server = stage.serve()
    names = {name for name in server.tools_when("report") if name.startswith("report")}
    assert len(names) == 3

    renamed = [{**twin, "description": "changed", "name": f"Report {twin['id']}"} for twin in reversed(twins)]
    upstream.control(workflows=renamed)
    server.end(server.begin_call("workflow_refresh"))
    assert {name for name in server.tools() if name.startswith("report")} == names
    server.leave()

    assert {name for name in stage.serve().tools_when(*names) if name.startswith("report")} == names


# ── configuration ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("002/4.1/switch", "002/4.4/live-settings")
def test_workflow_tools_are_switched_off_and_on_while_the_server_runs(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream, workflow_tools=False)
    server = stage.serve()
    assert DEPLOY not in server.tools()

    stage.configure(upstream, workflow_tools=True)
    server.tools_when(DEPLOY)
    stage.configure(upstream, workflow_tools=False)
    server.tools_when(gone=(DEPLOY,))


@pytest.mark.spec("002/4.2/filters", "002/4.4/live-settings")
def test_only_what_the_filters_admit_becomes_a_tool_and_they_change_while_the_server_runs(stage: Stage) -> None:
    upstream = stage.upstream("http", workflows=[ONE, PLAIN, {**PLAIN, "id": "other", "name": "Other"}])
    stage.configure(upstream, include=["category:operations", "pl*"])
    server = stage.serve()
    assert "other" not in server.tools_when(DEPLOY, "plain")

    stage.configure(upstream, include=["provider:svc"], exclude=["deploy"])
    server.tools_when("plain", "other", gone=(DEPLOY,))


@pytest.mark.spec("002/4.4/live-settings", "002/5.1/discovery-fails")
def test_a_broken_settings_file_keeps_the_old_settings_and_says_why(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream)
    server = stage.serve()
    server.tools_when(DEPLOY)

    settings_file(stage.home).write_text("workflow_tools = [unfinished")
    time.sleep(2)

    assert DEPLOY in server.tools()
    assert "workflowlookup.toml" in server.leave()


@pytest.mark.spec("002/4.3/refresh")
def test_sighup_refreshes_every_provider(stage: Stage) -> None:
    service = stage.upstream("http")
    stage.configure(service)
    server = stage.serve()
    server.tools_when(DEPLOY)
    service.control(workflows=[PLAIN])

    os.kill(server.process.pid, signal.SIGHUP)

    server.tools_when("plain", gone=(DEPLOY,))


@pytest.mark.spec("002/4.4/live-settings")
def test_another_command_for_a_server_is_another_provider_at_once(stage: Stage) -> None:
    before, after = McpUpstream(stage.home / "before"), McpUpstream(stage.home / "after")
    after.control(workflows=[PLAIN])
    stage.configure(before)
    server = stage.serve()
    server.tools_when(DEPLOY)

    stage.configure(after)

    server.tools_when("plain", gone=(DEPLOY,))


@pytest.mark.spec("002/4.1/switch", "002/4.4/live-settings")
def test_a_disabled_tool_is_unknown_even_to_clients_that_never_listed(stage: Stage) -> None:
    service = stage.upstream("http")
    stage.configure(service)
    server = stage.serve()
    server.end(server.begin_call("workflow_refresh"))
    assert state(server.end(server.begin_call(DEPLOY, {"service": "api"})))["state"] == "completed"

    stage.configure(service, workflow_tools=False)
    time.sleep(1.1)  # the file is looked at once a second

    assert "Unknown tool" in str(server.end(server.begin_call(DEPLOY, {"service": "api"}))["error"])
