"""Queries for runs and workflows that several pages share."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.console.request import PageNotFound, RequestRefused, Visit
from workflowlookup.errors import RunStateError, WorkflowLookupError, WorkflowNotFound
from workflowlookup.language.model import Workflow
from workflowlookup.runs.run_document import encode_document
from workflowlookup.store.journal import RunQuery, RunSummary, now
from workflowlookup.tools.builtin.workflow_start import find_startable

MAX_SCANNED: Final = 5_000
"""How many runs are read at most to fill a page."""
BATCH: Final = 200
DAY: Final = 86_400_000
TIMES: Final[Mapping[str, tuple[str, int]]] = {
    "": ("Any time", 0),
    "1h": ("Last hour", DAY // 24),
    "24h": ("Last day", DAY),
    "7d": ("Last week", 7 * DAY),
    "30d": ("Last month", 30 * DAY),
}
"""The choices of the filter by start time: a name, and the maximum age in milliseconds."""
NO_SUCH_FILTER: Final = "There is no such filter. Choose one from the page."


def since_filter(visit: Visit) -> tuple[str, int | None]:
    """The chosen key of `TIMES`, and the earliest start time."""
    chosen = visit.query("since")
    if chosen not in TIMES:
        raise RequestRefused(400, NO_SUCH_FILTER)
    return chosen, now() - TIMES[chosen][1] if chosen else None


def scan(visit: Visit, query: RunQuery, limit: int = MAX_SCANNED) -> Iterator[RunSummary]:
    """Up to `limit` runs, the last started first."""
    query, remaining = msgspec.structs.replace(query, limit=BATCH), limit
    while remaining > 0 and (page := visit.services.runs.summaries(query)):
        yield from page[:remaining]
        remaining -= len(page)
        if len(page) < BATCH:
            return
        query = msgspec.structs.replace(query, after=(page[-1].started, page[-1].id))


def page_of(
    visit: Visit,
    query: RunQuery,
    limit: int,
    matches: Callable[[RunSummary], bool] = lambda _: True,
    max_scanned: int = MAX_SCANNED,
) -> tuple[list[RunSummary], bool]:
    """The first `limit` runs that match, and whether there are more."""
    rows: list[RunSummary] = []
    for run in scan(visit, query, max_scanned):
        if matches(run):
            rows.append(run)
        if len(rows) > limit:
            return rows[:limit], True
    return rows, False


def find_workflow(visit: Visit, workflow_id: str) -> tuple[Workflow, bool]:
    """The workflow in the library and True; else the version of its last run and False.

    Raises `PageNotFound`, or the error of its document.
    """
    try:
        return find_startable(visit.services, workflow_id), True
    except WorkflowNotFound:
        for run in visit.services.runs.summaries(RunQuery(workflow_id=workflow_id, limit=1)):
            return visit.services.runs.get(run.id).workflow, False
        raise PageNotFound("workflow") from None


def current(visit: Visit, workflow_id: str) -> Workflow | None:
    """The workflow that a start would use now; None if there is no valid one that the viewer may use."""
    try:
        return find_startable(visit.services, workflow_id)
    except WorkflowLookupError:
        return None


class WorkflowVersion(msgspec.Struct, kw_only=True):
    """A version of a workflow: the one in the library, or one that runs used."""

    hash: str
    version: str
    runs: int = 0
    latest: int = 0
    """When its last run was started."""
    run_id: str = ""
    is_current: bool = False


def versions_of(visit: Visit, workflow_id: str) -> list[WorkflowVersion]:
    """The version in the library first, then those of runs, the last used first."""
    versions: dict[str, WorkflowVersion] = {}
    workflow = current(visit, workflow_id)
    if workflow is not None:
        _, digest = encode_document(workflow)
        versions[digest] = WorkflowVersion(hash=digest, version=workflow.version, is_current=True)
    for run in scan(visit, RunQuery(workflow_id=workflow_id)):
        version = versions.setdefault(run.hash, WorkflowVersion(hash=run.hash, version=run.version))
        version.runs += 1
        version.run_id = version.run_id or run.id
        version.latest = version.latest or run.started
    return list(versions.values())


def document_of_version(visit: Visit, workflow_id: str, version: WorkflowVersion) -> Workflow:
    if version.is_current:
        return find_startable(visit.services, workflow_id)
    run = visit.services.runs.get(version.run_id)
    if run.hash != version.hash:
        raise RunStateError("The run of this version was replaced in the meantime. Load the page again.")
    return run.workflow
