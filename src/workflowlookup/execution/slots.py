"""A semaphore that is first come, first served, and whose limit can change."""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator


class Slots:
    """Limits how many tasks of one event loop do something at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._queue: collections.deque[asyncio.Future[None]] = collections.deque()

    def set_limit(self, limit: int) -> None:
        """Change the limit; slots that are taken stay taken."""
        self._limit = limit
        self._wake()

    @property
    def is_full(self) -> bool:
        return self._taken >= self._limit or bool(self._queue)

    async def acquire(self) -> None:
        if not self.is_full:
            self._taken += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was given a slot in the same moment
                self.release()
            raise  # `_wake` passes over a cancelled waiter

    def release(self) -> None:
        self._taken -= 1
        self._wake()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        await self.acquire()
        try:
            yield
        finally:
            self.release()

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Release the slot while this context is entered, and queue for another one afterwards."""
        self.release()
        try:
            yield
            await self.acquire()
        except BaseException:
            self._taken += 1  # the caller still holds a slot, and releases it
            raise

    def _wake(self) -> None:
        while self._queue and self._taken < self._limit:
            waiter = self._queue.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)
