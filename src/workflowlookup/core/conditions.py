"""Conditions over the context: one table of operators and `evaluate`.

A condition is the JSON object that the author wrote. Every part of it must hold: `{"var": "n", "gt": 0, "lt": 5}` is a
range. A new operator is a function here, a line in `OPERATORS` and a property in `workflow.schema.json`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from workflowlookup.core.patterns import BadPattern, TooSlow, compile_pattern
from workflowlookup.core.values import Context, Json, as_number, as_text, is_truthy, lookup, loosely_equal

Operator = Callable[[Json, Json], bool]
Condition = Mapping[str, Json]


def _differs(actual: Json, expected: Json) -> bool:
    return not loosely_equal(actual, expected)


def _ordered(holds: Callable[[float, float], bool]) -> Operator:
    """Numbers and text that reads as one; anything else is in no order."""

    def compare(actual: Json, expected: Json) -> bool:
        left, right = as_number(actual), as_number(expected)
        return left is not None and right is not None and holds(left, right)

    return compare


def _in(actual: Json, expected: Json) -> bool:
    return isinstance(expected, list) and any(loosely_equal(actual, item) for item in expected)


def _contains(actual: Json, expected: Json) -> bool:
    if isinstance(actual, list):
        return any(loosely_equal(item, expected) for item in actual)
    return _text_holds(str.__contains__, actual, expected)


def _starts_with(actual: Json, expected: Json) -> bool:
    return _text_holds(str.startswith, actual, expected)


def _ends_with(actual: Json, expected: Json) -> bool:
    return _text_holds(str.endswith, actual, expected)


def _text_holds(holds: Callable[[str, str], bool], actual: Json, expected: Json) -> bool:
    text, part = as_text(actual), as_text(expected)
    return text is not None and part is not None and holds(text.strip().casefold(), part.strip().casefold())


def _matches(actual: Json, expected: Json) -> bool:
    """A pattern that does not compile, or takes too long, matches nothing; `document.check` reports the former."""
    text = as_text(actual)
    if text is None or not isinstance(expected, str):
        return False
    try:
        return compile_pattern(expected, "i")(text)
    except (BadPattern, TooSlow):
        return False


def _exists(actual: Json, expected: Json) -> bool:
    return (actual is not None) is is_truthy(expected)


OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        "equals": loosely_equal,
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

_find_operator: Final = dict(OPERATORS).get  # the same table, without the price of being read-only
ORDERINGS: Final = frozenset({"gt", "gte", "lt", "lte"})


def evaluate(condition: Condition | None, context: Context) -> bool:
    """Whether every part of the condition holds; an absent or empty condition does."""
    if not condition:
        return True
    name = condition.get("var")
    if name is not None:
        value = context[name] if name in context else lookup(context, name)
        asked = False
        for key, expected in condition.items():
            operator = _find_operator(key)
            if operator is not None:
                asked = True
                if not operator(value, expected):
                    return False
        if asked:
            if len(condition) == 2:  # a variable and one operator, the usual case
                return True
        elif not is_truthy(value):
            return False
    if "and" in condition and not all(evaluate(part, context) for part in condition["and"]):
        return False
    if "or" in condition and not any(evaluate(part, context) for part in condition["or"]):
        return False
    return "not" not in condition or not evaluate(condition["not"], context)


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
