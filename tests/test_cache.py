"""The bounded cache."""

import sys
import threading

from workflowlookup.cache import BoundedCache


def test_the_least_recently_used_goes_first() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"], cache["b"] = 1, 2
    assert cache.get("a") == 1

    cache["c"] = 3

    assert (list(cache), cache.get("b"), len(cache)) == (["a", "c"], None, 2)


def test_to_store_again_is_a_use_and_to_ask_whether_it_is_there_is_none() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"], cache["b"], cache["a"] = 1, 2, 3
    assert "b" in cache

    cache["c"] = 4

    assert list(cache) == ["a", "c"]
    assert cache.get("a") == 3


def test_it_weighs_no_more_than_it_may_unless_by_a_single_entry() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10, max_weight=10, weigh=len)
    cache["a"], cache["b"], cache["c"] = "x" * 4, "x" * 4, "x" * 2
    assert list(cache) == ["a", "b", "c"]

    cache["d"] = "x"
    assert list(cache) == ["b", "c", "d"]
    cache["d"] = "x" * 50
    assert list(cache) == ["d"]
    cache["e"] = "x"
    assert list(cache) == ["e"]


def test_what_is_taken_out_weighs_nothing() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10, max_weight=5, weigh=len)
    cache["a"] = "x" * 5
    assert cache.pop("a") == "x" * 5
    assert cache.pop("a") is None
    cache["b"], cache["c"] = "xx", "xxx"

    assert list(cache) == ["b", "c"]
    cache.clear()
    assert list(cache) == []
    cache["d"] = "x" * 5
    assert list(cache) == ["d"]


def test_threads_do_not_spoil_it_for_each_other() -> None:
    cache: BoundedCache[int | str, int] = BoundedCache(50, max_weight=100, weigh=lambda value: 2)
    problems = []

    def use(start: int) -> None:
        try:
            for number in range(20_000):
                key = (start + number * 7) % 80
                if cache.get(key) is None:
                    cache[key] = number
                if number % 11 == 0:
                    cache.pop(key)
        except (KeyError, RuntimeError, StopIteration) as problem:
            problems.append(problem)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    for number in range(50):
        cache[f"new {number}"] = number
    assert len(cache) == 50


def test_reading_waits_for_nobody_who_stores() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"] = 1

    with cache._lock:
        assert (cache.get("a"), cache.get("b")) == (1, None)


def test_eviction_while_another_thread_reads() -> None:
    cache: BoundedCache[int, int] = BoundedCache(4)
    problems, is_over = [], threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for key in range(50):
                cache.get(key)

    def store() -> None:
        try:
            for number in range(20_000):
                cache[number % 50] = number
        except RuntimeError as problem:
            problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(2)]
    storing = threading.Thread(target=store)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-7)
    try:
        for thread in (*readers, storing):
            thread.start()
        storing.join()
        is_over.set()
        for thread in readers:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert problems == []
