"""The endpoint itself, without sockets: the form of its answers, what it refuses before anything is done, what it counts."""

import asyncio
import functools
import json
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.web import HEADERS, events, routing
from workflowlookup.app import make_connection
from workflowlookup.protocol.connection import Connection
from workflowlookup.settings import read_settings
from workflowlookup.store.replica_bus import ReplicaBus
from workflowlookup.store.sessions import StoredSessions
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.transport.http.endpoint import Endpoint, Exchange
from workflowlookup.transport.http.metrics import RequestOutcome, outcome_of
from workflowlookup.transport.http.rate_limits import HttpLimits
from workflowlookup.transport.http.replicas import ReplicaSessions
from workflowlookup.transport.http.sessions import Session
from workflowlookup.transport.signals import Waker

T = TypeVar("T")

LIMITS = HttpLimits(
    max_message_bytes=1 << 20,
    max_sessions=10,
    idle_seconds=60,
    requests_per_minute=0,
    allowed_hosts=(),
    allowed_origins=(),
)
GET = ("tools/call", {"name": "workflow_get", "arguments": {"id": "by-hand"}})
START = ("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "by-hand"}})
MISFIT = ("tools/call", {"name": "workflow_get", "arguments": {}})
LATEST = "2025-11-25"
MODERN = "2026-07-28"
MIRRORED = {"type": "object", "properties": {"workflowId": {"type": "string", "x-mcp-header": "Workflow"}}}


class Answer:
    """What came back for a message, and how many tasks it took."""

    def __init__(self, sent: list[MutableMapping[str, Any]], tasks: int) -> None:
        start, *bodies = sent
        self.status: int = start["status"]
        self.tasks = tasks
        self.headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        self.lines = b"".join(event.get("body", b"") for event in bodies).decode().splitlines()

    @property
    def messages(self) -> list[Json]:
        is_whole = self.headers["content-type"] == "application/json"
        return [json.loads(self.lines[0])] if is_whole else list(events(self))

    def iter_lines(self) -> list[str]:
        return self.lines


class Caller:
    """A client of an endpoint, in one process with it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._version = ""
        self._headers = dict(HEADERS)

    async def open(self, version: str = LATEST) -> None:
        """Begin with a version of MCP."""
        self._version = version
        if version == MODERN:
            return
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
        opened = await self.post("initialize", params)
        self._headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": version}

    async def post(self, method: str, params: JsonObject, **headers: str) -> Answer:
        envelope = {"_meta": ENVELOPE} if self._version == MODERN else {}
        message = {"id": 7, "method": method, "params": params | envelope}
        return await self.ask("POST", message, **routing(message) | headers)

    async def ask(self, http_method: str, message: JsonObject | None = None, **headers: str) -> Answer:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode() if message else b""
        body = [{"type": "http.request", "body": content, "more_body": False}]
        raw = [(name.encode(), value.encode("latin-1")) for name, value in (self._headers | headers).items()]
        scope = {"type": "http", "method": http_method, "path": "/mcp", "query_string": b"", "headers": raw}
        sent: list[MutableMapping[str, Any]] = []
        ended = asyncio.Event()

        async def receive() -> JsonObject:
            if not body:
                await ended.wait()
            return body.pop() if body else {"type": "http.disconnect"}

        async def send(event: MutableMapping[str, Any]) -> None:
            sent.append(event)
            if event["type"] == "http.response.body" and not event.get("more_body", False):
                ended.set()

        loop = asyncio.get_running_loop()
        tasks: list[Coroutine[Any, Any, Any]] = []

        def make(_loop: object, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
            tasks.append(coroutine)
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(make)  # type: ignore[arg-type]  # its type differs between versions of Python
        try:
            await self._endpoint(scope, receive, send)
        finally:
            loop.set_task_factory(None)
        return Answer(sent, len(tasks))


class HoldConversation(Protocol):
    """Runs an endpoint for one conversation; its result, and the endpoint."""

    def __call__(
        self, conversation: Callable[[Caller], Awaitable[T]], schemas: JsonObject | None = None, **options: Any
    ) -> tuple[T, Endpoint]: ...


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HoldConversation:
    """Has a conversation with an endpoint."""
    write(tmp_path / "library", document(step(), identifier="by-hand"))
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "WORKFLOWLOOKUP_BUNDLED": "false"}
    environment |= {"WORKFLOW_STORAGE_PATH": str(tmp_path / "library"), "WORKFLOWLOOKUP_USER": "false"}
    settings = read_settings({}, environment, directory=str(tmp_path))

    def hold(
        conversation: Callable[[Caller], Awaitable[T]], schemas: JsonObject | None = None, **options: Any
    ) -> tuple[T, Endpoint]:
        def connect(_: object) -> Connection:
            connection = make_connection(settings)
            monkeypatch.setattr(connection, "input_schema_of", (schemas or {}).get)
            return connection

        async def run() -> tuple[T, Endpoint]:
            waker = Waker()
            endpoint = Endpoint(connect, LIMITS, waker, **options)
            async with endpoint.run():
                replies = await conversation(Caller(endpoint))
            waker.close()
            return replies, endpoint

        return asyncio.run(run())

    return hold


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", LATEST])
@pytest.mark.parametrize(("call", "key"), [(GET, "result"), (("no/such", {}), "error")], ids=["result", "error"])
def test_a_reply_in_a_session_is_a_stream_in_one_piece_and_takes_no_task(
    talk: HoldConversation, version: str, call: tuple[str, JsonObject], key: str
) -> None:
    async def conversation(caller: Caller) -> Answer:
        await caller.open(version)
        return await caller.post(*call)

    answer, _ = talk(conversation)

    assert (answer.status, answer.tasks, answer.headers["content-type"]) == (200, 0, "text/event-stream")
    assert int(answer.headers["content-length"]) == sum(len(line.encode()) + 2 for line in answer.lines)
    assert [key in message for message in answer.messages] == [True]
    begun = ["id", "data", "retry", ""] if version == LATEST else []  # older clients take it for a broken message
    assert [line.partition(":")[0] for line in answer.lines] == [*begun, "id", "event", "data", ""]


@pytest.mark.parametrize(
    ("call", "status"),
    [(GET, 200), (MISFIT, 200), (("no/such", {}), 404), (("prompts/get", {"name": "no-such-prompt"}), 400)],
)
def test_a_reply_to_a_request_alone_is_json_with_a_status_and_takes_no_task(
    talk: HoldConversation, call: tuple[str, JsonObject], status: int
) -> None:
    async def conversation(caller: Caller) -> Answer:
        await caller.open(MODERN)
        return await caller.post(*call)

    answer, _ = talk(conversation)

    assert (answer.status, answer.tasks, answer.headers["content-type"]) == (status, 0, "application/json")
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    ("version", "headers", "status"),
    [
        (LATEST, {"accept": "application/json"}, 406),
        (LATEST, {"content-type": "text/plain"}, 415),
        (MODERN, {"accept": "application/json"}, 406),
        (MODERN, {"content-type": "text/plain"}, 415),
        (MODERN, {"mcp-method": "tools/list"}, 400),
        (MODERN, {"mcp-name": "workflow_list"}, 400),
        (MODERN, {"mcp-param-workflow": "another"}, 400),
    ],
)
def test_a_request_with_wrong_headers_is_not_carried_out(
    talk: HoldConversation, version: str, headers: JsonObject, status: int
) -> None:
    async def conversation(caller: Caller) -> tuple[int, Json]:
        await caller.open(version)
        refused = await caller.post(*START, **headers)
        runs = await caller.post("tools/call", {"name": "workflow_runs", "arguments": {}})
        return refused.status, runs.messages[-1]["result"]["structuredContent"]["runs"]

    assert talk(conversation, schemas={"workflow_start": MIRRORED})[0] == (status, [])


def test_a_request_with_correct_routing_headers_is_carried_out(talk: HoldConversation) -> None:
    async def conversation(caller: Caller) -> int:
        await caller.open(MODERN)
        header: JsonObject = {"mcp-param-workflow": "by-hand"}
        return (await caller.post(*START, **header)).status

    assert talk(conversation, schemas={"workflow_start": MIRRORED})[0] == 200


@pytest.mark.parametrize(
    ("method", "version", "status", "allow"),
    [("PUT", "", 405, "GET, POST, DELETE"), ("GET", MODERN, 405, "POST"), ("DELETE", MODERN, 405, "POST")]
    + [(method, "", 400, None) for method in ("GET", "DELETE")],
)
def test_other_methods_are_refused(
    talk: HoldConversation, method: str, version: str, status: int, allow: str | None
) -> None:
    async def conversation(caller: Caller) -> Answer:
        header: JsonObject = {"mcp-protocol-version": version} if version else {}
        return await caller.ask(method, **header)

    answer, _ = talk(conversation)

    assert (answer.status, answer.headers.get("allow")) == (status, allow)


@pytest.mark.parametrize(
    ("version", "message", "status"),
    [
        (MODERN, {"method": "notifications/cancelled", "params": {"requestId": 1}}, 202),
        (MODERN, {"id": 1, "result": {}}, 400),
        ("2031-01-01", {"method": "notifications/initialized"}, 400),
        ("", {"method": "notifications/initialized"}, 400),
        ("", {"id": 1, "result": {}}, 400),
    ],
)
def test_messages_without_a_session_that_want_no_reply(
    talk: HoldConversation, version: str, message: JsonObject, status: int
) -> None:
    async def conversation(caller: Caller) -> Answer:
        return await caller.ask("POST", message, **({"mcp-protocol-version": version} if version else {}))

    assert talk(conversation)[0].status == status


def test_a_version_that_is_not_a_string_is_refused(talk: HoldConversation) -> None:
    async def conversation(caller: Caller) -> Answer:
        meta = ENVELOPE | {"io.modelcontextprotocol/protocolVersion": "\xff"}
        message = {"id": 7, "method": "ping", "params": {"_meta": meta}}
        raw = {"mcp-protocol-version": "\xff", "mcp-method": "ping"}
        return await caller.ask("POST", message, **raw)

    answer, _ = talk(conversation)

    assert (answer.status, answer.messages[0]["error"]["code"]) == (400, -32022)


def test_a_session_has_one_stream_for_notifications_without_a_request(talk: HoldConversation) -> None:
    async def conversation(caller: Caller) -> tuple[int, int]:
        await caller.open(LATEST)
        first = asyncio.create_task(caller.ask("GET"))
        await asyncio.sleep(0)
        second = await caller.ask("GET")
        first.cancel()
        await asyncio.wait([first])
        third = asyncio.create_task(caller.ask("GET"))  # the first is gone
        await asyncio.sleep(0)
        await caller.ask("DELETE")  # which ends the stream
        return second.status, (await third).status

    assert talk(conversation)[0] == (409, 200)


@pytest.mark.parametrize("version", [LATEST, MODERN])
def test_requests_are_counted_by_outcome(talk: HoldConversation, version: str) -> None:
    async def conversation(caller: Caller) -> None:
        await caller.open(version)
        for call in (GET, ("no/such", {}), MISFIT):
            await caller.post(*call)

    _, endpoint = talk(conversation)

    figures = [
        line for line in endpoint.metrics.text().splitlines() if line.startswith("workflowlookup_requests_total")
    ]
    assert figures[-3:] == [
        'workflowlookup_requests_total{method="tools/call",outcome="ok"} 1',
        'workflowlookup_requests_total{method="other",outcome="-32601"} 1',
        'workflowlookup_requests_total{method="tools/call",outcome="refused"} 1',
    ]


def test_a_subscription_that_cannot_be_stored_for_other_replicas_is_refused_with_its_code(
    talk: HoldConversation, tmp_path: Path
) -> None:
    path = str(tmp_path / "shared.sqlite")
    bus = ReplicaBus(lambda: SqliteJournal(path), lambda: None)
    replicas = ReplicaSessions(StoredSessions(SqliteJournal(path), 60), bus, 60)

    async def conversation(caller: Caller) -> Answer:
        await caller.open()
        with sqlite3.connect(path) as database:
            database.execute("DROP TABLE session_addresses")
        return await caller.post("resources/subscribe", {"uri": "runs://recent"})

    answer, _ = talk(conversation, replicas=replicas)

    assert answer.messages[-1]["error"]["code"] == -32006


class Interrupted(ReplicaSessions):
    """Something else happens while a session is adopted, or ended."""

    while_adopting: Callable[[Session], object] = staticmethod(lambda _: None)
    while_ending: Callable[[Session], object] = staticmethod(lambda _: None)

    def load_subscriptions(self, session: Session) -> None:
        super().load_subscriptions(session)
        self.while_adopting(session)

    def end(self, session: Session) -> None:
        self.while_ending(session)
        super().end(session)


@pytest.fixture
def shared(tmp_path: Path) -> tuple[ReplicaSessions, Interrupted]:
    """The sessions of two replicas, one of which is interrupted."""
    path = str(tmp_path / "shared.sqlite")
    bus = ReplicaBus(lambda: SqliteJournal(path), lambda: None)

    def sessions() -> StoredSessions:
        return StoredSessions(SqliteJournal(path), 60)

    return ReplicaSessions(sessions(), bus, 60), Interrupted(sessions(), bus, 60)


def begin_session(talk: HoldConversation, replicas: ReplicaSessions) -> dict[str, str]:
    async def begin(caller: Caller) -> dict[str, str]:
        await caller.open()
        return caller._headers

    return talk(begin, replicas=replicas)[0]


def test_a_session_that_another_replica_ends_while_it_is_continued_here_ends(
    talk: HoldConversation, shared: tuple[ReplicaSessions, Interrupted]
) -> None:
    first, second = shared
    headers = begin_session(talk, first)
    second.while_adopting = first.end

    async def go_on(caller: Caller) -> int:
        caller._headers = headers
        return (await caller.post("ping", {})).status

    status, endpoint = talk(go_on, replicas=second)

    assert (status, len(endpoint._table)) == (404, 0)


def test_a_session_that_is_continued_while_it_is_ended_ends(
    talk: HoldConversation, shared: tuple[ReplicaSessions, Interrupted]
) -> None:
    first, second = shared
    headers = begin_session(talk, first)
    raw = {name.encode(): value.encode() for name, value in headers.items()}

    async def end(caller: Caller) -> tuple[int, int]:
        caller._headers = headers
        unused: Any = None
        exchange = Exchange(unused, unused, {}, raw, unused, "", unused)
        adopt = functools.partial(caller._endpoint._session_of, exchange)
        second.while_ending = lambda _: adopt()
        return (await caller.ask("DELETE")).status, (await caller.post("ping", {})).status

    statuses, endpoint = talk(end, replicas=second)

    assert (statuses, len(endpoint._table)) == ((200, 404), 0)


@pytest.mark.parametrize("result", [{}, {"structuredContent": {"data": "text"}}, {"structuredContent": None}])
def test_an_error_of_a_tool_may_have_any_form(result: JsonObject) -> None:
    reply = {"jsonrpc": "2.0", "id": 1, "result": {"isError": True, "content": [], **result}}

    assert outcome_of(json.dumps(reply).encode()) == RequestOutcome("refused")
