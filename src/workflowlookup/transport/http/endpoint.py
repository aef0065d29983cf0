"""The HTTP endpoint of MCP, in both eras: from a request to the session that it belongs to, and back.

`Endpoint` is the ASGI application at `/mcp`. It refuses messages that are malformed or exceed a limit, finds or opens
the session of a message, has the session's connection answer it, and writes the stream of the request. What a message
means is up to `protocol.connection`. Everything happens on the thread of the event loop, executed by `greenlets.run`:
wherever the journal is used, other requests may be served meanwhile.
"""

import asyncio
import contextlib
import functools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import msgspec
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from workflowlookup import greenlets
from workflowlookup.auth.callers import ACCESS, CALLER
from workflowlookup.errors import HeaderMismatch, InvalidParams, JournalBusy, StorageError, UnsupportedEnvelopeVersion
from workflowlookup.greenlets import Busy
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import POLL_SECONDS, Connection
from workflowlookup.protocol.jsonrpc import Batch, Malformed, Message, Notification, Request, Response
from workflowlookup.protocol.versions import ENVELOPE_VERSIONS, HANDSHAKE_VERSIONS
from workflowlookup.shares import Holding, Shares
from workflowlookup.store import pool
from workflowlookup.transport.http.bodies import busy, in_json, invalid, read_body, refuse, unavailable
from workflowlookup.transport.http.headers import (
    LAST_EVENT,
    SESSION,
    VERSION,
    accepts,
    check_routing,
    has_envelope,
    is_json,
)
from workflowlookup.transport.http.metrics import Family, Metrics, outcome_of
from workflowlookup.transport.http.rate_limits import Limits, RateLimiter
from workflowlookup.transport.http.replicas import MAX_PASSED_BYTES, ReplicaSessions
from workflowlookup.transport.http.sessions import Session, SessionTable
from workflowlookup.transport.http.streams import REPLAY_BYTES, Stream
from workflowlookup.transport.http.traces import RequestSpan
from workflowlookup.transport.signals import Waker

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 5.0
SHARE_SECONDS: Final = 10
"""When a caller that has its full share may try again: something of it may have ended by then."""
SERVER: Final = "server"
"""Whose processor time it is that no caller has caused."""
_JSON, _SSE = b"application/json", b"text/event-stream"
_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)

Connect = Callable[[object], Connection]
"""Makes the connection of a new client, given who sent the request (`scope[ACCESS]`)."""


class Exchange(msgspec.Struct):
    """One HTTP request, and the means to respond to it."""

    receive: Receive
    send: Send
    scope: Scope
    headers: dict[bytes, bytes]
    access: object
    caller: str
    """Whose share of the server the request uses."""
    message: Holding
    """The memory that the message takes, until it is answered."""

    async def respond(self, response: HttpResponse) -> None:
        await response(self.scope, self.receive, self.send)


class Endpoint:
    """Where MCP clients send their messages."""

    def __init__(  # noqa: PLR0913 - what a server over HTTP is made of
        self,
        connect: Connect,
        limits: Limits,
        waker: Waker,
        metrics: Metrics | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
        replicas: ReplicaSessions | None = None,
        is_traced: bool = False,
    ) -> None:
        self.is_stopping = False
        """Set when the server begins to stop; it serves on until it is closed."""
        self.is_closed = False
        self.on_close: list[Callable[[], None]] = []
        """Called when the last calls have had their time."""
        self.metrics = metrics or Metrics()
        self.metrics.ask.append(self._families)
        self._connect = connect
        self._limits = limits
        self._waker = waker
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._table = SessionTable(limits)
        self.listeners = Shares(limits.max_sessions)
        """Open streams of notifications, here and on pages."""
        self._replay_memory = Shares(REPLAY_BYTES)
        self._stateless: set[Session] = set()
        """The sessions of the envelope era: one for each open request."""
        self._replicas = replicas
        self._is_traced = is_traced
        self._background: dict[object, asyncio.Task[None]] = {}
        """Work of `_poll` that is not done yet."""
        if replicas is not None:
            replicas.listen(self._table)

    # ── one request ─────────────────────────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. `scope[ACCESS]` says who sent it, where requests are authenticated."""
        access, caller = scope.get(ACCESS), scope.get(CALLER, "")
        message = Holding(self._rate_limiter.memory, caller)
        exchange = Exchange(receive, send, scope, dict(scope["headers"]), access, caller, message)
        try:
            await self._serve(exchange)
        finally:
            exchange.message.release()

    async def _serve(self, exchange: Exchange) -> None:
        scope = exchange.scope
        if (repeated := _repeated(scope["headers"])) is not None:
            await exchange.respond(invalid(400, f"the header {repeated} is sent more than once"))
        elif scope["method"] == "POST":
            await self._post(exchange)
        elif VERSION in exchange.headers and exchange.headers[VERSION] not in _HANDSHAKE:
            await exchange.respond(HttpResponse(status_code=405, headers={"Allow": "POST"}))
        elif scope["method"] == "GET":
            await self._get(exchange)
        elif scope["method"] == "DELETE":
            await self._delete(exchange)
        else:
            await exchange.respond(HttpResponse(status_code=405, headers={"Allow": "GET, POST, DELETE"}))

    async def _post(self, exchange: Exchange) -> None:
        """Handle a message of a client."""
        body = await read_body(
            exchange.scope, exchange.receive, self._limits.max_message_bytes, self.metrics, exchange.message.take
        )
        if isinstance(body, HttpResponse):
            await exchange.respond(body)
            return
        await self._rate_limiter.turn(exchange.scope)
        message = jsonrpc.decode(body)
        refusal = self._refuse(message, exchange)
        if refusal is not None:
            await exchange.respond(refusal)
            return
        version = exchange.headers.get(VERSION)
        if version is not None and version not in _HANDSHAKE:
            await self._post_stateless(message, version, exchange)
        elif SESSION in exchange.headers:
            await self._post_to_session(message, body, exchange)
        elif not isinstance(message, Request):
            await exchange.respond(invalid(400, "Mcp-Session-Id is required: the message belongs to a session"))
        elif message.method == "initialize":
            await self._open_session(message, exchange)
        elif has_envelope(message):
            await self._post_stateless(message, b"", exchange)
        else:
            reply = self._connect(exchange.access).answer(message) or b""
            await exchange.respond(in_json(200 if outcome_of(reply).code is None else 400, reply))

    def _refuse(self, message: Message, exchange: Exchange) -> HttpResponse | None:
        """The response to a message that is refused before its session is looked up; None for any other."""
        if isinstance(message, Malformed):
            self.metrics.refuse("malformed")
            return in_json(400, jsonrpc.failure(message.reply_id, message.problem))
        if isinstance(message, Batch):
            return invalid(400, "batches are not answered over HTTP; send each message in a request of its own")
        request_id = message.id if isinstance(message, Request) else jsonrpc.NULL_ID
        if isinstance(message, Request) and type(msgspec.json.decode(request_id)) not in (int, str):
            return invalid(400, "id must be a whole number or a string")
        if not is_json(exchange.headers.get(b"content-type", b"")):
            return invalid(415, "Content-Type must be application/json", request_id)
        if not accepts(exchange.headers.get(b"accept", b""), _JSON, _SSE):
            return invalid(406, "Accept must name both application/json and text/event-stream", request_id)
        if self.is_closed and isinstance(message, Request):
            return self._refuse_closed(request_id)
        return None

    def _refuse_closed(self, request_id: bytes = jsonrpc.NULL_ID) -> HttpResponse:
        """The response to a request that arrives too late to be served."""
        self.metrics.refuse("draining")
        return busy(503, "the server is stopping; send it again, another one will answer", request_id=request_id)

    async def _answer(self, session: Session, request: Request, exchange: Exchange) -> None:
        """Answer a request by the connection of its session, and write its stream."""
        stream = session.open_stream(request)
        if stream is None:
            problem = "a request with this id is waiting for its answer; ids must differ"
            await exchange.respond(invalid(400, problem, request.id))
            return
        try:
            with session.lock.hold(self._limits.journal_seconds):
                session.answer(stream, self._reply(session, stream, request, exchange))
        except Busy:
            session.answer(stream, jsonrpc.failure(request.id, _earlier_waits()))
        if session.connection.is_finished:
            self._end(session)
        if not stream.is_ended:  # the call waits, and so does its message, whether its client stays or not
            stream.on_end, exchange.message = (
                exchange.message.release,
                Holding(self._rate_limiter.memory, exchange.caller),
            )
        await stream.write(exchange.receive, exchange.send, session.headers)

    def _reply(self, session: Session, stream: Stream, request: Request, exchange: Exchange) -> bytes | None:
        """The reply to a request; None when it comes later."""
        answer = session.connection.answer
        reply = self._trace(session, stream, request, exchange) if self._is_traced else answer(request)
        if self._replicas is not None and session.key:
            try:
                self._replicas.share(session, request)
            except StorageError as problem:  # other replicas do not know of it: the client must send it again
                reply = jsonrpc.failure(request.id, problem)
        return reply

    def _trace(self, session: Session, stream: Stream, request: Request, exchange: Exchange) -> bytes | None:
        """Answer a request within a span that ends with its reply; None when the reply comes later."""
        stream.span = RequestSpan(stream.request or request, exchange.headers, session.version)
        with stream.span.active():
            return session.connection.answer(request)

    # ── since 2026-07-28: stateless requests ────────────────────────────────────────────────────────────────────

    async def _post_stateless(self, message: Message, version: bytes, exchange: Exchange) -> None:
        """Handle a message of the envelope era: each request has a session of its own."""
        if not isinstance(message, Request):
            await exchange.respond(_acknowledge(message, version))
            return
        connection = self._connect(exchange.access)
        try:
            check_routing(message, exchange.scope["headers"], connection.input_schema_of)
        except (InvalidParams, HeaderMismatch) as problem:
            await exchange.respond(refuse(400, problem, request_id=message.id))
            return
        listens = message.method == "subscriptions/listen"
        if listens and not self.listeners.take(exchange.caller):
            await exchange.respond(self._refuse_listener(message.id))
            return
        session = Session(connection, exchange.access, self.metrics, version.decode("latin-1"), caller=exchange.caller)
        self._stateless.add(session)
        try:
            request = await connection.prepare(message, exchange.caller)
            if listens:
                connection.watch_lists()  # an earlier request may have given the client lists
            await self._answer(session, request, exchange)
        finally:
            if listens:
                self.listeners.release(exchange.caller)
            self._stateless.discard(session)
            if session.streams:  # the client disconnected before the reply
                session.abandon()
            session.close(hands_over=self.is_closed)

    # ── up to 2025-11-25: sessions ──────────────────────────────────────────────────────────────────────────────

    async def _open_session(self, request: Request, exchange: Exchange) -> None:
        """Answer `initialize`, and open a session unless that is refused."""
        session = self._make_session(exchange.access, exchange.caller, secrets.token_hex(16))
        stream = session.open_stream(request)
        if stream is None:
            raise RuntimeError("a new session has no streams")
        answer = session.connection.answer
        reply = (self._trace(session, stream, request, exchange) if self._is_traced else answer(request)) or b""
        if outcome_of(reply).code is not None:
            session.answer(stream, reply)
            await exchange.respond(in_json(200, reply))
        elif not self._table.add(session):
            await exchange.respond(self._refuse_session(session, request.id))
        else:
            if self._replicas is not None:
                try:
                    self._replicas.add(session, request)
                except StorageError as problem:  # other replicas would answer 404 to the client's next request
                    self._table.end(session)
                    await exchange.respond(unavailable(problem, request.id))
                    return
            with session:
                session.begin(request)
                session.answer(stream, reply)
                await stream.write(exchange.receive, exchange.send, session.headers)

    def _make_session(self, access: object, caller: str, session_id: str) -> Session:
        return Session(
            self._connect(access),
            access,
            self.metrics,
            session_id=session_id,
            caller=caller,
            replay_memory=self._replay_memory,
        )

    def _refuse_session(self, session: Session, request_id: bytes = jsonrpc.NULL_ID) -> HttpResponse:
        """The response where a session can have no room: its caller has its share, or the server is full."""
        session.close(hands_over=False)
        self.metrics.refuse("sessions")
        shares = self._table.shares
        if shares.is_over(session.caller):
            problem = (
                f"you have {shares.amount_of(session.caller):,} sessions open, which is your share; end one with DELETE"
            )
            return busy(429, problem, SHARE_SECONDS, request_id=request_id)
        return busy(503, "too many sessions are open; try again", request_id=request_id)

    def _refuse_listener(self, request_id: bytes = jsonrpc.NULL_ID) -> HttpResponse:
        self.metrics.refuse("listeners")
        problem = "you have your share of streams for notifications open, or there are too many in all; close one"
        return busy(429, problem, SHARE_SECONDS, request_id=request_id)

    async def _post_to_session(self, message: Message, body: bytes, exchange: Exchange) -> None:
        """Handle a message of a session."""
        session = self._session_of(exchange)
        if isinstance(session, Session) and isinstance(message, Request) and message.method == "initialize":
            problem = "this session has begun already; send initialize without Mcp-Session-Id to begin another one"
            session = invalid(400, problem, message.id)
        elif isinstance(session, Session) and isinstance(message, Request):
            with session:
                prepared = await session.connection.prepare(message, exchange.caller)
                if self._table.by_id.get(session.id) is session:  # it may have ended meanwhile
                    await self._answer(session, prepared, exchange)
                    return
            session = _not_found()
        await exchange.respond(self._receive(session, message, body) if isinstance(session, Session) else session)

    def _receive(self, session: Session, message: Message, body: bytes) -> HttpResponse:
        """Accept a message that has no reply; pass it on if it is about something that is open at another replica."""
        if not isinstance(message, Notification | Response):
            raise TypeError("a request must be answered")
        with session:
            if self._replicas is None or session.expects(message):
                try:
                    with session.lock.hold(self._limits.journal_seconds):
                        session.receive(message)
                except Busy:
                    return unavailable(_earlier_waits())
                return HttpResponse(status_code=202)
            if len(body) > MAX_PASSED_BYTES:
                self.metrics.refuse("size")
                problem = f"it is about nothing that is open here, and is longer than {MAX_PASSED_BYTES:,} bytes"
                return invalid(413, problem)
            try:
                self._replicas.pass_on(session, jsonrpc.without_surrogates(body))
            except StorageError as problem:
                return unavailable(problem)
            return HttpResponse(status_code=202)

    async def _get(self, exchange: Exchange) -> None:
        """Open the stream for notifications that belong to no request, or resume a stream that broke."""
        session = self._session_of(exchange)
        if not accepts(exchange.headers.get(b"accept", b""), _SSE):
            session = invalid(406, "Accept must name text/event-stream")
        if isinstance(session, HttpResponse):
            await exchange.respond(session)
            return
        if self._replicas is not None:
            session.connection.watch_lists()  # another replica may have given the client lists
        last = exchange.headers.get(LAST_EVENT)
        stream = session.open_notifications() if last is None else session.resume(last)
        if stream is None:
            await exchange.respond(_no_stream(last))
            return
        if not self.listeners.take(exchange.caller):
            session.close_notifications(stream)
            await exchange.respond(self._refuse_listener())
            return
        with session:
            try:
                await stream.write(exchange.receive, exchange.send, session.headers)
            finally:
                self.listeners.release(exchange.caller)
                session.close_notifications(stream)

    async def _delete(self, exchange: Exchange) -> None:
        """End the session of a client."""
        session = self._session_of(exchange)
        if isinstance(session, Session):
            self._end(session)
        await exchange.respond(HttpResponse() if isinstance(session, Session) else session)

    def _end(self, session: Session) -> None:
        """End a session, at every replica."""
        self._table.end(session)
        if self._replicas is not None:
            self._replicas.end(session)
            again = self._table.by_id.get(session.id)
            if again is not None:  # continued by another request, while the journal was written
                self._table.end(again)

    def _session_of(self, exchange: Exchange) -> Session | HttpResponse:
        """The session that a request names, or why there is none."""
        header = exchange.headers.get(SESSION)
        if header is None:
            return invalid(400, "Mcp-Session-Id is required: begin a session with initialize")
        session_id = header.decode("latin-1")
        session: Session | HttpResponse | None = self._table.by_id.get(session_id)
        if session is None and self._replicas is not None:
            try:
                session = self._adopt(self._replicas, session_id, exchange)
            except StorageError as problem:
                session = unavailable(problem)
        if isinstance(session, HttpResponse):
            return session
        if session is None or session.access != exchange.access or session.connection.is_finished:
            return _not_found()
        return session

    def _adopt(self, replicas: ReplicaSessions, session_id: str, exchange: Exchange) -> Session | HttpResponse | None:
        """Continue a session that another replica began. Raises `StorageError`."""
        if self.is_closed:
            return self._refuse_closed()  # not 404: another replica can continue the session
        opening = replicas.opening_of(session_id, exchange.access)
        if opening is None:
            return None
        session = self._make_session(exchange.access, exchange.caller, session_id)
        session.connection.answer(opening)
        session.connection.answer(Notification("notifications/initialized", None))
        session.begin(opening)
        replicas.follow(session)
        continued = self._table.by_id.get(session_id)
        if continued is not None:  # by another request, while the journal was read
            session.close(hands_over=False)
            return continued
        if not self._table.add(session):
            return self._refuse_session(session)
        if replicas.opening_of(session_id, exchange.access) is None:  # it was ended meanwhile
            self._table.end(session)
            return None
        return session

    # ── background work ─────────────────────────────────────────────────────────────────────────────────────────

    def _sessions(self) -> Iterator[Session]:
        """The sessions of both eras."""
        yield from self._table
        yield from list(self._stateless)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Poll for waiting clients while this context is entered."""
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.add_reader(self._waker.descriptor, rung.set)
        polling = asyncio.create_task(greenlets.run(self._poll, rung))
        try:
            yield
        finally:
            loop.remove_reader(self._waker.descriptor)
            polling.cancel()
            self._close_sessions()
            await asyncio.sleep(0)

    async def _poll(self, rung: asyncio.Event) -> None:
        """Poll the sessions whenever the bell rings, and every `POLL_SECONDS`."""
        next_sweep = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), POLL_SECONDS)
            is_rung = rung.is_set()
            self._waker.clear()
            rung.clear()
            if self._replicas is not None:
                self._begin("bus", self._replicas.bus.look)
            for session in self._sessions():
                if session.must_poll(is_rung=is_rung):
                    self._begin(session, functools.partial(self._poll_session, session), session.caller)
                else:
                    session.tell()
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + min(self._limits.idle_seconds / 4, SWEEP_SECONDS)
                if self._replicas is not None:
                    self._begin("use", functools.partial(self._replicas.report_use, self._table))
                self._table.end_idle()

    def _begin(self, key: object, work: Callable[[], None], caller: str = "") -> None:
        """Do work that may wait for the journal beside everything else, unless the last of this key is not done.

        Its processor time counts against the caller.
        """
        if key in self._background:
            return

        async def do() -> None:
            pool.CALLER.set(caller)
            try:
                work()
            except Exception:  # broad on purpose: the other clients are served
                log.exception("what a client waits for could not be sent")
            finally:
                del self._background[key]

        self._background[key] = asyncio.create_task(
            self._rate_limiter.meter({CALLER: caller or SERVER}, greenlets.run(do))
        )

    def _poll_session(self, session: Session) -> None:
        with contextlib.suppress(Busy), session.lock.hold(self._limits.journal_seconds):
            session.poll()

    @property
    def is_busy(self) -> bool:
        """Whether a call waits for its answer."""
        return any(session.connection.is_busy for session in self._sessions())

    def close(self) -> None:
        """End every stream with its last message, and refuse requests from now on."""
        self.is_closed = True
        for call in self.on_close:
            call()
        self._close_sessions()

    def _close_sessions(self) -> None:
        """End every session here; runs that clients wait for go on."""
        for session in self._sessions():
            try:
                session.close(hands_over=True)
            except Exception:  # broad on purpose: each session is closed even if another fails
                log.exception("a session could not be closed")

    def _families(self) -> list[Family]:
        waiting = sum(session.connection.is_busy for session in self._sessions())
        listening = self.listeners.sum
        return [
            Family("sessions", "gauge", "Open sessions of the handshake era.", [({}, len(self._table))]),
            Family("listeners", "gauge", "Open streams of notifications, of clients and pages.", [({}, listening)]),
            Family("clients_waiting", "gauge", "Clients with a call that waits for a run.", [({}, waiting)]),
        ]


def _acknowledge(message: Message, version: bytes) -> HttpResponse:
    """The response to a message of the envelope era that is not a request: notifications have no effect there."""
    if not isinstance(message, Notification):
        return invalid(400, "a message must be a request or a notification")
    if version.decode("latin-1") in ENVELOPE_VERSIONS:
        return HttpResponse(status_code=202)
    served = list(ENVELOPE_VERSIONS)
    remedy = f"Send MCP-Protocol-Version: {', '.join(served)}."
    return refuse(400, UnsupportedEnvelopeVersion(remedy, supported=served, requested=version.decode("latin-1")))


def _earlier_waits() -> JournalBusy:
    return JournalBusy("An earlier message of this session still waits for the journal of runs")


def _no_stream(last_event_id: bytes | None) -> HttpResponse:
    """Why GET opens no stream."""
    if last_event_id is None:
        return invalid(409, "the stream of this session is open already; a session has one")
    return invalid(
        400,
        "Last-Event-ID names no event after which this server can go on: it is too old, was answered in full, or was "
        "sent by another replica. Open the stream without it, and repeat a request whose answer did not come",
    )


def _repeated(headers: list[tuple[bytes, bytes]]) -> str | None:
    """A header by which requests are routed that stands twice: of two values each reader might use another."""
    names = [name for name, _ in headers if name in (SESSION, VERSION, LAST_EVENT)]
    return next((name.decode("latin-1") for name in names if names.count(name) > 1), None)


def _not_found() -> HttpResponse:
    return invalid(404, "there is no such session; begin a new one with initialize")
