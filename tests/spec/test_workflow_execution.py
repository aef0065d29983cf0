"""Execution and status of workflow tools: requirements 2, 5, 7 and 8, with three kinds of other systems."""

import asyncio
import itertools
import json
import signal
import sys

import pytest
from mcp import Client, StdioServerParameters

from spec.stage import DEPLOY, Listener, Stage, Upstream, refusal, state
from support.json_values import JsonObject
from support.waiting import wait_until
from upstream.upstreams import ONE

API = {"service": "api", "replicas": 2}
KINDS = ("http", "mcp", "stdio")
QUICK = {"deploy": {"seconds": 0.05}}


@pytest.fixture(params=KINDS)
def upstream(request: pytest.FixtureRequest, stage: Stage) -> Upstream:
    upstream = stage.upstream(request.param)
    stage.configure(upstream)
    return upstream


@pytest.fixture
def service(stage: Stage) -> Upstream:
    service = stage.upstream("http")
    stage.configure(service)
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
    stage.configure(upstream)
    server = ready(stage)

    waiting = server.begin_call(DEPLOY, API)
    wait_until(upstream.runs)
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

    error = reply["error"] if version == "2024-11-05" else refusal(reply)
    assert error["code"] == -32008
    assert "no quota left" in error["data"]["reason"]
    assert error["data"]["runId"]
    assert "no quota left" in server.leave()


@pytest.mark.spec("002/5.2/execution-fails", "002/2.4/failure")
def test_a_start_that_fails_is_not_repeated(stage: Stage, service: Upstream) -> None:
    service.control(start="fail")
    server = ready(stage)

    error = refusal(server.end(server.begin_call(DEPLOY, API)))

    assert "start is broken today" in error["data"]["reason"]
    starts = [e for e in service.seen() if e["what"] == "start" or e.get("tool") == "workflows-start-tool"]
    assert len([e for e in starts if e["what"] in ("start", "call")]) == 1


@pytest.mark.spec("002/7.1/wait", "002/7.4/asynchronous-failure")
def test_unknown_states_and_empty_outputs_mean_running(stage: Stage, service: Upstream) -> None:
    states = ["QUEUED", "WARMING_UP", "", "RUNNING"]
    service.control(runs={"deploy": {"seconds": 0.6, "states": states, "output": None}})
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))

    assert (done["state"], done["result"]) == ("completed", None)


@pytest.mark.spec("002/7.2/timeout", "002/7.5/clean-up")
def test_a_workflow_that_times_out_is_ended_here_and_at_its_provider(stage: Stage, upstream: Upstream) -> None:
    server = at_work(stage, upstream)

    error = refusal(server.end(server.begin_call(DEPLOY, API, **{"workflowlookup/timeoutSeconds": 2})))

    assert error["data"]["timedOut"] is True
    assert error["data"]["runId"]
    assert [stop["stopped"] for stop in error["data"]["stopped"]] == [True]
    assert [run["state"] for run in upstream.runs()] == ["COMPLETED", "CANCELLED"]


@pytest.mark.spec("002/7.5/clean-up")
def test_a_cancelled_call_is_stopped_at_its_provider_and_never_answered(stage: Stage, upstream: Upstream) -> None:
    server = at_work(stage, upstream)
    waiting = server.begin_call(DEPLOY, API)
    wait_until(lambda: len(upstream.runs()) == 2)

    server.notify("notifications/cancelled", {"requestId": waiting})

    wait_until(lambda: [run["state"] for run in upstream.runs()] == ["COMPLETED", "CANCELLED"])
    run = state(server.end(server.begin_call("workflow_runs")))["runs"][0]
    assert run["state"] == "cancelled"


@pytest.mark.spec("002/7.5/clean-up", "002/8.2/information")
def test_a_system_that_cannot_cancel_is_reported_as_such(stage: Stage) -> None:
    upstream = stage.upstream("http")
    stage.configure(upstream, options={"cancel": ""})
    server = at_work(stage, upstream)

    error = refusal(server.end(server.begin_call(DEPLOY, API, **{"workflowlookup/timeoutSeconds": 2})))

    assert [stop["stopped"] for stop in error["data"]["stopped"]] == [False]
    assert "may still" in error["data"]["stopped"][0]["told"]


@pytest.mark.spec("002/7.3/progress", "002/8.3/updates")
def test_progress_is_logged_and_sent_to_callers_that_want_it(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 1.5, "progress": True}})
    server = ready(stage)

    server.end(server.begin_call(DEPLOY, API, progressToken="t-1"))

    progress = [m["params"] for m in server.noticed if m["method"] == "notifications/progress"]
    assert len(progress) > 1
    assert {params["progressToken"] for params in progress} == {"t-1"}
    amounts = [params["progress"] for params in progress]
    assert amounts == sorted(set(amounts))
    assert "running…" in server.leave()


@pytest.mark.spec("002/8.1/status", "002/8.2/information", "002/8.3/updates", "002/8.4/final-results")
def test_any_connection_can_query_the_progress_and_result_of_a_run(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 3, "progress": True, "output": {"url": "http://api"}}})
    server, other = ready(stage), stage.serve()
    waiting = server.begin_call(DEPLOY, API)
    wait_until(service.runs)

    def status(run_id: str) -> dict[str, object]:
        return state(other.end(other.begin_call("workflow_status", {"runId": run_id})))

    (run,) = state(other.end(other.begin_call("workflow_runs")))["runs"]
    running = status(run["runId"])
    assert running["state"] == "running"
    assert running["remote"]["runId"] == service.runs()[0]["id"]  # type: ignore[index]
    wait_until(lambda: "running…" in str(status(run["runId"])["progress"]))

    done = state(server.end(waiting))
    final = status(run["runId"])
    assert (final["state"], final["result"]) == ("completed", {"url": "http://api"})
    assert done["runId"] == run["runId"]


@pytest.mark.spec("002/8.5/not-supported", "002/8.5/end-unknown")
def test_the_end_of_a_job_without_status_is_unknown(stage: Stage) -> None:
    upstream = stage.upstream("mcp", without=["workflows-status-tool", "workflows-cancel-tool"])
    stage.configure(upstream)
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))
    status = state(server.end(server.begin_call("workflow_status", {"runId": done["runId"]})))

    assert done["state"] == status["state"] == "unknown"
    assert "was started" in done["reason"]
    assert "how it ended is unknown" in done["reason"]
    assert upstream.runs()[0]["id"] in done["reason"]
    assert "complete" not in str(done)
    assert "not supported" in status["remote"]["status"]
    assert "is unknown" in server.leave()


@pytest.mark.spec("002/8.5/end-unknown")
def test_a_lost_job_is_unknown_after_several_404_answers(stage: Stage, service: Upstream) -> None:
    service.control(status={"code": 410, "times": 1_000}, runs={"deploy": {"seconds": 600}})
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))

    assert done["state"] == "unknown"
    assert "410" in done["reason"]
    assert len(service.seen("status")) >= 5


# ── what is known of a job, and what is said of it ──────────────────────────────────────────────────────────────


@pytest.mark.spec("002/2.3/long-results")
def test_a_result_too_long_for_an_answer_comes_in_parts_and_as_a_resource(stage: Stage, upstream: Upstream) -> None:
    output = {"lines": ["Zeile ä " * 10] * 20_000}
    upstream.control(runs={"deploy": {"seconds": 0, "output": output}})
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))

    assert done["state"] == "completed"
    part = done["resultPart"]
    assert "result" not in done
    assert part["characters"] > 1_000_000
    assert f"resultFrom {part['to']}" in done["next"]
    arguments = {"runId": done["runId"], "resultFrom": part["to"]}
    following = state(server.end(server.begin_call("workflow_status", arguments)))["resultPart"]
    text, uri = "", part["resource"]
    while len(text) < part["characters"]:
        (piece,) = server.result("resources/read", {"uri": f"{uri}?from={len(text)}"})["contents"]
        text += piece["text"]
        assert piece["_meta"]["workflowlookup/part"]["to"] == len(text)
    assert json.loads(text) == output
    assert text.startswith(part["text"] + following["text"])
    assert len(json.dumps(done)) < 40_000


@pytest.mark.spec("002/7.4/error-information", "002/5.2/execution-fails")
def test_code_message_detail_and_output_of_a_failure_reach_the_caller_and_the_journal(
    stage: Stage, upstream: Upstream
) -> None:
    error = {"code": "QUOTA", "message": "no quota left", "details": {"limit": 3}}
    rule = {"seconds": 0.1, "outcome": "failed", "error": error, "output": {"log": "step 2 of 3"}}
    upstream.control(runs={"deploy": rule})
    server = ready(stage)

    reply = server.end(server.begin_call(DEPLOY, API))

    data = refusal(reply)["data"]
    remote_error = {
        "code": "QUOTA",
        "message": "no quota left",
        "detail": {"limit": 3},
        "output": {"log": "step 2 of 3"},
    }
    assert data["error"] == remote_error
    assert "step 2 of 3" in reply["result"]["content"][0]["text"]
    status = state(server.end(server.begin_call("workflow_status", {"runId": data["runId"]})))
    assert {name: status["error"][name] for name in remote_error} == remote_error
    report = server.result("resources/read", {"uri": f"run://{data['runId']}"})["contents"][0]["text"]
    assert "QUOTA" in report
    assert "step 2 of 3" in report
    assert "no quota left" in server.leave()


@pytest.mark.spec("002/5.2/execution-fails", "002/7.2/timeout")
def test_a_timeout_is_logged_as_a_warning(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 600}})
    server = stage.serve(log_level="warning")
    server.tools_when(DEPLOY)

    server.end(server.begin_call(DEPLOY, API, **{"workflowlookup/timeoutSeconds": 2}))

    assert "is out of time: The run was not done within 2 seconds" in server.leave()


@pytest.mark.spec("002/5.2/execution-fails")
def test_a_result_of_an_abandoned_call_is_logged_as_lost(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 0}}, status={"code": 503, "times": 1, "retry_after": 60})
    server = stage.serve(log_level="warning")
    server.tools_when(DEPLOY)
    waiting = server.begin_call(DEPLOY, API)
    service.wait_for("status")  # which is asked again in a minute: that the job is over is not known here

    server.notify("notifications/cancelled", {"requestId": waiting})

    wait_until(lambda: "had completed" in str(status_of(server).get("stopped")))
    assert "is lost: it had completed" in server.leave()


@pytest.mark.spec("002/7.4/asynchronous-failure")
@pytest.mark.parametrize("code", [400, 401, 404, 405, 429, 503])
def test_one_status_question_that_is_refused_does_not_lose_the_job(stage: Stage, service: Upstream, code: int) -> None:
    service.control(runs={"deploy": {"seconds": 0.3}}, status={"code": code, "times": 2, "retry_after": 0})
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))

    assert done["state"] == "completed"
    assert f"its state cannot be read at present: the provider 'svc' answered with HTTP status {code}" in server.leave()


@pytest.mark.spec("002/8.2/information")
def test_a_failing_poll_and_its_reason_are_in_the_status(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 600}}, status={"code": 503, "times": 1_000})
    server = ready(stage)
    server.begin_call(DEPLOY, API)
    wait_until(service.runs)

    wait_until(lambda: "HTTP status 503: status is refused for now" in str(status_of(server)["progress"]))


@pytest.mark.spec("002/8.3/updates")
def test_an_unknown_state_is_named_in_the_status_and_the_log(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 600, "states": ["WARMING_UP"]}})
    server = ready(stage)
    server.begin_call(DEPLOY, API)
    wait_until(service.runs)

    wait_until(lambda: "'WARMING_UP', a word that is not known" in str(status_of(server)["progress"]))
    assert "WARMING_UP" in server.leave()


@pytest.mark.spec("002/7.1/wait")
def test_retry_after_of_a_system_is_respected(stage: Stage, service: Upstream) -> None:
    service.control(runs={"deploy": {"seconds": 0.1}}, status={"code": 429, "times": 1, "retry_after": 3})
    server = ready(stage)

    assert state(server.end(server.begin_call(DEPLOY, API)))["state"] == "completed"

    first, second = service.seen("status")[:2]
    assert second["at"] - first["at"] >= 3


@pytest.mark.spec("002/7.1/wait")
@pytest.mark.parametrize("pause", ["Fri, 31 Dec 99999999999999 23:59:59 GMT", "-5", "nan", "soon"])
def test_an_invalid_retry_time_does_not_lose_the_job(stage: Stage, service: Upstream, pause: str) -> None:
    service.control(runs={"deploy": {"seconds": 0.1}}, status={"code": 429, "times": 1, "retry_after": pause})
    server = ready(stage)

    assert state(server.end(server.begin_call(DEPLOY, API)))["state"] == "completed"


@pytest.mark.spec("002/2.3/results")
def test_a_job_whose_result_is_not_quite_json_is_completed(stage: Stage, service: Upstream) -> None:
    output = {"loss": float("nan"), "cut": "half \ud83d", "count": 10**400, "size": 1.5}
    service.control(runs={"deploy": {"seconds": 0, "output": output}})
    server = ready(stage)

    done = state(server.end(server.begin_call(DEPLOY, API)))

    assert (done["state"], done["result"]) == (
        "completed",
        {"loss": "NaN", "cut": "half \ufffd", "count": str(10**400), "size": 1.5},
    )


@pytest.mark.spec("002/2.4/failure")
@pytest.mark.parametrize("how", ["fail", "hang", "lost", {"codes": [303]}, {"codes": [408]}], ids=str)
def test_if_a_job_may_run_no_second_start_is_suggested(stage: Stage, how: object) -> None:
    service = stage.upstream("http", start=how)
    stage.configure(service, options={"timeout": 3})
    server = ready(stage)

    reply = server.end(server.begin_call(DEPLOY, API))

    data = refusal(reply)["data"]
    assert "It may have been started there all the same" in data["reason"]
    status = state(server.end(server.begin_call("workflow_status", {"runId": data["runId"]})))
    for text in (str(reply), str(status)):
        assert "start a new" not in text.lower()
        assert "workflow_start" not in text


@pytest.mark.spec("002/2.2/tools-call")
def test_with_idempotent_a_start_that_is_refused_for_now_is_sent_again_with_the_same_key(stage: Stage) -> None:
    service = stage.upstream("http", start={"code": 503, "times": 2})
    stage.configure(service, options={"idempotent": True})
    server = ready(stage)

    assert state(server.end(server.begin_call(DEPLOY, API)))["state"] == "completed"

    keys = [seen["headers"]["idempotency-key"] for seen in service.seen("start")]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.spec("002/2.3/results", "002/2.4/failure")
@pytest.mark.parametrize("how", [{"answer": "queued"}, {"answer": {}}, {"answer": {"status": "queued"}}], ids=str)
def test_a_tool_that_does_not_say_which_job_it_started_has_not_completed_it(stage: Stage, how: object) -> None:
    stage.configure(stage.upstream("mcp", start=how))
    server = ready(stage)

    data = refusal(server.end(server.begin_call(DEPLOY, API)))["data"]

    assert "did not say which run it started" in data["reason"]
    assert "workflow_start" not in str(data)


@pytest.mark.spec("002/2.4/failure")
def test_a_tool_whose_answer_cannot_be_read_may_have_started_the_job(stage: Stage) -> None:
    stage.configure(stage.upstream("stdio", start={"unreadable": [{"type": "text"}]}))
    server = ready(stage)

    data = refusal(server.end(server.begin_call(DEPLOY, API)))["data"]

    assert "It may have been started there all the same" in data["reason"]
    assert "workflow_start" not in str(data)


@pytest.mark.spec("002/2.3/results")
def test_a_tool_that_starts_a_sync_workflow_answers_with_its_result(stage: Stage) -> None:
    upstream = stage.upstream("mcp", start={"answer": {"url": "http://api"}})
    upstream.control(workflows=[ONE | {"executionType": "sync"}])
    stage.configure(upstream)
    server = ready(stage)

    assert state(server.end(server.begin_call(DEPLOY, API)))["result"] == {"url": "http://api"}


@pytest.mark.spec("002/7.5/clean-up")
def test_a_job_whose_id_arrives_after_the_cancel_is_cancelled(stage: Stage, service: Upstream) -> None:
    server = at_work(stage, service)
    service.control(delay=1, cancel={"code": 503, "times": 2})
    waiting = server.begin_call(DEPLOY, API)
    service.wait_for("start", 2)

    server.notify("notifications/cancelled", {"requestId": waiting})

    wait_until(lambda: service.runs()[-1]["state"] == "CANCELLED")
    wait_until(lambda: [stop["stopped"] for stop in status_of(server)["stopped"]] == [True])


@pytest.mark.spec("002/2.4/failure")
def test_after_a_refusal_an_earlier_start_may_still_have_begun_the_job(stage: Stage) -> None:
    service = stage.upstream("http", start={"codes": [503, *[401] * 4]})
    stage.configure(service, options={"idempotent": True})
    server = ready(stage)

    data = refusal(server.end(server.begin_call(DEPLOY, API)))["data"]

    assert "HTTP status 401" in data["reason"]
    assert "It may have been started there all the same" in data["reason"]
    assert "workflow_start" not in str(data)


@pytest.mark.spec("002/2.2/tools-call")
def test_a_key_that_is_still_being_worked_on_is_sent_again(stage: Stage) -> None:
    service = stage.upstream("http", start={"codes": [503, 409]})
    stage.configure(service, options={"idempotent": True})
    server = ready(stage)

    assert state(server.end(server.begin_call(DEPLOY, API)))["state"] == "completed"


@pytest.mark.spec("002/7.2/timeout")
def test_a_provider_has_a_limit_and_a_timeout_of_its_own(stage: Stage) -> None:
    service = stage.upstream("http", runs={"deploy": {"seconds": 600}})
    stage.configure(service, options={"max_concurrent": 1, "timeout_seconds": 4})
    server = ready(stage)

    calls = [server.begin_call(DEPLOY, API) for _ in range(2)]
    wait_until(service.runs)
    states = sorted(run["state"] for run in runs_of(server))
    first, second = (refusal(server.end(call))["data"] for call in calls)

    assert states == ["queued", "running"]
    assert first["timedOut"] is second["timedOut"] is True
    for earlier, later in itertools.pairwise(service.runs()):  # the second one may begin just before it is out of time
        assert earlier["cancelled"] <= later["began"]


@pytest.mark.spec("002/7.5/clean-up")
@pytest.mark.parametrize("how", [{"code": 503, "times": 2}, {"code": 409, "times": 1}, "hang"])
def test_a_cancel_is_sent_again_until_the_other_system_says_that_it_stopped(
    stage: Stage, service: Upstream, how: object
) -> None:
    service.control(cancel=how)
    server = at_work(stage, service)

    data = refusal(server.end(server.begin_call(DEPLOY, API, **{"workflowlookup/timeoutSeconds": 2})))["data"]

    assert [stop["stopped"] for stop in data["stopped"]] == [False]
    assert "workflow_start" not in str(data)
    if how == "hang":
        service.control(cancel="ok")
    wait_until(lambda: service.runs()[-1]["state"] == "CANCELLED")
    wait_until(lambda: [stop["stopped"] for stop in status_of(server, data["runId"])["stopped"]] == [True])


@pytest.mark.spec("002/7.5/client-leaves", "002/7.5/clean-up")
def test_the_job_of_a_disconnected_official_client_is_cancelled_at_its_provider(
    stage: Stage, service: Upstream
) -> None:
    """It closes its end, and sends SIGTERM two seconds later."""
    service.control(runs={"deploy": {"seconds": 600}})
    environment = {"HOME": str(stage.home), "WORKFLOWLOOKUP_BUNDLED": "false"}
    (stage.home / "project").mkdir()
    program = ["-m", "workflowlookup", "serve"]
    parameters = StdioServerParameters(
        command=sys.executable, args=program, env=environment, cwd=str(stage.home / "project")
    )

    async def leave_early() -> None:
        async with asyncio.timeout(60), Client(parameters) as client:
            while DEPLOY not in {tool.name for tool in (await client.list_tools()).tools}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            call = asyncio.create_task(client.call_tool(DEPLOY, dict(API)))
            await asyncio.to_thread(wait_until, service.runs)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    asyncio.run(leave_early())

    wait_until(lambda: [run["state"] for run in service.runs()] == ["CANCELLED"])


@pytest.mark.spec("002/7.5/client-leaves")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_job_that_is_waited_for(stage: Stage, service: Upstream, how: signal.Signals) -> None:
    server = at_work(stage, service)
    server.begin_call(DEPLOY, API)
    wait_until(lambda: len(service.runs()) == 2)

    server.process.send_signal(how)

    assert server.wait() == -how
    wait_until(lambda: service.runs()[-1]["state"] == "CANCELLED", 5)


@pytest.mark.spec("002/7.5/client-leaves")
def test_a_cancel_that_did_not_arrive_before_the_end_is_finished_by_the_next_server(
    stage: Stage, service: Upstream
) -> None:
    service.control(cancel="hang")
    server = at_work(stage, service)
    server.begin_call(DEPLOY, API)
    wait_until(lambda: len(service.runs()) == 2)
    server.close_input()
    service.wait_for("cancel")
    server.process.send_signal(signal.SIGTERM)
    server.wait()
    assert service.runs()[-1]["state"] == "RUNNING"

    service.control(cancel="ok")
    stage.serve()

    wait_until(lambda: service.runs()[-1]["state"] == "CANCELLED")


def runs_of(server: Listener) -> list[JsonObject]:
    return list(state(server.end(server.begin_call("workflow_runs")))["runs"])


def status_of(server: Listener, run_id: str = "") -> JsonObject:
    run_id = run_id or runs_of(server)[0]["runId"]
    return state(server.end(server.begin_call("workflow_status", {"runId": run_id})))
