"""The official Python SDK, both eras, over the pipes of the real process."""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import ElicitResult, ListRootsResult, ResourceTemplateReference, ResourceUpdatedNotification
from pydantic import BaseModel

from support.json_values import Json, JsonObject
from support.narrowing import not_none
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

pytest.register_assert_rewrite("clients.promises", "clients.confirming")  # so that their asserts explain themselves

from clients.confirming import NEVER, SAID, WORKFLOW, RunPromises, places_after_a_kill, settle  # noqa: E402 - see above
from clients.promises import CONVERSATION, LATEST_HANDSHAKE, MODERN, Promises  # noqa: E402 - see above

TIMEOUT = 30.0

Ask = Callable[[Client, JsonObject], Awaitable[BaseModel]]

ASK: dict[str, Ask] = {
    "listTools": lambda client, _: client.list_tools(),
    "callTool": lambda client, question: client.call_tool(question["name"], question["arguments"]),
    "listResources": lambda client, _: client.list_resources(),
    "readResource": lambda client, question: client.read_resource(question["uri"]),
    "listResourceTemplates": lambda client, _: client.list_resource_templates(),
    "listPrompts": lambda client, _: client.list_prompts(),
    "getPrompt": lambda client, question: client.get_prompt(question["name"], question["arguments"]),
    "complete": lambda client, question: client.complete(
        ResourceTemplateReference(uri=question["uri"]), question["argument"]
    ),
}


def server(home: Path, environment: dict[str, str] | None = None) -> StdioServerParameters:
    """The SDK hands on little of the environment, and nothing that configures us."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "workflowlookup", "serve"], cwd=home, env=environment or {"HOME": str(home)}
    )


def plain(model: BaseModel) -> Json:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def answer(client: Client, question: JsonObject) -> JsonObject:
    try:
        result: JsonObject = plain(await ASK[question["do"]](client, question))
        return result
    except MCPError as error:
        return {"failure": {"code": error.error.code, "data": error.error.data}}


async def converse(home: Path, mode: str) -> JsonObject:
    troubles: list[str] = []

    async def notice(message: object) -> None:
        """The SDK's ear for what is no answer: nothing should come in this conversation."""
        troubles.append(repr(message))

    async with (
        asyncio.timeout(TIMEOUT),
        Client(server(home), mode=mode, read_timeout_seconds=TIMEOUT, message_handler=notice) as client,
    ):
        return {
            "version": client.protocol_version,
            "server": plain(not_none(client.server_info)),
            "capabilities": plain(client.server_capabilities),
            "instructions": client.instructions,
            **{name: await answer(client, question) for name, question in CONVERSATION.items()},
            "troubles": troubles,
        }


@pytest.fixture(scope="module", params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """`auto`: `server/discover` and what it leads to; `legacy`: `initialize`."""
    result: str = request.param
    return result


@pytest.fixture(scope="module")
def version(mode: str) -> str:
    return LATEST_HANDSHAKE if mode == "legacy" else MODERN


@pytest.fixture(scope="module")
def missing_resource(mode: str) -> int:
    """Since 2026-07-28 the code -32002 is forbidden."""
    return -32002 if mode == "legacy" else -32602


@pytest.fixture(scope="module")
def seen(mode: str, tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    return asyncio.run(converse(tmp_path_factory.mktemp(mode), mode))


class TestPythonSdk(Promises):
    """Every promise, to this client."""


def test_a_subscription_is_acknowledged_and_can_be_left(tmp_path: Path) -> None:
    async def listen() -> tuple[JsonObject, list[str]]:
        async with asyncio.timeout(TIMEOUT), Client(server(tmp_path)) as client:
            async with client.listen(tools_list_changed=True) as subscription:
                honored = plain(subscription.honored)
            listed = await client.list_tools()
            return honored, [tool.name for tool in listed.tools][:1]

    assert asyncio.run(listen()) == ({"toolsListChanged": True}, ["workflow_list"])


def test_calls_in_flight_together_get_each_its_own_answer(tmp_path: Path) -> None:
    wanted = ["bug-investigation", "code-review", "refactoring", "test-writing"] * 10

    async def call() -> list[str]:
        async with asyncio.timeout(TIMEOUT), Client(server(tmp_path)) as client:
            calls = (client.call_tool("workflow_get", {"id": workflow_id}) for workflow_id in wanted)
            return [result.structured_content["id"] for result in await asyncio.gather(*calls)]

    assert asyncio.run(call()) == wanted


async def advance(home: Path, mode: str, answer: JsonObject | None) -> JsonObject:
    """Two runs at once, as `confirming` tells it."""
    questions: list[JsonObject] = []
    heard: list[str] = []
    both_are_open = asyncio.Event()

    async def answer_question(context: object, params: BaseModel) -> ElicitResult:
        questions.append(plain(params))
        if answer == NEVER:
            print("asked", flush=True)
            await asyncio.sleep(3600)
        if len(questions) == 2:
            both_are_open.set()
        await both_are_open.wait()
        return ElicitResult.model_validate(answer)

    async def notice(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async def call(client: Client, tool: str, **arguments: Json) -> JsonObject:
        result: JsonObject = (await client.call_tool(tool, arguments)).structured_content
        return result

    async def follow(client: Client, uri: str, followed: asyncio.Event) -> None:
        async with client.listen(resource_subscriptions=[uri]) as subscription:
            assert plain(subscription.honored) == {"resourceSubscriptions": [uri]}
            followed.set()
            async for event in subscription:
                assert isinstance(event, ResourceUpdated)
                heard.append(event.uri)

    parameters = server(home, settle(home))
    async with (
        asyncio.timeout(TIMEOUT),
        Client(
            parameters,
            mode=mode,
            read_timeout_seconds=TIMEOUT,
            message_handler=notice,
            elicitation_callback=answer_question if answer else None,
        ) as client,
    ):
        ids = [(await call(client, "workflow_start", workflowId=WORKFLOW))["runId"] for _ in range(2)]
        if mode == "legacy":
            with pytest.warns(Warning, match="resources/subscribe"):  # the SDK prefers the newer era
                await client.subscribe_resource(f"run://{ids[0]}")
            follower = None
        else:
            followed = asyncio.Event()
            follower = asyncio.create_task(follow(client, f"run://{ids[0]}", followed))
            await followed.wait()
        submissions = (call(client, "workflow_submit", runId=run_id, stepId="one", output="done") for run_id in ids)
        seen = {
            "ids": ids,
            "told": await asyncio.gather(*submissions),
            "states": [await call(client, "workflow_status", runId=run_id) for run_id in ids],
            "report": plain(await client.read_resource(f"run://{ids[0]}")),
            "asked": questions,
            "heard": heard,
            "troubles": [],
        }
        if follower is not None:
            follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await follower
        return seen


@pytest.fixture(scope="module", params=list(SAID))
def outcome(request: pytest.FixtureRequest) -> str:
    result: str = request.param
    return result


@pytest.fixture(scope="module")
def acted(mode: str, outcome: str, tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    return asyncio.run(advance(tmp_path_factory.mktemp("runs"), mode, SAID[outcome]))


class TestPythonSdkRuns(RunPromises):
    """Every promise about runs, to this client."""


def test_a_client_that_is_killed_with_questions_open_leaves_the_runs_waiting(mode: str, tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parent.parent)]}\n"
        "import test_python_sdk\n"
        f"asyncio.run(test_python_sdk.advance(pathlib.Path({str(tmp_path)!r}), {mode!r}, test_python_sdk.NEVER))\n"
    )

    places = places_after_a_kill(tmp_path, [sys.executable, "-c", script])

    assert places == [("waiting", "confirmation")] * 2


def test_after_the_form_was_closed_twice_the_agent_is_told_to_stop(mode: str, tmp_path: Path) -> None:
    questions: list[object] = []

    async def close_form(context: object, params: BaseModel) -> ElicitResult:
        questions.append(params)
        return ElicitResult(action="cancel")

    async def close_twice() -> list[str]:
        parameters = server(tmp_path, settle(tmp_path))
        async with (
            asyncio.timeout(TIMEOUT),
            Client(parameters, mode=mode, read_timeout_seconds=TIMEOUT, elicitation_callback=close_form) as client,
        ):
            run = (await client.call_tool("workflow_start", {"workflowId": WORKFLOW})).structured_content
            there = {"runId": run["runId"], "stepId": "one"}
            calls = [{**there, "output": "done"}, {**there, "confirmed": True}]
            return [(await client.call_tool("workflow_submit", call)).structured_content["next"] for call in calls]

    first, second = asyncio.run(close_twice())

    assert len(questions) == 2
    assert first.startswith("The person has not answered. To show them the form again")
    assert "Stop here and do not ask again by yourself. Tell the user" in second


def test_runs_are_started_in_the_first_root_of_the_client(mode: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    requests: list[object] = []

    async def list_roots(context: object) -> ListRootsResult:
        requests.append(context)
        return ListRootsResult.model_validate({"roots": [{"uri": project.as_uri()}]})

    async def start() -> list[str]:
        parameters = server(tmp_path, settle(tmp_path))
        async with (
            asyncio.timeout(TIMEOUT),
            Client(parameters, mode=mode, read_timeout_seconds=TIMEOUT, list_roots_callback=list_roots) as client,
        ):
            calls = [await client.call_tool("workflow_start", {"workflowId": WORKFLOW}) for _ in range(2)]
            return [call.structured_content["runId"] for call in calls]

    run_ids = asyncio.run(start())

    with contextlib.closing(Runs(SqliteJournal(str(tmp_path / ".local/share/workflowlookup/runs.sqlite")))) as runs:
        assert [runs.get(run_id).root for run_id in run_ids] == [str(project)] * 2
    assert len(requests) == 1
