"""Runs over the pipes of real processes: a person who is asked, a client that goes away, and changes that are heard of."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.client import ENVELOPE, Server, Start
from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.narrowing import not_none
from support.processes import is_alive

ASKS: JsonObject = {"elicitation": {}}
MODERN_ASKS = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": ASKS}
YES = {"action": "accept", "content": {}}
FLOW = "needs-a-word"


@pytest.fixture
def runs(library: Path, start: Start) -> Callable[..., Server]:
    """Starts servers that share one library and one journal."""
    write(library, document(step("one", requireConfirmation=True), step("two"), identifier=FLOW))

    def start_server(capabilities: JsonObject = ASKS, version: str = "2025-11-25", **environment: str) -> Server:
        server = start(directory=library, version=None, **environment)
        if version:
            server.initialize(version, capabilities)
        return server

    return start_server


def begin(server: Server) -> Json:
    return server.call("workflow_start", {"workflowId": FLOW})["structuredContent"]["runId"]


def submission(run_id: str, output: str = "done") -> JsonObject:
    return {"name": "workflow_submit", "arguments": {"runId": run_id, "stepId": "one", "output": output}}


def submit(server: Server, run_id: str, identifier: str = "submit", output: str = "done") -> Json:
    """Send a submission that leads to a question; the question."""
    server.send({"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": submission(run_id, output)})
    question = server.receive()
    assert question["method"] == "elicitation/create", question
    return question


def answer(server: Server, question: JsonObject, result: Json) -> Json:
    """Answer a question; what the call got."""
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
    return server.receive()


Place = tuple[str, str | None, str | None]
"""State, what is waited for, and the step."""


def where(server: Server, run_id: str) -> Place:
    return place(server.call("workflow_status", {"runId": run_id}))


def place(result: Json) -> Place:
    """State, what is waited for, and the step that it is about."""
    content = result["structuredContent"]
    step_id = content["confirmation"]["stepId"] if "confirmation" in content else content.get("step", {}).get("id")
    return content["state"], content.get("waitingFor"), step_id


# ── a person is asked ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("response", "then"),
    [
        (YES, ("waiting", "output", "two")),
        ({"action": "decline"}, ("waiting", "output", "one")),
        ({"action": "accept", "content": {"confirmed": False}}, ("waiting", "confirmation", "one")),
        ({"action": "cancel"}, ("waiting", "confirmation", "one")),
        ({"action": "accept", "content": {"note": 7}}, ("waiting", "confirmation", "one")),
    ],
    ids=["accepted", "declined", "a form that was not asked", "dismissed", "nonsense"],
)
def test_the_answer_of_the_person_decides_how_the_run_goes_on(
    runs: Callable[..., Server], response: JsonObject, then: tuple[str, str, str]
) -> None:
    server = runs()
    run_id = begin(server)
    question = submit(server, run_id)

    reply = answer(server, question, response)

    assert reply["id"] == "submit"
    assert not reply["result"].get("isError"), reply
    assert where(server, run_id) == then


@pytest.mark.parametrize(
    ("response", "then"),
    [
        (YES, ("waiting", "output", "two")),
        ({"action": "decline"}, ("waiting", "output", "one")),
        ({"action": "cancel"}, ("waiting", "confirmation", "one")),
    ],
    ids=["accepted", "declined", "dismissed"],
)
def test_since_2026_the_answer_of_the_person_decides_how_the_run_goes_on(
    runs: Callable[..., Server], response: JsonObject, then: tuple[str, str, str]
) -> None:
    server = runs(version=None)
    meta = {"_meta": MODERN_ASKS}
    started = server.result("tools/call", {"name": "workflow_start", "arguments": {"workflowId": FLOW}, **meta})
    run_id = started["structuredContent"]["runId"]

    question = server.result("tools/call", {**submission(run_id), **meta})
    (key,) = question["inputRequests"]
    answer = server.result("tools/call", {**submission(run_id), "inputResponses": {key: response}, **meta})
    status = server.result("tools/call", {"name": "workflow_status", "arguments": {"runId": run_id}, **meta})

    assert question["resultType"] == "input_required"
    assert (answer["resultType"], answer.get("isError")) == ("complete", None)
    assert place(status) == then


def test_since_2026_an_answer_for_one_run_is_not_valid_for_another(runs: Callable[..., Server]) -> None:
    server = runs(version=None)
    meta = {"_meta": MODERN_ASKS}
    start = {"name": "workflow_start", "arguments": {"workflowId": FLOW}, **meta}
    first, second = (server.result("tools/call", start)["structuredContent"]["runId"] for _ in range(2))
    (key,) = server.result("tools/call", {**submission(first), **meta})["inputRequests"]

    answer = server.result("tools/call", {**submission(second), "inputResponses": {key: YES}, **meta})

    assert answer["resultType"] == "input_required"
    assert key not in answer["inputRequests"]


def test_without_forms_the_agent_is_told_to_ask_and_may_relay(runs: Callable[..., Server]) -> None:
    server = runs(capabilities={})
    run_id = begin(server)

    answer = server.call("workflow_submit", submission(run_id)["arguments"])["structuredContent"]
    assert (answer["state"], answer["waitingFor"]) == ("waiting", "confirmation")
    server.call("workflow_submit", {"runId": run_id, "stepId": "one", "confirmed": True})

    assert where(server, run_id) == ("waiting", "output", "two")


def test_two_questions_are_open_at_once_and_other_calls_go_on(runs: Callable[..., Server]) -> None:
    server = runs()
    first, second = begin(server), begin(server)
    one, two = submit(server, first, "first"), submit(server, second, "second")
    assert server.call("workflow_list")["structuredContent"]["workflows"]

    assert answer(server, two, {"action": "decline"})["id"] == "second"
    assert answer(server, one, YES)["id"] == "first"

    assert where(server, first) == ("waiting", "output", "two")
    assert where(server, second) == ("waiting", "output", "one")


def test_the_same_submission_twice_is_two_questions_and_one_decision(runs: Callable[..., Server]) -> None:
    server = runs()
    run_id = begin(server)
    one, two = submit(server, run_id, "first"), submit(server, run_id, "second")

    first, second = answer(server, one, YES), answer(server, two, {"action": "decline"})

    assert (first["id"], second["id"]) == ("first", "second")
    assert second.get("error", {}).get("code") != -32603
    assert where(server, run_id) == ("waiting", "output", "two")


def test_cancelling_a_call_withdraws_its_question_and_the_run_waits(runs: Callable[..., Server]) -> None:
    server = runs()
    run_id = begin(server)
    question = submit(server, run_id)

    server.notify("notifications/cancelled", {"requestId": "submit"})

    message = server.receive()
    assert (message["method"], message["params"]["requestId"]) == ("notifications/cancelled", question["id"])
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    assert server.is_silent()
    assert where(server, run_id) == ("waiting", "confirmation", "one")


@pytest.mark.parametrize("how", ["end of input", "kill"])
def test_a_client_or_server_that_goes_in_the_middle_leaves_the_run_waiting_and_it_goes_on_elsewhere(
    runs: Callable[..., Server], how: str
) -> None:
    server = runs()
    run_id = begin(server)
    submit(server, run_id)
    if how == "kill":
        server.process.send_signal(signal.SIGKILL)
    else:
        server.close_input()
    assert server.wait() == (-signal.SIGKILL if how == "kill" else 0)

    other = runs()
    assert where(other, run_id) == ("waiting", "confirmation", "one")
    answer(other, submit(other, run_id), YES)

    assert where(other, run_id) == ("waiting", "output", "two")


def test_a_client_that_is_killed_while_its_person_thinks_ends_the_server_quietly(
    runs: Callable[..., Server], tmp_path: Path
) -> None:
    """The client is a process of its own here, so that it can be killed with its pipes open."""
    script = (
        "import sys; sys.path[:0] = sys.argv[1:2]\n"
        "import time\n"
        "from pathlib import Path\n"
        "from support.client import Server\n"
        "server = Server(Path(sys.argv[2]), directory=Path(sys.argv[2], 'library'))\n"
        "server.initialize(capabilities={'elicitation': {}})\n"
        f"run_id = server.call('workflow_start', {{'workflowId': '{FLOW}'}})['structuredContent']['runId']\n"
        "arguments = {'runId': run_id, 'stepId': 'one', 'output': 'done'}\n"
        "params = {'name': 'workflow_submit', 'arguments': arguments}\n"
        "server.send({'jsonrpc': '2.0', 'id': 1, 'method': 'tools/call', 'params': params})\n"
        "assert server.receive()['method'] == 'elicitation/create'\n"
        "print(run_id, server.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with subprocess.Popen([sys.executable, "-c", script, tests, str(tmp_path)], stdout=subprocess.PIPE) as client:
        run_id, pid = not_none(client.stdout).readline().decode().split()
        client.kill()
    deadline = time.monotonic() + 10
    while is_alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not is_alive(int(pid))
    assert where(runs(), run_id) == ("waiting", "confirmation", "one")


def test_an_answer_after_another_process_decided_returns_the_current_state(runs: Callable[..., Server]) -> None:
    server, other = runs(), runs(capabilities={})
    run_id = begin(server)
    question = submit(server, run_id)
    other.call("workflow_submit", {"runId": run_id, "stepId": "one", "confirmed": True})

    reply = answer(server, question, {"action": "decline"})

    assert reply.get("error", {}).get("code") != -32603
    assert where(server, run_id) == ("waiting", "output", "two")


# ── changes are heard of ────────────────────────────────────────────────────────────────────────────────────────


def hears(server: Server, *addresses: str, within: float = 1.0) -> bool:
    """Whether news of these addresses, and no other, come in time."""
    deadline = time.monotonic() + within
    heard: set[str] = set()
    while heard != set(addresses):
        message = server.receive(max(0.01, deadline - time.monotonic()))
        assert message["method"] == "notifications/resources/updated"
        heard.add(message["params"]["uri"])
    return True


def test_a_subscriber_is_notified_of_changes_by_this_process_with_the_call(runs: Callable[..., Server]) -> None:
    server = runs(capabilities={})
    run_id = begin(server)
    server.result("resources/subscribe", {"uri": f"run://{run_id}"})

    server.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": submission(run_id)})

    assert server.receive()["params"] == {"uri": f"run://{run_id}"}
    assert server.receive()["id"] == 1
    assert server.is_silent()


def test_a_subscriber_is_notified_of_changes_by_other_processes_within_a_second(runs: Callable[..., Server]) -> None:
    server, other = runs(), runs(capabilities={})
    run_id = begin(other)
    for address in (f"run://{run_id}", "runs://recent"):
        server.result("resources/subscribe", {"uri": address})

    other.call("workflow_submit", submission(run_id)["arguments"])
    assert hears(server, f"run://{run_id}", "runs://recent")
    begin(other)
    assert hears(server, "runs://recent")


def test_a_client_that_never_pauses_is_notified_too(runs: Callable[..., Server]) -> None:
    server, other = runs(), runs(capabilities={})
    server.result("resources/subscribe", {"uri": "runs://recent"})
    begin(other)

    deadline = time.monotonic() + 2
    heard = False
    while not heard and time.monotonic() < deadline:
        server.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        message = server.receive()
        heard = message.get("method") == "notifications/resources/updated"

    assert heard


def test_since_2026_a_stream_is_notified_of_other_processes_and_ends_with_its_result(
    runs: Callable[..., Server],
) -> None:
    server, other = runs(version=None), runs(capabilities={})
    run_id = begin(other)
    wanted = {"resourceSubscriptions": [f"run://{run_id}"]}
    server.send(
        {
            "jsonrpc": "2.0",
            "id": "listen",
            "method": "subscriptions/listen",
            "params": {"notifications": wanted, "_meta": ENVELOPE},
        }
    )
    assert server.receive()["params"]["notifications"] == wanted

    other.call("workflow_submit", submission(run_id)["arguments"])

    assert server.receive(1)["params"] == {
        "uri": f"run://{run_id}",
        "_meta": {"io.modelcontextprotocol/subscriptionId": "listen"},
    }
    server.close_input()
    assert server.receive()["id"] == "listen"
    assert server.wait() == 0


def wakeups(server: Server) -> int:
    """How often the process went to sleep so far."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))


def test_without_subscriptions_the_server_does_not_wake_up(runs: Callable[..., Server]) -> None:
    server, other = runs(), runs(capabilities={})
    run_id = begin(server)
    server.result("resources/subscribe", {"uri": f"run://{run_id}"})
    server.result("resources/unsubscribe", {"uri": f"run://{run_id}"})
    assert server.is_silent()

    before = wakeups(server)
    begin(other)
    time.sleep(1.2)

    assert wakeups(server) - before <= 1
    assert server.is_silent()


def test_a_subscription_costs_little_processor_time(runs: Callable[..., Server]) -> None:
    server = runs()
    server.result("resources/subscribe", {"uri": "runs://recent"})

    def ticks() -> int:
        with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
            return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))

    assert server.is_silent()
    before, slept = ticks(), wakeups(server)
    time.sleep(2)

    assert ticks() - before <= 2
    assert wakeups(server) - slept < 20


def test_a_subscriber_that_does_not_read_gets_the_notification_when_it_reads(runs: Callable[..., Server]) -> None:
    server, other = runs(), runs(capabilities={})
    listed = len(json.dumps(server.result("tools/list")))
    server.result("resources/subscribe", {"uri": "runs://recent"})
    count = 1_000_000 // listed  # more than a pipe holds

    for number in range(count):
        server.send({"jsonrpc": "2.0", "id": number, "method": "tools/list"})
    begin(other)

    replies: list[Json] = []
    while len(replies) < count:
        message = server.receive()
        replies += [message["id"]] if "id" in message else []
    assert replies == list(range(count))
    begin(other)
    assert hears(server, "runs://recent")
    server.close_input()
    assert server.wait() == 0


# ── reports ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_and_the_recent_ones_are_read_as_markdown(runs: Callable[..., Server]) -> None:
    server = runs(capabilities={})
    nothing = server.result("resources/read", {"uri": "runs://recent"})["contents"][0]
    run_id = begin(server)
    server.call("workflow_submit", submission(run_id, "```\n# Done")["arguments"])

    report = server.result("resources/read", {"uri": f"run://{run_id}"})["contents"][0]
    recent = server.result("resources/read", {"uri": "runs://recent"})["contents"][0]

    assert "There are none yet" in nothing["text"]
    assert (report["uri"], report["mimeType"]) == (f"run://{run_id}", "text/markdown")
    assert "**waiting** for a person to confirm step `one`" in report["text"]
    assert "````text\n```\n# Done\n````" in report["text"]
    assert f"| `{run_id}` | `{FLOW}` 1.0.0 | waiting | `one` | 1 of 2 |" in recent["text"]


def test_an_unknown_run_is_no_resource(runs: Callable[..., Server]) -> None:
    server = runs()

    error = server.error("resources/read", {"uri": "run://nope"})

    assert (error["code"], error["data"]) == (-32002, {"uri": "run://nope"})
    assert server.modern("resources/read", {"uri": "run://nope"})["error"]["code"] == -32602


def test_ids_of_runs_are_completed(runs: Callable[..., Server]) -> None:
    server = runs()
    run_id = begin(server)
    ref = {"type": "ref/resource", "uri": "run://{id}"}

    completion = server.result("completion/complete", {"ref": ref, "argument": {"name": "id", "value": run_id[:3]}})

    assert completion["completion"]["values"] == [run_id]


def test_without_a_journal_subscribing_fails_and_everything_else_works(
    runs: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    server = runs(WORKFLOWLOOKUP_JOURNAL=str(tmp_path / "file" / "runs.sqlite"))

    assert server.error("resources/subscribe", {"uri": "runs://recent"})["code"] == -32006
    assert server.error("resources/read", {"uri": "runs://recent"})["code"] == -32006
    assert server.is_silent()
