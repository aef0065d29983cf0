"""Runs of workflows of other systems: begun once, followed to their end, cancelled there, never started twice blindly."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from execution.working import Working, open_runs, server_config
from support.json_values import Json
from support.narrowing import end_of, failure_of, not_none
from upstream.upstreams import HttpUpstream, McpUpstream
from workflowlookup.execution import driver
from workflowlookup.language.document.building import build
from workflowlookup.providers.config import Plan, ProviderConfig, ServerConfig
from workflowlookup.providers.definition import as_document, read_definitions
from workflowlookup.runs.run import State


class Remote:
    """A provider of one kind, and the plan that names it."""

    def __init__(self, kind: str, directory: Path, **options: Any) -> None:
        self.kind = kind
        if kind == "http":
            self.upstream: HttpUpstream | McpUpstream = HttpUpstream(directory)
            options = {"base_url": self.upstream.url, **options}
            self.servers: dict[str, ServerConfig] = {}
        else:
            self.upstream = McpUpstream(directory)
            options = {"server": "up", **options}
            self.servers = {"up": server_config(self.upstream)}
        self.providers = {"far": ProviderConfig(name="far", kind=kind, options=options)}
        definitions, _ = read_definitions(self.upstream.workflows(), "far")
        self.workflow = build(as_document(definitions[0]))


@pytest.fixture(params=["mcp", "http"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    remote = Remote(request.param, tmp_path / "far", interval=0.5)
    with remote.upstream:
        yield remote


@pytest.fixture
def working(work: Callable[..., Working], sqlite_journal: str, remote: Remote) -> Working:
    return work(sqlite_journal, servers=remote.servers, providers=remote.providers)


INPUT = {"service": "shop", "replicas": 2}


def test_a_remote_run_is_followed_to_its_end(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 0.3, "output": {"url": "https://shop"}, "progress": True}})
    run = working.finished(remote.workflow, INPUT)

    assert (run.state, run.context["result"]) == (State.COMPLETED, {"url": "https://shop"})
    (begun,) = remote.upstream.runs()
    assert (begun["input"], begun["workflow"]) == (INPUT, "deploy")
    assert "CallAcknowledged" in working.events(run.id)


@pytest.mark.parametrize("output", [None, "just text", 7, [1, 2], {}])
def test_any_output_is_accepted(working: Working, remote: Remote, output: Json) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 0, "output": output}})
    run = working.finished(remote.workflow, INPUT)

    assert (run.state, run.context["result"]) == (State.COMPLETED, output)


def test_unknown_states_mean_running(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 0.6, "states": ["QUEUED", "PREPARING", "ALMOST"], "output": 1}})

    assert working.finished(remote.workflow, INPUT).context["result"] == 1


def test_a_remote_run_that_fails_says_why(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 0, "outcome": "failed", "error": "no capacity"}})
    run = working.finished(remote.workflow, INPUT)

    assert run.state is State.FAILED
    assert "no capacity" in end_of(run).reason


def test_another_attempt_after_a_job_that_failed_is_another_job(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 0, "outcome": "failed", "error": "no capacity"}})
    (definition,), _ = read_definitions(remote.upstream.workflows(), "far")
    document = as_document(definition)
    document["steps"][0]["call"]["retries"] = 1

    run = working.finished(build(document), INPUT)

    assert [begun["key"] for begun in remote.upstream.runs()] == [f"{run.id}:remote", f"{run.id}:remote:2"]


def test_a_remote_run_is_cancelled_at_its_provider(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 60}})
    run = working.start(remote.workflow, INPUT)
    working.until(run.id, lambda run: not_none(run.calling).remote_id)

    working.runs.cancel(run.id)
    run = working.over(run.id)

    (far,) = remote.upstream.runs()
    assert far["state"] == "CANCELLED"
    assert (not_none(not_none(run.calling).stopped).stopped, not_none(not_none(run.calling).stopped).told) == (
        True,
        f"the provider 'far' cancelled run {far['id']}",
    )


def test_a_remote_run_cancelled_during_its_start_is_cancelled_at_its_provider(working: Working, remote: Remote) -> None:
    remote.upstream.control(delay=0.5, runs={"deploy": {"seconds": 60}})
    run = working.start(remote.workflow, INPUT)
    remote.upstream.wait_for("start" if remote.kind == "http" else "call")

    working.runs.cancel(run.id)
    run = working.over(run.id)

    (begun,) = remote.upstream.runs()
    assert begun["state"] == "CANCELLED"
    assert not_none(not_none(run.calling).stopped).told == f"the provider 'far' cancelled run {begun['id']}"


def test_a_remote_run_started_just_before_the_cancel_is_cancelled_at_its_provider(
    working: Working, remote: Remote, sqlite_journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "POLL_SECONDS", 2.0)
    remote.upstream.control(delay=0.5, runs={"deploy": {"seconds": 60}})
    run = working.start(remote.workflow, INPUT)
    remote.upstream.wait_for("start" if remote.kind == "http" else "call")

    with contextlib.closing(open_runs(sqlite_journal)) as others:
        others.cancel(run.id)
    run = working.over(run.id)

    (begun,) = remote.upstream.runs()
    assert begun["state"] == "CANCELLED"
    assert not_none(not_none(run.calling).stopped).told == f"the provider 'far' cancelled run {begun['id']}"


def test_a_remote_run_that_cannot_be_cancelled_is_reported_as_running(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 60}}, cancel="fail")
    run = working.start(remote.workflow, INPUT)
    working.until(run.id, lambda run: not_none(run.calling).remote_id)

    working.runs.cancel(run.id)
    stopped = not_none(working.until(run.id, lambda run: not_none(run.calling).stopped).calling).stopped

    assert (not_none(stopped).stopped, not_none(stopped).is_pending) == (False, True)
    assert "may still be running there" in not_none(stopped).told


def test_a_cancel_that_fails_is_sent_again_until_the_other_system_says_that_it_stopped(
    working: Working, remote: Remote
) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 300}}, cancel="fail")
    run = working.start(remote.workflow, INPUT)
    working.until(run.id, lambda run: not_none(run.calling).remote_id)
    working.runs.cancel(run.id)
    working.until(run.id, lambda run: not_none(run.calling).stopped)

    remote.upstream.control(cancel="ok")
    run = working.over(run.id)

    (far,) = remote.upstream.runs()
    assert (far["state"], not_none(not_none(run.calling).stopped).stopped) == ("CANCELLED", True)


def test_a_cancel_is_finished_by_the_next_server(
    work: Callable[..., Working], sqlite_journal: str, remote: Remote
) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 300}}, cancel="fail")
    first = work(sqlite_journal, servers=remote.servers, providers=remote.providers)
    run = first.start(remote.workflow, INPUT)
    first.until(run.id, lambda run: not_none(run.calling).remote_id)
    first.runs.cancel(run.id)
    first.until(run.id, lambda run: not_none(run.calling).stopped)
    first.close()

    remote.upstream.control(cancel="ok")
    second = work(sqlite_journal, servers=remote.servers, providers=remote.providers)
    second.execution.recover()

    assert not_none(not_none(second.over(run.id).calling).stopped).stopped
    assert [far["state"] for far in remote.upstream.runs()] == ["CANCELLED"]


def test_a_remote_run_that_times_out_is_cancelled_at_its_provider(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"*": {"seconds": 0}})
    working.finished(remote.workflow, INPUT)
    remote.upstream.control(runs={"*": {"seconds": 60}})
    run = working.finished(remote.workflow, INPUT, timeout=3)

    assert (run.state, failure_of(run).timed_out, not_none(not_none(run.calling).stopped).stopped) == (
        State.FAILED,
        True,
        True,
    )
    assert remote.upstream.runs()[-1]["state"] == "CANCELLED"


def test_a_provider_that_does_not_answer_for_a_while_is_waited_for(working: Working, remote: Remote) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 0.5}}, status="fail")
    run = working.start(remote.workflow, INPUT)
    working.until(run.id, lambda run: not_none(run.calling).remote_id)
    time.sleep(1)
    remote.upstream.control(status="ok")

    assert working.over(run.id).state is State.COMPLETED


def test_a_start_whose_answer_was_lost_is_not_sent_again(working: Working, remote: Remote) -> None:
    remote.upstream.control(start="hang" if remote.kind == "mcp" else "lost")
    run = working.start(remote.workflow, INPUT, timeout=4)
    run = working.over(run.id)

    assert run.state is State.FAILED
    assert len(remote.upstream.runs()) <= 1


def test_a_remote_run_continues_after_a_restart_without_a_second_start(
    work: Callable[..., Working], sqlite_journal: str, remote: Remote
) -> None:
    remote.upstream.control(runs={"deploy": {"seconds": 3, "output": "deployed"}})
    first = work(sqlite_journal, servers=remote.servers, providers=remote.providers)
    run = first.start(remote.workflow, INPUT)
    first.until(run.id, lambda run: not_none(run.calling).remote_id)
    first.close()

    second = work(sqlite_journal, servers=remote.servers, providers=remote.providers)
    second.execution.recover()

    assert second.over(run.id, 60).context["result"] == "deployed"
    assert len(remote.upstream.runs()) == 1


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_start_that_was_cut_off_is_repeated_only_where_keys_are_honoured(
    tmp_path: Path, work: Callable[..., Working], sqlite_journal: str, idempotent: bool
) -> None:
    remote = Remote("http", tmp_path / "far", idempotent=idempotent)
    with remote.upstream:
        remote.upstream.control(delay=5)
        first = work(sqlite_journal, servers={}, providers=remote.providers)
        run = first.start(remote.workflow, INPUT)
        first.until(run.id, lambda run: not_none(run.calling).begun)
        time.sleep(0.2)
        first.close()
        remote.upstream.control(delay=0)

        second = work(sqlite_journal, servers={}, providers=remote.providers)
        second.execution.recover()
        run = second.over(run.id, 60)

    if idempotent:
        assert run.state is State.COMPLETED
    else:
        assert run.state is State.FAILED
        assert "It may be running there, so it is not started again" in end_of(run).reason


def test_a_provider_removed_from_the_settings_fails_the_run(working: Working, remote: Remote) -> None:
    working.execution.apply(Plan())
    run = working.finished(remote.workflow, INPUT)

    assert "the settings name no provider 'far'" in end_of(run).reason


def test_workflows_of_a_provider_are_discovered_in_the_background(working: Working, remote: Remote) -> None:
    working.execution.recover()
    end = time.monotonic() + 30
    while not (working.execution.discovered().get("far") and working.execution.discovered()["far"].is_listed):
        assert time.monotonic() < end
        time.sleep(0.02)

    assert [d.id for d in working.execution.discovered()["far"].definitions] == ["deploy"]
    remote.upstream.control(workflows=[])
    working.execution.refresh().result(20)
    assert working.execution.discovered()["far"].definitions == ()
