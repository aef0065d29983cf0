"""A run that needs the server is driven by somebody, whatever happened to whoever drove it, or to another run."""

import asyncio

import psycopg
import pytest
from dbos._sys_db import SystemDatabase
from sqlalchemy.exc import OperationalError

from execution.working import call, flow
from workflowlookup.core.run import State
from workflowlookup.execution import engine as engine_module
from workflowlookup.execution.driver import Driver
from workflowlookup.execution.engine import Engine

LOST = OperationalError("COMMIT", None, psycopg.OperationalError("server closed the connection unexpectedly"))


def damage(working, run_id):
    with working.runs.journal.writing() as transaction:
        transaction.execute("UPDATE events SET body = ? WHERE run = ?", ('{"type": "of a newer version"}', run_id))


def test_a_run_that_cannot_be_read_keeps_nobody_from_the_others(work, place):
    """Neither from being taken up nor from their turn."""
    before = work(place)
    before.runs.listeners.clear()  # as if the server died as soon as they were stored
    for number in range(3):
        before.start(flow(call("first", "echo", {"text": "a"})), run_id=f"damaged-{number}")
        damage(before, f"damaged-{number}")
    before.start(flow(call("first", "echo", {"text": "b"})), run_id="sound")
    before.close()

    working = work(place, max_concurrent=1)
    working.execution.recover()

    assert working.over("sound").state is State.COMPLETED


def test_a_driver_that_ended_by_a_fault_is_followed_by_another(work, place, monkeypatch):
    """What the engine has as done for good is not what the run has come to."""
    monkeypatch.setattr(engine_module, "REAP_SECONDS", 0.3)
    act, faults = Driver.act, []

    async def fail_once(self, run_id, step_id):
        if not faults:
            faults.append(run_id)
            raise RuntimeError("a fault")
        return await act(self, run_id, step_id)

    monkeypatch.setattr(Driver, "act", fail_once)
    working = work(place)
    working.execution.recover()

    run = working.finished(flow(call("first", "echo", {"text": "a"})))

    assert (run.state, faults) == (State.COMPLETED, [run.id])


@pytest.mark.parametrize(
    "broken", [("start_queued_workflows",), ("get_workflow_statuses", "get_workflow_status")], ids=["claim", "start"]
)
def test_a_driver_that_is_lost_while_it_is_taken_over_is_driven_anew(work, database, monkeypatch, broken):
    """The database goes away after it was stored who takes over, and before that one knows: nobody drives it."""
    before = work(database)
    run = before.start(flow(call("first", "sleep", {"seconds": 2})))
    before.until(run.id, lambda run: run.calling is not None and run.calling.begun)
    before.execution.close()
    lost = []

    def lose(name):
        real = getattr(SystemDatabase, name)

        def then_away(self, *arguments, **options):
            done = real(self, *arguments, **options)
            claimed = done[0] if name == "start_queued_workflows" else arguments[0]
            if claimed and name not in lost and any(run.id in each for each in [*claimed, claimed]):
                lost.append(name)
                raise LOST
            return done

        monkeypatch.setattr(SystemDatabase, name, then_away)

    for name in broken:
        lose(name)
    monkeypatch.setattr(engine_module, "REAP_SECONDS", 0.3)
    working = work(database)
    working.execution.recover()

    assert working.over(run.id, 60).state is State.COMPLETED
    assert lost == [*broken]


def test_the_sign_of_life_is_kept_however_long_something_else_takes(database):
    """Else others would take over what is being done here, as soon as the database was away for a moment."""

    async def held():
        is_at_it = asyncio.Event()

        async def look_after():
            is_at_it.set()
            await asyncio.Event().wait()

        engine = Engine(database, drive, act, look_after)
        await engine.open()
        try:
            await asyncio.wait_for(is_at_it.wait(), 30)
            async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
                ended = await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'workflowlookup-lease' AND datname = current_database()"
                )
                assert await ended.fetchall() == [(True,)]
                async with asyncio.timeout(10):
                    while not await has_lease(connection):  # noqa: ASYNC110 - the database tells nobody
                        await asyncio.sleep(0.05)
        finally:
            await engine.close()

    async def has_lease(connection):
        found = await connection.execute(
            "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted "
            "AND application_name = 'workflowlookup-lease' AND datname = current_database()"
        )
        return await found.fetchone() is not None

    async def drive(run_id, step, do):
        """Nothing is driven."""

    async def act(run_id, step):
        return ""

    asyncio.run(held())


def test_what_cannot_be_taken_over_keeps_nothing_from_being_taken_up(sqlite_place, monkeypatch):
    monkeypatch.setattr(engine_module, "REAP_SECONDS", 0.05)

    async def held():
        is_at_it = asyncio.Event()

        async def look_after():
            is_at_it.set()

        async def fails():
            raise RuntimeError("this engine cannot be taken over from")

        async def drive(run_id, step, do):
            """Nothing is driven."""

        async def act(run_id, step):
            return ""

        engine = Engine(sqlite_place, drive, act, look_after)
        monkeypatch.setattr(engine, "_reap", fails)
        await engine.open()
        try:
            await asyncio.wait_for(is_at_it.wait(), 30)
        finally:
            await engine.close()

    asyncio.run(held())
