"""Whether a condition is always true or always false: `verdict(condition, scope)`.

Operators do not distinguish all values of a variable: between two numbers in a condition, every number gives the same
result. So each variable is tried with one representative of every class of values that the condition can distinguish
and its declaration allows, and the condition is evaluated for every combination. `Compares` says what an operator
distinguishes. If the values of a class may differ (`contains` on unknown text, or an operator without assumptions), the
truth is None, neither true nor false. A condition is constant only if every result is the same. Unknown keywords of a
declaration are ignored: they could only allow fewer values. A condition with too many combinations has no verdict.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.conditions import Compares, Comparison, Condition, Operator, Truth, combine, operators_in
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.values import Json, as_number, is_number, is_truthy, loosely_equal

MAX_COMBINATIONS: Final = 20_000
MAX_CONSTANTS: Final = 40
_STEPS_PER_COMPARISON: Final = 10
"""The cost of trying a value, in steps of a `Budget`."""
_ROUNDS: Final = (2, 6, None)
"""The number of further values in each round. Most conditions prove not to be constant within two rounds."""
MAX_NUMBER: Final = 10**15
"""Beyond it a float cannot represent every whole number."""

_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_BOOLEAN_WORDS: Final = ("true", "yes", "1", "false", "no", "0")


class VariableDeclaration(msgspec.Struct, frozen=True):
    """What a document declares about a variable: its JSON Schema, and whether it is always set."""

    schema: Json = True
    always_set: bool = False


Scope = Mapping[str, VariableDeclaration]


def verdict(condition: Condition, scope: Scope, budget: Budget) -> Truth:
    """True if the condition always holds, False if it never does, else None; also None if time runs out."""
    try:
        return _verdict(condition, scope, budget)
    except TooSlow:
        return None


def _verdict(condition: Condition, scope: Scope, budget: Budget) -> Truth:
    """`verdict`, but raises `TooSlow`."""
    comparisons: dict[str, list[Condition]] = {}

    def compare(part: Condition) -> Comparison:
        name = part["var"]
        comparisons.setdefault(name, []).append(part)
        index = len(comparisons[name]) - 1
        return lambda answers, _: answers[name][index]

    holds = combine(condition, compare)
    values = [possible_values(declaration(name, scope), [*_constants(parts)]) for name, parts in comparisons.items()]
    rows: list[set[tuple[Truth, ...]]] = [set() for _ in comparisons]
    outcomes: set[Truth] = set()
    size = sum(map(len, comparisons.values()))
    for number in _ROUNDS:
        for row, parts, tried in zip(rows, comparisons.values(), values, strict=True):
            if tried is None:
                return None
            for value, exact in itertools.islice(tried, number):
                budget.charge(_STEPS_PER_COMPARISON * len(parts))
                row.add(tuple([_evaluate(part, value, budget, exact=exact) for part in parts]))
        if math.prod(map(len, rows)) > MAX_COMBINATIONS:
            return None
        for choice in itertools.product(*rows):
            budget.charge(size)
            outcomes.add(holds(dict(zip(comparisons, choice, strict=True)), budget))
        if len(outcomes) > 1:
            return None
    return outcomes.pop() if outcomes else None


def declaration(name: str, scope: Scope) -> VariableDeclaration:
    """The declaration of a variable or a dotted path."""
    if name in scope:
        return scope[name]
    head, *rest = name.split(".")
    schema = scope[head].schema if head in scope else True
    for part in rest:
        schema = understood(understood(schema).get("properties")).get(part, True)
    return VariableDeclaration(schema)


# ── three-valued logic ──────────────────────────────────────────────────────────────────────────────────────────


def _evaluate(part: Condition, value: Json, budget: Budget, *, exact: bool) -> Truth:
    """Whether the operators beside `var` hold for the value and all values that it represents."""
    truths = [_compare(operator, value, expected, budget, exact=exact) for _, operator, expected in operators_in(part)]
    return _all(truths) if truths else is_truthy(value)


def _compare(operator: Operator, value: Json, expected: Json, budget: Budget, *, exact: bool) -> Truth:
    """None if the values that this one represents may differ, or if a search takes too long."""
    try:
        if operator.flaw is not None and operator.flaw(expected, budget):
            return False
        return None if not exact and _is_open(operator, value) else operator.holds(value, expected, budget)
    except TooSlow:
        return None


def _is_open(operator: Operator, value: Json) -> bool:
    if operator.compares is Compares.CONTENT:
        return isinstance(value, (str, list)) or is_number(value)
    return operator.compares is Compares.NOTHING


def _all(truths: Sequence[Truth]) -> Truth:
    return False if False in truths else None if None in truths else True


# ── representatives ─────────────────────────────────────────────────────────────────────────────────────────────


def possible_values(declared: VariableDeclaration, constants: Sequence[Json]) -> Iterator[tuple[Json, bool]] | None:
    """Values to try, each with whether it represents only itself; None if there would be too many.

    The first few suffice to show that most conditions are not constant.
    """
    schema = understood(declared.schema)
    missing = [] if declared.always_set else [(None, True)]
    for enumerated in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
        if isinstance(enumerated, list):
            return iter([(value, True) for value in enumerated if _fits(value, schema)] + missing)
    numbers = [as_number(value) for value in (*constants, *(schema.get(bound) for bound in _BOUNDS))]
    named = {0, 1, *(number for number in numbers if number is not None)}
    if len(constants) > MAX_CONSTANTS or any(abs(number) > MAX_NUMBER for number in named):
        return None
    tried = _representatives(named, constants)
    fitting = ((value, isinstance(value, bool)) for value in tried if not schema or _fits(value, schema))
    return itertools.chain(missing, fitting)


def understood(schema: Json) -> Mapping[str, Json]:
    """The schema if it can be relied on, else {}: in older drafts, keywords beside `$ref` have no effect."""
    return schema if isinstance(schema, Mapping) and "$ref" not in schema else {}


def _constants(parts: Iterable[Condition]) -> Iterator[Json]:
    for part in parts:
        yield from constants_of(part, (Compares.ORDER, Compares.EQUALITY))


def constants_of(part: Condition, compares: Collection[Compares]) -> Iterator[Json]:
    """The values that operators of these kinds compare with, including the items of lists."""
    for _, operator, expected in operators_in(part):
        if operator.compares in compares:
            yield expected
            yield from expected if isinstance(expected, list) else ()


def _representatives(named: set[float], constants: Sequence[Json]) -> Iterator[Json]:
    """At least one value of every class that comparisons with the constants can distinguish."""
    texts = [value for value in constants if isinstance(value, str)]

    def is_new(text: str) -> bool:
        return not any(loosely_equal(text, other) for other in texts)

    yield from constants
    numbers = sorted({*_numbers(sorted(named))}, reverse=True)
    yield from (True, *numbers, None, False, "", *_BOOLEAN_WORDS)
    for number in numbers:
        yield str(number)
        sign = "-" if number < 0 else ""
        yield next(text for zeros in itertools.count(1) if is_new(text := f"{sign}{'0' * zeros}{abs(number)}"))
    other = next(text for length in itertools.count(1) if is_new(text := "?" * length))
    yield from (other, [], [other], {}, {other: other})


def _numbers(named: Sequence[float]) -> Iterator[float]:
    """The numbers, the whole numbers next to each, and the middle between neighbours."""
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
