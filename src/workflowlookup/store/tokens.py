"""Tokens: made once, shown once, kept as hashes beside the runs, so that every replica knows them.

A token is `wl_` and 32 random bytes. The first characters say which it is; only a hash of the whole is kept. The
journal is asked each time: a token that is revoked or has expired is refused from that moment on, everywhere. Only
while the journal does not answer, a token counts for `OUTAGE_SECONDS` after it was last found valid.

That tokens are required is recorded apart from them as well, before the first is stored: beside the journal, and in the
user's configuration directory (`RequiredTokens`). So a journal that is damaged, deleted with its directory or replaced
by an old copy does not open the server to everybody.
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
"""How much of a token says which it is: the 35 characters after it are the secret, more than 200 bits."""
MOST_NAME: Final = 64

CHECK_SECONDS: Final = 0.25
"""How often the record beside the journal is read while the user's own list has not changed."""
OUTAGE_SECONDS: Final = 60.0
"""While the journal does not answer, a token is accepted for this long after the journal last showed it to be valid. So
a token that is revoked in an outage may be accepted for that long."""
MAX_REMEMBERED: Final = 10_000
_TOKEN: Final = re.compile(r"wl_[A-Za-z0-9_-]{43}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")

TOKENS_REQUIRED_FILE: Final = "tokens-required"
MAX_LIST_BYTES: Final = 8 << 20

_LINE: Final = re.compile(r"([0-9a-f]{64})( .*)?")
_HEADER: Final = """\
# Journals for which tokens were made: over HTTP nobody is served without one, also when the journal is lost.
# Each line is the SHA-256 of a path or of a database, and its name. How to serve without tokens: docs/access.md.
"""


class RequiredTokens:
    """A file in the user's configuration directory that lists the journals for which tokens are required.

    It is the second record of that, for when the journal is lost together with the record beside it: a data directory
    that was deleted, a disk that is not mounted, a database that was dropped. Where there is no such directory, or it
    cannot be written, the record beside the journal counts alone. Without a path nothing is listed, and nothing is
    stored.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def lists(self, names: Collection[str]) -> bool:
        """Whether the journal with these names is listed; also when the list cannot be read."""
        try:
            return not self._digests().isdisjoint(map(_digest, names))
        except (OSError, ValueError) as problem:
            log.warning("%s cannot be read, so tokens are required: %s", self.path, problem)
            return True

    def signature(self) -> tuple[int, int] | None:
        """Changes whenever the list does; None where there is no list. Costs one system call."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def add(self, names: Collection[str]) -> None:
        """List a journal under all of its names, if that is possible."""
        if not self.path:
            return
        try:
            with locked(self.path):
                known = self._digests()
                lines = [f"{_digest(name)} {name!a}\n" for name in sorted(names) if _digest(name) not in known]
                if lines:
                    self._append("".join(lines))
        except (OSError, ValueError) as problem:  # a home that is read-only or not there: the other record counts
            log.info("%s cannot be written, so it does not say that tokens are required: %s", self.path, problem)

    def _digests(self) -> frozenset[str]:
        """What is listed. Raises `OSError` or `ValueError` for a list that is there and cannot be read."""
        if not self.path or not self._may_exist():
            return frozenset()
        lines = [line for line in self._read().splitlines() if line and not line.startswith("#")]
        found = [_LINE.fullmatch(line) for line in lines]
        if None in found:
            raise ValueError("a line is not a SHA-256 and a name")
        return frozenset(match[1] for match in found if match)

    def _may_exist(self) -> bool:
        """Whether the list may be there: not in the home directory of another account, which nobody can look into."""
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
        """Replace the file by a longer one, whole or not at all, for its owner alone."""
        content = self._read() if self._may_exist() else _HEADER
        replace_file(os.path.realpath(self.path), f"{content.rstrip()}\n{lines}".encode())


NOT_LISTED: Final = RequiredTokens("")


class TokenProblem(Exception):
    """A token that cannot be made or revoked, and why."""


class TokenStore(Protocol):
    """Where tokens can be asked for; the guard needs no more."""

    is_away: bool
    """Whether the journal did not answer the last question, whatever was remembered of it."""

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
        """That of the user's own list when the version was last read."""
        self._valid: BoundedCache[str, tuple[Token, float]] = BoundedCache(MAX_REMEMBERED)
        """By hash: the tokens that the journal has shown to be valid, and when."""
        self._last_version: tuple[tuple[int, int], float] | None = None
        self.is_away = False

    def create(  # noqa: PLR0913 - all that a token is
        self,
        name: str,
        scopes: Iterable[str],
        workflows: Iterable[str],
        *,
        seconds: float | None,
        is_person: bool = False,
        by: str = "",
    ) -> tuple[str, Token]:
        """A new token, good for so many seconds or for ever, and what is known of it. Raises `TokenProblem`."""
        if not _NAME.fullmatch(name) or len(name) > MOST_NAME:
            told = f"'{name}' cannot be the name of a token: use up to {MOST_NAME} letters, digits and . _ @ + -"
            raise TokenProblem(told)
        if seconds is not None and seconds <= 0:
            raise TokenProblem("a token needs some time to be good for, such as 30d")
        try:
            allowed, patterns = checked_scopes(scopes), checked_patterns(workflows)
        except ValueError as problem:
            raise TokenProblem(f"a token needs {problem}") from None
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        made = self._clock()
        token = Token(
            id=_id(secret),
            name=name,
            kind="person" if is_person else "agent",
            scopes=tuple(sorted(allowed)),
            workflows=patterns,
            created=made,
            expires=None if seconds is None else made + int(seconds * 1000),
            revoked=None,
            maker=by,
        )
        if not self._journal.add_token(token, _hash(secret), self._record):
            raise TokenProblem(f"there is a token '{name}' already. Revoke it first, or take another name.")
        return secret, token

    def all_tokens(self) -> list[Token]:
        """All that were ever made, the latest first."""
        return self._journal.tokens()

    def revoke(self, name: str) -> None:
        """Have a token refused from now on. Raises `TokenProblem` when none has the name."""
        if not self._journal.revoke_token(name, self._clock()):
            message = f"no token that is not revoked has the name '{name}'. `workflowlookup token list` shows them."
            raise TokenProblem(message)

    def find(self, secret: str) -> Token | None:
        """The token, as long as it is good."""
        if not _TOKEN.fullmatch(secret):
            return None
        hashed = _hash(secret)
        try:
            candidates = self._journal.tokens_by_id(_id(secret))
            self.is_away = False
        except JournalUnavailable:
            self.is_away = True
            token, since = self._valid.get(hashed) or (None, 0.0)
            if token is None or time.monotonic() - since > OUTAGE_SECONDS:
                raise
            return token if token.state(self._clock()) == "valid" else None
        for token, digest in candidates:
            if hmac.compare_digest(hashed, digest) and token.state(self._clock()) == "valid":
                self._valid[hashed] = (token, time.monotonic())
                return token
        self._valid.pop(hashed)
        return None

    def version(self) -> tuple[int, int]:
        """How many tokens were ever made, at least, and how many of them were revoked: no token is ever forgotten."""
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
        """Whether somebody with the same home directory has made a first token since `version` was called."""
        return self._required.signature() != self._signature

    def _read_version(self) -> tuple[int, int]:
        signature = self._required.signature()
        is_stale, self._signature = signature != self._signature, signature
        made, revoked = self._journal.count_tokens()
        if made:
            self._record()
        elif is_stale or self._checked_at < time.monotonic() - CHECK_SECONDS:  # the journal may have lost all of them
            self._has_record = self._journal.requires_tokens() or self._required.lists(self._journal.names)
            self._checked_at = time.monotonic()
        return int(made or self._has_record), revoked

    def _record(self) -> None:
        """Have it recorded that tokens are required; a journal of an older version has tokens and no record."""
        if self._is_recorded:
            return
        if not self._journal.requires_tokens():
            self._journal.require_tokens()
        self._required.add(self._journal.names)
        self._is_recorded = True

    def any_valid(self) -> bool:
        """Whether anybody could come in with one of them now."""
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
