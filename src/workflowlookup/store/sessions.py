"""StoredSessions that all servers at one journal share: those of MCP clients, and those of browsers in the console.

The journal has the hash of a session's id. An MCP session is what a client sent when it began, whose it is, and what it
follows; each of its requests needs the caller's own token, so the id alone opens nothing. A console session is what a
browser has after its person logged in with a token. It is valid for pages only, at the one address where the person
logged in. With it is the token, encrypted by the id: the token is checked again with each request, and the session ends
with its token.
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
"""How long a session lives, if its token does."""


class StoredSessions:
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


def session_key(session: str) -> str:
    """What a session is called where it is kept."""
    return hashlib.sha256(session.encode()).hexdigest()


class _Opened(msgspec.Struct, frozen=True):
    """What a session stands for."""

    token: str
    address: str


_decode: Final = msgspec.json.Decoder(_Opened).decode


class ConsoleSessions:
    """The sessions of one journal."""

    def __init__(self, journal: Journal, *, clock: Callable[[], int] = now) -> None:
        self._journal = journal
        self._clock = clock

    def open(self, token: str, address: str) -> str:
        """Begin a session for the holder of a token, at an address as browsers name it; returns its id."""
        session_id = secrets.token_urlsafe(ID_BYTES)
        body = _cipher(session_id).encrypt(msgspec.json.encode(_Opened(token, address))).decode()
        at = self._clock()
        self._journal.add_console_session(_key(session_id), body, at + CONSOLE_SESSION_SECONDS * 1000, at)
        return session_id

    def token_of(self, session_id: str, address: str) -> str | None:
        """The token that a session was begun with; None when there is no such session at this address."""
        if len(session_id) > MAX_ID:
            return None
        body = self._journal.console_session(_key(session_id), self._clock())
        if body is None:
            return None
        try:
            opened = _decode(_cipher(session_id).decrypt(body.encode()))
        except (InvalidToken, msgspec.DecodeError):
            return None
        return opened.token if opened.address == address else None

    def end(self, session_id: str) -> None:
        self._journal.end_console_session(_key(session_id))


def _key(session_id: str) -> str:
    """The name of a session in the journal."""
    return hashlib.sha256(f"id\0{session_id}".encode()).hexdigest()


def _cipher(session_id: str) -> Fernet:
    """The id has 256 random bits, so that a hash of it is a key."""
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"key\0{session_id}".encode()).digest()))
