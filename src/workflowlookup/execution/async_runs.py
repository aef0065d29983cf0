"""`Runs` for the worker's loop: on a thread of its own, because the journal blocks and belongs to one thread.

Work that is queued while the thread is busy is done next, in one commit.
"""

import asyncio
import collections
import concurrent.futures
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from workflowlookup.errors import RunDamaged, StorageError
from workflowlookup.runs.run import Run
from workflowlookup.store.service import Runs

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE: Final = 0.25
MAX_PAUSE: Final = 5.0
MAX_GROUPED: Final = 64
"""How many pieces of work are done in one commit, while other processes wait."""


class AsyncRuns:
    """The runs of a journal, for the worker's loop."""

    def __init__(self, make_runs: Callable[[], Runs], on_change: Callable[[str, Run | None], None]) -> None:
        """`on_change` is called on the journal's thread, after each change."""
        self._make_runs = make_runs
        self._on_change = on_change
        self._runs: Runs | None = None
        self._offered: collections.deque[Run] = collections.deque()
        self._queue: collections.deque[tuple[Callable[[Runs], Any], asyncio.Future[Any]]] = collections.deque()
        """Work that is not begun yet, with the futures for its results."""
        self._serving: asyncio.Task[None] | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "workflowlookup-journal")

    def offer(self, run: Run) -> None:
        """As `Runs.offer`."""
        self._offered.append(run)

    async def do(self, work: Callable[[Runs], T]) -> T:
        """Call `work` with the runs, on the journal's thread; returns and raises what it does.

        The work may be done twice (see `Runs.do_all`), so it must have no other effects than its result.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((work, future))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        """Do all queued work."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_GROUPED))]
            pieces = [(work, future) for work, future in batch if not future.cancelled()]
            outcomes: list[Any]
            try:
                outcomes = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._do_all, [work for work, _ in pieces]
                )
            except Exception as problem:  # noqa: BLE001 - passed on to the futures
                outcomes = [problem] * len(pieces)
            for (_, future), outcome in zip(pieces, outcomes, strict=True):
                if future.cancelled():
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

    async def retry(self, work: Callable[[Runs], T]) -> T:
        """As `do`, retried until the journal works. `RunDamaged` is raised at once, because retrying cannot help."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.do(work)
            except RunDamaged:
                raise
            except StorageError as problem:
                if pause == FIRST_PAUSE:
                    log.warning("%s", problem.remedy)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)

    async def get(self, run_id: str) -> Run:
        return await self.retry(lambda runs: runs.get(run_id))

    async def aclose(self) -> None:
        await self.do(lambda runs: runs.close())
        self._thread.shutdown(wait=False, cancel_futures=True)  # later work would open the journal again

    def _do_all(self, pieces: Sequence[Callable[[Runs], Any]]) -> list[Any]:
        if self._runs is None:
            self._runs = self._make_runs()
            self._runs.listeners.append(self._on_change)
        while self._offered:
            self._runs.offer(self._offered.popleft())
        return self._runs.do_all(pieces)
