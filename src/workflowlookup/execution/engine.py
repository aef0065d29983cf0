"""The contract of engines: each run whose call or proofs are due is driven by exactly one living process.

An engine knows only which process drives which run. The state of a run is in the journal alone, so a driver can be
started again anywhere; if a run has two drivers, the journal refuses the appends of the slower one. `ENGINES` has the
implementations, by the kind of the journal.
"""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec

from workflowlookup.store.journal_url import POSTGRES, SQLITE, JournalKind, JournalUrl

TAKE_OVER_SECONDS: Final = 2.0
"""How often a server polls for runs that nobody drives any more."""


class ConcurrencyLimits(msgspec.Struct, frozen=True):
    """How many runs are driven at once."""

    each: int
    """In one process."""
    total: int = 0
    """In all replicas at one database together; 0 for no limit. Has no effect on a journal in a file."""


class Slot(Protocol):
    """One of the `ConcurrencyLimits.each` slots for runs that are driven at once. A driver holds one."""

    def lent(self) -> AbstractAsyncContextManager[None]:
        """Lend the slot to another run while the driver waits inside this context."""


class Superseded(Exception):
    """Another process drives the run now, so this driver makes no more calls."""


Drive = Callable[[str, Slot], Coroutine[Any, Any, None]]
"""Makes the calls and takes the proofs of a run until it waits for an agent or a person, or is over. Cancelled when the
engine is closed or no longer drives the run. Raises `Superseded`."""


class Engine(Protocol):
    """Drives the runs of one journal, together with the engines of other processes. For one event loop."""

    @property
    def fault(self) -> str:
        """Why no run can be driven here at present; empty when runs can be. For any thread."""

    async def open(self) -> None:
        """Raises `StorageError` when the engine cannot be used; opening it can be retried."""

    async def start(self, run_id: str, sequence: int, *, again: bool = False, is_here: bool = False) -> None:
        """Start driving a run whose call or proofs came due at this sequence, in this process or another.

        Starting the same run and sequence twice, in any process, has the effect of one start. `again`: an earlier
        driver of the run may have ended (the run is not among the `driven`), so start another one. `is_here`: drive it
        in this process, because the others may not see the files that it is about.
        """

    async def driven(self, run_ids: Collection[str]) -> set[str]:
        """Those of these runs that a living process drives, or that are queued."""

    async def take_over(self) -> None:
        """Take over the runs of processes that died."""

    async def set_limits(self, limits: ConcurrencyLimits) -> None:
        """Change the limits; runs that are driven already go on."""

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Wait so long for the drivers, then cancel the others, so that other processes can take over their runs."""


# ── slots ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Slots:
    """A semaphore that is first come, first served, and whose limit can change. For one event loop."""

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


# ── which engine ────────────────────────────────────────────────────────────────────────────────────────────────


class EngineKind(msgspec.Struct, frozen=True, kw_only=True):
    """How to make engines of one kind, and how to read their schema version without one."""

    make: Callable[[str, Drive, ConcurrencyLimits, bool], Engine]
    """Called with the journal's URL, what drives a run, the limits, and whether this is a guest (see `DbosEngine`)."""
    version: Callable[[str], int | None] | None = None
    """For an engine with tables: their version at a journal's URL; None before they are created."""


def _make_local(path: str, drive: Drive, limits: ConcurrencyLimits, is_guest: bool) -> Engine:  # noqa: ARG001, FBT001 - guests need nothing special
    from workflowlookup.execution.local import LocalEngine  # noqa: PLC0415 - only for this kind of journal

    return LocalEngine(path, drive, limits)


def _make_dbos(url: str, drive: Drive, limits: ConcurrencyLimits, is_guest: bool) -> Engine:  # noqa: FBT001
    from workflowlookup.execution.dbos import DbosEngine  # noqa: PLC0415 - as above

    return DbosEngine(url, drive, limits, is_guest=is_guest)


def _dbos_version(url: str) -> int | None:
    from workflowlookup.execution.dbos import tables_version  # noqa: PLC0415 - as above

    return tables_version(url)


LOCAL: Final = EngineKind(make=_make_local)
DBOS: Final = EngineKind(make=_make_dbos, version=_dbos_version)

ENGINES: Final[Mapping[JournalKind, EngineKind]] = {SQLITE: LOCAL, POSTGRES: DBOS}


def engine_of(url: str) -> EngineKind:
    """The engine for the journal at a URL."""
    return ENGINES[JournalUrl(url).kind]
