"""Why steps run or not: what decided, and with which value."""

import pytest

from support.make import document, loop, step
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.values import Json
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.why import Explanation, decisive_checks, explain_context, explain_run

SMALL = {"var": "size", "equals": "small"}
RISKY = {"var": "risk", "gt": 3}


@pytest.mark.parametrize(
    ("condition", "scope", "decided"),
    [
        pytest.param(SMALL, {"size": "small"}, [("size", True)], id="one that holds"),
        pytest.param({"and": [SMALL, RISKY]}, {"size": "small", "risk": 1}, [("risk", False)], id="the one that fails"),
        pytest.param(
            {"and": [SMALL, RISKY]}, {"size": "small", "risk": 5}, [("size", True), ("risk", True)], id="both"
        ),
        pytest.param({"or": [SMALL, RISKY]}, {"risk": 5}, [("risk", True)], id="the one that holds"),
        pytest.param({"or": [SMALL, RISKY]}, {}, [("size", False), ("risk", False)], id="neither"),
        pytest.param({"not": SMALL}, {"size": "small"}, [("size", True)], id="the opposite"),
        pytest.param({"var": "a", "exists": True, "or": [SMALL]}, {"a": 1}, [("size", False)], id="a variable beside"),
        pytest.param({}, {}, [], id="nothing to decide"),
    ],
)
def test_the_decisive_parts_of_a_condition_are_found(
    condition: Json, scope: Json, decided: list[tuple[str, bool]]
) -> None:
    assert [(check.variable, check.holds) for check in decisive_checks(condition, scope, Budget())] == decided


def fates(explanation: Explanation) -> dict[str, str]:
    return {reason.id: str(reason.fate) for reason in explanation.steps}


STEPS = (
    step("triage"),
    step("small-only", runCondition=SMALL),
    loop(
        "each",
        [step("work"), step("risky-only", runCondition={"var": "currentItem", "gt": 1})],
        type="forEach",
        items="files",
    ),
    step("last-step"),
)


def test_a_context_explains_what_would_happen() -> None:
    explanation = explain_context(build(document(*STEPS)), {"files": [1, 2]}, Budget())

    assert fates(explanation) == {
        "triage": "would run",
        "small-only": "would be skipped",
        "each": "would run",
        "work@1": "would run",
        "work@2": "would run",
        "risky-only@1": "would be skipped",
        "risky-only@2": "would run",
        "last-step": "would run",
    }
    by_id = {reason.id: reason for reason in explanation.steps}
    assert by_id["each"].because == "it repeats for files, which is a list of 2"
    assert [check.value for check in by_id["risky-only@2"].checks] == [2]


def test_a_loop_that_is_not_entered_says_what_decided_it() -> None:
    explanation = explain_context(build(document(*STEPS)), {"files": []}, Budget())

    reasons = {reason.id: (str(reason.fate), reason.because) for reason in explanation.steps}
    assert reasons["each"] == ("not reached", "it repeats for files, which is a list of 0")
    assert reasons["work"] == ("not reached", "its loop was not entered")


def test_a_run_is_explained_with_the_values_of_the_time() -> None:
    draft = advance.begin("a-run", build(document(*STEPS)), {}, {"size": "large", "files": [7]}, Moment(time=1))
    records = list(draft.records)

    def submit(step_id: str, changes: Json) -> Draft:
        after = advance.submit(draft.run, step_id, "done", changes, Moment(time=2))
        records.extend(after.records)
        return after

    draft = submit("triage", {})
    draft = submit("work@1", {"files": [1, 2, 3]})
    explanation = explain_run(draft.run, records, Budget())

    by_id = {reason.id: reason for reason in explanation.steps}
    assert fates(explanation) == {
        "triage": "ran",
        "small-only": "skipped",
        "each": "ran",
        "work@1": "ran",
        "risky-only@1": "waits",
        "last-step": "would run",
    }
    assert [check.value for check in by_id["small-only"].checks] == ["large"]
    assert by_id["each"].because == "it has no condition; it repeats for files, which is a list of 1"


def test_a_cancelled_run_says_which_steps_were_not_reached() -> None:
    begun = advance.begin("a-run", build(document(*STEPS)), {}, {}, Moment(time=1))
    ended = advance.cancel(begun.run, Moment(time=2), "No need.")

    explanation = explain_run(ended.run, [*begun.records, *ended.records], Budget())

    reasons = {reason.id: (str(reason.fate), reason.because) for reason in explanation.steps}
    assert reasons["triage"] == ("cancelled", "it has no condition; the run was cancelled here: No need.")
    assert reasons["last-step"] == ("not reached", "the run was cancelled before: No need.")


def test_a_skipped_step_that_would_run_now_says_so() -> None:
    confirmed = step("held-step", requireConfirmation=True)
    workflow = build(document(step("early", runCondition=SMALL), confirmed, step("last-step")))
    begun = advance.begin("a-run", workflow, {}, {}, Moment(time=1))
    moved = advance.submit(begun.run, "held-step", "done", {"size": "small"}, Moment(time=2))

    before, after = (
        explain_run(begun.run, begun.records, Budget()),
        explain_run(moved.run, [*begun.records, *moved.records], Budget()),
    )

    assert fates(before) == {"early": "skipped", "held-step": "waits", "last-step": "would run"}
    assert fates(after) == {"early": "would run", "held-step": "waits", "last-step": "would run"}


def test_a_step_that_a_person_did_not_agree_to_did_not_run() -> None:
    begun = advance.begin("a-run", build(document(step("held-step", requireConfirmation=True))), {}, {}, Moment(time=1))
    done = advance.submit(begun.run, "held-step", "done", {}, Moment(time=2))
    denied = advance.deny(done.run, "held-step", Moment(time=3), how="console")
    ended = advance.cancel(denied.run, Moment(time=4))

    explanation = explain_run(ended.run, [*begun.records, *done.records, *denied.records, *ended.records], Budget())

    assert fates(explanation) == {"held-step": "cancelled"}
    assert explanation.steps[0].because == "it has no condition; the run was cancelled here"
