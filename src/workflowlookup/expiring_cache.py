"""A cache for expensive values that expire after a few seconds; only one request at a time computes each of them."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from workflowlookup.cache import BoundedCache
from workflowlookup.greenlets import Lock

Key = TypeVar("Key")
Value = TypeVar("Value")


class ExpiringEntry(Generic[Value]):
    """A value and the time at which it expires."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.value: Value | None = None
        self.expires_at = float("-inf")


class ExpiringCache(Generic[Key, Value]):
    """A cache whose entries expire. The key must name all that a value depends on, including the caller's rights."""

    def __init__(
        self,
        seconds: float,
        max_entries: int,
        *,
        max_weight: int = 0,
        weigh: Callable[[Value], int] = lambda _: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._entries: BoundedCache[Key, ExpiringEntry[Value]] = BoundedCache(
            max_entries,
            max_weight=max_weight,
            weigh=lambda entry: 0 if entry.value is None else weigh(entry.value),
        )

    @contextlib.contextmanager
    def entry(self, key: Key, wait_seconds: float) -> Iterator[ExpiringEntry[Value]]:
        """The entry of a key, locked for the caller. If its value is None, the caller computes and sets it.

        Raises `Busy` when another request holds it for longer than `wait_seconds`.
        """
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = ExpiringEntry()
        with entry.lock.hold(wait_seconds):
            if entry.expires_at <= self._clock():
                entry.value = None
            is_new = entry.value is None
            yield entry
            if is_new and entry.value is not None:
                entry.expires_at = self._clock() + self._seconds
                self._entries[key] = entry  # stored again, so that the new weight counts
