"""Workflows that the server carries out, through the official clients: answers that take time, tasks, and news."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ToolListChangedNotification

from clients.test_typescript_sdk import FOLDER, node, packages
from support.json_values import Json
from support.make import document, settings_file, step, write
from support.narrowing import not_none
from upstream.upstreams import McpUpstream

__all__ = ["node", "packages"]

TIMEOUT = 90.0
QUICK = {
    "id": "nap",
    "title": "Take a nap",
    "call": {"server": "up", "tool": "sleep", "arguments": {"seconds": 1, "steps": 4}, "saveAs": "nap"},
}


@pytest.fixture
def home(tmp_path: Path, library: Path) -> Path:
    write(library, document(QUICK, id="quick-nap", name="Quick nap"))
    settings_file(tmp_path).write_text(McpUpstream(tmp_path / "up").toml())
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "WORKFLOW_STORAGE_PATH": str(home / "library"), "WORKFLOWLOOKUP_BUNDLED": "false"}


def project(home: Path) -> Path:
    (home / "project").mkdir(exist_ok=True)
    return home / "project"


def server(home: Path) -> StdioServerParameters:
    arguments = ["-m", "workflowlookup", "serve"]
    return StdioServerParameters(command=sys.executable, args=arguments, cwd=project(home), env=environment(home))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_that_takes_time_is_answered_with_progress_on_the_way(home: Path, mode: str) -> None:
    async def call() -> tuple[Json, list[str | None], list[str]]:
        messages: list[str | None] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            messages.append(message)

        async with asyncio.timeout(TIMEOUT), Client(server(home), mode=mode, read_timeout_seconds=TIMEOUT) as client:
            started = asyncio.ensure_future(
                client.call_tool("workflow_start", {"workflowId": "quick-nap"}, progress_callback=on_progress)
            )
            meanwhile = await client.call_tool("workflow_list", {})
            result = await started
            return result, messages, [one["id"] for one in meanwhile.structured_content["workflows"]]

    result, texts, meanwhile = asyncio.run(call())
    assert (result.structured_content["state"], result.structured_content["result"]) == ("completed", {"slept": 1.0})
    assert texts
    assert all(not_none(message).startswith("Take a nap") for message in texts)
    assert meanwhile == ["quick-nap"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_output_is_proven_with_progress_on_the_way(home: Path, mode: str) -> None:
    script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done"
    proof = {"kind": "command", "name": "tests", "run": ["sh", "-c", script]}
    write(home / "library", document(step("fix", proof=[proof]), id="proven", name="Proven"))

    async def call() -> tuple[Json, list[str | None]]:
        messages: list[str | None] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            messages.append(message)
            if "sh -c" in not_none(message):
                (project(home) / "go").touch()

        async with asyncio.timeout(TIMEOUT), Client(server(home), mode=mode, read_timeout_seconds=TIMEOUT) as client:
            await client.call_tool("workflow_start", {"workflowId": "proven", "runId": "r1"})
            output = {"runId": "r1", "stepId": "fix", "output": "done"}
            return await client.call_tool("workflow_submit", output, progress_callback=on_progress), messages

    result, texts = asyncio.run(call())
    answer = result.structured_content
    assert (answer["state"], answer["proofs"]["summary"]) == ("completed", "proved 1 of 1")
    assert answer["verdict"]["proofs"][0].startswith("proved: tests (sh -c ")
    assert any(not_none(message).startswith("Title fix: proving 1 of 1: sh -c ") for message in texts)


def test_a_new_document_is_a_new_tool_and_clients_hear_of_it(home: Path) -> None:
    async def follow() -> tuple[str, list[str]]:
        async with asyncio.timeout(TIMEOUT), Client(server(home), read_timeout_seconds=TIMEOUT) as client:
            async with client.listen(tools_list_changed=True) as news:
                await client.list_tools()
                write(home / "library", document(step("one"), id="brand-new", name="Brand new"))
                event = await anext(aiter(news))
            return type(event).__name__, [tool.name for tool in (await client.list_tools()).tools]

    kind, names = asyncio.run(follow())
    assert "Tools" in kind
    assert len(names) == len(set(names))
    assert {"quick_nap", "brand_new"} <= {name.replace("-", "_") for name in names}


def test_a_client_of_the_handshake_era_hears_of_it_too(home: Path) -> None:
    async def follow() -> list[str]:
        heard = asyncio.Event()

        async def notice(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                heard.set()

        async with (
            asyncio.timeout(TIMEOUT),
            Client(server(home), mode="legacy", read_timeout_seconds=TIMEOUT, message_handler=notice) as client,
        ):
            before = await client.list_tools()
            (home / "library" / "quick-nap.json").unlink()
            await heard.wait()
            after = await client.list_tools()
            return sorted({tool.name for tool in before.tools} - {tool.name for tool in after.tools})

    assert len(asyncio.run(follow())) == 1


def test_a_workflow_is_a_task_for_the_typescript_client(home: Path, node: tuple[str, int], packages: None) -> None:
    command = {"command": sys.executable, "args": ["-m", "workflowlookup", "serve"], "cwd": str(project(home))}
    call = {"name": "workflow_start", "arguments": {"workflowId": "quick-nap"}}
    request = json.dumps({"server": {**command, "env": environment(home)}, "call": call})
    done = subprocess.run(
        [node[0], "task.mjs"],
        input=request,
        cwd=FOLDER,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)

    created, *_, result = report["seen"]
    assert (created["type"], created["status"]) == ("taskCreated", "working")
    assert result["structuredContent"]["result"] == {"slept": 1.0}
    assert report["listed"] == [created["taskId"]]
    assert report["one"]["status"] == "completed"
    assert report["progress"]
