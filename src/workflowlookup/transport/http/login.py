"""How a browser logs in: a form for a token, and a session of the console from then on (`store.sessions`)."""

import hashlib
import html
import logging
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from workflowlookup.access import Access
from workflowlookup.auth import cookies
from workflowlookup.auth.authentication import Authenticator
from workflowlookup.auth.callers import ACCESS, CALLER
from workflowlookup.errors import StorageError
from workflowlookup.logs import audit
from workflowlookup.store.sessions import CONSOLE_SESSION_SECONDS, ConsoleSessions
from workflowlookup.transport.http.auth_middleware import AuthMiddleware
from workflowlookup.transport.http.rate_limits import RateLimiter
from workflowlookup.web import FormError, is_same_origin, read_form_fields

log = logging.getLogger(__name__)

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
MOST_NEXT: Final = 2_000

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · workflowlookup</title>{style}</head>
<body><main><h1>Who are you?</h1>{told}
<form class="signing-in" method="post" action="/login"><input type="hidden" name="next" value="{next}">
<p class="field"><label for="token">Token</label>
<input id="token" name="token" type="password" required autocomplete="current-password" spellcheck="false"></p>
<p><button class="button strong">Sign in</button></p></form>
<p class="note">An administrator makes one with
<code>workflowlookup token create --name NAME --person --scope run --scope confirm</code>.</p>
</main></body></html>
"""

_AGAIN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={0}">
<title>workflowlookup</title></head><body><p><a href="{0}">Go on</a></p></body></html>
"""
"""For a link on another site, with which browsers send no `SameSite=Strict` cookie: the page asks once more itself."""


class _Entry(NamedTuple):
    """A form that was filled in with a valid token."""

    access: Access
    token: str
    following: str
    """The page to go on to."""


class Login:
    """The form, and what it leads to."""

    def __init__(
        self,
        authenticator: Authenticator,
        sessions: ConsoleSessions,
        *,
        rate_limiter: RateLimiter | None = None,
        stylesheet: str = "",
    ) -> None:
        """`stylesheet`: the address of one of ours, for the form to look like the pages behind it."""
        self._authenticator = authenticator
        self._sessions = sessions
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._style = f'<link rel="stylesheet" href="{html.escape(stylesheet)}">' if stylesheet else ""

    def routes(self, *others: Route) -> list[BaseRoute]:
        """The form, and other routes that are open to all.

        The form itself is not limited by address, or others there could keep the holder of a token from logging in.
        """
        return [
            Route(LOGIN, self._show, methods=["GET"]),
            Route(LOGIN, self._take, methods=["POST"]),
            *self._rate_limiter.routes(Route(LOGOUT, self._forget, methods=["POST"]), *others),
        ]

    def guarded(self, app: ASGIApp, refused: Callable[[], None] = lambda: None) -> ASGIApp:
        """An application of pages, for those who are known; a browser that is not is led to the form."""
        return AuthMiddleware(
            app,
            self._authenticator,
            rate_limiter=self._rate_limiter,
            by_cookie=True,
            refused=refused,
            answer_unknown=self._lead,
        )

    def _lead(self, request: Request, refusal: Response) -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if refusal.status_code != 401 or not is_page or "authorization" in request.headers:
            return refusal
        query = f"?{request.url.query}" if request.url.query else ""
        path = f"{request.url.path}{query}"[:MOST_NEXT]
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and _local(path) == path:
            return HTMLResponse(_AGAIN.format(html.escape(path)), headers=_HEADERS)
        wanted = quote(path, safe="/")
        return RedirectResponse(f"{LOGIN}?next={wanted}", 303, {"Cache-Control": "no-store"})

    async def _show(self, request: Request) -> Response:
        return self._page(_local(request.query_params.get("next", "")))

    def _page(self, following: str, told: str = "", status: int = 200) -> Response:
        said = f'<p role="alert">{html.escape(told)}</p>' if told else ""
        return HTMLResponse(_PAGE.format(style=self._style, told=said, next=html.escape(following)), status, _HEADERS)

    async def _take(self, request: Request) -> Response:
        """Log in. A valid token counts against the limits of its caller, anything else against those of its address."""
        entry = await self._check(request)
        if isinstance(entry, _Entry):
            request.scope[CALLER] = entry.access.caller
        refusal = await self._rate_limiter.admit(request.scope)
        if refusal is not None:
            return refusal
        if isinstance(entry, Response):
            return entry
        audit("log-in", by=entry.access.sign("console"), address=self._authenticator.address_of(request))
        return self._begin(request, entry.token, entry.following)

    async def _check(self, request: Request) -> "_Entry | Response":
        """What was filled in, if the token is valid; else the page that says why nobody is logged in."""
        if not is_same_origin(request):
            return self._page("/", "The form was sent by another site. Fill in this one.", 403)
        try:
            form = await read_form_fields(request)
        except FormError as problem:
            return self._page("/", problem.message, problem.status)
        following, token = _local(form.get("next", "")), form.get("token", "").strip()
        access = await self._authenticator.authenticate(_with_token(request, token))
        if isinstance(access, Access):
            return _Entry(access, token, following)
        if access.status_code >= 500:
            return self._page(following, "Nobody can be let in now. Try again in a moment.", 503)
        if access.status_code == 429:
            wait = access.headers["Retry-After"]
            told = f"Too many wrong tokens came from your address. Try again in {wait} seconds."
            page = self._page(following, told, 429)
            page.headers["Retry-After"] = wait
            return page
        told = "This token is not known, has expired or was revoked, or may see nothing here. Ask for another one."
        return self._page(following, told, 401)

    def _begin(self, request: Request, token: str, following: str) -> Response:
        """Begin a session for the holder of a token, in place of the one that the browser may have."""
        try:
            if earlier := cookies.session_in(request):
                self._sessions.end(earlier)
            session_id = self._sessions.open(token, cookies.address_of(request))
        except StorageError as problem:
            log.warning("a session of the console could not be stored: %s", problem)
            return self._page(following, "Your session cannot be stored now. Try again in a moment.", 503)
        response = RedirectResponse(following, 303, {"Cache-Control": "no-store"})
        cookies.set_session(request, response, session_id, CONSOLE_SESSION_SECONDS)
        return response

    async def _forget(self, request: Request) -> Response:
        response = RedirectResponse(LOGIN, 303, {"Cache-Control": "no-store"})
        if not is_same_origin(request):
            return response
        session_id = cookies.session_in(request)
        access = await self._authenticator.authenticate(request, by_cookie=True)
        try:
            if session_id:
                self._sessions.end(session_id)
        except StorageError as problem:
            log.warning("a session of the console could not be ended: %s", problem)
            return self._page("/", "Your session cannot be ended now. Try again in a moment.", 503)
        cookies.delete_session(request, response)
        if isinstance(access, Access):
            audit("log-out", by=access.sign("console"), address=self._authenticator.address_of(request))
        return response


def access_of(request: Request) -> Access | None:
    """Who looks at a page; None when nobody asked."""
    access = request.scope.get(ACCESS)
    return access if isinstance(access, Access) else None


_NOBODY: Final = secrets.token_urlsafe(24)


def session_of(request: Request) -> str:
    """What tells one visitor from another, for forms to be bound to, and what no other page can know.

    It is the same on every replica; but for the local person, who has but one server.
    """
    said = request.headers.get("authorization", "") or cookies.session_in(request) or _NOBODY
    return hashlib.sha256(f"session\0{said}".encode()).hexdigest()


def _local(address: str) -> str:
    """An address of ours to go on to: whatever could lead elsewhere leads to the front page."""
    is_plain = address.startswith("/") and not address.startswith("//") and len(address) <= MOST_NEXT
    return address if is_plain and address.isprintable() and "\\" not in address else "/"


def _with_token(request: Request, token: str) -> Request:
    """The request as if it had brought the token by itself."""
    headers = [(name, value) for name, value in request.scope["headers"] if name not in (b"authorization", b"cookie")]
    said = f"Bearer {token}".encode("utf-8", errors="replace")
    return Request({**request.scope, "headers": [*headers, (b"authorization", said)]})
