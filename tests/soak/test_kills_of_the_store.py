"""The store is killed while it migrates, salvages and purges: no run is lost, and none is there in part or twice.

Each trial begins with a copy of the same journal, kills the command at random moments a few times, lets it come to its
end, and compares every record with what was there before. A few trials otherwise; `make soak` makes hundreds.
"""

import contextlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from support.journey import IS_SOAK
from support.make import document, step
from support.narrowing import instance_of
from workflowlookup.language.document.building import build
from workflowlookup.runs.events import Record
from workflowlookup.store.migrations import MIGRATIONS
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

RUNS: Final = 400 if IS_SOAK else 60
TRIALS: Final = 60 if IS_SOAK else 4
MAX_KILLS: Final = 6
"""How often one trial is killed before it may come to its end."""
COMMAND: Final = str(Path(__file__).with_name("doomed_command.py"))
PAGE: Final = 4096
OLDER: Final = 4
"""The version of the tables from which a journal is brought up to date."""

Stored = Mapping[str, list[Record]]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal in which every second run is over."""
    path = tmp_path_factory.mktemp("store") / "runs.sqlite"
    runs = Runs(SqliteJournal(str(path)))
    workflow = build(document(step("first"), step("second")))
    for number in range(RUNS):
        run = runs.start(workflow, {}, {"filler": "x" * 500}, run_id=f"run-{number:04}")
        runs.submit(run.id, "first", f"output {number}", {})
        if number % 2:
            runs.submit(run.id, "second", f"last output {number}", {})
    instance_of(SqliteJournal, runs.journal).query("PRAGMA wal_checkpoint(TRUNCATE)")
    runs.close()
    return path


def stored_in(path: Path) -> Stored:
    runs = Runs(SqliteJournal(str(path)))
    try:
        return {summary.id: runs.journal.read(summary.id) for summary in runs.all_summaries()}
    finally:
        runs.close()


# ── what is killed ──────────────────────────────────────────────────────────────────────────────────────────────


def older_version(path: Path) -> None:
    """The journal as the version before salvage left it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for kind, name in re.findall(r"CREATE (TABLE|INDEX) (\w+)", " ".join(MIGRATIONS[OLDER:])):
            connection.execute(f"DROP {kind} IF EXISTS {name}")
        for table, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", " ".join(MIGRATIONS[OLDER:])):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute(f"PRAGMA user_version = {OLDER}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def bad_page(path: Path) -> None:
    """The journal with garbage in a page that leads to runs and holds none."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs_by_start'").fetchall()
    with path.open("r+b") as file:
        file.seek((rows[0][0] - 1) * PAGE)
        file.write(b"\xa5" * PAGE)


def as_it_is(_: Path) -> None:
    """A journal that needs no preparation."""


def finished(stored: Stored) -> set[str]:
    return {run_id for run_id in stored if int(run_id[-4:]) % 2}


KINDS: Final[Mapping[str, tuple[Callable[[Path], None], tuple[str, ...], Callable[[Stored], set[str]]]]] = {
    "migrate": (older_version, ("db", "upgrade"), lambda _: set()),
    "salvage": (bad_page, ("db", "salvage"), lambda _: set()),
    "purge": (as_it_is, ("purge", "--older-than", "0m", "--yes"), finished),
}
"""By name: how the journal is prepared, the command, and the runs that it is to remove."""


# ── the campaign ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_killed_at_work_loses_no_run_and_has_none_in_part(
    journal: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare, words, removed_by = KINDS[kind]
    before = stored_in(journal)
    removed = removed_by(before)
    chance = random.Random(kind)
    path = copy_of(journal, tmp_path / "undisturbed")
    prepare(path)
    seconds = float(run(path, words)[1])
    kills, lost, doubled, partial = 0, [], [], []
    begun = time.monotonic()

    for trial in range(TRIALS):
        path = copy_of(journal, tmp_path / f"trial-{trial}")
        prepare(path)
        for _ in range(MAX_KILLS):
            ended, _ = run(path, words, chance.uniform(0.001, seconds))
            kills += ended == -signal.SIGALRM
            if kind == "purge":
                partial += [f"{trial} {run_id}" for run_id in half_done(before, stored_in(path))]
            if ended == 0:
                break
        assert run(path, words)[0] == 0
        after = stored_in(path)
        lost += [f"{trial} {run_id}" for run_id in before.keys() - removed if after.get(run_id) != before[run_id]]
        doubled += [f"{trial} {run_id}" for run_id in after.keys() - before.keys()]
        partial += [f"{trial} {run_id}" for run_id in removed & after.keys()]
        shutil.rmtree(path.parent)

    with capsys.disabled():
        print(
            f"\n{kind}: {TRIALS} journals of {RUNS} runs, {kills} kills in {time.monotonic() - begun:.0f} s; "
            f"lost {len(lost)}, doubled {len(doubled)}, in part {len(partial)}"
        )
    assert (lost, doubled, partial) == ([], [], [])
    assert kills >= TRIALS // 2


def half_done(before: Stored, now: Stored) -> Iterator[str]:
    """The runs that are there with other records than they had: a run is purged whole or not at all."""
    yield from (run_id for run_id, records in now.items() if records != before[run_id])


def copy_of(journal: Path, directory: Path) -> Path:
    directory.mkdir()
    return Path(shutil.copy(journal, directory / "runs.sqlite"))


def run(path: Path, words: tuple[str, ...], seconds: float = 0) -> tuple[int, str]:
    """The exit code, negative for one that was killed; and the last line of what it complained of."""
    command = [sys.executable, COMMAND, str(seconds), *words, "--journal", str(path)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    complaints = process.communicate(timeout=120)[1]
    return process.returncode, complaints.strip().rpartition("\n")[2]
