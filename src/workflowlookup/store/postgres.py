"""The journal in a PostgreSQL database, shared by all replicas that are given its URL.

The tables are in a schema of their own. After a connection is lost, the next statement opens a new one. If it is lost
during an append, the append may have been stored: it is looked up before it is sent again.

Every use has a deadline, and raises `JournalUnavailable` when it passes. The database has a little less time for a
statement, so that a working database reports what it waits for. The connection to a database that does not answer is
closed.
"""

import contextlib
import functools
import math
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from workflowlookup.errors import (
    JOURNAL_SECONDS,
    UNAVAILABLE_RETRY_SECONDS,
    JournalBusy,
    JournalUnavailable,
    StorageError,
)
from workflowlookup.runs.chain import with_hashes
from workflowlookup.runs.events import Record
from workflowlookup.store.journal import READ_BYTES, Announcement, Conflict, DamagedJournal, NoRoom, RunSummary
from workflowlookup.store.migrations import MIGRATIONS, SchemaVersion
from workflowlookup.store.sql import (
    CHANGING_COLUMNS,
    READ_EVENTS,
    THIS_RUN,
    Cursor,
    SqlJournal,
    Statement,
    Transaction,
    announce_statements,
)

IDLE_SHARE: Final = 0.4
"""Of the time that a use may take: after this share PostgreSQL ends a transaction whose client is silent. That is less
than others wait for its locks, so that the same change succeeds when it is sent to another replica.
"""
LOCK_SHARE: Final = 0.7
STATEMENT_SHARE: Final = 0.8
DEADLINE_SHARE: Final = 0.9
"""Likewise: the waiting time for a lock, the time for a statement, and the deadline."""
_TIMEOUTS: Final = (
    ("idle_in_transaction_session_timeout", IDLE_SHARE),
    ("lock_timeout", LOCK_SHARE),
    ("statement_timeout", STATEMENT_SHARE),
)
MIN_CONNECT_SECONDS: Final = 2
"""The shortest limit that libpq accepts."""
MAX_MAINTENANCE_SECONDS: Final = 3_600.0
"""For migrations and purges, whose statements may take long."""
_SCHEMA_LOCK: Final = 7_365_982_104
"""The advisory lock for creating tables; any number that no other program uses."""

_READ_LIMITED: Final = f"""
    SELECT sequence, time, who, hash, body
    FROM (
        SELECT *, SUM(octet_length(body)) OVER (ORDER BY sequence) - octet_length(body) AS before
        FROM ({READ_EVENTS}) AS first
    ) AS sized
    WHERE before < ? ORDER BY sequence
"""  # noqa: S608 - our own names
_ANNOUNCE_LOCK: Final = 7_365_982_105
"""The advisory lock for storing announcements, so that their numbers are in the order of their commits."""

_APPEND: Final = f"""
    WITH moved AS (
        UPDATE runs SET {", ".join(f"{name} = ?" for name in (*CHANGING_COLUMNS, "state", "hashed", "head"))}
        WHERE id = ? AND {THIS_RUN} RETURNING 1
    )
    INSERT INTO events (run, sequence, time, who, kind, body, hash)
    SELECT * FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::text[], ?::text[], ?::text[])
    WHERE EXISTS (SELECT FROM moved)
"""  # noqa: S608 - our own names
"""The state is written with the rest: PostgreSQL does not update the index of an unchanged column."""

_TOKENS_REQUIRED: Final = """
    SELECT to_regnamespace('workflowlookup_tokens_required')::text, to_regclass('workflowlookup.tokens_required')::text
"""

_NO_RESOURCES: Final = "53"
"""The SQLSTATE class for a full disk, too little memory, too many connections: nothing was stored."""
_NEED_ROOM: Final = """
    SET LOCAL work_mem TO 64; SET LOCAL temp_tablespaces TO ''; SELECT COUNT(*) FROM generate_series(1, 5000)
"""
"""Fails when the disk of the database is full, and stores nothing: the series needs more than `work_mem`, so PostgreSQL
writes it to a temporary file on that disk. One string is one transaction.
"""

_NO_STATEMENT_TIMEOUT: Final = "SET LOCAL statement_timeout TO 0"

TCP_KEEPALIVE: Final[dict[str, Any]] = {
    "tcp_user_timeout": 20_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
"""Options that break a connection within 20 seconds after the network fails; the defaults are a quarter of an hour, or
two hours.
"""
SERVER_TCP_KEEPALIVE: Final = (
    "SET tcp_user_timeout TO 20000; SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; "
    "SET tcp_keepalives_count TO 2"
)
"""The same for the server, so that it releases the locks of a client that is gone."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed when an operation exceeds its deadline."""

    deadline = math.inf
    """By `time.monotonic`."""
    max_seconds = math.inf
    """How long each operation may take, if the deadline does not come first."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        deadline = min(self.deadline, time.monotonic() + self.max_seconds)
        return super().wait(self._until(deadline, gen), *args, **kwargs)

    def notifies(self, *, timeout: float | None = None, stop_after: int | None = None) -> Generator[psycopg.Notify]:
        """Without a deadline: the connection is used for nothing else from now on, and may be silent."""
        self.deadline = self.max_seconds = math.inf
        return super().notifies(timeout=timeout, stop_after=stop_after)

    def _until(self, deadline: float, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The steps of an operation; psycopg resumes them at least every tenth of a second."""
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() >= deadline:
                    self.pgconn.finish()
                    raise _DeadlinePassed("the server does not answer")
                state = gen.send(ready)
        except StopIteration as end:
            return end.value


class _DeadlinePassed(psycopg.OperationalError):
    """The server was silent until the deadline."""


class _ConnectionLost(JournalUnavailable):
    """The connection broke during an operation."""


class _NoAnswer(JournalUnavailable):
    """The deadline passed during an operation."""


class PostgresJournal(SqlJournal):
    """A journal at a URL."""

    LIKE = "ILIKE"

    def __init__(self, url: str, seconds: float = JOURNAL_SECONDS) -> None:
        """`seconds`: how long a use may take."""
        self._url = url
        self._seconds = seconds
        self._deadline: float | None = None
        """Of the current use, by `time.monotonic`."""
        self._is_maintaining = False
        """Whether statements may take long."""
        self._may_be_stored = False
        """Whether the current append has sent its commit, or a statement that commits by itself."""
        self._connection: Connection | None = None
        self._is_listening = False
        """Whether the connection is notified of announcements."""

    def spellings(self, text: str) -> Sequence[str]:
        return (text,)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._connected() as connection, connection.transaction():
            if self._is_maintaining:
                connection.execute(_NO_STATEMENT_TIMEOUT)
            yield _Statements(connection)
            self._may_be_stored = True

    def append(self, run_id: str, expected: int, records: Sequence[Record], summary: RunSummary, head: str = "") -> str:
        self._may_be_stored = False
        with self._within_deadline():
            try:
                return super().append(run_id, expected, records, summary, head)
            except _NoAnswer as problem:
                raise JournalUnavailable(problem.reason, is_unknown=self._may_be_stored) from problem
            except _ConnectionLost:
                return self._append_again(run_id, expected, records, summary, head)

    def _append_again(
        self, run_id: str, expected: int, records: Sequence[Record], summary: RunSummary, head: str
    ) -> str:
        """Append records that may have been stored already."""
        try:
            stored = self.read(run_id, after=expected)[: len(records)]
            if [record.hash for record in stored] == [record.hash for record in with_hashes(run_id, records, head)]:
                return stored[-1].hash
            return super().append(run_id, expected, records, summary, head)
        except JournalUnavailable as problem:
            raise JournalUnavailable(problem.reason, is_unknown=True) from problem

    def purge(self, before: int) -> int:
        self._is_maintaining = True
        try:
            return super().purge(before)
        finally:
            self._is_maintaining = False

    def _append_to_run(self, expected: int, rows: Sequence[Sequence[Any]], summary: RunSummary, head: str) -> None:
        """In one statement: one round trip instead of five."""
        values = [getattr(summary, name) for name in (*CHANGING_COLUMNS, "state", "sequence")]
        revision = (summary.id, expected, summary.started, summary.hash, head)
        columns = map(list, zip(*rows, strict=True))
        if self._execute_durably(_APPEND, (*values, rows[-1][-1], *revision, *columns)) != len(rows):
            raise Conflict(summary.id)

    def _execute_durably(self, statement: str, values: Sequence[Any]) -> int:
        """Execute a statement that commits by itself; returns how many rows it stored."""
        with self._connected() as connection:
            self._may_be_stored = True
            return _Statements(connection).execute(statement, values).rowcount

    def write(self, *statements: Statement) -> None:
        with self._within_deadline():
            try:
                super().write(*statements)
            except _ConnectionLost:
                super().write(*statements)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._within_deadline():
            try:
                return self._query(statement, values)
            except _ConnectionLost:
                return self._query(statement, values)

    def _query(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._connected() as connection:
            return _Statements(connection).execute(statement, values).fetchall()

    def ping(self) -> None:
        super().ping()
        if self.query("SHOW transaction_read_only") == [("on",)]:  # also "on" during recovery
            self.close()  # see `_connected`
            raise JournalUnavailable(f"The journal of runs, {_display_name(self._url)}, is read-only")
        self._check_room()

    def _check_room(self) -> None:
        """Raises `NoRoom` when the disk is full."""
        with self._connected() as connection:
            connection.execute(_NEED_ROOM)

    def rows(self, run_id: str, after: int, limit: int) -> list[Any]:
        return self.query(_READ_LIMITED, (run_id, after, limit, READ_BYTES))

    def version(self) -> int:
        return int(self.query("SELECT COALESCE(SUM(sequence), 0) + COUNT(*) FROM runs")[0][0])

    def announce(self, announcement: Announcement, oldest: int) -> None:
        self.write(
            ("SELECT pg_advisory_xact_lock(?)", (_ANNOUNCE_LOCK,)),
            *announce_statements(announcement, oldest),
            ("NOTIFY workflowlookup", ()),
        )

    def await_announcement(self, seconds: float) -> bool:
        with self._connected() as connection:
            connection.execute("LISTEN workflowlookup")  # fails when the connection is lost
            if not self._is_listening:
                self._is_listening = True
                return True
            return bool(list(connection.notifies(timeout=seconds, stop_after=1)))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._is_listening = False

    def salvage(self) -> DamagedJournal | None:
        raise self._storage_error("a PostgreSQL database is restored from its backup (docs/operations.md)")

    def faults(self, previous: Sequence[DamagedJournal] | None = None) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - there are none
        try:
            problem = self.schema_version().problem
            if not problem:
                self.read_tables()
                with self._connected() as connection, connection.transaction(force_rollback=True):
                    connection.execute("UPDATE levels SET least = least")
                self._check_room()
        except StorageError as refusal:
            yield refusal.remedy, "Until then no run can be stored."
        else:
            if problem:
                yield str(self._storage_error(problem)), "`workflowlookup db check` shows the versions."

    @property
    def names(self) -> frozenset[str]:
        try:
            parts = conninfo_to_dict(self._url)
        except psycopg.Error:  # no server can use it
            return frozenset()
        host = parts.get("host") or parts.get("hostaddr") or ""
        return frozenset({f"postgresql://{host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"})

    def require_tokens(self) -> None:
        """The record is a schema of its own, which is not lost with a dropped table.

        For a role that may not create schemas it is a table: if our schema is dropped, such a role cannot create it
        again either, so the server refuses to serve.
        """
        with self._connected() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            try:
                with connection.transaction():
                    connection.execute("CREATE SCHEMA IF NOT EXISTS workflowlookup_tokens_required")
            except psycopg.errors.InsufficientPrivilege:
                connection.execute("CREATE TABLE IF NOT EXISTS tokens_required ()")

    def requires_tokens(self) -> bool:
        ((schema, table),) = self.query(_TOKENS_REQUIRED)
        return schema is not None or table is not None

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _within_deadline(self) -> Iterator[float]:
        """One use of the journal: all of its statements share one deadline."""
        if self._deadline is not None:
            yield self._deadline
            return
        seconds = MAX_MAINTENANCE_SECONDS if self._is_maintaining else self._seconds * DEADLINE_SHARE
        self._deadline = time.monotonic() + seconds
        try:
            yield self._deadline
        finally:
            self._deadline = None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """The connection. Errors on it become `StorageError`."""
        with self._within_deadline() as deadline:
            connection = self._connection = self._connection or self._connect()
            connection.deadline = deadline
            try:
                yield connection
            except psycopg.Error as problem:
                kind: type[StorageError] = StorageError
                if isinstance(problem, psycopg.errors.ReadOnlySqlTransaction):
                    self.close()  # a session stays read-only after the database is writable again
                elif connection.closed:
                    self.close()
                    kind = _NoAnswer if isinstance(problem, _DeadlinePassed) else _ConnectionLost
                raise self._error_for(problem, kind) from problem

    def _open(self) -> Connection:
        if _has_unescaped_at(self._url):
            raise self._storage_error("write an '@' in the password as %40")
        with self._within_deadline() as deadline:
            try:
                connection = Connection.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=max(MIN_CONNECT_SECONDS, int(deadline - time.monotonic())),
                    application_name="workflowlookup",
                    **TCP_KEEPALIVE,
                )
            except psycopg.Error as problem:
                is_away = isinstance(problem, psycopg.OperationalError)
                raise self._error_for(problem, JournalUnavailable if is_away else StorageError) from problem
            connection.deadline = deadline
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # other encodings cannot store all text, or return bytes for text
            connection.close()
            reason = f"its encoding is {encoding}; make one with `createdb --encoding=UTF8 --template=template0 NAME`"
            raise self._storage_error(reason)
        return connection

    def _connect(self) -> Connection:
        connection = self._open()
        try:
            connection.execute("SET search_path TO workflowlookup; SET synchronous_commit TO on")
            for name, share in _TIMEOUTS:
                connection.execute(f"SET {name} TO {round(self._seconds * share * 1000)}".encode())
            self._migrate(connection)
        except BaseException as problem:
            connection.close()
            if isinstance(problem, psycopg.Error):
                is_away = isinstance(problem, psycopg.OperationalError)
                raise self._error_for(problem, JournalUnavailable if is_away else StorageError) from problem
            raise
        return connection

    def _migrate(self, connection: Connection) -> None:
        """Migrate the tables if needed. One server does it, while the others wait."""
        if self._checked_schema(connection).is_up_to_date:
            return
        connection.deadline = time.monotonic() + MAX_MAINTENANCE_SECONDS
        with connection.transaction():
            connection.execute(_NO_STATEMENT_TIMEOUT)
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            connection.execute("CREATE SCHEMA IF NOT EXISTS workflowlookup")
            if connection.execute("SELECT to_regclass('workflowlookup.meta')").fetchone() == (None,):
                connection.execute("CREATE TABLE meta (version BIGINT NOT NULL)")
                connection.execute("INSERT INTO meta VALUES (0)")
            schema = self._checked_schema(connection)
            for script in MIGRATIONS[schema.version :]:
                connection.execute(script.replace("WITHOUT ROWID", "").encode())
            if not schema.is_up_to_date:
                connection.execute("UPDATE meta SET version = %s", (len(MIGRATIONS),))

    def _checked_schema(self, connection: Connection) -> SchemaVersion:
        """The schema version. Raises `StorageError` when this program cannot use the tables."""
        schema = _schema_version(connection)
        if schema.problem:
            raise self._storage_error(schema.problem)
        return schema

    def schema_version(self) -> SchemaVersion:
        """The schema version; changes nothing. Raises `StorageError` when the database cannot be reached."""
        with self._within_deadline(), contextlib.closing(self._open()) as connection:
            try:
                return _schema_version(connection)
            except psycopg.Error as problem:
                raise self._error_for(problem) from problem

    def _error_for(self, problem: psycopg.Error, kind: type[StorageError] = StorageError) -> StorageError:
        reason = str(problem).strip().partition("\n")[0]
        if isinstance(problem, psycopg.ProgrammingError) and problem.sqlstate is None:
            reason = "the URL is not well-formed"  # the message may contain the password
        if isinstance(problem, psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled):
            kind = JournalBusy
        elif isinstance(problem, psycopg.errors.DiskFull):
            reason = reason.rpartition(": ")[2]  # without the name of a file, which differs each time
            message = (
                f"The journal of runs, {_display_name(self._url)}, cannot be written: {reason.rstrip('.')}. "
                "Nothing was changed. Make room on the disk of the database, then try again."
            )
            return NoRoom(message, details=message, retryAfterSeconds=UNAVAILABLE_RETRY_SECONDS)
        elif isinstance(problem, psycopg.errors.ReadOnlySqlTransaction):
            kind = JournalUnavailable
        elif (problem.sqlstate or "").startswith(_NO_RESOURCES) and not issubclass(kind, JournalUnavailable):
            kind = JournalBusy
        if issubclass(kind, JournalUnavailable):
            return kind(f"The journal of runs, {_display_name(self._url)}, does not answer: {reason.rstrip('.')}")
        return self._storage_error(f"{reason}. Check that it can be reached and written to; the run stays as it is")

    def _storage_error(self, reason: str) -> StorageError:
        message = f"The journal of runs, {_display_name(self._url)}, cannot be used: {reason}."
        return StorageError(message, details=message)


def _schema_version(connection: Connection) -> SchemaVersion:
    if connection.execute("SELECT to_regclass('workflowlookup.meta')").fetchone() == (None,):
        return SchemaVersion(version=0, supported=len(MIGRATIONS))
    ((version,),) = connection.execute("SELECT version FROM workflowlookup.meta").fetchall()
    if connection.execute("SELECT to_regclass('workflowlookup.levels')").fetchone() == (None,):
        return SchemaVersion(version=version, supported=len(MIGRATIONS))
    ((least,),) = connection.execute("SELECT MAX(least) FROM workflowlookup.levels").fetchall()
    return SchemaVersion(version=version, supported=len(MIGRATIONS), required=least)


class _Statements:
    """A connection that accepts the statements of `sql`, with `?` for parameters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        return self._connection.execute(_with_psycopg_parameters(statement), [_storable(value) for value in values])

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_with_psycopg_parameters(statement), rows)


@functools.lru_cache(maxsize=64)
def _with_psycopg_parameters(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _storable(value: Any) -> Any:
    """The value as PostgreSQL can store it: text without NUL."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _has_unescaped_at(url: str) -> bool:
    """Whether an unescaped '@' in the password makes the rest of it look like the host."""
    try:
        host = str(conninfo_to_dict(url).get("host", ""))
    except psycopg.Error:
        return False
    return "@" in host[1:] and not host.startswith("/")


def _display_name(url: str) -> str:
    """The database as shown in messages, without the password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "at a URL that is not well-formed"
    if _has_unescaped_at(url):
        return "at a URL whose password is not well-formed"
    return f"PostgreSQL database '{parts.get('dbname', '')}' at {parts.get('host', 'localhost')}"
