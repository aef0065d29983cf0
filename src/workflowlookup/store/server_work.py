"""What the server itself stores in runs: the calls that it makes, and the proofs that it or a witness takes."""

from collections.abc import Callable
from typing import Final, Literal

from workflowlookup.errors import RunStateError
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.values import Json
from workflowlookup.runs import events, server_calls
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.events import Judgement, Snapshot
from workflowlookup.runs.proofs import taking, witnessing
from workflowlookup.runs.proofs.witnessing import WitnessReport, WitnessTask
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.store.journal import RunSummary
from workflowlookup.store.run_writer import RunWriter

PROGRESS_PAUSE: Final = 1_000
"""Milliseconds between two stored progress reports of a call."""
MAX_AT_WORK: Final = 1_000
"""How many runs `at_work` returns by default."""
MAX_TO_CLAIM: Final = 100
"""How many runs a witness tries to claim each time. A claim changes a run, so those without one mostly come first."""


class ServerWork:
    """The calls and proofs of the runs of one journal."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer

    def at_work(self, limit: int = MAX_AT_WORK) -> list[RunSummary]:
        """The runs that wait for a call or proofs by the server, the longest waiting first."""
        return self._writer.journal.at_work(limit)

    def waiting_for_proof(self, starter: str, limit: int = MAX_TO_CLAIM) -> list[str]:
        """The runs that wait for proofs and whose starter's name begins with this, the longest waiting first."""
        return self._writer.journal.waiting_for_proof(starter, limit)

    def runs_to_stop(self) -> list[str]:
        """The runs that are over and whose call may still be running."""
        return self._writer.journal.runs_to_stop()

    def begin_call(self, run_id: str, step_id: str, *, by: str = "") -> Run:
        """Store that the call of a step begins, unless a process that did not finish it has stored that before.

        This and the following methods raise `RunStateError` when the run is at another step.
        """

        def decide(run: Run, at: Moment) -> Draft | Run:
            _require_step(run, step_id)
            is_begun = run.calling is not None and run.calling.begun and not run.is_over
            return run if is_begun else server_calls.begin_call(run, at)

        return self._writer.move(run_id, by, decide)

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

    # ── proofs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def take_snapshot(
        self, run_id: str, step_id: str, since: Literal["run", "step"], snapshot: Snapshot, *, by: str = ""
    ) -> Run:
        """Store a snapshot of the root. This and the following methods raise `RunStateError` when it is not due."""
        return self._move_call(run_id, step_id, by, lambda run, at: taking.take_snapshot(run, since, snapshot, at))

    def take_proof(self, run_id: str, step_id: str, judgement: Judgement, *, by: str = "") -> Run:
        """Store what was seen when a proof was taken, and what follows if it is the last."""
        return self._move_call(run_id, step_id, by, lambda run, at: taking.take_proof(run, judgement, at))

    def claim_proof(self, run_id: str, witness: str, seconds: float, *, by: str = "") -> WitnessTask:
        """Store that a witness takes what is due next, and return that. Raises `RunStateError` if it cannot."""

        def decide(run: Run, at: Moment) -> Draft:
            task = witnessing.task_of(run, seconds, at.budget) if witnessing.may_be_witnessed(run) else None
            if task is None:
                raise RunStateError("A witness can take nothing of this run now.", runId=run_id)
            until = at.time + int(seconds * 1000)
            claimed = events.ProofClaimed(step_id=task.step_id, name=task.name, witness=witness, until=until)
            return taking.claim(run, claimed, at)

        run = self._writer.move(run_id, by, decide)
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
            return taking.claim(run, renewed, at)

        return self._writer.move(report.run_id, by, decide)

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
                return taking.take_proof(run, sent.judgement, at)
            task = witnessing.task_of(run, 0.0, at.budget)
            if task is None or task.since is None or sent.snapshot is None:
                raise RunStateError("No snapshot is due.", runId=run.id)
            return taking.take_snapshot(run, task.since, sent.snapshot, at)

        return self._writer.move(report.run_id, by, decide)

    def conclude_proofs(self, run_id: str, step_id: str, *, by: str = "") -> Run:
        """Store what follows when nothing is due any more."""
        return self._move_call(run_id, step_id, by, taking.conclude)

    def _move_call(self, run_id: str, step_id: str, by: str, decide: Callable[[Run, Moment], Draft | Run]) -> Run:
        def decide_at_step(run: Run, at: Moment) -> Draft | Run:
            _require_step(run, step_id)
            return decide(run, at)

        return self._writer.move(run_id, by, decide_at_step)


def _require_step(run: Run, step_id: str) -> None:
    if run.current != step_id:
        where = f"is at step '{run.current}'" if run.current else f"is {run.state}"
        raise RunStateError(f"The run {where}, not at '{step_id}'.", runId=run.id, state=run.state, stepId=step_id)
