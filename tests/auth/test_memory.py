"""The memory limit that deploy/ sets is not reached, whatever as many callers do as have the whole together."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import yaml

from auth.token_server import TokenServer
from support.client import ENVELOPE
from support.json_values import JsonObject
from support.make import document, step, write
from support.processes import peak_memory_of
from support.web import modern, opening
from workflowlookup import shares

DEPLOY = Path(__file__).parents[2] / "deploy"
CALLERS = [f"hostile-{number}" for number in range(shares.CALLERS)]
MIB = 1 << 20
LIMIT = int(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["replica-1"]["mem_limit"][:-1]) * MIB
LONG = {"name": "workflow_get", "arguments": {"id": "docs-long", "mode": "full"}}
"""A call whose answer has more than 800,000 bytes."""


class Hostile:
    """A client that opens connections, sends on them what it likes, and never reads."""

    def __init__(self, token_server: TokenServer, name: str) -> None:
        self._port = int(token_server.server.base.rpartition(":")[2])
        self._secret = token_server.secrets[name]
        self.client = token_server.client(name)
        self._open = contextlib.ExitStack()

    def send(self, content: bytes, *, size: int | None = None, **headers: str) -> None:
        """Send a message, or the beginning of one that is said to have this size."""
        with contextlib.suppress(OSError):  # the server may close the connection meanwhile
            lines = [
                "POST /mcp HTTP/1.1",
                f"host: 127.0.0.1:{self._port}",
                f"authorization: Bearer {self._secret}",
                "accept: application/json, text/event-stream",
                "content-type: application/json",
                f"content-length: {size or len(content)}",
                *(f"{name}: {value}" for name, value in headers.items()),
            ]
            self._connect().sendall("\r\n".join([*lines, "", ""]).encode() + content)

    def send_unfinished_headers(self) -> None:
        with contextlib.suppress(OSError):
            self._connect().sendall(b"GET /healthz HTTP/1.1\r\nx: " + b"x" * 60_000)

    def _connect(self) -> socket.socket:
        connection = self._open.enter_context(socket.create_connection(("127.0.0.1", self._port), timeout=5))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        return connection

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def token_server(tmp_path: Path) -> Iterator[TokenServer]:
    token_server = TokenServer(tmp_path, "--requests-per-minute", "0")
    for name in CALLERS:
        token_server.let_in(name, ["read"])
    write(
        token_server.deployment.library,
        document(*(step(f"step-{number}", prompt="x" * 8_000) for number in range(55)), identifier="docs-long"),
    )
    yield token_server
    token_server.close()


@pytest.fixture
def hostile(token_server: TokenServer) -> Iterator[list[Hostile]]:
    clients = [Hostile(token_server, name) for name in CALLERS]
    yield clients
    for client in clients:
        client.close()


def test_hostile_clients_cannot_make_the_server_reach_its_memory_limit(
    token_server: TokenServer, hostile: list[Hostile], capsys: pytest.CaptureFixture[str]
) -> None:
    peaks = {}
    attacks = (open_sessions, ask_without_reading, listen, send_without_end, send_unfinished_headers)
    for attack in attacks:
        for client in hostile:
            attack(client)
        assert httpx2.get(f"{token_server.server.base}/healthz").status_code == 200
        peaks[attack.__name__] = peak_memory_of(token_server.server.process.pid)

    with capsys.disabled():
        print({name: f"{peak // MIB} MiB" for name, peak in peaks.items()})
    assert max(peaks.values()) < LIMIT


def open_sessions(hostile: Hostile) -> None:
    """As many as one caller gets, with long capabilities; they follow runs, and leave answers to be sent again."""
    capabilities: JsonObject = {"experimental": {str(number): {} for number in range(300)}}
    answers = [hostile.client.post(opening(capabilities=capabilities)) for _ in range(251)]
    sessions = [answer.headers["mcp-session-id"] for answer in answers if answer.status_code == 200]
    assert len(sessions) == 250
    for number in range(100):
        subscribe = {"uri": f"run://{number:0290}"}
        message = {"jsonrpc": "2.0", "id": number, "method": "resources/subscribe", "params": subscribe}
        hostile.client.post(message, **in_session(sessions[0]))
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": LONG}
    for session in sessions[:20]:
        hostile.send(json.dumps(message).encode(), **in_session(session))


def in_session(session: str) -> JsonObject:
    return {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}


def ask_without_reading(hostile: Hostile) -> None:
    routing: JsonObject = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": LONG["name"]}
    for _ in range(40):
        hostile.send(json.dumps(modern("tools/call", LONG)).encode(), **routing)


def listen(hostile: Hostile) -> None:
    """Hold requests open that are small as text and large as values."""
    many = [{f"{number:05}": 1} for number in range(120_000)]
    params = {"notifications": {"toolsListChanged": True}, "_meta": {**ENVELOPE, "many": many}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    routing: JsonObject = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    for _ in range(10):
        hostile.send(json.dumps(message, separators=(",", ":")).encode(), **routing)


def send_without_end(hostile: Hostile) -> None:
    for _ in range(10):
        hostile.send(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (7 * MIB), size=8 * MIB)


def send_unfinished_headers(hostile: Hostile) -> None:
    for _ in range(100):
        hostile.send_unfinished_headers()
