"""Validation criteria: from what the author wrote to `model.Criterion`.

Criteria that are not well-formed become `Malformed`, a value: the document still loads and leads an agent, and only
judging that step is refused.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.language.conditions import construct_from_json
from workflowlookup.language.model import AllOf, AnyOf, Criterion, Malformed, Not
from workflowlookup.language.patterns import Budget, TooSlow
from workflowlookup.language.rules import RULES, RegexRule, Rule
from workflowlookup.language.schemas import Misfit, PathTo, Validator, compile_schema, workflow_schema
from workflowlookup.language.values import Json, extent

MAX_PARTS: Final = 200
_PLAIN_PATTERN_MESSAGE: Final = "Output must match the pattern {pattern}"


def parse_criteria(data: Json) -> Criterion | None:
    """The criteria of a step; None when there are none."""
    if data is None or data == []:
        return None
    if not _criteria_validator().is_valid(data):
        return Malformed(reason="; ".join(misfit.sentence() for misfit in misfits_in(data)))
    try:
        return _group(data)
    except msgspec.ValidationError as problem:  # a rule that the schema admits, and its struct does not
        return Malformed(reason=str(problem))


def misfits_in(data: Json) -> Iterator[Misfit]:
    """Where criteria are not well-formed; of very many the first, because the validator finds all at once."""
    validator = _criteria_validator()
    return validator.first_misfit(data) if extent(data)[0] > MAX_PARTS else validator.misfits(data)


def _criteria_schema() -> dict[str, Json]:
    schema = workflow_schema()
    return {**schema["$defs"]["criteria"], "$defs": schema["$defs"]}


@functools.cache
def _criteria_validator() -> Validator:
    return compile_schema(_criteria_schema(), is_ours=True)


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
    if data["type"] not in RULES:
        raise msgspec.ValidationError(f"there is no rule of type '{data['type']}'")
    return msgspec.convert(data, RULES[data["type"]], strict=False, dec_hook=construct_from_json)


def each_rule(criterion: Criterion | None) -> Iterator[Rule]:
    """The rules in a criterion, however deep."""
    match criterion:
        case AllOf(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from each_rule(part)
        case Not(part=part):
            yield from each_rule(part)
        case Rule():
            yield criterion


def rules_in(criteria: Json, path: PathTo) -> Iterator[tuple[PathTo, Json]]:
    """The rules of criteria, however deep, each with its place; none of criteria that are not well-formed."""
    waiting = [] if isinstance(parse_criteria(criteria), Malformed | None) else [(path, criteria)]
    while waiting:
        at, part = waiting.pop()  # from the end: a list of rules may be as long as a document
        group = next((key for key in ("and", "or", "not") if key in part), "") if isinstance(part, dict) else ""
        if isinstance(part, list):
            waiting += reversed([((*at, index), item) for index, item in enumerate(part)])
        elif group:
            waiting.append(((*at, group), part[group]))
        else:
            yield at, part


def flaws_in(criteria: Json, path: PathTo, budget: Budget) -> Iterator[tuple[PathTo, str]]:
    """Why well-formed rules still cannot be judged, each reason with its place."""
    for at, data in rules_in(criteria, path):
        rule = _group(data)
        try:
            for field, flaw in rule.flaws(budget) if isinstance(rule, Rule) else ():
                yield (*at, field) if isinstance(data, Mapping) else at, flaw
        except TooSlow:
            yield at, "The pattern was not checked: those before it took too long to compile"
