"""What a JSON Schema may cost: what is refused before it is begun, and what is still told in full."""

import pytest

from workflowlookup.language.formats.patterns import TooSlow
from workflowlookup.language.formats.schemas import BadSchema, Misfit, compile_schema
from workflowlookup.language.workflow_schema import workflow_validator

METASCHEMA = "https://json-schema.org/draft/2020-12/schema"


def test_a_reference_to_the_metaschema_is_followed() -> None:
    validator = compile_schema({"properties": {"answers": {"$ref": METASCHEMA}}})

    assert validator.is_valid({"answers": {"type": "object", "properties": {"size": {"type": "integer"}}}})
    assert not validator.is_valid({"answers": {"type": 1}})


def test_the_steps_of_a_metaschema_count() -> None:
    validator = compile_schema({"allOf": [{"$ref": METASCHEMA, "title": str(n)} for n in range(40)]})

    with pytest.raises(TooSlow):
        validator.is_valid({f"name {n}": {} for n in range(1_000)})


def test_a_reference_that_leads_nowhere_is_named() -> None:
    with pytest.raises(BadSchema, match=r"'#/\$defs/size' leads to nothing"):
        compile_schema({"$ref": "#/$defs/size"})


def test_a_reference_to_a_schema_that_is_true_or_false_is_followed() -> None:
    assert compile_schema({"$ref": "#/$defs/any", "$defs": {"any": True}}).is_valid(1)
    assert not compile_schema({"$ref": "#/$defs/none", "$defs": {"none": False}}).is_valid(1)


@pytest.mark.parametrize(("draft", "keyword"), [("draft-04", "id"), ("draft-07", "$id")])
def test_each_draft_has_its_own_keyword_for_ids(draft: str, keyword: str) -> None:
    definitions = {"size": {keyword: "http://example.org/size", "type": "integer"}}
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "definitions": definitions}
    validator = compile_schema({**schema, "properties": {"it": {"$ref": "http://example.org/size"}}})

    assert [misfit.path for misfit in validator.misfits({"it": "big"})] == [("it",)]


def test_every_misfit_of_an_ordinary_value_is_reported() -> None:
    schema = {"properties": {"name": {"type": "string"}, "sizes": {"items": {"type": "integer"}}}}

    misfits = compile_schema(schema).misfits({"name": 1, "sizes": ["big", *range(2_000), "small"]})

    assert [misfit.path for misfit in misfits] == [("name",), ("sizes", 0), ("sizes", 2_001)]


@pytest.mark.parametrize("keyword", ["const", "enum"])
def test_of_very_large_errors_only_the_first_is_reported(keyword: str) -> None:
    validator = compile_schema({"items": {keyword: [list(range(20_000))]}})

    misfits: list[Misfit] = [*validator.misfits([0] * 500)]

    assert [misfit.path for misfit in misfits] == [(0,)]


def test_the_first_wrong_step_of_a_very_long_document_is_reported() -> None:
    steps = [{"id": f"step-{n}", "title": "T", "prompt": "P"} for n in range(4_000)]
    document = {"id": "sample", "name": "N", "description": "D", "version": "1.0.0"}

    early = workflow_validator().misfits({**document, "steps": [{"id": "x", "prompt": 1}, *steps]})
    late = workflow_validator().misfits({**document, "steps": [*steps, {"id": "x", "prompt": 1}]})

    assert {misfit.path[:2] for misfit in early} == {("steps", 0)}
    assert {misfit.path[:2] for misfit in late} == {("steps", 4_000)}


def test_unevaluated_properties_of_an_ordinary_value_are_reported() -> None:
    parts = [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}]
    validator = compile_schema({"items": {"allOf": parts, "unevaluatedProperties": False}})

    assert validator.is_valid([{"a": "x", "b": 1}] * 2_000)
    assert [misfit.unknown for misfit in validator.misfits([{"a": "x", "c": 1}])] == [("c",)]


def test_numbers_are_divided_by_a_fraction_within_limits_only() -> None:
    validator = compile_schema({"items": {"multipleOf": 1e-300}})

    assert validator.is_valid([1e300] * 1_000)
    with pytest.raises(TooSlow):
        validator.is_valid([1e300] * 50_000)


def test_every_number_that_is_not_a_multiple_of_a_fraction_is_reported() -> None:
    assert len([*compile_schema({"items": {"multipleOf": 0.01}}).misfits([0.001] * 60)]) == 60
