"""The tables of a journal: the migrations that make them, which version they are at, and whether this program can use
them.
"""

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
)
"""How the tables came to be: each entry leads from one version to the next. Entries are added, never changed.

Servers of two versions may work side by side, so an entry only adds: tables, indexes, columns that may be null or have
a default. One that takes something away also raises `levels.least`, the oldest version whose programs can still work
with the tables (docs/operations.md has the rules).

A document is kept twice, because all runs of a workflow depend on it: where one copy is on a damaged page, the
other is read, and `salvage` finds it.

There is no index over what most appends change: each index that an append touches is one more page to be synced. The
state of a run has one, and is written only when it is another (`_CHANGE_STATE`). For the same reason rows lie in their
primary key, `WITHOUT ROWID`, where a database has that.
"""

TABLES: Final = tuple(re.findall(r"CREATE TABLE (\w+)", " ".join(MIGRATIONS)))


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tables of a database are, as one program sees it."""

    version: int
    """0: there are none yet."""
    supported: int
    """The version that this program makes."""
    required: int | None = None
    """The oldest version whose programs can work with the tables; None where nobody wrote that down yet."""
    is_foreign: bool = False
    """The database is that of another program."""

    @property
    def is_up_to_date(self) -> bool:
        """Whether there is nothing to be done."""
        return self.version >= self.supported and not self.is_foreign

    @property
    def problem(self) -> str:
        """Why this program cannot work with the tables; nothing when it can."""
        if self.is_foreign:
            return "it is a SQLite file of another program, and was not touched. Give the journal another path"
        if self.version <= self.supported or (self.required is not None and self.required <= self.supported):
            return ""
        return "it was written by a newer version of workflowlookup. Update this one"
