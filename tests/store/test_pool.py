"""The journal of a server on an event loop: a call that hangs does not block others, and times out."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from contract.journaling import begin
from support.postgres import Postgres
from workflowlookup import greenlets
from workflowlookup.errors import JournalBusy, JournalUnavailable
from workflowlookup.store.journal import Journal
from workflowlookup.store.pool import CALLER, MAX_THREADS, JournalPool
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.sqlite import SqliteJournal

T = TypeVar("T")

SECONDS = 0.3
SLOW_SECONDS = 2.0


class HangingJournal(SqliteJournal):
    """A journal on a disk that hangs while `flows` is cleared."""

    flows: threading.Event

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        self.flows.wait(30)
        return super().query(statement, values)


@pytest.fixture
def flows() -> Iterator[threading.Event]:
    flows = threading.Event()
    flows.set()
    yield flows
    flows.set()


@pytest.fixture
def make_pool(tmp_path: Path, flows: threading.Event) -> Iterator[Callable[[float], JournalPool]]:
    """Make pools whose callers wait for so many seconds."""
    pools, path = [], str(tmp_path / "runs.sqlite")
    with contextlib.closing(SqliteJournal(path)) as journal:
        journal.head("r1")  # makes the tables, which takes long on a busy disk

    def open_journal() -> HangingJournal:
        journal = HangingJournal(path)
        journal.flows = flows
        return journal

    def make(seconds: float) -> JournalPool:
        pools.append(JournalPool(open_journal, seconds))
        return pools[-1]

    yield make
    flows.set()
    for pool in pools:
        pool.close()


@pytest.fixture
def pool(make_pool: Callable[[float], JournalPool]) -> JournalPool:
    return make_pool(SECONDS)


def on_loop(work: Callable[[], T]) -> T:
    """Run synchronous work as a request does."""

    async def do() -> T:
        return work()

    return asyncio.run(greenlets.run(do))


def test_every_method_of_the_contract_reaches_a_journal(pool: JournalPool) -> None:
    assert [
        name for name in vars(Journal) if not name.startswith("_") and not callable(getattr(pool.journal, name))
    ] == ["names"]
    begin(pool.journal)
    assert on_loop(lambda: pool.journal.head("r1")) == 2


def test_the_event_loop_runs_while_a_call_waits(
    make_pool: Callable[[float], JournalPool], flows: threading.Event
) -> None:
    pool = make_pool(30)

    async def serve() -> tuple[bool, int | None]:
        flows.clear()
        waiting = asyncio.create_task(greenlets.run(ask))
        await asyncio.sleep(0.1)
        is_waiting = not waiting.done()
        flows.set()
        return is_waiting, await waiting

    async def ask() -> int | None:
        return pool.journal.head("r1")

    assert asyncio.run(serve()) == (True, None)


def test_a_call_without_an_answer_times_out_and_the_request_waits_for_no_other(
    pool: JournalPool, flows: threading.Event
) -> None:
    flows.clear()

    def ask_twice() -> float:
        begun = time.monotonic()
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match="has not answered"):
                pool.journal.head("r1")
        return time.monotonic() - begun

    assert SECONDS <= on_loop(ask_twice) < 4 * SECONDS


def test_the_journal_timeout_applies_to_all_calls_of_a_request_together(
    make_pool: Callable[[float], JournalPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool(SLOW_SECONDS)
    query = SqliteJournal.query

    def slow_query(*arguments: Any) -> list[tuple[Any, ...]]:
        time.sleep(0.6 * SLOW_SECONDS)
        return query(*arguments)

    monkeypatch.setattr(HangingJournal, "query", slow_query)

    async def ask() -> int | None:
        try:
            return pool.journal.head("r1")
        except JournalUnavailable as refused:
            result: int = refused.data["retryAfterSeconds"]
            return result

    async def ask_often() -> tuple[list[int | None], int | None]:
        answers = [await ask() for _ in range(4)]
        await asyncio.sleep(SLOW_SECONDS)  # as one that waits for its run
        return answers, await ask()

    assert asyncio.run(greenlets.run(ask_often)) == ([None, 5, 5, 5], None)


def test_no_more_threads_hang_than_the_pool_has(pool: JournalPool, flows: threading.Event) -> None:
    flows.clear()

    async def ask() -> None:
        with pytest.raises(JournalUnavailable):
            pool.journal.head("r1")

    async def serve() -> None:
        await asyncio.gather(*(greenlets.run(ask) for _ in range(5 * MAX_THREADS)))

    before = threading.active_count()
    asyncio.run(serve())
    assert threading.active_count() - before <= MAX_THREADS
    flows.set()
    assert on_loop(lambda: pool.journal.head("r1")) is None


def test_after_a_call_without_an_answer_all_fail_at_once_until_a_poll_is_answered(
    pool: JournalPool, flows: threading.Event
) -> None:
    pool.start()
    assert pool.fault == ""
    flows.clear()
    with pytest.raises(JournalUnavailable):
        on_loop(lambda: pool.journal.head("r1"))
    begun = time.monotonic()
    for _ in range(20):
        with pytest.raises(JournalUnavailable):
            on_loop(lambda: pool.journal.head("r1"))
    assert time.monotonic() - begun < 20 * SECONDS
    assert "has not answered" in pool.fault

    flows.set()
    end = time.monotonic() + 20
    while pool.fault and time.monotonic() < end:
        time.sleep(0.01)
    assert on_loop(lambda: pool.journal.head("r1")) is None


def test_a_request_cancelled_while_it_waits_finishes_its_journal_call(
    make_pool: Callable[[float], JournalPool], flows: threading.Event
) -> None:
    pool, done = make_pool(30), []

    async def ask() -> None:
        done.append(pool.journal.head("r1"))
        await asyncio.sleep(60)

    async def serve() -> None:
        flows.clear()
        task = asyncio.create_task(greenlets.run(ask))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.sleep(0)
        flows.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(serve())
    assert done == [None]


def test_a_lock_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    lock, seen = greenlets.Lock(), []

    async def work(number: int) -> None:
        with lock.hold(10):
            seen.append(number)
            turn = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(turn.set_result, None)
            greenlets.wait_for(turn)
            seen.append(number)

    async def serve() -> None:
        await asyncio.gather(*(greenlets.run(work, number) for number in range(3)))

    asyncio.run(serve())
    assert seen == [0, 0, 1, 1, 2, 2]


def test_a_request_that_times_out_on_a_lock_is_answered() -> None:
    lock = greenlets.Lock()

    async def hold() -> None:
        with lock.hold(10):
            end = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(SECONDS, end.set_result, None)
            greenlets.wait_for(end)

    async def ask() -> str:
        with pytest.raises(greenlets.Busy), lock.hold(SECONDS / 3):
            pytest.fail("somebody else holds the lock")
        await asyncio.sleep(0)
        return "refused"

    async def serve() -> str:
        _, answer = await asyncio.gather(greenlets.run(hold), greenlets.run(ask))
        return answer

    assert asyncio.run(serve()) == "refused"
    assert lock.is_free


def test_a_waiter_for_a_timed_out_holder_does_not_wait_again(
    make_pool: Callable[[float], JournalPool], flows: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool(SLOW_SECONDS)  # a tenth of it is how late the loop of a busy machine may resume a waiter
    flows.clear()
    lock, submit = greenlets.Lock(), pool._submit
    calls: list[str] = []

    def count(call: Any, seconds: float) -> None:
        calls.append(call.name)
        submit(call, seconds)

    monkeypatch.setattr(pool, "_submit", count)

    async def ask() -> None:
        with lock.hold(10), pytest.raises(JournalUnavailable, match="Nothing was changed"):
            pool.journal.head("r1")

    async def serve() -> None:
        await asyncio.gather(*(greenlets.run(ask) for _ in range(3)))

    asyncio.run(serve())
    assert calls == ["head"]


def test_a_call_that_never_started_does_not_mark_the_journal_as_down(
    make_pool: Callable[[float], JournalPool], flows: threading.Event
) -> None:
    pool = make_pool(30)
    pool.start()
    flows.clear()
    long = [threading.Thread(target=pool.journal.head, args=("r1",)) for _ in range(MAX_THREADS)]
    for thread in long:
        thread.start()
    time.sleep(0.2)  # they wait for 30 seconds; those who come now
    pool._seconds = SECONDS

    with pytest.raises(JournalBusy, match="kept the journal of runs busy"):
        on_loop(lambda: pool.journal.head("r2"))

    assert pool.fault == ""
    flows.set()
    for thread in long:
        thread.join()
    assert pool.journal.head("r1") is None


def test_reads_are_answered_while_another_process_holds_the_lock_for_writing(
    make_pool: Callable[[float], JournalPool], tmp_path: Path
) -> None:
    pool = make_pool(30)
    seen: list[str] = []

    async def write(number: int) -> None:
        pool.journal.add_session(str(number), "owner", "{}", 0)
        seen.append("write")

    async def read() -> None:
        pool.journal.head("r1")
        seen.append("read")

    async def serve() -> None:
        with contextlib.closing(sqlite3.connect(tmp_path / "runs.sqlite", isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            writes = [asyncio.create_task(greenlets.run(write, number)) for number in range(2 * MAX_THREADS)]
            await asyncio.sleep(0)
            await asyncio.gather(*(greenlets.run(read) for _ in range(3)))
            holder.execute("ROLLBACK")
        await asyncio.gather(*writes)

    asyncio.run(serve())
    assert seen == ["read"] * 3 + ["write"] * 2 * MAX_THREADS


def test_sessions_are_stored_while_writes_of_runs_wait_for_a_lock(postgres: Postgres) -> None:
    url = postgres.create_database()
    seen: list[str] = []

    async def write(pool: JournalPool) -> None:
        pool.journal.delete("r1")
        seen.append("run")

    async def store_session(pool: JournalPool, number: int) -> None:
        pool.journal.add_session(str(number), "owner", "{}", 0)
        pool.journal.head("r1")
        seen.append("session")

    async def serve(pool: JournalPool) -> None:
        async with await psycopg.AsyncConnection.connect(url) as holder:
            await holder.execute("LOCK TABLE workflowlookup.runs IN EXCLUSIVE MODE")
            writes = [asyncio.create_task(greenlets.run(write, pool)) for _ in range(2 * MAX_THREADS)]
            await asyncio.sleep(0)
            await asyncio.gather(*(greenlets.run(store_session, pool, number) for number in range(3)))
        await asyncio.gather(*writes)

    with contextlib.closing(JournalPool(lambda: PostgresJournal(url, 30), 30)) as pool:
        pool.journal.head("r1")  # makes the tables
        asyncio.run(serve(pool))
    assert seen == ["session"] * 3 + ["run"] * 2 * MAX_THREADS


def test_callers_take_turns(make_pool: Callable[[float], JournalPool], flows: threading.Event) -> None:
    pool = make_pool(30)
    flows.clear()
    answered: list[str] = []

    async def ask(caller: str, number: int) -> None:
        CALLER.set(caller)
        pool.journal.head(f"{caller}-{number}")
        answered.append(caller)

    async def serve() -> None:
        tasks = [asyncio.create_task(greenlets.run(ask, "greedy", number)) for number in range(50)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(greenlets.run(ask, "other", 0)))
        await asyncio.sleep(0.1)
        flows.set()
        await asyncio.gather(*tasks)

    asyncio.run(serve())

    assert answered.index("other") <= 3 * MAX_THREADS
