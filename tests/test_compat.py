"""The automatic walker of `make compat`, and what `make oracle` reads: over small directories made here, and the bundled one."""

from importlib.resources import files
from pathlib import Path

import pytest

from support import compat, oracle
from support.json_values import JsonObject
from support.make import document, loop, step, write
from support.narrowing import not_none
from workflowlookup.language.conditions import evaluate
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget

LARGE = {"var": "size", "equals": "large"}
EDITIONS = {
    "0.0.3": document(step("one", runCondition=LARGE), step("two", validationCriteria=["ok"])),
    "loops era": document(
        loop(
            "phases",
            [step("one", runCondition={"var": "phase", "equals": 3})],
            type="for",
            count=4,
            iterationVar="phase",
        ),
        loop("again", "two", type="while", condition={"var": "more"}, maxIterations=50),
        step("two", agentRole="You are strict."),
    ),
    "HEAD": document(
        step(
            "one",
            runCondition={"var": "kind", "in": ["a", "b"]},
            promptFragments=[{"id": "f", "text": "T", "when": LARGE}],
        ),
        loop("other", [step("two")], type="while", conditionSource={"kind": "artifact"}, maxIterations=50),
        step("three", requireConfirmation={"kind": "person", "condition": {"var": "risk"}}),
    ),
    "workflowlookup": document(
        loop(
            "files",
            [
                loop("tries", [step("one")], type="until", condition={"var": "done"}, maxIterations=50),
                step("two", runCondition={"var": "file", "endsWith": ".py"}),
            ],
            type="forEach",
            items="files",
            itemVar="file",
        ),
        step("three", runCondition={"var": "note", "equals": None}),
    ),
}


@pytest.mark.parametrize(("edition", "content"), EDITIONS.items(), ids=EDITIONS)
def test_every_branch_is_taken_both_ways(edition: str, content: JsonObject) -> None:
    walker = compat.Walker(build(content))

    assert walker.everything() == []
    assert all(walker.seen.has(branch, held=held) for branch in walker.branches for held in (True, False))
    assert compat.edition_of(content) == edition


def test_a_branch_that_no_context_can_take_is_named_and_the_document_is_led() -> None:
    content = document(step("one", runCondition=LARGE, requireConfirmation={"not": LARGE}))

    assert compat.Walker(build(content)).everything() == ["requireConfirmation of one is never true"]


@pytest.mark.parametrize(
    "condition",
    [
        LARGE,
        {"var": "n", "gt": 3, "lt": 4},
        {"var": "n", "gte": "3", "not_equals": 3},
        {"and": [{"var": "a", "in": ["x", "y"]}, {"not": {"var": "a", "equals": "x"}}, {"var": "b"}]},
        {"or": [{"var": "a", "exists": False}, {"var": "l", "contains": 5}]},
        {"var": "s", "startsWith": "src/", "endsWith": ".py", "contains": "test"},
        {"var": "s", "matches": "^v\\d+\\.[a-z]+$"},
        {"var": "s", "matches": "(fix|feat): .*"},
        {"var": "l", "equals": [1, {"a": 2}]},
    ],
    ids=str,
)
def test_contexts_are_found_that_decide_a_condition_either_way(condition: JsonObject) -> None:
    for goal in (condition, {"not": condition}):
        assert evaluate(goal, not_none(compat.solve(goal)), Budget())


def test_no_context_is_found_for_what_cannot_be() -> None:
    assert compat.solve({"var": "n", "gt": 5, "lt": 3}) is None
    assert compat.solve({"or": []}) is None


def test_the_report_names_what_was_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, content in enumerate(EDITIONS.values()):
        write(tmp_path, {**content, "id": f"sample-{number}"})
    (tmp_path / "broken.json").write_text("{", "utf-8")
    (tmp_path / "sample.test.yaml").write_text("not: a document", "utf-8")

    assert compat.main(str(tmp_path)) == 0

    report = capsys.readouterr().out
    assert "does not load  broken.json" in report
    assert "0.0.3 1" in report
    assert "nested loops 1" in report
    assert "4 of 5 documents load, 4 were led to their end in every direction" in report


def test_a_document_that_does_not_end_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, document(step("one"), step("two")))
    monkeypatch.setattr(compat, "MAX_STEPS", 1)

    assert compat.main(str(tmp_path)) == 1
    assert "cannot be led  sample-workflow.json: AssertionError: no end after 1 steps" in capsys.readouterr().out


def test_the_bundled_workflows_are_led_in_every_direction(capsys: pytest.CaptureFixture[str]) -> None:
    assert compat.main(str(files("workflowlookup") / "bundled")) == 0
    assert "cannot be led" not in capsys.readouterr().out


def test_the_oracle_reads_the_table_of_the_decision_record() -> None:
    listed = oracle.listed(oracle.DECISION.read_text("utf-8"))

    assert all(listed.values())
    assert listed["case-086"] == "language, conditions: variable"


def test_the_oracle_finds_a_difference_and_an_agreement() -> None:
    content = document(step("one"))
    case = {
        "tool": "workflow_next",
        "workflow": content,
        "arguments": {"workflowId": content["id"], "completedSteps": []},
    }
    right, wrong = ({"isError": False, "fields": [{"path": "step.id", "eq": name}]} for name in ("one", "two"))

    differences = oracle.run([{"id": "case-1", **case, "expected": right}, {"id": "case-2", **case, "expected": wrong}])

    assert differences == {"case-1": [], "case-2": ['step.id: "one"']}
