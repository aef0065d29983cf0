"""What journals in SQL databases have in common: tables, statements, and rows from and to records.

SQLite and PostgreSQL speak the same SQL as far as it is used here. What differs (connections, transactions, errors) is
theirs.
"""

import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import msgspec

from workflowlookup.errors import RunDamaged
from workflowlookup.runs.events import NO_DOCUMENT, Event, Record, Started, kind_of
from workflowlookup.runs.run import OVER, hash_of
from workflowlookup.store.journal import (
    STOP,
    Announcement,
    Conflict,
    DamagedJournal,
    Journal,
    Revision,
    RunQuery,
    RunSummary,
    Token,
    damaged,
)
from workflowlookup.store.migrations import TABLES

_COLUMNS: Final = ", ".join(RunSummary.__struct_fields__)
_VALUES: Final = ", ".join("?" for _ in RunSummary.__struct_fields__)
MOVING: Final = ("updated", "waiting_for", "step", "done", "total", "deadline", "sequence")

THIS_RUN: Final = "sequence = ? AND started = ? AND hash = ?"

_BEGIN_RUN: Final = f"INSERT INTO runs ({_COLUMNS}) VALUES ({_VALUES}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own names
_MOVE_RUN: Final = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in MOVING)} WHERE id = ? AND {THIS_RUN}"  # noqa: S608
_CHANGE_STATE: Final = "UPDATE runs SET state = ? WHERE id = ? AND state <> ?"
_ADD_DOCUMENT: Final = "INSERT INTO documents (hash, document) VALUES (?, ?) ON CONFLICT DO NOTHING"
_COPY_DOCUMENT: Final = "INSERT INTO document_copies (hash, document) VALUES (?, ?) ON CONFLICT DO NOTHING"
_ADD_EVENT: Final = "INSERT INTO events (run, sequence, time, who, kind, body) VALUES (?, ?, ?, ?, ?, ?)"
READ: Final = "SELECT sequence, time, who, body FROM events WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?"
_ADD_NAME: Final = "INSERT INTO tool_names (provider, workflow, name) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_IS_NAME: Final = "SELECT name FROM tool_names WHERE provider = ? AND workflow = ?"
_FORGET_FREED: Final = f"DELETE FROM freed_names WHERE name IN ({_IS_NAME})"  # noqa: S608 - as above
_FREE_NAME: Final = """
    INSERT INTO freed_names (name, provider, workflow, freed)
    SELECT name, provider, workflow, ? FROM tool_names WHERE provider = ? AND workflow = ?
"""
OLD: Final = "SELECT id FROM runs WHERE state IN ({}) AND updated < ?".format(  # noqa: S608 - as above
    ", ".join(f"'{state}'" for state in sorted(OVER))
)
"""The runs that are over and were last updated before a time."""

_AT_WORK: Final = "state IN ('queued', 'running')"
_POSITION: Final = """
    SELECT (SELECT COUNT(*) FROM runs one, runs other WHERE one.id = ? AND one.state = 'queued'
            AND other.state = 'queued' AND (other.updated, other.id) <= (one.updated, one.id)),
        (SELECT COUNT(*) FROM runs WHERE state = 'queued')
"""

_TOKEN_COLUMNS: Final = ", ".join(Token.__struct_fields__)
_TOKEN_VALUES: Final = ", ".join("?" for _ in (*Token.__struct_fields__, "hash"))
_ADD_TOKEN: Final = f"INSERT INTO tokens ({_TOKEN_COLUMNS}, hash) VALUES ({_TOKEN_VALUES}) ON CONFLICT DO NOTHING"  # noqa: S608
_ADD_SESSION: Final = "INSERT INTO sessions (id, owner, opening, used) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_SUBSCRIBE: Final = """
    INSERT INTO session_addresses (session, address) SELECT id, ? FROM sessions WHERE id = ? ON CONFLICT DO NOTHING
"""
_ANNOUNCE: Final = """
    INSERT INTO news (number, time, origin, topic, body) SELECT COALESCE(MAX(number), 0) + 1, ?, ?, ?, ? FROM news
"""
POLL_SECONDS: Final = 0.1

_decode: Final = msgspec.json.Decoder(Event).decode
_encode: Final = msgspec.json.Encoder().encode


Statement = tuple[str, Sequence[Any]]
"""A statement and its values."""


class Cursor(Protocol):
    """What is used of a cursor of the DB-API."""

    @property
    def rowcount(self) -> int: ...
    def fetchall(self) -> list[Any]: ...
    def fetchone(self) -> Any: ...


class Transaction(Protocol):
    """What statements are sent to between a begin and a commit."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Cursor: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object: ...


class SqlJournal(Journal):
    """A journal over a connection that those who inherit it open and mind."""

    _last_awaited = -1

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction: committed at the end, durable then; rolled back when anything is raised."""

    @abstractmethod
    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a question."""

    def upgrade(self) -> None:
        self.query("SELECT least FROM levels")

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        return ()  # a database server minds its own files

    def read_tables(self) -> None:
        """Ask every table for a row, to find out whether all of them are there. Raises `StorageError`."""
        for table in TABLES:
            self.query(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - our own names

    def write(self, *statements: Statement) -> None:
        """Carry these out in one transaction; they must do no harm when they are carried out twice."""
        with self.writing() as transaction:
            for statement, values in statements:
                transaction.execute(statement, values)

    def group(self) -> AbstractContextManager[None] | None:
        return None  # a database server groups the commits of its connections by itself

    def append(self, run_id: str, expected: int, records: Sequence[Record], summary: RunSummary) -> None:
        rows = [(run_id, r.sequence, r.time, r.by, kind_of(r.event), _body(r.event)) for r in records]
        if expected:
            self._go_on(expected, rows, summary)
            return
        started: Started = records[0].event  # type: ignore[assignment]
        document = (started.hash, bytes(started.document).decode())
        with self.writing() as transaction:
            if transaction.execute(_BEGIN_RUN, msgspec.structs.astuple(summary)).rowcount != 1:
                raise Conflict(run_id)
            if transaction.execute(_ADD_DOCUMENT, document).rowcount:
                transaction.execute(_COPY_DOCUMENT, document)
            transaction.executemany(_ADD_EVENT, rows)

    def _go_on(self, expected: int, rows: Sequence[Sequence[Any]], summary: RunSummary) -> None:
        """Append events to a run that has been begun."""
        moved = [getattr(summary, name) for name in MOVING]
        with self.writing() as transaction:
            values = (*moved, summary.id, expected, summary.started, summary.hash)
            if transaction.execute(_MOVE_RUN, values).rowcount != 1:
                raise Conflict(summary.id)
            transaction.execute(_CHANGE_STATE, (summary.state, summary.id, summary.state))
            transaction.executemany(_ADD_EVENT, rows)

    def head(self, run_id: str) -> int | None:
        found = self.query("SELECT sequence FROM runs WHERE id = ?", (run_id,))
        return found[0][0] if found else None

    def revision(self, run_id: str) -> Revision | None:
        found = self.query("SELECT sequence, started, hash FROM runs WHERE id = ?", (run_id,))
        if not found:
            return None
        sequence, started, digest = found[0]
        if not (isinstance(sequence, int) and isinstance(started, int) and isinstance(digest, str)):
            raise self._damaged(run_id, f"What the journal says of run '{run_id}' as a whole is damaged.")
        return Revision(sequence, started, digest)

    def ping(self) -> None:
        self.workflow_of("")  # the id of no run

    def workflow_of(self, run_id: str) -> str | None:
        found = self.query("SELECT workflow_id FROM runs WHERE id = ?", (run_id,))
        return found[0][0] if found else None

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        if not run_ids:
            return {}
        marks = ", ".join("?" for _ in run_ids)
        statement = f"SELECT run, body FROM events WHERE sequence = 1 AND run IN ({marks})"  # noqa: S608 - marks
        found = {run_id: _source_of(body) for run_id, body in self.query(statement, tuple(run_ids))}
        return {run_id: source for run_id, source in found.items() if source}

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        rows = self.query(READ, (run_id, after, sys.maxsize)) if limit is None else self.rows(run_id, after, limit)
        return [self._record(run_id, *row) for row in rows]

    @abstractmethod
    def rows(self, run_id: str, after: int, limit: int) -> list[Any]:
        """The rows of `READ`, and no more once there are `READ_BYTES`."""

    def _record(self, run_id: str, sequence: int, time: int, by: str, body: str) -> Record:
        try:
            event = _decode(body)
        except (msgspec.MsgspecError, TypeError) as problem:  # the latter for what is no text at all
            raise self._damaged(run_id, f"Event {sequence} of run '{run_id}' cannot be read: {problem}.") from problem
        if not isinstance(time, int):
            raise self._damaged(run_id, f"The time of event {sequence} of run '{run_id}' is damaged.")
        if isinstance(event, Started):
            document = self._document(event.hash, "documents") or self._document(event.hash, "document_copies")
            if document is None:
                told = f"The document of run '{run_id}' is not what it was when the run was started."
                raise self._damaged(run_id, told)
            event = msgspec.structs.replace(event, document=msgspec.Raw(document.encode()))
        return Record(sequence=sequence, time=time, by=by, event=event)

    def _damaged(self, run_id: str, problem: str) -> RunDamaged:
        return damaged(run_id, problem, self.damaged_journals())

    def _document(self, wanted: str, table: str) -> str | None:
        """The document that has this hash, as long as it has."""
        found = self.query(f"SELECT document FROM {table} WHERE hash = ?", (wanted,))  # noqa: S608 - our own names
        return next((text for (text,) in found if hash_of(str(text).encode()) == wanted), None)

    def summaries(self, query: RunQuery) -> list[RunSummary]:
        wanted = {
            "state = ?": query.state,
            "workflow_id = ?": query.workflow_id,
            "started >= ?": query.since,
            "started < ?": query.until,
        }
        clauses = [clause for clause, value in wanted.items() if value is not None]
        values: list[Any] = [value for value in wanted.values() if value is not None]
        if query.workflows is not None:
            fits = " OR ".join("workflow_id LIKE ? ESCAPE '!'" for _ in query.workflows)
            clauses.append(f"({fits or '1 = 0'})")
            values += [_as_like(pattern) for pattern in query.workflows]
        if query.after is not None:
            clauses.append("(started, id) < (?, ?)")
            values += query.after
        where = f"WHERE {' AND '.join(clauses)} " if clauses else ""
        statement = f"SELECT {_COLUMNS} FROM runs {where}ORDER BY started DESC, id DESC LIMIT ?"  # noqa: S608 - as above
        return [_summary(row) for row in self.query(statement, (*values, query.limit))]

    def overdue(self, now: int) -> list[str]:
        return [row[0] for row in self.query("SELECT id FROM runs WHERE deadline < ? ORDER BY deadline", (now,))]

    def at_work(self, limit: int) -> list[RunSummary]:
        statement = f"SELECT {_COLUMNS} FROM runs WHERE {_AT_WORK} ORDER BY updated, id LIMIT ?"  # noqa: S608 - as above
        return [_summary(row) for row in self.query(statement, (limit,))]

    def runs_to_stop(self) -> list[str]:
        return [row[0] for row in self.query(f"SELECT id FROM runs WHERE waiting_for = '{STOP}' ORDER BY id")]  # noqa: S608

    def queue_position(self, run_id: str) -> tuple[int, int]:
        ((before, length),) = self.query(_POSITION, (run_id,))
        return int(before), int(length)

    def counts(self) -> dict[str, int]:
        return dict(self.query("SELECT state, COUNT(*) FROM runs GROUP BY state"))

    def tool_names(self) -> dict[tuple[str, str], str]:
        rows = self.query("SELECT provider, workflow, name FROM tool_names")
        return {(provider, workflow): name for provider, workflow, name in rows}

    def freed_names(self, since: int) -> dict[str, tuple[str, str]]:
        rows = self.query("SELECT name, provider, workflow FROM freed_names WHERE freed >= ?", (since,))
        return {name: (provider, workflow) for name, provider, workflow in rows}

    def store_tool_names(
        self, added: Mapping[tuple[str, str], str], removed: Iterable[tuple[str, str]], at: int
    ) -> None:
        keys = list(removed)
        with self.writing() as transaction:
            transaction.executemany(_FORGET_FREED, keys)
            transaction.executemany(_FREE_NAME, [(at, *key) for key in keys])
            transaction.executemany("DELETE FROM tool_names WHERE provider = ? AND workflow = ?", keys)
            transaction.executemany(_ADD_NAME, [(*key, name) for key, name in added.items()])

    def provider_listings(self) -> dict[str, tuple[str, str]]:
        rows = self.query("SELECT provider, settings, body FROM remembered")
        return {provider: (settings, body) for provider, settings, body in rows}

    def store_provider_listing(self, provider: str, settings: str, body: str) -> None:
        self.write(
            ("DELETE FROM remembered WHERE provider = ?", (provider,)),
            ("INSERT INTO remembered (provider, settings, body) VALUES (?, ?, ?)", (provider, settings, body)),
        )

    def heads(self, since: int) -> dict[str, int]:
        return dict(self.query("SELECT id, sequence FROM runs WHERE updated >= ?", (since,)))

    def delete(self, run_id: str) -> bool:
        with self.writing() as transaction:
            transaction.execute("DELETE FROM events WHERE run = ?", (run_id,))
            return transaction.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount == 1

    def purge(self, before: int) -> int:
        with self.writing() as transaction:
            transaction.execute(f"DELETE FROM events WHERE run IN ({OLD})", (before,))  # noqa: S608 - as above
            return transaction.execute(f"DELETE FROM runs WHERE id IN ({OLD})", (before,)).rowcount  # noqa: S608

    # ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add_token(self, token: Token, digest: str, before: Callable[[], None]) -> bool:
        row = [" ".join(value) if isinstance(value, tuple) else value for value in msgspec.structs.astuple(token)]
        with self.writing() as transaction:
            before()
            return transaction.execute(_ADD_TOKEN, (*row, digest)).rowcount == 1

    def tokens(self) -> list[Token]:
        rows = self.query(f"SELECT {_TOKEN_COLUMNS} FROM tokens ORDER BY created DESC, id")  # noqa: S608 - as above
        return [_token(row) for row in rows]

    def tokens_by_id(self, token_id: str) -> list[tuple[Token, str]]:
        rows = self.query(f"SELECT {_TOKEN_COLUMNS}, hash FROM tokens WHERE id = ?", (token_id,))  # noqa: S608
        return [(_token(row), digest) for *row, digest in rows]

    def revoke_token(self, name: str, at: int) -> bool:
        with self.writing() as transaction:
            statement = "UPDATE tokens SET revoked = ? WHERE name = ? AND revoked IS NULL"
            return transaction.execute(statement, (at, name)).rowcount == 1

    def count_tokens(self) -> tuple[int, int]:
        ((made, revoked),) = self.query("SELECT COUNT(*), COUNT(revoked) FROM tokens")
        return int(made), int(revoked)

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────

    def add_session(self, key: str, owner: str, opening: str, at: int) -> None:
        self.write((_ADD_SESSION, (key, owner, opening, at)))

    def session_opening(self, key: str, owner: str, since: int) -> str | None:
        found = self.query("SELECT opening FROM sessions WHERE id = ? AND owner = ? AND used >= ?", (key, owner, since))
        return found[0][0] if found else None

    def touch_sessions(self, keys: Iterable[str], at: int, oldest: int) -> None:
        self.write(
            *[("UPDATE sessions SET used = ? WHERE id = ?", (at, key)) for key in sorted(keys)],
            ("DELETE FROM session_addresses WHERE session IN (SELECT id FROM sessions WHERE used < ?)", (oldest,)),
            ("DELETE FROM sessions WHERE used < ?", (oldest,)),
        )

    def end_session(self, key: str) -> None:
        self.write(
            ("DELETE FROM session_addresses WHERE session = ?", (key,)), ("DELETE FROM sessions WHERE id = ?", (key,))
        )

    def subscribe(self, key: str, address: str) -> None:
        self.write((_SUBSCRIBE, (address, key)))

    def unsubscribe(self, key: str, address: str) -> None:
        self.write(("DELETE FROM session_addresses WHERE session = ? AND address = ?", (key, address)))

    def subscriptions(self, key: str) -> frozenset[str]:
        rows = self.query("SELECT address FROM session_addresses WHERE session = ?", (key,))
        return frozenset(address for (address,) in rows)

    # ── the console, and secrets of the servers ─────────────────────────────────────────────────────────────────

    def add_console_session(self, key: str, body: str, expires: int, at: int) -> None:
        self.write(
            ("DELETE FROM console_sessions WHERE expires <= ?", (at,)),
            ("INSERT INTO console_sessions (id, body, expires) VALUES (?, ?, ?)", (key, body, expires)),
        )

    def console_session(self, key: str, at: int) -> str | None:
        found = self.query("SELECT body FROM console_sessions WHERE id = ? AND expires > ?", (key, at))
        return found[0][0] if found else None

    def end_console_session(self, key: str) -> None:
        self.write(("DELETE FROM console_sessions WHERE id = ?", (key,)))

    def shared_secret(self, name: str, proposed: str) -> str:
        found = self.query("SELECT secret FROM secrets WHERE name = ?", (name,))
        if not found:
            self.write(("INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, proposed)))
            found = self.query("SELECT secret FROM secrets WHERE name = ?", (name,))
        return str(found[0][0])

    # ── announcements ───────────────────────────────────────────────────────────────────────────────────────────

    def announce(self, announcement: Announcement, oldest: int) -> None:
        self.write(*announcing(announcement, oldest))

    def announcements(self, after: int) -> list[Announcement]:
        rows = self.query(
            "SELECT number, time, origin, topic, body FROM news WHERE number > ? ORDER BY number", (after,)
        )
        return [Announcement(number=n, time=t, origin=o, topic=topic, body=body) for n, t, o, topic, body in rows]

    def last_announcement(self) -> int:
        return int(self.query("SELECT COALESCE(MAX(number), 0) FROM news")[0][0])

    def await_announcement(self, seconds: float) -> bool:
        """Polls; a database that can notify does better."""
        last, end = self._last_awaited, time.monotonic() + seconds
        while (newest := self.last_announcement()) == last and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        self._last_awaited = newest
        return newest != last


def announcing(announcement: Announcement, oldest: int) -> tuple[Statement, ...]:
    """The statements that store an announcement and forget old ones; to be carried out one transaction at a time."""
    return (
        (_ANNOUNCE, (announcement.time, announcement.origin, announcement.topic, announcement.body)),
        ("DELETE FROM news WHERE time < ? AND number < (SELECT MAX(number) FROM news)", (oldest,)),
    )


def _token(row: Sequence[Any]) -> Token:
    fields = dict(zip(Token.__struct_fields__, row, strict=True))
    lists = {name: tuple(fields[name].split()) for name in ("scopes", "workflows")}
    return Token(**{**fields, **lists})


def _as_like(pattern: str) -> str:
    """A pattern of ids in the words of `LIKE`."""
    plain = pattern.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return plain.replace("*", "%").replace("?", "_")


def _summary(row: Sequence[Any]) -> RunSummary:
    """A run in a list. It is listed also when its times are damaged: SQLite stores any value in any column."""
    summary = RunSummary(*row)
    if isinstance(summary.started, int) and isinstance(summary.updated, int):
        return summary
    return msgspec.structs.replace(summary, started=0, updated=0)


def _source_of(body: str) -> str:
    """Where the run was imported from, by its first event; nothing for one that cannot be read."""
    try:
        event = _decode(body)
    except (msgspec.MsgspecError, TypeError):
        return ""
    return event.imported_from if isinstance(event, Started) else ""


def _body(event: Event) -> str:
    """The event as it is stored: a document is stored apart, once."""
    if isinstance(event, Started):
        event = msgspec.structs.replace(event, document=NO_DOCUMENT)
    return _encode(event).decode()
