"""Rehearsing a workflow: paths, verdicts, coverage, and what a fixture would have to expect."""

from typing import Any

import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.authoring import rehearsal
from workflowlookup.authoring.coverage import Coverage
from workflowlookup.authoring.fixtures import BadFixture, Case, parse_fixture
from workflowlookup.authoring.rehearsal import Rehearsal, corrections, rehearse
from workflowlookup.language.document.building import build

RULE = {"type": "contains", "value": "ok", "message": "Say ok"}
BRANCHES = document(
    step("look", validationCriteria=[RULE, {"type": "length", "min": 4, "message": "Say more"}]),
    step("repair", runCondition={"var": "broken"}),
    step("report"),
)
REVIEW = document(loop("review-loop", [step("review")], type="until", condition={"var": "approved"}), step("report"))


def case(**fields: Json) -> Case:
    return parse_fixture({"cases": [{"name": "a case", **fields}]}).cases[0]


def run(source: JsonObject, coverage: Coverage | None = None, **fields: Json) -> Rehearsal:
    workflow = build(source)
    return rehearse(workflow, case(**fields), coverage or Coverage(workflow))


def differences(source: JsonObject, **fields: Json) -> list[tuple[str, str]]:
    return [(one.field, one.message) for one in run(source, **fields).differences]


def covered(source: JsonObject, *cases: JsonObject) -> Coverage:
    workflow = build(source)
    coverage = Coverage(workflow)
    for fields in cases:
        rehearse(workflow, case(**fields), coverage)
    return coverage


def sides(marks: dict[tuple[str, str], Any]) -> dict[tuple[str, str], set[bool]]:
    return {place: mark.outcomes for place, mark in marks.items()}


# ── walks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_walk_goes_to_the_end_and_agrees_with_a_case_that_expects_it() -> None:
    rehearsal = run(BRANCHES, context={"broken": True}, steps=["look", "repair", "report"], warnings=[])

    assert (rehearsal.path, rehearsal.is_complete, rehearsal.differences) == (("look", "repair", "report"), True, ())


def test_variables_that_a_step_sets_count_from_the_next_step_on() -> None:
    assert run(BRANCHES, after={"look": {"broken": "yes"}}).path == ("look", "repair", "report")


def test_a_loop_ends_when_one_of_its_iterations_sets_the_variable() -> None:
    rehearsal = run(REVIEW, after={"review": {"approved": False}, "review@3": {"approved": True}})

    assert rehearsal.path == ("review@1", "review@2", "review@3", "report")
    assert rehearsal.iterations == {"review-loop": 3}


def test_iterations_of_inner_loops_are_counted_all_told() -> None:
    inner = loop("inner-loop", [step("deep")], type="for", count=3)
    rehearsal = run(document(loop("outer-loop", [inner], type="for", count=2)))

    assert rehearsal.iterations == {"inner-loop": 6, "outer-loop": 2}


def test_the_id_of_a_loop_in_the_path_ends_it_there() -> None:
    path = ["review@1", "review@2", "review-loop", "report"]

    assert differences(REVIEW, steps=path) == []


def test_an_incomplete_case_goes_as_far_as_its_path() -> None:
    rehearsal = run(REVIEW, steps=["review@1"], complete=False)

    assert (rehearsal.path, rehearsal.is_complete, rehearsal.differences) == (("review@1",), False, ())


def test_a_path_without_end_is_a_failure_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "MAX_PATH", 50)
    endless = loop("endless", [step("turn"), step("again"), step("more")], type="while", condition={})
    endless["loop"]["maxIterations"] = 1000

    path_without_end = run(document(endless))

    assert len(path_without_end.path) == 50
    assert path_without_end.differences[0].message == (
        "The path is longer than 50 steps and was abandoned; does a loop never end? "
        "It ended with more@16 → turn@17 → again@17"
    )
    assert corrections(case(), path_without_end) == {}


# ── differences ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        (["look", "repair", "report"], "at step 2: expected 'repair', got 'report'"),
        (["look"], "at step 2: expected the end, got 'report'"),
        (["look", "report", "more"], "at step 3: expected 'more', got the end"),
        ([], "at step 1: expected the end, got 'look'"),
    ],
)
def test_the_first_difference_of_two_paths_is_named(expected: list[str], problem: str) -> None:
    [(field, message)] = differences(BRANCHES, steps=expected)

    first, wanted, got = message.split("\n")
    assert (field, first) == ("steps", f"The path differs {problem}")
    assert wanted == f"expected: {' → '.join(expected) or '(no step)'}"
    assert got == "got:      look → report"


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"accept": ["all ok"]}, []),
        ({"refuse": ["no", {"output": "ok", "issues": ["Say more"]}]}, []),
        (
            {"accept": ["nothing"]},
            [("outputs.look.accept[0]", "The output 'nothing' of 'look' should be accepted and was refused: 'Say ok'")],
        ),
        (
            {"refuse": ["all ok"]},
            [("outputs.look.refuse[0]", "The output 'all ok' of 'look' should be refused and was accepted")],
        ),
        (
            {"refuse": [{"output": "no", "issues": ["Say ok"]}]},
            [
                (
                    "outputs.look.refuse[0]",
                    "The output 'no' of 'look' was refused with other messages: "
                    "expected 'Say ok'; got 'Say ok'; 'Say more'",
                )
            ],
        ),
    ],
    ids=["accepted", "refused", "refused unexpectedly", "accepted unexpectedly", "other messages"],
)
def test_outputs_get_the_verdicts_that_the_case_expects(outputs: Any, expected: list[tuple[str, str]]) -> None:
    assert differences(BRANCHES, outputs={"look": outputs}) == expected


def test_an_output_of_one_iteration_is_judged_there_and_the_others_everywhere() -> None:
    second = {
        "type": "contains",
        "value": "b",
        "message": "Say b",
        "condition": {"var": "currentIteration", "equals": 2},
    }
    source = document(loop("twice", [step("write", validationCriteria=[second])], type="for", count=2))

    rehearsal = run(source, outputs={"write": {"accept": ["a"]}, "write@2": {"refuse": ["a"]}})

    assert rehearsal.differences == ()
    assert [(one.instance_id, one.issues) for one in rehearsal.judged] == [("write@1", ()), ("write@2", ("Say b",))]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"steps": ["look", "report"], "complete": False}, ("complete", "The workflow is complete, and more steps")),
        ({"warnings": ["Beware"]}, ("warnings", "Expected the warnings 'Beware'; got (none)")),
        ({"outputs": {"repair": {"accept": ["x"]}}}, ("outputs.repair", "The outputs of 'repair' were never judged")),
        (
            {"outputs": {"lok": {"accept": ["x"]}}},
            ("outputs.lok", "The workflow has no step 'lok' (did you mean 'look'?)"),
        ),
        ({"after": {"lok": {"a": 1}}}, ("after.lok", "The workflow has no step 'lok' (did you mean 'look'?)")),
        ({"iterations": {"look": 1}}, ("iterations.look", "The workflow has no loop 'look'")),
    ],
    ids=["complete", "warnings", "never judged", "unknown output", "unknown step", "unknown loop"],
)
def test_every_other_expectation_is_compared_too(fields: Json, expected: tuple[str, str]) -> None:
    [(field, message)] = differences(BRANCHES, **fields)

    assert (field, message[: len(expected[1])]) == expected


def test_a_wrong_number_of_iterations_is_told() -> None:
    problems = differences(REVIEW, after={"review": {"approved": True}}, iterations={"review-loop": 2})

    assert problems == [("iterations.review-loop", "The iterations of loop 'review-loop' differ: expected 2, got 1")]


def test_criteria_that_cannot_be_judged_by_are_a_difference() -> None:
    source = document(step("look", validationCriteria=[{"type": "regex", "pattern": "(", "message": "m"}]))

    [(field, message)] = differences(source, outputs={"look": {"refuse": ["x"]}})

    assert field == "outputs.look.refuse[0]"
    assert "cannot be judged: Invalid regex pattern" in message


# ── coverage ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_steps_are_covered_when_they_are_handed_out() -> None:
    assert covered(BRANCHES, {}).steps == {"look": True, "repair": False, "report": True}


def test_every_kind_of_condition_is_seen_true_and_false() -> None:
    condition = {"var": "deep"}
    source = document(
        step(
            "look",
            runCondition=condition,
            requireConfirmation={"var": "risky"},
            promptFragments=[{"id": "one", "when": {"var": "long"}, "text": "More."}],
            validationCriteria=[{**RULE, "condition": {"var": "strict"}}],
        )
    )

    one = covered(source, {"context": {"deep": True, "long": True}})
    both = covered(
        source, {}, {"context": {"deep": True}}, {"context": dict.fromkeys(("deep", "risky", "long", "strict"), 1)}
    )

    assert sides(one.branches) == {
        ("look", "runCondition"): {True},
        ("look", "confirmation"): {False},
        ("look", "fragment 1"): {True},
        ("look", "condition of rule 1"): {False},
    }
    assert all(seen == {True, False} for seen in sides(both.branches).values())
    assert one.branches["look", "runCondition"].words == "deep is true"


@pytest.mark.parametrize(
    ("kind", "fields", "seen"),
    [
        ("while", {"context": {"more": True}, "after": {"turn@2": {"more": False}}}, {True, False}),
        ("while", {}, {False}),
        ("while", {"context": {"more": True}, "steps": ["turn@1"], "complete": False}, {True}),
        ("until", {"after": {"turn@1": {"more": True}}}, {True}),
        ("until", {"after": {"turn@2": {"more": True}}}, {True, False}),
        ("until", {"steps": ["turn@1", "turns", "report"]}, set()),
    ],
    ids=["entered and left", "never entered", "still inside", "left at once", "left later", "ended by its id"],
)
def test_the_condition_of_a_loop_is_seen_where_it_is_asked(kind: str, fields: Json, seen: set[bool]) -> None:
    source = document(loop("turns", [step("turn")], type=kind, condition={"var": "more"}), step("report"))

    assert sides(covered(source, fields).branches) == {("turns", "loop condition"): seen}


def test_rules_are_seen_passing_and_failing_also_inside_groups() -> None:
    other = {"type": "contains", "value": "no", "message": "Say no", "condition": {"var": "strict"}}
    source = document(step("look", validationCriteria={"or": [RULE, {"not": other}]}))

    coverage = covered(source, {"outputs": {"look": {"accept": ["ok"]}}}, {"outputs": {"look": {"accept": ["ok"]}}})
    strict = covered(source, {"context": {"strict": 1}, "outputs": {"look": {"accept": ["ok", "?"], "refuse": ["no"]}}})

    assert sides(coverage.rules) == {("look", "rule 1"): {True}, ("look", "rule 2"): set()}
    assert sides(strict.rules) == {("look", "rule 1"): {True, False}, ("look", "rule 2"): {True, False}}


# ── what a fixture would have to expect ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "fields", "edits"),
    [
        (BRANCHES, {"steps": ["look", "report"]}, {}),
        (BRANCHES, {}, {("steps",): ["look", "report"]}),
        (BRANCHES, {"steps": ["look", "report"], "complete": False}, {("complete",): True}),
        (BRANCHES, {"steps": ["report"], "warnings": ["x"]}, {("steps",): ["look", "report"], ("warnings",): []}),
        (
            REVIEW,
            {"after": {"review": {"approved": 1}}},
            {("steps",): ["review@1", "report"], ("iterations",): {"review-loop": 1}},
        ),
        (
            REVIEW,
            {"after": {"review": {"approved": 1}}, "steps": ["review@1", "report"], "iterations": {"review-loop": 4}},
            {("iterations", "review-loop"): 1},
        ),
        (
            BRANCHES,
            {
                "steps": ["look", "report"],
                "outputs": {
                    "look": {"accept": ["all ok", "no"], "refuse": ["?", {"output": "ok", "issues": ["Other"]}]}
                },
            },
            {
                ("outputs", "look"): {
                    "accept": ["all ok"],
                    "refuse": [
                        {"output": "no", "issues": ["Say ok", "Say more"]},
                        "?",
                        {"output": "ok", "issues": ["Say more"]},
                    ],
                }
            },
        ),
    ],
    ids=["nothing", "no path", "complete", "path and warnings", "a new loop", "iterations", "verdicts"],
)
def test_a_case_is_corrected_where_it_differs_and_nowhere_else(source: Any, fields: Json, edits: Any) -> None:
    assert corrections(case(**fields), run(source, **fields)) == edits


# ── the format ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "cases is required"),
        ([], "the fixture must be an object; found an empty list"),
        ({"cases": []}, "cases must be a list of at least 1; found an empty list"),
        ({"cases": [{}]}, "case 1: name is required"),
        ({"cases": [7]}, "case 1: the value must be an object; found 7"),
        ({"cases": [{"name": "a"}], "case": 1}, "unknown field 'case' (did you mean 'cases'?)"),
        ({"cases": [{"name": "a", "step": []}]}, "case 1 ('a'): unknown field 'step' (did you mean 'steps'?)"),
        ({"cases": [{"name": "a", "steps": [7]}]}, "case 1 ('a'): steps[0] must be text ('string'); found 7"),
        (
            {"cases": [{"name": "a", "outputs": {"x": {"accept": "y"}}}]},
            "case 1 ('a'): outputs.x.accept must be a list ('array'); found 'y'",
        ),
        ({"cases": [{"name": "a"}, {"name": "a"}]}, "case 2 ('a'): another case has this name already"),
        (
            {"cases": [{"name": "a", "complete": False}]},
            "case 1 ('a'): 'complete: false' needs 'steps', which say where to stop",
        ),
    ],
)
def test_a_malformed_fixture_is_refused_with_the_case_and_the_field(value: Json, problem: str) -> None:
    with pytest.raises(BadFixture) as refused:
        parse_fixture(value)

    assert [finding.message for finding in refused.value.findings] == [problem]


def test_a_variable_or_a_value_that_the_contract_does_not_have_is_told() -> None:
    schema = {"properties": {"risk": {"enum": ["low", "high"]}}}
    workflow = document(step("assess", produces=["risk", "owner.name"]), step("merge"), contextSchema=schema)

    problems = differences(workflow, context={"risc": "low"}, after={"assess": {"risk": "hgih", "owner": "me"}})

    assert problems == [
        ("context.risc", "The workflow has no variable 'risc' (did you mean 'risk'?)"),
        (
            "after.assess.risk",
            "risk is 'hgih' (did you mean 'high'?): expected one of 'low', 'high' (step 'assess' produces it)",
        ),
    ]


def test_without_a_contract_any_variable_may_be_set() -> None:
    assert differences(BRANCHES, context={"anything": 1}) == []


# ── a person's answers ──────────────────────────────────────────────────────────────────────────────────────────

WINDOW = {"type": "object", "properties": {"window": {"enum": ["now", "tonight"]}}, "required": ["window"]}


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_person_fills_in_decides_over_later_steps(when: str) -> None:
    asks = {"when": when, "answers": WINDOW}
    flow = document(
        step("deploy", requireConfirmation=asks), step("wait", runCondition={"var": "window", "equals": "tonight"})
    )

    walks = [run(flow, answers={"deploy": {"window": window}}).path for window in ("now", "tonight")]

    assert walks == [("deploy",), ("deploy", "wait")]


def test_an_answer_that_does_not_fit_fails_the_case() -> None:
    flow = document(step("deploy", requireConfirmation={"answers": WINDOW}))

    (difference,) = run(flow, answers={"deploy": {"window": "later"}}).differences

    assert (difference.field, "window must be one of 'now', 'tonight'" in difference.message) == (
        "answers.deploy",
        True,
    )
