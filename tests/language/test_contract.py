"""Context contracts: what a step needs, what is missing, and how to send it."""

import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from support.narrowing import not_none
from workflowlookup.language.contract import unmet
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import compile_schema, example_of
from workflowlookup.language.navigation import next_step
from workflowlookup.tools.builtin.workflow_next import answer

SCHEMA = {
    "properties": {
        "taskSize": {"enum": ["small", "large"]},
        "retries": {"type": "integer", "minimum": 3, "description": "how often to try"},
        "files": {"type": "array", "items": {"type": "string"}},
    }
}


def needs(workflow: JsonObject, completed: tuple[()] = (), context: JsonObject | None = None) -> list[str]:
    built = build(workflow)
    upcoming = next_step(built, completed, context or {}, Budget())
    return [need.sentence() for need in unmet(built, not_none(upcoming.step), upcoming.context)]


def test_a_missing_variable_is_reported_with_type_source_and_example() -> None:
    workflow = build(
        document(step("triage", produces=["taskSize"]), step("plan", requires=["taskSize"]), contextSchema=SCHEMA)
    )
    upcoming = next_step(workflow, ["triage"], {}, Budget())

    (need,) = unmet(workflow, not_none(upcoming.step), upcoming.context)

    assert need.sentence() == "taskSize is not set: expected one of 'small', 'large' (step 'triage' produces it)"
    assert need.example == {"context": {"taskSize": "small"}}


def test_a_variable_that_fits_is_not_reported() -> None:
    workflow = document(step("plan", requires=["taskSize", "retries"]), contextSchema=SCHEMA)

    assert needs(workflow, context={"taskSize": "small", "retries": 3}) == []


def test_a_value_of_the_wrong_type_is_reported_the_same_way() -> None:
    workflow = document(step("plan", requires=["taskSize"]), contextSchema=SCHEMA)

    assert needs(workflow, context={"taskSize": "huge", "retries": "many"}) == [
        "taskSize is 'huge': expected one of 'small', 'large'",
        "retries is 'many': expected a whole number: how often to try",
    ]


def test_a_variable_without_a_schema_may_be_anything() -> None:
    assert needs(document(step("plan", requires=["goal"]))) == ["goal is not set: expected any value"]


def test_the_needs_of_a_loop_are_those_of_its_body() -> None:
    around = loop("each", [step("read")], type="for", count=2)
    workflow = document({**around, "requires": ["files"]}, contextSchema=SCHEMA)

    assert needs(workflow) == ["files is not set: expected a list ('array')"]


def test_what_the_schema_requires_is_needed_from_the_start_unless_a_step_produces_it() -> None:
    schema = {**SCHEMA, "required": ["taskSize", "files"]}
    workflow = document(step("triage", produces=["taskSize"]), contextSchema=schema)

    assert needs(workflow) == ["files is not set: expected a list ('array')"]


def test_a_document_without_a_contract_needs_nothing() -> None:
    assert needs(document(step("one", runCondition={"not": {"var": "x"}}))) == []


@pytest.mark.parametrize("field", ["contextSchema", "inputSchema"])
def test_a_malformed_schema_of_the_context_or_the_input_is_an_error_of_the_document(field: str) -> None:
    broken: JsonObject = {field: {"type": "nonsense"}}
    (finding,) = check(document(**broken))

    assert finding.message.startswith(f"The JSON Schema in '{field}' is malformed")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (document(deadlineSeconds=0), "Field 'deadlineSeconds' must be greater than 0; found 0"),
        (document(step("one", maxAttempts=0)), "Field 'maxAttempts' must be at least 1; found 0 in step 1 ('one')"),
        (
            document(step("one", whenExhausted="stop")),
            "Field 'whenExhausted' must be one of 'fail', 'ask'; found 'stop' in step 1 ('one')",
        ),
    ],
    ids=["deadline", "attempts", "exhausted"],
)
def test_impossible_limits_are_errors_of_the_document(content: JsonObject, message: str) -> None:
    (finding,) = check(content)

    assert finding.message == message


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({"const": 5}, 5),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "string", "examples": ["x"]}, "x"),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "boolean"}, True),
        ({"type": ["array", "null"], "items": {"type": "number"}}, [1]),
        ({"type": "object", "required": ["a"], "properties": {"a": {"enum": [1]}, "b": {}}}, {"a": 1}),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "minLength": 3}, "………"),
        ({"type": "integer", "maximum": -2}, -2),
        ({"type": "integer", "exclusiveMinimum": 3}, 4),
        ({"type": "integer", "minimum": 2.5}, 3),
        ({"type": "number", "exclusiveMaximum": 0}, -1),
        ({"type": "integer", "multipleOf": 5, "minimum": 2}, 5),
        ({"type": "array", "minItems": 2, "items": {"enum": ["a"]}}, ["a", "a"]),
        ({"type": "array", "maxItems": 0}, []),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
        ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, "a"),
        ({"enum": [None, "a"]}, "a"),
        ({"type": ["null", "boolean"]}, True),
        ({"type": "null"}, None),
        ({}, "…"),
        (True, "…"),
    ],
)
def test_an_example_fits_its_schema(schema: Json, example: Json) -> None:
    assert example_of(schema) == example
    assert compile_schema(schema).is_valid(example)


def test_a_part_that_refers_to_the_whole_gets_an_example_too() -> None:
    assert example_of({"type": "object", "properties": {"inner": {"$ref": "#/$defs/node"}}}) == {"inner": "…"}


def test_a_dotted_variable_is_reported_with_the_type_of_its_part() -> None:
    schema = {"properties": {"task": {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}}}}

    assert needs(document(step("plan", requires=["task.size"]), contextSchema=schema)) == [
        "task.size is not set: expected one of 'small', 'large'"
    ]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "string", "format": "date"}, "tomorrow", "a valid date such as 2026-01-31"),
        ({"type": "string", "pattern": "^OPS-[0-9]+$"}, "ops", "text that matches ^OPS-[0-9]+$"),
        (
            {"type": "string", "pattern": "^OPS-[0-9]+$", "examples": ["OPS-1"]},
            "ops",
            "text that matches ^OPS-[0-9]+$, such as 'OPS-1'",
        ),
        ({"type": ["string", "null"], "format": "date"}, "tomorrow", "a valid date such as 2026-01-31 or null"),
    ],
    ids=["format", "pattern", "pattern with an example", "or null"],
)
def test_the_format_of_text_is_in_the_message_whether_it_is_wrong_or_missing(
    schema: JsonObject, value: str, expected: str
) -> None:
    workflow = document(step("plan", requires=["due"]), contextSchema={"properties": {"due": schema}})

    assert needs(workflow) == [f"due is not set: expected {expected}"]
    assert needs(workflow, context={"due": value}) == [
        f"due is '{value}': expected {expected.removesuffix(' or null')}"
    ]


def test_a_wrong_value_is_reported_by_the_keyword_that_fails() -> None:
    schema = {"properties": {**SCHEMA["properties"], "task": {"type": "object", "required": ["size"]}}}
    workflow = document(contextSchema=schema)

    assert needs(workflow, context={"retries": 1, "files": ["a", 7], "task": {}}) == [
        "retries is 1: expected at least 3: how often to try",
        "files is wrong at files[1] (7): expected text ('string') there",
        "task is without 'size': expected an object with 'size'",
    ]


RISKY = document(
    step("assess", produces=["risk"]), step("careful", runCondition={"var": "risk", "equals": "high"}), step("merge")
)


def warnings(workflow: JsonObject, completed: list[Json], context: JsonObject | None = None) -> list[str]:
    built = build(workflow)
    reply = answer(built, next_step(built, completed, context or {}, Budget()), completed, Budget())
    return list(reply.get("warnings", ()))


def test_a_completed_step_without_its_variable_gives_a_warning() -> None:
    forgotten = "Step 'assess' is completed, but 'risk', which it produces, is not set: expected "
    declared = {**RISKY, "contextSchema": {"properties": {"risk": {"enum": ["low", "high"]}}}}

    assert warnings(RISKY, ["assess"]) == [forgotten + "any value"]
    assert warnings(declared, ["assess", "merge"]) == [forgotten + "one of 'low', 'high'"]
    assert warnings(RISKY, ["assess"], {"risk": "low"}) == warnings(RISKY, []) == []


def test_a_missing_product_of_a_loop_gives_one_warning() -> None:
    workflow = document(loop("each", [step("mend", produces=["green"])], type="for", count=3))

    assert warnings(workflow, ["mend@1", "mend@2"]) == [
        "Step 'mend' is completed, but 'green', which it produces, is not set: expected any value"
    ]


def test_a_missing_product_that_the_step_requires_is_reported_once() -> None:
    workflow = document(step("assess", produces=["risk"]), step("merge", requires=["risk"]))

    assert warnings(workflow, ["assess"]) == [
        "The step needs more context: risk is not set: expected any value (step 'assess' produces it)"
    ]
