"""Sessions with upstream MCP servers: real ones, over pipes and over HTTP."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from execution.working import server_config
from support.json_values import Json, JsonObject
from support.processes import is_alive
from upstream.upstreams import McpUpstream
from workflowlookup.errors import ProviderUnavailable
from workflowlookup.language.values import Progress
from workflowlookup.providers.config import ServerConfig
from workflowlookup.providers.upstream import CallResult, StopResult, Upstreams

T = TypeVar("T")

EVERY_WAY = pytest.mark.parametrize("way", [{}, {"sdk": True}, {"http": True}], ids=["stdio", "stdio-sdk", "http"])
PIPES_AND_HTTP = pytest.mark.parametrize("way", [{}, {"http": True}], ids=["stdio", "http"])


def talk(upstream: McpUpstream, conversation: Callable[[Upstreams], Awaitable[T]]) -> T:
    """Hold the conversation, and close everything after it."""

    async def held() -> T:
        upstreams = Upstreams({upstream.name: server_config(upstream)})
        try:
            return await asyncio.wait_for(conversation(upstreams), 30)
        finally:
            await upstreams.aclose()

    return asyncio.run(held())


@EVERY_WAY
def test_a_call_returns_the_tools_answer_and_sends_its_key(tmp_path: Path, way: JsonObject) -> None:
    async def conversation(upstreams: Upstreams) -> tuple[CallResult, CallResult, CallResult]:
        structured = await upstreams.call("up", "echo", {"a": 1}, key="run:step")
        text = await upstreams.call("up", "say", {"text": "hello"})
        empty = await upstreams.call("up", "nothing", {})
        return structured, text, empty

    with McpUpstream(tmp_path, **way) as upstream:
        structured, text, empty = talk(upstream, conversation)
        assert structured == CallResult(text='{"a": 1}', structured={"a": 1})
        assert (structured.value, text.value, empty.value) == ({"a": 1}, "hello", "")
        assert [entry["key"] for entry in upstream.seen("call")] == ["run:step", "", ""]
        assert len(upstream.seen("began")) == 1  # one session for all


@EVERY_WAY
def test_errors_of_tools_are_answers(tmp_path: Path, way: JsonObject) -> None:
    async def conversation(upstreams: Upstreams) -> list[CallResult]:
        return [
            await upstreams.call("up", "fail", {"message": "no luck"}),
            await upstreams.call("up", "fail", {"how": "raise", "message": "no luck"}),
            await upstreams.call("up", "no-such-tool", {}),
            await upstreams.call("up", "say", {"text": "still here"}),
        ]

    with McpUpstream(tmp_path, **way) as upstream:
        *errors, last = talk(upstream, conversation)
        assert [error.is_error for error in errors] == [True, True, True]
        assert errors[0].text == "no luck"
        assert last.text == "still here"


@PIPES_AND_HTTP
def test_progress_is_received(tmp_path: Path, way: JsonObject) -> None:
    heard: list[object] = []

    async def conversation(upstreams: Upstreams) -> None:
        await upstreams.call("up", "sleep", {"seconds": 0.2, "steps": 2}, on_progress=heard.append)

    with McpUpstream(tmp_path, **way) as upstream:
        talk(upstream, conversation)
    assert heard[:2] == [Progress(0, 2, "part 1 of 2"), Progress(1, 2, "part 2 of 2")]


@PIPES_AND_HTTP
def test_a_cancelled_call_is_cancelled_upstream(tmp_path: Path, way: JsonObject) -> None:
    async def conversation(upstreams: Upstreams) -> CallResult:
        call = asyncio.create_task(upstreams.call("up", "sleep", {"seconds": 30}, key="k"))
        await asyncio.to_thread(upstream.wait_for, "call")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(upstream.wait_for, "cancelled")
        return await upstreams.call("up", "say", {"text": "still here"})

    with McpUpstream(tmp_path, **way) as upstream:
        assert talk(upstream, conversation).text == "still here"
        assert len(upstream.seen("began")) == 1


@PIPES_AND_HTTP
def test_a_call_that_takes_too_long_is_cancelled_upstream(tmp_path: Path, way: JsonObject) -> None:
    async def conversation(upstreams: Upstreams) -> None:
        await upstreams.call("up", "say", {})
        with pytest.raises(TimeoutError):
            await upstreams.call("up", "sleep", {"seconds": 30}, timeout=2)
        await asyncio.to_thread(upstream.wait_for, "cancelled")

    with McpUpstream(tmp_path, **way) as upstream:
        talk(upstream, conversation)


def test_an_unresponsive_process_is_killed_and_restarted_when_needed(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> tuple[list[int], StopResult, list[int], str]:
        call = asyncio.create_task(upstreams.call("up", "stubborn", {"seconds": 60}))
        await asyncio.to_thread(upstream.wait_for, "call")
        call.cancel()
        await asyncio.wait([call])
        before = upstream.pids()
        stopped = await upstreams.stop("up")
        after = upstream.pids()
        again = await upstreams.call("up", "say", {"text": "again"})
        return before, stopped, after, again.text

    upstream = McpUpstream(tmp_path)
    (pid,), stopped, after, again = talk(upstream, conversation)
    assert stopped.stopped
    assert stopped.message == f"the MCP server 'up' was asked to stop, and its process {pid} was killed"
    assert (after, again) == ([], "again")
    assert upstream.pids() == []  # nor is the second one left behind


def test_a_process_that_serves_another_call_is_not_killed(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> tuple[StopResult, CallResult]:
        other = asyncio.create_task(upstreams.call("up", "sleep", {"seconds": 1}))
        call = asyncio.create_task(upstreams.call("up", "sleep", {"seconds": 60}))
        await asyncio.to_thread(upstream.wait_for, "call", 2)
        call.cancel()
        await asyncio.wait([call])
        return await upstreams.stop("up"), await other

    upstream = McpUpstream(tmp_path)
    stopped, other = talk(upstream, conversation)
    assert not stopped.stopped  # nobody has said so
    assert stopped.message.startswith("the MCP server 'up' was asked to stop, but MCP does not confirm cancellations")
    assert other.value == {"slept": 1.0}


def test_descendants_of_a_server_end_with_it(tmp_path: Path) -> None:
    script = tmp_path / "server.sh"
    script.write_text(f"sleep 1000 & echo $! > {tmp_path}/grandchild\ntrap '' TERM\n{sys.executable} $*\n")
    upstream = McpUpstream(tmp_path / "up")
    program = upstream.command()[1:]

    async def conversation(upstreams: Upstreams) -> StopResult:
        upstreams.apply({"up": ServerConfig(name="up", command="/bin/sh", args=(str(script), *program))})
        call = asyncio.create_task(upstreams.call("up", "stubborn", {"seconds": 60}))
        await asyncio.to_thread(upstream.wait_for, "call")
        call.cancel()
        await asyncio.wait([call])
        return await upstreams.stop("up")

    assert talk(upstream, conversation).stopped
    end = time.monotonic() + 5
    while is_alive(int((tmp_path / "grandchild").read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_server_that_died_is_started_again_for_the_next_call(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> tuple[str, str]:
        with pytest.raises(ProviderUnavailable, match="'up' does not answer: its process ended with exit code 9"):
            await upstreams.call("up", "crash", {})
        again = await upstreams.call("up", "say", {"text": "again"})
        (pid,) = upstream.pids()
        os.kill(pid, 9)
        while is_alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        return again.text, (await upstreams.call("up", "say", {"text": "and again"})).text

    upstream = McpUpstream(tmp_path)
    assert talk(upstream, conversation) == ("again", "and again")


def test_a_restarted_http_server_gets_a_new_session(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> CallResult:
        await upstreams.call("up", "say", {"text": "first"})
        upstream.stop()
        with pytest.raises(ProviderUnavailable, match="The MCP server 'up' does not answer: "):
            await upstreams.call("up", "say", {"text": "lost"})
        await asyncio.to_thread(upstream.start)
        return await upstreams.call("up", "say", {"text": "third"})

    with McpUpstream(tmp_path, http=True) as upstream:
        assert talk(upstream, conversation).text == "third"


def test_a_server_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> tuple[str, list[str]]:
        with pytest.raises(ProviderUnavailable) as nameless:
            await upstreams.call("other", "say", {})
        upstreams.apply(
            {
                "lost": ServerConfig(name="lost", command="no-such-program-anywhere"),
                "brief": ServerConfig(name="brief", command="/bin/sh", args=("-c", "echo no license >&2; exit 3")),
                "closed": ServerConfig(name="closed", url="http://127.0.0.1:9/mcp"),
            }
        )
        causes = []
        for name in ("lost", "brief", "closed"):
            with pytest.raises(ProviderUnavailable) as caught:
                await upstreams.call(name, "say", {})
            causes.append(caught.value.remedy)
        return nameless.value.remedy, causes

    nameless, causes = talk(McpUpstream(tmp_path), conversation)
    assert nameless == "The settings name no MCP server 'other'. They name: up."
    assert causes[0].startswith(
        "The MCP server 'lost' does not answer: 'no-such-program-anywhere' cannot be started: No such file"
    )
    assert causes[1].endswith("'brief' does not answer: its process ended with exit code 3, saying: no license.")
    assert causes[2].startswith("The MCP server 'closed' does not answer: ")
    assert "connect" in causes[2].lower()


def test_changed_settings_close_the_changed_sessions_once_idle(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> tuple[Json, Json]:
        config = server_config(upstream)
        call = asyncio.create_task(upstreams.call("up", "sleep", {"seconds": 1}))
        await asyncio.to_thread(upstream.wait_for, "call")
        upstreams.apply({"up": ServerConfig(name="up", command=config.command, args=config.args, env={"COLOR": "red"})})
        value = (await upstreams.call("up", "environment", {"name": "COLOR"})).value
        return value, (await call).value

    upstream = McpUpstream(tmp_path)
    assert talk(upstream, conversation) == ({"value": "red"}, {"slept": 1.0})
    assert upstream.pids() == []


def test_a_server_that_floods_standard_error_stops_nothing(tmp_path: Path) -> None:
    script = tmp_path / "noisy.py"
    script.write_text(
        "import subprocess, sys\n"
        "sys.stderr.write('x' * 300_000 + '\\n' * 5_000)\nsys.stderr.flush()\n"
        "sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))\n"
    )
    upstream = McpUpstream(tmp_path / "up")
    args = (str(script), *upstream.command()[1:])

    async def conversation(upstreams: Upstreams) -> CallResult:
        upstreams.apply({"up": ServerConfig(name="up", command=sys.executable, args=args)})
        return await upstreams.call("up", "say", {"text": "through the noise"})

    assert talk(upstream, conversation).text == "through the noise"


def test_a_long_answer_arrives_completely(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> CallResult:
        return await upstreams.call("up", "say", {"text": "x" * 3_000_000})

    assert len(talk(McpUpstream(tmp_path), conversation).text) == 3_000_000


OLD_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print("<", message["method"], file=sys.stderr, flush=True)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        about = {"name": "old", "version": "1"}
        reply["result"] = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": about}
    elif message["method"] == "tools/list":
        reply["result"] = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        reply["result"] = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
    else:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(reply), flush=True)
"""


def test_a_handshake_era_server_gets_handshake_era_messages(tmp_path: Path) -> None:
    async def conversation(upstreams: Upstreams) -> tuple[list[str], str]:
        upstreams.apply({"old": ServerConfig(name="old", command=sys.executable, args=("-c", OLD_SERVER))})
        tools = await upstreams.tools("old")
        return [tool.name for tool in tools], (await upstreams.call("old", "say", {"text": "as ever"})).text

    assert talk(McpUpstream(tmp_path), conversation) == (["say"], "as ever")


def test_secrets_in_messages_of_a_server_are_redacted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("UP_TOKEN", "hush-hush-hush")
    caplog.set_level("DEBUG")
    script = "echo the key is $KEY and $OTHER, not $1 >&2; exit 3"
    env = {"KEY": "${UP_TOKEN}", "OTHER": "as-it-stands"}
    server = ServerConfig(name="up", command="/bin/sh", args=("-c", script, "sh", "${UP_TOKEN}"), env=env)

    async def go() -> None:
        upstreams = Upstreams({"up": server})
        try:
            await upstreams.tools("up")
        finally:
            await upstreams.aclose()

    with pytest.raises(ProviderUnavailable) as away:
        asyncio.run(go())

    assert away.value.data["cause"] == "its process ended with exit code 3, saying: the key is … and …, not …"
    assert "up says: the key is … and …, not …" in caplog.text
    assert "hush" not in caplog.text
