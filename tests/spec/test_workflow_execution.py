"""Execution and status of workflow tools: requirements 2, 5, 7 and 8, with three kinds of other systems."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec.stage import DEPLOY, Listener, Stage, Upstream, refusal, staged, state

API = {"service": "api", "replicas": 2}
KINDS = ("http", "mcp", "stdio")
QUICK = {"deploy": {"seconds": 0.05}}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "home") as stage:
        yield stage


@pytest.fixture(params=KINDS)
def upstream(request: pytest.FixtureRequest, stage: Stage) -> Upstream:
    upstream = stage.upstream(request.param)
    stage.settle(upstream)
    return upstream


@pytest.fixture
def service(stage: Stage) -> Upstream:
    service = stage.upstream("http")
    stage.settle(service)
    return service


def ready(stage: Stage, version: str = "2025-11-25") -> Listener:
    server = stage.serve(version)
    server.tools_when(DEPLOY)
    return server


def at_work(stage: Stage, upstream: Upstream) -> Listener:
    """A server that has done a job already, so that the next one is not the first thing it loads anything for; a job
    that takes for ever is what comes next.
    """
    upstream.control(runs=QUICK)
    server = ready(stage)
    state(server.end(server.begin_call(DEPLOY, API)))
    upstream.control(runs={"deploy": {"seconds": 60}})
    return server


@pytest.mark.spec("002/2.2/tools-call", "002/2.3/results", "002/7.1/wait")
def test_a_call_starts_the_workflow_waits_for_its_end_and_has_its_results(stage: Stage, upstream: Upstream) -> None:
    upstream.control(runs={"deploy": {"seconds": 0.3, "output": {"url": "http://api"}}})
    server = ready(stage)

    reply = server.end(server.begin_call(DEPLOY, API))

    done = state(reply)
    assert done["state"] == "completed"
    assert done["result"] == {"url": "http://api"}
    assert done["runId"]
    assert "http://api" in reply["result"]["content"][0]["text"]
    assert [run["input"] for run in upstream.runs()] == [API]


@pytest.mark.spec("002/7.1/wait")
def test_other_messages_are_answered_while_a_call_waits(stage: Stage) -> None:
    upstream = stage.upstream("http", runs={"deploy": {"seconds": 1.5}})
    stage.settle(upstream)
    server = ready(stage)

    waiting = server.begin_call(DEPLOY, API)
    until(upstream.runs)
    assert state(server.end(server.begin_call("workflow_list")))["workflows"] == []
    assert upstream.runs()[0]["state"] == "RUNNING"

    assert state(server.end(waiting))["state"] == "completed"


@pytest.mark.spec("002/2.4/failure", "002/5.2/execution-fails", "002/7.4/asynchronous-failure")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_a_workflow_that_fails_later_is_an_error_with_its_cause_and_the_run(
    stage: Stage, service: Upstream, version: str
) -> None:
    service.control(runs={"deploy": {"seconds": 0.2, "outcome": "failed", "error": "no quota left"}})
    server = ready(stage, version)

    reply = server.end(server.begin_call(DEPLOY, API))

    told = reply["error"] if version == "2024-11-05" else refusal(reply)
    assert told["code"] == -32008
    assert "no quota left" in told["data"]["reason"]
    assert told["data"]["runId"]
    assert "no quota left" in server.leave()


@pytest.mark.spec("002/5.2/execution-fails", "002/2.4/failure")
def test_a_start_that_fails_is_not_repeated(stage: Stage, service: Upstream) -> None:
    service.control(start="fail")
    server = ready(stage)

    told = refusal(server.end(server.begin_call(DEPLOY, API)))

    assert "start is broken today" in told["data"]["reason"]
    starts = [e for e in service.seen() if e["what"] == "start" or e.get("tool") == "workflows-start-tool"]
    assert len([e for e in starts if e["what"] in ("start", "call")]) == 1


@pytest.mark.spec("002/7.1/wait", "002/7.4/asynchronous-failure")
def test_unknown_states_and_empty_outputs_mean_that_it_still_runs(stage: Stage, service: Upstream) -> None:
    states = ["QUEUED", "WARMING_UP", "", "RUNNING"]
    service.control(runs={"deploy": {"seconds": 0.6, "states": states, "output": None}})
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))

    assert (done["state"], done["result"]) == ("completed", None)


@pytest.mark.spec("002/7.2/timeout", "002/7.5/clean-up")
def test_a_workflow_that_takes_too_long_is_ended_here_and_there(stage: Stage, upstream: Upstream) -> None:
    server = at_work(stage, upstream)

    told = refusal(server.end(server.begin_call(DEPLOY, API, **{"workflowlookup/timeoutSeconds": 2})))

    assert told["data"]["timedOut"] is True
    assert told["data"]["runId"]
    assert [stop["stopped"] for stop in told["data"]["stopped"]] == [True]
    assert [run["state"] for run in upstream.runs()] == ["COMPLETED", "CANCELLED"]


@pytest.mark.spec("002/7.5/clean-up")
def test_a_call_that_the_client_cancels_is_stopped_there_and_never_answered(stage: Stage, upstream: Upstream) -> None:
    server = at_work(stage, upstream)
    waiting = server.begin_call(DEPLOY, API)
    until(lambda: len(upstream.runs()) == 2)

    server.notify("notifications/cancelled", {"requestId": waiting})

    until(lambda: [run["state"] for run in upstream.runs()] == ["COMPLETED", "CANCELLED"])
    run = state(server.end(server.begin_call("workflow_runs")))["runs"][0]
    assert run["state"] == "cancelled"


@pytest.mark.spec("002/7.5/clean-up", "002/8.2/information")
def test_a_system_that_cannot_cancel_is_told_apart(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.settle(upstream, options={"cancel": ""})
    server = at_work(stage, upstream)

    told = refusal(server.end(server.begin_call(DEPLOY, API, **{"workflowlookup/timeoutSeconds": 2})))

    assert [stop["stopped"] for stop in told["data"]["stopped"]] == [False]
    assert "may still" in told["data"]["stopped"][0]["told"]


@pytest.mark.spec("002/7.3/progress", "002/8.3/updates")
def test_progress_is_logged_and_told_to_the_caller_who_wants_it(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 1.5, "progress": True}})
    server = ready(stage)

    server.end(server.begin_call(DEPLOY, API, progressToken="t-1"))

    told = [m["params"] for m in server.noticed if m["method"] == "notifications/progress"]
    assert len(told) > 1
    assert {params["progressToken"] for params in told} == {"t-1"}
    amounts = [params["progress"] for params in told]
    assert amounts == sorted(set(amounts))
    assert "running…" in server.leave()


@pytest.mark.spec("002/8.1/status", "002/8.2/information", "002/8.3/updates", "002/8.4/final-results")
def test_any_connection_can_ask_how_an_execution_is_going_and_what_came_of_it(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 3, "progress": True, "output": {"url": "http://api"}}})
    server, other = ready(stage), stage.serve()
    waiting = server.begin_call(DEPLOY, API)
    until(service.runs)

    def status(run_id: str) -> dict[str, object]:
        return state(other.end(other.begin_call("workflow_status", {"runId": run_id})))

    (run,) = state(other.end(other.begin_call("workflow_runs")))["runs"]
    running = status(run["runId"])
    assert running["state"] == "running"
    assert running["remote"]["runId"] == service.runs()[0]["id"]  # type: ignore[index]
    until(lambda: "running…" in str(status(run["runId"])["progress"]))

    done = state(server.end(waiting))
    final = status(run["runId"])
    assert (final["state"], final["result"]) == ("completed", {"url": "http://api"})
    assert done["runId"] == run["runId"]


@pytest.mark.spec("002/8.5/not-supported")
def test_a_system_that_tells_no_status_is_said_to_support_none(stage: Stage) -> None:
    upstream = stage.upstream("mcp", without=["workflows-status-tool", "workflows-cancel-tool"])
    stage.settle(upstream)
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))
    status = state(server.end(server.begin_call("workflow_status", {"runId": done["runId"]})))

    assert "not supported" in status["remote"]["status"]


def until(holds: object, timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)
