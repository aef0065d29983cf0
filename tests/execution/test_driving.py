"""Runs with calls: the server makes them in order, and stores each result."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from execution.working import Working, call, effects, flow, open_runs, server_config
from support.make import loop, step
from support.narrowing import end_of, failure_of, not_none
from upstream.upstreams import McpUpstream
from workflowlookup.providers.config import Plan
from workflowlookup.runs.run import Run, State, Waiting


def test_a_run_of_three_calls_needs_no_agent(
    journal_url: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    workflow = flow(
        call("one", "echo", {"n": "{{n}}"}),
        call("two", "echo", {"from": "{{one.n}}", "text": "n is {{n}}"}),
        call("three", "say", {"text": "{{two.text}}"}),
        inputSchema={"type": "object", "properties": {"n": {"type": "integer"}}},
    )

    working = work(journal_url)
    run = working.finished(workflow, {"n": 7})

    assert run.state is State.COMPLETED
    assert run.context["one"] == {"n": 7}
    assert run.context["two"] == {"from": 7, "text": "n is 7"}
    assert run.context["three"] == "n is 7"
    keys = [entry["key"] for entry in upstream.seen("call")]
    assert keys == [f"{run.id}:one", f"{run.id}:two", f"{run.id}:three"]
    assert working.events(run.id).count("CallBegun") == 3


def test_agents_and_calls_take_turns(journal_url: str, work: Callable[..., Working]) -> None:
    working = work(journal_url)
    workflow = flow(call("one", "say", {"text": "a"}), step("think"), call("two", "say", {"text": "{{one}}b"}))
    run = working.start(workflow)

    run = working.until(run.id, lambda run: run.waiting_for is Waiting.OUTPUT)
    assert (run.current, run.context["one"]) == ("think", "a")
    working.runs.submit(run.id, "think", "thought", {})

    assert working.over(run.id).context["two"] == "ab"


def test_a_call_that_fails_is_tried_again_as_often_as_the_step_says(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(sqlite_journal)
    run = working.finished(flow(call("one", "flaky", {"times": 2}, retries=2)))

    assert (run.state, run.context["one"]) == (State.COMPLETED, {"attempts": 3})
    assert [entry["key"] for entry in upstream.seen("call")] == [f"{run.id}:one"] * 3
    assert working.events(run.id).count("CallFailed") == 2


def test_a_call_that_keeps_failing_fails_the_run_and_says_why(
    sqlite_journal: str, work: Callable[..., Working]
) -> None:
    run = work(sqlite_journal).finished(flow(call("one", "fail", {"message": "no luck"}, retries=1)))

    assert run.state is State.FAILED
    assert "tool 'fail' of MCP server 'up', failed 2 times: no luck." in end_of(run).reason
    assert not_none(run.calling).stopped is None


def test_a_result_that_fails_the_criteria_counts_as_a_failed_attempt(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    criteria = {"rules": [{"type": "contains", "value": "good", "message": "It must be good."}]}
    refused = call("one", "say", {"text": "bad"}, retries=1, step={"validationCriteria": criteria["rules"]})

    run = work(sqlite_journal).finished(flow(refused))

    assert run.state is State.FAILED
    assert "was refused" in end_of(run).reason
    assert len(upstream.seen("call")) == 2


def test_an_unconfigured_server_fails_the_run(sqlite_journal: str, work: Callable[..., Working]) -> None:
    run = work(sqlite_journal).finished(flow(call("one", "say", server="elsewhere")))

    assert run.state is State.FAILED
    assert "The settings name no MCP server 'elsewhere'." in end_of(run).reason


def test_a_call_that_times_out_is_stopped_and_recorded(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(sqlite_journal)
    run = working.finished(flow(call("zero", "say"), call("one", "stubborn", {"seconds": 60}, timeoutSeconds=0.5)))

    assert run.state is State.FAILED
    assert failure_of(run).timed_out
    (pid,) = {entry["pid"] for entry in upstream.seen("began")}
    assert (
        f"it took longer than 0.5 seconds; the MCP server 'up' was asked to stop, and its process {pid} was killed"
        in end_of(run).reason
    )
    assert upstream.pids() == []


def test_a_run_past_its_deadline_stops_its_call(
    journal_url: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(journal_url)
    working.finished(flow(call("zero", "say")))
    run = working.finished(flow(call("one", "sleep", {"seconds": 60})), timeout=3)

    assert run.state is State.FAILED
    assert failure_of(run).timed_out
    assert not_none(not_none(run.calling).stopped).stopped
    assert "was killed" in not_none(not_none(run.calling).stopped).told
    assert upstream.wait_for("cancelled")


def test_a_cancelled_run_stops_its_call(journal_url: str, work: Callable[..., Working], upstream: McpUpstream) -> None:
    working = work(journal_url)
    run = working.start(flow(call("one", "sleep", {"seconds": 60})))
    upstream.wait_for("call")

    working.runs.cancel(run.id, "enough")
    run = working.over(run.id)

    assert run.state is State.CANCELLED
    assert not_none(not_none(run.calling).stopped).stopped
    assert upstream.wait_for("cancelled")
    assert upstream.pids() == []


def test_a_run_cancelled_by_another_process_stops_too(
    journal_url: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(journal_url)
    run = working.start(flow(call("one", "sleep", {"seconds": 60})))
    upstream.wait_for("call")

    other = open_runs(journal_url)
    other.cancel(run.id)
    other.close()

    assert not_none(not_none(working.over(run.id, 5).calling).stopped).stopped


def test_runs_beyond_the_limit_are_queued_in_order_and_the_limit_can_change(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(sqlite_journal, max_concurrent=2)
    workflow = flow(call("one", "sleep", {"seconds": 0.4, "steps": 1}))
    ids = []
    for _ in range(5):
        ids.append(working.start(workflow).id)
        time.sleep(0.01)  # so that no two wait since the same moment
    upstream.wait_for("call", 2)

    assert [working.runs.queue_position(run_id) for run_id in ids[2:]] == [(1, 3), (2, 3), (3, 3)]
    working.runs.cancel(ids[3])
    for run_id in (ids[0], ids[1], ids[2], ids[4]):
        assert working.over(run_id).state is State.COMPLETED
    marks = [
        (entry["at"], 1 if entry["what"] == "call" else -1)
        for entry in upstream.seen()
        if entry["what"] in ("call", "done")
    ]
    running = [sum(change for _, change in marks[: n + 1]) for n in range(len(marks))]
    assert max(running) == 2
    keys = [entry["key"].partition(":")[0] for entry in upstream.seen("call")]
    assert {*keys[:2]} == {ids[0], ids[1]}  # both at once
    assert keys[2:] == [ids[2], ids[4]]


def test_a_run_that_waits_for_its_turn_can_run_out_of_time(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(sqlite_journal, max_concurrent=1)
    long = working.start(flow(call("one", "sleep", {"seconds": 60})))
    upstream.wait_for("call")
    short = working.start(flow(call("one", "say")), timeout=0.5)

    run = working.over(short.id, 10)

    assert (run.state, failure_of(run).timed_out, not_none(run.calling).begun) == (State.FAILED, True, False)
    working.runs.cancel(long.id)
    working.over(long.id)
    assert [entry["tool"] for entry in upstream.seen("call")] == ["sleep"]


def test_progress_is_live_and_in_the_journal(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(sqlite_journal)
    run = working.start(flow(call("one", "sleep", {"seconds": 3, "steps": 3}), call("two", "say")))
    seen = []

    def is_far(run: Run) -> bool:
        live = working.execution.progress(run.id)
        if live is not None and live not in seen:
            seen.append(live)
        return run.is_over

    working.until(run.id, is_far)

    assert [(p.done, p.total, p.message) for p in seen][:2] == [(0, 3, "part 1 of 3"), (1, 3, "part 2 of 3")]
    assert 2 <= working.events(run.id).count("CallProgressed") <= 4
    assert working.execution.progress(run.id) is None


def test_a_loop_of_calls_gives_each_iteration_its_own_key(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    workflow = flow(
        loop("each", [call("say", "say", {"text": "{{currentItem}}"})], type="forEach", items="names"),
        inputSchema={"type": "object", "properties": {"names": {"type": "array"}}},
    )
    run = work(sqlite_journal).finished(workflow, {"names": ["a", "b"]})

    assert run.state is State.COMPLETED, run.end
    keys = [entry["key"] for entry in upstream.seen("call")]
    assert len(set(keys)) == 2
    assert all(key.startswith(f"{run.id}:") for key in keys)


def test_a_person_is_asked_before_a_call_that_needs_confirmation(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(sqlite_journal)
    workflow = flow(call("one", "say", {"text": "done"}, step={"requireConfirmation": True}))
    run = working.start(workflow)
    assert (run.waiting_for, upstream.seen("call")) == (Waiting.CONFIRMATION, [])

    working.runs.confirm(run.id, how="console")

    assert working.over(run.id).context["one"] == "done"


def test_changed_settings_apply_at_once(
    sqlite_journal: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(sqlite_journal, servers={})
    assert working.finished(flow(call("one", "say"))).state is State.FAILED

    working.execution.apply(Plan(servers={"up": server_config(upstream)}))

    assert working.finished(flow(call("one", "say"))).state is State.COMPLETED


def test_closing_in_the_middle_of_a_call_leaves_the_run_for_the_next(
    journal_url: str, work: Callable[..., Working], upstream: McpUpstream
) -> None:
    working = work(journal_url)
    run = working.start(flow(call("one", "append", {"line": "x", "seconds": 2}), call("two", "say")))
    upstream.wait_for("call")
    working.close()
    assert effects(upstream) == []

    again = work(journal_url)
    again.execution.recover()

    assert again.over(run.id).state is State.COMPLETED
    assert effects(upstream) == ["x"]
    assert {entry["key"] for entry in upstream.seen("call")} == {f"{run.id}:one", f"{run.id}:two"}


def test_nothing_is_printed_and_nothing_is_left(journal_url: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("quiet.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), journal_url, str(tmp_path / "up")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(script.parent.parent)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_run_whose_recorded_driver_is_gone_is_driven_again(work: Callable[..., Working], database: str) -> None:
    """As after a restart of the database in the moment in which a driver was begun."""
    working = work(database)
    working.execution.recover()
    done = working.finished(flow(call("first", "echo", {"text": "a"})))
    with psycopg.connect(database, autocommit=True) as connection:
        columns = [
            name
            for (name,) in connection.execute(
                "SELECT column_name FROM information_schema.columns "
                "WHERE table_schema = 'dbos' AND table_name = 'workflow_status' AND column_name <> ALL(%s)",
                (["workflow_uuid", "status", "output"],),
            )
        ]
        same = ", ".join(columns)
        connection.execute(
            f"INSERT INTO dbos.workflow_status (workflow_uuid, status, {same}) "
            f"SELECT 'orphaned:2', 'PENDING', {same} FROM dbos.workflow_status WHERE workflow_uuid LIKE %s",
            (f"{done.id}:%",),
        )
        connection.execute(
            "INSERT INTO dbos.workflow_input (workflow_uuid, inputs, retention_timestamp) "
            "SELECT 'orphaned:2', replace(inputs, %s, 'orphaned'), retention_timestamp FROM dbos.workflow_input "
            "WHERE workflow_uuid LIKE %s",
            (done.id, f"{done.id}:%"),
        )
    working.runs.listeners.clear()  # nobody starts another driver

    working.start(flow(call("first", "echo", {"text": "b"})), run_id="orphaned")

    assert working.over("orphaned", 60).state == "completed"
