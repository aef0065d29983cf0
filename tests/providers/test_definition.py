"""Definitions of workflows that providers list: required fields, defaults, and invalid ones (requirement 6)."""

import pytest

from support.json_values import Json, JsonObject
from support.narrowing import instance_of
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.model import PromptStep, WorkflowCall
from workflowlookup.providers.definition import GENERIC_SCHEMA, Definition, as_document, read_definitions

GOOD = {"id": "a", "name": "A", "description": "d"}


def test_optional_fields_have_their_defaults() -> None:
    (definition,), problems = read_definitions([GOOD], "p")

    assert definition == Definition(id="a", name="A", description="d", provider="p")
    assert (definition.category, definition.version, definition.execution_type, definition.metadata) == (
        "workflow",
        "1.0.0",
        "async",
        {},
    )
    assert (definition.input_schema, problems) == (GENERIC_SCHEMA, [])


def test_optional_fields_of_a_definition_are_kept() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    more = {"category": "ops", "version": "3.2.1", "executionType": "sync", "metadata": {"a": 1}, "inputSchema": schema}

    (definition,), _ = read_definitions({"workflows": [GOOD | more]}, "p")

    assert (definition.category, definition.version, definition.execution_type) == ("ops", "3.2.1", "sync")
    assert (definition.metadata, definition.input_schema) == ({"a": 1}, schema)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"id": "b", "name": "B"}, "workflow 'b' is skipped: description is required"),
        ({"name": "B", "description": "d"}, "workflow 'B' is skipped: id is required"),
        (
            {"id": 7, "name": "B", "description": "d"},
            "workflow number 1 of the list is skipped: id must be text; found 7",
        ),
        ({"id": "b", "name": " ", "description": "d"}, "workflow 'b' is skipped: name must be text; found ' '"),
        ("b", "workflow number 1 of the list is skipped: it must be an object; found 'b'"),
        (GOOD, "workflow 'a' is skipped: its id is in the list twice"),
    ],
)
def test_a_bad_definition_is_skipped_by_name_and_the_others_are_not(bad: Json, problem: str) -> None:
    definitions, problems = read_definitions([bad, GOOD], "p")

    assert [definition.id for definition in definitions] == ["a"]
    assert problems == [problem]


@pytest.mark.parametrize(
    "schema",
    [
        5,
        "x",
        {"type": "string"},
        {"type": "object", "properties": []},
        {"properties": {"a": {"type": "nonsense"}}},
        [],
        {"$ref": "http://x/y"},
    ],
)
def test_a_bad_input_schema_becomes_the_generic_one(schema: Json) -> None:
    (definition,), problems = read_definitions([GOOD | {"inputSchema": schema}], "p")

    assert definition.input_schema == GENERIC_SCHEMA
    assert problems[0].startswith("workflow 'a': inputSchema ")
    assert problems[0].endswith("; any object is accepted")


@pytest.mark.parametrize("raw", [None, 5, "x", {}, {"workflows": 3}])
def test_a_value_that_is_not_a_list_is_refused(raw: Json) -> None:
    with pytest.raises(ValueError, match="the answer must be a list of workflows"):
        read_definitions(raw, "p")


@pytest.mark.parametrize(
    ("workflow_id", "document_id"),
    [
        ("deploy", "p.deploy"),
        ("7", "p.7"),
        ("Deploy It!", "p.deploy-it--"),
        ("報告", "p.--"),
        ("x" * 300, "p." + "x" * 53),
    ],
)
def test_a_remote_workflow_is_a_valid_document(workflow_id: str, document_id: str) -> None:
    definition = Definition(
        id=workflow_id, name="N" * 300, description="d" * 900, provider="p", version="7", category="c" * 99
    )

    document = as_document(definition)

    assert [finding.message for finding in check(document) if finding.severity == "error"] == []
    assert document["id"].startswith(document_id)
    workflow = build(document)
    call = instance_of(PromptStep, workflow.steps["remote"]).call
    assert instance_of(WorkflowCall, call).workflow == workflow_id


def test_a_deeply_nested_message_does_not_affect_others() -> None:
    deep: JsonObject = {}
    for _ in range(400):
        deep = {"allOf": [deep]}

    definitions, problems = read_definitions([GOOD | {"inputSchema": deep, "metadata": deep}, GOOD | {"id": "b"}], "p")

    assert [(one.id, one.input_schema, one.metadata) for one in definitions] == [
        ("a", GENERIC_SCHEMA, {}),
        ("b", GENERIC_SCHEMA, {}),
    ]
    assert problems == [
        "workflow 'a': inputSchema is nested too deeply; any object is accepted",
        "workflow 'a': metadata is nested too deeply and is ignored",
    ]


def test_no_control_character_is_printed() -> None:
    fields = {"name": "\x1b]0;x\x07Two\nlines ", "description": "One\x00.\nTwo.", "category": "a\tb", "version": "1\r"}

    definitions, problems = read_definitions([GOOD | fields, GOOD | {"id": "b\x00"}], "p")

    assert [(one.id, one.name, one.description, one.category, one.version) for one in definitions] == [
        ("a", "]0;x Two lines", "One .\nTwo.", "a b", "1")
    ]
    assert problems == ["workflow 'b\x00' is skipped: id must be text without control characters; found 'b\x00'"]
