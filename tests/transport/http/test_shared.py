"""What all clients of one server share: the journal is looked at once for those who follow it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.make import document, step
from workflowlookup.auth.backends import SharedBackend
from workflowlookup.language.document.building import build
from workflowlookup.library.catalog import Catalog
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.tools.contract import ServerServices

FLOW = build(document(step("one"), step("two")))


class Counting(SqliteJournal):
    """A journal that counts how often it is asked whether anything is new."""

    reads = 0

    def version(self) -> int:
        self.reads += 1
        return super().version()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Counting]:
    journal = Counting(str(tmp_path / "runs.sqlite"))
    yield journal
    journal.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Runs]:
    """The runs as another process has them."""
    runs = Runs(SqliteJournal(str(tmp_path / "runs.sqlite")))
    yield runs
    runs.close()


@pytest.fixture
def backend(journal: Counting) -> SharedBackend:
    runs = Runs(journal)
    return SharedBackend(lambda: ServerServices(catalog=Catalog([]), open_runs=lambda: runs), lambda: None)


def test_one_poll_of_the_journal_serves_all_subscribers(backend: SharedBackend, journal: Counting, other: Runs) -> None:
    shares = [backend.watch(lambda _: None) for _ in range(5)]
    journal.reads = 0

    assert [set(share.changed()) for _ in range(3) for share in shares] == [set()] * 15
    assert journal.reads == 3
    run = other.start(FLOW, {}, {})
    assert [set(share.changed()) for share in shares] == [{run.id}] * 5
    assert [set(share.changed()) for share in shares] == [set()] * 5


def test_a_subscriber_that_polls_often_does_not_wait_for_others(backend: SharedBackend, other: Runs) -> None:
    often, seldom = (backend.watch(lambda _: None) for _ in range(2))
    first = other.start(FLOW, {}, {})
    assert set(often.changed()) == {first.id}
    second = other.start(FLOW, {}, {})

    assert set(often.changed()) == {second.id}
    assert set(seldom.changed()) == {first.id, second.id}


def test_without_subscribers_the_journal_is_not_watched(backend: SharedBackend) -> None:
    share = backend.watch(lambda _: None)
    runs = backend.services.runs
    assert len(runs.listeners) == 1

    share.close()

    assert runs.listeners == []
