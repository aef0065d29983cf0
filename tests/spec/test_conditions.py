"""The operators of conditions, each in both places where the spec has conditions: steps and rules."""

from collections.abc import Callable
from typing import Any

import pytest

from spec.roads import Ask, Publish
from support.json_values import Json, JsonObject
from support.make import step

Holds = Callable[[JsonObject, JsonObject], bool]


@pytest.fixture(params=["runCondition", "rule"])
def holds(request: pytest.FixtureRequest, ask: Ask, publish: Publish) -> Holds:
    """Whether a condition holds in a context: the step is handed out, or the rule that always fails applies."""

    def is_handed_out(condition: JsonObject, context: JsonObject) -> bool:
        workflow = publish(step("conditional", runCondition=condition), step("always"))
        answer = ask.result("workflow_next", {"workflowId": workflow, "completedSteps": [], "context": context})
        return bool(answer["step"]["id"] == "conditional")

    def applies(condition: JsonObject, context: JsonObject) -> bool:
        rule = {"type": "contains", "value": "not in the output", "message": "Fails.", "condition": condition}
        workflow = publish(step("only-step", validationCriteria=[rule]))
        verdict = ask.result(
            "workflow_validate",
            {"workflowId": workflow, "stepId": "only-step", "output": "Done.", "context": context},
        )
        return not verdict["valid"]

    return is_handed_out if request.param == "runCondition" else applies


def on(**operators: Any) -> JsonObject:
    return {"var": "x", **operators}


@pytest.mark.spec("001/workflow_next/operator-equals", "001/workflow_validate/operator-equals")
@pytest.mark.parametrize(
    ("value", "context", "expected"),
    [
        ("large", {"x": "large"}, True),
        ("large", {"x": "small"}, False),
        ("large", {}, False),
        ("Large ", {"x": " lARGE"}, True),
        (3, {"x": 3}, True),
        (3, {"x": 3.0}, True),
        (42, {"x": "42"}, True),
        (3, {"x": 4}, False),
        (True, {"x": True}, True),
        (True, {"x": "yes"}, True),
        (False, {"x": "no"}, True),
        (1, {"x": True}, False),
        (True, {"x": 1}, False),
        (255, {"x": "0xff"}, False),
        (0, {"x": ""}, False),
        (None, {}, True),
        (None, {"x": None}, True),
        (None, {"x": 0}, False),
        ([1, {"a": [2]}], {"x": [1, {"a": [2]}]}, True),
        ([1, 2], {"x": [2, 1]}, False),
    ],
)
def test_equals_compares_loosely(holds: Holds, value: Json, context: JsonObject, expected: bool) -> None:
    assert holds(on(equals=value), context) is expected


@pytest.mark.spec("001/workflow_next/operator-not_equals", "001/workflow_validate/operator-not_equals")
@pytest.mark.parametrize(
    ("value", "context", "expected"),
    [
        ("large", {"x": "small"}, True),
        ("large", {"x": "large"}, False),
        ("large", {"x": "LARGE"}, False),
        ("large", {}, True),
        (None, {}, False),
        (0, {"x": False}, True),
        ([1], {"x": [1]}, False),
    ],
)
def test_not_equals_is_the_opposite_and_holds_for_missing_variables(
    holds: Holds, value: Json, context: JsonObject, expected: bool
) -> None:
    assert holds(on(not_equals=value), context) is expected


@pytest.mark.spec(
    "001/workflow_next/operator-gt",
    "001/workflow_validate/operator-gt",
    "001/workflow_next/operator-gte",
    "001/workflow_validate/operator-gte",
    "001/workflow_next/operator-lt",
    "001/workflow_validate/operator-lt",
    "001/workflow_next/operator-lte",
    "001/workflow_validate/operator-lte",
)
@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("gt", [False, False, True]),
        ("gte", [False, True, True]),
        ("lt", [True, False, False]),
        ("lte", [True, True, False]),
    ],
)
@pytest.mark.parametrize("around", [(0.7, 0.8, 0.9), (-2, -1, 0), ("9", "10", "11"), (9.99, "10.0", 1e1 + 1)], ids=str)
def test_numbers_are_compared_below_at_and_above(
    holds: Holds, operator: str, around: tuple[Any, Any, Json], expected: list[bool]
) -> None:
    _, value, _ = around

    assert [holds(on(**{operator: value}), {"x": actual}) for actual in around] == expected


@pytest.mark.spec(
    "001/workflow_next/operator-gt",
    "001/workflow_validate/operator-gt",
    "001/workflow_next/operator-gte",
    "001/workflow_validate/operator-gte",
    "001/workflow_next/operator-lt",
    "001/workflow_validate/operator-lt",
    "001/workflow_next/operator-lte",
    "001/workflow_validate/operator-lte",
)
@pytest.mark.parametrize("operator", ["gt", "gte", "lt", "lte"])
@pytest.mark.parametrize("context", [{}, {"x": None}, {"x": True}, {"x": "many"}, {"x": ""}, {"x": [5]}, {"x": {}}])
def test_values_that_are_not_numbers_are_not_ordered(holds: Holds, operator: str, context: JsonObject) -> None:
    assert holds(on(**{operator: 0}), context) is False


IS_LARGE, IS_EXPERT = {"var": "scope", "equals": "large"}, {"var": "expertise", "equals": "expert"}
CONTEXTS = [
    {"scope": "small", "expertise": "novice"},
    {"scope": "small", "expertise": "expert"},
    {"scope": "large", "expertise": "novice"},
    {"scope": "large", "expertise": "expert"},
]


@pytest.mark.spec("001/workflow_next/operator-and", "001/workflow_validate/operator-and")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"and": [IS_LARGE, IS_EXPERT]}, [False, False, False, True]),
        ({"and": [IS_LARGE]}, [False, False, True, True]),
        ({"and": []}, [True, True, True, True]),
        ({"and": [IS_LARGE, {"and": [IS_EXPERT]}]}, [False, False, False, True]),
    ],
)
def test_and_holds_when_all_conditions_do(holds: Holds, condition: JsonObject, expected: list[bool]) -> None:
    assert [holds(condition, context) for context in CONTEXTS] == expected


@pytest.mark.spec("001/workflow_next/operator-or", "001/workflow_validate/operator-or")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"or": [IS_LARGE, IS_EXPERT]}, [False, True, True, True]),
        ({"or": [IS_LARGE]}, [False, False, True, True]),
        ({"or": []}, [False, False, False, False]),
        ({"or": [{"and": [IS_LARGE, IS_EXPERT]}, {"not": IS_LARGE}]}, [True, True, False, True]),
    ],
)
def test_or_holds_when_one_condition_does(holds: Holds, condition: JsonObject, expected: list[bool]) -> None:
    assert [holds(condition, context) for context in CONTEXTS] == expected


@pytest.mark.spec("001/workflow_next/operator-not", "001/workflow_validate/operator-not")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"not": IS_LARGE}, [True, True, False, False]),
        ({"not": {"not": IS_LARGE}}, [False, False, True, True]),
        ({"not": {"or": [IS_LARGE, IS_EXPERT]}}, [True, False, False, False]),
        ({"not": {"var": "missing", "equals": 1}}, [True, True, True, True]),
    ],
)
def test_not_holds_when_the_condition_does_not(holds: Holds, condition: JsonObject, expected: list[bool]) -> None:
    assert [holds(condition, context) for context in CONTEXTS] == expected


@pytest.mark.spec("001/workflow_next/run-condition", "001/workflow_validate/context-aware")
@pytest.mark.parametrize(
    ("condition", "context", "expected"),
    [
        (on(gt=0, lt=5), {"x": 3}, True),
        (on(gt=0, lt=5), {"x": 5}, False),
        ({**on(gt=0), "not": on(equals=3)}, {"x": 3}, False),
        ({}, {}, True),
        (on(), {"x": "yes"}, True),
        (on(), {"x": "false"}, False),
        (on(), {}, False),
        ({"var": "task.size", "equals": "L"}, {"task": {"size": "L"}}, True),
        ({"var": "task.size", "equals": "L"}, {"task.size": "L", "task": {"size": "S"}}, True),
        ({"var": "files.0", "equals": "a"}, {"files": ["a"]}, True),
        ({"var": "__class__", "exists": True}, {}, False),
    ],
    ids=[
        "range",
        "outside",
        "mixed",
        "empty",
        "set",
        "false",
        "unset",
        "path",
        "literal key",
        "index",
        "own keys only",
    ],
)
def test_conditions_decide_what_the_specs_leave_open(
    holds: Holds, condition: JsonObject, context: JsonObject, expected: bool
) -> None:
    assert holds(condition, context) is expected
