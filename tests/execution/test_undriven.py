"""Every due run gets a driver, even if its last driver or another run failed."""

from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
import pytest
from dbos._sys_db import SystemDatabase
from sqlalchemy.exc import OperationalError

from execution.working import Working, call, flow
from workflowlookup.execution import loop_services
from workflowlookup.execution.driver import Driver
from workflowlookup.execution.engine import Slot
from workflowlookup.execution.local import LocalEngine
from workflowlookup.runs.run import State
from workflowlookup.store.sql import SqlJournal

LOST = OperationalError("COMMIT", None, psycopg.OperationalError("server closed the connection unexpectedly"))


def damage(working: Working, run_id: str) -> None:
    assert isinstance(working.runs.journal, SqlJournal)
    with working.runs.journal.writing() as transaction:
        transaction.execute("UPDATE events SET body = ? WHERE run = ?", ('{"type": "of a newer version"}', run_id))


def test_an_unreadable_run_does_not_block_other_runs(work: Callable[..., Working], journal_url: str) -> None:
    """Neither from being taken up nor from their turn."""
    before = work(journal_url)
    before.runs.listeners.clear()  # as if the server died as soon as they were stored
    for number in range(3):
        before.start(flow(call("first", "echo", {"text": "a"})), run_id=f"damaged-{number}")
        damage(before, f"damaged-{number}")
    before.start(flow(call("first", "echo", {"text": "b"})), run_id="sound")
    before.close()

    working = work(journal_url, max_concurrent=1)
    working.execution.recover()

    assert working.over("sound").state is State.COMPLETED


def test_a_driver_that_crashed_is_replaced(
    work: Callable[..., Working], journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine has as done for good is not what the run has come to."""
    monkeypatch.setattr(loop_services, "TAKE_OVER_SECONDS", 0.3)
    drive = Driver.drive
    faults: list[str] = []

    async def fail_once(self: Driver, run_id: str, slot: Slot) -> None:
        if not faults:
            faults.append(run_id)
            raise RuntimeError("a fault")
        await drive(self, run_id, slot)

    monkeypatch.setattr(Driver, "drive", fail_once)
    working = work(journal_url)
    working.execution.recover()

    run = working.finished(flow(call("first", "echo", {"text": "a"})))

    assert (run.state, faults) == (State.COMPLETED, [run.id])


@pytest.mark.parametrize(
    "broken", [("start_queued_workflows",), ("get_workflow_statuses", "get_workflow_status")], ids=["claim", "start"]
)
def test_a_driver_lost_during_the_takeover_is_started_again(
    work: Callable[..., Working], database: str, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    """The database goes away after it was stored who takes over, and before that one knows: nobody drives it."""
    before = work(database)
    run = before.start(flow(call("first", "sleep", {"seconds": 2})))
    before.until(run.id, lambda run: run.calling is not None and run.calling.begun)
    before.execution.close()
    lost: list[str] = []

    def lose(name: str) -> None:
        real = getattr(SystemDatabase, name)

        def then_away(self: object, *arguments: Any, **options: Any) -> Any:
            done = real(self, *arguments, **options)
            claimed = done[0] if name == "start_queued_workflows" else arguments[0]
            if claimed and name not in lost and any(run.id in each for each in [*claimed, claimed]):
                lost.append(name)
                raise LOST
            return done

        monkeypatch.setattr(SystemDatabase, name, then_away)

    for name in broken:
        lose(name)
    monkeypatch.setattr(loop_services, "TAKE_OVER_SECONDS", 0.3)
    working = work(database)
    working.execution.recover()

    assert working.over(run.id, 60).state is State.COMPLETED
    assert lost == [*broken]


def test_a_failed_takeover_does_not_block_others(
    work: Callable[..., Working], sqlite_journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> NoReturn:
        raise RuntimeError("this engine cannot be taken over from")

    before = work(sqlite_journal)
    before.runs.listeners.clear()  # as if the server died as soon as it was stored
    run = before.start(flow(call("first", "echo", {"text": "a"})))
    before.close()
    monkeypatch.setattr(LocalEngine, "take_over", fail)

    working = work(sqlite_journal)
    working.execution.recover()

    assert working.over(run.id).state is State.COMPLETED
