"""The contract of engines: each run whose call is due is driven by exactly one living process.

An engine knows only which process drives which run. How far a run has come is in the journal alone, so a driver can be
started again anywhere; of two drivers of one run, the journal refuses what the slower one would store.
`engines.ENGINES` has the implementations.
"""

from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec

TAKE_OVER_SECONDS: Final = 2.0
"""How often a server polls for runs that nobody drives any more."""


class Limits(msgspec.Struct, frozen=True):
    """How many runs are driven at once."""

    each: int
    """In one process."""
    total: int = 0
    """In all replicas at one database together; 0 for no such limit. It has no effect on a journal in a file."""


class Slot(Protocol):
    """What a driver holds: one of the `Limits.each` places for runs that are driven at once."""

    def lent(self) -> AbstractAsyncContextManager[None]:
        """Let another run have the slot while this context is entered, in which the driver waits for something."""


class Superseded(Exception):
    """Another process drives the run by now: this driver makes no more calls."""


Drive = Callable[[str, Slot], Coroutine[Any, Any, None]]
"""Makes the calls of a run until it waits for somebody or is over. Cancelled when the engine is closed, or no longer
drives the run. Raises `Superseded`."""


class Engine(Protocol):
    """Drives the runs of one journal, together with the engines of other processes. For one event loop."""

    @property
    def fault(self) -> str:
        """Why nothing can be driven here for now; empty when it can. For any thread."""

    async def open(self) -> None:
        """Raises `StorageError` when it cannot be used; it can then be opened again."""

    async def start(self, run_id: str, sequence: int, *, again: bool = False) -> None:
        """Have a run driven whose call came due at this sequence, here or elsewhere.

        Starting the same run and sequence twice, in any process, has the effect of one start. `again`: the run may have
        been started before and was not among those `driven` now, so its driver has ended: start another one.
        """

    async def driven(self, run_ids: Collection[str]) -> set[str]:
        """The subset of these runs that a living process drives, or that are queued."""

    async def take_over(self) -> None:
        """Have living processes drive what dead ones were driving."""

    async def set_limits(self, limits: Limits) -> None:
        """Change the limits; runs that are driven already go on."""

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Wait so long for the drivers, cancel those that are left, and let others take their runs over."""
