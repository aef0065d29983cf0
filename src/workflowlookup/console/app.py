"""The routes of the console, and the error pages."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from workflowlookup.console import library_pages, people_pages, run_pages, server_pages, statistics_pages
from workflowlookup.console.rendering import render, serve_static
from workflowlookup.console.request import HEADERS, PageNotFound, RequestRefused, Visit, read_form
from workflowlookup.console.statistics_pages import StatisticsCache
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
from workflowlookup.store.loading import load_in_slices

log = logging.getLogger(__name__)

Handler = Callable[[Visit], Awaitable[Response]]

PAGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", server_pages.start_page),
    ("/library", library_pages.library),
    ("/library/{workflow}", library_pages.workflow),
    ("/library/{workflow}/changes", library_pages.changes),
    ("/runs", run_pages.runs),
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
    ("/runs/{run}/challenge", run_pages.challenge),
    ("/runs/{run}/confirm", run_pages.confirm),
    ("/runs/{run}/deny", run_pages.deny),
    ("/runs/{run}/cancel", run_pages.cancel),
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
    return _with_headers(serve_static(request))


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
                visit.form = await read_form(request, visit.token)
            return _with_headers(await handler(visit))
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


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response
