"""`AsyncRuns`: work that is queued while the journal is busy is done next, in one commit."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from execution.working import call, flow, open_runs
from support.narrowing import not_none
from workflowlookup.errors import RunNotFound
from workflowlookup.execution.async_runs import AsyncRuns
from workflowlookup.runs.run import Run
from workflowlookup.store.service import Runs

FLOW = flow(call("one", "say"))
SECONDS = 20


@pytest.fixture
def others(journal_url: str) -> Iterator[Runs]:
    runs = open_runs(journal_url)
    yield runs
    runs.close()


class Busy:
    """Work that keeps the journal's thread busy until it is released."""

    def __init__(self) -> None:
        self._is_begun, self._is_free = threading.Event(), threading.Event()
        self.release = self._is_free.set

    def __call__(self, _: object) -> None:
        self._is_begun.set()
        self._is_free.wait(SECONDS)

    async def keep(self, runs: AsyncRuns) -> asyncio.Task[None]:
        task = asyncio.create_task(runs.do(self))
        await asyncio.to_thread(self._is_begun.wait, SECONDS)
        return task


def begin(runs: Runs, run_id: str) -> Run:
    return runs.server_work.begin_call(run_id, "one")


def test_work_queued_while_the_journal_is_busy_is_stored_in_one_commit(tmp_path: Path) -> None:
    journal_url = str(tmp_path / "runs.sqlite")
    busy, seen = Busy(), []
    with contextlib.closing(open_runs(journal_url)) as others:
        ids = [others.start(FLOW, {}, {}).id for _ in range(5)]

    def count_begun(*_: object) -> None:
        with contextlib.closing(open_runs(journal_url)) as others:
            seen.append(others.counts())

    async def ask() -> None:
        runs = AsyncRuns(lambda: open_runs(journal_url), count_begun)
        async with asyncio.timeout(SECONDS):
            lock = await busy.keep(runs)
            tasks = [asyncio.create_task(runs.do(functools.partial(begin, run_id=run_id))) for run_id in ids]
            await asyncio.sleep(0)
            busy.release()
            await asyncio.gather(lock, *tasks)
            await runs.aclose()

    asyncio.run(ask())

    assert seen == [{"running": 5}] * 5


def test_abandoned_work_is_not_started(journal_url: str, others: Runs) -> None:
    run_id = others.start(FLOW, {}, {}).id
    busy = Busy()

    async def ask() -> None:
        runs = AsyncRuns(lambda: open_runs(journal_url), lambda *_: None)
        async with asyncio.timeout(SECONDS):
            lock = await busy.keep(runs)
            task = asyncio.create_task(runs.do(lambda runs: begin(runs, run_id)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            busy.release()
            await lock
            await runs.aclose()

    asyncio.run(ask())

    assert not_none(others.get(run_id).calling).attempt == 0


def test_each_caller_gets_the_exception_of_its_own_work(journal_url: str, others: Runs) -> None:
    run_id = others.start(FLOW, {}, {}).id

    async def ask() -> tuple[object, ...]:
        runs = AsyncRuns(lambda: open_runs(journal_url), lambda *_: None)
        async with asyncio.timeout(SECONDS):
            outcomes = await asyncio.gather(
                runs.do(lambda runs: runs.get("nobody")),
                runs.do(lambda runs: begin(runs, run_id)),
                runs.do(lambda _: 1 / 0),
                return_exceptions=True,
            )
            await runs.aclose()
        return outcomes

    missing, begun, fault = asyncio.run(ask())

    assert [type(missing), type(fault)] == [RunNotFound, ZeroDivisionError]
    assert begun == others.get(run_id)


def test_nothing_is_done_once_it_is_closed(journal_url: str) -> None:
    async def ask() -> None:
        runs = AsyncRuns(lambda: open_runs(journal_url), lambda *_: None)
        await runs.aclose()
        async with asyncio.timeout(SECONDS):
            await runs.do(lambda runs: runs.counts())

    with pytest.raises(RuntimeError):
        asyncio.run(ask())
