"""Bounded caches that evict the least recently used entry; the values of one kind also expire."""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def _weightless(_: object) -> int:
    return 0


class BoundedCache(Generic[Key, Value]):
    """A mapping of at most `max_entries`, and of at most `max_weight` in all unless a single entry is heavier.

    `weigh` gives the weight of a value, such as its bytes, when it is stored. Only `get` and storing count as a use.
    Any thread may use it.
    """

    def __init__(self, max_entries: int, *, max_weight: int = 0, weigh: Callable[[Value], int] = _weightless) -> None:
        self._max_entries = max_entries
        self._max_weight = max_weight
        self._weigh = weigh
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        """Ordered from least to most recently used."""
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        try:  # without the lock: both operations are atomic
            self._entries.move_to_end(key)
            return self._entries[key][0]
        except KeyError:
            return None

    def __setitem__(self, key: Key, value: Value) -> None:
        weight = self._weigh(value)
        with self._lock:
            self._pop(key)
            self._entries[key] = (value, weight)
            self._weight += weight
            while len(self._entries) > self._max_entries or (self._weight > self._max_weight and len(self) > 1):
                _, (_, evicted_weight) = self._entries.popitem(last=False)  # atomic, unlike an iterator: see `get`
                self._weight -= evicted_weight

    def pop(self, key: Key) -> Value | None:
        with self._lock:
            return self._pop(key)

    def _pop(self, key: Key) -> Value | None:
        value, weight = self._entries.pop(key, (None, 0))
        self._weight -= weight
        return value

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


class ExpiringEntry(Generic[Value]):
    """A value and the time at which it expires."""

    def __init__(self) -> None:
        from workflowlookup.greenlets import Lock  # noqa: PLC0415 - only servers over HTTP use it

        self.lock = Lock()
        self.value: Value | None = None
        self.expires_at = float("-inf")


class ExpiringCache(Generic[Key, Value]):
    """A cache for expensive values that expire after some seconds. Only one request at a time computes each of them.

    The key must name all that a value depends on, including the caller's rights.
    """

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
