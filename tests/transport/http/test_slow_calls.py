"""Calls over HTTP that take their time: what may be said meanwhile, and what becomes of them when the server stops."""

import contextlib
import functools
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step, write
from support.web import HEADERS, MODERN, Connect, Serve, WebClient, WebServer, events, modern, opening
from upstream.upstreams import McpUpstream
from workflowlookup.protocol.jsonrpc import MAX_NESTING


def serve_slow(
    serve_http: Serve, tmp_path: Path, *flags: str, seconds: int = 20
) -> tuple[WebServer, Callable[..., JsonObject]]:
    """A server with a workflow that takes a while, and the call that starts it."""
    arguments = {"seconds": seconds, "steps": 4}
    work = {"id": "work", "title": "Work", "call": {"server": "up", "tool": "sleep", "arguments": arguments}}
    write(tmp_path / "library", document(work, identifier="takes-a-while"))
    write(tmp_path / "library", document(step(), identifier="by-hand"))
    settings_file(tmp_path).write_text(McpUpstream(tmp_path / "up").toml())
    server = serve_http(*flags, directory=tmp_path / "library")

    def run(identifier: str) -> JsonObject:
        params = {"name": "workflow_start", "arguments": {"workflowId": "takes-a-while"}}
        return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}

    return server, run


def meanwhile(act: Callable[[], object]) -> threading.Thread:
    """Do something while the test goes on; the server may end before it has an answer."""

    def quietly() -> None:
        with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
            act()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def wait_until_busy(server: WebServer) -> None:
    end = time.monotonic() + 20
    while "clients_waiting 1" not in httpx2.get(f"{server.base}/metrics").text:
        assert time.monotonic() < end
        time.sleep(0.05)


def wait_for_run(
    server: WebServer, client: WebClient, message: JsonObject, *, is_modern: bool
) -> tuple[list[Json], threading.Thread]:
    """A client that waits for a call: what it will be told, and until when."""
    if is_modern:
        message["params"]["_meta"] = ENVELOPE
    else:
        client.initialize()
    answers: list[Json] = []
    thread = meanwhile(lambda: answers.extend(client.stream(message)))
    wait_until_busy(server)
    return answers, thread


# ── meanwhile ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_id_that_is_in_use_is_refused(serve_http: Serve, connect: Connect, tmp_path: Path) -> None:
    server, run = serve_slow(serve_http, tmp_path)
    client = connect(server)
    client.initialize()
    meanwhile(lambda: client.post(run(5)))
    wait_until_busy(server)

    for other, status in ((5, 400), ("5", 200)):  # a number and a text are never the same id
        assert client.post({"jsonrpc": "2.0", "id": other, "method": "tools/list"}).status_code == status
    assert client.request("ping") == {"result": {}}


def resumed(client: WebClient, server: WebServer, last: str) -> list[JsonObject]:
    """Everything that comes when a stream is resumed after an event, until it ends."""
    headers = client.session | {"last-event-id": last, "accept": "text/event-stream"}
    with client.http.stream("GET", server.url, headers=headers) as response:
        assert response.status_code == 200
        return list(events(response))


def test_a_call_whose_stream_broke_is_resumed_and_ends_with_its_reply(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    server, run = serve_slow(serve_http, tmp_path, seconds=2)
    client = connect(server)
    client.initialize()
    message = run(5)
    message["params"]["_meta"] = {"progressToken": "far"}
    with client.http.stream("POST", server.url, json=message, headers=client.session) as response:
        last = next(line.removeprefix("id: ") for line in response.iter_lines() if line.startswith("id: "))

    *progress, reply = resumed(client, server, last)  # the server may not know yet that the client had left

    assert {item["params"]["progressToken"] for item in progress} == {"far"}
    assert (reply["id"], reply["result"]["structuredContent"]["state"]) == (5, "completed")
    assert resumed(client, server, last)[-1] == reply  # it is over, and can still be had


def test_the_stream_of_notifications_is_resumed_and_goes_on(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    server, _ = serve_slow(serve_http, tmp_path)
    client, worker = connect(server), connect(server)
    client.initialize()
    worker.initialize()
    start = {"name": "workflow_start", "arguments": {"workflowId": "by-hand"}}
    client.request("resources/subscribe", {"uri": "runs://recent"})
    with client.http.stream("GET", server.url, headers=client.session) as response:
        worker.request("tools/call", start)
        last = next(line.removeprefix("id: ") for line in response.iter_lines() if line.startswith("id: "))
    worker.request("tools/call", start)
    time.sleep(1)  # what changes within a moment is told once
    heard = []
    thread = meanwhile(lambda: heard.extend(resumed(client, server, last)))
    worker.request("tools/call", start)
    time.sleep(1)

    client.http.delete(server.url, headers=client.session)

    thread.join(20)
    assert [item["params"]["uri"] for item in heard][:2] == ["runs://recent"] * 2


def test_a_call_that_is_cancelled_by_a_message_is_answered_with_a_code_of_its_own(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    server, run = serve_slow(serve_http, tmp_path)
    client = connect(server)
    client.initialize()
    answers: list[Json] = []
    thread = meanwhile(lambda: answers.extend(client.stream(run(5))))
    wait_until_busy(server)

    cancelled = {"requestId": 5, "reason": "changed my mind"}
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})

    thread.join(30)
    assert answers[-1]["error"]["code"] == -32800
    runs = client.request("tools/call", {"name": "workflow_runs", "arguments": {}})["result"]["structuredContent"]
    assert [run["state"] for run in runs["runs"]] == ["cancelled"]


def pipelined(server: WebServer, client: WebClient, *messages: JsonObject) -> Json:
    """The last of several messages that are sent without waiting, as the server answers it."""
    host, port = server.base.removeprefix("http://").split(":")
    headers = HEADERS | client.session | {"host": f"{host}:{port}"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        for message in messages:
            body = json.dumps(message)
            closing = "connection: close\r\n" if message is messages[-1] else ""
            wire.sendall(f"POST /mcp HTTP/1.1\r\n{lines}{closing}content-length: {len(body)}\r\n\r\n{body}".encode())
        received = b"".join(iter(functools.partial(wire.recv, 1 << 16), b""))
    return json.loads(re.findall(rb"^data: (\{.*\})\r$", received, re.MULTILINE)[-1])["result"]["structuredContent"]


def status_of(run: str) -> JsonObject:
    params = {"name": "workflow_status", "arguments": {"runId": run}}
    return {"jsonrpc": "2.0", "id": "status", "method": "tools/call", "params": params}


def test_a_request_does_not_overtake_that_another_one_is_cancelled(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    server, run = serve_slow(serve_http, tmp_path)
    client = connect(server)
    client.initialize()
    message = run(5)
    message["params"]["arguments"]["runId"] = "run-5"
    meanwhile(lambda: client.post(message))
    wait_until_busy(server)

    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    assert pipelined(server, client, cancelled, status_of("run-5"))["state"] == "cancelled"


def test_a_request_does_not_overtake_a_persons_answer(serve_http: Serve, connect: Connect, tmp_path: Path) -> None:
    write(tmp_path / "library", document(step("one", requireConfirmation=True), identifier="asks-a-person"))
    server = serve_http(directory=tmp_path / "library")
    client = connect(server)
    client.initialize(capabilities={"elicitation": {}})
    client.request("workflow_start", {"workflowId": "asks-a-person", "runId": "run-1"})
    submission = {"runId": "run-1", "stepId": "one", "output": "done"}
    stream = client.stream({"jsonrpc": "2.0", "id": "s", "method": "workflow_submit", "params": submission})
    question = next(stream)

    answer = {"action": "accept", "content": {}}
    answered = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
    assert pipelined(server, client, answered, status_of("run-1"))["state"] == "completed"
    assert next(stream)["result"]["state"] == "completed"


def test_nesting_beyond_the_limit_is_refused_and_up_to_it_is_accepted(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    server, run = serve_slow(serve_http, tmp_path, seconds=0)
    client = connect(server)
    statuses = set()
    for depth in (100, MAX_NESTING - 2, MAX_NESTING, 960, 1000):
        message = run(depth)
        message["params"]["_meta"] = ENVELOPE | {"deep": "DEEP"}
        body = json.dumps(message).replace('"DEEP"', "[" * depth + "]" * depth).encode()
        headers = MODERN | {"mcp-method": "tools/call", "mcp-name": "workflow_start"}
        statuses.add(client.post(body, **headers).status_code)

    assert statuses == {200, 400}
    assert 'runs{state="cancelled"}' not in httpx2.get(f"{server.base}/metrics").text


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "envelope"])
def test_a_server_that_stops_lets_calls_finish_and_accepts_no_more(
    serve_http: Serve, connect: Connect, tmp_path: Path, is_modern: bool
) -> None:
    server, run = serve_slow(serve_http, tmp_path, "--drain-seconds", "60", seconds=3)
    answers, thread = wait_for_run(server, connect(server), run(5), is_modern=is_modern)

    server.terminate()
    time.sleep(0.3)

    with pytest.raises(httpx2.ConnectError):
        httpx2.post(server.url, content=json.dumps(opening()).encode(), headers=HEADERS)
    thread.join(60)
    assert answers[-1]["result"]["structuredContent"].get("state") == "completed", answers
    assert server.wait(15) == 0


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "envelope"])
def test_a_call_that_takes_longer_gets_an_error_that_its_run_goes_on(
    serve_http: Serve, connect: Connect, tmp_path: Path, is_modern: bool
) -> None:
    server, run = serve_slow(serve_http, tmp_path, "--drain-seconds", "0.5")
    answers, thread = wait_for_run(server, connect(server), run(5), is_modern=is_modern)

    server.terminate()

    assert server.wait(10) in (0, 143)  # 143: a busy machine did not close everything in END_SECONDS
    thread.join(10)
    result = answers[-1]["result"]
    assert result["isError"]
    assert "the run goes on without it" in result["content"][0]["text"]
    again = WebClient(serve_http(directory=tmp_path / "library").url)
    status = again.request(
        "workflow_status", {"runId": result["structuredContent"]["data"]["runId"], "_meta": ENVELOPE}
    )
    again.close()
    assert status["result"]["state"] in ("queued", "running")


def test_a_subscription_ends_with_its_result_when_the_server_stops(serve_http: Serve, connect: Connect) -> None:
    server = serve_http()
    stream = connect(server).stream(
        modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["runs://recent"]}})
    )
    assert next(stream)["method"] == "notifications/subscriptions/acknowledged"

    server.terminate()

    assert next(stream)["result"]["resultType"] == "complete"
    assert server.wait(10) == 0


def test_a_second_signal_ends_it_at_once(serve_http: Serve, connect: Connect, tmp_path: Path) -> None:
    server, run = serve_slow(serve_http, tmp_path, "--drain-seconds", "60")
    client = connect(server)
    client.initialize()
    meanwhile(lambda: client.post(run(5)))
    wait_until_busy(server)

    server.terminate()
    time.sleep(0.3)
    server.terminate()

    server.wait(15)
