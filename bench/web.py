"""What HTTP costs: reads beside the official SDK's own server, the way to ready, pages, and submissions to replicas.

The client is a socket and nothing else, so that what is measured is the servers. Both run on loopback. The SDK's server
runs on what its own installation brings, `uvicorn` with `h11`; ours on `uvicorn` with `httptools`.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any, Final, Self

from client import BrokenServer, Pace
from runs import START, STEPS, SUBMIT, WORKFLOW

HANDSHAKE: Final = "2025-11-25"
ENVELOPE: Final = "2026-07-28"
ERAS: Final = (HANDSHAKE, ENVELOPE)
REPLICAS: Final = (1, 2, 3)
CLIENTS: Final = 12
"""How many submit at the same time."""
OURS: Final = "workflowlookup"
SDK: Final = "the SDK's server"

_ABOUT: Final = {"name": "bench", "version": "1.0.0"}
_META: Final = "io.modelcontextprotocol/"
_START_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFigures:
    """What was measured over HTTP."""

    reads: Mapping[str, Mapping[str, Mapping[str, Sequence[Pace]]]]  # era, tool, contestant
    ready_ms: Mapping[str, Sequence[float]]  # contestant; from spawn to the first answer
    pages_ms: Mapping[str, Sequence[float]]  # page; from the request to the first byte
    submissions: Mapping[int, float]  # replicas; a second


def measure(  # noqa: PLR0913 - all that takes part
    command: Sequence[str],
    environment: Mapping[str, str],
    answers: Path,
    questions: Mapping[str, Sequence[Mapping[str, Any]]],
    journals: Sequence[str],
    *,
    rounds: int,
    calls: int,
) -> WebFigures:
    """All of it. `answers` is what the SDK's server repeats; there is a journal for each number of replicas."""
    reads: dict[str, dict[str, dict[str, list[Pace]]]] = {}
    ready: dict[str, list[float]] = {OURS: [], SDK: []}
    commands = {OURS: command, SDK: [sys.executable, str(Path(__file__).with_name("sdk_server.py")), str(answers)]}
    for number in range(rounds):
        with ExitStack() as stack:
            servers = {
                name: stack.enter_context(Served(commands[name], environment))
                for name in list(commands)[:: -1 if number % 2 else 1]
            }
            for name, server in servers.items():
                ready[name].append(server.ready_ms)
            for era in ERAS:
                callers = {
                    name: stack.enter_context(closing(Caller(server.port, era))) for name, server in servers.items()
                }
                for tool, variants in questions.items():
                    for name, caller in callers.items():
                        series = reads.setdefault(era, {}).setdefault(tool, {}).setdefault(name, [])
                        caller.pace(tool, variants, calls // 5)  # warms up
                        series.append(caller.pace(tool, variants, calls))
    return WebFigures(
        reads=reads,
        ready_ms=ready,
        pages_ms=_pages(command, environment, rounds * 10),
        submissions={
            replicas: _submissions(command, {**environment, "WORKFLOWLOOKUP_JOURNAL": journal}, replicas, rounds)
            for replicas, journal in zip(REPLICAS, journals, strict=True)
        },
    )


# ── who takes part ──────────────────────────────────────────────────────────────────────────────────────────────


class Served:
    """A server over HTTP in an empty home of its own; `ready_ms` is the time from spawn to its first answer."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *flags: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="bench-home-")
        self.port = _free_port()
        limits = ("--requests-per-minute", "0", *flags) if command[-1] == "serve" else ()
        start = perf_counter_ns()
        self._process = subprocess.Popen(
            [*command, "--http", f"127.0.0.1:{self.port}", *limits],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._home.name,
            env={**environment, "HOME": self._home.name},
        )
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise BrokenServer(f"{' '.join(command)} did not come up")
            time.sleep(0.005)
        self.ready_ms = (perf_counter_ns() - start) / 1e6

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._home.cleanup()

    def _answers(self) -> bool:
        try:
            with closing(Web(self.port)) as web:
                web.get("/readyz")
        except OSError:
            return False
        return True


class Web:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"127.0.0.1:{port}"

    def close(self) -> None:
        self._socket.close()

    def get(self, path: str) -> float:
        """Milliseconds until the first byte of a page."""
        start = perf_counter_ns()
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: text/html\r\n\r\n".encode())
        reply = self._receive()
        elapsed = (perf_counter_ns() - start) / 1e6
        self._rest(reply)
        return elapsed

    def post(self, head: str, body: bytes) -> tuple[bytes, bytes]:
        """The head and the body of the answer."""
        lead = f"POST /mcp HTTP/1.1\r\nHost: {self._host}\r\n{head}Content-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(lead.encode() + body)
        return self._rest(self._receive())

    def _receive(self) -> bytes:
        data = self._socket.recv(1 << 18)
        if not data:
            raise BrokenServer("a connection was closed")
        return data

    def _rest(self, reply: bytes) -> tuple[bytes, bytes]:
        while b"\r\n\r\n" not in reply:
            reply += self._receive()
        head, _, body = reply.partition(b"\r\n\r\n")
        fields = head.lower()
        if b"transfer-encoding: chunked" in fields:
            while not body.endswith(b"0\r\n\r\n"):
                body += self._receive()
        elif b"content-length: " in fields:
            length = int(fields.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(body) < length:
                body += self._receive()
        return head, body


class Caller:
    """A client of one era, on one connection."""

    def __init__(self, port: int, era: str) -> None:
        self._web = Web(port)
        self._number = 0
        self._meta: dict[str, Any] = {}
        self._head = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        if era == ENVELOPE:
            self._head += f"MCP-Protocol-Version: {era}\r\nMCP-Method: tools/call\r\n"
            about = {"protocolVersion": era, "clientInfo": _ABOUT, "clientCapabilities": {}}
            self._meta = {"_meta": {_META + name: value for name, value in about.items()}}
            return
        opening = {"protocolVersion": era, "capabilities": {}, "clientInfo": _ABOUT}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}
        head, _ = self._web.post(self._head, json.dumps(message).encode())
        session = head.lower().partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()
        self._head += f"MCP-Protocol-Version: {era}\r\nMCP-Session-Id: {session}\r\n"
        self._web.post(self._head, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def close(self) -> None:
        self._web.close()

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The structured result of a call."""
        head, body = self._request(tool, arguments)
        return self._checked(*self._web.post(head, body))["structuredContent"]

    def pace(self, tool: str, variants: Sequence[Mapping[str, Any]], calls: int) -> Pace:
        """So many calls one after the other, with the arguments of each variant in turn."""
        requests = [self._request(tool, variants[number % len(variants)]) for number in range(calls)]
        took = []
        began = perf_counter_ns()
        for head, body in requests:
            start = perf_counter_ns()
            reply = self._web.post(head, body)
            took.append((perf_counter_ns() - start) / 1e3)
        elapsed = (perf_counter_ns() - began) / 1e9
        self._checked(*reply)
        return Pace(
            calls=calls, calls_per_second=calls / elapsed, p50_us=median(took), p99_us=quantiles(took, n=100)[98]
        )

    def _request(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bytes]:
        self._number += 1
        params = {"name": tool, "arguments": arguments, **self._meta}
        message = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}
        return self._head + (f"MCP-Name: {tool}\r\n" if self._meta else ""), json.dumps(message).encode()

    def _checked(self, head: bytes, body: bytes) -> Any:
        lines = (line.removeprefix(b"data: ") for line in body.split(b"\r\n") if b'"jsonrpc"' in line)
        message = json.loads(next(lines, b"{}"))
        if not head.startswith(b"HTTP/1.1 200") or message.get("result", {"isError": True}).get("isError"):
            raise BrokenServer(f"a call was answered with {head[:200]!r} {body[:400]!r}")
        return message["result"]


# ── the console ─────────────────────────────────────────────────────────────────────────────────────────────────


def _pages(command: Sequence[str], environment: Mapping[str, str], rounds: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {}
    with Served(command, environment) as server, closing(Web(server.port)) as web:
        with closing(Caller(server.port, ENVELOPE)) as caller:
            begun = [caller.call(START, {"workflowId": "bug-investigation"})["runId"] for _ in range(20)]
        pages = {
            "library": "/library",
            "a workflow": "/library/bug-investigation",
            "runs": "/runs",
            "a run": f"/runs/{begun[0]}",
            "statistics": "/statistics",
            "health": "/health",
        }
        for number in range(rounds + 1):
            for name, path in pages.items():
                elapsed = web.get(path)
                if number:
                    took.setdefault(name, []).append(elapsed)
    return took


# ── submissions ─────────────────────────────────────────────────────────────────────────────────────────────────


def _submissions(command: Sequence[str], environment: Mapping[str, str], replicas: int, seconds: float) -> float:
    """Submissions a second, by clients that go round so many replicas on one database."""
    with ExitStack() as stack:
        library = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-library-")))
        (library / "measured-run.json").write_text(json.dumps(WORKFLOW))
        own = {**environment, "WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOW_STORAGE_PATH": str(library)}
        servers = [stack.enter_context(Served(command, own)) for _ in range(replicas)]
        counts = [0] * CLIENTS
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=_submit, args=(servers[number % replicas].port, number, counts, end))
            for number in range(CLIENTS)
        ]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.monotonic() - began)


def _submit(port: int, place: int, counts: list[int], end: float) -> None:
    with closing(Caller(port, ENVELOPE)) as caller:
        while time.monotonic() < end:
            run_id = caller.call(START, {"workflowId": WORKFLOW["id"]})["runId"]
            for number in range(STEPS):
                if time.monotonic() > end:
                    return
                output = f"Step {number} is done: I read src/module_{number}.py and noted what it needs. " * 2
                caller.call(SUBMIT, {"runId": run_id, "stepId": f"step-{number}", "output": output})
                counts[place] += 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
