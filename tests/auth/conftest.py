"""Fixtures: servers with tokens, an issuer of tokens, sessions of the console."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from auth.issuer import Issuer
from auth.token_server import TokenServer
from workflowlookup.store.sessions import ConsoleSessions
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens


@pytest.fixture(scope="module")
def token_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    """One for all tests of a module."""
    token_server = TokenServer(tmp_path_factory.mktemp("token_server"))
    yield token_server
    token_server.close()


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[TokenServer]:
    """On loopback, without tokens."""
    token_server = TokenServer(tmp_path, is_open=True)
    yield token_server
    token_server.close()


@pytest.fixture
def own_token_server(tmp_path: Path) -> Iterator[TokenServer]:
    """With tokens, for a test that breaks something."""
    token_server = TokenServer(tmp_path)
    yield token_server
    token_server.close()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.add_key("one", "RS256")
    yield issuer
    issuer.close()


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
