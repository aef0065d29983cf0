"""Conditions over the context: one table of operators and `evaluate`.

A condition is the JSON object that the author wrote. Every part of it must hold: `{"var": "n", "gt": 0, "lt": 5}` is a
range. A new operator is a function here, a line in `OPERATORS` and a property in `workflow.schema.json`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from workflowlookup.core.patterns import BadPattern, Budget, TooSlow, compile_pattern
from workflowlookup.core.values import Context, Json, as_number, as_text, is_truthy, lookup, loosely_equal

Operator = Callable[[Json, Json, Budget], bool]
Condition = Mapping[str, Json]


def _equals(actual: Json, expected: Json, _: Budget) -> bool:
    return loosely_equal(actual, expected)


def _differs(actual: Json, expected: Json, _: Budget) -> bool:
    return not loosely_equal(actual, expected)


def _ordered(holds: Callable[[float, float], bool]) -> Operator:
    """Numbers and text that reads as one; anything else is in no order."""

    def compare(actual: Json, expected: Json, _: Budget) -> bool:
        left, right = as_number(actual), as_number(expected)
        return left is not None and right is not None and holds(left, right)

    return compare


def _in(actual: Json, expected: Json, _: Budget) -> bool:
    return isinstance(expected, list) and any(loosely_equal(actual, item) for item in expected)


def _contains(actual: Json, expected: Json, _: Budget) -> bool:
    if isinstance(actual, list):
        return any(loosely_equal(item, expected) for item in actual)
    return _text_holds(str.__contains__, actual, expected)


def _starts_with(actual: Json, expected: Json, _: Budget) -> bool:
    return _text_holds(str.startswith, actual, expected)


def _ends_with(actual: Json, expected: Json, _: Budget) -> bool:
    return _text_holds(str.endswith, actual, expected)


def _text_holds(holds: Callable[[str, str], bool], actual: Json, expected: Json) -> bool:
    text, part = as_text(actual), as_text(expected)
    return text is not None and part is not None and holds(text.strip().casefold(), part.strip().casefold())


def _matches(actual: Json, expected: Json, budget: Budget) -> bool:
    """A pattern that does not compile, or takes too long, matches nothing; `document.check` reports the former."""
    text = as_text(actual)
    if text is None or not isinstance(expected, str):
        return False
    try:
        return compile_pattern(expected, "i", budget)(text, budget)
    except (BadPattern, TooSlow):
        return False


def _exists(actual: Json, expected: Json, _: Budget) -> bool:
    return (actual is not None) is is_truthy(expected)


OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        "equals": _equals,
        "not_equals": _differs,
        "gt": _ordered(lambda left, right: left > right),
        "gte": _ordered(lambda left, right: left >= right),
        "lt": _ordered(lambda left, right: left < right),
        "lte": _ordered(lambda left, right: left <= right),
        "in": _in,
        "contains": _contains,
        "startsWith": _starts_with,
        "endsWith": _ends_with,
        "matches": _matches,
        "exists": _exists,
    }
)

ORDERINGS: Final = frozenset({"gt", "gte", "lt", "lte"})

MOST_COMPILED: Final = 4096

Predicate = Callable[[Context, Budget], bool]
_compiled: dict[int, tuple[Condition, Predicate]] = {}
"""By identity: a condition is part of a document, which never changes, and is asked again and again. It is kept
beside what it became, so that no other has its identity."""


def evaluate(condition: Condition | None, context: Context, budget: Budget) -> bool:
    """Whether every part of the condition holds; an absent or empty condition does."""
    if not condition:
        return True
    known = _compiled.get(id(condition))
    if known is None:
        if len(_compiled) >= MOST_COMPILED:
            _compiled.clear()
        known = _compiled[id(condition)] = (condition, compile_condition(condition))
    return known[1](context, budget)


def compile_condition(condition: Condition) -> Predicate:
    """A function that tells whether every part of the condition holds, for who asks often and keeps it."""
    parts = [*_about_variable(condition)]
    if "and" in condition:
        parts += map(compile_condition, condition["and"])
    if "or" in condition:
        parts.append(_either([*map(compile_condition, condition["or"])]))
    if "not" in condition:
        parts.append(_opposite(compile_condition(condition["not"])))
    return parts[0] if len(parts) == 1 else _every(parts)


def _about_variable(condition: Condition) -> Iterator[Predicate]:
    name = condition.get("var")
    if name is None:
        return
    asked = [_asks(name, OPERATORS[key], expected) for key, expected in condition.items() if key in OPERATORS]
    yield from asked or [lambda context, _: is_truthy(lookup(context, name))]


def _asks(name: str, operator: Operator, expected: Json) -> Predicate:
    if "." not in name:
        return lambda context, budget: operator(context.get(name), expected, budget)
    return lambda context, budget: operator(lookup(context, name), expected, budget)


def _opposite(part: Predicate) -> Predicate:
    return lambda context, budget: not part(context, budget)


def _either(parts: Sequence[Predicate]) -> Predicate:
    return _opposite(_every([_opposite(part) for part in parts]))


def _every(parts: Sequence[Predicate]) -> Predicate:
    def holds(context: Context, budget: Budget) -> bool:
        for part in parts:  # noqa: SIM110 - a generator for `all` would cost more than the parts
            if not part(context, budget):
                return False
        return True

    return holds


def walk(condition: Condition) -> Iterator[Condition]:
    """The condition and every condition inside it."""
    yield condition
    for key in ("and", "or"):
        for part in condition.get(key, ()):
            yield from walk(part)
    if "not" in condition:
        yield from walk(condition["not"])


def describe(condition: Condition) -> str:
    """The condition in words: `taskSize equals "large" and risk is set`."""
    name = condition.get("var")
    parts = [f"{name} {_WORDS[key]} {_quoted(value)}".strip() for key, value in condition.items() if key in OPERATORS]
    if name is not None and not parts:
        parts.append(f"{name} is true")
    for key, joint in (("and", " and "), ("or", " or ")):
        if key in condition:
            parts.append(f"({joint.join(describe(part) for part in condition[key])})")
    if "not" in condition:
        parts.append(f"not ({describe(condition['not'])})")
    return " and ".join(parts) or "always"


_WORDS: Final = MappingProxyType(
    {
        "equals": "equals",
        "not_equals": "does not equal",
        "gt": "is greater than",
        "gte": "is at least",
        "lt": "is less than",
        "lte": "is at most",
        "in": "is one of",
        "contains": "contains",
        "startsWith": "starts with",
        "endsWith": "ends with",
        "matches": "matches",
        "exists": "exists:",
    }
)


def _quoted(value: Json) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return ", ".join(map(_quoted, value))
    return as_text(value) or ("null" if value is None else "…")
