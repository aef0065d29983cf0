"""Sessions of the console over HTTP: what a browser has after its person logged in with a token.

A session is a random id that is valid for pages only, at the one address where the person logged in. The journal has
the hash of the id, so every replica knows the session and none can tell the id. With it is the token, encrypted by the
id: the token is checked again with each request, and a session ends with its token.
"""

import base64
import hashlib
import secrets
from collections.abc import Callable
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from workflowlookup.store.journal import Journal, now

ID_BYTES: Final = 32
MAX_ID: Final = 100
SECONDS: Final = 12 * 3_600
"""How long a session lives, if its token does."""


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
        self._journal.add_console_session(_key(session_id), body, at + SECONDS * 1000, at)
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
