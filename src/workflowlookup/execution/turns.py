"""Turns: how many runs are worked on at once. First come, first served; the limit can change at any time."""

import asyncio
import collections
import contextlib
from typing import TypeAlias

Ticket: TypeAlias = "asyncio.Future[None]"
"""A place in the line; done when it is one's turn."""


class Turns:
    """For one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._line: collections.deque[Ticket] = collections.deque()

    def limit_to(self, limit: int) -> None:
        """From now on so many; those who have their turn keep it."""
        self._limit = limit
        self._hand_out()

    def line_up(self) -> Ticket:
        """A place at the end of the line. It is done when it is one's turn, and must be given back."""
        ticket: Ticket = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        self._hand_out()
        return ticket

    def give_back(self, ticket: Ticket) -> None:
        """Leave the line, or end one's turn."""
        if ticket.done() and not ticket.cancelled():
            self._taken -= 1
            self._hand_out()
        else:
            with contextlib.suppress(ValueError):
                self._line.remove(ticket)

    def _hand_out(self) -> None:
        while self._line and self._taken < self._limit:
            self._taken += 1
            self._line.popleft().set_result(None)
