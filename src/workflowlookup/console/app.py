"""The routes of the console, its error pages, and the console for one person on their own machine.

That one listens on loopback and is opened with a key that works once. A server over HTTP serves the same routes.
"""

import gzip
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from workflowlookup.access import Access
from workflowlookup.auth.scoped import scoped
from workflowlookup.console import (
    approvals,
    attention,
    library_pages,
    people_pages,
    run_list,
    run_pages,
    server_pages,
    statistics_pages,
    trial_pages,
)
from workflowlookup.console.rendering import render, serve_static
from workflowlookup.console.request import HEADERS, PageNotFound, RequestRefused, Visit, may_compress, read_form
from workflowlookup.console.statistics_pages import StatisticsCache
from workflowlookup.console.streams import Streams
from workflowlookup.errors import (
    Forbidden,
    RunDamaged,
    RunNotFound,
    RunStateError,
    StorageError,
    WorkflowLookupError,
    WorkflowNotFound,
)
from workflowlookup.greenlets import Busy
from workflowlookup.protocol.backend import Backend
from workflowlookup.store.loading import load_in_slices
from workflowlookup.tools.contract import ServerServices
from workflowlookup.web import LOOPBACK_HOSTS, is_allowed_host

log = logging.getLogger(__name__)

Handler = Callable[[Visit], Awaitable[Response]]

PAGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", server_pages.start_page),
    ("/library", library_pages.library),
    ("/library/{workflow}", library_pages.workflow),
    ("/library/{workflow}/changes", library_pages.changes),
    ("/library/{workflow}/try", trial_pages.show),
    ("/runs", run_list.runs),
    ("/approvals", approvals.approvals),
    ("/feed.atom", attention.feed),
    ("/attention", attention.attention),
    ("/runs/{run}", run_pages.run),
    ("/runs/{run}/live", run_pages.live),
    ("/runs/{run}/outputs/{sequence}", run_pages.output),
    ("/runs/{run}/journal.jsonl", run_pages.journal),
    ("/runs/{run}/report.md", run_pages.report),
    ("/statistics", statistics_pages.overview),
    ("/statistics/{workflow}", statistics_pages.workflow),
    ("/tools", server_pages.tools),
    ("/people", people_pages.people),
    ("/trust", server_pages.trust),
    ("/health", server_pages.health),
    ("/events", run_pages.events),
)
ACTIONS: Final[tuple[tuple[str, Handler], ...]] = (
    ("/library/{workflow}/try", trial_pages.go_on),
    ("/runs/{run}/challenge", run_pages.challenge),
    ("/runs/{run}/confirm", run_pages.confirm),
    ("/runs/{run}/deny", run_pages.deny),
    ("/runs/{run}/cancel", run_pages.cancel),
    ("/runs/{run}/pause", run_pages.pause),
    ("/runs/{run}/resume", run_pages.resume),
    ("/runs/{run}/again", run_pages.start_again),
    ("/people", people_pages.register),
    ("/people/approve", people_pages.approve),
    ("/trust", server_pages.allow),
)
TITLES: Final = {
    400: "The request cannot be read",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    409: "That is no longer possible",
    413: "Too long",
    415: "The form cannot be read",
    422: "Something is wrong with it",
    429: "Too many at once",
    500: "An internal error",
    503: "Not available now",
}


Identify = Callable[[Request], Visit | None]


def make_routes(identify: Identify, welcome: str = "Sign in with a token that has the scope read.") -> list[BaseRoute]:
    """The routes of the console. They come after all others, because the last one matches every path.

    `identify` returns the visit of a request, or None for an unknown sender, who sees `welcome`.
    """

    statistics_cache = StatisticsCache()

    def route(method: str, path: str, handler: Handler) -> Route:
        return Route(path, _endpoint(identify, welcome, handler, statistics_cache), methods=[method])

    pages = [route("GET", *page) for page in PAGES]
    forms = [route("POST", *action) for action in ACTIONS]
    return [static_route(), *pages, *forms, route("GET", "/{path:path}", _not_found)]


def static_route() -> Route:
    """The static files, which need no authentication."""
    return Route("/static/{name}", _static, methods=["GET"])


async def _static(request: Request) -> Response:
    response = serve_static(request)
    if "gzip" in request.headers.get("accept-encoding", ""):
        _compress(response)
    return _with_headers(response)


async def _not_found(_: Visit) -> Response:
    raise PageNotFound


def _endpoint(
    identify: Identify, welcome: str, handler: Handler, statistics_cache: StatisticsCache
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visit = identify(request)
        if visit is None or not visit.access.may("read"):
            return _error_page(None, 401, welcome)
        visit.statistics_cache = statistics_cache
        try:
            if "run" in request.path_params:
                await load_in_slices(visit.services.runs, request.path_params["run"])
            if request.method == "POST":
                visit.form = await read_form(request, visit.form_secret)
            return _compressed(_with_headers(await handler(visit)), request)
        except Exception as problem:  # noqa: BLE001 - details go to the log, not to the page
            return _error_page(visit, *_explain(problem, request))

    return endpoint


def _explain(problem: Exception, request: Request) -> tuple[int, str]:
    """The status and the message of the error page."""
    match problem:
        case RequestRefused():
            return problem.status, problem.message
        case RunNotFound() | WorkflowNotFound():
            return 404, PageNotFound("run" if isinstance(problem, RunNotFound) else "workflow").message
        case Busy():
            return 503, "These statistics are being computed for you already. Load the page again in a moment."
        case RunStateError():
            return 409, problem.explain()
        case RunDamaged():
            return 503, problem.problem
        case StorageError():
            log.warning("%s: %s", request.url.path, problem)
            return 503, problem.message + "."  # its details name files
        case Forbidden():
            return 403, problem.explain()
        case WorkflowLookupError():
            return 422, problem.explain()
    log.error("%s failed", request.url.path, exc_info=problem)
    return 500, "The server failed to make this page. Its log has the details."


def _error_page(visit: Visit | None, status: int, message: str) -> Response:
    page = render("error.html", visit, status=status, title=TITLES[status], message=message)
    return _with_headers(HTMLResponse(page, status))


MIN_COMPRESSED: Final = 1_000
MAX_COMPRESSED: Final = 4_000_000
"""Sizes of answers that are compressed; larger ones would take too long on the event loop."""


def _compressed(response: Response, request: Request) -> Response:
    if isinstance(response, HTMLResponse) and may_compress(request):
        _compress(response)
    return response


def _compress(response: Response) -> None:
    if MIN_COMPRESSED <= len(response.body) <= MAX_COMPRESSED:
        response.body = gzip.compress(bytes(response.body), 5, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    response.headers["Vary"] = "Accept-Encoding"


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


WELCOME: Final = (
    "This console belongs to the person who started it. Open the URL that `workflowlookup console` printed. "
    "Its key works once: run the command again for another browser."
)
AGENT: Final = Access(name="", kind="agent", scopes=frozenset({"read", "run"}))
"""The rights if an agent started the console: it cannot answer for a person."""


class LoopbackOnly:
    """Middleware that answers only requests for a loopback host, which prevents DNS rebinding."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = Headers(scope=scope).getlist("host")
            if len(hosts) != 1 or not is_allowed_host(hosts[0], LOOPBACK_HOSTS):
                refusal = PlainTextResponse("This console answers only at localhost. Use that name in the URL.", 403)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class LocalConsole:
    """The console of one person, who may do everything; an agent may only read and run."""

    def __init__(
        self, services: ServerServices, *, person: str, journal: str = "", port: int = 0, is_agent: bool = False
    ) -> None:
        self.services = services
        self._cookie = f"workflowlookup-{port}"  # cookies are shared by all ports of a host
        self._key: str | None = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._person = person
        self._journal = journal
        self._backend = backend = Backend(lambda: services)
        if is_agent:
            self._backend = Backend(lambda: scoped(services, AGENT, backend.registry.refresh))
        self.streams = Streams()
        routes = [Route("/enter", self._enter), *make_routes(self._identify, WELCOME)]
        self.app = Starlette(routes=routes, middleware=[Middleware(LoopbackOnly)])

    @property
    def entry_path(self) -> str:
        """The path with the key, which opens the console once."""
        return f"/enter?key={self._key}"

    async def _enter(self, request: Request) -> Response:
        """Accept the key once, and set the session cookie of this browser."""
        is_valid = self._key is not None and hmac.compare_digest(
            request.query_params.get("key", "").encode(), self._key.encode()
        )
        response = RedirectResponse("/", 303)
        if is_valid:
            self._key = None
            response.set_cookie(self._cookie, self._session, httponly=True, samesite="lax", path="/")
        return response

    def _identify(self, request: Request) -> Visit | None:
        if not hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._session.encode()):
            return None
        return Visit(
            request,
            self._backend,
            self.streams,
            session=self._session,
            client=self._person,
            journal=self._journal,
        )
