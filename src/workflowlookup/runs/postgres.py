"""The journal in a PostgreSQL database, shared by all replicas that are given its URL.

The tables are in a schema of their own. A connection that is lost is made anew with the next question. When it is lost
during an append nobody can tell whether that was stored: it is looked up before it is sent again.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from workflowlookup.core.events import Record
from workflowlookup.errors import StorageError
from workflowlookup.runs.journal import Announcement, Conflict, SetAside, Summary
from workflowlookup.runs.levels import Level
from workflowlookup.runs.sql import MIGRATIONS, MOVING, THIS_RUN, Cursor, SqlJournal, Statement, Transaction, announcing

SECONDS_TO_CONNECT: Final = 10
BUSY_SECONDS: Final = 10
"""How long a write waits for those of other replicas."""
_ONE_AT_A_TIME: Final = 7_365_982_104
"""The advisory lock under which tables are made; any number that nobody else takes."""

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

_NOTICE_SILENCE: Final[dict[str, Any]] = {
    "tcp_user_timeout": 20_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
"""A network that is gone breaks the connection within 20 seconds; by themselves systems wait for a quarter of an hour,
or two.
"""

_Connection = psycopg.Connection[tuple[Any, ...]]


class _Lost(StorageError):
    """The connection broke in the middle of something."""


class PostgresJournal(SqlJournal):
    """A journal at a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: _Connection | None = None
        self._is_listening = False
        """Whether the connection is notified of announcements."""

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._connected() as connection, connection.transaction():
            yield _Statements(connection)

    def append(self, run_id: str, expected: int, records: Sequence[Record], summary: Summary) -> None:
        try:
            super().append(run_id, expected, records, summary)
        except _Lost:
            stored = self.read(run_id, after=expected)[: len(records)]
            if msgspec.json.encode(stored) != msgspec.json.encode(records):
                super().append(run_id, expected, records, summary)

    def _go_on(self, expected: int, rows: Sequence[Sequence[Any]], summary: Summary) -> None:
        """In one statement, which is one trip to the database instead of five."""
        moved = [getattr(summary, name) for name in (*MOVING, "state")]
        this = (summary.id, expected, summary.started, summary.hash)
        if self._stored(_GO_ON, (*moved, *this, *map(list, zip(*rows, strict=True)))) != len(rows):
            raise Conflict(summary.id)

    def _stored(self, statement: str, values: Sequence[Any]) -> int:
        """How many rows a statement has stored, durably."""
        with self._connected() as connection:
            return _Statements(connection).execute(statement, values).rowcount

    def write(self, *statements: Statement) -> None:
        try:
            super().write(*statements)
        except _Lost:
            super().write(*statements)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._query(statement, values)
        except _Lost:
            return self._query(statement, values)

    def _query(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._connected() as connection:
            return _Statements(connection).execute(statement, values).fetchall()

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

    def salvage(self) -> SetAside | None:
        raise self._storage_error("a PostgreSQL database is restored from its backup (docs/operations.md)")

    def faults(self, known: Sequence[SetAside] | None = None) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - sets none aside
        try:
            problem = self.level().problem
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
    def _connected(self) -> Iterator[_Connection]:
        """The connection; what goes wrong on it becomes `StorageError`."""
        if self._connection is None:
            self._connection = self._connect()
        try:
            yield self._connection
        except psycopg.Error as problem:
            is_lost = self._connection.closed
            if is_lost:
                self.close()
            raise self._refusal(problem, _Lost if is_lost else StorageError) from problem

    def _open(self) -> _Connection:
        if _is_split(self._url):
            raise self._storage_error("write an '@' in the password as %40")
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=SECONDS_TO_CONNECT,
                application_name="workflowlookup",
                **_NOTICE_SILENCE,
            )
        except psycopg.Error as problem:
            raise self._refusal(problem) from problem
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # others cannot hold every text, or give bytes for texts
            connection.close()
            told = f"its encoding is {encoding}; make one with `createdb --encoding=UTF8 --template=template0 NAME`"
            raise self._storage_error(told)
        return connection

    def _connect(self) -> _Connection:
        connection = self._open()
        try:
            connection.execute("SET search_path TO workflowlookup")
            connection.execute("SET synchronous_commit TO on")
            connection.execute(f"SET lock_timeout TO '{BUSY_SECONDS}s'".encode())
            self._migrate(connection)
        except BaseException as problem:
            connection.close()
            if isinstance(problem, psycopg.Error):
                raise self._refusal(problem) from problem
            raise
        return connection

    def _migrate(self, connection: _Connection) -> None:
        """Bring the tables up to date. One server does it, others wait; where nothing is to be done nobody does."""
        if self._check(connection).is_up_to_date:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
            connection.execute("CREATE SCHEMA IF NOT EXISTS workflowlookup")
            if connection.execute("SELECT to_regclass('workflowlookup.meta')").fetchone() == (None,):
                connection.execute("CREATE TABLE meta (version BIGINT NOT NULL)")
                connection.execute("INSERT INTO meta VALUES (0)")
            level = self._check(connection)
            for script in MIGRATIONS[level.version :]:
                connection.execute(script.replace("WITHOUT ROWID", "").encode())
            if not level.is_up_to_date:
                connection.execute("UPDATE meta SET version = %s", (len(MIGRATIONS),))

    def _check(self, connection: _Connection) -> Level:
        """Where the tables are. Raises `StorageError` when this program cannot work with them."""
        level = _level(connection)
        if level.problem:
            raise self._storage_error(level.problem)
        return level

    def level(self) -> Level:
        """Where the tables are; nothing is made or changed. Raises `StorageError` when they cannot be reached."""
        with contextlib.closing(self._open()) as connection:
            try:
                return _level(connection)
            except psycopg.Error as problem:
                raise self._refusal(problem) from problem

    def _refusal(self, problem: psycopg.Error, kind: type[StorageError] = StorageError) -> StorageError:
        reason = str(problem).strip().partition("\n")[0]
        if isinstance(problem, psycopg.ProgrammingError) and problem.sqlstate is None:
            reason = "the URL is not well-formed"  # what is said of it may quote the password
        advice = "Check that it can be reached and written to; the run stays as it is"
        return self._storage_error(f"{reason}. {advice}", kind)

    def _storage_error(self, reason: str, kind: type[StorageError] = StorageError) -> StorageError:
        told = f"The journal of runs, {_shown(self._url)}, cannot be used: {reason}."
        return kind(told, details=told)


def _level(connection: _Connection) -> Level:
    if connection.execute("SELECT to_regclass('workflowlookup.meta')").fetchone() == (None,):
        return Level(version=0, known=len(MIGRATIONS))
    ((version,),) = connection.execute("SELECT version FROM workflowlookup.meta").fetchall()
    if connection.execute("SELECT to_regclass('workflowlookup.levels')").fetchone() == (None,):
        return Level(version=version, known=len(MIGRATIONS))
    ((least,),) = connection.execute("SELECT MAX(least) FROM workflowlookup.levels").fetchall()
    return Level(version=version, known=len(MIGRATIONS), least=least)


class _Statements:
    """A connection that takes statements as they are written for all databases."""

    def __init__(self, connection: _Connection) -> None:
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
