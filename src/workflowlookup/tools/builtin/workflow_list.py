"""`workflow_list`: a line for each workflow, with filters and paging for big libraries."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import OutOfDescriptors
from workflowlookup.language.values import Json
from workflowlookup.library.catalog import Snapshot
from workflowlookup.library.files import WorkflowSummary
from workflowlookup.tools.arguments import StructArguments
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.result_schemas import TEXTS


class ListArguments(msgspec.Struct):
    """What `workflow_list` takes."""

    category: Annotated[str | None, Meta(description="Only workflows of this category.")] = None
    query: Annotated[
        str | None, Meta(description="Only workflows whose id, name, description or category has these words.")
    ] = None
    limit: Annotated[
        int | None,
        Meta(description="At most this many; nextCursor leads on.", extra_json_schema={"minimum": 1, "maximum": 1000}),
    ] = None
    cursor: Annotated[str | None, Meta(description="The nextCursor of the answer before.")] = None


MAX_WARNINGS: Final = 20
EVERYTHING: Final = ListArguments()


def handle(services: Services, arguments: ListArguments, _: Caller) -> Mapping[str, Json]:
    snapshot = services.catalog.snapshot()
    if isinstance(snapshot.incomplete, OutOfDescriptors):
        raise snapshot.incomplete
    warnings = _left_out(snapshot)
    told: Mapping[str, Json] = {"warnings": warnings} if warnings else {}
    if arguments == EVERYTHING:
        return {"workflows": snapshot.encoded, **told}
    from workflowlookup.tools.paging import page  # noqa: PLC0415 - the first list mostly comes whole

    found: Sequence[WorkflowSummary] = snapshot.summaries
    if category := arguments.category:
        found = [summary for summary in found if summary.category.casefold() == category.casefold()]
    if arguments.query:
        words = arguments.query.casefold().split()
        found = [summary for summary in found if _matches(summary, words)]
    shown, cursor = page(found, lambda summary: summary.id, arguments.cursor, arguments.limit)
    return {"workflows": shown, **({"nextCursor": cursor} if cursor else {}), **told}


def _left_out(snapshot: Snapshot) -> list[str]:
    """What is not in the list: directories, and documents of which not even the id is known."""
    reasons = [entry.file.refusal.remedy for entry in snapshot.problems if entry.file.refusal and not entry.file.id]
    if snapshot.incomplete and not reasons:  # the names are not for this caller
        return [snapshot.incomplete.remedy]
    more = len(reasons) - MAX_WARNINGS
    return [*reasons[:MAX_WARNINGS], *([f"And {more} more; workflowlookup doctor has them all."] if more > 0 else [])]


def _matches(summary: WorkflowSummary, words: Sequence[str]) -> bool:
    text = f"{summary.id} {summary.name} {summary.description} {summary.category}".casefold()
    return all(word in text for word in words)


_SUMMARY = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "name", "description", "category", "version")},
    "required": ["id", "name", "description", "category", "version"],
}

TOOL = Tool(
    name="workflow_list",
    title="List workflows",
    description=(
        "Lists all available workflows: id, name, description, category, version. Call this first and choose by the "
        "description; in a big library narrow it with query or category, or page with limit and cursor."
    ),
    arguments=StructArguments(ListArguments),
    output_schema={
        "type": "object",
        "properties": {
            "workflows": {"type": "array", "items": _SUMMARY},
            "nextCursor": {"type": "string", "description": "Pass it as cursor to read on."},
            "warnings": {**TEXTS, "description": "What is left out, or not read yet."},
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
)
