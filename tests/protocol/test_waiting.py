"""Calls whose answer comes later, in both eras: what is answered meanwhile, how far they are, and how they are given up."""

import json

import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.memory_client import MemoryClient
from support.narrowing import not_none
from workflowlookup.errors import ExecutionFailed
from workflowlookup.language.values import Progress
from workflowlookup.library.catalog import Catalog
from workflowlookup.protocol.backend import ServerBackend
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.pending_calls import MAX_PENDING
from workflowlookup.tools.arguments import SchemaArguments
from workflowlookup.tools.contract import Caller, Elicitation, Pending, ServerServices, Tool
from workflowlookup.tools.registry import Registry

FORM = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
CAN: JsonObject = {"elicitation": {}}
MODERN = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": CAN}


class Work:
    """What the server works on, moved by hand."""

    def __init__(self) -> None:
        self.given_up: list[tuple[str, str]] = []
        self.results: JsonObject = {}
        self.progress: Progress | None = None
        self.callers: list[Caller] = []

    def handle(self, _: object, arguments: JsonObject, caller: Caller) -> JsonObject | Pending:
        name = arguments["name"]
        self.callers.append(caller)
        if "sure" in caller.answers:
            return {"sure": caller.answers["sure"]["action"]}

        def look() -> Json:
            result = self.results.get(name)
            if isinstance(result, Exception):
                raise result
            return result

        return Pending(
            run_id=name,
            poll=look,
            progress=lambda: self.progress,
            abandon=lambda reason: self.given_up.append((name, reason)),
        )


class WaitingClient(MemoryClient):
    def __init__(self, version: str | None = "2025-11-25") -> None:
        self.work = Work()
        self.is_closed = 0
        tools = [
            Tool(
                name="work",
                title="Work",
                description="Works.",
                arguments=SchemaArguments({"type": "object", "required": ["name"]}),
                handler=self.work.handle,
            )
        ]
        services = ServerServices(catalog=Catalog([]), close=self.closed)
        backend = ServerBackend(lambda: services)
        backend.registry = Registry({tool.name: tool for tool in tools}, backend.services)
        self.connection = Connection(backend)
        if version:
            self.send("initialize", {"protocolVersion": version, "capabilities": CAN}, 0)

    def closed(self) -> None:
        self.is_closed += 1

    def send(self, method: str, params: JsonObject | None = None, identifier: int | str | None = 1) -> Json:
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        reply = self.connection.handle(json.dumps({k: v for k, v in message.items() if v is not None}).encode())
        return reply and json.loads(reply)

    def work_on(self, name: str, identifier: int | str = 1, meta: JsonObject | None = None, **more: Json) -> Json:
        params = {"name": "work", "arguments": {"name": name}, "_meta": meta or {}, **more}
        return self.send("tools/call", params, identifier)

    def heard(self) -> list[Json]:
        self.connection.poll()
        return self.sent()


def test_a_pending_call_blocks_no_other_message() -> None:
    client = WaitingClient()

    assert client.work_on("long", 7) is None
    assert client.connection.needs_polling
    assert client.heard() == []
    assert client.send("ping", identifier=8) == {"jsonrpc": "2.0", "id": 8, "result": {}}
    client.work.results["long"] = {"runId": "long"}

    result = {"content": [{"type": "text", "text": '{"runId":"long"}'}], "structuredContent": {"runId": "long"}}
    assert client.heard() == [{"jsonrpc": "2.0", "id": 7, "result": result}]
    assert client.heard() == []
    assert not client.connection.needs_polling


def test_calls_are_answered_in_the_order_in_which_they_are_done() -> None:
    client = WaitingClient()
    for number, name in enumerate(("one", "two", "three")):
        client.work_on(name, number)
    client.work.results["two"] = {"n": 2}

    assert [message["id"] for message in client.heard()] == [1]
    client.work.results |= {"one": {"n": 1}, "three": {"n": 3}}
    assert [message["id"] for message in client.heard()] == [0, 2]


def test_a_tool_called_by_its_own_name_waits_too() -> None:
    client = WaitingClient()

    assert client.send("work", {"name": "long"}, 3) is None
    client.work.results["long"] = {"runId": "long"}
    assert client.heard() == [{"jsonrpc": "2.0", "id": 3, "result": {"runId": "long"}}]


def test_in_the_envelope_era_the_answer_says_that_it_is_complete() -> None:
    client = WaitingClient(None)
    client.work_on("long", meta=MODERN)
    client.work.results["long"] = {"runId": "long"}

    (reply,) = client.heard()
    assert (reply["result"]["resultType"], reply["result"]["structuredContent"]) == ("complete", {"runId": "long"})


@pytest.mark.parametrize(("version", "is_result"), [("2024-11-05", False), ("2025-03-26", True), ("2025-11-25", True)])
def test_a_pending_call_that_fails_has_the_same_error_as_one_that_fails_at_once(version: str, is_result: bool) -> None:
    client = WaitingClient(version)
    client.work_on("bad")
    client.work.results["bad"] = ExecutionFailed("Look at the log.", runId="bad")

    (reply,) = client.heard()
    told = reply["result"]["structuredContent"] if is_result else reply["error"]
    assert told == {"code": -32008, "message": "Workflow execution failed", "data": {"runId": "bad"}}
    assert not client.connection.is_busy


def test_an_unexpected_exception_is_an_internal_error_and_ends_the_wait() -> None:
    client = WaitingClient()
    client.work_on("bad")
    client.work.results["bad"] = ZeroDivisionError()

    assert [message["error"]["code"] for message in client.heard()] == [-32603]
    assert client.heard() == []


@pytest.mark.parametrize("token", ["t", 0])
def test_increasing_progress_is_reported_to_calls_with_a_token(token: str | int) -> None:
    client = WaitingClient()
    client.work_on("silent", 1)
    client.work_on("told", 2, meta={"progressToken": token})

    told: list[Json] = []
    for done in (None, 0, 0, 1, 1, 0.5, 2):
        client.work.progress = None if done is None else Progress(done, 3, f"Step {done}")
        told += client.heard()

    assert [message["method"] for message in told] == ["notifications/progress"] * 3
    assert [message["params"] for message in told] == [
        {"progressToken": token, "progress": done, "total": 3, "message": f"Step {done}"} for done in (0, 1, 2)
    ]


def test_no_progress_comes_after_the_answer() -> None:
    client = WaitingClient()
    client.work_on("long", 2, meta={"progressToken": "t"})
    client.work.progress = Progress(3, None, "")
    client.work.results["long"] = {}

    assert [message.get("id") for message in client.heard()] == [None, 2]
    client.work.progress = Progress(4, None, "")
    assert client.heard() == []


def test_a_cancelled_call_is_abandoned_and_not_answered() -> None:
    client = WaitingClient()
    client.work_on("one", 1)
    client.work_on("two", "1")
    client.send("notifications/cancelled", {"requestId": "1", "reason": "too slow"}, None)
    client.work.results = {"one": {}, "two": {}}

    assert client.work.given_up == [("two", "the call was cancelled: too slow")]
    assert [message["id"] for message in client.heard()] == [1]


def test_a_call_may_set_a_timeout() -> None:
    client = WaitingClient()
    client.work_on("one", 1, meta={"workflowlookup/timeoutSeconds": 2.5})
    client.work_on("two", 2)

    assert [caller.timeout_seconds for caller in client.work.callers] == [2.5, None]
    for wrong in (0, -1, "3", True, 1e12):
        reply = client.work_on("three", 3, meta={"workflowlookup/timeoutSeconds": wrong})
        assert "timeoutSeconds" in json.dumps(reply)


def test_a_pending_call_may_ask_a_question() -> None:
    client = WaitingClient()
    client.work_on("careful", 5)
    client.work.results["careful"] = Elicitation(key="sure", message="Sure?", schema=FORM)

    (question,) = client.heard()
    assert question["method"] == "elicitation/create"
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"yes": True}}}
    reply = json.loads(not_none(client.connection.handle(json.dumps(answer).encode())))
    assert (reply["id"], reply["result"]["structuredContent"]) == (5, {"sure": "accept"})


def test_in_the_envelope_era_a_question_of_a_pending_call_is_its_result() -> None:
    client = WaitingClient(None)
    client.work.results["careful"] = Elicitation(key="sure", message="Sure?", schema=FORM)
    client.work_on("careful", 5, meta=MODERN)

    (reply,) = client.heard()
    assert reply["result"]["resultType"] == "input_required"
    (key,) = reply["result"]["inputRequests"]
    client.work_on("careful", 6, meta=MODERN, inputResponses={key: {"action": "decline"}})
    (reply,) = client.heard()
    assert (reply["id"], reply["result"]["structuredContent"]) == (6, {"sure": "decline"})


def test_calls_over_the_limit_are_refused_and_their_work_is_abandoned() -> None:
    client = WaitingClient()
    for number in range(MAX_PENDING):
        assert client.work_on(f"work {number}", number) is None

    reply = client.work_on("one more", "x")
    assert f"at most {MAX_PENDING} calls wait at once" in reply["error"]["data"]["details"]
    assert [name for name, _ in client.work.given_up] == ["one more"]


def test_the_id_of_a_pending_call_cannot_be_used_again() -> None:
    client = WaitingClient()
    client.work_on("one", 1)

    assert "ids must differ" in json.dumps(client.work_on("two", 1))
    client.work.results["one"] = {"n": 1}
    assert [message["result"]["structuredContent"] for message in client.heard()] == [{"n": 1}]


def test_at_the_end_pending_calls_are_abandoned_and_get_an_error() -> None:
    client = WaitingClient()
    client.work_on("long", 3)
    client.connection.close()
    client.connection.close()

    assert client.work.given_up == [("long", "the client went away")]
    assert client.is_closed == 1
    (reply,) = client.heard()
    assert (reply["id"], reply["result"]["structuredContent"]["data"]) == (3, {"runId": "long"})


def test_shutdown_is_answered_after_pending_calls() -> None:
    client = WaitingClient()
    client.work_on("long", 3)

    assert client.send("shutdown", identifier=4) is None
    assert client.connection.is_finished
    client.work.results["long"] = {"n": 1}
    assert [message["id"] for message in client.heard()] == [3]
    client.connection.close()
    assert client.heard() == [{"jsonrpc": "2.0", "id": 4, "result": None}]


def test_a_pending_call_without_a_run_never_becomes_a_task() -> None:
    client = WaitingClient(version=None)
    knows: JsonObject = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": knows}

    at_once = client.send("tools/call", {"name": "work", "arguments": {"name": ""}, "_meta": meta}, 5)
    client.work.results[""] = {"tools": 3}
    client.connection.poll()

    assert at_once is None
    [reply] = map(json.loads, client.connection.outbox)
    assert (reply["id"], reply["result"]["structuredContent"]) == (5, {"tools": 3})
