"""Judging outputs: suggestions, limits and refusals. What passes and what fails: `tests/language/rules.yaml`."""

import time
from collections.abc import Callable

import pytest

from support.json_values import Json, JsonObject
from support.make import check_of
from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language import rules
from workflowlookup.language.formats.pattern_words import pattern_in_words
from workflowlookup.language.formats.patterns import SECONDS_PER_REQUEST, Budget
from workflowlookup.language.validation import judge


def issues(criteria: Json, output: str, context: JsonObject | None = None) -> list[str]:
    return [issue.message for issue in judge(check_of(criteria), output, context or {}, Budget()).issues]


def suggestions(criteria: Json, output: str, context: JsonObject | None = None) -> list[str]:
    return [issue.suggestion for issue in judge(check_of(criteria), output, context or {}, Budget()).issues]


def contains(value: Json, message: str = "m", **more: Json) -> JsonObject:
    return {"type": "contains", "value": value, "message": message, **more}


def regex(pattern: str, flags: str = "", message: str = "m") -> JsonObject:
    return {"type": "regex", "pattern": pattern, "flags": flags, "message": message}


def schema(schema: JsonObject, message: str = "m") -> JsonObject:
    return {"type": "schema", "schema": schema, "message": message}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("^(PASS|FAIL)", 'begin with "PASS" or "FAIL"'),
        (r"1\.5", 'contain "1.5"'),
        (r"\| Severity \|", ""),
        (r"(a\|b|c)", ""),
        (r"\d+", ""),
    ],
)
def test_only_simple_patterns_are_put_into_words(pattern: str, words: str) -> None:
    assert pattern_in_words(pattern, "") == words


@pytest.mark.parametrize(
    ("criteria", "output", "suggestion"),
    [
        ([contains("Bye")], "bye", 'Include the text "Bye" in the output. The case matters.'),
        ([regex("a", "i")], "x", 'The output must contain "a".'),
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
            "Fix the JSON: age must be a number; found 'old'; to.x is required; unknown field 'agee' (did you mean 'age'?).",
        ),
    ],
    ids=["contains", "regex", "short", "long", "schema"],
)
def test_the_suggestion_is_about_what_failed(criteria: list[JsonObject], output: str, suggestion: str) -> None:
    assert suggestions(criteria, output) == [suggestion]


def test_a_catastrophic_pattern_is_given_up_with_an_issue_that_says_so() -> None:
    slow = [regex("(a+)+$", message="m"), *[regex(f"(b+)+{n}$") for n in range(50)], contains("zzz", "still reported")]

    messages = issues(slow, "a" * 50_000 + "b" * 50_000 + "!")

    assert messages[0] == "The pattern (a+)+$ took too long on this output and was given up"
    assert messages[-1] == "still reported"


def test_a_rule_whose_condition_takes_too_long_is_undecided_and_so_is_its_opposite() -> None:
    condition = {"var": "s", "matches": "(a+)+$"}
    rule, context = {**contains("REVIEWED", "Needs a review."), "condition": condition}, {"s": "a" * 50_000 + "b"}
    why = 'it applies only if s matches "(a+)+$", and evaluating that took too long'

    for criteria, output in (([rule], "x"), ({"not": rule}, "x"), ({"not": rule}, "REVIEWED")):
        assert issues(criteria, output, context) == [f"Needs a review: a rule cannot be judged, because {why}."]


def test_without_criteria_an_invisible_output_is_refused() -> None:
    assert issues(None, "\u200b\u2800\x00") == ["Output is empty or invalid."]
    assert issues(None, "\u200bdone") == []


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
def test_many_slow_patterns_cost_no_more_than_a_few(pattern: str, output: str) -> None:
    started = time.process_time()

    issues([regex(pattern)] * 40, output)

    assert time.process_time() - started < 20 * SECONDS_PER_REQUEST  # without the budget it would be minutes


@pytest.mark.parametrize("blanks", [60_000, 400_000])
def test_finding_a_code_fence_takes_linear_time(blanks: int) -> None:
    started = time.process_time()

    assert issues([schema({})], "```\n" + " " * blanks) == ["m"]
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("pattern", "output"),
    [("a{e<=2}", "a{e<=2}"), (r"\g", "g"), ("x{1}", "x")],
    ids=["braces", "letter", "quantifier"],
)
def test_what_is_literal_in_ecmascript_is_literal_here(pattern: str, output: str) -> None:
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
def test_malformed_criteria_are_refused_with_the_reason(criteria: Json) -> None:
    with pytest.raises(InvalidCriteria) as refusal:
        issues(criteria, "x")
    assert refusal.value.data["details"]


def test_a_malformed_json_schema_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidWorkflow) as refusal:
        issues([schema({"type": "nonsense"})], "{}")
    assert refusal.value.data["details"].startswith("Invalid JSON schema: ")


def test_a_refusal_does_not_contain_an_earlier_output() -> None:
    flawed = check_of([{"type": "regex", "pattern": "(", "message": "m"}])
    problems = []
    for output in ("first", "second"):
        with pytest.raises(InvalidCriteria) as refused:
            judge(flawed, output, {}, Budget())
        problems.append(refused.value.__cause__)

    assert problems[0] is not problems[1]


def test_a_rule_that_cannot_be_applied_is_refused_when_it_applies() -> None:
    criteria = check_of([{"type": "regex", "pattern": "(", "message": "m", "condition": {"var": "strict"}}])

    assert judge(criteria, "abc", {}, Budget()).valid
    with pytest.raises(InvalidCriteria):
        judge(criteria, "abc", {"strict": True}, Budget())


def test_a_rule_that_does_not_apply_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_pattern(pattern: str, *_: object) -> Callable[..., bool]:
        compiled.append(pattern)
        return lambda *_: True

    monkeypatch.setattr(rules, "compile_pattern", compile_pattern)
    never = {"type": "regex", "pattern": "never", "message": "m", "condition": {"var": "no"}}
    criteria = check_of([never, {"type": "regex", "pattern": "always", "message": "m"}])

    assert judge(criteria, "abc", {}, Budget()).valid
    assert compiled == ["always"]
