"""Proofs in a run: when they are due, what their verdicts lead to, and that nobody but the server can bring them."""

from typing import Any

import msgspec
import pytest

from support.json_values import Json, JsonObject
from support.make import document, step
from workflowlookup.errors import InvalidParams, RunStateError
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Draft, Location, Moment
from workflowlookup.runs.events import (
    ConfirmationAsked,
    Judgement,
    OutputAccepted,
    OutputRefused,
    ProofsDue,
    ProofTaken,
    Record,
    Snapshot,
    StepOffered,
    kind_of,
)
from workflowlookup.runs.exchange import replay
from workflowlookup.runs.fold import fold
from workflowlookup.runs.proofs import taking
from workflowlookup.runs.proofs.due import SnapshotDue, next_due, scope_with_output
from workflowlookup.runs.proofs.state import ProofCounts
from workflowlookup.runs.proofs.statistics import ProofTally
from workflowlookup.runs.proofs.words import proved, sentences_of
from workflowlookup.runs.questions import question_of
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.why import explain_run
from workflowlookup.store.imports import as_imported

TESTS: JsonObject = {"kind": "command", "name": "tests", "use": "test"}
LINT: JsonObject = {"kind": "command", "name": "lint", "use": "lint"}


class Story:
    """A run and all its records, driven call by call."""

    def __init__(self, *steps: JsonObject, **fields: Json) -> None:
        self.time = 1
        draft = advance.begin("r1", build(document(*steps, **fields)), {}, {}, self.now, location=Location(root="/p"))
        self.run, self.records = draft.run, list(draft.records)

    @property
    def now(self) -> Moment:
        self.time += 1
        return Moment(time=self.time, by="tests", nonce=f"q{self.time}")

    def store(self, draft: Draft) -> Run:
        self.run = draft.run
        self.records += draft.records
        assert fold("r1", self.records) == self.run
        return self.run

    def submit(self, output: str = "done", step_id: str = "one", **context: Json) -> Run:
        return self.store(advance.submit(self.run, step_id, output, context, self.now))

    def take(self, name: str, verdict: str = "passed", **fields: Any) -> Run:
        judgement = Judgement(name=name, kind="command", verdict=verdict, **fields)  # type: ignore[arg-type]
        return self.store(taking.take_proof(self.run, judgement, self.now))

    @property
    def due(self) -> str | None:
        due = next_due(self.run, Budget())
        if due is None:
            return None
        return f"snapshot of the {due.since}" if isinstance(due, SnapshotDue) else due.name

    def kinds(self) -> list[str]:
        return [kind_of(record.event) for record in self.records]


def test_an_output_counts_only_after_every_proof_has_passed() -> None:
    story = Story(step("one", proof=[TESTS, LINT]), step("two"))

    waiting = story.submit()
    assert (waiting.state, waiting.waiting_for, dict(waiting.results), story.due) == (
        State.RUNNING,
        Waiting.PROOF,
        {},
        "tests",
    )
    assert waiting.needs_server
    assert story.take("tests").waiting_for is Waiting.PROOF
    after = story.take("lint", summary="make lint", exit_code=0, seconds=41)

    assert (after.current, dict(after.results), after.proving) == ("two", {"one": "done"}, None)
    assert after.proof_counts == ProofCounts(passed=2)
    assert list(sentences_of(after, "one")) == ["proved: tests", "proved: lint (make lint, exit code 0, 41 s)"]


def test_the_first_proof_that_fails_refuses_the_output_and_counts_as_an_attempt() -> None:
    story = Story(
        step("one", proof=[{**TESTS, "message": "Tests of {{area}} pass."}, LINT], maxAttempts=2), step("two")
    )

    story.submit(area="login")
    after = story.take(
        "tests", "failed", summary="make test", reason="It ended with exit code 2.", remedy="Fix them.", tail="E  boom"
    )

    assert (after.waiting_for, after.current, after.attempts) == (Waiting.OUTPUT, "one", 1)
    refused = after.last_submission
    assert isinstance(refused, OutputRefused)
    assert refused.issues == ("Tests of login pass. Proof 'tests' (make test) failed: It ended with exit code 2.",)
    assert refused.suggestions == ("Fix them.", "The end of what 'make test' wrote:\nE  boom")
    assert after.context == {}, "the changes of a refused output do not count"
    tally = ProofTally()
    tally.add(story.records)
    counted = next(tally.statistics(after.workflow))
    assert (counted.failed, counted.failure, counted.tail) == (1, "It ended with exit code 2.", "E  boom")
    story.submit()
    assert story.take("tests", "failed").state is State.FAILED


@pytest.mark.parametrize(
    ("when_unproved", "state", "last"),
    [("refuse", Waiting.OUTPUT, StepOffered), ("ask", Waiting.CONFIRMATION, ConfirmationAsked)],
)
def test_what_cannot_be_judged_never_passes(when_unproved: str, state: Waiting, last: type) -> None:
    story = Story(step("one", proof=[TESTS, LINT]), step("two"), whenUnproved=when_unproved)

    story.submit()
    assert story.take("tests", "unproved", reason="no command 'test'").waiting_for is Waiting.PROOF
    after = story.take("lint")

    assert (after.waiting_for, dict(after.results), after.current) == (state, {}, "one")
    assert isinstance(story.records[-1].event, last)
    assert proved(after.proof_counts) == "proved 1 of 2"


def test_why_shows_each_proof_with_its_output() -> None:
    story = Story(step("one", proof=[TESTS, LINT]), step("two"))
    story.submit()
    story.take("tests", summary="make test", exit_code=0, tail="7 passed")
    story.take("lint", "failed", reason="It ended with exit code 1.")

    (one, _) = explain_run(story.run, story.records, Budget()).steps

    assert one.proofs == ("proved: tests (make test, exit code 0)", "failed: lint: It ended with exit code 1.")
    assert one.outputs == {"tests": "7 passed"}


def test_with_note_it_is_accepted_and_marked() -> None:
    story = Story(step("one", proof=[TESTS]), step("two"), whenUnproved="note")

    story.submit()
    after = story.take("tests", "unproved", reason="There is no command 'test'.", remedy="Define it.")

    assert (after.current, after.proof_counts) == ("two", ProofCounts(unproved=1))
    assert isinstance(after.last_submission, OutputAccepted)
    assert after.last_submission.warnings == ("Not proven: tests: There is no command 'test'. Define it.",)


def test_a_person_may_accept_what_is_not_proven_and_that_is_recorded() -> None:
    story = Story(step("one", proof=[TESTS, LINT]), step("two"), whenUnproved="ask")
    story.submit("the output", size="large")
    story.take("tests", "unproved", reason="There is no command 'test'.", remedy="Define it.")
    run = story.take("lint")

    question = question_of(run, Budget())
    assert (question.subject, question.sets) == ("the output", {"size": "large"})
    assert (
        "What could not be proven:\n> not proved: tests: There is no command 'test'. Define it." in question.message()
    )
    with pytest.raises(RunStateError, match="an agent cannot relay"):
        advance.confirm(run, "one", story.now, how="relayed")
    after = story.store(advance.confirm(run, "one", story.now, how="terminal"))

    assert (after.current, after.context, dict(after.results)) == ("two", {"size": "large"}, {"one": "the output"})
    assert after.proof_counts == ProofCounts(passed=1, waived=1)
    assert next(sentences_of(after, "one")) == "waived: tests: There is no command 'test'."


def test_a_no_to_what_is_not_proven_refuses_the_output() -> None:
    story = Story(step("one", proof=[TESTS]), whenUnproved="ask")
    story.submit(size="large")
    run = story.take("tests", "unproved", reason="No command.")

    after = story.store(advance.deny(run, "one", story.now, how="terminal", note="configure it"))

    assert (after.waiting_for, after.attempts, after.context) == (Waiting.OUTPUT, 1, {})
    assert isinstance(after.last_submission, OutputRefused)
    assert after.last_submission.suggestions[-1] == "A person did not accept it without proof: configure it"


def test_the_server_looks_at_the_project_before_the_agent_gets_the_step() -> None:
    baseline = {"kind": "command", "name": "baseline", "use": "test", "at": "start"}
    changed = {"kind": "git", "name": "changed", "changed": ["src/**"]}
    story = Story(
        step("one", proof=[baseline]), step("two", proof=[changed, {**changed, "name": "now", "since": "step"}])
    )

    assert (story.run.waiting_for, story.run.current, story.due) == (Waiting.PROOF, "one", "snapshot of the run")
    story.store(taking.take_snapshot(story.run, "run", Snapshot(commit="c1"), story.now))
    assert story.due == "baseline"
    offered = story.take("baseline", "failed", measures={"passed": 7})
    assert (offered.waiting_for, offered.current) == (Waiting.OUTPUT, "one"), "a measure refuses nothing"
    assert offered.context == {"proof": {"baseline": {"passed": 7}}}
    assert offered.proof_counts == ProofCounts()

    story.submit()
    assert (story.run.current, story.due) == ("two", "snapshot of the step")
    story.store(taking.take_snapshot(story.run, "step", Snapshot(problem="no git"), story.now))
    assert story.run.waiting_for is Waiting.OUTPUT
    assert story.run.step_snapshot == ("two", Snapshot(problem="no git"))


def test_a_proof_applies_if_its_condition_may_hold_before_or_with_the_output() -> None:
    large = {**TESTS, "condition": {"var": "size", "equals": "large"}}
    story = Story(step("one", proof=[large]), step("two", proof=[large]), step("three"))

    assert story.submit(size="large").waiting_for is Waiting.PROOF
    story.take("tests")
    with_change = story.submit("done", "two", size="small")

    assert with_change.waiting_for is Waiting.PROOF, "an agent cannot change the context to escape"
    assert story.take("tests").current == "three"


def test_a_proof_that_never_applies_is_not_due() -> None:
    story = Story(step("one", proof=[{**TESTS, "condition": {"var": "size", "equals": "large"}}]), step("two"))

    assert story.submit(size="small").current == "two"


def test_a_proof_that_a_declared_value_switches_off_is_shown_as_skipped() -> None:
    declared = {**TESTS, "condition": {"var": "regressionTest", "exists": True, "not_equals": "none"}}
    by_measure = {**LINT, "condition": {"var": "proof.baseline.passed", "exists": True}}
    story = Story(step("one", proof=[declared, by_measure], produces={"regressionTest": {}}), step("two"))

    after = story.submit("No test is possible.\n\nregressionTest: none")

    (reason,) = after.proofs["one"].skipped.values()
    assert reason.startswith("It applies only if regressionTest ")
    assert reason.endswith('; regressionTest is "none".')
    assert after.proof_counts == ProofCounts(skipped=1)
    assert proved(after.proof_counts) == "proved 0 of 1"
    assert list(sentences_of(after, "one")) == [f"skipped: tests: {reason}"]


def test_an_agent_cannot_relay_the_answer_that_accepts_an_output_without_its_proofs() -> None:
    declared = {**TESTS, "condition": {"var": "regressionTest", "exists": True, "not_equals": "none"}}
    asking = {"requireConfirmation": True, "produces": {"regressionTest": {}}}
    skipped = Story(step("one", proof=[declared], **asking), step("two"))
    exhausted = Story(step("one", proof=[TESTS], maxAttempts=1, whenExhausted="ask"), step("two"))
    unproved = Story(step("one", proof=[TESTS]), step("two"), whenUnproved="ask")
    skipped.submit("regressionTest: none")
    for story, verdict in ((exhausted, "failed"), (unproved, "unproved")):
        story.submit()
        story.take("tests", verdict)

    for story in (skipped, exhausted, unproved):
        assert story.run.open_question is not None
        with pytest.raises(RunStateError, match="an agent cannot relay it"):
            advance.confirm(story.run, "one", story.now, how="relayed")
        assert advance.confirm(story.run, "one", story.now, how="console").run.current == "two"


def test_proofs_see_what_came_with_the_output_and_earlier_measures() -> None:
    late = {**LINT, "condition": {"var": "proof.tests.passed", "gt": 5}}
    story = Story(step("one", proof=[TESTS, late], produces={"file": {}}), step("two"))

    story.submit("file: a.py", size="small")
    story.take("tests", measures={"passed": 6})

    assert story.due == "lint"
    scope = scope_with_output(story.run)
    assert (scope["file"], scope["size"], scope["proof"]) == ("a.py", "small", {"tests": {"passed": 6}})


@pytest.mark.parametrize("name", ["proof", "proof.tests", "proof.tests.passed"])
def test_nobody_else_sets_measures(name: str) -> None:
    story = Story(step("one", proof=[TESTS]))

    with pytest.raises(InvalidParams, match=r"context\.proof"):
        advance.submit(story.run, "one", "done", {name: 1}, story.now)
    with pytest.raises(InvalidParams, match=r"context\.proof"):
        advance.begin("r2", story.run.workflow, {}, {name: 1}, story.now)


def test_only_what_is_due_can_be_stored() -> None:
    story = Story(step("one", proof=[TESTS, LINT]))

    with pytest.raises(RunStateError, match="does not wait for proofs"):
        story.take("tests")
    story.submit()
    with pytest.raises(RunStateError, match="'lint' is not due"):
        story.take("lint")
    with pytest.raises(RunStateError, match="snapshot of the run is not due"):
        taking.take_snapshot(story.run, "run", Snapshot(), story.now)
    with pytest.raises(RunStateError, match="takes the proofs of step 'one'"):
        story.submit("other")
    story.store(advance.cancel(story.run, story.now, "enough"))
    assert story.run.ended_at_proofs
    assert not story.run.needs_server
    with pytest.raises(RunStateError, match="cancelled"):
        story.take("tests")


def test_an_old_proof_does_not_count_for_a_new_output() -> None:
    rule = {"type": "contains", "value": "yes", "message": "say yes"}
    story = Story(
        step("one", proof=[TESTS, LINT], validationCriteria=rule, maxAttempts=2, whenExhausted="ask"), step("two")
    )
    story.submit("yes")
    story.take("tests")
    assert story.take("lint", "failed").proof_counts == ProofCounts(passed=1, failed=1)

    run = story.submit("no")
    assert run.proof_counts == ProofCounts()
    after = story.store(advance.confirm(run, "one", story.now, how="console"))

    assert after.proof_counts == ProofCounts(waived=2)


def test_a_run_that_takes_too_long_to_prove_fails_at_its_deadline() -> None:
    story = Story(step("one", proof=[TESTS]), deadlineSeconds=10)
    story.submit()

    expired = advance.expire(story.run, Moment(time=20_000))

    assert expired is not None
    assert "still taking the proofs of step 'one'" in expired.run.end.reason  # type: ignore[union-attr]


def test_an_exported_run_with_proofs_can_be_imported_and_a_changed_verdict_cannot() -> None:
    story = Story(step("one", proof=[TESTS, LINT]), step("two"), whenUnproved="ask")
    story.submit()
    story.take("tests", "failed")
    story.submit()
    story.take("tests")
    story.take("lint", "unproved")
    story.store(advance.confirm(story.run, "one", story.now, how="console"))

    assert replay("r1", story.records) == story.run
    first = next(record for record in story.records if isinstance(record.event, ProofTaken))
    with pytest.raises(InvalidParams, match="cannot happen in a run"):
        replay("r1", [_passed(record) if record is first else record for record in story.records])


def test_the_proofs_of_an_imported_run_are_those_of_another_journal() -> None:
    story = Story(step("one", proof=[TESTS]))
    story.submit()
    story.take("tests", summary="make test")

    run = replay("r1", as_imported(as_imported(story.records, "a.jsonl"), "b.jsonl"))

    assert list(sentences_of(run, "one")) == ["proved: tests (make test, taken by another journal)"]
    assert (run.root, run.origin) == ("", "imported"), "nothing is taken in a directory that somebody else named"


def test_refused_tools_and_pauses_leave_the_proofs_as_they_are() -> None:
    story = Story(step("one", proof=[TESTS, LINT], requireConfirmation=True), step("two"))
    story.submit()
    story.store(advance.refuse_tool(story.run, story.now, "Edit", ""))
    story.store(advance.pause(story.run, story.now))
    assert story.due == "tests"
    story.take("tests")
    story.store(advance.resume(story.run, story.now))
    story.store(advance.refuse_tool(story.run, story.now, "Edit", ""))
    assert story.take("lint").waiting_for is Waiting.CONFIRMATION
    story.store(advance.refuse_tool(story.run, story.now, "Edit", ""))

    after = story.store(advance.confirm(story.run, "one", story.now, how="console"))

    assert (after.current, after.proof_counts) == ("two", ProofCounts(passed=2))
    assert replay("r1", story.records).current == "two", "it can be imported"


def _passed(record: Record) -> Record:
    assert isinstance(record.event, ProofTaken)
    judgement = msgspec.structs.replace(record.event.judgement, verdict="passed")
    return msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, judgement=judgement))


def test_the_events_are_stored_in_the_order_of_the_design() -> None:
    story = Story(step("one", proof=[TESTS]))
    story.submit()
    story.take("tests")

    assert story.kinds() == [
        *("started", "step-offered", "proofs-due", "proof-taken"),
        *("output-accepted", "completed"),
    ]
    due = story.records[2].event
    assert isinstance(due, ProofsDue)
    assert (due.reason, due.output) == ("output", "done")
