"""Journals of a version without hashes: upgraded in place, and shared with a program of that version."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from contract.journaling import URLS, WORKFLOW, make_old_tables, open_sql
from workflowlookup.errors import RunDamaged
from workflowlookup.runs import advance
from workflowlookup.runs.chain import body_of
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.events import Started, kind_of
from workflowlookup.runs.run import Run, State
from workflowlookup.store.journal import RunSummary, summarise
from workflowlookup.store.service import Runs
from workflowlookup.store.sql import SqlJournal

BEFORE_HASHES = 7
"""The last schema version without hashes."""


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = URLS[request.param](request, tmp_path)
    make_old_tables(url, BEFORE_HASHES)
    return url


class OldProgram:
    """A program of that version: its statements, on a connection that stays open."""

    def __init__(self, url: str) -> None:
        self._connection: Any
        if "://" in url:
            self._connection = psycopg.connect(url, autocommit=True)
            self._connection.execute("SET search_path TO workflowlookup")
        else:
            self._connection = sqlite3.connect(url, isolation_level=None)
        self._mark = "%s" if "://" in url else "?"

    def close(self) -> None:
        self._connection.close()

    def _execute(self, statement: str, *values: object) -> int:
        return int(self._connection.execute(statement.replace("?", self._mark), values).rowcount)

    def start(self, run_id: str) -> Run:
        draft = advance.begin(run_id, WORKFLOW, {"ticket": "T-1"}, {}, Moment(time=1_000, by="old"))
        started = draft.records[0].event
        assert isinstance(started, Started)
        names = RunSummary.__struct_fields__[: RunSummary.__struct_fields__.index("proved")]
        columns, marks = ", ".join(names), ", ".join("?" for _ in names)
        self._execute("BEGIN")
        summary = [getattr(summarise(draft.run), name) for name in names]
        self._execute(f"INSERT INTO runs ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING", *summary)
        for table in ("documents", "document_copies"):
            document = (started.hash, bytes(started.document).decode())
            self._execute(f"INSERT INTO {table} (hash, document) VALUES (?, ?) ON CONFLICT DO NOTHING", *document)
        return self._add(draft)

    def submit(self, run: Run, output: str, time: int) -> Run | None:
        """The run after an output; None for a conflict."""
        draft = advance.submit(run, run.current, output, {}, Moment(time=time, by="old"))
        names = ("updated", "waiting_for", "step", "done", "total", "deadline", "sequence")
        values = [getattr(summarise(draft.run), name) for name in names]
        self._execute("BEGIN")
        changes = ", ".join(f"{name} = ?" for name in names)
        revision = (run.id, run.sequence, run.started, run.hash)
        statement = f"UPDATE runs SET {changes} WHERE id = ? AND sequence = ? AND started = ? AND hash = ?"
        if self._execute(statement, *values, *revision) != 1:
            self._execute("ROLLBACK")
            return None
        self._execute("UPDATE runs SET state = ? WHERE id = ?", draft.run.state.value, run.id)
        return self._add(draft)

    def _add(self, draft: Draft) -> Run:
        for record in draft.records:
            row = (draft.run.id, record.sequence, record.time, record.by, kind_of(record.event), body_of(record.event))
            self._execute("INSERT INTO events (run, sequence, time, who, kind, body) VALUES (?, ?, ?, ?, ?, ?)", *row)
        self._execute("COMMIT")
        return draft.run


@pytest.fixture
def old(url: str) -> Iterator[OldProgram]:
    with contextlib.closing(OldProgram(url)) as program:
        yield program


@pytest.fixture
def journal(url: str) -> Iterator[SqlJournal]:
    with contextlib.closing(open_sql(url)) as journal:
        yield journal


def runs_of(journal: SqlJournal) -> Runs:
    return Runs(journal, clock=lambda: 5_000)


def hashes(journal: SqlJournal, run_id: str) -> str:
    """For each event whether it has a hash: `--hh`."""
    rows = journal.query("SELECT hash FROM events WHERE run = ? ORDER BY sequence", (run_id,))
    return "".join("-" if digest is None else "h" for (digest,) in rows)


def test_runs_from_before_are_read_and_go_on_with_hashes(old: OldProgram, journal: SqlJournal) -> None:
    run = old.submit(old.start("r1"), "first", 2_000)
    assert run is not None

    assert runs_of(journal).get("r1").current == "two"
    after = runs_of(journal).submit("r1", "two", "second", {})

    assert (after.current, hashes(journal, "r1")) == ("three", "----hh")
    journal.write(("UPDATE events SET body = replace(body, 'first', 'worst') WHERE run = 'r1'", ()))
    with pytest.raises(RunDamaged, match="One of the events 1 to 5 of run 'r1' was changed after it was written"):
        runs_of(journal).get("r1")


def test_two_versions_take_turns_in_one_run(old: OldProgram, journal: SqlJournal) -> None:
    new = runs_of(journal)
    run = new.start(WORKFLOW, {"ticket": "T-1"}, {}, run_id="r1")
    moved = old.submit(run, "first", 6_000)
    assert moved is not None
    assert new.get("r1").current == "two"
    assert old.submit(run, "late", 6_000) is None

    assert new.submit("r1", "two", "second", {}).current == "three"
    assert old.submit(new.get("r1"), "third", 7_000) is not None

    for reader in (new, runs_of(journal)):
        assert reader.get("r1").state is State.COMPLETED
    assert hashes(journal, "r1") == "hh--hh--"
    for place, named in (("3", "One of the events 3 to 5"), ("1", "Event 1")):
        journal.write((f"UPDATE events SET who = 'judge' WHERE run = 'r1' AND sequence = {place}", ()))
        with pytest.raises(RunDamaged, match=f"{named} of run 'r1' was changed after it was written"):
            runs_of(journal).get("r1")


def test_a_run_that_an_old_program_starts_after_the_upgrade_is_a_run(old: OldProgram, journal: SqlJournal) -> None:
    journal.upgrade()
    old.start("r1")

    new = runs_of(journal)
    for step_id in ("one", "two", "three"):
        new.submit("r1", step_id, "done", {})

    assert runs_of(journal).get("r1").state is State.COMPLETED
    assert hashes(journal, "r1") == "--hhhhhh"
