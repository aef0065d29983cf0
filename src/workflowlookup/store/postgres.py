"""The journal in a PostgreSQL database, shared by all replicas that are given its URL.

The tables are in a schema of their own. A connection that is lost is made anew with the next question. When it is lost
during an append nobody can tell whether that was stored: it is looked up before it is sent again.

Every use has a deadline, and raises `JournalUnavailable` when it passes. The database has a little less time for a
statement, so that one that works says what it waits for. From one that is silent the connection is cut.
"""

import contextlib
import functools
import math
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from workflowlookup.errors import JOURNAL_SECONDS, JournalBusy, JournalUnavailable, StorageError
from workflowlookup.runs.events import Record
from workflowlookup.store.journal import READ_BYTES, Announcement, Conflict, DamagedJournal, RunSummary
from workflowlookup.store.migrations import MIGRATIONS, SchemaVersion
from workflowlookup.store.sql import (
    MOVING,
    READ,
    THIS_RUN,
    Cursor,
    SqlJournal,
    Statement,
    Transaction,
    announcing,
)

IDLE_SHARE: Final = 0.4
"""Of the time that a use may take: after what PostgreSQL ends a transaction whose client is silent. It is less than
others wait for its locks: the same change, sent to another replica, does not wait in vain.
"""
LOCK_SHARE: Final = 0.7
STATEMENT_SHARE: Final = 0.8
DEADLINE_SHARE: Final = 0.9
"""Likewise: what it may wait for a lock, what a statement may take, and when it is given up."""
_TIMEOUTS: Final = (
    ("idle_in_transaction_session_timeout", IDLE_SHARE),
    ("lock_timeout", LOCK_SHARE),
    ("statement_timeout", STATEMENT_SHARE),
)
MIN_CONNECT_SECONDS: Final = 2
"""The least that libpq takes for a limit."""
MAX_MAINTENANCE_SECONDS: Final = 3_600.0
"""For migrations and purges, whose statements take as long as there is much to do."""
_ONE_AT_A_TIME: Final = 7_365_982_104
"""The advisory lock under which tables are made; any number that nobody else takes."""

_READ_SOME: Final = f"""
    SELECT sequence, time, who, body
    FROM (
        SELECT *, SUM(octet_length(body)) OVER (ORDER BY sequence) - octet_length(body) AS before
        FROM ({READ}) AS first
    ) AS sized
    WHERE before < ? ORDER BY sequence
"""  # noqa: S608 - our own names
_ANNOUNCING: Final = 7_365_982_105
"""The advisory lock under which announcements are stored: their numbers are then in the order of their commits."""

_GO_ON: Final = f"""
    WITH moved AS (
        UPDATE runs SET {", ".join(f"{name} = ?" for name in (*MOVING, "state"))}
        WHERE id = ? AND {THIS_RUN} RETURNING 1
    )
    INSERT INTO events (run, sequence, time, who, kind, body)
    SELECT * FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::text[], ?::text[])
    WHERE EXISTS (SELECT FROM moved)
"""  # noqa: S608 - our own names
"""An index of an unchanged column costs an update nothing here: the state is written with the rest."""

_TOKENS_REQUIRED: Final = """
    SELECT to_regnamespace('workflowlookup_tokens_required')::text, to_regclass('workflowlookup.tokens_required')::text
"""

_NO_RESOURCES: Final = "53"
"""The class of SQLSTATE for a full disk, too little memory, too many connections: nothing was stored."""

_NO_STATEMENT_TIMEOUT: Final = "SET LOCAL statement_timeout TO 0"

NOTICE_SILENCE: Final[dict[str, Any]] = {
    "tcp_user_timeout": 20_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
"""A network that is gone breaks the connection within 20 seconds; by themselves systems wait for a quarter of an hour,
or two.
"""
END_SILENT_SESSIONS: Final = (
    "SET tcp_user_timeout TO 20000; SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; "
    "SET tcp_keepalives_count TO 2"
)
"""The same at the server's end, so that the locks of a client that is gone are released."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose operations end at a deadline: it is then closed, whatever its server does."""

    deadline = math.inf
    """By `time.monotonic`."""
    max_seconds = math.inf
    """How long each operation may take, if its deadline does not come first."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        deadline = min(self.deadline, time.monotonic() + self.max_seconds)
        return super().wait(self._until(deadline, gen), *args, **kwargs)

    def notifies(self, *, timeout: float | None = None, stop_after: int | None = None) -> Generator[psycopg.Notify]:
        """For a connection that is used for nothing else from now on: its server may have nothing to say."""
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
                    raise _Overdue("the server does not answer")
                state = gen.send(ready)
        except StopIteration as end:
            return end.value


class _Overdue(psycopg.OperationalError):
    """The server was silent until the deadline."""


class _Lost(JournalUnavailable):
    """The connection broke in the middle of something."""


class _Silent(JournalUnavailable):
    """The deadline passed in the middle of something."""


class PostgresJournal(SqlJournal):
    """A journal at a URL."""

    def __init__(self, url: str, seconds: float = JOURNAL_SECONDS) -> None:
        """`seconds`: how long a use may take."""
        self._url = url
        self._seconds = seconds
        self._deadline: float | None = None
        """Of the use that is under way, by `time.monotonic`."""
        self._is_maintaining = False
        """Whether statements may take long."""
        self._may_be_stored = False
        """Whether the append that is under way has sent its commit, or the statement that commits by itself."""
        self._connection: Connection | None = None
        self._is_listening = False
        """Whether the connection is notified of announcements."""

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._connected() as connection, connection.transaction():
            if self._is_maintaining:
                connection.execute(_NO_STATEMENT_TIMEOUT)
            yield _Statements(connection)
            self._may_be_stored = True

    def append(self, run_id: str, expected: int, records: Sequence[Record], summary: RunSummary) -> None:
        self._may_be_stored = False
        with self._within_deadline():
            try:
                super().append(run_id, expected, records, summary)
            except _Silent as problem:
                raise JournalUnavailable(problem.reason, is_unknown=self._may_be_stored) from problem
            except _Lost:
                self._append_again(run_id, expected, records, summary)

    def _append_again(self, run_id: str, expected: int, records: Sequence[Record], summary: RunSummary) -> None:
        """Append what may have been stored already."""
        try:
            stored = self.read(run_id, after=expected)[: len(records)]
            if msgspec.json.encode(stored) != msgspec.json.encode(records):
                super().append(run_id, expected, records, summary)
        except JournalUnavailable as problem:
            raise JournalUnavailable(problem.reason, is_unknown=True) from problem

    def purge(self, before: int) -> int:
        self._is_maintaining = True
        try:
            return super().purge(before)
        finally:
            self._is_maintaining = False

    def _go_on(self, expected: int, rows: Sequence[Sequence[Any]], summary: RunSummary) -> None:
        """In one statement, which is one trip to the database instead of five."""
        moved = [getattr(summary, name) for name in (*MOVING, "state")]
        this = (summary.id, expected, summary.started, summary.hash)
        if self._stored(_GO_ON, (*moved, *this, *map(list, zip(*rows, strict=True)))) != len(rows):
            raise Conflict(summary.id)

    def _stored(self, statement: str, values: Sequence[Any]) -> int:
        """How many rows a statement has stored, durably."""
        with self._connected() as connection:
            self._may_be_stored = True
            return _Statements(connection).execute(statement, values).rowcount

    def write(self, *statements: Statement) -> None:
        with self._within_deadline():
            try:
                super().write(*statements)
            except _Lost:
                super().write(*statements)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._within_deadline():
            try:
                return self._query(statement, values)
            except _Lost:
                return self._query(statement, values)

    def _query(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._connected() as connection:
            return _Statements(connection).execute(statement, values).fetchall()

    def ping(self) -> None:
        super().ping()
        if self.query("SHOW transaction_read_only") == [("on",)]:  # also of one in recovery
            self.close()  # see `_connected`
            raise JournalUnavailable(f"The journal of runs, {_shown(self._url)}, is read-only")

    def rows(self, run_id: str, after: int, limit: int) -> list[Any]:
        return self.query(_READ_SOME, (run_id, after, limit, READ_BYTES))

    def version(self) -> int:
        return int(self.query("SELECT COALESCE(SUM(sequence), 0) + COUNT(*) FROM runs")[0][0])

    def announce(self, announcement: Announcement, oldest: int) -> None:
        self.write(
            ("SELECT pg_advisory_xact_lock(?)", (_ANNOUNCING,)),
            *announcing(announcement, oldest),
            ("NOTIFY workflowlookup", ()),
        )

    def await_announcement(self, seconds: float) -> bool:
        with self._connected() as connection:
            connection.execute("LISTEN workflowlookup")  # fails where the connection is gone
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

    def faults(self, known: Sequence[DamagedJournal] | None = None) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - sets none aside
        try:
            problem = self.schema_version().problem
            if not problem:
                self.read_tables()
                with self._connected() as connection, connection.transaction(force_rollback=True):
                    connection.execute("UPDATE levels SET least = least")
        except StorageError as refusal:
            yield refusal.remedy, "Until then no run is kept."
        else:
            if problem:
                yield str(self._storage_error(problem)), "`workflowlookup db check` has the numbers."

    @property
    def names(self) -> frozenset[str]:
        try:
            parts = conninfo_to_dict(self._url)
        except psycopg.Error:  # nobody is served from there
            return frozenset()
        host = parts.get("host") or parts.get("hostaddr") or ""
        return frozenset({f"postgresql://{host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"})

    def require_tokens(self) -> None:
        """The record is a schema of its own, which no dropped table takes away.

        A role that may make no schemas has a table instead: it cannot make the dropped schema of that again either,
        so that nobody is served.
        """
        with self._connected() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
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
        """A use of the journal, with one deadline for all that it takes."""
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
        """The connection; what goes wrong on it becomes `StorageError`."""
        with self._within_deadline() as deadline:
            connection = self._connection = self._connection or self._connect()
            connection.deadline = deadline
            try:
                yield connection
            except psycopg.Error as problem:
                kind: type[StorageError] = StorageError
                if isinstance(problem, psycopg.errors.ReadOnlySqlTransaction):
                    self.close()  # a session stays read-only when the database no longer is
                elif connection.closed:
                    self.close()
                    kind = _Silent if isinstance(problem, _Overdue) else _Lost
                raise self._refusal(problem, kind) from problem

    def _open(self) -> Connection:
        if _is_split(self._url):
            raise self._storage_error("write an '@' in the password as %40")
        with self._within_deadline() as deadline:
            try:
                connection = Connection.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=max(MIN_CONNECT_SECONDS, int(deadline - time.monotonic())),
                    application_name="workflowlookup",
                    **NOTICE_SILENCE,
                )
            except psycopg.Error as problem:
                is_away = isinstance(problem, psycopg.OperationalError)
                raise self._refusal(problem, JournalUnavailable if is_away else StorageError) from problem
            connection.deadline = deadline
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # others cannot hold every text, or give bytes for texts
            connection.close()
            told = f"its encoding is {encoding}; make one with `createdb --encoding=UTF8 --template=template0 NAME`"
            raise self._storage_error(told)
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
                raise self._refusal(problem, JournalUnavailable if is_away else StorageError) from problem
            raise
        return connection

    def _migrate(self, connection: Connection) -> None:
        """Bring the tables up to date. One server does it, others wait; where nothing is to be done nobody does."""
        if self._check(connection).is_up_to_date:
            return
        connection.deadline = time.monotonic() + MAX_MAINTENANCE_SECONDS
        with connection.transaction():
            connection.execute(_NO_STATEMENT_TIMEOUT)
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
            connection.execute("CREATE SCHEMA IF NOT EXISTS workflowlookup")
            if connection.execute("SELECT to_regclass('workflowlookup.meta')").fetchone() == (None,):
                connection.execute("CREATE TABLE meta (version BIGINT NOT NULL)")
                connection.execute("INSERT INTO meta VALUES (0)")
            schema = self._check(connection)
            for script in MIGRATIONS[schema.version :]:
                connection.execute(script.replace("WITHOUT ROWID", "").encode())
            if not schema.is_up_to_date:
                connection.execute("UPDATE meta SET version = %s", (len(MIGRATIONS),))

    def _check(self, connection: Connection) -> SchemaVersion:
        """Where the tables are. Raises `StorageError` when this program cannot work with them."""
        schema = _schema_version(connection)
        if schema.problem:
            raise self._storage_error(schema.problem)
        return schema

    def schema_version(self) -> SchemaVersion:
        """Where the tables are; nothing is made or changed. Raises `StorageError` when they cannot be reached."""
        with self._within_deadline(), contextlib.closing(self._open()) as connection:
            try:
                return _schema_version(connection)
            except psycopg.Error as problem:
                raise self._refusal(problem) from problem

    def _refusal(self, problem: psycopg.Error, kind: type[StorageError] = StorageError) -> StorageError:
        reason = str(problem).strip().partition("\n")[0]
        if isinstance(problem, psycopg.ProgrammingError) and problem.sqlstate is None:
            reason = "the URL is not well-formed"  # what is said of it may quote the password
        if isinstance(problem, psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled):
            kind = JournalBusy
        elif isinstance(problem, psycopg.errors.ReadOnlySqlTransaction):
            kind = JournalUnavailable
        elif (problem.sqlstate or "").startswith(_NO_RESOURCES) and not issubclass(kind, JournalUnavailable):
            kind = JournalBusy
        if issubclass(kind, JournalUnavailable):
            return kind(f"The journal of runs, {_shown(self._url)}, does not answer: {reason.rstrip('.')}")
        return self._storage_error(f"{reason}. Check that it can be reached and written to; the run stays as it is")

    def _storage_error(self, reason: str) -> StorageError:
        message = f"The journal of runs, {_shown(self._url)}, cannot be used: {reason}."
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
    """A connection that takes statements as they are written for all databases."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        return self._connection.execute(_translated(statement), [_storable(value) for value in values])

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_translated(statement), rows)


@functools.lru_cache(maxsize=64)
def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _storable(value: Any) -> Any:
    """The value as PostgreSQL can have it: its texts have no NUL, so whoever asks for one finds nothing."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _is_split(url: str) -> bool:
    """Whether an '@' in the password ends it too soon, so that the rest of it is taken for the host."""
    try:
        host = str(conninfo_to_dict(url).get("host", ""))
    except psycopg.Error:
        return False
    return "@" in host[1:] and not host.startswith("/")


def _shown(url: str) -> str:
    """Which database it is, without the password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "at a URL that is not well-formed"
    if _is_split(url):
        return "at a URL whose password is not well-formed"
    return f"PostgreSQL database '{parts.get('dbname', '')}' at {parts.get('host', 'localhost')}"
