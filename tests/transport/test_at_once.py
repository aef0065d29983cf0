"""What is answered at once over HTTP is answered without the SDK, and looks as if it were not."""

import asyncio
import json

import pytest

from client import ENVELOPE
from make import document, step, write
from web import HEADERS, events, routing
from workflowlookup.app import make_connection
from workflowlookup.settings import read_settings
from workflowlookup.transport.bell import Bell
from workflowlookup.transport.http import Door
from workflowlookup.transport.limits import Limits

LIMITS = Limits(
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

    def __init__(self, sent, tasks):
        start, *bodies = sent
        self.status, self.tasks = start["status"], tasks
        self.headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        self.lines = b"".join(event.get("body", b"") for event in bodies).decode().splitlines()

    @property
    def messages(self):
        is_whole = self.headers["content-type"] == "application/json"
        return [json.loads(self.lines[0])] if is_whole else list(events(self))

    def iter_lines(self):
        return self.lines

    @property
    def form(self):
        """All but the numbers of events, and the messages themselves."""
        return ["id: " if line.startswith("id: ") else line for line in self.lines if '"jsonrpc"' not in line]


class Caller:
    """A client of a door, in one process with it."""

    def __init__(self, door):
        self._door = door
        self._version = ""
        self._headers = dict(HEADERS)

    async def open(self, version=LATEST):
        """Begin with a version of MCP."""
        self._version = version
        if version == MODERN:
            return
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
        opened = await self.post("initialize", params)
        self._headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": version}

    async def post(self, method, params, **headers):
        envelope = {"_meta": ENVELOPE} if self._version == MODERN else {}
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params | envelope}
        body = [{"type": "http.request", "body": json.dumps(message).encode(), "more_body": False}]
        raw = [(name.encode(), value.encode()) for name, value in (self._headers | routing(message) | headers).items()]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": raw}
        sent, ended = [], asyncio.Event()

        async def receive():
            if not body:
                await ended.wait()
            return body.pop() if body else {"type": "http.disconnect"}

        async def send(event):
            sent.append(event)
            if event["type"] == "http.response.body" and not event.get("more_body", False):
                ended.set()

        loop, tasks = asyncio.get_running_loop(), []

        def make(_loop, coroutine, **options):
            tasks.append(coroutine)
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(make)
        try:
            await self._door(scope, receive, send)
        finally:
            loop.set_task_factory(None)
        return Answer(sent, len(tasks))


@pytest.fixture
def talk(tmp_path):
    """Has a conversation with a door."""
    write(tmp_path / "library", document(step(), identifier="by-hand"))
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "WORKFLOWLOOKUP_BUNDLED": "false"}
    environment |= {"WORKFLOW_STORAGE_PATH": str(tmp_path / "library"), "WORKFLOWLOOKUP_USER": "false"}
    settings = read_settings({}, environment, directory=str(tmp_path))

    def hold(conversation, **options):
        async def run():
            bell = Bell()
            door = Door(lambda _: make_connection(settings), LIMITS, bell, **options)
            async with door.run():
                said = await conversation(Caller(door))
            bell.close()
            return said, door

        return asyncio.run(run())

    return hold


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize("asked", [GET, MISFIT, ("no/such", {})], ids=["answered", "refused", "unknown"])
def test_it_takes_no_task_and_looks_as_if_the_sdk_had_written_it(talk, version, asked):
    async def conversation(caller):
        await caller.open(version)
        return await caller.post(*asked)

    at_once, _ = talk(conversation)
    traced, _ = talk(conversation, is_traced=True)  # spans are the SDK's, and so is what they are about

    assert (at_once.tasks, traced.tasks > 0) == (0, True)
    assert (at_once.status, at_once.messages, at_once.form) == (traced.status, traced.messages, traced.form)
    for name in ("content-type", "cache-control"):
        assert at_once.headers.get(name) == traced.headers.get(name)
    assert ("mcp-session-id" in at_once.headers) == (version != MODERN)


@pytest.mark.parametrize(
    ("version", "headers", "status"),
    [
        (LATEST, {"accept": "application/json"}, 406),
        (LATEST, {"content-type": "text/plain"}, 400),
        (MODERN, {"accept": "application/json"}, 406),
        (MODERN, {"content-type": "text/plain"}, 400),
        (MODERN, {"mcp-method": "tools/list"}, 400),
        (MODERN, {"mcp-name": "workflow_list"}, 400),
        (MODERN, {"mcp-param-workflow": "another"}, 400),
    ],
)
def test_what_the_sdk_refuses_is_not_done(talk, version, headers, status):
    async def conversation(caller):
        await caller.open(version)
        refused = await caller.post(*START, **headers)
        runs = await caller.post("tools/call", {"name": "workflow_runs", "arguments": {}})
        return refused.status, runs.messages[-1]["result"]["structuredContent"]["runs"]

    assert talk(conversation, input_schema_of={"workflow_start": MIRRORED}.get)[0] == (status, [])


def test_what_headers_repeat_is_answered_at_once(talk):
    async def conversation(caller):
        await caller.open(MODERN)
        answer = await caller.post(*START, **{"mcp-param-workflow": "by-hand"})
        return answer.status, answer.tasks

    assert talk(conversation, input_schema_of={"workflow_start": MIRRORED}.get)[0] == (200, 0)


def test_a_tool_whose_schema_cannot_be_had_is_served(talk):
    def fail(_):
        raise RuntimeError("a fault of ours")

    async def conversation(caller):
        await caller.open(MODERN)
        return (await caller.post(*GET)).status

    assert talk(conversation, input_schema_of=fail)[0] == 200


@pytest.mark.parametrize("version", [LATEST, MODERN])
def test_it_is_counted_by_what_became_of_it(talk, version):
    async def conversation(caller):
        await caller.open(version)
        for asked in (GET, ("no/such", {}), MISFIT):
            await caller.post(*asked)

    _, door = talk(conversation)

    figures = [line for line in door.metrics.text().splitlines() if line.startswith("workflowlookup_requests_total")]
    assert figures[-3:] == [
        'workflowlookup_requests_total{method="tools/call",outcome="ok"} 1',
        'workflowlookup_requests_total{method="other",outcome="-32601"} 1',
        'workflowlookup_requests_total{method="tools/call",outcome="refused"} 1',
    ]
