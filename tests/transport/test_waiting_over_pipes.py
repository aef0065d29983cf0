"""Calls that wait, over real pipes: a real server, a real upstream, and what holds up nothing while they work."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import Server, Start
from support.json_values import Json, JsonObject
from support.make import document, settings_file, write
from upstream.upstreams import McpUpstream

ROOM = 30.0
"""Seconds that something may take which usually takes much less: the machine may be busy."""


def call(name: str, tool: str, **arguments: Json) -> JsonObject:
    return {
        "id": name,
        "title": f"Do {name}",
        "call": {"server": "up", "tool": tool, "arguments": arguments, "saveAs": name},
    }


@pytest.fixture
def upstream(tmp_path: Path) -> McpUpstream:
    return McpUpstream(tmp_path / "up")


@pytest.fixture
def serve(start: Start, library: Path, tmp_path: Path, upstream: McpUpstream) -> Callable[..., Server]:
    write(library, document(call("slow", "sleep", seconds=60, steps=60), id="slow-one"))
    write(library, document(call("quick", "sleep", seconds=1, steps=5), id="quick-one"))
    write(library, document(call("one", "say", text="a"), call("two", "say", text="{{one}}b"), id="two-calls"))
    settings_file(tmp_path).write_text(upstream.toml())

    def serve_upstream(**options: Any) -> Server:
        return start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(tmp_path / "runs.sqlite"), **options)

    return serve_upstream


def begin(server: Server, workflow: str, identifier: str, **more: Json) -> None:
    params = {"name": "workflow_start", "arguments": {"workflowId": workflow, "runId": f"run-{identifier}"}, **more}
    server.send({"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params})


def until(server: Server, is_it: Callable[..., bool], timeout: float = ROOM) -> list[Json]:
    """What comes, up to the message that is meant."""
    seen = []
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        seen.append(server.receive(timeout))
        if is_it(seen[-1]):
            return seen
    raise AssertionError(seen)


def begun(upstream: McpUpstream, tool: str = "sleep") -> None:
    end = time.monotonic() + ROOM
    while not [entry for entry in upstream.seen("call") if entry["tool"] == tool]:
        assert time.monotonic() < end, "the upstream was never called"
        time.sleep(0.02)


def state_of(server: Server, run_id: str) -> Json:
    return server.call("workflow_status", {"runId": run_id})["structuredContent"]


def test_a_run_of_calls_is_answered_when_it_is_over(serve: Callable[..., Server]) -> None:
    server = serve()
    begin(server, "two-calls", "x")

    reply = server.receive(ROOM)
    content = reply["result"]["structuredContent"]
    assert (reply["id"], content["state"], content["result"]) == ("x", "completed", "ab")


def test_other_requests_are_answered_meanwhile_and_progress_is_reported(
    serve: Callable[..., Server], upstream: McpUpstream
) -> None:
    server = serve()
    begin(server, "quick-one", "x", _meta={"progressToken": "t"})
    server.send({"jsonrpc": "2.0", "id": "meanwhile", "method": "ping"})
    seen = until(server, lambda message: message.get("id") == "x")

    progress = [message["params"] for message in seen if message.get("method") == "notifications/progress"]
    assert seen[-1]["result"]["structuredContent"]["result"] == {"slept": 1.0}
    assert [one["progress"] for one in progress] == sorted({one["progress"] for one in progress})
    assert progress
    assert "meanwhile" in [message.get("id") for message in seen]
    assert all(one["progressToken"] == "t" and one["message"].startswith("Do quick") for one in progress)


def test_a_cancelled_call_stops_the_upstream_call_and_is_not_answered(
    serve: Callable[..., Server], upstream: McpUpstream
) -> None:
    server = serve()
    begin(server, "slow-one", "x")
    begun(upstream)
    server.notify("notifications/cancelled", {"requestId": "x", "reason": "changed my mind"})

    state = state_of(server, "run-x")
    assert (state["state"], state["reason"]) == ("cancelled", "the call was cancelled: changed my mind")
    end = time.monotonic() + ROOM
    while not (state := state_of(server, "run-x"))["stopped"][0]["stopped"]:
        assert time.monotonic() < end, state
        time.sleep(0.05)
    assert server.is_silent()


def test_workflow_cancel_and_the_pending_call_say_what_was_stopped(
    serve: Callable[..., Server], upstream: McpUpstream
) -> None:
    server = serve()
    begin(server, "slow-one", "x")
    begun(upstream)
    params = {"name": "workflow_cancel", "arguments": {"runId": "run-x", "reason": "enough"}}
    server.send({"jsonrpc": "2.0", "id": "y", "method": "tools/call", "params": params})

    replies: JsonObject = {}
    while len(replies) < 2:
        reply = server.receive(ROOM)
        replies[reply["id"]] = reply["result"]["structuredContent"]
    assert replies["y"]["state"] == "cancelled"
    assert [entry["stopped"] for entry in replies["y"]["stopped"]] == [True]
    assert replies["x"]["data"]["stopped"] == replies["y"]["stopped"]


def test_at_the_end_of_input_pending_calls_get_some_time(serve: Callable[..., Server]) -> None:
    server = serve(WORKFLOWLOOKUP_DRAIN_SECONDS="30")
    begin(server, "quick-one", "x")
    server.close_input()

    assert server.receive(ROOM)["result"]["structuredContent"]["state"] == "completed"
    assert server.wait(ROOM) == 0


def test_a_call_that_takes_longer_is_cancelled_and_gets_an_error(
    serve: Callable[..., Server], upstream: McpUpstream
) -> None:
    server = serve(WORKFLOWLOOKUP_DRAIN_SECONDS="0.2")
    begin(server, "slow-one", "x")
    begun(upstream)
    server.close_input()

    reply = server.receive(ROOM)
    assert (reply["id"], reply["result"]["isError"]) == ("x", True)
    assert server.wait(ROOM) == 0
    again = serve()
    state = state_of(again, "run-x")
    assert (state["state"], state["reason"]) == ("cancelled", "the client went away")


def test_shutdown_gives_pending_calls_time_and_is_answered_last(serve: Callable[..., Server]) -> None:
    server = serve(WORKFLOWLOOKUP_DRAIN_SECONDS="30")
    begin(server, "quick-one", "x")
    server.send({"jsonrpc": "2.0", "id": "bye", "method": "shutdown"})
    server.send({"jsonrpc": "2.0", "id": "late", "method": "ping"})

    assert [server.receive(ROOM)["id"] for _ in range(2)] == ["x", "bye"]
    assert server.wait(ROOM) == 0


def test_a_conversation_sent_at_once_is_answered_completely(serve: Callable[..., Server]) -> None:
    server = serve(version=None, WORKFLOWLOOKUP_DRAIN_SECONDS="30")
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    start = {"name": "workflow_start", "arguments": {"workflowId": "two-calls"}}
    messages = [("initialize", hello), ("tools/call", start), ("ping", {})]
    lines = [json.dumps({"jsonrpc": "2.0", "id": n, "method": m, "params": p}) for n, (m, p) in enumerate(messages)]
    server.write(("\n".join(lines) + "\n").encode())
    server.close_input()

    assert [server.receive(ROOM)["id"] for _ in range(3)] == [0, 2, 1]


def test_a_task_is_polled_awaited_and_outlives_the_server(serve: Callable[..., Server]) -> None:
    server = serve()
    begin(server, "quick-one", "x", task={})
    task = server.receive(ROOM)["result"]["task"]
    assert task["status"] == "working"
    server.send({"jsonrpc": "2.0", "id": "r", "method": "tasks/result", "params": {"taskId": task["taskId"]}})
    result = until(server, lambda message: message.get("id") == "r")[-1]["result"]
    assert result["structuredContent"]["result"] == {"slept": 1.0}

    server.stop()
    again = serve()
    assert again.result("tasks/get", {"taskId": task["taskId"]})["status"] == "completed"


def news(server: Server) -> set[Json]:
    """The next message, which must be that the tools are others now."""
    assert server.receive(ROOM)["method"] == "notifications/tools/list_changed"
    return {tool["name"] for tool in server.result("tools/list")["tools"]}


def test_sighup_reloads_the_settings_and_does_not_end_the_server(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve()
    before = {tool["name"] for tool in server.result("tools/list")["tools"]}
    settings = settings_file(tmp_path)
    settings.write_text('exclude = ["slow-one"]\n' + settings.read_text())
    server.process.send_signal(signal.SIGHUP)

    after = news(server)
    assert len(before - after) == 1
    assert after < before


def test_changed_settings_and_documents_are_noticed_without_a_signal(
    serve: Callable[..., Server], library: Path, tmp_path: Path
) -> None:
    server = serve()
    before = {tool["name"] for tool in server.result("tools/list")["tools"]}
    write(library, document(call("new", "say", text="x"), id="new-one", name="New one"))
    with_new = news(server)
    settings = settings_file(tmp_path)
    settings.write_text("workflow_tools = false\n" + settings.read_text())
    without = news(server)

    assert len(with_new - before) == 1
    assert not without & {"new_one", "new-one"}
    assert server.is_silent()


def test_sighup_before_the_first_list_does_not_end_the_server(serve: Callable[..., Server]) -> None:
    server = serve()
    server.process.send_signal(signal.SIGHUP)

    assert server.result("ping") == {}
