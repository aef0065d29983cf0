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
from workflowlookup.tools.workflow_next import _MARK, _Kept, _ready, answer

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
    monkeypatch.setattr(workflow_next, "MOST_KEPT", 10_000)
    names = [f"v{number}" for number in range(6)]
    workflow = build(document(step("one", prompt=" ".join(f"{{{{{name}}}}}" for name in names))))

    for chosen in range(2 ** len(names)):
        context = {name: "x" for place, name in enumerate(names) if chosen >> place & 1}
        found = next_step(workflow, (), context)
        assert said(_ready(workflow, found)) == json.loads(msgspec.json.encode(answer(workflow, found, ())))

    kept = workflow.memo[_Kept]
    assert kept.size <= 10_000
    assert sum(len(piece) for words in kept.words.values() for piece in words.pieces) <= 10_000


def test_long_answers_are_not_kept():
    workflow = build(document(step("one", guidance=["x" * 2000] * 40)))

    assert [_ready(workflow, next_step(workflow, (), {})) for _ in range(2)] == [None, None]
    assert not any(words.pieces for words in workflow.memo[_Kept].words.values())


def test_long_values_are_not_written_into_what_is_kept_and_spoil_nothing():
    workflow = build(document(step("one", prompt="{{a}} " * 20)))
    long = next_step(workflow, (), {"a": "x" * 200_000})
    short = next_step(workflow, (), {"a": "Rome"})

    assert _ready(workflow, long) is None
    assert answer(workflow, long, ())["step"]["prompt"].endswith("{{a}} ")
    assert said(_ready(workflow, short))["step"]["prompt"] == "Rome " * 20


@pytest.mark.parametrize("value", [f"{_MARK}a{_MARK}", "Rome"])
def test_marks_of_the_author_are_seen_whatever_the_first_caller_says(value):
    workflow = build(document(step("one", prompt=f"{_MARK}a{_MARK} is not {{{{a}}}}")))

    for given_ in (value, "Oslo"):
        found = next_step(workflow, (), {"a": given_})
        ready = _ready(workflow, found)
        assert ready is None or said(ready)["step"]["prompt"] == f"{_MARK}a{_MARK} is not {given_}"


def test_words_that_hang_on_a_pattern_are_not_kept():
    """Whether it matches may depend on how much time there was."""
    fragment = {"id": "more", "text": "Ask first.", "when": {"var": "who", "matches": "x*y"}}
    workflow = build(document(step("one", promptFragments=[fragment])))

    assert _ready(workflow, next_step(workflow, (), {"who": "xy"})) is None


def test_words_with_many_variables_are_made_anew_and_nothing_is_kept_of_them():
    names = [f"a{number}" for number in range(300)]
    workflow = build(document(step("one", guidance=[f"{{{{{name}}}}}" for name in names])))

    for chosen in range(50):
        assert _ready(workflow, next_step(workflow, (), dict.fromkeys(names[chosen : chosen + 100], 1))) is None

    assert [words.pieces for words in workflow.memo[_Kept].words.values()] == [()]
