"""HTTP/1.1 on one connection: from bytes to ASGI and back.

`HttpProtocol` parses requests with `httptools`, runs the application for one request after the other, in the order in
which they came, and writes the responses. The parser is strict; what it accepts and must not be served (a body of
ambiguous length, another version of HTTP) is refused here, and every refusal closes the connection.
`ConnectionTable` limits how many connections there are, and closes those whose deadline has passed.
"""

import asyncio
import contextlib
import http
import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from workflowlookup.auth.callers import CALLER
from workflowlookup.transport.http.connections import ConnectionTable, EvictionRank

log = logging.getLogger(__name__)

HEAD_SECONDS: Final = 15.0
"""Time allowed for the head of a request."""
BODY_SECONDS: Final = 25.0
"""Time allowed for the body of a request, with what its caller must wait before it is read."""
KEEP_ALIVE_SECONDS: Final = 75.0
HALF_CLOSED_SECONDS: Final = 1.0
"""Time allowed for a response whose client has closed its side of the connection."""
STALL_SECONDS: Final = 30.0
"""A client that reads nothing of a response for this long is disconnected."""
LINGER_SECONDS: Final = 5.0
LINGER_BYTES: Final = 8 << 20
"""How much is read and dropped after a response that was sent before the end of its request. Otherwise a client that
sends all of a message before it reads would see a connection reset, and no response.
"""
MAX_HEAD_BYTES: Final = 64 << 10
"""Limit on a request line with its headers, and on anything else that is not a body, such as trailers."""
MAX_PIPELINED: Final = 32
"""Requests of one connection that wait until the first is answered."""
MAX_SMALL_CHUNKS: Final = 10_000
SMALL_CHUNK_BYTES: Final = 16
"""A body may have so many chunks that are smaller than this: reading one takes as long as reading kilobytes of another
body, and holds up the other connections.
"""
HIGH_WATER_BYTES: Final = 64 << 10
"""While more of a body than this is unread by the application, the socket is not read."""

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus
}
_WITHOUT_BODY: Final = frozenset({204, 304})


class BadRequest(Exception):
    """A request that is refused before the application sees it."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class HttpProtocol(asyncio.Protocol):
    """One connection of a client. The methods `on_…` are called by the parser."""

    def __init__(self, app: ASGIApp, connections: ConnectionTable, state: ServerState) -> None:
        """`state`: where `uvicorn.Server` tracks its connections and tasks."""
        self._app = app
        self._connections = connections
        self.state = state
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.deadline = math.inf
        """When the connection is closed if the client has not sent what is expected."""
        self._expected = ""
        """What the client must send: `head`, `body` or `next` request; empty while a complete request is answered."""
        self.writable = asyncio.Event()
        self.writable.set()
        self._parser = httptools.HttpRequestParser(self)
        self._cycles: deque[RequestResponseCycle] = deque()
        """The request that is being answered, and pipelined ones that wait for it."""
        self._incoming: RequestResponseCycle | None = None
        """The request whose body is being received; the last of `_cycles`."""
        self._is_in_head = False
        self._is_upgrade = False
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._unparsed = 0
        """Bytes received since the parser last completed a head or delivered a part of a body."""
        self._small_chunks_left = MAX_SMALL_CHUNKS
        """How many more chunks the body may have; a larger chunk counts for its bytes."""
        self._refusal = b""
        """The response to invalid input; the last one on this connection."""
        self._is_reading = True
        self._lingers = False
        self._dropped = 0
        self._was_answered = False

    @property
    def address(self) -> str:
        """The address of the client, or of the proxy in front of it."""
        return self._client[0] if self._client is not None else ""

    @property
    def rank(self) -> EvictionRank:
        """What would be lost if this connection were closed."""
        if not self._cycles:
            return EvictionRank.IDLE if self._was_answered else EvictionRank.NOTHING
        is_incomplete = self._incoming is self._cycles[0]
        if not any(cycle.is_authenticated for cycle in self._cycles):
            return EvictionRank.NOTHING if is_incomplete else EvictionRank.UNKNOWN
        return EvictionRank.INCOMPLETE if is_incomplete else EvictionRank.REQUEST

    # ── asyncio ─────────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self.state.connections.add(self)  # type: ignore[arg-type]  # it has the method that is called: `shutdown`
        self._expect("head")
        if not self._connections.add(self):
            transport.write(_refusal(503, "too many connections are open; close some, or try again later"))
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._lingers or self._refusal:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.close()
            return
        self._unparsed += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as problem:
            cause = problem.__context__  # raised by a method of this class
            if cause is not None and not isinstance(cause, BadRequest):
                log.exception("a request could not be handled", exc_info=cause)
            self._refuse(cause if isinstance(cause, BadRequest) else BadRequest(400, f"not HTTP/1.1: {problem}"))
        else:
            if self._unparsed > MAX_HEAD_BYTES:
                self._refuse(BadRequest(431, f"more than {MAX_HEAD_BYTES:,} bytes of headers"))
        self._expect_more()

    def eof_received(self) -> bool:
        """Whether the connection stays open, to answer a client that closed its side after a complete request.

        A client that has gone looks the same. So a response gets `HALF_CLOSED_SECONDS`, and one without a length none.
        """
        if not self._cycles or self._incoming is not None or self._cycles[0].is_endless:
            return False
        self.shutdown()
        self.deadline = self.loop.time() + HALF_CLOSED_SECONDS
        return True

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the interface
        self.state.connections.discard(self)
        self._connections.remove(self)
        self.writable.set()
        self._end_cycles()
        del self._parser  # it refers to this object

    def shutdown(self) -> None:
        """Close the connection after the responses that are under way."""
        if self._cycles:
            self._cycles[-1].keeps_alive = False
        else:
            self.close()

    def close(self) -> None:
        """Close the connection after sending what was written."""
        self.transport.close()
        self.deadline = self.loop.time() + LINGER_SECONDS

    def expire(self) -> None:
        """Close the connection: its deadline has passed, or it is evicted."""
        if self._expected == "body" and not self._lingers and self.loop.time() > self.deadline:
            self._expect("")
            self._connections.on_refused("slow")
            self._refuse(BadRequest(408, f"the request did not come within {BODY_SECONDS:g} seconds; send it again"))
        elif self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # the client does not read what was written
        else:
            self.close()

    def _end_cycles(self) -> None:
        for cycle in self._cycles:
            cycle.end()
        self._cycles.clear()
        self._incoming = None

    # ── what the client sends ───────────────────────────────────────────────────────────────────────────────────

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                # A server may ignore an upgrade. The parser takes what follows for another protocol, so a new parser
                # gets the request without the header that asks for the upgrade.
                rest = rest[upgrade.args[0] :]
                method, version = self._parser.get_method(), self._parser.get_http_version().encode()
                lines = [b"%b %b HTTP/%b" % (method, self._target, version)]
                lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
                self._parser = httptools.HttpRequestParser(self)
                self._parser.feed_data(b"\r\n".join([*lines, b"", b""]))
            else:
                return

    def on_message_begin(self) -> None:
        self._is_in_head, self._is_upgrade = True, False
        self._target, self._headers = b"", []
        self._small_chunks_left = MAX_SMALL_CHUNKS

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # else it is a trailer, which is ignored
            self._headers.append((name.lower(), value.strip(b" \t")))  # the parser leaves trailing white space

    def on_headers_complete(self) -> None:
        version, method = self._parser.get_http_version(), self._parser.get_method().decode()
        fields = dict(self._headers)
        self._is_in_head, self._unparsed = False, 0
        self._check(version, method, fields)
        if self._parser.should_upgrade():
            self._is_upgrade = True
            return
        raw_path, _, query = self._target.partition(b"?")
        path = raw_path.decode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method,
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self._client,
            "server": self._server,
        }
        keeps_alive = version == "1.1" and self._parser.should_keep_alive()
        expects_continue = version == "1.1" and fields.get(b"expect", b"").lower() == b"100-continue"
        cycle = self._incoming = RequestResponseCycle(
            self, scope, keeps_alive=keeps_alive, expects_continue=expects_continue
        )
        self._cycles.append(cycle)
        if len(self._cycles) == 1:
            self._start(cycle)
        elif len(self._cycles) > MAX_PIPELINED:
            raise BadRequest(400, f"more than {MAX_PIPELINED} requests are sent before the first is answered")
        else:
            self.pause_reading()

    def _check(self, version: str, method: str, fields: Mapping[bytes, bytes]) -> None:
        """Raises `BadRequest` for what the parser accepts and must not be served."""
        if version not in ("1.0", "1.1"):
            raise BadRequest(505, "this server speaks HTTP/1.1")
        if method == "CONNECT" or not self._target.isascii():
            raise BadRequest(400, "the request line names no path of this server")
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > MAX_HEAD_BYTES:
            raise BadRequest(431, f"more than {MAX_HEAD_BYTES:,} bytes of headers")
        if b"transfer-encoding" in fields:
            encodings = [value.lower() for name, value in self._headers if name == b"transfer-encoding"]
            if version == "1.0" or b"content-length" in fields or encodings != [b"chunked"]:
                raise BadRequest(
                    400, "Transfer-Encoding must be chunked, once, without Content-Length, and not in HTTP/1.0"
                )

    def on_chunk_header(self) -> None:
        self._unparsed = 0
        self._small_chunks_left -= 1
        if self._small_chunks_left < 0:
            raise BadRequest(400, f"more than {MAX_SMALL_CHUNKS:,} chunks of less than {SMALL_CHUNK_BYTES} bytes")

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        self._small_chunks_left += len(body) // SMALL_CHUNK_BYTES
        if self._incoming is not None and self._incoming.put(body) > HIGH_WATER_BYTES:
            self.pause_reading()

    def on_message_complete(self) -> None:
        self._unparsed = 0
        if self._incoming is not None:
            self._incoming.complete()
            self._incoming = None

    def _refuse(self, problem: BadRequest) -> None:
        """Stop parsing, and close the connection after earlier requests are answered."""
        self._refusal = _refusal(problem.status, str(problem))
        if self._incoming is not None:
            broken, self._incoming = self._incoming, None
            broken.end()
            self._cycles.remove(broken)
            if broken.is_started:
                self.close()
                return
        if not self._cycles:
            self._write_refusal()

    def _write_refusal(self) -> None:
        self.transport.write(self._refusal)
        self._linger()

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _expect_more(self) -> None:
        if self._lingers or self.transport.is_closing():
            return
        if self._is_in_head:
            self._expect("head")
        elif self._incoming is not None:
            self._expect("body")
        else:
            self._expect("" if self._cycles else "next")

    def _expect(self, what: str) -> None:
        """Set the deadline if something else is expected now. Receiving a part of it does not extend the deadline."""
        if what != self._expected:
            self._expected = what
            seconds = {"head": HEAD_SECONDS, "body": BODY_SECONDS, "next": KEEP_ALIVE_SECONDS}.get(what, math.inf)
            self.deadline = self.loop.time() + seconds

    # ── what the application sends ──────────────────────────────────────────────────────────────────────────────

    def _start(self, cycle: "RequestResponseCycle") -> None:
        self.state.tasks.add(self.loop.create_task(cycle.run(self._app)))

    def finish(self, cycle: "RequestResponseCycle") -> None:
        """Called when a response is written: continue with the next request, or close the connection."""
        self._was_answered = True
        self._cycles.popleft()
        if self.transport.is_closing():
            return
        if not cycle.keeps_alive:
            if cycle is self._incoming:
                self._linger()
            else:
                self.close()
        elif self._cycles:
            self._start(self._cycles[0])
            self.resume_reading()
        elif self._refusal:
            self._write_refusal()
        else:
            self.resume_reading()
            self._expect_more()

    def _linger(self) -> None:
        """Half-close, and drop what the client still sends, up to `LINGER_BYTES` and `LINGER_SECONDS`."""
        self._lingers = True
        self._end_cycles()
        self.deadline = self.loop.time() + LINGER_SECONDS
        self.transport.write_eof()
        self.resume_reading()

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read the socket again, unless a request waits for the response to another."""
        if not self._is_reading and len(self._cycles) <= 1 and not self.transport.is_closing():
            self._is_reading = True
            self.transport.resume_reading()


class RequestResponseCycle:
    """One request and its response: `receive` and `send` of ASGI."""

    def __init__(self, connection: HttpProtocol, scope: Scope, *, keeps_alive: bool, expects_continue: bool) -> None:
        self.keeps_alive = keeps_alive
        self.is_started = False
        self._connection = connection
        self._scope = scope
        self._expects_continue = expects_continue
        self._body = bytearray()
        self._is_complete = False
        """Whether the complete request was received."""
        self._is_delivered = False
        """Whether the application has read all of it."""
        self._is_ended = False
        """Whether the response is written, or the client is gone."""
        self._changed = asyncio.Event()
        self._head = b""
        """The head of a response of known length, until it is written with the first part of the body."""
        self._is_chunked = False
        self._unsent: float = math.inf
        """How many bytes of the declared body are not sent yet."""

    @property
    def is_authenticated(self) -> bool:
        return CALLER in self._scope

    @property
    def is_endless(self) -> bool:
        """Whether the response has begun and has no declared length."""
        return self.is_started and self._unsent == math.inf

    async def run(self, app: ASGIApp) -> None:
        """Run the application for this request."""
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:
            log.exception("%s %s failed", self._scope["method"], self._scope["path"])
        finally:
            if not self._is_ended:
                self._fail()
            self._connection.state.tasks.discard(asyncio.current_task())

    def _fail(self) -> None:
        """Respond with 500 if the application sent no response; abort the connection if it sent only a part."""
        if self.is_started:
            self._connection.transport.abort()  # otherwise the client would take the response for complete
            return
        text = b"Internal Server Error\n"
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        self.keeps_alive = False
        self._begin(500, headers)
        self._write(text, is_last=True)

    # ── the request ─────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, body: bytes) -> int:
        """Add a part of the body. Returns how many bytes the application has not read."""
        self._body += body
        self._changed.set()
        return len(self._body)

    def complete(self) -> None:
        """Called when the complete body was received."""
        self._is_complete = True
        self._changed.set()

    def end(self) -> None:
        """Called when the response is written, or the client is gone."""
        self._is_ended = True
        self._changed.set()

    async def receive(self) -> Message:
        """A part of the body; `http.disconnect` when the response is written or the client is gone."""
        if self._expects_continue and not self._is_complete and not self._is_ended and not self.is_started:
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects_continue = False
        while not self._is_ended:
            if self._body or (self._is_complete and not self._is_delivered):
                body = bytes(self._body)
                self._body.clear()
                self._is_delivered = self._is_complete
                self._connection.resume_reading()
                return {"type": "http.request", "body": body, "more_body": not self._is_complete}
            self._changed.clear()
            await self._changed.wait()
        return {"type": "http.disconnect"}

    # ── the response ────────────────────────────────────────────────────────────────────────────────────────────

    async def send(self, message: Message) -> None:
        """Write a part of the response; nothing if the client is gone."""
        if not self._connection.writable.is_set():
            await self._wait_for_reader()
        if self._is_ended:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message.get("headers", ()))
        else:
            self._write(message.get("body", b""), is_last=not message.get("more_body", False))

    async def _wait_for_reader(self) -> None:
        """Wait until the client has read enough; abort the connection if it reads nothing."""
        writable, transport = self._connection.writable, self._connection.transport
        while not writable.is_set():
            unread = transport.get_write_buffer_size()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STALL_SECONDS):
                    await writable.wait()
            if not writable.is_set() and transport.get_write_buffer_size() >= unread:
                log.info("a client read nothing of a response for %g seconds and is disconnected", STALL_SECONDS)
                transport.abort()
                self.end()
                return

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self.is_started:
            raise RuntimeError("the response has begun already")
        lines = [_STATUS_LINES[status]]
        length: float = math.inf
        for name, value in (*self._connection.state.default_headers, *headers):
            if name == b"connection":
                self.keeps_alive = self.keeps_alive and value.lower() != b"close"
                continue
            if name == b"content-length":
                length = int(value)
            lines.append(b"%b: %b\r\n" % (name, value))
        if self._scope["method"] == "HEAD" or status in _WITHOUT_BODY:
            length = 0
        elif length == math.inf and self._scope["http_version"] == "1.1":
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not (self.keeps_alive and self._is_complete):
            self.keeps_alive = False
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if head.count(b"\r") != len(lines) or head.count(b"\n") != len(lines):
            raise RuntimeError("a header of the response has more than one line")
        self.is_started, self._unsent = True, length
        if length == math.inf:  # the body may take long
            self._connection.transport.write(head)
        else:
            self._head = head

    def _write(self, body: bytes, *, is_last: bool) -> None:
        if not self.is_started:
            raise RuntimeError("the response has not begun")
        data, self._head = self._head, b""
        if self._is_chunked:
            data += b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            data += b"0\r\n\r\n" if is_last else b""
        elif self._scope["method"] != "HEAD":
            self._unsent -= len(body)
            if self._unsent < 0 or (is_last and 0 < self._unsent < math.inf):
                raise RuntimeError("the body of the response does not have the length that its head declares")
            data += body
        if data:
            self._connection.transport.write(data)
        if is_last:
            self.end()
            self._connection.finish(self)


def _refusal(status: int, problem: str) -> bytes:
    """A complete response, after which the connection is closed."""
    text = f"{problem}\n".encode()
    head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return _STATUS_LINES[status] + head % len(text) + text


def _address(name: Any) -> tuple[str, int] | None:
    """A socket address in the form of ASGI."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None
