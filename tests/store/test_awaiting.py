"""Runs that the server works on, as the run tools answer for them; the work itself is played by hand."""

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import NoReturn, cast

import pytest

from support.client import ENVELOPE
from support.clocks import TickingClock
from support.json_values import Json, JsonObject
from support.make import document, step
from support.memory_client import MemoryClient
from support.narrowing import instance_of, not_none
from workflowlookup.errors import ProviderUnavailable, StorageError, WorkflowNotFound
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.library.catalog import CatalogView
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.runs.events import Cancelled
from workflowlookup.runs.run import Run
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.store.service import Runs
from workflowlookup.tools import pending_runs
from workflowlookup.tools.contract import Services, WorkflowTools
from workflowlookup.tools.registry import Registry

CALL = {
    "id": "call-it",
    "title": "Make issue {{n}}",
    "call": {"server": "tracker", "tool": "create", "saveAs": "issue"},
}
REMOTE = {"id": "remote", "title": "Far away", "call": {"provider": "there", "workflow": "w7", "saveAs": "result"}}
DOCUMENTS = {
    "one-call": document(CALL, id="one-call"),
    "mixed": document(step("first"), CALL, step("last"), id="mixed"),
    "held": document({**CALL, "requireConfirmation": True}, id="held"),
    "held-later": document(step("first"), CALL, step("last", requireConfirmation=True), id="held-later"),
    "twice": document(CALL, {**CALL, "id": "held-call", "requireConfirmation": True}, id="twice"),
    "far-away": document(REMOTE, id="far-away"),
}
CAN: JsonObject = {"elicitation": {}}


class Catalog:
    def get(self, wanted: str) -> Workflow:
        if wanted in DOCUMENTS:
            return build(DOCUMENTS[wanted])
        raise WorkflowNotFound("No.", workflowId=wanted)

    def attachments(self, workflow_id: str) -> Sequence[object]:
        return ()


class Workflows:
    def attach(self, registry: Registry) -> None:
        pass

    def refresh_if_changed(self) -> bool:
        return False

    def resolve(self, wanted: str) -> Workflow | None:
        if wanted == "Away":
            raise ProviderUnavailable("Not now.")
        return build(DOCUMENTS["far-away"]) if wanted == "Far_Away" else None

    def default_timeout(self, workflow: Workflow) -> float | None:
        return 300.0 if workflow.id == "far-away" else None

    def abilities(self, provider: str) -> frozenset[str] | None:
        return frozenset({"start"}) if provider == "there" else None


class AwaitingClient(MemoryClient):
    """A client and, beside it, the one who does the work: another process with the same journal."""

    def __init__(self, open_runs: Callable[..., Runs], capabilities: JsonObject = CAN) -> None:
        self.runs, self.mine = open_runs(), open_runs()
        mine = self.mine
        services = Services(
            catalog=cast("CatalogView", Catalog()),
            open_runs=lambda: mine,
            open_workflows=lambda: cast("WorkflowTools", Workflows()),
        )
        self.connection = Connection(Backend(lambda: services))
        self.ids = count(1)
        self.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities})

    def send(self, method: str, params: JsonObject | None = None) -> Json:
        message = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params or {}}
        return self.exchange(message)

    def call(self, tool: str, meta: JsonObject | None = None, **arguments: Json) -> Json:
        params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
        reply = self.send("tools/call", params)
        return reply and (reply["result"]["structuredContent"] if "result" in reply else reply["error"])

    def heard(self) -> list[Json]:
        self.connection.poll()
        return self.sent()

    def answer(self) -> Json:
        """The one answer that is there now."""
        (reply,) = self.heard()
        return reply["result"]["structuredContent"]

    def notify(self, method: str, **params: Json) -> None:
        self.connection.handle(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def last_run(self) -> str:
        return self.runs.recent(1)[0].id


@pytest.fixture
def client(open_runs: Callable[..., Runs]) -> AwaitingClient:
    return AwaitingClient(open_runs)


def work(client: AwaitingClient, run_id: str, step_id: str = "call-it", value: Json = "Issue 7") -> Run:
    client.runs.server_work.begin_call(run_id, step_id)
    return client.runs.server_work.finish_call(run_id, step_id, str(value), value)


@pytest.mark.parametrize("patience", [60.0, -1.0])
def test_a_waiting_call_survives_a_journal_that_cannot_be_read_for_a_while(
    client: AwaitingClient, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    client.call("workflow_start", workflowId="one-call")
    work(client, client.last_run())
    monkeypatch.setattr(pending_runs, "AWAY_SECONDS", patience)

    def away(_: object) -> NoReturn:
        raise StorageError("The journal cannot be read.")

    with monkeypatch.context() as gone:
        gone.setattr(client.mine, "get", away)
        heard = client.heard()

    if patience > 0:
        assert (heard, client.answer()["state"]) == ([], "completed")
    else:
        assert heard[0]["result"]["structuredContent"]["message"] == "Storage error"


def test_a_start_is_answered_when_the_server_is_done(client: AwaitingClient) -> None:
    assert client.call("workflow_start", workflowId="one-call") is None
    run_id = client.last_run()
    assert client.heard() == []
    work(client, run_id, value={"id": 7})

    answer = client.answer()
    assert (answer["runId"], answer["state"], answer["result"]) == (run_id, "completed", {"id": 7})
    assert answer["workflow"]["id"] == "one-call"


def test_without_waiting_the_answer_has_the_state_of_the_run(client: AwaitingClient) -> None:
    first = client.call("workflow_start", workflowId="one-call", wait=False)
    second = client.call("workflow_start", workflowId="one-call", wait=False)

    doing = {"stepId": "call-it", "title": "Make issue {{n}}", "attempt": 1}
    assert first["call"] == {**doing, "calls": "tool 'create' of MCP server 'tracker'"}
    assert (first["state"], first["waitingFor"]) == ("queued", "call")
    assert [run["queue"] for run in (first, second)] == [{"position": 1, "length": 1}, {"position": 2, "length": 2}]
    assert "workflow_status" in first["next"]


def test_an_output_is_answered_once_the_server_has_done_its_steps(client: AwaitingClient) -> None:
    run_id = client.call("workflow_start", workflowId="mixed")["runId"]

    assert client.call("workflow_submit", runId=run_id, stepId="first", output="Done.") is None
    work(client, run_id)
    answer = client.answer()
    assert (answer["state"], answer["waitingFor"], answer["step"]["id"]) == ("waiting", "output", "last")


def test_progress_has_steps_and_the_progress_of_the_call(client: AwaitingClient) -> None:
    run_id = client.call("workflow_start", workflowId="mixed", context={"n": 3})["runId"]
    client.call("workflow_submit", {"progressToken": "t"}, runId=run_id, stepId="first", output="Done.")
    notifications = client.heard()
    client.runs.server_work.begin_call(run_id, "call-it")
    client.runs.server_work.report_call(run_id, "call-it", 1, 4, "quarter")
    notifications += client.heard()

    assert [message["params"] for message in notifications] == [
        {"progressToken": "t", "progress": 1, "total": 3, "message": "Make issue 3"},
        {"progressToken": "t", "progress": 1.25, "total": 3, "message": "Make issue 3: quarter"},
    ]
    status = client.call("workflow_status", runId=run_id)
    assert (status["state"], status["progress"]) == (
        "running",
        {"done": 1.25, "total": 3, "message": notifications[1]["params"]["message"]},
    )


def test_of_a_run_of_one_call_the_progress_is_that_of_the_call(client: AwaitingClient) -> None:
    client.call("workflow_start", {"progressToken": 5}, workflowId="one-call")
    run_id = client.last_run()
    client.heard()
    client.runs.server_work.begin_call(run_id, "call-it")
    client.runs.server_work.report_call(run_id, "call-it", 30, 120, "30 of 120")

    (progress,) = client.heard()
    assert (progress["params"]["progress"], progress["params"]["total"]) == (30, 120)


def test_a_run_that_fails_while_it_is_awaited_is_a_refusal_with_the_run_id(client: AwaitingClient) -> None:
    client.call("workflow_start", workflowId="one-call")
    run_id = client.last_run()
    client.runs.server_work.begin_call(run_id, "call-it")
    client.runs.server_work.fail_call(run_id, "call-it", CallFailure(reason="the tracker said no"))

    (reply,) = client.heard()
    answer = reply["result"]["structuredContent"]
    assert (reply["result"]["isError"], answer["code"]) == (True, -32008)
    assert (answer["data"]["runId"], answer["data"]["state"], answer["data"]["timedOut"]) == (run_id, "failed", False)
    assert "the tracker said no" in answer["data"]["reason"]
    assert run_id in reply["result"]["content"][0]["text"]
    assert "the tracker said no" in reply["result"]["content"][0]["text"]


def test_a_run_past_its_deadline_says_what_was_stopped(client: AwaitingClient, clock: TickingClock) -> None:
    client.call("workflow_start", workflowId="one-call", timeoutSeconds=2)
    run_id = client.last_run()
    client.runs.server_work.begin_call(run_id, "call-it")
    clock.now += 3_000
    assert client.heard() == []  # the run has failed; what became of the call is not known yet
    client.runs.server_work.stop_call(run_id, "call-it", True, "its process 123 was killed")

    reply = client.answer()
    stopped = {"stepId": "call-it", "stopped": True, "told": "its process 123 was killed"}
    assert (reply["data"]["timedOut"], reply["data"]["stopped"]) == (True, [stopped])


def test_the_call_itself_may_say_how_long_it_waits(client: AwaitingClient) -> None:
    client.call("workflow_start", {"workflowlookup/timeoutSeconds": 7}, workflowId="one-call")
    assert client.runs.get(client.last_run()).timeout == 7
    client.call("workflow_start", workflowId="Far_Away")
    assert client.runs.get(client.last_run()).timeout == 300


def test_waiting_for_the_stopped_call_is_bounded(client: AwaitingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_runs, "STOP_SECONDS", 0)
    client.call("workflow_start", workflowId="one-call", runId="mine")
    client.runs.server_work.begin_call("mine", "call-it")

    answer = client.call("workflow_cancel", runId="mine", reason="Enough.")
    (entry,) = answer["stopped"]
    assert (entry["stepId"], entry["stopped"]) == ("call-it", False)
    assert "may still be running" in entry["told"]


def test_cancel_and_the_waiting_call_report_what_was_stopped(client: AwaitingClient) -> None:
    client.call("workflow_start", workflowId="one-call", runId="mine")
    client.runs.server_work.begin_call("mine", "call-it")
    assert client.call("workflow_cancel", runId="mine", reason="Enough.") is None
    assert client.heard() == []
    client.runs.server_work.stop_call(
        "mine", "call-it", False, "the provider 'y' cannot cancel: it may still be running"
    )

    waited, cancelled = (message["result"]["structuredContent"] for message in client.heard())
    sentence = "the provider 'y' cannot cancel: it may still be running"
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "Enough.")
    assert cancelled["stopped"] == [{"stepId": "call-it", "stopped": False, "told": sentence}]
    assert (waited["data"]["state"], waited["data"]["reason"]) == ("cancelled", "Enough.")
    assert waited["data"]["stopped"] == cancelled["stopped"]


def test_a_cancel_of_a_run_that_does_nothing_is_answered_at_once(client: AwaitingClient) -> None:
    run_id = client.call("workflow_start", workflowId="mixed")["runId"]

    answer = client.call("workflow_cancel", runId=run_id)
    assert (answer["state"], "stopped" in answer) == ("cancelled", False)


def test_abandoning_a_call_cancels_its_run(client: AwaitingClient) -> None:
    client.call("workflow_start", workflowId="one-call", runId="mine")
    client.notify("notifications/cancelled", requestId=2, reason="too slow")

    run = client.runs.get("mine")
    assert (run.state, instance_of(Cancelled, run.end).reason) == ("cancelled", "the call was cancelled: too slow")
    assert client.heard() == []


def test_a_person_is_asked_before_a_call_and_sees_its_arguments(client: AwaitingClient) -> None:
    answer = client.call("workflow_start", workflowId="held", runId="mine")

    assert answer["waitingFor"] == "confirmation"
    assert "will call tool 'create' of MCP server 'tracker'" in answer["confirmation"]["question"]
    assert client.call("workflow_submit", runId="mine", stepId="call-it", confirmed=True) is None
    (question,) = client.heard()
    reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}}
    assert client.connection.handle(json.dumps(reply).encode()) is None
    work(client, "mine")
    assert client.answer()["state"] == "completed"


def test_a_person_is_asked_when_a_later_step_needs_it(client: AwaitingClient) -> None:
    client.call("workflow_start", workflowId="twice", runId="mine", wait=False)
    work(client, "mine")
    client.call("workflow_submit", runId="mine", stepId="held-call", confirmed=True)
    (question,) = client.heard()
    reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
    answer = json.loads(not_none(client.connection.handle(json.dumps(reply).encode())))["result"]["structuredContent"]

    assert (answer["state"], answer["error"]["reason"].startswith("A person did not agree")) == ("failed", True)


@pytest.mark.parametrize("agrees", [True, False])
def test_in_the_envelope_era_a_later_question_is_answered_with_the_same_call(
    open_runs: Callable[..., Runs], agrees: bool
) -> None:
    DOCUMENTS["asks-later"] = document(step("first"), {**CALL, "id": "held-call"}, id="asks-later")
    DOCUMENTS["asks-later"]["steps"].append({**CALL, "id": "held-two", "requireConfirmation": True})
    client = AwaitingClient(open_runs)
    client.call("workflow_start", workflowId="asks-later", runId="mine")
    meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": CAN}
    params = {
        "name": "workflow_submit",
        "arguments": {"runId": "mine", "stepId": "first", "output": "x"},
        "_meta": meta,
    }
    assert client.send("tools/call", params) is None
    work(client, "mine", "held-call")
    (question,) = client.heard()
    (key,) = question["result"]["inputRequests"]

    answer = {key: {"action": "accept" if agrees else "decline"}}
    reply = client.send("tools/call", {**params, "inputResponses": answer})
    if agrees:
        assert reply is None
        assert client.heard() == []
        work(client, "mine", "held-two")
        assert client.answer()["state"] == "completed"
    else:
        assert reply["result"]["structuredContent"]["state"] == "failed"


def test_the_status_of_a_remote_run_says_that_its_system_does_not_answer(
    client: AwaitingClient,
) -> None:
    client.call("workflow_start", workflowId="Far_Away", runId="mine")
    client.runs.server_work.begin_call("mine", "remote")
    client.runs.server_work.acknowledge_call("mine", "remote", "77")

    status = client.call("workflow_status", runId="mine")
    assert status["remote"].pop("status").startswith("not supported")
    assert status["remote"] == {"provider": "there", "workflowId": "w7", "runId": "77"}
    client.runs.server_work.finish_call("mine", "remote", "null", None)
    status = client.call("workflow_status", runId="mine")
    assert (status["state"], status["result"], status["results"]) == ("completed", None, {"remote": "null"})


def test_a_workflow_whose_system_is_away_cannot_be_started(client: AwaitingClient) -> None:
    assert client.call("workflow_start", workflowId="Away")["message"] == "Provider not available"
    assert client.call("workflow_start", workflowId="nowhere")["message"] == "Workflow not found"
