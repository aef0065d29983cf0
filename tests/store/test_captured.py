"""Variables captured from outputs, and protected values of the input, over standard input and output."""

from pathlib import Path

import pytest

from support.client import Server, Start
from support.json_values import Json
from support.make import document, loop, step, write

TRIAGE = document(
    step("triage", produces={"bugKind": {"enum": ["plain", "hidden"]}, "notes": {"optional": True}}),
    step("dig", runCondition={"var": "bugKind", "equals": "hidden"}),
    step("end"),
    identifier="triage-it",
)
RISK = {"type": "object", "properties": {"risk": {"enum": ["low", "high"]}, "size": {"type": "integer"}}}
GUARDED = document(
    step("look"),
    step("rate", produces={"risk": {}}),
    step("careful", runCondition={"var": "risk", "equals": "high"}),
    step("end"),
    identifier="guarded",
    inputSchema=RISK,
)


@pytest.fixture
def server(start: Start, library: Path) -> Server:
    write(library, TRIAGE)
    write(library, GUARDED)
    return start(directory=library)


def refused(server: Server, method: str, **arguments: Json) -> Json:
    error = server.error(method, arguments)
    assert error["code"] == -32602
    return error["data"]["details"]


def test_the_guidance_says_which_line_the_output_must_have(server: Server) -> None:
    guidance = server.start_run("triage-it")["guidance"]

    assert guidance["validationCriteria"] == [
        "The output states bugKind (one of 'plain', 'hidden'): the line `bugKind: plain`",
        "If it is known, the output states notes (any value): the line `notes: …`",
    ]


def test_a_value_enters_the_context_of_a_run_when_its_output_is_accepted(server: Server) -> None:
    run = server.start_run("triage-it")

    refusal = server.submit(run, "triage", "I think it is hidden.")
    assert refusal["verdict"]["issues"] == [
        "bugKind is not in the output: expected one of 'plain', 'hidden'. Add the line `bugKind: plain`."
    ]
    assert server.submit(run, "triage", "Far away.\n\n**bugKind:** hidden")["step"]["id"] == "dig"


def test_a_captured_value_takes_precedence_over_the_context_with_a_warning(server: Server) -> None:
    run = server.start_run("triage-it")

    moved = server.submit(run, "triage", "bugKind: hidden", context={"bugKind": "plain"})

    assert moved["step"]["id"] == "dig"
    assert moved["warnings"] == [
        '\'bugKind\' is "hidden", as the output says; "plain", which came in the context, was not taken'
    ]


def test_a_captured_value_is_not_changed_by_a_later_context(server: Server, library: Path) -> None:
    write(library, document(*TRIAGE["steps"][:1], step("wait"), *TRIAGE["steps"][1:], identifier="later-word"))
    run = server.start_run("later-word")
    server.submit(run, "triage", "bugKind: hidden")
    arguments = {"runId": run["runId"], "stepId": "wait", "output": "done"}

    error = refused(server, "workflow_submit", **arguments, context={"bugKind": "plain"})

    assert error.startswith("context.bugKind cannot be changed: step 'triage' set bugKind = \"hidden\"")
    assert server.submit(run, "wait", context={"bugKind": "hidden"})["step"]["id"] == "dig"


def test_workflow_validate_returns_captured_values_for_workflow_next(server: Server) -> None:
    arguments = {"workflowId": "triage-it", "stepId": "triage"}

    assert server.result("workflow_validate", {**arguments, "output": "words"})["captured"] == {}
    verdict = server.result("workflow_validate", {**arguments, "output": "bugKind: plain\nnotes: none"})
    assert verdict["valid"] is True
    assert verdict["captured"] == {"bugKind": "plain", "notes": "none"}
    step_after = {"workflowId": "triage-it", "completedSteps": ["triage"]}
    assert server.result("workflow_next", {**step_after, "context": verdict["captured"]})["step"]["id"] == "end"
    forgotten = server.result("workflow_next", step_after)["warnings"]
    assert "'bugKind', which it produces, is not set" in forgotten[0]


def test_the_context_does_not_override_the_input_at_the_start(server: Server) -> None:
    error = refused(server, "workflow_start", workflowId="guarded", input={"risk": "high"}, context={"risk": "low"})

    assert 'the run was started with risk = "high" as input' in error
    assert server.start_run("guarded", input={"risk": "high"}, context={"risk": "high"})["state"] == "waiting"


def test_the_context_of_a_submission_does_not_override_the_input(server: Server) -> None:
    run = server.start_run("guarded", input={"risk": "high"})
    arguments = {"runId": run["runId"], "stepId": "look", "output": "done", "context": {"risk": "low"}}

    assert "context.risk cannot be changed" in refused(server, "workflow_submit", **arguments)
    assert server.result("workflow_status", {"runId": run["runId"]})["step"]["id"] == "look"


def test_a_key_that_looks_like_a_part_of_the_input_does_not_override_it(server: Server) -> None:
    nested = {"size": 3, "risks": {"data": "high"}}
    same = {"size": 3, "risks.data": "high"}
    wrong = {"context": {"risks.data": "low"}}

    error = refused(server, "workflow_start", workflowId="guarded", input=nested, **wrong)
    assert 'the run was started with risks.data = "high" as input' in error
    run = server.start_run("guarded", input=nested)
    arguments = {"runId": run["runId"], "stepId": "look", "output": "done"}
    assert "context.risks.data cannot be changed" in refused(server, "workflow_submit", **arguments, **wrong)
    assert server.submit(run, "look", context={**same, "risks.other": 1})["step"]["id"] == "rate"


PARTS = document(
    step("look"),
    step("judge", produces={"report": {"type": "object"}}),
    step("careful", runCondition={"var": "report.risk", "equals": "high"}),
    step("end"),
    identifier="parts",
)


@pytest.mark.parametrize("when", ["look", "judge"])
def test_a_dotted_key_does_not_override_a_captured_value(server: Server, library: Path, when: str) -> None:
    write(library, PARTS)
    run = server.start_run("parts")
    sent = {"report.risk": "low", "report.more": 1}

    server.submit(run, "look", context=sent if when == "look" else {})
    moved = server.submit(run, "judge", '{"report": {"risk": "high"}}', context=sent if when == "judge" else {})

    assert moved["step"]["id"] == "careful"


def test_ending_a_loop_changes_no_value_of_the_input(server: Server, library: Path) -> None:
    endless = loop(
        "endless", [step("rate", produces={"risk": {}})], type="while", conditionSource={"kind": "elsewhere"}
    )
    write(library, document(endless, step("end"), identifier="endless-one", inputSchema=RISK))
    run = server.start_run("endless-one", input={"risk": "high"})
    arguments = {"runId": run["runId"], "stepId": "endless", "output": "Enough."}

    assert "context.risk cannot be changed" in refused(server, "workflow_submit", **arguments, context={"risk": "low"})
    assert server.submit(run, "endless", "Enough.")["step"]["id"] == "end"


def test_a_step_that_produces_it_may_change_a_value_of_the_input_within_the_schema(server: Server) -> None:
    run = server.start_run("guarded", input={"risk": "low"})
    server.submit(run, "look")

    forbidden = server.submit(run, "rate", "risk: enormous")
    assert "context.risk must be one of" in forbidden["verdict"]["issues"][0]
    assert server.submit(run, "rate", "risk: high")["step"]["id"] == "careful"


def test_a_schema_across_values_also_holds_for_the_step_that_produces_one(server: Server, library: Path) -> None:
    schema = {**RISK, "not": {"properties": {"risk": {"const": "low"}, "size": {"const": 9}}, "required": ["risk"]}}
    write(
        library, document(step("rate", produces={"risk": {}}), step("end"), identifier="never-both", inputSchema=schema)
    )
    run = server.start_run("never-both", input={"risk": "high", "size": 9})

    assert "is not allowed for" in server.submit(run, "rate", "risk: low")["verdict"]["issues"][0]
    assert server.submit(run, "rate", "risk: high")["step"]["id"] == "end"


def test_a_variable_of_the_input_never_takes_a_value_that_its_schema_forbids(server: Server) -> None:
    error = refused(server, "workflow_start", workflowId="guarded", input={}, context={"size": "large"})

    assert error == "context.size must be a whole number; found 'large'"


# ── templates in criteria ───────────────────────────────────────────────────────────────────────────────────────

NAMED = document(
    step("choose", produces={"ticket": {}}),
    step(
        "close",
        validationCriteria=[
            {"type": "contains", "value": "closed {{ticket}}", "message": "Say that {{ticket}} is closed."}
        ],
    ),
    identifier="named",
)


def test_criteria_are_judged_and_shown_with_the_values_of_the_run(start: Start, library: Path) -> None:
    write(library, NAMED)
    server = start(directory=library)
    run = server.start_run("named")

    offered = server.submit(run, "choose", "ticket: T-7")
    assert offered["guidance"]["validationCriteria"] == [
        'The output contains the text "closed T-7" (with this case): Say that T-7 is closed.'
    ]
    assert server.submit(run, "close", "closed T-8")["verdict"]["issues"] == ["Say that T-7 is closed."]
    assert server.submit(run, "close", "closed T-7")["state"] == "completed"


def test_the_values_of_one_caller_do_not_reach_another(start: Start, library: Path) -> None:
    write(library, NAMED)
    server = start(directory=library)
    arguments = {"workflowId": "named", "stepId": "close", "output": "closed T-7"}

    assert server.result("workflow_validate", {**arguments, "context": {"ticket": "T-7"}})["valid"] is True
    other = server.result("workflow_validate", {**arguments, "context": {"ticket": "T-9"}})
    assert other["issues"] == ["Say that T-9 is closed."]
    unset = server.result("workflow_validate", arguments)
    assert unset["issues"] == [
        "Say that {{ticket}} is closed: a rule cannot be judged, because ticket is not set in the context, or blank."
    ]
