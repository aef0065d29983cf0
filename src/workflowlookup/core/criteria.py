"""Validation criteria: from what the author wrote to `model.Criterion`.

Criteria that are not well-formed become `Malformed`, a value: the document still loads and leads an agent, and only
judging that step is refused.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from workflowlookup.core.model import (
    AllOf,
    AnyOf,
    ContainsRule,
    Criterion,
    LengthRule,
    Malformed,
    Not,
    RegexRule,
    Rule,
    SchemaRule,
)
from workflowlookup.core.schemas import compile_schema, misfits, workflow_schema
from workflowlookup.core.values import Json

_PLAIN_PATTERN_MESSAGE: Final = "Output must match the pattern {pattern}"


def parse_criteria(data: Json) -> Criterion | None:
    """The criteria of a step; None when there are none."""
    if data is None or data == []:
        return None
    try:
        return _group(data)
    except (msgspec.ValidationError, ValueError) as problem:
        return Malformed(reason=_reason(data) or str(problem))


def _group(data: Json) -> Criterion:
    if isinstance(data, list):
        return AllOf(parts=tuple(map(_group, data)))
    if isinstance(data, str):
        return RegexRule(pattern=data, message=_PLAIN_PATTERN_MESSAGE.format(pattern=data))
    if isinstance(data, dict) and not data.keys().isdisjoint(("and", "or", "not")):
        if len(data) != 1:
            raise ValueError("a composition has exactly one of 'and', 'or' and 'not'")
        ((key, value),) = data.items()
        if key == "not":
            return Not(part=_group(value))
        if not isinstance(value, list) or not value:
            raise ValueError(f"'{key}' needs a list of at least one rule")
        return (AllOf if key == "and" else AnyOf)(parts=tuple(map(_group, value)))
    return _rule(data)


def _rule(data: Json) -> Rule:
    if isinstance(data, dict) and data.get("type") == "schema" and "schema" in data:
        data = {**data, "schema": msgspec.Raw(msgspec.json.encode(data["schema"]))}
    return msgspec.convert(data, ContainsRule | RegexRule | LengthRule | SchemaRule)


def _reason(data: Json) -> str:
    """What the schema of documents says about these criteria, in plain words."""
    schema = {**workflow_schema()["$defs"]["criteria"], "$defs": workflow_schema()["$defs"]}
    sentences = [misfit.sentence() for misfit in misfits(compile_schema(schema), data, schema)]
    return "; ".join(sentences)


def rules_of(data: Json) -> Iterator[Rule]:
    """Every rule of well-formed criteria, however deep."""
    waiting = [parse_criteria(data)]
    while waiting:
        match waiting.pop(0):
            case AllOf(parts=parts) | AnyOf(parts=parts):
                waiting[:0] = parts
            case Not(part=part):
                waiting.insert(0, part)
            case ContainsRule() | RegexRule() | LengthRule() | SchemaRule() as rule:
                yield rule
