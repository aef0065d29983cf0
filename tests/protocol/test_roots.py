"""A client is asked for its roots unless the user or a variable of the client names the project directory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.json_values import Json, JsonObject
from support.make import document, step, write
from workflowlookup.app import locate_run, make_connection, make_runs
from workflowlookup.protocol import roots
from workflowlookup.protocol.connection import Connection
from workflowlookup.runs.draft import NOWHERE
from workflowlookup.settings import Settings, read_settings

ROOTS = {"roots": {"listChanged": True}}
Connect = Callable[..., Connection]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Connects a client to a server that was started in this directory."""
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    write(tmp_path / "library", document(step("one-step")))

    def make(directory: Path, capabilities: JsonObject = ROOTS, **flags: str) -> Connection:
        directory.mkdir(parents=True, exist_ok=True)
        connection = make_connection(settings(tmp_path, directory, **flags))
        ask(connection, "initialize", protocolVersion="2025-11-25", capabilities=capabilities)
        notify(connection, "notifications/initialized")
        return connection

    return make


def settings(home: Path, directory: Path, **flags: str) -> Settings:
    named = {"journal": str(home / "runs.sqlite"), "directories": str(home / "library"), **flags}
    return read_settings(named, {"HOME": str(home / "home")}, directory=str(directory))


def send(connection: Connection, **message: Json) -> bytes | None:
    return connection.handle(json.dumps({"jsonrpc": "2.0", **message}).encode())


def ask(connection: Connection, method: str, **params: Json) -> JsonObject:
    reply: JsonObject = json.loads(send(connection, id=1, method=method, params=params) or b"{}")
    assert "error" not in reply, reply
    result: JsonObject = reply["result"]
    return result


def notify(connection: Connection, method: str) -> None:
    assert send(connection, method=method) is None


def requests(connection: Connection) -> list[JsonObject]:
    """The requests that the client got, taken out of the outbox."""
    messages = [json.loads(line) for line in connection.outbox]
    connection.outbox.clear()
    return messages


def root_of_new_run(connection: Connection, home: Path, directory: Path) -> tuple[str, str]:
    run_id = ask(connection, "workflow_start", workflowId="sample-workflow")["runId"]
    run = make_runs(settings(home, directory)).get(run_id)
    return run.root, run.root_source


def run_ids(connection: Connection) -> list[str]:
    return [run["runId"] for run in ask(connection, "workflow_runs")["runs"]]


def test_runs_have_the_first_directory_of_the_client_as_their_root(connect: Connect, tmp_path: Path) -> None:
    plain, project = tmp_path / "plain", tmp_path / "with space"
    project.mkdir()
    connection = connect(plain)

    (asked,) = requests(connection)
    roots = [{"uri": "https://example.com/"}, {"uri": "file:///no/such"}, {"uri": project.as_uri(), "name": "mine"}]
    send(connection, id=asked["id"], result={"roots": roots})

    assert (asked["method"], root_of_new_run(connection, tmp_path, plain)) == ("roots/list", (str(project), "roots"))
    notify(connection, "notifications/roots/list_changed")
    (again,) = requests(connection)
    send(connection, id=again["id"], result={"roots": []})
    assert root_of_new_run(connection, tmp_path, plain) == (str(plain), "directory")


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "no"}},
        {"result": None},
        {"result": {"roots": [{"uri": 7}]}},
        {"result": {"roots": [{"uri": "file://[/x"}, {"uri": "file:///a%00b"}, {"uri": "file://host/etc"}]}},
    ],
)
def test_an_answer_that_cannot_be_used_changes_nothing(connect: Connect, tmp_path: Path, answer: JsonObject) -> None:
    plain = tmp_path / "plain"
    connection = connect(plain)
    (asked,) = requests(connection)

    assert send(connection, id=asked["id"], **answer) is None

    assert root_of_new_run(connection, tmp_path, plain) == (str(plain), "directory")


def test_the_roots_of_the_client_come_before_the_repository_around_the_server(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    connection = connect(tmp_path / "repository")
    (asked,) = requests(connection)
    send(connection, id=asked["id"], result={"roots": [{"uri": (tmp_path / "project").as_uri()}]})

    root = root_of_new_run(connection, tmp_path, tmp_path / "repository")

    assert root == (str(tmp_path / "project"), "roots")


def test_a_call_waits_for_the_roots_and_is_answered_with_them(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    connection = connect(tmp_path / "plain")
    (asked,) = requests(connection)

    first = send(connection, id=2, method="workflow_start", params={"workflowId": "sample-workflow", "runId": "r1"})
    arguments: JsonObject = {"name": "workflow_status", "arguments": {"runId": "r1"}}
    second = send(connection, id=3, method="tools/call", params=arguments)
    pinged = send(connection, id=4, method="ping")
    send(connection, id=asked["id"], result={"roots": [{"uri": (tmp_path / "project").as_uri()}]})

    assert (first, second, json.loads(pinged or b"{}")["result"]) == (None, None, {})
    started, status = requests(connection)
    assert (started["id"], started["result"]["runId"]) == (2, "r1")
    assert (status["id"], status["result"]["structuredContent"]["runId"]) == (3, "r1")
    run = make_runs(settings(tmp_path, tmp_path / "plain")).get("r1")
    assert (run.root, run.root_source) == (str(tmp_path / "project"), "roots")


def test_a_client_that_never_answers_is_waited_for_in_vain_once(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roots, "WAIT_SECONDS", 0.05)
    connection = connect(tmp_path / "plain")
    (asked,) = requests(connection)

    assert (
        send(connection, id=2, method="workflow_start", params={"workflowId": "sample-workflow", "runId": "r1"}) is None
    )
    assert connection.needs_polling
    while not connection.outbox:
        connection.poll()

    (started,) = requests(connection)
    assert (started["id"], started["result"]["runId"]) == (2, "r1")
    assert root_of_new_run(connection, tmp_path, tmp_path / "plain") == (str(tmp_path / "plain"), "directory")
    send(connection, id=asked["id"], result={"roots": [{"uri": tmp_path.as_uri()}]})  # too late for those, but not lost
    assert root_of_new_run(connection, tmp_path, tmp_path / "plain") == (str(tmp_path), "roots")


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": ROOTS,
}


def start_in_envelope(connection: Connection, run_id: str, **params: Json) -> JsonObject:
    arguments: JsonObject = {"workflowId": "sample-workflow", "runId": run_id}
    return ask(connection, "tools/call", name="workflow_start", arguments=arguments, _meta=ENVELOPE, **params)


@pytest.mark.parametrize(
    ("answer", "root"),
    [
        ({"roots": [{"uri": "file:///project"}]}, ("project", "roots")),
        ({"roots": []}, ("plain", "directory")),
        ({"roots": [{"uri": 7}]}, ("plain", "directory")),
        (None, ("plain", "directory")),
        ("no", ("plain", "directory")),
    ],
)
def test_since_2026_a_client_is_asked_with_its_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Json, root: tuple[str, str]
) -> None:
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    write(tmp_path / "library", document(step("one-step")))
    for name in ("plain", "project"):
        (tmp_path / name).mkdir()
    connection = make_connection(settings(tmp_path, tmp_path / "plain"))
    sent: Json = json.loads(json.dumps(answer).replace("file:///project", (tmp_path / "project").as_uri()))

    asked = start_in_envelope(connection, "r1")
    started = start_in_envelope(connection, "r1", inputResponses={"roots": sent})
    again = start_in_envelope(connection, "r2")

    assert asked["inputRequests"] == {"roots": {"method": "roots/list", "params": {}}}
    assert (asked["resultType"], started["resultType"], again["resultType"]) == (
        *("input_required", "complete", "complete"),
    )
    run = make_runs(settings(tmp_path, tmp_path / "plain")).get("r2")
    assert (run.root, run.root_source) == (str(tmp_path / root[0]), root[1])


def test_a_run_keeps_its_root_and_an_answer_to_an_earlier_request_does_not_count(
    connect: Connect, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    connection = connect(tmp_path / "plain")
    (asked,) = requests(connection)
    send(connection, id=asked["id"], result={"roots": [{"uri": (tmp_path / "one").as_uri()}]})
    before = root_of_new_run(connection, tmp_path, tmp_path / "plain")

    notify(connection, "notifications/roots/list_changed")
    notify(connection, "notifications/roots/list_changed")
    earlier, later = requests(connection)
    send(connection, id=earlier["id"], result={"roots": [{"uri": tmp_path.as_uri()}]})
    send(connection, id=later["id"], result={"roots": [{"uri": (tmp_path / "two").as_uri()}]})

    after = root_of_new_run(connection, tmp_path, tmp_path / "plain")
    assert (before, after) == ((str(tmp_path / "one"), "roots"), (str(tmp_path / "two"), "roots"))
    stored = {run.root for run in map(make_runs(settings(tmp_path, tmp_path / "plain")).get, run_ids(connection))}
    assert stored == {str(tmp_path / "one"), str(tmp_path / "two")}


def test_nobody_is_asked_where_the_root_is_named(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert requests(connect(tmp_path / "plain", root=str(tmp_path))) == []
    assert requests(connect(tmp_path / "plain", capabilities={})) == []
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path))
    assert requests(connect(tmp_path / "plain")) == []


def test_over_http_no_directory_of_the_server_or_of_a_client_is_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path))
    served = settings(tmp_path, tmp_path, http="127.0.0.1:0", root=str(tmp_path))

    assert locate_run(served, [str(tmp_path)]) == NOWHERE
