"""The console for one person on their own machine: on loopback, opened with a key that works once."""

import hmac
import secrets
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from workflowlookup.access import Access
from workflowlookup.auth.scoped import scoped
from workflowlookup.console.app import make_routes
from workflowlookup.console.request import Visit
from workflowlookup.console.streams import Streams
from workflowlookup.protocol.backend import Backend
from workflowlookup.tools.contract import ServerServices
from workflowlookup.web import LOOPBACK, is_allowed_host

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
            if len(hosts) != 1 or not is_allowed_host(hosts[0], LOOPBACK):
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
