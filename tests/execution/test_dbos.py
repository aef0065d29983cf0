"""The DBOS engine, and the behaviour of DBOS that it relies on, which an update may break."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import dbos
import psycopg
import pytest

from replicas.fleet import DatabaseLink
from support.narrowing import not_none
from support.postgres import Postgres
from workflowlookup.execution import dbos as dbos_engine
from workflowlookup.execution import leases as leases_module
from workflowlookup.execution.dbos import DbosEngine, tables_version
from workflowlookup.execution.engine import ConcurrencyLimits, Slot
from workflowlookup.execution.leases import FREE_CHECKS, Lease

T = TypeVar("T")


class Ends:
    """Drivers that say when they ended."""

    def __init__(self) -> None:
        self.through: dict[str, asyncio.Event] = {}

    async def drive(self, run_id: str, slot: Slot) -> None:
        self.through.setdefault(run_id, asyncio.Event()).set()

    async def wait(self, run_id: str) -> None:
        await asyncio.wait_for(self.through.setdefault(run_id, asyncio.Event()).wait(), 30)


def with_engine(url: str, conversation: Callable[[DbosEngine, Ends], Awaitable[T]]) -> T:
    async def held() -> T:
        ends = Ends()
        engine = DbosEngine(url, ends.drive, ConcurrencyLimits(4))
        await engine.open()
        try:
            return await asyncio.wait_for(conversation(engine, ends), 60)
        finally:
            await engine.close()

    return asyncio.run(held())


async def drive_one(engine: DbosEngine, ends: Ends, run_id: str = "run") -> None:
    await engine.start(run_id, 7)
    await ends.wait(run_id)


def test_the_garbage_collector_ignores_what_was_loaded_for_the_engine(database: str) -> None:
    async def conversation(engine: DbosEngine, ends: Ends) -> tuple[list[bool], int]:
        del engine, ends
        return [one is dbos.DBOS for one in gc.get_objects()], gc.get_freeze_count()

    looked_through, spared = with_engine(database, conversation)

    assert not any(looked_through)
    assert spared > 10_000


MAKE_AND_DIE = """
import asyncio, os, sys
import sqlalchemy
from workflowlookup.execution.dbos import DbosEngine
from workflowlookup.execution.engine import ConcurrencyLimits

left = int(sys.argv[2])

@sqlalchemy.event.listens_for(sqlalchemy.Engine, "after_cursor_execute")
def die(*_):
    global left
    left -= 1
    if not left:
        os._exit(9)

asyncio.run(DbosEngine(sys.argv[1], None, ConcurrencyLimits(1)).open())
"""


def test_a_process_killed_while_creating_tables_does_not_block_others(database: str) -> None:
    for statements in (4, 6, 9, 14, 30):
        died = subprocess.run([sys.executable, "-c", MAKE_AND_DIE, database, str(statements)], check=False, timeout=60)
        assert died.returncode == 9

    with_engine(database, drive_one)

    assert tables_version(database)


def test_nothing_in_the_database_is_pickled_and_the_version_is_fixed(database: str) -> None:
    with_engine(database, drive_one)
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT application_version, serialization, queue_name FROM dbos.workflow_status"
        ).fetchall()
        inputs = connection.execute("SELECT inputs FROM dbos.workflow_input").fetchall()

    assert rows == [("interp-2", "portable_json", "runs")]
    assert not any("gASV" in str(row) for row in inputs)  # how a pickle begins


def test_finished_workflows_are_deleted_from_the_queue(database: str) -> None:
    async def conversation(engine: DbosEngine, ends: Ends) -> tuple[int, int]:
        runs = [f"run{number}" for number in range(3)]
        for run in runs:
            await engine.start(run, 1)
            await ends.wait(run)
        while await engine.driven(runs):  # noqa: ASYNC110 - it says so a moment later
            await asyncio.sleep(0.01)
        return await engine.sweep(3600), await engine.sweep(-60)

    assert with_engine(database, conversation) == (0, 3)


def test_the_total_limit_is_the_last_one_set_by_any_replica(database: str) -> None:
    async def conversation(engine: DbosEngine, _: object) -> tuple[int | None, int | None]:
        await engine.set_limits(ConcurrencyLimits(7, 5))
        queue = await dbos.DBOS.retrieve_queue_async("runs")
        return await not_none(queue).get_worker_concurrency_async(), await not_none(
            queue
        ).get_global_concurrency_async()

    assert with_engine(database, conversation) == (5, 5)  # no replica may have more than all


def test_drivers_of_an_older_version_are_not_waited_for_when_their_process_is_dead(database: str) -> None:
    """They are cancelled, so that the journal's word counts: the run is due, and nobody drives it."""

    async def conversation(engine: DbosEngine, ends: Ends) -> set[str]:
        await drive_one(engine, ends)
        with psycopg.connect(database, autocommit=True) as connection:
            pending = "SELECT FROM dbos.workflow_status WHERE status = 'PENDING'"
            while connection.execute(pending).fetchone() is not None:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)  # DBOS notes a moment later that the driver has ended
            connection.execute(
                "UPDATE dbos.workflow_status SET status = 'PENDING', application_version = 'interp-1', "
                "executor_id = 'engine-00000001'"
            )
        assert await engine.driven(["run"]) == {"run"}
        for _ in range(FREE_CHECKS):
            await engine.take_over()
        return await engine.driven(["run"])

    assert with_engine(database, conversation) == set()


def test_no_private_part_of_dbos_is_used() -> None:
    from workflowlookup.execution import dbos as module

    with open(module.__file__, encoding="utf-8") as source:
        text = source.read()
    assert "SLF001" not in text
    assert "__name__.endswith" not in text
    assert "dbos._" not in text


# ── leases ──


@pytest.fixture
def leases(database: str) -> Iterator[list[leases_module.Lease]]:
    made = [Lease(database), Lease(database)]
    for lease in made:
        lease.hold()
    yield made
    for lease in made:
        lease.release()


def test_a_lease_counts_as_free_only_after_several_checks(leases: list[leases_module.Lease]) -> None:
    mine, other = leases
    assert not mine.is_dead(other.id)
    other.release()
    polls = 1
    while not mine.is_dead(other.id):
        polls += 1
        assert polls < 1_000
    assert polls >= FREE_CHECKS


def test_a_lease_that_was_lost_with_the_database_is_taken_again(
    leases: list[leases_module.Lease], postgres: Postgres
) -> None:
    mine, other = leases
    postgres.restart()
    assert not mine.hold()  # it had been lost
    assert mine.hold()
    assert not mine.is_dead(other.id)
    other.hold()
    assert not any(mine.is_dead(other.id) for _ in range(FREE_CHECKS + 1))


def test_the_lease_of_a_dead_replica_is_taken_by_one_at_a_time(
    leases: list[leases_module.Lease], database: str
) -> None:
    mine, other = leases
    assert not mine.acquire(other.id)
    third = Lease(database)
    third.hold()
    other.release()
    while not mine.acquire(other.id):
        pass

    assert not third.acquire(other.id)
    mine.give_back(other.id)
    assert third.acquire(other.id)
    third.release()


def test_only_one_engine_at_a_time_is_opened(leases: list[leases_module.Lease]) -> None:
    mine, other = leases
    mine.lock()
    waiting = threading.Thread(target=other.lock)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    mine.unlock()
    waiting.join(20)
    assert not waiting.is_alive()
    other.unlock()


def test_a_lease_is_renewed_however_long_something_else_takes(database: str) -> None:
    """Else others would take over what is being done here, as soon as the database was away for a moment."""

    async def conversation(*_: object) -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            ended = await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'workflowlookup-lease' AND datname = current_database()"
            )
            assert await ended.fetchall() == [(True,)]
            async with asyncio.timeout(10):
                while not await has_lease(connection):  # noqa: ASYNC110 - the database tells nobody
                    await asyncio.sleep(0.05)

    async def has_lease(connection: psycopg.AsyncConnection) -> bool:
        rows = await connection.execute(
            "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted "
            "AND application_name = 'workflowlookup-lease' AND datname = current_database()"
        )
        return await rows.fetchone() is not None

    with_engine(database, conversation)


# ── connections that go silent ──


@pytest.fixture
def link(database: str) -> Iterator[DatabaseLink]:
    link = DatabaseLink(database)
    yield link
    link.close()


def test_an_engine_reconnects_when_its_connections_go_silent(
    link: DatabaseLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall that forgot them: nobody closes them, and nothing comes back."""
    monkeypatch.setattr(dbos_engine, "STATEMENT_SECONDS", 1.0)

    async def conversation(engine: DbosEngine, ends: Ends) -> None:
        await engine.start("before", 1)
        await ends.wait("before")
        link.forget()
        await engine.start("after", 1)
        await ends.wait("after")

    with_engine(link.url, conversation)


def test_a_statement_that_times_out_stops_waiting_for_its_lock_at_the_server(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise there would soon be as many sessions as the server allows."""
    monkeypatch.setattr(dbos_engine, "STATEMENT_SECONDS", 0.5)
    find = (
        "SELECT pid FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND application_name = 'workflowlookup-engine' AND datname = current_database()"
    )

    async def conversation(engine: DbosEngine, ends: Ends) -> None:
        await drive_one(engine, ends, "before")  # when the launch is over, whose statements have longer
        async with await psycopg.AsyncConnection.connect(database) as holder:
            await holder.execute("LOCK TABLE dbos.workflow_status IN ACCESS EXCLUSIVE MODE")
            async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:

                async def waiting() -> set[tuple[int]]:
                    return set(await (await connection.execute(find)).fetchall())

                while not (first := await waiting()):  # noqa: ASYNC110 - the database tells nobody
                    await asyncio.sleep(0.05)
                while first & await waiting():  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
            await holder.rollback()
        await drive_one(engine, ends)

    with_engine(database, conversation)


def test_an_engine_that_does_not_reach_its_database_says_so_until_it_does(
    link: DatabaseLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dbos_engine, "MAX_SILENT_SECONDS", 2.0)

    async def conversation(engine: DbosEngine, _: object) -> None:
        assert engine.fault == ""
        link.freeze()
        while not engine.fault:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)
        assert "has not reached the journal's database" in engine.fault
        link.restore()
        while engine.fault:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)

    with_engine(link.url, conversation)


def test_the_lease_of_a_vanished_process_becomes_free(
    database: str, link: DatabaseLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "IDLE_SECONDS", 1.0)
    mine, other = Lease(database), Lease(link.url)
    mine.hold()
    other.hold()
    link.freeze()  # the connection stays open at both ends
    end = time.monotonic() + 30
    while not mine.is_dead(other.id):
        assert time.monotonic() < end
        mine.hold()
        time.sleep(0.1)

    link.restore()
    assert not other.hold()  # it had been lost
    assert other.hold()
    assert not mine.is_dead(other.id)
    mine.release()
    other.release()


def test_a_lease_is_not_lost_while_waiting_without_heartbeats(
    leases: list[leases_module.Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between `lock` and `unlock` DBOS makes its tables, on the thread that would see to the heartbeats."""
    mine, other = leases
    monkeypatch.setattr(leases_module, "IDLE_SECONDS", 0.2)
    mine.lock()
    time.sleep(0.5)
    mine.unlock()
    assert mine.hold()
    assert not other.is_dead(mine.id)
