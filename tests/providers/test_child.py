"""The processes of MCP servers, when ours is told to end."""

import asyncio
import sys
import threading
import time

from workflowlookup.providers import child as children
from workflowlookup.providers.child import Child, end_all
from workflowlookup.providers.config import ServerConfig


def test_a_process_that_is_just_being_started_is_asked_to_end_as_well(monkeypatch):
    start, sleep = asyncio.create_subprocess_exec, time.sleep
    child = Child(ServerConfig(name="slow", command=sys.executable, args=("-c", "import time; time.sleep(60)")))

    async def conversation():
        loop = asyncio.get_running_loop()
        runs, is_waited_for, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def start_slowly(*command, **options):
            process = await start(*command, **options)
            runs.set()
            await is_waited_for.wait()
            return process

        def wait(seconds):
            loop.call_soon_threadsafe(is_waited_for.set)
            sleep(seconds)

        async def use():
            async with child.streams():
                await has_ended.wait()
                return await child.last_words()

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
        using = asyncio.create_task(use())
        await runs.wait()
        monkeypatch.setattr(time, "sleep", wait)
        monkeypatch.setattr(children, "_is_ending", threading.Event())  # our own goes on
        await asyncio.to_thread(end_all)
        has_ended.set()
        return await using

    assert asyncio.run(conversation()) == "its process ended with signal 15"
