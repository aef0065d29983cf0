"""Drives runs: makes the calls and takes the proofs that are due by the journal, until a run waits or is over.

Each event is stored before its consequences. When a run is cancelled, exceeds its deadline or is moved by another
process, the driver notices within `POLL_SECONDS`; at once when this process did it.
"""

import asyncio
import contextlib
import logging
import math
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from workflowlookup.errors import RunDamaged, RunNotFound, RunStateError, WorkflowLookupError
from workflowlookup.execution.async_runs import AsyncRuns
from workflowlookup.execution.call_runner import CallFailed, CallRunner, Outcome, OutcomeUnknown
from workflowlookup.execution.engine import Slot, Slots, Superseded
from workflowlookup.execution.proof_runner import ProofRunner
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import ToolCall
from workflowlookup.language.values import Progress
from workflowlookup.providers.upstream import StopResult
from workflowlookup.runs.draft import MAX_REMOTE_TEXT
from workflowlookup.runs.events import Failed
from workflowlookup.runs.proofs.due import Due, SnapshotDue, all_due, next_due
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.store.service import Runs

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.25
"""Between two polls of the runs that are driven here for changes by other processes."""
FIRST_RETRY: Final = 0.5
MAX_RETRY: Final = 30.0
CANCEL_SECONDS: Final = 5.0
"""How long a cancelled call may take to end here."""
PROOF_TICK_SECONDS: Final = 1.0
"""Between two progress reports of a proof."""
HALF_SECONDS: Final = 30.0
"""After so many seconds the progress of a proof counts as one half."""
STORE_SECONDS: Final = 1.0
"""Between two stored progress reports of one call."""
_FEW: Final = 16
"""Up to so many runs are read with each poll; more only if the version of the journal has changed."""
_PAUSE: Final = 0.01
_BY: Final = "server"


class _DrivenRun:
    """A run that is driven here."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.at: tuple[str, int] | None = None
        """The step whose call is being made or proofs are taken, and the sequence at which that became due."""
        self.has_begun = False
        """Whether the due call was begun when the previous one was finished."""
        self.moved = asyncio.Event()
        """Set when the run is no longer at this call or these proofs."""
        self.deadline: int | None = None
        self.progress_stored_at = 0.0
        """When progress was last stored."""
        self.remote_id = ""
        self.unwitnessed: int | None = None
        """When these proofs became due, if no witness takes them: the server does not wait again for each."""

    def set_work(self, run: Run) -> None:
        """Watch the current call or proofs of the run: `moved` is set when the run leaves them."""
        self.at = (run.current, run.due or 0)
        self.deadline = run.deadline
        self.moved.clear()


class Driver:
    """Drives the runs of this process. For the worker's loop."""

    def __init__(self, runs: AsyncRuns, calls: CallRunner, proofs: ProofRunner, wake: Callable[[], None]) -> None:
        self._runs = runs
        self._calls = calls
        self._proofs = proofs
        self._wake = wake
        self._driven: dict[str, _DrivenRun] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.progress: dict[str, Progress] = {}
        """By run: the current progress. Values are only replaced, so that other threads may read it."""

    @property
    def is_calling(self) -> bool:
        return any(driven.at is not None for driven in self._driven.values())

    async def drive(self, run_id: str, slot: Slot) -> None:
        """Do what a run needs until it waits or is over; called by the engine. Raises `Superseded`."""
        driven = self._driven[run_id] = _DrivenRun(run_id)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll())
        try:
            run, driven.has_begun = await self._runs.retry(lambda runs: _begin_first(runs, run_id))
            while run.due is not None:
                if run.waiting_for is Waiting.PROOF:
                    run = await self._prove(driven, slot, run)
                    continue
                async with self._at_provider(driven, slot, run) as may_call:
                    run = await self._attempt(driven, run) if may_call else await self._moved_run(run.id)
        except (RunNotFound, RunDamaged) as problem:
            log.warning("run %s cannot be continued: %s", run_id, problem.remedy)
        finally:
            if self._driven.get(run_id) is driven:
                del self._driven[run_id]
                self.progress.pop(run_id, None)

    @contextlib.asynccontextmanager
    async def _at_provider(self, driven: _DrivenRun, slot: Slot, run: Run) -> AsyncIterator[bool]:
        """Hold a slot of the call's provider, if it has a limit. While waiting for one, lend our own.

        Yields False when the run was moved, such as cancelled, before there was a slot.
        """
        limit = self._calls.limit_of(run.step.call)
        if limit is None:
            yield True
            return
        if limit.is_full:
            async with slot.lent():
                has_slot = await self._wait_for_slot(driven, limit, run)
        else:
            await limit.acquire()
            has_slot = True
        try:
            yield has_slot
        finally:
            if has_slot:
                limit.release()

    async def _wait_for_slot(self, driven: _DrivenRun, limit: Slots, run: Run) -> bool:
        """Wait for a slot; False when the run was moved first."""
        driven.set_work(run)
        acquired = asyncio.create_task(limit.acquire())
        moved = asyncio.create_task(driven.moved.wait())
        try:
            await asyncio.wait({acquired, moved}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if acquired.done():
                limit.release()
            raise
        finally:
            driven.at = None
            moved.cancel()
            acquired.cancel()  # has no effect when it is done
        return acquired.done() and not acquired.cancelled()

    async def _moved_run(self, run_id: str) -> Run:
        """The run after it was moved. Raises `Superseded` when it needs the server: another process drives it."""
        run = await self._runs.get(run_id)
        if run.due is not None:
            raise Superseded(f"run {run_id} was moved to step '{run.current}' by another process, which drives it now")
        return run

    def nudge(self, run_id: str) -> None:
        """Check at once whether a run was moved."""
        if driven := self._driven.get(run_id):
            self._in_background(self._check(driven))

    async def stop_what_is_over(self, seconds: float) -> None:
        """Wait until all calls of runs that are over have stopped, at most so long."""
        with contextlib.suppress(TimeoutError, WorkflowLookupError):
            async with asyncio.timeout(seconds):
                for driven in [*self._driven.values()]:
                    await self._check(driven)
                while any(driven.at and driven.moved.is_set() for driven in self._driven.values()):  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE)

    async def stop_orphan(self, run_id: str) -> None:
        """Stop the call of a run that is over and has no driver."""
        run = await self._runs.get(run_id)
        if run.needs_stop and run_id not in self._driven:
            await self._store_stop(run, await self._calls.stop_orphan(run))

    # ── one attempt ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _attempt(self, driven: _DrivenRun, run: Run) -> Run:
        """Make one attempt at the call of a run, and pause before a retry; returns the run after that."""
        step_id, before = run.current, run.calling
        is_repeated = before is not None and (before.begun or before.may_run) and not driven.has_begun
        if not driven.has_begun:
            try:
                run = await self._runs.retry(lambda runs: runs.server_work.begin_call(run.id, step_id, by=_BY))
            except RunStateError:
                return await self._moved_run(run.id)
        driven.has_begun = False
        driven.set_work(run)
        driven.remote_id = run.calling.remote_id if run.calling else ""
        try:
            run = await self._make_call(driven, run, is_repeated=is_repeated)
            is_here = run.waiting_for is Waiting.CALL and run.current == step_id
            if is_here and run.calling is not None and not run.calling.begun:
                pause = min(FIRST_RETRY * 2 ** (run.calling.attempt - 1), MAX_RETRY) * random.uniform(0.75, 1.25)  # noqa: S311
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(driven.moved.wait(), pause)
                run = await self._runs.get(run.id)
        finally:
            driven.at = None
        return run

    async def _make_call(self, driven: _DrivenRun, run: Run, *, is_repeated: bool) -> Run:
        """Make the call until it ends, times out, or the run is moved; store the outcome."""

        async def acknowledge(remote_id: str) -> None:
            driven.remote_id = remote_id
            with contextlib.suppress(RunStateError):  # the run was moved; its remote run is stopped by this id
                await self._runs.retry(
                    lambda runs: runs.server_work.acknowledge_call(run.id, run.current, remote_id, by=_BY)
                )

        def on_progress(progress: Progress) -> None:
            self._publish_progress(driven, run, progress)

        async def carry_out() -> Outcome:
            with _span_of(run):
                return await self._calls.carry_out(run, on_progress, acknowledge, is_repeated=is_repeated)

        seconds = self._calls.seconds_of(run.step.call)
        work = asyncio.create_task(carry_out())
        moved = asyncio.create_task(driven.moved.wait())
        try:
            await asyncio.wait({work, moved}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                self.progress.pop(run.id, None)  # before the run moves to the next step, which has no progress yet
                return await self._store_end(driven, run, work)
            work.cancel()
            await asyncio.wait({work}, timeout=CANCEL_SECONDS)
            if not moved.done():
                return await self._store_timeout(driven, run, seconds or 0.0)
            moved_run = await self._moved_run(run.id)
            if moved_run.needs_stop:
                return await self._store_stop(moved_run, await self._calls.stop(moved_run, driven.remote_id))
            return moved_run
        finally:
            self.progress.pop(run.id, None)
            moved.cancel()
            if not work.done():  # the server is stopping; the process that takes the run over repeats the call
                work.cancel()
                await asyncio.wait({work}, timeout=CANCEL_SECONDS)

    async def _store_end(self, driven: _DrivenRun, run: Run, work: "asyncio.Task[Outcome]") -> Run:
        step_id = run.current
        try:
            outcome = work.result()
        except CallFailed as problem:
            failure = problem.failure
            log.warning("run %s: the call of step '%s' failed: %s", run.id, step_id, failure.reason)
            return await self._store(run, lambda runs: runs.server_work.fail_call(run.id, step_id, failure, by=_BY))
        except OutcomeUnknown as unknown:
            reason = str(unknown)
            log.warning("run %s: the outcome of the call of step '%s' is unknown: %s", run.id, step_id, reason)
            return await self._store(run, lambda runs: runs.server_work.lose_call(run.id, step_id, reason, by=_BY))
        except asyncio.CancelledError:
            raise
        except Exception:  # broad on purpose: a bug of ours ends the run, not the server
            log.exception("the call of step '%s' of run %s failed", step_id, run.id)
            reason = "this is a fault of the server, whose log says more"
            fault = CallFailure(reason=reason, is_final=True, may_run=True)
            return await self._store(run, lambda runs: runs.server_work.fail_call(run.id, step_id, fault, by=_BY))

        def finish(runs: Runs) -> Run:
            return runs.server_work.finish_call(
                run.id, step_id, outcome.text, outcome.value, by=_BY, begins_next=_begins_at_once
            )

        now = await self._store(run, finish, result=outcome)
        driven.has_begun = now.waiting_for is Waiting.CALL and now.calling is not None and now.calling.begun
        if isinstance(now.end, Failed):
            log.warning("run %s: %s", run.id, now.end.reason)
        return now

    async def _store_timeout(self, driven: _DrivenRun, run: Run, seconds: float) -> Run:
        stopped = await self._calls.stop(run, driven.remote_id)
        message = f"it took longer than {seconds:g} seconds; {stopped.message}"
        log.warning("run %s: the call of step '%s' failed: %s", run.id, run.current, message)
        may_run = not stopped.stopped
        failure = CallFailure(
            reason=message,
            timed_out=True,
            is_final=may_run and not self._calls.is_safe_to_repeat(run.step.call),
            may_run=may_run,
            is_running=stopped.is_pending,
        )
        now = await self._store(run, lambda runs: runs.server_work.fail_call(run.id, run.current, failure, by=_BY))
        return await self._store_stop(now, stopped) if now.needs_stop else now

    async def _store(self, run: Run, change: Callable[[Runs], Run], *, result: Outcome | None = None) -> Run:
        """Store a change; returns the run after it. If the run was moved meanwhile, `result` is lost and logged."""
        try:
            return await self._runs.retry(change)
        except RunStateError:
            now = await self._moved_run(run.id)
        if result is not None:
            size = f"{len(result.text):,} characters"
            log.warning(
                "run %s: the result of step '%s' (%s) is lost: the run is %s", run.id, run.current, size, now.state
            )
        if now.needs_stop and now.current == run.current:
            now = await self._store_stop(now, StopResult(stopped=True, message="the call had ended just before"))
        return now

    async def _store_stop(self, run: Run, stopped: StopResult) -> Run:
        before = run.calling.stopped if run.calling is not None else None
        if before is None or before.told != stopped.message:
            log.log(logging.INFO if stopped.stopped else logging.WARNING, "run %s: %s", run.id, stopped.message)
        try:
            return await self._runs.retry(
                lambda runs: runs.server_work.stop_call(
                    run.id, run.current, stopped.stopped, stopped.message, is_pending=stopped.is_pending, by=_BY
                )
            )
        except RunStateError:
            return await self._runs.get(run.id)

    # ── proofs ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _prove(self, driven: _DrivenRun, slot: Slot, run: Run) -> Run:
        """Take the snapshot or proof that is due next, or wait for a witness, unless the run is moved meanwhile."""
        due = next_due(run, Budget())
        if due is None:
            return await self._store(run, lambda runs: runs.server_work.conclude_proofs(run.id, run.current, by=_BY))
        driven.set_work(run)
        if driven.unwitnessed != run.due and self._proofs.witness_seconds(run):
            try:
                async with slot.lent():
                    return await self._await_witness(driven, run, due)
            finally:
                driven.at = None
                self.progress.pop(run.id, None)
        work = asyncio.create_task(self._look(run, due))
        ticking = asyncio.create_task(self._report_proof(run, due))
        moved = asyncio.create_task(driven.moved.wait())
        try:
            await asyncio.wait({work, moved}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            driven.at = None
            ticking.cancel()
            moved.cancel()
            self.progress.pop(run.id, None)
            if not work.done():  # the run was moved, or the server is stopping, and the proof is taken again
                work.cancel()
                await asyncio.wait({work}, timeout=CANCEL_SECONDS)
        if work.cancelled() or not work.done():
            return await self._moved_run(run.id)
        return await self._store(run, work.result())

    async def _await_witness(self, driven: _DrivenRun, run: Run, due: Due) -> Run:
        """Wait until a witness has taken what is due, or none does in time; returns the run after that."""
        began = time.monotonic()  # clocks may jump
        end, claim = began + self._proofs.witness_seconds(run), None
        while True:
            if run.proving is not None and run.proving.claim not in (None, claim):
                claim = run.proving.claim
                seconds = max(0, claim.until - run.updated) / 1000
                end = time.monotonic() + seconds + self._proofs.witness_seconds(run)
            if time.monotonic() >= end:
                driven.unwitnessed = run.due
                log.info("run %s: no witness takes the proofs of step '%s'", run.id, run.current)
                return run
            self._publish_proof(run, due, time.monotonic() - began)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(driven.moved.wait(), POLL_SECONDS)
            if driven.moved.is_set():
                return await self._moved_run(run.id)
            now = await self._runs.get(run.id)
            if now.due != run.due or next_due(now, Budget()) != due:
                return now
            run = now  # with a new claim, perhaps

    async def _look(self, run: Run, due: Due) -> Callable[[Runs], Run]:
        """Take a snapshot or a proof; returns the change to store."""
        step_id = run.current
        if isinstance(due, SnapshotDue):
            since, snapshot = due.since, await self._proofs.snapshot(run, due)
            return lambda runs: runs.server_work.take_snapshot(run.id, step_id, since, snapshot, by=_BY)
        judgement = await self._proofs.take(run, due)
        log.info("run %s: proof '%s' of step '%s': %s", run.id, due.name, step_id, judgement.verdict)
        return lambda runs: runs.server_work.take_proof(run.id, step_id, judgement, by=_BY)

    async def _report_proof(self, run: Run, due: Due) -> None:
        """Publish every second how long a proof takes."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(PROOF_TICK_SECONDS)
            self._publish_proof(run, due, time.monotonic() - began)

    def _publish_proof(self, run: Run, due: Due, seconds: float) -> None:
        every = all_due(run, Budget())
        position = every.index(due)
        message = f"proving {position + 1} of {len(every)}: {self._proofs.words(run, due, seconds)}"
        done = position + seconds / (seconds + HALF_SECONDS)  # its end is not known, so it only comes closer
        before = self.progress.get(run.id)
        if before is None or before.message != message:
            self.progress[run.id] = Progress(done, float(len(every)), message)
            self._wake()

    # ── progress ────────────────────────────────────────────────────────────────────────────────────────────────

    def _publish_progress(self, driven: _DrivenRun, run: Run, reported: Progress) -> None:
        """Publish the progress of a call: live at once, in the journal every `STORE_SECONDS`."""
        if not math.isfinite(reported.done):
            return
        total = reported.total if reported.total is not None and math.isfinite(reported.total) else None
        progress = Progress(reported.done, total, reported.message[:MAX_REMOTE_TEXT])
        if progress == self.progress.get(run.id):
            return
        self.progress[run.id] = progress
        log.info("run %s: %s", run.id, progress)
        self._wake()
        now = time.monotonic()
        if now - driven.progress_stored_at >= STORE_SECONDS:
            driven.progress_stored_at = now
            self._in_background(self._store_progress(run, progress))

    async def _store_progress(self, run: Run, progress: Progress) -> None:
        done, total, message = progress.done, progress.total, progress.message
        await self._runs.do(
            lambda runs: runs.server_work.report_call(run.id, run.current, done, total, message, by=_BY)
        )

    # ── changes by others ───────────────────────────────────────────────────────────────────────────────────────

    async def _poll(self) -> None:
        """Check the runs that are driven here, every `POLL_SECONDS` and when a deadline passes."""
        version = -1
        while self._driven:
            try:
                now = version
                if len(self._driven) > _FEW:
                    now = await self._runs.do(lambda runs: runs.journal.version())
                time_ms = time.time() * 1000
                for driven in [*self._driven.values()]:
                    is_overdue = driven.deadline is not None and driven.deadline < time_ms
                    if is_overdue or now != version or len(self._driven) <= _FEW:
                        await self._check(driven)
                version = now
            except WorkflowLookupError as problem:  # the journal cannot be used; retried with the next poll
                log.debug("%s", problem)
            remaining = [d.deadline - time.time() * 1000 for d in self._driven.values() if d.deadline is not None]
            await asyncio.sleep(min([POLL_SECONDS, *(max(delay / 1000, 0.02) for delay in remaining)]))

    async def _check(self, driven: _DrivenRun) -> None:
        """Read a run, which ends it after its deadline; set `moved` if it is not at the work that is done here."""
        at = driven.at
        try:
            run = await self._runs.do(lambda runs: runs.get(driven.run_id))
        except (RunNotFound, RunDamaged):
            driven.moved.set()
            return
        driven.deadline = run.deadline
        now = (run.current, run.due) if run.due is not None else None
        if at is not None and at == driven.at and at != now:
            driven.moved.set()

    def _in_background(self, work: Awaitable[None]) -> None:
        """Await something in a task, ignoring refusals of the journal."""

        async def quietly() -> None:
            with contextlib.suppress(WorkflowLookupError):
                await work

        task = asyncio.create_task(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _begin_first(runs: Runs, run_id: str) -> tuple[Run, bool]:
    """The run to drive, and whether its call was begun here: a new tool call is, which saves a commit."""
    run = runs.get(run_id)
    is_new = run.waiting_for is Waiting.CALL and run.calling is not None and not run.calling.attempt
    if is_new and _begins_at_once(run):
        with contextlib.suppress(RunStateError):  # it was moved
            return runs.server_work.begin_call(run_id, run.current, by=_BY), True
    return run, False


def _begins_at_once(run: Run) -> bool:
    """Whether a call is begun in the commit in which it comes due: a tool call is, the start of a workflow is not."""
    return isinstance(run.step.call, ToolCall)


def _span_of(run: Run) -> contextlib.AbstractContextManager[Any]:
    """An OpenTelemetry span for one attempt at the due call; a null context when tracing is not loaded."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return contextlib.nullcontext()
    attributes = {
        "workflowlookup.run": run.id,
        "workflowlookup.workflow": run.workflow.id,
        "workflowlookup.step": run.current,
        "workflowlookup.attempt": run.calling.attempt if run.calling else 1,
    }
    tracer: Any = trace.get_tracer("workflowlookup")
    return tracer.start_as_current_span(f"call {run.current}", attributes=attributes)  # type: ignore[no-any-return]
