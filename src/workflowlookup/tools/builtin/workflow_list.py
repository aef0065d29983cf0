"""`workflow_list`: a summary of each workflow, with filters and paging."""

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
EVERYTHING: Final = ListArguments()


def handle(services: Services, arguments: ListArguments, _: Caller) -> Mapping[str, Json]:
    snapshot = services.catalog.snapshot()
    if isinstance(snapshot.incomplete, OutOfDescriptors):
        raise snapshot.incomplete
    warnings = _warnings(snapshot)
    extra: Mapping[str, Json] = {"warnings": warnings} if warnings else {}
    if arguments == EVERYTHING:
        return {"workflows": snapshot.encoded, **extra}
    from workflowlookup.tools.paging import page  # noqa: PLC0415 - most calls ask for the whole list

    matches: Sequence[WorkflowSummary] = snapshot.summaries
    if category := arguments.category:
        matches = [summary for summary in matches if summary.category.casefold() == category.casefold()]
    if arguments.query:
        words = arguments.query.casefold().split()
        matches = [summary for summary in matches if _has_words(summary, words)]
    summaries, cursor = page(matches, lambda summary: summary.id, arguments.cursor, arguments.limit)
    return {"workflows": summaries, **({"nextCursor": cursor} if cursor else {}), **extra}


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
