"""A database whose encoding is not UTF8 is refused at once, not with the first text that does not fit."""

import psycopg
import pytest

from support.postgres import Postgres
from workflowlookup.errors import StorageError
from workflowlookup.store.postgres import PostgresJournal


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused(postgres: Postgres, encoding: str) -> None:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())

    with pytest.raises(StorageError, match=f"its encoding is {encoding}; make one with `createdb --encoding=UTF8"):
        PostgresJournal(postgres.url(name)).counts()
