"""The quick yes: whatever gets one, the schema admits; and the usual documents get one."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workflowlookup
from make import document, loop, step
from workflowlookup.core.conditions import OPERATORS
from workflowlookup.core.document import is_sound
from workflowlookup.core.shape import quick_yes
from workflowlookup.core.syntax import MAX_NESTING
from workflowlookup.core.values import deeper_than

BUNDLED = [
    json.loads(path.read_text("utf-8")) for path in (Path(workflowlookup.__file__).parent / "bundled").glob("*.json")
]
NESTED = {"and": [{"var": "a", "gt": 1}, {"or": [{"var": "b", "in": [1, None]}, {"var": "c", "exists": True}]}]}
TOOL = {"server": "tracker", "tool": "create", "saveAs": "issue"}
SAMPLES = [
    *BUNDLED,
    document(
        step("one", runCondition=NESTED, requireConfirmation={"var": "risk", "equals": "high"}, guidance=["a"]),
        loop(
            "a-loop",
            [step("two", agentRole="You are careful.", maxAttempts=2, whenExhausted="ask")],
            type="forEach",
            items="files",
            itemVar="file",
        ),
        loop("b-loop", [step("three")], type="while", condition={"not": {"var": "done"}}),
        step(
            "asks", requireConfirmation={"when": "before", "by": "person", "question": "May it?", "condition": NESTED}
        ),
        step("four", validationCriteria={"or": [{"not": {"type": "contains", "value": "x", "message": "m"}}, "y"]}),
        category="review",
        metaGuidance=["b"],
    ),
    document(
        {
            "id": "call",
            "title": "Call",
            "call": {"server": "a", "tool": "b", "arguments": {"n": "{{n}}"}, "retries": 2},
        },
        loop("a-loop", [{"id": "two", "title": "Two", "call": {**TOOL, "timeoutSeconds": 0.5}}], type="for", count=2),
        identifier="calls-only",
        executionType="sync",
        metadata={"owner": "me"},
    ),
]
VALUES = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        1001,
        "",
        "x",
        "ab",
        "Not An Id",
        "loop",
        "standard",
        "1.0",
        "é" * 600,
        "a" * 9000,
        [],
        {},
        ["x"],
        {"x": 1},
        {"var": "a"},
        {"equals": 1},
        {"and": []},
        {"and": [{}]},
        {"not": {}},
        [{"var": "a"}],
        step("one"),
        [step("one")],
        TOOL,
        {"provider": "a", "workflow": "b"},
        NESTED,
    ]
)
NAMES = st.sampled_from(
    (
        "id title prompt type loop body steps runCondition requireConfirmation when by question "
        "validationCriteria guidance agentRole version category name var equals gt in and or not count items condition maxIterations kind matches promptBlocks x-mine "
        "unknown outputContract metaGuidance message pattern schema contains call server tool arguments saveAs retries "
        "timeoutSeconds provider workflow executionType metadata"
    ).split()
)


def places(value, found=None):
    """Every object and list inside a value."""
    found = [] if found is None else found
    if isinstance(value, (dict, list)):
        found.append(value)
        for child in value.values() if isinstance(value, dict) else value:
            places(child, found)
    return found


@st.composite
def mutants(draw):
    """A document that works, with one to three things in it changed."""
    content = copy.deepcopy(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(content)))
        if isinstance(place, dict):
            name = draw(NAMES | st.sampled_from(sorted(place)) if place else NAMES)
            if name in place and draw(st.booleans()):
                del place[name]
            else:
                place[name] = copy.deepcopy(draw(VALUES))
        elif place and draw(st.booleans()):
            place.append(copy.deepcopy(draw(st.sampled_from(place))))
        else:
            place.append(copy.deepcopy(draw(VALUES)))
    return content


@settings(max_examples=1_500, deadline=None)
@given(mutants())
def test_what_gets_a_quick_yes_the_schema_admits(content):
    if quick_yes(json.dumps(content).encode()) is not None:
        assert is_sound(content)
        assert not deeper_than(content, MAX_NESTING)


@pytest.mark.parametrize("content", SAMPLES, ids=[sample["id"] for sample in SAMPLES])
def test_the_usual_documents_get_a_quick_yes(content):
    found = quick_yes(json.dumps(content).encode())

    assert found is not None
    assert (found.id, found.name, found.version) == (content["id"], content["name"], content["version"])


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"\xff", b'{"id": "abc", "name": "\xff"}', b"[" * 100_000, b'{"steps":' * 50_000],
    ids=["empty", "open", "list", "bytes", "text", "deep-lists", "deep-objects"],
)
def test_what_is_no_document_gets_no_answer(text):
    assert quick_yes(text) is None


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_without_a_variable_gets_no_quick_yes(operator):
    value = {"in": [1], "exists": True}.get(operator, 1)
    lone = {operator: value, "and": [{"var": "a"}]}

    for condition in (lone, {"not": lone}):
        assert quick_yes(json.dumps(document(step(runCondition=condition))).encode()) is None


def test_deep_logic_takes_the_longer_look():
    condition = {"var": "a"}
    for _ in range(70):
        condition = {"not": condition}

    assert quick_yes(json.dumps(document(step(runCondition=condition))).encode()) is None
