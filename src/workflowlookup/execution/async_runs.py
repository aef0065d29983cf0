"""The journal as the loop sees it: asked on a thread of its own, because it blocks and connections belong to one."""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from workflowlookup.core.run import Run
from workflowlookup.errors import RunDamaged, StorageError
from workflowlookup.runs.service import Runs

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0


class AsyncRuns:
    """The runs of a journal, for the worker's loop."""

    def __init__(self, make_runs: Callable[[], Runs], ring: Callable[[], None]) -> None:
        self._make_runs = make_runs
        self._ring = ring
        self._runs: Runs | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "workflowlookup-journal")

    async def ask(self, question: Callable[[Runs], T]) -> T:
        """The answer to a question. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, question)

    async def surely(self, question: Callable[[Runs], T]) -> T:
        """The answer to a question, however long the journal cannot be used. Raises `RunDamaged`: that mends not."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.ask(question)
            except RunDamaged:
                raise
            except StorageError as problem:
                if pause == FIRST_PAUSE:
                    log.warning("%s", problem.remedy)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def get(self, run_id: str) -> Run:
        return await self.surely(lambda runs: runs.get(run_id))

    async def aclose(self) -> None:
        await self.ask(lambda runs: runs.close())
        self._thread.shutdown(wait=False, cancel_futures=True)  # what is asked now would open the journal again

    def _answer(self, question: Callable[[Runs], T]) -> T:
        if self._runs is None:
            self._runs = self._make_runs()
            self._runs.listeners.append(lambda *_: self._ring())
        return question(self._runs)
