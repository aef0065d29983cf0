"""Fair shares of limited resources, and rate limits, for each caller.

Sessions, listeners and bytes in memory are divided by the same rule. A caller is a token, the subject of an issuer's
token, or, for requests without one, an address.
"""

import math
import time
from collections import defaultdict
from typing import Final

from workflowlookup.access import LOCAL, LOOPBACK
from workflowlookup.cache import BoundedCache

CALLERS: Final = 4
"""The total is divided by this number: it takes this many greedy callers to leave nothing for others."""
MIN_SHARE: Final = 8
"""A share is at least this many, or the total if that is less, so that a small server stays usable."""
SOLE_CALLERS: Final = frozenset({LOCAL.caller, LOOPBACK.caller})
"""Callers of a server that requires no tokens. It has no others, so their share is the total."""


class Shares:
    """How much of a limited resource each caller holds, as a number of things or of bytes."""

    def __init__(self, total: int, *, minimum: int = MIN_SHARE) -> None:
        self.total = total
        self.per_caller = min(total, max(minimum, total // CALLERS))
        self._held: defaultdict[str, int] = defaultdict(int)
        self._sum = 0

    @property
    def sum(self) -> int:
        """What all callers hold together."""
        return self._sum

    def amount_of(self, caller: str) -> int:
        """What one caller holds."""
        return self._held.get(caller, 0)

    def share_of(self, caller: str) -> int:
        """What one caller may hold at most."""
        return self.total if caller in SOLE_CALLERS else self.per_caller

    def is_over(self, caller: str, amount: int = 1) -> bool:
        """Whether this amount more would exceed the caller's own share."""
        return self.amount_of(caller) + amount > self.share_of(caller)

    def has_room(self, caller: str, amount: int = 1) -> bool:
        """Whether a caller may take this amount more: neither its share nor the total is exceeded."""
        return not self.is_over(caller, amount) and self._sum + amount <= self.total

    def take(self, caller: str, amount: int = 1) -> bool:
        """Take this amount if there is room; False when there is not."""
        if not self.has_room(caller, amount):
            return False
        self._held[caller] += amount
        self._sum += amount
        return True

    def release(self, caller: str, amount: int = 1) -> None:
        """Give back what was taken."""
        self._held[caller] -= amount
        self._sum -= amount
        if self._held[caller] <= 0:
            del self._held[caller]


class Holding:
    """What one request holds of a limited resource, until it is released."""

    def __init__(self, shares: Shares, caller: str) -> None:
        self._shares = shares
        self._caller = caller
        self._amount = 0

    def take(self, amount: int) -> bool:
        """Take this amount more if there is room; False when there is not."""
        if not self._shares.take(self._caller, amount):
            return False
        self._amount += amount
        return True

    def release(self) -> None:
        """Give everything back; safe to call again."""
        amount, self._amount = self._amount, 0
        if amount:
            self._shares.release(self._caller, amount)


MAX_CLIENTS: Final = 10_000
BURST: Final = 100
"""Requests that a caller may send in a burst, unless `requests_per_minute` is less."""


class TokenBuckets:
    """Limits how often each caller sends requests: a token bucket for each.

    A bucket holds `BURST` requests or a second's worth, whichever is more, but at most a minute's worth. Beyond that a
    caller is served with a delay of up to `max_delay` seconds, and then refused, so that a burst cannot block others.
    """

    def __init__(self, requests_per_minute: int, *, max_delay: float = 0.0) -> None:
        self._per_second = requests_per_minute / 60
        self._capacity = min(requests_per_minute, max(BURST, self._per_second))
        self._max_delay = max_delay
        self._buckets: BoundedCache[str, tuple[float, float]] = BoundedCache(MAX_CLIENTS)
        """By caller: how many requests were left, and when. Negative while requests are delayed."""

    def take(self, caller: str) -> tuple[float, int]:
        """Count a request. Returns its delay in seconds, and the `Retry-After` of its refusal, 0 if it is served."""
        if not self._per_second:
            return 0.0, 0
        remaining, now = self._refilled(caller)
        delay = max(0.0, (1 - remaining) / self._per_second)
        if delay > self._max_delay:
            return 0.0, max(1, math.ceil(delay - self._max_delay))
        self._buckets[caller] = remaining - 1, now
        return delay, 0

    def _refilled(self, caller: str) -> tuple[float, float]:
        now = time.monotonic()
        remaining, at = self._buckets.get(caller) or (self._capacity, now)
        return min(self._capacity, remaining + (now - at) * self._per_second), now
