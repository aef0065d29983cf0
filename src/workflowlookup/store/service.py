"""The service: runs are started, advanced, looked at and ended here, each call one append to the journal.

What a call means is decided by `core.advance` on the run as the journal has it; the journal refuses the append when
somebody was faster, and the call is decided anew. An answer is given only after its events are stored.
"""

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from workflowlookup import extras
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import (
    JournalUnavailable,
    RunDamaged,
    RunNotFound,
    RunStateError,
    StorageError,
    WorkflowLookupError,
)
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Context, Json
from workflowlookup.logs import audit
from workflowlookup.runs import advance, events, server_calls
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.events import (
    ConfirmationDenied,
    ConfirmationGiven,
    Failed,
    How,
    OutputAccepted,
    OutputRefused,
    Record,
    Started,
)
from workflowlookup.runs.run import Run, State, Waiting, apply, fold, submission_key
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.store.imports import as_imported, read_foreign, refuse_future
from workflowlookup.store.journal import (
    Conflict,
    DamagedJournal,
    Journal,
    NoRoom,
    ReadOnly,
    RunQuery,
    RunSummary,
    now,
    summarise,
)
from workflowlookup.store.run_cache import SLICE, RunCache, revision_of
from workflowlookup.store.runs_view import JournalWatch
from workflowlookup.trust import NO_CONSENT, Consent

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CHARACTERS: Final = 64 << 20
"""How many characters the outputs of a run may have that are submitted: a run is in memory whole while it is used."""
MAX_TRIES: Final = 5
"""How often a call is decided anew because somebody was faster."""
PROGRESS_PAUSE: Final = 1_000
"""Milliseconds between two reports of a call that are stored."""
PAGE: Final = 1_000
"""How many runs are read at once where all are wanted."""
MAX_REFUSALS: Final = 10_000
"""How many runs a process remembers the last refusal of."""
CLOCK_SKEW: Final = 60_000
"""By how many milliseconds the clocks of those who share a journal may differ."""


def _new_id() -> str:
    return secrets.token_hex(6)


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """A change that is recognised when it is sent again: where its outcome is unknown, the refusal says so."""
    try:
        yield
    except JournalUnavailable as problem:
        if not problem.is_unknown:
            raise
        raise problem.as_repeatable() from problem


class Runs:
    """The runs of one journal."""

    def __init__(
        self,
        journal: Journal,
        *,
        clock: Callable[[], int] = now,
        new_id: Callable[[], str] = _new_id,
        consent: Consent = NO_CONSENT,
    ) -> None:
        """`consent`: what workflows that repositories brought may do; by default nothing."""
        self.journal = journal
        self.consent = consent
        self._clock = clock
        self._new_id = new_id
        self._cache = RunCache(journal)
        self._refusals: BoundedCache[str, int] = BoundedCache(MAX_REFUSALS)
        """By run: the sequence of the last refusal that this process has answered."""
        self.listeners: list[Callable[[str, Run | None], None]] = []
        """Hear of each run that is changed here, as it is then; None when it is gone."""
        self._uncommitted: list[tuple[str, Run | None]] | None = None
        """While several pieces of work are done in one commit: the changes that listeners will hear of."""

    # ── what moves a run ────────────────────────────────────────────────────────────────────────────────────────

    def start(  # noqa: PLR0913 - all that a run begins with
        self,
        workflow: Workflow,
        given: Context,
        context: Context,
        *,
        run_id: str | None = None,
        by: str = "",
        timeout: float | None = None,
    ) -> Run:
        """A new run, at its first step, with so many seconds for all of it, without the time of persons.

        With the id of a run that was started alike: that run, as it is now.

        Raises `InvalidParams` for an input or a context that does not fit, `RunStateError` for an id that is taken,
        `Untrusted` for a workflow that would do what a repository brought and nobody trusted, `MissingExtra` for one
        with calls that cannot be made here.
        """
        for _ in range(MAX_TRIES):
            if run_id is not None and self.journal.head(run_id) is not None:
                return self._started_alike(run_id, workflow, given, context)
            if workflow.has_calls:
                extras.require(extras.CALLS)
            self.consent.refuse_untrusted(workflow.origin, workflow.document)
            at = _moment(self._clock(), by)
            draft = advance.begin(run_id or self._new_id(), workflow, given, context, at, timeout=timeout)
            with _repeatable() if run_id is not None else contextlib.nullcontext():
                is_stored = self._store(0, draft)
            if is_stored:
                return draft.run
        raise RunStateError("No id could be found for the run. Try again.")

    def _started_alike(self, run_id: str, workflow: Workflow, given: Context, context: Context) -> Run:
        run = self.get(run_id)
        started = self.journal.read(run_id, limit=1)[0].event
        alike = isinstance(started, Started) and started.input == given and started.context == {**given, **context}
        if run.workflow.id == workflow.id and alike:
            return run
        message = (
            f"There is a run '{run_id}' of workflow '{run.workflow.id}' that was started otherwise. Use another id."
        )
        raise RunStateError(message, runId=run_id, state=run.state, workflowId=run.workflow.id)

    def submit(self, run_id: str, step_id: str, output: str, changes: Context, *, by: str = "") -> Run:
        """The run after an output; for one that was submitted before, the run as it is now.

        An output that was refused counts again when it is sent again, unless that may be a retry whose answer was lost:
        it is the last that was said of the run, and this process has not answered it yet.

        Raises what `advance.submit` does, and `RunNotFound`.
        """
        key = submission_key(step_id, output, changes)

        def decide(run: Run, at: Moment) -> Draft | Run:
            if key in run.submissions and not self._is_new_attempt(run, step_id, key):
                return run
            if run.characters + len(output) > MAX_CHARACTERS:
                message = (
                    f"The outputs of the run have {run.characters:,} characters; with this one they would have more "
                    f"than {MAX_CHARACTERS:,}. Put long outputs into files, and submit where they are."
                )
                raise RunStateError(message, runId=run.id, state=run.state, stepId=step_id)
            return advance.submit(run, step_id, output, changes, at)

        with _repeatable():
            run = self._move(run_id, by, decide)
        if isinstance(run.last_submission, OutputRefused) and run.last_submission.key == key:
            self._refusals[run_id] = run.submissions[key]
        return run

    def earlier_verdict(
        self, run: Run, step_id: str, output: str, changes: Context
    ) -> OutputAccepted | OutputRefused | None:
        """The verdict on a submission that was sent before, if the run has gone on since."""
        key = submission_key(step_id, output, changes)
        is_last = run.last_submission is not None and run.last_submission.key == key
        sequence = 0 if is_last else run.submissions.get(key, 0)
        event = self.journal.read(run.id, sequence - 1, 1)[0].event if sequence else None
        return event if isinstance(event, OutputAccepted | OutputRefused) else None

    def _is_new_attempt(self, run: Run, step_id: str, key: str) -> bool:
        """Whether an output that was refused before is a new attempt: its refusal was answered."""
        if run.waiting_for is not Waiting.OUTPUT or run.current != step_id:
            return False
        is_last = run.last_submission is not None and run.last_submission.key == key
        return not is_last or self._refusals.get(run.id) == run.submissions[key]

    def supply(self, run_id: str, loop_id: str, changes: Context, *, by: str = "") -> Run:
        """The run after the variables that it waits for; as it is now when they were sent before.

        Raises what `advance.supply` does, and `RunNotFound`.
        """
        key = submission_key(loop_id, "", changes)

        def decide(run: Run, at: Moment) -> Draft | Run:
            return run if key in run.submissions else advance.supply(run, loop_id, changes, at)

        with _repeatable():
            return self._move(run_id, by, decide)

    def confirm(  # noqa: PLR0913 - all that an answer is
        self,
        run_id: str,
        step_id: str = "",
        *,
        how: How,
        question: str = "",
        note: str = "",
        answers: Context = advance.NO_ANSWERS,
        by: str = "",
    ) -> Run:
        """The run after a person agreed to a step, the current one unless it is named. Safe to repeat.

        `question` is the id of the one that was shown to them: the answer counts for no other.
        """

        def decide(run: Run, at: Moment) -> Draft | Run:
            step = step_id or run.current
            before = self._answered(run, step, ConfirmationGiven, question, note)
            return before or advance.confirm(run, step, at, how=how, question=question, note=note, answers=answers)

        return self._move(run_id, by, decide)

    def deny(  # noqa: PLR0913 - all that an answer is
        self, run_id: str, step_id: str = "", *, how: How, question: str = "", note: str = "", by: str = ""
    ) -> Run:
        """The run after a person did not agree to a step. Safe to repeat."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            step = step_id or run.current
            before = self._answered(run, step, ConfirmationDenied, question, note)
            return before or advance.deny(run, step, at, how=how, question=question, note=note)

        return self._move(run_id, by, decide)

    def dismiss(self, run_id: str, step_id: str, *, question: str, by: str = "") -> Run:
        """The run after a person closed the form of a question without an answer."""
        return self._move(run_id, by, lambda run, at: advance.dismiss(run, step_id, at, question=question))

    def _answered(
        self, run: Run, step_id: str, kind: type[ConfirmationGiven | ConfirmationDenied], question: str, note: str
    ) -> Run | None:
        """The run as it was after the same answer; None when this one is new."""
        sequence, answer = run.answers.get(step_id, (0, None))
        is_open = run.waiting_for is Waiting.CONFIRMATION and run.current == step_id
        is_same = isinstance(answer, kind) and answer.note == note and question in ("", answer.question)
        if not is_same or (is_open and not question):
            return None
        return fold(run.id, self._cache.records(run.id), until=sequence)

    def cancel(self, run_id: str, reason: str = "", *, by: str = "") -> Run:
        """The run, ended; as it is when it was cancelled before."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            return run if run.state is State.CANCELLED else advance.cancel(run, at, reason)

        return self._move(run_id, by, decide)

    # ── what the server does by itself ──────────────────────────────────────────────────────────────────────────

    def begin_call(self, run_id: str, step_id: str, *, by: str = "") -> Run:
        """The run while its call is made; as it is when the call was begun before, by one who did not come to its end.

        This and the next ones raise `RunStateError` when the run is elsewhere.
        """

        def decide(run: Run, at: Moment) -> Draft | Run:
            self._refuse_elsewhere(run, step_id)
            is_begun = run.calling is not None and run.calling.begun and not run.is_over
            return run if is_begun else server_calls.begin_call(run, at)

        return self._move(run_id, by, decide)

    def acknowledge_call(self, run_id: str, step_id: str, remote_id: str, *, by: str = "") -> Run:
        """The run when the other system has begun one of its own; also one that was ended meanwhile."""
        return self._call(run_id, step_id, by, lambda run, at: server_calls.acknowledge_call(run, remote_id, at))

    def report_call(  # noqa: PLR0913 - all that a call tells
        self, run_id: str, step_id: str, done: float, total: float | None = None, message: str = "", *, by: str = ""
    ) -> Run:
        """The run when its call has told how far it is; it is stored at most once a second, and never goes back."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            before = run.calling.progress if run.calling else None
            if before is not None and run.calling is not None and run.waiting_for is Waiting.CALL:
                is_soon = at.time < run.calling.progressed_at + PROGRESS_PAUSE
                if (
                    is_soon
                    or done < before.done
                    or (done, total, message) == (before.done, before.total, before.message)
                ):
                    return run
            return server_calls.report_call(run, done, total, message, at)

        return self._call(run_id, step_id, by, decide)

    def finish_call(  # noqa: PLR0913 - what came of it
        self,
        run_id: str,
        step_id: str,
        output: str,
        value: Json,
        *,
        by: str = "",
        begins_next: Callable[[Run], bool] = lambda _: False,
    ) -> Run:
        """The run after its call gave a result: the text that is judged, and the value that its variable takes.

        `begins_next` says whether a call that came due by it is begun in the same append.
        """

        def decide(run: Run, at: Moment) -> Draft:
            draft = server_calls.finish_call(run, output, value, at)
            after = draft.run
            is_new = after.waiting_for is Waiting.CALL and after.calling is not None and not after.calling.attempt
            if is_new and begins_next(after):
                begun = server_calls.begin_call(after, at)
                draft.run, draft.records = begun.run, [*draft.records, *begun.records]
            return draft

        return self._call(run_id, step_id, by, decide)

    def fail_call(self, run_id: str, step_id: str, failure: CallFailure, *, by: str = "") -> Run:
        """The run after its call came to nothing: the call is due again, or the run has failed."""
        return self._call(run_id, step_id, by, lambda run, at: server_calls.fail_call(run, failure, at))

    def lose_call(self, run_id: str, step_id: str, reason: str, *, by: str = "") -> Run:
        """The run after its call was started and nobody can be asked how it ended."""
        return self._call(run_id, step_id, by, lambda run, at: server_calls.lose_call(run, reason, at))

    def stop_call(  # noqa: PLR0913 - what became of it
        self,
        run_id: str,
        step_id: str,
        stopped: bool,  # noqa: FBT001
        message: str,
        *,
        is_pending: bool = False,
        by: str = "",
    ) -> Run:
        """The run, which is over, with what became of its call; as it is when nothing new is known."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            before = run.calling.stopped if run.calling is not None else None
            is_known = before is not None and (not before.is_pending or (is_pending and before.told == message))
            return run if is_known else server_calls.stop_call(run, stopped, message, at, is_pending=is_pending)

        return self._call(run_id, step_id, by, decide)

    def _call(self, run_id: str, step_id: str, by: str, decide: Callable[[Run, Moment], Draft | Run]) -> Run:
        def decide_there(run: Run, at: Moment) -> Draft | Run:
            self._refuse_elsewhere(run, step_id)
            return decide(run, at)

        return self._move(run_id, by, decide_there)

    def _refuse_elsewhere(self, run: Run, step_id: str) -> None:
        if run.current != step_id:
            where = f"is at step '{run.current}'" if run.current else f"is {run.state}"
            raise RunStateError(f"The run {where}, not at '{step_id}'.", runId=run.id, state=run.state, stepId=step_id)

    def at_work(self, limit: int = PAGE) -> list[RunSummary]:
        """The runs that the server has to do something for, the one that has waited longest first."""
        return self.journal.at_work(limit)

    def runs_to_stop(self) -> list[str]:
        """The runs that are over and whose call may still be running."""
        return self.journal.runs_to_stop()

    def counts(self) -> dict[str, int]:
        """How many runs are in which state, as of the last change of each."""
        return self.journal.counts()

    def queue_position(self, run_id: str) -> tuple[int, int]:
        """The place of a run among those whose call has still to be begun, from 1, or 0; and how many they are."""
        return self.journal.queue_position(run_id)

    # ── what only looks ─────────────────────────────────────────────────────────────────────────────────────────

    def get(self, run_id: str) -> Run:
        """The run as it is now. Raises `RunNotFound`."""
        run = self._cache.get(run_id)
        if advance.expire(run, Moment(time=max(self._clock(), run.updated))) is None:
            return run
        try:
            with _repeatable():
                return self._move(run_id, "", lambda run, _: run)
        except (ReadOnly, NoRoom):  # that its time is over cannot be stored
            return self._cache.read(run_id)

    def offer(self, run: Run) -> None:
        """Cache a run that was folded elsewhere in this process."""
        self._cache.offer(run)

    def load(self, run_id: str) -> bool:
        """Fold a slice of a long run; True when `get` will be quick, because little is left to fold."""
        return self._cache.load_slice(run_id)

    def after(self, run: Run) -> Run:
        """The run as it was when it rested next after this; the same when it still rests there."""
        for record in self._cache.records(run.id, after=run.sequence):
            run = apply(run, record)
            if run.rests:
                break
        return run

    def workflow_of(self, run_id: str) -> str | None:
        """The id of the workflow that a run is of; None when there is no such run."""
        return self.journal.workflow_of(run_id)

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Of these runs, those that were imported, and where each came from."""
        return self.journal.imported(run_ids)

    def history(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        """The records of a run after a sequence, in order; all, or the first so many. Raises `RunNotFound`."""
        self.get(run_id)
        return self.journal.read(run_id, after, limit)

    def records(self, run_id: str, after: int = 0, limit: int = SLICE) -> list[Record]:
        """The next records of a run as they are, for those who read many; none when there is no such run."""
        return self.journal.read(run_id, after, limit)

    def summaries(self, query: RunQuery) -> list[RunSummary]:
        """A page of runs, the last started first."""
        for run_id in self.journal.overdue(self._clock()):
            with contextlib.suppress(WorkflowLookupError):  # one that is damaged or just gone hides no other
                self.get(run_id)
        return self.journal.summaries(query)

    def all_summaries(self, query: RunQuery | None = None) -> Iterator[RunSummary]:
        """All runs that fit, page by page, the last started first."""
        query = msgspec.structs.replace(query or RunQuery(), limit=PAGE)
        while page := self.summaries(query):
            yield from page
            if len(page) < PAGE:
                return
            query = msgspec.structs.replace(query, after=(page[-1].started, page[-1].id))

    def recent(self, limit: int) -> list[RunSummary]:
        """The runs that were started last."""
        return self.summaries(RunQuery(limit=limit))

    def heads(self) -> dict[str, int]:
        """The last sequence of each run that changed lately, whoever changed it."""
        return self.journal.heads(self._clock() - CLOCK_SKEW)

    def watch(self, listener: Callable[[str], None]) -> JournalWatch:
        """Follow the journal: the listener hears of what this process changes, the watch knows what others do."""
        return JournalWatch(self, listener)

    # ── whole journals ──────────────────────────────────────────────────────────────────────────────────────────

    def import_run(self, run_id: str, records: Sequence[Record], source: str) -> bool:
        """Whether a run from elsewhere was new here; the same run again changes nothing. It keeps where it came from.

        Raises `InvalidParams` and `RunStateError` when it is no run, or when there is another of its id.
        """
        if self.journal.head(run_id) is None:
            refuse_future(run_id, records, self._clock())
            self.store_import(run_id, as_imported(records, source))
            return True
        known = self.journal.read(run_id)
        if as_imported(records, "") == as_imported(known, "") or list(records) == known:
            return False
        message = f"There is a run '{run_id}' already, with other events. Take this one into another journal."
        raise RunStateError(message, runId=run_id)

    def store_import(self, run_id: str, records: Sequence[Record]) -> Run:
        """Take in a run from elsewhere. Raises `InvalidParams` or `RunStateError` when that cannot be."""
        run = read_foreign(run_id, records)
        try:
            self.journal.append(run_id, 0, records, summarise(run))
        except Conflict:
            raise RunStateError(f"There is a run '{run_id}' already.", runId=run_id) from None
        self._tell(run_id, run)
        return run

    def delete(self, run_id: str) -> None:
        """Forget a run. Raises `RunNotFound`."""
        self._cache.forget(run_id)
        if not self.journal.delete(run_id):
            raise self.not_found(run_id)
        self._tell(run_id, None)

    def purge(self, before: int) -> int:
        """Forget the runs that are over and were last touched before a time; how many they were."""
        self._cache.clear()
        return self.journal.purge(before)

    def damaged_runs(self) -> list[RunSummary]:
        """The runs that cannot be read. Reads all of them."""
        return [summary for summary in self.all_summaries() if not self._is_readable(summary.id)]

    def _is_readable(self, run_id: str) -> bool:
        try:
            self._cache.read(run_id)
        except (RunDamaged, RunStateError):
            return False
        except RunNotFound:
            pass  # it was forgotten meanwhile
        return True

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        """The damaged journals that were set aside and are still kept: a run that is missing may be in one."""
        return self.journal.damaged_journals()

    def not_found(self, run_id: str) -> RunNotFound:
        """The refusal of an id that no run has."""
        return self._cache.not_found(run_id)

    def close(self) -> None:
        self.journal.close()

    # ── several at once ─────────────────────────────────────────────────────────────────────────────────────────

    def do_all(self, pieces: Sequence[Callable[["Runs"], T]]) -> list[T | Exception]:
        """What each piece of work returns or raises, in order. They are stored in one commit where the journal can.

        A piece may be done twice: when one of them cannot be stored, the commit is rolled back, and each is done by
        itself.
        """
        group = self.journal.group() if len(pieces) > 1 else None
        outcomes = self._do_grouped(group, pieces) if group is not None else None
        return outcomes if outcomes is not None else [_outcome(piece, self) for piece in pieces]

    def _do_grouped(
        self, group: contextlib.AbstractContextManager[None], pieces: Sequence[Callable[["Runs"], T]]
    ) -> list[T | Exception] | None:
        """As `do_all`; None when the commit was rolled back."""
        changes: list[tuple[str, Run | None]] = []
        self._uncommitted = changes
        try:
            with group:
                outcomes = [_decision(piece, self) for piece in pieces]
        except Exception as problem:  # noqa: BLE001 - it is raised again where a piece is done by itself
            log.debug("%d pieces of work could not be stored in one commit: %r", len(pieces), problem)
            for run_id, _ in changes:
                self._cache.forget(run_id)
            return None
        finally:
            self._uncommitted = None
        for run_id, run in changes:
            self._tell(run_id, run)
        return outcomes

    # ── between the journal and the fold ────────────────────────────────────────────────────────────────────────

    def _move(self, run_id: str, by: str, decide: Callable[[Run, Moment], Draft | Run]) -> Run:
        """Decide on the run as it is, and store what was decided; anew when somebody was faster.

        A run in the cache is taken as it is at first: the journal refuses what builds on an old one, and what is not
        stored counts only when the run is still the same.
        """
        folded = self._cache.peek(run_id)
        for _ in range(MAX_TRIES):
            run, is_cached = folded or self._cache.read(run_id), folded is not None
            folded = None
            at = _moment(max(self._clock(), run.updated), by)
            expired = advance.expire(run, Moment(time=at.time))
            if expired is not None:
                if self._store(run.sequence, expired) and isinstance(expired.run.end, Failed):
                    log.warning("run %s is out of time: %s", run_id, expired.run.end.reason)
                continue
            try:
                decided = decide(run, at)
            except WorkflowLookupError:
                if is_cached and self.journal.revision(run_id) != revision_of(run):
                    continue
                raise
            if isinstance(decided, Run):
                if is_cached and self.journal.revision(run_id) != revision_of(run):
                    continue
                return decided
            if self._store(run.sequence, decided):
                return decided.run
        self._cache.refuse_contradictions(run_id)
        message = "Others kept moving the run at the same time. Look at it with workflow_status, and try again."
        raise RunStateError(message, runId=run_id)

    def _store(self, expected: int, draft: Draft) -> bool:
        """Whether the records could be appended; False when somebody was faster."""
        try:
            self.journal.append(draft.run.id, expected, draft.records, summarise(draft.run))
        except Conflict:
            return False
        self._cache.offer(draft.run)
        _audit_action(draft)
        self._tell(draft.run.id, draft.run)
        return True

    def _tell(self, run_id: str, run: Run | None) -> None:
        if self._uncommitted is not None:
            self._uncommitted.append((run_id, run))
            return
        for listener in tuple(self.listeners):
            listener(run_id, run)


ACTIONS: Final[Mapping[type, str]] = {
    events.Started: "start",
    events.OutputAccepted: "submit",
    events.OutputRefused: "submit, refused",
    events.ContextChanged: "supply",
    events.ConfirmationGiven: "confirm",
    events.ConfirmationDenied: "deny",
    events.ConfirmationDismissed: "dismiss",
    events.Cancelled: "cancel",
}
"""What somebody did to a run, by the first event of it that is one of these; for the audit log."""


def _audit_action(draft: Draft) -> None:
    """Record what was done, if somebody did it: what the server does by itself has no name."""
    for record in draft.records:
        action = ACTIONS.get(type(record.event))
        if action is not None and record.by:
            step = getattr(record.event, "step_id", "")
            audit(action, by=record.by, run=draft.run.id, workflow=draft.run.workflow.id, step=step)
            return


def _outcome(piece: Callable[[Runs], T], runs: Runs) -> T | Exception:
    try:
        return piece(runs)
    except Exception as problem:  # noqa: BLE001 - it is raised where the work was asked for
        return problem


def _decision(piece: Callable[[Runs], T], runs: Runs) -> T | Exception:
    """What a piece returns, or the refusal that it raises; what else it raises may have left something half written."""
    try:
        return piece(runs)
    except StorageError:
        raise
    except WorkflowLookupError as refusal:
        return refusal


def _moment(time: int, by: str) -> Moment:
    by = by.replace("\0", "")  # which no text in PostgreSQL may hold
    return Moment(time=time, by=by, nonce=secrets.token_hex(8))
