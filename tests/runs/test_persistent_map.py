"""The persistent map: a dictionary in all that can be seen, whose changed copies are cheap."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflowlookup.runs import persistent_map
from workflowlookup.runs.persistent_map import PersistentMap

KEYS = st.integers(0, 12)
CHANGES = st.lists(st.one_of(st.tuples(st.just("set"), KEYS), st.tuples(st.just("without"), KEYS)), max_size=80)


@given(CHANGES)
def test_it_behaves_like_a_dictionary_and_no_older_copy_changes(changes: list[tuple[str, int]]) -> None:
    map_: PersistentMap[int, int] = PersistentMap()
    model: dict[int, int] = {}
    older = []
    for number, (change, key) in enumerate(changes):
        older.append((map_, list(model.items())))
        model.pop(key, None)
        if change == "set":
            model[key] = number
        map_ = map_.set(key, number) if change == "set" else map_.without(key)

    for copy, items in [*older, (map_, list(model.items()))]:
        assert list(copy.items()) == items
        assert list(reversed(copy)) == [key for key, _ in reversed(items)]
        assert len(copy) == len(items)
        assert [key in copy for key in range(13)] == [key in dict(items) for key in range(13)]


def test_a_key_that_is_not_there_changes_nothing() -> None:
    map_ = PersistentMap[str, int]().set("a", 1)

    assert map_.without("b") is map_
    assert map_ == {"a": 1}


def test_an_entry_is_copied_a_logarithmic_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    merged = persistent_map._merged

    def counted(older: dict[str, int], newer: dict[str, int], *, is_oldest: bool) -> dict[str, int]:
        nonlocal copied
        copied += len(older) + len(newer)
        return merged(older, newer, is_oldest=is_oldest)

    monkeypatch.setattr(persistent_map, "_merged", counted)
    map_: PersistentMap[int, int] = PersistentMap()
    for number in range(10_000):
        map_ = map_.set(number, number)
    for number in range(5_000):
        map_ = map_.without(number)

    assert copied < 15_000 * 2 * math.log2(15_000)
