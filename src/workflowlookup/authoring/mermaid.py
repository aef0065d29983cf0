"""A graph as a Mermaid flowchart, for READMEs and pull requests.

All text of the author is escaped into quoted labels, and nodes have generated names (`s1`, `q1`), so that no title can
end a block or open a link.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from workflowlookup.authoring.graph import END, START, Graph, GraphNode, NodeKind, NodeState
from workflowlookup.language.text import one_line, shorten

MAX_LABEL: Final = 240
"""A longer label is cut."""

LINE_HEIGHT: Final = 20
"""The approximate height of a line of a label."""

_STYLES: Final = (
    "classDef question stroke-dasharray:3 3",
    "classDef taken fill:#dcf5e7,stroke:#1a7f4b,stroke-width:2px,color:#0b3d24",
    "classDef skipped fill:#f6f6f6,stroke:#b0b0b0,stroke-dasharray:4 4,color:#8a8a8a",
)
_OF_RUNS: Final = {
    NodeState.WAITING: "classDef waiting fill:#fff4d6,stroke:#b07a00,stroke-width:2px,color:#4d3600",
    NodeState.FAILED: "classDef failed fill:#fcebe9,stroke:#b0271e,stroke-width:2px,color:#5c120d",
    NodeState.CANCELLED: "classDef cancelled fill:#eeece7,stroke:#5c6472,stroke-width:2px,color:#2e333c",
}
"""Styles of the step at which a run waits or ended."""
_PROVED: Final = "classDef proved stroke-width:3px"
"""For steps with proofs. Before the states, whose own stroke counts if a step has both."""

_SHAPES: Final = {NodeKind.STEP: ("[", "]"), NodeKind.PARALLEL: ("[[", "]]"), NodeKind.CALL: ("[/", "/]")}

_SPECIAL: Final = re.compile(r"""["#$%&*+;<>@\[\\\]^`{|}~]""")
_LIKE_MARKDOWN: Final = re.compile(r"^(\d*)([.)=-])(?= )")
"""The start of a label that Mermaid would take for a list or a heading."""


def as_mermaid(graph: Graph) -> str:
    """The source of a flowchart, with a newline at the end."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    names = {START: "start", END: "finish"}
    for index, node in enumerate(graph.nodes(), 1):
        names[node.id] = f"{'l' if node.kind is NodeKind.LOOP else 's'}{index}"
        names[f"{node.id}?"] = f"q{index}"
    yield "---"
    yield f'title: "{_title(graph.name)}"'
    yield from _room_for_titles(graph)
    yield "---"
    yield "flowchart TD"
    yield f'  {names[START]}(["Start"])'
    yield from _declare(graph.flow, names, "  ")
    yield f'  {names[END]}(["Complete"])'
    for edge in graph.edges():
        arrow = "-.->" if edge.label in ("no", "again") else "-->"
        label = f"|{edge.label}|" if edge.label else ""
        yield f"  {names[edge.source]} {arrow}{label} {names[edge.target]}"
    yield from (f"  {style}" for style in _STYLES)
    nodes = list(graph.nodes())
    yield from (f"  {style}" for state, style in _OF_RUNS.items() if any(node.state is state for node in nodes))
    if proved := [names[node.id] for node in nodes if node.proofs]:
        yield f"  {_PROVED}"
        yield from _mark("proved", proved)
    yield from _mark("question", [names[f"{node.id}?"] for node in nodes if node.condition])
    for state in NodeState:
        yield from _mark(state, [names[node.id] for node in nodes if node.state is state])


def _room_for_titles(graph: Graph) -> Iterator[str]:
    """Room for the titles of loops: Mermaid leaves only one line."""
    lines = max((len(list(node.facts())) for node in graph.nodes() if node.kind is NodeKind.LOOP), default=0)
    if lines:
        yield "config:"
        yield "  flowchart:"
        yield f"    subGraphTitleMargin: {{top: 4, bottom: {LINE_HEIGHT * lines}}}"


def _mark(style: str, members: Sequence[str]) -> Iterator[str]:
    if members:
        yield f"  class {','.join(members)} {style}"


def _declare(nodes: Sequence[GraphNode], names: dict[str, str], indent: str) -> Iterator[str]:
    for node in nodes:
        if node.condition:
            yield f'{indent}{names[f"{node.id}?"]}{{{{"{_label(node.condition)}?"}}}}'
        label = "<br/>".join(map(_label, (f"{node.number} {node.title}", *node.facts())))
        if node.kind is NodeKind.LOOP:
            yield f'{indent}subgraph {names[node.id]}["{label}"]'
            yield from _declare(node.body, names, f"{indent}  ")
            yield f"{indent}end"
        else:
            opening, closing = _SHAPES[node.kind]
            yield f'{indent}{names[node.id]}{opening}"{label}"{closing}'


def _label(text: str) -> str:
    """Text for a quoted label: characters that are special in Mermaid or HTML as numbers, `#34;`."""
    text = shorten(one_line(text), MAX_LABEL)
    text = _SPECIAL.sub(lambda match: _entity(match[0]), text)
    return _LIKE_MARKDOWN.sub(lambda match: match[1] + _entity(match[2]), text)


def _entity(character: str) -> str:
    return f"#{ord(character)};"


def _title(text: str) -> str:
    """Text for the YAML front matter, where a quoted string has two special characters."""
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')
