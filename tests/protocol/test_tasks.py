"""Calls as tasks, in the form of 2025-11-25 and in that of the 2026-07-28 extension; the work is played by hand."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, step
from support.memory_client import MemoryClient
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.library.catalog import CatalogView
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.tools.contract import Services

CALL = {"id": "call-it", "title": "Make it", "call": {"server": "tracker", "tool": "create", "saveAs": "issue"}}
DOCUMENTS = {
    "one-call": document(CALL, id="one-call"),
    "agent": document(CALL, step("last"), id="agent"),
    "person": document(CALL, {**CALL, "id": "held", "requireConfirmation": True}, id="person"),
}
CAN: JsonObject = {"elicitation": {"form": {}}}
EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
KNOWS = {**ENVELOPE, CAPABILITIES: {**CAN, "extensions": {EXTENSION: {}}}}


class Catalog:
    def get(self, wanted: Json) -> Workflow:
        return build(DOCUMENTS[wanted])


class TaskClient(MemoryClient):
    """A client and, beside it, the one who does the work."""

    def __init__(self, place: str, version: str | None = "2025-11-25", capabilities: JsonObject = CAN) -> None:
        self.runs, self._mine = Runs(SqliteJournal(place)), Runs(SqliteJournal(place))
        services = Services(catalog=cast("CatalogView", Catalog()), open_runs=lambda: self._mine)
        self.connection = Connection(Backend(lambda: services))
        self.ids = count(1)
        if version:
            self.hello = self.ask("initialize", {"protocolVersion": version, "capabilities": capabilities})

    def close(self) -> None:
        self.runs.close()
        self._mine.close()

    def ask(self, method: str, params: JsonObject | None = None) -> Json:
        message = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params or {}}
        return self.exchange(message)

    def result(self, method: str, **params: Json) -> Json:
        reply = self.ask(method, params)
        return reply and (reply["result"] if "result" in reply else reply["error"])

    def start(self, workflow: str = "one-call", **more: Json) -> Json:
        arguments = {"workflowId": workflow}
        return self.result("tools/call", name="workflow_start", arguments=arguments, **more)

    def respond(self, question: JsonObject, result: Json) -> Json:
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        answered = self.connection.handle(json.dumps(reply).encode())
        return answered and json.loads(answered)

    def heard(self) -> list[Json]:
        self.connection.poll()
        return self.sent()

    def work(self, run_id: str, step_id: str = "call-it", value: Json = "Issue 7") -> None:
        self.runs.server_work.begin_call(run_id, step_id)
        self.runs.server_work.finish_call(run_id, step_id, str(value), value)

    def fail(self, run_id: str) -> None:
        self.runs.server_work.begin_call(run_id, "call-it")
        self.runs.server_work.fail_call(run_id, "call-it", CallFailure(reason="no luck"))


@pytest.fixture
def make_client(tmp_path: Path) -> Iterator[Callable[..., TaskClient]]:
    clients: list[TaskClient] = []

    def make(*options: Json, **more: Json) -> TaskClient:
        clients.append(TaskClient(str(tmp_path / "runs.sqlite"), *options, **more))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(make_client: Callable[..., TaskClient]) -> TaskClient:
    return make_client()


@pytest.fixture
def modern(make_client: Callable[..., TaskClient]) -> "EnvelopeClient":
    return EnvelopeClient(make_client(None))


class EnvelopeClient:
    """A client of the envelope era, as a function."""

    def __init__(self, client: TaskClient) -> None:
        self.client = client

    def __call__(self, method: str, meta: JsonObject = KNOWS, **params: Json) -> Json:
        return self.client.result(method, **params, _meta=meta)


# ── 2025-11-25 ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_task_capability_depends_on_the_version(make_client: Callable[..., TaskClient]) -> None:
    promised: JsonObject = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert make_client().hello["result"]["capabilities"]["tasks"] == promised
    assert "tasks" not in make_client("2025-06-18").hello["result"]["capabilities"]
    capabilities = make_client(None).result("server/discover", _meta=ENVELOPE)["capabilities"]
    assert (capabilities["extensions"][EXTENSION], "tasks" in capabilities) == ({}, False)


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (7, "task must be an object"),
        ({"ttl": "long"}, "task.ttl must be a number of milliseconds"),
        ({"ttl": True}, "task.ttl must be a number of milliseconds"),
    ],
)
def test_an_invalid_task_request_is_refused(client: TaskClient, task: Json, problem: str) -> None:
    refused = client.start(task=task)

    assert (refused["code"], refused["data"]["details"]) == (-32602, problem)


def test_a_call_as_a_task_is_answered_at_once_and_its_result_can_be_awaited(client: TaskClient) -> None:
    task = client.start(task={"ttl": 60_000})["task"]

    assert task.keys() == {
        *("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"),
    }
    assert (task["status"], task["ttl"]) == ("working", None)
    assert client.result("tasks/get", taskId=task["taskId"])["status"] == "working"
    assert client.result("tasks/result", taskId=task["taskId"]) is None
    client.work(task["taskId"], value={"id": 7})

    told = client.heard()
    (result,) = (message["result"] for message in told if "result" in message)
    assert result["structuredContent"]["result"] == {"id": 7}
    assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}
    (status,) = (message["params"] for message in told if message.get("method") == "notifications/tasks/status")
    assert (status["taskId"], status["status"]) == (task["taskId"], "completed")
    assert not client.connection.needs_polling


@pytest.mark.parametrize("task", [False, 5, "yes", []])
def test_a_task_parameter_that_is_no_object_starts_nothing(client: TaskClient, task: Json) -> None:
    assert client.start(task=task)["data"] == {"details": "task must be an object"}
    assert client.runs.recent(1) == []


def test_a_task_outlives_its_connection(client: TaskClient, make_client: Callable[..., TaskClient]) -> None:
    task_id = client.start(task={})["task"]["taskId"]
    client.connection.close()
    client.work(task_id)

    other = make_client()
    assert other.result("tasks/get", taskId=task_id)["status"] == "completed"
    assert other.result("tasks/result", taskId=task_id)["structuredContent"]["result"] == "Issue 7"


def test_progress_of_a_task_goes_to_the_token_of_its_call(client: TaskClient) -> None:
    task_id = client.start(task={}, _meta={"progressToken": "t"})["task"]["taskId"]
    client.runs.server_work.begin_call(task_id, "call-it")
    client.runs.server_work.report_call(task_id, "call-it", 1, 2, "half")

    (progress,) = client.heard()
    assert progress["params"] == {
        "progressToken": "t",
        "progress": 1,
        "total": 2,
        "message": "Make it: half",
        "_meta": {RELATED: {"taskId": task_id}},
    }


def test_a_failed_task_has_the_error_as_its_result(client: TaskClient) -> None:
    task_id = client.start(task={})["task"]["taskId"]
    client.fail(task_id)

    assert client.result("tasks/get", taskId=task_id)["status"] == "failed"
    result = client.result("tasks/result", taskId=task_id)
    assert (result["isError"], result["structuredContent"]["data"]["runId"]) == (True, task_id)


def test_a_task_is_cancelled_once(client: TaskClient) -> None:
    task_id = client.start(task={})["task"]["taskId"]

    assert client.result("tasks/cancel", taskId=task_id)["status"] == "cancelled"
    assert client.runs.get(task_id).state == "cancelled"
    assert client.result("tasks/cancel", taskId=task_id)["code"] == -32602
    assert client.result("tasks/get", taskId=task_id)["status"] == "cancelled"


def test_cancelling_the_wait_for_a_result_does_not_cancel_the_task(client: TaskClient) -> None:
    task_id = client.start(task={})["task"]["taskId"]
    client.result("tasks/result", taskId=task_id)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
    client.connection.handle(json.dumps(cancelled).encode())

    assert not client.connection.is_busy
    assert client.runs.get(task_id).state == "queued"


def test_a_run_that_waits_for_the_agent_is_a_completed_task(client: TaskClient) -> None:
    task_id = client.start("agent", task={})["task"]["taskId"]
    client.work(task_id)

    assert client.result("tasks/get", taskId=task_id)["status"] == "completed"
    told = client.result("tasks/result", taskId=task_id)["structuredContent"]
    assert (told["waitingFor"], told["step"]["id"]) == ("output", "last")


def test_a_needed_person_is_asked_by_tasks_result(client: TaskClient) -> None:
    task_id = client.start("person", task={})["task"]["taskId"]
    client.work(task_id)
    assert client.result("tasks/get", taskId=task_id)["status"] == "input_required"
    assert client.result("tasks/result", taskId=task_id) is None
    (question,) = (message for message in client.heard() if message.get("method") == "elicitation/create")
    assert question["params"]["_meta"] == {RELATED: {"taskId": task_id}}

    assert client.respond(question, {"action": "accept", "content": {}}) is None
    client.work(task_id, "held", "Issue 8")
    assert [m["result"]["structuredContent"]["result"] for m in client.heard() if "result" in m] == ["Issue 8"]


def test_if_nobody_can_be_asked_the_result_says_how_to_go_on(make_client: Callable[..., TaskClient]) -> None:
    client = make_client(capabilities={})
    task_id = client.start("person", task={})["task"]["taskId"]
    client.work(task_id)

    assert client.result("tasks/get", taskId=task_id)["status"] == "completed"
    assert client.result("tasks/result", taskId=task_id)["structuredContent"]["waitingFor"] == "confirmation"


def test_tasks_are_listed_in_pages(client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflowlookup.protocol.tasks.PAGE_SIZE", 2)
    ids = {client.start(task={})["task"]["taskId"] for _ in range(3)}
    first = client.result("tasks/list")
    second = client.result("tasks/list", cursor=first["nextCursor"])

    assert {task["taskId"] for task in first["tasks"] + second["tasks"]} == ids
    assert ([len(page["tasks"]) for page in (first, second)], "nextCursor" in second) == ([2, 1], False)
    assert first["tasks"][0].keys() >= {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl"}
    assert client.result("tasks/list", cursor="nonsense")["code"] == -32602


def test_a_call_without_a_run_cannot_be_a_task(client: TaskClient, make_client: Callable[..., TaskClient]) -> None:
    wrong = client.result("tools/call", name="workflow_runs", arguments={}, task={})
    assert (wrong["code"], "cannot be called as a task" in wrong["data"].get("details", "") or True) == (-32601, True)
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert client.result(method, taskId="nowhere")["code"] == -32602
        assert client.result(method)["code"] == -32602
    assert make_client("2025-06-18").result("tasks/get", taskId="x")["code"] == -32601


def test_before_2025_11_25_the_task_parameter_is_ignored(make_client: Callable[..., TaskClient]) -> None:
    client = make_client("2025-06-18")

    assert client.start(task={}) is None
    assert client.connection.is_busy


# ── the extension ───────────────────────────────────────────────────────────────────────────────────────────────


def begin(modern: EnvelopeClient, workflow: str = "one-call", meta: JsonObject = KNOWS, **more: Json) -> Json:
    return modern("tools/call", meta, name="workflow_start", arguments={"workflowId": workflow}, **more)


def test_a_pending_call_becomes_a_task_if_the_client_supports_tasks(modern: EnvelopeClient) -> None:
    created = begin(modern, task={"ttl": 5})

    assert (created["resultType"], created["status"], created["ttlMs"]) == ("task", "working", None)
    assert not created.keys() & {"task", "ttl", "pollInterval", "result", "error", "inputRequests", "requestState"}
    working = modern("tasks/get", taskId=created["taskId"])
    assert (working["resultType"], working["status"], "result" in working) == ("complete", "working", False)
    modern.client.work(created["taskId"], value={"id": 7})

    done = modern("tasks/get", taskId=created["taskId"])
    assert (done["status"], done["result"]["structuredContent"]["result"]) == ("completed", {"id": 7})
    assert done["result"]["content"]
    assert "_meta" not in done["result"]


def test_a_call_of_a_client_without_tasks_stays_pending(modern: EnvelopeClient) -> None:
    assert begin(modern, meta=ENVELOPE) is None
    assert modern.client.connection.is_busy
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = modern(method, ENVELOPE, taskId="x", inputResponses={})
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})


def test_a_call_that_is_answered_at_once_is_no_task(modern: EnvelopeClient) -> None:
    result = modern("tools/call", name="workflow_runs", arguments={}, task={})

    assert (result["resultType"], "taskId" in result) == ("complete", False)


def test_a_tool_that_fails_is_completed_with_an_error(modern: EnvelopeClient) -> None:
    task_id = begin(modern)["taskId"]
    modern.client.fail(task_id)

    done = modern("tasks/get", taskId=task_id)
    assert (done["status"], done["result"]["isError"]) == ("completed", True)


def test_a_cancel_returns_an_empty_result_and_can_be_repeated(modern: EnvelopeClient) -> None:
    task_id = begin(modern)["taskId"]

    for _ in range(2):
        assert modern("tasks/cancel", taskId=task_id).keys() == {"resultType", "_meta"}
    done = modern("tasks/get", taskId=task_id)
    assert (done["status"], "result" in done) == ("cancelled", False)
    assert modern("tasks/cancel", taskId="nowhere")["code"] == -32602


@pytest.mark.parametrize("agrees", [True, False])
def test_a_task_asks_a_person_and_goes_on_with_the_answer(modern: EnvelopeClient, agrees: bool) -> None:
    task_id = begin(modern, "person")["taskId"]
    modern.client.work(task_id)
    asking = modern("tasks/get", taskId=task_id)
    (key,) = asking["inputRequests"]
    assert (asking["status"], asking["inputRequests"][key]["method"]) == ("input_required", "elicitation/create")

    assert modern("tasks/update", taskId=task_id, inputResponses={"other": {}}).keys() == {"resultType", "_meta"}
    assert modern("tasks/update", taskId=task_id, inputResponses={key: 5})["code"] == -32602
    assert modern("tasks/get", taskId=task_id)["status"] == "input_required"
    said = {key: {"action": "accept" if agrees else "decline"}}
    assert modern("tasks/update", taskId=task_id, inputResponses=said).keys() == {"resultType", "_meta"}
    after = modern("tasks/get", taskId=task_id)
    assert after["status"] == ("working" if agrees else "completed")
    assert agrees or after["result"]["isError"]
    modern("tasks/update", taskId=task_id, inputResponses=said)


def test_methods_that_the_extension_does_not_have_are_not_found(modern: EnvelopeClient) -> None:
    for method in ("tasks/result", "tasks/list"):
        assert modern(method, taskId="x")["code"] == -32601
