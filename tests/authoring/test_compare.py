"""What changed between two versions, told in steps, conditions and criteria."""

import copy
import itertools
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.authoring.compare import Change, ChangeKind, Section, compare
from workflowlookup.language.document.building import build

LARGE = {"var": "size", "equals": "large"}
HUGE = {"var": "size", "in": ["large", "huge"]}


def compared(before: JsonObject, after: JsonObject) -> tuple[Section, ...]:
    return compare(build(before), build(after))


def changes(before: JsonObject, after: JsonObject) -> list[Change]:
    """What is told about one step with these fields, and then with those."""
    sections = compared(document(step("one", **before)), document(step("one", **after)))
    return [change for section in sections for change in section.changes]


def test_the_same_is_no_change_whatever_the_order_of_its_fields() -> None:
    one = document(step("one", runCondition=LARGE), loop("again", "two", type="for", count=2), step("two"))

    assert compared(one, dict(reversed(copy.deepcopy(one).items()))) == ()


def test_metadata_and_lists_of_the_workflow() -> None:
    before = document(metaGuidance=["Be brief and kind", "Gone"])
    after = document(metaGuidance=["Be brief and very kind", "New"], version="2.0.0", description="Another")

    (section,) = compared(before, after)

    assert (section.kind, section.step) == (ChangeKind.CHANGED, "")
    assert section.changes == (
        Change(kind=ChangeKind.CHANGED, what="description", diff=("@@ -1 +1 @@", "-A workflow for tests", "+Another")),
        Change(kind=ChangeKind.CHANGED, what="version", before="1.0.0", after="2.0.0"),
        Change(
            kind=ChangeKind.CHANGED, what="metaGuidance", before="Be brief and kind", after="Be brief and very kind"
        ),
        Change(kind=ChangeKind.REMOVED, what="metaGuidance", before="Gone"),
        Change(kind=ChangeKind.ADDED, what="metaGuidance", after="New"),
    )


def test_steps_are_added_removed_and_moved() -> None:
    before = document(step("one"), step("two"), step("three"), step("four"))
    after = document(step("three"), step("one"), step("two"), loop("round", [step("new")], type="for", count=2))

    assert compared(before, after) == (
        Section(
            kind=ChangeKind.MOVED,
            step="three",
            title="Title three",
            changes=(Change(kind=ChangeKind.MOVED, what="place", before="after two", after="at the start"),),
        ),
        Section(kind=ChangeKind.ADDED, step="round", title="Loop round", place="after two"),
        Section(kind=ChangeKind.ADDED, step="new", title="Title new", place="at the start of loop round"),
        Section(kind=ChangeKind.REMOVED, step="four", title="Title four", place="after three"),
    )


def test_steps_that_move_together_are_told_once() -> None:
    names = [f"step-{number}" for number in range(9)]

    def moved(*order: int) -> list[tuple[str, str, str]]:
        sections = compared(document(*map(step, names)), document(*(step(names[number]) for number in order)))
        return [(section.step, section.changes[0].before, section.changes[0].after) for section in sections]

    assert moved(6, 7, 8, 0, 1, 2, 3, 4, 5) == [("step-6", "after step-5", "at the start, with the 2 steps below it")]
    assert moved(0, 3, 4, 5, 6, 1, 2, 7, 8) == [("step-1", "after step-0", "after step-6, with the step below it")]


@given(st.permutations(range(8)))
def test_no_fewer_moves_would_do(order: list[int]) -> None:
    before, after = document(*(step(f"s-{n}") for n in range(8))), document(*(step(f"s-{n}") for n in order))

    count = sum(1 + _others(section.changes[0].after) for section in compared(before, after))

    longest = max(len(rise) for size in range(9) for rise in itertools.combinations(order, size) if is_rising(rise))
    assert count == 8 - longest


def _others(place: str) -> int:
    match = re.search(r"with the (\d+ )?step", place)
    return 0 if match is None else int(match[1] or 1)


def is_rising(numbers: Iterable[int]) -> bool:
    return all(left < right for left, right in itertools.pairwise(numbers))


def test_a_step_that_goes_into_a_loop_has_moved() -> None:
    def with_body(*body: JsonObject, after: list[Json]) -> JsonObject:
        return document(loop("round", list(body), type="for", count=2), *after)

    (section,) = compared(
        with_body(step("work"), after=[step("check")]), with_body(step("work"), step("check"), after=[])
    )

    assert section.changes == (
        Change(kind=ChangeKind.MOVED, what="place", before="after round", after="after work, in loop round"),
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"title": "New"}, ("changed", "title", "Title one", "New")),
        (
            {"runCondition": LARGE},
            {"runCondition": HUGE},
            ("changed", "condition", 'size equals "large"', 'size is one of "large", "huge"'),
        ),
        ({"runCondition": LARGE}, {}, ("removed", "condition", 'size equals "large"', "")),
        ({}, {"requireConfirmation": True}, ("added", "confirmation", "", "asks for confirmation")),
        (
            {"requireConfirmation": True},
            {"requireConfirmation": {"kind": "any", "condition": LARGE}},
            ("changed", "confirmation", "asks for confirmation", 'asks for confirmation if size equals "large"'),
        ),
        (
            {"runCondition": {"var": "x", "equals": {"a": 1}}},
            {"runCondition": {"var": "x", "equals": {"a": 2}}},
            ("changed", "condition", '{"var": "x", "equals": {"a": 1}}', '{"var": "x", "equals": {"a": 2}}'),
        ),
        ({}, {"askForFiles": True}, ("added", "askForFiles", "", "true")),
        ({"x-mine": [1]}, {"x-mine": [2]}, ("changed", "x-mine", "[1]", "[2]")),
    ],
)
def test_fields_of_a_step_before_and_after(
    before: JsonObject, after: JsonObject, expected: tuple[str, str, str, str]
) -> None:
    kind, what, old, new = expected

    assert changes(before, after) == [Change(kind=ChangeKind(kind), what=what, before=old, after=new)]


def test_prompts_are_a_diff_of_their_lines() -> None:
    (change,) = changes({"prompt": "a\nb\nc\nd"}, {"prompt": "a\nb\nC\nd"})

    assert change == Change(kind=ChangeKind.CHANGED, what="prompt", diff=("@@ -2,3 +2,3 @@", " b", "-c", "+C", " d"))


def rule(least: int, message: str = "Too short.", **fields: Json) -> JsonObject:
    return {"type": "length", "min": least, "message": message, **fields}


CONTAINS = {"type": "contains", "value": "$ ", "message": "Show it."}


def test_criteria_are_told_as_sentences() -> None:
    before = {"validationCriteria": [rule(3), CONTAINS]}
    after = {"validationCriteria": [rule(50), {"type": "regex", "pattern": "^ok", "message": "Say ok."}]}

    assert changes(before, after) == [
        Change(
            kind=ChangeKind.CHANGED,
            what="criterion",
            before="The output is at least 3 characters long: Too short.",
            after="The output is at least 50 characters long: Too short.",
        ),
        Change(
            kind=ChangeKind.REMOVED,
            what="criterion",
            before='The output contains the text "$ " (with this case): Show it.',
        ),
        Change(kind=ChangeKind.ADDED, what="criterion", after="Say ok."),
    ]


def test_the_condition_of_a_rule_counts() -> None:
    (change,) = changes({"validationCriteria": [rule(3)]}, {"validationCriteria": [rule(3, condition=LARGE)]})

    assert change.after == 'The output is at least 3 characters long: Too short. (if size equals "large")'


def test_criteria_in_another_order_are_still_a_change() -> None:
    (change,) = changes({"validationCriteria": [rule(3), CONTAINS]}, {"validationCriteria": [CONTAINS, rule(3)]})

    assert (change.kind, change.what) == (ChangeKind.CHANGED, "criteria")


def test_loops_in_words() -> None:
    def rounds(**fields: Json) -> JsonObject:
        return document(loop("round", [step("work")], **fields))

    (section,) = compared(rounds(type="for", count=2), rounds(type="while", condition={"var": "more"}))

    assert section.changes == (
        Change(kind=ChangeKind.CHANGED, what="loop", before="2 times", after="while more is true, at most 10 times"),
    )


def test_a_step_that_becomes_a_loop_is_told_field_by_field() -> None:
    (section, added) = compared(document(step("one")), document(loop("one", [step("two")], type="for", count=2)))

    assert {change.what for change in section.changes} == {"title", "prompt", "type", "loop"}
    assert (added.kind, added.step) == (ChangeKind.ADDED, "two")


def test_a_prompt_that_is_gone_is_gone_line_by_line() -> None:
    (section, _) = compared(
        document(step("one", prompt="A\n\nB")), document(loop("one", [step("two")], type="for", count=2))
    )

    assert Change(kind=ChangeKind.REMOVED, what="prompt", diff=("@@ -1,3 +0,0 @@", "-A", "-", "-B")) in section.changes


def test_long_json_is_told_as_a_diff_of_what_changed() -> None:
    before = {"properties": {name: {"type": "string"} for name in ("first", "second", "third", "fourth", "fifth")}}
    after = {"properties": before["properties"] | {"third": {"type": "number"}}}

    (section,) = compared(document(contextSchema=before), document(contextSchema=after))

    (change,) = section.changes
    assert (change.what, change.before, change.after) == ("contextSchema", "", "")
    assert [line for line in change.diff if line[0] in "+-"] == ['-      "type": "string"', '+      "type": "number"']


def test_a_step_with_another_id_is_still_that_step() -> None:
    before = document(step("one", title="Look"), step("two", prompt="Merge it."))
    after = document(step("look", title="Look", runCondition=LARGE), step("merge", prompt="Merge it.", title="Merge"))

    first, second = compared(before, after)

    assert [(change.what, change.before, change.after) for change in first.changes] == [
        ("id", "one", "look"),
        ("prompt", "", ""),
        ("condition", "", 'size equals "large"'),
    ]
    assert [(change.what, change.before, change.after) for change in second.changes] == [
        ("id", "two", "merge"),
        ("title", "Title two", "Merge"),
    ]


def test_the_body_of_a_loop_with_another_id_did_not_move() -> None:
    before, after = (
        document({**loop(name, [step("work")], type="for", count=2), "title": "Rounds"}) for name in ("again", "round")
    )

    (section,) = compared(before, after)

    assert section.changes == (Change(kind=ChangeKind.CHANGED, what="id", before="again", after="round"),)


def test_a_step_with_other_words_is_another_step() -> None:
    assert [section.kind for section in compared(document(step("one")), document(step("two")))] == [
        ChangeKind.ADDED,
        ChangeKind.REMOVED,
    ]


TESTS = {"kind": "command", "name": "tests", "use": "test"}
TESTS_WORDS = "The project's command `test` ends with exit code 0"


def test_proofs_are_added_and_removed() -> None:
    file = {"kind": "file", "path": "a"}

    assert changes({"proof": [TESTS]}, {"proof": [file]}) == [
        Change(kind=ChangeKind.REMOVED, what="proof tests", before=TESTS_WORDS),
        Change(kind=ChangeKind.ADDED, what="proof file-1", after="The file `a` exists"),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"exitCode": [0, 5]}, {}),
        ({"at": "start"}, {}),
        ({"condition": LARGE}, {}),
        ({}, {"stdout": ["passed"]}),
        ({"stdout": ["passed"]}, {"stdout": ["passed", "0 failed"]}),
        ({"measure": {"n": {"pattern": "x"}}}, {"measure": {"n": {"pattern": "x"}}, "holds": {"var": "proof.tests.n"}}),
    ],
)
def test_a_proof_becomes_stronger_and_the_other_way_round_weaker(before: JsonObject, after: JsonObject) -> None:
    (stronger,) = changes({"proof": [TESTS | before]}, {"proof": [TESTS | after]})
    (weaker,) = changes({"proof": [TESTS | after]}, {"proof": [TESTS | before]})

    assert (stronger.kind, stronger.what) == (ChangeKind.CHANGED, "proof tests (stronger)")
    assert (weaker.what, weaker.before, weaker.after) == ("proof tests (weaker)", stronger.after, stronger.before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"kind": "git", "commits": 1}, {"kind": "git", "commits": 2}),
        ({"kind": "git", "unchanged": ["a"]}, {"kind": "git", "unchanged": ["a", "b"]}),
        ({"kind": "git", "commits": 1}, {"kind": "git", "commits": 1, "clean": False}),
        ({"kind": "file", "path": "a"}, {"kind": "file", "path": "a", "changed": "run"}),
        ({"kind": "http", "url": "http://x/"}, {"kind": "http", "url": "http://x/", "body": ["ok"]}),
    ],
)
def test_other_kinds_become_stronger_and_weaker(before: JsonObject, after: JsonObject) -> None:
    assert [change.what for change in changes({"proof": [before]}, {"proof": [after]})] == [
        f"proof {before['kind']}-1 (stronger)"
    ]
    assert [change.what for change in changes({"proof": [after]}, {"proof": [before]})] == [
        f"proof {before['kind']}-1 (weaker)"
    ]


def test_another_proof_of_the_same_name_is_neither() -> None:
    other = {"use": "lint", "stdout": ["ok"]}

    assert [change.what for change in changes({"proof": [TESTS]}, {"proof": [TESTS | other]})] == ["proof tests"]
    assert changes({"proof": [TESTS]}, {"proof": [TESTS | {"timeout": 5}]}) == [
        Change(
            kind=ChangeKind.CHANGED,
            what="proof tests",
            before='{"kind": "command", "name": "tests", "use": "test"}',
            after='{"kind": "command", "name": "tests", "use": "test", "timeout": 5}',
        )
    ]


def test_proofs_in_another_order_are_a_change() -> None:
    file = {"kind": "file", "path": "a"}

    assert [change.what for change in changes({"proof": [TESTS, file]}, {"proof": [file, TESTS]})] == ["proof"]


def test_what_follows_from_an_unproved_output_becomes_weaker_or_stronger() -> None:
    (section,) = compared(document(), document(whenUnproved="note"))

    assert section.changes == (
        Change(kind=ChangeKind.CHANGED, what="whenUnproved (weaker)", before="refuse", after="note"),
    )
    assert compared(document(whenUnproved="note"), document(whenUnproved="ask"))[0].changes[0].what == (
        "whenUnproved (stronger)"
    )
    assert compared(document(), document(whenUnproved="refuse")) == ()
