"""Folds runs from their journal, and caches them.

A cached run is used only while its revision is that of the journal. Long runs are folded in slices, so that a server
with many clients on one thread can serve the others in between.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import RunDamaged, RunNotFound, RunStateError, SecurityError, WorkflowLookupError
from workflowlookup.runs.events import Record
from workflowlookup.runs.fold import apply, fold
from workflowlookup.runs.run import Run
from workflowlookup.runs.signing import People, verify
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

    def __init__(self, journal: Journal, people: People) -> None:
        """`people` verify the signatures of stored answers."""
        self._journal = journal
        self._people = people
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
        return cached if cached and self.is_current(cached) else self.read(run_id)

    def is_current(self, run: Run) -> bool:
        """Whether a folded run is in the state that the journal has now."""
        revision = self._journal.revision(run.id)
        return revision is not None and revision.is_of(run)

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
        """Read the run from the journal; only the part that is not cached is folded. Raises `RunDamaged`."""
        revision = self._journal.revision(run_id)
        beginning = self._loading.pop(run_id)
        folded = self._folded.get(run_id) or beginning
        if revision is None:
            self._folded.pop(run_id)
            raise self.not_found(run_id)
        if folded is not None and _is_beginning_of(folded, revision):
            try:
                return self._read_rest(run_id, folded, revision)
            except RunDamaged:  # unless it is another run, such as one that was deleted and imported again
                self._folded.pop(run_id)
        return self._read_rest(run_id, None, revision)

    def _read_rest(self, run_id: str, run: Run | None, revision: Revision) -> Run:
        """Fold what follows a folded run; all of it for None."""
        try:
            while run is None or run.sequence < revision.sequence or not run.rests:
                before, run = run, self._with_next_slice(run_id, run)
                if run is before:
                    break
        except RunStateError:
            self._refuse_gaps(run_id, revision)
            raise
        if run is None or run.sequence < max(revision.sequence, revision.hashed):
            self._refuse_gaps(run_id, revision)
        if run is None:
            raise self.not_found(run_id)  # it was deleted meanwhile
        self._refuse_contradiction(run, revision)
        if not run.rests:  # the events of one call are stored together, so the rest is lost
            raise self._damaged(run_id, f"The records of run '{run_id}' end in the middle of a call.")
        self.offer(run)
        return run

    def _refuse_gaps(self, run_id: str, revision: Revision) -> None:
        """Raises `RunDamaged` when records are missing, unless the run has changed meanwhile."""
        total, count, first = max(revision.sequence, revision.hashed), 0, 0
        for record in self.records(run_id):
            count += 1
            first = first or (count if record.sequence != count else 0)
        if count < total and self._journal.revision(run_id) == revision:
            left = f"Of the {total} events of run '{run_id}' only {count} are left"
            raise self._damaged(run_id, f"{left}: event {first or count + 1} was removed after it was written.")

    def _refuse_contradiction(self, run: Run, revision: Revision) -> None:
        """Raises `RunDamaged` when the summary of a run contradicts its events, unless it has changed meanwhile."""
        if not revision.is_of(run) and self._journal.revision(run.id) == revision:
            contradiction = (
                f"it counts {revision.sequence} events, and there are {run.sequence}"
                if revision.sequence != run.sequence
                else "one of them was changed after it was written"
            )
            message = f"The summary of run '{run.id}' in the journal does not match its events: {contradiction}."
            raise self._damaged(run.id, message)

    def _damaged(self, run_id: str, problem: str) -> RunDamaged:
        return run_damaged(run_id, problem, self._journal.damaged_journals())

    def _with_next_slice(self, run_id: str, run: Run | None) -> Run | None:
        """The run with the next slice of its records applied; the same object when there are none."""
        sequence, head = (run.sequence, run.head) if run else (0, "")
        records = self._journal.read(run_id, sequence, SLICE, head)
        if not records:
            return run
        return self.fold(run_id, records, run)

    def fold(self, run_id: str, records: Sequence[Record], run: Run | None = None) -> Run:
        """The run with these records applied. Raises `RunDamaged` for an answer whose signature is wrong."""
        for record in records:
            run = fold(run_id, [record]) if run is None else apply(self._verified(run, record), record)
        return run  # type: ignore[return-value]

    def _verified(self, run: Run, record: Record) -> Run:
        try:
            return verify(self._people, run, record)
        except SecurityError as problem:
            raise run_damaged(run.id, problem.remedy, self._journal.damaged_journals()) from problem

    def records(self, run_id: str, after: int = 0, head: str = "") -> Iterator[Record]:
        """The records of a run, read in slices, so that they are never all in memory; `head` as for `Journal.read`."""
        while records := self._journal.read(run_id, after, SLICE, head):
            yield from records
            after, head = records[-1].sequence, records[-1].hash

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
