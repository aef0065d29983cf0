"""Steps that the server does by itself: what a call leads to, how often it is tried, and what is left when it ends."""

from collections.abc import Callable
from typing import Self

import pytest

from runs.test_advance import Story
from support.json_values import Json, JsonObject
from support.make import document, loop, step
from support.narrowing import instance_of, not_none
from workflowlookup.errors import RunStateError
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import PromptStep, ToolCall, WorkflowCall
from workflowlookup.runs import advance, server_calls
from workflowlookup.runs.draft import CHECK_REMOTE_SYSTEM, START_NEW_RUN, remedy_of
from workflowlookup.runs.events import Failed, RemoteError
from workflowlookup.runs.results import part_of, result_of
from workflowlookup.runs.run import CallState, State, Waiting
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.runs.why import explain_run

LONG = [{"type": "length", "min": 5, "message": "Too short."}]


def call(identifier: str = "call-it", *, fields: JsonObject | None = None, **more: Json) -> JsonObject:
    return {
        "id": identifier,
        "title": "Call it",
        "call": {"server": "tracker", "tool": "create", **more},
        **(fields or {}),
    }


class Calling(Story):
    """A run whose calls the test makes."""

    def begin(self) -> Self:
        return self._take(server_calls.begin_call(self.run, self.at), self.records)

    def acknowledge(self, remote_id: str) -> Self:
        return self._take(server_calls.acknowledge_call(self.run, remote_id, self.at), self.records)

    def report(self, done: float, total: float | None = None, message: str = "") -> Self:
        return self._take(server_calls.report_call(self.run, done, total, message, self.at), self.records)

    def finish(self, output: str = "done", value: Json = None) -> Self:
        return self._take(server_calls.finish_call(self.run, output, value, self.at), self.records)

    def fail(self, reason: str = "it broke", error: RemoteError | None = None, **how: bool) -> Self:
        return self._take(
            server_calls.fail_call(self.run, CallFailure(reason=reason, error=error, **how), self.at), self.records
        )

    def stop(self, stopped: bool, message: str) -> Self:
        return self._take(server_calls.stop_call(self.run, stopped, message, self.at), self.records)

    @property
    def calling(self) -> CallState:
        """The call that is due or under way."""
        return not_none(self.run.calling)

    @property
    def status(self) -> tuple[State, Waiting | None]:
        return self.run.state, self.run.waiting_for


DUE = (State.QUEUED, Waiting.CALL)
CALLING = (State.RUNNING, Waiting.CALL)


def test_the_model_has_tool_calls_and_workflow_calls() -> None:
    workflow = build(
        document(
            call(arguments={"n": "{{count}}"}, saveAs="issue", retries=2, timeoutSeconds=30),
            {"id": "remote", "title": "Far", "call": {"provider": "ci", "workflow": "Build 1", "saveAs": "result"}},
            executionType="sync",
        )
    )

    assert instance_of(PromptStep, workflow.steps["call-it"]).call == ToolCall(
        server="tracker", tool="create", arguments={"n": "{{count}}"}, save_as="issue", retries=2, timeout_seconds=30
    )
    assert instance_of(PromptStep, workflow.steps["remote"]).call == WorkflowCall(
        provider="ci", workflow="Build 1", save_as="result"
    )
    assert workflow.goes_by_itself
    assert workflow.execution_type == "sync"
    assert not build(document(call(), step("one"))).goes_by_itself


def test_a_call_is_due_then_made_and_its_result_leads_on() -> None:
    story = Calling(document(call(saveAs="issue"), step("next", prompt="See {{issue.id}}.")))

    assert (story.last, story.status) == (["started", "call-due"], DUE)
    assert (story.calling.due, story.calling.begun) == (2, False)
    assert (story.begin().last, story.status) == (["call-begun"], CALLING)
    assert (story.calling.attempt, story.calling.key) == (1, "r1:call-it")
    story.finish("Issue 7", {"id": 7})
    assert story.last == ["output-accepted", "context-changed", "step-offered"]
    assert story.run.context == {"issue": {"id": 7}}
    assert story.run.results == {"call-it": "Issue 7"}
    assert story.run.calling is None


def test_a_result_may_be_blank_without_criteria() -> None:
    story = Calling(document(call(saveAs="issue")))

    assert story.begin().finish("", None).run.state is State.COMPLETED
    assert story.run.context == {"issue": None}


def test_a_text_that_is_only_a_template_becomes_the_value() -> None:
    arguments = {
        "count": "{{ count }}",
        "labels": ["{{labels}}", "{{labels.0}}"],
        "nothing": "{{nothing}}",
        "title": "{{count}} of {{{{x}}",
        "deep": {"flag": "{{a.flag}}"},
        "number": 5,
    }
    given = {"count": 3, "labels": ["x", "y"], "nothing": None, "a": {"flag": False}}
    story = Calling(document(call(arguments=arguments)), given)

    assert story.run.call_arguments == {
        "count": 3,
        "labels": [["x", "y"], "x"],
        "nothing": None,
        "title": "3 of {{x}}",
        "deep": {"flag": False},
        "number": 5,
    }


def test_an_unset_variable_fails_the_run_before_the_call() -> None:
    story = Calling(document(step("one"), call(arguments={"title": "About {{title}}"})))

    story.submit("one")

    assert story.last == ["output-accepted", "failed"]
    assert story.end.reason == "Step 'call-it' cannot be called: title is not set."


def test_a_workflow_call_without_arguments_gets_the_input() -> None:
    far = {"id": "remote", "title": "Far", "call": {"provider": "ci", "workflow": "Build", "saveAs": "result"}}
    story = Calling(document(far), {"branch": "main"}, {"other": 1})

    assert story.run.call_arguments == {"branch": "main"}
    story.begin().acknowledge("77")
    assert (story.calling.remote_id, dict(story.run.remote_ids), story.status) == ("77", {"remote": "77"}, CALLING)
    assert story.finish("ok", {"a": 1}).run.remote_ids == {"remote": "77"}


def test_a_workflow_call_gets_its_arguments_filled() -> None:
    arguments = {"count": "{{found.total}}", "title": "{{found.total}} left", "fixed": [True]}
    far = {"id": "remote", "title": "Far", "call": {"provider": "ci", "workflow": "Build", "arguments": arguments}}
    story = Calling(document(call(saveAs="found"), far), {"branch": "main"}).begin().finish("", {"total": 3})

    assert story.run.call_arguments == {"count": 3, "title": "3 left", "fixed": [True]}


def test_a_workflow_call_is_not_made_with_an_unset_variable() -> None:
    far = {"provider": "ci", "workflow": "Build", "arguments": {"branch": "{{branch}}"}}

    story = Calling(document(step("one"), {"id": "remote", "title": "Far", "call": far})).submit("one")

    assert story.end.reason == "Step 'remote' cannot be called: branch is not set."


def test_progress_is_stored_without_what_is_not_a_number() -> None:
    story = Calling(document(call())).begin()

    story.report(1, 4, "one of four")
    progress = story.calling.progress
    assert (not_none(progress).done, not_none(progress).total, not_none(progress).message, story.status) == (
        1.0,
        4.0,
        "one of four",
        CALLING,
    )
    story.report(float("nan"), float("inf"), "half a \ud800")
    progress = story.calling.progress
    assert (not_none(progress).done, not_none(progress).total, not_none(progress).message) == (0.0, None, "half a ?")


def test_a_failed_call_is_due_again_up_to_its_retries_with_the_same_key() -> None:
    story = Calling(document(call(retries=1))).begin()

    assert (story.fail("no route").last, story.status) == (["call-failed", "call-due"], DUE)
    assert (story.calling.failure, story.calling.due) == ("no route", 2)
    story.begin()
    assert (story.calling.attempt, story.calling.key) == (2, "r1:call-it")
    story.fail("no route at all.")
    assert story.last == ["call-failed", "failed"]
    assert story.end.reason == (
        "Step 'call-it', the call of tool 'create' of MCP server 'tracker', failed 2 times: no route at all."
    )
    assert not story.run.needs_stop, "what failed by itself is not running"


def test_a_final_failure_is_not_retried_even_before_the_call_was_begun() -> None:
    assert Calling(document(call(retries=5))).begin().fail(is_final=True).run.state is State.FAILED
    story = Calling(document(call(retries=5)))
    assert story.fail("no server 'tracker' is configured", timed_out=True).last == ["failed"]
    assert instance_of(Failed, story.end).timed_out


def test_a_refused_result_counts_as_an_attempt() -> None:
    story = Calling(document(call(retries=1, saveAs="issue", fields={"validationCriteria": LONG})))

    assert story.begin().finish("no", 1).last == ["output-refused", "call-due"]
    assert story.run.context == {}
    assert story.begin().finish("no", 1).last == ["output-refused", "failed"]
    assert story.end.reason.endswith("was refused 2 times: Too short.")
    assert not story.run.needs_stop


def test_a_person_may_accept_the_last_result() -> None:
    fields = {"validationCriteria": LONG, "whenExhausted": "ask"}
    story = Calling(document(call(saveAs="issue", fields=fields), step("next"))).begin().finish("no", 1)

    assert story.last == ["output-refused", "confirmation-asked"]
    assert story.confirm().last == ["confirmation-given", "output-accepted", "context-changed", "step-offered"]
    assert story.run.context == {"issue": 1}


def test_a_result_that_does_not_fit_the_contract_is_refused_and_stored() -> None:
    schema = {"type": "object", "properties": {"issue": {"type": "integer"}}}
    story = Calling(document(call(saveAs="issue", retries=3), contextSchema=schema)).begin().finish("x", "x")
    assert story.run.state is State.FAILED
    assert "its result does not fit: " in story.end.reason
    assert story.last == ["output-refused", "failed"]


def test_a_result_too_long_for_the_context_is_stored_and_its_variable_refers_to_it() -> None:
    story = Calling(document(call(saveAs="issue"))).begin().finish("short", {"items": "x" * 300_000})

    assert story.run.state is State.COMPLETED
    reference = story.run.context["issue"]
    assert reference["resource"] == f"run://{story.run.id}/result?step={next(iter(story.run.results))}"
    assert reference["characters"] == 300_012
    result = result_of(story.run)
    assert (not_none(result).is_json, not_none(result).value) == (True, {"items": "x" * 300_000})


def test_a_result_too_long_to_store_is_cut_and_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_calls, "MAX_STORED_RESULT", 1_000)
    story = Calling(document(call())).begin().finish("x" * 5_000)

    assert story.run.state is State.COMPLETED
    result = result_of(story.run)
    assert (len(not_none(result).text), not_none(result).characters) == (1_000, 5_000)
    assert part_of(not_none(result))["kept"] == 1_000


def test_a_value_that_is_not_json_is_stored_as_the_text_of_the_result() -> None:
    story = Calling(document(call(saveAs="issue"))).begin().finish("x", {1, 2, object()})

    assert (story.run.state, story.run.context["issue"]) == (State.COMPLETED, "x")


def test_criteria_that_cannot_be_applied_fail_the_run() -> None:
    story = Calling(document(call(retries=3, fields={"validationCriteria": [{"type": "nonsense"}]}))).begin()

    assert story.finish().run.state is State.FAILED
    assert "cannot be judged" in story.end.reason


def test_a_step_must_produce_what_it_promises() -> None:
    story = Calling(document(call(fields={"produces": ["issue"]}))).begin().finish()
    assert story.last == ["output-refused", "failed"]
    story = Calling(document(call(saveAs="issue", fields={"produces": ["issue"]}))).begin().finish("x", 1)
    assert story.run.state is State.COMPLETED


def test_a_person_is_asked_before_the_call_is_made() -> None:
    story = Calling(document(step("one"), call(fields={"requireConfirmation": True}), step("two")))
    story.submit("one")

    assert story.last == ["output-accepted", "confirmation-asked"]
    assert (story.run.current, not_none(story.run.open_question).reason) == ("call-it", "call")
    assert (story.confirm().last, story.status) == (["confirmation-given", "call-due"], DUE)
    assert story.begin().finish().run.current == "two"


def test_a_person_who_does_not_agree_to_a_call_ends_the_run_and_what_was_submitted_before_stays() -> None:
    story = Calling(document(step("one"), call(fields={"requireConfirmation": True})))
    story.submit("one").deny(note="too dear")

    assert story.last == ["confirmation-denied", "failed"]
    assert story.end.reason.endswith("the call of tool 'create' of MCP server 'tracker': too dear")
    assert story.run.results == {"one": "done"}
    assert len(story.run.submissions) == 1


def test_each_call_in_a_loop_has_its_own_key() -> None:
    each = loop(
        "each", [call("call-it", arguments={"x": "{{currentItem}}"}, saveAs="last")], type="forEach", items="xs"
    )
    story = Calling(document(each), {"xs": ["a", "b"]})

    calls: list[object] = []
    while not story.run.is_over:
        calls.append((story.run.current, not_none(story.run.loop).item, dict(story.run.call_arguments)))
        story.begin()
        calls.append(story.calling.key)
        story.finish("ok", 1)
    assert calls == [("call-it@1", "a", {"x": "a"}), "r1:call-it@1", ("call-it@2", "b", {"x": "b"}), "r1:call-it@2"]


def test_a_call_that_runs_when_the_run_ends_has_to_be_stopped() -> None:
    story = Calling(document(call())).begin().cancel("enough")

    assert story.run.needs_stop
    story.stop(True, "The MCP server 'tracker' was told to stop.")
    assert (story.last, story.run.state, story.run.needs_stop) == (["call-stopped"], State.CANCELLED, False)
    assert not_none(story.calling.stopped).told == "The MCP server 'tracker' was told to stop."
    with pytest.raises(RunStateError):
        story.stop(True, "again")
    assert not Calling(document(call())).cancel().run.needs_stop, "nothing had begun"


def test_the_time_of_a_run_counts_while_a_call_is_due_and_while_it_is_made() -> None:
    story = Calling(document(call(), deadlineSeconds=2))
    story.now = 4_000
    assert story.expire().end.reason.endswith("had not started.")
    assert instance_of(Failed, story.end).timed_out
    assert not story.run.needs_stop
    story = Calling(document(call(), deadlineSeconds=2)).begin()
    story.now = 2_900
    assert advance.expire(story.run, story.at) is None
    story.now = 4_000
    assert story.expire().end.reason == (
        "The run was not done within 2 seconds; step 'call-it', the call of tool 'create' of MCP server 'tracker', "
        "was still running."
    )
    assert story.run.needs_stop


def test_the_timeout_of_the_caller_wins_over_the_authors_deadline() -> None:
    draft = advance.begin("r1", build(document(call(), deadlineSeconds=60)), {}, {}, Story(document()).at, timeout=0.5)

    assert draft.run.deadline == 1_500


@pytest.mark.parametrize(
    "wrong",
    [
        lambda story: story.submit("call-it"),
        lambda story: story.confirm(),
        lambda story: story.finish(),
        lambda story: story.report(1),
        lambda story: story.acknowledge("7"),
        lambda story: story.stop(True, "x"),
        lambda story: story.begin().begin(),
        lambda story: story.cancel().begin(),
        lambda story: story.begin().cancel().finish(),
    ],
)
def test_changes_not_allowed_during_a_call_are_refused(wrong: Callable[[Calling], object]) -> None:
    with pytest.raises(RunStateError):
        wrong(Calling(document(call())))


# ── what another system said, and what is not known ─────────────────────────────────────────────────────────────

REMOTE_ERROR = RemoteError(code="QUOTA", message="no quota left", detail={"limit": 3}, output={"log": "step 2"})


def test_the_error_of_another_system_is_stored_and_in_why() -> None:
    story = Calling(document(call())).begin().fail("no quota left", error=REMOTE_ERROR)

    assert story.calling.error == REMOTE_ERROR
    (reason,) = explain_run(story.run, story.records, Budget()).steps
    assert (reason.failure, reason.error) == ("no quota left", REMOTE_ERROR)


def test_the_beginning_of_a_long_detail_is_stored_as_text() -> None:
    long = RemoteError(message="m", detail=["x" * 100_000])
    error = Calling(document(call())).begin().fail("no", error=long).calling.error

    assert not_none(error).detail.startswith('["xxx')
    assert len(not_none(error).detail) < 20_000


def test_a_lost_call_ends_the_run_as_unknown_and_needs_no_stop() -> None:
    story = Calling(document(call())).begin().acknowledge("far-1")
    story._take(server_calls.lose_call(story.run, "nobody can be asked", story.at), story.records)

    assert story.status == (State.UNKNOWN, None)
    assert not story.run.needs_stop
    assert "there as run far-1, and how it ended is unknown: nobody can be asked." in story.end.reason
    assert remedy_of(story.run) == CHECK_REMOTE_SYSTEM


def test_a_pending_stop_can_be_recorded_again_until_it_is_certain() -> None:
    story = Calling(document(call())).begin()
    story._take(advance.cancel(story.run, story.at), story.records)
    story._take(server_calls.stop_call(story.run, False, "HTTP status 503", story.at, is_pending=True), story.records)

    assert story.run.needs_stop
    assert remedy_of(story.run) == CHECK_REMOTE_SYSTEM
    story.stop(True, "cancelled there")
    assert not story.run.needs_stop
    assert remedy_of(story.run) == START_NEW_RUN


def test_a_long_result_that_a_person_accepts_can_be_read() -> None:
    fields = {"validationCriteria": LONG, "whenExhausted": "ask"}
    story = Calling(document(call(saveAs="issue", fields=fields))).begin().finish("no", ["x" * 300_000]).confirm()

    assert story.run.state is State.COMPLETED
    assert not_none(result_of(story.run)).text == "no"


def test_a_run_fails_if_finding_the_step_after_a_call_takes_too_long() -> None:
    slow = step("two", runCondition={"var": "found", "matches": "(a+)+$"})
    story = Calling(document(call(saveAs="found"), slow, step("three"))).begin()

    story.finish("done", "a" * 50_000 + "b")

    assert (story.run.state, story.last) == (State.FAILED, ["output-accepted", "context-changed", "failed"])
    assert "given up at step 'two'" in story.end.reason
