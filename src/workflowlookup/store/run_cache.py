"""Folds runs from their journal, and caches them.

A cached run is used only while its revision is that of the journal. Long runs are folded in slices, so that a server
with many clients on one thread can serve the others in between.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Final

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import RunNotFound, RunStateError, WorkflowLookupError
from workflowlookup.runs.events import Record
from workflowlookup.runs.run import Run, apply, fold
from workflowlookup.store.journal import DamagedJournal, Journal, Revision, run_damaged

MAX_FOLDED: Final = 256
"""How many folded runs are cached."""
MAX_FOLDED_BYTES: Final = 16 << 20
"""Their total size, in estimated bytes."""
SLICE: Final = 1_000
"""How many events are folded at a time, which takes some milliseconds."""
MAX_LOADING: Final = 16
"""How many partly folded runs are cached."""


class RunCache:
    """The runs of one journal, folded."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._folded: BoundedCache[str, Run] = BoundedCache(
            MAX_FOLDED, max_weight=MAX_FOLDED_BYTES, weigh=lambda run: run.weight
        )
        self._loading: BoundedCache[str, Run] = BoundedCache(MAX_LOADING)
        """Runs that `load_slice` has folded in part."""

    def peek(self, run_id: str) -> Run | None:
        """The cached run, which may be out of date."""
        return self._folded.get(run_id)

    def get(self, run_id: str) -> Run:
        """The run as the journal has it now."""
        cached = self._folded.get(run_id)
        return cached if cached and self._journal.revision(run_id) == revision_of(cached) else self.read(run_id)

    def offer(self, run: Run) -> None:
        """Cache a folded run, unless a later state of it is cached already.

        While one request waits for the journal, another may store or fold the same run.
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

        A server with many clients on one thread serves the others between two slices.
        """
        try:
            revision = self._journal.revision(run_id)
            part = self._folded.get(run_id) or self._loading.get(run_id)
            if part is not None and (revision is None or not _is_beginning_of(part, revision)):
                part = None
            if revision is None or revision.sequence - (part.sequence if part else 0) <= SLICE:
                return True
            before, part = part, self._with_next_slice(run_id, part)
        except WorkflowLookupError:  # as `get` will say
            return True
        if part is None or part is before:  # records are missing, as `get` will say
            return True
        loading = self._loading.get(run_id)
        if loading is None or not _is_beginning_of(loading, revision) or loading.sequence < part.sequence:
            self._loading[run_id] = part
        return False

    def read(self, run_id: str) -> Run:
        """Read the run from the journal; only the part that is not cached is folded."""
        revision = self._journal.revision(run_id)
        beginning = self._loading.pop(run_id)
        folded = self._folded.get(run_id) or beginning
        if revision is None:
            self._folded.pop(run_id)
            raise self.not_found(run_id)
        run = folded if folded is not None and _is_beginning_of(folded, revision) else None
        try:
            while run is None or run.sequence < revision.sequence or not run.rests:
                before, run = run, self._with_next_slice(run_id, run)
                if run is before:
                    break
        except RunStateError:
            self._refuse_gaps(run_id, revision)
            raise
        if run is None or run.sequence < revision.sequence:
            self._refuse_gaps(run_id, revision)
        if run is None:
            raise self.not_found(run_id)  # it was deleted meanwhile
        if not run.rests:  # the events of one call are stored together, so the rest is lost
            message = f"The records of run '{run_id}' end in the middle of a call."
            raise run_damaged(run_id, message, self._journal.damaged_journals())
        self.offer(run)
        return run

    def _refuse_gaps(self, run_id: str, revision: Revision) -> None:
        """Raises `RunDamaged` when records are missing, unless the run has changed meanwhile."""
        count = sum(1 for _ in self.records(run_id))
        if count < revision.sequence and self._journal.revision(run_id) == revision:
            message = f"Of the {revision.sequence} events of run '{run_id}' only {count} are left."
            raise run_damaged(run_id, message, self._journal.damaged_journals())

    def refuse_contradictions(self, run_id: str) -> None:
        """Raises `RunDamaged` when the summary of a run contradicts its events."""
        run, revision = self.read(run_id), self._journal.revision(run_id)
        if revision is not None and (
            (revision.started, revision.hash) != (run.started, run.hash) or revision.sequence < run.sequence
        ):
            message = f"The summary of run '{run_id}' in the journal does not match its events."
            raise run_damaged(run_id, message, self._journal.damaged_journals())

    def _with_next_slice(self, run_id: str, run: Run | None) -> Run | None:
        """The run with the next slice of its records applied; the same object when there are none."""
        records = self._journal.read(run_id, run.sequence if run else 0, SLICE)
        if not records:
            return run
        return fold(run_id, records) if run is None else functools.reduce(apply, records, run)

    def records(self, run_id: str, after: int = 0) -> Iterator[Record]:
        """The records of a run, read in slices, so that they are never all in memory."""
        while records := self._journal.read(run_id, after, SLICE):
            yield from records
            after = records[-1].sequence

    def not_found(self, run_id: str) -> RunNotFound:
        """The error for an id that no run has."""
        return run_not_found(run_id, self._journal.damaged_journals())


def run_not_found(run_id: str, damaged_journals: Sequence[DamagedJournal]) -> RunNotFound:
    """The error for an id that no run has; it names the damaged journals, in which the run may be."""
    damaged = "".join(f" {journal}" for journal in damaged_journals)
    return RunNotFound(f"There is no run '{run_id}'. Call workflow_runs to see them.{damaged}", runId=run_id)


def _is_beginning_of(run: Run, revision: Revision) -> bool:
    """Whether a folded run is an earlier state of the run in the journal, and not another run with its id."""
    return run.sequence <= revision.sequence and (run.started, run.hash) == (revision.started, revision.hash)


def revision_of(run: Run) -> Revision:
    return Revision(run.sequence, run.started, run.hash)
