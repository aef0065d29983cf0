"""What a server can say of its runs and its tools when it is asked how it is."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.greenlets import Busy
from workflowlookup.recent import RecentValues
from workflowlookup.transport.http.metrics import Family

if TYPE_CHECKING:
    from workflowlookup.protocol.surface import Surface

COUNTS_SECONDS: Final = 10.0
"""How old the counts of runs may be: to count them takes longer the more there are."""
WAIT_SECONDS: Final = 30.0
"""How long a request waits for another one that counts."""


class Figures:
    """The providers, the journal and the runs in it, as figures."""

    def __init__(self, surface: "Surface", find_fault: Callable[[], str]) -> None:
        """`find_fault` says why the journal cannot be used now; nothing when it can."""
        self._surface = surface
        self._find_fault = find_fault
        self._counts: RecentValues[None, dict[str, int]] = RecentValues(COUNTS_SECONDS, 1)

    def families(self) -> Iterable[Family]:
        up = [({"provider": name}, float(is_up)) for name, is_up in sorted(_providers(self._surface).items())]
        if up:
            yield Family("provider_up", "gauge", "Whether a provider of workflows answers.", up)
        counts = self._count_runs()
        is_up = counts is not None
        yield Family("journal_up", "gauge", "Whether the journal of runs can be read.", [({}, is_up)])
        if counts is not None:
            by_state = [({"state": str(state)}, float(count)) for state, count in sorted(counts.items())]
            yield Family("runs", "gauge", "Runs by their state.", by_state)
            yield Family("queue_length", "gauge", "Runs that wait for their turn.", [({}, counts.get("queued", 0))])

    def _count_runs(self) -> dict[str, int] | None:
        """The runs by their state; None when the journal cannot be read."""
        if self._find_fault():
            return None
        try:
            with self._counts.entry(None, WAIT_SECONDS) as entry:
                if entry.value is None:
                    entry.value = self._surface.services.runs.counts()
                return entry.value
        except (WorkflowLookupError, Busy):
            return None


def _providers(surface: "Surface") -> Mapping[str, bool]:
    """Whether each provider answered when it was last asked; those that were never asked are left out."""
    workflows = surface.services.workflows
    if workflows is None:
        return {}
    known = workflows.discovered()
    return {name: not found.is_away for name, found in known.items() if found.is_listed or found.is_away}
