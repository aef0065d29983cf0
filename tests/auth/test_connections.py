"""Whoever opens connections and sends nothing shuts out nobody. Every address of 127.0.0.0/8 is another client."""

import contextlib
import functools
import select
import socket
import sys
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from support.web import Serve, WebServer

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
FEW_FILES = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 256))
sys.argv[1:1] = ["serve"]
runpy.run_module("workflowlookup", run_name="__main__")
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")


@pytest.fixture
def serve(serve_http: Serve) -> Serve:
    """A server with room for 400 connections, half of them for one address, unless the options say otherwise."""
    return functools.partial(serve_http, "--max-sessions", "100")


@pytest.fixture
def connect() -> Iterator[Callable[..., list[socket.socket]]]:
    """Opens so many connections from an address."""
    with contextlib.ExitStack() as stack:

        def open_many(server: WebServer, source: str, count: int = 1) -> list[socket.socket]:
            address = urlsplit(server.base)
            return [
                stack.enter_context(
                    socket.create_connection((address.hostname, address.port), timeout=20, source_address=(source, 0))
                )
                for _ in range(count)
            ]

        yield open_many


def is_answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(HEALTH)
        return connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    except ConnectionError:
        return False


def still_open(connections: list[socket.socket]) -> list[socket.socket]:
    """Those that the server has not closed."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection.fileno(), select.POLLIN)
    closed = {number for number, _ in poll.poll(0)}
    return [connection for connection in connections if connection.fileno() not in closed]


def test_thousands_of_idle_connections_of_one_address_evict_each_other(
    serve: Callable[..., WebServer], connect: Callable[..., list[socket.socket]]
) -> None:
    server = serve()
    (connection,) = connect(server, "127.0.0.1")
    assert is_answered(connection)
    idle: list[socket.socket] = []

    for _ in range(8):
        idle += connect(server, "127.0.0.2", 100)
        assert is_answered(connect(server, "127.0.0.1")[0])

    assert is_answered(connection)
    assert len(still_open(idle)) <= 200
    assert server.log().count("127.0.0.2 has 200 connections open") == 1


def test_idle_connections_of_many_addresses_evict_each_other(
    serve: Callable[..., WebServer], connect: Callable[..., list[socket.socket]]
) -> None:
    server = serve()
    (connection,) = connect(server, "127.0.0.1")
    assert is_answered(connection)

    idle = [one for number in range(1, 61) for one in connect(server, f"127.0.1.{number}", 12)]

    assert is_answered(connection)
    assert is_answered(connect(server, "127.0.0.1")[0])
    assert len(still_open(idle)) <= 400


@pytest.mark.parametrize(("path", "kind"), [("/login", "x-www-form-urlencoded"), ("/mcp", "json")])
def test_connections_with_unfinished_requests_evict_each_other(
    serve: Callable[..., WebServer], connect: Callable[..., list[socket.socket]], path: str, kind: str
) -> None:
    server = serve()
    (finished,) = connect(server, "127.0.0.1")
    assert is_answered(finished)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: http://127.0.0.1\r\ncontent-type: application/{kind}\r\n"
    )
    unfinished = [one for number in range(1, 9) for one in connect(server, f"127.0.1.{number}", 49)]
    for connection in unfinished:
        connection.sendall(head.encode() + b"content-length: 60000\r\n\r\ntoken=")
    newcomers: list[socket.socket] = []
    for _ in range(20):
        newcomers += connect(server, "127.0.0.1")
        assert is_answered(newcomers[-1])

    if path == "/login":  # at /mcp they count as callers, because this server needs no token
        assert is_answered(finished)


def test_connections_that_are_answered_are_closed_last(
    serve: Callable[..., WebServer], connect: Callable[..., list[socket.socket]]
) -> None:
    server = serve("--connections-per-address", "20")
    used = connect(server, "127.0.0.2", 10)
    assert all(is_answered(connection) for connection in used)

    connect(server, "127.0.0.2", 40)

    assert len(still_open(used)) == 10


def test_a_trusted_proxy_has_no_share_of_its_own(
    serve: Callable[..., WebServer], connect: Callable[..., list[socket.socket]]
) -> None:
    server = serve("--trusted-proxies", "127.0.0.2", "--connections-per-address", "20")

    proxied = connect(server, "127.0.0.2", 100)

    assert is_answered(proxied[-1])
    assert len(still_open(proxied)) == 100


def test_with_few_file_descriptors_it_serves_and_logs_little(
    serve: Callable[..., WebServer], connect: Callable[..., list[socket.socket]]
) -> None:
    server = serve(program=("-c", FEW_FILES))

    idle = [one for number in range(1, 9) for one in connect(server, f"127.0.1.{number}", 50)]

    assert is_answered(connect(server, "127.0.0.1")[0])
    assert len(still_open(idle)) <= 128
    assert "at most 256 files can be open" in server.log()
    assert "Traceback" not in server.log()
    assert len(server.log()) < 5_000
