"""The processes of MCP servers when our process is terminated."""

import asyncio
import os
import sys
import threading
import time
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from support.narrowing import instance_of, not_none
from support.processes import is_gone
from workflowlookup.processes import children
from workflowlookup.processes.children import end_all
from workflowlookup.providers.child import Child
from workflowlookup.providers.config import ServerConfig


def test_a_process_that_is_just_being_started_is_asked_to_end_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    start, sleep = asyncio.create_subprocess_exec, time.sleep
    child = Child(ServerConfig(name="slow", command=sys.executable, args=("-c", "import time; time.sleep(60)")))

    async def conversation() -> str:
        loop = asyncio.get_running_loop()
        runs, is_waited_for, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def start_slowly(*command: str, **options: Any) -> asyncio.subprocess.Process:
            process = await start(*command, **options)
            runs.set()
            await is_waited_for.wait()
            return process

        def wait(seconds: float) -> None:
            loop.call_soon_threadsafe(is_waited_for.set)
            sleep(seconds)

        async def use() -> str:
            async with child.streams():
                await has_ended.wait()
                return await child.exit_message()

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
        using = asyncio.create_task(use())
        await runs.wait()
        monkeypatch.setattr(time, "sleep", wait)
        monkeypatch.setattr(children, "is_ending", threading.Event())  # our own goes on
        await asyncio.to_thread(end_all)
        has_ended.set()
        return await using

    assert asyncio.run(conversation()) == "its process ended with signal 15"


STARTS_ANOTHER = """
import json, signal, subprocess, sys, time
ignores = sys.argv[1] == "ignores"
if ignores:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeps = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
other = subprocess.Popen([sys.executable, "-c", sleeps], start_new_session=True, env={}, **pipes)
other.stdout.readline()
print(json.dumps({"jsonrpc": "2.0", "method": "started", "params": {"pid": other.pid}}), flush=True)
sys.stdin.read()
time.sleep(60 if ignores else 0)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are found by /proc")
@pytest.mark.parametrize("child_at_the_end", ["ignores", "ends"])
def test_descendants_end_with_a_child_even_in_another_session_and_without_its_environment(
    child_at_the_end: str,
) -> None:
    config = ServerConfig(name="p", command=sys.executable, args=("-c", STARTS_ANOTHER, child_at_the_end))

    async def conversation() -> int:
        async with Child(config).streams() as (from_child, _):
            message = instance_of(SessionMessage, await from_child.receive()).message
            return int(not_none(instance_of(JSONRPCNotification, message).params)["pid"])

    assert is_gone(asyncio.run(conversation()))  # a signal takes its time
