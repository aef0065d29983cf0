"""Conditions: what `tests/language/conditions.yaml` cannot say in a row."""

import pytest

from workflowlookup.core.conditions import describe, evaluate
from workflowlookup.core.patterns import Budget


def test_a_slow_pattern_in_a_condition_is_given_up_and_does_not_hold():
    assert evaluate({"var": "s", "matches": "(a+)+$"}, {"s": "a" * 50_000 + "b"}, Budget()) is False


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"var": "size", "equals": "large"}, 'size equals "large"'),
        ({"var": "n", "gt": 1, "lte": 5}, "n is greater than 1 and n is at most 5"),
        ({"or": [{"var": "a"}, {"not": {"var": "b", "in": [1, 2]}}]}, "(a is true or not (b is one of 1, 2))"),
        ({}, "always"),
    ],
)
def test_a_condition_is_described_in_words(condition, words):
    assert describe(condition) == words
