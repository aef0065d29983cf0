"""StoredSessions that all servers at one journal share: those of MCP clients, and those of browsers in the console.

The journal has the hash of a session's id. An MCP session is the message that opened it, its owner and
its subscriptions. Each request also needs the owner's token, so the id alone gives no access. A console session is made
when a person logs in with a token. It is valid for pages only, at the address where the person logged in. It contains
the token, encrypted with the id: the token is checked again with each request, and the session ends with its token.
"""

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from workflowlookup.store.journal import Journal, now

ID_BYTES: Final = 32
MAX_ID: Final = 100
CONSOLE_SESSION_SECONDS: Final = 12 * 3_600
"""How long a console session lives, if its token does not end before."""


class StoredSessions:
    """The MCP sessions of one journal. The caller has authenticated the `owner`."""

    def __init__(self, journal: Journal, idle_seconds: float, *, clock: Callable[[], int] = now) -> None:
        self._journal = journal
        self._idle = int(idle_seconds * 1000)
        self._clock = clock

    def open(self, key: str, owner: str, opening: bytes) -> None:
        """Store a session with its owner and the message that opened it."""
        self._journal.add_session(key, owner, opening.decode(), self._clock())

    def find(self, key: str, owner: str) -> bytes | None:
        """The message that opened a session; None when this owner has no such session, or it has expired."""
        opening = self._journal.session_opening(key, owner, self._oldest())
        return None if opening is None else opening.encode()

    def use(self, keys: Iterable[str]) -> None:
        """Mark sessions as used now, and delete those that have been idle for too long."""
        self._journal.touch_sessions(keys, self._clock(), self._oldest())

    def end(self, key: str) -> None:
        self._journal.end_session(key)

    def follow(self, key: str, address: str) -> None:
        """Store that the client subscribed to changes of a resource."""
        self._journal.subscribe(key, address)

    def unfollow(self, key: str, address: str) -> None:
        self._journal.unsubscribe(key, address)

    def followed(self, key: str) -> frozenset[str]:
        return self._journal.subscriptions(key)

    def _oldest(self) -> int:
        """When a session must have been used last; with a margin, because uses are stored with a delay."""
        return self._clock() - self._idle - self._idle // 4


def session_key(session: str) -> str:
    """The key of a session in the journal: a hash of its id."""
    return hashlib.sha256(session.encode()).hexdigest()


class _ConsoleSession(msgspec.Struct, frozen=True):
    """The content of a console session."""

    token: str
    address: str


_decode: Final = msgspec.json.Decoder(_ConsoleSession).decode


class ConsoleSessions:
    """The console sessions of one journal."""

    def __init__(self, journal: Journal, *, clock: Callable[[], int] = now) -> None:
        self._journal = journal
        self._clock = clock

    def open(self, token: str, address: str) -> str:
        """Begin a session for the holder of a token, at an address in the form that browsers send; returns its id."""
        session_id = secrets.token_urlsafe(ID_BYTES)
        body = _cipher(session_id).encrypt(msgspec.json.encode(_ConsoleSession(token, address))).decode()
        at = self._clock()
        self._journal.add_console_session(_console_key(session_id), body, at + CONSOLE_SESSION_SECONDS * 1000, at)
        return session_id

    def token_of(self, session_id: str, address: str) -> str | None:
        """The token of a session; None when there is no such session at this address."""
        if len(session_id) > MAX_ID:
            return None
        body = self._journal.console_session(_console_key(session_id), self._clock())
        if body is None:
            return None
        try:
            session = _decode(_cipher(session_id).decrypt(body.encode()))
        except (InvalidToken, msgspec.DecodeError):
            return None
        return session.token if session.address == address else None

    def end(self, session_id: str) -> None:
        self._journal.end_console_session(_console_key(session_id))


def _console_key(session_id: str) -> str:
    """The key of a console session in the journal."""
    return hashlib.sha256(f"id\0{session_id}".encode()).hexdigest()


def _cipher(session_id: str) -> Fernet:
    """The id has 256 random bits, so its hash is a strong key."""
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"key\0{session_id}".encode()).digest()))
