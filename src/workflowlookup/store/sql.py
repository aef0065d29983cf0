"""The part of a journal that is the same for all SQL databases: statements, and the conversion of rows.

The SQL here is understood by both SQLite and PostgreSQL. ConnectionTable, transactions and errors are theirs.
"""

import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, Protocol

import msgspec

from workflowlookup.errors import RunDamaged
from workflowlookup.runs.chain import body_of, event_hash
from workflowlookup.runs.events import Event, Record, Started, kind_of
from workflowlookup.runs.run import OVER
from workflowlookup.runs.run_document import hash_of
from workflowlookup.runs.triage import STUCK_MILLISECONDS, STUCK_REFUSALS, Triage
from workflowlookup.store.journal import (
    STOP,
    Announcement,
    Conflict,
    DamagedJournal,
    Journal,
    PendingNotice,
    Revision,
    RunOrder,
    RunQuery,
    RunSummary,
    Token,
    run_damaged,
)
from workflowlookup.store.migrations import TABLES

_COLUMNS: Final = ", ".join(RunSummary.__struct_fields__)
_VALUES: Final = ", ".join("?" for _ in RunSummary.__struct_fields__)
CHANGING_COLUMNS: Final = (
    "updated",
    "waiting_for",
    "step",
    "done",
    "total",
    "deadline",
    "sequence",
    "proved",
    "proofs",
    *("name", "subject", "title", "who", "since", "attempts", "paused"),
)

THIS_RUN: Final = "sequence = ? AND started = ? AND hash = ? AND (COALESCE(hashed, 0) <> sequence OR head = ?)"
"""Another run with the same id, such as one that was deleted and imported again, may differ only in its head."""

_BEGIN_RUN: Final = (
    f"INSERT INTO runs ({_COLUMNS}, hashed, head, root, session) "  # noqa: S608 - our own names
    f"VALUES ({_VALUES}, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_OPEN_RUNS: Final = (
    "SELECT id FROM runs WHERE state IN ('queued', 'running', 'waiting') AND root = ? ORDER BY started DESC, id"
)
_SET_COLUMNS: Final = ", ".join(f"{name} = ?" for name in CHANGING_COLUMNS)
_MOVE_RUN: Final = f"UPDATE runs SET {_SET_COLUMNS}, hashed = ?, head = ? WHERE id = ? AND {THIS_RUN}"  # noqa: S608 - as above
_CHANGE_STATE: Final = "UPDATE runs SET state = ? WHERE id = ? AND state <> ?"
_ADD_DOCUMENT: Final = "INSERT INTO documents (hash, document) VALUES (?, ?) ON CONFLICT DO NOTHING"
_COPY_DOCUMENT: Final = "INSERT INTO document_copies (hash, document) VALUES (?, ?) ON CONFLICT DO NOTHING"
_ADD_EVENT: Final = "INSERT INTO events (run, sequence, time, who, kind, body, hash) VALUES (?, ?, ?, ?, ?, ?, ?)"
READ_EVENTS: Final = (
    "SELECT sequence, time, who, hash, body FROM events WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
_ADD_NAME: Final = "INSERT INTO tool_names (provider, workflow, name) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_IS_NAME: Final = "SELECT name FROM tool_names WHERE provider = ? AND workflow = ?"
_FORGET_FREED: Final = f"DELETE FROM freed_names WHERE name IN ({_IS_NAME})"  # noqa: S608 - as above
_FREE_NAME: Final = """
    INSERT INTO freed_names (name, provider, workflow, freed)
    SELECT name, provider, workflow, ? FROM tool_names WHERE provider = ? AND workflow = ?
"""
OLD_RUNS: Final = "SELECT id FROM runs WHERE state IN ({}) AND updated < ?".format(  # noqa: S608 - as above
    ", ".join(f"'{state}'" for state in sorted(OVER))
)
"""The runs that are over and were last updated before a time."""

_AT_WORK: Final = "state IN ('queued', 'running')"
_WAITING_FOR_PROOF: Final = f"""
    SELECT id FROM runs
    WHERE {_AT_WORK} AND waiting_for = 'proof' AND EXISTS (
        SELECT 1 FROM events WHERE run = runs.id AND events.sequence = 1 AND substr(who, 1, ?) = ?
    )
    ORDER BY updated, id LIMIT ?
"""  # noqa: S608 - as above
_WAITING_SINCE: Final = "COALESCE(runs.since, runs.updated)"
"""`RunSummary.waiting_since`. `updated` may be later: a person may have paused the run meanwhile."""
_AT_WORK_IN_ORDER: Final = f"""
    SELECT {_COLUMNS} FROM runs WHERE {_AT_WORK}
    ORDER BY CASE state WHEN 'queued' THEN {_WAITING_SINCE} ELSE updated END, id LIMIT ?
"""  # noqa: S608 - as above
_POSITION: Final = f"""
    WITH one AS (SELECT id, {_WAITING_SINCE} AS due FROM runs WHERE id = ? AND state = 'queued')
    SELECT (SELECT COUNT(*) FROM runs, one WHERE state = 'queued' AND ({_WAITING_SINCE}, runs.id) <= (one.due, one.id)),
        (SELECT COUNT(*) FROM runs WHERE state = 'queued')
"""  # noqa: S608 - as above

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
_ADD_NOTICE: Final = (
    "INSERT INTO notices (id, run, kind, recipient, due, attempts) VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING"
)
_DUE_NOTICES: Final = (
    "SELECT id, run, kind, recipient, due, attempts FROM notices WHERE ended IS NULL AND due <= ? ORDER BY due LIMIT ?"
)
_CLAIM_NOTICE: Final = "UPDATE notices SET due = ?, attempts = attempts + 1 WHERE id = ? AND due = ? AND ended IS NULL"
NOTICE_MILLISECONDS: Final = 90 * 86_400_000
"""How long a notice that ended is stored, so that it is not sent again."""

_decode: Final = msgspec.json.Decoder(Event).decode


Statement = tuple[str, Sequence[Any]]
"""A statement and its values."""


class Cursor(Protocol):
    """The part of a DB-API cursor that is used here."""

    @property
    def rowcount(self) -> int: ...
    def fetchall(self) -> list[Any]: ...
    def fetchone(self) -> Any: ...


class Transaction(Protocol):
    """Executes statements between a begin and a commit."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Cursor: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object: ...


class SqlJournal(Journal):
    """A journal over a connection, which subclasses manage."""

    _last_awaited = -1

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction: committed durably at the end, rolled back by an exception."""

    @abstractmethod
    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement returns."""

    def upgrade(self) -> None:
        self.query("SELECT least FROM levels")

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        return ()  # a database server manages its own files

    def read_tables(self) -> None:
        """Read a row of every table, to check that all exist. Raises `StorageError`."""
        for table in TABLES:
            self.query(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - our own names

    def write(self, *statements: Statement) -> None:
        """Execute statements in one transaction. It must be safe to execute them twice."""
        with self.writing() as transaction:
            for statement, values in statements:
                transaction.execute(statement, values)

    def group(self) -> AbstractContextManager[None] | None:
        return None  # a database server groups the commits of its connections by itself

    def append(self, run_id: str, expected: int, records: Sequence[Record], summary: RunSummary, head: str = "") -> str:
        rows = _event_rows(run_id, records, head)
        last = str(rows[-1][-1])
        if expected:
            self._append_to_run(expected, rows, summary, head)
            return last
        started: Started = records[0].event  # type: ignore[assignment]
        document = (started.hash, bytes(started.document).decode())
        with self.writing() as transaction:
            row = (*msgspec.structs.astuple(summary), len(rows), last, started.root, started.client_session)
            if transaction.execute(_BEGIN_RUN, row).rowcount != 1:
                raise Conflict(run_id)
            if transaction.execute(_ADD_DOCUMENT, document).rowcount:
                transaction.execute(_COPY_DOCUMENT, document)
            transaction.executemany(_ADD_EVENT, rows)
        return last

    def _append_to_run(self, expected: int, rows: Sequence[Sequence[Any]], summary: RunSummary, head: str) -> None:
        """Append events to a run that exists."""
        values = [getattr(summary, name) for name in CHANGING_COLUMNS]
        revision = (expected, summary.started, summary.hash, head)
        with self.writing() as transaction:
            row = (*values, summary.sequence, rows[-1][-1], summary.id, *revision)
            if transaction.execute(_MOVE_RUN, row).rowcount != 1:
                raise Conflict(summary.id)
            transaction.execute(_CHANGE_STATE, (summary.state, summary.id, summary.state))
            transaction.executemany(_ADD_EVENT, rows)

    def open_runs(self, root: str) -> list[str]:
        return [run_id for (run_id,) in self.query(_OPEN_RUNS, (root,))]

    def head(self, run_id: str) -> int | None:
        rows = self.query("SELECT sequence FROM runs WHERE id = ?", (run_id,))
        return rows[0][0] if rows else None

    def revision(self, run_id: str) -> Revision | None:
        rows = self.query("SELECT sequence, started, hash, hashed, head FROM runs WHERE id = ?", (run_id,))
        if not rows:
            return None
        sequence, started, digest, hashed, head = rows[0]
        numbers, texts = (sequence, started, hashed or 0), (digest, head or "")
        if not all(isinstance(number, int) for number in numbers) or not all(isinstance(text, str) for text in texts):
            raise self._damaged(run_id, f"The summary of run '{run_id}' in the journal is damaged.")
        return Revision(sequence, started, digest, hashed or 0, head or "")

    def ping(self) -> None:
        self.workflow_of("")  # no run has this id

    def workflow_of(self, run_id: str) -> str | None:
        rows = self.query("SELECT workflow_id FROM runs WHERE id = ?", (run_id,))
        return rows[0][0] if rows else None

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        if not run_ids:
            return {}
        placeholders = ", ".join("?" for _ in run_ids)
        statement = f"SELECT run, body FROM events WHERE sequence = 1 AND run IN ({placeholders})"  # noqa: S608
        sources = {run_id: _source_of(body) for run_id, body in self.query(statement, tuple(run_ids))}
        return {run_id: source for run_id, source in sources.items() if source}

    def read(self, run_id: str, after: int = 0, limit: int | None = None, head: str = "") -> list[Record]:
        rows = (
            self.query(READ_EVENTS, (run_id, after, sys.maxsize)) if limit is None else self.rows(run_id, after, limit)
        )
        records = []
        is_chained = bool(head) or not after
        for sequence, at, by, stored, body in rows:
            after += 1
            is_chained = is_chained and sequence == after
            head = event_hash(head, run_id, sequence, at, by, body) if is_chained else stored or ""
            records.append(self._record(run_id, sequence, at, by, body, head))
            if stored is not None and stored != head:
                raise self._damaged(run_id, self._changed_event(run_id, sequence))
        return records

    def _changed_event(self, run_id: str, sequence: int) -> str:
        """The sentence for an event whose hash is not what it was. Events without a hash before it may be the cause."""
        statement = "SELECT COALESCE(MAX(sequence), 0) FROM events WHERE run = ? AND sequence < ? AND hash IS NOT NULL"
        ((last,),) = self.query(statement, (run_id, sequence))
        which = f"Event {sequence}" if last == sequence - 1 else f"One of the events {last + 1} to {sequence}"
        return f"{which} of run '{run_id}' was changed after it was written."

    @abstractmethod
    def rows(self, run_id: str, after: int, limit: int) -> list[Any]:
        """The rows of `READ_EVENTS`, up to about `READ_BYTES`."""

    def _record(self, run_id: str, sequence: int, time: int, by: str, body: str, digest: str) -> Record:  # noqa: PLR0913, PLR0917 - a row
        try:
            event = _decode(body)
        except (msgspec.MsgspecError, TypeError) as problem:  # `TypeError` when it is not text
            raise self._damaged(run_id, f"Event {sequence} of run '{run_id}' cannot be read: {problem}.") from problem
        if not isinstance(time, int):
            raise self._damaged(run_id, f"The time of event {sequence} of run '{run_id}' is damaged.")
        if isinstance(event, Started):
            document = self._document(event.hash, "documents") or self._document(event.hash, "document_copies")
            if document is None:
                message = f"The document of run '{run_id}' is not what it was when the run was started."
                raise self._damaged(run_id, message)
            event = msgspec.structs.replace(event, document=msgspec.Raw(document.encode()))
        return Record(sequence=sequence, time=time, by=by, event=event, hash=digest)

    def _damaged(self, run_id: str, problem: str) -> RunDamaged:
        return run_damaged(run_id, problem, self.damaged_journals())

    def _document(self, digest: str, table: str) -> str | None:
        """The document with this hash; None when it is missing or damaged."""
        rows = self.query(f"SELECT document FROM {table} WHERE hash = ?", (digest,))  # noqa: S608 - our own names
        return next((text for (text,) in rows if hash_of(str(text).encode()) == digest), None)

    def summaries(self, query: RunQuery) -> list[RunSummary]:
        clauses, values = self._matching(query)
        if query.triage is not None:
            clauses += [_STATES_OF[query.triage], f"{_triage(query.now)} = ?"]
            values.append(query.triage)
        place = "started" if query.order is RunOrder.LAST_STARTED else _WAITING_SINCE
        order, sign = ("ASC", ">") if query.order is RunOrder.LONGEST_WAITING else ("DESC", "<")
        if query.after is not None:
            clauses.append(f"({place}, id) {sign} (?, ?)")
            values += query.after
        statement = (
            f"SELECT {_COLUMNS} FROM runs {_where(clauses)}"  # noqa: S608 - as above
            f"ORDER BY {place} {order}, id {order} LIMIT ?"
        )
        return [_summary(row) for row in self.query(statement, (*values, query.limit))]

    def triage_counts(self, query: RunQuery) -> dict[tuple[str, Triage], int]:
        clauses, values = self._matching(query)
        columns = f"workflow_id, {_triage(query.now)}, COUNT(*)"
        rows = self.query(f"SELECT {columns} FROM runs {_where(clauses)}GROUP BY 1, 2", values)  # noqa: S608 - as above
        return {(workflow_id, Triage(group)): count for workflow_id, group, count in rows}

    def _matching(self, query: RunQuery) -> tuple[list[str], list[Any]]:
        """The clauses for the runs that match, except by their group and page, and their values."""
        filters = {
            "state = ?": query.state,
            "workflow_id = ?": query.workflow_id,
            "started >= ?": query.since,
            "started < ?": query.until,
            "updated >= ?": query.updated_since,
        }
        clauses = [clause for clause, value in filters.items() if value is not None]
        values: list[Any] = [value for value in filters.values() if value is not None]
        if query.workflows is not None:
            matches = " OR ".join("workflow_id LIKE ? ESCAPE '!'" for _ in query.workflows)
            clauses.append(f"({matches or '1 = 0'})")
            values += [_as_like(pattern) for pattern in query.workflows]
        for term in query.terms:
            patterns = [f"%{_escaped(text)}%" for text in self.spellings(term.text)]
            match = " OR ".join(
                f"COALESCE({column}, '') {self.LIKE} ? ESCAPE '!'" for column in term.columns for _ in patterns
            )
            clauses.append(f"{'NOT ' if term.is_excluded else ''}({match})")
            values += patterns * len(term.columns)
        return clauses, values

    LIKE: ClassVar[str] = "LIKE"
    """The operator that compares without case; in SQLite only ASCII letters, so `spellings` has the others."""

    def spellings(self, text: str) -> Sequence[str]:
        """The spellings of a text that `LIKE` does not take as equal."""
        return (text,) if text.isascii() else tuple(dict.fromkeys((text, text.lower(), text.upper(), text.title())))

    def overdue(self, now: int) -> list[str]:
        return [row[0] for row in self.query("SELECT id FROM runs WHERE deadline < ? ORDER BY deadline", (now,))]

    def at_work(self, limit: int) -> list[RunSummary]:
        return [_summary(row) for row in self.query(_AT_WORK_IN_ORDER, (limit,))]

    def waiting_for_proof(self, starter: str, limit: int) -> list[str]:
        return [row[0] for row in self.query(_WAITING_FOR_PROOF, (len(starter), starter, limit))]

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
            transaction.execute(f"DELETE FROM events WHERE run IN ({OLD_RUNS})", (before,))  # noqa: S608 - as above
            return transaction.execute(f"DELETE FROM runs WHERE id IN ({OLD_RUNS})", (before,)).rowcount  # noqa: S608

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
        ((created, revoked),) = self.query("SELECT COUNT(*), COUNT(revoked) FROM tokens")
        return int(created), int(revoked)

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────

    def add_session(self, key: str, owner: str, opening: str, at: int) -> None:
        self.write((_ADD_SESSION, (key, owner, opening, at)))

    def session_opening(self, key: str, owner: str, since: int) -> str | None:
        rows = self.query("SELECT opening FROM sessions WHERE id = ? AND owner = ? AND used >= ?", (key, owner, since))
        return rows[0][0] if rows else None

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

    # ── console sessions and shared secrets ─────────────────────────────────────────────────────────────────────

    def add_console_session(self, key: str, body: str, expires: int, at: int) -> None:
        self.write(
            ("DELETE FROM console_sessions WHERE expires <= ?", (at,)),
            ("INSERT INTO console_sessions (id, body, expires) VALUES (?, ?, ?)", (key, body, expires)),
        )

    def console_session(self, key: str, at: int) -> str | None:
        rows = self.query("SELECT body FROM console_sessions WHERE id = ? AND expires > ?", (key, at))
        return rows[0][0] if rows else None

    def end_console_session(self, key: str) -> None:
        self.write(("DELETE FROM console_sessions WHERE id = ?", (key,)))

    def shared_secret(self, name: str, proposed: str) -> str:
        rows = self.query("SELECT secret FROM secrets WHERE name = ?", (name,))
        if not rows:
            self.write(("INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, proposed)))
            rows = self.query("SELECT secret FROM secrets WHERE name = ?", (name,))
        return str(rows[0][0])

    # ── announcements ───────────────────────────────────────────────────────────────────────────────────────────

    def announce(self, announcement: Announcement, oldest: int) -> None:
        self.write(*announce_statements(announcement, oldest))

    def announcements(self, after: int) -> list[Announcement]:
        rows = self.query(
            "SELECT number, time, origin, topic, body FROM news WHERE number > ? ORDER BY number", (after,)
        )
        return [Announcement(number=n, time=t, origin=o, topic=topic, body=body) for n, t, o, topic, body in rows]

    def last_announcement(self) -> int:
        return int(self.query("SELECT COALESCE(MAX(number), 0) FROM news")[0][0])

    def await_announcement(self, seconds: float) -> bool:
        """Polls; a subclass whose database can notify overrides it."""
        last, end = self._last_awaited, time.monotonic() + seconds
        while (newest := self.last_announcement()) == last and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        self._last_awaited = newest
        return newest != last

    # ── notices ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add_notices(self, notices: Iterable[PendingNotice]) -> None:
        rows = [(one.id, one.run, one.kind, one.recipient, one.due) for one in notices]
        with self.writing() as transaction:
            transaction.executemany(_ADD_NOTICE, rows)

    def due_notices(self, at: int, limit: int) -> list[PendingNotice]:
        rows = self.query(_DUE_NOTICES, (at, limit))
        return [PendingNotice(**dict(zip(PendingNotice.__struct_fields__, row, strict=True))) for row in rows]

    def claim_notice(self, notice: PendingNotice, until: int) -> bool:
        with self.writing() as transaction:
            return transaction.execute(_CLAIM_NOTICE, (until, notice.id, notice.due)).rowcount == 1

    def postpone_notice(self, notice_id: str, due: int) -> None:
        self.write(("UPDATE notices SET due = ? WHERE id = ?", (due, notice_id)))

    def end_notice(self, notice_id: str, at: int, failure: str = "") -> None:
        self.write(
            ("UPDATE notices SET ended = ?, failure = ? WHERE id = ?", (at, failure, notice_id)),
            ("DELETE FROM notices WHERE ended < ?", (at - NOTICE_MILLISECONDS,)),
        )


def announce_statements(announcement: Announcement, oldest: int) -> tuple[Statement, ...]:
    """The statements that store an announcement and delete old ones. No two such transactions may overlap."""
    return (
        (_ANNOUNCE, (announcement.time, announcement.origin, announcement.topic, announcement.body)),
        ("DELETE FROM news WHERE time < ? AND number < (SELECT MAX(number) FROM news)", (oldest,)),
    )


def _token(row: Sequence[Any]) -> Token:
    fields = dict(zip(Token.__struct_fields__, row, strict=True))
    lists = {name: tuple(fields[name].split()) for name in ("scopes", "workflows")}
    return Token(**{**fields, **lists})


def _as_like(pattern: str) -> str:
    """A pattern of ids in the syntax of `LIKE`."""
    return _escaped(pattern).replace("*", "%").replace("?", "_")


def _escaped(text: str) -> str:
    """Text in the syntax of `LIKE`, with `!` before the characters that mean something there."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _where(clauses: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(clauses)} " if clauses else ""


_WAITING: Final = "state = 'waiting'"
_STATES_OF: Final = {
    Triage.PERSON: _WAITING,
    Triage.STUCK: _WAITING,
    Triage.AGENT: _WAITING,
    Triage.SERVER: _AT_WORK,
    Triage.DONE: "state = 'completed'",
    Triage.FAILED: "state IN ('failed', 'unknown')",
    Triage.CANCELLED: "state = 'cancelled'",
}
"""By group: what the index of states can find."""


def _triage(now: int) -> str:
    """`runs.triage.triage` as an SQL expression."""
    return f"""CASE
        WHEN state = 'completed' THEN '{Triage.DONE}'
        WHEN state IN ('failed', 'unknown') THEN '{Triage.FAILED}'
        WHEN state = 'cancelled' THEN '{Triage.CANCELLED}'
        WHEN state IN ('queued', 'running') THEN '{Triage.SERVER}'
        WHEN waiting_for = 'confirmation' THEN '{Triage.PERSON}'
        WHEN COALESCE(paused, 0) = 0
            AND (COALESCE(attempts, 0) >= {STUCK_REFUSALS}
                OR {_WAITING_SINCE} < {now - STUCK_MILLISECONDS}) THEN '{Triage.STUCK}'
        ELSE '{Triage.AGENT}' END"""


def _summary(row: Sequence[Any]) -> RunSummary:
    """A run in a list, also when its times are damaged: SQLite stores any value in any column."""
    summary = RunSummary(*row)
    if isinstance(summary.started, int) and isinstance(summary.updated, int):
        return summary
    return msgspec.structs.replace(summary, started=0, updated=0)


def _source_of(body: str) -> str:
    """The import source in a run's first event; empty when there is none, or the event cannot be read."""
    try:
        event = _decode(body)
    except (msgspec.MsgspecError, TypeError):
        return ""
    return event.imported_from if isinstance(event, Started) else ""


def _event_rows(run_id: str, records: Sequence[Record], head: str) -> list[tuple[Any, ...]]:
    """The rows of `events` for records that follow the event with the hash `head`."""
    rows = []
    for record in records:
        body = body_of(record.event)
        head = event_hash(head, run_id, record.sequence, record.time, record.by, body)
        rows.append((run_id, record.sequence, record.time, record.by, kind_of(record.event), body, head))
    return rows
