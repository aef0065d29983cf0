"""`workflowlookup graph ID`: draws a workflow as a tree, as Mermaid or as SVG; with a context, also the path taken."""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.authoring.graph import Graph, GraphNode, NodeKind, NodeState, draw
from workflowlookup.authoring.mermaid import as_mermaid
from workflowlookup.authoring.svg import as_svg
from workflowlookup.cli.arguments import add_context_argument
from workflowlookup.cli.documents import open_workflow
from workflowlookup.cli.output import (
    Branch,
    CommandError,
    Piece,
    shown_path,
    write,
    write_file,
    write_hint,
    write_json,
    write_list,
    write_text,
    write_tree,
)
from workflowlookup.language.text import joined
from workflowlookup.settings import Settings

RENDERERS: Final[Mapping[str, Callable[[Graph], str]]] = {"mermaid": as_mermaid, "svg": as_svg}
_BY_SUFFIX: Final = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="ID_OR_PATH", help="a workflow: an id, or the path of a document")
    parser.add_argument(
        "--format",
        choices=("tree", *RENDERERS),
        help="format (default: tree, or by the name of the output file)",
    )
    parser.add_argument("--output", metavar="FILE", help="write the picture to this file")
    add_context_argument(parser)
    parser.add_argument("--json", action="store_true", help="print nodes and edges")


def run(options: argparse.Namespace, settings: Settings) -> int:
    form = options.format or _BY_SUFFIX.get(os.path.splitext(options.output or "")[1], "tree")
    if options.output and options.json:
        raise CommandError("--json is written to standard output and cannot be used with --output.", 2)
    if options.output and form == "tree":
        raise CommandError(
            f"{shown_path(options.output)}: the name must end in .svg or .mmd (Mermaid). "
            "Choose such a name, or add --format svg or --format mermaid.",
            2,
        )
    graph = draw(open_workflow(options.workflow, settings), dict(options.context) if options.context else None)
    if options.json:
        write_json(as_json(graph))
    elif form == "tree":
        write_tree(as_tree(graph))
        if graph.path is not None:
            write((f"{_SIGNS[NodeState.TAKEN][0]}taken, {_SIGNS[NodeState.SKIPPED][0]}skipped in this context", "dim"))
        write_list("Warnings", graph.warnings)
        write_hint(f"`workflowlookup graph {options.workflow} --output flow.svg` draws a picture of it.")
    elif options.output:
        write_file(options.output, RENDERERS[form](graph).encode())
        write(f"Wrote {shown_path(options.output)}")
    else:
        write_text(RENDERERS[form](graph))
    return 0


def as_json(graph: Graph) -> dict[str, Any]:
    """Nodes in one list, each with its parent, and the edges between them."""
    nodes = [msgspec.structs.replace(node, body=()) for node in graph.nodes()]
    content: dict[str, Any] = {"id": graph.id, "name": graph.name, "version": graph.version}
    content |= {"nodes": nodes, "edges": list(graph.edges())}
    return content if graph.path is None else {**content, "path": graph.path, "warnings": graph.warnings}


# ── the tree ────────────────────────────────────────────────────────────────────────────────────────────────────


def as_tree(graph: Graph) -> Branch:
    head = ((graph.name, "bold"), ("  ", ""), (f"{graph.id} · version {graph.version}", "dim"))
    return Branch(head, tuple(map(_branch, graph.flow)))


def _branch(node: GraphNode) -> Branch:
    return Branch(tuple(_pieces(node)), tuple(map(_branch, node.body)))


_SIGNS: Final[Mapping[NodeState | None, tuple[str, str]]] = {
    None: ("", ""),
    NodeState.TAKEN: ("✓ ", "green"),
    NodeState.SKIPPED: ("· ", "dim"),
    NodeState.WAITING: ("→ ", "yellow"),
}


def _pieces(node: GraphNode) -> Iterator[Piece]:
    is_skipped = node.state is NodeState.SKIPPED
    yield _SIGNS[node.state]
    yield f"{node.number} ", "dim"
    yield joined(node.title), "dim" if is_skipped else "bold" if node.kind is NodeKind.LOOP else ""
    yield f"  {node.id}", "dim" if is_skipped else "cyan"
    if node.condition and not is_skipped:
        yield f"  if {node.condition}", "yellow"
    if facts := "; ".join(node.facts()):
        yield f"  ({facts})", "dim" if is_skipped else "blue"
    if is_skipped:
        yield f"  skipped{node.because and ', '}{node.because}", "yellow" if node.because else "dim"
    elif node.because:
        yield f"  skipped in some iterations, {node.because}", "dim"


EXAMPLES = """\
  workflowlookup graph bug-investigation                            a tree in the terminal
  workflowlookup graph bug-investigation --output flow.svg          a picture
  workflowlookup graph my-workflow.json --format mermaid            for a README
  workflowlookup graph bug-investigation --context bugKind=hidden   the path taken"""
