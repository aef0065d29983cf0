"""workflow_next: the next step, and what the agent reads about it."""

import json
from pathlib import Path

import pytest

from spec.roads import Ask, Publish, failure, invalid_params, success
from support.json_values import Json, JsonObject
from support.make import loop, step

EXAMPLES = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))


def ask_next(ask: Ask, workflow: str, *completed: str, context: JsonObject | None = None, **more: Json) -> Json:
    arguments = {"workflowId": workflow, "completedSteps": list(completed), **more}
    return ask.result("workflow_next", arguments if context is None else {**arguments, "context": context})


# ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_next/workflow-id", "001/workflow_next/completed-steps", "001/codes/-32602")
@pytest.mark.parametrize(
    ("arguments", "details"),
    [
        ({"completedSteps": []}, "workflowId is required"),
        ({"workflowId": "some-workflow"}, "completedSteps is required"),
        ({}, "workflowId is required; completedSteps is required"),
    ],
)
def test_workflow_id_and_completed_steps_are_required(ask: Ask, arguments: JsonObject, details: str) -> None:
    assert ask("workflow_next", arguments) == invalid_params(details)


@pytest.mark.spec("001/workflow_next/current-step", "001/workflow_next/context", "001/workflow_next/step")
@pytest.mark.parametrize(
    "members",
    [{}, {"currentStep": "first-step"}, {"currentStep": "second-step"}, {"context": {}}, {"context": {"unused": [1]}}],
    ids=json.dumps,
)
def test_current_step_and_context_are_optional_and_completed_steps_decide(
    ask: Ask, publish: Publish, members: JsonObject
) -> None:
    workflow = publish(step("first-step"), step("second-step"))

    reply = ask("workflow_next", {"workflowId": workflow, "completedSteps": ["first-step"], **members})

    assert reply == success(
        {
            "step": {"id": "second-step", "title": "Title second-step", "prompt": "Do second-step."},
            "guidance": {"prompt": "Do second-step.", "requiresConfirmation": False, "validationCriteria": []},
            "isComplete": False,
            "progress": {"completed": 1, "total": 2},
        }
    )


@pytest.mark.spec("001/workflow_next/completed-steps", "001/workflow_next/step")
@pytest.mark.parametrize(
    ("completed", "following"),
    [
        ([], "step-one"),
        (["step-one"], "step-two"),
        (["step-one", "step-two"], "step-three"),
        (["step-two", "step-one"], "step-three"),
        (["step-three"], "step-one"),
        (["step-one", "step-three"], "step-two"),
    ],
)
def test_the_next_step_is_the_first_that_is_not_completed(
    ask: Ask, publish: Publish, completed: list[str], following: str
) -> None:
    workflow = publish(step("step-one"), step("step-two"), step("step-three"))

    assert ask_next(ask, workflow, *completed)["step"]["id"] == following


@pytest.mark.spec("001/workflow_next/context", "001/codes/-32602")
def test_a_context_over_256_kibibytes_is_refused(ask: Ask, publish: Publish) -> None:
    workflow = publish()

    error = ask.error(
        "workflow_next", {"workflowId": workflow, "completedSteps": [], "context": {"notes": "x" * (256 * 1024)}}
    )

    assert error["code"] == -32602
    assert error["data"]["details"].startswith("context must be at most 256")


@pytest.mark.spec("001/codes/-32602")
@pytest.mark.parametrize("odd", ["Not An Id", "step-7", ["step-7"], {"id": "step-7"}, 7, None, True])
def test_a_long_list_of_ids_that_were_sent_before_is_checked_as_the_first_one_was(
    ask: Ask, publish: Publish, odd: object
) -> None:
    workflow = publish(step("step-one"))
    completed: list[object] = [f"step-{number}" for number in range(300)]
    params = {"workflowId": workflow, "completedSteps": completed}
    assert [ask_next(ask, workflow, *map(str, completed))["step"]["id"] for _ in range(2)] == ["step-one", "step-one"]

    error = ask.error("workflow_next", {**params, "completedSteps": [*completed, odd]})

    assert error["code"] == -32602


# ── the step ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec(
    "001/workflow_next/step-id",
    "001/workflow_next/step-title",
    "001/workflow_next/step-prompt",
    "001/workflow_next/step-agent-role",
    "001/workflow_next/step-guidance",
    "001/workflow_next/step-ask-for-files",
    "001/workflow_next/step-require-confirmation",
    "001/workflow_next/step-run-condition",
)
def test_the_step_has_every_field_that_the_author_gave_and_never_the_raw_criteria(ask: Ask, publish: Publish) -> None:
    fields = {
        "id": "only-step",
        "title": "The only step",
        "prompt": "Do it.",
        "agentRole": "You are a careful reviewer.",
        "guidance": ["Be brief.", "Be kind."],
        "askForFiles": True,
        "requireConfirmation": True,
        "runCondition": {"var": "taskScope", "not_equals": "none"},
    }
    workflow = publish({**fields, "validationCriteria": [{"type": "contains", "value": "x", "message": "m"}]})

    assert ask_next(ask, workflow)["step"] == fields


@pytest.mark.spec("001/workflow_next/step-ask-for-files", "001/workflow_next/step-require-confirmation")
@pytest.mark.parametrize("value", [True, False])
def test_ask_for_files_and_require_confirmation_are_returned_unchanged(ask: Ask, publish: Publish, value: bool) -> None:
    workflow = publish(step("only-step", askForFiles=value, requireConfirmation=value))

    answer = ask_next(ask, workflow)["step"]

    assert (answer["askForFiles"], answer["requireConfirmation"]) == (value, value)


@pytest.mark.spec("001/workflow_next/step-agent-role")
@pytest.mark.parametrize("length", [10, 1024])
def test_an_agent_role_of_10_to_1024_characters_is_shown(ask: Ask, publish: Publish, length: int) -> None:
    workflow = publish(step("only-step", agentRole="→" * length))

    assert ask_next(ask, workflow)["step"]["agentRole"] == "→" * length


@pytest.mark.spec("001/workflow_next/step-agent-role", "001/codes/-32002")
@pytest.mark.parametrize("length", [0, 9, 1025])
def test_a_document_with_an_agent_role_of_another_length_is_malformed(ask: Ask, publish: Publish, length: int) -> None:
    workflow = publish(step("only-step", agentRole="x" * length))

    error = ask.error("workflow_next", {"workflowId": workflow, "completedSteps": []})

    assert (error["code"], len(error["data"]["issues"])) == (-32002, 1)
    assert "agentRole" in error["data"]["issues"][0]


@pytest.mark.spec("001/workflow_next/step-null", "001/workflow_next/is-complete")
def test_when_all_steps_are_completed_the_step_is_null(ask: Ask, publish: Publish) -> None:
    workflow = publish(step("first-step"), step("second-step"))

    answer = ask_next(ask, workflow, "first-step", "second-step")

    assert answer == {
        "step": None,
        "guidance": {"prompt": "Workflow complete.", "requiresConfirmation": False, "validationCriteria": []},
        "isComplete": True,
        "progress": {"completed": 2, "total": 2},
    }


@pytest.mark.spec("001/workflow_next/is-complete", "001/workflow_next/step")
def test_a_workflow_is_walked_from_its_first_step_to_its_last(ask: Ask, publish: Publish) -> None:
    workflow = publish(*(step(f"step-{number}") for number in range(5)))
    walked: list[str] = []

    while not (answer := ask_next(ask, workflow, *walked))["isComplete"]:
        walked.append(answer["step"]["id"])

    assert walked == [f"step-{number}" for number in range(5)]


@pytest.mark.spec("001/workflow_next/step-id")
def test_in_a_loop_the_id_carries_the_iteration(ask: Ask, publish: Publish) -> None:
    workflow = publish(loop("each-file", [step("review")], type="forEach", items="files"), step("report"))
    walked: list[str] = []

    while not (answer := ask_next(ask, workflow, *walked, context={"files": ["a", "b"]}))["isComplete"]:
        walked.append(answer["step"]["id"])

    assert walked == ["review@1", "review@2", "report"]


# ── guidance ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_next/guidance-prompt", "001/workflow_next/context")
def test_the_prompt_is_enhanced_with_role_guidance_and_context(ask: Ask, publish: Publish) -> None:
    workflow = publish(
        step("only-step", prompt="Fix {{task.id}}.", agentRole="You fix {{kind}} code.", guidance=["Mind {{kind}}."])
    )

    answer = ask_next(ask, workflow, context={"task": {"id": "TASK-123"}, "kind": "legacy"})

    assert answer["step"]["prompt"] == "Fix TASK-123."
    prompt = answer["guidance"]["prompt"]
    places = [prompt.index(text) for text in ("You fix legacy code.", "Mind legacy.", "Fix TASK-123.")]
    assert places == sorted(places)


@pytest.mark.spec("001/workflow_next/guidance-prompt")
def test_a_variable_that_is_not_set_stays_as_written_and_is_named(ask: Ask, publish: Publish) -> None:
    workflow = publish(step("only-step", prompt="Fix {{taskId}}; {{{{literal}}."))

    answer = ask_next(ask, workflow)

    assert answer["guidance"]["prompt"] == "Fix {{taskId}}; {{literal}}."
    assert ["taskId" in warning for warning in answer["warnings"]] == [True]


@pytest.mark.spec("001/workflow_next/guidance-model-hint")
@pytest.mark.parametrize(
    ("of_step", "of_workflow", "hint"),
    [
        ({"modelHint": "model-with-strong-reasoning"}, {}, "model-with-strong-reasoning"),
        ({}, {"modelHint": "model-with-long-context"}, "model-with-long-context"),
        ({"modelHint": "small-model"}, {"modelHint": "large-model"}, "small-model"),
        ({"modelTier": "heavy"}, {}, "model-with-strong-reasoning"),
        ({}, {}, None),
    ],
    ids=["of the step", "of the workflow", "the step's wins", "from the tier", "none"],
)
def test_the_model_hint_is_that_of_the_step_or_of_the_workflow(
    ask: Ask, publish: Publish, of_step: JsonObject, of_workflow: JsonObject, hint: str | None
) -> None:
    workflow = publish(step("only-step", **of_step), **of_workflow)

    assert ask_next(ask, workflow)["guidance"].get("modelHint") == hint


@pytest.mark.spec("001/workflow_next/guidance-requires-confirmation", "001/workflow_next/step-require-confirmation")
@pytest.mark.parametrize(
    ("wanted", "requires"),
    [
        (True, True),
        (False, False),
        ({"var": "risk", "equals": "high"}, True),
        ({"var": "risk", "equals": "low"}, False),
        ({"kind": "always"}, True),
        ({"kind": "when", "condition": {"var": "risk", "equals": "low"}}, False),
    ],
    ids=json.dumps,
)
def test_requires_confirmation_says_whether_the_user_must_confirm_now(
    ask: Ask, publish: Publish, wanted: Json, requires: bool
) -> None:
    workflow = publish(step("only-step", requireConfirmation=wanted))

    answer = ask_next(ask, workflow, context={"risk": "high"})

    assert (answer["guidance"]["requiresConfirmation"], answer["step"]["requireConfirmation"]) == (requires, requires)


@pytest.mark.spec("001/workflow_next/guidance-validation-criteria")
def test_the_criteria_are_sentences_one_for_each_rule_that_applies(ask: Ask, publish: Publish) -> None:
    large = {"var": "taskScope", "equals": "large"}
    workflow = publish(
        step(
            "only-step",
            validationCriteria=[
                {"type": "contains", "value": "Requirements:", "message": "Clear understanding of requirements"},
                {"type": "length", "min": 50, "message": "Documented assumptions"},
                {"type": "contains", "value": "Risks:", "message": "Identified risks", "condition": large},
            ],
        )
    )

    small_task = ask_next(ask, workflow, context={"taskScope": "small"})["guidance"]["validationCriteria"]
    large_task = ask_next(ask, workflow, context={"taskScope": "large"})["guidance"]["validationCriteria"]

    assert large_task[:2] == small_task
    messages = ["Clear understanding of requirements", "Documented assumptions", "Identified risks"]
    assert [message in sentence for message, sentence in zip(messages, large_task, strict=True)] == [True] * 3
    assert "Requirements:" in large_task[0]
    assert "50" in large_task[1]


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_next/run-condition", "001/workflow_next/context")
@pytest.mark.parametrize(
    ("context", "expected"),
    [(EXAMPLES["context"], "conditional"), ({"taskScope": "small"}, "always"), ({}, "always"), (None, "always")],
    ids=["of the spec", "another value", "empty", "missing"],
)
def test_the_condition_of_the_spec_holds_in_the_context_of_the_spec_only(
    ask: Ask, publish: Publish, context: JsonObject | None, expected: str
) -> None:
    workflow = publish(step("conditional", runCondition=EXAMPLES["runCondition"]), step("always"))

    assert ask_next(ask, workflow, context=context)["step"]["id"] == expected


@pytest.mark.spec("001/workflow_next/skip")
def test_steps_whose_condition_is_false_are_skipped_one_after_the_other(ask: Ask, publish: Publish) -> None:
    never = {"var": "taskScope", "equals": "none"}
    workflow = publish(
        step("step-one", runCondition=never),
        step("step-two", runCondition=never),
        step("step-three"),
        step("step-four"),
    )

    answer = ask_next(ask, workflow, context={"taskScope": "large"})

    assert (answer["step"]["id"], answer["isComplete"]) == ("step-three", False)


@pytest.mark.spec("001/workflow_next/skip", "001/workflow_next/is-complete", "001/workflow_next/step-null")
def test_when_only_skipped_steps_are_left_the_workflow_is_complete_and_says_which_and_why(
    ask: Ask, publish: Publish
) -> None:
    large = {"var": "taskScope", "equals": "large"}
    workflow = publish(step("step-one"), step("step-two", runCondition=large))

    answer = ask_next(ask, workflow, "step-one", context={"taskScope": "small"})

    assert (answer["step"], answer["isComplete"]) == (None, True)
    (skipped,) = answer["skipped"]
    assert (skipped["stepId"], skipped["condition"]) == ("step-two", large)


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_next/unknown-workflow", "001/codes/-32001")
def test_an_unknown_workflow_is_answered_with_workflow_not_found(ask: Ask) -> None:
    reply = ask("workflow_next", {"workflowId": "no-such-workflow", "completedSteps": []})

    assert reply == failure(-32001, "Workflow not found", {"workflowId": "no-such-workflow"})


@pytest.mark.spec("001/workflow_next/unknown-current-step", "001/codes/-32003", "004/errors/-32003")
@pytest.mark.parametrize("completed", [[], ["first-step"]], ids=["at the start", "at the end"])
def test_an_unknown_current_step_is_answered_with_step_not_found(
    ask: Ask, publish: Publish, completed: list[str]
) -> None:
    workflow = publish(step("first-step"))

    reply = ask("workflow_next", {"workflowId": workflow, "currentStep": "no-such-step", "completedSteps": completed})

    assert reply == failure(-32003, "Step not found", {"stepId": "no-such-step"})
