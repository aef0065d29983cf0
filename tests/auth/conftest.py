"""Fixtures: houses, and tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from auth.house import House
from workflowlookup.store.sessions import ConsoleSessions
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One for all tests of a module."""
    house = House(tmp_path_factory.mktemp("house"))
    yield house
    house.close()


@pytest.fixture
def open_house(tmp_path: Path) -> Iterator[House]:
    """On loopback, without tokens."""
    house = House(tmp_path, is_open=True)
    yield house
    house.close()


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[House]:
    """With tokens, for a test that breaks something."""
    house = House(tmp_path)
    yield house
    house.close()


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[ConsoleSessions]:
    journal = SqliteJournal(str(tmp_path / "runs.sqlite"))
    yield ConsoleSessions(journal)
    journal.close()


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    tokens = Tokens(SqliteJournal(str(tmp_path / "runs.sqlite")))
    yield tokens
    tokens.close()
