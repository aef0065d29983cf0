"""Which step comes next: what the rows of `tests/language/steps.yaml` and `loops.yaml` cannot say."""

from make import document, loop, step
from workflowlookup.core.building import build
from workflowlookup.core.navigation import next_step, scope_of
from workflowlookup.core.patterns import Budget

BODY, FINISH = step("body-step"), step("finish")


def lead(steps, completed=(), context=None):
    return next_step(build(document(*steps)), completed, context or {}, Budget())


def test_a_skip_on_the_way_is_told_with_its_condition():
    large = {"var": "size", "equals": "large"}

    found = lead([step("big", runCondition=large), step("any")], [], {"size": "small"})

    assert [(skip.step_id, skip.condition) for skip in found.skipped] == [("big", large)]


def test_the_loop_variables_are_in_scope():
    each = loop("eloop", "body-step", type="forEach", items="files", itemVar="file", indexVar="pos")

    found = lead([each, BODY, FINISH], ["body-step@1"], {"files": ["a.py", "b.py"]})

    assert found.context == {"files": ["a.py", "b.py"], "currentIteration": 2, "file": "b.py", "pos": 1}


def test_the_scope_of_an_instance_is_that_of_its_iterations():
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


def test_nested_empty_loops_do_not_run_away():
    skipped = step("never", runCondition={"var": "no"})
    innermost = loop("c-loop", [skipped], type="for", count=1000, maxIterations=1000)
    inner = loop("b-loop", [innermost], type="for", count=1000, maxIterations=1000)
    steps = [loop("a-loop", [inner], type="for", count=1000, maxIterations=1000), FINISH]

    found = lead(steps)

    assert found.instance_id == "finish"
    assert "more than 100,000 times" in found.warnings[0]
