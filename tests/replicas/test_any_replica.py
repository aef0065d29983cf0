"""Two real servers at one PostgreSQL database: every request of a client may go to either of them."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step, write
from support.postgres import Postgres
from support.waiting import wait_until
from support.web import WebClient, WebServer
from upstream.upstreams import McpUpstream
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.replica_bus import ReplicaBus

ASKS: JsonObject = {"elicitation": {}}
PING = {"jsonrpc": "2.0", "id": 99, "method": "ping"}


class Replicas:
    """Servers of one library and one database."""

    def __init__(self, home: Path, database: str) -> None:
        self.library = home / "library"
        write(self.library, document(step("one", requireConfirmation=True), step("two"), identifier="by-hand"))
        arguments = {"seconds": 20, "steps": 4}
        work = {"id": "work", "title": "Work", "call": {"server": "up", "tool": "sleep", "arguments": arguments}}
        write(self.library, document(work, identifier="takes-a-while"))
        self.config = settings_file(home)
        self.config.write_text(McpUpstream(home / "up").toml())
        self.database = database
        self._home = home
        self._started: list[WebServer] = []

    def start(self, *flags: str) -> WebServer:
        environment = {"WORKFLOWLOOKUP_JOURNAL": self.database}
        self._started.append(WebServer(self._home, *flags, directory=self.library, environment=environment))
        return self._started[-1]

    def stop(self) -> None:
        for server in self._started:
            server.stop()


@pytest.fixture
def replicas(database: str, tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(tmp_path, database)
    yield replicas
    replicas.stop()


@pytest.fixture(scope="module")
def shared_replicas(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    replicas = Replicas(tmp_path_factory.mktemp("replicas"), postgres.create_database())
    yield replicas
    replicas.stop()


@pytest.fixture(scope="module")
def pair(shared_replicas: Replicas) -> tuple[WebServer, WebServer]:
    """Two servers, for tests that leave them alive."""
    return shared_replicas.start(), shared_replicas.start()


@pytest.fixture
def connect() -> Iterator[Callable[..., WebClient]]:
    clients: list[WebClient] = []

    def make(server: WebServer) -> WebClient:
        clients.append(WebClient(server.url))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def at(client: WebClient, server: WebServer) -> WebClient:
    """Have the client's next requests go to this server."""
    client.url = server.url
    return client


def tool(client: WebClient, name: str, **arguments: Json) -> Json:
    reply = client.request("tools/call", {"name": name, "arguments": arguments})
    return reply["result"]["structuredContent"]


def envelope_tool(client: WebClient, name: str, **arguments: Json) -> Json:
    reply = client.request("tools/call", {"name": name, "arguments": arguments, "_meta": ENVELOPE})
    return reply["result"]["structuredContent"]


def test_a_session_goes_on_at_another_replica(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient]
) -> None:
    first, second = pair
    client = connect(first)
    client.initialize()
    run = tool(client, "workflow_start", workflowId="by-hand")["runId"]

    assert tool(at(client, second), "workflow_submit", runId=run, stepId="one", output="done")["state"] == "waiting"
    assert tool(at(client, first), "workflow_status", runId=run)["waitingFor"] == "confirmation"
    events = tool(at(client, second), "workflow_runs")["runs"]
    assert run in [each["runId"] for each in events]


def test_what_the_client_said_of_itself_is_known_there(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient], shared_replicas: Replicas
) -> None:
    first, second = pair
    client = connect(first)
    client.initialize()
    tool(at(client, second), "workflow_start", workflowId="by-hand", runId="named")

    with psycopg.connect(shared_replicas.database) as connection:
        rows = connection.execute("SELECT DISTINCT who FROM workflowlookup.events WHERE run = 'named'").fetchall()
    assert [who for (who,) in rows if "tests" in who]


def test_a_session_outlives_the_server_that_began_it(replicas: Replicas, connect: Callable[..., WebClient]) -> None:
    first, second = replicas.start(), replicas.start()
    client = connect(first)
    client.initialize()
    first.process.kill()
    first.wait()

    assert at(client, second).request("ping") == {"result": {}}


def test_a_replica_that_stops_continues_sessions_until_it_is_gone(
    replicas: Replicas, connect: Callable[..., WebClient]
) -> None:
    first, second = replicas.start("--drain-seconds", "30"), replicas.start()
    client, busy = connect(second), connect(first)
    client.initialize()
    busy.initialize()
    assert at(client, first).http.get(f"{first.base}/healthz").status_code == 200  # and the connection stays open
    call = {"name": "workflow_start", "arguments": {"workflowId": "takes-a-while", "runId": "slow"}}
    message = {"jsonrpc": "2.0", "id": 60, "method": "tools/call", "params": call}
    thread = threading.Thread(target=lambda: list(busy.stream(message)), daemon=True)
    thread.start()
    wait_until(lambda: "clients_waiting 1" in httpx2.get(f"{first.base}/metrics").text)
    first.terminate()
    wait_until(lambda: is_refused(first))

    assert client.post(PING).status_code == 200
    assert at(client, second).request("ping") == {"result": {}}
    tool(client, "workflow_cancel", runId="slow")
    thread.join(30)


def is_refused(server: WebServer) -> bool:
    try:
        httpx2.get(f"{server.base}/readyz")
    except httpx2.ConnectError:
        return True
    return False


def test_a_session_that_ends_ends_everywhere(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient]
) -> None:
    first, second = pair
    client = connect(first)
    client.initialize()
    assert at(client, second).request("ping") == {"result": {}}

    assert client.http.delete(second.url, headers=client.session).status_code == 200

    wait_until(lambda: at(client, first).post(PING).status_code == 404)
    assert at(client, second).post(PING).status_code == 404


def test_an_unused_session_is_over_everywhere(replicas: Replicas, connect: Callable[..., WebClient]) -> None:
    first, second = (replicas.start("--idle-seconds", "1") for _ in range(2))
    client = connect(first)
    client.initialize()

    time.sleep(2.5)

    assert [at(client, server).post(PING).status_code for server in (first, second)] == [404, 404]


def test_a_session_that_is_used_at_one_replica_is_not_over_at_the_other(
    replicas: Replicas, connect: Callable[..., WebClient]
) -> None:
    first, second = (replicas.start("--idle-seconds", "2") for _ in range(2))
    client = connect(first)
    client.initialize()
    for _ in range(8):
        time.sleep(0.5)
        assert at(client, first).post(PING).status_code == 200

    assert at(client, second).post(PING).status_code == 200


def test_a_question_is_answered_at_another_replica(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient]
) -> None:
    first, second = pair
    client = connect(first)
    client.initialize(capabilities=ASKS)
    run = tool(client, "workflow_start", workflowId="by-hand")["runId"]
    answering = WebClient(second.url)
    answering.session = client.session

    def answer(question: JsonObject) -> None:
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}}
        assert answering.post(reply).status_code == 202

    notifications = []
    message = {"name": "workflow_submit", "arguments": {"runId": run, "stepId": "one", "output": "done"}}
    for item in client.stream({"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": message}):
        if item.get("method") == "elicitation/create":
            answer(item)
        elif "result" in item:
            notifications.append(item["result"]["structuredContent"])
    answering.close()

    assert [(each["waitingFor"], each["step"]["id"]) for each in notifications] == [("output", "two")]


def test_a_call_is_cancelled_by_way_of_another_replica(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient]
) -> None:
    first, second = pair
    client, other = connect(first), connect(second)
    client.initialize()
    other.session = client.session
    answers: list[JsonObject] = []
    call = {"name": "workflow_start", "arguments": {"workflowId": "takes-a-while", "runId": "slow"}}
    message = {"jsonrpc": "2.0", "id": 60, "method": "tools/call", "params": call}
    thread = threading.Thread(target=lambda: answers.extend(client.stream(message)), daemon=True)
    thread.start()
    wait_until(lambda: "result" in other.request("resources/read", {"uri": "run://slow"}))

    cancelled = {"requestId": 60, "reason": "changed my mind"}
    assert other.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}).status_code == 202

    thread.join(30)
    assert answers[-1]["error"]["code"] == -32800
    assert tool(other, "workflow_status", runId="slow")["state"] == "cancelled"


def test_what_is_followed_at_one_replica_is_told_by_the_one_with_the_stream(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient]
) -> None:
    first, second = pair
    client, worker = connect(first), connect(second)
    client.initialize()
    worker.initialize()
    run = tool(worker, "workflow_start", workflowId="by-hand")["runId"]
    at(client, second).hearken()  # the stream comes first, then the subscription, elsewhere

    at(client, first).request("resources/subscribe", {"uri": f"run://{run}"})
    time.sleep(1)
    tool(at(worker, first), "workflow_submit", runId=run, stepId="one", output="done")

    assert client.unasked.get(timeout=30)["params"]["uri"] == f"run://{run}"


def test_new_tools_are_told_by_the_one_with_the_stream(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient], shared_replicas: Replicas
) -> None:
    first, second = pair
    client = connect(first)
    client.initialize()
    client.request("tools/list")
    at(client, second).hearken()

    write(shared_replicas.library, document(step(), identifier="another"))

    assert client.unasked.get(timeout=30)["method"] in (
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
    )


def test_a_refresh_reaches_every_replica(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient], shared_replicas: Replicas
) -> None:
    first, second = pair
    client = connect(first)
    client.initialize()

    def names() -> set[Json]:
        return {each["name"] for each in at(client, second).request("tools/list")["result"]["tools"]}

    before = names()
    settings = shared_replicas.config.read_text()
    shared_replicas.config.write_text('exclude = ["by-hand"]\n' + settings)

    tool(at(client, first), "workflow_refresh")

    wait_until(lambda: len(names()) == len(before) - 1)
    shared_replicas.config.write_text(settings)
    tool(at(client, first), "workflow_refresh")
    wait_until(lambda: names() == before)


def test_both_eras_follow_a_run_across_replicas(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient]
) -> None:
    first, second = pair
    modern = connect(first)
    run = envelope_tool(modern, "workflow_start", workflowId="by-hand")["runId"]
    heard = threading.Event()

    def listen() -> None:
        wanted = {"notifications": {"resourceSubscriptions": [f"run://{run}"]}, "_meta": ENVELOPE}
        for item in modern.stream({"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": wanted}):
            if item["method"] == "notifications/resources/updated":
                heard.set()
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    time.sleep(1)
    other = connect(second)
    envelope_tool(other, "workflow_submit", runId=run, stepId="one", output="done")
    assert heard.wait(30)
    thread.join(30)


def test_a_lost_connection_is_made_up_for(
    pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient], shared_replicas: Replicas
) -> None:
    """News that came while a replica was deaf are read when it hears again."""
    first, second = pair
    client = connect(first)
    client.initialize()
    at(client, second).request("ping")
    with psycopg.connect(shared_replicas.database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    assert client.http.delete(first.url, headers=client.session).status_code in (200, 503)

    wait_until(lambda: at(client, second).post(PING).status_code == 404)


def test_one_that_was_deaf_for_too_long_looks_at_everything(database: str) -> None:
    """What was said is forgotten after a while; that something was said is not."""
    heard = []
    one, other = (ReplicaBus(lambda: PostgresJournal(database), lambda: None) for _ in range(2))
    other.listeners.append(lambda topic, _: heard.append(topic))
    other.start()
    other.poll()
    for topic in ("a", "b", "c"):
        one.announce(topic)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DELETE FROM workflowlookup.news WHERE topic IN ('a', 'b')")

    def has_heard_both() -> bool:
        other.poll()
        return len(heard) == 2

    wait_until(has_heard_both)

    assert heard == ["missed", "c"]
    one.close()
    other.close()


def test_what_is_passed_on_is_no_flood(pair: tuple[WebServer, WebServer], connect: Callable[..., WebClient]) -> None:
    client = connect(pair[0])
    client.initialize(capabilities=ASKS)
    answer = {"jsonrpc": "2.0", "id": "wl-1", "result": {"action": "accept", "content": {"text": "x" * 70_000}}}

    assert client.post(answer).status_code == 413
