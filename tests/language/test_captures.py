"""Variables out of outputs: where a value is found, what it is read as, and what is said of one that is missing."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.json_values import Json, JsonObject
from support.make import document, step
from support.narrowing import instance_of
from workflowlookup.language.captures import capture_values, value_in_line
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.formats import patterns
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import PromptStep

KIND = {"kind": {"enum": ["plain", "hidden"]}}


def captured(produces: JsonObject, output: str) -> tuple[JsonObject, list[str]]:
    built = instance_of(PromptStep, build(document(step(produces=produces))).steps["first-step"])
    result = capture_values(built.captures, output, Budget())
    return dict(result.values), [issue.message for issue in result.issues]


@pytest.mark.parametrize(
    "output",
    [
        "kind: plain",
        "Some words.\nkind: plain\nMore words.",
        "- kind: plain",
        "* **kind**: plain",
        "**kind:** plain",
        "**kind: plain**",
        "`kind`: `plain`",
        "`kind: plain`",
        '"kind": "plain"',
        "> kind: *plain*",
        "## kind: plain  ",
        "1. kind: 'plain'",
        "kind: - plain",
        "\u201ckind\u201d: \u201cplain\u201d",
        "kind: hidden\nkind: plain",
        '{"kind": "plain"}',
        '```json\n{"kind": "plain", "more": 1}\n```',
        "kind: PLAIN",
        "kind : plain",
    ],
)
def test_a_value_is_found_by_its_name(output: str) -> None:
    assert captured(KIND, output) == ({"kind": "plain"}, [])


@pytest.mark.parametrize(
    "output",
    ["It is plain.", "mankind: plain", "kind plain", "kind:", "kinds: plain", '{"other": "plain"}', "[1]", '"kind"'],
)
def test_other_lines_and_properties_are_ignored(output: str) -> None:
    values, (message,) = captured(KIND, output)

    assert values == {}
    assert message.startswith("kind is not in the output: expected one of 'plain', 'hidden'. Add the ")


def test_the_issue_says_exactly_what_to_add() -> None:
    assert captured(KIND, "words")[1] == [
        "kind is not in the output: expected one of 'plain', 'hidden'. Add the line `kind: plain`."
    ]
    assert captured(KIND, "kind: odd")[1] == [
        "kind is 'odd' in the output: expected one of 'plain', 'hidden'. Add the line `kind: plain`."
    ]
    assert captured(KIND, "{}")[1] == [
        "kind is not in the output: expected one of 'plain', 'hidden'. Add the property \"kind\": \"plain\"."
    ]


@pytest.mark.parametrize(
    ("declared", "output", "value"),
    [
        ({"type": "integer"}, "n: 42", 42),
        ({"type": "integer"}, "n: 42.0", 42),
        ({"type": "number"}, "n: 1.5", 1.5),
        ({"type": "boolean"}, "n: yes", True),
        ({"type": "boolean"}, "n: false", False),
        ({"type": "array"}, 'n: ["a", 1]', ["a", 1]),
        ({"type": "object"}, 'n: {"a": 1}', {"a": 1}),
        ({"type": "string"}, "n: 42", "42"),
        ({"type": ["integer", "string"]}, "n: many", "many"),
        ({"enum": [1, 2]}, "n: 2", 2),
        ({}, "n: *.py", "*.py"),
        ({}, "n: -5", "-5"),
        ({"type": "integer"}, '{"n": "42"}', 42),
        ({"type": ["null", "string"]}, '{"n": null}', None),
        ({"schema": {"type": "integer", "minimum": 3}}, "n: 3", 3),
        ({"type": "integer", "minimum": 3}, "n: 3", 3),
        ({"pattern": r"^v(\d+\.\d+)$", "flags": "m"}, "Now at\nv1.2\nv3.4", "1.2"),
        ({"pattern": r"\d+", "type": "integer"}, "about 12 or 13", 12),
        ({"pointer": "/a/0/b~1c"}, '{"a": [{"b/c": 7}]}', 7),
        ({"pointer": ""}, "[1, 2]", [1, 2]),
        ({"pointer": "/findings", "type": "array"}, '```\n{"findings": []}\n```', []),
    ],
)
def test_values_are_converted_and_checked(declared: JsonObject, output: str, value: Json) -> None:
    assert captured({"n": declared}, output) == ({"n": value}, [])


@pytest.mark.parametrize(
    ("declared", "output"),
    [
        ({"type": "integer"}, "n: 1.5"),
        ({"type": "integer", "minimum": 3}, "n: 2"),
        ({"schema": {"minLength": 9}}, "n: short"),
        ({"type": "array"}, "n: a, b"),
        ({"type": "number"}, "n: 1e999"),
        ({"type": "integer"}, f"n: {10**30}"),
        ({"pointer": "/x"}, "x: 1"),
        ({"pointer": "/x/y"}, '{"x": 1}'),
        ({"pattern": "v(\\d)"}, "none"),
        ({"pattern": "(a)?b"}, "b"),
        ({}, '{"n": null}'),
    ],
)
def test_what_is_missing_or_does_not_fit_is_an_issue(declared: JsonObject, output: str) -> None:
    values, issues = captured({"n": declared}, output)

    assert (values, len(issues)) == ({}, 1)


def test_an_optional_value_may_be_missing_and_must_fit_when_it_is_there() -> None:
    declared = {"n": {"type": "integer", "optional": True}}

    assert captured(declared, "words") == ({}, [])
    assert len(captured(declared, "n: many")[1]) == 1


def test_a_pattern_that_backtracks_too_long_is_given_up() -> None:
    values, (message,) = captured({"n": {"pattern": "(a|a)*(b|b)*$x"}}, "a" * 5_000 + "c")

    assert values == {}
    assert "n " in message


NAMES = st.from_regex(r"[a-zA-Z_$][\w$]{0,12}", fullmatch=True)
WORDS = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9 ./-]{0,20}[a-zA-Z0-9]", fullmatch=True)
AROUND = st.sampled_from(["", "*", "**", "`", '"', "'", "__", "~~"])


@given(NAMES, WORDS, st.sampled_from(["", "- ", "* ", "  ", "> ", "### ", "2. "]), AROUND, AROUND, st.booleans())
def test_marks_around_name_and_value_are_ignored(
    name: str, value: str, start: str, around_name: str, around_value: str, is_closed_late: bool
) -> None:
    label = f"{around_name}{name}:{around_name}" if is_closed_late else f"{around_name}{name}{around_name}:"

    assert value_in_line(f"{start}{label} {around_value}{value}{around_value}", name) == value


@given(st.text(max_size=200), NAMES)
def test_any_text_is_read_without_an_error(text: str, name: str) -> None:
    captured({name: {}}, text)
    assert "\n" not in value_in_line(text, name) or "\n" in text


@given(
    st.recursive(
        st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5), lambda one: st.lists(one, max_size=3)
    )
)
def test_a_json_property_is_not_converted(value: Json) -> None:
    assert captured({"n": {}}, json.dumps({"n": value})) == ({"n": value}, [])


@pytest.mark.parametrize(
    ("declared", "path", "message"),
    [
        ({"pattern": "("}, ("pattern",), "does not compile"),
        ({"pattern": "a", "flags": "x"}, ("pattern",), "unknown flag 'x'"),
        ({"flags": "m"}, ("flags",), "flags without a pattern"),
        ({"pattern": "a", "pointer": "/a"}, (), "both a pattern and a pointer"),
        ({"pointer": "a/b"}, ("pointer",), "a JSON pointer"),
        ({"typ": "string"}, ("typ",), "Unknown field 'typ'"),
        ({"type": "text"}, ("type",), "string, number, integer"),
        ({"schema": {"type": "text"}}, ("schema",), "malformed"),
        ({"enum": "plain"}, ("enum",), "list"),
    ],
)
def test_a_capture_that_can_find_nothing_is_an_error_with_its_path(
    declared: JsonObject, path: tuple[str, ...], message: str
) -> None:
    (finding, *_) = check(document(step(produces={"kind": declared})))

    assert finding.severity == "error"
    assert finding.path == ("steps", 0, "produces", "kind", *path)
    assert message in finding.message


def test_a_loop_cannot_capture_because_it_has_no_output() -> None:
    content = document(
        {"id": "each", "type": "loop", "title": "T", "body": [step()], "produces": KIND}
        | {"loop": {"type": "for", "count": 1, "maxIterations": 1}}
    )

    assert [finding.path for finding in check(content)] == [("steps", 0, "produces")]


def test_reading_very_many_lines_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "thread_time", itertools.count(1, patterns.SECONDS_PER_REQUEST / 4).__next__)

    assert captured({"risk": {"enum": ["low", "high"]}}, "note: x\n" * 20_000) == (
        {},
        ["risk was not found in time: reading this output took too long"],
    )
