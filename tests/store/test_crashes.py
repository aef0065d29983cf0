"""Crashes: the server is killed after every event, in the middle of every write, and at any time; nothing is lost.

All of it on the real process, whose journal is then read by another one. What power would do to a file (a write-ahead
log that ends anywhere, a last page that is torn, a checkpoint that was half done) is done to copies of it.
"""

import random
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support import journey
from support.client import Server, Start
from support.journey import RUN, TWO_WAYS, calls, folded, mostly_on, open_journal, read, refuse_half, without_times
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from support.narrowing import instance_of, not_none
from support.postgres import Postgres
from workflowlookup.runs.events import OutputAccepted, Record
from workflowlookup.runs.fold import fold
from workflowlookup.store.journal import RunQuery
from workflowlookup.store.sqlite import SqliteJournal

DOOMED = str(Path(__file__).with_name("doomed.py"))
WAL_HEADER, FRAME_HEADER, PAGE = 32, 24, 4096


def kill(server: Server) -> None:
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def answer_of(server: Server, tool: str, arguments: JsonObject) -> JsonObject | None:
    """What the server says; None when it died before it could."""
    try:
        return server.request(tool, arguments)
    except (AssertionError, BrokenPipeError):
        assert server.process.wait() == -signal.SIGKILL, server.log()
        return None


@pytest.fixture
def unbroken(serve: Start, tmp_path: Path) -> Callable[..., tuple[list[Json], list[Record]]]:
    """What the server answers when nothing happens to it, call by call, and the journal that this leaves."""

    def journey_of(end: str) -> tuple[list[Json], list[Record]]:
        journal_url = str(tmp_path / "unbroken" / "runs.sqlite")
        server = serve(journal_url)
        answers = [server.result(*call) for call in calls(end)]
        server.stop()
        return answers, read(journal_url)

    return journey_of


@mostly_on("postgres")
@pytest.mark.parametrize("end", TWO_WAYS)
def test_a_server_killed_after_every_answer_reaches_the_same_result(
    serve: Start, journal_url: str, unbroken: Callable[..., tuple[list[Json], list[Record]]], end: str
) -> None:
    expected, records = unbroken(end)

    answers = []
    for call in calls(end):
        server = serve(journal_url)
        answers.append(server.result(*call))
        kill(server)

    assert answers == expected
    assert without_times(read(journal_url)) == without_times(records)
    assert folded(RUN, read(journal_url)).state == end


def rests(records: list[Record]) -> list[int]:
    """How many records there are whenever the run rests."""
    return [n for n in range(1, len(records) + 1) if fold(RUN, records[:n]).state != "running"]


@mostly_on("sqlite")
@pytest.mark.parametrize("end", TWO_WAYS if journey.IS_SOAK else ["completed"])
def test_a_server_killed_within_every_write_stores_complete_calls_and_loses_none(
    serve: Start, journal_url: str, unbroken: Callable[..., tuple[list[Json], list[Record]]], end: str
) -> None:
    expected, records = unbroken(end)
    whole = {0, *rests(records)}
    answers, deaths = [], 0

    for call in calls(end):
        for touch in range(1, 100, 1 if journey.IS_SOAK else 3):
            server = serve(journal_url, version=None, program=(DOOMED, str(touch)))
            server.initialize()
            reply = answer_of(server, *call)
            server.stop()
            stored = read(journal_url)
            assert without_times(stored) == without_times(records[: len(stored)])
            assert len(stored) in whole
            if reply is not None:
                break
            deaths += 1
        answers.append(not_none(reply)["result"])

    assert answers == expected
    assert without_times(read(journal_url)) == without_times(records)
    assert deaths >= 2 * len(answers), "each call died before its write, and within it"


# ── at any time ─────────────────────────────────────────────────────────────────────────────────────────────────

SUBMISSIONS, PER_RUN = (1_000, 50) if journey.IS_SOAK else (30, 10)


@mostly_on("postgres")
def test_whenever_a_server_is_killed_no_submission_is_lost_and_none_counts_twice(
    serve: Start, journal_url: str, library: Path
) -> None:
    write(library, document(loop("rounds", [step("turn")], type="for", count=PER_RUN, maxIterations=PER_RUN)))
    chance = random.Random(4)
    acknowledged, deaths, server = {}, 0, serve(journal_url)

    for number in range(SUBMISSIONS):
        run_id, turn = f"run-{number // PER_RUN}", number % PER_RUN + 1
        call = journey.submit(f"turn@{turn}", f"output {number}", run_id)
        reply = None
        while reply is None:
            if server.process.poll() is not None:
                deaths += 1
                server.stop()
                server = serve(journal_url)
            server.request(*journey.start(run_id, "sample-workflow"))  # once the first call is over, a call is quick
            is_doomed = chance.random() < 0.3
            killer = threading.Timer(chance.uniform(0, 0.004), server.process.kill)
            if is_doomed:
                killer.start()
            reply = answer_of(server, *call)
            if is_doomed:
                killer.join()
                server.process.wait()
        acknowledged[run_id, turn] = reply["result"]["progress"]["done"]

    assert set(acknowledged.values()) == set(range(1, PER_RUN + 1))
    assert deaths > SUBMISSIONS // 10
    outputs = []
    for number in range(SUBMISSIONS // PER_RUN):
        records = read(journal_url, f"run-{number}")
        assert folded(f"run-{number}", records).state == "completed"
        outputs += [r.event.output for r in records if isinstance(r.event, OutputAccepted)]
    assert outputs == [f"output {number}" for number in range(SUBMISSIONS)]


def test_a_database_that_crashes_under_the_server_loses_nothing(
    serve: Start, database: str, postgres: Postgres, library: Path
) -> None:
    write(library, document(loop("rounds", [step("turn")], type="for", count=40, maxIterations=40)))
    server = serve(database)
    server.result(*journey.start(workflow_id="sample-workflow"))
    refusals = set()
    crash = threading.Thread(target=postgres.restart)
    crash.start()

    for turn in range(1, 41):
        if turn == 20:
            crash.join()
            crash = threading.Thread(target=postgres.restart)
            crash.start()
        is_back = False
        while "result" not in (reply := server.request(*journey.submit(f"turn@{turn}", f"output {turn}"))):
            assert not is_back, "it was refused when the database was there"
            refusals.add((reply["error"]["code"], reply["error"]["data"]["details"][:20]))
            is_back = not crash.is_alive()
    crash.join()

    assert refusals <= {(-32006, "The journal of runs,")}
    outputs = [r.event.output for r in read(database) if isinstance(r.event, OutputAccepted)]
    assert outputs == [f"output {turn}" for turn in range(1, 41)]


# ── what is left of a file ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def left(serve: Start, tmp_path: Path) -> tuple[Path, list[Record]]:
    """A journal of SQLite as a killed server leaves it, with its write-ahead log; and its records."""
    journal_url = tmp_path / "left" / "runs.sqlite"
    server = serve(journal_url)
    for call in calls("completed"):
        server.result(*call)
    kill(server)
    backup = tmp_path / "kept"
    shutil.copytree(journal_url.parent, backup)  # reading writes the log back into the file
    return backup / "runs.sqlite", read(str(journal_url))


def copy(
    source: Path, tmp_path: Path, name: str | int, *, database: bytes | None = None, log: bytes | None = None
) -> str:
    """A copy of the journal, with another content of the file or of the log."""
    directory = tmp_path / f"copy-{name}"
    directory.mkdir()
    journal_url = directory / "runs.sqlite"
    journal_url.write_bytes(source.read_bytes() if database is None else database)
    Path(f"{journal_url}-wal").write_bytes(Path(f"{source}-wal").read_bytes() if log is None else log)
    return str(journal_url)


def surviving(journal_url: str) -> int:
    """How many records there are; they must be whole calls."""
    journal = open_journal(journal_url)
    try:
        records, lines = journal.read(RUN), journal.summaries(RunQuery())
        assert instance_of(SqliteJournal, journal).query("PRAGMA integrity_check") == [("ok",)]
    finally:
        journal.close()
    refuse_half(RUN, records, lines)
    return len(records)


def test_a_log_truncated_anywhere_ends_after_a_complete_call(left: tuple[Path, list[Record]], tmp_path: Path) -> None:
    source, records = left
    log = Path(f"{source}-wal").read_bytes()
    frame = FRAME_HEADER + PAGE
    frames = (len(log) - WAL_HEADER) // frame
    assert frames > 30, "the calls are all in the log"
    ends = [0, 1, WAL_HEADER - 1]
    for number in range(frames):
        begin = WAL_HEADER + number * frame
        ends += [begin, begin + FRAME_HEADER // 2, begin + FRAME_HEADER, begin + frame // 2, begin + frame - 1]
    ends.append(len(log))

    counts = [surviving(copy(source, tmp_path, end, log=log[:end])) for end in ends]

    assert counts == sorted(counts), "the more of the log is left, the more of the run"
    assert set(counts) == {0, *rests(records)}


@pytest.mark.parametrize("garbage", [b"\0", b"\xff"], ids=["zeros", "ones"])
def test_a_torn_last_page_loses_at_most_the_unfinished_call(
    left: tuple[Path, list[Record]], tmp_path: Path, garbage: bytes
) -> None:
    source, records = left
    log = Path(f"{source}-wal").read_bytes()
    frame = FRAME_HEADER + PAGE
    ends = range(WAL_HEADER + frame, len(log) + 1, frame)
    whole = [surviving(copy(source, tmp_path, f"whole-{end}", log=log[:end])) for end in ends]

    torn = [surviving(copy(source, tmp_path, f"torn-{end}", log=log[: end - 99] + garbage * 99)) for end in ends]

    assert all(least <= count <= most for least, count, most in zip([0, *whole], torn, whole, strict=False))
    assert set(torn) <= {0, *rests(records)}


def test_a_checkpoint_that_was_half_done_loses_nothing(left: tuple[Path, list[Record]], tmp_path: Path) -> None:
    source, records = left
    before = source.read_bytes()
    done = tmp_path / "done"
    shutil.copytree(source.parent, done)
    journal = open_journal(str(done / "runs.sqlite"))
    instance_of(SqliteJournal, journal).query("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    after = (done / "runs.sqlite").read_bytes()
    pages = len(after) // PAGE
    padded = before.ljust(len(after), b"\0")
    chance = random.Random(4)

    for number in range(2 * pages):
        written = set(chance.sample(range(pages), number // 2))
        mixed = b"".join(
            (after if page in written else padded)[page * PAGE : (page + 1) * PAGE] for page in range(pages)
        )
        torn = mixed[: chance.randrange(len(before), len(mixed) + 1)]
        for name, database in {"mixed": mixed, "torn": torn}.items():
            assert surviving(copy(source, tmp_path, f"{name}-{number}", database=database)) == len(records)
