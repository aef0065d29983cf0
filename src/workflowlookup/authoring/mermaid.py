"""A graph as a Mermaid flowchart, for READMEs and pull requests.

Everything that an author wrote is escaped into quoted labels, and nodes have names of our own (`s1`, `q1`), so that no
title can end a block or open a link.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from workflowlookup.authoring.graph import END, START, Graph, GraphNode, NodeKind, NodeState
from workflowlookup.language.text import one_line, shorten

MOST_CHARACTERS: Final = 240
"""Of one label; the rest of a longer text is cut."""

LINE: Final = 20
"""The height of a line of a label, about."""

_STYLES: Final = (
    "classDef question stroke-dasharray:3 3",
    "classDef taken fill:#dcf5e7,stroke:#1a7f4b,stroke-width:2px,color:#0b3d24",
    "classDef skipped fill:#f6f6f6,stroke:#b0b0b0,stroke-dasharray:4 4,color:#8a8a8a",
)
_WAITING: Final = "classDef waiting fill:#fff4d6,stroke:#b07a00,stroke-width:2px,color:#4d3600"
"""Only for runs: of a workflow nothing waits."""

_SHAPES: Final = {NodeKind.STEP: ("[", "]"), NodeKind.PARALLEL: ("[[", "]]"), NodeKind.CALL: ("[/", "/]")}

_SPECIAL: Final = re.compile(r"""["#$%&*+;<>@\[\\\]^`{|}~]""")
_LIKE_MARKDOWN: Final = re.compile(r"^(\d*)([.)=-])(?= )")
"""What Mermaid takes for a list or a heading at the start of a label."""


def as_mermaid(graph: Graph) -> str:
    """The source of a flowchart, with a line break at its end."""
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
    if any(node.state is NodeState.WAITING for node in nodes):
        yield f"  {_WAITING}"
    yield from _mark("question", [names[f"{node.id}?"] for node in nodes if node.condition])
    for state in NodeState:
        yield from _mark(state, [names[node.id] for node in nodes if node.state is state])


def _room_for_titles(graph: Graph) -> Iterator[str]:
    """Mermaid leaves room for one line above the body of a loop; its title has more."""
    most = max((len(list(node.facts())) for node in graph.nodes() if node.kind is NodeKind.LOOP), default=0)
    if most:
        yield "config:"
        yield "  flowchart:"
        yield f"    subGraphTitleMargin: {{top: 4, bottom: {LINE * most}}}"


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
            left, right = _SHAPES[node.kind]
            yield f'{indent}{names[node.id]}{left}"{label}"{right}'


def _label(text: str) -> str:
    """Text inside quotes: characters that mean something to Mermaid or to HTML by their number, `#34;`."""
    text = shorten(one_line(text), MOST_CHARACTERS)
    text = _SPECIAL.sub(lambda found: _entity(found[0]), text)
    return _LIKE_MARKDOWN.sub(lambda found: found[1] + _entity(found[2]), text)


def _entity(character: str) -> str:
    return f"#{ord(character)};"


def _title(text: str) -> str:
    """The front matter is YAML, where a quoted string knows two special characters."""
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')
