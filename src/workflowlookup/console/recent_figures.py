"""The figures that pages show, as plain values, and the cache of those that were computed lately."""

from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.recent import RecentValues
from workflowlookup.runs.statistics import Figures

if TYPE_CHECKING:
    from workflowlookup.access import Access

FIGURES_SECONDS: Final = 10.0
"""How old the figures on a page may be."""
MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 2 << 20
"""Of each kind of figures, as JSON; as values they take some four times as much."""


class WorkflowCounts(msgspec.Struct, kw_only=True):
    """The runs of one workflow, counted."""

    states: dict[str, int] = {}
    median: int | None = None
    """Milliseconds that completed runs took."""


class Overview(msgspec.Struct, kw_only=True):
    """All runs that a caller sees, counted."""

    workflows: dict[str, WorkflowCounts] = {}
    days: dict[int, dict[str, int]] = {}
    """By the day on which they were started."""


class Versions(msgspec.Struct, frozen=True):
    """The versions of one workflow, over the latest runs that a caller sees."""

    figures: dict[str, Figures]
    """By version, the one with the latest run first."""
    runs: int
    """How many were read."""


def _weigh(figures: Overview | Versions) -> int:
    return len(msgspec.json.encode(figures))


class RecentFigures:
    """What the callers of one console were shown lately. The caller is part of each key: nobody sees another's."""

    def __init__(self) -> None:
        self.overviews: RecentValues[tuple[Access, str], Overview] = RecentValues(
            FIGURES_SECONDS, MAX_ENTRIES, max_weight=MAX_BYTES, weigh=_weigh
        )
        """By caller and time."""
        self.versions: RecentValues[tuple[Access, str, str], Versions] = RecentValues(
            FIGURES_SECONDS, MAX_ENTRIES, max_weight=MAX_BYTES, weigh=_weigh
        )
        """By caller, workflow and time."""
