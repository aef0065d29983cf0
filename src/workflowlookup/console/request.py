"""One request to the console: the services of its sender, what they sent, and the page that answers it."""

import functools
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse

from workflowlookup import __version__
from workflowlookup.access import Access
from workflowlookup.console.recent_figures import RecentFigures
from workflowlookup.console.security import NotThere, form_token
from workflowlookup.console.static import address
from workflowlookup.console.streams import Streams
from workflowlookup.console.text import FILTERS
from workflowlookup.protocol.surface import Surface

_ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("workflowlookup.console"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters |= {**FILTERS, "quoted": functools.partial(quote, safe="")}
_ENVIRONMENT.globals |= {"static": address, "package_version": __version__}

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
        surface: Surface,
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
        self.surface = surface
        self.streams = streams
        self.services = surface.services
        self.access = self.services.access
        self.sign_out = sign_out
        self.client = surface.sign(client)
        self.by = self.access.sign(client)
        self.journal = journal
        self.name = self.access.name or client
        self.token = form_token(session, self.name)
        self.form: Mapping[str, str] = {}
        self.recent = RecentFigures()
        """The cached figures; those of the console, once it serves the request."""
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


def render(template: str, visit: Visit | None, **values: Any) -> str:
    return _ENVIRONMENT.get_template(template).render({"place": "", **values, "visit": visit})
