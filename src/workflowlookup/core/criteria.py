"""Validation criteria: from what the author wrote to `model.Criterion`.

Criteria that are not well-formed become `Malformed`, a value: the document still loads and leads an agent, and only
judging that step is refused.
"""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

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
from workflowlookup.core.patterns import BadPattern, compile_pattern
from workflowlookup.core.schemas import BadSchema, compile_schema, compile_schema_text, misfits, workflow_schema
from workflowlookup.core.values import Json

if TYPE_CHECKING:
    import jsonschema_rs

_PLAIN_PATTERN_MESSAGE: Final = "Output must match the pattern {pattern}"


def parse_criteria(data: Json) -> Criterion | None:
    """The criteria of a step; None when there are none."""
    if data is None or data == []:
        return None
    validator = _criteria_validator()
    if validator.is_valid(data):
        return _group(data)
    schema = _criteria_schema()
    return Malformed(reason="; ".join(misfit.sentence() for misfit in misfits(validator, data, schema)))


def _criteria_schema() -> dict[str, Json]:
    schema = workflow_schema()
    return {**schema["$defs"]["criteria"], "$defs": schema["$defs"]}


@functools.cache
def _criteria_validator() -> "jsonschema_rs.Validator":
    return compile_schema(_criteria_schema())


def _group(data: Json) -> Criterion:
    if isinstance(data, list):
        return AllOf(parts=tuple(map(_group, data)))
    if isinstance(data, str):
        return RegexRule(pattern=data, message=_PLAIN_PATTERN_MESSAGE.format(pattern=data))
    if "and" in data:
        return AllOf(parts=tuple(map(_group, data["and"])))
    if "or" in data:
        return AnyOf(parts=tuple(map(_group, data["or"])))
    if "not" in data:
        return Not(part=_group(data["not"]))
    if data["type"] == "schema":
        data = {**data, "schema": msgspec.Raw(msgspec.json.encode(data["schema"]))}
    return msgspec.convert(data, ContainsRule | RegexRule | LengthRule | SchemaRule, strict=False)


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


def flaw_of(rule: Rule) -> str:
    """Why a well-formed rule still cannot be judged; nothing when it can."""
    try:
        if isinstance(rule, RegexRule):
            compile_pattern(rule.pattern, rule.flags)
        elif isinstance(rule, SchemaRule):
            compile_schema_text(bytes(rule.schema))
    except BadPattern as problem:
        return f"The pattern '{rule.pattern}' does not compile ({problem})"  # type: ignore[union-attr]
    except BadSchema as problem:
        return f"The JSON Schema of a rule is malformed ({problem})"
    return ""
