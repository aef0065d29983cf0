"""The real server over HTTP: what is refused and how, sessions and how they end, what it tells of itself."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.client import ENVELOPE
from support.json_values import JsonObject
from support.make import document, long_run, settings_file, step, write
from support.web import HEADERS, MODERN, Connect, Serve, WebClient, WebServer, events, modern, opening, routing
from upstream.upstreams import McpUpstream
from workflowlookup.protocol.jsonrpc import MAX_NESTING
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import summarise
from workflowlookup.store.sqlite import SqliteJournal

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A server for tests that leave it as it was."""
    server = WebServer(tmp_path_factory.mktemp("plain"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def long_journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run of 40,000 events, and a journal that has it."""
    records, run = long_run(40_000)
    journal = SqliteJournal(str(tmp_path_factory.mktemp("long") / "runs.sqlite"))
    journal.append(run.id, 0, records, summarise(run))
    journal.close()
    return run, Path(journal.path)


# ── who waits for whom ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_modern", [False, True], ids=["session", "envelope"])
def test_loading_a_long_run_blocks_no_other_client(
    serve_http: Serve, connect: Connect, long_journal: tuple[Run, Path], tmp_path: Path, is_modern: bool
) -> None:
    run, journal = long_journal
    shutil.copy(journal, tmp_path / "runs.sqlite")
    server = serve_http("--journal", str(tmp_path / "runs.sqlite"))
    patient, other = connect(server), connect(server)
    params = {"name": "workflow_status", "arguments": {"runId": run.id}}
    if is_modern:
        message = modern("tools/call", params)
        headers = {**MODERN, **routing(message)}
    else:
        patient.initialize()
        message, headers = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, {}
    other.initialize()
    order = []

    def ask() -> None:
        assert patient.post(message, **headers).status_code == 200
        order.append("status")

    thread = threading.Thread(target=ask)
    thread.start()
    while "status" not in order:
        other.request("ping")
        order.append("ping")
    thread.join()

    assert order.index("status") >= 3  # one may have been answered before the other request came


@pytest.mark.parametrize("what", ["page", "live", "report", "journal", "resource", "modern resource"])
def test_the_report_of_a_long_run_blocks_no_other_client(
    serve_http: Serve, connect: Connect, long_journal: tuple[Run, Path], tmp_path: Path, what: str
) -> None:
    run, journal = long_journal
    shutil.copy(journal, tmp_path / "runs.sqlite")
    server = serve_http("--journal", str(tmp_path / "runs.sqlite"))
    patient, other = connect(server), connect(server)
    patient.initialize()
    other.initialize()
    patient.request("tools/call", {"name": "workflow_status", "arguments": {"runId": run.id}})  # it is folded now
    page, report = f"{server.base}/runs/{run.id}", {"uri": f"run://{run.id}"}
    message = modern("resources/read", report)
    asking = {
        "page": lambda: patient.http.get(page).text,
        "live": lambda: patient.http.get(f"{page}/live?after={run.sequence - 1}").text,
        "report": lambda: patient.http.get(f"{page}/report.md").text,
        "journal": lambda: patient.http.get(f"{page}/journal.jsonl").headers["content-disposition"],
        "resource": lambda: json.dumps(patient.request("resources/read", report)),
        "modern resource": lambda: patient.http.post(server.url, json=message, headers=routing(message)).text,
    }
    order, answers = [], []

    def ask() -> None:
        answers.append(asking[what]())
        order.append(what)

    thread = threading.Thread(target=ask)
    thread.start()
    while what not in order and thread.is_alive():
        other.request("ping")
        order.append("ping")
    thread.join()

    assert ("journal.jsonl" if what == "journal" else "work@") in answers[0]
    assert order.index(what) >= 5  # one or two may have been answered before the other request came


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unsupported_version_is_refused_and_opens_no_session(plain: WebServer, connect: Connect) -> None:
    response = connect(plain).post(opening("1999-01-01"))

    assert response.status_code == 200
    assert "mcp-session-id" not in response.headers
    error = response.json()["error"]
    assert (error["code"], error["data"]["requestedVersion"]) == (-32000, "1999-01-01")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_handshake_version_is_served(plain: WebServer, connect: Connect, version: str) -> None:
    client = connect(plain)

    reply = client.request("initialize", {"protocolVersion": version, "capabilities": {}})

    assert reply["result"]["protocolVersion"] == version
    assert client.request("ping") == {"result": {}}


def test_client_info_is_not_validated_by_the_sdk(plain: WebServer, connect: Connect) -> None:
    client = connect(plain)

    reply = client.request("initialize", opening(capabilities={"elicitation": 5, "odd": [1]})["params"])

    assert "result" in reply


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"\xff", 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b"7", 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":%b,"method":"ping","params":{}}' % (b"9" * 5_000), 400, -32600),
        (LIST, 400, -32000),
        (b"[" * 100_000, 400, -32700),
    ],
)
def test_a_message_that_is_not_a_request_is_refused(
    plain: WebServer, connect: Connect, message: bytes | JsonObject, status: int, code: int
) -> None:
    response = connect(plain).post(message)

    reply = response.json(parse_int=float)  # int refuses more than 4,300 digits, which an id may have
    assert (response.status_code, reply["error"]["code"]) == (status, code)


def test_ping_and_discover_need_no_session(plain: WebServer, connect: Connect) -> None:
    response = connect(plain).post({"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert (response.status_code, response.json()["result"]) == (200, {})


@pytest.mark.parametrize("identifier", ["error", "result"])
def test_the_outcome_is_not_read_from_the_id(plain: WebServer, connect: Connect, identifier: str) -> None:
    client = connect(plain)

    answered = client.post({"jsonrpc": "2.0", "id": identifier, "method": "ping"})
    refused = client.post(opening("1999-01-01") | {"id": identifier})

    assert (answered.status_code, answered.json()["result"]) == (200, {})
    assert (refused.status_code, refused.json()["error"]["code"]) == (200, -32000)
    assert "mcp-session-id" not in refused.headers


def test_an_unknown_session_is_404(plain: WebServer, connect: Connect) -> None:
    client = connect(plain)

    assert client.post(LIST, **{"mcp-session-id": "nope"}).status_code == 404
    assert client.http.get(plain.url, headers={"mcp-session-id": "nope"}).status_code == 404
    assert client.http.delete(plain.url, headers={"mcp-session-id": "nope"}).status_code == 404


@pytest.mark.parametrize("path", ["/mcp", "/metrics", "/"])
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("host", "evil.example", 421),
        ("host", "127.0.0.1.evil.example:80", 421),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
    ],
)
def test_other_hosts_and_origins_are_refused(
    plain: WebServer, connect: Connect, path: str, header: str, value: str, status: int
) -> None:
    response = connect(plain).http.post(plain.base + path, content=b"{}", headers={header: value})

    assert response.status_code == status


def test_its_own_origin_is_allowed(plain: WebServer, connect: Connect) -> None:
    assert connect(plain).post(opening(), origin=plain.base).status_code == 200


def test_hosts_and_origins_can_be_allowed(serve_http: Serve, connect: Connect) -> None:
    server = serve_http("--allowed-hosts", "flows.localhost", "--allowed-origins", "https://tools.example")

    response = connect(server).post(opening(), host="flows.localhost", origin="https://tools.example")

    assert response.status_code == 200


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "chunked"])
def test_a_message_that_is_too_long_is_refused(serve_http: Serve, connect: Connect, is_declared: bool) -> None:
    server = serve_http("--max-message-bytes", "2000")
    body = json.dumps(LIST | {"params": {"x": "x" * 3000}}).encode()

    response = connect(server).http.post(server.url, content=body if is_declared else iter([body[:1000], body[1000:]]))

    assert response.status_code == 413
    assert "longer than 2,000 bytes" in response.json()["error"]["data"]["details"]


@pytest.mark.parametrize("is_declared", [True, False])
def test_the_error_for_a_message_over_the_limit_has_its_id(
    serve_http: Serve, connect: Connect, is_declared: bool
) -> None:
    server = serve_http("--max-message-bytes", "2000")
    body = b'{"jsonrpc":"2.0","id":"a-7","method":"ping","params":{"x":"' + b"a" * 9_000 + b'"}}'

    response = connect(server).http.post(server.url, content=body if is_declared else iter([body[:1000], body[1000:]]))

    assert (response.status_code, response.json()["id"]) == (413, "a-7")


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_client_that_sends_everything_before_it_reads_gets_the_response(serve_http: Serve, is_declared: bool) -> None:
    server = serve_http()
    body = b'{"jsonrpc":"2.0","id":"a-7","method":"ping","params":{"x":"' + b"a" * (20 << 20) + b'"}}'
    content = body if is_declared else iter([body[at : at + 65_536] for at in range(0, len(body), 65_536)])
    request = urllib.request.Request(server.url, content, {"Content-Type": "application/json"})

    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(request, timeout=20)

    with refusal.value as response:
        assert (response.status, json.load(response)["id"]) == (413, "a-7")


def test_the_error_for_a_message_that_is_nested_too_deeply_has_its_id(serve_http: Serve, connect: Connect) -> None:
    server = serve_http()
    body = b'{"jsonrpc":"2.0","id":"a-7","method":"ping","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}"

    response = connect(server).http.post(server.url, content=body)

    assert (response.status_code, response.json()["id"]) == (400, "a-7")
    assert response.json()["error"]["code"] == -32700


def test_a_lone_surrogate_becomes_the_replacement_character(serve_http: Serve, connect: Connect) -> None:
    client = connect(serve_http())
    client.initialize()

    response = client.post(rb'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"cut \ud83d"}}')

    (reply,) = events(response)
    assert (reply["id"], "cut \ufffd" in json.dumps(reply, ensure_ascii=False)) == (7, True)


def test_a_client_that_sends_too_many_requests_gets_retry_after(serve_http: Serve, connect: Connect) -> None:
    client = connect(serve_http("--requests-per-minute", "5"))

    responses = [client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}) for _ in range(7)]

    assert [response.status_code for response in responses] == [200] * 5 + [429] * 2
    assert 1 <= int(responses[-1].headers["retry-after"]) <= 60
    assert responses[-1].json()["error"]["code"] == -32012


def test_a_session_is_initialized_once(serve_http: Serve, connect: Connect) -> None:
    client = connect(serve_http())
    client.initialize()

    refused = client.post(opening("2024-11-05", capabilities={"x": "y" * 1_000_000}))

    assert (refused.status_code, refused.json()["error"]["code"], refused.json()["id"]) == (400, -32600, 1)
    assert "result" in client.request("tasks/list"), "which only 2025-11-25 has"
    assert connect(serve_http()).post(opening()).status_code == 200


def test_a_long_id_is_refused_and_not_sent_back(serve_http: Serve, connect: Connect) -> None:
    client = connect(serve_http())
    client.initialize()

    refused = client.post({"jsonrpc": "2.0", "id": "x" * 1_000_000, "method": "ping"})

    assert (refused.status_code, refused.json()["error"]["code"], refused.json()["id"]) == (400, -32600, None)


def test_the_number_of_open_sessions_is_limited(serve_http: Serve, connect: Connect) -> None:
    server = serve_http("--max-sessions", "2")
    first, second, third = (connect(server) for _ in range(3))
    first.initialize()
    second.initialize()

    refused = third.post(opening())
    assert (refused.status_code, refused.json()["error"]["code"], refused.json()["id"]) == (429, -32012, 1)
    assert int(refused.headers["retry-after"]) > 0
    first.http.delete(server.url, headers=first.session)
    assert third.post(opening()).status_code == 200


def test_idle_sessions_are_replaced_and_used_ones_are_not(serve_http: Serve, connect: Connect) -> None:
    server = serve_http("--max-sessions", "2", "--idle-seconds", "30")
    left, listening, new = (connect(server) for _ in range(3))
    listening.initialize()
    listening.hearken()
    left.initialize()
    time.sleep(1.2)  # a thirtieth, and a little

    assert new.post(opening()).status_code == 200
    assert left.post({"jsonrpc": "2.0", "id": 9, "method": "ping"}).status_code == 404
    assert listening.request("ping") == {"result": {}}


def test_an_idle_session_is_ended(serve_http: Serve, connect: Connect) -> None:
    client = connect(serve_http("--idle-seconds", "1"))
    client.initialize()
    assert client.request("ping") == {"result": {}}

    time.sleep(2.5)

    assert client.post(LIST).status_code == 404


def test_a_session_with_an_open_stream_is_not_idle(serve_http: Serve, connect: Connect) -> None:
    client = connect(serve_http("--idle-seconds", "1"))
    client.initialize()
    client.hearken()

    time.sleep(2.5)

    assert client.request("ping") == {"result": {}}


def test_a_client_ends_its_session(plain: WebServer, connect: Connect) -> None:
    for goodbye in ("delete", "shutdown"):
        client = connect(plain)
        client.initialize()
        if goodbye == "delete":
            assert client.http.delete(plain.url, headers=client.session).status_code == 200
        else:
            assert client.request("shutdown") == {"result": None}
        assert client.post(LIST).status_code == 404


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("no-such-task", -32602),
        ("=?base64?bm8tc3VjaC10YXNr?=", -32602),
        ("another", -32020),
        (None, -32020),
    ],
    ids=["the same", "the same, encoded", "another", "none"],
)
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_about_a_task_is_routed_by_the_task(
    plain: WebServer, connect: Connect, method: str, name: str | None, code: int
) -> None:
    """A proxy routes by the header, so a body that says something else is refused."""
    message = modern(method, {"taskId": "no-such-task", "inputResponses": {}})
    message["params"]["_meta"] = {**ENVELOPE, CAPABILITIES: {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    headers = {**MODERN, "mcp-method": method, **({"mcp-name": name} if name else {})}

    response = connect(plain).post(message, **headers)

    assert (response.status_code, response.json()["error"]["code"]) == (400, code)


def test_a_client_that_does_not_finish_its_headers_is_disconnected(plain: WebServer) -> None:
    host, port = plain.base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as slow:
        slow.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        begun = time.monotonic()
        assert slow.recv(100) == b""

    assert time.monotonic() - begun < 25


# ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_events_of_a_broken_stream_are_replayed_only_to_their_own_session(plain: WebServer, connect: Connect) -> None:
    client, other = connect(plain), connect(plain)
    for each in (client, other):
        each.initialize()
    response = client.post(LIST | {"id": 7})
    first, answer = re.findall(r"^id: (\d+-\d+)", response.text, re.MULTILINE)

    def resume(who: WebClient) -> str:
        headers = who.session | {"last-event-id": first, "accept": "text/event-stream"}
        lines: list[str] = []
        gone = contextlib.suppress(httpx2.TimeoutException)
        with gone, who.http.stream("GET", plain.url, headers=headers, timeout=1.5) as resumed:
            lines.extend(line for line in resumed.iter_lines())
        return "\n".join(lines)

    assert f"id: {answer}" in resume(client)
    assert "names no event after which this server can go on" in resume(other)


@pytest.mark.parametrize("last", ["1-1", "7", "nonsense"])
def test_a_stream_that_cannot_be_resumed_after_an_event_is_refused(
    plain: WebServer, connect: Connect, last: str
) -> None:
    client = connect(plain)
    client.initialize()

    answer = client.http.get(plain.url, headers=client.session | {"last-event-id": last})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
    assert "repeat a request whose answer did not come" in answer.text


@pytest.mark.parametrize("name", ["mcp-session-id", "mcp-protocol-version", "last-event-id"])
def test_a_repeated_routing_header_is_refused(plain: WebServer, connect: Connect, name: str) -> None:
    client = connect(plain)
    client.initialize()
    twice = [
        *(HEADERS | client.session).items(),
        (name, "other"),
        *([(name, "one")] if name == "last-event-id" else []),
    ]

    answer = httpx2.post(plain.url, content=json.dumps(LIST), headers=twice)

    assert (answer.status_code, answer.json()["error"]["data"]["details"]) == (
        400,
        f"the header {name} is sent more than once",
    )


def test_a_call_with_an_open_question_is_answered_when_its_session_ends(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    write(tmp_path / "library", document(step("one", requireConfirmation=True), identifier="asks-a-person"))
    client = connect(serve_http(directory=tmp_path / "library"))
    client.initialize(capabilities={"elicitation": {}})
    start = {"name": "workflow_start", "arguments": {"workflowId": "asks-a-person"}}
    run = client.request("tools/call", start)["result"]["structuredContent"]["runId"]
    submission = {"runId": run, "stepId": "one", "output": "done"}
    message = {"jsonrpc": "2.0", "id": "s", "method": "tools/call"}
    stream = client.stream(message | {"params": {"name": "workflow_submit", "arguments": submission}})
    assert next(stream)["method"] == "elicitation/create"

    assert httpx2.delete(client.url, headers=client.session).status_code == 200

    (reply,) = stream
    assert reply["id"] == "s"
    assert "The session ended before the person answered" in json.dumps(reply)


def test_a_question_is_asked_for_a_request_nested_up_to_the_limit(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    write(tmp_path / "library", document(step("one", requireConfirmation=True), identifier="asks-a-person"))
    client = connect(serve_http(directory=tmp_path / "library"))
    client.initialize(capabilities={"elicitation": {}})
    client.on_question = lambda _: {"result": {"action": "accept", "content": {}}}
    start = {"name": "workflow_start", "arguments": {"workflowId": "asks-a-person"}}
    run = client.request("tools/call", start)["result"]["structuredContent"]["runId"]
    deep: list[object] = []
    for _ in range(MAX_NESTING - 10):
        deep = [deep]

    submission = {"runId": run, "stepId": "one", "output": "done"}
    reply = client.request("tools/call", {"name": "workflow_submit", "arguments": submission, "_meta": {"deep": deep}})

    assert reply["result"]["structuredContent"]["state"] == "completed"


def test_an_address_in_use_is_one_error_message(plain: WebServer, tmp_path: Path) -> None:
    address = plain.base.removeprefix("http://")
    command = [sys.executable, "-m", "workflowlookup", "serve", "--http", address]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=os.environ | {"HOME": str(tmp_path)}
    )

    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert f"cannot listen at {address}" in done.stderr
    assert "Name another address with --http" in done.stderr


# ── health and figures ──────────────────────────────────────────────────────────────────────────────────────────


def test_probes_may_use_any_host(plain: WebServer) -> None:
    for path in ("/healthz", "/readyz"):
        assert httpx2.get(plain.base + path, headers={"host": "10.1.2.3"}).status_code == 200


def test_a_server_without_its_journal_is_not_ready(serve_http: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server = serve_http("--journal", str(tmp_path / "file" / "runs.sqlite"))

    assert httpx2.get(f"{server.base}/readyz").status_code == 503
    assert httpx2.get(f"{server.base}/metrics").status_code == 503  # nobody knows whether it takes a token


def test_the_metrics_are_openmetrics(serve_http: Serve, connect: Connect, tmp_path: Path) -> None:
    write(tmp_path / "library", document(step(), identifier="by-hand"))
    server = serve_http(directory=tmp_path / "library")
    client = connect(server)
    client.initialize()
    client.request("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "by-hand"}})
    client.request("tools/call", {"name": "workflow_get", "arguments": {"id": "no-such-workflow"}})
    client.request("no/such")

    response = httpx2.get(f"{server.base}/metrics")

    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    lines = response.text.splitlines()
    assert lines[-1] == "# EOF"
    for expected in (
        'workflowlookup_requests_total{method="tools/call",outcome="ok"} 1',
        'workflowlookup_requests_total{method="tools/call",outcome="refused"} 1',
        'workflowlookup_requests_total{method="other",outcome="-32601"} 1',
        'workflowlookup_runs{state="waiting"} 1',
        "workflowlookup_queue_length 0",
        "workflowlookup_sessions 1",
        'workflowlookup_request_seconds_count{method="tools/call"} 2',
    ):
        assert expected in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    named = re.compile(r"workflowlookup_\w+({(\w+=\"[^\"]*\",?)+})? [\d.e+-]+$")
    assert [line for line in lines if not line.startswith("#") and not named.match(line)] == []


def test_providers_are_counted(serve_http: Serve, tmp_path: Path) -> None:
    upstream = McpUpstream(tmp_path / "up", http=True)
    settings_file(tmp_path).write_text(upstream.toml(provider=True))
    with upstream:
        server = serve_http()
        wait_for_figure(server, 'workflowlookup_provider_up{provider="up"} 1')


def wait_for_figure(server: WebServer, expected: str) -> None:
    end = time.monotonic() + 30
    while expected not in (text := httpx2.get(f"{server.base}/metrics").text):
        assert time.monotonic() < end, text
        time.sleep(0.1)


# ── notifications of changes, by any process ────────────────────────────────────────────────────────────────────────


def test_clients_of_both_eras_are_notified_of_new_workflows(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    write(tmp_path / "library", document(step(), identifier="the-first"))
    server = serve_http(directory=tmp_path / "library")
    session, lone = connect(server), connect(server)
    session.initialize()
    session.hearken()
    session.request("tools/list")
    stream = lone.stream(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    assert next(stream)["params"]["notifications"] == {"toolsListChanged": True}

    write(tmp_path / "library", document(step(), identifier="the-second", name="The second"))

    assert next(stream)["method"] == "notifications/tools/list_changed"
    assert session.unasked.get(timeout=30)["method"] == "notifications/tools/list_changed"
    tools = session.request("tools/list")["result"]["tools"]
    assert any("second" in tool["name"] for tool in tools)


def test_a_client_is_notified_of_a_run_that_another_client_changes(
    serve_http: Serve, connect: Connect, tmp_path: Path
) -> None:
    write(tmp_path / "library", document(step("one"), identifier="by-hand"))
    server = serve_http(directory=tmp_path / "library")
    watcher, worker = connect(server), connect(server)
    watcher.initialize()
    watcher.hearken()
    worker.initialize()
    start = {"name": "workflow_start", "arguments": {"workflowId": "by-hand"}}
    run = worker.request("tools/call", start)["result"]["structuredContent"]["runId"]
    watcher.request("resources/subscribe", {"uri": f"run://{run}"})

    submission = {"runId": run, "stepId": "one", "output": "done"}
    worker.request("tools/call", {"name": "workflow_submit", "arguments": submission})

    assert watcher.unasked.get(timeout=30)["params"]["uri"] == f"run://{run}"
