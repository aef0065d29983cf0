"""The HTTP endpoint of MCP, in both eras: from a request to the session that it belongs to, and back.

`Endpoint` is the ASGI application at `/mcp`. It refuses what is malformed, too much or too late, finds or opens the
session of a message, has its connection answer, and writes what that puts on the stream of the request.
Everything happens on the thread of the event loop.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import msgspec
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from workflowlookup.errors import HeaderMismatch, InvalidParams, StorageError, UnsupportedEnvelopeVersion
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import LOOK_SECONDS, Connection
from workflowlookup.protocol.jsonrpc import Batch, Malformed, Message, Notification, Request, Response
from workflowlookup.protocol.versions import ENVELOPE_VERSIONS, HANDSHAKE_VERSIONS
from workflowlookup.transport.bell import Bell
from workflowlookup.transport.bodies import read_body
from workflowlookup.transport.headers import (
    LAST_EVENT,
    SESSION,
    VERSION,
    accepts,
    check_routing,
    has_envelope,
    is_json,
)
from workflowlookup.transport.limits import Limits, Rate
from workflowlookup.transport.metrics import Family, Metrics, outcome_of
from workflowlookup.transport.refusals import RETRY_SECONDS, busy, in_json, invalid, refuse
from workflowlookup.transport.replicas import MAX_PASSED_BYTES, ReplicaSessions
from workflowlookup.transport.sessions import Session, SessionTable
from workflowlookup.transport.streams import Stream
from workflowlookup.transport.traces import RequestSpan
from workflowlookup.transport.views import ACCESS

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 5.0
_JSON, _SSE = b"application/json", b"text/event-stream"
_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)

Connect = Callable[[object], Connection]
"""Makes the connection of a new client, by who it is."""


class Exchange(msgspec.Struct):
    """One HTTP request."""

    receive: Receive
    send: Send
    scope: Scope
    headers: dict[bytes, bytes]
    access: object

    async def respond(self, response: HttpResponse) -> None:
        await response(self.scope, self.receive, self.send)


class Endpoint:
    """Where MCP clients send their messages."""

    def __init__(  # noqa: PLR0913 - what a server over HTTP is made of
        self,
        connect: Connect,
        limits: Limits,
        bell: Bell,
        metrics: Metrics | None = None,
        *,
        replicas: ReplicaSessions | None = None,
        is_traced: bool = False,
    ) -> None:
        self.is_draining = False
        self.on_drain: list[Callable[[], None]] = []
        """Called when the server begins to stop."""
        self.metrics = metrics or Metrics()
        self.metrics.ask.append(self._families)
        self._connect = connect
        self._limits = limits
        self._bell = bell
        self._rate = Rate(limits.requests_per_minute)
        self._table = SessionTable(limits)
        self._alone: set[Session] = set()
        """Those of the envelope era: one for each request that is under way."""
        self._replicas = replicas
        self._is_traced = is_traced
        self._polled = asyncio.Event()
        if replicas is not None:
            replicas.listen(self._table)

    # ── one request ─────────────────────────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; who it comes from is in `scope[ACCESS]`, if anybody was told apart."""
        access = scope.get(ACCESS)
        exchange = Exchange(receive, send, scope, dict(scope["headers"]), access)
        wait = self._rate.take(str(getattr(access, "name", "") or (scope.get("client") or ("",))[0]))
        if wait:
            self.metrics.refuse("rate")
            problem = f"more than {self._limits.requests_per_minute:,} requests in a minute; wait a little"
            await exchange.respond(busy(429, problem, wait))
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
        """A message."""
        body = await read_body(exchange.scope, exchange.receive, self._limits.max_message_bytes, self.metrics)
        if isinstance(body, HttpResponse):
            await exchange.respond(body)
            return
        message = jsonrpc.decode(body)
        refusal = self._refuse(message, exchange)
        if refusal is not None:
            await exchange.respond(refusal)
            return
        version = exchange.headers.get(VERSION)
        if version is not None and version not in _HANDSHAKE:
            await self._post_alone(message, version, exchange)
        elif SESSION in exchange.headers:
            await self._post_to_session(message, body, exchange)
        elif not isinstance(message, Request):
            await exchange.respond(invalid(400, "Mcp-Session-Id is required: the message belongs to a session"))
        elif message.method == "initialize":
            await self._open_session(message, exchange)
        elif has_envelope(message):
            await self._post_alone(message, b"", exchange)
        else:
            reply = self._connect(exchange.access).answer(message) or b""
            await exchange.respond(in_json(200 if outcome_of(reply).code is None else 400, reply))

    def _refuse(self, message: Message, exchange: Exchange) -> HttpResponse | None:
        """What cannot be served, whoever sends it."""
        if isinstance(message, Malformed):
            self.metrics.refuse("malformed")
            return in_json(400, jsonrpc.failure(message.id, message.problem))
        if isinstance(message, Batch):
            return invalid(400, "batches are not answered over HTTP; send each message in a request of its own")
        request_id = message.id if isinstance(message, Request) else jsonrpc.NULL_ID
        if isinstance(message, Request) and type(msgspec.json.decode(request_id)) not in (int, str):
            return invalid(400, "id must be a whole number or a string")
        if not is_json(exchange.headers.get(b"content-type", b"")):
            return invalid(415, "Content-Type must be application/json", request_id)
        if not accepts(exchange.headers.get(b"accept", b""), _JSON, _SSE):
            return invalid(406, "Accept must name both application/json and text/event-stream", request_id)
        if self.is_draining and isinstance(message, Request):
            return self._refuse_last(request_id)
        return None

    def _refuse_last(self, request_id: bytes = jsonrpc.NULL_ID) -> HttpResponse:
        """For what comes while the server stops."""
        self.metrics.refuse("draining")
        return busy(503, "the server is stopping; ask again, another one will answer", request_id=request_id)

    async def _answer(self, session: Session, request: Request, exchange: Exchange) -> None:
        """Have the connection of a session answer a request, and write what comes of it."""
        stream = session.open_stream(request)
        if stream is None:
            problem = "a request with this id is waiting for its answer; ids must differ"
            await exchange.respond(invalid(400, problem, request.id))
            return
        connection = session.connection
        reply = self._trace(session, stream, request, exchange) if self._is_traced else connection.answer(request)
        if self._replicas is not None and session.key:
            try:
                self._replicas.share(session, request)
            except StorageError as problem:  # others would not know of it: the client asks again
                reply = jsonrpc.failure(request.id, problem)
        session.answer(stream, reply)
        if connection.is_finished:
            self._end(session)
        await stream.write(exchange.receive, exchange.send, session.headers)

    def _trace(self, session: Session, stream: Stream, request: Request, exchange: Exchange) -> bytes | None:
        """The reply of the connection, if it is there at once; in a span that ends when it is there."""
        stream.span = RequestSpan(request, exchange.headers, session.version)
        with stream.span.active():
            return session.connection.answer(request)

    # ── since 2026-07-28: requests alone ────────────────────────────────────────────────────────────────────────

    async def _post_alone(self, message: Message, version: bytes, exchange: Exchange) -> None:
        """A message of the envelope era: a request is a session of its own."""
        if not isinstance(message, Request):
            await exchange.respond(_acknowledge(message, version))
            return
        connection = self._connect(exchange.access)
        try:
            check_routing(message, exchange.scope["headers"], connection.input_schema_of)
        except (InvalidParams, HeaderMismatch) as problem:
            await exchange.respond(refuse(400, problem, request_id=message.id))
            return
        session = Session(connection, exchange.access, self.metrics, version.decode("latin-1"))
        self._alone.add(session)
        try:
            request = await connection.prepare(message)
            if request.method == "subscriptions/listen":
                connection.continues()  # others may have given the client lists
            await self._answer(session, request, exchange)
        finally:
            self._alone.discard(session)
            if session.streams:  # the client left before its answer was there
                session.abandon()
            session.close(hands_over=self.is_draining)

    # ── up to 2025-11-25: sessions ──────────────────────────────────────────────────────────────────────────────

    async def _open_session(self, request: Request, exchange: Exchange) -> None:
        """`initialize`: what is refused opens no session."""
        session = Session(self._connect(exchange.access), exchange.access, self.metrics, "", secrets.token_hex(16))
        stream = session.open_stream(request)
        if stream is None:
            raise RuntimeError("a new session has no streams")
        connection = session.connection
        reply = (
            self._trace(session, stream, request, exchange) if self._is_traced else connection.answer(request)
        ) or b""
        if outcome_of(reply).code is not None:
            session.answer(stream, reply)
            await exchange.respond(in_json(200, reply))
        elif not self._table.add(session):
            self.metrics.refuse("sessions")
            await exchange.respond(busy(503, "too many sessions are open; try again", request_id=request.id))
        else:
            if self._replicas is not None:
                self._replicas.add(session, request)
            with session:
                session.begin(request)
                session.answer(stream, reply)
                await stream.write(exchange.receive, exchange.send, session.headers)

    async def _post_to_session(self, message: Message, body: bytes, exchange: Exchange) -> None:
        """A message of a session."""
        session = self._session_of(exchange)
        if isinstance(session, Session) and isinstance(message, Request):
            with session:
                prepared = await session.connection.prepare(message)
                if self._table.by_id.get(session.id) is session:  # it may have ended meanwhile
                    await self._answer(session, prepared, exchange)
                    return
            session = _not_found()
        await exchange.respond(self._hear(session, message, body) if isinstance(session, Session) else session)

    def _hear(self, session: Session, message: Message, body: bytes) -> HttpResponse:
        """A message that is not answered; one about something that is open at another replica is passed on."""
        if not isinstance(message, Notification | Response):
            raise TypeError("a message that wants an answer")
        with session:
            if self._replicas is None or session.is_waited_for(message):
                session.hear(message)
                return HttpResponse(status_code=202)
            if len(body) > MAX_PASSED_BYTES:
                self.metrics.refuse("size")
                problem = f"it answers nothing that is open here, and is longer than {MAX_PASSED_BYTES:,} bytes"
                return invalid(413, problem)
            try:
                self._replicas.pass_on(session, jsonrpc.without_surrogates(body))
            except StorageError as problem:
                return refuse(503, problem, retry=RETRY_SECONDS)
            return HttpResponse(status_code=202)

    async def _get(self, exchange: Exchange) -> None:
        """The stream of what belongs to no request, or one that broke and is resumed."""
        session = self._session_of(exchange)
        if not accepts(exchange.headers.get(b"accept", b""), _SSE):
            session = invalid(406, "Accept must name text/event-stream")
        if isinstance(session, HttpResponse):
            await exchange.respond(session)
            return
        if self._replicas is not None:
            session.connection.continues()  # another replica may have given the client lists
        last = exchange.headers.get(LAST_EVENT)
        stream = session.open_notifications() if last is None else session.resume(last)
        if stream is None:
            await exchange.respond(invalid(409, "the stream of this session is open already; a session has one"))
            return
        with session:
            try:
                await stream.write(exchange.receive, exchange.send, session.headers)
            finally:
                session.close_notifications(stream)

    async def _delete(self, exchange: Exchange) -> None:
        """The client ends its session."""
        session = self._session_of(exchange)
        if isinstance(session, Session):
            self._end(session)
        await exchange.respond(HttpResponse() if isinstance(session, Session) else session)

    def _end(self, session: Session) -> None:
        """End a session, at every replica."""
        self._table.end(session)
        if self._replicas is not None:
            self._replicas.end(session)

    def _session_of(self, exchange: Exchange) -> Session | HttpResponse:
        """The session that a request names, or why there is none."""
        named = exchange.headers.get(SESSION)
        if named is None:
            return invalid(400, "Mcp-Session-Id is required: begin a session with initialize")
        session_id = named.decode("latin-1")
        session: Session | HttpResponse | None = self._table.by_id.get(session_id)
        if session is None and self._replicas is not None:
            try:
                session = self._adopt(self._replicas, session_id, exchange.access)
            except StorageError as problem:
                session = refuse(503, problem, retry=RETRY_SECONDS)
        if isinstance(session, HttpResponse):
            return session
        if session is None or session.access != exchange.access or session.connection.is_finished:
            return _not_found()
        return session

    def _adopt(self, replicas: ReplicaSessions, session_id: str, access: object) -> Session | HttpResponse | None:
        """Go on with a session that another replica began. Raises `StorageError`."""
        if self.is_draining:
            return self._refuse_last()  # not that it is gone: another replica goes on with it
        opening = replicas.opening_of(session_id, access)
        if opening is None:
            return None
        session = Session(self._connect(access), access, self.metrics, "", session_id)
        session.connection.answer(opening)
        session.connection.answer(Notification("notifications/initialized", None))
        session.begin(opening)
        replicas.follow(session)
        if self._table.add(session):
            return session
        self.metrics.refuse("sessions")
        session.close(hands_over=False)
        return busy(503, "too many sessions are open here; try again")

    # ── what goes on behind ─────────────────────────────────────────────────────────────────────────────────────

    def _sessions(self) -> Iterator[Session]:
        """Those of both eras."""
        yield from self._table
        yield from list(self._alone)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """While this is entered, those who wait are served."""
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.add_reader(self._bell.descriptor, rung.set)
        polling = asyncio.create_task(self._poll(rung))
        try:
            yield
        finally:
            loop.remove_reader(self._bell.descriptor)
            polling.cancel()
            self._close_sessions()
            await asyncio.sleep(0)

    async def _poll(self, rung: asyncio.Event) -> None:
        """Poll for those who wait whenever the bell rings, and every now and then while there are any."""
        next_sweep = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), LOOK_SECONDS)
            is_rung = rung.is_set()
            self._bell.silence()
            rung.clear()
            if self._replicas is not None:
                self._replicas.bus.look()
            for session in self._sessions():
                try:
                    session.poll(is_rung=is_rung)
                except Exception:  # broad on purpose: one client's trouble is not that of the others
                    log.exception("what a client waits for could not be sent")
            self._polled.set()
            self._polled.clear()
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + min(self._limits.idle_seconds / 4, SWEEP_SECONDS)
                if self._replicas is not None:
                    self._replicas.tell_use(self._table)
                self._table.end_idle()

    @property
    def is_busy(self) -> bool:
        """Whether a call waits for its answer."""
        return any(session.connection.is_busy for session in self._sessions())

    async def drain(self, seconds: float) -> None:
        """Take no more requests; give calls that wait their time, then end every stream with its last message."""
        self.is_draining = True
        for call in self.on_drain:
            call()
        deadline = time.monotonic() + seconds
        while self.is_busy and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._polled.wait(), left)
        self._close_sessions()
        await asyncio.sleep(0.05)  # for the streams to be written

    def _close_sessions(self) -> None:
        """End every stream here; runs that are waited for go on elsewhere."""
        for session in self._sessions():
            try:
                session.close(hands_over=True)
            except Exception:  # broad on purpose: the others are to be told, too
                log.exception("a client could not be told that the server stops")

    def _families(self) -> list[Family]:
        waiting = sum(session.connection.is_busy for session in self._sessions())
        return [
            Family("sessions", "gauge", "Open sessions of the handshake era.", [({}, len(self._table))]),
            Family("clients_waiting", "gauge", "Clients with a call that waits for a run.", [({}, waiting)]),
        ]


def _acknowledge(message: Message, version: bytes) -> HttpResponse:
    """What a message of the envelope era gets that is no request: none of them has a meaning."""
    if not isinstance(message, Notification):
        return invalid(400, "a message must be a request or a notification")
    if version.decode("latin-1") in ENVELOPE_VERSIONS:
        return HttpResponse(status_code=202)
    served = list(ENVELOPE_VERSIONS)
    remedy = f"Send MCP-Protocol-Version: {', '.join(served)}."
    return refuse(400, UnsupportedEnvelopeVersion(remedy, supported=served, requested=version.decode("latin-1")))


def _not_found() -> HttpResponse:
    return invalid(404, "there is no such session; begin a new one with initialize")
