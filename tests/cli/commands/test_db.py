"""`workflowlookup db` with tables of every schema version, in SQLite and PostgreSQL."""

import json

import pytest

from contract.journaling import execute, make_old_tables
from support.command_line import Cli
from support.json_values import Json
from workflowlookup.store.migrations import MIGRATIONS

NOW = len(MIGRATIONS)


def make_old(journal_url: str, version: int) -> None:
    """Tables as an earlier program made them, with a run."""
    make_old_tables(journal_url, version)
    columns = (
        "id, workflow_id, version, hash, started, updated, state, waiting_for, step, done, total, deadline, sequence"
    )
    values = "'old', 'w', '1', 'h', 1, 1, 'waiting', 'output', 'one', 0, 1, NULL, 1"
    execute(journal_url, f"INSERT INTO runs ({columns}) VALUES ({values})")


def set_version(journal_url: str, version: int, least: int) -> None:
    meta = f"UPDATE meta SET version = {version}" if "://" in journal_url else f"PRAGMA user_version = {version}"
    execute(journal_url, meta, f"UPDATE levels SET least = {least}")


def db(action: str, journal_url: str, cli: Cli) -> tuple[int, Json]:
    done = cli("db", action, "--json", "--journal", journal_url)
    return done.returncode, json.loads(done.stdout)


def test_without_a_journal_nothing_is_created(journal_url: str, cli: Cli) -> None:
    code, report = db("check", journal_url, cli)

    assert (code, report["state"], report["version"], report["known"]) == (1, "empty", 0, NOW)
    assert db("check", journal_url, cli)[1] == report


@pytest.mark.parametrize("version", range(1, NOW))
def test_older_tables_are_reported_and_upgraded_with_their_content(journal_url: str, cli: Cli, version: int) -> None:
    make_old(journal_url, version)

    code, report = db("check", journal_url, cli)
    assert (code, report["state"], report["version"]) == (1, "behind", version)
    code, done = db("upgrade", journal_url, cli)
    assert (code, done["state"], done["from"], done["version"]) == (0, "up to date", version, NOW)
    assert db("check", journal_url, cli)[0] == 0
    assert "old" in cli("runs", "--journal", journal_url).stdout


def test_compatible_newer_tables_are_used(journal_url: str, cli: Cli) -> None:
    db("upgrade", journal_url, cli)
    set_version(journal_url, NOW + 3, NOW)

    code, report = db("check", journal_url, cli)
    assert (code, report["state"], report["version"], report["least"]) == (0, "newer", NOW + 3, NOW)
    assert db("upgrade", journal_url, cli)[1]["version"] == NOW + 3
    assert cli("runs", "--journal", journal_url).returncode == 0


def test_incompatible_newer_tables_are_not_changed(journal_url: str, cli: Cli) -> None:
    db("upgrade", journal_url, cli)
    set_version(journal_url, NOW + 3, NOW + 1)

    for action in ("check", "upgrade"):
        code, report = db(action, journal_url, cli)
        assert (code, report["state"], report["version"]) == (1, "too new", NOW + 3)
    refused = cli("runs", "--journal", journal_url)
    assert refused.returncode == 1
    assert "written by a newer version of workflowlookup. Update this one" in refused.stderr


def test_an_unreachable_database_is_reported_without_its_password(cli: Cli) -> None:
    journal_url = "postgresql://me:geheim@127.0.0.1:1/runs"

    code, report = db("check", journal_url, cli)

    assert (code, report["reachable"], report["state"]) == (1, False, "unreachable")
    assert "geheim" not in json.dumps(report)


def test_the_state_is_described_in_words(journal_url: str, cli: Cli) -> None:
    text = cli("db", "upgrade", "--journal", journal_url).stdout
    assert f"Upgraded from version 0 to {NOW}." in text
    text = cli("db", "check", "--journal", journal_url).stdout
    assert "Up to date: nothing to do." in text
    assert ("needs no tables" if "://" not in journal_url else "no tables yet") in text


@pytest.mark.parametrize("table", ["runs", "events", "tokens", "documents"])
def test_doctor_names_a_table_that_was_dropped(cli: Cli, journal_url: str, table: str) -> None:
    assert cli("db", "upgrade", "--journal", journal_url).returncode == 0
    execute(journal_url, f"DROP TABLE {table}")

    done = cli("doctor", "--json", "--journal", journal_url)

    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert table in problem["problem"]
