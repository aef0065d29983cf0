"""Other systems as they are: each is spoken to in its own shape, by a real server over stdio."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spec.stage import DEPLOY, Listener, Stage, Upstream, refusal, staged, state
from support.json_values import Json, JsonObject
from support.make import document, settings_file, write


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "home") as stage:
        yield stage


# ── the examples of the docs ────────────────────────────────────────────────────────────────────────────────────

DOCS = (Path(__file__).parents[2] / "docs" / "providers.md").read_text()
EXAMPLES = dict(re.findall(r"^#### ([^\n]+)\n(?:(?!\n#).)*?```toml\n(.*?)```", DOCS, re.MULTILINE | re.DOTALL))
NAMES = [name for name in EXAMPLES if "base_url" in EXAMPLES[name]]
IMAGE = {"digest": "sha256:1f", "replicas": 3}


class Example(NamedTuple):
    """What a test knows of an example that the docs do not say."""

    prefix: str
    """Where the service has the system."""
    tool: str = DEPLOY
    result: Json = IMAGE
    given: Any = None
    """What the system gets, where it is not the arguments."""


SYSTEMS = {
    "Airflow": Example("/airflow", result=None),
    "Argo Workflows": Example(
        "/argo",
        tool="deploy",
        given={"service": "shop", "replicas": "2"},
        result=[{"name": "url", "value": json.dumps(IMAGE)}],
    ),
    "Conductor": Example("/conductor", tool="deploy"),
    "GitHub Actions": Example("", result=None),
    "n8n": Example("/n8n", result={"invoice": 7, "status": "failed", "for": {"service": "shop", "replicas": 2}}),
    "Prefect": Example("/prefect", result=None),
    "Step Functions": Example("/steps", tool="deploy"),
    "Temporal": Example("/temporal", tool="place_an_order", result=None, given={"article": "tea"}),
    "A service that answers 202 with Location": Example("", tool="report"),
}
ARGUMENTS = {"service": "shop", "replicas": 2}


def settle_example(stage: Stage, service: Upstream, name: str) -> dict[str, str]:
    """Writes an example of the docs as the settings; the environment that it needs."""
    text = EXAMPLES[name]
    example = SYSTEMS[name]
    text = re.sub(r'base_url = "https://[^/"]+', f'base_url = "{service.url}{example.prefix}', text)
    settings_file(stage.home).write_text(text)
    return dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "hush-hush")


def test_every_example_of_the_docs_is_tried() -> None:
    assert list(SYSTEMS) == NAMES


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_example_of_the_docs_lists_starts_and_follows_a_run(stage: Stage, name: str) -> None:
    service = stage.upstream("http", runs={"*": {"seconds": 0.2, "output": IMAGE}})
    example = SYSTEMS[name]
    server = stage.serve(**settle_example(stage, service, name))
    server.tools_when(example.tool)
    arguments = {"article": "tea"} if name == "Temporal" else ARGUMENTS

    answer = state(server.end(server.begin_call(example.tool, arguments)))

    (run,) = service.runs()
    assert run["input"] == (example.given or arguments)
    assert (answer["state"], answer.get("result")) == ("completed", example.result)
    assert name == "n8n" or len(service.seen("status")) >= 1


FAILING = ("Argo Workflows", "Conductor", "Prefect", "Step Functions")


@pytest.mark.parametrize("name", FAILING)
def test_the_failure_of_an_example_run_is_explained(stage: Stage, name: str) -> None:
    service = stage.upstream(
        "http", runs={"*": {"seconds": 0, "outcome": "failed", "error": "no capacity in eu-west-1"}}
    )
    server = stage.serve(**settle_example(stage, service, name))
    server.tools_when(SYSTEMS[name].tool)

    error = refusal(server.end(server.begin_call(SYSTEMS[name].tool, ARGUMENTS)))

    assert "no capacity in eu-west-1" in str(error)


CANCELLING = [name for name in SYSTEMS if re.search(r'^cancel = "\w', EXAMPLES[name], re.MULTILINE)]


@pytest.mark.parametrize("name", CANCELLING)
def test_a_run_of_an_example_is_cancelled_at_its_system(stage: Stage, name: str) -> None:
    service = stage.upstream("http", runs={"*": {"seconds": 60}})
    server = stage.serve(**settle_example(stage, service, name))
    server.tools_when(SYSTEMS[name].tool)
    arguments = {"article": "tea"} if name == "Temporal" else ARGUMENTS
    call = server.begin_call(SYSTEMS[name].tool, arguments)
    service.wait_for("status")

    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    end = time.monotonic() + 30
    while service.runs()[0]["state"] != "CANCELLED":
        assert time.monotonic() < end, service.seen()
        time.sleep(0.02)
    assert len(service.runs()) == 1


# ── answers to a start ──────────────────────────────────────────────────────────────────────────────────────────

WEBHOOK = {"start": "POST /n8n/webhook/{id}", "start_body": "$input", "status": "", "cancel": ""}
INVOICE = [{"id": "invoice", "name": "Make an invoice", "executionType": "sync"}]


@pytest.mark.parametrize(("responds", "result"), [("text", "Invoice 7 is ready."), ("nothing", None)])
def test_a_workflow_that_is_described_as_sync_is_answered_with_its_result(
    stage: Stage, responds: str, result: object
) -> None:
    service = stage.upstream("http", runs={"*": {"responds": responds}})
    stage.configure(service, options={**WEBHOOK, "workflows": INVOICE})
    server = stage.serve()
    server.tools_when("make_an_invoice")

    answer = state(server.end(server.begin_call("make_an_invoice", {"customer": 7})))

    assert (answer["state"], answer["result"]) == ("completed", result)
    assert service.seen("list") == []


def test_a_synchronous_answer_may_take_longer_than_other_answers(stage: Stage) -> None:
    service = stage.upstream("http", delay=1.0)
    stage.configure(service, options={**WEBHOOK, "workflows": INVOICE, "timeout": 0.3})
    server = stage.serve()
    server.tools_when("make_an_invoice")

    answer = state(server.end(server.begin_call("make_an_invoice", {"customer": 7})))

    assert answer["result"]["for"] == {"customer": 7}


def test_a_workflow_that_the_service_lists_as_sync_is_answered_with_its_result(stage: Stage) -> None:
    service = stage.upstream("http", workflows=[{"id": "invoice", "name": "Invoice", "executionType": "sync"}])
    stage.configure(service, options={"start": "POST /n8n/webhook/{id}", "start_body": "$input"})
    server = stage.serve()

    tool = server.tools_when("invoice")["invoice"]
    answer = state(server.end(server.begin_call("invoice", {"customer": 7})))

    assert tool["description"] == "Invoice"
    assert answer["result"]["invoice"] == 7


def test_the_state_of_a_synchronous_answer_counts_where_the_settings_say_where_it_is(stage: Stage) -> None:
    service = stage.upstream("http")
    stage.configure(
        service, options={**WEBHOOK, "workflows": INVOICE, "fields": {"state": "status", "error": "for.why"}}
    )
    server = stage.serve()
    server.tools_when("make_an_invoice")

    error = refusal(server.end(server.begin_call("make_an_invoice", {"why": "no such customer"})))

    assert "no such customer" in str(error)


JOBS = {"start": "POST /jobs/{id}", "start_body": "$input", "workflows": [{"id": "report"}]}


def test_a_run_whose_location_fits_the_status_endpoint_has_an_id_and_can_be_cancelled(stage: Stage) -> None:
    place = "/workflows/report/runs/{run}"
    service = stage.upstream("http", runs={"*": {"seconds": 60, "location": place}})
    stage.configure(service, options=JOBS)
    server = stage.serve()
    server.tools_when("report")
    call = server.begin_call("report")
    service.wait_for("status")

    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    service.wait_for("stopped")

    (run,) = service.runs()
    assert service.seen("status")[0]["path"] == place.format(run=run["id"])


def test_a_run_at_a_location_that_answers_204_has_no_result(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"seconds": 0.2, "output": None}})
    stage.configure(service, options=JOBS)
    server = stage.serve()
    server.tools_when("report")

    answer = state(server.end(server.begin_call("report")))

    assert (answer["state"], answer["result"]) == ("completed", None)
    assert "?token=7" in service.seen("status")[0]["path"]


def test_a_result_at_another_url_is_fetched(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"output": {"sold": 3}, "elsewhere": "/jobs/results/{run}"}})
    stage.configure(service, options=JOBS)
    server = stage.serve()
    server.tools_when("report")

    done = state(server.end(server.begin_call("report", {})))

    assert (done["state"], done["result"]) == ("completed", {"sold": 3})


def test_a_result_on_another_host_is_not_read(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"elsewhere": "http://127.0.0.1:9/jobs/results/{run}"}})
    stage.configure(service, options={**JOBS, "timeout_seconds": 3})
    server = stage.serve()
    server.tools_when("report")

    data = refusal(server.end(server.begin_call("report", {})))["data"]

    assert data["timedOut"] is True
    assert "has the result of its run on another host" in server.leave()


def test_a_location_on_another_host_is_not_asked(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"location": "http://127.0.0.1:9/jobs/{run}"}})
    stage.configure(service, options=JOBS)
    server = stage.serve()
    server.tools_when("report")

    error = refusal(server.end(server.begin_call("report")))

    assert "has the state of its run on another host" in str(error)
    assert "may have been started" in str(error)


@pytest.mark.parametrize("status", ["", "GET /runs/{run}"])
def test_a_start_that_is_answered_with_204_was_started_and_its_end_is_not_known(stage: Stage, status: str) -> None:
    service = stage.upstream("http")
    dispatch = {"start": "POST /repos/acme/shop/actions/workflows/{id}/dispatches", "status": status, "cancel": ""}
    body = {"ref": "main", "inputs": "$input"}
    stage.configure(service, options={**dispatch, "start_body": body})
    server = stage.serve()
    server.tools_when(DEPLOY)

    reply = server.end(server.begin_call(DEPLOY, {"service": "shop"}))

    assert len(service.runs()) == 1
    assert "cannot be known" in str(reply)
    assert reply["result"]["structuredContent"]["state"] == "unknown"


def test_a_webhook_that_answers_before_its_end_was_started_and_its_end_is_not_known(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"responds": "immediately"}})
    stage.configure(service, options={**WEBHOOK, "workflows": [{"id": "invoice"}]})
    server = stage.serve()
    server.tools_when("invoice")

    reply = server.end(server.begin_call("invoice"))

    assert "cannot be known" in str(reply)


# ── workflows that the settings describe ────────────────────────────────────────────────────────────────────────


def test_workflows_of_an_mcp_server_can_be_described_in_the_settings(stage: Stage) -> None:
    upstream = stage.upstream("stdio", without=["workflows-list-tool"], runs={"*": {"seconds": 0, "output": 7}})
    schema = {"type": "object", "properties": {"service": {"type": "string"}}, "required": ["service"]}
    described = {"id": "deploy", "name": "Deploy it", "category": "ops", "inputSchema": schema}
    stage.configure(upstream, options={"workflows": [described]})
    server = stage.serve()

    tool = server.tools_when("deploy_it")["deploy_it"]
    answer = state(server.end(server.begin_call("deploy_it", {"service": "shop"})))

    assert (tool["inputSchema"], tool["description"]) == (schema, "Deploy it")
    assert answer["result"] == 7


# ── the preset "simplified" ─────────────────────────────────────────────────────────────────────────────────────


def test_the_simplified_service_is_asked_about_the_instance_that_it_started(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"seconds": 0.2, "output": {"url": "https://shop"}}})
    stage.configure(service, options={"preset": "simplified"})
    server = stage.serve()
    server.tools_when(DEPLOY)

    answer = state(server.end(server.begin_call(DEPLOY, {"service": "shop"})))

    (run,) = service.runs()
    assert answer["result"] == {"url": "https://shop"}
    assert service.seen("start")[0]["body"] == {"input": {"service": "shop"}, "source": "application"}
    assert {seen["path"] for seen in service.seen("status")} == {
        f"/api/v1/service/workflows/deploy/runs/{run['id']}/status"
    }


def test_why_the_simplified_service_failed_is_read_from_its_output(stage: Stage) -> None:
    failing = {"seconds": 0, "outcome": "failed", "error": "Domain analysis failed"}
    service = stage.upstream("http", runs={"*": failing})
    stage.configure(service, options={"preset": "simplified"})
    server = stage.serve()
    server.tools_when(DEPLOY)

    error = refusal(server.end(server.begin_call(DEPLOY, {"service": "shop"})))

    assert "Domain analysis failed" in str(error)


# ── calls of a library workflow ─────────────────────────────────────────────────────────────────────────────────


def test_the_result_of_one_call_feeds_the_next_and_keeps_its_type(stage: Stage) -> None:
    image = {"digest": "sha256:1f", "replicas": 3, "ports": [80, 443], "public": False}
    service = stage.upstream("http", runs={"build": {"seconds": 0, "output": image}, "deploy": {"seconds": 0}})
    stage.configure(service)
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

    answer = state(server.end(server.begin_call("release", {"name": "shop"})))
    status = state(server.end(server.begin_call("workflow_status", {"runId": answer["runId"]})))

    given = {"name": "shop-sha256:1f", "replicas": 3, "ports": [80, 443], "public": False}
    assert [(run["workflow"], run["input"]) for run in service.runs()] == [
        ("build", {"name": "shop"}),
        ("deploy", given),
    ]
    assert answer["result"] == {"echo": given}
    assert status["remote"]["runId"] == service.runs()[1]["id"]


# ── entries that cannot be used ─────────────────────────────────────────────────────────────────────────────────

BROKEN = '[providers.broken]\nkind = "http"\nbase_url = "https://x.example"\nstrat = "POST /x"\n'


def test_a_provider_that_cannot_be_read_does_not_stop_the_server(stage: Stage) -> None:
    service = stage.upstream("http")
    stage.configure(service)
    config = settings_file(stage.home)
    config.write_text(config.read_text() + BROKEN)
    server = stage.serve()

    server.tools_when(DEPLOY)

    log = server.leave()
    assert "[providers.broken] is ignored; the rest works" in log
    assert "unknown field 'strat' (did you mean 'start'?)" in log


def test_a_provider_entry_that_breaks_at_runtime_affects_nothing_else(stage: Stage) -> None:
    service = stage.upstream("http")
    stage.configure(service)
    config = settings_file(stage.home)
    server = stage.serve()
    server.tools_when(DEPLOY)

    config.write_text(config.read_text() + BROKEN)
    answer = state(server.end(server.begin_call("workflow_refresh")))

    assert answer["removed"] == []
    assert DEPLOY in server.tools()
    assert server.leave().count("[providers.broken] is ignored") == 1


def test_a_job_is_followed_again_when_the_entry_of_its_provider_is_fixed(stage: Stage) -> None:
    service = stage.upstream("http", runs={"*": {"seconds": 2, "output": 7}})
    stage.configure(service)
    server = stage.serve()
    server.tools_when(DEPLOY)
    server.begin_call(DEPLOY, {"service": "shop"})
    service.wait_for("status")
    server.stop()

    config = settings_file(stage.home)
    good = config.read_text()
    config.write_text(good.replace("kind =", 'strat = "x"\nkind ='))
    server = stage.serve()
    (run,) = state(server.end(server.begin_call("workflow_runs")))["runs"]
    broken = status_when(server, run["runId"], lambda status: "have no usable provider" in str(status))
    config.write_text(good)
    server.end(server.begin_call("workflow_refresh"))
    later = status_when(server, run["runId"], lambda status: status["state"] != "running")

    assert broken["state"] == "running"
    assert (later["state"], later["result"], len(service.runs())) == ("completed", 7, 1)


def status_when(server: Listener, run_id: str, is_so: Callable[[JsonObject], bool]) -> JsonObject:
    """The status of a run as soon as it is so."""
    end = time.monotonic() + 60
    while not is_so(status := state(server.end(server.begin_call("workflow_status", {"runId": run_id})))):
        assert time.monotonic() < end, status
        time.sleep(0.1)
    return status
