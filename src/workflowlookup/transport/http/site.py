"""The outermost ASGI application: MCP at `/mcp`, health probes, metrics, other routes; host and origin checks; CORS."""

import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workflowlookup import greenlets
from workflowlookup.auth.authentication import METADATA, Authenticator
from workflowlookup.errors import Forbidden
from workflowlookup.transport.http.auth_middleware import AuthMiddleware, why_not_all_workflows
from workflowlookup.transport.http.bodies import busy, refuse
from workflowlookup.transport.http.endpoint import Endpoint
from workflowlookup.transport.http.metrics import CONTENT_TYPE, Metrics
from workflowlookup.transport.http.rate_limits import MCP, HttpLimits, RateLimiter
from workflowlookup.web import is_allowed_host, is_allowed_origin

log = logging.getLogger(__name__)

PROBES: Final = ("/healthz", "/readyz")
"""Paths for load balancers, which often use an IP address as host: no host check, and no details in the answer."""
CORS_METHODS: Final = "GET, POST, DELETE"
CORS_REQUEST_HEADERS: Final = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Last-Event-ID",
    "Mcp-Session-Id",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "traceparent",
    "tracestate",
)
CORS_RESPONSE_HEADERS: Final = "Mcp-Session-Id, Retry-After, WWW-Authenticate"
CORS_MAX_AGE_SECONDS: Final = 600

_ARGUMENT_HEADER: Final = re.compile(r"mcp-param-[a-z0-9_.-]{1,100}")
"""Headers that repeat an argument of a tool; their names depend on the tools."""


class Site:
    """Checks the host and origin of each request, so that pages of other sites cannot use the server.

    It is the outermost application: it counts every 500 and logs every exception. It executes all applications by
    `greenlets.run`, so that a journal that does not answer blocks no other request.
    """

    def __init__(
        self, mcp: ASGIApp, rest: ASGIApp, limits: HttpLimits, metrics: Metrics, rate_limiter: RateLimiter
    ) -> None:
        """`mcp` serves `/mcp`, `rest` all other paths."""
        self._rate_limiter = rate_limiter
        self._mcp = mcp
        self._rest = rest
        self._limits = limits
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._rate_limiter.meter(scope, greenlets.run(self._serve, scope, receive, send))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        has_begun = False

        async def record_and_send(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                if message["status"] == 500:
                    self._metrics.fail("http")
            await send(message)

        try:
            await self._answer(scope, receive, record_and_send)
        except Exception:  # broad on purpose: details go to the log, not to the client
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not has_begun:  # else `HttpProtocol` closes the connection, unless the response is complete
                response = PlainTextResponse("Internal error of the server. Its log has the details.\n", 500)
                await response(scope, receive, record_and_send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
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
            self._metrics.refuse("host")
            app = PlainTextResponse("The Host header names another server; see the setting allowed_hosts.\n", 421)
        elif origins and not all(
            is_allowed_origin(origin, hosts[0], self._limits.allowed_origins) for origin in origins
        ):
            self._metrics.refuse("origin")
            problem = "Pages of this origin may not use the server; see the setting allowed_origins.\n"
            app = PlainTextResponse(problem, 403)
        elif self._limits.allowed_origins and (scope["path"] == MCP or scope["path"].startswith(METADATA)):
            send = _allow_origin(origins, send)
            if _is_preflight(scope):
                app = _answer_preflight(scope)
        await app(scope, receive, send)


def make_site(  # noqa: PLR0913 - the parts of a site
    mcp: Endpoint,
    limits: HttpLimits,
    *,
    authenticator: Authenticator,
    rate_limiter: RateLimiter,
    find_fault: Callable[[], str],
    routes: Sequence[BaseRoute] = (),
) -> Site:
    """The application. `find_fault` returns why the server is not ready, empty if it is; `routes` come last."""

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    logged_reason = ""

    async def readiness(_: Request) -> Response:
        nonlocal logged_reason
        reason = "the server is stopping" if mcp.is_stopping else find_fault()
        if reason and reason != logged_reason:  # not for every request: anybody may send many
            log.warning("not ready: %s", reason)
        logged_reason = reason
        return JSONResponse({"ready": False}, status_code=503) if reason else PlainTextResponse("ready\n")

    async def metrics(_: Request) -> Response:
        return Response(mcp.metrics.text(), media_type=CONTENT_TYPE)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with mcp.run():
            yield

    metrics_endpoint = AuthMiddleware(
        Route("/metrics", metrics).app,
        authenticator,
        rate_limiter=rate_limiter,
        forbidden_reason=why_not_all_workflows,
        on_refused=lambda: mcp.metrics.refuse("access"),
    )
    rest = Starlette(
        routes=[
            Route("/healthz", health),
            Route("/readyz", readiness),
            Route("/metrics", endpoint=metrics_endpoint),
            *rate_limiter.routes(*authenticator.routes()),
            *routes,
        ],
        lifespan=lifespan,
    )
    endpoint = AuthMiddleware(
        mcp,
        authenticator,
        rate_limiter=rate_limiter,
        on_refused=lambda: mcp.metrics.refuse("access"),
        replace_refusal=_in_jsonrpc,
    )
    return Site(endpoint, rest, limits, mcp.metrics, rate_limiter)


def _in_jsonrpc(_: Request, refusal: Response) -> Response:
    """A refusal as a JSON-RPC error, if there is a code for it; status and headers stay."""
    if refusal.status_code not in (403, 429, 503):
        return refusal
    problem = msgspec.json.decode(refusal.body)["error_description"]
    if refusal.status_code == 403:
        response = refuse(403, Forbidden(problem, scope="read"))
    else:
        response = busy(refusal.status_code, problem, int(refusal.headers["Retry-After"]))
    for name in ("WWW-Authenticate", "Cache-Control"):
        if name in refusal.headers:
            response.headers[name] = refusal.headers[name]
    return response


# ── CORS ────────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Pages of the origins in the setting `allowed_origins` may use MCP. A page sends its token itself, as any client does:
# credentials of the browser (cookies) are never allowed, and the console has no CORS at all.


def _is_preflight(scope: Scope) -> bool:
    """Whether this is a preflight request: a browser asks what a page may send."""
    return scope["method"] == "OPTIONS" and "access-control-request-method" in Headers(scope=scope)


def _answer_preflight(scope: Scope) -> Response:
    """The response to a preflight request; `_allow_origin` adds the origin."""
    requested = Headers(scope=scope).get("access-control-request-headers", "").lower().split(",")
    arguments = [name for header in requested if _ARGUMENT_HEADER.fullmatch(name := header.strip())]
    headers = {
        "Access-Control-Allow-Methods": CORS_METHODS,
        "Access-Control-Allow-Headers": ", ".join((*CORS_REQUEST_HEADERS, *arguments)),
        "Access-Control-Max-Age": str(CORS_MAX_AGE_SECONDS),
    }
    return Response(status_code=204, headers=headers)


def _allow_origin(origins: Sequence[str], send: Send) -> Send:
    """Wrap `send` so that a page of this origin may read the response. `Vary` keeps caches from mixing up origins."""

    async def send_allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.add_vary_header("Origin")
            if len(origins) == 1:
                headers["Access-Control-Allow-Origin"] = origins[0]
                headers["Access-Control-Expose-Headers"] = CORS_RESPONSE_HEADERS
        await send(message)

    return send_allowing
