"""A server that is told to stop ends within its time, whatever others do or do not do meanwhile."""

import contextlib
import functools
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from support.client import ENVELOPE
from support.json_values import JsonObject
from support.make import document, settings_file, step, write
from support.postgres import Postgres
from support.processes import is_gone
from support.web import Serve, WebClient, WebServer
from workflowlookup.transport.http.http1 import MAX_PIPELINED

DRAIN_SECONDS = 1.0
IN_TIME = DRAIN_SECONDS + 3.5
"""The setting, the second that the end has, and room for a busy machine: what does not delay it would for five seconds,
or for ever."""
DEAF = """
import os, time
open({pid_file!r}, "w").write(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture
def serve(serve_http: Serve, library: Path) -> Serve:
    write(library, document(step("one"), identifier="by-hand"))
    return functools.partial(serve_http, "--drain-seconds", str(DRAIN_SECONDS), directory=library)


def seconds_to_end(server: WebServer, *, signals: int = 1) -> float:
    begun = time.monotonic()
    for _ in range(signals):
        server.terminate()
        time.sleep(0.2)
    server.wait(30)
    return time.monotonic() - begun


def in_vain(act: Callable[..., JsonObject]) -> None:
    """Do in a thread what will not be answered."""

    def quietly() -> None:
        with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError, AssertionError):
            act()

    threading.Thread(target=quietly, daemon=True).start()


def test_a_client_that_never_reads_does_not_delay_the_stop(serve: Callable[..., WebServer]) -> None:
    server = serve()
    port = int(server.base.rpartition(":")[2])
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
    body = json.dumps(message).encode()
    headers = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n"
        "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMCP-Method: tools/list\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", port))
        client.settimeout(2)
        for _ in range(MAX_PIPELINED):  # more than fits between it and the server
            client.sendall(headers.encode() + body)

        taken = seconds_to_end(server)

    assert taken < IN_TIME
    assert server.process.returncode == 0


def test_a_call_to_a_server_that_ignores_signals_does_not_delay_the_stop_and_is_killed(
    serve: Callable[..., WebServer], tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    deaf = DEAF.format(pid_file=str(pid_file))
    settings_file(tmp_path).write_text(
        f"[mcpServers.deaf]\ncommand = {json.dumps(sys.executable)}\nargs = ['-c', {json.dumps(deaf)}]\n"
    )
    work = {"id": "work", "title": "Work", "call": {"server": "deaf", "tool": "x", "arguments": {}}}
    write(tmp_path / "library", document(work, identifier="deaf-one"))
    server = serve()
    client = WebClient(server.url)
    client.initialize()
    in_vain(lambda: client.request("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "deaf-one"}}))
    end = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < end
        time.sleep(0.05)

    taken = seconds_to_end(server)

    client.close()
    assert taken < IN_TIME
    assert is_gone(int(pid_file.read_text()))


@pytest.mark.parametrize("signals", [1, 2], ids=["told-once", "told-twice"])
def test_a_database_that_does_not_answer_does_not_delay_the_stop(
    serve: Callable[..., WebServer], postgres: Postgres, database: str, signals: int
) -> None:
    server = serve(environment={"WORKFLOWLOOKUP_JOURNAL": database})
    client = WebClient(server.url)
    client.initialize()
    start = {"name": "workflow_start", "arguments": {"workflowId": "by-hand"}}
    run = client.request("tools/call", start)["result"]["structuredContent"]["runId"]
    with postgres.paused():
        submission = {"runId": run, "stepId": "one", "output": "done"}
        in_vain(lambda: client.request("tools/call", {"name": "workflow_submit", "arguments": submission}))
        time.sleep(0.3)

        taken = seconds_to_end(server, signals=signals)

    client.close()
    assert taken < IN_TIME
    assert "its runs go on with the next server" in server.log()
