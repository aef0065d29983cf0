"""`workflowlookup purge`."""

import json
import sqlite3

import pytest

from support.command_line import Cli
from support.make import document, step

DAY = 86_400_000


SAMPLE = document(step("only-step"))


@pytest.fixture
def runs(cli: Cli) -> dict[str, str]:
    """Three runs: one that ended long ago, one that ended now, and one that waits since long ago."""
    outputs = {"old": b"done", "new": b"done", "waiting": b""}
    ids = {name: cli.start_run(stdin=text) for name, text in outputs.items()}
    (journal,) = cli.home.rglob("runs.sqlite")
    with sqlite3.connect(journal) as connection:
        connection.execute(
            "UPDATE runs SET updated = updated - ? WHERE id IN (?, ?)", (40 * DAY, ids["old"], ids["waiting"])
        )
    connection.close()
    return ids


def left(cli: Cli) -> set[str]:
    return {run["runId"] for run in json.loads(cli("runs", "--json").stdout)["runs"]}


def test_only_old_finished_runs_are_purged(cli: Cli, runs: dict[str, str]) -> None:
    done = cli("purge", "--older-than", "30d", "--yes")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("1 finished run in all.\nDeleted 1 run.\n")
    assert left(cli) == {runs["new"], runs["waiting"]}
    assert cli("run", "show", runs["old"]).returncode == 1


def test_a_dry_run_lists_runs_and_deletes_nothing(cli: Cli, runs: dict[str, str]) -> None:
    done = cli("purge", "--older-than", "30d", "--dry-run", "--json")

    assert json.loads(done.stdout) == {"purged": 0, "runs": [runs["old"]]}
    assert left(cli) == set(runs.values())


@pytest.mark.parametrize(("typed", "count"), [("n\n", 3), ("\n", 3), ("y\n", 2)])
def test_the_command_asks_before_it_deletes(cli: Cli, runs: dict[str, str], typed: str, count: int) -> None:
    code, seen = cli.sit_down("purge", "--older-than", "30d").see("Delete it for good? [y/N] ").type(typed).leave()

    assert code == 0
    assert runs["old"] in seen
    assert len(left(cli)) == count


@pytest.mark.parametrize(
    "words", [("--older-than", "30d"), ("--older-than", "30d", "--json"), (), ("--older-than", "soon", "--yes")]
)
def test_without_an_answer_nothing_is_purged(cli: Cli, runs: dict[str, str], words: tuple[str, ...]) -> None:
    done = cli("purge", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert left(cli) == set(runs.values())


def test_without_a_journal_there_is_nothing_to_purge(cli: Cli) -> None:
    done = cli("purge", "--older-than", "1d", "--yes")

    assert (done.returncode, done.stdout) == (0, "No finished run is that old.\n")
    assert list(cli.home.rglob("runs.sqlite")) == []
