"""An immutable mapping that grows cheaply: a changed copy shares almost everything with its original.

A run is folded event by event, and each event gives a new `Run`. With plain dictionaries, every event would copy the
entries of all events before it, so a run ten times as long would take a hundred times as long.

The entries are in layers, the oldest first and each at least twice as large as the next. A change is a new layer of one
entry, and layers of similar size are merged, so each entry is copied about log2(n) times. A layer never changes once it
is part of a map, so maps can be shared between threads.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_REMOVED: Final[Any] = object()
"""Marks an entry of an older layer as removed."""


class PersistentMap(Mapping[K, V]):
    """A mapping in the order in which its keys were last set. `set` and `without` return changed copies."""

    __slots__ = ("_layers", "_size")

    def __init__(self) -> None:
        self._layers: tuple[dict[K, V], ...] = ()
        self._size = 0

    def set(self, key: K, value: V) -> "PersistentMap[K, V]":
        """A copy with this entry, at the end."""
        return self._changed(key, value, self._size + (key not in self))

    def without(self, key: K) -> "PersistentMap[K, V]":
        """A copy without this key; the map itself if it does not have the key."""
        return self._changed(key, _REMOVED, self._size - 1) if key in self else self

    def _changed(self, key: K, value: V, size: int) -> "PersistentMap[K, V]":
        layers, newest = list(self._layers), {key: value}
        while layers and len(layers[-1]) < 2 * len(newest):
            newest = _merged(layers.pop(), newest, is_oldest=not layers)
        copy: PersistentMap[K, V] = PersistentMap()
        copy._layers = (*layers, newest) if newest else ()
        copy._size = size
        return copy

    def __getitem__(self, key: K) -> V:
        for layer in reversed(self._layers):
            if key in layer:
                value = layer[key]
                if value is _REMOVED:
                    break
                return value
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        for layer in reversed(self._layers):
            if key in layer:
                return layer[key] is not _REMOVED
        return False

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        if sum(map(len, self._layers)) == self._size:  # no key is in two layers
            return itertools.chain.from_iterable(self._layers)
        return reversed(list(reversed(self)))

    def __reversed__(self) -> Iterator[K]:
        """The keys, the last set first. Taking a few is cheap, however many there are."""
        visited: set[K] = set()
        for layer in reversed(self._layers):
            for key, value in reversed(layer.items()):
                if key not in visited:
                    visited.add(key)
                    if value is not _REMOVED:
                        yield key

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)})"


def _merged(older: dict[K, V], newer: dict[K, V], *, is_oldest: bool) -> dict[K, V]:
    """Both layers as one, the newer entries at the end. Removal marks are needed only if an older layer exists."""
    if older.keys().isdisjoint(newer):  # nothing to move or remove
        return {**older, **newer}
    merged = {**older}
    for key, value in newer.items():
        merged.pop(key, None)
        if value is not _REMOVED or not is_oldest:
            merged[key] = value
    return merged
