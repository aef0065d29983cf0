"""Fixtures: a place for a journal in each kind of store, and servers that can be killed and started again."""

import pytest

from support.journey import FLOW
from support.make import write
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where a journal can be: what the setting `journal` says."""
    if request.param == "sqlite":
        return str(tmp_path / "data" / "runs.sqlite")
    return request.getfixturevalue("database")


@pytest.fixture
def serve(start, library):
    """Starts servers of the same library; `journal` is the place."""
    write(library, FLOW)

    def serve_journal(journal, **options):
        return start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(journal), **options)

    return serve_journal


class Clock:
    def __init__(self):
        self.now = 1_000

    def __call__(self):
        self.now += 1
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_runs(tmp_path, clock):
    """As many services on the same journal as a test wants: each stands for a process."""
    opened = []

    def make(**options):
        runs = Runs(SqliteJournal(str(tmp_path / "runs.sqlite")), clock=clock, **options)
        opened.append(runs)
        return runs

    yield make
    for runs in opened:
        runs.close()


@pytest.fixture
def runs(open_runs):
    return open_runs()
