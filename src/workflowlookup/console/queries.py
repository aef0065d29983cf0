"""Runs and workflows that several pages look for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.console.request import NotThere, Refused, Visit
from workflowlookup.errors import RunStateError, WorkflowLookupError, WorkflowNotFound
from workflowlookup.language.model import Workflow
from workflowlookup.runs.run import encode_document
from workflowlookup.store.journal import RunQuery, RunSummary, now
from workflowlookup.tools.builtin.workflow_start import find_startable

MOST_SCANNED: Final = 5_000
"""How many runs are looked at to find those that are wanted."""
AT_ONCE: Final = 200
DAY: Final = 86_400_000
TIMES: Final[Mapping[str, tuple[str, int]]] = {
    "": ("Any time", 0),
    "1h": ("Last hour", DAY // 24),
    "24h": ("Last day", DAY),
    "7d": ("Last week", 7 * DAY),
    "30d": ("Last month", 30 * DAY),
}
"""What runs are chosen by that were started not long ago: a name, and how many milliseconds ago at most."""
NO_SUCH_FILTER: Final = "There is no such filter. Choose one from the page."


def since_of(visit: Visit) -> tuple[str, int | None]:
    """Which of `TIMES` is asked for, and when it began."""
    chosen = visit.asked("since")
    if chosen not in TIMES:
        raise Refused(400, NO_SUCH_FILTER)
    return chosen, now() - TIMES[chosen][1] if chosen else None


def scan(visit: Visit, query: RunQuery, most: int = MOST_SCANNED) -> Iterator[RunSummary]:
    """The runs, the last started first, until as many were looked at."""
    query, left = msgspec.structs.replace(query, limit=AT_ONCE), most
    while left > 0 and (page := visit.services.runs.summaries(query)):
        yield from page[:left]
        left -= len(page)
        if len(page) < AT_ONCE:
            return
        query = msgspec.structs.replace(query, after=(page[-1].started, page[-1].id))


def page_of(
    visit: Visit,
    query: RunQuery,
    limit: int,
    fits: Callable[[RunSummary], bool] = lambda _: True,
    most: int = MOST_SCANNED,
) -> tuple[list[RunSummary], bool]:
    """As many runs as a page has, and whether there are more."""
    found: list[RunSummary] = []
    for line in scan(visit, query, most):
        if fits(line):
            found.append(line)
        if len(found) > limit:
            return found[:limit], True
    return found, False


def find_workflow(visit: Visit, workflow_id: str) -> tuple[Workflow, bool]:
    """The workflow of the library; else the one that the last run of it had, and False.

    Raises `NotThere`, or what is wrong with its document.
    """
    try:
        return find_startable(visit.services, workflow_id), True
    except WorkflowNotFound:
        for line in visit.services.runs.summaries(RunQuery(workflow_id=workflow_id, limit=1)):
            return visit.services.runs.get(line.id).workflow, False
        raise NotThere("workflow") from None


def current(visit: Visit, workflow_id: str) -> Workflow | None:
    """The workflow as it would be run now; None when there is none that is sound and within reach."""
    try:
        return find_startable(visit.services, workflow_id)
    except WorkflowLookupError:
        return None


class Version(msgspec.Struct, kw_only=True):
    """A document of a workflow that is in the library, or that runs had."""

    hash: str
    version: str
    runs: int = 0
    latest: int = 0
    """When the last run of it was started."""
    run_id: str = ""
    is_current: bool = False


def versions_of(visit: Visit, workflow_id: str) -> list[Version]:
    """What is in the library first, then what runs had, the last used first."""
    found: dict[str, Version] = {}
    workflow = current(visit, workflow_id)
    if workflow is not None:
        _, digest = encode_document(workflow)
        found[digest] = Version(hash=digest, version=workflow.version, is_current=True)
    for line in scan(visit, RunQuery(workflow_id=workflow_id)):
        one = found.setdefault(line.hash, Version(hash=line.hash, version=line.version))
        one.runs += 1
        one.run_id = one.run_id or line.id
        one.latest = one.latest or line.started
    return list(found.values())


def document_of_version(visit: Visit, workflow_id: str, version: Version) -> Workflow:
    if version.is_current:
        return find_startable(visit.services, workflow_id)
    run = visit.services.runs.get(version.run_id)
    if run.hash != version.hash:
        raise RunStateError("The run of this version was replaced meanwhile. Load the page again.")
    return run.workflow
