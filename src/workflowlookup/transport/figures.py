"""What a server can say of its runs and its tools when it is asked how it is."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.transport.metrics import Family

if TYPE_CHECKING:
    from workflowlookup.protocol.surface import Surface


class Figures(msgspec.Struct, frozen=True):
    """Questions that can be asked of a server."""

    families: Callable[[], Iterable[Family]]
    find_fault: Callable[[], str]
    """Why no work can be done now; nothing when it can."""
    input_schema_of: Callable[[str], Mapping[str, Any] | None]


def figures_of(surface: "Surface") -> Figures:
    """The questions, for the tools and the journal behind this surface."""

    def families() -> Iterable[Family]:
        up = [({"provider": name}, float(is_up)) for name, is_up in sorted(_providers(surface).items())]
        if up:
            yield Family("provider_up", "gauge", "Whether a provider of workflows answers.", up)
        try:
            counts = surface.services.runs.counts()
        except WorkflowLookupError:
            yield Family("journal_up", "gauge", "Whether the journal of runs can be read.", [({}, 0)])
            return
        yield Family("journal_up", "gauge", "Whether the journal of runs can be read.", [({}, 1)])
        by_state = [({"state": str(state)}, float(count)) for state, count in sorted(counts.items())]
        yield Family("runs", "gauge", "Runs by their state.", by_state)
        yield Family("queue_length", "gauge", "Runs that wait for their turn.", [({}, counts.get("queued", 0))])

    def find_fault() -> str:
        try:
            surface.services.runs.journal.version()
        except WorkflowLookupError as problem:
            return str(problem)
        return ""

    def input_schema_of(name: str) -> Mapping[str, Any] | None:
        tool = surface.registry.tools.get(name)
        return tool.input_schema if tool is not None else None

    return Figures(families, find_fault, input_schema_of)


def _providers(surface: "Surface") -> Mapping[str, bool]:
    """Whether each provider answered when it was last asked; those that were never asked are left out."""
    workflows = surface.services.workflows
    if workflows is None:
        return {}
    known = workflows.discovered()
    return {name: not found.is_away for name, found in known.items() if found.is_listed or found.is_away}
