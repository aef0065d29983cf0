"""What is special about a journal in PostgreSQL: connections that are lost, and appends whose fate is unknown."""

from collections.abc import Callable, Iterator, Sequence

import psycopg
import pytest

from contract.journaling import Store, begin, submit
from support.narrowing import not_none
from support.postgres import Postgres
from workflowlookup.errors import StorageError
from workflowlookup.store.postgres import PostgresJournal


@pytest.fixture
def shared(database: str) -> Iterator[Callable[[], PostgresJournal]]:
    store = Store(lambda: PostgresJournal(database))
    yield store.open
    store.close()


def cut(url: str) -> None:
    """End all other connections to a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_connection_that_was_lost_is_made_anew(shared: Callable[[], PostgresJournal], database: str) -> None:
    journal = shared()
    run = begin(journal).run
    cut(database)
    assert journal.head("r1") == 2
    cut(database)

    draft = submit(journal, run)

    assert journal.read("r1", after=2) == draft.records


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_append_whose_fate_is_unknown_is_stored_once(
    shared: Callable[[], PostgresJournal], database: str, is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = shared()
    run = begin(journal).run
    whole = journal._execute_durably

    def broken(statement: str, values: Sequence[object]) -> int:
        """Loses the connection just after the statement, or just before it."""
        monkeypatch.undo()
        if is_stored:
            whole(statement, values)
        cut(database)
        return whole("SELECT 1", ())

    monkeypatch.setattr(journal, "_execute_durably", broken)

    draft = submit(journal, run)

    assert journal.read("r1", after=2) == draft.records


def test_a_database_that_restarts_is_found_again(shared: Callable[[], PostgresJournal], postgres: Postgres) -> None:
    journal = shared()
    run = begin(journal).run
    postgres.restart()

    assert submit(journal, run).run.sequence == journal.head("r1")


def test_a_database_that_cannot_be_reached_is_named_without_its_password() -> None:
    for url in (
        "postgresql://me:secret@127.0.0.1:1/db",
        "postgresql://me:secret@host:secret/db?nonsense=secret",
        "postgresql://me:very@secret@127.0.0.1/db",
    ):
        with pytest.raises(StorageError) as refusal:
            PostgresJournal(url).head("r1")

        assert refusal.value.remedy.startswith("The journal of runs, ")
        assert "secret" not in str(refusal.value)


def test_a_network_that_is_gone_is_not_waited_for(shared: Callable[[], PostgresJournal]) -> None:
    journal = shared()
    journal.head("r1")

    settings = not_none(journal._connection).info.get_parameters()

    assert settings["tcp_user_timeout"] == "20000"
    assert int(settings["keepalives_idle"]) + 2 * int(settings["keepalives_interval"]) <= 20


def test_a_database_of_a_newer_version_is_left_alone(shared: Callable[[], PostgresJournal]) -> None:
    first = shared()
    begin(first)
    with first.writing() as transaction:
        transaction.execute("UPDATE meta SET version = 99")
        transaction.execute("UPDATE levels SET least = 98")

    with pytest.raises(StorageError, match="written by a newer version"):
        shared().head("r1")
