"""workflow_get: a workflow without its steps, with the first one, or whole."""

from typing import Any

import pytest

from spec.roads import Ask, Publish, failure, invalid_params, success
from support.json_values import JsonObject
from support.make import document, loop, step

FIRST = step(
    "first-step",
    agentRole="You are a technical assessment specialist.",
    guidance=["Be thorough in your analysis"],
    requireConfirmation=True,
    askForFiles=False,
    validationCriteria=[{"type": "contains", "value": "secret criterion", "message": "m"}],
)
SECOND = step("second-step", prompt="The surprise of the second step.")
LISTS = {
    "preconditions": ["User has a clear task description"],
    "clarificationPrompts": ["What is the complexity level?"],
    "metaGuidance": ["Follow PREP -> IMPLEMENT -> VERIFY pattern"],
}
METADATA = {
    "name": "Sample workflow",
    "description": "A workflow for tests",
    "version": "0.1.0",
    "category": "development",
    **LISTS,
    "totalSteps": 2,
}
FIRST_SHOWN = {
    "id": "first-step",
    "title": "Title first-step",
    "prompt": "Do first-step.",
    "agentRole": "You are a technical assessment specialist.",
    "guidance": ["Be thorough in your analysis"],
    "askForFiles": False,
    "requireConfirmation": True,
}


@pytest.fixture
def workflow(publish: Publish) -> str:
    return publish(FIRST, SECOND, version="0.1.0", category="development", **LISTS)


# ── modes ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec(
    "001/workflow_get/mode-metadata",
    "001/workflow_get/fields",
    "001/workflow_get/preconditions",
    "001/workflow_get/clarification-prompts",
    "001/workflow_get/meta-guidance",
    "001/workflow_get/total-steps",
)
def test_metadata_is_the_workflow_without_steps(ask: Ask, workflow: str) -> None:
    reply = ask("workflow_get", {"id": workflow, "mode": "metadata"})

    assert reply == success({"id": workflow, **METADATA})


@pytest.mark.spec("001/workflow_get/mode-preview", "001/workflow_get/first-step", "001/workflow_get/mode")
def test_preview_is_the_metadata_and_the_first_step(ask: Ask, workflow: str) -> None:
    reply = ask("workflow_get", {"id": workflow, "mode": "preview"})

    assert reply == success({"id": workflow, **METADATA, "firstStep": FIRST_SHOWN})


@pytest.mark.spec("001/workflow_get/mode-default", "001/workflow_get/id")
@pytest.mark.parametrize("members", [{}, {"mode": None}], ids=["missing", "null"])
def test_preview_is_the_default(ask: Ask, workflow: str, members: JsonObject) -> None:
    reply = ask("workflow_get", {"id": workflow, **members})

    assert reply == success({"id": workflow, **METADATA, "firstStep": FIRST_SHOWN})


@pytest.mark.spec("001/workflow_get/mode")
def test_full_is_the_whole_document_with_the_defaults_filled_in(ask: Ask, publish: Publish) -> None:
    identifier = publish(FIRST, SECOND, version="0.1.0")

    reply = ask("workflow_get", {"id": identifier, "mode": "full"})

    assert reply == success(document(FIRST, SECOND, identifier=identifier, version="0.1.0", category="workflow"))


@pytest.mark.spec("001/workflow_get/mode", "001/codes/-32602")
@pytest.mark.parametrize(
    ("mode", "shown"), [("everything", "'everything'"), ("", "''"), (5, "5"), (["full"], "a list")]
)
def test_an_unknown_mode_is_refused(ask: Ask, workflow: str, mode: Any, shown: str) -> None:
    error = ask.error("workflow_get", {"id": workflow, "mode": mode})

    details = error["data"]["details"]
    assert {"error": error} == invalid_params(details)
    assert details.startswith("mode must be ")
    assert f"; found {shown}" in details


@pytest.mark.spec("001/workflow_get/no-spoiling")
@pytest.mark.parametrize("mode", ["metadata", "preview"])
def test_neither_later_steps_nor_criteria_are_disclosed(ask: Ask, workflow: str, mode: str) -> None:
    text = str(ask.result("workflow_get", {"id": workflow, "mode": mode}))

    assert "second-step" not in text
    assert "surprise" not in text
    assert "secret criterion" not in text


# ── fields ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_get/id", "001/codes/-32602")
@pytest.mark.parametrize("arguments", [{}, {"mode": "metadata"}])
def test_the_id_is_required(ask: Ask, arguments: JsonObject) -> None:
    assert ask("workflow_get", arguments) == invalid_params("id is required")


@pytest.mark.spec(
    "001/workflow_get/fields",
    "001/workflow_get/preconditions",
    "001/workflow_get/clarification-prompts",
    "001/workflow_get/meta-guidance",
    "001/workflow_get/first-step",
)
def test_fields_that_the_author_left_out_are_left_out(ask: Ask, publish: Publish) -> None:
    identifier = publish(step("only-step"))

    assert ask("workflow_get", {"id": identifier}) == success(
        {
            "id": identifier,
            "name": "Sample workflow",
            "description": "A workflow for tests",
            "version": "1.0.0",
            "category": "workflow",
            "totalSteps": 1,
            "firstStep": {"id": "only-step", "title": "Title only-step", "prompt": "Do only-step."},
        }
    )


@pytest.mark.spec("001/workflow_get/total-steps")
@pytest.mark.parametrize("count", [1, 8, 50])
def test_total_steps_is_the_number_of_steps(ask: Ask, publish: Publish, count: int) -> None:
    identifier = publish(*(step(f"step-{number}") for number in range(count)))

    assert ask.result("workflow_get", {"id": identifier, "mode": "metadata"})["totalSteps"] == count


@pytest.mark.spec("001/workflow_get/first-eligible-step", "001/workflow_get/mode-preview")
@pytest.mark.parametrize(
    ("steps", "first"),
    [
        ([step("waits", runCondition={"var": "size", "equals": "large"}), step("is-eligible")], "is-eligible"),
        ([step("is-eligible", runCondition={"var": "size", "not_equals": "large"}), step("later")], "is-eligible"),
        ([loop("the-loop", [step("in-the-loop")], type="for", count=2), step("later")], "in-the-loop@1"),
        ([loop("the-loop", "the-body", type="until", condition={"var": "done"}), step("the-body")], "the-body@1"),
    ],
    ids=["condition does not hold", "condition holds", "in a loop", "body of a loop by reference"],
)
def test_the_first_step_is_the_first_eligible_one_in_an_empty_context(
    ask: Ask, publish: Publish, steps: list[JsonObject], first: str
) -> None:
    assert ask.result("workflow_get", {"id": publish(*steps)})["firstStep"]["id"] == first


@pytest.mark.spec("001/workflow_get/first-eligible-step")
def test_the_first_step_is_null_when_every_step_waits_for_the_context(ask: Ask, publish: Publish) -> None:
    identifier = publish(step(runCondition={"var": "size", "equals": "large"}))

    assert ask.result("workflow_get", {"id": identifier})["firstStep"] is None


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_get/unknown-id", "001/codes/-32001", "004/errors/-32001")
@pytest.mark.parametrize("mode", ["metadata", "preview", "full"])
@pytest.mark.parametrize("identifier", ["no-such-workflow", "a" * 64, "-..", "no.such_one"])
def test_an_unknown_workflow_id_is_answered_with_workflow_not_found(ask: Ask, identifier: str, mode: str) -> None:
    reply = ask("workflow_get", {"id": identifier, "mode": mode})

    assert reply == failure(-32001, "Workflow not found", {"workflowId": identifier})
