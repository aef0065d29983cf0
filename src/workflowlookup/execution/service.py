"""The server's own work: the interface to it, and the worker, a thread with an event loop on which it is done.

The thread is started with the first work, and imports what it needs itself, so that callers do not wait for that:
nothing in the interface blocks. DBOS changes the event loop that it uses, so the worker does not share one with other
code.
"""

import contextlib
import contextvars
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from workflowlookup import extras
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import StorageError
from workflowlookup.providers.config import Plan
from workflowlookup.store.journal_url import JournalUrl

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from workflowlookup.execution.engine import ConcurrencyLimits, Drive, Engine
    from workflowlookup.execution.loop_services import LoopServices
    from workflowlookup.execution.proof_runner import ProofRunner
    from workflowlookup.language.values import Progress
    from workflowlookup.providers.discovery import ProviderListing
    from workflowlookup.runs.run import Run
    from workflowlookup.store.service import Runs
    from workflowlookup.trust import Consent

log = logging.getLogger(__name__)

T = TypeVar("T")


class LoopResource(Protocol):
    """The object that lives on the loop."""

    async def aclose(self) -> None: ...


R = TypeVar("R", bound=LoopResource)


class Worker(Generic[R]):
    """An event loop on a thread of its own, with the object that `make` returns there. For use from other threads."""

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._queue: deque[tuple[Callable[[R], Coroutine[Any, Any, Any]], contextvars.Context]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resource: R | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def post(self, work: Callable[[R], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine on the loop, which is started if needed. Does nothing after `close`."""
        with self._lock:
            if self._is_closed:
                return
            self._queue.append((work, contextvars.copy_context()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="workflowlookup-worker", daemon=True)
                self._thread.start()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._take)

    def submit(self, work: Callable[[R], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Like `post`; returns a future for the result."""
        from concurrent.futures import Future  # noqa: PLC0415 - seldom needed

        future: Future[T] = Future()

        async def run(resource: R) -> None:
            try:
                future.set_result(await work(resource))
            except BaseException as problem:  # also a cancellation, so that the caller does not wait forever
                future.set_exception(problem)
                raise

        self.post(run)
        if self._is_closed:
            future.cancel()
        return future

    def close(self, seconds: float) -> None:
        """Cancel the work and end the thread; after so many seconds, return even if it has not ended."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if thread is not None:
            thread.join(seconds)
            if thread.is_alive():
                log.info("the worker did not stop within %.1f seconds", seconds)

    # ── on the thread ───────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            import asyncio  # noqa: PLC0415 - see above

            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            self._resource = self._make()
        except Exception:  # broad on purpose: nothing catches what a thread raises
            log.exception("the worker could not be started")
            return
        try:
            with self._lock:
                self._loop = loop
                if self._is_closed:
                    return
                loop.call_soon(self._take)
            loop.run_forever()
            loop.run_until_complete(self._shut_down())
        except Exception:  # broad on purpose: as above
            log.exception("the worker ended unexpectedly")
        finally:
            with self._lock:
                self._is_closed, self._loop = True, None
            loop.close()

    def _take(self) -> None:
        while self._queue and self._resource is not None and self._loop is not None:
            work, context = self._queue.popleft()  # the context of the caller, for tracing
            task = self._loop.create_task(work(self._resource), context=context)
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("work failed: %r", problem, exc_info=problem)

    async def _shut_down(self) -> None:
        import asyncio  # noqa: PLC0415 - see above

        for task in self._tasks:
            task.cancel()
        if self._resource is not None:
            try:
                await self._resource.aclose()
            except Exception:  # broad on purpose: the worker ends anyway
                log.exception("the worker could not be shut down cleanly")
        remaining = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in remaining:
            task.cancel()
        if remaining:
            await asyncio.wait(remaining, timeout=1.0)
        for task in remaining:
            if task.done() and not task.cancelled():
                task.exception()  # retrieved, so that asyncio logs no warning
        await asyncio.get_running_loop().shutdown_asyncgens()


WARM_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 10.0
"""How long closing may take; usually it takes a tenth of a second."""
MAX_CACHED_RUNS: Final = 256
"""How many runs that the worker has finished with are cached, for the calls that wait for them."""
WAKE_SECONDS: Final = 0.1
"""Between two calls of `wake` for changes of runs that are still worked on."""
POLL_SECONDS: Final = 0.1
"""Between two polls of runs that other processes drive and that a call here waits for."""
WAIT_SECONDS: Final = 1.0
"""How long polling continues after the last call that waits."""
_PAUSE: Final = 0.01
NOTHING_YET: "Final[Mapping[str, ProviderListing]]" = {}


def no_consent() -> "Consent":
    """Allows nothing that comes with a repository."""
    from workflowlookup.trust import NO_CONSENT  # noqa: PLC0415 - with the first work

    return NO_CONSENT


class Execution:
    """Carries out the calls of runs, takes their proofs, and discovers workflows of providers. For one thread, not the
    worker's.
    """

    def __init__(  # noqa: PLR0913 - everything that its work needs
        self,
        plan: Plan,
        make_runs: "Callable[[], Runs]",
        journal: str,
        wake: Callable[[], None],
        make_consent: "Callable[[], Consent]" = no_consent,
        *,
        make_proofs: "Callable[[Consent], ProofRunner] | None" = None,
        is_guest: bool = False,
    ) -> None:
        """`wake` is called, from the worker's thread, whenever something may have changed. A guest takes nothing over.

        The `make_*` functions are called on the worker's thread, once there is work.
        """
        self._is_guest = is_guest
        self._plan = plan
        self._make_runs = make_runs
        self._journal = journal
        self._wake = wake
        self._make_consent = make_consent
        self._make_proofs = make_proofs
        self._progress: dict[str, Progress] = {}
        self._services: LoopServices | None = None
        """Set once the worker has started. Only members that are documented for any thread may be used here."""
        self._cached_runs: BoundedCache[str, Run] = BoundedCache(MAX_CACHED_RUNS)
        """Written on the journal's thread alone."""
        self._rung = self._waited = 0.0
        self._is_polling = False
        self._at_work: frozenset[str] | None = None
        """The runs at work when they were last polled; only ever replaced. None while nobody polls."""
        self._is_recovering = False
        self.worker: Worker[LoopServices] = Worker(self._make_services)

    def _make_services(self) -> "LoopServices":
        from workflowlookup.execution.loop_services import LoopServices  # noqa: PLC0415 - on the worker's thread
        from workflowlookup.execution.proof_runner import ProofRunner  # noqa: PLC0415

        consent = self._make_consent()
        services = LoopServices(
            self._plan,
            self._make_runs,
            self._make_engine,
            wake=self._wake,
            on_change=self._note_change,
            consent=consent,
            proofs=self._make_proofs(consent) if self._make_proofs is not None else ProofRunner(),
            is_guest=self._is_guest,
            can_call=not extras.is_missing(extras.CALLS),
        )
        self._progress = services.progress
        self._services = services
        return services

    def _make_engine(self, drive: "Drive", limits: "ConcurrencyLimits") -> "Engine":
        from workflowlookup.execution.engine import engine_of  # noqa: PLC0415 - on the worker's thread

        return engine_of(self._journal).make(self._journal, drive, limits, self._is_guest)

    def _note_change(self, run_id: str, run: "Run | None") -> None:
        """On the journal's thread, after a change: cache a run that needs no more work, and wake waiting calls."""
        if is_finished := run is not None and not run.needs_server:
            self._cached_runs[run_id] = run
        else:
            self._cached_runs.pop(run_id)
        now = time.monotonic()
        if is_finished or now - self._rung > WAKE_SECONDS:
            self._rung = now
            self._wake()

    def cached_run(self, run_id: str) -> "Run | None":
        """A run that the worker has just finished with, as it stored it; else None."""
        return self._cached_runs.get(run_id)

    def is_at_work(self, run_id: str) -> bool:
        """Whether any server has work to do for a run; also False when that is unknown.

        The worker polls this, for all runs at once, and only while a call waits for one.
        """
        self._waited = time.monotonic()
        if not self._is_polling and self.worker.is_started:
            self._is_polling = True
            self.worker.post(self._poll)
        return self._at_work is not None and run_id in self._at_work

    async def _poll(self, services: "LoopServices") -> None:
        from asyncio import sleep  # noqa: PLC0415 - loaded with the worker

        try:
            while time.monotonic() - self._waited < POLL_SECONDS + WAIT_SECONDS:
                before, self._at_work = self._at_work, await services.at_work()
                if before is None or self._at_work is None or before - self._at_work:
                    self._wake()
                await sleep(POLL_SECONDS)
        finally:
            self._at_work, self._is_polling = None, False

    @property
    def fault(self) -> str:
        """Why no call can be made here at present; empty when calls can be, or when there were none yet."""
        return self._services.fault if self._services is not None else ""

    def discovered(self) -> "Mapping[str, ProviderListing]":
        """The workflows of the providers, by provider; the same object until something changes."""
        return self._services.discovered() if self._services is not None else NOTHING_YET

    def await_discovered(self, names: Collection[str], seconds: float) -> None:
        """Wait until each of these providers has answered or failed, at most so long."""
        self.recover()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            discovered = self.discovered()
            if all(name in discovered and discovered[name].at for name in names):
                return
            time.sleep(_PAUSE)

    def follow(self, run: "Run") -> None:
        """Do what a changed run needs from the server: make its call, take its proofs, or stop either."""
        if run.needs_stop or run.ended_at_proofs:
            self.stop(run.id)
        elif run.needs_server:
            self.worker.post(lambda services: services.drive(run))

    def attend(self, run: "Run") -> None:
        """Do what a run needs that another process has changed, unless a living one does. A command leaves it to
        servers.
        """
        if not self._is_guest:
            self.follow(run)

    def stop(self, run_id: str) -> None:
        """Stop the call or the proofs of a run that is over, and store the result."""
        if self.worker.is_started:  # else nothing is done here
            self.worker.post(lambda services: services.stop(run_id))

    def progress(self, run_id: str) -> "Progress | None":
        """The current progress of a run that is driven here; None when there is none."""
        return self._progress.get(run_id)

    def recover(self) -> None:
        """Drive due calls and proofs that have no driver, and stop calls whose run is over.

        Without configured systems to call, other processes' work is taken over only if there is some now, and nothing
        is imported before. Calls that this installation cannot make are left to other servers.
        """
        if self._is_recovering:
            return
        if extras.is_missing(extras.CALLS):
            self._is_recovering = True
            if self._plan.providers:
                self.worker.post(lambda services: services.discover())
            if self._has_work():
                self.worker.post(lambda services: services.recover())
            return
        if self._plan.servers or self._plan.providers or JournalUrl(self._journal).kind.has_replicas:
            self._is_recovering = True
            self.worker.post(lambda services: services.discover())
            self.worker.post(lambda services: services.recover())
            self.worker.post(lambda services: services.warm(WARM_SECONDS))
        elif self._has_work():
            self.worker.post(lambda services: services.recover())

    def _has_work(self) -> bool:
        url = JournalUrl(self._journal)
        if url.kind.is_file and not os.path.exists(url.text):
            return False
        runs = self._make_runs()
        try:
            return bool(runs.server_work.at_work(1) or runs.server_work.runs_to_stop())
        except StorageError:
            return False  # whatever uses the journal next reports it
        finally:
            with contextlib.suppress(StorageError):
                runs.close()

    def refresh(self, providers: Collection[str] | None = None) -> "Future[None]":
        """Poll these providers now, or all; the future is done when each has answered or failed."""
        return self.worker.submit(lambda services: services.refresh(providers))

    def apply(self, plan: Plan) -> None:
        """Apply changed settings."""
        self._plan = plan
        if self.worker.is_started or (plan.is_on and plan.providers):
            self.worker.post(lambda services: services.apply(plan))
        if plan.servers or plan.providers:
            self.recover()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stop the work. Other processes, or the next server, continue it."""
        self.worker.close(seconds)
