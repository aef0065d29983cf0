"""A loop is never skipped for lack of data: over stdio, `workflow_next` and runs ask for the list or the count."""

from pathlib import Path

import pytest

from support.client import Server, Start
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write

EACH = document(loop("each", [step("look")], type="forEach", items="files"), step("end"), identifier="each-file")
TIMES = document(loop("again", [step("work")], type="for", count="times"), step("end"), identifier="some-times")
NESTED = document(
    loop("outer", [loop("inner", [step("look")], type="forEach", items="task.files"), step("sum-up")])
    | {"loop": {"type": "forEach", "items": "tasks", "itemVar": "task", "maxIterations": 3}},
    step("end"),
    identifier="nested",
)


@pytest.fixture
def server(start: Start, library: Path) -> Server:
    for one in (EACH, TIMES, NESTED):
        write(library, one)
    return start(directory=library)


def begin(server: Server, workflow_id: str, context: JsonObject | None = None, **more: Json) -> Json:
    return server.result("workflow_start", {"workflowId": workflow_id, "context": context or {}, **more})


def send(server: Server, run: Json, step_id: str, **arguments: Json) -> Json:
    return server.result("workflow_submit", {"runId": run["runId"], "stepId": step_id, **arguments})


def test_workflow_next_asks_for_the_list_with_an_example_that_works(server: Server) -> None:
    arguments = {"workflowId": "each-file", "completedSteps": []}

    answer = server.result("workflow_next", arguments)

    assert answer["step"] is None
    assert answer["isComplete"] is False
    (need,) = answer["missing"]
    assert need == {"variable": "files", "expected": "a list ('array')", "example": {"context": {"files": ["…"]}}}
    assert 'Put files into the context, as in {"files":["…"]}' in answer["guidance"]["prompt"]
    assert server.result("workflow_next", {**arguments, **need["example"]})["step"]["id"] == "look@1"


@pytest.mark.parametrize(
    ("workflow_id", "variable", "wrong", "right", "first"),
    [("each-file", "files", "a.py", ["a.py"], "look@1"), ("some-times", "times", "two", 2, "work@1")],
)
def test_a_run_waits_for_context_and_continues_with_the_call_that_supplies_it(
    server: Server, workflow_id: str, variable: str, wrong: str, right: list[str] | int, first: str
) -> None:
    run = begin(server, workflow_id)
    loop_id = run["next"].partition("stepId '")[2].partition("'")[0]

    assert (run["state"], run["waitingFor"]) == ("waiting", "context")
    assert run["missing"][0]["variable"] == variable
    refused = server.error("workflow_submit", {"runId": run["runId"], "stepId": loop_id, "context": {variable: wrong}})
    assert refused["code"] == -32602
    assert f"context.{variable} is '{wrong}': expected a" in refused["data"]["details"]
    moved = send(server, run, loop_id, context={variable: right})
    assert (moved["waitingFor"], moved["step"]["id"]) == ("output", first)


def test_the_same_supply_sent_again_changes_nothing(server: Server) -> None:
    run = begin(server, "each-file")
    first = send(server, run, "each", context={"files": ["a"]})

    assert send(server, run, "each", context={"files": ["a"]}) == first


def test_an_empty_list_skips_the_loop_and_the_answer_says_so(server: Server) -> None:
    run = begin(server, "each-file")

    moved = send(server, run, "each", context={"files": []})

    assert moved["step"]["id"] == "end"
    assert moved["warnings"] == ["Loop 'each' was skipped: its list 'files' is empty"]


def test_the_count_of_a_for_is_fixed_when_the_loop_is_entered(server: Server) -> None:
    run = begin(server, "some-times", {"times": 2})
    send(server, run, "work@1", output="done", context={"times": 9})

    assert send(server, run, "work@2", output="done")["step"]["id"] == "end"


@pytest.mark.parametrize("second", [{}, {"files": "b.py"}])
def test_a_loop_in_a_loop_waits_in_its_iteration(server: Server, second: JsonObject) -> None:
    run = begin(server, "nested", {"tasks": [{"files": ["a"]}, second]})
    send(server, run, "look@1.1", output="done")
    waits = send(server, run, "sum-up@1", output="done")

    assert waits["waitingFor"] == "context"
    assert waits["missing"][0]["variable"] == "task.files"
    assert send(server, run, "inner@2", **waits["missing"][0]["example"])["step"]["id"] == "look@2.1"


def test_an_output_instead_of_the_variable_is_refused_with_what_to_send(server: Server) -> None:
    run = begin(server, "each-file")

    refused = server.error("workflow_submit", {"runId": run["runId"], "stepId": "end", "output": "done"})

    assert refused["code"] == -32005
    assert "It waits for a variable of loop 'each'" in refused["data"]["details"]


def test_the_deadline_counts_while_a_run_waits_for_context(server: Server) -> None:
    run = begin(server, "each-file", timeoutSeconds=0.001)
    failed = server.result("workflow_status", {"runId": run["runId"]})

    assert failed["state"] == "failed"
    assert "it waited for the variable 'files', which loop 'each' needs" in failed["error"]["reason"]


def test_a_run_that_waits_for_context_can_be_listed_and_cancelled(server: Server) -> None:
    run = begin(server, "each-file")

    (line,) = server.result("workflow_runs", {})["runs"]
    assert (line["waitingFor"], line["step"]) == ("context", "each")
    assert server.result("workflow_cancel", {"runId": run["runId"]})["state"] == "cancelled"
