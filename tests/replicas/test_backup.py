"""The commands for backup and restore in docs/operations.md, carried out."""

import contextlib
import shutil
import sqlite3
import subprocess
from pathlib import Path

import psycopg
import pytest

from support.json_values import Json
from support.make import document, step, write
from support.postgres import Postgres
from support.web import WebClient, WebServer
from workflowlookup.store.journal import RunQuery
from workflowlookup.store.journal_url import JournalUrl

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"


def lead(place: str, library: Path, home: Path) -> tuple[WebServer, WebClient]:
    """A run, half done."""
    write(library, document(step("one"), step("two"), identifier="by-hand"))
    server = WebServer(home, directory=library, environment={"WORKFLOWLOOKUP_JOURNAL": place})
    client = WebClient(server.url)
    client.initialize()
    for name, arguments in (
        ("workflow_start", {"workflowId": "by-hand", "runId": "kept"}),
        ("workflow_submit", {"runId": "kept", "stepId": "one", "output": "done"}),
    ):
        assert "result" in client.request("tools/call", {"name": name, "arguments": arguments})
    return server, client


def read(place: str) -> tuple[list[tuple[str, str, str]], int]:
    journal = JournalUrl(place).open()
    stored = [(one.id, one.state, one.step) for one in journal.summaries(RunQuery())], len(journal.read("kept"))
    journal.close()
    return stored


def go_on(place: str, library: Path, home: Path) -> Json:
    server = WebServer(home, directory=library, environment={"WORKFLOWLOOKUP_JOURNAL": place})
    client = WebClient(server.url)
    client.initialize()
    arguments = {"runId": "kept", "stepId": "two", "output": "done"}
    reply = client.request("tools/call", {"name": "workflow_submit", "arguments": arguments})
    client.close()
    server.stop()
    return reply["result"]["structuredContent"]["state"]


def test_a_dump_of_postgresql_that_is_restored_elsewhere_goes_on(
    postgres: Postgres, library: Path, tmp_path: Path
) -> None:
    dump, restore = (shutil.which(name) for name in ("pg_dump", "pg_restore"))
    if dump is None or restore is None:
        pytest.skip("pg_dump is not here")
    place, other = postgres.create_database(), postgres.create_database()
    server, client = lead(place, library, tmp_path)  # it goes on serving meanwhile

    guide = GUIDE.read_text("utf-8")
    for options in ("--format=custom --schema=workflowlookup --schema=dbos", "--exit-on-error --no-owner"):
        assert options in guide
    schemas = ["--schema=workflowlookup", "--schema=dbos"]
    with psycopg.connect(place) as connection:
        if connection.execute("SELECT to_regnamespace('dbos')").fetchone() == (None,):
            schemas.pop()
    file = str(tmp_path / "runs.dump")
    subprocess.run([dump, "--format=custom", *schemas, f"--file={file}", place], check=True, timeout=120)
    subprocess.run([restore, "--exit-on-error", "--no-owner", f"--dbname={other}", file], check=True, timeout=120)
    client.close()
    server.stop()

    assert read(other) == read(place)
    assert go_on(other, library, tmp_path) == "completed"


def test_a_backup_of_a_file_that_is_put_elsewhere_goes_on(library: Path, tmp_path: Path) -> None:
    place, other = str(tmp_path / "runs.sqlite"), str(tmp_path / "restored" / "runs.sqlite")
    server, client = lead(place, library, tmp_path)
    assert 'sqlite3 runs.sqlite ".backup' in GUIDE.read_text("utf-8")

    (tmp_path / "restored").mkdir()
    with contextlib.closing(sqlite3.connect(place)) as old, contextlib.closing(sqlite3.connect(other)) as new:
        old.backup(new)
    client.close()
    server.stop()

    assert read(other) == read(place)
    assert go_on(other, library, tmp_path) == "completed"
