"""HTTP/1.1 as bytes on a real socket: what is sent, and exactly what comes back."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from support.json_values import Json
from workflowlookup.transport.http import http1
from workflowlookup.transport.http.connections import ConnectionTable
from workflowlookup.transport.http.http1 import HttpProtocol
from workflowlookup.transport.http.server import listen

T = TypeVar("T")

GET = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST %b HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n%b"
CHUNKED = b"transfer-encoding: chunked"
CLOSE = b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


async def site(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: PLR0912 - one for each path
    """`/echo` sends the request back, `/parts` has no length, `/refuse` reads nothing, `/fail` raises."""
    path = scope["path"]
    if path == "/fail":
        raise ValueError("on purpose")
    if path == "/refuse":
        await respond(send, b"no", 401)
    elif path == "/value":
        await respond(send, dict(scope["headers"])[b"x"])
    elif path == "/parts":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})
    elif path == "/split":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nb: c")]})
    elif path == "/later":
        await asyncio.sleep(0.1)
        await respond(send, b"late")
    elif path == "/events":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"event", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    elif path == "/long":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(400):
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        await send({"type": "http.response.body"})
    elif path == "/never":
        while (await receive())["type"] != "http.disconnect":
            pass
    elif path == "/half":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await asyncio.sleep(0)
    else:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        names = b",".join(name for name, _ in scope["headers"])
        await respond(send, b"%b %b [%b] %b" % (scope["method"].encode(), path.encode(), names, body))


async def respond(send: Send, body: Json, status: int = 200) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def converse(
    parts: Iterable[bytes], seconds: float = 2.0, max_open: int = 10, pause: float = 0.02, half_closes: bool = False
) -> bytes:
    """Everything that comes back for these parts, each sent when the one before has arrived.

    `half_closes`: the client closes its side after the last.
    """
    loop = asyncio.get_running_loop()
    connections, state = ConnectionTable(max_open, max_open), ServerState()
    listener = listen("127.0.0.1", 0)
    server = await loop.create_server(lambda: HttpProtocol(site, connections, state), sock=listener)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    received = b""
    try:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(pause)
                if half_closes:
                    writer.write_eof()
                while data := await reader.read(65536):
                    received += data
                received += b"<closed>"
    finally:
        writer.close()
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
    return received


async def ask_and_read(path: bytes, read: Callable[[socket.socket, ServerState], Awaitable[T]]) -> T:
    """Ask for a response on a connection with small buffers, and have `read` do with it what it likes."""
    loop = asyncio.get_running_loop()
    connections, state = ConnectionTable(10, 10), ServerState()
    listener = listen("127.0.0.1", 0)
    server = await loop.create_server(lambda: HttpProtocol(site, connections, state), sock=listener)
    with socket.create_connection(listener.getsockname()) as client:
        client.setblocking(False)
        await loop.sock_sendall(client, GET % path)
        outcome = await read(client, state)
    server.close()
    for connection in list(state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)
    return outcome


def talk(*parts: bytes, seconds: float = 30.0, **options: Any) -> bytes:
    return asyncio.run(converse(parts, seconds=seconds, **options))


def bodies(received: bytes) -> list[bytes]:
    return [part.partition(b"\r\n\r\n")[2] for part in received.replace(b"<closed>", b"").split(b"HTTP/1.1 ")[1:]]


def statuses(received: bytes) -> list[int]:
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


def test_a_connection_stays_open_for_the_next_request() -> None:
    received = talk(GET % b"/a", POST % (b"/b", b"content-length: 2", b"hi"), CLOSE % b"/c")

    assert bodies(received) == [
        b"GET /a [host] ",
        b"POST /b [host,content-length] hi",
        b"GET /c [host,connection] ",
    ]


def test_pipelined_requests_are_answered_in_order() -> None:
    received = talk(GET % b"/a" + POST % (b"/b", CHUNKED, b"2\r\nhi\r\n0\r\n\r\n") + CLOSE % b"/c")

    assert [body[:7].split()[1] for body in bodies(received)] == [b"/a", b"/b", b"/c"]
    assert received.endswith(b"<closed>")


def test_a_client_that_closes_its_side_is_answered_and_the_connection_closed() -> None:
    post = POST % (b"/later", b"content-length: 2", b"hi")

    assert talk(post, half_closes=True) == (
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nlate<closed>"
    )
    assert bodies(talk(post + GET % b"/later" + post, half_closes=True)) == [b"late"] * 3


@pytest.mark.parametrize(("path", "answer"), [(b"/events", [200]), (b"/never", [])])
def test_a_response_without_a_length_is_ended_when_the_client_half_closes(
    path: bytes, answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "HALF_CLOSED_SECONDS", 0.1)
    received = talk(GET % path, b"", half_closes=True)

    assert statuses(received) == answer
    assert received.endswith(b"<closed>")


def test_an_incomplete_request_gets_no_response() -> None:
    assert talk(POST % (b"/a", b"content-length: 3", b"hi"), half_closes=True) == b"<closed>"


def test_a_request_may_arrive_in_pieces() -> None:
    whole = POST % (b"/echo?x=%20", CHUNKED + b"\r\nconnection: close", b"2;ext=1\r\nhi\r\n4\r\n all\r\n0\r\n\r\n")

    assert bodies(talk(*[whole[at : at + 5] for at in range(0, len(whole), 5)])) == [
        b"POST /echo [host,transfer-encoding,connection] hi all"
    ]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"HEAD /parts HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"),
        (CLOSE % b"/parts", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
                            b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        (b"GET /parts HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nonetwo"),
    ],
    ids=["head", "chunked", "HTTP/1.0"],
)  # fmt: skip
def test_a_response_without_a_length_is_chunked_or_ends_with_the_connection(sent: bytes, answer: bytes) -> None:
    assert talk(sent) == answer + b"<closed>"


def test_100_continue_is_sent_when_the_application_reads() -> None:
    expecting = b"content-length: 2\r\nexpect: 100-continue\r\nconnection: close"
    received = talk(POST % (b"/echo", expecting, b""), b"hi")
    refused = talk(POST % (b"/refuse", expecting, b""))

    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert statuses(refused) == [401]
    assert refused.endswith(b"<closed>")


@pytest.mark.parametrize("is_at_once", [True, False])
def test_an_upgrade_is_declined_and_the_body_is_a_body(is_at_once: bool) -> None:
    """Java's client asks for h2c with its first request, whatever that is."""
    body = b'{"like": "GET /a"}\r\n\r\n'
    asking = b"content-length: %d\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk"
    head = POST % (b"/echo", asking % len(body), b"")

    received = talk(*[head + body] if is_at_once else [head, body], CLOSE % b"/next")

    named = b"host,content-length,connection,http2-settings"
    assert bodies(received) == [b"POST /echo [%b] %b" % (named, body), b"GET /next [host,connection] "]


def test_white_space_around_a_header_value_is_removed() -> None:
    received = talk(POST % (b"/echo", b"content-length:\t 2 \t\r\nconnection: close \t", b"hi"))
    chunked = talk(POST % (b"/echo", b"transfer-encoding: chunked \r\nconnection: \tclose", b"2\r\nhi\r\n0\r\n\r\n"))
    named = talk(b"GET /value HTTP/1.1\r\nx: \t a b \t\r\nconnection: close\r\n\r\n")

    assert bodies(received) == [b"POST /echo [host,content-length,connection] hi"]
    assert bodies(chunked) == [b"POST /echo [host,transfer-encoding,connection] hi"]
    assert bodies(named) == [b"a b"]


def test_trailers_are_ignored() -> None:
    received = talk(POST % (b"/echo", CHUNKED, b"2\r\nhi\r\n0\r\nauthorization: Bearer x\r\n\r\n"), CLOSE % b"/next")

    assert bodies(received) == [b"POST /echo [host,transfer-encoding] hi", b"GET /next [host,connection] "]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (POST % (b"/a", b"content-length: 2\r\ntransfer-encoding: chunked", b"0\r\n\r\n"), 400),
        (POST % (b"/a", b"transfer-encoding: chunked\r\ncontent-length: 2", b"0\r\n\r\n"), 400),
        (b"POST /a HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST % (b"/a", b"transfer-encoding: gzip, chunked", b"0\r\n\r\n"), 400),
        (POST % (b"/a", b"transfer-encoding: chunked, identity", b"0\r\n\r\n"), 400),
        (POST % (b"/a", b"transfer-encoding: xchunked", b"0\r\n\r\n"), 400),
        (POST % (b"/a", b"transfer-encoding: \x0bchunked", b"0\r\n\r\n"), 400),
        (POST % (b"/a", b"transfer-encoding: chunked\r\ntransfer-encoding: chunked", b"0\r\n\r\n"), 400),
        (POST % (b"/a", b"content-length: 2\r\ncontent-length: 3", b"hi"), 400),
        (POST % (b"/a", b"content-length: 2\r\ncontent-length: 2", b"hi"), 400),
        (POST % (b"/a", b"content-length: 2, 2", b"hi"), 400),
        (POST % (b"/a", b"content-length: +2", b"hi"), 400),
        (POST % (b"/a", b"content-length: 0x2", b"hi"), 400),
        (POST % (b"/a", b"content-length: 99999999999999999999", b"hi"), 400),
        (POST % (b"/a", b"content-length:", b"hi"), 400),
        (b"GET /a HTTP/1.1\nhost: x\n\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\nb: c\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\na: b\r\n\tfolded\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n host: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\na: b\x00c\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\na: b\rc: d\r\n\r\n", 400),
        (b"GET /a\x00 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /a\r\n\r\n", 505),
        (b"get /a HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /a HTTP/2.0\r\nhost: x\r\n\r\n", 505),
        (b"GET /a HTTP/1.2\r\nhost: x\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
        (b"GET /" + b"a" * 600_000, 431),
        (b"GET /a HTTP/1.1\r\nx: " + b"a" * 600_000, 431),
        (b"GET /a HTTP/1.1\r\n" + b"x: y\r\n" * 100_000, 431),
        (GET.replace(b"localhost", b"a" * 70_000) % b"/a", 431),
    ],
)  # fmt: skip
def test_an_ambiguous_request_is_refused_and_the_connection_closed(data: bytes, status: int) -> None:
    received = talk(data + GET % b"/hidden")

    assert statuses(received) == [status]
    assert b"/hidden" not in received
    assert received.endswith(b"<closed>")


@pytest.mark.parametrize(
    ("size", "count", "status"),
    [(1, http1.MAX_SMALL_CHUNKS - 1, 200), (1, 2 * http1.MAX_SMALL_CHUNKS, 400), (16, 2 * http1.MAX_SMALL_CHUNKS, 200)],
)
def test_a_body_has_a_limited_number_of_small_chunks(size: int, count: int, status: int) -> None:
    chunk = b"%x\r\n%b\r\n" % (size, bytes(size))

    received = talk(POST % (b"/echo", CHUNKED + b"\r\nconnection: close", chunk * count + b"0\r\n\r\n"))

    assert statuses(received) == [status]


@pytest.mark.parametrize(
    "chunks",
    [b"x\r\nhi\r\n0\r\n\r\n", b"-2\r\nhi\r\n0\r\n\r\n", b"0x2\r\nhi\r\n0\r\n\r\n", b" 2\r\nhi\r\n0\r\n\r\n",
     b"2 \r\nhi\r\n0\r\n\r\n", b"2\nhi\n0\n\n", b"2\r\nhi0\r\n\r\n", b"2\r\nhiya\r\n0\r\n\r\n", b"\r\n",
     b"11111111111111111\r\nhi\r\n", b"2\r\nhi\r\n0\r\nbad trailer\r\n\r\n",
     b"2;" + b"x" * 600_000, b"2\r\nhi\r\n0\r\nx: " + b"y" * 600_000],
)  # fmt: skip
@pytest.mark.parametrize("is_read", [True, False])
def test_ambiguous_chunks_are_refused(chunks: bytes, is_read: bool) -> None:
    head = POST % (b"/echo" if is_read else b"/refuse", CHUNKED, b"")

    received = talk(head + chunks + GET % b"/hidden")

    assert statuses(received) in ([400], [431], [400 if is_read else 401])
    assert b"/hidden" not in received
    assert received.endswith(b"<closed>")


def test_earlier_requests_are_answered_before_a_refusal() -> None:
    received = talk(GET % b"/a" + GET % b"/b" + b"nonsense\r\n\r\n")

    assert statuses(received) == [200, 200, 400]
    assert received.endswith(b"<closed>")


def test_the_number_of_pipelined_requests_is_limited() -> None:
    received = talk(GET % b"/a" * 1_000)

    assert statuses(received) == [200] * http1.MAX_PIPELINED + [400]


def test_an_application_that_fails_is_500_and_cannot_split_a_response(caplog: pytest.LogCaptureFixture) -> None:
    assert statuses(talk(GET % b"/fail")) == [500]
    assert statuses(talk(GET % b"/split")) == [500]
    assert "on purpose" in caplog.text


def test_an_incomplete_response_aborts_the_connection() -> None:
    received = talk(GET % b"/half" + GET % b"/next")

    assert b"/next" not in received


def test_the_rest_of_an_unread_body_is_dropped_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "LINGER_SECONDS", 0.5)
    sent = 0

    def dribble() -> Iterator[bytes]:
        nonlocal sent
        yield POST % (b"/refuse", b"content-length: 100000000000", b"")
        while sent < 200:
            sent += 1
            yield b"x"

    asyncio.run(converse(dribble(), seconds=60, pause=0.1))

    assert sent < 200


def test_the_rest_of_an_unread_body_is_dropped_up_to_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "LINGER_BYTES", 1 << 20)
    sent = 0

    def flood() -> Iterator[bytes]:
        nonlocal sent
        yield POST % (b"/refuse", CHUNKED, b"")
        while sent < 1 << 30:
            sent += 1 << 16
            yield b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"

    asyncio.run(converse(flood(), seconds=60, pause=0))

    assert sent < 64 << 20


def test_a_connection_over_the_limit_gets_503() -> None:
    assert statuses(talk(GET % b"/a", max_open=0)) == [503]


def test_a_client_that_reads_nothing_of_a_response_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "STALL_SECONDS", 0.1)

    async def read_nothing(client: socket.socket, state: ServerState) -> bool:
        await asyncio.get_running_loop().sock_recv(client, 1)
        async with asyncio.timeout(30):
            while state.connections:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.01)
        return not state.tasks

    assert asyncio.run(ask_and_read(b"/long", read_nothing))


def test_a_client_that_reads_slowly_gets_the_whole_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "STALL_SECONDS", 0.5)

    async def read_slowly(client: socket.socket, _: object) -> int:
        loop, size = asyncio.get_running_loop(), 0
        while size < 400 << 16 and (part := await loop.sock_recv(client, 1 << 18)):
            size += len(part)
            await asyncio.sleep(0.01)
        return size

    assert asyncio.run(ask_and_read(b"/long", read_slowly)) >= 400 << 16


def test_a_silent_stream_is_not_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "STALL_SECONDS", 0.05)

    async def read_once(client: socket.socket, state: ServerState) -> int:
        await asyncio.get_running_loop().sock_recv(client, 1 << 16)
        await asyncio.sleep(0.3)
        return len(state.connections)

    assert asyncio.run(ask_and_read(b"/events", read_once)) == 1
