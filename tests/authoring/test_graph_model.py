"""The flow of a workflow as nodes and edges, and the path taken through it."""

import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.authoring import graph
from workflowlookup.authoring.graph import NodeKind, NodeState, describe_confirmation, describe_loop, draw
from workflowlookup.language.document.building import build, confirmation_of
from workflowlookup.language.model import Loop

LARGE = {"var": "size", "equals": "large"}


def drawn(*steps: JsonObject, context: JsonObject | None = None) -> graph.Graph:
    return draw(build(document(*steps)), context)


def edges(*steps: JsonObject) -> list[str]:
    return [f"{edge.source} {edge.label}> {edge.target}" for edge in drawn(*steps).edges()]


def test_steps_follow_each_other_from_start_to_end() -> None:
    assert edges(step("one"), step("two")) == ["(start) > one", "one > two", "two > (end)"]


def test_a_condition_is_a_question_before_its_step_with_a_way_around() -> None:
    assert edges(step("one", runCondition=LARGE), step("two")) == [
        "(start) > one?",
        "one? yes> one",
        "one > two",
        "one? no> two",
        "two > (end)",
    ]


def test_the_body_of_a_loop_leads_back_to_its_beginning() -> None:
    inner = [step("look"), step("mend", runCondition=LARGE)]

    assert edges(loop("round", inner, type="for", count=3), step("last")) == [
        "(start) > round",
        "look > mend?",
        "mend? yes> mend",
        "mend again> look",
        "mend? no> look",
        "round > last",
        "last > (end)",
    ]


def test_nodes_say_in_words_what_a_step_does() -> None:
    rules = [{"type": "length", "min": 3, "message": "m"}, {"type": "contains", "value": "x", "message": "m"}]
    nodes = drawn(
        step("plan-it", validationCriteria=rules, requireConfirmation=True),
        {"id": "ask-all", "type": "parallel", "title": "Ask", "parallelDelegations": [{"workflowId": "a"}, {}]},
        loop("rounds", "again", type="until", condition={"and": [LARGE, {"var": "done"}]}),
        step("again", runCondition=LARGE),
    ).nodes()

    assert [(node.number, node.id, node.kind, node.parent, node.condition, list(node.facts())) for node in nodes] == [
        ("1", "plan-it", NodeKind.STEP, "", "", ["2 criteria", "asks for confirmation"]),
        ("2", "ask-all", NodeKind.PARALLEL, "", "", ["in parallel: a, delegate"]),
        (
            "3",
            "rounds",
            NodeKind.LOOP,
            "",
            "",
            ['repeats until size equals "large" and done is true, at most 10 times'],
        ),
        ("3.1", "again", NodeKind.STEP, "rounds", 'size equals "large"', []),
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": "while", "condition": {"var": "more"}}, "while more is true, at most 5 times"),
        ({"type": "until", "condition": {"var": "done"}}, "until done is true, at most 5 times"),
        ({"type": "while"}, "until the agent ends it, at most 5 times"),
        ({"type": "for", "count": 3}, "3 times"),
        ({"type": "for", "count": 1}, "once"),
        ({"type": "for", "count": 9}, "5 times"),
        ({"type": "for", "count": "rounds"}, "as often as rounds says, at most 5 times"),
        ({"type": "forEach", "items": "files", "item_var": "file"}, "for each file of files, at most 5 times"),
    ],
)
def test_loops_in_words(fields: JsonObject, words: str) -> None:
    assert describe_loop(Loop(max_iterations=5, **fields)) == words


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (None, ""),
        (False, ""),
        (True, "asks for confirmation"),
        ({}, "asks for confirmation"),
        (LARGE, 'asks for confirmation if size equals "large"'),
        ({"kind": "review", "condition": LARGE}, 'asks for confirmation if size equals "large"'),
        ({"when": "before", "by": "person"}, "asks for confirmation by a person before it is done"),
    ],
)
def test_confirmation_in_words(wanted: Json, words: str) -> None:
    assert describe_confirmation(confirmation_of({"requireConfirmation": wanted})) == words


def states(drawing: graph.Graph) -> dict[str, tuple[graph.NodeState | None, int]]:
    return {node.id: (node.state, node.times) for node in drawing.nodes()}


def test_without_a_context_nothing_is_marked() -> None:
    drawing = drawn(step("one"))

    assert (drawing.path, states(drawing)) == (None, {"one": (None, 0)})


def test_a_context_marks_what_is_taken_and_why_the_rest_is_skipped() -> None:
    drawing = drawn(step("big", runCondition=LARGE), step("any"), context={"size": "small"})

    assert drawing.path == ("any",)
    assert states(drawing) == {"big": (NodeState.SKIPPED, 0), "any": (NodeState.TAKEN, 1)}
    assert drawing.flow[0].because == 'not true: size equals "large" (size is "small")'


def test_loops_count_their_iterations_and_their_bodies_how_often_they_were_met() -> None:
    first = step("first-only", runCondition={"var": "i", "equals": 1})
    inner = loop("inner", [step("work")], type="for", count=2)
    steps = [loop("outer", [first, inner], type="forEach", items="files", iterationVar="i"), step("last")]

    drawing = drawn(*steps, context={"files": ["a", "b", "c"]})

    assert states(drawing) == {
        "outer": (NodeState.TAKEN, 3),
        "first-only": (NodeState.TAKEN, 1),
        "inner": (NodeState.TAKEN, 6),
        "work": (NodeState.TAKEN, 6),
        "last": (NodeState.TAKEN, 1),
    }
    assert drawing.flow[0].body[0].because == "not true: i equals 1 (i is 2)"


def test_a_loop_that_is_not_entered_skips_its_body_and_says_so() -> None:
    drawing = drawn(loop("each", [step("work")], type="forEach", items="files"), context={"files": []})

    assert states(drawing) == {"each": (NodeState.SKIPPED, 0), "work": (NodeState.SKIPPED, 0)}
    assert drawing.warnings == ("Loop 'each' was skipped: its list 'files' is empty",)


def test_the_walk_ends_at_a_loop_without_its_list_and_says_what_is_missing() -> None:
    drawing = drawn(loop("each", [step("work")], type="forEach", items="files"), step("last"), context={})

    assert states(drawing) == {"each": (None, 0), "work": (None, 0), "last": (None, 0)}
    assert drawing.warnings == (
        "The loop 'each' comes next, and its list is missing: files is not set: expected a list ('array'). "
        'Put files into the context, as in {"files":["…"]}; an empty list skips the loop.',
    )


def test_a_long_walk_is_cut_and_what_lies_beyond_is_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MAX_INSTANCES", 4)

    drawing = drawn(loop("many", [step("work")], type="for", count=9), step("last"), context={})

    assert states(drawing) == {"many": (NodeState.TAKEN, 4), "work": (NodeState.TAKEN, 4), "last": (None, 0)}
    assert drawing.warnings == ("The path was cut after 4 steps; the rest is not marked",)


def test_a_step_says_how_many_proofs_it_has() -> None:
    (node,) = drawn(step("one", proof=[{"kind": "file", "path": "a"}, {"kind": "git", "clean": True}])).nodes()

    assert list(node.facts()) == ["2 proofs"]
