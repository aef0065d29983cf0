"""What the engine counts on in DBOS, and what it does about the rest: each is a promise that an update may break."""

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import dbos
import pytest

from workflowlookup.errors import StorageError
from workflowlookup.execution import engine as engine_module
from workflowlookup.execution.engine import Engine, beside, sqlite_engine
from workflowlookup.execution.leases import PATIENCE, FileLease, PostgresLease


async def three_steps(run_id, step):
    return str(int(step) + 1) if int(step) < 3 else ""


class Ends:
    """A driver that says when a run is through."""

    def __init__(self):
        self.through = {}

    async def drive(self, run_id, step, do):
        while step:
            step = await do(step)
        self.through.setdefault(run_id, asyncio.Event()).set()

    async def wait(self, run_id):
        await asyncio.wait_for(self.through.setdefault(run_id, asyncio.Event()).wait(), 30)


def with_engine(place, conversation, act=three_steps):
    async def held():
        ends = Ends()
        engine = Engine(place, ends.drive, act, None)
        await engine.open()
        try:
            return await asyncio.wait_for(conversation(engine, ends), 60)
        finally:
            await engine.close()

    return asyncio.run(held())


def test_starting_twice_is_starting_once(place):
    acted, go_on = [], asyncio.Event()

    async def act(run_id, step):
        acted.append(step)
        await go_on.wait()
        return await three_steps(run_id, step)

    async def conversation(engine, ends):
        started = await asyncio.gather(*(engine.start("run", 7, "1") for _ in range(5)))
        go_on.set()
        await ends.wait("run")
        return started

    assert with_engine(place, conversation, act).count(True) == 1
    assert acted == ["1", "2", "3"]


def test_the_collector_passes_over_what_was_loaded_for_the_engine(tmp_path):
    async def conversation(engine, ends):
        del engine, ends
        return [one is dbos.DBOS for one in gc.get_objects()], gc.get_freeze_count()

    looked_through, spared = with_engine(str(tmp_path / "runs.sqlite"), conversation)

    assert not any(looked_through)
    assert spared > 10_000


def test_the_file_is_safe_quick_and_private(tmp_path):
    path = tmp_path / "engine.sqlite"
    engine = sqlite_engine(str(path))
    with engine.connect() as connection:
        asked = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        said = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in asked]
        now = connection.exec_driver_sql("SELECT unixepoch('subsec')").scalar()
    engine.dispose()

    assert said == ["wal", 2, 30_000, 1]
    assert now is not None  # also where SQLite is older than 3.42
    assert path.stat().st_mode & 0o777 == 0o600


MAKE_AND_DIE = """
import asyncio, os, sys
import sqlalchemy
from workflowlookup.execution.engine import Engine

left = int(sys.argv[2])

@sqlalchemy.event.listens_for(sqlalchemy.Engine, "after_cursor_execute")
def die(*_):
    global left
    left -= 1
    if not left:
        os._exit(9)

asyncio.run(Engine(sys.argv[1], None, None, None).open())
"""


def test_a_process_that_is_killed_while_it_makes_the_tables_keeps_nobody_from_making_them(place):
    for statements in (4, 6, 9, 14, 30):
        died = subprocess.run([sys.executable, "-c", MAKE_AND_DIE, place, str(statements)], check=False, timeout=60)
        assert died.returncode == 9

    async def conversation(engine, ends):
        await engine.start("run", 7, "1")
        await ends.wait("run")

    with_engine(place, conversation)


def test_nothing_in_the_database_is_pickled_and_the_version_is_fixed(sqlite_place):
    async def conversation(engine, ends):
        await engine.start("run", 1, "1")
        await ends.wait("run")

    with_engine(sqlite_place, conversation)
    with closing(sqlite3.connect(beside(sqlite_place))) as connection:
        rows = connection.execute("SELECT application_version, serialization FROM workflow_status").fetchall()
        everything = "\n".join(connection.iterdump())

    assert rows == [("interp-1", "portable_json")]
    assert "gASV" not in everything  # how a pickle begins


def test_an_engine_lives_beside_its_journal():
    assert beside("/data/runs.sqlite") == "/data/runs.engine.sqlite"


def test_what_is_done_is_swept_away(place):
    async def conversation(engine, ends):
        for number in range(3):
            await engine.start(f"run{number}", 1, "1")
            await ends.wait(f"run{number}")
        while await engine.driven():  # noqa: ASYNC110 - it says so a moment later
            await asyncio.sleep(0.01)
        return await engine.sweep(3600), await engine.sweep(-60)

    assert with_engine(place, conversation) == (0, 3)


def test_a_place_that_cannot_be_used_is_told(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("not a directory")

    with pytest.raises(StorageError, match=r"The engine that carries out calls, .*, cannot be used: "):
        with_engine(str(blocked / "runs.sqlite"), None)


def test_there_is_the_way_to_take_over_that_is_used():
    assert callable(dbos.DBOS._recover_pending_workflows)
    assert isinstance(engine_module.REAP_SECONDS, float)


def test_nothing_is_printed_and_nothing_is_left(tmp_path):
    script = Path(__file__).with_name("quiet.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(tmp_path / "runs.sqlite")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(script.parent.parent)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ── signs of life ──


def test_a_lock_in_a_file_is_held_for_as_long_as_its_process_lives(tmp_path):
    mine, other = FileLease(str(tmp_path)), FileLease(str(tmp_path))
    mine.hold()
    other.hold()
    assert not mine.is_dead(other.id)
    other.release()
    assert mine.is_dead(other.id)
    script = (
        "import os, sys\nfrom workflowlookup.execution.leases import FileLease\n"
        f"lease = FileLease({str(tmp_path)!r})\nlease.hold()\nprint(lease.id, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout.strip()
    assert mine.is_dead(killed)
    mine.bury(killed)
    mine.release()
    assert os.listdir(tmp_path) == []


def test_a_lock_in_postgres_is_believed_to_be_free_only_after_a_while(database):
    mine, other = PostgresLease(database), PostgresLease(database)
    mine.hold()
    other.hold()
    assert not mine.is_dead(other.id)
    other.release()
    asked = 1
    while not mine.is_dead(other.id):
        asked += 1
        assert asked < 1_000
    assert asked >= PATIENCE
    mine.release()


def test_a_lock_that_was_lost_with_the_database_is_taken_again(database, postgres):
    mine, other = PostgresLease(database), PostgresLease(database)
    mine.hold()
    other.hold()
    postgres.restart()
    assert not mine.hold()  # it had been lost
    assert not mine.is_dead(other.id)
    other.hold()
    assert not any(mine.is_dead(other.id) for _ in range(PATIENCE + 1))
    mine.release()
    other.release()


def test_only_one_engine_at_a_time_is_opened(tmp_path, database):
    for make in (lambda: FileLease(str(tmp_path)), lambda: PostgresLease(database)):
        mine, other = make(), make()
        mine.hold()
        other.hold()
        mine.lock()
        waiting = threading.Thread(target=other.lock)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        mine.unlock()
        waiting.join(20)
        assert not waiting.is_alive()
        other.unlock()
        mine.release()
        other.release()
