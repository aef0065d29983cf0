"""Slots: a semaphore that serves in order and whose limit can change."""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator


class Slots:
    """Limits how many do something at once, first come, first served. For one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._queue: collections.deque[asyncio.Future[None]] = collections.deque()

    def set_limit(self, limit: int) -> None:
        """Those who have a slot keep it."""
        self._limit = limit
        self._wake()

    @property
    def is_full(self) -> bool:
        return self._taken >= self._limit or bool(self._queue)

    async def acquire(self) -> None:
        if not self.is_full:
            self._taken += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it got its slot in the same moment
                self.release()
            raise  # its place is passed over

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
        """Give one's slot to others for a while, and queue for another afterwards."""
        self.release()
        try:
            yield
            await self.acquire()
        except BaseException:
            self._taken += 1  # it is released by whoever had it before
            raise

    def _wake(self) -> None:
        while self._queue and self._taken < self._limit:
            place = self._queue.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)
