"""Traces: the real server, the real exporter, and a collector on loopback."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.client import ENVELOPE
from support.collector import Collector, Span
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step, write
from support.web import WebClient, WebServer
from upstream.upstreams import McpUpstream
from workflowlookup import __version__
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens

ERAS = {"handshake": {}, "envelope": {"_meta": ENVELOPE}}
TRACE, PARENT = "1" * 32, "2" * 16
ARGUMENT, OUTPUT, WORDS = "an-argument-of-a-call", "an-output-of-a-step", "words-of-another-server"


def calling(tool: str, **arguments: Json) -> JsonObject:
    return {"id": "work", "title": "Work", "call": {"server": "up", "tool": tool, "arguments": arguments}}


class Traced:
    """A server that is traced, has a token, and calls a server that fails; and one client of it."""

    def __init__(self, home: Path, collector: Collector, **environment: str) -> None:
        self.collector = collector
        write(home / "library", document(step("plan"), calling("echo", text=ARGUMENT), identifier="good"))
        write(home / "library", document(calling("fail", how="raise", message=WORDS), identifier="bad"))
        settings_file(home).write_text(McpUpstream(home / "up").toml())
        journal = str(home / "runs.sqlite")
        tokens = Tokens(SqliteJournal(journal))
        self.token = tokens.create("ci-bot", ["admin"], ["*"], seconds=600)[0]
        tokens.close()
        collected = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
        self.server = WebServer(
            home, "--journal", journal, directory=home / "library", environment=collected | environment
        )
        self.client = WebClient(
            self.server.url, authorization=f"Bearer {self.token}", traceparent=f"00-{TRACE}-{PARENT}-01"
        )
        self.meta: JsonObject = {}

    def speak(self, era: str) -> None:
        self.meta = ERAS[era]
        if not self.meta:
            self.client.initialize()

    def call(self, tool: str, **arguments: Json) -> Json:
        return self.client.request("tools/call", {"name": tool, "arguments": arguments, **self.meta})["result"]

    def end(self, *codes: int) -> None:
        """In good order: what was not yet sent is sent."""
        self.server.terminate()
        assert self.server.wait() in (0, *codes), self.server.log()

    def close(self) -> None:
        self.client.close()
        self.server.stop()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def traced(tmp_path: Path, collector: Collector) -> Iterator[Traced]:
    traced = Traced(tmp_path, collector)
    yield traced
    traced.close()


@pytest.mark.parametrize("era", list(ERAS))
def test_a_call_is_a_span_in_the_clients_trace_and_the_calls_of_its_run_are_below_it(
    traced: Traced, collector: Collector, era: str
) -> None:
    traced.speak(era)
    traced.call("workflow_start", workflowId="good", runId="traced-run")
    traced.call("workflow_submit", runId="traced-run", stepId="plan", output=OUTPUT)
    traced.call("workflow_get", id="no-such-workflow")
    traced.end()

    start, submit = collector.one("tools/call workflow_start"), collector.one("tools/call workflow_submit")
    assert (start.trace, start.parent) == (submit.trace, submit.parent) == (TRACE, PARENT)
    assert submit.attributes["mcp.method.name"] == "tools/call"
    assert submit.attributes["gen_ai.tool.name"] == "workflow_submit"
    assert submit.attributes["mcp.protocol.version"] == ("2026-07-28" if traced.meta else "2025-11-25")
    work = collector.one("call work")
    assert work == Span(
        name="call work",
        trace=TRACE,
        id=work.id,
        parent=submit.id,
        attributes={
            "workflowlookup.run": "traced-run",
            "workflowlookup.workflow": "good",
            "workflowlookup.step": "work",
            "workflowlookup.attempt": 1,
        },
    )
    assert collector.one("MCP send tools/call echo").parent == work.id
    assert [span.name for span in collector.spans if span.is_error] == ["tools/call workflow_get"]
    assert collector.paths == {"/v1/traces"}
    assert (collector.resource["service.name"], collector.resource["service.version"]) == (
        "workflowlookup",
        __version__,
    )
    tell_no_secrets(traced)


@pytest.mark.parametrize("era", list(ERAS))
def test_a_failed_call_is_exported_without_error_texts(traced: Traced, collector: Collector, era: str) -> None:
    traced.speak(era)
    reply = traced.call("workflow_start", workflowId="bad")
    traced.end()

    assert WORDS in str(reply)
    assert collector.one("call work").is_error
    assert collector.one("MCP send tools/call fail").is_error
    tell_no_secrets(traced)


def test_the_trace_in_the_message_takes_precedence_over_the_header(traced: Traced, collector: Collector) -> None:
    traced.speak("handshake")
    own = {"_meta": {"traceparent": f"00-{'3' * 32}-{'4' * 16}-01"}}
    traced.client.request("tools/call", {"name": "workflow_list", "arguments": {}, **own})
    traced.end()

    listed = collector.one("tools/call workflow_list")
    assert (listed.trace, listed.parent) == ("3" * 32, "4" * 16)


def test_texts_of_clients_are_truncated(traced: Traced, collector: Collector) -> None:
    traced.speak("handshake")
    traced.client.request("tools/call", {"name": "x" * 10_000, "arguments": {}})
    traced.end()

    (made_up,) = [span for span in collector.spans if span.name.startswith("tools/call x")]
    assert len(made_up.name) == len(made_up.attributes["gen_ai.tool.name"]) == 200


def test_the_traces_endpoint_and_the_service_name_can_be_set(tmp_path: Path, collector: Collector) -> None:
    own = {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.endpoint}/own"}
    traced = Traced(tmp_path, collector, **own, OTEL_SERVICE_NAME="ours")
    traced.speak("handshake")
    traced.end()
    traced.close()

    assert collector.one("initialize").trace == TRACE
    assert collector.paths == {"/own"}
    assert collector.resource["service.name"] == "ours"


def test_an_unreachable_collector_affects_no_request(tmp_path: Path, collector: Collector) -> None:
    traced = Traced(tmp_path, collector, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="50")
    traced.speak("envelope")

    assert traced.call("workflow_get", id="good")["structuredContent"]["id"] == "good"
    traced.end(128 + signal.SIGTERM)  # the exporter tries again and again, until the watchdog ends the process
    traced.close()


def test_without_the_otel_extra_the_server_serves_and_says_how_to_install_it(
    tmp_path: Path, collector: Collector
) -> None:
    """As where the extra was not installed: what it brings cannot be imported."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry.sdk'] = None\n")
    traced = Traced(tmp_path, collector, PYTHONPATH=str(tmp_path))
    traced.speak("envelope")
    reply = traced.call("workflow_get", id="good")
    traced.end()
    traced.close()

    assert reply["structuredContent"]["id"] == "good"
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set, but no traces are sent" in traced.server.log()
    assert re.search(r"pip install .*\[otel\]'", traced.server.log())
    assert collector.spans == []


def tell_no_secrets(traced: Traced) -> None:
    body = b"".join(traced.collector.bodies)
    assert body
    assert [secret for secret in (traced.token, ARGUMENT, OUTPUT, WORDS) if secret.encode() in body] == []
