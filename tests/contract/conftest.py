"""Fixtures: a journal of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.journaling import URLS, Store, open_sql
from workflowlookup.store.sql import SqlJournal


@pytest.fixture(params=URLS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store[SqlJournal]]:
    """A journal that can be opened as often as a test wants."""
    url = URLS[request.param](request, tmp_path)
    store = Store(lambda: open_sql(url))
    yield store
    store.close()
