"""Rendering of pages: Jinja, filters that show untrusted text safely, and the static files that pages load."""

import functools
import hashlib
import os
import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import jinja2
import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from workflowlookup import __version__
from workflowlookup.language.text import HIDDEN, duration, joined, length_of, plural, shorten
from workflowlookup.language.text import ago as time_ago
from workflowlookup.runs.report import clock
from workflowlookup.store.journal import now

FILES: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "passkeys.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_FOLDER: Final = os.path.join(os.path.dirname(__file__), "static")


@functools.cache
def _content(name: str) -> tuple[bytes, str]:
    with open(os.path.join(_FOLDER, name), "rb") as file:
        data = file.read()
    return data, hashlib.sha256(data).hexdigest()[:12]


def static_url(name: str) -> str:
    """The URL of a static file. It contains a digest, so browsers may cache the file for ever."""
    return f"/static/{name}?{_content(name)[1]}"


def serve_static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        return Response("There is no such file.", 404, media_type="text/plain")
    data, digest = _content(name)
    is_exact = request.url.query == digest
    cache_control = "public, max-age=31536000, immutable" if is_exact else "no-cache"
    return Response(data, headers={"Content-Type": FILES[name], "Cache-Control": cache_control, "ETag": f'"{digest}"'})


_NAMES: Final = {
    "\u200b": "ZWSP",
    "\u2028": "LS",
    "\u2029": "PS",
    "\u202a": "LRE",
    "\u202b": "RLE",
    "\u202c": "PDF",
    "\u202d": "LRO",
    "\u202e": "RLO",
    "\u2060": "WJ",
    "\u2066": "LRI",
    "\u2067": "RLI",
    "\u2068": "FSI",
    "\u2069": "PDI",
    "\ufeff": "BOM",
    "\x7f": "\u2421",
}


def visible(text: object) -> Markup:
    """Untrusted text, escaped, with a visible mark in place of each invisible or reordering character."""
    lines = str(text).replace("\r\n", "\n")
    return Markup(re.sub(HIDDEN, _mark, str(escape(lines))))  # noqa: S704 - escaped, and the marks are ours


def _mark(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    name = _NAMES.get(character) or (chr(0x2400 + number) if number < 0x20 else f"U+{number:04X}")
    return f'<span class="mark" title="U+{number:04X}">{name}</span>'


def one_line(text: object, limit: int = 160) -> str:
    """The beginning of a text, on one line."""
    return shorten(joined(str(text)[: limit * 4]), limit)


def iso(milliseconds: int) -> str:
    """For `<time datetime>`; empty if the time is out of range."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""


def ago(milliseconds: int) -> str:
    """`5 min ago`, in the largest unit that fits. The script updates it while the page is open."""
    return time_ago((now() - milliseconds) // 1000)


def time_of_day(milliseconds: int) -> str:
    """`00:59:07 UTC`; empty if the time is out of range."""
    return iso(milliseconds)[11:19] + " UTC" if iso(milliseconds) else ""


def parse_number(text: str) -> int | None:
    """The number in a text from a client; None if it is not a number or too long."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def pretty(value: object) -> str:
    """A value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


FILTERS: Final = {
    "visible": visible,
    "one_line": one_line,
    "whole_length": length_of,
    "iso": iso,
    "ago": ago,
    "clock": clock,
    "time_of_day": time_of_day,
    "duration": duration,
    "plural": plural,
    "pretty": pretty,
}

_ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("workflowlookup.console"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters |= {**FILTERS, "quoted": functools.partial(quote, safe="")}
_ENVIRONMENT.globals |= {"static": static_url, "package_version": __version__}


def render(template: str, visit: object, **values: Any) -> str:
    return _ENVIRONMENT.get_template(template).render({"section": "", **values, "visit": visit})
