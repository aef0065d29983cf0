"""MCP servers that misbehave: no call waits for ever, nothing leaks, and no process is left behind."""

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from execution.working import Working, call, flow
from spec.stage import staged
from support.json_values import Json, JsonObject
from support.make import settings_file
from support.narrowing import instance_of
from support.processes import is_gone
from upstream.upstreams import table
from workflowlookup.errors import ProviderUnavailable
from workflowlookup.language.values import Progress
from workflowlookup.providers.child import _parsed
from workflowlookup.providers.config import ServerConfig
from workflowlookup.providers.upstream import CallResult, Upstreams
from workflowlookup.runs.run import State

T = TypeVar("T")

RAW = str(Path(__file__).with_name("raw_server.py"))


def raw(*arguments: str, **fields: Json) -> ServerConfig:
    return ServerConfig(name="raw", command=sys.executable, args=(RAW, *arguments), **fields)


def talk(config: ServerConfig, conversation: Callable[[Upstreams], Awaitable[T]]) -> T:
    async def held() -> T:
        upstreams = Upstreams({"raw": config})
        try:
            return await asyncio.wait_for(conversation(upstreams), 20)
        finally:
            await upstreams.aclose()

    return asyncio.run(held())


def answered(line: str) -> CallResult:
    return talk(raw(), lambda upstreams: upstreams.call("raw", "answer", {"line": line}))


def test_half_a_character_does_not_lose_the_answer() -> None:
    line = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "a\\ud83d"}]}}'

    assert answered(line) == CallResult(text="a?")


def test_a_number_of_thousands_of_digits_does_not_lose_the_answer() -> None:
    result = '{"content": [{"type": "text", "text": "done"}], "structuredContent": {"a": ' + "9" * 5_000 + "}}"

    assert answered('{"jsonrpc": "2.0", "id": ID, "result": ' + result + "}").text == "done"


@pytest.mark.parametrize("line", [b"\xff\xfe", b"starting up", b"[]", b"null", b'{"id": null}', b'{"id": true}'])
def test_messages_that_are_not_answers_are_skipped(line: bytes) -> None:
    assert isinstance(_parsed(line), Exception)


def test_bytes_that_are_not_utf_8_do_not_lose_the_answer() -> None:
    parsed = instance_of(SessionMessage, _parsed(b'{"jsonrpc": "2.0", "id": 7, "result": {"a": "\xff"}}'))
    assert instance_of(JSONRPCResponse, parsed.message).result == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": ID}',
        '{"jsonrpc": "2.0", "id": ID, "result": {"structuredContent": {"a": ' + "[" * 400 + "]" * 400 + "}}}",
    ],
    ids=["neither-result-nor-error", "deep"],
)
def test_an_unreadable_answer_is_an_error_and_ends_the_wait(line: str) -> None:
    assert answered(line) == CallResult(text="its answer cannot be read", is_error=True, code="-32700")


def test_an_answer_that_violates_the_protocol_is_reported_in_a_sentence() -> None:
    line = '{"jsonrpc": "2.0", "id": ID, "result": {"content": "no list"}}'

    problem = "Its answer violates the protocol: content: Input should be a valid list"
    assert answered(line) == CallResult(text=problem, is_error=True, is_doubtful=True)


def test_a_message_of_which_not_even_the_id_can_be_read_ends_the_session() -> None:
    with pytest.raises(ProviderUnavailable, match="it sent a message that is nested too deeply"):
        answered('{"jsonrpc": "2.0", "id": ID, "result": ' + "[" * 50_000 + "]" * 50_000 + "}")


def test_an_error_with_the_code_that_the_sdk_uses_for_lost_connections_is_an_answer() -> None:
    line = '{"jsonrpc": "2.0", "id": ID, "error": {"code": -32000, "message": "quota exceeded"}}'

    assert answered(line) == CallResult(text="quota exceeded", is_error=True, code="-32000")


def test_secrets_in_messages_of_a_server_are_redacted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "s3cr3t-value")
    config = raw(env={"RAW_SECRET": "${TOKEN_OF_MINE}"})

    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderUnavailable) as refused:
        talk(config, lambda upstreams: upstreams.call("raw", "answer", {}))

    assert "saying: I was given …" in refused.value.remedy
    assert "s3cr3t-value" not in caplog.text + str(refused.value.data)


def test_a_silent_server_does_not_delay_the_shutdown() -> None:
    async def conversation() -> float:
        upstreams = Upstreams({"raw": raw("mute")})
        waiting = asyncio.create_task(upstreams.call("raw", "answer", {}))
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.wait([waiting])
        began = time.monotonic()
        await upstreams.aclose()
        return time.monotonic() - began

    assert asyncio.run(conversation()) < 4.5  # of which the process has two to end by itself


def test_processes_left_by_a_server_that_exits_are_ended() -> None:
    left = talk(raw(), lambda upstreams: upstreams.call("raw", "helper", {}))

    assert is_gone(left.structured["pid"])


def test_progress_that_is_not_a_number_is_ignored(sqlite_journal: str, work: Callable[..., Working]) -> None:
    working = work(sqlite_journal, servers={"raw": raw()})
    reports: list[Progress] = []
    run = working.start(flow(call("one", "progress", {"values": ["1", "NaN", "1e999", "2"]}, server="raw")))

    while not working.runs.get(run.id).is_over:
        progress = working.execution.progress(run.id)
        if progress is not None and progress not in reports:
            reports.append(progress)
        time.sleep(0.01)

    assert working.over(run.id).state is State.COMPLETED
    assert [(progress.done, progress.total) for progress in reports] == [(1, 10), (2, 10)]


def test_libraries_never_print_even_through_unknown_loggers() -> None:
    program = """
import logging
from workflowlookup.logs import capture_library_logs
capture_library_logs("mcp")
logging.getLogger("client").error("here I am")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_terminated_server_ends_its_processes_and_keeps_the_run(tmp_path: Path) -> None:
    """SIGTERM: one that hears neither the end of its input nor anybody else is no orphan, and the run goes on later."""
    with staged(tmp_path / "home") as stage:
        pid_file = stage.home / "pid"
        deaf = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
        settings = table("mcpServers.deaf", {"command": sys.executable, "args": ["-c", deaf]})
        settings_file(stage.home).write_text(settings)
        server = stage.serve()
        document: JsonObject = {"id": "deaf-one", "name": "Deaf", "description": "d", "version": "1.0.0"}
        document["steps"] = [call("one", "x", server="deaf")]
        folder = stage.home / ".workflowlookup" / "workflows"
        folder.mkdir(parents=True)
        (folder / "deaf-one.json").write_text(json.dumps(document))
        started = server.call("workflow_start", {"workflowId": "deaf-one", "wait": False})["structuredContent"]
        end = time.monotonic() + 30
        while not (pid_file.exists() and pid_file.read_text()):
            assert time.monotonic() < end
            time.sleep(0.05)

        server.process.terminate()

        assert server.wait() == -15
        assert is_gone(int(pid_file.read_text()))
        again = stage.serve()
        status = again.call("workflow_status", {"runId": started["runId"]})["structuredContent"]
        assert status["state"] == "running"


LATE = """
import asyncio, os, signal, sys, threading
from workflowlookup.processes import children
from workflowlookup.providers import child
from workflowlookup.providers.config import ServerConfig
from workflowlookup.transport import signals

start, end, starting, ending = asyncio.create_subprocess_exec, children.end_all, threading.Event(), threading.Event()

async def start_late(*words, **options):
    starting.set()
    await asyncio.to_thread(ending.wait)
    process = await start(*words, **options)
    print(process.pid, flush=True)
    return process

async def speak():
    deaf = ServerConfig(name="deaf", command=sys.executable, args=("-c", "import time; time.sleep(600)"))
    async with child.Child(deaf).streams():
        await asyncio.sleep(60)

asyncio.create_subprocess_exec, children.end_all = start_late, lambda: (ending.set(), end())
signals.end_when_signalled()
signals.raise_when_signalled()
threading.Thread(target=asyncio.run, args=(speak(),), daemon=True).start()
starting.wait()
try:
    os.kill(os.getpid(), signal.SIGTERM)
except signals.Terminated as termination:
    signals.end_by(termination.number)
"""


def test_a_process_started_during_termination_ends_too() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (-15, "")
    assert is_gone(int(done.stdout))


def test_nothing_is_started_after_the_shutdown_began() -> None:
    program = """
import asyncio, sys
from workflowlookup.processes import children
from workflowlookup.providers import child
from workflowlookup.providers.config import ServerConfig

async def speak():
    async with child.Child(ServerConfig(name="late", command=sys.executable)).streams():
        print("started")

children.end_all()
try:
    asyncio.run(asyncio.wait_for(speak(), 0.5))
except TimeoutError:
    print("waits")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert (done.stdout, done.stderr) == ("waits\n", "")
