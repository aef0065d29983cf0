"""Other systems as they are: each is spoken to in its own shape, by a real server over stdio."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from make import document, settings_file, write
from spec.stage import DEPLOY, Stage, refusal, staged, state


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "home") as stage:
        yield stage


# ── the preset "simplified" ─────────────────────────────────────────────────────────────────────────────────────


def test_the_simplified_service_is_asked_about_the_instance_that_it_started(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"seconds": 0.2, "output": {"url": "https://shop"}}})
    stage.settle(service, options={"preset": "simplified"})
    server = stage.serve()
    server.tools_when(DEPLOY)

    told = state(server.end(server.begin_call(DEPLOY, {"service": "shop"})))

    (run,) = service.runs()
    assert told["result"] == {"url": "https://shop"}
    assert service.seen("start")[0]["body"] == {"input": {"service": "shop"}, "source": "application"}
    assert {seen["path"] for seen in service.seen("status")} == {
        f"/api/v1/service/workflows/deploy/runs/{run['id']}/status"
    }


def test_why_the_simplified_service_failed_is_read_from_its_output(stage: Stage) -> None:
    failing = {"seconds": 0, "outcome": "failed", "error": "Domain analysis failed"}
    service = stage.upstream("http", runs={"*": failing})
    stage.settle(service, options={"preset": "simplified"})
    server = stage.serve()
    server.tools_when(DEPLOY)

    told = refusal(server.end(server.begin_call(DEPLOY, {"service": "shop"})))

    assert "Domain analysis failed" in str(told)


# ── calls of a library workflow ─────────────────────────────────────────────────────────────────────────────────


def test_the_result_of_one_call_feeds_the_next_and_keeps_its_type(stage: Stage) -> None:
    image = {"digest": "sha256:1f", "replicas": 3, "ports": [80, 443], "public": False}
    service = stage.upstream("http", runs={"build": {"seconds": 0, "output": image}, "deploy": {"seconds": 0}})
    stage.settle(service)
    arguments = {
        "name": "{{name}}-{{image.digest}}",
        "replicas": "{{image.replicas}}",
        "ports": "{{image.ports}}",
        "public": "{{image.public}}",
    }
    steps = [
        {"id": "build", "title": "Build", "call": {"provider": "svc", "workflow": "build", "saveAs": "image"}},
        {
            "id": "deploy",
            "title": "Deploy",
            "call": {"provider": "svc", "workflow": "deploy", "arguments": arguments, "saveAs": "result"},
        },
    ]
    release = document(*steps, identifier="release", name="Release", inputSchema={"type": "object"})
    write(stage.home / ".workflowlookup" / "workflows", release)
    server = stage.serve()
    server.tools_when("release")

    told = state(server.end(server.begin_call("release", {"name": "shop"})))
    status = state(server.end(server.begin_call("workflow_status", {"runId": told["runId"]})))

    given = {"name": "shop-sha256:1f", "replicas": 3, "ports": [80, 443], "public": False}
    assert [(run["workflow"], run["input"]) for run in service.runs()] == [
        ("build", {"name": "shop"}),
        ("deploy", given),
    ]
    assert told["result"] == {"echo": given}
    assert status["remote"]["runId"] == service.runs()[1]["id"]


# ── entries that cannot be used ─────────────────────────────────────────────────────────────────────────────────

BROKEN = '[providers.broken]\nkind = "http"\nbase_url = "https://x.example"\nstrat = "POST /x"\n'


def test_a_provider_that_cannot_be_read_does_not_stop_the_server(stage: Stage) -> None:
    service = stage.upstream("http")
    stage.settle(service)
    config = settings_file(stage.home)
    config.write_text(config.read_text() + BROKEN)
    server = stage.serve()

    server.tools_when(DEPLOY)

    log = server.leave()
    assert "[providers.broken] is left out; the rest works" in log
    assert "unknown field 'strat' (did you mean 'start'?)" in log


def test_a_provider_that_breaks_while_the_server_runs_takes_nothing_else_with_it(stage: Stage) -> None:
    service = stage.upstream("http")
    stage.settle(service)
    config = settings_file(stage.home)
    server = stage.serve()
    server.tools_when(DEPLOY)

    config.write_text(config.read_text() + BROKEN)
    told = state(server.end(server.begin_call("workflow_refresh")))

    assert told["removed"] == []
    assert DEPLOY in server.tools()
    assert server.leave().count("[providers.broken] is left out") == 1
