"""Other systems as they are: each is spoken to in its own shape, by a real server over stdio."""

from collections.abc import Iterator
from pathlib import Path

import pytest

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
