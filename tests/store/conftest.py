"""Fixtures: runs of a journal, and servers that can be killed and started again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.client import Server, Start
from support.clocks import TickingClock
from support.journey import FLOW
from support.make import write
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal


@pytest.fixture
def serve(start: Start, library: Path) -> Start:
    """Starts servers of the same library; `journal` is its URL or path."""
    write(library, FLOW)

    def serve_journal(journal: str | Path, **options: Any) -> Server:
        return start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(journal), **options)

    return serve_journal


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock()


@pytest.fixture
def open_runs(tmp_path: Path, clock: TickingClock) -> Iterator[Callable[..., Runs]]:
    """As many services on the same journal as a test wants: each stands for a process."""
    opened: list[Runs] = []

    def make(**options: Any) -> Runs:
        runs = Runs(SqliteJournal(str(tmp_path / "runs.sqlite")), clock=clock, **options)
        opened.append(runs)
        return runs

    yield make
    for runs in opened:
        runs.close()


@pytest.fixture
def runs(open_runs: Callable[..., Runs]) -> Runs:
    return open_runs()
