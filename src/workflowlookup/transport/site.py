"""The web site that a server is: MCP at `/mcp`, its health and its figures, and whatever else is put beside them."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from workflowlookup.access import Access
from workflowlookup.transport.endpoint import Endpoint
from workflowlookup.transport.guard import Guard, Guarded, needs_everything
from workflowlookup.transport.limits import Limits
from workflowlookup.transport.metrics import CONTENT_TYPE
from workflowlookup.web import is_allowed_host, is_allowed_origin

log = logging.getLogger(__name__)

MCP: Final = "/mcp"
PROBES: Final = ("/healthz", "/readyz")
"""What is asked by machines that call this one by its number; they are told yes or no and nothing else."""


class Site:
    """Answers only to the names of this server, and only to its own pages: a page from elsewhere cannot reach it."""

    def __init__(self, mcp: ASGIApp, rest: ASGIApp, limits: Limits, refuse: Callable[[str], None]) -> None:
        """`mcp` serves `/mcp`, `rest` all other paths; `refuse` counts refusals."""
        self._mcp = mcp
        self._rest = rest
        self._limits = limits
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._rest(scope, receive, send)
            return
        hosts, origins = [], []
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name == b"origin":
                origins.append(value.decode("latin-1"))
        app = self._mcp if scope["path"] == MCP else self._rest
        if len(hosts) != 1 or not is_allowed_host(hosts[0], self._limits.allowed_hosts):
            self._refuse("host")
            app = PlainTextResponse("This server has another name: see the setting allowed_hosts.\n", 421)
        elif origins and not all(
            is_allowed_origin(origin, hosts[0], self._limits.allowed_origins) for origin in origins
        ):
            self._refuse("origin")
            app = PlainTextResponse("Pages from elsewhere may not ask: see the setting allowed_origins.\n", 403)
        await app(scope, receive, send)


def make_site(
    mcp: Endpoint,
    limits: Limits,
    *,
    guard: Guard,
    find_fault: Callable[[], str],
    routes: Sequence[BaseRoute] = (),
) -> Site:
    """The application. `find_fault` says why no work can be done now, nothing when it can; `routes` come last."""

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(_: Request) -> Response:
        fault = "the server is stopping" if mcp.is_draining else find_fault()
        if not fault:
            return PlainTextResponse("ready\n")
        log.warning("not ready: %s", fault)
        return JSONResponse({"ready": False}, status_code=503)

    async def figures(_: Request) -> Response:
        return Response(mcp.metrics.text(), media_type=CONTENT_TYPE)

    def guarded(app: ASGIApp, needs: Callable[[Access], str] | None = None) -> ASGIApp:
        return Guarded(app, guard, needs=needs, refused=lambda: mcp.metrics.refuse("access"))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with mcp.run():
            yield

    rest = Starlette(
        routes=[
            Route("/healthz", health),
            Route("/readyz", readiness),
            Route("/metrics", endpoint=guarded(Route("/metrics", figures).app, needs_everything)),
            *guard.routes(),
            *routes,
        ],
        lifespan=lifespan,
    )
    return Site(guarded(mcp), rest, limits, mcp.metrics.refuse)
