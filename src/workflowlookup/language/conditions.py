"""Conditions on the context: the table of operators, and how a condition is compiled and described.

A condition is the JSON object that the author wrote. Every part of it must hold: `{"var": "n", "gt": 0, "lt": 5}` is a
range. A new operator is a line in `OPERATORS` and a property in `workflow.schema.json`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.language.formats.patterns import BadPattern, Budget, TooSlow, compile_pattern
from workflowlookup.language.values import Context, Json, as_number, as_text, is_truthy, lookup, loosely_equal

Condition = Mapping[str, Json]
Truth = bool | None
Comparison = Callable[[Mapping[str, Any], Budget], Truth]
"""Whether a comparison holds for the context, or for the values that an analysis uses instead; None if unknown."""

MAX_CONDITION_TEXT: Final = 500
COMPARE_REMEDY: Final = "Compare with a value of the type that the variable has"


class Compares(StrEnum):
    """What an operator distinguishes, and so what a static analysis may assume about it."""

    ORDER = "order"
    """The order of numbers: all numbers between two constants give the same result."""
    EQUALITY = "equality"
    """Equality with a constant, or one of a list of constants: all other values give the same result."""
    CONTENT = "content"
    """The content of texts, numbers and lists, which an analysis cannot know. It is false for all other values."""
    NOTHING = "nothing"
    """No assumption: only evaluating it tells."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, with everything that other modules need to know about it."""

    holds: Callable[[Json, Json, Budget], bool]
    """Takes the variable's value, the author's value and the budget. May raise `TooSlow`."""
    words: str
    """The words between the variable and the author's value in a sentence."""
    compares: Compares = Compares.NOTHING
    flaw: Callable[[Json, Budget], str] | None = None
    """Given the author's value, why nothing can satisfy the operator; empty if something can. May raise `TooSlow`."""
    remedy: str = COMPARE_REMEDY
    """What the author should do about a flaw."""


def _equals(actual: Json, expected: Json, _: Budget) -> bool:
    return loosely_equal(actual, expected)


def _differs(actual: Json, expected: Json, _: Budget) -> bool:
    return not loosely_equal(actual, expected)


def _ordered(words: str, holds: Callable[[float, float], bool]) -> Operator:
    """An operator that compares numbers, and text that reads as a number; other values never satisfy it."""

    def compare(actual: Json, expected: Json, _: Budget) -> bool:
        left, right = as_number(actual), as_number(expected)
        return left is not None and right is not None and holds(left, right)

    def flaw(expected: Json, _: Budget) -> str:
        return "" if as_number(expected) is not None else f"compares with '{expected}', which is not a number"

    return Operator(holds=compare, words=words, compares=Compares.ORDER, flaw=flaw)


def _in(actual: Json, expected: Json, _: Budget) -> bool:
    return isinstance(expected, list) and any(loosely_equal(actual, item) for item in expected)


def _no_choice(expected: Json, _: Budget) -> str:
    return "has an empty list" if expected == [] else ""


def _contains(actual: Json, expected: Json, budget: Budget) -> bool:
    if isinstance(actual, list):
        return any(loosely_equal(item, expected) for item in actual)
    return _text_holds(str.__contains__, actual, expected, budget)


def _starts_with(actual: Json, expected: Json, budget: Budget) -> bool:
    return _text_holds(str.startswith, actual, expected, budget)


def _ends_with(actual: Json, expected: Json, budget: Budget) -> bool:
    return _text_holds(str.endswith, actual, expected, budget)


def _text_holds(holds: Callable[[str, str], bool], actual: Json, expected: Json, budget: Budget) -> bool:
    text, part = as_text(actual), as_text(expected)
    return text is not None and part is not None and holds(budget.folded(text).strip(), part.strip().casefold())


def _matches(actual: Json, expected: Json, budget: Budget) -> bool:
    """A pattern that does not compile matches nothing."""
    text = as_text(actual)
    if text is None or not isinstance(expected, str):
        return False
    try:
        return compile_pattern(expected, "i", budget)(text, budget)
    except BadPattern:
        return False


def _bad_pattern(expected: Json, budget: Budget) -> str:
    try:
        compile_pattern(expected, "i", budget)
    except BadPattern as problem:
        return f"has a pattern that does not compile ({problem})"
    return ""


def _exists(actual: Json, expected: Json, _: Budget) -> bool:
    return (actual is not None) is is_truthy(expected)


OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        "equals": Operator(holds=_equals, words="equals", compares=Compares.EQUALITY),
        "not_equals": Operator(holds=_differs, words="does not equal", compares=Compares.EQUALITY),
        "gt": _ordered("is greater than", lambda left, right: left > right),
        "gte": _ordered("is at least", lambda left, right: left >= right),
        "lt": _ordered("is less than", lambda left, right: left < right),
        "lte": _ordered("is at most", lambda left, right: left <= right),
        "in": Operator(holds=_in, words="is one of", compares=Compares.EQUALITY, flaw=_no_choice),
        "contains": Operator(holds=_contains, words="contains", compares=Compares.CONTENT),
        "startsWith": Operator(holds=_starts_with, words="starts with", compares=Compares.CONTENT),
        "endsWith": Operator(holds=_ends_with, words="ends with", compares=Compares.CONTENT),
        "matches": Operator(
            holds=_matches, words="matches", compares=Compares.CONTENT, flaw=_bad_pattern, remedy="Fix the pattern"
        ),
        "exists": Operator(holds=_exists, words="exists:", compares=Compares.EQUALITY),
    }
)


def operators_in(condition: Condition) -> Iterator[tuple[str, Operator, Json]]:
    """The operators beside `var`, each with its name and the author's value."""
    return ((key, OPERATORS[key], expected) for key, expected in condition.items() if key in OPERATORS)


# ── evaluating ──────────────────────────────────────────────────────────────────────────────────────────────────


class CompiledCondition(dict[str, Json]):
    """A condition of a workflow: the JSON that the author wrote, compiled when the workflow is built."""

    __slots__ = ("_truth",)

    def __init__(self, source: Condition) -> None:
        super().__init__(source)
        self._truth = combine(source, _compare)

    def holds(self, context: Context, budget: Budget) -> bool:
        """Whether every part of it holds. Raises `TooSlow` if the parts evaluated in time do not decide that."""
        truth = self._truth(context, budget)
        if truth is None:
            raise TooSlow
        return truth

    def may_hold(self, context: Context, budget: Budget) -> bool:
        """Whether it holds or takes too long to evaluate. For things that must not be skipped by mistake."""
        return self._truth(context, budget) is not False


def compile_condition(source: Condition | None) -> CompiledCondition | None:
    """Compile the condition of a document, if there is one."""
    return None if source is None else CompiledCondition(source)


def construct_from_json(kind: type, data: Json) -> Any:
    """A `dec_hook` for msgspec: calls the class of a field with the JSON that the author wrote."""
    return kind(data)


def evaluate(condition: Condition | None, context: Context, budget: Budget) -> bool:
    """Compile and evaluate a condition that is used once; None and {} are true. Raises `TooSlow`."""
    return CompiledCondition(condition or {}).holds(context, budget)


def _compare(condition: Condition) -> Comparison:
    name = condition["var"]
    parts = [_apply(name, operator.holds, expected) for _, operator, expected in operators_in(condition)]
    return _every(parts) if parts else lambda context, _: is_truthy(lookup(context, name))


def _apply(name: str, holds: Callable[[Json, Json, Budget], bool], expected: Json) -> Comparison:
    own_steps = _steps(expected) + len(name) // 10

    def compare(context: Context, budget: Budget) -> Truth:
        actual = lookup(context, name)
        try:
            budget.charge(own_steps + _steps(actual))
            return holds(actual, expected, budget)
        except TooSlow:
            return None

    return compare


def _steps(value: Json) -> int:
    """The estimated cost of comparing with a value; the parts of a list or object may be large."""
    return 100 + len(value) if isinstance(value, (str, list, dict)) else 1


def combine(condition: Condition, compare: Callable[[Condition], Comparison]) -> Comparison:
    """Compile the logic of a condition; `compare` compiles each part that has a `var`."""
    parts = [compare(condition)] if "var" in condition else []
    parts += [combine(part, compare) for part in condition.get("and", ())]
    if "or" in condition:
        parts.append(_opposite(_every([_opposite(combine(part, compare)) for part in condition["or"]])))
    if "not" in condition:
        parts.append(_opposite(combine(condition["not"], compare)))
    return _every(parts)


def _opposite(part: Comparison) -> Comparison:
    return lambda values, budget: None if (truth := part(values, budget)) is None else not truth


def _every(parts: Sequence[Comparison]) -> Comparison:
    if len(parts) == 1:
        return parts[0]

    def all_of(values: Context, budget: Budget) -> Truth:
        outcome: Truth = True
        for part in parts:
            truth = part(values, budget)
            if truth is False:
                return False
            if truth is None:
                outcome = None
        return outcome

    return all_of


# ── describing ──────────────────────────────────────────────────────────────────────────────────────────────────


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
    parts = [f"{name} {operator.words} {_quoted(value)}".strip() for _, operator, value in operators_in(condition)]
    if name is not None and not parts:
        parts.append(f"{name} is true")
    for key, joint in (("and", " and "), ("or", " or ")):
        if key in condition:
            parts.append(f"({joint.join(describe(part) for part in condition[key])})")
    if "not" in condition:
        parts.append(f"not ({describe(condition['not'])})")
    return " and ".join(parts) or "always"


def in_words(condition: Condition) -> str:
    """The condition in words, without brackets around the whole of it."""
    text = describe(condition)
    return text[1:-1] if condition.keys() in ({"and"}, {"or"}) else text


def _quoted(value: Json) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return ", ".join(map(_quoted, value))
    return as_text(value) or ("null" if value is None else "…")
