"""Runs for journals: begun and led on without a service, straight into the place that is looked at."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from support.make import document, step
from workflowlookup.errors import StorageError
from workflowlookup.language.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import Journal, summarise

J = TypeVar("J", bound=Journal)

WORKFLOW = build(document(step("one"), step("two"), step("three"), deadlineSeconds=60))

CALLING = build(
    document({"id": "make-it", "title": "Make", "call": {"server": "s", "tool": "t", "saveAs": "made", "retries": 1}})
)


URLS: dict[str, Callable[[pytest.FixtureRequest, Path], str]] = {
    "sqlite": lambda _, directory: str(directory / "data" / "runs.sqlite"),
    "postgres": lambda request, _: str(request.getfixturevalue("database")),
}
"""By kind of journal: the URL of a new one, for a test with this `request` and this directory."""


class Store(Generic[J]):
    """A place for a journal, which as many as like can open."""

    def __init__(self, make: Callable[[], J]) -> None:
        self.make = make
        self._opened: list[J] = []

    def open(self) -> J:
        journal = self.make()
        self._opened.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._opened:
            with contextlib.suppress(StorageError):
                journal.close()


def at_once(call: Callable[[int], object], number: int) -> None:
    """Call a function in so many threads, all at the same moment."""
    barrier = threading.Barrier(number)

    def wait_and_call(index: int) -> None:
        barrier.wait()
        call(index)

    threads = [threading.Thread(target=wait_and_call, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def begin(journal: Journal, run_id: str = "r1", *, time: int = 1_000, workflow: Workflow = WORKFLOW) -> Draft:
    draft = advance.begin(
        run_id, workflow, {"ticket": "T-1"}, {"text": "nül\0 \U0001f600", "big": 10**30}, Moment(time=time, by="é")
    )
    journal.append(run_id, 0, draft.records, summarise(draft.run))
    return draft


def submit(journal: Journal, run: Run, *, time: int = 2_000, output: str = "done") -> Draft:
    draft = advance.submit(run, run.current, output, {"a": [1, 2.5, None]}, Moment(time=time))
    journal.append(run.id, run.sequence, draft.records, summarise(draft.run))
    return draft


def call(journal: Journal, run_id: str, *, time: int = 1_000) -> Run:
    return begin(journal, run_id, time=time, workflow=CALLING).run
