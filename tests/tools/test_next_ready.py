"""Answers of `workflow_next` that are kept ready say what they would say if they were made anew."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from make import document, step
from workflowlookup.core.building import build
from workflowlookup.core.navigation import next_step
from workflowlookup.tools import workflow_next
from workflowlookup.tools.workflow_next import _MARK, _ready, answer

TEXTS = st.lists(
    st.sampled_from(
        ["{{a}}", "{{ b }}", "{{a.c}}", "{{{{a}}", "{{d", "words", '"', "\\", "\n", _MARK, f"{_MARK}a{_MARK}"]
    )
).map("".join)
VALUES = st.one_of(
    TEXTS, st.text(max_size=4), st.integers(), st.booleans(), st.none(), st.just({"c": "deep"}), st.just([1, "x"])
)
CONTEXTS = st.dictionaries(st.sampled_from(["a", "b", "a.c", "other"]), VALUES)
CONDITIONS = st.sampled_from([{"var": "a"}, {"var": "b", "equals": "words"}, {"not": {"var": "other"}}])


def said(ready):
    return msgspec.json.decode(ready)


@st.composite
def workflows(draw):
    told = step(
        "one",
        title=draw(TEXTS) or "t",
        prompt=draw(TEXTS) or "p",
        guidance=[draw(TEXTS)],
        promptFragments=[{"id": "more", "text": draw(TEXTS), "when": draw(CONDITIONS)}],
        functionReferences=["go()"],
        requireConfirmation=draw(CONDITIONS),
    )
    return build(document(told, functionDefinitions=[{"name": "go", "definition": draw(TEXTS)}]))


@given(workflow=workflows(), contexts=st.lists(CONTEXTS, min_size=2, max_size=6))
def test_it_says_the_same_to_every_caller_as_if_nothing_was_kept(workflow, contexts):
    for context in contexts:
        found = next_step(workflow, (), context)
        ready = _ready(workflow, found)
        if ready is not None:
            assert said(ready) == json.loads(msgspec.json.encode(answer(workflow, found, ())))


def test_a_value_in_the_definition_of_a_function_is_the_callers_own():
    function = {"name": "go", "definition": "go to {{place}}"}
    workflow = build(document(step("one", functionReferences=["go()"]), functionDefinitions=[function]))

    prompts = [
        said(_ready(workflow, next_step(workflow, (), {"place": place})))["guidance"]["prompt"]
        for place in ("Rome", "Oslo", "Rome")
    ]

    assert [prompt.rpartition(" ")[2] for prompt in prompts] == ["Rome", "Oslo", "Rome"]


def test_what_is_kept_is_not_made_again(monkeypatch):
    workflow = build(document(step("one", prompt="In {{place}}")))
    _ready(workflow, next_step(workflow, (), {"place": "Rome"}))
    monkeypatch.setattr(workflow_next, "tell", lambda *_: pytest.fail("it was made again"))

    assert said(_ready(workflow, next_step(workflow, (), {"place": 'a "quoted" name'})))["step"]["prompt"] == (
        'In a "quoted" name'
    )


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(workflow_next, "MOST_READY", 8)
    names = [f"v{number}" for number in range(6)]
    workflow = build(document(step("one", prompt=" ".join(f"{{{{{name}}}}}" for name in names))))

    for chosen in range(2 ** len(names)):
        context = {name: "x" for place, name in enumerate(names) if chosen >> place & 1}
        found = next_step(workflow, (), context)
        assert said(_ready(workflow, found)) == json.loads(msgspec.json.encode(answer(workflow, found, ())))
        assert len(workflow.memo) <= 8


def test_values_too_long_to_be_filled_in_stay_as_written():
    workflow = build(document(step("one", prompt="{{long}}")))
    _ready(workflow, next_step(workflow, (), {"long": "short"}))
    found = next_step(workflow, (), {"long": "x" * (1 << 20)})

    assert _ready(workflow, found) is None
    assert answer(workflow, found, ())["step"]["prompt"].endswith("xxx")
