"""The journal in a SQLite file, shared by all processes of a machine that are given its path.

It uses a write-ahead log with `synchronous=FULL`: a commit is on disk when it returns. The file is created on first
use. A damaged file is set aside under another name, never deleted, and replaced by a new one with all that can be
read (`salvage`). A file that cannot be written can still be read. A file that is not a journal is refused and not
touched. Needs a local disk: SQLite's shared memory does not work over a network.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from workflowlookup.errors import JOURNAL_SECONDS, UNAVAILABLE_RETRY_SECONDS, JournalBusy, StorageError
from workflowlookup.language.text import joined
from workflowlookup.store import salvage
from workflowlookup.store.journal import READ_BYTES, DamagedJournal, NoRoom, ReadOnly
from workflowlookup.store.migrations import MIGRATIONS, SchemaVersion
from workflowlookup.store.salvage import has_journal_rows
from workflowlookup.store.sql import OLD_RUNS, READ_EVENTS, SqlJournal
from workflowlookup.store.sqlite_file import (
    APPLICATION_ID,
    BUSY_SHARE,
    Damage,
    can_create_in,
    connect_to_read,
    file_size,
    identity_of,
    reason_of,
    result_code,
    schema_version_of,
)
from workflowlookup.store.sqlite_pages import MAGIC, WriteAheadLog, count_frames

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 10.0
"""How long `faults` checks a large file."""
RESERVE_BYTES: Final = 1_000 * 4_096 + 256 * 1024
"""The size of a reserve file, which `purge` deletes when the disk is full.

Deleting runs needs room for the log. Before the log is used again its pages must be copied into the file, which needs
as much room as the log has new pages: up to 1,000.
"""

RESERVE_FACTOR: Final = 4
"""The reserve is created only if this many times its size is free, so that it does not fill the disk."""

_writers: Final[dict[str, threading.Lock]] = {}
"""By path: a lock for the threads of this process that write."""
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
"""By result code: errors that prevent writing but not reading. After CANTOPEN, a file that exists can be read."""
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LOCKED_MESSAGE: Final = "Another process holds it for too long"
_TRANSIENT: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR_WRITE})
"""Errors after which the connection stays open: runs can be read on it, while opening a new one may need room."""
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SIDE_SUFFIXES: Final = (".lock", "-wal", ".reserve", ".salvaging", ".tokens-required")
"""Suffixes of the files beside a journal, which identify it even when nothing of it can be read. The lock is created
before the journal, so a journal that is being created is not mistaken for another file.
"""
_TOKENS_REQUIRED: Final = """\
Tokens were created for this journal: over HTTP no request is served without one, even if the journal is lost.
To serve without tokens again, use another journal; or stop the servers and delete this file, the journal,
and its line in the file tokens-required of your configuration directory (~/.config/workflowlookup).
"""


class SqliteJournal(SqlJournal):
    """A journal at a path."""

    def __init__(self, path: str, seconds: float = JOURNAL_SECONDS) -> None:
        """`seconds`: how long a use may take."""
        self._busy_seconds = seconds * BUSY_SHARE
        self._name = os.path.abspath(os.path.expanduser(path))
        self.path = os.path.realpath(self._name)  # so that all names of a file share one lock
        self._connection: sqlite3.Connection | None = None
        self._identity: object = None
        self._is_ready = False
        self._group: contextlib.ExitStack | None = None
        """Set within a group; the transaction, once begun, ends with it."""
        self._group_connection: sqlite3.Connection | None = None
        """The connection with the transaction of the group."""
        self._write_error: StorageError | None = None
        """Set while the file can only be read. Each use tries again to open it for writing."""

    def group(self) -> contextlib.AbstractContextManager[None] | None:
        return self._one_transaction()

    @contextlib.contextmanager
    def _one_transaction(self) -> Iterator[None]:
        """The transaction begins with the first write, so that a group that only reads blocks nobody."""
        with self._translating_errors(), contextlib.ExitStack() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = self._group_connection = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        if self._group is None:
            with self._translating_errors(), self._transaction() as connection:
                yield connection
            return
        if self._group_connection is None:
            self._group_connection = self._group.enter_context(self._transaction())
        yield self._group_connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        deadline = time.monotonic() + self._busy_seconds
        with self._thread_lock():
            connection = self._begin(deadline)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _thread_lock(self) -> Iterator[None]:
        """Hold the lock for writing in this process; waiting in SQLite would sleep for milliseconds."""
        lock = _writers.setdefault(self.path, threading.Lock())
        if not lock.acquire(timeout=self._busy_seconds):
            raise self._storage_error("another thread writes to it", sqlite3.SQLITE_BUSY)
        try:
            yield
        finally:
            lock.release()

    def _begin(self, deadline: float) -> sqlite3.Connection:
        """Begin a transaction on the file that is at the path now: it may be set aside while this waits.

        `deadline`, by `time.monotonic`: how long it waits for other processes.
        """
        while True:
            connection = self._opened()
            if self._write_error is not None:
                raise self._write_error
            milliseconds = max(0, round((deadline - time.monotonic()) * 1000))
            connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
            connection.execute("BEGIN IMMEDIATE")
            if identity_of(self.path) == self._identity:
                return connection
            connection.execute("ROLLBACK")

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._translating_errors():
            return self._opened().execute(statement, values).fetchall()

    def rows(self, run_id: str, after: int, limit: int) -> list[Any]:
        rows: list[Any] = []
        size = 0
        with (
            self._translating_errors(),
            contextlib.closing(self._opened().execute(READ_EVENTS, (run_id, after, limit))) as cursor,
        ):
            for row in cursor:
                rows.append(row)
                size += len(row[-1]) if isinstance(row[-1], str) else 0  # in a damaged journal it may be anything
                if size >= READ_BYTES:
                    break
        return rows

    def ping(self) -> None:
        super().ping()
        if isinstance(self._write_error, NoRoom):
            raise self._write_error
        if self._write_error is None:
            self._check_room()

    def version(self) -> int:
        return int(self.query("PRAGMA data_version")[0][0])

    def purge(self, before: int) -> int:
        try:
            return super().purge(before)
        except NoRoom:
            self.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._reserve)
        old = [run_id for (run_id,) in self.query(OLD_RUNS, (before,))]
        try:
            for run_id in old:
                self.query("PRAGMA secure_delete = FAST")  # overwriting deleted content would need room in the log
                self.delete(run_id)
                self.query("PRAGMA wal_checkpoint(RESTART)")  # so that the next deletion reuses the log
        except NoRoom:  # not even for one run: a journal of an older version has no reserve
            self.close()
            with self._translating_errors(), self._file_lock():
                self._purge_in_place(before)
        return len(old)

    def _purge_in_place(self, before: int) -> None:
        """Delete without a log, which needs no room, while no other process has the file open.

        If this process is killed meanwhile, the file may be damaged; it is then salvaged as usual.
        """
        exclusive = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        with contextlib.closing(exclusive) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # needs no shared memory
            self._disable_log(connection)
            connection.execute("PRAGMA secure_delete = FAST")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute(f"DELETE FROM events WHERE run IN ({OLD_RUNS})", (before,))  # noqa: S608 - our own SQL
            connection.execute(f"DELETE FROM runs WHERE id IN ({OLD_RUNS})", (before,))  # noqa: S608
            connection.execute("COMMIT")

    def _disable_log(self, connection: sqlite3.Connection) -> None:
        """Make a connection write without a log. SQLite reports both obstacles as a locked database."""
        try:
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError as problem:
            reason = "its disk is full, and another process has it open"
            advice = "Make room on its disk; or stop the servers that use it, and purge again."
            raise self._storage_error(reason, result_code(problem), advice=advice) from problem
        try:
            connection.execute("PRAGMA journal_mode = MEMORY")
        except sqlite3.OperationalError as problem:
            kib = -(-file_size(f"{self.path}-wal") // 1024)
            reason = f"its disk is full, and its write-ahead log ({kib:,} KiB) must be written into it before any purge"
            advice = "Make that much room on its disk, and purge again; no run is lost."
            raise self._storage_error(reason, sqlite3.SQLITE_FULL, advice=advice) from problem

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ── side files ──────────────────────────────────────────────────────────────────────────────────────────────

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        return salvage.find_damaged_journals(self.path)

    @property
    def names(self) -> frozenset[str]:
        """The real path, and the path in the settings, which may later be a link to another file."""
        return frozenset({self.path, self._name})

    def require_tokens(self) -> None:
        for path in self._token_records:
            with self._translating_errors():
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                with open(path, "w", encoding="utf-8") as record:
                    record.write(_TOKENS_REQUIRED)
                    record.flush()
                    os.fsync(record.fileno())
                salvage.sync_directory(path)

    def requires_tokens(self) -> bool:
        return any(map(_may_exist, self._token_records))

    @property
    def _token_records(self) -> set[str]:
        return {f"{path}.tokens-required" for path in self.names}

    @property
    def _reserve(self) -> str:
        return f"{self.path}.reserve"

    def _create_reserve(self) -> None:
        """Create the reserve if it is missing and there is room to spare."""
        if os.path.lexists(self._reserve):
            return
        with contextlib.suppress(OSError):
            room = os.statvfs(os.path.dirname(self.path))
            if room.f_bavail * room.f_frsize < RESERVE_FACTOR * RESERVE_BYTES:
                return
            with open(self._reserve, "xb") as reserve:
                os.fchmod(reserve.fileno(), 0o600)
                reserve.write(bytes(RESERVE_BYTES))

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that is at the path now."""
        if self._connection is None or self._write_error is not None or identity_of(self.path) != self._identity:
            self.close()
            self._open()
        assert self._connection is not None
        return self._connection

    @contextlib.contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Errors of SQLite and the system become `StorageError`."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError, OSError) as problem:
            raise self._error_for(problem) from problem

    def _open(self) -> None:
        self._is_ready = False
        self._write_error = None
        self._refuse_unrelated()
        exists = os.path.exists(self.path)  # before the access check: another process may be creating it
        if exists and not (os.access(self.path, os.W_OK) and os.access(os.path.dirname(self.path), os.W_OK | os.X_OK)):
            self._open_to_read(self._storage_error("it is read-only", sqlite3.SQLITE_READONLY))
            return
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        try:
            with self._file_lock():
                self._open_to_write()
        except (sqlite3.OperationalError, OSError) as problem:
            if result_code(problem) & 0xFF not in _ERRORS or not file_size(self.path):
                raise
            self.close()
            self._open_to_read(self._storage_error(reason_of(problem), result_code(problem)))

    def _open_to_write(self) -> None:
        if salvage.is_salvage_begun(self.path):
            salvage.finish_salvage(self.path, SqliteJournal, self._wait_for_writers)
        with contextlib.suppress(FileExistsError):  # opening and closing it would release SQLite's locks
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
        self._identity = identity_of(self.path)
        if file_size(self.path) <= 1 and file_size(
            f"{self.path}-wal"
        ):  # SQLite takes one byte for none, and deletes the log
            raise Damage("the file is empty, and its write-ahead log is not")
        self._refuse_foreign()
        frames = count_frames(self.path)
        self._connection = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        if frames:
            self._check_log(self._connection, frames)
        self._migrate(self._connection)
        self._create_reserve()
        self._is_ready = True

    def _open_to_read(self, write_error: StorageError) -> None:
        """Open the file read-only; `write_error`: why it cannot be written."""
        self._write_error = write_error
        self._identity = identity_of(self.path)
        self._refuse_foreign()
        self._connection = connect_to_read(self.path)

    def _refuse_unrelated(self) -> None:
        """Raises `StorageError`, without touching it, for a file that is not SQLite and never was a journal."""
        if not file_size(self.path) or any(os.path.lexists(self.path + suffix) for suffix in _SIDE_SUFFIXES):
            return
        with open(self.path, "rb") as file:
            is_sqlite = file.read(len(MAGIC)) == MAGIC
        if not is_sqlite and not has_journal_rows(self.path):
            reason = "it is not a journal of workflowlookup, and was not touched"
            raise self._storage_error(reason, advice="Choose another file with --journal or the setting journal.")

    def _refuse_foreign(self) -> None:
        """Raises `StorageError`, without touching it, for a file of another program or of a newer version."""
        if not file_size(self.path):
            return
        with contextlib.closing(connect_to_read(self.path)) as connection:
            schema = schema_version_of(connection)
        if schema.problem:
            raise self._storage_error(schema.problem)

    def _check_log(self, connection: sqlite3.Connection, frames: int) -> None:
        """Raises `Damage` for a log that is damaged in the middle: SQLite would silently drop the rest of it."""
        _, valid_frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if valid_frames < frames:  # damaged, or another process is just writing
            with contextlib.closing(WriteAheadLog(self.path)) as wal:
                if wal.is_damaged:
                    raise Damage("its write-ahead log is not what was written")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        schema = schema_version_of(connection)
        if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        for number, script in enumerate(MIGRATIONS[schema.version :], schema.version + 1):
            connection.execute("BEGIN IMMEDIATE")
            for statement in script.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")

    def schema_version(self) -> SchemaVersion:
        """The schema version; changes nothing. Raises `StorageError` when the file cannot be read."""
        try:
            self._refuse_unrelated()
            if not file_size(self.path):
                if not os.path.exists(self.path) and not can_create_in(os.path.dirname(self.path)):
                    raise self._storage_error("it cannot be created there", sqlite3.SQLITE_CANTOPEN)
                return SchemaVersion(version=0, supported=len(MIGRATIONS))
            with contextlib.closing(connect_to_read(self.path)) as connection:
                return schema_version_of(connection)
        except (sqlite3.Error, UnicodeDecodeError, OSError) as problem:
            raise self._storage_error(reason_of(problem), result_code(problem)) from problem

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[None]:
        """Hold the lock under which processes open this file or set it aside."""
        lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            self._acquire(lock)
            yield
        finally:
            os.close(lock)

    def _acquire(self, lock: int) -> None:
        """Wait for the lock as long as a write would, but not longer: its holder may be suspended."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise self._storage_error("it is being opened", sqlite3.SQLITE_BUSY) from None
                time.sleep(_LOCK_PAUSE)

    # ── checks and damage ───────────────────────────────────────────────────────────────────────────────────────

    def faults(self, previous: Sequence[DamagedJournal] | None = None) -> Iterator[tuple[str, str]]:
        previous = self.damaged_journals() if previous is None else previous
        try:
            problem = self.schema_version().problem
        except StorageError as refusal:
            if not self._is_corrupt(refusal):
                yield refusal.remedy, "Until then no run can be stored."
                return
            problem = ""
        if problem:
            yield str(self._storage_error(problem)), "`workflowlookup db check` shows the versions."
            return
        damage = self._check()
        if damage:
            problem = f"The journal of runs, {self.path}, is damaged: {damage}."
            yield problem, "`workflowlookup db salvage` sets it aside and saves what can be read."
        elif file_size(self.path):
            yield from self._try_to_write()
        for journal in self.damaged_journals():
            remedy = "Move or delete the file and those beside it when you need nothing more of it."
            if journal not in previous:
                remedy = f"This was done just now, and nothing else is left to do. {remedy}"
            yield " ".join((str(journal), *(f"{line}." for line in journal.details))), remedy

    def _check(self) -> str:
        """The damage that SQLite finds in the file within `CHECK_SECONDS`; empty for none."""
        if not file_size(self.path):
            return "the file is empty, and its write-ahead log is not" if file_size(f"{self.path}-wal") else ""
        end = time.monotonic() + CHECK_SECONDS
        try:
            with contextlib.closing(connect_to_read(self.path)) as connection:
                schema_version_of(connection)
                connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
                rows = connection.execute("PRAGMA quick_check(5)").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as problem:
            return "" if result_code(problem) & 0xFF == sqlite3.SQLITE_INTERRUPT else reason_of(problem)
        messages = [joined(str(row[0])) for row in rows]
        return "" if messages == ["ok"] else "; ".join(messages)

    @staticmethod
    def _is_corrupt(refusal: StorageError) -> bool:
        return isinstance(refusal.__cause__, Exception) and result_code(refusal.__cause__) & 0xFF in _CORRUPT

    def _try_to_write(self, *, is_again: bool = False) -> Iterator[tuple[str, str]]:
        previous = self.damaged_journals()
        try:
            self.read_tables()
            with contextlib.suppress(_RollBack), self.writing() as transaction:
                transaction.execute("UPDATE levels SET least = least")
                raise _RollBack
            self._check_room(is_synced=True)
        except StorageError as refusal:
            if self.damaged_journals() != previous and not is_again:  # it was damaged, and is replaced now
                yield from self._try_to_write(is_again=True)
            else:
                yield refusal.remedy, "Until then runs can be read, but not started or continued."

    def _check_room(self, *, is_synced: bool = False) -> None:
        """Raises `NoRoom` when the disk is full. Without `is_synced` the probe hardly ever reaches the disk."""
        with self._translating_errors(), tempfile.TemporaryFile(dir=os.path.dirname(self.path)) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            if is_synced:
                os.fsync(probe.fileno())

    def salvage(self) -> DamagedJournal | None:
        self._refuse_unrelated()
        schema = None
        with contextlib.suppress(StorageError):
            schema = self.schema_version()
        if schema is not None and schema.problem:
            raise self._storage_error(schema.problem)
        damage = self._check()
        if not damage:
            return None
        with self._translating_errors():
            self._identity = identity_of(self.path)
            self._connect_for_waiting()
            try:
                return self._set_aside(damage)
            finally:
                self.close()

    def _error_for(self, problem: sqlite3.Error | UnicodeDecodeError | OSError) -> StorageError:
        """The error for the caller. The connection is closed, unless the error is transient."""
        code = result_code(problem)
        if code & 0xFF in _CORRUPT:
            error = self._replace_damaged(problem)
        else:
            error = self._storage_error(reason_of(problem), code)
            if self._is_ready and code in _TRANSIENT:
                return error
        with contextlib.suppress(sqlite3.Error):
            self.close()  # only now: SQLite does not touch the files of a database that was moved
        return error

    def _replace_damaged(self, problem: Exception) -> StorageError:
        if self._write_error is not None:
            message = f"it is damaged ({reason_of(problem)}), and cannot be replaced"
            return self._storage_error(message, sqlite3.SQLITE_READONLY)
        reason = f"it was damaged ({reason_of(problem)})"
        try:
            journal = self._set_aside(reason_of(problem))
        except OSError as obstacle:
            reason += f", and what can be read of it could not be saved: {reason_of(obstacle)}"
            return self._storage_error(reason, result_code(obstacle))
        if journal is not None:
            reason += f" and is kept as {journal.file}. {journal.outcome}"
        return self._storage_error(reason, advice="Try again.")

    def _set_aside(self, reason: str) -> DamagedJournal | None:
        """Set the file aside and save what can be read; None when another process has done it."""
        with self._file_lock():
            if identity_of(self.path) != self._identity:
                return None
            salvage.begin_salvage(self.path, reason)
            return salvage.finish_salvage(self.path, SqliteJournal, self._wait_for_writers)

    def _connect_for_waiting(self) -> None:
        """Open a connection for `_wait_for_writers` while the log still has its name."""
        if self._connection is not None:
            return
        connection = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error:  # so damaged that no process can write to it either
            connection.close()
        else:
            self._connection = connection

    def _wait_for_writers(self) -> None:
        """Wait for the transactions that began before the file was moved; later ones notice that it was."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("ROLLBACK")

    def _storage_error(self, reason: str, code: int = 0, *, advice: str = "") -> StorageError:
        if code & 0xFF in _BUSY and not advice:
            message = f"The journal of runs, {self.path}, cannot be used: {reason}. {_LOCKED_MESSAGE}"
            return JournalBusy(message, path=self.path)
        advice = advice or _ADVICE.get(code & 0xFF, "Check its disk." if code else "")
        message = f"The journal of runs, {self.path}, cannot be used: {reason}. {advice}".rstrip()
        data = {"retryAfterSeconds": UNAVAILABLE_RETRY_SECONDS} if code == sqlite3.SQLITE_FULL else {}
        return _ERRORS.get(code & 0xFF, StorageError)(message, path=self.path, details=message, **data)


class _RollBack(Exception):
    """Rolls back a test write."""


def _may_exist(record: str) -> bool:
    try:
        os.lstat(record)
    except FileNotFoundError:
        return False
    except OSError:
        log.warning("%s cannot be read, so tokens are required", record)
    return True
