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
        self._clients: BoundedCache[str, tuple[float, float]] = BoundedCache(MAX_CLIENTS)

    def take(self, client: str) -> int:
        """Count a request; how many seconds to wait when it is too many, else 0."""
        wait = self.wait(client)
        if self._most:
            self._clients[client] = (self._left(client) - (not wait), time.monotonic())
        return wait

    def wait(self, client: str) -> int:
        """How many seconds to wait before the next request; 0 when it may come now."""
        left = self._left(client)
        return 0 if not self._most or left >= 1 else max(1, math.ceil((1 - left) * 60 / self._most))

    def _left(self, client: str) -> float:
        now = time.monotonic()
        left, at = self._clients.get(client) or (float(self._most), now)
        return min(float(self._most), left + (now - at) * self._most / 60)


def names_of(host: str) -> tuple[str, ...]:
    """What a server that listens here may be called, unless the settings say otherwise."""
    plain = host.lower().strip("[]")
    name = f"[{plain}]" if ":" in plain else plain
    return LOOPBACK if name in LOOPBACK else (*LOOPBACK, name)
