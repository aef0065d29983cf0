"""Runs that another process changes while they are driven here: the driver notices, and makes no further call."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

import pytest

from execution.working import call, flow, open_runs
from workflowlookup.execution.async_runs import AsyncRuns
from workflowlookup.execution.call_runner import CallRunner, Outcome
from workflowlookup.execution.driver import Driver
from workflowlookup.execution.engine import Slots, Superseded
from workflowlookup.execution.proof_runner import ProofRunner
from workflowlookup.runs.run import Run, State
from workflowlookup.store.service import Runs

SECONDS = 20


class Calls:
    """Calls that end when the test says so."""

    def __init__(self, limit: Slots | None = None) -> None:
        self.made: list[str] = []
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self._limit = limit

    def limit_of(self, _: object) -> Slots | None:
        return self._limit

    def seconds_of(self, _: object) -> None:
        return None

    async def carry_out(self, run: Run, _note: object, _acknowledge: object, *, is_repeated: bool) -> Outcome:
        assert not is_repeated
        self.made.append(run.current)
        self.has_begun.set()
        await self.may_end.wait()
        return Outcome(text="ours", value="ours")


@contextlib.asynccontextmanager
async def driven(journal_url: str, calls: Calls) -> AsyncIterator[tuple[str, asyncio.Task[None], Runs]]:
    """A run of three calls that is driven, the task that drives it, and its journal as another process has it."""
    others = open_runs(journal_url)
    run = others.start(flow(call("one", "say"), call("two", "say"), call("three", "say")), {}, {})
    runs = AsyncRuns(lambda: open_runs(journal_url), lambda *_: None)
    async with asyncio.timeout(SECONDS):
        yield (
            run.id,
            asyncio.create_task(
                Driver(runs, cast("CallRunner", calls), ProofRunner(), lambda: None).drive(run.id, Slots(1))
            ),
            others,
        )
    await runs.aclose()
    others.close()


@pytest.mark.parametrize("is_at_end", [True, False], ids=["its call has ended", "its call goes on"])
def test_a_superseded_driver_makes_no_more_calls(journal_url: str, is_at_end: bool) -> None:
    async def drive() -> tuple[list[str], Run]:
        calls = Calls()
        async with driven(journal_url, calls) as (run_id, task, others):
            await calls.has_begun.wait()
            if is_at_end:
                calls.may_end.set()
            others.server_work.finish_call(run_id, "one", "theirs", "theirs", begins_next=lambda _: True)
            with pytest.raises(Superseded, match="by another process"):
                await task
            return calls.made, others.get(run_id)

    made, run = asyncio.run(drive())

    assert made == ["one"]
    assert (run.current, run.context["one"]) == ("two", "theirs")


def test_a_run_cancelled_while_waiting_for_its_provider_ends_at_once(journal_url: str) -> None:
    async def drive() -> tuple[list[str], str, bool]:
        limit = Slots(1)
        await limit.acquire()
        calls = Calls(limit)
        async with driven(journal_url, calls) as (run_id, task, others):
            await asyncio.sleep(0.1)
            others.cancel(run_id)
            await task
            limit.release()
            return calls.made, others.get(run_id).state, limit.is_full

    assert asyncio.run(drive()) == ([], State.CANCELLED, False)
