"""`workflowlookup diff A B`: shows what changed between two versions of a workflow, step by step."""

import argparse
import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from workflowlookup.authoring.compare import Change, ChangeKind, Section, compare
from workflowlookup.cli.documents import open_workflow
from workflowlookup.cli.output import DIFF_STYLES, CommandError, Piece, write, write_json
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.model import Workflow
from workflowlookup.language.text import joined
from workflowlookup.settings import Settings

_SIGNS: Final[Mapping[ChangeKind, tuple[str, str]]] = {
    ChangeKind.ADDED: ("+", "green"),
    ChangeKind.REMOVED: ("-", "red"),
    ChangeKind.MOVED: ("~", "yellow"),
    ChangeKind.CHANGED: ("~", "yellow"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = "an id, the path of a document, or either with @REV for a git revision"
    parser.add_argument("before", metavar="A", help=f"the older version: {kinds}")
    parser.add_argument(
        "after", metavar="B", nargs="?", help="the newer version; without it, A@HEAD is compared with A"
    )
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Exit codes as of `diff`: 0 when they are equal, 1 when they differ, 2 when one cannot be read."""
    names = (options.before, options.after) if options.after else (f"{options.before}@HEAD", options.before)
    try:
        before, after = (open_workflow(name, settings) for name in names)
    except WorkflowLookupError as refusal:
        raise CommandError(refusal.explain(), 2) from refusal
    sections = compare(before, after)
    if options.json:
        write_json({"same": not sections, "before": _named(before), "after": _named(after), "changes": list(sections)})
    else:
        write_sections(sections)
    return int(bool(sections))


def _named(workflow: Workflow) -> dict[str, str]:
    return {"id": workflow.id, "version": workflow.version}


def write_sections(sections: Sequence[Section]) -> None:
    """Print changes for people."""
    for section in sections:
        sign, style = _SIGNS[section.kind]
        subject = f"step {section.step}" if section.step else "workflow"
        title = f"  {section.title}" if section.title else ""
        write((f"{sign} {subject}", f"bold {style}"), title, (f"  ({section.place})" if section.place else "", "dim"))
        for change in section.changes:
            write("    ", *_pieces(change))
            for line in change.diff:
                write((f"        {line}", DIFF_STYLES.get(line[:1], "")), wrap=False)
        write()
    write(_summary(sections))


def _pieces(change: Change) -> Iterator[Piece]:
    sign, style = _SIGNS[change.kind]
    yield f"{sign} ", style
    yield f"{change.what}{' moved' if change.kind is ChangeKind.MOVED else ''}", "bold"
    if change.before or change.after:
        yield ": "
    if change.before:
        yield joined(change.before), "red"
    if change.before and change.after:
        yield " -> "
    if change.after:
        yield joined(change.after), "green"


def _summary(sections: Sequence[Section]) -> str:
    count = collections.Counter(section.kind for section in sections if section.step)
    counts = ", ".join(f"{count[kind]} {kind}" for kind in ChangeKind if count[kind])
    if counts:
        return f"steps: {counts}"
    return "the steps are the same" if sections else "no difference"


EXAMPLES = """\
  workflowlookup diff old.json new.json                       two documents
  workflowlookup diff bug-investigation my-bugs.yaml          the library's and your own
  workflowlookup diff my-bugs.yaml                            what is not committed yet
  workflowlookup diff my-bugs@main my-bugs                    the same id in a git revision, and now"""
