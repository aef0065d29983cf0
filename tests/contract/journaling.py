"""Runs for journals: begun and led on without a service, straight into the place that is looked at."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import psycopg
import pytest

from support.make import document, step
from workflowlookup.errors import StorageError
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.runs import advance
from workflowlookup.runs.chain import with_hashes
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import Journal, summarise
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.migrations import MIGRATIONS
from workflowlookup.store.sql import SqlJournal

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


def open_sql(url: str) -> SqlJournal:
    journal = JournalUrl(url).open()
    assert isinstance(journal, SqlJournal)
    return journal


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


def append(journal: Journal, expected: int, draft: Draft) -> Draft:
    """Append a draft; its run and its records then have the hashes that a journal must give them."""
    records = list(with_hashes(draft.run.id, draft.records, draft.run.head))
    head = journal.append(draft.run.id, expected, draft.records, summarise(draft.run), draft.run.head)
    assert head == records[-1].hash
    draft.run, draft.records = msgspec.structs.replace(draft.run, head=head), records
    return draft


def begin(journal: Journal, run_id: str = "r1", *, time: int = 1_000, workflow: Workflow = WORKFLOW) -> Draft:
    draft = advance.begin(
        run_id, workflow, {"ticket": "T-1"}, {"text": "nül\0 \U0001f600", "big": 10**30}, Moment(time=time, by="é")
    )
    return append(journal, 0, draft)


def submit(journal: Journal, run: Run, *, time: int = 2_000, output: str = "done") -> Draft:
    draft = advance.submit(run, run.current, output, {"a": [1, 2.5, None]}, Moment(time=time))
    return append(journal, run.sequence, draft)


def call(journal: Journal, run_id: str, *, time: int = 1_000) -> Run:
    return begin(journal, run_id, time=time, workflow=CALLING).run


# ── older versions ──────────────────────────────────────────────────────────────────────────────────────────────


def execute(url: str, *scripts: str) -> None:
    """Execute SQL in the tables of a journal, without this program."""
    if "://" in url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET search_path TO workflowlookup")
            for script in scripts:
                connection.execute(script.encode())
        return
    os.makedirs(os.path.dirname(url), exist_ok=True)
    with contextlib.closing(sqlite3.connect(url)) as connection:
        for script in scripts:
            connection.executescript(script)


def make_old_tables(url: str, version: int) -> None:
    """Empty tables, as a program of this schema version made them."""
    scripts = MIGRATIONS[:version]
    if "://" in url:
        meta = ["CREATE SCHEMA workflowlookup", "CREATE TABLE meta (version BIGINT NOT NULL)"]
        plain = [script.replace("WITHOUT ROWID", "") for script in scripts]
        execute(url, *meta, f"INSERT INTO meta VALUES ({version})", *plain)
    else:
        execute(url, *scripts, f"PRAGMA user_version = {version}")
