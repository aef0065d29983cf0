"""Turns: how many runs are worked on at once. First come, first served; the limit can change at any time."""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator


class Turns:
    """For one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    def limit_to(self, limit: int) -> None:
        """From now on so many; those who have their turn keep it."""
        self._limit = limit
        self._hand_out()

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it for as long as the block takes."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._hand_out()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came just when nobody wanted it any more
                self._give_back()
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(turn)
            raise
        try:
            yield
        finally:
            self._give_back()

    def _give_back(self) -> None:
        self._taken -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._taken < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
