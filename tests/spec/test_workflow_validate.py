"""workflow_validate: the output of a step, judged by the author's rules."""

import json
from pathlib import Path
from typing import Any

import pytest

from spec.roads import Ask, Publish, failure, invalid_params, success
from support.json_values import Json, JsonObject
from support.make import loop, step

RULES: JsonObject = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))["rules"]
VALID = {"valid": True, "issues": [], "suggestions": []}


def has(value: str, message: str = "", **fields: Json) -> JsonObject:
    return {"type": "contains", "value": value, "message": message or f"Must include {value}", **fields}


class Judge:
    """Judges outputs by criteria, each time in a workflow of its own."""

    def __init__(self, ask: Ask, publish: Publish) -> None:
        self._ask, self._publish = ask, publish

    def __call__(self, criteria: Json, output: str, context: JsonObject | None = None) -> JsonObject:
        workflow = self._publish(step("only-step", validationCriteria=criteria))
        arguments = {"workflowId": workflow, "stepId": "only-step", "output": output}
        return self._ask("workflow_validate", arguments if context is None else {**arguments, "context": context})

    def issues(self, criteria: Json, output: str, context: JsonObject | None = None) -> list[str]:
        """What is wrong; checks that the rest of the verdict agrees."""
        verdict = self(criteria, output, context)["result"]
        assert verdict.keys() == {"valid", "issues", "suggestions"}
        assert verdict["valid"] is (verdict["issues"] == [])
        assert bool(verdict["suggestions"]) is bool(verdict["issues"])
        return list(verdict["issues"])


@pytest.fixture
def judge(ask: Ask, publish: Publish) -> Judge:
    return Judge(ask, publish)


# ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────

ARGUMENTS = {"workflowId": "some-workflow", "stepId": "some-step", "output": "Done."}


@pytest.mark.spec(
    "001/workflow_validate/workflow-id",
    "001/workflow_validate/step-id",
    "001/workflow_validate/output",
    "001/codes/-32602",
)
@pytest.mark.parametrize("missing", ARGUMENTS)
def test_workflow_id_step_id_and_output_are_required(ask: Ask, missing: str) -> None:
    arguments = {name: value for name, value in ARGUMENTS.items() if name != missing}

    assert ask("workflow_validate", arguments) == invalid_params(f"{missing} is required")


@pytest.mark.spec("001/workflow_validate/context", "001/workflow_validate/output")
@pytest.mark.parametrize("context", [None, {}, {"unused": {"deep": [1]}}], ids=["missing", "empty", "unused"])
def test_the_context_is_optional(judge: Judge, context: JsonObject | None) -> None:
    assert judge([has("tests")], "All tests pass.", context) == success(VALID)


@pytest.mark.spec("001/workflow_validate/step-id")
def test_each_step_is_judged_by_its_own_criteria(ask: Ask, publish: Publish) -> None:
    workflow = publish(
        step("first-step", validationCriteria=[has("one")]), step("second-step", validationCriteria=[has("two")])
    )

    verdicts = [
        ask.result("workflow_validate", {"workflowId": workflow, "stepId": name, "output": "one"})["issues"]
        for name in ("first-step", "second-step")
    ]

    assert verdicts == [[], ["Must include two"]]


@pytest.mark.spec("001/workflow_validate/step-id", "001/workflow_next/step-id")
@pytest.mark.parametrize(
    ("name", "issues"), [("review", []), ("review@1", []), ("review@2", ["Must include second"])], ids=str
)
def test_in_a_loop_the_id_may_carry_the_iteration_and_its_variables_count(
    ask: Ask, publish: Publish, name: str, issues: list[str]
) -> None:
    rule = has("second", condition={"var": "currentItem", "equals": "b"})
    body = [step("review", validationCriteria=[rule])]
    workflow = publish(loop("each-file", body, type="forEach", items="files"))
    arguments = {"workflowId": workflow, "stepId": name, "output": "first", "context": {"files": ["a", "b"]}}

    assert ask.result("workflow_validate", arguments)["issues"] == issues


@pytest.mark.spec("001/workflow_validate/issues")
@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"type": "contains", "value": "tests"}, "tests"),
        ({"type": "regex", "pattern": "^x+$"}, "^x+$"),
        ({"type": "length", "min": 100}, "100"),
        ({"type": "schema", "schema": {"type": "object"}}, "JSON"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_an_empty_message_gets_a_default_that_names_the_rule(judge: Judge, rule: JsonObject, named: str) -> None:
    (issue,) = judge.issues([{**rule, "message": ""}], "Done.")

    assert named in issue


@pytest.mark.spec("001/workflow_validate/output", "001/workflow_validate/valid")
@pytest.mark.parametrize("criteria", [None, []], ids=["none", "empty list"])
@pytest.mark.parametrize(("output", "valid"), [("Anything at all.", True), (" \n\t", False)])
def test_without_criteria_any_output_that_is_not_blank_is_valid(
    ask: Ask, publish: Publish, criteria: Json, output: str, valid: bool
) -> None:
    workflow = publish(step("only-step", **({} if criteria is None else {"validationCriteria": criteria})))

    verdict = ask.result("workflow_validate", {"workflowId": workflow, "stepId": "only-step", "output": output})

    assert verdict["valid"] is valid


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_validate/valid", "001/workflow_validate/issues", "001/workflow_validate/suggestions")
def test_an_output_that_meets_every_rule_is_valid_without_issues_and_suggestions(judge: Judge) -> None:
    assert judge([has("login"), has("logout")], "Made login and logout.") == success(VALID)


@pytest.mark.spec("001/workflow_validate/valid", "001/workflow_validate/issues", "001/workflow_validate/suggestions")
def test_an_output_that_fails_gets_every_failing_rules_message_in_order_and_what_to_do(judge: Judge) -> None:
    criteria = [has("one"), has("two"), {"type": "length", "min": 100, "message": "Say more"}]

    verdict = judge(criteria, "only two")["result"]

    assert (verdict["valid"], verdict["issues"]) == (False, ["Must include one", "Say more"])
    first, *others = verdict["suggestions"]
    assert first == "Review validation criteria and adjust output accordingly."
    assert ["one" in others[0], "92" in others[1], len(others)] == [True, True, 2]


# ── JSON Schema ─────────────────────────────────────────────────────────────────────────────────────────────────

ENDPOINT = {"endpoint": "/api/users", "method": "GET", "authentication": True}


@pytest.mark.spec("001/workflow_validate/json-schema", "001/workflow_validate/schema")
@pytest.mark.parametrize(
    ("output", "valid"),
    [
        (json.dumps(ENDPOINT), True),
        (json.dumps({"endpoint": "/api/", "method": "DELETE"}), True),
        (json.dumps({**ENDPOINT, "endpoint": "/users"}), False),
        (json.dumps({**ENDPOINT, "method": "PATCH"}), False),
        (json.dumps({**ENDPOINT, "authentication": "yes"}), False),
        (json.dumps({"endpoint": "/api/users"}), False),
        ("[]", False),
        ("I made the endpoint /api/users.", False),
        (f"```json\n{json.dumps(ENDPOINT, indent=2)}\n```", True),
        (f"Here it is:\n```json\n{json.dumps(ENDPOINT)}\n```", False),
    ],
    ids=[
        "all fields",
        "required fields",
        "pattern",
        "enum",
        "type",
        "missing field",
        "array",
        "prose",
        "in a code fence",
        "prose and a code fence",
    ],
)
def test_the_schema_rule_of_the_spec_checks_the_output(judge: Judge, output: str, valid: bool) -> None:
    expected = [] if valid else ["API endpoint must follow required structure"]

    assert judge.issues([RULES["schema"]], output) == expected


@pytest.mark.spec("001/workflow_validate/schema")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"format": "email"}, '"a@b.org"', '"nobody"'),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}]}, "[null]", "[1]"),
        ({"prefixItems": [{"type": "null"}]}, "[null]", "[1]"),
        ({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}, "1", "1.5"),
        ({"type": "string", "x-note": "unknown keywords do not count"}, '"a"', "1"),
        ({"type": "integer"}, "1", "true"),
        (False, None, "1"),
        (True, "1", "{"),
    ],
    ids=["format", "draft 7", "2020-12", "references", "unknown keywords", "true is no number", "false", "true"],
)
def test_a_schema_may_be_of_any_draft(judge: Judge, schema: Json, good: str | None, bad: str) -> None:
    rule = {"type": "schema", "schema": schema, "message": "Does not fit"}

    assert good is None or judge.issues([rule], good) == []
    assert judge.issues([rule], bad) == ["Does not fit"]


# ── context-aware rules ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_validate/context-aware", "001/workflow_validate/context")
@pytest.mark.parametrize(
    ("context", "issues"),
    [
        ({"taskScope": "large"}, ["Large tasks require comprehensive testing"]),
        ({"taskScope": "small"}, []),
        ({}, []),
        (None, []),
    ],
    ids=["holds", "does not hold", "empty", "missing"],
)
def test_the_context_aware_rule_of_the_spec_applies_to_large_tasks_only(
    judge: Judge, context: JsonObject | None, issues: list[str]
) -> None:
    assert judge.issues([RULES["contextAware"]], "Wrote some tests.", context) == issues


@pytest.mark.spec("001/workflow_validate/rule-condition")
@pytest.mark.parametrize(
    "rule",
    [
        {"type": "contains", "value": "missing"},
        {"type": "regex", "pattern": "^missing$"},
        {"type": "length", "min": 1000},
        {"type": "schema", "schema": {"type": "object"}},
    ],
    ids=lambda rule: rule["type"],
)
def test_every_type_of_rule_may_have_a_condition(judge: Judge, rule: JsonObject) -> None:
    conditional = {**rule, "message": "Applies", "condition": {"var": "strict", "equals": True}}

    assert judge.issues([conditional], "Done.", {"strict": True}) == ["Applies"]
    assert judge.issues([conditional], "Done.", {"strict": False}) == []


# ── composition ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_validate/composition", "001/workflow_validate/composition-or")
@pytest.mark.parametrize(
    ("output", "issues"),
    [
        ("authentication by jwt", []),
        ("authentication by session", []),
        ("jwt", ["Must include authentication"]),
        ("authentication", ["Should use JWT", "Should use sessions"]),
        ("nothing", ["Must include authentication", "Should use JWT", "Should use sessions"]),
    ],
)
def test_the_composition_of_the_spec_wants_authentication_by_one_of_two_means(
    judge: Judge, output: str, issues: list[str]
) -> None:
    actual = judge.issues(RULES["composition"], output)

    assert [issue for issue in actual if not issue.startswith("One of ")] == issues


@pytest.mark.spec("001/workflow_validate/composition-and")
@pytest.mark.parametrize(
    ("output", "issues"),
    [("a b", []), ("a", ["Must include b"]), ("b", ["Must include a"]), ("-", ["Must include a", "Must include b"])],
)
def test_and_requires_every_rule_and_lists_all_that_fail(judge: Judge, output: str, issues: list[str]) -> None:
    assert judge.issues({"and": [has("a"), has("b")]}, output) == issues


@pytest.mark.spec("001/workflow_validate/composition-or")
def test_or_requires_one_rule_and_lists_the_alternatives(judge: Judge) -> None:
    criteria = {"or": [has("a"), has("b")]}

    assert [judge.issues(criteria, output) for output in ("a b", "a", "b")] == [[], [], []]
    lead, *alternatives = judge.issues(criteria, "-")
    assert "one of" in lead.lower()
    assert alternatives == ["Must include a", "Must include b"]


@pytest.mark.spec("001/workflow_validate/composition-not")
def test_not_requires_the_rule_to_fail_and_says_what_must_not_occur(judge: Judge) -> None:
    criteria = {"not": has("TODO")}

    assert judge.issues(criteria, "All done.") == []
    (issue,) = judge.issues(criteria, "TODO: the rest")
    assert "not" in issue
    assert "TODO" in issue


@pytest.mark.spec("001/workflow_validate/composition", "001/workflow_validate/composition-not")
@pytest.mark.parametrize(
    ("output", "valid"), [("x", True), ("y", True), ("x y", False), ("-", False), ("x z", False), ("y z", True)]
)
def test_compositions_nest_to_any_depth(judge: Judge, output: str, valid: bool) -> None:
    """Exactly one of x and y; and z not beside x."""
    one_of_two = {"and": [{"or": [has("x"), has("y")]}, {"not": {"and": [has("x"), has("y")]}}]}
    criteria = [one_of_two, {"not": {"and": [has("x"), {"and": [has("z")]}]}}]

    assert (judge.issues(criteria, output) == []) is valid


@pytest.mark.spec("001/workflow_validate/composition", "001/workflow_validate/rule-condition")
@pytest.mark.parametrize("operator", ["and", "or"])
def test_a_rule_whose_condition_does_not_hold_is_left_out_of_its_group(judge: Judge, operator: str) -> None:
    unmet = {"var": "strict", "equals": True}

    some_left = judge.issues({operator: [has("a", condition=unmet), has("b")]}, "-", {"strict": False})
    none_left = judge.issues({operator: [has("a", condition=unmet)]}, "-", {"strict": False})
    negated = judge.issues({"not": has("-", condition=unmet)}, "-", {"strict": False})

    assert some_left[-1:] == ["Must include b"]
    assert "Must include a" not in some_left
    assert (none_left, negated) == ([], [])


# ── types of rules ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_validate/contains")
@pytest.mark.parametrize(
    ("output", "valid"),
    [
        ("comprehensive tests", True),
        ("with comprehensive tests!", True),
        ("Comprehensive Tests", False),
        ("tests", False),
    ],
)
def test_contains_looks_for_the_text_with_its_case(judge: Judge, output: str, valid: bool) -> None:
    assert (judge.issues([has("comprehensive tests")], output) == []) is valid


@pytest.mark.spec("001/workflow_validate/regex")
@pytest.mark.parametrize(
    ("pattern", "output", "valid"),
    [
        (r"\d+ tests", "ran 12 tests", True),
        (r"\d+ tests", "ran tests", False),
        ("^all", "all pass", True),
        ("^all", "not all pass", False),
        ("pass$", "all pass", True),
        ("pass$", "all pass\n", False),
        ("PASS", "pass", False),
        (r"(?<word>a+)-\k<word>", "aa-aa", True),
        (r"(?P<word>a+)-(?P=word)", "aa-aa", True),
        (r"\u{1F680}", "🚀", True),
        ("[^]", "\n", True),
    ],
)
def test_regex_searches_as_ecmascript_does(judge: Judge, pattern: str, output: str, valid: bool) -> None:
    rule = {"type": "regex", "pattern": pattern, "message": "No match"}

    assert judge.issues([rule], output) == ([] if valid else ["No match"])


@pytest.mark.spec("001/workflow_validate/regex-flags")
@pytest.mark.parametrize(
    ("flags", "pattern", "output", "without", "with_flags"),
    [
        ("i", "jwt", "JWT", False, True),
        ("m", "^b$", "a\nb", False, True),
        ("s", "a.b", "a\nb", False, True),
        ("y", "b", "ab", True, False),
        ("g", "b", "ab", True, True),
        ("u", "b", "ab", True, True),
        ("gims", "^b.c$", "a\nB\nC", False, True),
    ],
)
def test_flags_change_how_a_pattern_matches(
    judge: Judge, flags: str, pattern: str, output: str, without: bool, with_flags: bool
) -> None:
    rule = {"type": "regex", "pattern": pattern, "message": "No match"}

    issues = judge.issues([rule], output), judge.issues([{**rule, "flags": flags}], output)

    assert (issues[0] == [], issues[1] == []) == (without, with_flags)


@pytest.mark.spec("001/workflow_validate/length")
@pytest.mark.parametrize(
    ("limits", "valid"),
    [
        ({"min": 3}, [False, True, True, True]),
        ({"max": 4}, [True, True, True, False]),
        ({"min": 3, "max": 4}, [False, True, True, False]),
        ({}, [True, True, True, True]),
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("character", ["x", "→", "🚀"])
def test_length_counts_characters(judge: Judge, limits: JsonObject, valid: list[bool], character: str) -> None:
    rule = {"type": "length", "message": "Wrong length", **limits}

    assert [judge.issues([rule], character * count) == [] for count in (2, 3, 4, 5)] == valid


@pytest.mark.spec("001/workflow_validate/regex")
def test_a_plain_string_is_a_pattern_that_must_match(judge: Judge) -> None:
    assert judge.issues([r"\d+ tests"], "12 tests") == []
    assert len(judge.issues([r"\d+ tests"], "no tests")) == 1


@pytest.mark.spec("001/workflow_validate/regex", "004/lifecycle/recoverable-error")
def test_a_pattern_that_takes_too_long_is_an_issue(judge: Judge) -> None:
    rule = {"type": "regex", "pattern": "^(a|a|aa)+$", "message": "No match"}

    assert len(judge.issues([rule], "a" * 60 + "!")) == 1


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_validate/unknown-workflow", "001/codes/-32001")
def test_an_unknown_workflow_is_answered_with_workflow_not_found(ask: Ask) -> None:
    reply = ask("workflow_validate", {**ARGUMENTS, "workflowId": "no-such-workflow"})

    assert reply == failure(-32001, "Workflow not found", {"workflowId": "no-such-workflow"})


@pytest.mark.spec("001/workflow_validate/unknown-step", "001/codes/-32003", "004/errors/-32003")
@pytest.mark.parametrize("name", ["no-such-step", "first-step-2", "no-such-step@1"])
def test_an_unknown_step_is_answered_with_step_not_found(ask: Ask, publish: Publish, name: str) -> None:
    workflow = publish(step("first-step"))

    reply = ask("workflow_validate", {"workflowId": workflow, "stepId": name, "output": "Done."})

    assert reply == failure(-32003, "Step not found", {"stepId": name})


def assert_refused(ask: Ask, workflow: str, code: int, message: str, *named: str) -> None:
    """Judging is refused with what is wrong; leading is not."""
    error = ask.error("workflow_validate", {"workflowId": workflow, "stepId": "only-step", "output": "Done."})

    assert (error["code"], error["message"]) == (code, message)
    details = error["data"]["details"]
    assert error["data"] == {"workflowId": workflow, "stepId": "only-step", "details": details}
    assert all(name in details for name in named)
    assert ask.result("workflow_next", {"workflowId": workflow, "completedSteps": []})["step"]["id"] == "only-step"


COMPLETE: dict[str, JsonObject] = {
    "contains": {"type": "contains", "value": "x", "message": "m"},
    "regex": {"type": "regex", "pattern": "x", "message": "m"},
    "length": {"type": "length", "min": 1, "message": "m"},
    "schema": {"type": "schema", "schema": {}, "message": "m"},
}


@pytest.mark.spec(
    "001/workflow_validate/malformed-criteria",
    "001/workflow_validate/contains-fields",
    "001/workflow_validate/regex-fields",
    "001/workflow_validate/length-fields",
    "001/workflow_validate/schema-fields",
    "001/codes/-32004",
)
@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("contains", "type"),
        ("contains", "value"),
        ("contains", "message"),
        ("regex", "pattern"),
        ("regex", "message"),
        ("length", "message"),
        ("schema", "schema"),
        ("schema", "message"),
    ],
)
def test_a_rule_that_lacks_a_required_field_is_malformed(ask: Ask, publish: Publish, kind: str, missing: str) -> None:
    rule = {name: value for name, value in COMPLETE[kind].items() if name != missing}
    workflow = publish(step("only-step", validationCriteria=[rule]))

    assert_refused(ask, workflow, -32004, "Validation error", missing)


@pytest.mark.spec(
    "001/workflow_validate/contains-fields",
    "001/workflow_validate/regex-fields",
    "001/workflow_validate/length-fields",
    "001/workflow_validate/schema-fields",
)
@pytest.mark.parametrize("kind", COMPLETE)
def test_a_rule_with_its_required_fields_can_be_judged_by(judge: Judge, kind: str) -> None:
    assert "result" in judge([COMPLETE[kind]], "x")


@pytest.mark.spec("001/workflow_validate/malformed-criteria", "001/codes/-32004")
@pytest.mark.parametrize(
    "criteria",
    [
        5,
        [5],
        [None],
        [{}],
        [{"type": "no-such-type", "message": "m"}],
        [{"type": "contains", "value": 5, "message": "m"}],
        [{"type": "contains", "value": "x", "message": 5}],
        [{"type": "length", "min": "ten", "message": "m"}],
        [{"type": "regex", "pattern": "(", "message": "m"}],
        [{"type": "regex", "pattern": "x", "flags": "q", "message": "m"}],
        {"and": []},
        {"or": has("x")},
        {"and": [has("x")], "or": [has("y")]},
        {"not": [{"type": "contains"}]},
        [{"and": [{"or": [{"not": 5}]}]}],
    ],
    ids=json.dumps,
)
def test_criteria_of_another_form_are_malformed(ask: Ask, publish: Publish, criteria: Json) -> None:
    workflow = publish(step("only-step", validationCriteria=criteria))

    assert_refused(ask, workflow, -32004, "Validation error")


@pytest.mark.spec("001/workflow_validate/malformed-criteria", "001/codes/-32004")
@pytest.mark.parametrize(
    "condition",
    [
        5,
        "taskScope",
        {"var": 5},
        {"var": "x", "no_such_operator": 1},
        {"equals": 5},
        {"and": 5},
        {"and": {}},
        {"and": [5]},
        {"or": [{}]},
        {"not": 5},
    ],
    ids=json.dumps,
)
def test_a_rule_with_a_malformed_condition_is_malformed(ask: Ask, publish: Publish, condition: Any) -> None:
    workflow = publish(step("only-step", validationCriteria=[has("Done", condition=condition)]))

    assert_refused(ask, workflow, -32004, "Validation error")


@pytest.mark.spec("001/workflow_validate/malformed-schema", "001/codes/-32002", "004/errors/-32002")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no-such-type"},
        {"properties": []},
        {"pattern": "("},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://example.org/other.schema.json"},
        {"required": "endpoint"},
        "not a schema",
        [],
    ],
    ids=json.dumps,
)
def test_a_malformed_json_schema_is_an_invalid_workflow(ask: Ask, publish: Publish, schema: Json) -> None:
    rule = {"type": "schema", "schema": schema, "message": "Does not fit"}
    workflow = publish(step("only-step", validationCriteria=[rule]))

    assert_refused(ask, workflow, -32002, "Invalid workflow")
