"""Tokens: created once, shown once, stored as hashes in the journal, so that every replica accepts them.

A token is `wl_` and 32 random bytes. Its first characters are its id; only a hash of the whole is stored. The journal
is read for each request, so a token that is revoked or has expired is refused at once, everywhere. Only while the
journal does not answer, a token is accepted for `OUTAGE_SECONDS` after it was last found valid.

That tokens are required is also recorded outside the tables, before the first token is stored: beside the journal, and
in the user's configuration directory (`RequiredTokens`). So a journal that is damaged, deleted with its directory or
replaced by an old copy does not open the server to everybody.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from workflowlookup.access import checked_patterns, checked_scopes
from workflowlookup.atomic import locked, replace_file
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import JournalUnavailable
from workflowlookup.store.journal import Journal, Token, now

log = logging.getLogger(__name__)

PREFIX: Final = "wl_"
SECRET_BYTES: Final = 32
ID_LENGTH: Final = 8
"""Characters that identify a token. The 35 characters after them are the secret: more than 200 bits."""
MAX_NAME_LENGTH: Final = 64

CHECK_SECONDS: Final = 0.25
"""Between two reads of the record beside the journal, while the user's own list has not changed."""
OUTAGE_SECONDS: Final = 60.0
"""While the journal does not answer, a token is accepted for so long after it was last found valid. So a token that is
revoked during an outage may be accepted for as long."""
MAX_CACHED: Final = 10_000
_TOKEN: Final = re.compile(r"wl_[A-Za-z0-9_-]{43}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")

TOKENS_REQUIRED_FILE: Final = "tokens-required"
MAX_LIST_BYTES: Final = 8 << 20

_LINE: Final = re.compile(r"([0-9a-f]{64})( .*)?")
_HEADER: Final = """\
# Journals for which tokens were created: over HTTP no request is served without one, even if the journal is lost.
# Each line is the SHA-256 of a path or of a database, and its name. How to serve without tokens: docs/access.md.
"""


class RequiredTokens:
    """A file in the user's configuration directory that lists the journals for which tokens are required.

    It is the second record of that, for when the journal is lost together with the record beside it: a data directory
    that was deleted, a disk that is not mounted, a database that was dropped. If the file cannot be written, only the
    record beside the journal counts. Without a path nothing is listed or stored.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def lists(self, names: Collection[str]) -> bool:
        """Whether a journal with one of these names is listed; also True when the list cannot be read."""
        try:
            return not self._digests().isdisjoint(map(_digest, names))
        except (OSError, ValueError) as problem:
            log.warning("%s cannot be read, so tokens are required: %s", self.path, problem)
            return True

    def signature(self) -> tuple[int, int] | None:
        """Changes whenever the list does; None when there is no list. One system call."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def add(self, names: Collection[str]) -> None:
        """Add all names of a journal to the list, if it can be written."""
        if not self.path:
            return
        try:
            with locked(self.path):
                listed = self._digests()
                lines = [f"{_digest(name)} {name!a}\n" for name in sorted(names) if _digest(name) not in listed]
                if lines:
                    self._append("".join(lines))
        except (OSError, ValueError) as problem:  # no home directory, or a read-only one: the other record counts
            log.info("%s cannot be written, so it does not say that tokens are required: %s", self.path, problem)

    def _digests(self) -> frozenset[str]:
        """The hashes in the list. Raises `OSError` or `ValueError` for a list that exists and cannot be read."""
        if not self.path or not self._may_exist():
            return frozenset()
        lines = [line for line in self._read().splitlines() if line and not line.startswith("#")]
        matches = [_LINE.fullmatch(line) for line in lines]
        if None in matches:
            raise ValueError("a line is not a SHA-256 and a name")
        return frozenset(match[1] for match in matches if match)

    def _may_exist(self) -> bool:
        """Whether the list may exist. It does not count if it would be in a directory that this account cannot read."""
        try:
            os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            return os.path.isdir(os.path.dirname(self.path))
        return True

    def _read(self) -> str:
        with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(MAX_LIST_BYTES + 1)
        if len(data) > MAX_LIST_BYTES:
            raise ValueError("it is too long")
        return data.decode()

    def _append(self, lines: str) -> None:
        """Replace the file atomically by a longer one, readable by its owner only."""
        content = self._read() if self._may_exist() else _HEADER
        replace_file(os.path.realpath(self.path), f"{content.rstrip()}\n{lines}".encode())


NOT_LISTED: Final = RequiredTokens("")


class TokenProblem(Exception):
    """Why a token cannot be created or revoked."""


class TokenStore(Protocol):
    """The part of `Tokens` that authentication needs."""

    is_away: bool
    """Whether the journal did not answer the last call."""

    def find(self, secret: str) -> Token | None: ...
    def version(self) -> tuple[int, int]: ...
    def is_stale(self) -> bool: ...


class Tokens:
    """The tokens of one journal."""

    def __init__(
        self, journal: Journal, *, required: RequiredTokens = NOT_LISTED, clock: Callable[[], int] = now
    ) -> None:
        """`required`: the user's own list of journals for which tokens are required."""
        self._journal = journal
        self._required = required
        self._clock = clock
        self._is_recorded = False
        self._has_record = False
        self._checked_at = float("-inf")
        self._signature: tuple[int, int] | None = None
        """The signature of the user's own list when the version was last read."""
        self._valid: BoundedCache[str, tuple[Token, float]] = BoundedCache(MAX_CACHED)
        """By hash: the tokens that were valid, and when the journal was read."""
        self._last_version: tuple[tuple[int, int], float] | None = None
        self.is_away = False

    def create(  # noqa: PLR0913 - everything a token has
        self,
        name: str,
        scopes: Iterable[str],
        workflows: Iterable[str],
        *,
        seconds: float | None,
        is_person: bool = False,
        by: str = "",
    ) -> tuple[str, Token]:
        """Create a token that expires after so many seconds, or never; returns it with its secret.

        Raises `TokenProblem`.
        """
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
            message = (
                f"'{name}' cannot be the name of a token: use up to {MAX_NAME_LENGTH} letters, digits and . _ @ + -"
            )
            raise TokenProblem(message)
        if seconds is not None and seconds <= 0:
            raise TokenProblem("a token must be valid for some time, such as 30d")
        try:
            allowed, patterns = checked_scopes(scopes), checked_patterns(workflows)
        except ValueError as problem:
            raise TokenProblem(f"a token needs {problem}") from None
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        created = self._clock()
        token = Token(
            id=_id(secret),
            name=name,
            kind="person" if is_person else "agent",
            scopes=tuple(sorted(allowed)),
            workflows=patterns,
            created=created,
            expires=None if seconds is None else created + int(seconds * 1000),
            revoked=None,
            maker=by,
        )
        if not self._journal.add_token(token, _hash(secret), self._record):
            raise TokenProblem(f"there is a token '{name}' already. Revoke it first, or use another name.")
        return secret, token

    def all_tokens(self) -> list[Token]:
        """All tokens that were ever created, the latest first."""
        return self._journal.tokens()

    def revoke(self, name: str) -> None:
        """Revoke a token. Raises `TokenProblem` when no valid token has the name."""
        if not self._journal.revoke_token(name, self._clock()):
            message = f"no token that is not revoked has the name '{name}'. `workflowlookup token list` shows them."
            raise TokenProblem(message)

    def find(self, secret: str) -> Token | None:
        """The token with this secret; None when it is not valid."""
        if not _TOKEN.fullmatch(secret):
            return None
        digest = _hash(secret)
        try:
            candidates = self._journal.tokens_by_id(_id(secret))
            self.is_away = False
        except JournalUnavailable:
            self.is_away = True
            token, since = self._valid.get(digest) or (None, 0.0)
            if token is None or time.monotonic() - since > OUTAGE_SECONDS:
                raise
            return token if token.state(self._clock()) == "valid" else None
        for token, stored_digest in candidates:
            if hmac.compare_digest(digest, stored_digest) and token.state(self._clock()) == "valid":
                self._valid[digest] = (token, time.monotonic())
                return token
        self._valid.pop(digest)
        return None

    def version(self) -> tuple[int, int]:
        """How many tokens were created (at least 1 when tokens are required) and revoked. Changes with the tokens."""
        try:
            version = self._read_version()
            self.is_away = False
        except JournalUnavailable:
            self.is_away = True
            if self._last_version is None or time.monotonic() - self._last_version[1] > OUTAGE_SECONDS:
                raise
            return self._last_version[0]
        self._last_version = (version, time.monotonic())
        return version

    def is_stale(self) -> bool:
        """Whether the user's own list has changed since `version` was called: a first token may have been created."""
        return self._required.signature() != self._signature

    def _read_version(self) -> tuple[int, int]:
        signature = self._required.signature()
        is_stale, self._signature = signature != self._signature, signature
        created, revoked = self._journal.count_tokens()
        if created:
            self._record()
        elif is_stale or self._checked_at < time.monotonic() - CHECK_SECONDS:  # the journal may have lost all of them
            self._has_record = self._journal.requires_tokens() or self._required.lists(self._journal.names)
            self._checked_at = time.monotonic()
        return int(created or self._has_record), revoked

    def _record(self) -> None:
        """Record that tokens are required, if needed: a journal of an older version has tokens and no record."""
        if self._is_recorded:
            return
        if not self._journal.requires_tokens():
            self._journal.require_tokens()
        self._required.add(self._journal.names)
        self._is_recorded = True

    def any_valid(self) -> bool:
        """Whether any token is valid now."""
        time = self._clock()
        return any(token.state(time) == "valid" for token in self.all_tokens())

    def close(self) -> None:
        self._journal.close()


def _id(secret: str) -> str:
    start = len(PREFIX)
    return secret[start : start + ID_LENGTH]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
