"""The semaphore of drivers: in order, with a limit that can change, and without a slot that is lost."""

import asyncio
from collections.abc import Awaitable, Callable

from workflowlookup.execution.engine import Slots

Begin = Callable[[str], tuple[asyncio.Task[None], asyncio.Event]]
Test = Callable[[Slots, list[str], Begin], Awaitable[None]]


def conversation(limit: int) -> Callable[[Test], Callable[[], None]]:
    """Runs a test on a loop, with slots and a list of those who have one."""

    def decorate(test: Test) -> Callable[[], None]:
        def run() -> None:
            async def whole() -> None:
                slots = Slots(limit)
                has_slot: list[str] = []

                async def work(name: str, *, is_done: asyncio.Event) -> None:
                    async with slots.slot():
                        has_slot.append(name)
                        await is_done.wait()
                    has_slot.remove(name)

                def begin(name: str) -> tuple[asyncio.Task[None], asyncio.Event]:
                    is_done = asyncio.Event()
                    return asyncio.create_task(work(name, is_done=is_done)), is_done

                async with asyncio.timeout(20):
                    await test(slots, has_slot, begin)

            asyncio.run(whole())

        run.__name__ = test.__name__
        return run

    return decorate


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@conversation(2)
async def test_slots_are_given_in_order(slots: Slots, has_slot: list[str], begin: Begin) -> None:
    tasks = [begin(name) for name in "abcd"]
    await settle()
    assert has_slot == ["a", "b"]

    tasks[1][1].set()
    await settle()
    assert has_slot == ["a", "c"]
    for _, is_done in tasks:
        is_done.set()
    await asyncio.gather(*(task for task, _ in tasks))
    assert not slots.is_full


@conversation(1)
async def test_a_higher_limit_admits_waiting_runs(slots: Slots, has_slot: list[str], begin: Begin) -> None:
    tasks = [begin(name) for name in "abc"]
    await settle()

    slots.set_limit(2)
    await settle()

    assert has_slot == ["a", "b"]
    for task, _ in tasks:
        task.cancel()


@conversation(1)
async def test_a_run_cancelled_while_waiting_takes_no_slot(slots: Slots, has_slot: list[str], begin: Begin) -> None:
    (first, is_done), (second, _), (third, _) = (begin(name) for name in "abc")
    await settle()

    is_done.set()
    second.cancel()  # in the same moment
    await asyncio.gather(first, second, return_exceptions=True)
    await settle()

    assert second.cancelled()
    assert has_slot == ["c"]
    third.cancel()
    await settle()
    assert not slots.is_full


@conversation(1)
async def test_a_slot_that_is_lent_is_used_by_another_and_comes_back(
    slots: Slots, has_slot: list[str], begin: Begin
) -> None:
    came_back: list[list[str]] = []

    async def lender() -> None:
        async with slots.slot():
            async with slots.lent():
                await begin_and_wait()
            came_back.append(list(has_slot))

    async def begin_and_wait() -> None:
        _, is_done = begin("b")
        await settle()
        assert has_slot == ["b"]
        is_done.set()

    await lender()

    assert came_back == [[]]
    assert not slots.is_full


@conversation(1)
async def test_cancelling_while_the_slot_is_lent_keeps_the_count_right(
    slots: Slots, has_slot: list[str], begin: Begin
) -> None:
    async def lender() -> None:
        async with slots.slot(), slots.lent():
            await asyncio.Event().wait()

    task = asyncio.create_task(lender())
    await settle()
    other, is_done = begin("b")
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    is_done.set()
    await other

    assert not slots.is_full
    await slots.acquire()
    assert slots.is_full
