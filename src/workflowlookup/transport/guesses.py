"""Those who try one token after the other are slowed down, by where they come from.

A token that was tried from there before is no guess: whoever comes with theirs goes on, and a client that does not
notice that its token has expired costs its neighbours nothing.
"""

import hashlib
import ipaddress
import logging
import time
from collections.abc import Iterable
from typing import Final

from starlette.requests import Request

from workflowlookup.cache import BoundedCache
from workflowlookup.transport.limits import Rate

log = logging.getLogger(__name__)

GUESSES_PER_MINUTE: Final = 20
MAX_TRIED: Final = 20_000
"""How many tokens are remembered, as hashes, with where they were tried."""
LOG_SECONDS: Final = 600.0
"""How long it is not said again that somebody guesses."""
_NETWORK_BITS: Final = 64
"""How much of an IPv6 address is one place: whoever has one has all that begin like it."""


class Guesses:
    """How many wrong tokens came from where."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        """`trusted_proxies`: addresses and networks that are believed when they say whom they speak for."""
        self._proxies = [ipaddress.ip_network(proxy) for proxy in trusted_proxies]
        self._rate = Rate(GUESSES_PER_MINUTE)
        self._tried: BoundedCache[tuple[str, bytes], None] = BoundedCache(MAX_TRIED)
        self._logged_at: BoundedCache[str, float] = BoundedCache(MAX_TRIED)

    def place_of(self, request: Request) -> str:
        """Where a request comes from: the nearest address that is no proxy of ours."""
        place = request.client.host if request.client is not None else ""
        hops = [hop.strip() for line in request.headers.getlist("x-forwarded-for") for hop in line.split(",")]
        while hops and self._is_proxy(place) and _parsed(hops[-1]) is not None:
            place = hops.pop()
        found = _parsed(place)
        if isinstance(found, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
        return str(found or place)

    def _is_proxy(self, place: str) -> bool:
        address = _parsed(place)
        return address is not None and any(address in network for network in self._proxies)

    def seconds_to_wait(self, place: str, secret: str) -> int:
        """How long no other token may be tried from there; 0 when this one may."""
        if (place, _digest(secret)) in self._tried:
            return 0
        wait = self._rate.wait(place)
        if wait:
            self._say(place)
        return wait

    def note(self, place: str, secret: str, *, is_good: bool) -> None:
        """A token was tried."""
        key = (place, _digest(secret))
        if not is_good and key not in self._tried:
            self._rate.take(place)
        self._tried[key] = None

    def _say(self, place: str) -> None:
        now = time.monotonic()
        logged_at = self._logged_at.get(place)
        if logged_at is None or logged_at < now - LOG_SECONDS:
            self._logged_at[place] = now
            log.warning("too many wrong tokens came from %s: others are not even looked at for now", place)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def _parsed(place: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(place.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
