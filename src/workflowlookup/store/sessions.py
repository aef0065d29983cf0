"""Sessions of the handshake era that any server at one database can go on with: what a client said of itself when it
began, whose it is, and what it follows.

The id of a session is kept as a hash. What a session is asked for needs the caller's own token with every request; the
id alone opens nothing.
"""

import hashlib
from collections.abc import Callable, Iterable

from workflowlookup.store.journal import Journal, now


class Sessions:
    """The sessions of one journal. Whoever asks has found out whose request it is: `owner`."""

    def __init__(self, journal: Journal, idle_seconds: float, *, clock: Callable[[], int] = now) -> None:
        self._journal = journal
        self._idle = int(idle_seconds * 1000)
        self._clock = clock

    def open(self, key: str, owner: str, opening: bytes) -> None:
        """Keep a session: who began it, and with which message."""
        self._journal.add_session(key, owner, opening.decode(), self._clock())

    def find(self, key: str, owner: str) -> bytes | None:
        """The message that began a session; None when there is none of this owner, or it is over."""
        opening = self._journal.session_opening(key, owner, self._oldest())
        return None if opening is None else opening.encode()

    def use(self, keys: Iterable[str]) -> None:
        """These are in use; those that nobody has used for too long are forgotten."""
        self._journal.touch_sessions(keys, self._clock(), self._oldest())

    def end(self, key: str) -> None:
        self._journal.end_session(key)

    def follow(self, key: str, address: str) -> None:
        """The client wants to hear of changes there."""
        self._journal.subscribe(key, address)

    def unfollow(self, key: str, address: str) -> None:
        self._journal.unsubscribe(key, address)

    def followed(self, key: str) -> frozenset[str]:
        return self._journal.subscriptions(key)

    def _oldest(self) -> int:
        """A little longer than any server keeps one that is not used: their word of its use comes late."""
        return self._clock() - self._idle - self._idle // 4


def key_of(session: str) -> str:
    """What a session is called where it is kept."""
    return hashlib.sha256(session.encode()).hexdigest()
