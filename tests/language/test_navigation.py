"""Which step comes next: what the rows of `tests/language/steps.yaml` and `loops.yaml` cannot say."""

import itertools
from collections.abc import Iterable, Sequence

import pytest

from support.json_values import JsonObject
from support.make import document, loop, step
from workflowlookup.errors import InvalidWorkflow
from workflowlookup.language.document.building import build
from workflowlookup.language.formats import patterns
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.navigation import NextStep, next_step, scope_of

BODY, FINISH = step("body-step"), step("finish")


def next_of(steps: Iterable[JsonObject], completed: Sequence[str] = (), context: JsonObject | None = None) -> NextStep:
    return next_step(build(document(*steps)), completed, context or {}, Budget())


def test_a_skipped_step_is_reported_with_its_condition() -> None:
    large = {"var": "size", "equals": "large"}

    upcoming = next_of([step("big", runCondition=large), step("any")], [], {"size": "small"})

    assert [(skip.step_id, skip.condition) for skip in upcoming.skipped] == [("big", large)]


def test_the_loop_variables_are_in_scope() -> None:
    each = loop("eloop", "body-step", type="forEach", items="files", itemVar="file", indexVar="pos")

    upcoming = next_of([each, BODY, FINISH], ["body-step@1"], {"files": ["a.py", "b.py"]})

    assert upcoming.context == {"files": ["a.py", "b.py"], "currentIteration": 2, "file": "b.py", "pos": 1}


def test_the_scope_of_an_instance_is_that_of_its_iterations() -> None:
    inner = loop("inner", [step("leaf")], type="for", count=2, iterationVar="round")
    workflow = build(document(loop("outer", [inner], type="forEach", items="files", itemVar="file")))
    context = {"files": ["a", "b"]}

    assert scope_of(workflow, "leaf@2.1", context) == {
        "files": ["a", "b"],
        "currentIteration": 2,
        "file": "b",
        "currentIndex": 0,
        "round": 1,
    }
    assert scope_of(workflow, "leaf", context) == context


def test_very_large_nested_loops_are_given_up_and_not_ended() -> None:
    skipped = step("never", runCondition={"var": "no"})
    innermost = loop("c-loop", [skipped], type="for", count=1000, maxIterations=1000)
    inner = loop("b-loop", [innermost], type="for", count=1000, maxIterations=1000)
    steps = [loop("a-loop", [inner], type="for", count=1000, maxIterations=1000), FINISH]

    with pytest.raises(InvalidWorkflow, match=r"given up at loop 'c-loop@1\.50', after 100,000 steps and iterations"):
        next_of(steps)


def test_a_step_after_very_many_skipped_ones_is_found() -> None:
    check = step("check", runCondition={"var": "host", "equals": "prod"})
    inner = loop("each-file", [check], type="forEach", items="files", itemVar="file", maxIterations=1000)
    steps = [loop("each-host", [inner], type="forEach", items="hosts", itemVar="host", maxIterations=1000), FINISH]
    files = list(range(900))

    assert next_of(steps, context={"hosts": [*range(20), "prod"], "files": files}).instance_id == "check@21.1"
    with pytest.raises(InvalidWorkflow):
        next_of(steps, context={"hosts": [*range(200), "prod"], "files": files})


SLOW = {"var": "s", "matches": "(a+)+$"}
SLOW_TEXT = {"s": "a" * 50_000 + "b"}


@pytest.mark.parametrize(
    ("steps", "location"),
    [
        ([step("review", runCondition=SLOW), FINISH], "step 'review'"),
        ([loop("again", [step("review")], type="while", condition=SLOW), FINISH], "loop 'again'"),
        ([{**loop("each", [step("review")], type="for", count=1), "runCondition": SLOW}, FINISH], "step 'each'"),
    ],
    ids=["a step", "a while loop", "the condition of a loop"],
)
def test_a_condition_that_takes_too_long_is_refused_and_not_skipped(steps: list[JsonObject], location: str) -> None:
    with pytest.raises(InvalidWorkflow, match=f"took too long and was given up at {location}"):
        next_of(steps, context=SLOW_TEXT)


def test_completed_ids_are_read_all_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "thread_time", itertools.count(1, patterns.SECONDS_PER_REQUEST / 2).__next__)
    many = loop("many", [BODY], type="for", count=1000, maxIterations=1000)

    upcoming = next_of([many, FINISH], [f"body-step@{number}" for number in range(1, 100_000)])

    assert (upcoming.instance_id, upcoming.completed) == ("finish", 99_999)


@pytest.mark.parametrize(
    "unknown",
    ["leaf@0.1", "leaf@1.0", "leaf@01.1", "leaf@1.01", "leaf@1", "leaf@1@1", "leaf@1.1.1", "leaf@1.", "leaf-1"],
)
def test_an_unknown_iteration_is_ignored_with_a_warning(unknown: str) -> None:
    nested = loop("outer", [loop("inner", [step("leaf")], type="for", count=2)], type="for", count=2)

    upcoming = next_of([nested], [unknown, "leaf@1.1"])

    assert (upcoming.instance_id, upcoming.completed) == ("leaf@1.2", 1)
    assert upcoming.warnings == (f"Ignored ids in completedSteps that this workflow does not have: {unknown}",)
