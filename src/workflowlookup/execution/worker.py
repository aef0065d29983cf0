"""The thread on which the server works by itself: one event loop, started with the first work, ended with the server.

DBOS changes the event loop that it is used on, so it gets none that anybody else needs. What the thread needs is loaded
on the thread: whoever asks for work does not wait for that.
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
    """What lives on the loop."""

    async def aclose(self) -> None: ...


R = TypeVar("R", bound=LoopResource)


class Worker(Generic[R]):
    """A loop on a thread of its own, and what `make` makes there. May be used from any other thread."""

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[R], Coroutine[Any, Any, Any]], contextvars.Context]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resident: R | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def post(self, order: Callable[[R], Coroutine[Any, Any, Any]]) -> None:
        """Have something done on the loop, which is started if need be. Once it is closed, nothing is."""
        with self._lock:
            if self._is_closed:
                return
            self._waiting.append((order, contextvars.copy_context()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="workflowlookup-worker", daemon=True)
                self._thread.start()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._take)

    def submit(self, question: Callable[[R], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Like `post`, for who wants to know what came of it."""
        from concurrent.futures import Future  # noqa: PLC0415 - seldom needed

        answer: Future[T] = Future()

        async def settle(resident: R) -> None:
            try:
                answer.set_result(await question(resident))
            except BaseException as problem:  # also that it was cancelled: who asked must not wait for ever
                answer.set_exception(problem)
                raise

        self.post(settle)
        if self._is_closed:
            answer.cancel()
        return answer

    def close(self, seconds: float) -> None:
        """Lay work down and end the thread, in about this time, or it is left behind."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if thread is not None:
            thread.join(seconds)
            if thread.is_alive():
                log.info("work was not laid down within %.1f seconds", seconds)

    # ── on the thread ───────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            import asyncio  # noqa: PLC0415 - see above

            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            self._resident = self._make()
        except Exception:  # broad on purpose: a thread has nobody to raise to
            log.exception("the worker could not be started")
            return
        try:
            with self._lock:
                self._loop = loop
                if self._is_closed:
                    return
                loop.call_soon(self._take)
            loop.run_forever()
            loop.run_until_complete(self._lay_down())
        except Exception:  # broad on purpose: as above
            log.exception("the worker ended in a way that it should not")
        finally:
            with self._lock:
                self._is_closed, self._loop = True, None
            loop.close()

    def _take(self) -> None:
        while self._waiting and self._resident is not None and self._loop is not None:
            order, context = self._waiting.popleft()  # what is traced belongs to who asked for it
            task = self._loop.create_task(order(self._resident), context=context)
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("work failed: %r", problem, exc_info=problem)

    async def _lay_down(self) -> None:
        import asyncio  # noqa: PLC0415 - see above

        for task in self._tasks:
            task.cancel()
        if self._resident is not None:
            try:
                await self._resident.aclose()
            except Exception:  # broad on purpose: this is the end, whatever it was
                log.exception("work could not be laid down")
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()  # seen, so that nobody complains of it
        await asyncio.get_running_loop().shutdown_asyncgens()
