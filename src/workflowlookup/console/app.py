"""The console as routes: which page answers which address, and what becomes of a request that cannot be answered."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from workflowlookup.console import library_pages, run_pages, server_pages, statistics_pages
from workflowlookup.console.rendering import render, serve_static
from workflowlookup.console.request import HEADERS, NotThere, Refused, Visit, read_form
from workflowlookup.console.statistics_pages import RecentFigures
from workflowlookup.errors import (
    Forbidden,
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
    ("/", server_pages.front),
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
    ("/trust", server_pages.trust),
    ("/health", server_pages.health),
    ("/events", run_pages.events),
)
ACTIONS: Final[tuple[tuple[str, Handler], ...]] = (
    ("/runs/{run}/confirm", run_pages.confirm),
    ("/runs/{run}/deny", run_pages.deny),
    ("/runs/{run}/cancel", run_pages.cancel),
    ("/runs/{run}/again", run_pages.again),
    ("/trust", server_pages.allow),
)
TITLES: Final = {
    400: "That cannot be read",
    401: "Who are you?",
    403: "Not allowed",
    404: "Nothing here",
    409: "That is no longer possible",
    413: "Too much",
    415: "That cannot be read",
    422: "There is something wrong with it",
    429: "Too many at once",
    500: "A fault of ours",
    503: "Not available now",
}


Identify = Callable[[Request], Visit | None]


def make_routes(identify: Identify, welcome: str = "Come with a token that may read.") -> list[BaseRoute]:
    """The routes of the console, to be put after all others: the last one answers every address.

    `identify` makes the visit of a request, None for an unknown sender, who is shown `welcome`.
    """

    recent = RecentFigures()

    def route(method: str, path: str, handler: Handler) -> Route:
        return Route(path, _endpoint(identify, welcome, handler, recent), methods=[method])

    pages = [route("GET", *page) for page in PAGES]
    forms = [route("POST", *action) for action in ACTIONS]
    return [static_route(), *pages, *forms, route("GET", "/{path:path}", _nothing)]


def static_route() -> Route:
    """The stylesheet and the like, which are open to all: there is nothing in them."""
    return Route("/static/{name}", _static, methods=["GET"])


async def _static(request: Request) -> Response:
    return _guarded(serve_static(request))


async def _nothing(_: Visit) -> Response:
    raise NotThere


def _endpoint(
    identify: Identify, welcome: str, handler: Handler, recent: RecentFigures
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visit = identify(request)
        if visit is None or not visit.access.may("read"):
            return _problem(None, 401, welcome)
        visit.recent = recent
        try:
            if "run" in request.path_params:
                await load_in_slices(visit.services.runs, request.path_params["run"])
            if request.method == "POST":
                visit.form = await read_form(request, visit.token)
            return _guarded(await handler(visit))
        except Exception as problem:  # noqa: BLE001 - details go to the log, not to the page
            return _problem(visit, *_told(problem, request))

    return endpoint


def _told(problem: Exception, request: Request) -> tuple[int, str]:
    """The status and the sentence for what went wrong."""
    match problem:
        case Refused():
            return problem.status, problem.told
        case RunNotFound() | WorkflowNotFound():
            return 404, NotThere("run" if isinstance(problem, RunNotFound) else "workflow").told
        case Busy():
            return 503, "The same figures are being computed for you. Load the page again."
        case RunStateError():
            return 409, problem.explain()
        case StorageError():
            log.warning("%s: %s", request.url.path, problem)
            return 503, problem.message + "."  # its particulars name files
        case Forbidden():
            return 403, problem.explain()
        case WorkflowLookupError():
            return 422, problem.explain()
    log.error("%s failed", request.url.path, exc_info=problem)
    return 500, "The server's log says more."


def _problem(visit: Visit | None, status: int, message: str) -> Response:
    page = render("problem.html", visit, status=status, title=TITLES[status], message=message)
    return _guarded(HTMLResponse(page, status))


def _guarded(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response
