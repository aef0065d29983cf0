"""A bad page in a journal: what can be read is copied into a new one, and the damaged file is named."""

import contextlib
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

from support import journey
from support.client import Server, Start
from support.damage import PAGE, set_aside, spoil_page
from support.journey import RUN, calls, folded, read
from support.make import document, step, write
from support.narrowing import instance_of, not_none
from workflowlookup.errors import RunDamaged, StorageError
from workflowlookup.language.document.building import build
from workflowlookup.store import salvage
from workflowlookup.store.journal import RunQuery
from workflowlookup.store.salvage import NOT_COPIED, SHAPES
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.sqlite_pages import Pages
from workflowlookup.store.tokens import Tokens

OTHERS = [f"other-{number:02}" for number in range(30)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "runs.sqlite"


@pytest.fixture(scope="module")
def left_by_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a journal with 31 runs, a token and names of tools, as a server left it."""
    home = tmp_path_factory.mktemp("stored")
    write(home / "library", journey.FLOW)
    path = home / "data" / "runs.sqlite"
    server = Server(home, directory=home / "library", environment={"WORKFLOWLOOKUP_JOURNAL": str(path)})
    server.initialize()
    for call in calls("completed"):
        server.result(*call)
    for run_id in OTHERS:
        server.result(*journey.start(run_id, filler="x" * 500))
    server.result("tools/list")
    server.close_input()
    server.wait()
    server.stop()
    tokens = Tokens(SqliteJournal(str(path)))
    tokens.create("ci", ["run"], ["*"], seconds=None)
    tokens.close()
    return path.parent


@pytest.fixture
def stored(left_by_server: Path, path: Path) -> Path:
    """A copy of that journal."""
    shutil.copytree(left_by_server, path.parent)
    return path


def pages_of(path: Path, name: str) -> list[int]:
    """The numbers of the pages of a table or an index, its root first."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY path", (name,)).fetchall()
        except sqlite3.OperationalError:  # SQLite was built without it
            rows = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchall()
    return [number for (number,) in rows]


def after_damage(path: Path) -> tuple[set[str], set[str]]:
    """The runs of the new journal: those that are whole, and those that are damaged in part."""
    runs = Runs(SqliteJournal(str(path)))
    for _ in range(2):
        for run_id in (RUN, *OTHERS):  # one that is refused must not hide damage to the file in the next
            with contextlib.suppress(StorageError):
                runs.journal.read(run_id)
        with contextlib.suppress(StorageError):
            runs.summaries(RunQuery(limit=1_000))
            runs.journal.tool_names()
            instance_of(SqliteJournal, runs.journal).query("SELECT * FROM tokens")
    whole: set[str] = set()
    damaged: set[str] = set()
    for summary in runs.all_summaries():
        try:
            whole.add(runs.get(summary.id).id)
        except RunDamaged:
            damaged.add(summary.id)
    runs.close()
    return whole, damaged


@pytest.mark.parametrize(
    "name", ["sqlite_master", "runs", "documents", "runs_by_start", "runs_by_workflow", "runs_by_state", "tool_names"]
)
@pytest.mark.parametrize("garbage", [b"\xa5", b"\0"])
def test_a_bad_interior_or_index_page_loses_no_run(stored: Path, name: str, garbage: bytes) -> None:
    number = 1 if name == "sqlite_master" else pages_of(stored, name)[0]
    spoil_page(stored, number, garbage)
    before = stored.read_bytes()

    whole, damaged = after_damage(stored)

    assert (whole, damaged) == ({RUN, *OTHERS}, set())
    assert [aside.read_bytes() for aside in set_aside(stored)] in ([before], [])


def test_a_bad_leaf_page_loses_only_the_runs_with_records_on_it(stored: Path) -> None:
    events = pages_of(stored, "events")
    assert len(events) > 4, "SQLite can say which pages these are"
    with Pages(str(stored)) as pages:
        hit = {row.values[0] for row in pages._rows_on(events[2]) if SHAPES["events"].matches(row)}
    spoil_page(stored, events[2])

    whole, damaged = after_damage(stored)

    assert 1 <= len(damaged) <= len(hit) + 1
    assert whole | damaged == {RUN, *OTHERS}
    (aside,) = set_aside(stored)
    report = (aside.parent / f"{aside.name}.txt").read_text()
    assert report.startswith(f"{len(whole)} of {len(OTHERS) + 1} runs were saved into a new journal")
    for run_id in damaged:
        assert f"damaged in part: {run_id} (" in report


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_truncated_file_reports_an_unknown_number_of_runs(stored: Path, share: float) -> None:
    before = os.path.getsize(stored) // PAGE
    os.truncate(stored, int(before * share) * PAGE)

    whole, damaged = after_damage(stored)

    assert len(whole | damaged) < len(OTHERS) + 1 or damaged
    (aside,) = set_aside(stored)
    match = re.match(
        r"\d+ of \d+ runs that are known were saved into a new journal.*; "
        r"(\d+) pages of the file are missing or cannot be read: more runs may be lost\n",
        (aside.parent / f"{aside.name}.txt").read_text(),
    )
    assert int(not_none(match)[1]) >= before - int(before * share)


def test_any_single_bad_page_loses_few_runs(stored: Path, tmp_path: Path) -> None:
    content = stored.read_bytes()
    worst = set()
    for number in range(1, len(content) // PAGE + 1):
        path = tmp_path / str(number) / "runs.sqlite"
        path.parent.mkdir()
        path.write_bytes(content)
        spoil_page(path, number)
        whole, damaged = after_damage(path)
        assert whole | damaged == {RUN, *OTHERS}, number
        worst.add(len(damaged))

    assert max(worst) <= 8


def test_with_any_bad_pages_a_run_is_unchanged_or_refused(stored: Path, tmp_path: Path) -> None:
    content, before = stored.read_bytes(), {run_id: read(str(stored), run_id) for run_id in (RUN, *OTHERS)}
    for seed in range(500 if journey.IS_SOAK else 25):
        chance = random.Random(seed)
        path = tmp_path / str(seed) / "runs.sqlite"
        path.parent.mkdir()
        path.write_bytes(content)
        for _ in range(chance.choice([1, 2, 5])):
            spoil_page(
                path, chance.randint(1, len(content) // PAGE), chance.choice([b"\0", b"\xff", chance.randbytes(PAGE)])
            )

        whole, damaged = after_damage(path)

        assert {run_id: read(str(path), run_id) for run_id in whole} == {run_id: before[run_id] for run_id in whole}
        assert whole | damaged <= before.keys()


def test_a_run_that_was_deleted_does_not_come_back(stored: Path) -> None:
    with contextlib.closing(sqlite3.connect(stored)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        for run_id in OTHERS[3:]:
            connection.execute("DELETE FROM events WHERE run = ?", (run_id,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))
        connection.commit()
    assert b"other-20" in stored.read_bytes(), "what is deleted is still on pages that are free"
    spoil_page(stored, pages_of(stored, "runs_by_start")[0])

    assert after_damage(stored) == ({RUN, *OTHERS[:3]}, set())


def execute(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def hashes(path: Path) -> list[tuple[str, int, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT run, sequence, hash FROM events ORDER BY 1, 2").fetchall()


def test_hashes_are_saved_and_a_last_hash_that_was_lost_is_computed_again_and_counted(stored: Path) -> None:
    execute(
        stored,
        "UPDATE runs SET hashed = NULL, head = NULL WHERE id = 'other-03'",
        "DELETE FROM runs WHERE id = 'other-07'",
    )
    before = hashes(stored)
    spoil_page(stored)

    whole, damaged = after_damage(stored)

    assert (whole, damaged) == ({RUN, *OTHERS}, set())
    assert hashes(stored) == before
    assert all(digest for _, _, digest in before)
    (aside,) = set_aside(stored)
    assert (aside.parent / f"{aside.name}.txt").read_text() == (
        f"{len(OTHERS) + 1} of {len(OTHERS) + 1} runs were saved into a new journal, last hashes computed again: 2"
    )


def test_a_run_that_was_changed_before_the_damage_is_not_saved_as_whole(stored: Path) -> None:
    execute(
        stored,
        "UPDATE events SET who = 'judge' WHERE run = 'other-03' AND sequence = 1",
        "DELETE FROM events WHERE run = 'the-run' AND sequence > 5",
        "UPDATE runs SET sequence = 5 WHERE id = 'the-run'",
        f"UPDATE runs SET head = '{'0' * 64}' WHERE id = 'other-05'",
    )
    spoil_page(stored)

    whole, damaged = after_damage(stored)

    assert (whole, damaged) == ({*OTHERS} - {"other-03", "other-05"}, {RUN, "other-03", "other-05"})
    (aside,) = set_aside(stored)
    report = (aside.parent / f"{aside.name}.txt").read_text()
    assert "damaged in part: other-03 (Event 1 of run 'other-03' was changed after it was written)" in report
    assert "damaged in part: other-05 (its events are not those of its last hash)" in report


def test_a_run_without_its_summary_and_last_records_counts_as_incomplete(stored: Path) -> None:
    with contextlib.closing(sqlite3.connect(stored)) as connection:
        connection.execute("DELETE FROM events WHERE run = ? AND sequence > 2", (RUN,))
        connection.execute("DELETE FROM runs WHERE id = ?", (RUN,))
        connection.commit()
    for number in (1, pages_of(stored, "runs_by_start")[0]):
        spoil_page(stored, number)

    whole, damaged = after_damage(stored)

    assert (whole, damaged) == (set(OTHERS), {RUN})


@pytest.mark.parametrize("garbage", [b"\0", b"\xff"])
def test_a_document_with_a_bad_page_is_read_from_its_copy(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "data" / "runs.sqlite"
    runs = Runs(SqliteJournal(str(path)))
    run = runs.start(build(document(step("one"), description="long " * 5_000)), {}, {}, run_id=RUN)
    runs.close()
    with open(path, "rb") as file:
        at = file.read().index(b"long long long ")
    spoil_page(path, at // PAGE + 2, garbage)

    for _ in range(2):
        with contextlib.suppress(StorageError):
            salvaged = Runs(SqliteJournal(str(path))).get(RUN)

    assert salvaged == run


def test_a_partly_damaged_run_is_listed_but_cannot_continue(serve: Start, stored: Path) -> None:
    connection = sqlite3.connect(stored)
    connection.execute("DELETE FROM events WHERE run = 'other-05' AND sequence = 2")
    connection.commit()
    connection.close()
    spoil_page(stored, 1)
    server = serve(stored)
    server.request("workflow_runs")

    listed = server.result("workflow_runs", {"limit": 200})["runs"]
    assert "other-05" in {run["runId"] for run in listed}
    for tool, arguments in (
        ("workflow_status", {"runId": "other-05"}),
        ("workflow_submit", {"runId": "other-05", "stepId": "plan", "output": "a long plan"}),
    ):
        error = server.error(tool, arguments)
        assert error["code"] == -32006
        assert "Of the 2 events of run 'other-05' only 1 are left" in error["data"]["details"]
    assert server.result(*journey.submit("plan", "a long plan", "other-06"))["state"] == "waiting"


def test_tokens_and_tool_names_are_salvaged_too(stored: Path) -> None:
    journal = SqliteJournal(str(stored))
    names, tokens = journal.tool_names(), Tokens(journal).all_tokens()
    journal.close()
    spoil_page(stored, 1)

    with pytest.raises(StorageError):
        journal.tool_names()

    assert names
    assert (journal.tool_names(), Tokens(journal).all_tokens()) == (names, tokens)
    journal.close()


def test_content_of_the_log_is_salvaged_and_damage_in_it_is_detected(serve: Start, path: Path) -> None:
    server = serve(path)
    for run_id in OTHERS:
        server.result(*journey.start(run_id, filler="x" * 500))
    server.process.kill()
    server.process.wait()
    log = path.parent / "runs.sqlite-wal"
    content = bytearray(log.read_bytes())
    middle = 32 + (PAGE + 24) * (len(content) // (PAGE + 24) // 2)
    content[middle + 100 : middle + 300] = b"\xa5" * 200
    log.write_bytes(content)
    for stale in path.parent.glob("*-shm"):
        stale.unlink()

    whole, damaged = after_damage(path)

    assert len(whole) >= len(OTHERS) - 2, (whole, damaged)
    assert len(set_aside(path)) == 1


@pytest.mark.parametrize(
    ("offset", "garbage"),
    [(0, b"\xff"), (9, b"\xff"), (17, b"\xa5"), (26, b"\xa5\xa5"), (0, bytes(32)), (0, bytes(PAGE))],
    ids=["magic", "page size", "salt", "checksum", "no header", "no header, no first frame"],
)
def test_a_log_with_a_bad_header_is_saved_and_not_dropped(
    serve: Start, path: Path, offset: int, garbage: bytes
) -> None:
    server = serve(path)
    for run_id in OTHERS:
        server.result(*journey.start(run_id))
    server.process.kill()
    server.process.wait()
    with open(path.parent / "runs.sqlite-wal", "r+b") as log:
        log.seek(offset)
        log.write(garbage)

    server = serve(path)
    server.request("workflow_runs")
    listed = {run["runId"] for run in server.result("workflow_runs", {"limit": 200})["runs"]}

    assert listed == set(OTHERS)
    assert len(set_aside(path)) == 1


@pytest.mark.parametrize("offset", [17, 26], ids=["salt", "checksum"])
def test_a_token_that_was_revoked_in_a_log_with_a_bad_header_stays_revoked(stored: Path, offset: int) -> None:
    journal = SqliteJournal(str(stored))
    tokens = Tokens(journal)
    tokens.revoke("ci")
    log = stored.parent / "runs.sqlite-wal"
    file, written = stored.read_bytes(), bytearray(log.read_bytes())
    journal.close()
    written[offset] ^= 0xFF
    stored.write_bytes(file)
    log.write_bytes(written)

    with pytest.raises(StorageError):
        tokens.all_tokens()

    assert [token.state(0) for token in tokens.all_tokens()] == ["revoked"]
    journal.close()


@pytest.mark.parametrize("left", [b"", b"x"], ids=["nothing", "one byte"])
def test_an_empty_file_with_a_log_is_not_treated_as_a_new_journal(serve: Start, path: Path, left: bytes) -> None:
    server = serve(path)
    for run_id in OTHERS:
        server.result(*journey.start(run_id))
    server.process.kill()
    server.process.wait()
    log = (path.parent / "runs.sqlite-wal").read_bytes()
    assert log
    path.write_bytes(left)

    server = serve(path)
    server.request("workflow_runs")
    listed = {run["runId"] for run in server.result("workflow_runs", {"limit": 200})["runs"]}

    assert listed == set(OTHERS)
    (aside,) = set_aside(path)
    assert (aside.parent / f"{aside.name}-wal").read_bytes() == log


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_a_salvage_that_is_killed_is_done_again(stored: Path, seconds: float) -> None:
    spoil_page(stored, 1)
    script = f"from workflowlookup.store.sqlite import SqliteJournal; SqliteJournal({str(stored)!r}).head('x')"
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    while not salvage.is_salvage_begun(str(stored)) and process.poll() is None:
        time.sleep(0.001)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()

    whole, damaged = after_damage(stored)

    assert (whole, damaged) == ({RUN, *OTHERS}, set())
    assert len(set_aside(stored)) == 1
    left = {name for name in os.listdir(stored.parent) if ".salvag" in name}
    assert left == set()


@pytest.mark.parametrize("step", ["rename", "sync_directory", "copy_readable", "_write"])
def test_a_salvage_that_fails_anywhere_is_done_again(stored: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    spoil_page(stored, 1)

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*(("os.rename", fail) if step == "rename" else (f"workflowlookup.store.salvage.{step}", fail)))
        journal = SqliteJournal(str(stored))
        for _ in range(2):
            with pytest.raises(StorageError, match="No space left on device"):
                journal.head(RUN)
        journal.close()

    whole, _ = after_damage(stored)

    assert whole == {RUN, *OTHERS}
    assert len(set_aside(stored)) == 1


@pytest.mark.parametrize("note", ['{"aside": "OUTSIDE", "reason": ""}', '{"aside": 1}', "{", "", '{"x":' * 5_000])
def test_the_note_of_a_salvage_cannot_move_the_file_elsewhere(stored: Path, tmp_path: Path, note: str) -> None:
    outside = tmp_path / "outside"
    note_path = stored.parent / f"{stored.name}.salvaging"
    note_path.write_text(note.replace("OUTSIDE", str(outside)))

    with pytest.raises(StorageError, match=r"does not say where the damaged journal is to be kept\. Delete it"):
        SqliteJournal(str(stored)).head(RUN)

    assert not outside.exists()
    note_path.unlink()
    assert after_damage(stored) == ({RUN, *OTHERS}, set())


def test_a_link_beside_a_damaged_journal_is_not_followed(stored: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (stored.parent / f"{stored.name}.salvaging.new").symlink_to(outside)
    spoil_page(stored, 1)

    assert after_damage(stored) == ({RUN, *OTHERS}, set())
    assert outside.read_text() == "mine"


def test_events_stored_by_another_process_are_not_lost(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteJournal, "_check", lambda _: "the test says so")
    acknowledged: list[str] = []
    stop = threading.Event()

    def write() -> None:
        writer = Runs(SqliteJournal(str(stored)))
        workflow = writer.get(RUN).workflow
        while not stop.is_set():
            with contextlib.suppress(StorageError):
                acknowledged.append(writer.start(workflow, {}, {}).id)
        writer.close()

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for count in (10, 20, 30):
        while len(acknowledged) < count:
            time.sleep(0.001)
        SqliteJournal(str(stored)).salvage()
    stop.set()
    for thread in threads:
        thread.join()

    journal = SqliteJournal(str(stored))
    assert [run_id for run_id in acknowledged if journal.head(run_id) is None] == []
    journal.close()


@pytest.mark.parametrize("application_id", [0, 1_234])
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_file_of_another_program_is_refused_and_not_touched(
    serve: Start, path: Path, application_id: int, mode: str
) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.commit()
    before = path.read_bytes()
    server = serve(path)

    for tool, arguments in (journey.start(), ("workflow_runs", {})):
        error = server.error(tool, arguments)
        assert error["code"] == -32006
        assert "it is a SQLite file of another program, and was not touched" in error["data"]["details"]
    server.stop()

    assert path.read_bytes() == before
    assert set_aside(path) == []


def test_a_file_of_another_program_with_tables_of_the_same_names_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 1234")
        for table in ("documents", "runs", "events"):
            connection.execute(f"CREATE TABLE {table} (id TEXT, hash TEXT, run TEXT)")
    before = path.read_bytes()

    with pytest.raises(StorageError, match="a SQLite file of another program"):
        SqliteJournal(str(path)).salvage()
    with pytest.raises(StorageError, match="a SQLite file of another program"):
        SqliteJournal(str(path)).query("SELECT 1")

    assert path.read_bytes() == before


def test_a_wrong_application_id_loses_no_run(stored: Path, serve: Start) -> None:
    with open(stored, "r+b") as file:
        file.seek(68)
        file.write(b"\xa5\xa5\xa5\xa5")

    listed = serve(stored).result("workflow_runs", {"limit": 100})

    assert {run["runId"] for run in listed["runs"]} == {RUN, *OTHERS}
    assert set_aside(stored) == []


@pytest.mark.parametrize("bits", [0xFF, 0x80, 0x04, 0x01])
@pytest.mark.parametrize("at", [19, 20, 35, 47, 59, 60, 63])
def test_a_bad_byte_in_the_header_loses_no_run(stored: Path, at: int, bits: int) -> None:
    with open(stored, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bits]))

    SqliteJournal(str(stored)).salvage()

    assert after_damage(stored) == ({RUN, *OTHERS}, set())


def test_the_reserved_bytes_of_a_page_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "reserved.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    with open(path, "r+b") as file:  # some builds of SQLite make files like this
        file.seek(20)
        file.write(bytes([12]))
        file.seek(105)
        file.write((PAGE - 12).to_bytes(2, "big"))
    rows = [(f"key-{number:03}", f"{number} " * 40 * number) for number in range(100)]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE texts (key TEXT, text TEXT)")
        connection.executemany("INSERT INTO texts VALUES (?, ?)", rows)
        connection.commit()

    with Pages(str(path)) as pages:
        assert sorted(row.values for row in pages.rows() if len(row.values) == 2) == rows
        assert pages.unreadable == 0


def test_journal_files_get_our_application_id_also_when_made_by_older_versions(path: Path, stored: Path) -> None:
    def application() -> bytes:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            result: bytes = connection.execute("PRAGMA application_id").fetchone()[0].to_bytes(4, "big")
            return result

    assert application() == b"wlku"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 0")

    assert folded(RUN, read(str(path))).state == "completed"
    assert application() == b"wlku"


def test_every_table_is_salvaged_or_listed_as_not_salvaged(stored: Path) -> None:
    with contextlib.closing(sqlite3.connect(stored)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table, shape in SHAPES.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            assert columns == list(shape.columns)

    assert tables == SHAPES.keys() | NOT_COPIED


@pytest.mark.parametrize("content", [b"my notes\n", bytes(range(256)) * 64], ids=["text", "bytes"])
@pytest.mark.parametrize("command", [["runs"], ["db", "salvage"], ["db", "check"], ["doctor"]], ids=" ".join)
def test_a_file_that_never_was_a_journal_is_refused_and_not_touched(
    tmp_path: Path, content: bytes, command: list[str]
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_bytes(content)

    ended = subprocess.run(
        [sys.executable, "-m", "workflowlookup", *command, "--journal", str(notes)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert "it is not a journal of workflowlookup, and was not touched" in " ".join(
        (ended.stdout + ended.stderr).split()
    )
    assert notes.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]
