"""What follows from a call: the events that a run gets, and the refusals that leave it as it was."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from support.narrowing import end_of, instance_of, not_none
from workflowlookup.errors import InvalidCriteria, InvalidParams, InvalidWorkflow, RunStateError, StepNotFound
from workflowlookup.language.document.building import build
from workflowlookup.runs import advance
from workflowlookup.runs.draft import CORRECT_DOCUMENT, Draft, Moment
from workflowlookup.runs.events import (
    Cancelled,
    EndUnknown,
    Event,
    Failed,
    LoopEntered,
    LoopIterated,
    LoopLeft,
    OutputRefused,
    Record,
    StepSkipped,
    kind_of,
)
from workflowlookup.runs.fold import fold
from workflowlookup.runs.run import State, Waiting

E = TypeVar("E", bound=Event)
LONG = [{"type": "length", "min": 5, "message": "Too short."}]


class Story:
    """A run that goes from call to call, with a clock that the test moves."""

    def __init__(self, content: JsonObject, given: JsonObject | None = None, context: JsonObject | None = None) -> None:
        self.now = 1_000
        self._take(advance.begin("r1", build(content), given or {}, context or {}, self.at), [])

    @property
    def at(self) -> Moment:
        return Moment(time=self.now, by="tests")

    def _take(self, draft: Draft, earlier: Sequence[Record]) -> Self:
        self.run = draft.run
        self.records = [*earlier, *draft.records]
        self.last = [kind_of(record.event) for record in draft.records]
        assert fold("r1", self.records) == self.run
        assert self.run.rests
        return self

    def submit(self, step_id: str, output: str = "done", **changes: Json) -> Self:
        return self._take(advance.submit(self.run, step_id, output, changes, self.at), self.records)

    def confirm(self, **fields: Json) -> Self:
        return self._take(advance.confirm(self.run, self.run.current, self.at, how="console", **fields), self.records)

    def deny(self, **fields: Json) -> Self:
        return self._take(advance.deny(self.run, self.run.current, self.at, how="relayed", **fields), self.records)

    def cancel(self, reason: str = "") -> Self:
        return self._take(advance.cancel(self.run, self.at, reason), self.records)

    def expire(self) -> Self:
        return self._take(not_none(advance.expire(self.run, self.at)), self.records)

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.records if isinstance(record.event, kind)]

    @property
    def refusal(self) -> OutputRefused:
        """The last submission, which was refused."""
        return instance_of(OutputRefused, self.run.last_submission)

    @property
    def end(self) -> Failed | EndUnknown | Cancelled:
        """How the run ended, which is not by its last step."""
        return end_of(self.run)


def test_a_run_offers_its_first_step() -> None:
    story = Story(document(step("one"), step("two")))

    assert story.last == ["started", "step-offered"]
    assert (story.run.state, story.run.waiting_for, story.run.current) == (State.WAITING, Waiting.OUTPUT, "one")
    assert (len(story.run.results), story.run.total) == (0, 2)


def test_an_accepted_output_leads_to_the_next_step_and_the_last_one_completes_the_run() -> None:
    story = Story(document(step("one"), step("two")))

    assert story.submit("one").last == ["output-accepted", "step-offered"]
    assert story.submit("two", "really done").last == ["output-accepted", "completed"]
    assert story.run.state is State.COMPLETED
    assert story.run.results == {"one": "done", "two": "really done"}


def test_a_refused_output_stays_at_its_step_and_is_counted() -> None:
    story = Story(document(step("one", validationCriteria=LONG), step("two")))

    story.submit("one", "no")

    assert story.last == ["output-refused", "step-offered"]
    assert (story.run.current, story.run.attempts, dict(story.run.results)) == ("one", 1, {})
    assert story.refusal.issues == ("Too short.",)
    assert story.submit("one", "nope").run.attempts == 2
    assert story.submit("one", "long enough").run.attempts == 0


def test_without_criteria_a_blank_output_is_refused() -> None:
    assert Story(document(step("one"))).submit("one", " \n").last == ["output-refused", "step-offered"]


def test_rules_see_the_changes_that_come_with_the_output() -> None:
    rule = {"type": "contains", "value": "risk", "message": "Name the risk.", "condition": {"var": "size", "equals": 2}}
    story = Story(document(step("one", validationCriteria=[rule])))

    assert story.submit("one", "done", size=2).last == ["output-refused", "step-offered"]
    assert story.run.context == {}, "what is refused changes nothing"
    assert story.submit("one", "done", size=1).last == ["output-accepted", "context-changed", "completed"]


def test_changes_sent_with_an_output_disable_no_rule() -> None:
    large = {"var": "size", "equals": "large"}
    rule = {"type": "contains", "value": "rollback", "message": "Name the rollback.", "condition": large}
    content = document(step("one", produces=["size"]), step("two", validationCriteria=[rule, {"not": rule}]))
    story = Story(content).submit("one", size="large")

    story.submit("two", "delete", size="small")

    assert story.refusal.issues == ("Name the rollback.",)
    assert len(story.submit("two", "rollback", size="small").refusal.issues) == 1


def test_changes_sent_with_an_output_alter_no_rule() -> None:
    rules = [
        {"type": "contains", "value": "Ticket {{ticket}}", "message": "Name {{ticket}}."},
        {"type": "regex", "pattern": "^{{ticket}}", "message": "Begin with it."},
    ]
    story = Story(document(step("one", validationCriteria=rules), step("two")), context={"ticket": "T-17"})

    for ticket in ("", "X", None):
        story.submit("one", "X Ticket X", ticket=ticket)
        assert story.refusal.issues == ("Name T-17.", "Begin with it.")
    assert story.submit("one", "T-17: Ticket T-17").run.current == "two"


@pytest.mark.parametrize("before", [{}, {"ticket": None}, {"ticket": " \u200b"}])
def test_a_rule_takes_an_unset_variable_from_the_changes_sent_with_the_output(before: JsonObject) -> None:
    rule = {"type": "contains", "value": "Ticket {{ticket}}", "message": "Name the ticket."}
    story = Story(document(step("one", validationCriteria=[rule]), step("two")), context=before)
    unset = "Name the ticket: a rule cannot be judged, because ticket is not set in the context, or blank."

    assert story.submit("one", "Ticket  ").refusal.issues == (unset,)
    assert story.submit("one", "Ticket  ", ticket=" ").refusal.issues == (unset,)
    assert story.submit("one", "Ticket 7", ticket=17).refusal.issues == ("Name the ticket.",)
    assert story.submit("one", "Ticket 17", ticket=17).run.current == "two"


def test_rules_use_the_captures_of_this_output_not_of_an_earlier_one() -> None:
    rule = {"type": "contains", "value": "why", "message": "Say why.", "condition": {"var": "tests", "equals": "red"}}
    body = step("try", produces={"tests": {"enum": ["red", "green"]}}, validationCriteria=[rule])
    story = Story(document(loop("until-green", [body], type="until", condition={"var": "tests", "equals": "green"})))

    story.submit("try@1", "That is why.\ntests: red")

    assert story.submit("try@2", "tests: green", other=1).run.state is State.COMPLETED


def test_skipped_steps_are_recorded_once_with_their_condition() -> None:
    large = {"var": "size", "equals": "large"}
    story = Story(document(step("one"), step("two", runCondition=large), step("three"), step("four")))

    assert story.submit("one").last == ["output-accepted", "step-skipped", "step-offered"]
    assert story.run.skipped == {"two": large}
    assert story.run.total == 3
    assert story.submit("three").last == ["output-accepted", "step-offered"]


def test_a_skipped_step_whose_condition_becomes_true_is_offered() -> None:
    story = Story(document(step("one"), step("two", runCondition={"var": "late"}), step("three")))

    story.submit("one").submit("three", late=True)

    assert story.run.current == "two"
    assert story.run.skipped == {}


def test_of_very_many_skipped_steps_the_first_are_recorded() -> None:
    inner = loop("inner", [step("never", runCondition={"var": "no"})], type="for", count=200, maxIterations=200)
    story = Story(document(loop("outer", [inner], type="for", count=100, maxIterations=100), step("last")))

    assert len(story.events(StepSkipped)) == 10_000
    assert (story.run.current, story.run.warnings) == (
        "last",
        ("Only the first 10,000 of 20,000 skipped steps were recorded",),
    )


SLOW = {"var": "s", "matches": "(a+)+$"}
SLOW_TEXT = "a" * 50_000 + "b"


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_person_is_asked_if_the_condition_takes_too_long(when: str) -> None:
    asking = step("two", requireConfirmation={"condition": SLOW, "when": when})
    story = Story(document(step("one", produces={"s": {}}), asking)).submit("one", f"s: {SLOW_TEXT}")

    if when == "after":
        story.submit("two")

    assert (story.run.waiting_for, story.run.current) == (Waiting.CONFIRMATION, "two")


def test_an_output_is_not_accepted_if_finding_the_next_step_takes_too_long() -> None:
    story = Story(document(step("one", produces={"s": {}}), step("two", runCondition=SLOW), step("three")))

    with pytest.raises(InvalidWorkflow):
        story.submit("one", f"s: {SLOW_TEXT}")
    assert story.submit("one", "s: a").run.current == "two"


# ── input and context ───────────────────────────────────────────────────────────────────────────────────────────

INPUT = {"type": "object", "properties": {"ticket": {"type": "string"}}, "required": ["ticket"]}


def test_the_fields_of_the_input_are_variables_and_the_context_beside_it_adds_to_them() -> None:
    story = Story(document(inputSchema=INPUT), {"ticket": "T-1", "size": 1}, {"size": 1, "more": 2})

    assert story.run.context == {"ticket": "T-1", "size": 1, "more": 2}
    assert story.run.input == {"ticket": "T-1", "size": 1}


@pytest.mark.parametrize(
    ("given", "details"),
    [({}, "input.ticket is required"), ({"ticket": 1}, "input.ticket must be text ('string'); found 1")],
)
def test_an_input_that_does_not_fit_starts_nothing(given: JsonObject, details: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        Story(document(inputSchema=INPUT), given)

    assert refusal.value.data["details"] == details


CONTRACT = {"properties": {"size": {"enum": ["small", "large"]}}}


def test_a_variable_of_the_wrong_kind_is_refused_before_anything_is_recorded() -> None:
    story = Story(document(contextSchema=CONTRACT))

    with pytest.raises(InvalidParams) as refusal:
        story.submit("first-step", size="huge")

    assert refusal.value.data["details"] == "context.size must be one of 'small', 'large'; found 'huge'"
    with pytest.raises(InvalidParams):
        Story(document(contextSchema=CONTRACT), context={"size": 3})


def test_an_undeclared_variable_is_refused_if_the_contract_is_closed() -> None:
    with pytest.raises(InvalidParams) as refusal:
        Story(document(contextSchema={**CONTRACT, "additionalProperties": False})).submit("first-step", sise="small")

    assert refusal.value.data["details"] == "context: unknown field 'sise' (did you mean 'size'?)"


def test_a_missing_product_is_asked_for_with_an_example() -> None:
    story = Story(document(step("triage", produces=["size"]), step("plan"), contextSchema=CONTRACT))

    story.submit("triage")

    assert story.last == ["output-refused", "step-offered"]
    judged = story.refusal
    assert judged.issues == ("size is not set: expected one of 'small', 'large' (step 'triage' produces it)",)
    assert judged.suggestions == ('Send {"context":{"size":"small"}} with the output.',)
    assert [need.variable for need in judged.missing] == ["size"]
    assert story.submit("triage", size="large").run.current == "plan"


def test_the_required_variables_of_a_step_must_be_set_when_it_is_done() -> None:
    story = Story(document(step("plan", requires=["owner"])))

    assert [need.variable for need in story.submit("plan").refusal.missing] == ["owner"]
    assert story.submit("plan", owner="Ada").run.state is State.COMPLETED


def test_the_context_of_a_run_has_a_bound() -> None:
    story = Story(document(step("one"), step("two")))
    story.submit("one", a="x" * 200_000)

    with pytest.raises(InvalidParams, match="at most 256KB"):
        story.submit("two", b="x" * 200_000)


# ── attempts, confirmation, deadline, cancel ────────────────────────────────────────────────────────────────────


def test_the_run_fails_when_no_attempts_are_left() -> None:
    story = Story(document(step("one", validationCriteria=LONG, maxAttempts=2)))

    story.submit("one", "a")

    assert story.submit("one", "b").last == ["output-refused", "failed"]
    assert story.end.reason == "The output of step 'one' was refused 2 times, the limit of this step."


def asked_after_attempts() -> Story:
    limited = step("one", validationCriteria=LONG, maxAttempts=1, whenExhausted="ask", requireConfirmation=True)
    return Story(document(limited, step("two"))).submit("one", "a", size=3)


def test_a_person_may_accept_the_last_output_and_is_not_asked_twice() -> None:
    story = asked_after_attempts()
    assert story.last == ["output-refused", "confirmation-asked"]
    assert not_none(story.run.open_question).reason == "attempts"

    story.confirm()

    assert story.last == ["confirmation-given", "output-accepted", "context-changed", "step-offered"]
    assert (dict(story.run.results), story.run.context, story.run.current) == ({"one": "a"}, {"size": 3}, "two")


def test_a_person_may_end_the_run_after_the_last_attempt() -> None:
    story = asked_after_attempts().deny(note="Not like this.")

    assert story.last == ["confirmation-denied", "failed"]
    assert story.end.reason == "Step 'one' was refused once, and a person did not accept it: Not like this."


def confirmed(**fields: Json) -> JsonObject:
    return document(step("one", requireConfirmation=True, **fields), step("two"))


def test_a_step_that_needs_a_person_holds_the_next_one() -> None:
    story = Story(confirmed()).submit("one")

    assert story.last == ["output-accepted", "confirmation-asked"]
    assert (story.run.waiting_for, story.run.current) == (Waiting.CONFIRMATION, "one")
    with pytest.raises(RunStateError, match="waits for a person to confirm step 'one'"):
        story.submit("two")


def test_a_person_agrees_and_the_run_goes_on() -> None:
    story = Story(confirmed()).submit("one").confirm(note="Fine.")

    assert story.last == ["confirmation-given", "step-offered"]
    assert story.run.current == "two"


def test_a_person_does_not_agree_and_the_step_is_offered_again_with_the_note() -> None:
    story = Story(confirmed()).submit("one").deny(note="Think again.")

    assert story.last == ["confirmation-denied", "step-offered"]
    assert (story.run.current, dict(story.run.results), story.run.note) == ("one", {}, "Think again.")
    assert story.submit("one").last == ["output-accepted", "confirmation-asked"], "the same words, once more"
    assert story.confirm().run.current == "two"


def test_confirmation_by_condition_sees_the_changes() -> None:
    story = Story(document(step("one", requireConfirmation={"var": "risk", "equals": "high"}), step("two")))

    assert story.submit("one", risk="high").run.waiting_for is Waiting.CONFIRMATION


def test_a_deadline_fails_the_run_and_waiting_for_a_person_does_not_count() -> None:
    story = Story(document(step("one", requireConfirmation=True), step("two"), deadlineSeconds=1.5))
    story.now = 1_500
    story.submit("one")
    story.now = 900_000
    assert advance.expire(story.run, story.at) is None
    story.confirm()
    story.now = 901_000
    assert advance.expire(story.run, story.at) is None
    story.now = 901_001

    assert story.expire().last == ["failed"]
    assert story.end.reason == "The run was not done within 1.5 seconds; it waited for the output of step 'two'."


def test_a_run_can_be_cancelled_wherever_it_waits() -> None:
    assert Story(document()).cancel("no need").end.reason == "no need"
    assert Story(confirmed()).submit("one").cancel().run.state is State.CANCELLED


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────


def refused(story: Story, step_id: str, kind: type[RunStateError | StepNotFound] = RunStateError) -> Mapping[str, Any]:
    with pytest.raises(kind) as refusal:
        story.submit(step_id)
    return refusal.value.data


def test_a_wrong_step_is_refused_with_the_one_that_is_expected() -> None:
    data = refused(Story(document(step("one"), step("two"))), "two")

    assert data == {
        "details": "The run waits for the output of step 'one', not of 'two'.",
        "runId": "r1",
        "state": "waiting",
        "waitingFor": "output",
        "expected": "one",
        "stepId": "two",
    }


def test_a_step_that_the_workflow_does_not_have_is_not_found() -> None:
    data = refused(Story(document(step("one"))), "oen", StepNotFound)

    assert data == {"runId": "r1", "state": "waiting", "waitingFor": "output", "expected": "one", "stepId": "oen"}


def test_a_run_that_is_over_accepts_nothing() -> None:
    story = Story(document(step("one"))).submit("one")

    assert refused(story, "one")["state"] == "completed"
    for call in (story.confirm, story.deny, story.cancel):
        with pytest.raises(RunStateError, match="The run is completed"):
            call()


def test_a_confirmation_without_a_question_is_refused() -> None:
    with pytest.raises(RunStateError, match="not for a confirmation"):
        Story(document()).confirm()


def test_criteria_that_cannot_be_applied_are_refused_with_run_and_step() -> None:
    story = Story(document(step("one", validationCriteria=[{"type": "regex", "pattern": "(", "message": "m"}])))

    with pytest.raises(InvalidCriteria) as refusal:
        story.submit("one")

    assert (refusal.value.data["runId"], refusal.value.data["stepId"]) == ("r1", "one")
    assert refusal.value.remedy == f"{refusal.value.data['details']}. {CORRECT_DOCUMENT}"


# ── loops ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_for_each_goes_through_the_list_that_was_there_when_it_was_entered() -> None:
    story = Story(
        document(loop("all", [step("look")], type="forEach", items="files"), step("end")), {}, {"files": ["a", "b"]}
    )
    assert story.last == ["started", "loop-entered", "step-offered"]
    (entered,) = story.events(LoopEntered)
    assert (entered.loop_id, entered.iteration, entered.total, entered.items) == ("all", 1, 2, ["a", "b"])

    story.submit("look@1", files=["x", "y", "z"])

    assert story.last == ["output-accepted", "context-changed", "loop-iterated", "step-offered"]
    assert story.run.scope["currentItem"] == "b"
    assert story.submit("look@2").last == ["output-accepted", "loop-left", "step-offered"]
    assert story.events(LoopLeft)[0].why == "every item is done"
    assert story.submit("end").run.state is State.COMPLETED


def test_nested_loops_begin_outermost_first_and_end_innermost_first() -> None:
    inner = loop("inner", [step("look")], type="for", count=2)
    story = Story(document(loop("outer", [inner], type="forEach", items="files")), {"files": ["a", "b"]})
    for step_id in ("look@1.1", "look@1.2", "look@2.1", "look@2.2"):
        assert story.run.current == step_id
        story.submit(step_id)

    texts = [
        (kind_of(event), event.loop_id, getattr(event, "iteration", None))
        for event in (record.event for record in story.records)
        if isinstance(event, LoopEntered | LoopIterated | LoopLeft)
    ]
    assert texts == [
        ("loop-entered", "outer", 1),
        ("loop-entered", "inner@1", 1),
        ("loop-iterated", "inner@1", 2),
        ("loop-left", "inner@1", None),
        ("loop-iterated", "outer", 2),
        ("loop-entered", "inner@2", 1),
        ("loop-iterated", "inner@2", 2),
        ("loop-left", "inner@2", None),
        ("loop-left", "outer", None),
    ]


@pytest.mark.parametrize(
    ("fields", "changes", "why"),
    [
        ({"type": "while", "condition": {"not": {"var": "done"}}}, {"done": True}, "not true: not (done is true)"),
        ({"type": "until", "condition": {"var": "done"}}, {"done": True}, "true: done is true"),
        ({"type": "for", "count": "times"}, {}, "it ran once"),
        ({"type": "for", "count": 5, "maxIterations": 1}, {}, "it ran once, its limit"),
    ],
    ids=["while", "until", "for", "limit"],
)
def test_a_loop_says_why_it_ended(fields: JsonObject, changes: JsonObject, why: str) -> None:
    story = Story(document(loop("again", [step("look")], **fields)), {"times": 1}).submit("look@1", **changes)

    (left,) = story.events(LoopLeft)
    assert story.run.state is State.COMPLETED
    assert left.why == why


def test_a_loop_whose_run_condition_fails_ends_with_all_loops_in_it() -> None:
    inner = loop("inner", [step("look")], type="for", count=5)
    outer = {**loop("outer", [inner], type="for", count=5), "runCondition": {"not": {"var": "enough"}}}
    story = Story(document(outer, step("end"))).submit("look@1.1", enough=True)

    left = [(event.loop_id, event.why) for event in story.events(LoopLeft)]
    assert left == [("inner@1", "not true: not (enough is true)"), ("outer", "not true: not (enough is true)")]
    assert (story.run.current, story.run.iterating) == ("end", {})


def test_a_run_that_goes_back_to_an_earlier_step_returns_to_where_its_loop_was() -> None:
    body = [step("look")]
    before = step("rework", runCondition={"var": "broken"})
    story = Story(document(before, loop("all", body, type="for", count=3)))

    story.submit("look@1").submit("look@2", broken=True)
    assert (story.run.current, story.run.iterating) == ("rework", {"all": 2})
    story.submit("rework", broken=False)

    assert story.run.current == "look@3"
    assert len(story.events(LoopEntered)) == 1


def test_a_loop_without_a_condition_is_ended_by_its_id_and_only_such_a_loop() -> None:
    source = loop("again", [step("look")], type="while", conditionSource={"kind": "elsewhere"})
    story = Story(document(source, step("end"))).submit("look@1")

    story.submit("again", "nothing left to look at")

    assert story.last == ["output-accepted", "loop-left", "step-offered"]
    assert story.events(LoopLeft)[0].why == "the agent ended it"
    other = Story(document(loop("again", [step("look")], type="while", condition={"not": {"var": "done"}})))
    assert refused(other, "again")["expected"] == "look@1"


def test_a_step_skipped_in_an_iteration_stays_skipped_in_later_ones() -> None:
    body = [step("look"), step("fix", runCondition={"var": "broken"})]
    story = Story(document(loop("all", body, type="forEach", items="files")), {"files": ["a", "b"]})

    story.submit("look@1", broken=False)
    assert story.run.current == "look@2"
    story.submit("look@2", broken=True)

    assert story.run.current == "fix@2"
    assert list(story.run.skipped) == ["fix@1"]
    assert story.submit("fix@2").run.state is State.COMPLETED


def test_every_event_is_equal_after_encoding_and_decoding() -> None:
    import msgspec

    from workflowlookup.runs.events import Record

    story = asked_after_attempts().confirm().cancel("enough")
    text = [msgspec.json.encode(record) for record in story.records]

    assert msgspec.json.decode(b"[" + b",".join(text) + b"]", type=list[Record]) == story.records
    assert json.loads(text[1])["event"] == {"event": "step-offered", "stepId": "one"}
