"""The journal in one SQLite file, shared by all processes of a machine that are given its path.

Write-ahead log with `synchronous=FULL`: a commit is on the disk when it returns. The file is made and opened with the
first question. One that SQLite cannot make sense of is set aside under another name, never deleted, and replaced by a
new one with all that can still be read (`set_aside`, `salvage`). A file that cannot be written is read. A file that is
not a journal is refused and not touched. Needs a local disk: SQLite's shared memory does not work over a network.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from workflowlookup.errors import JOURNAL_SECONDS, JournalBusy, StorageError
from workflowlookup.language.text import joined
from workflowlookup.store import set_aside
from workflowlookup.store.journal import READ_BYTES, NoRoom, ReadOnly, SetAside
from workflowlookup.store.migrations import Level
from workflowlookup.store.salvage import SHAPES, has_rows_of_ours
from workflowlookup.store.sql import MIGRATIONS, OLD, READ, SqlJournal
from workflowlookup.store.sqlite_pages import MAGIC, WriteAheadLog, count_frames

log = logging.getLogger(__name__)

APPLICATION_ID: Final = 0x776C6B75
"""Identifies our files in their header; those of older versions have 0 there, as have most files of others."""
BUSY_SHARE: Final = 0.8
"""Of the time that a use may take: how long it waits for those of other processes."""
CHECK_SECONDS: Final = 10.0
"""How long `faults` reads a large file."""
RESERVE_BYTES: Final = 1_000 * 4_096 + 256 * 1024
"""Held in a file of its own, and given up by `purge` where the disk is full.

To delete takes room for the log. What is in the log must be in the file before the log is used again, which takes as
much room as the log has new pages: SQLite lets it grow to 1,000.
"""

RESERVE_FACTOR: Final = 4
"""How many times the reserve must be free before it is made: it is not to take the last room of a disk."""

_writers: Final[dict[str, threading.Lock]] = {}
"""By path: the lock of the threads of this process that write."""
_LOCK_PAUSE: Final = 0.01
_PROBE_BYTES: Final = 64 * 1024

_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "Make room on its disk; the run goes on from where it is.",
    sqlite3.SQLITE_READONLY: "Make the file and its directory writable; the run goes on from where it is.",
    sqlite3.SQLITE_IOERR: "Check that its disk works and has room; the run goes on from where it is.",
    sqlite3.SQLITE_CANTOPEN: "Check that its directory is there and that you may write to it.",
}
_ERRORS: Final = {
    sqlite3.SQLITE_FULL: NoRoom,
    sqlite3.SQLITE_IOERR: NoRoom,
    sqlite3.SQLITE_CANTOPEN: NoRoom,
    sqlite3.SQLITE_READONLY: ReadOnly,
}
"""By result code: errors that prevent writing but not reading. CANTOPEN: one that is there can be read."""
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_HELD: Final = "Another process holds it for too long"
_AS_SQLITE: Final = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EROFS: sqlite3.SQLITE_READONLY}
_PASSING: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR_WRITE})
"""What does a connection no harm: runs can still be read on it, where a new one would need room to be opened."""
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES: Final[Mapping[str, frozenset[str]]] = {
    table: frozenset(SHAPES[table].columns) for table in ("documents", "runs", "events")
}
"""By these, with their columns, a file is known to be ours that has no application id, or a wrong one."""
_TRACES: Final = (".lock", "-wal", ".reserve", ".salvaging", ".tokens-required")
"""Suffixes of the files beside a journal, also beside one of which nothing can be read any more. The lock is there
before the journal is, so no journal is taken for another file while it is being made.
"""
_CREATED: Final = re.compile(r"CREATE TABLE (\w+)")
_UNSUPPORTED: Final = "unsupported file format"
"""What SQLite says of a header that no version of it writes; it has no result code of its own."""
_TOKENS_REQUIRED: Final = """\
Tokens were made for this journal: over HTTP nobody is served without one, also when the journal is lost.
To serve without tokens again, begin with another journal; or stop the servers and delete this file, the journal,
and its line in the file tokens-required of your configuration directory (~/.config/workflowlookup).
"""


class SqliteJournal(SqlJournal):
    """A journal at a path."""

    def __init__(self, path: str, seconds: float = JOURNAL_SECONDS) -> None:
        """`seconds`: how long a use may take."""
        self._busy_seconds = seconds * BUSY_SHARE
        self._name = os.path.abspath(os.path.expanduser(path))
        self.path = os.path.realpath(self._name)  # by whatever name, it is one file with one lock
        self._connection: sqlite3.Connection | None = None
        self._identity: object = None
        self._is_ready = False
        self._group: contextlib.ExitStack | None = None
        """Set within a group; its transaction, once it is begun, ends with it."""
        self._grouped: sqlite3.Connection | None = None
        """The connection that the transaction of the group was begun on."""
        self._why_not_written: StorageError | None = None
        """Set while the file can only be read; each use tries again to open it for writing."""

    def group(self) -> contextlib.AbstractContextManager[None] | None:
        return self._one_transaction()

    @contextlib.contextmanager
    def _one_transaction(self) -> Iterator[None]:
        """It is begun with the first write, so that nobody waits for a group that only reads."""
        with self._translated(), contextlib.ExitStack() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = self._grouped = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        if self._group is None:
            with self._translated(), self._transaction() as connection:
                yield connection
            return
        if self._grouped is None:
            self._grouped = self._group.enter_context(self._transaction())
        yield self._grouped

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._first_among_threads():
            connection = self._begin()
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _first_among_threads(self) -> Iterator[None]:
        """While no other thread of this process writes: SQLite has a writer that must wait sleep for milliseconds."""
        lock = _writers.setdefault(self.path, threading.Lock())
        if not lock.acquire(timeout=self._busy_seconds):
            raise self._storage_error("another thread writes to it", sqlite3.SQLITE_BUSY)
        try:
            yield
        finally:
            lock.release()

    def _begin(self) -> sqlite3.Connection:
        """A connection in a transaction, to the file that has the path now: it may be set aside while this waits."""
        while True:
            connection = self._opened()
            if self._why_not_written is not None:
                raise self._why_not_written
            connection.execute("BEGIN IMMEDIATE")
            if _identity(self.path) == self._identity:
                return connection
            connection.execute("ROLLBACK")

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._translated():
            return self._opened().execute(statement, values).fetchall()

    def rows(self, run_id: str, after: int, limit: int) -> list[Any]:
        rows: list[Any] = []
        size = 0
        with self._translated(), contextlib.closing(self._opened().execute(READ, (run_id, after, limit))) as cursor:
            for row in cursor:
                rows.append(row)
                size += len(row[-1]) if isinstance(row[-1], str) else 0  # of a damaged journal it may be anything
                if size >= READ_BYTES:
                    break
        return rows

    def version(self) -> int:
        return int(self.query("PRAGMA data_version")[0][0])

    def purge(self, before: int) -> int:
        try:
            return super().purge(before)
        except NoRoom:
            self.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._reserve)
        old = [run_id for (run_id,) in self.query(OLD, (before,))]
        try:
            for run_id in old:
                self.query("PRAGMA secure_delete = FAST")  # to overwrite what is deleted would take room in the log
                self.delete(run_id)
                self.query("PRAGMA wal_checkpoint(RESTART)")  # the next one is written over this one
        except NoRoom:  # for not even one run: it is of an older version, which kept no reserve
            self.close()
            with self._translated(), self._alone():
                self._purge_in_place(before)
        return len(old)

    def _purge_in_place(self, before: int) -> None:
        """Delete without a log, which takes no room, while no other process has the file open.

        If this process is killed meanwhile the file may be damaged; then what can be read of it is saved as usual.
        """
        connecting = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        with contextlib.closing(connecting) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # which needs no shared memory
            self._leave_log(connection)
            connection.execute("PRAGMA secure_delete = FAST")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute(f"DELETE FROM events WHERE run IN ({OLD})", (before,))  # noqa: S608 - our own words
            connection.execute(f"DELETE FROM runs WHERE id IN ({OLD})", (before,))  # noqa: S608
            connection.execute("COMMIT")

    def _leave_log(self, connection: sqlite3.Connection) -> None:
        """Have a connection write without a log. SQLite says of both obstacles that the database is locked."""
        try:
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError as problem:
            reason = "its disk is full, and another process has it open"
            advice = "Make room on its disk; or stop the servers that use it, and purge again."
            raise self._storage_error(reason, _code(problem), advice=advice) from problem
        try:
            connection.execute("PRAGMA journal_mode = MEMORY")
        except sqlite3.OperationalError as problem:
            kib = -(-_size(f"{self.path}-wal") // 1024)
            reason = f"its disk is full, and its write-ahead log ({kib:,} KiB) must be written into it before any purge"
            advice = "Make that much room on its disk, and purge again; no run is lost."
            raise self._storage_error(reason, sqlite3.SQLITE_FULL, advice=advice) from problem

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ── beside the file ─────────────────────────────────────────────────────────────────────────────────────────

    def set_aside(self) -> Sequence[SetAside]:
        return set_aside.files_set_aside(self.path)

    @property
    def names(self) -> frozenset[str]:
        """The file, and the link to it that the setting names: that may lead to another file later."""
        return frozenset({self.path, self._name})

    def require_tokens(self) -> None:
        for path in self._token_records:
            with self._translated():
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                with open(path, "w", encoding="utf-8") as record:
                    record.write(_TOKENS_REQUIRED)
                    record.flush()
                    os.fsync(record.fileno())
                set_aside.sync_directory(path)

    def requires_tokens(self) -> bool:
        return any(map(_may_exist, self._token_records))

    @property
    def _token_records(self) -> set[str]:
        return {f"{path}.tokens-required" for path in self.names}

    @property
    def _reserve(self) -> str:
        return f"{self.path}.reserve"

    def _keep_reserve(self) -> None:
        """Make the reserve where it is missing and there is room to spare."""
        if os.path.lexists(self._reserve):
            return
        with contextlib.suppress(OSError):
            room = os.statvfs(os.path.dirname(self.path))
            if room.f_bavail * room.f_frsize < RESERVE_FACTOR * RESERVE_BYTES:
                return
            with open(self._reserve, "xb") as reserve:
                os.chmod(self._reserve, 0o600)
                reserve.write(bytes(RESERVE_BYTES))

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that has the path now."""
        if self._connection is None or self._why_not_written is not None or _identity(self.path) != self._identity:
            self.close()
            self._open()
        assert self._connection is not None
        return self._connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """What goes wrong becomes `StorageError`."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError, OSError) as problem:
            raise self._refusal(problem) from problem

    def _open(self) -> None:
        self._is_ready = False
        self._why_not_written = None
        self._refuse_unrelated()
        is_there = os.path.exists(self.path)  # first: another process may be making it
        if is_there and not (
            os.access(self.path, os.W_OK) and os.access(os.path.dirname(self.path), os.W_OK | os.X_OK)
        ):
            self._open_to_read(self._storage_error("it is read-only", sqlite3.SQLITE_READONLY))
            return
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        try:
            with self._alone():
                self._open_to_write()
        except (sqlite3.OperationalError, OSError) as problem:
            if _code(problem) & 0xFF not in _ERRORS or not _size(self.path):
                raise
            self.close()
            self._open_to_read(self._storage_error(_reason(problem), _code(problem)))

    def _open_to_write(self) -> None:
        if set_aside.is_begun(self.path):
            set_aside.finish(self.path, SqliteJournal, self._wait_for_writers)
        with contextlib.suppress(FileExistsError):  # to open and close one would give up SQLite's locks on it
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
        self._identity = _identity(self.path)
        if _size(self.path) <= 1 and _size(f"{self.path}-wal"):  # SQLite takes one byte for none, and deletes the log
            raise _Damage("the file is empty, and its write-ahead log is not")
        self._refuse_foreign()
        logged = count_frames(self.path)
        self._connection = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        if logged:
            self._check_log(self._connection, logged)
        self._migrate(self._connection)
        self._keep_reserve()
        self._is_ready = True

    def _open_to_read(self, why: StorageError) -> None:
        """Have the file open for questions only; `why` it cannot be written."""
        self._why_not_written = why
        self._identity = _identity(self.path)
        self._refuse_foreign()
        self._connection = _connect_to_read(self.path)

    def _refuse_unrelated(self) -> None:
        """Raises `StorageError` for a file that is no SQLite file and never was a journal, without touching it."""
        if not _size(self.path) or any(os.path.lexists(self.path + suffix) for suffix in _TRACES):
            return
        with open(self.path, "rb") as file:
            is_sqlite = file.read(len(MAGIC)) == MAGIC
        if not is_sqlite and not has_rows_of_ours(self.path):
            reason = "it is not a journal of workflowlookup, and was not touched"
            raise self._storage_error(reason, advice="Name another file with --journal or the setting journal.")

    def _refuse_foreign(self) -> None:
        """Raises `StorageError` for a file of another program or of a newer version, without touching it."""
        if not _size(self.path):
            return
        with contextlib.closing(_connect_to_read(self.path)) as connection:
            level = _level(connection)
        if level.problem:
            raise self._storage_error(level.problem)

    def _check_log(self, connection: sqlite3.Connection, logged: int) -> None:
        """Raises `_Damage` where the log is bad in the middle: SQLite would drop the rest of it without a word."""
        _, taken, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if taken < logged:  # or another process is just writing
            with contextlib.closing(WriteAheadLog(self.path)) as written:
                if written.is_damaged:
                    raise _Damage("its write-ahead log is not what was written")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        level = _level(connection)
        if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
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
        try:
            self._refuse_unrelated()
            if not _size(self.path):
                if not os.path.exists(self.path) and not _has_room(os.path.dirname(self.path)):
                    raise self._storage_error("it cannot be made there", sqlite3.SQLITE_CANTOPEN)
                return Level(version=0, known=len(MIGRATIONS))
            with contextlib.closing(_connect_to_read(self.path)) as connection:
                return _level(connection)
        except (sqlite3.Error, UnicodeDecodeError, OSError) as problem:
            raise self._storage_error(_reason(problem), _code(problem)) from problem

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
        last = time.monotonic() + self._busy_seconds
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > last:
                    raise self._storage_error("it is being opened", sqlite3.SQLITE_BUSY) from None
                time.sleep(_LOCK_PAUSE)

    # ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────────────

    def faults(self, known: Sequence[SetAside] | None = None) -> Iterator[tuple[str, str]]:
        known = self.set_aside() if known is None else known
        try:
            problem = self.level().problem
        except StorageError as refusal:
            if not self._is_corrupt(refusal):
                yield refusal.remedy, "Until then no run is kept."
                return
            problem = ""
        if problem:
            yield str(self._storage_error(problem)), "`workflowlookup db check` has the numbers."
            return
        damage = self._check()
        if damage:
            problem = f"The journal of runs, {self.path}, is damaged: {damage}."
            yield problem, "`workflowlookup db salvage` sets it aside and saves what can be read."
        elif _size(self.path):
            yield from self._try_to_write()
        for aside in self.set_aside():
            remedy = "Move or delete the file and those beside it when you need nothing more of it."
            if aside not in known:
                remedy = f"This was done just now, and nothing else is left to do. {remedy}"
            yield " ".join((str(aside), *(f"{line}." for line in aside.details))), remedy

    def _check(self) -> str:
        """What SQLite finds wrong with the file, as far as it gets in `CHECK_SECONDS`."""
        if not _size(self.path):
            return "the file is empty, and its write-ahead log is not" if _size(f"{self.path}-wal") else ""
        end = time.monotonic() + CHECK_SECONDS
        try:
            with contextlib.closing(_connect_to_read(self.path)) as connection:
                _level(connection)
                connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
                rows = connection.execute("PRAGMA quick_check(5)").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as problem:
            return "" if _code(problem) & 0xFF == sqlite3.SQLITE_INTERRUPT else _reason(problem)
        found = [joined(str(row[0])) for row in rows]
        return "" if found == ["ok"] else "; ".join(found)

    @staticmethod
    def _is_corrupt(refusal: StorageError) -> bool:
        return isinstance(refusal.__cause__, Exception) and _code(refusal.__cause__) & 0xFF in _CORRUPT

    def _try_to_write(self, *, is_again: bool = False) -> Iterator[tuple[str, str]]:
        known = self.set_aside()
        try:
            self.read_tables()
            with contextlib.suppress(_Undone), self.writing() as transaction:
                transaction.execute("UPDATE levels SET least = least")
                raise _Undone
            with self._translated(), tempfile.TemporaryFile(dir=os.path.dirname(self.path)) as probe:
                probe.write(bytes(_PROBE_BYTES))
                probe.flush()
                os.fsync(probe.fileno())
        except StorageError as refusal:
            if self.set_aside() != known and not is_again:  # it was damaged, and is replaced now
                yield from self._try_to_write(is_again=True)
            else:
                yield refusal.remedy, "Until then what is stored can be read, and no run is started or goes on."

    def salvage(self) -> SetAside | None:
        self._refuse_unrelated()
        level = None
        with contextlib.suppress(StorageError):
            level = self.level()
        if level is not None and level.problem:
            raise self._storage_error(level.problem)
        damage = self._check()
        if not damage:
            return None
        with self._translated():
            self._identity = _identity(self.path)
            self._connect_to_wait()
            try:
                return self._set_aside(damage)
            finally:
                self.close()

    def _refusal(self, problem: sqlite3.Error | UnicodeDecodeError | OSError) -> StorageError:
        """The error for the caller. The connection is given up, unless the obstacle passes by itself."""
        code = _code(problem)
        if code & 0xFF in _CORRUPT:
            refusal = self._replace_damaged(problem)
        else:
            refusal = self._storage_error(_reason(problem), code)
            if self._is_ready and code in _PASSING:
                return refusal
        with contextlib.suppress(sqlite3.Error):
            self.close()  # only now: SQLite leaves the files of a database alone that is no longer where it was
        return refusal

    def _replace_damaged(self, problem: Exception) -> StorageError:
        if self._why_not_written is not None:
            message = f"it is damaged ({_reason(problem)}), and cannot be replaced"
            return self._storage_error(message, sqlite3.SQLITE_READONLY)
        reason = f"it was damaged ({_reason(problem)})"
        try:
            kept = self._set_aside(_reason(problem))
        except OSError as obstacle:
            reason += f", and what can be read of it could not be saved: {_reason(obstacle)}"
            return self._storage_error(reason, _code(obstacle))
        if kept is not None:
            reason += f" and is kept as {kept.file}. {kept.outcome}"
        return self._storage_error(reason, advice="Try again.")

    def _set_aside(self, reason: str) -> SetAside | None:
        """What is kept of the file; None when another process was faster."""
        with self._alone():
            if _identity(self.path) != self._identity:
                return None
            set_aside.begin(self.path, reason)
            return set_aside.finish(self.path, SqliteJournal, self._wait_for_writers)

    def _connect_to_wait(self) -> None:
        """Have a connection for `_wait_for_writers`, with its log open by the name that it has now."""
        if self._connection is not None:
            return
        connection = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error:  # so damaged that nobody can write to it either
            connection.close()
        else:
            self._connection = connection

    def _wait_for_writers(self) -> None:
        """Wait until those have committed who began before the file was moved; later ones see that it was."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("ROLLBACK")

    def _storage_error(self, reason: str, code: int = 0, *, advice: str = "") -> StorageError:
        if code & 0xFF in _BUSY and not advice:
            message = f"The journal of runs, {self.path}, cannot be used: {reason}. {_HELD}"
            return JournalBusy(message, path=self.path)
        advice = advice or _ADVICE.get(code & 0xFF, "Check its disk." if code else "")
        message = f"The journal of runs, {self.path}, cannot be used: {reason}. {advice}".rstrip()
        return _ERRORS.get(code & 0xFF, StorageError)(message, path=self.path, details=message)


class _Damage(sqlite3.DatabaseError):
    """Damage that SQLite itself would not see."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class _Undone(Exception):
    """Rolls back a write that was only a test."""


def _connect_to_read(path: str) -> sqlite3.Connection:
    """A connection that changes nothing and leaves no files behind.

    A file without a log is read as it is: SQLite would make files beside it, which stay when it is closed.
    """
    how = "mode=ro" if _size(f"{path}-wal") else "immutable=1"
    uri = f"{Path(path).as_uri()}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=JOURNAL_SECONDS * BUSY_SHARE, isolation_level=None)


def _level(connection: sqlite3.Connection) -> Level:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    is_ours = application == APPLICATION_ID or (application == 0 and not tables) or _has_our_tables(connection)
    if not is_ours:
        return Level(version=0, known=len(MIGRATIONS), is_foreign=True)
    if version < 0 or not tables.isdisjoint(_tables_after(version)):
        raise _Damage(f"its version {version} is not that of its tables")
    least = connection.execute("SELECT MAX(least) FROM levels").fetchone()[0] if "levels" in tables else None
    return Level(version=version, known=len(MIGRATIONS), least=least)


def _tables_after(version: int) -> set[str]:
    """The tables that a journal at this version does not have yet."""
    return set(_CREATED.findall(" ".join(MIGRATIONS[version:])))


def _has_our_tables(connection: sqlite3.Connection) -> bool:
    for table, columns in _TABLES.items():
        if not columns <= {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}:
            return False
    return True


def _code(problem: Exception) -> int:
    """The result code of SQLite that a problem has, or is like."""
    if isinstance(problem, OSError):
        return _AS_SQLITE.get(problem.errno or 0, sqlite3.SQLITE_CANTOPEN)
    # Text that is not UTF-8, in the name of a table or in a value, is found by Python and not by SQLite.
    if isinstance(problem, UnicodeDecodeError) or str(problem).startswith(("Could not decode to UTF-8", _UNSUPPORTED)):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(problem, "sqlite_errorcode", 0))


def _reason(problem: Exception) -> str:
    return str(problem.strerror) if isinstance(problem, OSError) else str(problem).partition(" with text ")[0]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _may_exist(record: str) -> bool:
    try:
        os.lstat(record)
    except FileNotFoundError:
        return False
    except OSError:
        log.warning("%s cannot be looked at: tokens are required", record)
    return True


def _has_room(directory: str) -> bool:
    """Whether a file could be made in this directory, which is made with it where it is missing."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)


def _identity(path: str) -> object:
    """What tells a file from another one that takes its place."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
