"""A graph as one SVG picture: no script, no font, no external resource; light or dark as the reader prefers.

The layout is a single column around x = 0. A step is a card; a step with a condition has the condition above it and a
bypass to its right; a loop is a frame around its body with the line back on its left. Each element is placed below the
previous one, and a frame is as wide as its content, so nothing overlaps.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from workflowlookup.authoring.graph import Graph, GraphNode, NodeKind, NodeState
from workflowlookup.language.text import plural, printable

CARD: Final = 340
"""The width of a card."""
LANE: Final = 30
"""The width of the space for a line beside a card."""
GAP: Final = 30
"""The length of an arrow."""
PAD: Final = 16
MARGIN: Final = 36
CONDITION: Final = CARD - 128
"""The maximum width of the text of a condition: `otherwise` is written beside it."""
MAX_LINES: Final = 4
"""Of a condition; its tooltip has the whole text."""

_STYLE: Final = """
text{font-family:Inter,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:#1d2530;\
unicode-bidi:plaintext}
.paper{fill:#fbfaf8}.name{font-size:20px;font-weight:650}.meta{font-size:12px;fill:#6c7684}
.title{font-size:14px;font-weight:600}.note{font-size:12px;fill:#5f6a78}.number{font-size:12px;font-weight:600;\
fill:#6c7684;text-anchor:middle}
.card{fill:#fff;stroke:#d3d7dd}.disc{fill:#eff1f4}.question{fill:#fff6e0;stroke:#e3c77e}
.asks{font-size:12px;fill:#6b5312;text-anchor:middle}.aside{font-size:11px;fill:#8b7430}
.frame{fill:#4d6bfe;fill-opacity:.045;stroke:#b9c4ee}.loop{font-size:12px;fill:#3c50b5}.icon{fill:none;\
stroke:#3c50b5;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round}
.own{fill:#4d6bfe}.proved{fill:none;stroke:#1f8a55;stroke-width:2.2;stroke-linecap:round;stroke-linejoin:round}.line{fill:none;stroke:#9aa3af;stroke-width:1.5;stroke-linejoin:round}.head{fill:#9aa3af}.end{fill:none;\
stroke:#9aa3af;stroke-width:1.5}
.taken.card,.taken.frame{stroke:#1f8a55;stroke-width:1.5}.taken .disc{fill:#1f8a55}.taken .number{fill:#fff}
.line.taken{stroke:#1f8a55;stroke-width:2}.head.taken{fill:#1f8a55}.end.taken{stroke:#1f8a55}
.skipped.card,.skipped.frame{stroke-dasharray:5 4}.skipped.card{fill-opacity:.4}
.skipped .icon{stroke-opacity:.45}.skipped text{fill:#838c99}.line.skipped{\
stroke:#c3c9d1;stroke-dasharray:4 4}.head.skipped{fill:#c3c9d1}
@media (prefers-color-scheme:dark){
text{fill:#e6e9ee}.paper{fill:#14171c}.meta,.note,.number{fill:#98a2b0}.card{fill:#1d2128;stroke:#3a414c}
.disc{fill:#2b313a}.question{fill:#2b2614;stroke:#6d5c26}.asks{fill:#ecd595}.aside{fill:#b8a565}
.frame{fill:#7d93ff;fill-opacity:.07;stroke:#3d4875}.loop{fill:#aab8ff}.icon{stroke:#aab8ff}
.line,.end{stroke:#6b7583}.head{fill:#6b7583}
.taken.card,.taken.frame,.line.taken,.end.taken{stroke:#3fbf82}.taken .disc,.head.taken{fill:#3fbf82}
.taken .number{fill:#0d1a13}.skipped text{fill:#78828f}.line.skipped{stroke:#454d58}
.head.skipped{fill:#454d58}}
"""

_SIZES: Final = {
    "name": (20, 26),
    "title": (14, 20),
    "meta": (12, 16),
    "asks": (12, 16),
    "note": (12, 17),
    "loop": (12, 17),
    "number": (12, 16),
    "aside": (11, 14),
}
"""By style: font size, as in `_STYLE`, and line height."""


def as_svg(graph: Graph) -> str:
    """The picture as text, with a newline at the end."""
    return _Picture(graph).text()


Notes = Mapping[str, Sequence[str]]
"""By node: more lines for its card."""


def as_fragment(graph: Graph, anchor: str, notes: Notes = MappingProxyType({})) -> str:
    """Only the flow, for a page with its own stylesheet and heading. Each node links to `#anchor-ID` in that page."""
    return _Picture(graph, anchor, notes).fragment()


class _Picture:
    """Builds one picture: frames are below lines, lines below cards."""

    def __init__(self, graph: Graph, anchor: str = "", notes: Notes = MappingProxyType({})) -> None:
        self._anchor = anchor
        self._notes = notes
        self._frames: list[str] = []
        self._lines: list[str] = []
        self._cards: list[str] = []
        self._half = max(_half(node) for node in graph.flow) + MARGIN
        self._graph = graph

    def text(self) -> str:
        graph = self._graph
        width, height = 2 * self._half, self._whole(self._header(MARGIN)) + MARGIN
        size = f'width="{width}" height="{height}" viewBox="{-self._half} 0 {width} {height}"'
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="name" {size}>',
                f'<title id="name">{_clean(graph.name)}</title>',
                f"<style>{_STYLE}</style>",
                f'<rect class="paper" x="{-self._half}" y="0" width="{width}" height="{height}"/>',
                *self._frames,
                *self._lines,
                *self._cards,
                "</svg>\n",
            )
        )

    def fragment(self) -> str:
        half = self._half - MARGIN + 1
        width, height = 2 * half, self._whole(1) + 1
        size = f'width="{width}" height="{height}" viewBox="{-half} 0 {width} {height}"'
        name = quoteattr(f"Flow of {printable(self._graph.name)}")
        parts = (f'<svg class="flow" role="group" aria-label={name} {size}>', *self._frames, *self._lines, *self._cards)
        return "\n".join((*parts, "</svg>\n"))

    def _whole(self, y: int) -> int:
        """Place the whole flow below y; the y of its end."""
        graph = self._graph
        state = None if graph.path is None else NodeState.TAKEN
        self._lines.append(f'<circle class="head{_mark(state)}" cx="0" cy="{y + 5}" r="5"/>')
        y = self._sequence(graph.flow, y + 10, state)
        state = graph.flow[-1].state and state  # a path that was cut did not reach the end
        y = self._arrow(y, GAP, state)
        self._lines.append(f'<circle class="end{_mark(state)}" cx="0" cy="{y + 8}" r="7"/>')
        self._lines.append(f'<circle class="head{_mark(state)}" cx="0" cy="{y + 8}" r="3.5"/>')
        return y + 16

    def _header(self, y: int) -> int:
        graph, left, room = self._graph, MARGIN - self._half, 2 * (self._half - MARGIN)
        y = self._text("name", left, y, wrap(graph.name, 20, room, bold=True), room)
        steps = [node for node in graph.nodes() if node.kind is not NodeKind.LOOP]
        facts = [graph.id, f"version {graph.version}", plural(len(steps), "step")]
        if graph.path is not None:
            taken = sum(node.times > 0 for node in steps)
            repeats = f", {len(graph.path)} with repetitions" if len(graph.path) > taken else ""
            facts[-1] = f"{taken} of {plural(len(steps), 'step')} taken in this context{repeats}"
        y = self._text("meta", left, y + 4, wrap(" · ".join(facts), 12, room))
        for warning in graph.warnings:
            y = self._text("meta", left, y + 2, wrap(warning, 12, room, MAX_LINES))
        return y + 22

    def _sequence(self, nodes: Sequence[GraphNode], y: int, state: NodeState | None) -> int:
        """Place the nodes below each other; the y at which the line leaves the last."""
        for node in nodes:
            y = self._arrow(y, GAP, node.state and state)
            if not node.condition:
                y = self._node(node, y)
                continue
            y, side, middle = self._condition(node, y)
            y = self._arrow(y, GAP - 8, node.state)
            y = self._node(node, y)
            y = self._straight(y, y + GAP // 2, node.state)
            lane = _half(node) - LANE // 2
            passed = node.state and (NodeState.TAKEN if node.because else NodeState.SKIPPED)
            self._path(f"M{side} {middle}H{lane - 8}q8 0 8 8V{y - 8}q0 8 -8 8H7", passed)
            self._lines.append(f'<path class="head{_mark(passed)}" d="M1 {y}l8 -4.5v9z"/>')
        return y

    def _node(self, node: GraphNode, y: int) -> int:
        opening = f"<a href={quoteattr(f'#{self._anchor}-{printable(node.id)}')}" if self._anchor else "<g"
        self._cards.append(f'{opening} class="node{_mark(node.state)}"><title>{_clean(_tooltip(node))}</title>')
        return self._frame(node, y) if node.kind is NodeKind.LOOP else self._card(node, y)

    def _condition(self, node: GraphNode, y: int) -> tuple[int, int, int]:
        """Place the condition above a node; its bottom, and the point where the bypass leaves it."""
        lines = wrap(f"if {node.condition}", 12, CONDITION, MAX_LINES)
        half = round(max(measure(line, 12) for line in lines) / 2) + 14
        height = 16 * len(lines) + 12
        middle = y + height // 2
        self._cards.append(f"<g><title>{_clean(node.condition)}</title>")
        self._cards.append(_rect("question", -half, y, 2 * half, height, 14))
        self._text("asks", 0, y + 6, lines)
        self._cards.append("</g>")
        self._text("aside", half + 6, middle - 16, ["otherwise"])
        return y + height, half, middle

    def _card(self, node: GraphNode, y: int) -> int:
        style = f"card{_mark(node.state)}"
        disc = round(max(24.0, measure(node.number, 12) + 12))
        left, text = -CARD // 2, -CARD // 2 + disc + 20
        room = CARD // 2 - PAD - text - (PAD if node.proofs else 0)
        title = wrap(node.title, 14, room, bold=True)
        notes = wrap(" · ".join((node.id, *node.facts())), 12, room, MAX_LINES)
        more = self._more(node, room)
        height = 20 * len(title) + 17 * (len(notes) + len(more)) + 26
        depth = 8 if node.kind is NodeKind.PARALLEL else 0
        for offset in range(depth, 0, -4):  # a stack of cards for parallel work
            self._cards.append(_rect(f"sheet {style}", left + offset, y + offset, CARD - 2 * offset, height, 10))
        self._cards.append(_rect(style, left, y, CARD, height, 10))
        if node.kind is NodeKind.CALL:  # a call that the server makes
            self._cards.append(_rect("own", left, y + 10, 4, height - 20, 2))
        if node.proofs:  # a tick in the corner: the server checks the step itself
            self._cards.append(f'<path class="proved" d="M{left + CARD - 24} {y + 18}l4 4 8 -9"/>')
        self._cards.append(_rect("disc", left + 12, y + 10, disc, 24, 12))
        self._text("number", left + 12 + disc / 2, y + 15, [node.number])
        below = self._text("title", text, y + 12, title, room)
        below = self._text("note", text, below + 2, notes)
        self._text("note more", text, below, more)
        self._close()
        return y + height + depth

    def _more(self, node: GraphNode, room: float) -> list[str]:
        return [line for note in self._notes.get(node.id, ()) for line in wrap(note, 12, room, MAX_LINES)]

    def _close(self) -> None:
        self._cards.append("</a>" if self._anchor else "</g>")

    def _frame(self, node: GraphNode, y: int) -> int:
        half, state = _frame_half(node), node.state
        left, room = PAD - half, 2 * (half - PAD) - 24
        index = len(self._frames)
        self._frames.append("")  # below the frames inside it; its height is not known yet
        self._cards.append(f'<path class="icon" d="M{left + 14} {y + 20}a6.5 6.5 0 1 1 -2.6 -4.2m.6 -4v4.4h-4.4"/>')
        below = self._text("title", left + 24, y + 12, wrap(f"{node.number} {node.title}", 14, room, bold=True), room)
        facts = wrap(" · ".join((node.id, *node.facts())), 12, room, MAX_LINES)
        below = self._text("loop", left + 24, below + 2, facts)
        top = self._text("note more", left + 24, below, self._more(node, room)) + 10
        self._close()
        turn = self._sequence(node.body, top, state) + 14
        bottom = self._straight(turn - 14, turn + PAD, state)
        again = state and (NodeState.TAKEN if node.times > 1 else NodeState.SKIPPED)
        self._path(f"M0 {turn}H{left + 18}q-8 0 -8 -8V{top + 16}q0 -8 8 -8H-7", again)
        self._lines.append(f'<path class="head{_mark(again)}" d="M-1 {top + 8}l-8 -4.5v9z"/>')
        self._frames[index] = _rect(f"frame{_mark(state)}", -half, y, 2 * half, bottom - y, 14)
        return bottom

    def _arrow(self, y: int, length: int, state: NodeState | None) -> int:
        self._straight(y, y + length - 6, state)
        self._lines.append(f'<path class="head{_mark(state)}" d="M0 {y + length}l-4.5 -8h9z"/>')
        return y + length

    def _straight(self, top: int, bottom: int, state: NodeState | None) -> int:
        self._path(f"M0 {top}V{bottom}", state)
        return bottom

    def _path(self, commands: str, state: NodeState | None) -> None:
        self._lines.append(f'<path class="line{_mark(state)}" d="{commands}"/>')

    def _text(self, style: str, x: float, y: int, lines: Sequence[str], room: float = 0) -> int:
        """Place lines of text below y; the y of their end. With `room`, right-to-left text starts at its right side."""
        size, line_height = _SIZES[style.partition(" ")[0]]
        start = f'x="{x:g}"'
        if room and is_right_to_left(" ".join(lines)):
            start = f'direction="rtl" x="{x + room:g}"'
        for line in lines:
            self._cards.append(f'<text class="{style}" {start} y="{y + round(size * 0.95)}">{_clean(line)}</text>')
            y += line_height
        return y


def _rect(style: str, x: int, y: int, width: int, height: int, radius: int) -> str:  # noqa: PLR0913, PLR0917 - SVG's
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>'


def _half(node: GraphNode) -> int:
    """Half of the width of a node, with its bypass."""
    half = _frame_half(node) if node.kind is NodeKind.LOOP else CARD // 2
    return half + LANE if node.condition else half


def _frame_half(node: GraphNode) -> int:
    return max(_half(inner) for inner in node.body) + LANE + PAD


def _tooltip(node: GraphNode) -> str:
    return "\n".join(filter(None, [node.title, node.id, *node.facts(), node.because and f"skipped: {node.because}"]))


def _mark(state: NodeState | None) -> str:
    return f" {state}" if state else ""


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Widths(dict[str, float]):
    """By character: its width, relative to the font size. ASCII is in the table, the rest comes from Unicode."""

    def __missing__(self, character: str) -> float:
        if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
            return 0.0
        return 1.1 if unicodedata.east_asian_width(character) in "WF" or ord(character) > 0x1F000 else 0.68


_WIDTHS: Final = _Widths(
    (character, width)
    for characters, width in (
        (map(chr, range(128)), 0.6),
        ("ijl|!.,:;'`I ", 0.33),
        ('ftr()[]/\\-"', 0.43),
        ("mwMW@%—…", 1.0),
        ("ABCDEGHKNOPQRUVXYZTFL&#<>=+~_{}", 0.75),
    )
    for character in characters
)


def measure(text: str, size: int, *, bold: bool = False) -> float:
    """The approximate width of a text in a sans-serif font; rather too wide than too narrow."""
    return sum(map(_WIDTHS.__getitem__, text)) * size * (1.07 if bold else 1.02)


def wrap(text: str, size: int, room: float, max_lines: int | None = None, *, bold: bool = False) -> list[str]:
    """The text in lines that fit into `room`. A word that is too long is broken, after `-_./` if possible."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if measure(joined, size, bold=bold) <= room:
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        for part in _BREAK_POINT.split(word):
            lines += [""] if lines[-1] and measure(lines[-1] + part, size, bold=bold) > room else []
            for character in part:
                if max_lines is not None and len(lines) > max_lines:
                    break
                lines += [""] if measure(lines[-1] + character, size, bold=bold) > room else []
                lines[-1] += character
    if max_lines is not None and len(lines) > max_lines:
        lines = lines[:max_lines]
        while lines[-1] and measure(lines[-1] + "…", size, bold=bold) > room:
            lines[-1] = lines[-1][:-1]
        lines[-1] += "…"
    return lines


_BREAK_POINT: Final = re.compile(r"(?<=[-_./])")


def is_right_to_left(text: str) -> bool:
    """Whether a text reads from right to left, by the direction of its first letter."""
    letters = (kind for kind in map(unicodedata.bidirectional, text) if kind in ("L", "R", "AL"))
    return next(letters, "L") != "L"


def _clean(text: str) -> str:
    """Text for XML: escaped, without invisible characters and those that change the direction of text."""
    return escape(printable(text))
