"""Waiting for a run that the server works on: when it is time to answer, what is told meanwhile, how it is given up.

The journal is asked, so that it does not matter which thread, process or machine moves the run.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from workflowlookup.errors import ExecutionFailed, StorageError, WorkflowLookupError
from workflowlookup.language.values import Progress, brief
from workflowlookup.runs.draft import MAX_REMOTE_TEXT, remedy_of
from workflowlookup.runs.events import Failed
from workflowlookup.runs.questions import title_of
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.tools.contract import Caller, Elicitation, Outcome, Pending, Result, Services
from workflowlookup.tools.run_answers import remote_error, stopped_in

if TYPE_CHECKING:
    from workflowlookup.language.values import Json
    from workflowlookup.runs.events import CallProgressed

STOP_SECONDS: Final = 5.0
"""How long it is waited for the word on what became of a call beneath a run that is over."""

AWAY_SECONDS: Final = 60.0
"""How long it is waited for a journal that cannot be read."""

READ_SECONDS: Final = 1.0
"""How often a run that a server works on is read: reading a run ends it if it is out of time."""

Tell = Callable[[Run], Result | Elicitation]
"""The answer to the one who waited, from the run as it is then."""


def is_at_work(run: Run) -> bool:
    """Whether the server works on it by itself."""
    return run.waiting_for is Waiting.CALL


def await_run(services: Services, run: Run, caller: Caller, tell: Tell) -> Outcome:
    """The answer when the run is over or needs the agent or a person, which may be now; else it comes later.

    Raises `ExecutionFailed`, now or later, when the run failed or was cancelled. One who gives up cancels the run.
    """
    waiter = _Waiter(services, run.id, tell, by=caller.name)
    return waiter.answer(run) or Pending(
        run_id=run.id, poll=waiter.poll, progress=waiter.progress, abandon=waiter.cancel
    )


def await_end(services: Services, run: Run, tell: Tell) -> Outcome:
    """As `await_run`, but the answer tells of every end, and one who gives up leaves the run as it is."""
    waiter = _Waiter(services, run.id, tell, fails=False)
    return waiter.answer(run) or Pending(run_id=run.id, poll=waiter.poll, progress=lambda: None, abandon=lambda _: None)


class _Waiter:
    """One who waits for a run."""

    def __init__(self, services: Services, run_id: str, tell: Tell, *, by: str = "", fails: bool = True) -> None:
        self._services = services
        self._run_id = run_id
        self._tell = tell
        self._by = by
        self._fails = fails
        self._give_up_at: float | None = None
        self._away_since = 0.0
        self._next_read = 0.0

    def poll(self) -> Result | Elicitation | None:
        try:
            run = self._settled() or self._polled()
        except StorageError:  # a database that is started anew; the work beneath waits for it, too
            self._away_since = self._away_since or time.monotonic()
            if time.monotonic() - self._away_since > AWAY_SECONDS:
                raise
            return None
        self._away_since = 0.0
        return self.answer(run) if run is not None else None

    def _settled(self) -> Run | None:
        """The run, if the worker of this process has nothing left to do for it."""
        try:
            return self._services.execution.cached_run(self._run_id)
        except WorkflowLookupError:  # this server makes no calls: another one does
            return None

    def _polled(self) -> Run | None:
        """The run from the journal, where another process may have moved it; None while a server works on it."""
        now = time.monotonic()
        try:
            if self._services.execution.is_at_work(self._run_id) and now < self._next_read:
                return None
        except WorkflowLookupError:  # as above
            pass
        self._next_read = now + READ_SECONDS
        return self._services.runs.get(self._run_id)

    def answer(self, run: Run) -> Result | Elicitation | None:
        is_stopping = run.needs_stop and run.calling is not None and run.calling.stopped is None
        if is_at_work(run) or (is_stopping and not self._is_late()):
            return None
        if self._fails and run.state in (State.FAILED, State.CANCELLED):
            raise failure_of(run)
        return self._tell(run)

    def _is_late(self) -> bool:
        """Whether the word on what was stopped should have come by now."""
        now = time.monotonic()
        if self._give_up_at is None:
            self._give_up_at = now + STOP_SECONDS
        return now >= self._give_up_at

    def progress(self) -> Progress | None:
        return progress_of(self._services, self._services.runs.get(self._run_id))

    def cancel(self, reason: str) -> None:
        run = self._services.runs.get(self._run_id)
        if not run.is_over:
            self._services.runs.cancel(self._run_id, reason, by=self._by)


# ── how far a run is ────────────────────────────────────────────────────────────────────────────────────────────


def progress_of(services: Services, run: Run) -> Progress:
    """How far a run is: in steps, and within the step by what its call tells; of a run of one step, just that."""
    steps, total = len(run.results), run.total
    if not is_at_work(run):
        return Progress(steps, total, "")
    told = _told_by_call(services, run)
    title = title_of(run)
    if told is None:
        return Progress(steps, total, title)
    message = f"{title}: {told.message}" if told.message else title
    if total == 1:
        return Progress(told.done, told.total, message)
    within = told.done / told.total if told.total else 1 - 1 / (1 + max(told.done, 0))
    return Progress(steps + min(max(within, 0), 0.999), total, message)


def _told_by_call(services: Services, run: Run) -> "Progress | CallProgressed | None":
    """The newest that is known: here at once, in the journal about every second."""
    try:
        live = services.execution.progress(run.id)
    except WorkflowLookupError:  # this server makes no calls: another one does
        live = None
    return live or (run.calling.progress if run.calling else None)


# ── how it ended ────────────────────────────────────────────────────────────────────────────────────────────────


def failure_of(run: Run) -> ExecutionFailed:
    """What is raised for one who waited for a run that came to nothing."""
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
    sentences += [str(entry["told"]) for entry in stopped]
    ended = [text if text.endswith((".", "!", "?")) else f"{text}." for text in sentences if text]
    return ExecutionFailed(" ".join(text[0].upper() + text[1:] for text in ended), **data)
