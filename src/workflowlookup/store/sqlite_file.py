"""Inspects a SQLite file before it is used as a journal: whether it is ours, its schema version, errors."""

import errno
import os
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from workflowlookup.errors import JOURNAL_SECONDS
from workflowlookup.store.migrations import MIGRATIONS, SchemaVersion
from workflowlookup.store.salvage import SHAPES

APPLICATION_ID: Final = 0x776C6B75
"""Identifies our files in their header. Those of older versions have 0 there, as have most other files."""
BUSY_SHARE: Final = 0.8
"""The share of the time for a use that it may wait for other processes."""
_RESULT_CODES: Final = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EROFS: sqlite3.SQLITE_READONLY}
_OUR_TABLES: Final[Mapping[str, frozenset[str]]] = {
    table: frozenset(SHAPES[table].first_columns) for table in ("documents", "runs", "events")
}
"""Tables, with columns, that identify a file as ours when its application id is missing or wrong."""
_CREATED: Final = re.compile(r"CREATE TABLE (\w+)")
_ADDED: Final = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (\w+)")
_UNSUPPORTED: Final = "unsupported file format"
"""The message of SQLite for a header that no version of it writes; it has no result code."""


class Damage(sqlite3.DatabaseError):
    """Damage that SQLite itself does not detect."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def connect_to_read(path: str) -> sqlite3.Connection:
    """A connection that changes nothing and leaves no files behind.

    A file without a log is opened as immutable: otherwise SQLite creates files beside it, which stay when it is closed.
    """
    mode = "mode=ro" if file_size(f"{path}-wal") else "immutable=1"
    uri = f"{Path(path).as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, timeout=JOURNAL_SECONDS * BUSY_SHARE, isolation_level=None)


def schema_version_of(connection: sqlite3.Connection) -> SchemaVersion:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    is_ours = application == APPLICATION_ID or (application == 0 and not tables) or _has_our_tables(connection)
    if not is_ours:
        return SchemaVersion(version=0, supported=len(MIGRATIONS), is_foreign=True)
    if version < 0 or not tables.isdisjoint(_tables_after(version)) or _has_columns_after(connection, version):
        raise Damage(f"its version {version} is not that of its tables")
    least = connection.execute("SELECT MAX(least) FROM levels").fetchone()[0] if "levels" in tables else None
    return SchemaVersion(version=version, supported=len(MIGRATIONS), required=least)


def _tables_after(version: int) -> set[str]:
    """The tables that a journal with this version does not have yet."""
    return set(_CREATED.findall(" ".join(MIGRATIONS[version:])))


def _has_columns_after(connection: sqlite3.Connection, version: int) -> bool:
    """Whether a table has a column that a journal with this version does not have yet."""
    return any(
        column in _columns(connection, table) for table, column in _ADDED.findall(" ".join(MIGRATIONS[version:]))
    )


def _has_our_tables(connection: sqlite3.Connection) -> bool:
    return all(columns <= _columns(connection, table) for table, columns in _OUR_TABLES.items())


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def result_code(problem: Exception) -> int:
    """The SQLite result code of an exception, or the one that comes closest."""
    if isinstance(problem, OSError):
        return _RESULT_CODES.get(problem.errno or 0, sqlite3.SQLITE_CANTOPEN)
    # Python, not SQLite, detects text that is not UTF-8.
    if isinstance(problem, UnicodeDecodeError) or str(problem).startswith(("Could not decode to UTF-8", _UNSUPPORTED)):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(problem, "sqlite_errorcode", 0))


def reason_of(problem: Exception) -> str:
    return str(problem.strerror) if isinstance(problem, OSError) else str(problem).partition(" with text ")[0]


def file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def can_create_in(directory: str) -> bool:
    """Whether a file could be created in this directory, or in a missing directory that is created with it."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)


def identity_of(path: str) -> object:
    """Identifies a file, so that a replacement at the same path is noticed."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
