"""The service that starts, advances, reads and ends runs. Each change is one append to the journal.

`runs.advance` decides which events follow from a call. If another process has changed the run meanwhile, the journal
refuses the append, and the call is decided again. A method returns only after its events are stored.
"""

import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from workflowlookup import extras
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import (
    InvalidParams,
    JournalUnavailable,
    RunDamaged,
    RunNotFound,
    RunStateError,
    RunUnproven,
    StorageError,
    WorkflowLookupError,
)
from workflowlookup.language.model import Workflow
from workflowlookup.language.patterns import Budget
from workflowlookup.language.values import Context, Json
from workflowlookup.logs import audit
from workflowlookup.runs import advance, events, proofs, server_calls, witnessing
from workflowlookup.runs.draft import NOWHERE, Draft, Location, Moment, submission_key
from workflowlookup.runs.events import (
    ConfirmationDenied,
    ConfirmationGiven,
    Failed,
    How,
    Judgement,
    OutputAccepted,
    OutputRefused,
    Record,
    Signature,
    Snapshot,
    Started,
)
from workflowlookup.runs.exchange import refuse_changed
from workflowlookup.runs.fold import apply, fold
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.runs.signing import NoPeople, People, refuse_unproven
from workflowlookup.runs.witnessing import WitnessReport, WitnessTask
from workflowlookup.store.imports import as_imported, check_import, refuse_future, without_source
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
from workflowlookup.store.run_cache import SLICE, RunCache
from workflowlookup.store.runs_view import JournalWatch
from workflowlookup.trust import NO_CONSENT, Consent

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CHARACTERS: Final = 64 << 20
"""Of all submitted outputs of a run, because a run in use is in memory as a whole."""
MAX_TRIES: Final = 5
"""How often a call is decided while other processes keep changing the run."""
PROGRESS_PAUSE: Final = 1_000
"""Milliseconds between two stored progress reports of a call."""
PAGE: Final = 1_000
"""How many summaries are read at once when all are needed."""
MAX_REFUSALS: Final = 10_000
"""For how many runs a process remembers the last refusal."""
CLOCK_SKEW: Final = 60_000
"""By how many milliseconds the clocks of processes that share a journal may differ."""


def _new_id() -> str:
    return secrets.token_hex(6)


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """For a change that is recognised when it is sent again: an unknown outcome is reported as safe to repeat."""
    try:
        yield
    except JournalUnavailable as problem:
        if not problem.is_unknown:
            raise
        raise problem.as_repeatable() from problem


class Runs:
    """The runs of one journal."""

    def __init__(  # noqa: PLR0913 - all that the runs of a server need
        self,
        journal: Journal,
        *,
        clock: Callable[[], int] = now,
        new_id: Callable[[], str] = _new_id,
        consent: Consent = NO_CONSENT,
        locate: Callable[[], Location] = lambda: NOWHERE,
        people: People | None = None,
        began: int | None = None,
    ) -> None:
        """`consent`: what workflows that came with a repository may do; by default nothing. `locate` says where a run
        starts, `began` when this process did. `people`: who can sign answers; by default nobody.
        """
        self.journal = journal
        self._began = clock() if began is None else began
        self._locate = locate
        self._people = people or NoPeople()
        self.consent = consent
        self._clock = clock
        self._new_id = new_id
        self._cache = RunCache(journal, self._people)
        self._refusals: BoundedCache[str, int] = BoundedCache(MAX_REFUSALS)
        """By run: the sequence of the last refusal that this process has answered."""
        self.listeners: list[Callable[[str, Run | None], None]] = []
        """Called after each change by this process, with the run's id and the run; None when it was deleted."""
        self._uncommitted: list[tuple[str, Run | None]] | None = None
        """Within `do_all`: the changes that listeners are called for after the commit."""

    # ── by agents and people ────────────────────────────────────────────────────────────────────────────────────

    def start(  # noqa: PLR0913 - everything a run starts with
        self,
        workflow: Workflow,
        inputs: Context,
        context: Context,
        *,
        run_id: str | None = None,
        by: str = "",
        timeout: float | None = None,
    ) -> Run:
        """Start a run, and return it at its first step. `timeout`: in seconds, without the time it waits for people.

        If a run with this id was started with the same values, it is returned in its current state.

        Raises `InvalidParams` for an invalid input or context, `RunStateError` for an id that is taken, `Untrusted` for
        a workflow from a repository that nobody trusted, `MissingExtra` for calls that this installation cannot make.
        """
        for _ in range(MAX_TRIES):
            if run_id is not None and self.journal.head(run_id) is not None:
                return self._same_start(run_id, workflow, inputs, context)
            if workflow.has_calls:
                extras.require(extras.CALLS)
            self.consent.refuse_untrusted(workflow.origin, workflow.document)
            at = _moment(self._clock(), by)
            draft = advance.begin(
                run_id or self._new_id(), workflow, inputs, context, at, timeout=timeout, location=self._locate()
            )
            with _repeatable() if run_id is not None else contextlib.nullcontext():
                is_stored = self._store(0, draft)
            if is_stored:
                return draft.run
        raise RunStateError("No id could be found for the run. Try again.")

    def _same_start(self, run_id: str, workflow: Workflow, inputs: Context, context: Context) -> Run:
        run = self.get(run_id)
        started = self.journal.read(run_id, limit=1)[0].event
        is_same = isinstance(started, Started) and started.input == inputs and started.context == {**inputs, **context}
        if run.workflow.id == workflow.id and is_same:
            return run
        message = (
            f"There is a run '{run_id}' of workflow '{run.workflow.id}' that was started with other values. "
            "Use another id."
        )
        raise RunStateError(message, runId=run_id, state=run.state, workflowId=run.workflow.id)

    def submit(self, run_id: str, step_id: str, output: str, changes: Context, *, by: str = "") -> Run:
        """Submit an output; returns the run after it. For an output that was submitted before, the current run.

        A refused output that is sent again counts as a new attempt, unless it may be a retry whose answer was lost:
        its refusal is the last event of the run, and this process has not answered with it yet. An output that a proof
        refused before this process began is always a new attempt.

        Raises `RunNotFound` and the errors of `advance.submit`.
        """
        key = submission_key(step_id, output, changes)

        def decide(run: Run, at: Moment) -> Draft | Run:
            if run.waiting_for is Waiting.PROOF and run.proving is not None and run.proving.request.key == key:
                return run  # it is being proven
            if key in run.submissions and not self._is_new_attempt(run, step_id, key):
                return run
            if run.characters + len(output) > MAX_CHARACTERS:
                message = (
                    f"The outputs of the run have {run.characters:,} characters; with this one they would have more "
                    f"than {MAX_CHARACTERS:,}. Put long outputs into files, and submit their paths."
                )
                raise RunStateError(message, runId=run.id, state=run.state, stepId=step_id)
            return advance.submit(run, step_id, output, changes, at)

        with _repeatable():
            run = self._move(run_id, by, decide)
        if run.last_submission is not None and run.last_submission.key == key:
            self.note_answered(run)
        return run

    def note_answered(self, run: Run) -> None:
        """Note that a client has got the refusal of the last output. If it sends that again, this is a new attempt."""
        if isinstance(run.last_submission, OutputRefused):
            self._refusals[run.id] = run.submissions.get(run.last_submission.key, 0)

    def earlier_verdict(
        self, run: Run, step_id: str, output: str, changes: Context
    ) -> OutputAccepted | OutputRefused | None:
        """The verdict on a submission that was sent before, if the run has moved on since."""
        key = submission_key(step_id, output, changes)
        if run.proving is not None and run.proving.request.key == key:
            return None
        is_last = run.last_submission is not None and run.last_submission.key == key
        sequence = 0 if is_last else run.submissions.get(key, 0)
        event = self.journal.read(run.id, sequence - 1, 1)[0].event if sequence else None
        return event if isinstance(event, OutputAccepted | OutputRefused) else None

    def _is_new_attempt(self, run: Run, step_id: str, key: str) -> bool:
        """Whether an output that was refused before is sent as a new attempt: the client got the refusal."""
        if run.waiting_for is not Waiting.OUTPUT or run.current != step_id:
            return False
        is_last = run.last_submission is not None and run.last_submission.key == key
        is_of_earlier_process = run.updated < self._began and step_id in run.proofs  # what is proven may have changed
        return not is_last or is_of_earlier_process or self._refusals.get(run.id) == run.submissions[key]

    def supply(self, run_id: str, loop_id: str, changes: Context, *, by: str = "") -> Run:
        """Supply the variables that a loop waits for. Safe to repeat.

        Raises `RunNotFound` and the errors of `advance.supply`.
        """
        key = submission_key(loop_id, "", changes)

        def decide(run: Run, at: Moment) -> Draft | Run:
            return run if key in run.submissions else advance.supply(run, loop_id, changes, at)

        with _repeatable():
            return self._move(run_id, by, decide)

    def confirm(  # noqa: PLR0913 - everything an answer has
        self,
        run_id: str,
        step_id: str = "",
        *,
        how: How,
        question: str = "",
        note: str = "",
        answers: Context = advance.NO_ANSWERS,
        signature: Signature | None = None,
        by: str = "",
    ) -> Run:
        """Store that a person agreed to a step, by default the current one. Safe to repeat.

        `question`: the id of the question that the person saw. The answer does not count for another one.
        Raises the errors of `advance.confirm` and `signing.refuse_unproven`.
        """

        def decide(run: Run, at: Moment) -> Draft | Run:
            step = step_id or run.current
            answered = self._answered(run, step, ConfirmationGiven, question, note)
            return answered or self._proven(
                run,
                advance.confirm(
                    run, step, at, how=how, question=question, note=note, answers=answers, signature=signature
                ),
            )

        return self._move(run_id, by, decide)

    def deny(  # noqa: PLR0913 - everything an answer has
        self,
        run_id: str,
        step_id: str = "",
        *,
        how: How,
        question: str = "",
        note: str = "",
        signature: Signature | None = None,
        by: str = "",
    ) -> Run:
        """Store that a person did not agree to a step. Safe to repeat. Raises as `confirm`."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            step = step_id or run.current
            answered = self._answered(run, step, ConfirmationDenied, question, note)
            return answered or self._proven(
                run, advance.deny(run, step, at, how=how, question=question, note=note, signature=signature)
            )

        return self._move(run_id, by, decide)

    def _proven(self, run: Run, draft: Draft) -> Draft:
        """The draft of an answer, if the answer counts."""
        record = draft.records[0]
        if isinstance(record.event, ConfirmationGiven | ConfirmationDenied):
            refuse_unproven(self._people, run, record.event, record.time)
        return draft

    def dismiss(self, run_id: str, step_id: str, *, question: str, by: str = "") -> Run:
        """Store that a person closed the form of a question without an answer."""
        return self._move(run_id, by, lambda run, at: advance.dismiss(run, step_id, at, question=question))

    def _answered(
        self, run: Run, step_id: str, kind: type[ConfirmationGiven | ConfirmationDenied], question: str, note: str
    ) -> Run | None:
        """The run as it was after the same answer was given before; None when this answer is new."""
        sequence, answer = run.answers.get(step_id, (0, None))
        is_open = run.waiting_for is Waiting.CONFIRMATION and run.current == step_id
        is_same = isinstance(answer, kind) and answer.note == note and question in ("", answer.question)
        if not is_same or (is_open and not question):
            return None
        return fold(run.id, self._cache.records(run.id), until=sequence)

    def cancel(self, run_id: str, reason: str = "", *, by: str = "") -> Run:
        """Cancel a run. Safe to repeat."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            return run if run.state is State.CANCELLED else advance.cancel(run, at, reason)

        return self._move(run_id, by, decide)

    def pause(self, run_id: str, reason: str = "", *, by: str = "") -> Run:
        """Pause a run, so that hooks leave the agent alone. Safe to repeat."""
        return self._move(run_id, by, lambda run, at: run if run.is_paused else advance.pause(run, at, reason))

    def resume(self, run_id: str, *, by: str = "") -> Run:
        """End the pause of a run. Safe to repeat."""
        return self._move(run_id, by, lambda run, at: advance.resume(run, at) if run.is_paused else run)

    def block_stop(self, run_id: str, *, agent: str = "", by: str = "") -> Run:
        """Store that the agent wants to stop; after that, `is_released` says whether it may."""
        return self._move(run_id, by, lambda run, at: run if run.is_released else advance.block_stop(run, at, agent))

    def refuse_tool(self, run_id: str, tool: str, pattern: str, *, by: str = "") -> Run:
        """Store that a tool was refused."""
        return self._move(run_id, by, lambda run, at: advance.refuse_tool(run, at, tool, pattern))

    def open_runs(self, root: str) -> list[str]:
        """The runs of a project that are not over, the last started first."""
        return self.journal.open_runs(root)

    # ── calls by the server ─────────────────────────────────────────────────────────────────────────────────────

    def begin_call(self, run_id: str, step_id: str, *, by: str = "") -> Run:
        """Store that the call of a step begins, unless a process that did not finish it has stored that before.

        This and the following methods raise `RunStateError` when the run is at another step.
        """

        def decide(run: Run, at: Moment) -> Draft | Run:
            self._require_step(run, step_id)
            is_begun = run.calling is not None and run.calling.begun and not run.is_over
            return run if is_begun else server_calls.begin_call(run, at)

        return self._move(run_id, by, decide)

    def acknowledge_call(self, run_id: str, step_id: str, remote_id: str, *, by: str = "") -> Run:
        """Store the id of the run that another system started for the call; also after our run has ended."""
        return self._move_call(run_id, step_id, by, lambda run, at: server_calls.acknowledge_call(run, remote_id, at))

    def report_call(  # noqa: PLR0913 - everything a report has
        self, run_id: str, step_id: str, done: float, total: float | None = None, message: str = "", *, by: str = ""
    ) -> Run:
        """Store the progress of a call, at most once a second. Progress never decreases."""

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

        return self._move_call(run_id, step_id, by, decide)

    def finish_call(  # noqa: PLR0913 - everything a result has
        self,
        run_id: str,
        step_id: str,
        output: str,
        value: Json,
        *,
        by: str = "",
        begins_next: Callable[[Run], bool] = lambda _: False,
    ) -> Run:
        """Store the result of a call: the text that is validated, and the value of its variable.

        `begins_next`: whether the call of the next step, if it has one, is begun in the same append.
        """

        def decide(run: Run, at: Moment) -> Draft:
            draft = server_calls.finish_call(run, output, value, at)
            after = draft.run
            is_new = after.waiting_for is Waiting.CALL and after.calling is not None and not after.calling.attempt
            if is_new and begins_next(after):
                begun = server_calls.begin_call(after, at)
                draft.run, draft.records = begun.run, [*draft.records, *begun.records]
            return draft

        return self._move_call(run_id, step_id, by, decide)

    def fail_call(self, run_id: str, step_id: str, failure: CallFailure, *, by: str = "") -> Run:
        """Store that a call failed: it is due again, or the run has failed."""
        return self._move_call(run_id, step_id, by, lambda run, at: server_calls.fail_call(run, failure, at))

    def lose_call(self, run_id: str, step_id: str, reason: str, *, by: str = "") -> Run:
        """Store that a call was started and that its outcome cannot be determined."""
        return self._move_call(run_id, step_id, by, lambda run, at: server_calls.lose_call(run, reason, at))

    def stop_call(  # noqa: PLR0913 - everything a stop has
        self,
        run_id: str,
        step_id: str,
        stopped: bool,  # noqa: FBT001
        message: str,
        *,
        is_pending: bool = False,
        by: str = "",
    ) -> Run:
        """Store whether the call of a run that is over was stopped. Nothing is stored when that is not new."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            before = run.calling.stopped if run.calling is not None else None
            is_stored = before is not None and (not before.is_pending or (is_pending and before.told == message))
            return run if is_stored else server_calls.stop_call(run, stopped, message, at, is_pending=is_pending)

        return self._move_call(run_id, step_id, by, decide)

    def _move_call(self, run_id: str, step_id: str, by: str, decide: Callable[[Run, Moment], Draft | Run]) -> Run:
        def decide_at_step(run: Run, at: Moment) -> Draft | Run:
            self._require_step(run, step_id)
            return decide(run, at)

        return self._move(run_id, by, decide_at_step)

    def _require_step(self, run: Run, step_id: str) -> None:
        if run.current != step_id:
            where = f"is at step '{run.current}'" if run.current else f"is {run.state}"
            raise RunStateError(f"The run {where}, not at '{step_id}'.", runId=run.id, state=run.state, stepId=step_id)

    # ── proofs by the server ────────────────────────────────────────────────────────────────────────────────────

    def take_snapshot(
        self, run_id: str, step_id: str, since: Literal["run", "step"], snapshot: Snapshot, *, by: str = ""
    ) -> Run:
        """Store a snapshot of the root. This and the following methods raise `RunStateError` when it is not due."""
        return self._move_call(run_id, step_id, by, lambda run, at: proofs.take_snapshot(run, since, snapshot, at))

    def take_proof(self, run_id: str, step_id: str, judgement: Judgement, *, by: str = "") -> Run:
        """Store what was seen when a proof was taken, and what follows if it is the last."""
        return self._move_call(run_id, step_id, by, lambda run, at: proofs.take_proof(run, judgement, at))

    def claim_proof(self, run_id: str, witness: str, seconds: float, *, by: str = "") -> WitnessTask:
        """Store that a witness takes what is due next, and return that. Raises `RunStateError` if it cannot."""

        def decide(run: Run, at: Moment) -> Draft:
            task = witnessing.task_of(run, seconds, at.budget) if witnessing.may_be_witnessed(run) else None
            if task is None:
                raise RunStateError("A witness can take nothing of this run now.", runId=run_id)
            until = at.time + int(seconds * 1000)
            claimed = events.ProofClaimed(step_id=task.step_id, name=task.name, witness=witness, until=until)
            return proofs.claim(run, claimed, at)

        run = self._move(run_id, by, decide)
        task = witnessing.task_of(run, seconds, Budget())
        assert task is not None  # a claim leaves it due
        return task

    def renew_claim(self, report: WitnessReport, witness: str, seconds: float, *, by: str = "") -> Run:
        """Extend a claim of which a third or less is left. Raises `RunStateError` if the witness has none."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            witnessing.refuse_unclaimed(run, report, witness)
            claim = run.proving.claim if run.proving is not None else None
            if claim is not None and claim.until - at.time > seconds * 1000 / 3:
                return run
            until = at.time + int(seconds * 1000)
            renewed = events.ProofClaimed(step_id=report.step_id, name=report.name, witness=witness, until=until)
            return proofs.claim(run, renewed, at)

        return self._move(report.run_id, by, decide)

    def report_proof(self, report: WitnessReport, witness: str, caller: str, *, by: str = "") -> Run:
        """Store what a witness saw. Safe to repeat. Raises `InvalidParams`, and `RunStateError` if it is not due."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            sent = witnessing.checked(run, report, caller)
            try:
                witnessing.refuse_unclaimed(run, sent, witness)
            except RunStateError:
                if witnessing.is_reported(run, sent):
                    return run
                raise
            if sent.judgement is not None:
                return proofs.take_proof(run, sent.judgement, at)
            task = witnessing.task_of(run, 0.0, at.budget)
            if task is None or task.since is None or sent.snapshot is None:
                raise RunStateError("No snapshot is due.", runId=run.id)
            return proofs.take_snapshot(run, task.since, sent.snapshot, at)

        return self._move(report.run_id, by, decide)

    def conclude_proofs(self, run_id: str, step_id: str, *, by: str = "") -> Run:
        """Store what follows when nothing is due any more."""
        return self._move_call(run_id, step_id, by, proofs.conclude)

    def at_work(self, limit: int = PAGE) -> list[RunSummary]:
        """The runs that wait for a call or proofs by the server, the longest waiting first."""
        return self.journal.at_work(limit)

    def runs_to_stop(self) -> list[str]:
        """The runs that are over and whose call may still be running."""
        return self.journal.runs_to_stop()

    def counts(self) -> dict[str, int]:
        """The number of runs in each state. Deadlines that passed since a run's last change are not counted."""
        return self.journal.counts()

    def queue_position(self, run_id: str) -> tuple[int, int]:
        """The position of a run in the queue of calls that are not begun yet, from 1, or 0; and the queue's length."""
        return self.journal.queue_position(run_id)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, run_id: str) -> Run:
        """The current run. Raises `RunNotFound`."""
        run = self._cache.get(run_id)
        if advance.expire(run, Moment(time=max(self._clock(), run.updated))) is None:
            return run
        try:
            with _repeatable():
                return self._move(run_id, "", lambda run, _: run)
        except (ReadOnly, NoRoom):  # that its deadline has passed cannot be stored
            return self._cache.read(run_id)

    def offer(self, run: Run) -> None:
        """Cache a run that was folded elsewhere in this process."""
        self._cache.offer(run)

    def load_slice(self, run_id: str) -> bool:
        """Fold a slice of a long run; True when `get` will be quick, because little is left to fold."""
        return self._cache.load_slice(run_id)

    def after(self, run: Run) -> Run:
        """The run at its next resting point after this one; the same when there is none yet."""
        for record in self._cache.records(run.id, run.sequence, run.head):
            run = apply(run, record)
            if run.rests:
                break
        return run

    def workflow_of(self, run_id: str) -> str | None:
        """The id of a run's workflow; None when there is no such run."""
        return self.journal.workflow_of(run_id)

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Those of these runs that were imported, each with its source."""
        return self.journal.imported(run_ids)

    def history(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        """The records of a run after a sequence; all, or the first `limit`. Raises `RunNotFound`."""
        self.get(run_id)
        return self.journal.read(run_id, after, limit)

    def records(self, run_id: str, after: int = 0, limit: int = SLICE) -> list[Record]:
        """The next records of a run, without checking the run; empty when there is no such run."""
        return self.journal.read(run_id, after, limit)

    def summaries(self, query: RunQuery) -> list[RunSummary]:
        """A page of runs, the last started first."""
        for run_id in self.journal.overdue(self._clock()):
            with contextlib.suppress(WorkflowLookupError):  # a damaged or deleted run must not hide the others
                self.get(run_id)
        return self.journal.summaries(query)

    def all_summaries(self, query: RunQuery | None = None) -> Iterator[RunSummary]:
        """All runs that match, the last started first, read in pages."""
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
        """The last sequence of each run that any process changed recently."""
        return self.journal.heads(self._clock() - CLOCK_SKEW)

    def watch(self, listener: Callable[[str], None]) -> JournalWatch:
        """Follow all runs: the listener is called for changes by this process, the watch reports those by others."""
        return JournalWatch(self, listener)

    # ── import and deletion ─────────────────────────────────────────────────────────────────────────────────────

    def import_run(self, run_id: str, records: Sequence[Record], source: str, length: int = 0) -> bool:
        """Import a run from another journal, and record its source. False when the same run is stored already.

        `length`: how many records were exported; 0 if that is not known.

        Raises `InvalidParams` for records that are not a run, and `RunStateError` when another run has its id.
        """
        refuse_changed(run_id, records, length)
        if self.journal.head(run_id) is None:
            refuse_future(run_id, records, self._clock())
            self.store_import(run_id, as_imported(records, source))
            return True
        if without_source(records) == without_source(self.journal.read(run_id)):
            return False
        message = f"There is a run '{run_id}' already, with other events. Import this one into another journal."
        raise RunStateError(message, runId=run_id)

    def store_import(self, run_id: str, records: Sequence[Record]) -> Run:
        """Store a run from another journal. Raises `InvalidParams` or `RunStateError`."""
        run = check_import(run_id, records)
        try:
            self._cache.fold(run_id, records)
        except RunDamaged as damage:
            raise InvalidParams(damage.problem.rstrip(".")) from damage
        try:
            head = self.journal.append(run_id, 0, records, summarise(run))
        except Conflict:
            raise RunStateError(f"There is a run '{run_id}' already.", runId=run_id) from None
        run = msgspec.structs.replace(run, head=head)
        self._notify(run_id, run)
        return run

    def delete(self, run_id: str) -> None:
        """Delete a run. Raises `RunNotFound`."""
        self._cache.forget(run_id)
        if not self.journal.delete(run_id):
            raise self.not_found(run_id)
        self._notify(run_id, None)

    def purge(self, before: int) -> int:
        """Delete the runs that are over and were last updated before a time; returns how many."""
        self._cache.clear()
        return self.journal.purge(before)

    def damaged_runs(self, deadline: float = math.inf) -> Iterator[tuple[RunSummary, str]]:
        """The runs that cannot be read, or were changed after they were written, each with a sentence that says what
        is wrong. Reads all of them, the last started first, until the deadline, by `time.monotonic`.
        """
        for summary in self.all_summaries():
            if time.monotonic() > deadline:
                return
            try:
                self._cache.read(summary.id)
            except RunDamaged as damage:
                yield summary, damage.problem
            except RunStateError as refusal:
                yield summary, refusal.remedy
            except RunNotFound:
                pass  # it was deleted meanwhile

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        """The damaged journals that were set aside and still exist: a run that is missing may be in one."""
        return self.journal.damaged_journals()

    def not_found(self, run_id: str) -> RunNotFound:
        """The error for an id that no run has."""
        return self._cache.not_found(run_id)

    def close(self) -> None:
        self.journal.close()

    # ── one commit for several changes ──────────────────────────────────────────────────────────────────────────

    def do_all(self, pieces: Sequence[Callable[["Runs"], T]]) -> list[T | Exception]:
        """Do several pieces of work, in one commit if the journal can; returns what each returned or raised, in order.

        A piece may be done twice: if the commit fails, it is rolled back, and each piece is done by itself.
        """
        group = self.journal.group() if len(pieces) > 1 else None
        outcomes = self._do_grouped(group, pieces) if group is not None else None
        return outcomes if outcomes is not None else [_outcome(piece, self) for piece in pieces]

    def _do_grouped(
        self, group: contextlib.AbstractContextManager[None], pieces: Sequence[Callable[["Runs"], T]]
    ) -> list[T | Exception] | None:
        """As `do_all`, in one commit; None when it was rolled back."""
        changes: list[tuple[str, Run | None]] = []
        self._uncommitted = changes
        try:
            with group:
                outcomes = [_decision(piece, self) for piece in pieces]
        except Exception as problem:  # noqa: BLE001 - raised again when the piece is done by itself
            log.debug("%d pieces of work could not be stored in one commit: %r", len(pieces), problem)
            for run_id, _ in changes:
                self._cache.forget(run_id)
            return None
        finally:
            self._uncommitted = None
        for run_id, run in changes:
            self._notify(run_id, run)
        return outcomes

    # ── deciding and storing ────────────────────────────────────────────────────────────────────────────────────

    def _move(self, run_id: str, by: str, decide: Callable[[Run, Moment], Draft | Run]) -> Run:
        """Decide what follows on the current run, and store it; again while other processes change the run.

        The first try uses the cached run without checking it: the journal refuses an append to an outdated run, and a
        decision that stores nothing counts only if the run has not changed.
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
                if is_cached and not self._cache.is_current(run):
                    continue
                raise
            if isinstance(decided, Run):
                if is_cached and not self._cache.is_current(run):
                    continue
                return decided
            if run.unverified and not run.is_over and not isinstance(decided.records[0].event, events.Cancelled):
                raise RunUnproven(run.unverified[0], run_id)
            if self._store(run.sequence, decided):
                return decided.run
        message = "Other processes kept changing the run. Check its state with workflow_status, and try again."
        raise RunStateError(message, runId=run_id)

    def _store(self, expected: int, draft: Draft) -> bool:
        """Append the records of a draft; False when another process has changed the run."""
        try:
            head = self.journal.append(draft.run.id, expected, draft.records, summarise(draft.run), draft.run.head)
        except Conflict:
            return False
        draft.run = msgspec.structs.replace(draft.run, head=head)
        self._cache.offer(draft.run)
        _audit_action(draft)
        self._notify(draft.run.id, draft.run)
        return True

    def _notify(self, run_id: str, run: Run | None) -> None:
        if self._uncommitted is not None:
            self._uncommitted.append((run_id, run))
            return
        for listener in tuple(self.listeners):
            listener(run_id, run)


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


def _outcome(piece: Callable[[Runs], T], runs: Runs) -> T | Exception:
    try:
        return piece(runs)
    except Exception as problem:  # noqa: BLE001 - raised where the result is awaited
        return problem


def _decision(piece: Callable[[Runs], T], runs: Runs) -> T | Exception:
    """What a piece returns, or the refusal that it raises. Other exceptions propagate, to roll the commit back."""
    try:
        return piece(runs)
    except StorageError:
        raise
    except WorkflowLookupError as refusal:
        return refusal


def _moment(time: int, by: str) -> Moment:
    by = by.replace("\0", "")  # PostgreSQL cannot store NUL in text
    return Moment(time=time, by=by, nonce=secrets.token_hex(8))
