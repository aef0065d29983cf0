"""Judging outputs: suggestions, limits and refusals. What passes and what fails: `tests/language/rules.yaml`."""

import pytest

from workflowlookup.core.criteria import parse_criteria
from workflowlookup.core.validation import judge
from workflowlookup.errors import InvalidCriteria, InvalidWorkflow


def issues(criteria, output, context=None):
    return [issue.message for issue in judge(parse_criteria(criteria), output, context or {}).issues]


def suggestions(criteria, output, context=None):
    return [issue.suggestion for issue in judge(parse_criteria(criteria), output, context or {}).issues]


def contains(value, message="m", **more):
    return {"type": "contains", "value": value, "message": message, **more}


def regex(pattern, flags="", message="m"):
    return {"type": "regex", "pattern": pattern, "flags": flags, "message": message}


def schema(schema, message="m"):
    return {"type": "schema", "schema": schema, "message": message}


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


@pytest.mark.parametrize(
    "criteria", [[regex("a" * 5000)], {"and": [contains("a")], "or": []}], ids=["long-pattern", "and-or"]
)
def test_criteria_that_are_not_well_formed_are_refused_with_the_reason(criteria):
    with pytest.raises(InvalidCriteria) as refusal:
        issues(criteria, "x")
    assert refusal.value.data["details"]


def test_a_malformed_json_schema_is_refused_with_the_reason():
    with pytest.raises(InvalidWorkflow) as refusal:
        issues([schema({"type": "nonsense"})], "{}")
    assert refusal.value.data["details"].startswith("Invalid JSON schema: ")
