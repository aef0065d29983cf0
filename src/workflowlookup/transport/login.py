"""How a browser comes in: a form for a token, and a cookie that carries it from then on.

The cookie is the token itself, which no script can read: what is revoked is refused at once, on every replica, and
nothing has to be remembered. It counts for pages only; MCP takes no cookies.
"""

import hashlib
import html
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from workflowlookup.access import Access
from workflowlookup.transport.guard import COOKIE, Guard, Guarded
from workflowlookup.transport.views import ACCESS
from workflowlookup.web import FormProblem, is_from_here, read_fields

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
COOKIE_SECONDS: Final = 12 * 3_600
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


class Login:
    """The form, and what it leads to."""

    def __init__(self, guard: Guard, *, stylesheet: str = "") -> None:
        """`stylesheet`: the address of one of ours, for the form to look like the pages behind it."""
        self._guard = guard
        self._style = f'<link rel="stylesheet" href="{html.escape(stylesheet)}">' if stylesheet else ""

    def routes(self) -> list[BaseRoute]:
        return [
            Route(LOGIN, self._show, methods=["GET"]),
            Route(LOGIN, self._take, methods=["POST"]),
            Route(LOGOUT, self._forget, methods=["POST"]),
        ]

    def guarded(self, app: ASGIApp, refused: Callable[[], None] = lambda: None) -> ASGIApp:
        """An application of pages, for those who are known; a browser that is not is led to the form."""
        return Guarded(app, self._guard, by_cookie=True, refused=refused, answer_unknown=self._lead)

    def _lead(self, request: Request, refusal: Response) -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if refusal.status_code != 401 or not is_page or "authorization" in request.headers:
            return refusal
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = quote(f"{request.url.path}{query}"[:MOST_NEXT], safe="/")
        return RedirectResponse(f"{LOGIN}?next={wanted}", 303, {"Cache-Control": "no-store"})

    async def _show(self, request: Request) -> Response:
        return self._page(_local(request.query_params.get("next", "")))

    def _page(self, following: str, told: str = "", status: int = 200) -> Response:
        said = f'<p role="alert">{html.escape(told)}</p>' if told else ""
        return HTMLResponse(_PAGE.format(style=self._style, told=said, next=html.escape(following)), status, _HEADERS)

    async def _take(self, request: Request) -> Response:
        if not is_from_here(request):
            return self._page("/", "The form was sent by another site. Fill in this one.", 403)
        try:
            form = await read_fields(request)
        except FormProblem as problem:
            return self._page("/", problem.told, problem.status)
        following, token = _local(form.get("next", "")), form.get("token", "").strip()
        access = await self._guard.authenticate(_with_token(request, token))
        if isinstance(access, Response):
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
        response = RedirectResponse(following, 303, {"Cache-Control": "no-store"})
        response.set_cookie(
            COOKIE,
            token,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="lax",
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return response

    async def _forget(self, request: Request) -> Response:
        response = RedirectResponse(LOGIN, 303, {"Cache-Control": "no-store"})
        if is_from_here(request):
            response.delete_cookie(COOKIE, httponly=True, samesite="lax")
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
    said = request.headers.get("authorization", "") or request.cookies.get(COOKIE, "") or _NOBODY
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
