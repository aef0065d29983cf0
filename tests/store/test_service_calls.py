"""Calls in the service: what a driver may repeat, which runs are at work, and which calls were left running."""

from collections.abc import Callable

import pytest

from store.test_service import kinds
from support.clocks import TickingClock
from support.json_values import JsonObject
from support.make import document, step
from support.narrowing import instance_of, not_none
from workflowlookup.errors import InvalidParams, RunStateError
from workflowlookup.language.document.building import build
from workflowlookup.runs.events import Failed
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.store.service import Runs

CALL: JsonObject = {
    "id": "call-it",
    "title": "Call it",
    "call": {"server": "tracker", "tool": "create", "saveAs": "issue"},
}
ONE = build(document(CALL, step("last")))
TWICE = build(document({**CALL, "call": {**CALL["call"], "retries": 1}}))


def test_a_call_is_begun_and_finished(runs: Runs) -> None:
    run = runs.start(ONE, {}, {}, timeout=60)
    runs.server_work.begin_call(run.id, "call-it")
    runs.server_work.acknowledge_call(run.id, "call-it", "77")
    runs.server_work.report_call(run.id, "call-it", 1, 2, "half")
    after = runs.server_work.finish_call(run.id, "call-it", "Issue 7", {"id": 7})

    assert run.timeout == 60
    assert (after.current, after.context, dict(after.remote_ids)) == ("last", {"issue": {"id": 7}}, {"call-it": "77"})
    assert kinds(runs, run.id) == [
        *("started", "call-due", "call-begun", "call-acknowledged", "call-progressed"),
        *("output-accepted", "context-changed", "step-offered"),
    ]


@pytest.mark.parametrize("changes", [{"issue": {"id": 8}}, {"issue.id": 8}])
def test_an_agent_cannot_change_the_result_of_a_call(runs: Runs, changes: JsonObject) -> None:
    run = runs.start(ONE, {}, {"issue.id": 9})
    runs.server_work.begin_call(run.id, "call-it")
    after = runs.server_work.finish_call(run.id, "call-it", "Issue 7", {"id": 7})

    assert after.context == {"issue": {"id": 7}, "issue.id": 7}
    with pytest.raises(InvalidParams, match="cannot be changed: step 'call-it' set"):
        runs.submit(run.id, "last", "done", changes)
    assert runs.submit(run.id, "last", "done", {"issue": {"id": 7}}).state is State.COMPLETED


def test_an_unfinished_call_can_be_taken_over(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    run = runs.start(ONE, {}, {})
    begun = runs.server_work.begin_call(run.id, "call-it")

    assert open_runs().server_work.begin_call(run.id, "call-it") == begun
    assert kinds(runs, run.id).count("call-begun") == 1


def test_reports_are_stored_at_most_once_a_second_and_never_go_back(runs: Runs, clock: TickingClock) -> None:
    run = runs.start(ONE, {}, {})
    runs.server_work.begin_call(run.id, "call-it")
    for done in (1, 2, 3):
        runs.server_work.report_call(run.id, "call-it", done)
    assert not_none(not_none(runs.get(run.id).calling).progress).done == 1
    clock.now += 1_000
    assert not_none(not_none(runs.server_work.report_call(run.id, "call-it", 0.5).calling).progress).done == 1
    assert not_none(not_none(runs.server_work.report_call(run.id, "call-it", 4).calling).progress).done == 4
    assert kinds(runs, run.id).count("call-progressed") == 2


def test_late_outputs_and_outputs_for_another_step_are_refused(runs: Runs) -> None:
    run = runs.start(ONE, {}, {})
    runs.server_work.begin_call(run.id, "call-it")
    with pytest.raises(RunStateError):
        runs.server_work.finish_call(run.id, "last", "x", None)
    runs.server_work.finish_call(run.id, "call-it", "x", None)
    late_calls: list[Callable[[], Run]] = [
        lambda: runs.server_work.begin_call(run.id, "call-it"),
        lambda: runs.server_work.finish_call(run.id, "call-it", "x", None),
        lambda: runs.server_work.fail_call(run.id, "call-it", CallFailure(reason="x")),
        lambda: runs.server_work.stop_call(run.id, "call-it", True, "x"),
    ]
    for late in late_calls:
        with pytest.raises(RunStateError):
            late()


def test_a_failed_call_is_due_again(runs: Runs) -> None:
    run = runs.start(TWICE, {}, {})
    runs.server_work.begin_call(run.id, "call-it")
    again = runs.server_work.fail_call(run.id, "call-it", CallFailure(reason="no route"))
    assert (again.state, again.waiting_for) == (State.QUEUED, Waiting.CALL)
    runs.server_work.begin_call(run.id, "call-it")
    failed = runs.server_work.fail_call(run.id, "call-it", CallFailure(reason="no route", timed_out=True))
    assert instance_of(Failed, failed.end).timed_out


def test_runs_at_work_and_queued_runs_are_listed(runs: Runs) -> None:
    first, second, third = (runs.start(TWICE, {}, {}) for _ in range(3))
    runs.start(build(document(step("one"))), {}, {})

    assert [runs.queue_position(run.id) for run in (first, second, third)] == [(1, 3), (2, 3), (3, 3)]
    runs.server_work.begin_call(first.id, "call-it")
    assert [runs.queue_position(run.id) for run in (first, second, third)] == [(0, 2), (1, 2), (2, 2)]
    assert [(one.id, one.state, one.waiting_for) for one in runs.server_work.at_work()] == [
        (second.id, "queued", "call"),
        (third.id, "queued", "call"),
        (first.id, "running", "call"),
    ]
    assert len(runs.server_work.at_work(limit=2)) == 2
    runs.server_work.fail_call(first.id, "call-it", CallFailure(reason="x"))
    assert runs.queue_position(first.id) == (3, 3), "who was tried goes to the end"


def test_a_call_left_running_is_listed_until_its_end_is_recorded(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    run, other = runs.start(ONE, {}, {}), runs.start(ONE, {}, {})
    runs.server_work.begin_call(run.id, "call-it")
    assert runs.server_work.runs_to_stop() == []
    runs.cancel(run.id)
    runs.cancel(other.id)

    assert open_runs().server_work.runs_to_stop() == [run.id]
    stopped = runs.server_work.stop_call(run.id, "call-it", False, "It may still be running.")
    assert runs.server_work.runs_to_stop() == []
    assert runs.server_work.stop_call(run.id, "call-it", True, "again") == stopped


def test_a_run_past_its_deadline_is_listed_for_stopping(runs: Runs, clock: TickingClock) -> None:
    run = runs.start(ONE, {}, {}, timeout=1)
    runs.server_work.begin_call(run.id, "call-it")
    clock.now += 2_000

    assert runs.get(run.id).needs_stop
    assert runs.server_work.runs_to_stop() == [run.id]


def test_listeners_are_notified_with_the_current_run(runs: Runs) -> None:
    heard = []
    runs.listeners.append(lambda run_id, run: heard.append((run_id, run and (run.state, run.waiting_for))))
    run = runs.start(ONE, {}, {})
    runs.server_work.begin_call(run.id, "call-it")
    runs.cancel(run.id)
    runs.delete(run.id)

    assert heard == [
        (run.id, (State.QUEUED, Waiting.CALL)),
        (run.id, (State.RUNNING, Waiting.CALL)),
        (run.id, (State.CANCELLED, None)),
        (run.id, None),
    ]


def test_a_run_with_calls_can_be_imported(runs: Runs) -> None:
    run = runs.start(ONE, {}, {})
    runs.server_work.begin_call(run.id, "call-it")
    runs.server_work.report_call(run.id, "call-it", 1)
    runs.cancel(run.id)
    last = runs.server_work.stop_call(run.id, "call-it", True, "told")
    records = runs.history(run.id)
    runs.delete(run.id)

    assert runs.store_import(run.id, records) == last
