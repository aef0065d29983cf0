"""One request to the console: the sender's services, query and form, and the page that answers it."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse

from workflowlookup.access import Access
from workflowlookup.console.rendering import render
from workflowlookup.console.streams import Streams
from workflowlookup.protocol.backend import Backend
from workflowlookup.web import FormError, is_same_origin, read_form_fields

if TYPE_CHECKING:
    from workflowlookup.console.statistics_pages import StatisticsCache

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # no-referrer would make browsers send `Origin: null` with our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class RequestRefused(Exception):
    """The console refuses a request; the error page shows the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class PageNotFound(RequestRefused):
    """There is no such page, or this viewer may not see it."""

    def __init__(self, what: str = "page") -> None:
        super().__init__(404, f"There is no such {what}, or you may not see it.")


NO_MASK: Final = bytes(32)


def form_secret(session: str, name: str) -> bytes:
    """What the CSRF token of a form proves to know; only the session that it belongs to can produce it."""
    return hmac.digest(session.encode(), f"form\0{name}".encode(), hashlib.sha256)


def form_token(session: str, name: str, mask: bytes = NO_MASK) -> str:
    """The CSRF token of a form. With a random mask no two pages have the same text, so the size of a compressed page
    says nothing about it (BREACH).
    """
    return base64.urlsafe_b64encode(mask + _xor(mask, form_secret(session, name))).decode().rstrip("=")


def _secret_of(token: str) -> bytes:
    """What a token proves to know; empty if it cannot be read."""
    try:
        both = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return b""
    half = len(both) // 2
    return _xor(both[:half], both[half:])


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(first, second, strict=False))


def may_compress(request: Request) -> bool:
    """Whether the answer may be compressed: the browser accepts that, and says that no other site caused the request.

    Otherwise another site could choose words of a search, and learn from the size of the page what else is on it.
    """
    accepts = "gzip" in request.headers.get("accept-encoding", "")
    return accepts and request.headers.get("sec-fetch-site") in ("same-origin", "none")


async def read_form(request: Request, secret: bytes) -> Mapping[str, str]:
    """The fields of a form of one of our pages, with a token of this secret. Raises `RequestRefused` for others."""
    if not is_same_origin(request):
        raise RequestRefused(403, "This form was not sent by a page of this console.")
    try:
        fields = await read_form_fields(request)
    except FormError as problem:
        raise RequestRefused(problem.status, problem.message) from None
    if not hmac.compare_digest(_secret_of(fields.get("token", "")), secret):
        raise RequestRefused(403, "The form belongs to another session. Load the page again and repeat.")
    return fields


MAX_QUERY_LENGTH: Final = 200
NAVIGATION: Final[Mapping[str, tuple[str, str]]] = {
    "runs": ("/runs", "Runs"),
    "approvals": ("/approvals", "Approvals"),
    "library": ("/library", "Library"),
    "statistics": ("/statistics", "Statistics"),
    "tools": ("/tools", "Tools"),
    "people": ("/people", "People"),
    "trust": ("/trust", "Trust"),
    "health": ("/health", "Health"),
}
"""The main navigation, by section: path and name."""


def _navigation_for(access: Access) -> Mapping[str, tuple[str, str]]:
    """The sections that a caller may open."""
    is_hidden = {
        "people": not access.may_register,
        "trust": not access.administers_all,
        "health": not access.may("admin"),
    }
    return {section: link for section, link in NAVIGATION.items() if not is_hidden.get(section)}


class Visit:
    """A request, and what a page needs to answer it. Its services are the sender's, so no page checks rights."""

    def __init__(  # noqa: PLR0913 - keywords
        self,
        request: Request,
        backend: Backend,
        streams: Streams,
        *,
        session: str,
        sign_out: str = "",
        client: str = "console",
        journal: str = "",
    ) -> None:
        """`session`: a secret of this visitor, to which forms are bound. `sign_out`: the path that ends the session.
        `client`: the client name in the journal. `journal`: the journal URL without its password.
        """
        self.request = request
        self.backend = backend
        self.streams = streams
        self.services = backend.services
        self.access = self.services.access
        self.sign_out = sign_out
        self.client = backend.sign(client)
        self.by = self.access.sign(client)
        self.journal = journal
        self.name = self.access.name or client
        self._session = session
        self.form: Mapping[str, str] = {}
        self.statistics_cache: StatisticsCache
        """Set by the console before a page is made."""
        self.navigation = _navigation_for(self.access)

    @property
    def token(self) -> str:
        """The CSRF token for a form on this page, with a mask if the page will be compressed."""
        mask = secrets.token_bytes(len(NO_MASK)) if may_compress(self.request) else NO_MASK
        return form_token(self._session, self.name, mask)

    @property
    def form_secret(self) -> bytes:
        return form_secret(self._session, self.name)

    def query(self, name: str) -> str:
        """A parameter of the query: stripped, shortened, without NUL characters."""
        return self.request.query_params.get(name, "").replace("\0", "").strip()[:MAX_QUERY_LENGTH]

    def path_param(self, name: str) -> str:
        return str(self.request.path_params[name])

    def require_section(self, section: str) -> None:
        """Raises `PageNotFound` if the sender may not open this section."""
        if section not in self.navigation:
            raise PageNotFound

    def page(self, template: str, **values: Any) -> HTMLResponse:
        """The page from this template."""
        return HTMLResponse(render(template, self, **values))
