"""The engine for a journal in a file: drivers are tasks of this process, and the process that drives a run locks it.

Nothing is stored: the journal has what is due, and the kernel releases the locks of a process however it ends. So no
heartbeat is needed: the process that gets the lock of a due run drives it.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Collection
from typing import Final

from workflowlookup.errors import StorageError
from workflowlookup.execution.engine import ConcurrencyLimits, Drive, Slots, Superseded

log = logging.getLogger(__name__)

SUFFIX: Final = ".drivers"
CANCEL_SECONDS: Final = 2.0
"""How long `close` waits for cancelled drivers."""

_open_paths: set[str] = set()
"""The lock files that this process has open: see `RunLocks`."""


class RunLocks:
    """One lock for each run, across processes: a byte of a file that is never written.

    POSIX locks belong to a process: they end with it and are not inherited by its children. They do not exclude another
    `RunLocks` of the same process, and closing any descriptor of the file releases all of them, so a process opens the
    file once. One file for all runs leaves nothing to clean up, and takes one descriptor for a thousand queued runs.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def open(self) -> None:
        """Raises `OSError`."""
        if self._path in _open_paths:
            raise OSError(0, "this process drives its runs already")
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        _open_paths.add(self._path)

    def acquire(self, run_id: str) -> bool:
        """False when another process has the lock."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(run_id))
        except (BlockingIOError, PermissionError):  # POSIX allows either
            return False
        return True

    def release(self, run_id: str) -> None:
        if self._descriptor != -1:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _offset(run_id))

    def close(self) -> None:
        if self._descriptor != -1:
            os.close(self._descriptor)
            self._descriptor = -1
            _open_paths.discard(self._path)


def _offset(run_id: str) -> int:
    """The byte that is locked for a run. Two runs with the same byte would be driven one after the other."""
    return int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=8).digest()) >> 2


class LocalEngine:
    """Drives the runs of a journal in a file."""

    def __init__(self, path: str, drive: Drive, limits: ConcurrencyLimits) -> None:
        self._path = os.path.realpath(os.path.expanduser(path))
        self._drive = drive
        self._slots = Slots(limits.each)
        self._locks = RunLocks(f"{self._path}{SUFFIX}")
        self._drivers: dict[str, asyncio.Task[None]] = {}
        self._started: dict[str, int] = {}
        """By id of a run that is driven here: the last sequence that it was started for."""

    @property
    def fault(self) -> str:
        return ""

    async def open(self) -> None:
        try:
            self._locks.open()
        except OSError as problem:
            message = f"The engine that carries out calls, {self._path}{SUFFIX}, cannot be used: {problem.strerror}."
            raise StorageError(message, details=message) from problem

    async def start(self, run_id: str, sequence: int, *, again: bool = False, is_here: bool = False) -> None:  # noqa: ARG002 - an ended driver leaves nothing behind, and all are here
        if run_id in self._drivers:
            self._started[run_id] = max(sequence, self._started[run_id])
        elif self._locks.acquire(run_id):
            self._started[run_id] = sequence
            self._drivers[run_id] = asyncio.create_task(self._run(run_id))

    async def driven(self, run_ids: Collection[str]) -> set[str]:
        return {run_id for run_id in run_ids if run_id in self._drivers or self._is_driven_elsewhere(run_id)}

    def _is_driven_elsewhere(self, run_id: str) -> bool:
        if not self._locks.acquire(run_id):
            return True
        self._locks.release(run_id)
        return False

    async def take_over(self) -> None:
        """Nothing to do: the locks of a dead process are free, so its runs are not `driven` and are started again."""

    async def set_limits(self, limits: ConcurrencyLimits) -> None:
        self._slots.set_limit(limits.each)

    async def _run(self, run_id: str) -> None:
        sequence = 0
        try:
            async with self._slots.slot():
                while sequence < self._started[run_id]:  # another call may come due while the driver ends
                    sequence = self._started[run_id]
                    await self._drive(run_id, self._slots)
        except Superseded as problem:
            log.warning("%s", problem)
        except Exception:  # broad on purpose: an error ends one driver, and the run is driven again
            log.exception("the driver of run %s failed", run_id)
        finally:
            del self._drivers[run_id], self._started[run_id]
            self._locks.release(run_id)

    async def close(self, grace_seconds: float = 0.0) -> None:
        if self._drivers and grace_seconds:
            await asyncio.wait(self._drivers.values(), timeout=grace_seconds)
        drivers = [*self._drivers.values()]
        for driver in drivers:
            driver.cancel()
        if drivers:
            await asyncio.wait(drivers, timeout=CANCEL_SECONDS)
        with contextlib.suppress(OSError):
            self._locks.close()
