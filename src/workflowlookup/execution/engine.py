"""The contract of engines: each run whose call is due is driven by exactly one living process.

An engine knows only who drives what. How far a run is, the journal says: a driver goes by the journal alone, so that it
can be started again anywhere, and of two drivers of one run the journal refuses what the slower one would store.
`engines.ENGINES` has the implementations.
"""

from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec

TAKE_OVER_SECONDS: Final = 2.0
"""How often a server looks for runs that nobody drives any more."""


class Limits(msgspec.Struct, frozen=True):
    """How many runs are driven at once."""

    each: int
    """By one process."""
    total: int = 0
    """By all replicas at one database together; 0 for any number. Processes at one file know only their own limit."""


class Slot(Protocol):
    """A driver's share of the limit on runs that are worked on at once."""

    def lent(self) -> AbstractAsyncContextManager[None]:
        """While the driver waits for something else, another run may have the slot."""


Drive = Callable[[str, Slot], Coroutine[Any, Any, None]]
"""Makes the calls of a run until it waits for somebody or is over. Cancelled when the engine is closed."""


class Engine(Protocol):
    """Drives the runs of one journal, together with the engines of other processes. For one event loop."""

    async def open(self) -> None:
        """Raises `StorageError` when it cannot be used; it can then be opened again."""

    async def start(self, run_id: str, sequence: int, *, again: bool = False) -> None:
        """Have a run driven whose call came due at this sequence, here or elsewhere.

        Starting it twice, in whatever process, is starting it once. `again`: the run was not among those `driven`,
        though it may have been started before: its driver ended and left the run where it was.
        """

    async def driven(self, run_ids: Collection[str]) -> set[str]:
        """Those of these runs that a living process drives, or that are queued."""

    async def take_over(self) -> None:
        """Have what dead processes were driving driven by those that live."""

    async def set_limits(self, limits: Limits) -> None:
        """Limit what is driven from now on; what is driven already goes on."""

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Cancel the drivers, after this time if they take longer; others can take their runs over."""
