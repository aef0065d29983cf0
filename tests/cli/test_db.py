"""`workflowlookup db` with tables of every schema version, in SQLite and PostgreSQL."""

import json

import pytest

from cli.commands import Cli
from contract.journaling import execute, make_old_tables
from support.json_values import Json
from workflowlookup.store.migrations import MIGRATIONS

NOW = len(MIGRATIONS)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, cli: Cli) -> str:
    if request.param == "sqlite":
        return str(cli.directory / "data" / "runs.sqlite")
    result: str = request.getfixturevalue("database")
    return result


def make_old(place: str, version: int) -> None:
    """Tables as an earlier program made them, with a run."""
    make_old_tables(place, version)
    columns = (
        "id, workflow_id, version, hash, started, updated, state, waiting_for, step, done, total, deadline, sequence"
    )
    values = "'old', 'w', '1', 'h', 1, 1, 'waiting', 'output', 'one', 0, 1, NULL, 1"
    execute(place, f"INSERT INTO runs ({columns}) VALUES ({values})")


def set_version(place: str, version: int, least: int) -> None:
    meta = f"UPDATE meta SET version = {version}" if "://" in place else f"PRAGMA user_version = {version}"
    execute(place, meta, f"UPDATE levels SET least = {least}")


def db(action: str, place: str, cli: Cli) -> tuple[int, Json]:
    done = cli("db", action, "--json", "--journal", place)
    return done.returncode, json.loads(done.stdout)


def test_without_a_journal_nothing_is_created(place: str, cli: Cli) -> None:
    code, found = db("check", place, cli)

    assert (code, found["state"], found["version"], found["known"]) == (1, "empty", 0, NOW)
    assert db("check", place, cli)[1] == found


@pytest.mark.parametrize("version", range(1, NOW))
def test_older_tables_are_reported_and_upgraded_with_their_content(place: str, cli: Cli, version: int) -> None:
    make_old(place, version)

    code, found = db("check", place, cli)
    assert (code, found["state"], found["version"]) == (1, "behind", version)
    code, done = db("upgrade", place, cli)
    assert (code, done["state"], done["from"], done["version"]) == (0, "up to date", version, NOW)
    assert db("check", place, cli)[0] == 0
    assert "old" in cli("runs", "--journal", place).stdout


def test_compatible_newer_tables_are_used(place: str, cli: Cli) -> None:
    db("upgrade", place, cli)
    set_version(place, NOW + 3, NOW)

    code, found = db("check", place, cli)
    assert (code, found["state"], found["version"], found["least"]) == (0, "newer", NOW + 3, NOW)
    assert db("upgrade", place, cli)[1]["version"] == NOW + 3
    assert cli("runs", "--journal", place).returncode == 0


def test_incompatible_newer_tables_are_not_changed(place: str, cli: Cli) -> None:
    db("upgrade", place, cli)
    set_version(place, NOW + 3, NOW + 1)

    for action in ("check", "upgrade"):
        code, found = db(action, place, cli)
        assert (code, found["state"], found["version"]) == (1, "too new", NOW + 3)
    refused = cli("runs", "--journal", place)
    assert refused.returncode == 1
    assert "written by a newer version of workflowlookup. Update this one" in refused.stderr


def test_an_unreachable_database_is_reported_without_its_password(cli: Cli) -> None:
    place = "postgresql://me:geheim@127.0.0.1:1/runs"

    code, found = db("check", place, cli)

    assert (code, found["reachable"], found["state"]) == (1, False, "unreachable")
    assert "geheim" not in json.dumps(found)


def test_the_state_is_described_in_words(place: str, cli: Cli) -> None:
    said = cli("db", "upgrade", "--journal", place).stdout
    assert f"Upgraded from version 0 to {NOW}." in said
    said = cli("db", "check", "--journal", place).stdout
    assert "Up to date: nothing to do." in said
    assert ("needs no tables" if "://" not in place else "no tables yet") in said


@pytest.mark.parametrize("table", ["runs", "events", "tokens", "documents"])
def test_doctor_names_a_table_that_was_dropped(cli: Cli, place: str, table: str) -> None:
    assert cli("db", "upgrade", "--journal", place).returncode == 0
    execute(place, f"DROP TABLE {table}")

    done = cli("doctor", "--json", "--journal", place)

    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert table in problem["problem"]
