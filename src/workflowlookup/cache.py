"""A bounded cache that evicts the least recently used entry."""

import threading
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
            while len(self) > self._max_entries or (self._weight > self._max_weight and len(self) > 1):
                self._pop(next(iter(self._entries)))

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
