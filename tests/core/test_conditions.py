"""Conditions: what holds and what does not, as a table."""

import pytest

from workflowlookup.core.conditions import OPERATORS, describe, evaluate

HOLDS = [
    # several operators in one object: all must hold
    ("a range holds inside", {"var": "n", "gt": 0, "lt": 5}, {"n": 3}),
    ("var and and hold together", {"var": "a", "equals": 1, "and": [{"var": "b", "equals": 2}]}, {"a": 1, "b": 2}),
    ("var alone with or", {"var": "a", "or": [{"var": "b"}, {"var": "c"}]}, {"a": 1, "c": 1}),
    # equality as a person means it
    ("text without case", {"var": "s", "equals": "large"}, {"s": "LARGE"}),
    ("text without outer blanks", {"var": "s", "equals": " large "}, {"s": "large\n"}),
    ("text that reads as the number", {"var": "n", "equals": 42}, {"n": "42"}),
    ("a number against text", {"var": "n", "equals": "42.0"}, {"n": 42}),
    ("an exponent reads as a number", {"var": "n", "equals": 1000}, {"n": "1e3"}),
    ("yes is true", {"var": "f", "equals": True}, {"f": "YES"}),
    ("1 as text is true", {"var": "f", "equals": True}, {"f": "1"}),
    ("no is false", {"var": "f", "equals": False}, {"f": "no"}),
    ("0 as text is false", {"var": "f", "equals": "0"}, {"f": False}),
    ("lists are equal when deeply equal", {"var": "l", "equals": [1, {"a": 2}]}, {"l": [1, {"a": 2}]}),
    ("objects are equal whatever their order", {"var": "o", "equals": {"a": 1, "b": 2}}, {"o": {"b": 2, "a": 1}}),
    ("one and one point nought", {"var": "l", "equals": [1]}, {"l": [1.0]}),
    ("null equals null", {"var": "x", "equals": None}, {"x": None}),
    ("null equals a missing variable", {"var": "x", "equals": None}, {}),
    ("not_equals holds for a missing variable", {"var": "x", "not_equals": "a"}, {}),
    ("not_equals of something else", {"var": "x", "not_equals": "a"}, {"x": "b"}),
    # order
    ("gt", {"var": "n", "gt": 0.5}, {"n": 0.7}),
    ("gt with text that reads as a number", {"var": "n", "gt": 5}, {"n": "10"}),
    ("gte at the edge", {"var": "n", "gte": 0.7}, {"n": 0.7}),
    ("lt", {"var": "n", "lt": "5"}, {"n": 4}),
    ("lte at the edge", {"var": "n", "lte": 85}, {"n": 85}),
    # sets, text, existence
    ("in", {"var": "s", "in": ["small", "Large"]}, {"s": "large"}),
    ("in with a missing variable and null", {"var": "s", "in": [None]}, {}),
    ("contains in text, without case", {"var": "s", "contains": "TEST"}, {"s": "a test case"}),
    ("contains in a list", {"var": "l", "contains": "b"}, {"l": ["A", "B"]}),
    ("contains a number in a list", {"var": "l", "contains": "2"}, {"l": [1, 2]}),
    ("startsWith", {"var": "s", "startsWith": "src/"}, {"s": "SRC/a.py"}),
    ("endsWith", {"var": "s", "endsWith": ".py"}, {"s": "a.PY "}),
    ("startsWith of a number", {"var": "n", "startsWith": "4"}, {"n": 42}),
    ("matches anywhere, without case", {"var": "s", "matches": "fix(es|ed)"}, {"s": "This FIXED it"}),
    ("exists", {"var": "x", "exists": True}, {"x": 0}),
    ("exists false for a missing variable", {"var": "x", "exists": False}, {}),
    ("exists false for null", {"var": "x", "exists": False}, {"x": None}),
    # var alone
    ("var alone: a number", {"var": "x"}, {"x": 1}),
    ("var alone: text", {"var": "x"}, {"x": "large"}),
    ("var alone: a filled list", {"var": "x"}, {"x": [0]}),
    # where variables are found
    ("the literal key first", {"var": "a.b", "equals": 1}, {"a.b": 1, "a": {"b": 2}}),
    ("then a dotted path", {"var": "task.size", "equals": "large"}, {"task": {"size": "large"}}),
    ("an index into a list", {"var": "items.1", "equals": "b"}, {"items": ["a", "b"]}),
    # logic
    ("an empty condition", {}, {}),
    ("and of nothing", {"and": []}, {}),
    ("not of something false", {"not": {"var": "a", "equals": 1}}, {"a": 2}),
    ("not of or of nothing", {"not": {"or": []}}, {}),
    ("nested logic", {"or": [{"and": [{"var": "a"}, {"var": "b"}]}, {"not": {"var": "a"}}]}, {"b": 1}),
]

FAILS = [
    ("a range fails outside", {"var": "n", "gt": 0, "lt": 5}, {"n": 7}),
    ("the second operator counts too", {"var": "a", "equals": 1, "gt": 100}, {"a": 1}),
    ("and beside var counts too", {"var": "a", "equals": 1, "and": [{"var": "b", "equals": 9}]}, {"a": 1, "b": 0}),
    ("a number is never a boolean", {"var": "f", "equals": True}, {"f": 1}),
    ("nought is never false", {"var": "f", "equals": False}, {"f": 0}),
    ("true is not 1 inside a list", {"var": "l", "equals": [1]}, {"l": [True]}),
    ("empty text is no number", {"var": "n", "equals": 0}, {"n": ""}),
    ("empty text is not false", {"var": "f", "equals": False}, {"f": ""}),
    ("hexadecimal is no number", {"var": "n", "equals": 255}, {"n": "0xff"}),
    ("an underscore is no digit", {"var": "n", "equals": 1000}, {"n": "1_000"}),
    ("nan is no number", {"var": "n", "gt": -1}, {"n": "nan"}),
    ("infinity is no number", {"var": "n", "gt": 1}, {"n": "inf"}),
    ("null is not false", {"var": "x", "equals": False}, {"x": None}),
    ("null is not empty text", {"var": "x", "equals": ""}, {}),
    ("a missing variable equals nothing", {"var": "x", "equals": "a"}, {}),
    ("not_equals of the same", {"var": "x", "not_equals": "A"}, {"x": "a"}),
    ("null is in no order", {"var": "n", "lt": 5}, {"n": None}),
    ("a boolean is in no order", {"var": "n", "gte": 1}, {"n": True}),
    ("a list is in no order", {"var": "n", "gt": 0}, {"n": [1]}),
    ("in without a match", {"var": "s", "in": ["a"]}, {"s": "b"}),
    ("in of nothing", {"var": "s", "in": []}, {"s": "b"}),
    ("contains in a number's text", {"var": "n", "contains": "5"}, {"n": 42}),
    ("contains of an object", {"var": "o", "contains": "a"}, {"o": {"a": 1}}),
    ("startsWith of null", {"var": "x", "startsWith": ""}, {}),
    ("a pattern that does not compile", {"var": "s", "matches": "["}, {"s": "["}),
    ("exists for a missing variable", {"var": "x", "exists": True}, {}),
    ("var alone: missing", {"var": "x"}, {}),
    ("var alone: null", {"var": "x"}, {"x": None}),
    ("var alone: false", {"var": "x"}, {"x": False}),
    ("var alone: nought", {"var": "x"}, {"x": 0}),
    ("var alone: blank text", {"var": "x"}, {"x": "  "}),
    ("var alone: text that reads as false", {"var": "x"}, {"x": "No"}),
    ("var alone: nought as text", {"var": "x"}, {"x": "0"}),
    ("var alone: an empty list", {"var": "x"}, {"x": []}),
    ("var alone: an empty object", {"var": "x"}, {"x": {}}),
    ("only the context's own keys", {"var": "constructor"}, {}),
    ("no attribute of a list", {"var": "l.append"}, {"l": []}),
    ("an index out of range", {"var": "l.5"}, {"l": [1]}),
    ("a path through text", {"var": "s.0"}, {"s": "abc"}),
    ("or of nothing", {"or": []}, {}),
    ("and of one that fails", {"and": [{"var": "a"}, {"var": "b"}]}, {"a": 1}),
]


@pytest.mark.parametrize(("condition", "context"), [row[1:] for row in HOLDS], ids=[row[0] for row in HOLDS])
def test_the_condition_holds(condition, context):
    assert evaluate(condition, context) is True


@pytest.mark.parametrize(("condition", "context"), [row[1:] for row in FAILS], ids=[row[0] for row in FAILS])
def test_the_condition_does_not_hold(condition, context):
    assert evaluate(condition, context) is False


def test_every_operator_has_a_row_that_holds_and_one_that_fails():
    def used(rows):
        return {key for _, condition, _ in rows for key in condition}

    assert set(OPERATORS) <= used(HOLDS)
    assert set(OPERATORS) - used(FAILS) <= {"lte", "endsWith"}


def test_a_slow_pattern_in_a_condition_is_given_up_and_does_not_hold():
    assert evaluate({"var": "s", "matches": "(a+)+$"}, {"s": "a" * 50_000 + "b"}) is False


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
