"""Folds runs from their journal, and caches them.

A run in the cache is used only when its mark is that of the journal. Long runs are folded slice by slice, so that a
server with several clients on one thread can answer the others in between.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Final

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import RunNotFound, RunStateError, WorkflowLookupError
from workflowlookup.runs.events import Record
from workflowlookup.runs.run import Run, apply, fold
from workflowlookup.store.journal import DamagedJournal, Journal, Revision, damaged

MAX_FOLDED: Final = 256
"""How many folded runs are cached; the others are folded when they are needed."""
MAX_FOLDED_BYTES: Final = 16 << 20
"""How large they may be together, in estimated bytes."""
SLICE: Final = 1_000
"""How many events are folded before others get their turn: some milliseconds."""
MAX_LOADING: Final = 16
"""How many runs may be partly folded at a time."""


class RunCache:
    """The runs of one journal, folded."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._folded: BoundedCache[str, Run] = BoundedCache(
            MAX_FOLDED, max_weight=MAX_FOLDED_BYTES, weigh=lambda run: run.weight
        )
        self._loading: BoundedCache[str, Run] = BoundedCache(MAX_LOADING)
        """Runs of which `load` has folded the beginning."""

    def peek(self, run_id: str) -> Run | None:
        """The run in the cache, which may be older than that in the journal."""
        return self._folded.get(run_id)

    def get(self, run_id: str) -> Run:
        """The run as the journal has it now."""
        cached = self._folded.get(run_id)
        return cached if cached and self._journal.revision(run_id) == revision_of(cached) else self.read(run_id)

    def offer(self, run: Run) -> None:
        """Cache a run that was folded, unless the cache has it as it was later; whether it has changed since is checked
        when it is used.

        While one request waits for the journal another may store or fold the same run.
        """
        cached = self._folded.get(run.id)
        is_same = cached is not None and (cached.started, cached.hash) == (run.started, run.hash)
        if cached is None or not is_same or cached.sequence < run.sequence:
            self._folded[run.id] = run

    def forget(self, run_id: str) -> None:
        self._folded.pop(run_id)

    def clear(self) -> None:
        self._folded.clear()

    def load_slice(self, run_id: str) -> bool:
        """Fold a slice of a long run; True when `get` will be quick, because little is left to fold.

        For those who serve several clients on one thread: they answer the others between two slices.
        """
        try:
            mark = self._journal.revision(run_id)
            part = self._folded.get(run_id) or self._loading.get(run_id)
            if part is not None and (mark is None or not _is_of(part, mark)):
                part = None
            if mark is None or mark.sequence - (part.sequence if part else 0) <= SLICE:
                return True
            before, part = part, self._with_next_slice(run_id, part)
        except WorkflowLookupError:  # as `get` will say
            return True
        if part is None or part is before:  # records are missing, as `get` will say
            return True
        loading = self._loading.get(run_id)
        if loading is None or not _is_of(loading, mark) or loading.sequence < part.sequence:
            self._loading[run_id] = part
        return False

    def read(self, run_id: str) -> Run:
        """The run as the journal has it now; what is not folded yet is read."""
        mark = self._journal.revision(run_id)
        beginning = self._loading.pop(run_id)
        folded = self._folded.get(run_id) or beginning
        if mark is None:
            self._folded.pop(run_id)
            raise self.not_found(run_id)
        run = folded if folded is not None and _is_of(folded, mark) else None
        try:
            while run is None or run.sequence < mark.sequence or not run.rests:
                before, run = run, self._with_next_slice(run_id, run)
                if run is before:
                    break
        except RunStateError:
            self._refuse_gaps(run_id, mark)
            raise
        if run is None or run.sequence < mark.sequence:
            self._refuse_gaps(run_id, mark)
        if run is None:
            raise self.not_found(run_id)  # it went while it was read
        if not run.rests:  # what belongs together is stored together: the rest is lost
            message = f"The records of run '{run_id}' end in the middle of a call."
            raise damaged(run_id, message, self._journal.damaged_journals())
        self.offer(run)
        return run

    def _refuse_gaps(self, run_id: str, mark: Revision) -> None:
        """Raises `RunDamaged` when records are missing of a run that nobody changes."""
        left = sum(1 for _ in self.records(run_id))
        if left < mark.sequence and self._journal.revision(run_id) == mark:
            message = f"Of the {mark.sequence} events of run '{run_id}' only {left} are left."
            raise damaged(run_id, message, self._journal.damaged_journals())

    def refuse_contradictions(self, run_id: str) -> None:
        """Raises `RunDamaged` when the run is not the one, or not as far, as the journal says of it as a whole."""
        run, mark = self.read(run_id), self._journal.revision(run_id)
        if mark is not None and ((mark.started, mark.hash) != (run.started, run.hash) or mark.sequence < run.sequence):
            message = f"What the journal says of run '{run_id}' as a whole does not fit its events."
            raise damaged(run_id, message, self._journal.damaged_journals())

    def _with_next_slice(self, run_id: str, run: Run | None) -> Run | None:
        """A run of which the beginning is folded, with the records that follow; the same when there are none."""
        records = self._journal.read(run_id, run.sequence if run else 0, SLICE)
        if not records:
            return run
        return fold(run_id, records) if run is None else functools.reduce(apply, records, run)

    def records(self, run_id: str, after: int = 0) -> Iterator[Record]:
        """The records of a run one after the other; at no time are all of them in memory."""
        while records := self._journal.read(run_id, after, SLICE):
            yield from records
            after = records[-1].sequence

    def not_found(self, run_id: str) -> RunNotFound:
        """The refusal of an id that no run has."""
        return run_not_found(run_id, self._journal.damaged_journals())


def run_not_found(run_id: str, asides: Sequence[DamagedJournal]) -> RunNotFound:
    """The refusal of an id that no run has; it names the damaged journals that the caller may know of."""
    damaged = "".join(f" {aside}" for aside in asides)
    return RunNotFound(f"There is no run '{run_id}'. Call workflow_runs to see them.{damaged}", runId=run_id)


def _is_of(run: Run, mark: Revision) -> bool:
    """Whether a run is the beginning of what the journal has, and not of another run with its id."""
    return run.sequence <= mark.sequence and (run.started, run.hash) == (mark.started, mark.hash)


def revision_of(run: Run) -> Revision:
    return Revision(run.sequence, run.started, run.hash)
