"""Which step comes next: through conditions and loops, from the completed ids alone."""

import pytest

from make import document, loop, step
from workflowlookup.core.document import build
from workflowlookup.core.navigation import next_step


def lead(steps, completed=(), context=None):
    return next_step(build(document(*steps)), completed, context or {})


def walk(steps, context=None, completed=()):
    """Complete whatever comes next until nothing does."""
    done = list(completed)
    while (found := lead(steps, done, context)).step is not None:
        assert found.instance_id not in done
        done.append(found.instance_id)
        assert len(done) < 5_000
    return done[len(completed) :]


LARGE = {"var": "size", "equals": "large"}
SMALL = {"var": "size", "equals": "small"}


def test_the_first_step_that_is_not_completed_comes_next_in_document_order():
    steps = [step("one"), step("two"), step("three")]

    assert lead(steps).instance_id == "one"
    assert lead(steps, ["one", "two"]).instance_id == "three"
    assert lead(steps, ["three"]).instance_id == "one"
    assert lead(steps, ["three", "one", "two"]).step is None


def test_a_step_whose_condition_fails_is_skipped_and_the_skip_is_told():
    found = lead([step("big", runCondition=LARGE), step("any")], [], {"size": "small"})

    assert found.instance_id == "any"
    assert [(skip.step_id, skip.condition) for skip in found.skipped] == [("big", LARGE)]


def test_exclusive_branches_complete():
    steps = [step("small-path", runCondition=SMALL), step("large-path", runCondition=LARGE)]

    assert walk(steps, {"size": "small"}) == ["small-path"]
    assert walk(steps, {"size": "large"}) == ["large-path"]
    assert walk(steps, {}) == []


def test_unknown_ids_are_ignored_and_named():
    found = lead([step("one"), step("two")], ["one", "nope", "one@2"])

    assert found.instance_id == "two"
    assert found.warnings == ("Ignored ids in completedSteps that this workflow does not have: nope, one@2",)


FOR = loop("floop", "body-step", type="for", count=3, iterationVar="i")
EACH = loop("eloop", "body-step", type="forEach", items="files", itemVar="file", indexVar="pos")
WHILE = loop("wloop", "body-step", type="while", condition={"var": "more"})
UNTIL = loop("uloop", "body-step", type="until", condition={"var": "done"})
BODY, FINISH = step("body-step"), step("finish")


def test_a_for_loop_hands_out_its_body_once_for_each_iteration():
    assert walk([FOR, BODY, FINISH]) == ["body-step@1", "body-step@2", "body-step@3", "finish"]


def test_the_loop_variables_are_in_scope():
    found = lead([EACH, BODY, FINISH], ["body-step@1"], {"files": ["a.py", "b.py"]})

    assert found.instance_id == "body-step@2"
    assert found.context == {"files": ["a.py", "b.py"], "currentIteration": 2, "file": "b.py", "pos": 1}
    assert (found.loop.id, found.loop.iteration, found.loop.item, found.loop.index, found.loop.total) == (
        ("eloop", 2, "b.py", 1, 2)
    )


def test_a_for_each_loop_takes_a_dotted_path():
    steps = [loop("eloop", "body-step", type="forEach", items="task.files"), BODY]

    assert walk(steps, {"task": {"files": [1, 2]}}) == ["body-step@1", "body-step@2"]


def test_a_for_loop_takes_its_count_from_a_variable():
    steps = [loop("floop", "body-step", type="for", count="times"), BODY, FINISH]

    assert walk(steps, {"times": 2}) == ["body-step@1", "body-step@2", "finish"]
    assert walk(steps, {"times": 0}) == ["finish"]


@pytest.mark.parametrize(
    ("broken", "context", "words"),
    [
        (loop("floop", "body-step", type="for", count="times"), {"times": "two"}, "'times' should hold a whole number"),
        (loop("floop", "body-step", type="for", count="times"), {"times": 1.5}, "'times' should hold a whole number"),
        (loop("floop", "body-step", type="for", count="times"), {}, "it is not set"),
        (EACH, {"files": "a.py"}, "'files' should hold a list (an array); it is 'a.py'"),
    ],
    ids=["text", "fraction", "missing", "no-list"],
)
def test_a_count_or_list_of_the_wrong_kind_skips_the_loop_with_a_warning(broken, context, words):
    found = lead([broken, BODY, FINISH], [], context)

    assert found.instance_id == "finish"
    assert words in found.warnings[0]


def test_a_while_loop_looks_at_the_context_when_an_iteration_is_complete():
    steps = [WHILE, BODY, FINISH]

    assert lead(steps, [], {"more": False}).instance_id == "finish"
    assert lead(steps, [], {"more": True}).instance_id == "body-step@1"
    assert lead(steps, ["body-step@1"], {"more": True}).instance_id == "body-step@2"
    assert lead(steps, ["body-step@1"], {"more": False}).instance_id == "finish"


def test_an_until_loop_runs_its_body_at_least_once():
    steps = [UNTIL, BODY, FINISH]

    assert lead(steps, [], {"done": True}).instance_id == "body-step@1"
    assert lead(steps, ["body-step@1"], {"done": True}).instance_id == "finish"
    assert lead(steps, ["body-step@1"], {}).instance_id == "body-step@2"


def test_a_loop_always_ends_at_its_limit_with_a_warning():
    steps = [WHILE, BODY, FINISH]

    assert len(walk(steps, {"more": True})) == 11
    found = lead(steps, [f"body-step@{n}" for n in range(1, 11)], {"more": True})
    assert (found.instance_id, found.warnings) == ("finish", ("Loop 'wloop' ended at its limit of 10 iterations",))


def test_a_loop_that_ends_by_itself_at_its_limit_has_no_warning():
    found = lead([WHILE, BODY, FINISH], [f"body-step@{n}" for n in range(1, 11)], {"more": False})

    assert found.warnings == ()


def test_the_id_of_the_loop_ends_it():
    assert lead([WHILE, BODY, FINISH], ["body-step@1", "wloop"], {"more": True}).instance_id == "finish"


def test_a_loop_stays_left_once_a_later_step_is_completed():
    steps = [WHILE, BODY, step("after"), FINISH]

    assert lead(steps, ["body-step@1", "after"], {"more": True}).instance_id == "finish"


def test_an_iteration_is_handed_out_whole_before_the_next():
    steps = [loop("floop", [step("write"), step("check")], type="for", count=2)]

    assert walk(steps) == ["write@1", "check@1", "write@2", "check@2"]


def test_iterations_may_be_completed_in_any_order():
    steps = [FOR, BODY, FINISH]

    assert walk(steps, completed=["body-step@3", "body-step@1"]) == ["body-step@2", "finish"]


def test_loops_nest_and_ids_carry_every_iteration():
    inner = loop("inner", [step("leaf")], type="for", count=2)
    steps = [loop("outer", [inner, step("sum-up")], type="for", count=2), FINISH]

    assert walk(steps) == [
        *("leaf@1.1", "leaf@1.2", "sum-up@1"),
        *("leaf@2.1", "leaf@2.2", "sum-up@2"),
        "finish",
    ]


def test_a_loop_may_be_the_referenced_body_of_another():
    steps = [loop("outer", "inner", type="for", count=1), loop("inner", "leaf", type="for", count=2), step("leaf")]

    assert walk(steps) == ["leaf@1.1", "leaf@1.2"]


def test_an_inner_while_loop_starts_no_iteration_inside_an_outer_one_that_is_past():
    inner = loop("inner", [step("leaf")], type="while", condition={"var": "more"})
    steps = [loop("outer", [inner], type="for", count=2), FINISH]

    assert lead(steps, ["leaf@1.1", "leaf@2.1"], {"more": True}).instance_id == "leaf@2.2"


def test_conditions_in_the_body_see_the_loop_variables():
    phases = [step(f"phase-{n}", runCondition={"var": "phase", "equals": n}) for n in (1, 2, 3)]
    steps = [loop("phases", phases, type="for", count=3, iterationVar="phase")]

    assert walk(steps) == ["phase-1@1", "phase-2@2", "phase-3@3"]


def test_a_while_loop_whose_body_is_skipped_ends():
    steps = [loop("wloop", [step("never", runCondition={"var": "no"})], type="while", condition={"var": "go"}), FINISH]

    assert walk(steps, {"go": True}) == ["finish"]


def test_an_id_without_its_iteration_counts_for_the_earliest_that_lacks_it():
    steps = [FOR, BODY, FINISH]

    assert lead(steps, ["body-step"]).instance_id == "body-step@2"
    assert lead(steps, ["body-step", "body-step@1"]).instance_id == "body-step@3"


def test_a_completed_body_without_iteration_enters_a_while_loop_once():
    steps = [WHILE, BODY, FINISH]

    assert lead(steps, ["body-step"], {"more": False}).instance_id == "finish"
    assert lead(steps, ["body-step"], {"more": True}).instance_id == "body-step@2"


def test_a_loop_that_another_system_would_end_goes_on_until_its_id_is_completed():
    steps = [loop("wloop", "body-step", type="while", conditionSource={"kind": "artifact"}), BODY, FINISH]

    assert lead(steps, ["body-step@1"]).instance_id == "body-step@2"
    assert lead(steps, ["body-step@1", "wloop"]).instance_id == "finish"


def test_nested_empty_loops_do_not_run_away():
    skipped = step("never", runCondition={"var": "no"})
    innermost = loop("c-loop", [skipped], type="for", count=1000, maxIterations=1000)
    inner = loop("b-loop", [innermost], type="for", count=1000, maxIterations=1000)
    steps = [loop("a-loop", [inner], type="for", count=1000, maxIterations=1000), FINISH]

    found = lead(steps)

    assert found.instance_id == "finish"
    assert "more than 100,000 times" in found.warnings[0]
