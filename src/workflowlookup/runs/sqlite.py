"""The journal in one SQLite file, shared by all processes of a machine that are given its path.

Write-ahead log with `synchronous=FULL`: a commit is on the disk when it returns. The file is made and opened with the
first question. One that SQLite cannot make sense of is set aside under another name, never deleted, and a new one is
begun. Needs a local disk: SQLite's shared memory does not work over a network.
"""

import contextlib
import errno
import fcntl
import itertools
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from workflowlookup.errors import StorageError
from workflowlookup.runs.journal import Summary
from workflowlookup.runs.levels import Level
from workflowlookup.runs.sql import MIGRATIONS, SqlJournal

log = logging.getLogger(__name__)

BUSY_SECONDS: Final = 10.0
"""How long a write waits for those of other processes."""

_LOCK_PAUSE: Final = 0.01

_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "Make room on its disk; the run goes on from where it is.",
    sqlite3.SQLITE_READONLY: "Make the file and its directory writable; the run goes on from where it is.",
    sqlite3.SQLITE_BUSY: "Another process holds it for too long. Try again.",
    sqlite3.SQLITE_LOCKED: "Another process holds it for too long. Try again.",
    sqlite3.SQLITE_IOERR: "Check that its disk works and has room; the run goes on from where it is.",
    sqlite3.SQLITE_CANTOPEN: "Check that its directory is there and that you may write to it.",
}
_AS_SQLITE: Final = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EROFS: sqlite3.SQLITE_READONLY}
_PASSING: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR_WRITE})
"""What does a connection no harm: runs can still be read on it, where a new one would need room to be opened."""
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TOKENS_REQUIRED: Final = """\
Tokens were made for this journal: over HTTP nobody is served without one, also when the journal is lost.
To serve without tokens again, stop the server, begin with another journal, or delete this file and the journal.
"""
_SIDE_FILES: Final = ("", "-wal", "-shm")


class SqliteJournal(SqlJournal):
    """A journal at a path."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(os.path.expanduser(path))  # by whatever name, it is one file with one lock
        self._connection: sqlite3.Connection | None = None
        self._identity: object = None
        self._is_ready = False
        self._only_looks = False

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._opened() as connection:
            return connection.execute(statement, values).fetchall()

    def at_work(self, limit: int) -> list[Summary]:
        with self._looking():
            return super().at_work(limit)

    def left_running(self) -> list[str]:
        with self._looking():
            return super().left_running()

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """Asked without anybody waiting for it: a damaged file is left for the next who can be told of it."""
        self._only_looks = True
        try:
            yield
        finally:
            self._only_looks = False

    def version(self) -> int:
        return int(self.query("PRAGMA data_version")[0][0])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def require_tokens(self) -> None:
        with self._translated():
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            with open(self._tokens_required, "a", encoding="utf-8") as record:
                record.write(_TOKENS_REQUIRED)
                record.flush()
                os.fsync(record.fileno())
            _sync_directory(self.path)

    def requires_tokens(self) -> bool:
        try:
            os.lstat(self._tokens_required)
        except FileNotFoundError:
            return False
        except OSError:
            log.warning("%s cannot be looked at: tokens are required", self._tokens_required)
        return True

    @property
    def _tokens_required(self) -> str:
        return f"{self.path}.tokens-required"

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The connection to the file that has the path now; what goes wrong on it becomes `StorageError`."""
        with self._translated():
            if self._connection is None or _identity(self.path) != self._identity:
                self.close()
                self._open()
            yield self._connection  # type: ignore[misc]

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """What goes wrong becomes `StorageError`."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as problem:
            raise self._refusal(problem) from problem
        except OSError as problem:
            code = _AS_SQLITE.get(problem.errno or 0, sqlite3.SQLITE_CANTOPEN)
            raise self._storage_error(str(problem.strerror), _ADVICE[code]) from problem

    def _open(self) -> None:
        self._is_ready = False
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with self._alone():
            with contextlib.suppress(FileExistsError):  # to open and close one would give up SQLite's locks on it
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
            # SQLite would leave files beside a read-only one that stay read-only when it does not.
            if not os.access(self.path, os.W_OK):
                raise self._storage_error("it is read-only", _ADVICE[sqlite3.SQLITE_READONLY])
            self._identity = _identity(self.path)
            self._connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            self._migrate(self._connection)
            self._is_ready = True

    def _migrate(self, connection: sqlite3.Connection) -> None:
        level = _level(connection)
        if level.problem:
            self.close()
            raise self._storage_error(level.problem)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        for number, script in enumerate(MIGRATIONS[level.version :], level.version + 1):
            connection.execute("BEGIN IMMEDIATE")
            for statement in script.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")

    def level(self) -> Level:
        """Where the tables are; nothing is made or changed. Raises `StorageError` when they cannot be read."""
        if not os.path.exists(self.path):
            if not _has_room(os.path.dirname(self.path)):
                raise self._storage_error("it cannot be made there", _ADVICE[sqlite3.SQLITE_CANTOPEN])
            return Level(version=0, known=len(MIGRATIONS))
        try:
            with contextlib.closing(sqlite3.connect(f"{Path(self.path).as_uri()}?mode=ro", uri=True)) as connection:
                return _level(connection)
        except sqlite3.Error as problem:
            advice = _ADVICE.get(getattr(problem, "sqlite_errorcode", 0) & 0xFF, "Check its disk.")
            raise self._storage_error(str(problem), advice) from problem

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process opens or sets aside this file."""
        lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            self._lock(lock)
            yield
        finally:
            os.close(lock)

    def _lock(self, lock: int) -> None:
        """As long as a write would wait, and no longer: who holds it may have been stopped."""
        last = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > last:
                    raise self._storage_error("it is being opened", _ADVICE[sqlite3.SQLITE_BUSY]) from None
                time.sleep(_LOCK_PAUSE)

    # ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────────────

    def _refusal(self, problem: sqlite3.Error | UnicodeDecodeError) -> StorageError:
        """What the caller is told. The connection is given up, unless what was in its way passes by itself."""
        is_garbled = isinstance(problem, UnicodeDecodeError)  # the names of its tables
        full_code = sqlite3.SQLITE_CORRUPT if is_garbled else getattr(problem, "sqlite_errorcode", 0)
        code = full_code & 0xFF
        reason, advice = str(problem), _ADVICE.get(code, "Check its disk.")
        if code in _CORRUPT and not self._only_looks:
            aside = self._set_aside()
            reason, advice = f"it was damaged ({problem})", "A new journal is begun: try again."
            if aside:
                reason += f" and is kept as {aside}"
                log.error("%s: %s; a new journal is begun", self.path, reason)
        if self._is_ready and full_code in _PASSING:
            return self._storage_error(reason, advice)
        with contextlib.suppress(sqlite3.Error):
            self.close()  # only now: SQLite leaves the files of a database alone that is no longer where it was
        return self._storage_error(reason, advice)

    def _set_aside(self) -> str | None:
        """The name under which the file is kept; None when another process was faster."""
        with self._alone():
            if _identity(self.path) != self._identity:
                return None
            name = f"{self.path}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
            names = (f"{name}-{number}" if number else name for number in itertools.count())
            aside = next(name for name in names if not os.path.lexists(name))
            for suffix in _SIDE_FILES:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(self.path + suffix, aside + suffix)
            return aside

    def _storage_error(self, reason: str, advice: str = "") -> StorageError:
        told = f"The journal of runs, {self.path}, cannot be used: {reason}. {advice}".rstrip()
        return StorageError(told, path=self.path, details=told)


def _level(connection: sqlite3.Connection) -> Level:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'levels'").fetchone() is None:
        return Level(version=version, known=len(MIGRATIONS))
    (least,) = connection.execute("SELECT MAX(least) FROM levels").fetchone()
    return Level(version=version, known=len(MIGRATIONS), least=least)


def _has_room(directory: str) -> bool:
    """Whether a file could be made in this directory, which is made with it where it is missing."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)


def _sync_directory(path: str) -> None:
    """Have the names in the directory of a file on the disk."""
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _identity(path: str) -> object:
    """What tells a file from another one that takes its place."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
