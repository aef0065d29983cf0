"""MCP over HTTP, in both eras: the official SDK carries messages, our own `Connection` decides what they mean.

`Door` is the ASGI application at `/mcp`. It reads a message, refuses what is malformed, too much or too late, finds the
client that it came from, and writes what that is answered at once. All else it hands to the SDK, which calls back
`link.Bridge` and writes what that gives.
Everything happens on the thread of the event loop.
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

import msgspec
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from starlette.datastructures import Headers
from starlette.responses import Response as HttpResponse
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from workflowlookup import __version__
from workflowlookup.errors import HeaderMismatch, StorageError
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import LOOK_SECONDS, Connection
from workflowlookup.protocol.jsonrpc import Batch, Malformed, Message, Notification, Request
from workflowlookup.protocol.versions import HANDSHAKE_VERSIONS, META_VERSION
from workflowlookup.runs.loading import load_in_slices
from workflowlookup.runs.sessions import key_of
from workflowlookup.transport.at_once import may_begin, may_begin_single, write_single, write_stream
from workflowlookup.transport.bell import Bell
from workflowlookup.transport.bodies import read_body
from workflowlookup.transport.inner import (
    Http,
    SdkSessions,
    between,
    introduce,
    outline,
    outline_once,
    replaying,
    session_in,
)
from workflowlookup.transport.limits import Limits, Rate
from workflowlookup.transport.link import POST, Bridge, Link, Post
from workflowlookup.transport.metrics import Family, Metrics
from workflowlookup.transport.refusals import RETRY_SECONDS, busy, in_json, invalid, refuse
from workflowlookup.transport.routing import InputSchemaOf, names_another
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
from workflowlookup.transport.views import ACCESS

log = logging.getLogger(__name__)

SPARE_PART: Final = 1 / 30
"""Of `idle_seconds`: a session that is not used for so long makes room for a new one, where there is none left."""

Connect = Callable[[object], Connection]
"""Makes the connection of a new client, by who it is."""


class Door:
    """Where MCP clients come in."""

    def __init__(  # noqa: PLR0913 - what a server over HTTP is made of
        self,
        connect: Connect,
        limits: Limits,
        bell: Bell,
        metrics: Metrics | None = None,
        *,
        input_schema_of: InputSchemaOf = lambda _: None,
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
        self._is_traced = is_traced
        self._input_schema_of = input_schema_of
        self._adopting = asyncio.Lock()
        self._errands: set[asyncio.Task[None]] = set()
        if sharing is not None:
            sharing.neighbours.listeners.append(functools.partial(self._hear_neighbour, sharing))
        self._looked = asyncio.Event()
        server: Server[Any] = Server("workflowlookup", version=__version__, get_tool_input_schema=input_schema_of)
        if is_traced:
            server.middleware.insert(0, under_caller)
        else:
            server.middleware.clear()  # the SDK's own makes spans, also when nobody collects them
        server.middleware.append(Bridge(self.metrics))
        self._sessions = SdkSessions(
            server,
            max_request_body_size=limits.max_message_bytes,
            max_sessions=limits.max_sessions,
            retry_interval=RETRY_SECONDS * 1000,
            session_idle_timeout=None,  # `_sweep` does it: it knows what else is to be ended
        )

    # ── one request ─────────────────────────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; who it comes from is in `scope[ACCESS]`, if anybody was told apart."""
        access = scope.get(ACCESS)
        client = str(getattr(access, "name", "") or (scope.get("client") or ("",))[0])
        wait = self._rate.take(client)
        if wait:
            self.metrics.refuse("rate")
            problem = f"more than {self._limits.requests_per_minute:,} requests in a minute; wait a little"
            await busy(429, problem, wait)(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self._pass(scope, receive, send)
            return
        body = await read_body(scope, receive, self._limits.max_message_bytes, self.metrics)
        if isinstance(body, HttpResponse):
            await body(scope, receive, send)
            return
        message = jsonrpc.decode(body)
        refused = self._refuse_message(message)
        if refused is not None:
            await refused(scope, receive, send)
            return
        body = jsonrpc.without_surrogates(body)
        await self._admit(message, access, (scope, replaying(body, receive), send))

    def _refuse_message(self, message: Message) -> HttpResponse | None:
        """What cannot be served, whoever sends it."""
        if isinstance(message, Malformed):
            self.metrics.refuse("malformed")
            return in_json(400, jsonrpc.failure(message.id, message.problem))
        if isinstance(message, Batch):
            return invalid(400, "batches are not answered over HTTP; send each message in a request of its own")
        if isinstance(message, Request) and type(msgspec.json.decode(message.id)) not in (int, str):
            return invalid(400, "id must be a whole number or a string")
        if self.is_draining and isinstance(message, Request):
            return self._refuse_last(message.id)
        return None

    def _refuse_last(self, request_id: bytes = jsonrpc.NULL_ID) -> HttpResponse:
        """For what comes while the server stops."""
        self.metrics.refuse("draining")
        return busy(503, "the server is stopping; ask again, another one will answer", request_id=request_id)

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
            reply = self._connect(access).answer(message)
            await in_json(400 if _is_refusal(reply) else 200, reply or b"")(scope, receive, send)
        else:
            await self._sessions.handle_request(scope, receive, send)

    async def _serve_once(self, message: Message, access: object, http: Http) -> None:
        """A request of the envelope era: a client of its own."""
        scope, receive, send = http
        if isinstance(message, Request) and names_another(message, Headers(scope=scope)):
            problem = "the header Mcp-Name is not the taskId of the request"
            refused = refuse(400, HeaderMismatch(problem, details=problem), request_id=message.id)
            await refused(scope, receive, send)
            return
        link = Link(self._connect(access), access)
        self._passing.add(link)
        try:
            await load_in_slices(functools.partial(link.connection.load, message))
            message = await link.connection.prepare(message)
            scope[POST] = post = Post(link, message)
            if (
                isinstance(message, Request)
                and not self._is_traced
                and may_begin_single(message, scope, self._input_schema_of)
            ):
                reply = link.begin(message)
                if reply is not None:
                    code = self.metrics.replied(message.method, reply, post.came_at)
                    await write_single(reply, code, http)
                    return
                http = outline_once(message, http)
            await self._sessions.handle_request(*http)
        finally:
            self._passing.discard(link)
            link.close(hands_over=self.is_draining)

    async def _open(self, message: Request, access: object, http: Http) -> None:
        """`initialize`: what is refused opens no session. The SDK is told no more than it needs."""
        scope, receive, send = http
        link = Link(self._connect(access), access)
        link.opening = link.connection.answer(message)
        if _is_refusal(link.opening):
            await in_json(200, link.opening or b"")(scope, receive, send)
            return
        scope[POST] = Post(link, message)
        opened: list[str] = []

        async def note(event: Event) -> None:
            if event["type"] == "http.response.start" and event["status"] < 400:
                session = session_in(event)
                if session is not None:
                    opened.append(session)
                    self._enter(session, session, link)
                    if self._sharing is not None:
                        self._sharing.keep(session, access, message)
            elif event["type"] == "http.response.start" and event["status"] == 503:
                self.metrics.refuse("sessions")
            await send(event)

        await self._make_room()
        with link.in_use():
            await self._sessions.open(link, scope, replaying(introduce(message), receive), note)
        if not opened:
            link.close(hands_over=False)

    async def _make_room(self) -> None:
        """Where all sessions are taken, end the one that was not used for longest: many leave without a word."""
        if len(self._links) < self._limits.max_sessions:
            return
        idle = ((link.used_at, session) for session, link in self._links.items() if not link.in_flight)
        used_at, session = min(idle, default=(float("inf"), ""))
        if used_at < time.monotonic() - self._limits.idle_seconds * SPARE_PART:
            await self._end(session)

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
        if isinstance(link, Link):
            has_waited = await load_in_slices(functools.partial(link.connection.load, message))
            message, before = await link.connection.prepare(message), message
            if has_waited or message is not before:
                link = await self._link_of(session, access)  # which may have ended meanwhile
        if isinstance(link, HttpResponse):
            await link(scope, receive, send)
            return
        if isinstance(message, Request):
            request_id = msgspec.json.decode(message.id)
            if link.has_open(request_id):
                problem = "a request with this id is waiting for its answer; ids must differ"
                await invalid(400, problem, message.id)(scope, receive, send)
                return
        elif self._sharing is not None and is_for_another(link, message):
            await self._pass_on(link, http)
            return
        else:
            link.passed += 1
        scope[POST] = post = Post(link, message, link.passed)
        with link.in_use():
            if isinstance(message, Request) and message.method == "initialize":
                receive = replaying(introduce(message), receive)
            elif isinstance(message, Request) and not self._is_traced and may_begin(message, scope):
                reply = link.begin(message) if link.reached == link.passed else None  # else it would overtake them
                if reply is not None:
                    self.metrics.replied(message.method, reply, post.came_at)
                    await write_stream(session, link.replay, message, reply, http)
                    return
                receive = replaying(outline(message), receive)
            await self._sessions.handle_request(*between(session, link.inner, (scope, receive, send)))
        if link.connection.is_finished:
            await self._end(session)
            self._end_everywhere(session)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET opens the stream of a session, DELETE ends it: the SDK's alone."""
        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        if session is None:
            await self._sessions.handle_request(scope, receive, send)
            return
        link = await self._link_of(session, scope.get(ACCESS))
        if isinstance(link, HttpResponse):
            await link(scope, receive, send)
            return
        if self._sharing is not None and scope["method"] == "GET":
            link.connection.continues()  # it may have lists from another server
        with link.in_use():
            await self._sessions.handle_request(*between(session, link.inner, (scope, receive, send)))
        if scope["method"] == "DELETE":
            self._forget(session)
            self._end_everywhere(session)

    # ── sessions that another server began ──────────────────────────────────────────────────────────────────────

    async def _link_of(self, session: str, access: object) -> Link | HttpResponse:
        """The client of a session, or why there is none."""
        link: Link | HttpResponse | None = self._links.get(session)
        if link is None and self._sharing is not None:
            if self.is_draining:
                return self._refuse_last()  # not that it is gone: another server goes on with it
            try:
                async with self._adopting:
                    link = self._links.get(session) or await self._adopt(self._sharing, session, access)
            except StorageError as problem:
                return refuse(503, problem, retry=RETRY_SECONDS)
        if isinstance(link, HttpResponse):
            return link
        if link is None or link.access != access or link.connection.is_finished:
            return invalid(404, "there is no such session; begin a new one with initialize")
        return link

    async def _adopt(self, sharing: Sharing, session: str, access: object) -> Link | HttpResponse | None:
        """Go on with a session of another server: its client is not asked again who it is. Raises `StorageError`."""
        opening = sharing.find(session, access)
        if opening is None:
            return None
        link = Link(self._connect(access), access)
        link.opening = link.connection.answer(opening)
        link.connection.answer(Notification("notifications/initialized", None))
        link.key = key_of(session)
        sharing.follow(link)
        await self._make_room()
        inner = await self._sessions.post(link, opening, introduce(opening))
        if not inner:
            self.metrics.refuse("sessions")
            link.close(hands_over=False)
            return busy(503, "too many sessions are open here; try again")
        self._enter(session, inner, link)
        return link

    async def _pass_on(self, link: Link, http: Http) -> None:
        """A message that is about something at another server."""
        scope, receive, send = http
        event = await receive()
        response = HttpResponse(status_code=202)
        try:
            if len(event["body"]) > MOST_PASSED:
                self.metrics.refuse("size")
                response = invalid(
                    413, f"it answers nothing that is open here, and is longer than {MOST_PASSED:,} bytes"
                )
            elif self._sharing is not None:
                self._sharing.pass_on(link, event["body"])
        except StorageError as problem:
            response = refuse(503, problem, retry=RETRY_SECONDS)
        await response(scope, receive, send)

    def _hear_neighbour(self, sharing: Sharing, topic: str, body: str) -> None:
        """What another server says of a session that is open here, too."""
        if topic == MISSED:
            for session, link in list(self._links.items()):
                if sharing.is_over(session, link):
                    self._do(self._end(session))
                else:
                    sharing.follow(link)
        elif topic in (ENDED, FOLLOWED):
            for session, link in self._links_of(body):
                if topic == ENDED:
                    self._do(self._end(session))
                else:
                    sharing.follow(link)
        elif topic == MESSAGE:
            passed = msgspec.json.decode(body, type=Passed)
            told = passed.message.encode()
            message = jsonrpc.decode(told)
            for _, link in self._links_of(passed.session):
                if not is_for_another(link, message):
                    self._do(self._sessions.post(link, message, told))

    def _links_of(self, key: str) -> list[tuple[str, Link]]:
        """The session that servers call by this name among themselves, if it is open here."""
        return [(session, link) for session, link in self._links.items() if link.key == key]

    def _do(self, errand: Coroutine[Any, Any, object]) -> None:
        """Have something done for which nobody waits."""

        async def run() -> None:
            try:
                await errand
            except Exception:  # broad on purpose: others must not suffer from it
                log.exception("a session could not be ended, or what came for it by another server not be told")

        task = asyncio.create_task(run())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _end_everywhere(self, session: str) -> None:
        if self._sharing is not None:
            self._sharing.end(session)

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
                self._sweep()
                next_sweep = time.monotonic() + min(self._limits.idle_seconds / 4, 5.0)

    def _sweep(self) -> None:
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
            self._do(self._end(session))

    async def _end(self, session: str) -> None:
        """End a session as its client would, here alone."""
        link = self._forget(session)
        if link is not None:
            await self._sessions.end(link)

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


def _is_refusal(reply: bytes | None) -> bool:
    return reply is None or "error" in msgspec.json.decode(reply)


def _has_envelope(request: Request) -> bool:
    meta = request.params.get("_meta") if isinstance(request.params, dict) else None
    return isinstance(meta, dict) and META_VERSION in meta
