"""`workflow_list`: a summary of each workflow, with filters and paging."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import OutOfDescriptors
from workflowlookup.language.values import Json
from workflowlookup.library.catalog import Snapshot
from workflowlookup.library.files import WorkflowSummary
from workflowlookup.tools.arguments import StructArguments, server_only
from workflowlookup.tools.contract import ALWAYS_LOADED, Caller, Services, Tool
from workflowlookup.tools.result_schemas import TEXTS


class ListArguments(msgspec.Struct):
    """What `workflow_list` takes."""

    category: Annotated[str | None, Meta(description="Only this category")] = None
    query: Annotated[
        str | None,
        Meta(description="Words to find"),
        server_only("Only workflows with these words in id, name, description or category"),
    ] = None
    limit: Annotated[
        int | None,
        Meta(description="Page size"),
        server_only("Page size; nextCursor continues", minimum=1, maximum=1000),
    ] = None
    cursor: Annotated[str | None, Meta(description="nextCursor")] = None


MAX_WARNINGS: Final = 20
PAGE_SIZE: Final = 50
MAX_PAGE_CHARACTERS: Final = 20_000
"""A page ends before it is longer than this, whatever its limit."""
EVERYTHING: Final = ListArguments()


def handle(services: Services, arguments: ListArguments, _: Caller) -> Mapping[str, Json]:
    snapshot, extra = _read(services)
    is_short = len(snapshot.summaries) <= PAGE_SIZE and len(bytes(snapshot.encoded)) <= MAX_PAGE_CHARACTERS
    if is_short and arguments == EVERYTHING:
        return {"workflows": snapshot.encoded, **extra}
    from workflowlookup.tools.paging import encode_cursor, page  # noqa: PLC0415 - most libraries have one page

    matches = _matching(snapshot, arguments)
    limit = arguments.limit or PAGE_SIZE
    summaries, cursor = page(matches, lambda summary: summary.id, arguments.cursor, limit)
    fitting = _fitting(summaries)
    if len(fitting) < len(summaries):
        summaries, cursor = fitting, encode_cursor(fitting[-1].id)
    return {"workflows": summaries, **({"nextCursor": cursor} if cursor else {}), **extra}


def list_all(services: Services, arguments: ListArguments, _: Caller) -> Mapping[str, Json]:
    """As `handle`, without pages: for a command, whose reader is not a model."""
    snapshot, extra = _read(services)
    return {"workflows": _matching(snapshot, arguments), **extra}


def _read(services: Services) -> tuple[Snapshot, Mapping[str, Json]]:
    """The library, and the warnings of an answer about it."""
    snapshot = services.catalog.snapshot()
    if isinstance(snapshot.incomplete, OutOfDescriptors):
        raise snapshot.incomplete
    warnings = _warnings(snapshot)
    return snapshot, {"warnings": warnings} if warnings else {}


def _matching(snapshot: Snapshot, arguments: ListArguments) -> Sequence[WorkflowSummary]:
    matches: Sequence[WorkflowSummary] = snapshot.summaries
    if category := arguments.category:
        matches = [summary for summary in matches if summary.category.casefold() == category.casefold()]
    if arguments.query:
        words = arguments.query.casefold().split()
        matches = [summary for summary in matches if _has_words(summary, words)]
    return matches


def _fitting(summaries: Sequence[WorkflowSummary]) -> Sequence[WorkflowSummary]:
    """The first ones that fit a page, but at least one."""
    sizes = itertools.accumulate(len(msgspec.json.encode(summary)) for summary in summaries)
    return summaries[: max(1, sum(size <= MAX_PAGE_CHARACTERS for size in sizes))]


def _warnings(snapshot: Snapshot) -> list[str]:
    """What the list lacks: directories that were not read, and documents whose id could not be read."""
    reasons = [entry.file.refusal.remedy for entry in snapshot.problems if entry.file.refusal and not entry.file.id]
    if snapshot.incomplete and not reasons:  # this caller may not see the names
        return [snapshot.incomplete.remedy]
    more = len(reasons) - MAX_WARNINGS
    return [*reasons[:MAX_WARNINGS], *([f"And {more} more; workflowlookup doctor lists them all."] if more > 0 else [])]


def _has_words(summary: WorkflowSummary, words: Sequence[str]) -> bool:
    text = f"{summary.id} {summary.name} {summary.description} {summary.category}".casefold()
    return all(word in text for word in words)


_SUMMARY = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "name", "description", "category", "version")},
    "required": ["id", "name", "description", "category", "version"],
}

TOOL = Tool(
    name="workflow_list",
    title="List workflows, playbooks and checklists",
    description="Lists all available workflows: playbooks, checklists, procedures. Look here before you begin a task.",
    arguments=StructArguments(ListArguments, is_closed=True),
    output_schema={
        "type": "object",
        "properties": {
            "workflows": {"type": "array", "items": _SUMMARY},
            "nextCursor": {"type": "string", "description": "cursor of the next page."},
            "warnings": {**TEXTS, "description": "What the list lacks."},
        },
        "required": ["workflows"],
    },
    example=(
        {},
        {
            "workflows": [
                {
                    "id": "bug-investigation",
                    "name": "Bug investigation",
                    "description": "Find and prove the cause of a defect, then fix it behind a regression test.",
                    "category": "development",
                    "version": "1.0.0",
                }
            ]
        },
    ),
    handler=handle,
    meta=ALWAYS_LOADED,
)
