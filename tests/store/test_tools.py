"""The run tools with a real server over pipes, and what every answer contains."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import pytest

from support.client import Server, Start
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from workflowlookup.runs.run import State
from workflowlookup.tools.builtin import BUILTIN_TOOLS
from workflowlookup.tools.result_schemas import STATES

LONG = [{"type": "length", "min": 5, "message": "Too short."}]
OUTPUT_SCHEMAS = {
    tool.name: jsonschema_rs.validator_for(tool.describe()["outputSchema"]) for tool in BUILTIN_TOOLS.values()
}


@pytest.fixture
def serve(start: Start, library: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    """A server for these documents; every result is held against the schema of its tool."""

    def serve_documents(*documents: JsonObject, **environment: str) -> Server:
        for one in documents:
            write(library, one)
        server = start(directory=library, **environment)
        monkeypatch.setattr(server, "result", checked(server))
        return server

    return serve_documents


def checked(server: Server) -> Callable[..., Json]:
    def result(method: str, params: JsonObject | None = None) -> Json:
        reply = server.request(method, params)
        assert "error" not in reply, reply
        if method in OUTPUT_SCHEMAS:
            OUTPUT_SCHEMAS[method].validate(reply["result"])
            assert "next" in reply["result"] or method == "workflow_list"
        return reply["result"]

    return result


def submitted(server: Server, run: Json, step_id: str, output: str = "good enough", **arguments: Json) -> Json:
    return server.result("workflow_submit", {"runId": run["runId"], "stepId": step_id, "output": output, **arguments})


TWO = document(step("one", validationCriteria=LONG), step("two"))
HELD = document(step("one", title="Title {{name}}", requireConfirmation=True), step("two"))


def test_a_run_from_its_start_to_its_end(serve: Callable[..., Server]) -> None:
    server = serve(TWO)
    run = server.start_run()
    run_id = run["runId"]

    assert run == {
        "runId": run_id,
        "state": "waiting",
        "waitingFor": "output",
        "progress": {"done": 0, "total": 2},
        "step": {"id": "one", "title": "Title one"},
        "guidance": {
            "prompt": "Do one.",
            "validationCriteria": ["The output is at least 5 characters long: Too short."],
        },
        "next": f"Do what guidance.prompt says, then call workflow_submit with runId '{run_id}', stepId 'one' and the "
        "full output.",
        "workflow": {"id": "sample-workflow", "name": "Sample workflow", "version": "1.0.0"},
    }
    refused = submitted(server, run, "one", "no")
    assert (refused["state"], refused["attempts"], refused["step"]["id"]) == ("waiting", 1, "one")
    assert refused["verdict"] == {
        "valid": False,
        "issues": ["Too short."],
        "suggestions": [
            "Review validation criteria and adjust output accordingly.",
            "Add at least 3 more characters (now 2, at least 5 are needed).",
        ],
    }
    assert submitted(server, run, "one")["step"]["id"] == "two"
    assert submitted(server, run, "two") == {
        "runId": run_id,
        "state": "completed",
        "progress": {"done": 2, "total": 2},
        "verdict": {"valid": True, "issues": [], "suggestions": []},
        "next": "The run is complete: tell the user the outcome. workflow_status has the results.",
    }


def test_step_and_guidance_are_those_of_workflow_next(serve: Callable[..., Server]) -> None:
    body = [step("look", prompt="Look at {{file}} as {{role}}.", guidance=["Slowly."])]
    one = document(loop("all", body, type="forEach", items="files", itemVar="file"), step("end"), modelTier="heavy")
    server = serve(one)
    variables = {"files": ["a.py", "b.py"]}

    run = submitted(server, server.start_run(context=variables), "look@1")
    answer = server.result(
        "tools/call",
        {
            "name": "workflow_next",
            "arguments": {"workflowId": "sample-workflow", "completedSteps": ["look@1"], "context": variables},
        },
    )["structuredContent"]

    assert run["guidance"] == {
        name: text for name, text in answer["guidance"].items() if name != "requiresConfirmation"
    }
    assert run["warnings"] == answer["warnings"]
    loop_position = {"id": "all", "iteration": 2, "index": 1, "total": 2}
    assert run["step"] == {"id": "look@2", "title": "Title look", "loop": loop_position}


def test_the_schemas_of_run_tools_speak_of_runs_only() -> None:
    run_tools = [tool.describe() for tool in BUILTIN_TOOLS.values() if "runId" in tool.arguments.schema["properties"]]

    assert [tool["name"] for tool in run_tools] == [
        "workflow_start",
        "workflow_submit",
        "workflow_status",
        "workflow_cancel",
    ]
    assert "completedSteps" not in json.dumps(run_tools, default=dict)
    assert list(State) == STATES


def test_a_run_outlives_its_server_and_continues_at_another(
    serve: Callable[..., Server], start: Start, library: Path
) -> None:
    server = serve(TWO)
    run = submitted(server, server.start_run(), "one")
    server.process.kill()

    again = start(directory=library)

    assert again.result("workflow_status", {"runId": run["runId"]})["step"] == run["step"]
    assert submitted(again, run, "two")["state"] == "completed"


def test_a_repeated_submission_gets_its_old_verdict_with_the_current_state_and_next(
    serve: Callable[..., Server],
) -> None:
    server = serve(TWO)
    run = server.start_run()
    arguments: JsonObject = {"output": "good enough", "context": {"a": 1, "b": 2}}
    first = submitted(server, run, "one", **arguments)
    assert submitted(server, run, "one", **arguments) == first
    submitted(server, run, "two")
    status = server.result("workflow_status", {"runId": run["runId"]})

    again = submitted(server, run, "one", **arguments)
    assert again["verdict"] == first["verdict"]
    assert (again["state"], again["progress"]) == ("completed", {"done": 2, "total": 2})
    assert again["next"].startswith(
        "This output was judged before, as verdict says, and the run has gone on. The run is"
    )
    assert "step" not in again
    assert submitted(server, run, "one", output="good enough", context={"b": 2, "a": 1}) == again
    assert server.result("workflow_status", {"runId": run["runId"]}) == status


def test_the_old_verdict_is_returned_with_the_current_step(serve: Callable[..., Server]) -> None:
    server = serve(document(step("one"), step("two", validationCriteria=LONG), step("three")))
    run = server.start_run()
    submitted(server, run, "one")
    submitted(server, run, "two", output="no")

    again = submitted(server, run, "one")

    assert again["verdict"] == {"valid": True, "issues": [], "suggestions": []}
    assert again["step"]["id"] == "two"
    assert "attempts" not in again
    assert f"call workflow_submit with runId '{run['runId']}', stepId 'two'" in again["next"]


def test_an_identical_output_that_is_sent_again_after_its_refusal_is_another_attempt(
    serve: Callable[..., Server],
) -> None:
    server = serve(document(step("one", validationCriteria=LONG, maxAttempts=3), step("two")))
    run = server.start_run()

    answers = [submitted(server, run, "one", output="no") for _ in range(3)]

    assert [answer["attempts"] for answer in answers] == [1, 2, 3]
    assert answers[-1]["state"] == "failed"
    assert "was refused 3 times" in answers[-1]["error"]["reason"]


def test_after_a_restart_the_first_repetition_is_taken_as_a_retry(start: Start, library: Path, tmp_path: Path) -> None:
    write(library, document(step("one", validationCriteria=LONG, maxAttempts=3), step("two")))
    journal = {"WORKFLOWLOOKUP_JOURNAL": str(tmp_path / "runs.sqlite")}
    first = start(directory=library, **journal)
    run = first.start_run()
    submitted(first, run, "one", output="no")
    second = start(directory=library, **journal)

    assert [submitted(second, run, "one", output="no")["attempts"] for _ in range(2)] == [1, 2]


def test_an_older_refusal_sent_again_is_another_attempt_wherever_it_is_sent(
    start: Start, library: Path, tmp_path: Path
) -> None:
    write(library, document(step("one", validationCriteria=LONG, maxAttempts=4), step("two")))
    journal = {"WORKFLOWLOOKUP_JOURNAL": str(tmp_path / "runs.sqlite")}
    first = start(directory=library, **journal)
    run = first.start_run()
    submitted(first, run, "one", output="no")
    submitted(first, run, "one", output="nope")
    second = start(directory=library, **journal)

    assert submitted(second, run, "one", output="no")["attempts"] == 3


def test_a_run_keeps_its_document_when_the_file_changes(serve: Callable[..., Server], library: Path) -> None:
    server = serve(TWO)
    run = server.start_run()
    write(library, document(step("other"), version="2.0.0"))

    status = server.result("workflow_status", {"runId": run["runId"]})
    assert (status["step"]["id"], status["workflow"]["version"], status["newerVersion"]) == ("one", "1.0.0", "2.0.0")
    (library / "sample-workflow.json").write_text("{")
    assert submitted(server, run, "one")["step"]["id"] == "two"
    (library / "sample-workflow.json").unlink()
    assert "newerVersion" not in server.result("workflow_status", {"runId": run["runId"]})
    assert submitted(server, run, "two")["state"] == "completed"


def test_status_has_the_events_and_the_results(serve: Callable[..., Server]) -> None:
    server = serve(TWO)
    run = server.start_run()
    submitted(server, run, "one", "x" * 3_000)

    status = server.result("workflow_status", {"runId": run["runId"]})

    assert [(event["event"], event.get("id")) for event in status["history"]] == [
        ("started", None),
        ("step-offered", "one"),
        ("output-accepted", "one"),
        ("step-offered", "two"),
    ]
    assert {event["by"] for event in status["history"]} == {"tests"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"]) for event in status["history"])
    assert status["results"] == {"one": "x" * 2_000 + "…"}
    assert status["resultsCut"] == f"Read the resource run://{run['runId']} for all of it."


@pytest.mark.parametrize(
    ("size", "shown"),
    [(7, dict.fromkeys(range(11, 31), 7)), (3_000, dict.fromkeys(range(27, 31), 2_001))],
    ids=["twenty short ones", "four long ones"],
)
def test_status_shows_excerpts_of_the_latest_results(
    serve: Callable[..., Server], size: int, shown: dict[int, int]
) -> None:
    names = [f"step-{number}" for number in range(1, 31)]
    server = serve(document(*map(step, names)))
    run = server.start_run()
    for name in names:
        submitted(server, run, name, "x" * size)

    status = server.result("workflow_status", {"runId": run["runId"]})

    assert "resultsCut" in status
    assert {name: len(text) for name, text in status["results"].items()} == {
        f"step-{number}": length for number, length in shown.items()
    }


def test_a_start_with_an_id_of_ones_own_can_be_repeated(serve: Callable[..., Server]) -> None:
    server = serve(TWO)
    first = server.start_run(runId="mine", input={"a": 1})

    assert server.start_run(runId="mine", input={"a": 1}) == first
    error = server.error("workflow_start", {"workflowId": "sample-workflow", "runId": "mine"})
    assert (error["code"], error["data"]["runId"]) == (-32005, "mine")


def test_input_that_does_not_fit_is_refused_by_name(serve: Callable[..., Server]) -> None:
    server = serve(document(inputSchema={"properties": {"ticket": {"type": "string"}}, "required": ["ticket"]}))

    error = server.error("workflow_start", {"workflowId": "sample-workflow", "input": {"ticket": 7}})

    assert (error["code"], error["data"]["details"]) == (-32602, "input.ticket must be text ('string'); found 7")
    assert server.result("workflow_runs")["runs"] == []


def test_missing_variables_of_a_step_are_requested_with_an_example(serve: Callable[..., Server]) -> None:
    contract = {"properties": {"size": {"enum": ["small", "large"]}}}
    server = serve(document(step("one", produces=["size"]), step("two"), contextSchema=contract))
    run = server.start_run()

    refused = submitted(server, run, "one")

    assert refused["missing"] == [
        {
            "variable": "size",
            "expected": "one of 'small', 'large'",
            "example": {"context": {"size": "small"}},
            "producedBy": "one",
        }
    ]
    assert submitted(server, run, "one", **refused["missing"][0]["example"])["step"]["id"] == "two"
    error = server.error(
        "workflow_submit", {"runId": run["runId"], "stepId": "two", "output": "x", "context": {"size": 1}}
    )
    assert (error["code"], error["data"]["details"]) == (
        -32602,
        "context.size must be one of 'small', 'large'; found 1",
    )


# ── confirmation ────────────────────────────────────────────────────────────────────────────────────────────────


def relayed(server: Server, run: Json, step_id: str = "one", **arguments: bool | str) -> Json:
    return server.result("workflow_submit", {"runId": run["runId"], "stepId": step_id, **arguments})


def test_an_agent_relays_the_answer_of_a_person(serve: Callable[..., Server]) -> None:
    server = serve(HELD)
    run = server.start_run(context={"name": "one"})
    held = submitted(server, run, "one")

    assert (held["waitingFor"], "step" in held) == ("confirmation", False)
    assert held["confirmation"] == {
        "stepId": "one",
        "title": "Title one",
        "question": "Do you agree? If not, the step is done again.",
    }
    assert held["next"] == (
        "Ask the person confirmation.question, with your output, and wait. Then submit confirmed true or false and "
        "their words as note."
    )
    question = server.result("workflow_status", {"runId": run["runId"]})["confirmation"]["question"]
    assert question.endswith("The output:\n> good enough"), "for an agent that has not just sent it"
    denied = relayed(server, run, confirmed=False, note="Too risky.")
    assert denied["step"]["id"] == "one"
    assert denied["next"].startswith('A person did not agree to this step: "Too risky." Do it again with that in mind')
    submitted(server, run, "one")
    assert relayed(server, run, confirmed=True)["step"]["id"] == "two"
    assert relayed(server, run, confirmed=True)["step"]["id"] == "two", "said twice, counted once"


def test_with_confirmation_person_a_relayed_answer_is_refused(serve: Callable[..., Server]) -> None:
    server = serve(HELD, WORKFLOWLOOKUP_CONFIRMATION="person")
    run = server.start_run()
    held = submitted(server, run, "one")

    assert f"run '{run['runId']}' waits for their answer about step 'one'" in held["next"]
    assert "workflowlookup" not in held["next"]
    error = server.error("workflow_submit", {"runId": run["runId"], "stepId": "one", "confirmed": True})
    assert error["code"] == -32005
    assert "do not try to answer in their place" in error["data"]["details"]


def with_forms(start: Start, library: Path, **environment: str) -> Server:
    server = start(directory=library, version=None, **environment)
    capabilities: JsonObject = {"elicitation": {}}
    info = {"name": "forms", "version": "1"}
    server.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info})
    server.notify("notifications/initialized")
    return server


def question_of(server: Server, run: Json, **arguments: Json) -> Json:
    """Send a submission that leads to a question; the question."""
    params = {"runId": run["runId"], "stepId": "one", **arguments}
    server.send({"jsonrpc": "2.0", "id": "call", "method": "workflow_submit", "params": params})
    question = server.receive()
    assert question["method"] == "elicitation/create"
    return question


def answered(server: Server, question: JsonObject, **answer: Json) -> Json:
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    reply = server.receive()
    assert reply["id"] == "call"
    return reply["result"]


def test_a_person_is_asked_through_a_client_that_can_show_a_form(start: Start, library: Path) -> None:
    write(library, HELD)
    server = with_forms(start, library)
    run = server.start_run()
    question = question_of(server, run, output="good enough")
    assert question["params"]["message"] == (
        "Accept: yes. Decline: no, the step is done again. Close the form to decide later.\n\n"
        "Step 'Title {{name}}' of 'Sample workflow' is done. Do you agree? "
        "If not, the step is done again.\n\nThe output:\n> good enough"
    )
    assert question["params"]["requestedSchema"]["properties"].keys() == {"note"}
    assert "required" not in question["params"]["requestedSchema"]

    declined = answered(server, question, action="decline")

    assert declined["step"]["id"] == "one"
    assert declined["next"].startswith("A person did not agree to this step.")
    dismissed = answered(server, question_of(server, run, output="best"), action="cancel")
    assert dismissed["waitingFor"] == "confirmation"
    status = server.result("workflow_status", {"runId": run["runId"]})
    for answer in (dismissed, status):
        assert answer["next"].startswith(
            f"The person has not answered. To show them the form again, call workflow_submit with runId "
            f"'{run['runId']}', stepId 'one' and confirmed true."
        )
        assert "They can also answer in the console or in their own terminal." in answer["next"]
    assert answered(server, question_of(server, run, confirmed=True), action="accept")["step"]["id"] == "two"
    params = {"runId": run["runId"], "stepId": "one", "output": "best"}
    assert server.result("workflow_submit", params)["step"]["id"] == "two", "the same call again, the same answer"


@pytest.mark.parametrize("answer", [{"action": "accept", "content": {"note": "Fine."}}, {"action": "cancel"}])
def test_an_output_that_was_denied_elsewhere_is_not_sent_again_by_the_form(
    start: Start, library: Path, answer: JsonObject
) -> None:
    write(library, HELD)
    server, other = with_forms(start, library), start(directory=library)
    run = server.start_run()
    question = question_of(server, run, output="good enough")
    relayed(other, run, confirmed=False, note="Why?")

    reply = answered(server, question, **answer)

    assert (reply["waitingFor"], reply["step"]["id"]) == ("output", "one")
    assert "Why?" in reply["next"]
    happened = [event["event"] for event in server.result("workflow_status", {"runId": run["runId"]})["history"]]
    assert happened.count("output-accepted") == 1


def test_where_the_agent_relays_the_person_is_not_asked(start: Start, library: Path) -> None:
    write(library, HELD)
    server = with_forms(start, library, WORKFLOWLOOKUP_CONFIRMATION="agent")
    run = server.start_run()

    assert submitted(server, run, "one")["waitingFor"] == "confirmation"
    assert relayed(server, run, confirmed=True)["step"]["id"] == "two"


@pytest.mark.parametrize("setting", ["auto", "person"])
def test_the_report_distinguishes_a_form_from_a_relayed_answer(start: Start, library: Path, setting: str) -> None:
    write(library, HELD)
    asking, without_forms = with_forms(start, library, WORKFLOWLOOKUP_CONFIRMATION=setting), start(directory=library)
    by_form, by_agent = asking.start_run(), without_forms.start_run()
    answered(asking, question_of(asking, by_form, output="done"), action="accept", content={"note": ""})
    submitted(without_forms, by_agent, "one")
    relayed(without_forms, by_agent, confirmed=True)

    form_line, agent_line = (_confirmed_in_report(without_forms, run) for run in (by_form, by_agent))

    assert re.fullmatch(r"Confirmed \+\S+ s by forms in a form of the client", form_line)
    assert re.fullmatch(r"Confirmed \+\S+ s by tests, relayed by the agent", agent_line)


def _confirmed_in_report(server: Server, run: Json) -> str:
    report = server.result("resources/read", {"uri": f"run://{run['runId']}"})["contents"][0]["text"]
    result: str = next(line for line in report.splitlines() if line.startswith("Confirmed"))
    return result


def test_after_the_last_attempt_a_person_may_accept_the_output(serve: Callable[..., Server]) -> None:
    limited = step("one", validationCriteria=LONG, maxAttempts=2, whenExhausted="ask")
    server = serve(document(limited, step("two")))
    run = server.start_run()
    assert submitted(server, run, "one", "a")["next"].endswith("Attempts left: 1.")

    held = submitted(server, run, "one", "b")

    assert held["confirmation"]["question"] == (
        "Step 'Title one' of 'Sample workflow' was refused, and no attempts are left. "
        "Accept it as it is? If not, the run fails.\n\nWhy it was refused:\n> Too short."
    )
    failed = relayed(server, run, confirmed=False, note="No.")
    assert (failed["state"], failed["error"]["reason"]) == (
        "failed",
        "Step 'one' was refused 2 times, and a person did not accept it: No.",
    )


def test_a_run_past_its_deadline_has_failed_with_that_reason(serve: Callable[..., Server]) -> None:
    server = serve(document(step("one"), identifier="sample-workflow", deadlineSeconds=0.001))
    run = {"runId": server.start_run()["runId"]}
    while (status := server.result("workflow_status", run))["state"] == "waiting":
        pass

    refused = server.error("workflow_submit", {**run, "stepId": "one", "output": "Late."})

    assert (refused["code"], refused["data"]["state"]) == (-32005, "failed")
    reason = status["error"]["reason"]
    assert reason == "The run was not done within 0.001 seconds; it waited for the output of step 'one'."


# ── listing and ending ──────────────────────────────────────────────────────────────────────────────────────────


def test_runs_are_listed_in_pages_the_last_started_first(serve: Callable[..., Server]) -> None:
    other = document(step("one"), identifier="other-workflow")
    server = serve(TWO, other)
    ids = [
        server.start_run(runId=f"run-{number}")["runId"] for number in range(5)
    ]  # in order, also within a millisecond
    server.start_run("other-workflow", runId="other")
    server.result("workflow_cancel", {"runId": "run-0"})

    first = server.result("workflow_runs", {"workflowId": "sample-workflow", "state": "waiting", "limit": 3})
    second = server.result(
        "workflow_runs",
        {"workflowId": "sample-workflow", "state": "waiting", "limit": 3, "cursor": first["nextCursor"]},
    )

    assert [run["runId"] for run in (*first["runs"], *second["runs"])] == ids[:0:-1]
    assert "nextCursor" not in second
    since = first["runs"][0]["started"]
    later = {run["runId"]: run["started"] for run in server.result("workflow_runs", {"since": since})["runs"]}
    assert {"other", "run-4"} <= later.keys()
    assert min(later.values()) == since
    assert server.result("workflow_runs", {"until": "2020-01-01"})["runs"] == []
    for query, expected in {"is:cancelled": ["run-0"], "other-work": ["other"], "is:agent -run-": ["other"]}.items():
        assert [run["runId"] for run in server.result("workflow_runs", {"query": query})["runs"]] == expected


def test_the_list_of_runs_says_what_to_do_next(serve: Callable[..., Server]) -> None:
    server = serve(TWO)

    def next_of(**arguments: Json) -> Json:
        return server.result("workflow_runs", arguments)["next"]

    assert next_of() == "There are no runs. Call workflow_start."
    for _ in range(2):
        server.start_run()
    assert next_of() == "Call workflow_status with a runId to resume a run."
    assert next_of(limit=1) == (
        "Call workflow_status with a runId to resume a run. There are more: pass nextCursor as cursor."
    )
    assert next_of(state="failed") == "No run matches. Leave out a filter, or call workflow_start."


@pytest.mark.parametrize(
    ("arguments", "details"),
    [
        ({"since": "yesterday"}, "since must be a time as in 2026-11-16T09:30:00Z, or a date; found 'yesterday'"),
        ({"query": "is:odd"}, "There is no group is:odd; choose one of person, stuck, agent"),
        ({"cursor": "bm90aGluZw"}, "cursor must be a nextCursor of this tool; leave it out to start at the beginning"),
        ({"cursor": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5IHg"}, "cursor must be a nextCursor of this tool"),
    ],
    ids=["no time", "no group", "no cursor", "a number too long"],
)
def test_invalid_filters_are_refused(serve: Callable[..., Server], arguments: JsonObject, details: str) -> None:
    error = serve(TWO).error("workflow_runs", arguments)

    assert error["code"] == -32602
    assert error["data"]["details"].startswith(details)


def test_cancelling_a_run_is_idempotent(serve: Callable[..., Server]) -> None:
    server = serve(TWO)
    run = server.start_run()
    cancelled = server.result("workflow_cancel", {"runId": run["runId"], "reason": "Fixed upstream."})

    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "Fixed upstream.")
    assert server.result("workflow_cancel", {"runId": run["runId"]}) == cancelled
    error = server.error("workflow_submit", {"runId": run["runId"], "stepId": "one", "output": "x"})
    assert (error["code"], error["message"], error["data"]["state"]) == (-32005, "Run state error", "cancelled")


@pytest.mark.parametrize(
    ("method", "arguments", "code", "message"),
    [
        ("workflow_start", {"workflowId": "no-such-workflow"}, -32001, "Workflow not found"),
        ("workflow_start", {"workflowId": "sample-workflow", "runId": "a/b"}, -32602, "Invalid params"),
        ("workflow_submit", {"runId": "nothing", "stepId": "one", "output": "x"}, -32005, "Run not found"),
        ("workflow_submit", {"runId": "mine", "stepId": "two", "output": "x"}, -32005, "Run state error"),
        ("workflow_submit", {"runId": "mine", "stepId": "six", "output": "x"}, -32003, "Step not found"),
        ("workflow_submit", {"runId": "mine", "stepId": "one", "confirmed": True}, -32005, "Run state error"),
        ("workflow_submit", {"runId": "mine", "stepId": "one"}, -32602, "Invalid params"),
        ("workflow_status", {"runId": "nothing"}, -32005, "Run not found"),
        ("workflow_cancel", {"runId": "nothing"}, -32005, "Run not found"),
    ],
)
def test_refusals_have_their_codes(
    serve: Callable[..., Server], method: str, arguments: JsonObject, code: int, message: str
) -> None:
    server = serve(TWO)
    server.start_run(runId="mine")

    error = server.error(method, arguments)

    assert (error["code"], error["message"]) == (code, message)
    if code in (-32003, -32005) and arguments["runId"] == "mine":
        assert error["data"]["expected"] == "one"


def test_a_journal_that_cannot_be_used_is_a_storage_error_with_what_to_do(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    server = serve(TWO, WORKFLOWLOOKUP_JOURNAL=str(tmp_path / "file" / "runs.sqlite"))

    result = server.call("workflow_start", {"workflowId": "sample-workflow"})

    assert result["isError"]
    assert result["structuredContent"]["code"] == -32006
    assert "Check that its directory is there" in result["content"][0]["text"]
    assert server.result("workflow_list")["workflows"], "the lookup tools need no journal"


def test_runs_can_be_kept_in_postgresql(serve: Callable[..., Server], database: str) -> None:
    first, second = (serve(TWO, WORKFLOWLOOKUP_JOURNAL=database) for _ in range(2))
    run = first.start_run()

    assert submitted(second, run, "one")["step"]["id"] == "two"
    assert submitted(first, run, "two")["state"] == "completed"
    (line,) = json.loads(json.dumps(second.result("workflow_runs")["runs"]))
    assert (line["runId"], line["state"]) == (run["runId"], "completed")
