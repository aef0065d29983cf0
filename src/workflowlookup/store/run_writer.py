"""Decides changes of runs and stores them: each change is one append to the journal.

`runs.advance`, `runs.server_calls` and `runs.proofs` decide which events follow from a call. If another process has
changed the run meanwhile, the journal refuses the append, and the call is decided again. A method returns only after
its events are stored.
"""

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from workflowlookup.errors import JournalUnavailable, RunStateError, RunUnproven, StorageError, WorkflowLookupError
from workflowlookup.logs import audit
from workflowlookup.runs import advance, events
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.events import Failed
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import Conflict, Journal, summarise
from workflowlookup.store.run_cache import RunCache

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_TRIES: Final = 5
"""How often a call is decided while other processes keep changing the run."""


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """For a change that is recognised when it is sent again: an unknown outcome is reported as safe to repeat."""
    try:
        yield
    except JournalUnavailable as problem:
        if not problem.is_unknown:
            raise
        raise problem.as_repeatable() from problem


class RunWriter:
    """Changes the runs of one journal, and notifies listeners of each change."""

    def __init__(self, journal: Journal, cache: RunCache, clock: Callable[[], int]) -> None:
        self.journal = journal
        self._cache = cache
        self._clock = clock
        self.listeners: list[Callable[[str, Run | None], None]] = []
        """Called after each change by this process, with the run's id and the run; None when it was deleted."""
        self._uncommitted: list[tuple[str, Run | None]] | None = None
        """Within `do_all`: the changes that listeners are called for after the commit."""

    def move(self, run_id: str, by: str, decide: Callable[[Run, Moment], Draft | Run]) -> Run:
        """Decide what follows on the current run, and store it; again while other processes change the run.

        The first try uses the cached run without checking it: the journal refuses an append to an outdated run, and a
        decision that stores nothing counts only if the run has not changed.
        """
        folded = self._cache.peek(run_id)
        for _ in range(MAX_TRIES):
            run, is_cached = folded or self._cache.read(run_id), folded is not None
            folded = None
            at = moment(max(self._clock(), run.updated), by)
            expired = advance.expire(run, Moment(time=at.time))
            if expired is not None:
                if self.store(run.sequence, expired) and isinstance(expired.run.end, Failed):
                    log.warning("run %s is out of time: %s", run_id, expired.run.end.reason)
                continue
            try:
                decided = decide(run, at)
            except WorkflowLookupError:
                if is_cached and not self._cache.is_current(run):
                    continue
                raise
            if isinstance(decided, Run):
                if is_cached and not self._cache.is_current(run):
                    continue
                return decided
            if run.unverified and not run.is_over and not isinstance(decided.records[0].event, events.Cancelled):
                raise RunUnproven(run.unverified[0], run_id)
            if self.store(run.sequence, decided):
                return decided.run
        message = "Other processes kept changing the run. Check its state with workflow_status, and try again."
        raise RunStateError(message, runId=run_id)

    def store(self, expected: int, draft: Draft) -> bool:
        """Append the records of a draft; False when another process has changed the run."""
        try:
            head = self.journal.append(draft.run.id, expected, draft.records, summarise(draft.run), draft.run.head)
        except Conflict:
            return False
        draft.run = msgspec.structs.replace(draft.run, head=head)
        self._cache.offer(draft.run)
        _audit_action(draft)
        self.notify(draft.run.id, draft.run)
        return True

    def notify(self, run_id: str, run: Run | None) -> None:
        """Call the listeners; within `do_all`, after the commit."""
        if self._uncommitted is not None:
            self._uncommitted.append((run_id, run))
            return
        for listener in tuple(self.listeners):
            listener(run_id, run)

    def do_all(self, pieces: Sequence[Callable[[], T]]) -> list[T | Exception]:
        """Do several pieces of work, in one commit if the journal can; returns what each returned or raised, in order.

        A piece may be done twice: if the commit fails, it is rolled back, and each piece is done by itself.
        """
        group = self.journal.group() if len(pieces) > 1 else None
        outcomes = self._do_grouped(group, pieces) if group is not None else None
        return outcomes if outcomes is not None else [_outcome(piece) for piece in pieces]

    def _do_grouped(
        self, group: contextlib.AbstractContextManager[None], pieces: Sequence[Callable[[], T]]
    ) -> list[T | Exception] | None:
        """As `do_all`, in one commit; None when it was rolled back."""
        changes: list[tuple[str, Run | None]] = []
        self._uncommitted = changes
        try:
            with group:
                outcomes = [_decision(piece) for piece in pieces]
        except Exception as problem:  # noqa: BLE001 - raised again when the piece is done by itself
            log.debug("%d pieces of work could not be stored in one commit: %r", len(pieces), problem)
            for run_id, _ in changes:
                self._cache.forget(run_id)
            return None
        finally:
            self._uncommitted = None
        for run_id, run in changes:
            self.notify(run_id, run)
        return outcomes


ACTIONS: Final[Mapping[type, str]] = {
    events.Started: "start",
    events.OutputAccepted: "submit",
    events.OutputRefused: "submit, refused",
    events.ProofsDue: "submit",
    events.ProofTaken: "prove",
    events.ContextChanged: "supply",
    events.ConfirmationGiven: "confirm",
    events.ConfirmationDenied: "deny",
    events.ConfirmationDismissed: "dismiss",
    events.Cancelled: "cancel",
    events.Paused: "pause",
    events.Resumed: "resume",
    events.StopBlocked: "stop, blocked",
    events.StopReleased: "stop, released",
    events.SessionChanged: "change session",
    events.ToolRefused: "use, refused",
}
"""Actions in the audit log, by the first event of a change that is one of these."""


def _audit_action(draft: Draft) -> None:
    """Write the change to the audit log, if a caller made it: events of the server have no `by`."""
    for record in draft.records:
        action = ACTIONS.get(type(record.event))
        if action is not None and record.by:
            step = getattr(record.event, "step_id", "")
            audit(action, by=record.by, run=draft.run.id, workflow=draft.run.workflow.id, step=step)
            return


def _outcome(piece: Callable[[], T]) -> T | Exception:
    try:
        return piece()
    except Exception as problem:  # noqa: BLE001 - raised where the result is awaited
        return problem


def _decision(piece: Callable[[], T]) -> T | Exception:
    """What a piece returns, or the refusal that it raises. Other exceptions propagate, to roll the commit back."""
    try:
        return piece()
    except StorageError:
        raise
    except WorkflowLookupError as refusal:
        return refusal


def moment(time: int, by: str) -> Moment:
    """The moment of a call by this caller."""
    by = by.replace("\0", "")  # PostgreSQL cannot store NUL in text
    return Moment(time=time, by=by, nonce=secrets.token_hex(8))
