"""The arguments of a tool: one struct gives the schema, the check and the value that the handler gets."""

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from support.json_values import JsonObject
from workflowlookup.errors import InvalidParams
from workflowlookup.tools.arguments import SchemaArguments, StepId, StructArguments, Variables


class Order(msgspec.Struct, kw_only=True, rename="camel"):
    """What a tool takes."""

    first_step: Annotated[StepId, Meta(description="Where it begins")]
    limit: Annotated[int | None, Meta(description="How many", extra_json_schema={"minimum": 1})] = None
    known: Annotated[Variables | None, Meta(description="What is known")] = None


ORDER = StructArguments(Order)


def test_the_full_schema_comes_from_the_struct() -> None:
    assert ORDER.full_schema == {
        "type": "object",
        "properties": {
            "firstStep": {
                "type": "string",
                "description": "Where it begins",
                "pattern": r"^[a-z0-9-][a-z0-9._-]*(@[0-9]+(\.[0-9]+)*)?$",
                "minLength": 3,
                "maxLength": 256,
            },
            "limit": {"type": ["integer", "null"], "description": "How many", "minimum": 1},
            "known": {"type": ["object", "null"], "description": "What is known", "additionalProperties": True},
        },
        "required": ["firstStep"],
        "additionalProperties": False,
    }


def test_models_see_neither_null_nor_what_only_the_server_checks() -> None:
    brief = {
        "type": "object",
        "properties": {
            "firstStep": {
                "type": "string",
                "description": "Where it begins",
                "pattern": "^[a-z0-9._@-]+$",
                "minLength": 3,
                "maxLength": 256,
            },
            "limit": {"type": "integer", "description": "How many", "minimum": 1},
            "known": {"type": "object", "description": "What is known", "additionalProperties": True},
        },
        "required": ["firstStep"],
    }

    assert ORDER.schema == brief
    assert StructArguments(Order, is_closed=True).schema == {**brief, "additionalProperties": False}


@pytest.mark.parametrize(
    ("value", "order"),
    [
        ({"firstStep": "review@2"}, Order(first_step="review@2")),
        ({"firstStep": "one", "limit": 5.0}, Order(first_step="one", limit=5)),
        ({"firstStep": "null", "limit": None, "known": {"a": "1"}}, Order(first_step="null", known={"a": "1"})),
    ],
    ids=["with defaults", "a whole number with a point", "texts stay texts"],
)
def test_the_handler_gets_the_struct(value: JsonObject, order: Order) -> None:
    assert ORDER.decode(value) == order


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, "firstStep is required"),
        ({"firstStep": "one\n"}, "firstStep must be text that matches"),
        ({"firstStep": "one", "limit": "5"}, "limit must be null or a whole number; found '5'"),
        ({"firstStep": "one", "limit": 2.5}, "limit must be null or a whole number; found 2.5"),
        ({"firstStep": "one", "limit": True}, "limit must be null or a whole number; found true"),
        ({"firstStep": "one", "limit": 1e300}, "limit"),
        ({"firstStep": "one", "frstStep": "two"}, "unknown field 'frstStep' (did you mean 'firstStep'?)"),
        ({"firstStep": 1, "limit": 0}, "limit must be at least 1; found 0"),
        ({"firstStep": 1, "limit": 0}, "firstStep must be text ('string'); found 1"),
    ],
)
def test_everything_that_does_not_fit_is_named(value: JsonObject, sentence: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        ORDER.decode(value)

    assert sentence in refusal.value.explain()


def test_the_schema_of_an_author_is_checked_the_same_way_and_values_are_handed_on() -> None:
    arguments = SchemaArguments({"type": "object", "properties": {"size": {"enum": ["small", "large"]}}})

    assert arguments.decode({"size": "large", "more": 1}) == {"size": "large", "more": 1}
    with pytest.raises(InvalidParams, match="did you mean 'large'"):
        arguments.decode({"size": "lrge"})
