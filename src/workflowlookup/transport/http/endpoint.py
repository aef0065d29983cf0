"""The HTTP endpoint of MCP, in both eras: from a request to its session, and back.

`Endpoint` is the ASGI application at `/mcp`. It refuses messages that are malformed or exceed a limit, finds or opens
the session of a message, lets the session's connection answer it, and writes the stream of the request. What a message
means is up to `protocol.connection`. Everything runs on the thread of the event loop, executed by `greenlets.run`:
whenever the journal is used, other requests may be served meanwhile.
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
from workflowlookup.protocol.jsonrpc import Batch, MalformedMessage, Message, Notification, Request, Response
from workflowlookup.protocol.versions import ENVELOPE_VERSIONS, HANDSHAKE_VERSIONS
from workflowlookup.shares import Holding, Shares
from workflowlookup.store import pool
from workflowlookup.transport.http.bodies import busy, invalid, json_response, read_body, refuse, unavailable
from workflowlookup.transport.http.headers import (
    LAST_EVENT,
    SESSION,
    VERSION,
    accepts,
    check_routing,
    has_envelope,
    is_json,
)
from workflowlookup.transport.http.metrics import MetricFamily, Metrics, outcome_of
from workflowlookup.transport.http.rate_limits import HttpLimits, RateLimiter
from workflowlookup.transport.http.replicas import MAX_FORWARDED_BYTES, ReplicaSessions
from workflowlookup.transport.http.sessions import Session, SessionTable
from workflowlookup.transport.http.streams import REPLAY_BYTES, Stream
from workflowlookup.transport.http.traces import RequestSpan
from workflowlookup.transport.signals import Waker

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 5.0
SHARE_SECONDS: Final = 10
"""`Retry-After` for a caller that has its full share of sessions or streams."""
SERVER: Final = "server"
"""The caller that background work counts against if it has no other."""
_JSON, _SSE = b"application/json", b"text/event-stream"
_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)

Connect = Callable[[object], Connection]
"""Makes the connection of a new client, given the caller (`scope[ACCESS]`)."""


class Exchange(msgspec.Struct):
    """One HTTP request, and the functions to respond to it."""

    receive: Receive
    send: Send
    scope: Scope
    headers: dict[bytes, bytes]
    access: object
    caller: str
    """The caller that the request counts against."""
    message: Holding
    """The memory that the message takes until it is answered."""

    async def respond(self, response: HttpResponse) -> None:
        await response(self.scope, self.receive, self.send)


class Endpoint:
    """The ASGI application that serves MCP."""

    def __init__(  # noqa: PLR0913 - the parts of a server over HTTP
        self,
        connect: Connect,
        limits: HttpLimits,
        waker: Waker,
        metrics: Metrics | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
        replicas: ReplicaSessions | None = None,
        is_traced: bool = False,
    ) -> None:
        self.is_stopping = False
        """Set when the server begins to stop; it still serves until it is closed."""
        self.is_closed = False
        self.on_close: list[Callable[[], None]] = []
        """Called by `close`."""
        self.metrics = metrics or Metrics()
        self.metrics.collectors.append(self._families)
        self._connect = connect
        self._limits = limits
        self._waker = waker
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._table = SessionTable(limits)
        self.listeners = Shares(limits.max_sessions)
        """Counts the open streams of notifications, of clients and pages."""
        self._replay_memory = Shares(REPLAY_BYTES)
        self._stateless: set[Session] = set()
        """The sessions of the envelope era, one for each open request."""
        self._replicas = replicas
        self._is_traced = is_traced
        self._background: dict[object, asyncio.Task[None]] = {}
        """Background work that is not done yet, by key."""
        if replicas is not None:
            replicas.listen(self._table)

    # ── one request ─────────────────────────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. `AuthMiddleware` has put the caller into the scope."""
        access, caller = scope.get(ACCESS), scope.get(CALLER, "")
        message = Holding(self._rate_limiter.memory, caller)
        exchange = Exchange(receive, send, scope, dict(scope["headers"]), access, caller, message)
        try:
            await self._serve(exchange)
        finally:
            exchange.message.release()

    async def _serve(self, exchange: Exchange) -> None:
        scope = exchange.scope
        if len(exchange.headers) < len(scope["headers"]) and (repeated := _repeated(scope["headers"])) is not None:
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
        """Handle the message of a client."""
        body = await read_body(
            exchange.scope, exchange.receive, self._limits.max_message_bytes, self.metrics, exchange.message.take
        )
        if isinstance(body, HttpResponse):
            await exchange.respond(body)
            return
        await self._rate_limiter.wait_for_processor(exchange.scope)
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
            await exchange.respond(json_response(200 if outcome_of(reply).code is None else 400, reply))

    def _refuse(self, message: Message, exchange: Exchange) -> HttpResponse | None:
        """The response to a message that is refused before its session is looked up; None if it is not refused."""
        if isinstance(message, MalformedMessage):
            self.metrics.refuse("malformed")
            return json_response(400, jsonrpc.failure(message.reply_id, message.problem))
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
        """Answer a request with the connection of its session, and write its stream."""
        stream = session.open_stream(request)
        if stream is None:
            problem = "a request with this id is waiting for its answer; ids must differ"
            await exchange.respond(invalid(400, problem, request.id))
            return
        try:
            with session.lock.hold(self._limits.journal_seconds):
                session.answer(stream, self._reply(session, stream, request, exchange))
        except Busy:
            session.answer(stream, jsonrpc.failure(request.id, _earlier_message_waits()))
        if session.connection.is_finished:
            self._end(session)
        if not stream.is_ended:  # the call is pending: its message stays in memory, even if the client disconnects
            stream.on_end, exchange.message = (
                exchange.message.release,
                Holding(self._rate_limiter.memory, exchange.caller),
            )
        await stream.write(exchange.receive, exchange.send, session.headers)

    def _reply(self, session: Session, stream: Stream, request: Request, exchange: Exchange) -> bytes | None:
        """The reply to a request; None if it comes later."""
        answer = session.connection.answer
        reply = self._trace(session, stream, request, exchange) if self._is_traced else answer(request)
        if self._replicas is not None and session.key:
            try:
                self._replicas.store_subscription(session, request)
            except StorageError as problem:  # other replicas do not know of the change: the client must send it again
                reply = jsonrpc.failure(request.id, problem)
        return reply

    def _trace(self, session: Session, stream: Stream, request: Request, exchange: Exchange) -> bytes | None:
        """The reply to a request, in a span that ends with the reply; None if it comes later."""
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
        is_listen = message.method == "subscriptions/listen"
        if is_listen and not self.listeners.take(exchange.caller):
            await exchange.respond(self._refuse_listener(message.id))
            return
        session = Session(connection, exchange.access, self.metrics, version.decode("latin-1"), caller=exchange.caller)
        self._stateless.add(session)
        try:
            request = await connection.prepare(message, exchange.caller)
            if is_listen:
                connection.watch_lists()  # the client may have fetched lists with an earlier request
            await self._answer(session, request, exchange)
        finally:
            if is_listen:
                self.listeners.release(exchange.caller)
            self._stateless.discard(session)
            if session.streams:  # the client disconnected before the reply
                session.abandon()
            session.close(hands_over=self.is_closed)

    # ── up to 2025-11-25: sessions ──────────────────────────────────────────────────────────────────────────────

    async def _open_session(self, request: Request, exchange: Exchange) -> None:
        """Answer `initialize`, and open a session unless it is refused."""
        session = self._make_session(exchange.access, exchange.caller, secrets.token_hex(16))
        stream = session.open_stream(request)
        if stream is None:
            raise RuntimeError("a new session has no streams")
        answer = session.connection.answer
        reply = (self._trace(session, stream, request, exchange) if self._is_traced else answer(request)) or b""
        if outcome_of(reply).code is not None:
            session.answer(stream, reply)
            await exchange.respond(json_response(200, reply))
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
        """The response if there is no room for a session: its caller has its full share, or the server is full."""
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
        """Accept a message that gets no reply; forward it if it is about a call at another replica."""
        if not isinstance(message, Notification | Response):
            raise TypeError("a request must be answered")
        with session:
            if self._replicas is None or session.expects(message):
                try:
                    with session.lock.hold(self._limits.journal_seconds):
                        session.receive(message)
                except Busy:
                    return unavailable(_earlier_message_waits())
                return HttpResponse(status_code=202)
            if len(body) > MAX_FORWARDED_BYTES:
                self.metrics.refuse("size")
                problem = f"it is about nothing that is open here, and is longer than {MAX_FORWARDED_BYTES:,} bytes"
                return invalid(413, problem)
            try:
                self._replicas.forward(session, jsonrpc.without_surrogates(body))
            except StorageError as problem:
                return unavailable(problem)
            return HttpResponse(status_code=202)

    async def _get(self, exchange: Exchange) -> None:
        """Open the stream for notifications that belong to no request, or resume a broken stream."""
        session = self._session_of(exchange)
        if not accepts(exchange.headers.get(b"accept", b""), _SSE):
            session = invalid(406, "Accept must name text/event-stream")
        if isinstance(session, HttpResponse):
            await exchange.respond(session)
            return
        if self._replicas is not None:
            session.connection.watch_lists()  # the client may have fetched lists from another replica
        last_event_id = exchange.headers.get(LAST_EVENT)
        stream = session.open_notifications() if last_event_id is None else session.resume(last_event_id)
        if stream is None:
            await exchange.respond(_no_stream(last_event_id))
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
            continued = self._table.by_id.get(session.id)
            if continued is not None:  # another request continued it while the journal was written
                self._table.end(continued)

    def _session_of(self, exchange: Exchange) -> Session | HttpResponse:
        """The session of a request, or the response if there is none."""
        header = exchange.headers.get(SESSION)
        if header is None:
            return invalid(400, "Mcp-Session-Id is required: begin a session with initialize")
        session_id = header.decode("latin-1")
        session: Session | HttpResponse | None = self._table.by_id.get(session_id)
        if session is None and self._replicas is not None:
            try:
                session = self._continue_session(self._replicas, session_id, exchange)
            except StorageError as problem:
                session = unavailable(problem)
        if isinstance(session, HttpResponse):
            return session
        if session is None or session.access != exchange.access or session.connection.is_finished:
            return _not_found()
        return session

    def _continue_session(
        self, replicas: ReplicaSessions, session_id: str, exchange: Exchange
    ) -> Session | HttpResponse | None:
        """Continue a session that another replica began. Raises `StorageError`."""
        if self.is_closed:
            return self._refuse_closed()  # not 404: another replica can continue the session
        initialize = replicas.initialize_of(session_id, exchange.access)
        if initialize is None:
            return None
        session = self._make_session(exchange.access, exchange.caller, session_id)
        session.connection.answer(initialize)
        session.connection.answer(Notification("notifications/initialized", None))
        session.begin(initialize)
        replicas.load_subscriptions(session)
        continued = self._table.by_id.get(session_id)
        if continued is not None:  # another request continued it while the journal was read
            session.close(hands_over=False)
            return continued
        if not self._table.add(session):
            return self._refuse_session(session)
        if replicas.initialize_of(session_id, exchange.access) is None:  # it was ended meanwhile
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
        """Poll the sessions while this context is entered."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        loop.add_reader(self._waker.descriptor, woken.set)
        polling = asyncio.create_task(greenlets.run(self._poll, woken))
        try:
            yield
        finally:
            loop.remove_reader(self._waker.descriptor)
            polling.cancel()
            self._close_sessions()
            await asyncio.sleep(0)

    async def _poll(self, woken: asyncio.Event) -> None:
        """Poll the sessions whenever the waker wakes, and every `POLL_SECONDS`."""
        next_sweep = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), POLL_SECONDS)
            is_woken = woken.is_set()
            self._waker.clear()
            woken.clear()
            if self._replicas is not None:
                self._run_in_background("bus", self._replicas.bus.poll)
            for session in self._sessions():
                if session.must_poll(is_woken=is_woken):
                    self._run_in_background(session, functools.partial(self._poll_session, session), session.caller)
                else:
                    session.send_changes()
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + min(self._limits.idle_seconds / 4, SWEEP_SECONDS)
                if self._replicas is not None:
                    self._run_in_background("use", functools.partial(self._replicas.report_use, self._table))
                self._table.end_idle()

    def _run_in_background(self, key: object, work: Callable[[], None], caller: str = "") -> None:
        """Do work that may wait for the journal in the background, unless earlier work with this key is not done.

        Its processor time counts against the caller.
        """
        if key in self._background:
            return

        async def do() -> None:
            pool.CALLER.set(caller)
            try:
                work()
            except Exception:  # broad on purpose: other clients must still be served
                log.exception("polling for a client failed")
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
        """Whether a call is pending."""
        return any(session.connection.is_busy for session in self._sessions())

    def close(self) -> None:
        """End all streams with their last message, and refuse requests from now on."""
        self.is_closed = True
        for call in self.on_close:
            call()
        self._close_sessions()

    def _close_sessions(self) -> None:
        """Close all sessions of this server; runs that clients wait for go on."""
        for session in self._sessions():
            try:
                session.close(hands_over=True)
            except Exception:  # broad on purpose: each session is closed even if another fails
                log.exception("a session could not be closed")

    def _families(self) -> list[MetricFamily]:
        waiting = sum(session.connection.is_busy for session in self._sessions())
        listening = self.listeners.sum
        return [
            MetricFamily("sessions", "gauge", "Open sessions of the handshake era.", [({}, len(self._table))]),
            MetricFamily(
                "listeners", "gauge", "Open streams of notifications, of clients and pages.", [({}, listening)]
            ),
            MetricFamily("clients_waiting", "gauge", "Clients with a call that waits for a run.", [({}, waiting)]),
        ]


def _acknowledge(message: Message, version: bytes) -> HttpResponse:
    """The response to a message of the envelope era that is not a request: notifications have no effect there."""
    if not isinstance(message, Notification):
        return invalid(400, "a message must be a request or a notification")
    if version.decode("latin-1") in ENVELOPE_VERSIONS:
        return HttpResponse(status_code=202)
    versions = list(ENVELOPE_VERSIONS)
    remedy = f"Send MCP-Protocol-Version: {', '.join(versions)}."
    return refuse(400, UnsupportedEnvelopeVersion(remedy, supported=versions, requested=version.decode("latin-1")))


def _earlier_message_waits() -> JournalBusy:
    return JournalBusy("An earlier message of this session still waits for the journal of runs")


def _no_stream(last_event_id: bytes | None) -> HttpResponse:
    """The response if GET opens no stream."""
    if last_event_id is None:
        return invalid(409, "the stream of this session is open already; a session has one")
    return invalid(
        400,
        "Last-Event-ID names no event after which this server can go on: it is too old, was answered in full, or was "
        "sent by another replica. Open the stream without it, and repeat a request whose answer did not come",
    )


def _repeated(headers: list[tuple[bytes, bytes]]) -> str | None:
    """A routing header that is sent twice, which two readers might read differently; None if there is none."""
    names = [name for name, _ in headers if name in (SESSION, VERSION, LAST_EVENT)]
    return next((name.decode("latin-1") for name in names if names.count(name) > 1), None)


def _not_found() -> HttpResponse:
    return invalid(404, "there is no such session; begin a new one with initialize")
