"""Waiting for a run that the server works on: when to answer, its progress meanwhile, and how to cancel it.

The journal is polled, so any thread, process or machine may advance the run.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from workflowlookup.errors import ExecutionFailed, StorageError, WorkflowLookupError
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.values import Progress, brief
from workflowlookup.runs.draft import MAX_REMOTE_TEXT, remedy_of
from workflowlookup.runs.events import Failed
from workflowlookup.runs.proofs.due import all_due
from workflowlookup.runs.questions import title_of
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.tools.contract import Caller, Elicitation, Outcome, Pending, Result, Services
from workflowlookup.tools.run_answers import remote_error, stopped_in

if TYPE_CHECKING:
    from workflowlookup.language.values import Json
    from workflowlookup.runs.events import CallProgressed

STOP_SECONDS: Final = 5.0
"""How long to wait for the report whether the call of an ended run was stopped."""

AWAY_SECONDS: Final = 60.0
"""How long to wait for a journal that cannot be read."""

READ_SECONDS: Final = 1.0
"""How often to read a run that a server works on. Reading a run also ends it if its time is over."""

MakeAnswer = Callable[[Run], Result | Elicitation]
"""Makes the answer of the waiting call from the run as it is then."""


def is_at_work(run: Run) -> bool:
    """Whether the server works on the run by itself: makes a call, or takes proofs."""
    return run.due is not None


def await_run(services: Services, run: Run, caller: Caller, make_answer: MakeAnswer) -> Outcome:
    """The answer, as soon as the run is over or needs the agent or a person; until then a `Pending`.

    If it waits for a call: raises `ExecutionFailed`, now or later, if the run failed or was cancelled, and to abandon
    the call cancels the run. While proofs are taken, abandoning leaves the run as it is: the verdict comes anyway, and
    is there for the next call.
    """
    is_proof = run.waiting_for is Waiting.PROOF
    waiter = _RunWaiter(services, run, make_answer, by=caller.name, raises_failure=not is_proof)
    return waiter.answer(run) or Pending(
        run_id=run.id, poll=waiter.poll, progress=waiter.progress, abandon=waiter.cancel
    )


def await_end(services: Services, run: Run, make_answer: MakeAnswer) -> Outcome:
    """As `await_run`, but a failure is an answer, too, and to abandon the call leaves the run as it is."""
    waiter = _RunWaiter(services, run, make_answer, raises_failure=False)
    return waiter.answer(run) or Pending(run_id=run.id, poll=waiter.poll, progress=lambda: None, abandon=lambda _: None)


class _RunWaiter:
    """A call that waits for a run."""

    def __init__(
        self, services: Services, run: Run, make_answer: MakeAnswer, *, by: str = "", raises_failure: bool = True
    ) -> None:
        self._services = services
        self._run_id = run.id
        self._sequence = run.sequence
        self._make_answer = make_answer
        self._by = by
        self._raises_failure = raises_failure
        self._give_up_at: float | None = None
        self._away_since = 0.0
        self._next_read = 0.0

    def poll(self) -> Result | Elicitation | None:
        try:
            run = self._finished() or self._polled()
        except StorageError:  # the database restarts, perhaps; the worker waits for it, too
            self._away_since = self._away_since or time.monotonic()
            if time.monotonic() - self._away_since > AWAY_SECONDS:
                raise
            return None
        self._away_since = 0.0
        return self.answer(run) if run is not None else None

    def _finished(self) -> Run | None:
        """The run, if the worker of this process has finished its part."""
        try:
            run = self._services.execution.cached_run(self._run_id)
        except WorkflowLookupError:  # this server makes no calls: another one does
            return None
        return run if run is not None and run.sequence >= self._sequence else None  # else it is of earlier work

    def _polled(self) -> Run | None:
        """The run from the journal, where another process may have advanced it; None if it was read a moment ago."""
        now = time.monotonic()
        try:
            if self._services.execution.is_at_work(self._run_id) and now < self._next_read:
                return None
        except WorkflowLookupError:  # as above
            pass
        self._next_read = now + READ_SECONDS
        return self._services.runs.get(self._run_id)

    def answer(self, run: Run) -> Result | Elicitation | None:
        """The answer; None while the server works on the run, or stops its call."""
        is_stopping = run.needs_stop and run.calling is not None and run.calling.stopped is None
        if is_at_work(run) or (is_stopping and not self._has_waited_for_stop()):
            return None
        if self._raises_failure and run.state in (State.FAILED, State.CANCELLED):
            raise failure_of(run)
        return self._make_answer(run)

    def _has_waited_for_stop(self) -> bool:
        """Whether `STOP_SECONDS` have passed since the first call of this method."""
        now = time.monotonic()
        if self._give_up_at is None:
            self._give_up_at = now + STOP_SECONDS
        return now >= self._give_up_at

    def progress(self) -> Progress | None:
        return progress_of(self._services, self._services.runs.get(self._run_id))

    def cancel(self, reason: str) -> None:
        run = self._services.runs.get(self._run_id)
        if not run.is_over and run.waiting_for is not Waiting.PROOF:
            self._services.runs.cancel(self._run_id, reason, by=self._by)


# ── progress ────────────────────────────────────────────────────────────────────────────────────────────────────


def progress_of(services: Services, run: Run) -> Progress:
    """The progress of a run in steps, plus that of its call as a fraction; for a run of one step, that of the call."""
    steps, total = len(run.results), run.total
    if not is_at_work(run):
        return Progress(steps, total, "")
    call = _work_progress(services, run)
    title = title_of(run)
    if call is None:
        return Progress(steps, total, title)
    message = f"{title}: {call.message}" if call.message else title
    if total == 1:
        return Progress(call.done, call.total, message)
    fraction = call.done / call.total if call.total else 1 - 1 / (1 + max(call.done, 0))
    return Progress(steps + min(max(fraction, 0), 0.999), total, message)


def _work_progress(services: Services, run: Run) -> "Progress | CallProgressed | None":
    """The latest progress of the call or the proofs: from this process at once, from the journal about every second."""
    try:
        live = services.execution.progress(run.id)
    except WorkflowLookupError:  # this server makes no calls: another one does
        live = None
    if live is None and run.proving is not None:
        due, taken = all_due(run, Budget()), len(run.proving.judgements)
        return Progress(taken, len(due), f"proving {min(taken + 1, len(due))} of {len(due)}")
    return live or (run.calling.progress if run.calling else None)


# ── failure ─────────────────────────────────────────────────────────────────────────────────────────────────────


def failure_of(run: Run) -> ExecutionFailed:
    """The error of a call that waited for a run that failed or was cancelled."""
    end = run.end
    reason = end.reason if end is not None else ""
    stopped = stopped_in(run)
    data: dict[str, Json] = {"runId": run.id, "state": run.state}
    if isinstance(end, Failed):
        data |= {"reason": reason, "remedy": remedy_of(run), "timedOut": end.timed_out}
        if error := remote_error(run):
            data["error"] = error
        parts = [name for name in ("detail", "output") if name in error]
        remote = [f"{name.capitalize()}: {brief(error[name], MAX_REMOTE_TEXT)}" for name in parts]
        sentences = [f"Run '{run.id}' failed: {reason}", *remote, remedy_of(run)]
    else:
        data |= {"reason": reason, "timedOut": False}
        why = f": {reason}" if reason else ""
        sentences = [f"Run '{run.id}' was cancelled{why}", remedy_of(run) if run.may_run else ""]
    if stopped:
        data["stopped"] = stopped
    sentences += [str(call["told"]) for call in stopped]
    ended = [text if text.endswith((".", "!", "?")) else f"{text}." for text in sentences if text]
    return ExecutionFailed(" ".join(text[0].upper() + text[1:] for text in ended), **data)
