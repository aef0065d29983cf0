"""`workflow_runs`: a summary of each run, newest first, with filters and paging."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidParams
from workflowlookup.language.values import Json
from workflowlookup.tools.arguments import WORKFLOW_ID, StructArguments, server_only
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.paging import decode_cursor, encode_cursor
from workflowlookup.tools.result_schemas import PROGRESS_SCHEMA, STATES

if TYPE_CHECKING:
    from workflowlookup.store.journal import RunSummary

PAGE_SIZE: Final = 20
MAX_DIGITS: Final = 15


class RunsArguments(msgspec.Struct, rename="camel"):
    """What `workflow_runs` takes."""

    query: Annotated[
        str | None, server_only("Words that a run must contain; is:stuck, by:, step: and others", maxLength=200)
    ] = None
    state: Annotated[str | None, Meta(extra_json_schema={"enum": STATES}), server_only("Only runs in this state")] = (
        None
    )
    workflow_id: Annotated[
        str | None,
        server_only("Only runs of this workflow", pattern=WORKFLOW_ID, minLength=3, maxLength=64),
    ] = None
    since: Annotated[
        str | None, Meta(description="ISO 8601"), server_only("Only runs started at or after this time (ISO 8601)")
    ] = None
    until: Annotated[str | None, server_only("Only runs started before this time (ISO 8601)")] = None
    limit: Annotated[
        int | None,
        server_only(f"Page size, by default {PAGE_SIZE}; nextCursor continues", minimum=1, maximum=200),
    ] = None
    cursor: Annotated[str | None, server_only("nextCursor of the last page")] = None


EVERYTHING: Final = RunsArguments()


def handle(services: Services, arguments: RunsArguments, _: Caller) -> Mapping[str, Json]:
    from workflowlookup.store.journal import RunQuery, now  # noqa: PLC0415 - with the first run
    from workflowlookup.store.run_search import parse_search  # noqa: PLC0415 - as above

    limit = arguments.limit or PAGE_SIZE
    search = parse_search(arguments.query or "")
    query = RunQuery(
        terms=search.terms,
        triage=search.triage,
        now=now(),
        state=arguments.state,
        workflow_id=arguments.workflow_id,
        since=_moment("since", arguments.since),
        until=_moment("until", arguments.until),
        after=decode_run_cursor(arguments.cursor),
        limit=limit + 1,
    )
    summaries = services.runs.summaries(query)
    page = summaries[:limit]
    cursor = {"nextCursor": encode_run_cursor(page[-1])} if len(summaries) > limit else {}
    guidance = " ".join((_next(arguments, page, cursor), *map(str, services.runs.damaged_journals())))
    sources = services.runs.imported([summary.id for summary in page])
    rows = [_row(summary) | _source(sources.get(summary.id)) for summary in page]
    return {"runs": rows, **cursor, "next": guidance}


def _source(source: str | None) -> dict[str, Json]:
    return {"importedFrom": source} if source else {}


def _next(arguments: RunsArguments, page: "list[RunSummary]", cursor: Mapping[str, Json]) -> str:
    if page:
        more = " There are more: pass nextCursor as cursor." if cursor else ""
        return f"Call workflow_status with a runId to resume a run.{more}"
    if msgspec.structs.replace(arguments, limit=None) != EVERYTHING:
        return "No run matches. Leave out a filter, or call workflow_start."
    return "There are no runs. Call workflow_start."


def _row(summary: "RunSummary") -> dict[str, Json]:
    from workflowlookup.tools.run_answers import iso  # noqa: PLC0415

    waiting = {"waitingFor": summary.waiting_for, "step": summary.step} if summary.waiting_for else {}
    about = {"about": summary.subject} if summary.subject else {}
    total = {} if summary.total is None else {"total": summary.total}
    return {
        "runId": summary.id,
        "workflowId": summary.workflow_id,
        "version": summary.version,
        "state": summary.state,
        **about,
        **waiting,
        "progress": {"done": summary.done, **total},
        **({"proofs": f"proved {summary.proved} of {summary.proofs}"} if summary.proofs else {}),
        "started": iso(summary.started),
        "updated": iso(summary.updated),
    }


def _moment(name: str, text: str | None) -> int | None:
    """The time in milliseconds since the epoch; a time without a zone is UTC."""
    from datetime import UTC, datetime  # noqa: PLC0415 - rarely needed

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidParams(f"{name} must be a time as in 2026-11-16T09:30:00Z, or a date; found '{text}'") from None


def encode_run_cursor(summary: "RunSummary") -> str:
    """The cursor for the runs after this one."""
    return encode_cursor(f"{summary.started} {summary.id}")


def decode_run_cursor(cursor: str | None) -> tuple[int, str] | None:
    """Start time and id of the run that the cursor points behind."""
    if not cursor:
        return None
    started, _, identifier = decode_cursor(cursor).partition(" ")
    if not started.isdecimal() or len(started) > MAX_DIGITS:
        raise InvalidParams("cursor must be a nextCursor of this tool; leave it out to start at the beginning")
    return int(started), identifier


TOOL = Tool(
    name="workflow_runs",
    title="List runs",
    description="Lists or searches runs, and says what they wait for.",
    arguments=StructArguments(RunsArguments),
    output_schema={
        "type": "object",
        "properties": {
            "runs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "runId": {"type": "string"},
                        "workflowId": {"type": "string"},
                        "version": {"type": "string"},
                        "state": {"type": "string", "enum": STATES},
                        "about": {"type": "string", "description": "What the run is about: its main input."},
                        "waitingFor": {"type": "string"},
                        "step": {"type": "string"},
                        "progress": PROGRESS_SCHEMA,
                        "proofs": {"type": "string", "description": "proved 7 of 8"},
                        "started": {"type": "string"},
                        "importedFrom": {"type": "string"},
                        "updated": {"type": "string"},
                    },
                    "required": ["runId", "workflowId", "version", "state", "progress", "started", "updated"],
                },
            },
            "nextCursor": {"type": "string", "description": "cursor of the next page."},
            "next": {"type": "string", "description": "What to do now, in one sentence."},
        },
        "required": ["runs", "next"],
    },
    example=(
        {"state": "waiting"},
        {
            "runs": [
                {
                    "runId": "9f2c41d07b3e",
                    "workflowId": "bug-investigation",
                    "version": "1.0.0",
                    "state": "waiting",
                    "waitingFor": "output",
                    "step": "isolate",
                    "progress": {"done": 1, "total": 6},
                    "started": "2026-11-16T09:30:00.000Z",
                    "updated": "2026-11-16T09:41:12.345Z",
                }
            ],
            "next": "Call workflow_status with a runId to resume a run.",
        },
    ),
    handler=handle,
)
