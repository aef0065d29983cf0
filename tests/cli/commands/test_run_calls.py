"""`workflowlookup run` and `cancel` where steps have calls: the command makes them, shows how far they are, stops them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from execution.working import call, effects
from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, step, write
from upstream.upstreams import McpUpstream


@pytest.fixture
def upstream(cli: Cli) -> Iterator[McpUpstream]:
    upstream = McpUpstream(cli.directory / "up")
    (cli.own / "workflowlookup.toml").write_text('directories = ["workflows"]\n' + upstream.toml())
    (cli.own / "workflows").mkdir()
    yield upstream
    for pid in upstream.pids():
        os.kill(pid, signal.SIGKILL)


def put_workflow(cli: Cli, *steps: JsonObject, **fields: Json) -> None:
    """A workflow of the user's own with these steps."""
    write(cli.own / "workflows", document(*steps, identifier="calling", **fields))


def test_a_run_of_calls_needs_no_agent(cli: Cli, upstream: McpUpstream) -> None:
    put_workflow(cli, call("one", "say", {"text": "{{who}}"}), call("two", "append", {"line": "{{one}}"}))
    done = cli("run", "calling", "--context", "who=me")

    assert (done.returncode, done.stderr) == (0, "")
    assert "The server calls tool 'say' of MCP server 'up'." in done.stdout
    assert "The server calls tool 'append' of MCP server 'up'." in done.stdout
    assert "The run is completed." in done.stdout
    assert effects(upstream) == ["me"]


def test_calls_and_outputs_take_turns(cli: Cli, upstream: McpUpstream) -> None:
    put_workflow(cli, call("one", "say", {"text": "a"}), step("think"), call("two", "append", {"line": "{{one}}"}))
    done = cli("run", "calling", "--json", stdin=b"thought\n.\n")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "completed"
    assert effects(upstream) == ["a"]


def test_a_call_that_fails_is_an_exit_code_and_a_reason(cli: Cli, upstream: McpUpstream) -> None:
    put_workflow(cli, call("one", "fail", {"message": "no luck"}, retries=1))
    done = cli("run", "calling")

    assert done.returncode == 1
    assert "The call failed, and is retried: no luck" in done.stdout
    assert "failed 2 times: no luck." in done.stdout
    assert "start a new one with `workflowlookup run`" in done.stdout


def test_progress_is_shown_on_a_terminal(cli: Cli, upstream: McpUpstream) -> None:
    put_workflow(cli, call("one", "sleep", {"seconds": 2, "steps": 2}))
    code, seen = cli.on_terminal("run", "calling")

    assert code == 0
    assert "0 of 2  part 1 of 2" in seen
    assert "1 of 2  part 2 of 2" in seen


def test_an_interrupt_cancels_the_run_and_shows_what_was_stopped(cli: Cli, upstream: McpUpstream) -> None:
    put_workflow(cli, call("one", "sleep", {"seconds": 60}))
    process = begin(cli, "run", "calling")
    upstream.wait_for("call", 1, 60)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert b"Traceback" not in err
    assert b"The MCP server 'up' was asked to stop, and its process" in out
    assert b"The run is cancelled: It was interrupted at the terminal." in out
    assert upstream.pids() == []


def test_cancel_from_another_terminal_stops_the_call_and_says_so(cli: Cli, upstream: McpUpstream) -> None:
    put_workflow(cli, call("one", "sleep", {"seconds": 60}))
    process = begin(cli, "run", "calling", "--json")
    upstream.wait_for("call", 1, 60)
    (entry,) = upstream.seen("call")

    cancelled = cli("cancel", entry["key"].partition(":")[0], "--reason", "enough")
    out, _ = process.communicate(timeout=60)

    assert cancelled.returncode == 0
    assert "The run is cancelled: enough" in cancelled.stdout
    assert "The MCP server 'up' was asked to stop, and its process" in cancelled.stdout
    assert (process.returncode, json.loads(out)["state"]) == (1, "cancelled")
    assert upstream.pids() == []


def test_a_run_that_was_killed_is_resumed(cli: Cli, upstream: McpUpstream) -> None:
    put_workflow(cli, call("one", "append", {"line": "a", "seconds": 1}), call("two", "append", {"line": "b"}))
    process = begin(cli, "run", "calling")
    upstream.wait_for("call", 1, 60)
    process.kill()
    process.communicate()
    run_id = upstream.seen("call")[0]["key"].partition(":")[0]

    done = cli("run", "--resume", run_id)

    assert done.returncode == 0, done.stdout + done.stderr
    assert effects(upstream)[-1] == "b"


def begin(cli: Cli, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "workflowlookup", *words]
    pipe, environment = subprocess.PIPE, cli._environment()
    return subprocess.Popen(
        command, cwd=cli.directory, env=environment, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL
    )
