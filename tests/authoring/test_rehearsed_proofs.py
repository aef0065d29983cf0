"""Proofs in fixtures: nothing is taken, unless `take` is given."""

import pytest

from support.json_values import Json, JsonObject
from support.make import document, step
from workflowlookup.authoring.coverage import Coverage
from workflowlookup.authoring.fixtures import BadFixture, Case, parse_fixture
from workflowlookup.authoring.rehearsal import Rehearsal, corrections, rehearse
from workflowlookup.authoring.rehearsed_proofs import TakeProof
from workflowlookup.language.document.building import build
from workflowlookup.language.proof import AnyProof
from workflowlookup.language.values import Context
from workflowlookup.runs.events import Judgement

PASSED = {"passed": {"pattern": "(\\d+) passed", "type": "integer"}}
TESTS = {"kind": "command", "name": "tests", "use": "test"}
REPORT = {"kind": "file", "path": "{{report}}", "message": "Write {{report}}."}
RULE = {"type": "contains", "value": "ok", "message": "Say ok"}
FIX = document(step("fix", proof=[TESTS, REPORT], produces={"report": {"optional": True}}, validationCriteria=[RULE]))


def case(**fields: Json) -> Case:
    return parse_fixture({"cases": [{"name": "a case", **fields}]}).cases[0]


def run(
    source: JsonObject, take: TakeProof | None = None, coverage: Coverage | None = None, **fields: Json
) -> Rehearsal:
    workflow = build(source)
    return rehearse(workflow, case(**fields), coverage or Coverage(workflow), take)


def differences(source: JsonObject, **fields: Json) -> list[str]:
    return [one.message for one in run(source, **fields).differences]


def test_a_proof_that_is_not_mentioned_is_assumed_to_pass_and_listed() -> None:
    outcome = run(FIX, outputs={"fix": {"accept": ["ok"], "proof": {"file-1": "pass"}}})

    assert (outcome.differences, outcome.assumed_proofs) == ((), ("fix: tests",))


def test_an_output_is_refused_because_of_a_proof() -> None:
    failing = {"output": "ok\nreport: R.md", "proof": {"file-1": "fail"}, "issues": ["Write R.md."]}

    assert differences(FIX, outputs={"fix": {"accept": ["ok"], "refuse": [failing]}}) == []


def test_without_a_message_the_issue_is_the_sentence_of_the_proof() -> None:
    assert differences(FIX, outputs={"fix": {"accept": ["ok"], "proof": {"tests": "fail"}}}) == [
        "The output 'ok' of 'fix' should be accepted and was refused: "
        "'Proof 'tests' failed: The project's command `test` ends with exit code 0'"
    ]


def test_criteria_come_before_proofs_and_the_first_failed_proof_is_the_last() -> None:
    both = {"tests": "fail", "file-1": "fail"}
    refused = [
        {"output": "no", "issues": ["Say ok"], "proof": both},
        {
            "output": "ok",
            "issues": ["Proof 'tests' failed: The project's command `test` ends with exit code 0"],
            "proof": both,
        },
    ]

    assert differences(FIX, outputs={"fix": {"refuse": refused}}) == []


@pytest.mark.parametrize(("when_unproved", "is_accepted"), [("refuse", False), ("ask", True), ("note", True)])
def test_the_workflow_decides_about_an_unproved_output(when_unproved: str, is_accepted: bool) -> None:
    outputs = {"accept": ["ok"], "proof": {"tests": "unproved"}}

    problems = differences({**FIX, "whenUnproved": when_unproved}, outputs={"fix": outputs})

    expected = "Proof 'tests' is unproved: The project's command `test` ends with exit code 0"
    assert (problems == []) is is_accepted
    assert is_accepted or expected in problems[0]


def test_a_proof_whose_condition_does_not_hold_is_neither_needed_nor_assumed() -> None:
    source = document(step("fix", proof=[{**TESTS, "condition": {"var": "size", "equals": "large"}}]))
    failing = {"fix": {"accept": ["done"], "proof": {"tests": "fail"}}}

    assert run(source, outputs=failing).differences == ()
    assert run(source).assumed_proofs == ()
    assert len(run(source, context={"size": "large"}, outputs=failing).differences) == 1


MEASURED = document(
    step(
        "fix",
        prompt="Now {{proof.base.passed}} pass.",
        proof=[
            {**TESTS, "name": "base", "at": "start", "measure": PASSED},
            {**TESTS, "measure": PASSED, "holds": {"var": "proof.tests.passed", "gte": "{{proof.base.passed}}"}},
        ],
    ),
    step("celebrate", runCondition={"var": "proof.tests.passed", "gt": 100}),
)


def test_measures_enter_the_context() -> None:
    declared = {"base": {"passed": 100}, "tests": {"verdict": "pass", "passed": 212}}
    outcome = run(MEASURED, outputs={"fix": {"accept": ["done"], "proof": declared}})

    assert (outcome.differences, outcome.path, outcome.warnings) == ((), ("fix", "celebrate"), ())


def test_measures_are_compared_as_in_a_run() -> None:
    declared = {"base": {"passed": 100}, "tests": {"passed": 99}}

    assert differences(MEASURED, outputs={"fix": {"accept": ["done"], "proof": declared}}) == [
        "The output 'done' of 'fix' should be accepted and was refused: 'Proof 'tests' failed: The project's command "
        '`test` ends with exit code 0; it measures passed; proof.tests.passed is at least "100"; this does not hold: '
        "proof.tests.passed is at least 100'"
    ]


def test_names_that_the_step_does_not_have_are_differences() -> None:
    refused = {"output": "x", "proof": {"tests": {"failed": 1}}}
    outcome = run(MEASURED, outputs={"fix": {"refuse": [refused], "proof": {"test": "pass"}}})

    assert [(one.field, one.message) for one in outcome.differences][:2] == [
        ("outputs.fix.proof.test", "Step 'fix' has no proof 'test' (did you mean 'tests'?)"),
        ("outputs.fix.proof.tests.failed", "Proof 'tests' of step 'fix' measures no 'failed'"),
    ]


@pytest.mark.parametrize("declared", [{"tests": "passed"}, {"tests": {"verdict": "passed"}}, {"tests": 3}])
def test_other_verdicts_are_mistakes_of_the_fixture(declared: Json) -> None:
    with pytest.raises(BadFixture, match=r"outputs\.fix\.proof\.tests.* must be"):
        case(outputs={"fix": {"proof": declared}})


def test_a_proof_is_covered_when_it_passed_and_failed() -> None:
    coverage = Coverage(build(FIX))
    run(
        FIX,
        coverage=coverage,
        outputs={"fix": {"accept": ["ok"], "refuse": [{"output": "ok", "proof": {"tests": "fail"}}]}},
    )
    assert coverage.rules["fix", "proof tests"].outcomes == {False}

    run(FIX, coverage=coverage, outputs={"fix": {"accept": ["ok"], "proof": {"tests": "pass"}}})
    assert coverage.rules["fix", "proof tests"].outcomes == {True, False}
    assert coverage.rules["fix", "proof file-1"].outcomes == set()


def test_an_update_keeps_what_the_fixture_says_about_proofs() -> None:
    refused = {"output": "ok", "issues": ["other"], "proof": {"tests": "fail"}}
    one = case(outputs={"fix": {"accept": ["no"], "refuse": [refused], "proof": {"tests": "pass"}}}, steps=["fix"])
    workflow = build(FIX)

    assert corrections(one, rehearse(workflow, one, Coverage(workflow))) == {
        ("outputs", "fix"): {
            "refuse": [
                {"output": "no", "issues": ["Say ok"]},
                {
                    "output": "ok",
                    "issues": ["Proof 'tests' failed: The project's command `test` ends with exit code 0"],
                    "proof": {"tests": "fail"},
                },
            ],
            "proof": {"tests": "pass"},
        }
    }


def test_proofs_of_accepted_outputs_are_taken_once_and_declared_failures_are_not() -> None:
    taken: list[tuple[str, str]] = []

    def take(instance_id: str, proof: AnyProof, context: Context) -> Judgement:
        taken.append((instance_id, proof.name))
        measures = {"passed": 100 if proof.name == "base" else 120}
        return Judgement(name=proof.name, kind="command", verdict="passed", measures=measures)

    refused = {"output": "done", "proof": {"tests": "fail"}}
    outcome = run(MEASURED, take, outputs={"fix": {"accept": ["done"], "refuse": [refused]}})

    assert taken == [("fix", "base"), ("fix", "tests")]
    assert (outcome.differences, outcome.assumed_proofs, outcome.path) == ((), (), ("fix", "celebrate"))


def test_a_proof_that_fails_when_it_is_taken_is_a_difference() -> None:
    def take(_: str, proof: AnyProof, __: Context) -> Judgement:
        return Judgement(name=proof.name, kind="command", verdict="failed", reason="It ended with exit code 2.")

    outcome = run(document(step("fix", proof=[TESTS])), take, outputs={"fix": {"accept": ["done"]}})

    assert [one.message for one in outcome.differences] == [
        "The output 'done' of 'fix' should be accepted and was refused: 'Proof 'tests' failed: The project's command "
        "`test` ends with exit code 0; It ended with exit code 2.'"
    ]
