"""Builds and runs the server over HTTP: the ASGI application, its authentication and the pages of the console.

`app` builds what servers over HTTP and over standard input and output have in common.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, Mount

from workflowlookup.access import LOOPBACK, Access
from workflowlookup.app import make_journal_pool, make_replica_bus, make_services, make_tokens, notifying
from workflowlookup.auth.authentication import Authenticator, why_not_listen, why_tokens_are_required
from workflowlookup.auth.backends import CallerBackends, SharedBackend
from workflowlookup.auth.callers import Proxies
from workflowlookup.auth.cookies import session_in
from workflowlookup.auth.oauth import Issuer, OAuthVerifier
from workflowlookup.auth.scoped import ScopedWitness
from workflowlookup.console.app import make_routes, static_route
from workflowlookup.console.rendering import static_url
from workflowlookup.console.request import Visit
from workflowlookup.console.streams import Streams
from workflowlookup.logs import announce
from workflowlookup.preload import preload
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.settings import Live, Settings, issuer_of
from workflowlookup.store.journal import Journal
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.pool import JournalPool
from workflowlookup.store.replica_bus import ReplicaBus
from workflowlookup.store.sessions import ConsoleSessions, StoredSessions
from workflowlookup.tools.builtin import BUILTIN_TOOLS, module_of
from workflowlookup.transport.http.connections import ConnectionTable, connection_limit
from workflowlookup.transport.http.endpoint import Endpoint
from workflowlookup.transport.http.login import LOGOUT, Login, access_of, session_of
from workflowlookup.transport.http.metrics import Metrics, RunMetrics
from workflowlookup.transport.http.rate_limits import HttpLimits, RateLimiter, default_hosts
from workflowlookup.transport.http.replicas import ReplicaSessions
from workflowlookup.transport.http.server import END_SECONDS, listen, run
from workflowlookup.transport.http.site import Site, make_site
from workflowlookup.transport.http.traces import start_traces
from workflowlookup.transport.http.witnesses import Witnesses
from workflowlookup.transport.signals import Waker, Watchdog
from workflowlookup.web import split_address

PRELOADED: Final = (
    *map(module_of, BUILTIN_TOOLS),
    "workflowlookup.auth.scoped",
    "workflowlookup.execution.proof_runner",
    "workflowlookup.protocol.library_methods",
    "workflowlookup.protocol.pending_calls",
    "workflowlookup.protocol.questions",
    "workflowlookup.protocol.tasks",
    "workflowlookup.store.loading",
    "workflowlookup.tools.elicitation",
    "workflowlookup.tools.pending_runs",
    "workflowlookup.tools.resources",
    "workflowlookup.library.attachments",
    "workflowlookup.tools.skills",
    "anyio._backends._asyncio",
    "concurrent.futures.thread",
    "encodings.unicode_escape",
    "jsonschema_rs",
)
"""What the first requests need: an import would hold up all other requests."""


class HttpServer(msgspec.Struct, frozen=True):
    """A server over HTTP: the ASGI application, the MCP endpoint, and what all clients share."""

    site: Site
    mcp: Endpoint
    backend: SharedBackend
    journals: JournalPool


def make_asgi(
    settings: Settings,
    waker: Waker,
    host: str = "127.0.0.1",
    *,
    connect: Callable[[Backend], Connection] | None = None,
    is_traced: bool = False,
) -> HttpServer:
    """The ASGI application of a server that listens at this address. `connect` makes the connection of a client."""
    live = Live(settings)
    pool = make_journal_pool(settings)
    journal = pool.journal
    replica_bus = make_replica_bus(settings, waker.wake, journal)
    backend = SharedBackend(
        lambda: msgspec.structs.replace(
            make_services(settings, waker.wake, live, replica_bus, journal), access=LOOPBACK
        ),
        waker.wake,
        announces_changes=lambda: live.settings.workflow_tools,
    )
    limits = HttpLimits(
        max_message_bytes=settings.max_message_bytes,
        max_sessions=settings.max_sessions,
        idle_seconds=settings.idle_seconds,
        requests_per_minute=settings.requests_per_minute,
        allowed_hosts=(*default_hosts(host), *settings.allowed_hosts),
        allowed_origins=settings.allowed_origins,
        journal_seconds=settings.journal_timeout_seconds,
    )
    backends = CallerBackends(backend)
    metrics = Metrics([RunMetrics(backend, lambda: pool.read_fault).families])
    proxies = Proxies(settings.trusted_proxies)
    rate_limiter = RateLimiter(
        settings.requests_per_minute,
        max_message_bytes=settings.max_message_bytes,
        proxies=proxies,
        on_refused=metrics.refuse,
    )
    mcp = Endpoint(
        lambda access: (connect or _connect)(backends.of(access)),
        limits,
        waker,
        metrics,
        rate_limiter=rate_limiter,
        replicas=_make_replica_sessions(settings, replica_bus, journal),
        is_traced=is_traced,
    )
    sessions = ConsoleSessions(journal)
    authenticator = make_authenticator(settings, host, sessions, proxies, journal)
    streams = Streams(mcp.listeners)
    login = Login(authenticator, sessions, rate_limiter=rate_limiter, stylesheet=static_url("console.css"))
    pages = _make_pages(settings, backends, login, streams, lambda: metrics.refuse("access"))
    mcp.on_close.append(streams.close)

    def open_own_runs(access: object) -> ScopedWitness:
        if not isinstance(access, Access):
            raise TypeError("the request was not authenticated")
        return ScopedWitness(backend.services.runs, access)

    witnesses = Witnesses(
        open_own_runs,
        lambda access: backends.of(access).services.catalog,
        lambda: live.settings.witness_seconds,
        metrics,
        is_stopping=lambda: mcp.is_stopping,
    )
    routes = [*witnesses.routes(authenticator, rate_limiter), *pages]

    def find_fault() -> str:
        return pool.fault or backend.services.execution.fault

    site = make_site(
        mcp, limits, authenticator=authenticator, rate_limiter=rate_limiter, find_fault=find_fault, routes=routes
    )
    return HttpServer(site, mcp, backend, pool)


def _make_replica_sessions(
    settings: Settings, replica_bus: ReplicaBus | None, journal: Journal
) -> ReplicaSessions | None:
    """Sessions that other servers can continue; None if there are no replicas."""
    if replica_bus is None:
        return None

    store = StoredSessions(journal, settings.idle_seconds)
    return ReplicaSessions(store, replica_bus, settings.idle_seconds)


def _make_pages(
    settings: Settings, backends: CallerBackends, login: Login, streams: Streams, refused: Callable[[], None]
) -> list[BaseRoute]:
    """The pages of the console. Each caller sees only what they may see."""

    def identify(request: Request) -> Visit | None:
        access = access_of(request)
        if access is None:
            return None
        return Visit(
            request,
            backends.of(access),
            streams,
            session=session_of(request),
            sign_out=LOGOUT if session_in(request) and not access.is_unrestricted else "",
            journal=JournalUrl(settings.journal).shown,
        )

    pages = Starlette(routes=make_routes(identify))
    return [*login.routes(static_route()), Mount("/", app=login.authenticated(pages, refused))]


def make_authenticator(
    settings: Settings, address: str, sessions: ConsoleSessions, proxies: Proxies, journal: Journal | None = None
) -> Authenticator:
    """The authentication of a server that listens at this address."""
    issuer = issuer_of(settings)
    oauth = OAuthVerifier(Issuer(**issuer)) if issuer else None
    is_open = not _why_tokens_are_required(settings, address)
    tokens = make_tokens(settings, journal)
    return Authenticator(tokens, oauth, is_open=is_open, proxies=proxies, sessions=sessions)


def _why_tokens_are_required(settings: Settings, address: str) -> str:

    return why_tokens_are_required(address, settings.allowed_hosts, is_required=settings.require_tokens)


def _has_tokens(settings: Settings) -> bool:
    with contextlib.closing(make_tokens(settings)) as tokens:
        return tokens.any_valid()


def _connect(backend: Backend) -> Connection:
    """A connection to a client whose files this server cannot see."""
    return Connection(backend, is_remote=True)


def serve_http(settings: Settings, connect: Callable[[Backend], Connection] | None = None) -> int:
    """Serve HTTP until a signal stops the server. Returns the exit code. `connect`: see `make_asgi`."""
    preload(*PRELOADED)
    host, port = split_address(settings.http)
    listener = listen(host, port)
    address = listener.getsockname()[0]
    reason = _why_tokens_are_required(settings, address)
    problem = why_not_listen(reason, has_tokens=lambda: _has_tokens(settings), has_issuer=bool(issuer_of(settings)))
    if problem:
        listener.close()
        announce(f"workflowlookup: {problem}")
        return 2
    watchdog = Watchdog(settings.stop_delay_seconds + settings.drain_seconds + END_SECONDS)
    watchdog.start()
    waker = Waker()
    server = make_asgi(settings, waker, address, connect=connect, is_traced=start_traces(os.environ))
    server.backend.start_background()
    server.journals.start()
    with contextlib.ExitStack() as stack:
        stack.callback(waker.close)
        stack.callback(server.backend.end)
        stack.enter_context(notifying(settings))
        return run(
            server.site,
            server.mcp,
            listener,
            connections=ConnectionTable(
                connection_limit(settings.max_sessions),
                settings.connections_per_address,
                proxies=Proxies(settings.trusted_proxies),
                on_refused=server.mcp.metrics.refuse,
            ),
            stop_delay_seconds=settings.stop_delay_seconds,
            drain_seconds=settings.drain_seconds,
            reload=server.backend.services.refresh,
            watchdog=watchdog,
        )
