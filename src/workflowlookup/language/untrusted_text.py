"""Text from strangers within Markdown: on one line with all Markdown escaped, or in code whose end it cannot write."""

import re
from typing import Final

from workflowlookup.language.text import joined, printable, shorten

MAX_LINE: Final = 500
"""The rest of a longer line is left out."""
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>|~&#!$])")
_LIST_MARKER: Final = re.compile(r"^([-+=]|\d{1,9}(?=[.)]))")
_TICKS: Final = re.compile("`+")


def inline(text: str) -> str:
    """Text for use within a line: on one line, with Markdown escaped."""
    return _MARKDOWN.sub(r"\\\1", printable(joined(shorten(text, MAX_LINE))))


def item(text: str) -> str:
    """Text as an item of a list."""
    return "- " + _LIST_MARKER.sub(_escape_marker, inline(text))


def code(text: str) -> str:
    """Text as a code span."""
    text = printable(joined(shorten(text, MAX_LINE))) or " "
    ticks = "`" * (_max_ticks(text) + 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def fenced(text: str, language: str = "text") -> str:
    """Text as a code block, whose fence is longer than any in the text."""
    text = printable(text.replace("\r\n", "\n").replace("\r", "\n"))
    fence = "`" * max(3, _max_ticks(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _escape_marker(marker: re.Match[str]) -> str:
    """Escape a marker that would begin a list or a rule."""
    return marker[0] + "\\" if marker[0].isdigit() else "\\" + marker[0]


def _max_ticks(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)
