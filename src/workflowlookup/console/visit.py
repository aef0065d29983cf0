"""One request of one viewer, and the page that answers it."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse

from workflowlookup import __version__
from workflowlookup.console.guard import NotThere, form_token
from workflowlookup.console.house import House
from workflowlookup.console.static import address
from workflowlookup.console.text import FILTERS, number_in
from workflowlookup.console.viewer import FROM_HERE, Viewer

_ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("workflowlookup.console"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters |= {**FILTERS, "quoted": lambda text: quote(text, safe="")}
_ENVIRONMENT.globals |= {"static": address, "package_version": __version__}

PLACES: Final[tuple[tuple[str, str, str], ...]] = (
    ("runs", "/runs", "Runs"),
    ("library", "/library", "Library"),
    ("statistics", "/statistics", "Statistics"),
    ("tools", "/tools", "Tools"),
    ("trust", "/trust", "Trust"),
    ("health", "/health", "Health"),
)
"""The main navigation: key, address, name."""
FOR_ADMINS: Final = frozenset({"trust", "health"})


class Visit:
    """What a page needs to know of the one who asked for it."""

    def __init__(self, house: House, request: Request, viewer: Viewer, form: Mapping[str, str]) -> None:
        self.house = house
        self.request = request
        self.viewer = viewer
        self.form = form

    @property
    def by(self) -> str:
        """Who did what they do, for the journal."""
        return FROM_HERE if self.house.is_view else self.viewer.name

    def asked(self, name: str, most: int = 200) -> str:
        """A word of the query, without what cannot be in one."""
        return self.request.query_params.get(name, "").replace("\0", "").strip()[:most]

    def named(self, name: str) -> str:
        """A part of the address."""
        return str(self.request.path_params[name])

    def number(self, name: str, default: int) -> int:
        """A number of the query."""
        number = number_in(self.asked(name))
        return default if number is None else number

    def need(self, scope: str, workflow_id: str, what: str) -> None:
        """Raises `NotThere` unless this exists for the viewer."""
        if not self.viewer.may(scope, workflow_id):
            raise NotThere(what)

    def page(self, template: str, *, status: int = 200, **known: Any) -> HTMLResponse:
        """A template, filled."""
        return HTMLResponse(render(template, self.house, self.viewer, **known), status)


def render(template: str, house: House, viewer: Viewer | None, **known: Any) -> str:
    token = form_token(house.secret, viewer) if viewer else ""
    places = [place for place in PLACES if viewer and (place[0] not in FOR_ADMINS or viewer.may("admin"))]
    known = {"place": "", **known, "viewer": viewer, "token": token, "places": places}
    return _ENVIRONMENT.get_template(template).render(known)
