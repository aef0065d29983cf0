"""Sessions of the handshake era that any server at one database can go on with: what a client said of itself when it
began, whose it is, and what it follows.

The id of a session is kept as a hash. What a session is asked for needs the caller's own token with every request; the
id alone opens nothing.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from workflowlookup.runs.clock import now
from workflowlookup.runs.sql import SqlJournal

_OPEN: Final = "INSERT INTO sessions (id, owner, opening, used) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_FIND: Final = "SELECT opening FROM sessions WHERE id = ? AND owner = ? AND used >= ?"
_FOLLOW: Final = """
    INSERT INTO session_addresses (session, address) SELECT id, ? FROM sessions WHERE id = ? ON CONFLICT DO NOTHING
"""
_LOST: Final = "DELETE FROM session_addresses WHERE session IN (SELECT id FROM sessions WHERE used < ?)"


class Sessions:
    """The sessions of one journal. Whoever asks has found out whose request it is: `owner`."""

    def __init__(self, journal: SqlJournal, idle_seconds: float, *, clock: Callable[[], int] = now) -> None:
        self._journal = journal
        self._idle = int(idle_seconds * 1000)
        self._clock = clock

    def open(self, key: str, owner: str, opening: bytes) -> None:
        """Keep a session: who began it, and with which message."""
        self._journal.write((_OPEN, (key, owner, opening.decode(), self._clock())))

    def find(self, key: str, owner: str) -> bytes | None:
        """The message that began a session; None when there is none of this owner, or it is over."""
        found = self._journal.query(_FIND, (key, owner, self._oldest()))
        return found[0][0].encode() if found else None

    def use(self, keys: Iterable[str]) -> None:
        """These are in use; those that nobody has used for too long are forgotten."""
        now, oldest = self._clock(), self._oldest()
        self._journal.write(
            *[("UPDATE sessions SET used = ? WHERE id = ?", (now, key)) for key in sorted(keys)],
            (_LOST, (oldest,)),
            ("DELETE FROM sessions WHERE used < ?", (oldest,)),
        )

    def end(self, key: str) -> None:
        self._journal.write(
            ("DELETE FROM session_addresses WHERE session = ?", (key,)), ("DELETE FROM sessions WHERE id = ?", (key,))
        )

    def follow(self, key: str, address: str) -> None:
        """The client wants to hear of changes there."""
        self._journal.write((_FOLLOW, (address, key)))

    def unfollow(self, key: str, address: str) -> None:
        self._journal.write(("DELETE FROM session_addresses WHERE session = ? AND address = ?", (key, address)))

    def followed(self, key: str) -> frozenset[str]:
        rows = self._journal.query("SELECT address FROM session_addresses WHERE session = ?", (key,))
        return frozenset(address for (address,) in rows)

    def _oldest(self) -> int:
        """A little longer than any server keeps one that is not used: their word of its use comes late."""
        return self._clock() - self._idle - self._idle // 4


def key_of(session: str) -> str:
    """What a session is called where it is kept."""
    return hashlib.sha256(session.encode()).hexdigest()
