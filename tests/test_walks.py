"""Random documents and random walks: whatever a caller completes, `workflow_next` leads on, and to an end.

The documents have loops of all kinds inside loops, in both forms of bodies, with conditions on the context and on loop
variables. The walker completes what it is offered, at times something else, and at times changes the context.
"""

import json
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from support.json_values import JsonObject
from support.make import document, loop, step
from support.narrowing import instance_of, not_none
from workflowlookup.language.conditions import evaluate
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import is_valid_document
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.syntax import parse_json, parse_yaml
from workflowlookup.language.guidance import guide
from workflowlookup.language.model import LoopStep, Step, Workflow
from workflowlookup.language.navigation import NextStep, join_instance, next_step, scope_of, split_instance, walk_ahead
from workflowlookup.language.templates import filler
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Moment
from workflowlookup.runs.fold import fold
from workflowlookup.runs.run import Run, State, Waiting

EXAMPLES = 2_000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 150
MAX_ITERATIONS = 3

# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = ["a", "b", "n", "files", "task.size"]
LOOP_NAMES = ["currentIteration", "currentItem", "currentIndex", "round"]
VALUES = st.sampled_from([None, True, False, 0, 1, 2, "yes", "no", "", "large", [1, 2], [], {"size": "large"}, 1.5])
CONTEXTS = st.fixed_dictionaries(
    {}, optional={"a": VALUES, "b": VALUES, "n": st.integers(0, 4), "files": VALUES, "task": VALUES}
)
LEAVES = st.one_of(
    st.builds(lambda name: {"var": name}, st.sampled_from(NAMES + LOOP_NAMES)),
    st.builds(
        lambda name, operator, value: {"var": name, operator: value},
        st.sampled_from(NAMES + LOOP_NAMES),
        st.sampled_from(["equals", "not_equals"]),
        VALUES,
    ),
    st.builds(
        lambda name, operator, value: {"var": name, operator: value},
        st.sampled_from(NAMES + LOOP_NAMES),
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        st.integers(0, 3),
    ),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"and": parts}, st.lists(inner, max_size=2)),
        st.builds(lambda parts: {"or": parts}, st.lists(inner, max_size=2)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=3,
)
TEXTS = st.sampled_from(["Go.", "{{a}} {{files.0}}", "{{currentIteration}}: {{currentItem}}", "{{{{ {{round}} {{b"])


@st.composite
def documents(draw: DrawFn) -> JsonObject:
    """A sound document of a few steps and loops, at most three deep."""
    numbers = iter(range(1, 1000))
    top: list[JsonObject] = []

    def prompt_step() -> JsonObject:
        fields = {"title": draw(TEXTS), "prompt": draw(TEXTS)}
        if draw(st.integers(0, 2)) == 0:
            fields["runCondition"] = draw(CONDITIONS)
        return step(f"step-{next(numbers)}", **fields)

    def loop_step(depth: int) -> JsonObject:
        kind = draw(st.sampled_from(["while", "until", "for", "forEach"]))
        fields = {"type": kind, "maxIterations": draw(st.integers(1, MAX_ITERATIONS))}
        if kind in ("while", "until"):
            fields["condition"] = draw(CONDITIONS)
        elif kind == "for":
            fields["count"] = draw(st.one_of(st.integers(0, 4), st.sampled_from(["n", "a"])))
        else:
            fields["items"] = draw(st.sampled_from(["files", "task.files", "currentItem"]))
        if draw(st.booleans()):
            fields["iterationVar"] = "round"
        identifier = f"loop-{next(numbers)}"
        if draw(st.booleans()):
            body = [any_step(depth + 1) for _ in range(draw(st.integers(1, 2)))]
        else:
            inner = any_step(depth + 1)
            top.append(inner)
            body = inner["id"]
        extra = {"runCondition": draw(CONDITIONS)} if draw(st.integers(0, 3)) == 0 else {}
        return {**loop(identifier, body, **fields), **extra}

    def any_step(depth: int) -> JsonObject:
        return loop_step(depth) if depth < 3 and draw(st.integers(0, 2)) < 2 else prompt_step()

    steps = [any_step(0) for _ in range(draw(st.integers(1, 3)))]
    return document(*draw(st.permutations([*steps, *top])))


def limit(steps: Iterable[Step]) -> int:
    """The sum of the limits: how many instances there can be."""
    return sum(one.loop.max_iterations * limit(one.body) if isinstance(one, LoopStep) else 1 for one in steps)


def instances(workflow: Workflow, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """An id that a caller might complete, out of turn: any step, any iteration, or none."""
    identifier: str = draw(st.sampled_from(sorted(workflow.steps)))
    around = workflow.enclosing[identifier]
    if not around or draw(st.integers(0, 4)) == 0:
        return identifier
    return join_instance(identifier, tuple(draw(st.integers(1, MAX_ITERATIONS)) for _ in around))


# ── walks ───────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=EXAMPLES, deadline=None)
@given(documents(), CONTEXTS, st.data())
def test_a_walk_ends_within_the_limits_and_repeats_nothing(
    content: JsonObject, context: JsonObject, data: st.DataObject
) -> None:
    assert is_valid_document(content)
    workflow = build(content)
    most = limit(workflow.flow)
    completed: list[str] = []
    offered: list[str] = []
    wanderings = data.draw(st.integers(0, 12))
    while (current := next_step(workflow, completed, context, Budget())).step is not None:
        allowed(workflow, current, context)
        assert next_step(workflow, completed, context, Budget()) == current, "the same request has the same answer"
        assert next_step(workflow, completed[::-1], context, Budget()).instance_id == current.instance_id, (
            "the order does not count"
        )
        wanderings -= 1
        choice = data.draw(st.integers(0, 3)) if wanderings > 0 else 3
        if choice == 0:
            context = data.draw(CONTEXTS)
        elif choice == 1 and (other := instances(workflow, data.draw)) not in completed:
            completed.append(other)
        else:
            assert current.instance_id not in completed
            offered.append(current.instance_id)
            completed.append(current.instance_id)
            assert len(offered) <= most


@settings(max_examples=EXAMPLES, deadline=None)
@given(documents(), CONTEXTS)
def test_a_walk_in_order_completes_and_replays_to_the_same_path(content: JsonObject, context: JsonObject) -> None:
    workflow = build(content)
    path = walk(workflow, context)

    assert len(path) <= limit(workflow.flow)
    assert walk(build(parse_json(json.dumps(content).encode())), context) == path
    assert [next_step(workflow, path[:length], context, Budget()).instance_id for length in range(len(path))] == path


@settings(max_examples=EXAMPLES, deadline=None)
@given(documents(), CONTEXTS)
def test_a_run_goes_the_way_that_workflow_next_leads(content: JsonObject, context: JsonObject) -> None:
    workflow = build(content)

    assert list(run_through(workflow, context, dict).results) == walk(workflow, context)


@settings(max_examples=EXAMPLES, deadline=None)
@given(documents(), CONTEXTS, st.data())
def test_a_run_whose_context_changes_ends_within_the_limits_and_leaves_every_loop(
    content: JsonObject, context: JsonObject, data: st.DataObject
) -> None:
    workflow = build(content)
    run = run_through(workflow, context, lambda: data.draw(CONTEXTS), supplies=True)

    assert len(run.results) <= limit(workflow.flow)
    assert run.iterating == {} or run.waiting_for is Waiting.CONTEXT


def run_through(
    workflow: Workflow, context: JsonObject, changes: Callable[[], JsonObject], *, supplies: bool = False
) -> Run:
    """A run that is completed, each output with changes of the context; folded again it is the same.

    It is left at a loop whose data is missing, unless that is supplied and no variable of a loop hides it.
    """
    draft = advance.begin("r1", workflow, {}, context, Moment(time=1))
    records = list(draft.records)
    while (run := draft.run).state is State.WAITING:
        if run.waiting_for is Waiting.OUTPUT:
            draft = advance.submit(run, run.current, "done", changes(), Moment(time=2))
        elif supplies and run.missing[0].variable not in run.scope:
            draft = advance.supply(run, run.current, run.missing[0].example["context"], Moment(time=2))
        else:
            break
        records += draft.records
    assert fold("r1", records) == run
    return run


@settings(max_examples=EXAMPLES, deadline=None)
@given(documents(), CONTEXTS)
def test_yaml_and_json_behave_the_same(content: JsonObject, context: JsonObject) -> None:
    from_json = build(parse_json(json.dumps(content).encode()))
    from_yaml = build(parse_yaml(yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode()))

    assert from_yaml.document == from_json.document
    assert walk(from_yaml, context) == walk(from_json, context)


def walk(workflow: Workflow, context: JsonObject) -> list[str]:
    """The ids of a walk that completes whatever comes next, each looked at with what the agent is told."""
    done: list[str] = []
    while (current := next_step(workflow, done, context, Budget())).step is not None:
        assert guide(workflow, current, Budget()).prompt
        allowed(workflow, current, context)
        done.append(current.instance_id)
        assert len(done) <= limit(workflow.flow)
    return done


def allowed(workflow: Workflow, current: NextStep, context: JsonObject) -> None:
    """No condition on the way to the step is false: its own, and those of the loops around it."""
    identifier, iterations = split_instance(current.instance_id)
    scope = scope_of(workflow, current.instance_id, context)
    assert current.context == scope
    assert evaluate(not_none(current.step).run_condition, scope, Budget())
    for depth, loop_id in enumerate(workflow.enclosing[identifier]):
        around = workflow.steps[loop_id]
        outer = scope_of(workflow, join_instance(loop_id, iterations[:depth]), context)
        assert evaluate(around.run_condition, outer, Budget())
        assert 1 <= iterations[depth] <= instance_of(LoopStep, around).loop.max_iterations


# ── templates ───────────────────────────────────────────────────────────────────────────────────────────────────

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(
    st.lists(st.text() | st.sampled_from(["{{", "}}", "{{{{", "a", "a.b", "{{a}}", "{{a.0}}", " ", ".", "\\1"])),
    st.dictionaries(st.text() | st.sampled_from(["a", "b", "a.b"]), JSON, max_size=4),
)
@example(["{{a}}"], {"a": 10**5000})
@example(["{{a}}"], {"a": "\ud800"})
@example(["{{a}}"], {"a": [math.pi, 10**400]})
def test_templates_never_raise_and_name_only_what_is_not_set(pieces: list[str], context: JsonObject) -> None:
    unset: dict[str, None] = {}

    filled = filler(context, unset)("".join(pieces))

    assert isinstance(filled, str)
    assert not set(unset) & {name for name, value in context.items() if value is not None}


@settings(max_examples=EXAMPLES, deadline=None)
@given(documents(), CONTEXTS)
def test_one_walk_comes_to_what_walking_again_and_again_does(content: JsonObject, context: JsonObject) -> None:
    workflow = build(content)
    completed: list[str] = []
    skipped: list[Any] = []
    warnings: list[object] = []
    for current in walk_ahead(workflow, (), context, Budget()):
        again = next_step(workflow, completed, context, Budget())
        assert (current.step, current.instance_id, current.context) == (again.step, again.instance_id, again.context)
        assert (current.loop, current.need) == (again.loop, again.need)
        skipped += current.skipped
        warnings += current.warnings
        assert {skip.step_id for skip in again.skipped} <= {skip.step_id for skip in skipped}
        assert set(again.warnings) <= set(warnings)
        completed.append(current.instance_id)
