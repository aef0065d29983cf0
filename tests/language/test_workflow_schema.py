"""The schema of documents as an editor reads it: words for hover, choices with their meaning, examples that fit."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.json_values import Json
from support.make import document, loop, step
from workflowlookup.language.document.checking import check
from workflowlookup.language.formats.schemas import compile_schema
from workflowlookup.language.workflow_schema import workflow_schema

SCHEMA = workflow_schema()
BRANCHES = ("then", "else", "items")


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with what it refers to; its own words come first, as in an editor."""
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].removeprefix("#/$defs/")
    return {**resolved(SCHEMA["$defs"][name]), **schema}


def walk(schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema that an author's value can meet; what only asks (`if`, `not`, `anyOf` of `required`) is left out."""
    yield at, schema
    for keyword in ("properties", "patternProperties", "$defs"):
        for name, member in schema.get(keyword, {}).items():
            yield from walk(member, f"{at}/{keyword}/{name}")
    for keyword in BRANCHES:
        if keyword in schema:
            yield from walk(schema[keyword], f"{at}/{keyword}")


SUBSCHEMAS = dict(walk(SCHEMA, ""))
NAMED = {at: schema for at, schema in SUBSCHEMAS.items() if at.split("/")[-1] not in BRANCHES}


@pytest.mark.parametrize("at", NAMED)
def test_every_field_and_definition_has_a_title_and_a_description(at: str) -> None:
    schema = resolved(NAMED[at])

    assert {"title", "description"} <= schema.keys(), "an editor would show nothing here"
    assert not schema["title"].endswith(".")
    assert schema["description"].endswith("."), "a description is a sentence"


@pytest.mark.parametrize("at", [at for at, schema in SUBSCHEMAS.items() if "enum" in schema])
def test_every_choice_says_what_it_means(at: str) -> None:
    schema = SUBSCHEMAS[at]

    assert len(schema["enumDescriptions"]) == len(schema["enum"])
    assert all(text.endswith(".") for text in schema["enumDescriptions"])


@pytest.mark.parametrize("at", [at for at, schema in SUBSCHEMAS.items() if "examples" in schema])
def test_every_example_fits_where_it_is_offered(at: str) -> None:
    validator = compile_schema({**SUBSCHEMAS[at], "$defs": SCHEMA["$defs"]})

    assert [example for example in SUBSCHEMAS[at]["examples"] if not validator.is_valid(example)] == []


@pytest.mark.parametrize(
    "snippet", SCHEMA["$defs"]["step"]["defaultSnippets"], ids=lambda snippet: snippet["label"].replace(" ", "-")
)
def test_a_snippet_for_a_step_makes_a_valid_document(snippet: Mapping[str, Any]) -> None:
    assert check(document(json.loads(filled_in(snippet["body"])))) == []


@pytest.mark.parametrize(
    "snippet", SCHEMA["$defs"]["proof"]["defaultSnippets"], ids=lambda snippet: snippet["label"].replace(" ", "-")
)
def test_a_snippet_for_a_proof_makes_a_valid_document(snippet: Mapping[str, Any]) -> None:
    assert check(document(step(proof=[json.loads(filled_in(snippet["body"]))]))) == []


def filled_in(body: Json) -> str:
    """A snippet after its placeholders were accepted: `${1:text}` is the text, and "^…" is a number."""
    text = json.dumps(body)
    text = re.sub(r"\$\{\d+:([^}]*)\}", r"\1", text)
    return re.sub(r'"\^(\d+)"', r"\1", text)


def test_fields_that_are_not_acted_on_are_not_suggested() -> None:
    ignored = {at for at, schema in NAMED.items() if "not acted on" in schema.get("description", "")}

    assert {at for at in ignored if not NAMED[at].get("doNotSuggest")} == set()


def test_the_description_of_own_data_mentions_x_lint() -> None:
    assert "x-lint" in SCHEMA["$defs"]["ownData"]["description"]


MISTAKES = [
    (
        "a confirmation in words",
        step(requireConfirmation="yes"),
        "Field 'requireConfirmation' must be true or false or an object; found 'yes' in step 1 ('first-step')",
        "Make 'steps[0].requireConfirmation' true or false or an object, for example true",
    ),
    (
        "a type that is nearly that of a loop",
        step(type="Loop"),
        "Field 'type' must be one of 'standard', 'loop', 'parallel'; found 'Loop' (did you mean 'loop'?) in step 1 ('first-step')",
        "Make 'steps[0].type' one of 'standard', 'loop', 'parallel'",
    ),
    (
        "a condition as an expression",
        step(runCondition="size > 3"),
        "Field 'runCondition' must be an object; found 'size > 3' in step 1 ('first-step')",
        'Make \'steps[0].runCondition\' an object, for example {"var":"taskSize","equals":"large"}',
    ),
    (
        "an operator of another language",
        step(runCondition={"var": "n", "more_than": 3}),
        "Unknown field 'more_than' in step 1 ('first-step'), field 'runCondition'",
        f"Rename or remove unknown fields; allowed here: {', '.join(SCHEMA['$defs']['condition']['properties'])}",
    ),
    (
        "criteria that are a number",
        step(validationCriteria=80),
        "Field 'validationCriteria' must be text ('string') or a list ('array') or an object; found 80 in step 1 "
        "('first-step')",
        "Make 'steps[0].validationCriteria' text ('string') or a list ('array') or an object, for example "
        '[{"type":"length","min":80,"message":"Say more."}]',
    ),
    (
        "a body that is one step",
        loop("the-loop", step(), type="for", count=2),
        "Field 'body' must be text ('string') or a list ('array'); found an object in step 1 ('the-loop')",
        "Make 'steps[0].body' text ('string') or a list ('array')",
    ),
    (
        "a call without its tool",
        {"id": "one", "title": "One", "call": {"server": "tracker"}},
        "Missing required property 'tool' in step 1 ('one'), field 'call'",
        "Add required 'tool' field: the tool that is called",
    ),
    (
        "a call of both a tool and a workflow",
        {"id": "one", "title": "One", "call": {"provider": "ci", "workflow": "w", "tool": "t"}},
        "Unknown field 'tool' in step 1 ('one'), field 'call'",
        "Rename or remove unknown fields; allowed here: provider, workflow, arguments, saveAs, retries, timeoutSeconds",
    ),
    (
        "a result that is saved under no name",
        {"id": "one", "title": "One", "call": {"server": "s", "tool": "t", "saveAs": "my issue"}},
        "Field 'call.saveAs' must be letters, digits and underscores that do not start with a digit, such as taskSize; "
        "found 'my issue' in step 1 ('one')",
        "Make 'steps[0].call.saveAs' letters, digits and underscores that do not start with a digit, such as taskSize",
    ),
    (
        "an id with blanks",
        step("My step"),
        "Field 'id' must be lower-case letters, digits, hyphens, dots and underscores, such as bug-investigation; "
        "found 'My step' in step 1 ('My step')",
        "Use lower-case letters, digits, hyphens, dots and underscores in ids; 3 to 64 characters",
    ),
]


@pytest.mark.parametrize(
    ("wrong", "message", "suggestion"), [row[1:] for row in MISTAKES], ids=[r[0] for r in MISTAKES]
)
def test_a_mistake_is_reported_for_the_branch_of_the_same_type(wrong: Any, message: str, suggestion: str) -> None:
    assert [(finding.message, finding.suggestion) for finding in check(document(wrong))] == [(message, suggestion)]
