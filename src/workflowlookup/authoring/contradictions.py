"""Criteria that no output can meet: `contradictions(data)`, with the place and the reason of each.

Criteria are taken apart into demands: rules that must pass, and rules that must not. A rule with a condition is put
together with those that always count and those that have the same condition. Only what follows from two demands, or
from one, is told: what looks strange and might be met is left alone, and so is what is too large to be compared.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import Condition, describe
from workflowlookup.language.patterns import BadPattern, Budget
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
from workflowlookup.language.schemas import BadSchema, PathTo, compile_schema, show
from workflowlookup.language.validation import has_templates
from workflowlookup.language.values import Json, is_number

_LITERAL: Final = re.compile(r"\^((?:[^\\^$.|?*+()\[\]{}]|\\[^\w\s])*)\$")
_HARMLESS_FLAGS: Final = frozenset("gsuy")
MOST_DEMANDS: Final = 200
LONGEST_TEXT: Final = 1_000


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, or alternatives, that must pass, or must not."""

    path: PathTo
    criterion: Rule | AnyOf
    passes: bool = True

    @property
    def condition(self) -> Condition | None:
        return None if isinstance(self.criterion, AnyOf) else self.criterion.condition


def contradictions(data: Json, budget: Budget) -> Iterator[tuple[PathTo, str]]:
    """Where the criteria of a step cannot be met, and why not; at most one for each condition of its rules."""
    criteria = parse_criteria(data)
    demands = [*_demands(criteria, data)] if criteria else []
    if len(demands) > MOST_DEMANDS:
        return
    always = [demand for demand in demands if demand.condition is None]
    if found := _first_conflict(always, budget):
        yield found
        return
    conditions = [demand.condition for demand in demands if demand.condition is not None]
    for index, condition in enumerate(conditions):
        if condition in conditions[:index]:
            continue
        together = [demand for demand in demands if demand.condition in (None, condition)]
        if found := _first_conflict(together, budget):
            path, reason = found
            yield path, f"{reason}, when {describe(condition)}"


def _demands(criterion: Criterion, data: Json, path: PathTo = (), *, passes: bool = True) -> Iterator[Demand]:
    """What must hold for the criterion to pass, or not to pass. Alternatives stay together."""
    match criterion:
        case AllOf(parts=parts) | AnyOf(parts=parts) if isinstance(criterion, AllOf) is passes:
            members = data if isinstance(data, list) else data["and" if passes else "or"]
            at = path if isinstance(data, list) else (*path, "and" if passes else "or")
            for index, part in enumerate(parts):
                yield from _demands(part, members[index], (*at, index), passes=passes)
        case Not(part=part):
            yield from _demands(part, data["not"], (*path, "not"), passes=not passes)
        case _ if has_templates(criterion):
            return  # what it asks is known with the context
        case AnyOf() if all(rule.condition is None for rule in each_rule(criterion)):
            yield Demand(path=path, criterion=criterion)
        case Rule():
            yield Demand(path=path, criterion=criterion, passes=passes)


def _first_conflict(demands: Sequence[Demand], budget: Budget) -> tuple[PathTo, str] | None:
    finders = (_lengths, _texts, _opposites, _literals, _schemas, _alternatives)
    return next(itertools.chain.from_iterable(find(demands, budget) for find in finders), None)


Conflicts = Iterator[tuple[PathTo, str]]


def _wanted(demands: Sequence[Demand], kind: type, *, passes: bool = True) -> list[tuple[PathTo, Any]]:
    return [
        (demand.path, demand.criterion)
        for demand in demands
        if isinstance(demand.criterion, kind) and demand.passes is passes
    ]


def _lengths(demands: Sequence[Demand], __: Budget) -> Conflicts:
    lengths = [*_wanted(demands, LengthRule), *_turned_around(demands)]
    most = min((rule.max for _, rule in lengths if rule.max is not None), default=None)
    if most is None:
        return
    for path, rule in lengths:
        if (rule.min or 0) > most:
            yield path, f"at least {rule.min} characters are asked for and at most {most}"
    texts = _wanted(demands, ContainsRule)
    for path, rule in texts:
        if len(rule.value) > most:
            yield path, f"the text {show(rule.value)} is longer than the {most} characters that are allowed"
    for (_, first), (path, second) in itertools.combinations(texts, 2):
        needed = _length_together(first.value, second.value)
        if needed > most:
            both = f"{show(first.value)} and {show(second.value)}"
            yield path, f"{both} take {needed} characters together, of the {most} that are allowed"


def _turned_around(demands: Sequence[Demand]) -> Iterator[tuple[PathTo, LengthRule]]:
    """Lengths that must not be, as those that must; with two bounds there would be two ways."""
    for path, rule in _wanted(demands, LengthRule, passes=False):
        if rule.min and rule.max is None:
            yield path, msgspec.structs.replace(rule, min=None, max=rule.min - 1)
        elif not rule.min and rule.max is not None:
            yield path, msgspec.structs.replace(rule, min=rule.max + 1, max=None)


def _length_together(first: str, second: str) -> int:
    """How long a text must be at least that has both; they may overlap."""
    shorter, longer = sorted((first, second), key=len)
    if shorter in longer or len(longer) > LONGEST_TEXT:
        return len(longer)
    overlap = next(
        size for size in range(len(shorter), -1, -1) if first.endswith(second[:size]) or second.endswith(first[:size])
    )
    return len(first) + len(second) - overlap


def _texts(demands: Sequence[Demand], __: Budget) -> Conflicts:
    for _, unwanted in _wanted(demands, ContainsRule, passes=False):
        for path, wanted in _wanted(demands, ContainsRule):
            if unwanted.value in wanted.value:
                yield path, f"{show(wanted.value)} must be there and {show(unwanted.value)}, a part of it, must not"


def _opposites(demands: Sequence[Demand], __: Budget) -> Conflicts:
    wanted = [rule for _, rule in _wanted(demands, Rule) if not isinstance(rule, ContainsRule)]
    for path, unwanted in _wanted(demands, Rule, passes=False):
        if any(_same(unwanted, rule) for rule in wanted):
            yield path, "the same rule must pass and must not"


def _same(left: Rule, right: Rule) -> bool:
    plain = [msgspec.structs.replace(rule, message="", condition=None) for rule in (left, right)]
    return plain[0] == plain[1]


def _literals(demands: Sequence[Demand], budget: Budget) -> Conflicts:
    """A pattern that only one text matches: every other demand is put to that text."""
    for path, only in _wanted(demands, RegexRule):
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
    """Whether it does; None when that cannot be judged."""
    try:
        issues = rule.check()(text, {}, budget)
    except (BadPattern, BadSchema):
        return None
    return None if issues and issues[0].is_undecided else not issues


def _alternatives(demands: Sequence[Demand], budget: Budget) -> Conflicts:
    """Alternatives, none of which goes together with the rest; what two groups of them exclude together is not told."""
    rest = [demand for demand in demands if not isinstance(demand.criterion, AnyOf)]
    for path, group in _wanted(demands, AnyOf):
        if all(_first_conflict([*rest, *_alone(part)], budget) for part in group.parts):
            yield path, "none of the alternatives can be met"


def _alone(part: Criterion) -> Iterator[Demand]:
    """The demands of an alternative; its own alternatives, and places in it, do not matter here."""
    match part:
        case AllOf(parts=parts):
            for inner in parts:
                yield from _alone(inner)
        case Not(part=Rule() as rule):
            yield Demand(path=(), criterion=rule, passes=False)
        case Rule():
            yield Demand(path=(), criterion=part)


# ── JSON Schemas that nothing fits ──────────────────────────────────────────────────────────────────────────────

_RANGES: Final = (
    ("string", "minLength", "maxLength"),
    ("array", "minItems", "maxItems"),
    ("object", "minProperties", "maxProperties"),
    ("number", "minimum", "maximum"),
    ("integer", "minimum", "maximum"),
)


def _schemas(demands: Sequence[Demand], __: Budget) -> Conflicts:
    schemas = [(path, msgspec.json.decode(rule.schema)) for path, rule in _wanted(demands, SchemaRule)]
    schemas = [(path, schema) for path, schema in schemas if _fitting(schema)]
    for path, schema in schemas:
        if why := unfittable(schema):
            yield path, f"no JSON fits the schema: {why}"
    of_today = [(path, schema) for path, schema in schemas if schema is True or "$schema" not in schema]
    for (_, first), (path, second) in itertools.combinations(of_today, 2):
        if why := unfittable({"allOf": [first, second]}):
            yield path, f"no JSON fits this schema and another of this step: {why}"


def unfittable(schema: Json) -> str:
    """Why no value can fit a JSON Schema; nothing when one might."""
    if schema is False:
        return "it is false"
    if not isinstance(schema, Mapping) or "$ref" in schema:  # in older drafts nothing counts beside $ref
        return ""
    return next(itertools.chain(_no_value(schema), _no_type(schema), _no_range(schema), _no_part(schema)), "")


def _together(schema: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """The schema and those that it requires beside it."""
    return [schema, *(part for part in _listed(schema, "allOf") if isinstance(part, Mapping) and "$ref" not in part)]


def _no_value(schema: Mapping[str, Json]) -> Iterator[str]:
    for part in _together(schema):
        values = [part["const"]] if "const" in part else _listed(part, "enum")
        fits = _fitting(schema) if values or "enum" in part else None
        if fits and not any(map(fits, values)):
            yield f"none of the values that it lists ({', '.join(map(show, values[:5]))}) fits the rest of it"


def _no_type(schema: Mapping[str, Json]) -> Iterator[str]:
    types = [set(_listed(part, "type") or [part["type"]]) for part in _together(schema) if "type" in part]
    types = [names | {"integer"} if "number" in names else names for names in types]
    if types and not set.intersection(*types):
        yield "its types exclude each other"


def _no_range(schema: Mapping[str, Json]) -> Iterator[str]:
    for name, lower, upper in _RANGES:
        least, most = schema.get(lower), schema.get(upper)
        if schema.get("type") == name and is_number(least) and is_number(most) and least > most:
            yield f"{lower} {least} is above {upper} {most}"


def _no_part(schema: Mapping[str, Json]) -> Iterator[str]:
    if schema.get("type") == "object":
        for name in _listed(schema, "required"):
            if why := unfittable(schema.get("properties", {}).get(name, True)):
                yield f"'{name}' is required, and nothing fits it: {why}"
    yield from filter(None, map(unfittable, _listed(schema, "allOf")))
    for key in ("anyOf", "oneOf"):
        reasons = [unfittable(part) for part in _listed(schema, key)]
        if reasons and all(reasons):
            yield reasons[0]


def _listed(schema: Mapping[str, Json], key: str) -> list[Json]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _fitting(schema: Json) -> Callable[[Json], bool] | None:
    """What says whether a value fits the schema; None for a schema that is malformed itself."""
    try:
        return compile_schema(schema).is_valid
    except BadSchema:
        return None
