"""Criteria that no output can meet: `contradictions(data)`, with the path and the reason of each.

Criteria are split into demands: rules that must pass, and rules that must not. A rule with a condition is compared with
the rules that always apply and those with the same condition. A contradiction is reported only if one or two demands
prove it, and criteria that are too large are not compared.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import Condition, describe
from workflowlookup.language.criteria import has_templates
from workflowlookup.language.formats.patterns import BadPattern, Budget
from workflowlookup.language.formats.schemas import BadSchema, PathTo, compile_schema, show
from workflowlookup.language.rules import (
    AllOf,
    AnyOf,
    ContainsRule,
    Criterion,
    LengthRule,
    Not,
    RegexRule,
    Rule,
    SchemaRule,
    each_rule,
    parse_criteria,
)
from workflowlookup.language.values import Json, is_number

_LITERAL: Final = re.compile(r"\^((?:[^\\^$.|?*+()\[\]{}]|\\[^\w\s])*)\$")
_HARMLESS_FLAGS: Final = frozenset("gsuy")
MAX_DEMANDS: Final = 200
MAX_TEXT: Final = 1_000


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A rule or a group of alternatives that must pass, or must not."""

    path: PathTo
    criterion: Rule | AnyOf
    passes: bool = True

    @property
    def condition(self) -> Condition | None:
        return None if isinstance(self.criterion, AnyOf) else self.criterion.condition


def contradictions(data: Json, budget: Budget) -> Iterator[tuple[PathTo, str]]:
    """The path and reason of criteria that cannot be met; at most one for each condition of the rules."""
    criteria = parse_criteria(data)
    demands = [*_demands(criteria, data)] if criteria else []
    if len(demands) > MAX_DEMANDS:
        return
    always = [demand for demand in demands if demand.condition is None]
    if conflict := _first_conflict(always, budget):
        yield conflict
        return
    conditions = [demand.condition for demand in demands if demand.condition is not None]
    for index, condition in enumerate(conditions):
        if condition in conditions[:index]:
            continue
        together = [demand for demand in demands if demand.condition in (None, condition)]
        if conflict := _first_conflict(together, budget):
            path, reason = conflict
            yield path, f"{reason}, when {describe(condition)}"


def _demands(criterion: Criterion, data: Json, path: PathTo = (), *, passes: bool = True) -> Iterator[Demand]:
    """The demands that make the criterion pass, or not pass. Alternatives stay together."""
    match criterion:
        case AllOf(parts=parts) | AnyOf(parts=parts) if isinstance(criterion, AllOf) is passes:
            members = data if isinstance(data, list) else data["and" if passes else "or"]
            at = path if isinstance(data, list) else (*path, "and" if passes else "or")
            for index, part in enumerate(parts):
                yield from _demands(part, members[index], (*at, index), passes=passes)
        case Not(part=part):
            yield from _demands(part, data["not"], (*path, "not"), passes=not passes)
        case _ if has_templates(criterion):
            return  # it depends on the context
        case AnyOf() if all(rule.condition is None for rule in each_rule(criterion)):
            yield Demand(path=path, criterion=criterion)
        case Rule():
            yield Demand(path=path, criterion=criterion, passes=passes)


def _first_conflict(demands: Sequence[Demand], budget: Budget) -> tuple[PathTo, str] | None:
    finders = (_lengths, _texts, _opposites, _literals, _schemas, _alternatives)
    return next(itertools.chain.from_iterable(find(demands, budget) for find in finders), None)


Conflicts = Iterator[tuple[PathTo, str]]


def _rules(demands: Sequence[Demand], kind: type, *, passes: bool = True) -> list[tuple[PathTo, Any]]:
    return [
        (demand.path, demand.criterion)
        for demand in demands
        if isinstance(demand.criterion, kind) and demand.passes is passes
    ]


def _lengths(demands: Sequence[Demand], __: Budget) -> Conflicts:
    lengths = [*_rules(demands, LengthRule), *_negated_lengths(demands)]
    limit = min((rule.max for _, rule in lengths if rule.max is not None), default=None)
    if limit is None:
        return
    for path, rule in lengths:
        if (rule.min or 0) > limit:
            yield path, f"at least {rule.min} characters are required and at most {limit}"
    texts = _rules(demands, ContainsRule)
    for path, rule in texts:
        if len(rule.value) > limit:
            yield path, f"the text {show(rule.value)} is longer than the {limit} characters that are allowed"
    for (_, first), (path, second) in itertools.combinations(texts, 2):
        needed = _length_together(first.value, second.value)
        if needed > limit:
            both = f"{show(first.value)} and {show(second.value)}"
            yield path, f"{both} take {needed} characters together, of the {limit} that are allowed"


def _negated_lengths(demands: Sequence[Demand]) -> Iterator[tuple[PathTo, LengthRule]]:
    """Lengths that must not pass, as lengths that must; a rule with two bounds would become two alternatives."""
    for path, rule in _rules(demands, LengthRule, passes=False):
        if rule.min and rule.max is None:
            yield path, msgspec.structs.replace(rule, min=None, max=rule.min - 1)
        elif not rule.min and rule.max is not None:
            yield path, msgspec.structs.replace(rule, min=rule.max + 1, max=None)


def _length_together(first: str, second: str) -> int:
    """The length of the shortest text that contains both; they may overlap."""
    shorter, longer = sorted((first, second), key=len)
    if shorter in longer or len(longer) > MAX_TEXT:
        return len(longer)
    overlap = next(
        size for size in range(len(shorter), -1, -1) if first.endswith(second[:size]) or second.endswith(first[:size])
    )
    return len(first) + len(second) - overlap


def _texts(demands: Sequence[Demand], __: Budget) -> Conflicts:
    for _, forbidden in _rules(demands, ContainsRule, passes=False):
        for path, required in _rules(demands, ContainsRule):
            if forbidden.value in required.value:
                yield path, f"{show(required.value)} must be there and {show(forbidden.value)}, a part of it, must not"


def _opposites(demands: Sequence[Demand], __: Budget) -> Conflicts:
    required = [rule for _, rule in _rules(demands, Rule) if not isinstance(rule, ContainsRule)]
    for path, forbidden in _rules(demands, Rule, passes=False):
        if any(_same(forbidden, rule) for rule in required):
            yield path, "the same rule must pass and must not"


def _same(one: Rule, other: Rule) -> bool:
    plain = [msgspec.structs.replace(rule, message="", condition=None) for rule in (one, other)]
    return plain[0] == plain[1]


def _literals(demands: Sequence[Demand], budget: Budget) -> Conflicts:
    """If only one text matches a pattern, every other demand is evaluated for that text."""
    for path, only in _rules(demands, RegexRule):
        literal = _LITERAL.fullmatch(only.pattern)
        if literal is None or set(only.flags) - _HARMLESS_FLAGS:
            continue
        text = re.sub(r"\\(.)", r"\1", literal[1])
        for demand in demands:
            if not isinstance(demand.criterion, AnyOf) and _passes(demand.criterion, text, budget) is (
                not demand.passes
            ):
                yield path, f"only {show(text)} matches the pattern, and another rule refuses it"


def _passes(rule: Rule, text: str, budget: Budget) -> bool | None:
    """Whether the text passes the rule; None if that is undecided."""
    try:
        issues = rule.check()(text, {}, budget)
    except (BadPattern, BadSchema):
        return None
    return None if issues and issues[0].is_undecided else not issues


def _alternatives(demands: Sequence[Demand], budget: Budget) -> Conflicts:
    """Groups of alternatives all of which contradict the other demands; two groups are not compared."""
    rest = [demand for demand in demands if not isinstance(demand.criterion, AnyOf)]
    for path, group in _rules(demands, AnyOf):
        if all(_first_conflict([*rest, *_demands_of_part(part)], budget) for part in group.parts):
            yield path, "none of the alternatives can be met"


def _demands_of_part(part: Criterion) -> Iterator[Demand]:
    """The demands of one alternative, without nested alternatives and without paths."""
    match part:
        case AllOf(parts=parts):
            for inner in parts:
                yield from _demands_of_part(inner)
        case Not(part=Rule() as rule):
            yield Demand(path=(), criterion=rule, passes=False)
        case Rule():
            yield Demand(path=(), criterion=part)


# ── JSON Schemas that no value matches ──────────────────────────────────────────────────────────────────────────

_RANGES: Final = (
    ("string", "minLength", "maxLength"),
    ("array", "minItems", "maxItems"),
    ("object", "minProperties", "maxProperties"),
    ("number", "minimum", "maximum"),
    ("integer", "minimum", "maximum"),
)


def _schemas(demands: Sequence[Demand], __: Budget) -> Conflicts:
    schemas = [(path, msgspec.json.decode(rule.schema)) for path, rule in _rules(demands, SchemaRule)]
    schemas = [(path, schema) for path, schema in schemas if _matcher(schema)]
    for path, schema in schemas:
        if why := why_unmatchable(schema):
            yield path, f"no JSON fits the schema: {why}"
    current = [(path, schema) for path, schema in schemas if schema is True or "$schema" not in schema]
    for (_, first), (path, second) in itertools.combinations(current, 2):
        if why := why_unmatchable({"allOf": [first, second]}):
            yield path, f"no JSON fits this schema and another of this step: {why}"


def why_unmatchable(schema: Json) -> str:
    """Why no value can match a JSON Schema; empty if one might."""
    if schema is False:
        return "it is false"
    if not isinstance(schema, Mapping) or "$ref" in schema:  # older drafts ignore everything beside $ref
        return ""
    return next(itertools.chain(_no_value(schema), _no_type(schema), _no_range(schema), _no_part(schema)), "")


def _together(schema: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """The schema and the parts of its `allOf`."""
    return [schema, *(part for part in _list_of(schema, "allOf") if isinstance(part, Mapping) and "$ref" not in part)]


def _no_value(schema: Mapping[str, Json]) -> Iterator[str]:
    for part in _together(schema):
        values = [part["const"]] if "const" in part else _list_of(part, "enum")
        fits = _matcher(schema) if values or "enum" in part else None
        if fits and not any(map(fits, values)):
            yield f"none of the values that it lists ({', '.join(map(show, values[:5]))}) fits the rest of it"


def _no_type(schema: Mapping[str, Json]) -> Iterator[str]:
    types = [set(_list_of(part, "type") or [part["type"]]) for part in _together(schema) if "type" in part]
    types = [names | {"integer"} if "number" in names else names for names in types]
    if types and not set.intersection(*types):
        yield "its types exclude each other"


def _no_range(schema: Mapping[str, Json]) -> Iterator[str]:
    for name, lower, upper in _RANGES:
        minimum, maximum = schema.get(lower), schema.get(upper)
        if schema.get("type") == name and is_number(minimum) and is_number(maximum) and minimum > maximum:
            yield f"{lower} {minimum} is above {upper} {maximum}"


def _no_part(schema: Mapping[str, Json]) -> Iterator[str]:
    if schema.get("type") == "object":
        for name in _list_of(schema, "required"):
            if why := why_unmatchable(schema.get("properties", {}).get(name, True)):
                yield f"'{name}' is required, and nothing fits it: {why}"
    yield from filter(None, map(why_unmatchable, _list_of(schema, "allOf")))
    for key in ("anyOf", "oneOf"):
        reasons = [why_unmatchable(part) for part in _list_of(schema, key)]
        if reasons and all(reasons):
            yield reasons[0]


def _list_of(schema: Mapping[str, Json], key: str) -> list[Json]:
    """The list at a key; empty if the value is not a list."""
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _matcher(schema: Json) -> Callable[[Json], bool] | None:
    """A function that says whether a value matches the schema; None if the schema is malformed."""
    try:
        return compile_schema(schema).is_valid
    except BadSchema:
        return None
