"""Whether a condition can come out both ways: `verdict(condition, scope)`.

The procedure is small enough to be trusted. Operators do not tell all values of a variable apart: between two numbers
that a condition names, every number is like every other. So each variable is tried with one representative of every
class that the condition can tell apart and its declaration admits, and the condition is worked out for every
combination. An answer that cannot be known for a whole class (`contains` on unknown text) is None, which is neither
true nor false, and a condition is constant only when it comes out the same each time. A declaration is read only as
far as it is understood; the rest of it could only make fewer values possible. What is too large to try has no verdict.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.core.conditions import OPERATORS, Condition, walk
from workflowlookup.core.patterns import BadPattern, Budget, TooSlow, compile_pattern
from workflowlookup.core.values import Json, as_number, as_text, is_number, is_truthy, loosely_equal

MOST_COMBINATIONS: Final = 20_000
MOST_CONSTANTS: Final = 40
LARGEST_NUMBER: Final = 10**15
"""Beyond it there are whole numbers that a float cannot tell from their neighbours."""

_BY_CONTENT: Final = frozenset({"contains", "startsWith", "endsWith", "matches"})
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_BOOLEAN_WORDS: Final = ("true", "yes", "1", "false", "no", "0")

Truth = bool | None


class Declared(msgspec.Struct, frozen=True):
    """What is known of a variable: the JSON Schema of its value, and whether it is always there."""

    schema: Json = True
    always_set: bool = False


Scope = Mapping[str, Declared]


def verdict(condition: Condition, scope: Scope, budget: Budget) -> Truth:
    """True for a condition that always holds, False for one that never does, None for any other."""
    parts: dict[str, list[Condition]] = {}
    for part in walk(condition):
        if "var" in part:
            parts.setdefault(part["var"], []).append(part)
    rows: list[list[dict[int, Truth]]] = []
    for name, asked in parts.items():
        values = possible_values(declaration(name, scope), [*_constants(asked)])
        if values is None:
            return None
        answers = {tuple(_ask(part, value, budget, exact=exact) for part in asked) for value, exact in values}
        rows.append([dict(zip(map(id, asked), answer, strict=True)) for answer in answers])
    if math.prod(map(len, rows)) > MOST_COMBINATIONS:
        return None
    outcomes = {_holds(condition, _merged(choice)) for choice in itertools.product(*rows)}
    return outcomes.pop() if len(outcomes) == 1 else None


def declaration(name: str, scope: Scope) -> Declared:
    """What the scope says of a variable or a dotted path."""
    if name in scope:
        return scope[name]
    head, *rest = name.split(".")
    schema = scope[head].schema if head in scope else True
    for part in rest:
        schema = understood(understood(schema).get("properties")).get(part, True)
    return Declared(schema)


# ── three values of truth ───────────────────────────────────────────────────────────────────────────────────────


def _ask(part: Condition, value: Json, budget: Budget, *, exact: bool) -> Truth:
    """Whether the operators beside `var` hold for the value, or for all values that it stands for."""
    asked = [_answer(key, value, part[key], budget, exact=exact) for key in part if key in OPERATORS]
    return _all(asked) if asked else is_truthy(value)


def _answer(operator: str, value: Json, expected: Json, budget: Budget, *, exact: bool) -> Truth:
    is_open = operator in _BY_CONTENT and not exact and (isinstance(value, (str, list)) or is_number(value))
    if operator == "matches":
        return _matches(value, expected, budget, is_open=is_open)
    return None if is_open else OPERATORS[operator](value, expected, budget)


def _matches(value: Json, pattern: str, budget: Budget, *, is_open: bool) -> Truth:
    """As the operator, but a search that was given up is no answer."""
    text = as_text(value)
    try:
        search = compile_pattern(pattern, "i", budget)
        return None if is_open else text is not None and search(text, budget)
    except BadPattern:
        return False
    except TooSlow:
        return None


def _holds(condition: Condition, answers: Mapping[int, Truth]) -> Truth:
    found = [answers[id(condition)]] if "var" in condition else []
    if "and" in condition:
        found.append(_all([_holds(part, answers) for part in condition["and"]]))
    if "or" in condition:
        found.append(_not(_all([_not(_holds(part, answers)) for part in condition["or"]])))
    if "not" in condition:
        found.append(_not(_holds(condition["not"], answers)))
    return _all(found)


def _all(truths: Sequence[Truth]) -> Truth:
    return False if False in truths else None if None in truths else True


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _merged(answers: Iterable[Mapping[int, Truth]]) -> dict[int, Truth]:
    return {key: truth for answer in answers for key, truth in answer.items()}


# ── representatives ─────────────────────────────────────────────────────────────────────────────────────────────


def possible_values(declared: Declared, constants: Sequence[Json]) -> list[tuple[Json, bool]] | None:
    """Values to try, each with whether it stands for itself alone; None when there would be too many."""
    schema = understood(declared.schema)
    missing = [] if declared.always_set else [(None, True)]
    for listed in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
        if isinstance(listed, list):
            return [(value, True) for value in listed if _fits(value, schema)] + missing
    numbers = [as_number(value) for value in (*constants, *(schema.get(bound) for bound in _BOUNDS))]
    named = {0, 1, *(number for number in numbers if number is not None)}
    if len(constants) > MOST_CONSTANTS or any(abs(number) > LARGEST_NUMBER for number in named):
        return None
    tried = _representatives(sorted(named), constants)
    return [(value, isinstance(value, bool)) for value in tried if _fits(value, schema)] + missing


def understood(schema: Json) -> Mapping[str, Json]:
    """The schema as far as it can be relied on: in older drafts nothing counts beside `$ref`."""
    return schema if isinstance(schema, Mapping) and "$ref" not in schema else {}


def _constants(parts: Iterable[Condition]) -> Iterator[Json]:
    for part in parts:
        for key in OPERATORS.keys() & part.keys() - _BY_CONTENT:
            yield from part[key] if key == "in" else (part[key],)


def _representatives(named: Sequence[float], constants: Sequence[Json]) -> Iterator[Json]:
    """One value at least of every class that comparing with the constants can tell apart."""
    texts = [value for value in constants if isinstance(value, str)]

    def is_new(text: str) -> bool:
        return not any(loosely_equal(text, other) for other in texts)

    yield from (None, True, False, "", *_BOOLEAN_WORDS, *constants)
    for number in {*_numbers(named)}:
        yield number
        yield str(number)
        sign = "-" if number < 0 else ""
        yield next(text for zeros in itertools.count(1) if is_new(text := f"{sign}{'0' * zeros}{abs(number)}"))
    other = next(text for length in itertools.count(1) if is_new(text := "?" * length))
    yield from (other, [], [other], {}, {other: other})


def _numbers(named: Sequence[float]) -> Iterator[float]:
    """The numbers, and between and beyond them a whole one, if there is one, and one that may be none."""
    for number in named:
        yield from (number, math.floor(number) - 1, math.floor(number), math.ceil(number), math.ceil(number) + 1)
    for below, above in itertools.pairwise(named):
        between = (below + above) / 2
        if below < between < above:
            yield between


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def _fits(value: Json, schema: Mapping[str, Json]) -> bool:
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types
    if isinstance(names, list) and not any(_is_a(value, name) for name in names):
        return False
    if not is_number(value):
        return True
    least, most, above, below = (bound if is_number(bound) else None for bound in map(schema.get, _BOUNDS))
    return (
        (least is None or value >= least)
        and (most is None or value <= most)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _is_a(value: Json, name: str) -> bool:
    if name in ("number", "integer"):
        return is_number(value) and (name == "number" or value == int(value))
    return isinstance(value, _TYPES.get(name, object))
