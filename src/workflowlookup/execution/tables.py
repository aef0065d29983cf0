"""Which version the engine's own tables are at; DBOS makes and changes them, when a server first has calls to make."""

import contextlib
import os
from typing import TYPE_CHECKING, Final, LiteralString

from workflowlookup.execution.engine import beside
from workflowlookup.journals import JournalUrl

if TYPE_CHECKING:
    import psycopg

SECONDS_TO_CONNECT: Final = 10
_VERSION: Final[LiteralString] = "SELECT MAX(version) FROM dbos.dbos_migrations"


def engine_version(place: str) -> int | None:
    """The version of the engine's tables at a journal's place; None where there are none, or they cannot be read."""
    return _in_file(beside(place)) if JournalUrl(place).kind.is_file else _in_postgres(place)


def _in_postgres(url: str) -> int | None:
    import psycopg  # noqa: PLC0415 - only where there is such a database

    with contextlib.suppress(psycopg.Error), psycopg.connect(url, connect_timeout=SECONDS_TO_CONNECT) as connection:
        return _number(connection)
    return None


def _number(connection: "psycopg.Connection[tuple[object, ...]]") -> int | None:
    if connection.execute("SELECT to_regclass('dbos.dbos_migrations')").fetchone() == (None,):
        return None
    found = connection.execute(_VERSION).fetchone()
    return int(str(found[0])) if found is not None and found[0] is not None else None


def _in_file(path: str) -> int | None:
    import sqlite3  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415

    if not os.path.exists(path):
        return None
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as connection,
    ):
        (number,) = connection.execute("SELECT MAX(version) FROM dbos_migrations").fetchone()
        return int(number) if number is not None else None
    return None
