"""How much is taken over HTTP: how long, how often, and for which names of this server."""

import math
import time
from typing import Final

import msgspec

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import JOURNAL_SECONDS
from workflowlookup.web import LOOPBACK

MAX_CLIENTS: Final = 10_000
BURST: Final = 100
"""Requests that a caller may send in a burst, unless `requests_per_minute` is less."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this name."""

    max_message_bytes: int
    max_sessions: int
    idle_seconds: float
    requests_per_minute: int
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    journal_seconds: float = JOURNAL_SECONDS
    """How long a request waits for the journal, or for an earlier request of its session that waits for it."""


class Rate:
    """How often each caller sends requests: a token bucket for each.

    A bucket holds `BURST` requests or a second's worth, whichever is more, but at most a minute's worth. Beyond that a
    caller is served with a delay of up to `max_delay` seconds, and then refused, so that a burst cannot block others.
    """

    def __init__(self, requests_per_minute: int, *, max_delay: float = 0.0) -> None:
        self._per_second = requests_per_minute / 60
        self._capacity = min(requests_per_minute, max(BURST, self._per_second))
        self._max_delay = max_delay
        self._left: BoundedCache[str, tuple[float, float]] = BoundedCache(MAX_CLIENTS)
        """By caller: how many requests it had left, and when. Negative while requests are delayed."""

    def take(self, caller: str) -> tuple[float, int]:
        """Count a request. Returns its delay in seconds, and the `Retry-After` of its refusal, 0 if it is served."""
        if not self._per_second:
            return 0.0, 0
        left, now = self._at_present(caller)
        delay = max(0.0, (1 - left) / self._per_second)
        if delay > self._max_delay:
            return 0.0, max(1, math.ceil(delay - self._max_delay))
        self._left[caller] = left - 1, now
        return delay, 0

    def _at_present(self, caller: str) -> tuple[float, float]:
        now = time.monotonic()
        left, at = self._left.get(caller) or (self._capacity, now)
        return min(self._capacity, left + (now - at) * self._per_second), now


def names_of(host: str) -> tuple[str, ...]:
    """What a server that listens here may be called, unless the settings say otherwise."""
    plain = host.lower().strip("[]")
    name = f"[{plain}]" if ":" in plain else plain
    return LOOPBACK if name in LOOPBACK else (*LOOPBACK, name)
