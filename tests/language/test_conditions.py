"""Conditions: what `tests/language/conditions.yaml` cannot say in a row."""

import pytest

from support.json_values import JsonObject
from workflowlookup.language.conditions import CompiledCondition, describe, evaluate
from workflowlookup.language.formats.patterns import Budget, TooSlow

SLOW = {"var": "s", "matches": "(a+)+$"}
CONTEXT = {"s": "a" * 50_000 + "b", "yes": True}


@pytest.mark.parametrize(
    "condition", [SLOW, {"not": SLOW}, {"and": [{"var": "yes"}, SLOW]}, {"or": [{"var": "no"}, SLOW]}]
)
def test_a_condition_that_takes_too_long_has_no_answer(condition: JsonObject) -> None:
    with pytest.raises(TooSlow):
        evaluate(condition, CONTEXT, Budget())
    assert CompiledCondition(condition).may_hold(CONTEXT, Budget())


@pytest.mark.parametrize(
    ("condition", "answer"), [({"or": [SLOW, {"var": "yes"}]}, True), ({"and": [SLOW, {"var": "no"}]}, False)]
)
def test_a_slow_part_does_not_matter_if_the_others_decide(condition: JsonObject, answer: bool) -> None:
    assert evaluate(condition, CONTEXT, Budget()) is answer
    assert CompiledCondition(condition).may_hold(CONTEXT, Budget()) is answer


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"var": "size", "equals": "large"}, 'size equals "large"'),
        ({"var": "n", "gt": 1, "lte": 5}, "n is greater than 1 and n is at most 5"),
        ({"or": [{"var": "a"}, {"not": {"var": "b", "in": [1, 2]}}]}, "(a is true or not (b is one of 1, 2))"),
        ({}, "always"),
    ],
)
def test_a_condition_is_described_in_words(condition: JsonObject, words: str) -> None:
    assert describe(condition) == words
