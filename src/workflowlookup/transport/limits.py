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
        self._buckets: BoundedCache[str, _Bucket] = BoundedCache(MAX_CLIENTS)

    def take(self, client: str) -> int:
        """Count a request; how many seconds to wait when it is too many, else 0."""
        if not self._most:
            return 0
        bucket = self._buckets.get(client)
        now = time.monotonic()
        if bucket is None:
            bucket = self._buckets[client] = _Bucket(float(self._most), now)
        bucket.left = min(float(self._most), bucket.left + (now - bucket.at) * self._most / 60)
        bucket.at = now
        if bucket.left < 1:
            return max(1, math.ceil((1 - bucket.left) * 60 / self._most))
        bucket.left -= 1
        return 0

    def wait(self, client: str) -> int:
        """How many seconds to wait before the next request; 0 when it may come now."""
        bucket = self._buckets.get(client) or _Bucket(float(self._most), 0.0)
        left = bucket.left + (time.monotonic() - bucket.at) * self._most / 60
        return 0 if left >= 1 else max(1, math.ceil((1 - left) * 60 / self._most))


class _Bucket(msgspec.Struct):
    """How many requests a client had left at a time."""

    left: float
    at: float


def names_of(host: str) -> tuple[str, ...]:
    """What a server that listens here may be called, unless the settings say otherwise."""
    plain = host.lower().strip("[]")
    name = f"[{plain}]" if ":" in plain else plain
    return LOOPBACK if name in LOOPBACK else (*LOOPBACK, name)
