"""A damaged journal at the command line: salvaged runs are listed, and the damaged file is named."""

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.command_line import BOUND, Cli
from support.damage import PAGE, set_aside, spoil_page
from support.json_values import Json
from support.make import document, step
from workflowlookup.language.document.building import build
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal


@pytest.fixture
def journal(cli: Cli) -> Path:
    """A journal with twelve runs, half of them completed."""
    path = cli.directory / "data" / "runs.sqlite"
    runs = Runs(SqliteJournal(str(path)))
    for number in range(12):
        run = runs.start(build(document(step("only"), identifier="work")), {}, {}, run_id=f"run-{number:02}")
        if number % 2:
            runs.submit(run.id, "only", "done " * 500, {})
    runs.close()
    return path


def problems(cli: Cli, journal: Path, **options: Any) -> Json:
    return json.loads(cli("doctor", "--json", "--journal", str(journal), **options).stdout)["problems"]


def test_after_a_bad_page_the_runs_are_listed_and_the_file_is_named_by_every_command(cli: Cli, journal: Path) -> None:
    spoil_page(journal)
    place = ("--journal", str(journal))
    first = cli("runs", *place)
    (aside,) = set_aside(journal)
    assert (first.returncode, "12 of 12 runs were saved into a new journal" in first.stderr) == (1, True)

    for _ in range(2):
        listed = cli("runs", *place)
        assert listed.stdout.count("run-") == 12
        assert f"damaged journal was set aside as {aside}: 12 of 12 runs were saved" in listed.stderr
        for words in (("run", "show", "none"), ("why", "none"), ("export", "none"), ("cancel", "none")):
            missing = cli(*words, *place)
            assert f"set aside as {aside}" in missing.stderr, words
        (problem,) = problems(cli, journal)
        assert f"set aside as {aside}" in problem["problem"]


def test_damaged_runs_have_a_remedy_and_can_be_deleted(cli: Cli, journal: Path) -> None:
    place = ("--journal", str(journal))
    with contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE run IN ('run-01', 'run-02') AND sequence = 2")
        connection.execute("UPDATE events SET body = 'garbage' WHERE run = 'run-03' AND sequence = 2")
    (journal.parent / "runs.sqlite.corrupt-20260101T000000Z-1").touch()
    for words in (("cancel", "run-02"), ("why", "run-03"), ("run", "show", "run-01"), ("export", "run-01")):
        refused = cli(*words, *place)
        assert refused.returncode == 1
        assert "kept as runs.sqlite.corrupt-20260101T000000Z-1" in refused.stderr, words
        assert "`workflowlookup purge --damaged` deletes such runs" in refused.stderr, words

    shown = cli("purge", "--damaged", "--dry-run", *place)
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:-1]] == ["run-03", "run-02", "run-01"]
    assert cli("purge", "--damaged", *place).returncode == 2  # nobody can be asked
    assert cli("purge", "--damaged", "--older-than", "1d", "--yes", *place).returncode == 2
    forgotten = json.loads(cli("purge", "--damaged", "--yes", "--json", *place).stdout)
    assert forgotten == {"purged": 3, "runs": ["run-03", "run-02", "run-01"]}
    assert cli("runs", *place).stdout.count("run-") == 9
    assert cli("purge", "--damaged", "--yes", *place).stdout == "No run is damaged.\n"


def test_a_run_that_was_changed_in_the_tables_is_named_by_every_command(cli: Cli, journal: Path) -> None:
    with contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET body = replace(body, 'done', 'gone') WHERE run = 'run-01'")
    place, sentence = ("--journal", str(journal)), "Event 3 of run 'run-01' was changed after it was written."

    for words in (("run", "show"), ("why",), ("export",), ("cancel",)):
        refused = cli(*words, "run-01", *place)
        assert (refused.returncode, sentence in refused.stderr) == (1, True), words
    (problem,) = problems(cli, journal)
    assert problem["problem"] == f"{sentence} Its workflow is 'work', and it cannot go on."
    assert cli("run", "show", "run-02", *place).returncode == 0


def test_doctor_finds_unnoticed_damage_and_changes_nothing(cli: Cli, journal: Path) -> None:
    with contextlib.closing(sqlite3.connect(journal)) as connection:
        ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs_by_deadline'").fetchall()
    spoil_page(journal, page)
    before = journal.read_bytes()

    (problem,) = problems(cli, journal)

    assert problem["problem"].startswith(f"The journal of runs, {journal}, is damaged: ")
    assert problem["remedy"].startswith("`workflowlookup db salvage` sets it aside and saves what can be read.")
    assert (journal.read_bytes(), set_aside(journal)) == (before, [])

    saved = cli("db", "salvage", "--journal", str(journal))
    assert saved.returncode == 0
    assert "12 of 12 runs were saved into a new journal" in saved.stdout
    assert len(set_aside(journal)) == 1
    again = cli("db", "salvage", "--journal", str(journal))
    assert (again.returncode, again.stdout) == (0, "No damage was found, and nothing was done.\n")


def test_doctor_reports_that_it_replaced_a_damaged_journal(cli: Cli, journal: Path) -> None:
    source = SqliteJournal(str(journal))
    source.query("PRAGMA wal_checkpoint(TRUNCATE)")
    runs = Runs(source)
    for number in range(6):
        runs.start(build(document(step("only"), identifier="work")), {}, {}, run_id=f"late-{number}")
    copy = cli.directory / "copy" / "runs.sqlite"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{journal}{suffix}", f"{copy}{suffix}")
    runs.close()
    with open(f"{copy}-wal", "r+b") as log:  # a bad frame in the middle, which SQLite would take for the end
        log.seek(32 + 5 * (24 + PAGE) + 100)
        log.write(b"\xa5" * 100)

    (problem,) = problems(cli, copy)

    (aside,) = set_aside(copy)
    assert f"set aside as {aside}: " in problem["problem"]
    assert problem["remedy"].startswith("This was done just now, and nothing else is left to do. Move or delete")
    (later,) = problems(cli, copy)
    assert later["remedy"].startswith("Move or delete the file")


def test_doctor_says_that_the_server_that_it_tried_has_replaced_the_journal(cli: Cli, journal: Path) -> None:
    spoil_page(journal)

    (problem,) = problems(cli, journal)

    (aside,) = set_aside(journal)
    assert f"set aside as {aside}: 12 of 12 runs were saved" in problem["problem"]
    assert problem["remedy"].startswith("This was done just now, and nothing else is left to do. Move or delete")


def test_doctor_finds_a_journal_that_cannot_be_written(cli: Cli, journal: Path) -> None:
    assert problems(cli, journal) == []
    os.chmod(journal, 0o400)

    (problem,) = problems(cli, journal, program=BOUND)

    assert "it is read-only. Make the file and its directory writable" in problem["problem"]
    assert "runs can be read" in problem["remedy"]


def test_doctor_says_that_a_file_is_of_another_program_and_touches_nothing(cli: Cli) -> None:
    path = cli.directory / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()

    (problem,) = problems(cli, path)
    checked = cli("db", "check", "--json", "--journal", str(path))
    refused = [cli(*words, "--journal", str(path)) for words in (("runs",), ("db", "salvage"), ("db", "upgrade"))]

    assert "it is a SQLite file of another program" in problem["problem"]
    assert json.loads(checked.stdout)["state"] == "foreign"
    assert [done.returncode for done in refused] == [1, 1, 1]
    assert (path.read_bytes(), os.listdir(cli.directory).count("other.sqlite-wal"), set_aside(path)) == (before, 0, [])


def test_doctor_reports_an_empty_journal_with_a_log(cli: Cli, journal: Path) -> None:
    (journal.parent / "runs.sqlite-wal").write_bytes(b"x" * 10_000)
    os.truncate(journal, 0)

    (problem,) = problems(cli, journal)

    assert "the file is empty, and its write-ahead log is not" in problem["problem"]
