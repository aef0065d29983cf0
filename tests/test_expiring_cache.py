"""Values that are cached for a few seconds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from workflowlookup import greenlets
from workflowlookup.cache import ExpiringCache
from workflowlookup.greenlets import Busy


class Numbers:
    """Computes a number for a key, with other requests in between, and counts how often."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.computed = 0
        self.cache: ExpiringCache[str, int] = ExpiringCache(10.0, 4, clock=lambda: self.now, **options)

    async def get(self, key: str = "a", wait_seconds: float = 5.0) -> int:
        with self.cache.entry(key, wait_seconds) as entry:
            if entry.value is None:
                await asyncio.sleep(0.01)
                self.computed += 1
                entry.value = self.computed
            return entry.value


async def gather(numbers: Numbers, *keys: str, **options: Any) -> list[int | BaseException]:
    return await asyncio.gather(*(greenlets.run(numbers.get, key, **options) for key in keys), return_exceptions=True)


def test_a_value_is_computed_again_when_it_has_expired() -> None:
    numbers = Numbers()

    async def read() -> AsyncIterator[int]:
        for now in (0.0, 9.0, 11.0):
            numbers.now = now
            yield await numbers.get()

    async def collect() -> list[int]:
        return [number async for number in read()]

    assert asyncio.run(collect()) == [1, 1, 2]


def test_requests_that_come_together_compute_a_value_once() -> None:
    assert asyncio.run(gather(Numbers(), "a", "a", "a", "b")) == [1, 1, 1, 2]


def test_a_request_waits_no_longer_than_it_may() -> None:
    first, second = asyncio.run(gather(Numbers(), "a", "a", wait_seconds=0.0))

    assert first == 1
    assert isinstance(second, Busy)


def test_what_failed_is_not_cached() -> None:
    numbers = Numbers()
    with pytest.raises(ZeroDivisionError), numbers.cache.entry("a", 0.0):
        raise ZeroDivisionError

    assert asyncio.run(numbers.get()) == 1


def test_heavy_values_make_room() -> None:
    numbers = Numbers(max_weight=10, weigh=lambda _: 6)

    assert asyncio.run(gather(numbers, "a")) == [1]
    assert asyncio.run(gather(numbers, "b")) == [2]
    assert asyncio.run(gather(numbers, "a")) == [3]
