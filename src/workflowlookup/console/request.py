"""One request to the console: the sender's services, the form they sent, the page that answers, and its headers."""

import base64
import hashlib
import hmac
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
    from workflowlookup.console.statistics_pages import RecentFigures

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


class Refused(Exception):
    """The request is not answered with what it asked for."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status
        self.told = told


class NotThere(Refused):
    """There is nothing at this address for this viewer."""

    def __init__(self, what: str = "page") -> None:
        super().__init__(404, f"There is no such {what}, or it is not for you to see.")


def form_token(session: str, name: str) -> str:
    """What a form of ours carries: only the session that it belongs to can make it."""
    digest = hmac.digest(session.encode(), f"form\0{name}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


async def read_form(request: Request, token: str) -> Mapping[str, str]:
    """The fields of a form that one of our pages sent with this token. Raises `Refused` for any other."""
    if not is_same_origin(request):
        raise Refused(403, "Forms are taken from pages of this console only.")
    try:
        fields = await read_form_fields(request)
    except FormError as problem:
        raise Refused(problem.status, problem.message) from None
    if not hmac.compare_digest(fields.get("token", "").encode(), token.encode()):
        raise Refused(403, "The form is not of this visit. Load the page again, then try once more.")
    return fields


MAX_WORD: Final = 200
PLACES: Final[Mapping[str, tuple[str, str]]] = {
    "runs": ("/runs", "Runs"),
    "library": ("/library", "Library"),
    "statistics": ("/statistics", "Statistics"),
    "tools": ("/tools", "Tools"),
    "trust": ("/trust", "Trust"),
    "health": ("/health", "Health"),
}
"""The main navigation, by key: address and name."""


def _places_for(access: Access) -> Mapping[str, tuple[str, str]]:
    """The places that a caller may open."""
    hidden = {"trust": not access.administers_all, "health": not access.may("admin")}
    return {key: place for key, place in PLACES.items() if not hidden.get(key)}


class Visit:
    """A request, and what a page needs to answer it. Its services are those of the sender, so no page checks rights."""

    def __init__(  # noqa: PLR0913 - what is known of a request
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
        """`session`: a secret of this visitor, to which forms are bound. `sign_out`: the address that ends the session.
        `client`: the client that the journal names. `journal`: the journal URL without its password.
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
        self.token = form_token(session, self.name)
        self.form: Mapping[str, str] = {}
        self.recent: RecentFigures
        """The cached statistics of the console, which sets them before a page is made."""
        self.places = _places_for(self.access)

    def asked(self, name: str) -> str:
        """A word of the query, without what cannot be in one."""
        return self.request.query_params.get(name, "").replace("\0", "").strip()[:MAX_WORD]

    def named(self, name: str) -> str:
        """A part of the address."""
        return str(self.request.path_params[name])

    def need_place(self, place: str) -> None:
        """Raises `NotThere` when the sender may not open this place."""
        if place not in self.places:
            raise NotThere

    def page(self, template: str, **values: Any) -> HTMLResponse:
        """A template, filled."""
        return HTMLResponse(render(template, self, **values))
