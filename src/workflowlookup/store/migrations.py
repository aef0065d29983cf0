"""The tables of a journal: their migrations, their schema version, and whether this program can use them."""

import re
from typing import Final

import msgspec

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE documents (hash TEXT PRIMARY KEY, document TEXT NOT NULL);
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, workflow_id TEXT NOT NULL, version TEXT NOT NULL, hash TEXT NOT NULL,
        started BIGINT NOT NULL, updated BIGINT NOT NULL, state TEXT NOT NULL, waiting_for TEXT, step TEXT NOT NULL,
        done BIGINT NOT NULL, total BIGINT, deadline BIGINT, sequence BIGINT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX runs_by_start ON runs (started, id);
    CREATE INDEX runs_by_workflow ON runs (workflow_id, started, id);
    CREATE INDEX runs_by_deadline ON runs (deadline) WHERE deadline IS NOT NULL;
    CREATE TABLE events (
        run TEXT NOT NULL, sequence BIGINT NOT NULL, time BIGINT NOT NULL, who TEXT NOT NULL, kind TEXT NOT NULL,
        body TEXT NOT NULL, PRIMARY KEY (run, sequence)
    ) WITHOUT ROWID;
    """,
    """
    CREATE INDEX runs_at_work ON runs (state, updated) WHERE state IN ('queued', 'running');
    CREATE INDEX runs_to_stop ON runs (id) WHERE waiting_for = 'stop';
    CREATE TABLE tool_names (
        provider TEXT NOT NULL, workflow TEXT NOT NULL, name TEXT NOT NULL UNIQUE, PRIMARY KEY (provider, workflow)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, kind TEXT NOT NULL, scopes TEXT NOT NULL,
        workflows TEXT NOT NULL, created BIGINT NOT NULL, expires BIGINT, revoked BIGINT, maker TEXT NOT NULL
    );
    CREATE UNIQUE INDEX tokens_by_name ON tokens (name) WHERE revoked IS NULL;
    """,
    """
    CREATE TABLE levels (least BIGINT NOT NULL);
    INSERT INTO levels VALUES (4);
    CREATE TABLE news (
        number BIGINT PRIMARY KEY, time BIGINT NOT NULL, origin TEXT NOT NULL, topic TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, opening TEXT NOT NULL, used BIGINT NOT NULL
    );
    CREATE TABLE session_addresses (
        session TEXT NOT NULL, address TEXT NOT NULL, PRIMARY KEY (session, address)
    ) WITHOUT ROWID;
    """,
    """
    CREATE INDEX runs_by_state ON runs (state, started, id);
    CREATE TABLE document_copies (hash TEXT PRIMARY KEY, document TEXT NOT NULL);
    INSERT INTO document_copies SELECT hash, document FROM documents;
    """,
    """
    CREATE TABLE freed_names (
        name TEXT PRIMARY KEY, provider TEXT NOT NULL, workflow TEXT NOT NULL, freed BIGINT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE remembered (provider TEXT PRIMARY KEY, settings TEXT NOT NULL, body TEXT NOT NULL);
    """,
    """
    CREATE TABLE console_sessions (id TEXT PRIMARY KEY, body TEXT NOT NULL, expires BIGINT NOT NULL);
    CREATE TABLE secrets (name TEXT PRIMARY KEY, secret TEXT NOT NULL);
    """,
    """
    ALTER TABLE events ADD COLUMN hash TEXT;
    ALTER TABLE runs ADD COLUMN hashed BIGINT;
    ALTER TABLE runs ADD COLUMN head TEXT;
    ALTER TABLE runs ADD COLUMN proved BIGINT;
    ALTER TABLE runs ADD COLUMN proofs BIGINT;
    """,
    """
    ALTER TABLE runs ADD COLUMN root TEXT;
    ALTER TABLE runs ADD COLUMN session TEXT;
    """,
    """
    ALTER TABLE runs ADD COLUMN name TEXT;
    ALTER TABLE runs ADD COLUMN subject TEXT;
    ALTER TABLE runs ADD COLUMN title TEXT;
    ALTER TABLE runs ADD COLUMN who TEXT;
    ALTER TABLE runs ADD COLUMN since BIGINT;
    ALTER TABLE runs ADD COLUMN attempts BIGINT;
    ALTER TABLE runs ADD COLUMN paused BIGINT;
    """,
    """
    CREATE TABLE notices (
        id TEXT PRIMARY KEY, run TEXT NOT NULL, kind TEXT NOT NULL, recipient TEXT NOT NULL, due BIGINT NOT NULL,
        attempts BIGINT NOT NULL, ended BIGINT, failure TEXT
    );
    CREATE INDEX notices_by_due ON notices (due) WHERE ended IS NULL;
    """,
)
"""Each migration leads from one schema version to the next. Migrations are added, never changed.

Servers of two versions may use the tables at the same time, so a migration only adds: tables, indexes, columns that may
be null or have a default. One that removes something also raises `levels.least`, the oldest version whose programs can
still use the tables (docs/operations.md has the rules).

Events that an older version writes have no `hash`; `head` is the hash of event number `hashed` of a run, so it is that
of the last event unless an older version wrote that one.

`root` and `session` are those of the first event, so that a hook finds the runs of a project without reading events.
The columns from `name` on are for searches and lists. They are null in runs that only an older version wrote, and may
be outdated in a run that an older version wrote last.

A document is stored twice, because all runs of a workflow depend on it: if one copy is on a damaged page, the other is
read.

No index covers a column that most appends change, because each index that an append touches is one more page to sync.
The state of a run has an index, and is written only when it changes (`_CHANGE_STATE`). For the same reason tables are
`WITHOUT ROWID`, where a database supports that.
"""

TABLES: Final = tuple(re.findall(r"CREATE TABLE (\w+)", " ".join(MIGRATIONS)))


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version of the tables of a journal, compared with the version that this program supports."""

    version: int
    """0: there are no tables yet."""
    supported: int
    """The version to which this program migrates."""
    required: int | None = None
    """The oldest version whose programs can use the tables; None in tables that do not record it."""
    is_foreign: bool = False
    """Whether the database belongs to another program."""

    @property
    def is_up_to_date(self) -> bool:
        """Whether there is nothing to migrate."""
        return self.version >= self.supported and not self.is_foreign

    @property
    def problem(self) -> str:
        """Why this program cannot use the tables; empty when it can."""
        if self.is_foreign:
            return "it is a SQLite file of another program, and was not touched. Give the journal another path"
        if self.version <= self.supported or (self.required is not None and self.required <= self.supported):
            return ""
        return "it was written by a newer version of workflowlookup. Update this one"
