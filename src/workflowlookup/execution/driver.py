"""Drives runs through the calls that are due, by the journal, until they wait for somebody or are over.

Whatever happens is stored before anything follows from it. A run that was cancelled, that is out of time or that
somebody else moved is noticed within a quarter of a second, at once when it was this process.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from workflowlookup.core.advance import MAX_REMOTE_TEXT, CallFailure
from workflowlookup.core.events import Failed
from workflowlookup.core.model import ToolCall
from workflowlookup.core.progress import Progress
from workflowlookup.core.run import Run, Waiting
from workflowlookup.errors import RunDamaged, RunNotFound, RunStateError, WorkflowLookupError
from workflowlookup.execution.async_runs import AsyncRuns
from workflowlookup.execution.calls import Calls, Failure, Outcome, OutcomeUnknown
from workflowlookup.execution.engine import Slot
from workflowlookup.execution.spans import span_of
from workflowlookup.providers.upstream import Stopped
from workflowlookup.runs.service import Runs

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.25
"""How often it is looked whether somebody else moved a run."""
FIRST_RETRY: Final = 0.5
MAX_RETRY: Final = 30.0
CANCEL_SECONDS: Final = 5.0
"""How long a call that was cancelled may take to end here."""
STORE_SECONDS: Final = 1.0
"""Between two reports of a call that are stored."""
_FEW: Final = 16
"""Up to so many runs are looked at each time; more, only when the journal says that somebody else has written."""
_SHORT_WHILE: Final = 0.01
_BY: Final = "server"


class _Driven:
    """A run that is driven here."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.at: tuple[str, int] | None = None
        """The step whose call is under way, and the sequence at which it became due."""
        self.has_begun = False
        """Whether the call that is due was begun when the one before it was finished."""
        self.moved = asyncio.Event()
        """Set when the run is no longer there."""
        self.deadline: int | None = None
        self.stored = 0.0
        self.remote_id = ""


class Driver:
    """All that is driven in this process. For the worker's loop."""

    def __init__(self, runs: AsyncRuns, calls: Calls, ring: Callable[[], None]) -> None:
        self._runs = runs
        self._calls = calls
        self._ring = ring
        self._driven: dict[str, _Driven] = {}
        self._watch: asyncio.Task[None] | None = None
        self._stores: set[asyncio.Task[None]] = set()
        self.progress: dict[str, Progress] = {}
        """Live, by run; only ever replaced, so that other threads may read it."""

    @property
    def is_calling(self) -> bool:
        return any(driven.at is not None for driven in self._driven.values())

    async def drive(self, run_id: str, slot: Slot) -> None:
        """Make the calls of a run until it waits for somebody or is over; what the engine runs."""
        driven = self._driven[run_id] = _Driven(run_id)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_for_ever())
        try:
            run = await self._runs.retry(lambda runs: self._begin_first(runs, driven))
            while run.waiting_for is Waiting.CALL:
                async with self._at_provider(slot, run):
                    run = await self._attempt(driven, run)
        except (RunNotFound, RunDamaged) as problem:
            log.warning("run %s cannot be gone on with: %s", run_id, problem.remedy)
        finally:
            if self._driven.get(run_id) is driven:
                del self._driven[run_id]
                self.progress.pop(run_id, None)

    def _begin_first(self, runs: Runs, driven: _Driven) -> Run:
        """The run to be driven; a call that nobody has begun yet is begun with the same visit to the journal."""
        run = runs.get(driven.run_id)
        is_new = run.waiting_for is Waiting.CALL and run.calling is not None and not run.calling.attempt
        if is_new and _is_begun_at_once(run):
            with contextlib.suppress(RunStateError):  # somebody moved it
                run = runs.begin_call(run.id, run.current, by=_BY)
                driven.has_begun = True
        return run

    @contextlib.asynccontextmanager
    async def _at_provider(self, slot: Slot, run: Run) -> AsyncIterator[None]:
        """A slot at the provider of the call, where it has a limit; while we wait for it, another run has ours."""
        limit = self._calls.limit_of(run.step.call)
        if limit is None:
            yield
            return
        if limit.is_full:
            async with slot.lent():
                await limit.acquire()
        else:
            await limit.acquire()
        try:
            yield
        finally:
            limit.release()

    def nudge(self, run_id: str) -> None:
        """A run may have been moved: look at it at once."""
        if driven := self._driven.get(run_id):
            self._keep(self._look(driven))

    async def stop_what_is_over(self, seconds: float) -> None:
        """See to it that no call goes on whose run is over; but not for longer than this."""
        with contextlib.suppress(TimeoutError, WorkflowLookupError):
            async with asyncio.timeout(seconds):
                for driven in [*self._driven.values()]:
                    await self._look(driven)
                while any(driven.at and driven.moved.is_set() for driven in self._driven.values()):  # noqa: ASYNC110
                    await asyncio.sleep(_SHORT_WHILE)

    async def stop_orphan(self, run_id: str) -> None:
        """A run is over, and nobody sees to the call that it had begun: do that."""
        run = await self._runs.get(run_id)
        if run.needs_stop and run_id not in self._driven:
            await self._store_stop(run, await self._calls.stop_orphan(run))

    # ── one attempt ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _attempt(self, driven: _Driven, run: Run) -> Run:
        """The run after one attempt at its call, and the pause before the next one."""
        step_id, before = run.current, run.calling
        is_repeated = before is not None and (before.begun or before.may_run) and not driven.has_begun
        if not driven.has_begun:
            try:
                run = await self._runs.retry(lambda runs: runs.begin_call(run.id, step_id, by=_BY))
            except RunStateError:
                return await self._runs.get(run.id)
        driven.has_begun = False
        driven.at = (step_id, run.calling.due if run.calling else 0)
        driven.remote_id = run.calling.remote_id if run.calling else ""
        driven.deadline = run.deadline
        driven.moved.clear()
        try:
            run = await self._make_call(driven, run, is_repeated=is_repeated)
            if _is_at(run, step_id) and run.calling is not None and not run.calling.begun:
                pause = min(FIRST_RETRY * 2 ** (run.calling.attempt - 1), MAX_RETRY) * random.uniform(0.75, 1.25)  # noqa: S311
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(driven.moved.wait(), pause)
                run = await self._runs.get(run.id)
        finally:
            driven.at = None
        return run

    async def _make_call(self, driven: _Driven, run: Run, *, is_repeated: bool) -> Run:
        """Make the call until it ends, is out of time, or the run is elsewhere; and store what came of it."""

        async def acknowledge(remote_id: str) -> None:
            driven.remote_id = remote_id
            with contextlib.suppress(RunStateError):  # the run is elsewhere: what was begun is stopped by its id
                await self._runs.retry(lambda runs: runs.acknowledge_call(run.id, run.current, remote_id, by=_BY))

        def note(told: Progress) -> None:
            self._note(driven, run, told)

        async def carry_out() -> Outcome:
            with span_of(run):
                return await self._calls.carry_out(run, note, acknowledge, is_repeated=is_repeated)

        seconds = self._calls.seconds_of(run.step.call)
        work = asyncio.create_task(carry_out())
        moved = asyncio.create_task(driven.moved.wait())
        try:
            await asyncio.wait({work, moved}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                self.progress.pop(run.id, None)  # before the run is at another step, which has not come so far
                return await self._store_end(driven, run, work)
            work.cancel()
            await asyncio.wait({work}, timeout=CANCEL_SECONDS)
            if not moved.done():
                return await self._store_timeout(driven, run, seconds or 0.0)
            now = await self._runs.get(run.id)
            if now.needs_stop:
                return await self._store_stop(now, await self._calls.stop(now, driven.remote_id))
            return now
        finally:
            self.progress.pop(run.id, None)
            moved.cancel()
            if not work.done():  # the server ends, and the call with it; it is made again by who takes over
                work.cancel()
                await asyncio.wait({work}, timeout=CANCEL_SECONDS)

    async def _store_end(self, driven: _Driven, run: Run, work: "asyncio.Task[Outcome]") -> Run:
        step_id = run.current
        try:
            outcome = work.result()
        except Failure as failure:
            known = failure.known
            log.warning("run %s: the call of step '%s' failed: %s", run.id, step_id, known.reason)
            return await self._store(run, lambda runs: runs.fail_call(run.id, step_id, known, by=_BY))
        except OutcomeUnknown as unknown:
            reason = str(unknown)
            log.warning("run %s: how the call of step '%s' ends cannot be known: %s", run.id, step_id, reason)
            return await self._store(run, lambda runs: runs.lose_call(run.id, step_id, reason, by=_BY))
        except asyncio.CancelledError:
            raise
        except Exception:  # broad on purpose: a fault of ours ends the run, not the server
            log.exception("the call of step '%s' of run %s failed", step_id, run.id)
            reason = "this is a fault of the server, whose log says more"
            fault = CallFailure(reason=reason, is_final=True, may_run=True)
            return await self._store(run, lambda runs: runs.fail_call(run.id, step_id, fault, by=_BY))

        def finish(runs: Runs) -> Run:
            now = runs.finish_call(run.id, step_id, outcome.text, outcome.value, by=_BY, begins_next=_is_begun_at_once)
            driven.has_begun = now.waiting_for is Waiting.CALL and now.calling is not None and now.calling.begun
            return now

        now = await self._store(run, finish, result=outcome)
        if isinstance(now.end, Failed):
            log.warning("run %s: %s", run.id, now.end.reason)
        return now

    async def _store_timeout(self, driven: _Driven, run: Run, seconds: float) -> Run:
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
        now = await self._store(run, lambda runs: runs.fail_call(run.id, run.current, failure, by=_BY))
        return await self._store_stop(now, stopped) if now.needs_stop else now

    async def _store(self, run: Run, change: Callable[[Runs], Run], *, result: Outcome | None = None) -> Run:
        """The run after a change; as it is when somebody else moved it meanwhile, and its `result` is lost."""
        try:
            return await self._runs.retry(change)
        except RunStateError:
            now = await self._runs.get(run.id)
        if result is not None:
            size = f"{len(result.text):,} characters"
            log.warning(
                "run %s: the result of step '%s' (%s) is lost: the run is %s", run.id, run.current, size, now.state
            )
        if now.needs_stop and now.current == run.current:
            now = await self._store_stop(now, Stopped(stopped=True, message="the call had ended just before"))
        return now

    async def _store_stop(self, run: Run, stopped: Stopped) -> Run:
        before = run.calling.stopped if run.calling is not None else None
        if before is None or before.told != stopped.message:
            log.log(logging.INFO if stopped.stopped else logging.WARNING, "run %s: %s", run.id, stopped.message)
        try:
            return await self._runs.retry(
                lambda runs: runs.stop_call(
                    run.id, run.current, stopped.stopped, stopped.message, is_pending=stopped.is_pending, by=_BY
                )
            )
        except RunStateError:
            return await self._runs.get(run.id)

    # ── progress ────────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, driven: _Driven, run: Run, reported: Progress) -> None:
        """Tell how far a call is: live at once, and in the journal now and then."""
        if not math.isfinite(reported.done):
            return
        total = reported.total if reported.total is not None and math.isfinite(reported.total) else None
        progress = Progress(reported.done, total, reported.message[:MAX_REMOTE_TEXT])
        if progress == self.progress.get(run.id):
            return
        self.progress[run.id] = progress
        log.info("run %s: %s", run.id, progress)
        self._ring()
        now = time.monotonic()
        if now - driven.stored >= STORE_SECONDS:
            driven.stored = now
            self._keep(self._store_progress(run, progress))

    async def _store_progress(self, run: Run, told: Progress) -> None:
        await self._runs.do(
            lambda runs: runs.report_call(run.id, run.current, told.done, told.total, told.message, by=_BY)
        )

    # ── what others do ──────────────────────────────────────────────────────────────────────────────────────────

    async def _watch_for_ever(self) -> None:
        """Look at the runs that are driven here, for as long as there are any: often, and when one is out of time."""
        version = -1
        while self._driven:
            try:
                now = version
                if len(self._driven) > _FEW:
                    now = await self._runs.do(lambda runs: runs.journal.version())
                overdue = time.time() * 1000
                for driven in [*self._driven.values()]:
                    is_late = driven.deadline is not None and driven.deadline < overdue
                    if is_late or now != version or len(self._driven) <= _FEW:
                        await self._look(driven)
                version = now
            except WorkflowLookupError as problem:  # the journal cannot be used; it is tried again
                log.debug("%s", problem)
            soon = [d.deadline - time.time() * 1000 for d in self._driven.values() if d.deadline is not None]
            await asyncio.sleep(min([POLL_SECONDS, *(max(left / 1000, 0.02) for left in soon)]))

    async def _look(self, driven: _Driven) -> None:
        """See whether the run is where it is thought to be; one that is out of time is ended by this."""
        at = driven.at
        try:
            run = await self._runs.do(lambda runs: runs.get(driven.run_id))
        except (RunNotFound, RunDamaged):
            driven.moved.set()
            return
        driven.deadline = run.deadline
        call = run.calling if run.waiting_for is Waiting.CALL else None
        now = (run.current, call.due) if call is not None else None
        if at is not None and at == driven.at and at != now:
            driven.moved.set()

    def _keep(self, work: Awaitable[None]) -> None:
        """Let something be done beside."""

        async def quietly() -> None:
            with contextlib.suppress(WorkflowLookupError):
                await work

        task = asyncio.create_task(quietly())
        self._stores.add(task)
        task.add_done_callback(self._stores.discard)


def _is_begun_at_once(run: Run) -> bool:
    """Whether the call that came due is begun in the commit that stores the result before it: a tool is."""
    return isinstance(run.step.call, ToolCall)


def _is_at(run: Run, step_id: str) -> bool:
    return run.waiting_for is Waiting.CALL and run.current == step_id
