"""The login throttle: too many wrong tokens from one address are answered with 429; valid ones are always served.

Because a valid token is served even while its address is throttled, every guess is checked. That is safe: a token has
256 random bits, so guessing one is hopeless at any rate. The throttle limits what guesses write to the log, and the 429
tells a client why it is refused.
"""

import hashlib
import logging
import time
from typing import Final

from workflowlookup.cache import BoundedCache
from workflowlookup.shares import Rate

log = logging.getLogger(__name__)

FAILURES_PER_MINUTE: Final = 20
MAX_REMEMBERED: Final = 20_000
"""How many wrong tokens (as hashes, with their address) are remembered, and how many logged addresses."""
LOG_SECONDS: Final = 600.0
"""An address that guesses is logged at most this often."""


class LoginThrottle:
    """Failed authentications by address."""

    def __init__(self) -> None:
        self._rate = Rate(FAILURES_PER_MINUTE)
        self._failed: BoundedCache[tuple[str, bytes], None] = BoundedCache(MAX_REMEMBERED)
        self._logged_at: BoundedCache[str, float] = BoundedCache(MAX_REMEMBERED)

    def fail(self, address: str, secret: str) -> int:
        """Count a wrong token. Returns the `Retry-After` of the 429, or 0 while there are few.

        The same token again does not count: a client that does not notice that its token has expired is not throttled.
        """
        if self.has_failed(address, secret):
            return 0
        _, wait = self._rate.take(address)
        if wait:
            self._log(address)
        else:
            self._failed[_key(address, secret)] = None
        return wait

    def has_failed(self, address: str, secret: str) -> bool:
        """Whether this wrong token was counted for this address before."""
        return _key(address, secret) in self._failed

    def _log(self, address: str) -> None:
        now = time.monotonic()
        logged_at = self._logged_at.get(address)
        if logged_at is None or logged_at < now - LOG_SECONDS:
            self._logged_at[address] = now
            log.warning("too many wrong tokens came from %s: further ones are answered with 429 for now", address)


def _key(address: str, secret: str) -> tuple[str, bytes]:
    return address, hashlib.sha256(secret.encode(errors="replace")).digest()
