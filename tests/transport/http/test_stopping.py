"""How a server over HTTP stops: not ready first, then no new connections, then the last answers; no request is lost."""

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

from support.json_values import Json, JsonObject
from support.make import document, settings_file, write
from support.waiting import wait_until
from support.web import HEADERS, Serve, WebServer, modern, opening, routing
from upstream.upstreams import McpUpstream


@pytest.fixture
def serve(serve_http: Serve, tmp_path: Path, library: Path) -> Serve:
    """Starts a server with a workflow whose call takes five seconds."""
    settings_file(tmp_path).write_text(McpUpstream(tmp_path / "up").toml())
    call = {"server": "up", "tool": "sleep", "arguments": {"seconds": 5, "steps": 1}}
    write(library, document({"id": "work", "title": "Work", "call": call}, identifier="slow"))
    return functools.partial(serve_http, directory=library)


def post(client: httpx2.Client, server: WebServer, message: JsonObject) -> httpx2.Response:
    return client.post(server.url, content=json.dumps(message).encode(), headers=HEADERS | routing(message))


def begin_slow_call(server: WebServer) -> tuple[list[Json], threading.Thread]:
    """The status of a call that takes five seconds, in a list that is filled when it has ended."""
    statuses: list[Json] = []

    def call() -> None:
        message = modern("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "slow"}})
        with httpx2.Client(timeout=60) as client:
            statuses.append(post(client, server, message).json()["result"]["structuredContent"]["state"])

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: "clients_waiting 1" in httpx2.get(f"{server.base}/metrics").text)
    return statuses, thread


def accepts_connections(server: WebServer) -> bool:
    host, port = server.base.removeprefix("http://").split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5):
        return True
    return False


def test_after_a_signal_it_is_not_ready_and_serves_for_the_delay(serve: Callable[..., WebServer]) -> None:
    server = serve("--stop-delay-seconds", "300")
    server.terminate()
    wait_until(lambda: httpx2.get(f"{server.base}/readyz").status_code == 503)

    answers = [
        httpx2.get(f"{server.base}/readyz"),
        httpx2.get(f"{server.base}/healthz"),
        httpx2.post(server.url, content=json.dumps(opening()).encode(), headers=HEADERS),
    ]

    assert [answer.status_code for answer in answers] == [503, 200, 200]
    assert [answer.headers["connection"] for answer in answers] == ["close"] * 3
    assert server.log().count("not ready: the server is stopping") == 1


def test_a_second_signal_ends_the_delay(serve: Callable[..., WebServer]) -> None:
    server = serve("--stop-delay-seconds", "300")
    server.terminate()
    wait_until(lambda: httpx2.get(f"{server.base}/readyz").status_code == 503)

    server.terminate()

    server.wait(15)


def test_after_the_delay_it_ends_by_itself(serve: Callable[..., WebServer]) -> None:
    server = serve("--stop-delay-seconds", "0.5")

    server.terminate()

    assert server.wait(15) == 0


def test_while_a_call_finishes_open_connections_are_answered_and_closed(serve: Callable[..., WebServer]) -> None:
    server = serve("--drain-seconds", "60")
    statuses, thread = begin_slow_call(server)
    with httpx2.Client() as client:
        assert client.get(f"{server.base}/readyz").status_code == 200
        server.terminate()
        wait_until(lambda: not accepts_connections(server))

        answer = post(client, server, modern("tools/list"))

    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    thread.join(60)
    assert statuses == ["completed"]
    assert server.wait(15) == 0


def test_an_idle_connection_does_not_delay_the_stop(serve: Callable[..., WebServer]) -> None:
    server = serve("--drain-seconds", "60")
    with httpx2.Client() as client:
        assert client.get(f"{server.base}/healthz").status_code == 200
        server.terminate()

        assert server.wait(15) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can close a listening socket without a reset")
def test_every_connection_that_was_opened_is_answered(serve: Callable[..., WebServer]) -> None:
    """Clients connect as fast as they can while the server stops: each is refused, or gets its answer."""
    for _ in range(2):
        server = serve()
        outcomes = Outcomes(server)
        threads = [threading.Thread(target=outcomes.collect) for _ in range(16)]
        for thread in threads:
            thread.start()
        wait_until(outcomes.are_many)
        server.terminate()
        for thread in threads:
            thread.join(60)

        assert outcomes.lost == []
        assert server.wait(15) == 0


class Outcomes:
    """What becomes of connections with one request each."""

    def __init__(self, server: WebServer) -> None:
        host, port = server.base.removeprefix("http://").split(":")
        self._address = host, int(port)
        self.answered = 0
        self.lost: list[object] = []

    def are_many(self) -> bool:
        return self.answered > 100

    def collect(self) -> None:
        while True:
            try:
                connection = socket.create_connection(self._address, 30)
            except OSError:
                return
            with connection:
                try:
                    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    answer = connection.recv(1 << 16)
                except OSError as problem:
                    answer = repr(problem).encode()
                if answer.startswith(b"HTTP/1.1 200"):
                    self.answered += 1
                else:
                    self.lost.append(answer)


def test_a_response_that_has_begun_is_finished(serve: Callable[..., WebServer]) -> None:
    """A client that sends its request slowly is waited for."""
    server = serve("--drain-seconds", "60")
    host, port = server.base.removeprefix("http://").split(":")
    body = json.dumps(modern("tools/list")).encode()
    headers = {**HEADERS, **routing(modern("tools/list")), "host": "localhost", "content-length": str(len(body))}
    head = "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(head.encode() + body[:10])
        time.sleep(0.3)
        server.terminate()
        wait_until(lambda: not accepts_connections(server))
        connection.sendall(body[10:])
        answer = connection.recv(1 << 16)

    assert answer.startswith(b"HTTP/1.1 200")
    assert server.wait(15) == 0
