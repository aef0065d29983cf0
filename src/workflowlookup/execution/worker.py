"""The worker thread: an event loop for the server's own work, started with the first work.

DBOS changes the event loop that it uses, so it does not share one with other code. Modules are imported on the thread,
so that callers do not wait for that.
"""

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

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
