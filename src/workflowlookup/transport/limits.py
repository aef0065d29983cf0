"""How much is taken over HTTP: how long, how often, and for which names of this server."""

import math
import time
from typing import Final

import msgspec

from workflowlookup.cache import BoundedCache
from workflowlookup.web import LOOPBACK

MAX_CLIENTS: Final = 10_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this name."""

    max_message_bytes: int
    max_sessions: int
    idle_seconds: float
    requests_per_minute: int
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]


class Rate:
    """How often each client asks: as many requests as are allowed in a minute may come at once, then one by one."""

    def __init__(self, requests_per_minute: int) -> None:
        self._most = requests_per_minute
        self._left: BoundedCache[str, tuple[float, float]] = BoundedCache(MAX_CLIENTS)
        """By client: how many requests it had left, and when."""

    def take(self, client: str) -> int:
        """Count a request; how many seconds to wait when it is too many, else 0."""
        if not self._most:
            return 0
        now = time.monotonic()
        left = self._left_at(client, now)
        if left >= 1:
            self._left[client] = left - 1, now
        return self._seconds_until_one(left)

    def wait(self, client: str) -> int:
        """How many seconds to wait before the next request; 0 when it may come now."""
        return self._seconds_until_one(self._left_at(client, time.monotonic()))

    def _left_at(self, client: str, now: float) -> float:
        left, at = self._left.get(client) or (self._most, now)
        return min(self._most, left + (now - at) * self._most / 60)

    def _seconds_until_one(self, left: float) -> int:
        return 0 if left >= 1 else max(1, math.ceil((1 - left) * 60 / self._most))


def names_of(host: str) -> tuple[str, ...]:
    """What a server that listens here may be called, unless the settings say otherwise."""
    plain = host.lower().strip("[]")
    name = f"[{plain}]" if ":" in plain else plain
    return LOOPBACK if name in LOOPBACK else (*LOOPBACK, name)
