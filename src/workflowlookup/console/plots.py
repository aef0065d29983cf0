"""Plots as SVG that scales to its container: bars, spans and columns, styled by classes of the stylesheet.

Each has a label that describes it in words; the page shows the numbers beside it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup, escape

from workflowlookup.language.text import printable

Part = tuple[float, str]
"""A size, and the CSS class."""

MIN_WIDTH: Final = 0.4
"""Percent, so that a part with a count is always visible."""

TICKS: Final = tuple(
    (count * size, f"{count} {unit}")
    for size, unit, counts in (
        (1_000, "s", (1, 2, 5, 10, 30)),
        (60_000, "min", (1, 2, 5, 10, 30)),
        (3_600_000, "h", (1, 2, 5, 10)),
        (86_400_000, "d", (1, 2, 5, 10, 30, 100)),
    )
    for count in counts
)


def bar(parts: Sequence[Part], whole: float, label: str) -> Markup:
    """Parts side by side, relative to `whole`."""
    return _svg("bar", "0 0 100 1", label, _parts(parts, whole or 1))


def _parts(parts: Sequence[Part], whole: float) -> Iterator[str]:
    x = 0.0
    for size, kind in parts:
        width = max(MIN_WIDTH, 100 * size / whole) if size > 0 else 0.0
        if width:
            yield f'<rect class="{kind}" x="{x:.2f}" width="{width:.2f}" height="1"/>'
        x += width


class Scale:
    """A logarithmic scale of times."""

    def __init__(self, times: Sequence[int]) -> None:
        bounded = [max(100, time) for time in times] or [1_000, 60_000]
        self.low = math.floor(math.log10(min(bounded)) * 2) / 2
        self.high = max(self.low + 1, math.ceil(math.log10(max(bounded)) * 2 + 0.2) / 2)

    def position(self, time: float) -> float:
        """The position of a time, from 0 to 100."""
        return 100 * min(1.0, max(0.0, (math.log10(max(100.0, time)) - self.low) / (self.high - self.low)))

    def ticks(self) -> list[tuple[float, str]]:
        """Positions and labels of the ticks, with enough space between them."""
        ticks: list[tuple[float, str]] = []
        for time, name in TICKS:
            position = self.position(time)
            if 2 < position < 90 and (not ticks or position - ticks[-1][0] > 12):
                ticks.append((position, name))
        return ticks

    def span(self, median: int, slow: int, label: str, kind: str = "time") -> Markup:
        """A span on the scale, from the median to the slow end."""
        left, right = self.position(median), self.position(slow)
        marks = [f'<rect class="tick" x="{position:.2f}" width="0.25" height="1"/>' for position, _ in self.ticks()]
        width = max(0.6, right - left)
        marks.append(f'<rect class="{kind} faint" x="{left:.2f}" y="0.3" width="{width:.2f}" height="0.4"/>')
        marks.append(f'<rect class="{kind}" x="{max(0, left - 0.6):.2f}" y="0" width="1.2" height="1"/>')
        return _svg("span", "0 0 100 1", label, marks)

    def axis(self) -> Markup:
        """The labels of the ticks."""
        names = [f'<text x="{position:.2f}%" y="11">{escape(name)}</text>' for position, name in self.ticks()]
        return Markup(f'<svg class="axis" height="14" aria-hidden="true">{"".join(names)}</svg>')  # noqa: S704


def columns(days: Sequence[Sequence[Part]], label: str) -> Markup:
    """A column for each day, its parts stacked."""
    highest = max((sum(size for size, _ in parts) for parts in days), default=0) or 1
    marks = [mark for index, parts in enumerate(days) for mark in _column(index, parts, highest)]
    return _svg("columns", f"0 0 {max(1, len(days))} 100", label, marks)


def _column(index: int, parts: Sequence[Part], highest: float) -> Iterator[str]:
    y = 100.0
    for size, kind in parts:
        height = 96 * size / highest
        y -= height
        if height > 0:
            yield f'<rect class="{kind}" x="{index + 0.12:.2f}" y="{y:.2f}" width="0.76" height="{height:.2f}"/>'
    if not any(size for size, _ in parts):
        yield f'<rect class="ground" x="{index + 0.12:.2f}" y="99" width="0.76" height="1"/>'


def _svg(kind: str, box: str, label: str, marks: Iterator[str] | Sequence[str]) -> Markup:
    text = escape(printable(label))
    head = f'<svg class="{kind}" viewBox="{box}" preserveAspectRatio="none" role="img" aria-label="{text}">'
    return Markup(f"{head}{''.join(marks)}</svg>")  # noqa: S704 - our own numbers and classes; the label is escaped
