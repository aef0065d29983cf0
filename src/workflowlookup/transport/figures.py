"""What a server can say of its runs and its tools when it is asked how it is."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.transport.metrics import Family

if TYPE_CHECKING:
    from workflowlookup.protocol.surface import Surface


def families(surface: "Surface") -> Iterable[Family]:
    """The providers, the journal and the runs in it, as figures."""
    up = [({"provider": name}, float(is_up)) for name, is_up in sorted(_providers(surface).items())]
    if up:
        yield Family("provider_up", "gauge", "Whether a provider of workflows answers.", up)
    try:
        counts = surface.services.runs.counts()
        is_read = 1
    except WorkflowLookupError:
        counts, is_read = {}, 0
    yield Family("journal_up", "gauge", "Whether the journal of runs can be read.", [({}, is_read)])
    if is_read:
        by_state = [({"state": str(state)}, float(count)) for state, count in sorted(counts.items())]
        yield Family("runs", "gauge", "Runs by their state.", by_state)
        yield Family("queue_length", "gauge", "Runs that wait for their turn.", [({}, counts.get("queued", 0))])


def _providers(surface: "Surface") -> Mapping[str, bool]:
    """Whether each provider answered when it was last asked; those that were never asked are left out."""
    workflows = surface.services.workflows
    if workflows is None:
        return {}
    known = workflows.discovered()
    return {name: not found.is_away for name, found in known.items() if found.is_listed or found.is_away}


def find_fault(surface: "Surface") -> str:
    """Why no work can be done now; nothing when it can."""
    try:
        surface.services.runs.workflow_of("")  # which no run is called; to find that out costs nothing
    except WorkflowLookupError as problem:
        return str(problem)
    return ""
