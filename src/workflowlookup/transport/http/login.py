"""How a browser logs in: a form for a token, which begins a console session (`store.sessions`)."""

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
MAX_NEXT: Final = 2_000

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
<body><main><h1>Sign in</h1>{alert}
<form class="signing-in" method="post" action="/login"><input type="hidden" name="next" value="{next}">
<p class="field"><label for="token">Token</label>
<input id="token" name="token" type="password" required autocomplete="current-password" spellcheck="false"></p>
<p><button class="button strong">Sign in</button></p></form>
<p class="note">An administrator makes a token with
<code>workflowlookup token create --name NAME --person --scope run --scope confirm</code>.</p>
</main></body></html>
"""

_RELOAD_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={0}">
<title>workflowlookup</title></head><body><p><a href="{0}">Go on</a></p></body></html>
"""
"""For a link on another site: the browser sends no `SameSite=Strict` cookie with it, so the page loads itself again."""


class _LoginForm(NamedTuple):
    """A log-in form with a valid token."""

    access: Access
    token: str
    next_path: str
    """The page to show after the log-in."""


class Login:
    """The log-in form, log-in and log-out."""

    def __init__(
        self,
        authenticator: Authenticator,
        sessions: ConsoleSessions,
        *,
        rate_limiter: RateLimiter | None = None,
        stylesheet: str = "",
    ) -> None:
        """`stylesheet`: the URL of the console's stylesheet."""
        self._authenticator = authenticator
        self._sessions = sessions
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._style = f'<link rel="stylesheet" href="{html.escape(stylesheet)}">' if stylesheet else ""

    def routes(self, *others: Route) -> list[BaseRoute]:
        """The routes of the form, and other routes that need no authentication.

        The form is not limited by address: otherwise others at the same address could keep a person from logging in.
        """
        return [
            Route(LOGIN, self._show_form, methods=["GET"]),
            Route(LOGIN, self._log_in, methods=["POST"]),
            *self._rate_limiter.routes(Route(LOGOUT, self._log_out, methods=["POST"]), *others),
        ]

    def authenticated(self, app: ASGIApp, on_refused: Callable[[], None] = lambda: None) -> ASGIApp:
        """The pages of an application, for authenticated callers; other browsers are redirected to the form."""
        return AuthMiddleware(
            app,
            self._authenticator,
            rate_limiter=self._rate_limiter,
            by_cookie=True,
            on_refused=on_refused,
            replace_refusal=self._redirect_to_form,
        )

    def _redirect_to_form(self, request: Request, refusal: Response) -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if refusal.status_code != 401 or not is_page or "authorization" in request.headers:
            return refusal
        query = f"?{request.url.query}" if request.url.query else ""
        path = f"{request.url.path}{query}"[:MAX_NEXT]
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and _local_path(path) == path:
            return HTMLResponse(_RELOAD_PAGE.format(html.escape(path)), headers=_HEADERS)
        next_query = quote(path, safe="/")
        return RedirectResponse(f"{LOGIN}?next={next_query}", 303, {"Cache-Control": "no-store"})

    async def _show_form(self, request: Request) -> Response:
        return self._page(_local_path(request.query_params.get("next", "")))

    def _page(self, next_path: str, message: str = "", status: int = 200) -> Response:
        alert = f'<p role="alert">{html.escape(message)}</p>' if message else ""
        return HTMLResponse(_PAGE.format(style=self._style, alert=alert, next=html.escape(next_path)), status, _HEADERS)

    async def _log_in(self, request: Request) -> Response:
        """Log in. A valid token counts against the rate limit of its caller, any other against that of its address."""
        form = await self._read_form(request)
        if isinstance(form, _LoginForm):
            request.scope[CALLER] = form.access.caller
        refusal = await self._rate_limiter.admit(request.scope)
        if refusal is not None:
            return refusal
        if isinstance(form, Response):
            return form
        audit("log-in", by=form.access.sign("console"), address=self._authenticator.address_of(request))
        return self._begin_session(request, form.token, form.next_path)

    async def _read_form(self, request: Request) -> "_LoginForm | Response":
        """The form, if its token is valid; else the page that says why not."""
        if not is_same_origin(request):
            return self._page("/", "The form was sent by another site. Use this form.", 403)
        try:
            fields = await read_form_fields(request)
        except FormError as problem:
            return self._page("/", problem.message, problem.status)
        next_path, token = _local_path(fields.get("next", "")), fields.get("token", "").strip()
        access = await self._authenticator.authenticate(_with_token(request, token))
        if isinstance(access, Access):
            return _LoginForm(access, token, next_path)
        if access.status_code >= 500:
            return self._page(next_path, "Log-in is not possible now. Try again in a moment.", 503)
        if access.status_code == 429:
            wait = access.headers["Retry-After"]
            message = f"Too many wrong tokens came from your address. Try again in {wait} seconds."
            page = self._page(next_path, message, 429)
            page.headers["Retry-After"] = wait
            return page
        message = "This token is not known, has expired or was revoked, or may see nothing here. Ask for another one."
        return self._page(next_path, message, 401)

    def _begin_session(self, request: Request, token: str, next_path: str) -> Response:
        """Begin a session for a token; it replaces an earlier session of the browser."""
        try:
            if earlier_id := cookies.session_in(request):
                self._sessions.end(earlier_id)
            session_id = self._sessions.open(token, cookies.address_of(request))
        except StorageError as problem:
            log.warning("a console session could not be stored: %s", problem)
            return self._page(next_path, "Your session cannot be stored now. Try again in a moment.", 503)
        response = RedirectResponse(next_path, 303, {"Cache-Control": "no-store"})
        cookies.set_session(request, response, session_id, CONSOLE_SESSION_SECONDS)
        return response

    async def _log_out(self, request: Request) -> Response:
        response = RedirectResponse(LOGIN, 303, {"Cache-Control": "no-store"})
        if not is_same_origin(request):
            return response
        session_id = cookies.session_in(request)
        access = await self._authenticator.authenticate(request, by_cookie=True)
        try:
            if session_id:
                self._sessions.end(session_id)
        except StorageError as problem:
            log.warning("a console session could not be ended: %s", problem)
            return self._page("/", "Your session cannot be ended now. Try again in a moment.", 503)
        cookies.delete_session(request, response)
        if isinstance(access, Access):
            audit("log-out", by=access.sign("console"), address=self._authenticator.address_of(request))
        return response


def access_of(request: Request) -> Access | None:
    """The caller of a page; None if the request was not authenticated."""
    access = request.scope.get(ACCESS)
    return access if isinstance(access, Access) else None


_NO_SESSION: Final = secrets.token_urlsafe(24)


def session_of(request: Request) -> str:
    """Identifies the session of a visitor. Forms are bound to it, and pages of other sites cannot know it.

    It is the same at every replica, except for loopback without a session, where there is only one server.
    """
    credential = request.headers.get("authorization", "") or cookies.session_in(request) or _NO_SESSION
    return hashlib.sha256(f"session\0{credential}".encode()).hexdigest()


def _local_path(path: str) -> str:
    """The path, if it is a page of this server; the front page for anything that could lead to another site."""
    is_plain = path.startswith("/") and not path.startswith("//") and len(path) <= MAX_NEXT
    return path if is_plain and path.isprintable() and "\\" not in path else "/"


def _with_token(request: Request, token: str) -> Request:
    """The request as if it had an `Authorization` header with this token."""
    headers = [(name, value) for name, value in request.scope["headers"] if name not in (b"authorization", b"cookie")]
    bearer = f"Bearer {token}".encode("utf-8", errors="replace")
    return Request({**request.scope, "headers": [*headers, (b"authorization", bearer)]})
