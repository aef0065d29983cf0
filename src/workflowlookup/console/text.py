"""Words for pages: texts of strangers made visible, times, numbers.

Outputs, notes, names and reasons were written by strangers. They are escaped like everything else; what would not be
seen, or would make a reader see other text than there is, is shown by a mark.
"""

import re
from datetime import UTC, datetime
from typing import Final

import msgspec
from markupsafe import Markup, escape

from workflowlookup.language.text import HIDDEN, joined, length_of, plural, shorten
from workflowlookup.language.text import ago as time_ago
from workflowlookup.runs.report import clock, duration
from workflowlookup.store.journal import now

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


def seen(text: object) -> Markup:
    """Text of strangers, with a mark in place of each character that hides."""
    lines = str(text).replace("\r\n", "\n")
    return Markup(re.sub(HIDDEN, _mark, str(escape(lines))))  # noqa: S704 - escaped, and the marks are ours


def _mark(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    name = _NAMES.get(character) or (chr(0x2400 + number) if number < 0x20 else f"U+{number:04X}")
    return f'<span class="mark" title="U+{number:04X}">{name}</span>'


def one_line(text: object, most: int = 160) -> str:
    """The beginning of a text, on one line."""
    return shorten(joined(str(text)[: most * 4]), most)


def iso(milliseconds: int) -> str:
    """For `<time datetime>`; empty for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""


def ago(milliseconds: int) -> str:
    """`5 min ago`: the largest unit that counts. The script says it anew while the page is open."""
    return time_ago((now() - milliseconds) // 1000)


def number_in(text: str) -> int | None:
    """The number that somebody sent; None when it is none, or longer than any of ours."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def pretty(value: object) -> str:
    """A value as JSON, laid out."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


FILTERS: Final = {
    "seen": seen,
    "one_line": one_line,
    "whole_length": length_of,
    "iso": iso,
    "ago": ago,
    "clock": clock,
    "duration": duration,
    "plural": plural,
    "pretty": pretty,
}
