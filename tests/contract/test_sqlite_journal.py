"""What is special about a journal in a file: who may read it, damage, and others who hold it."""

import contextlib
import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.journaling import Store, at_once, begin, call, submit
from workflowlookup.errors import StorageError
from workflowlookup.store.journal import RunQuery
from workflowlookup.store.migrations import MIGRATIONS
from workflowlookup.store.sqlite import SqliteJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "runs.sqlite"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], SqliteJournal]]:
    store = Store(lambda: SqliteJournal(str(path)))
    yield store.open
    store.close()


def test_only_its_user_may_read_the_file(path: Path, opened: Callable[[], SqliteJournal]) -> None:
    begin(opened())

    modes = {name: stat.S_IMODE(os.stat(path.parent / name).st_mode) for name in os.listdir(path.parent)}
    assert set(modes.values()) == {0o600}
    assert {"runs.sqlite", "runs.sqlite-wal"} <= modes.keys()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_commit_is_on_the_disk_when_it_returns(opened: Callable[[], SqliteJournal]) -> None:
    journal = opened()
    begin(journal)

    assert journal.query("PRAGMA journal_mode") == [("wal",)]
    assert journal.query("PRAGMA synchronous") == [(2,)]


def spoil(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize("offset", [0, 4096], ids=["header", "a page"])
def test_a_damaged_file_is_set_aside_named_and_never_deleted(
    path: Path, opened: Callable[[], SqliteJournal], caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    first = opened()
    begin(first)
    first.close()
    spoil(path, offset)
    spoilt = path.read_bytes()
    journal = opened()

    with pytest.raises(StorageError) as refusal:
        journal.read("r1")

    (aside,) = path.parent.glob("runs.sqlite.corrupt-*[0-9]")
    assert aside.read_bytes() == spoilt
    assert str(aside) in str(refusal.value)
    assert str(aside) in caplog.text
    begin(journal, "new")
    assert (journal.head("r1"), journal.head("new")) == (2, 2)


def test_a_file_that_several_find_damaged_is_set_aside_once(path: Path, opened: Callable[[], SqliteJournal]) -> None:
    first = opened()
    begin(first)
    first.close()
    spoil(path, 0)
    stored, refusals = [], []

    def use(number: int) -> None:
        journal = SqliteJournal(str(path))
        for turn in range(2):
            try:
                stored.append(begin(journal, f"{number}-{turn}").run.id)
            except StorageError as refusal:
                refusals.append(refusal)
        journal.close()

    at_once(use, 6)

    assert len(list(path.parent.glob("runs.sqlite.corrupt-*[0-9]"))) == 1
    assert (1 <= len(refusals) <= 6, len(stored) + len(refusals)) == (True, 12)
    ids = sorted(line.id for line in opened().summaries(RunQuery()))
    assert ids == sorted(["r1", *stored]), "nothing went to the old file"


def test_those_who_had_a_damaged_file_open_go_on_with_the_new_one(
    path: Path, opened: Callable[[], SqliteJournal]
) -> None:
    first, second = opened(), opened()
    begin(first)
    assert second.head("r1") == 2
    os.rename(path, f"{path}.corrupt-by-hand")
    for suffix in ("-wal", "-shm"):
        os.rename(f"{path}{suffix}", f"{path}.corrupt-by-hand{suffix}")

    begin(first, "new")
    assert (second.head("new"), second.head("r1")) == (2, None)
    second.close()
    first.close()
    assert SqliteJournal(f"{path}.corrupt-by-hand").head("r1") == 2


def test_a_file_that_another_process_holds_is_waited_for_and_then_refused(path: Path) -> None:
    journal = SqliteJournal(str(path), 0.1)
    run = begin(journal).run
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(StorageError, match=r"Another process holds it for too long\."):
        submit(journal, run)

    holder.execute("ROLLBACK")
    holder.close()
    submit(journal, run)


def test_a_file_that_cannot_be_written_is_refused_until_it_can(path: Path, opened: Callable[[], SqliteJournal]) -> None:
    journal = opened()
    run = begin(journal).run
    journal.query("PRAGMA query_only = ON")  # what a read-only file answers, also to root

    with pytest.raises(StorageError, match="readonly"):
        submit(journal, run)

    submit(journal, run)


def test_a_place_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = SqliteJournal(str(tmp_path / "file" / "runs.sqlite"))

    with pytest.raises(StorageError, match=r"runs\.sqlite, cannot be used: File exists"):
        journal.head("r1")


def test_a_file_of_an_older_version_is_brought_up_to_date(path: Path, opened: Callable[[], SqliteJournal]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(MIGRATIONS[0])
        old.execute("PRAGMA user_version = 1")

    journal = opened()
    call(journal, "a")
    assert journal.queue_position("a") == (1, 1)
    assert [one.id for one in journal.at_work(5)] == ["a"]


def test_a_file_of_a_newer_version_is_left_alone(path: Path, opened: Callable[[], SqliteJournal]) -> None:
    first = opened()
    begin(first)
    first.query("PRAGMA user_version = 99")
    first.query("UPDATE levels SET least = 98")
    first.close()

    for _ in range(2):
        with pytest.raises(StorageError, match=r"written by a newer version of workflowlookup\. Update this one"):
            opened().head("r1")


def test_a_process_that_never_opens_its_file_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    journal = SqliteJournal(str(tmp_path / "runs.sqlite"), 0.1)
    with open(tmp_path / "runs.sqlite.lock", "w") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="Another process holds it for too long"):
            journal.head("r1")

    assert begin(journal).run.sequence == journal.head("r1")
    journal.close()
