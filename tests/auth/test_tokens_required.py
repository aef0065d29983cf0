"""Once a token was made, a server over HTTP serves nobody without one, whatever becomes of its journal."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import psycopg
import pytest

from support.web import HEADERS, TIMEOUT, Serve, WebServer, modern, routing
from workflowlookup.store.sqlite import SqliteJournal

SIDE_FILES = ("", "-wal", "-shm")


def command(home: Path, *words: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("WORKFLOW", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-m", "workflowlookup", *words],
        capture_output=True,
        text=True,
        env=clean | {"HOME": str(home)},
        check=True,
    )
    return done.stdout.strip()


def make_token(home: Path, journal: str | Path, name: str = "ci") -> str:
    return command(home, "token", "create", name, "--scope", "admin", "--person", "--journal", str(journal))


def own_record(home: Path) -> Path:
    return home / ".config" / "workflowlookup" / "tokens-required"


@pytest.fixture
def serve(serve_http: Serve) -> Callable[[str | Path], WebServer]:
    return lambda journal: serve_http("--journal", str(journal))


def statuses(server: WebServer, *, times: int = 3, **headers: str) -> set[int]:
    """What a client is answered that asks several times: at the endpoint, and for figures."""
    message = modern("tools/call", {"name": "workflow_runs", "arguments": {}})
    with httpx2.Client(headers=HEADERS | headers, timeout=TIMEOUT) as client:
        answers = [client.post(server.url, json=message, headers=routing(message)) for _ in range(times)]
        figures = client.get(f"{server.base}/metrics")
    return {answer.status_code for answer in (*answers, figures)}


def delete(path: str | Path, _: object) -> None:
    for suffix in SIDE_FILES:
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{path}{suffix}")


def spoil(path: str | Path, _: object) -> None:
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.write(b"\xa5" * size)


def cut(path: str | Path, _: object) -> None:
    os.truncate(path, 0)


def forget_tokens(path: str | Path, _: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM tokens")
        connection.commit()


def drop_tokens(path: str | Path, _: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE tokens")


def put_back_a_copy(path: str | Path, copy: Path) -> None:
    delete(path, copy)
    shutil.copy(copy, path)


LOSSES = [delete, spoil, cut, forget_tokens, drop_tokens, put_back_a_copy]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_lost_journal_opens_no_server(
    tmp_path: Path, serve: Callable[..., WebServer], lose: Callable[..., None]
) -> None:
    path, copy = tmp_path / "data" / "runs.sqlite", tmp_path / "copy.sqlite"
    first = serve(path)
    assert statuses(first) == {200}, "before the first token the local person needs none"
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    make_token(tmp_path, path)
    assert statuses(first) == {401}
    second = serve(path)

    lose(path, copy)

    for server in (first, second, serve(path)):
        assert 200 not in statuses(server, times=5), lose.__name__


def test_a_new_token_works_after_all_were_lost(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    path = tmp_path / "data" / "runs.sqlite"
    make_token(tmp_path, path)
    delete(path, None)

    secret = make_token(tmp_path, path, "again")

    assert statuses(serve(path), authorization=f"Bearer {secret}") == {200}


def test_a_journal_by_another_name_has_the_same_record(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    real, link = tmp_path / "data" / "runs.sqlite", tmp_path / "link.sqlite"
    make_token(tmp_path, real)
    link.symlink_to(real)
    delete(real, None)

    assert statuses(serve(link)) == {401}


def test_a_link_to_another_journal_opens_no_server(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    path, real = tmp_path / "data" / "runs.sqlite", tmp_path / "data" / "real.sqlite"
    make_token(tmp_path, path)
    path.rename(real)

    path.symlink_to(tmp_path / "data" / "nowhere.sqlite")

    assert statuses(serve(path)) == {401}


def test_a_link_that_is_changed_opens_no_server(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    path = tmp_path / "link.sqlite"
    path.symlink_to(tmp_path / "first.sqlite")
    make_token(tmp_path, path)
    path.unlink()

    path.symlink_to(tmp_path / "second.sqlite")

    assert statuses(serve(path)) == {401}


def test_a_server_that_was_used_with_a_token_stays_closed_when_its_directory_is_deleted(
    tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    path = tmp_path / "data" / "runs.sqlite"
    secret = make_token(tmp_path, path)
    server = serve(path)
    assert statuses(server, authorization=f"Bearer {secret}") == {200}

    shutil.rmtree(path.parent)

    assert statuses(server) == {401}


def test_a_deleted_data_directory_opens_no_server(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    path = tmp_path / "data" / "runs.sqlite"
    make_token(tmp_path, path)

    shutil.rmtree(path.parent)

    assert statuses(serve(path)) == {401}
    assert statuses(serve(tmp_path / "other.sqlite")) == {200}, "no token was made for this one"


def test_a_server_that_sees_tokens_lists_their_journal(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    path, listed = tmp_path / "data" / "runs.sqlite", own_record(tmp_path)
    make_token(tmp_path, path)
    listed.unlink()  # as if another account had made the token
    assert statuses(serve(path)) == {401}
    assert listed.stat().st_mode & 0o777 == 0o600

    shutil.rmtree(path.parent)

    assert statuses(serve(path)) == {401}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"not a digest\n", b"ab" * (8 << 20)])
def test_a_list_that_cannot_be_read_opens_no_server(
    tmp_path: Path, serve: Callable[..., WebServer], content: bytes
) -> None:
    own_record(tmp_path).parent.mkdir(parents=True)
    own_record(tmp_path).write_bytes(content)

    assert statuses(serve(tmp_path / "runs.sqlite")) == {401}


def test_a_dangling_list_opens_no_server(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    own_record(tmp_path).parent.mkdir(parents=True)
    own_record(tmp_path).symlink_to(tmp_path / "nowhere")

    assert statuses(serve(tmp_path / "runs.sqlite")) == {401}


def test_without_a_configuration_directory_the_record_beside_the_journal_counts(
    tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    (tmp_path / ".config").write_text("a home that cannot be written", encoding="utf-8")
    path = tmp_path / "data" / "runs.sqlite"
    assert statuses(serve(path)) == {200}
    make_token(tmp_path, path)
    delete(path, None)

    assert statuses(serve(path)) == {401}


def test_without_the_journal_and_both_records_no_token_is_required(
    tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    path, backup = tmp_path / "data" / "runs.sqlite", tmp_path / "kept.sqlite"
    make_token(tmp_path, path)
    make_token(tmp_path, backup)
    shutil.rmtree(path.parent)
    lines = own_record(tmp_path).read_text(encoding="utf-8").splitlines(keepends=True)

    own_record(tmp_path).write_text("".join(line for line in lines if str(path) not in line), encoding="utf-8")

    assert statuses(serve(path)) == {200}
    assert statuses(serve(backup)) == {401}


def test_a_dangling_record_counts(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    path = tmp_path / "runs.sqlite"
    (tmp_path / "runs.sqlite.tokens-required").symlink_to(tmp_path / "nowhere")

    assert statuses(serve(path)) == {401}


def test_tokens_of_an_older_version_are_recorded_when_they_are_used(
    tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    path = tmp_path / "runs.sqlite"
    make_token(tmp_path, path)
    os.remove(tmp_path / "runs.sqlite.tokens-required")  # which that version did not write
    assert statuses(serve(path)) == {401}
    delete(path, None)

    assert statuses(serve(path)) == {401}


def test_the_record_is_written_before_the_token(tmp_path: Path) -> None:
    journal = SqliteJournal(str(tmp_path / "runs.sqlite"))
    journal.require_tokens()
    journal.require_tokens()

    assert journal.requires_tokens()
    assert not (tmp_path / "runs.sqlite").exists()


@pytest.mark.parametrize("loss", ["DROP SCHEMA workflowlookup CASCADE", "DELETE FROM workflowlookup.tokens"])
def test_a_lost_schema_in_postgresql_opens_no_server(
    tmp_path: Path, serve: Callable[..., WebServer], database: str, loss: str
) -> None:
    first = serve(database)
    assert statuses(first) == {200}
    make_token(tmp_path, database)
    second = serve(database)

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(loss)

    for server in (first, second, serve(database)):
        assert 200 not in statuses(server, times=5)


@pytest.mark.parametrize("loss", ["DROP SCHEMA workflowlookup CASCADE", "DELETE FROM workflowlookup.tokens"])
@pytest.mark.parametrize("may_make_schemas", [True, False])
def test_an_ordinary_role_makes_tokens_that_stay_required(
    tmp_path: Path, serve: Callable[..., WebServer], database: str, loss: str, may_make_schemas: bool
) -> None:
    url = database.replace("postgres@", "plain@")
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'plain'").fetchone() is None:
            connection.execute("CREATE ROLE plain LOGIN")
        connection.execute(f"GRANT CREATE ON DATABASE {name} TO plain".encode())
        command(tmp_path, "db", "upgrade", "--journal", url)
        if not may_make_schemas:
            connection.execute(f"REVOKE CREATE ON DATABASE {name} FROM plain".encode())

        make_token(tmp_path, url)
        connection.execute(loss.encode())

    assert 200 not in statuses(serve(url), times=2)


def test_a_dropped_database_opens_no_server(tmp_path: Path, serve: Callable[..., WebServer], database: str) -> None:
    make_token(tmp_path, database.replace("postgres@", "postgres:secret@"))

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA workflowlookup CASCADE")
        connection.execute("DROP SCHEMA workflowlookup_tokens_required")

    assert statuses(serve(database)) == {401}
    assert "secret" not in own_record(tmp_path).read_text(encoding="utf-8")
