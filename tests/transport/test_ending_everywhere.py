"""The process ends within a few seconds in every state, and nothing that it started survives it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import Server
from support.make import document, settings_file, step, write
from support.postgres import Postgres
from support.processes import is_alive
from support.waiting import wait_until
from support.web import WebClient, WebServer

IN_TIME = 12.0
"""Well above what it takes, because the machine may be busy; well below for ever."""

STUBBORN = """
import os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
family = [os.getpid(), subprocess.Popen(sleeper).pid, subprocess.Popen(sleeper, start_new_session=True).pid]
with open({pids!r} + ".new", "w") as file:
    file.write(" ".join(map(str, family)))
os.rename({pids!r} + ".new", {pids!r})
time.sleep(600)
"""
"""A server that hears nothing, nor do its children: one in its process group, and one in a session of its own."""


def ends_in_time(process: "subprocess.Popen[Any]") -> int:
    begun = time.monotonic()
    code = process.wait(IN_TIME * 3)
    assert time.monotonic() - begun < IN_TIME
    return code


# ── children ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stubborn(tmp_path: Path, library: Path) -> Callable[[], list[int]]:
    """A workflow whose call never ends, at a server that nobody can end; the processes of that, once they run."""
    pids = tmp_path / "pids"
    settings_file(tmp_path).write_text(
        f"[mcpServers.stubborn]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = ['-c', {json.dumps(STUBBORN.format(pids=str(pids)))}]\n"
    )
    work = {"id": "work", "title": "Work", "call": {"server": "stubborn", "tool": "x", "arguments": {}}}
    write(library, document(work, identifier="never-ends"))
    return lambda: [int(pid) for pid in wait_until(lambda: pids.read_text() if pids.exists() else "").split()]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, None], ids=["SIGTERM", "SIGINT", "end of input"])
def test_no_child_of_a_stdio_server_survives_it(
    start: Callable[..., Server], library: Path, stubborn: Callable[[], list[int]], how: signal.Signals | None
) -> None:
    server = start(directory=library)
    server.call("workflow_start", {"workflowId": "never-ends", "wait": False})
    processes = stubborn()

    if how is None:
        server.close_input()
    else:
        server.process.send_signal(how)

    ends_in_time(server.process)
    wait_until(lambda: not any(map(is_alive, processes)), 5)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_no_child_of_an_http_server_survives_it(
    tmp_path: Path, library: Path, stubborn: Callable[[], list[int]], how: signal.Signals
) -> None:
    server = WebServer(tmp_path, "--drain-seconds", "1", directory=library)
    client = WebClient(server.url)
    client.initialize()
    client.request("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "never-ends", "wait": False}})
    processes = stubborn()

    server.process.send_signal(how)

    ends_in_time(server.process)
    client.close()
    server.stop()
    wait_until(lambda: not any(map(is_alive, processes)), 5)


# ── the first moments ───────────────────────────────────────────────────────────────────────────────────────────────

SIGNALLED = """
import os, sys
from workflowlookup.__main__ import main

class Signalling:
    def find_spec(self, name, path, target=None, *, wanted=sys.argv.pop(1), number=int(sys.argv.pop(1))):
        if name == wanted:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Signalling())
sys.exit(main())
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "module", ["msgspec", "workflowlookup.logs", "workflowlookup.app", "workflowlookup.protocol.connection"]
)
@pytest.mark.parametrize("flags", [(), ("--http", "127.0.0.1:0")], ids=["stdio", "http"])
def test_a_signal_while_a_server_is_starting_ends_it_silently(
    tmp_path: Path, flags: tuple[str, ...], module: str, how: signal.Signals
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, module, str(int(how)), "serve", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
        timeout=60,
    )

    assert (done.returncode, done.stdout, done.stderr) == (-how, "", "")


# ── process 1 of a container ────────────────────────────────────────────────────────────────────────────────────────

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")
CAN_UNSHARE = (
    sys.platform == "linux" and subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0
)


@pytest.mark.skipif(not CAN_UNSHARE, reason="it takes the right to make a PID namespace")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("command", "ready"),
    [
        (("serve",), b'"result":{}'),
        (("serve", "--http", "127.0.0.1:0"), b"serves MCP at"),
        (("console", "--no-open"), b"http://localhost"),
        (("watch", "broken.json"), b"broken.json"),
    ],
    ids=["serve", "serve --http", "console", "watch"],
)
def test_process_1_of_a_container_ends_by_a_signal(
    tmp_path: Path, command: tuple[str, ...], ready: bytes, how: signal.Signals
) -> None:
    (tmp_path / "broken.json").write_text("{")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WORKFLOW")}
    process = subprocess.Popen(
        [*UNSHARE, sys.executable, "-m", "workflowlookup", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env=environment | {"HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(60, process.kill)
    limit.start()
    try:
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        while ready not in (line := process.stdout.readline()):
            assert line, "it ended before it was ready"
        inside = subprocess.run(["pgrep", "--parent", str(process.pid)], check=True, capture_output=True, text=True)

        os.kill(int(inside.stdout), how)

        ends_in_time(process)
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


# ── states in which a server cannot go on ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", [signal.SIGTERM, None], ids=["SIGTERM", "end of input"])
def test_a_database_that_hangs_does_not_delay_the_end(
    start: Callable[..., Server], library: Path, postgres: Postgres, database: str, how: signal.Signals | None
) -> None:
    write(library, document(step("one"), identifier="by-hand"))
    server = start(directory=library, WORKFLOWLOOKUP_JOURNAL=database)
    run = server.call("workflow_start", {"workflowId": "by-hand"})["structuredContent"]["runId"]
    submission = {"name": "workflow_submit", "arguments": {"runId": run, "stepId": "one", "output": "done"}}
    with postgres.paused():
        server.send({"jsonrpc": "2.0", "id": "never", "method": "tools/call", "params": submission})
        time.sleep(0.3)
        server.close_input()
        if how is not None:
            server.process.send_signal(how)

        ends_in_time(server.process)


@pytest.mark.parametrize("how", [signal.SIGTERM, None], ids=["SIGTERM", "end of input"])
def test_output_that_is_not_read_does_not_delay_the_end(
    start: Callable[..., Server], how: signal.Signals | None
) -> None:
    server = start()
    assert server.process.stdin is not None
    descriptor = server.process.stdin.fileno()
    os.set_blocking(descriptor, False)
    request = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n' * 1000
    last = time.monotonic()
    while time.monotonic() - last < 2.0:  # it reads on until it holds as much as it ever does
        try:
            os.write(descriptor, request)
            last = time.monotonic()
        except BlockingIOError:
            time.sleep(0.05)

    server.close_input()
    if how is not None:
        server.process.send_signal(how)

    ends_in_time(server.process)


def test_everything_sent_before_the_end_of_input_is_answered(start: Callable[..., Server]) -> None:
    server = start()
    for _ in range(300):
        server.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    server.close_input()
    assert server.process.stdout is not None

    lines = 0
    while server.process.stdout.readline():
        lines += 1
        time.sleep(0.03)  # slower than it may stall, in all

    assert (lines, server.wait()) == (300, 0)
