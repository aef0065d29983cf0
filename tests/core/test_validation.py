"""Judging outputs: the rules one by one, and how they are put together."""

import time

import pytest

from workflowlookup.core.criteria import parse_criteria
from workflowlookup.core.patterns import SECONDS_PER_REQUEST, start_budget
from workflowlookup.core.validation import judge
from workflowlookup.errors import InvalidCriteria, InvalidWorkflow


def issues(criteria, output, context=None):
    start_budget()
    return [issue.message for issue in judge(parse_criteria(criteria), output, context or {}).issues]


def suggestions(criteria, output, context=None):
    return [issue.suggestion for issue in judge(parse_criteria(criteria), output, context or {}).issues]


def contains(value, message="m", **more):
    return {"type": "contains", "value": value, "message": message, **more}


def regex(pattern, flags="", message="m"):
    return {"type": "regex", "pattern": pattern, "flags": flags, "message": message}


def schema(schema, message="m"):
    return {"type": "schema", "schema": schema, "message": message}


PASSES = [
    ("no criteria, something said", None, "done"),
    ("an empty list is no criteria", [], "done"),
    ("contains", [contains("bye")], "good bye"),
    ("contains nothing", [contains("")], "x"),
    ("a pattern found anywhere", [regex("b+")], "abbc"),
    ("flag i", [regex("HELLO", "i")], "hello"),
    ("flag m", [regex("^b$", "m")], "a\nb\nc"),
    ("flag s", [regex("a.b", "s")], "a\nb"),
    ("flags g and u change nothing", [regex("a", "gu")], "xa"),
    ("flag y at the start", [regex("a", "y")], "ab"),
    ("a named group as in ECMAScript", [regex(r"(?<q>['\"])x\k<q>")], "'x'"),
    ("a named group as in Python", [regex(r"(?P<q>['\"])x(?P=q)")], '"x"'),
    ("any character at all", [regex("a[^]b")], "a\nb"),
    ("a code point in braces", [regex(r"\u{1F600}", "u")], "😀"),
    ("a bracket inside a class", [regex("[[]a")], "[a"),
    ("a dollar inside a class", [regex("[$]5")], "$5"),
    ("an escaped dollar", [regex(r"\$5$")], "$5"),
    ("a plain string is a pattern", "ok", "it is ok"),
    ("a plain string in a list", ["^ok"], "ok then"),
    ("length in bounds", [{"type": "length", "min": 2, "max": 3, "message": "m"}], "abc"),
    ("length counts characters, not units", [{"type": "length", "max": 1, "message": "m"}], "😀"),
    ("length without bounds", [{"type": "length", "message": "m"}], ""),
    ("schema", [schema({"type": "object", "required": ["a"]})], '{"a": 1}'),
    ("schema inside a code fence", [schema({"type": "object"})], "```json\n{}\n```"),
    ("schema inside a fence without a language", [schema({"type": "array"})], " ```\n[1]\n```\n"),
    (
        "schema of another draft",
        [schema({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"})],
        "{}",
    ),
    ("unknown keywords are ignored", [schema({"type": "object", "unknownWord": 1})], "{}"),
    ("a boolean schema", [schema(True)], "1"),
    ("and", {"and": [contains("a"), contains("b")]}, "ab"),
    ("or", {"or": [contains("z"), contains("b")]}, "ab"),
    ("not", {"not": contains("z")}, "ab"),
    ("nested", {"and": [contains("a"), {"or": [contains("z"), {"not": contains("y")}]}]}, "a"),
    ("a rule whose condition fails is left out", [contains("z", condition={"var": "big"})], "a"),
    ("a group with nothing left passes", {"or": [contains("z", condition={"var": "big"})]}, "a"),
    ("not with nothing left passes", {"not": contains("a", condition={"var": "big"})}, "a"),
]


@pytest.mark.parametrize(("criteria", "output"), [row[1:] for row in PASSES], ids=[row[0] for row in PASSES])
def test_the_output_passes(criteria, output):
    assert issues(criteria, output) == []


FAILS = [
    ("no criteria, nothing said", None, " \n\t", ["Output is empty or invalid."]),
    ("contains counts the case", [contains("Bye", "say bye")], "bye", ["say bye"]),
    ("contains, no message", [contains("gone", "")], "x", ['Output must include "gone"']),
    ("every failing rule, in order", [contains("a", "1"), contains("b", "2"), contains("c", "3")], "b", ["1", "3"]),
    ("the dollar is the very end", [regex("^b$")], "b\n", ["m"]),
    ("flag y not at the start", [regex("b", "y")], "ab", ["m"]),
    ("no character", [regex("[]")], "a", ["m"]),
    ("a pattern without a message", [regex("z", "", "")], "a", ["Output does not match pattern z"]),
    ("a plain string", "^ok$", "not", ["Output must match the pattern ^ok$"]),
    ("too short", [{"type": "length", "min": 9, "message": "short"}], "hello", ["short"]),
    (
        "too short, no message",
        [{"type": "length", "min": 9, "message": ""}],
        "x",
        ["Output shorter than minimum length 9"],
    ),
    ("too long", [{"type": "length", "max": 3, "message": "long"}], "hello", ["long"]),
    ("not JSON", [schema({"type": "object"}, "bad object")], "no json", ["bad object"]),
    ("two fences are not one", [schema({})], "```\n1\n```\n```\n2\n```", ["m"]),
    ("format is checked", [schema({"type": "string", "format": "email"})], '"nobody"', ["m"]),
    ("and tells all that fail", {"and": [contains("a", "1"), contains("b", "2")]}, "x", ["1", "2"]),
    (
        "or is led by one sentence",
        {"or": [contains("a", "1"), contains("b", "2")]},
        "x",
        ["One of these 2 alternatives is needed:", "1", "2"],
    ),
    (
        "not says what must not be there",
        {"not": contains("fine", "too vague")},
        "fine",
        ['The output must not meet this: The output contains the text "fine" (with this case): too vague'],
    ),
    (
        "a rule left out of or neither passes nor fails",
        {"or": [contains("z", condition={"var": "big"}), contains("y", "2")]},
        "x",
        ["2"],
    ),
]


@pytest.mark.parametrize(("criteria", "output", "expected"), [row[1:] for row in FAILS], ids=[row[0] for row in FAILS])
def test_the_output_fails(criteria, output, expected):
    assert issues(criteria, output) == expected


def test_a_rule_counts_when_its_condition_holds():
    criteria = [contains("tests", "Large tasks need tests", condition={"var": "size", "equals": "large"})]

    assert issues(criteria, "x", {"size": "large"}) == ["Large tasks need tests"]
    assert issues(criteria, "x", {"size": "small"}) == []


@pytest.mark.parametrize(
    ("criteria", "output", "suggestion"),
    [
        ([contains("Bye")], "bye", 'Include the text "Bye" in the output. The case counts.'),
        ([regex("a", "i")], "x", "Change the output so that it matches the pattern a (flags i)."),
        (
            [{"type": "length", "min": 9, "message": "m"}],
            "hello",
            "Add at least 4 more characters (now 5, at least 9 are needed).",
        ),
        ([{"type": "length", "max": 3, "message": "m"}], "hello", "Remove at least 2 characters (now 5, at most 3)."),
        (
            [
                schema(
                    {
                        "properties": {"age": {"type": "number"}, "to": {"required": ["x"]}},
                        "additionalProperties": False,
                    }
                )
            ],
            '{"age": "old", "to": {}, "agee": 1}',
            "Mend the JSON: age must be a number; found 'old'; to.x is required; unknown field 'agee' (did you mean 'age'?).",
        ),
    ],
    ids=["contains", "regex", "short", "long", "schema"],
)
def test_the_suggestion_is_about_what_failed(criteria, output, suggestion):
    assert suggestions(criteria, output) == [suggestion]


def test_a_catastrophic_pattern_is_given_up_with_an_issue_that_says_so():
    slow = [regex("(a+)+$", message="m"), *[regex(f"(b+)+{n}$") for n in range(50)], contains("zzz", "still told")]

    found = issues(slow, "a" * 50_000 + "b" * 50_000 + "!")

    assert found[0] == "The pattern (a+)+$ took too long on this output and was given up"
    assert found[-1] == "still told"


SLOW = [
    ("." * 4000 + "[bc]", "a" * 400_000),
    (r"(a+)\g<1>[bc]", "a" * 1_414),
    ("(a|aa)" * 12 + "[bc]", "a" * 480),
    ("a*a*a*a*[bc]", "a" * 2_000),
    (r"(a*)\1\1[bc]", "a" * 3_000),
    ("(?=a*a*a*[bc])x", "a" * 3_000),
    ("a?" * 30 + "a" * 30, "a" * 29),
    ("(?:a?)?" * 20 + "[bc]", "a" * 200),
]


@pytest.mark.parametrize(("pattern", "output"), SLOW, ids=[row[0][:20] for row in SLOW])
def test_many_slow_patterns_cost_no_more_than_a_few(pattern, output):
    started = time.process_time()

    issues([regex(pattern)] * 40, output)

    assert time.process_time() - started < 20 * SECONDS_PER_REQUEST  # without the budget it would be minutes


@pytest.mark.parametrize("blanks", [60_000, 400_000])
def test_looking_for_a_code_fence_takes_no_longer_than_reading(blanks):
    started = time.process_time()

    assert issues([schema({})], "```\n" + " " * blanks) == ["m"]
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("pattern", "output"),
    [("a{e<=2}", "a{e<=2}"), (r"\g", "g"), ("x{1}", "x")],
    ids=["braces", "letter", "quantifier"],
)
def test_what_is_plain_in_ecmascript_is_plain_here(pattern, output):
    assert issues([regex(pattern)], output) == []


@pytest.mark.parametrize(
    "criteria",
    [
        [regex("a++")],
        5,
        {"type": "nonsense", "message": "m"},
        {"type": "contains", "message": "no value"},
        {"type": "regex", "message": "no pattern"},
        {"and": []},
        {"and": [contains("a")], "or": [contains("b")]},
        [regex("[bad")],
        [regex("a", "q")],
        [regex("a" * 5000)],
        [[[[7]]]],
    ],
    ids=[
        "possessive",
        "number",
        "type",
        "value",
        "pattern",
        "empty-and",
        "and-or",
        "bad-pattern",
        "bad-flag",
        "long-pattern",
        "nested",
    ],
)
def test_criteria_that_are_not_well_formed_are_refused(criteria):
    with pytest.raises(InvalidCriteria) as refusal:
        issues(criteria, "x")
    assert refusal.value.data["details"]


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/x.json"},
        {"$ref": "file:///etc/passwd"},
    ],
    ids=["type", "pointer", "http", "file"],
)
def test_a_malformed_json_schema_is_an_invalid_workflow_and_nothing_is_fetched(bad):
    with pytest.raises(InvalidWorkflow) as refusal:
        issues([schema(bad)], "{}")
    assert refusal.value.data["details"].startswith("Invalid JSON schema: ")
