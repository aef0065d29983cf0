"""Storage errors: a full disk, missing permissions, damage. Each has a remedy, and nothing is lost."""

import contextlib
import os
import random
import resource
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support import journey
from support.client import Server, Start
from support.damage import PAGE, set_aside
from support.journey import RUN, calls, folded, read
from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.narrowing import instance_of
from workflowlookup.errors import RunDamaged, RunNotFound, RunStateError, StorageError
from workflowlookup.language.document.building import build
from workflowlookup.runs.fold import fold
from workflowlookup.store.journal import RunQuery
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "runs.sqlite"


def refusal(server: Server, tool: str, arguments: JsonObject) -> Json:
    """What a refused call is told to do; by either road the same."""
    error = server.error(tool, arguments)
    assert error["code"] == -32006, error
    reply = server.call(tool, arguments)
    assert reply["isError"] is True
    assert error["data"]["details"] in reply["content"][0]["text"]
    return error["data"]["details"]


def status(server: Server) -> Json:
    return server.result("workflow_status", {"runId": RUN})


def test_without_workflow_tools_nothing_is_stored_before_the_first_run(serve: Start, path: Path) -> None:
    server = serve(path, WORKFLOWLOOKUP_WORKFLOW_TOOLS="false")  # else the names of tools are kept in the journal
    server.result("tools/list")
    server.result("workflow_list")
    server.result("workflow_next", {"workflowId": "everything", "completedSteps": []})

    assert not path.parent.exists()


# ── no room ─────────────────────────────────────────────────────────────────────────────────────────────────────


def leave_room(server: Server, size: int) -> None:
    """Let the server write no file beyond a size; -1 lifts that."""
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limits of another process can be set on Linux only")
@pytest.mark.parametrize("room", [0, 1_000, None], ids=["none", "some", "what it has"])
def test_a_full_disk_is_reported_and_the_run_continues_when_there_is_room(
    serve: Start, path: Path, room: int | None
) -> None:
    server = serve(path)
    answers = calls("completed")
    for call in answers[:3]:
        server.result(*call)
    before = status(server)

    leave_room(server, os.path.getsize(f"{path}-wal") if room is None else room)
    for call in (answers[3], answers[3], journey.start("another"), ("workflow_cancel", {"runId": RUN})):
        assert refusal(server, *call).endswith("has room; the run goes on from where it is.")
    assert status(server) == before, "what is stored can be read"
    assert server.result("workflow_list")["workflows"]
    leave_room(server, -1)
    for call in answers[3:]:
        server.result(*call)

    assert status(server)["state"] == "completed"
    server.stop()
    assert folded(RUN, read(str(path))).state == "completed"
    assert read(str(path), "another") == []


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limits of another process can be set on Linux only")
def test_a_disk_full_at_the_start_is_reported_and_the_journal_created_when_there_is_room(
    serve: Start, path: Path
) -> None:
    server = serve(path)
    leave_room(server, 0)
    for _ in range(2):
        refusal(server, *journey.start())
    leave_room(server, -1)

    assert server.result(*journey.start())["state"] == "waiting"


def test_a_database_that_may_not_grow_is_full(path: Path) -> None:
    runs = Runs(SqliteJournal(str(path)))
    workflow = build(document())
    run = runs.start(workflow, {}, {})
    (pages,) = instance_of(SqliteJournal, runs.journal).query("PRAGMA page_count")[0]
    instance_of(SqliteJournal, runs.journal).query(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match=r"full\. Make room on its disk; the run goes on from where it is\."):
        runs.submit(run.id, "first-step", "long " * 10_000, {})
    assert runs.get(run.id) == run
    instance_of(SqliteJournal, runs.journal).query("PRAGMA max_page_count = 1000000")

    assert runs.submit(run.id, "first-step", "long " * 10_000, {}).state == "completed"
    runs.close()


# ── no right to write ───────────────────────────────────────────────────────────────────────────────────────────


BOUND = str(Path(__file__).parent.parent / "bound.py")
as_bound = pytest.mark.skipif(
    os.geteuid() == 0 and sys.platform != "linux", reason="root is not bound by permissions, and cannot be here"
)


@as_bound
def test_a_read_only_file_is_reported_and_the_run_continues_when_it_is_writable(serve: Start, path: Path) -> None:
    server = serve(path, program=(BOUND,))
    for call in calls("completed")[:3]:
        server.result(*call)
    server.close_input()
    server.wait()
    os.chmod(path, 0o400)

    server = serve(path, program=(BOUND,))
    assert "Make the file and its directory writable" in refusal(server, *calls("completed")[3])
    os.chmod(path, 0o600)

    assert server.result(*calls("completed")[3])["step"]["id"] == "review@2"


@as_bound
def test_a_read_only_directory_is_reported_and_the_run_continues_when_it_is_writable(serve: Start, path: Path) -> None:
    path.parent.mkdir(mode=0o500)
    server = serve(path, program=(BOUND,))
    assert "that you may write to it" in refusal(server, *journey.start())
    assert server.result("workflow_list")["workflows"]
    os.chmod(path.parent, 0o700)

    assert server.result(*journey.start())["state"] == "waiting"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stored(serve: Start, path: Path) -> bytes:
    """The content of a journal that a server left."""
    server = serve(path)
    for call in calls("completed"):
        server.result(*call)
    for number in range(20):
        server.result(*journey.start(f"other-{number}", filler="x" * 1_000))
    server.close_input()
    server.wait()
    return path.read_bytes()


def spoilt(content: bytes, how: str) -> bytes:
    garbage = random.Random(4).randbytes(len(content))
    return {
        "no database": b"garbage" * 1_000,
        "a garbage header": garbage[:100] + content[100:],
        "garbage in the middle": content[:PAGE] + garbage[PAGE : 12 * PAGE] + content[12 * PAGE :],
        "garbage at the end": content[: 3 * PAGE] + garbage[3 * PAGE :],
        "cut after a page": content[:PAGE],
        "cut within a page": content[: len(content) // 2 + 7],
        "cut within the header": content[:50],
    }[how]


DAMAGE = [
    "no database",
    "a garbage header",
    "garbage in the middle",
    "garbage at the end",
    "cut after a page",
    "cut within a page",
    "cut within the header",
]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_journal_is_renamed_and_later_errors_name_it(
    serve: Start, path: Path, stored: bytes, how: str
) -> None:
    path.write_bytes(spoilt(stored, how))
    server = serve(path)

    reply = server.request("workflow_runs")  # the server's own look may have been faster
    (aside,) = set_aside(path)
    if "error" in reply:
        assert reply["error"]["code"] == -32006
        assert f"is kept as {aside}. " in reply["error"]["data"]["details"]
        assert reply["error"]["data"]["details"].endswith(" Try again.")
    assert aside.read_bytes() == spoilt(stored, how)
    assert server.result(*journey.start("new"))["state"] == "waiting"
    for _ in range(2):
        assert f"set aside as {aside}: " in server.result("workflow_runs")["next"]
        assert f"set aside as {aside}: " in server.error("workflow_status", {"runId": "none"})["data"]["details"]
        assert f"set aside as {aside}: " in server.call("workflow_status", {"runId": "none"})["content"][0]["text"]
    server.close_input()
    server.wait()

    assert str(aside) in server.log()
    assert set_aside(path) == [aside]
    assert folded("new", read(str(path), "new")).state == "waiting"


def test_every_damaged_journal_is_kept_however_fast_they_come(path: Path, stored: bytes) -> None:
    runs = Runs(SqliteJournal(str(path)))
    for number in range(5):
        path.write_bytes(b"garbage %d " % number * 1_000)
        with pytest.raises(StorageError):
            runs.summaries(RunQuery())
    runs.close()

    assert {aside.read_bytes()[:9] for aside in set_aside(path)} == {b"garbage %d" % number for number in range(5)}


def test_listing_runs_at_work_also_sets_a_damaged_journal_aside(path: Path, stored: bytes) -> None:
    path.write_bytes(spoilt(stored, "a garbage header"))
    runs = Runs(SqliteJournal(str(path)))
    with pytest.raises(StorageError):
        runs.server_work.at_work()

    assert (runs.server_work.at_work(), runs.server_work.runs_to_stop()) == ([], [])
    (aside,) = set_aside(path)
    with pytest.raises(RunNotFound, match=f"set aside as {aside}"):
        runs.get("none")
    runs.close()


def test_servers_that_meet_a_damaged_journal_at_once_set_it_aside_once(serve: Start, path: Path, stored: bytes) -> None:
    path.write_bytes(spoilt(stored, "a garbage header"))
    servers = [serve(path) for _ in range(4)]
    replies = {}
    together = threading.Barrier(len(servers))

    def begin(number: int) -> None:
        together.wait()
        replies[number] = [servers[number].request(*journey.start(f"run-{number}")) for _ in range(2)]

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(len(servers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (aside,) = set_aside(path)
    assert aside.read_bytes() == spoilt(stored, "a garbage header")
    refused = [first["error"] for first, _ in replies.values() if "error" in first]
    assert {error["code"] for error in refused} <= {-32006}
    for server in servers:
        listed = server.result("workflow_runs", {"limit": 200})["runs"]
        assert {run["runId"] for run in listed} > {f"run-{number}" for number in replies}, "all are in the new one"


def test_a_directory_at_the_journal_path_is_reported_and_not_changed(serve: Start, path: Path) -> None:
    (path / "precious").mkdir(parents=True)
    server = serve(path)

    assert str(path) in refusal(server, *journey.start())

    assert (path / "precious").is_dir()
    assert set_aside(path) == []


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_journal_of_a_newer_version_is_not_touched(serve: Start, path: Path, stored: bytes, mode: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.execute("UPDATE levels SET least = 98")
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    server = serve(path)

    for call in (calls("completed")[0], ("workflow_runs", {})):
        assert refusal(server, *call).endswith("it was written by a newer version of workflowlookup. Update this one.")
    server.stop()

    assert path.read_bytes() == before
    assert set_aside(path) == []


def damage(content: bytes, chance: random.Random) -> bytes:
    """A few bytes, a stretch, a page or the end are not what they were."""
    data, at = bytearray(content), chance.randrange(len(content))
    match chance.choice(["bytes", "stretch", "page", "end"]):
        case "bytes":
            for _ in range(chance.randint(1, 20)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        case "stretch":
            data[at : at + 300] = chance.randbytes(len(data[at : at + 300]))
        case "page":
            page = at // PAGE * PAGE
            data[page : page + PAGE] = chance.choice([bytes(PAGE), b"\xff" * PAGE, chance.randbytes(PAGE)])
        case "end":
            del data[at:]
    return bytes(data)


@pytest.mark.parametrize("column", ["sequence", "started"])
def test_a_run_with_a_damaged_summary_is_refused_by_name(tmp_path: Path, stored: bytes, column: str) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(stored)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE runs SET {column} = 'garbage' WHERE id = ?", (RUN,))
    runs = Runs(SqliteJournal(str(path)))

    with pytest.raises(RunDamaged, match=r"The summary of run .* is damaged"):
        runs.get(RUN)

    runs.close()


@pytest.mark.parametrize("moment", [99_999_999_999_999_999, 1 << 62, -(1 << 62), "abc"])
@pytest.mark.parametrize("table", ["runs SET started = ?, updated = ?", "events SET time = coalesce(?, ?)"])
def test_a_time_out_of_range_is_shown_or_refused_without_an_internal_error(
    start: Start, library: Path, table: str, moment: int | str
) -> None:
    write(library, document(step("only-step"), step("later")))
    server = start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(library / "runs.sqlite"))
    run = server.result("workflow_start", {"workflowId": "sample-workflow"})["runId"]
    with contextlib.closing(sqlite3.connect(library / "runs.sqlite", isolation_level=None)) as connection:
        connection.execute(f"UPDATE {table}", (moment, moment))
    server.stop()
    server = start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(library / "runs.sqlite"))

    replies = [
        server.request("workflow_status", {"runId": run}),
        server.request("workflow_submit", {"runId": run, "stepId": "only-step", "output": "done"}),
        server.request("workflow_runs", {}),
    ]

    assert [reply["error"]["code"] for reply in replies if "error" in reply].count(-32603) == 0
    assert [line["runId"] for line in replies[-1]["result"]["runs"]] == [run]


def test_a_run_whose_summary_contradicts_its_events_is_refused_as_damaged(tmp_path: Path, stored: bytes) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(stored)
    runs = Runs(SqliteJournal(str(path)))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET sequence = 1 WHERE id = ?", ("other-3",))

    with pytest.raises(RunDamaged, match=r"The summary of run .* does not match its events"):
        runs.cancel("other-3", "no more")

    runs.close()


def test_a_run_whose_records_end_in_the_middle_of_a_call_is_refused(tmp_path: Path, stored: bytes) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(stored)
    journal = SqliteJournal(str(path))
    records = journal.read(RUN)
    cut = next(count for count in range(1, len(records)) if not fold(RUN, records[:count]).rests)
    with journal.writing() as transaction:
        transaction.execute("DELETE FROM events WHERE run = ? AND sequence > ?", (RUN, cut))
        head = records[cut - 1].hash
        transaction.execute("UPDATE runs SET sequence = ?, hashed = ?, head = ? WHERE id = ?", (cut, cut, head, RUN))
    runs = Runs(journal)

    with pytest.raises(RunDamaged, match=f"The records of run '{RUN}' end in the middle of a call"):
        runs.submit(RUN, "review@2", "looks bad", {})

    runs.close()


def test_with_any_damage_every_call_is_answered_or_refused_by_name(tmp_path: Path, stored: bytes) -> None:
    workflow = build(document(step("one"), step("two")))
    for seed in range(3_000 if journey.IS_SOAK else 60):
        path = tmp_path / str(seed) / "runs.sqlite"
        path.parent.mkdir()
        path.write_bytes(damage(stored, random.Random(seed)))
        runs = Runs(SqliteJournal(str(path)))
        refused = []
        calls: list[Callable[[Runs], object]] = [
            lambda runs: runs.get(RUN),
            lambda runs: runs.summaries(RunQuery()),
            lambda runs: runs.submit("other-3", "plan", "a long plan", {}),
            lambda runs: runs.submit(RUN, "review@2", "looks bad", {}),
            lambda runs: runs.cancel("other-4"),
            lambda runs: runs.start(workflow, {}, {}, run_id="new"),
        ]
        for call in calls:
            try:
                call(runs)
            except (StorageError, RunStateError) as refusal:
                refused.append(refusal)
        runs.close()
        assert len(set_aside(path)) <= len(refused)
