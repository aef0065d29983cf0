"""Detects changes below the directories of the library.

`InotifyWatcher` (Linux) asks the kernel: its answer is exact, and takes a microsecond whatever the size of the library.
`PollingWatcher` (other systems, or when the kernel grants no more watches) answers yes often enough for a scan to find
changes soon. Both are asked at the start of a request; there is no thread.
"""

import os
import select
import struct
import sys
import time
from collections.abc import Callable
from typing import Final, Protocol


class ChangeWatcher(Protocol):
    """Tells whether watched directories may have changed."""

    def watch(self, directory: str) -> None:
        """Watch a directory. Safe to repeat."""

    def expect(self, path: str) -> None:
        """Watch for a directory that does not exist yet."""

    def pending(self) -> bool:
        """Whether anything may have changed since `take`."""

    def take(self) -> frozenset[str]:
        """Begin a scan: the paths that are known to have changed. Others may have changed too."""

    def scanned(self) -> None:
        """End the scan that began with `take`."""


class PollingWatcher:
    """Reports a possible change at such intervals that scans take about `share` of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, share: float = 0.05) -> None:
        self._clock = clock
        self._share = share
        self._began = self._next = clock()

    def watch(self, directory: str) -> None:
        pass

    def expect(self, path: str) -> None:
        pass

    def pending(self) -> bool:
        return self._clock() >= self._next

    def take(self) -> frozenset[str]:
        self._began = self._clock()
        return frozenset()

    def scanned(self) -> None:
        now = self._clock()
        self._next = now + (now - self._began) / self._share


_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF, _ONLYDIR = 0x100, 0x200, 0x400, 0x800, 0x1000000
_MASK: Final = (
    _MODIFY
    | _ATTRIB
    | _CLOSE_WRITE
    | _MOVED_FROM
    | _MOVED_TO
    | _CREATE
    | _DELETE
    | _DELETE_SELF
    | _MOVE_SELF
    | _ONLYDIR
)
_OVERFLOW: Final = 0x4000
_EVENT: Final = struct.Struct("iIII")


class InotifyWatcher:
    """Linux inotify through the C library, because the standard library has no binding."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - takes milliseconds, and only the library needs it

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1 failed")
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._directories: dict[int, str] = {}
        self._expected: dict[int, set[str]] = {}
        self._changed: set[str] = set()
        self._is_stale = False
        self._polling = PollingWatcher()
        self._is_blind = False

    def watch(self, directory: str) -> None:
        watch = self._add(directory)
        if watch is not None:
            self._directories[watch] = directory

    def expect(self, path: str) -> None:
        """Watch the nearest existing directory above for the one name that leads to the path."""
        parent, name = os.path.split(path)
        while not os.path.isdir(parent) and parent != os.path.dirname(parent):
            parent, name = os.path.split(parent)
        watch = self._add(parent)
        if watch is not None:
            self._expected.setdefault(watch, set()).add(name)

    def _add(self, directory: str) -> int | None:
        watch: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _MASK)
        if watch < 0:
            self._is_blind = True  # no more watches, or no such directory: poll instead
            return None
        return watch

    def pending(self) -> bool:
        if self._poll.poll(0):
            self._read()
        return self._is_stale or (self._is_blind and self._polling.pending())

    def take(self) -> frozenset[str]:
        self.pending()
        changed, self._changed = frozenset(self._changed), set()
        self._expected.clear()
        self._is_stale = self._is_blind = False
        self._polling.take()
        return changed

    def _read(self) -> None:
        data = os.read(self._descriptor, 1 << 16)
        offset = 0
        while offset < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
            offset += length
            directory = self._directories.get(watch)
            if directory is not None:
                self._changed.add(os.path.join(directory, name))
                self._is_stale = True
            elif name in self._expected.get(watch, ()) or not name or mask & _OVERFLOW:
                self._is_stale = True

    def scanned(self) -> None:
        self._polling.scanned()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)


def make_change_watcher() -> ChangeWatcher:
    """Inotify where it is available, polling elsewhere."""
    if sys.platform == "linux":
        try:
            return InotifyWatcher()
        except (OSError, AttributeError):
            pass
    return PollingWatcher()
