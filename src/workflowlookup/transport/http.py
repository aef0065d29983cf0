"""MCP over HTTP, in both eras: the official SDK carries messages, our own `Connection` decides what they mean.

`Door` is the ASGI application at `/mcp`. It reads a message, refuses what is malformed, too much or too late, finds the
client that it came from, and hands it to the SDK, which calls back `link.Bridge` and writes what that gives.
Everything happens on the thread of the event loop.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response as HttpResponse
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from workflowlookup import __version__
from workflowlookup.errors import HeaderMismatch, InvalidRequest, Overloaded, StorageError, WorkflowLookupError
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import LOOK_SECONDS, Connection
from workflowlookup.protocol.jsonrpc import Batch, Malformed, Message, Notification, Request
from workflowlookup.protocol.versions import HANDSHAKE_VERSIONS, META_VERSION
from workflowlookup.runs.sessions import key_of
from workflowlookup.transport.bell import Bell
from workflowlookup.transport.limits import Limits, Rate
from workflowlookup.transport.link import POST, Bridge, Link, Post
from workflowlookup.transport.metrics import Family, Metrics
from workflowlookup.transport.replay import Replay
from workflowlookup.transport.routing import names_another
from workflowlookup.transport.sharing import (
    ENDED,
    FOLLOWED,
    MESSAGE,
    MISSED,
    MOST_PASSED,
    Passed,
    Sharing,
    is_for_another,
)
from workflowlookup.transport.traces import under_caller

log = logging.getLogger(__name__)

BODY_SECONDS: Final = 20.0
"""How long a client may take to send a message, once its headers are there."""
RETRY_SECONDS: Final = 1

Http = tuple[Scope, Receive, Send]
Connect = Callable[[object], Connection]
"""Makes the connection of a new client, by who it is."""


class _Sessions(StreamableHTTPSessionManager):
    """The SDK's sessions, each with a memory of its own of what was sent."""

    @property
    def event_store(self) -> EventStore:
        return Replay()

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """There is none for all."""


class Door:
    """Where MCP clients come in."""

    def __init__(  # noqa: PLR0913 - what a server over HTTP is made of
        self,
        connect: Connect,
        limits: Limits,
        bell: Bell,
        metrics: Metrics | None = None,
        *,
        input_schema_of: Callable[[str], Mapping[str, Any] | None] | None = None,
        sharing: Sharing | None = None,
        is_traced: bool = False,
    ) -> None:
        """`input_schema_of`: of a tool by its name, for parameters that clients mirror in headers; `sharing`: with
        other servers, where they have one database.
        """
        self.is_draining = False
        self.endings: list[Callable[[], None]] = []
        """What else is to be told that the server stops."""
        self.metrics = metrics or Metrics()
        self.metrics.ask.append(self._families)
        self._connect = connect
        self._limits = limits
        self._bell = bell
        self._rate = Rate(limits.requests_per_minute)
        self._links: dict[str, Link] = {}
        self._passing: set[Link] = set()
        self._sharing = sharing
        self._adopting = asyncio.Lock()
        self._errands: set[asyncio.Task[None]] = set()
        if sharing is not None:
            sharing.neighbours.listeners.append(self._hear_neighbour)
        self._looked = asyncio.Event()
        server: Server[Any] = Server(
            "workflowlookup", version=__version__, get_tool_input_schema=input_schema_of or (lambda _: None)
        )
        if is_traced:
            server.middleware.insert(0, under_caller)
        else:
            server.middleware.clear()  # the SDK's own makes spans, also when nobody collects them
        server.middleware.append(Bridge(self.metrics))
        self._sessions = _Sessions(
            server,
            max_request_body_size=limits.max_message_bytes,
            max_sessions=limits.max_sessions,
            retry_interval=RETRY_SECONDS * 1000,
            session_idle_timeout=None,  # `_sweep` does it: it knows what else is to be ended
        )

    # ── one request ─────────────────────────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; who it comes from is in `scope["access"]`, if anybody was told apart."""
        access = scope.get("access")
        client = str(getattr(access, "name", "") or (scope.get("client") or ("",))[0])
        wait = self._rate.take(client)
        if wait:
            self.metrics.refuse("rate")
            problem = f"more than {self._limits.requests_per_minute:,} requests in a minute; wait a little"
            await _refuse(429, Overloaded(problem, details=problem, retryAfterSeconds=wait), retry=wait)(
                scope, receive, send
            )
            return
        if scope["method"] != "POST":
            await self._pass(scope, receive, send)
            return
        body = await self._read(scope, receive)
        if isinstance(body, HttpResponse):
            await body(scope, receive, send)
            return
        message = jsonrpc.decode(body)
        refused = self._refuse_message(message)
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._admit(message, access, (scope, _replaying(body, receive), send))

    def _refuse_message(self, message: Message) -> HttpResponse | None:
        """What cannot be served, whoever sends it."""
        if isinstance(message, Malformed):
            self.metrics.refuse("malformed")
            return _json(400, jsonrpc.failure(message.id, message.problem))
        if isinstance(message, Batch):
            problem = "batches are not answered over HTTP; send each message in a request of its own"
            return _refuse(400, InvalidRequest(problem, details=problem))
        if isinstance(message, Request) and type(msgspec.json.decode(message.id)) not in (int, str):
            problem = "id must be a whole number or a string"
            return _refuse(400, InvalidRequest(problem, details=problem))
        if self.is_draining and isinstance(message, Request):
            self.metrics.refuse("draining")
            problem = "the server is stopping; ask again, another one will answer"
            error = Overloaded(problem, details=problem, retryAfterSeconds=RETRY_SECONDS)
            return _refuse(503, error, request_id=message.id, retry=RETRY_SECONDS)
        return None

    async def _admit(self, message: Message, access: object, http: Http) -> None:
        """Find the client that a message comes from, and pass the message on."""
        scope, receive, send = http
        headers = Headers(scope=scope)
        version, session = headers.get(MCP_PROTOCOL_VERSION_HEADER), headers.get(MCP_SESSION_ID_HEADER)
        if version is not None and version not in HANDSHAKE_VERSIONS:
            await self._serve_once(message, access, http)
        elif session is not None:
            await self._serve_session(session, message, access, http)
        elif isinstance(message, Request) and message.method == "initialize":
            await self._open(message, access, http)
        elif isinstance(message, Request) and not _has_envelope(message):
            reply = self._connect(access).answer(message) or b""
            await _json(400 if b'"error"' in reply[:200] else 200, reply)(scope, receive, send)
        else:
            await self._sessions.handle_request(scope, receive, send)

    async def _serve_once(self, message: Message, access: object, http: Http) -> None:
        """A request of the envelope era: a client of its own."""
        scope, receive, send = http
        if isinstance(message, Request) and names_another(message, Headers(scope=scope)):
            problem = "the header Mcp-Name is not the taskId of the request"
            refused = _refuse(400, HeaderMismatch(problem, details=problem), request_id=message.id)
            await refused(scope, receive, send)
            return
        link = Link(self._connect(access), access)
        self._passing.add(link)
        scope[POST] = Post(link, message)
        try:
            await self._sessions.handle_request(scope, receive, send)
        finally:
            self._passing.discard(link)
            link.close(hands_over=self.is_draining)

    async def _open(self, message: Request, access: object, http: Http) -> None:
        """`initialize`: what is refused opens no session. The SDK is told no more than it needs."""
        scope, receive, send = http
        link = Link(self._connect(access), access)
        link.opening = link.connection.answer(message)
        if link.opening is None or b'"result"' not in link.opening[: len(message.id) + 40]:
            await _json(200, link.opening or b"")(scope, receive, send)
            return
        scope[POST] = Post(link, message)
        opened: list[str] = []

        async def note(event: Event) -> None:
            if event["type"] == "http.response.start" and event["status"] < 400:
                session = MutableHeaders(raw=event["headers"]).get(MCP_SESSION_ID_HEADER)
                if session is not None:
                    opened.append(session)
                    self._enter(session, session, link)
                    if self._sharing is not None:
                        self._sharing.keep(session, access, message)
            elif event["type"] == "http.response.start" and event["status"] == 503:
                self.metrics.refuse("sessions")
            await send(event)

        with link.in_use():
            await self._sessions.handle_request(scope, _replaying(_for_sdk(message), receive), note)
        if not opened:
            link.close(hands_over=False)

    def _enter(self, session: str, inner: str, link: Link) -> None:
        """A session is open here from now on; `inner`: as the SDK calls it."""
        link.inner = inner
        self._links[session] = link
        if self._sharing is not None:
            link.key = key_of(session)
            link.note = self._sharing.note

    async def _serve_session(self, session: str, message: Message, access: object, http: Http) -> None:
        scope, receive, send = http
        link = await self._link_of(session, access)
        if isinstance(link, HttpResponse):
            await link(scope, receive, send)
            return
        if isinstance(message, Request):
            request_id = msgspec.json.decode(message.id)
            if link.has_open(request_id):
                problem = "a request with this id is waiting for its answer; ids must differ"
                error = InvalidRequest(problem, details=problem)
                await _refuse(400, error, request_id=message.id)(scope, receive, send)
                return
            if message.method == "initialize":
                receive = _replaying(_for_sdk(message), receive)
        elif self._sharing is not None and is_for_another(link, message):
            await self._pass_on(link, http)
            return
        scope[POST] = Post(link, message)
        with link.in_use():
            await self._sessions.handle_request(*_between(session, link.inner, (scope, receive, send)))
        if link.connection.is_finished:
            await self._end(session)
            self._end_everywhere(session)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET opens the stream of a session, DELETE ends it: the SDK's alone."""
        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        if session is None:
            await self._sessions.handle_request(scope, receive, send)
            return
        link = await self._link_of(session, scope.get("access"))
        if isinstance(link, HttpResponse):
            await link(scope, receive, send)
            return
        if self._sharing is not None and scope["method"] == "GET":
            link.connection.continues()  # it may have lists from another server
        with link.in_use():
            await self._sessions.handle_request(*_between(session, link.inner, (scope, receive, send)))
        if scope["method"] == "DELETE":
            self._forget(session)
            self._end_everywhere(session)

    # ── sessions that another server began ──────────────────────────────────────────────────────────────────────

    async def _link_of(self, session: str, access: object) -> Link | HttpResponse:
        """The client of a session, or why there is none."""
        link: Link | HttpResponse | None = self._links.get(session)
        if link is None and self._sharing is not None:
            try:
                async with self._adopting:
                    link = self._links.get(session) or await self._adopt(self._sharing, session, access)
            except StorageError as problem:
                return _refuse(503, problem, retry=RETRY_SECONDS)
        if isinstance(link, HttpResponse):
            return link
        if link is None or link.access != access or link.connection.is_finished:
            return _not_found()
        return link

    async def _adopt(self, sharing: Sharing, session: str, access: object) -> Link | HttpResponse | None:
        """Go on with a session of another server: its client is not asked again who it is. Raises `StorageError`."""
        opening = sharing.find(session, access)
        if opening is None or self.is_draining:
            return None
        link = Link(self._connect(access), access)
        link.opening = link.connection.answer(opening)
        link.connection.answer(Notification("notifications/initialized", None))
        link.key = key_of(session)
        sharing.follow(link)
        inner = await self._post_within(link, opening, _for_sdk(opening))
        if not inner:
            self.metrics.refuse("sessions")
            link.close(hands_over=False)
            problem = "too many sessions are open here; try again"
            return _refuse(503, Overloaded(problem, details=problem, retryAfterSeconds=1), retry=RETRY_SECONDS)
        self._enter(session, inner, link)
        return link

    async def _post_within(self, link: Link, message: Message, body: bytes) -> str:
        """Hand the SDK a message that did not come by this door; the SDK's id of its session, or nothing."""
        headers = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
        headers += [(b"host", b"localhost")]
        if link.inner:
            headers += [(MCP_SESSION_ID_HEADER.encode(), link.inner.encode())]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
        found: list[str] = []
        done = asyncio.Event()

        async def receive() -> Event:
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(event: Event) -> None:
            if event["type"] == "http.response.start" and event["status"] < 400:
                found.append(MutableHeaders(raw=event["headers"]).get(MCP_SESSION_ID_HEADER) or link.inner)
            elif event["type"] == "http.response.body" and not event.get("more_body", False):
                done.set()

        await self._sessions.handle_request({**scope, POST: Post(link, message)}, _replaying(body, receive), send)
        return found[0] if found else ""

    async def _pass_on(self, link: Link, http: Http) -> None:
        """A message that is about something at another server."""
        scope, receive, send = http
        event = await receive()
        response = HttpResponse(status_code=202)
        try:
            if len(event["body"]) > MOST_PASSED:
                self.metrics.refuse("size")
                problem = f"it answers nothing that is open here, and is longer than {MOST_PASSED:,} bytes"
                response = _refuse(413, InvalidRequest(problem, details=problem))
            elif self._sharing is not None:
                self._sharing.pass_on(link, event["body"])
        except StorageError as problem:
            response = _refuse(503, problem, retry=RETRY_SECONDS)
        await response(scope, receive, send)

    def _hear_neighbour(self, topic: str, body: str) -> None:
        """What another server says of a session that is open here, too."""
        if topic == MISSED and self._sharing is not None:
            for session, link in list(self._links.items()):
                if self._sharing.is_over(session, link):
                    self._do(self._end(session))
                else:
                    self._sharing.follow(link)
        if topic not in (ENDED, FOLLOWED, MESSAGE):
            return
        passed = msgspec.json.decode(body, type=Passed) if topic == MESSAGE else Passed(body, "")
        for session, link in [each for each in self._links.items() if each[1].key == passed.session]:
            if topic == ENDED:
                self._do(self._end(session))
            elif topic == FOLLOWED and self._sharing is not None:
                self._sharing.follow(link)
            elif topic == MESSAGE:
                told = passed.message.encode()
                message = jsonrpc.decode(told)
                if not is_for_another(link, message):
                    self._do(self._post_within(link, message, told))

    def _do(self, errand: Coroutine[Any, Any, object]) -> None:
        async def run() -> None:
            try:
                await errand
            except Exception:  # broad on purpose: nobody waits for it
                log.exception("what another server asked for could not be done")

        task = asyncio.create_task(run())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _end_everywhere(self, session: str) -> None:
        if self._sharing is not None:
            self._sharing.end(session)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | HttpResponse:
        """The body of a request, or why it is not taken."""
        limit = self._limits.max_message_bytes
        too_long = jsonrpc.too_long(limit)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            self.metrics.refuse("size")
            return _json(413, jsonrpc.failure(too_long.id, too_long.problem))
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    event = await receive()
                    if event["type"] != "http.request":
                        return HttpResponse(status_code=400)  # the client left
                    body += event.get("body", b"")
                    if len(body) > limit:
                        self.metrics.refuse("size")
                        return _json(413, jsonrpc.failure(too_long.id, too_long.problem))
                    if not event.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            self.metrics.refuse("slow")
            return _refuse(408, InvalidRequest("the message did not come", details="the message did not come"))

    # ── what goes on behind ─────────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """While this is entered, requests are served."""
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.add_reader(self._bell.descriptor, rung.set)
        async with self._sessions.run():
            pulse = asyncio.create_task(self._pulse(rung))
            try:
                yield
            finally:
                loop.remove_reader(self._bell.descriptor)
                pulse.cancel()
                self._close_links(hands_over=True)
                await asyncio.sleep(0)

    async def _pulse(self, rung: asyncio.Event) -> None:
        """Look for those who wait whenever the bell rings, and every now and then while there are any."""
        next_sweep = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), LOOK_SECONDS)
            is_rung = rung.is_set()
            self._bell.silence()
            rung.clear()
            if self._sharing is not None:
                self._sharing.neighbours.look()
            for link in [*self._links.values(), *self._passing]:
                try:
                    link.look(is_rung=is_rung)
                except Exception:  # broad on purpose: one client's trouble is not that of the others
                    log.exception("what a client waits for could not be told")
            self._looked.set()
            self._looked.clear()
            if time.monotonic() >= next_sweep:
                await self._sweep()
                next_sweep = time.monotonic() + min(self._limits.idle_seconds / 4, 5.0)

    async def _sweep(self) -> None:
        """End the sessions that nobody uses; where servers share them, say which are used here."""
        now = time.monotonic()
        oldest, late = now - self._limits.idle_seconds, now - self._limits.idle_seconds / 8
        links = self._links.values()
        if self._sharing is not None and (used := [link for link in links if link.is_to_be_told(late)]):
            for link in used:
                link.told_used_at = now
            self._sharing.use(used)
        for session in [
            session for session, link in self._links.items() if not link.in_flight and link.used_at < oldest
        ]:
            log.info("a session was not used for %g seconds and is ended", self._limits.idle_seconds)
            await self._end(session)

    async def _end(self, session: str) -> None:
        """End a session as its client would, here alone."""
        link = self._forget(session)
        if link is None:
            return
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": "/",
            "query_string": b"",
            "headers": [(MCP_SESSION_ID_HEADER.encode(), link.inner.encode()), (b"host", b"localhost")],
        }

        async def nothing() -> Event:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def nowhere(_: Event) -> None:
            """Nobody hears it."""

        await self._sessions.handle_request(scope, nothing, nowhere)

    def _forget(self, session: str) -> Link | None:
        link = self._links.pop(session, None)
        if link is not None:
            link.close(hands_over=False)
        return link

    @property
    def is_busy(self) -> bool:
        """Whether a call waits for its answer."""
        return any(link.connection.is_busy for link in (*self._links.values(), *self._passing))

    async def drain(self, seconds: float) -> None:
        """Take no more requests; give calls that wait their time, then end every stream with its last message."""
        self.is_draining = True
        for end in self.endings:
            end()
        deadline = time.monotonic() + seconds
        while self.is_busy and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._looked.wait(), left)
        self._close_links(hands_over=True)
        await asyncio.sleep(0.05)  # for the tasks of those requests to write what they were given
        for session in list(self._links):
            await self._end(session)

    def _close_links(self, *, hands_over: bool) -> None:
        for link in [*self._links.values(), *self._passing]:
            try:
                link.close(hands_over=hands_over)
            except Exception:  # broad on purpose: the others are to be told, too
                log.exception("a client could not be told that the server stops")

    def _families(self) -> list[Family]:
        waiting = sum(link.connection.is_busy for link in (*self._links.values(), *self._passing))
        return [
            Family("sessions", "gauge", "Open sessions of the handshake era.", [({}, len(self._links))]),
            Family("clients_waiting", "gauge", "Clients with a call that waits for a run.", [({}, waiting)]),
        ]


def _has_envelope(request: Request) -> bool:
    meta = request.params.get("_meta") if isinstance(request.params, dict) else None
    return isinstance(meta, dict) and META_VERSION in meta


def _for_sdk(message: Request) -> bytes:
    """`initialize` as the SDK takes it: what the client said of itself is the connection's business alone."""
    version = message.params.get("protocolVersion") if isinstance(message.params, dict) else None
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "client", "version": ""}}
    told = {"jsonrpc": "2.0", "id": msgspec.json.decode(message.id), "method": "initialize", "params": params}
    return json.dumps(told).encode()


def _replaying(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read already, then goes on as before."""
    events: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Event:
        return events.pop() if events else await receive()

    return replay


def _between(session: str, inner: str, http: Http) -> Http:
    """A request of a session that the client and the SDK have different ids of."""
    if session == inner:
        return http
    scope, receive, send = http
    name = MCP_SESSION_ID_HEADER.encode()
    headers = [(key, inner.encode() if key.lower() == name else value) for key, value in scope["headers"]]

    async def outward(event: Event) -> None:
        if event["type"] == "http.response.start":
            told = [(key, session.encode() if key.lower() == name else value) for key, value in event["headers"]]
            event = {**event, "headers": told}
        await send(event)

    return {**scope, "headers": headers}, receive, outward


def _json(status: int, body: bytes) -> HttpResponse:
    return HttpResponse(body, status_code=status, media_type="application/json")


def _refuse(
    status: int, error: WorkflowLookupError, *, request_id: bytes = jsonrpc.NULL_ID, retry: int | None = None
) -> HttpResponse:
    response = _json(status, jsonrpc.failure(request_id, error))
    if retry is not None:
        response.headers["Retry-After"] = str(retry)
    return response


def _not_found() -> HttpResponse:
    problem = "there is no such session; begin a new one with initialize"
    return _refuse(404, InvalidRequest(problem, details=problem))
