"""One conversation, held over pipes, over HTTP and in memory, in each era: the answers are the same, word for word."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.client import Server
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step, write
from support.talks import Exchange, MemoryWire, PipeWire, Talk, WebWire
from support.web import WebClient, WebServer
from upstream.upstreams import McpUpstream
from workflowlookup.app import make_connection
from workflowlookup.settings import read_settings

YES = {"action": "accept", "content": {}}
CARRIERS = ("memory", "pipes", "http")


def called(tool: str, **arguments: Json) -> JsonObject:
    return {"call": {"server": "up", "tool": tool, "arguments": arguments, "saveAs": "result"}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A library, and settings with an upstream server."""
    library = tmp_path / "library"
    write(library, document(step("one", requireConfirmation=True), step("two"), identifier="asks-a-person"))
    for name, seconds in (("goes-by-itself", 1.5), ("takes-long", 60)):
        steps = {"id": "work", "title": "Work", **called("sleep", seconds=seconds, steps=5)}
        write(library, document(steps, identifier=name))
    return tmp_path


@pytest.fixture
def talk(home: Path) -> Iterator[Callable[..., Talk]]:
    """Begins a talk over a carrier, each with a journal of its own."""
    ends: list[Callable[[], object]] = []

    def begin(carrier: str, *, is_modern: bool) -> Talk:
        place = home / f"{carrier}-{is_modern}"
        place.mkdir()
        settings_file(place).write_text(McpUpstream(place / "up").toml())
        if carrier == "http":
            server = WebServer(place, directory=home / "library")
            client = WebClient(server.url)
            ends.extend((server.stop, client.close))
            return Talk(WebWire(client), is_modern=is_modern)
        if carrier == "pipes":
            piped = Server(place, directory=home / "library")
            ends.append(piped.stop)
            return Talk(PipeWire(piped), is_modern=is_modern)
        environment = {"HOME": str(place), "XDG_DATA_HOME": str(place), "WORKFLOWLOOKUP_BUNDLED": "false"}
        environment |= {"WORKFLOW_STORAGE_PATH": str(home / "library"), "WORKFLOWLOOKUP_USER": "false"}
        connection = make_connection(read_settings({}, environment, directory=str(place / "project")))
        ends.append(connection.close)
        return Talk(MemoryWire(connection), is_modern=is_modern)

    yield begin
    for end in ends:
        end()


def converse(talk: Talk) -> Json:
    """Everything that can be said, and what came back for it."""
    conversation: JsonObject = {"opening": talk.opening}

    def note(name: str, something: Exchange) -> Exchange:
        conversation[name] = (something.reply, something.questions)
        return something

    note("discover", talk.ask("server/discover"))
    note("tools", talk.ask("tools/list"))
    note("a wrong cursor", talk.ask("tools/list", {"cursor": "x"}))
    note("call", talk.call("workflow_list"))
    note("by its name", talk.ask("workflow_get", {"id": "asks-a-person"}))
    note("not found", talk.call("workflow_get", {"id": "no-such-workflow"}))
    note("not found, by its name", talk.ask("workflow_get", {"id": "no-such-workflow"}))
    note("misfit", talk.call("workflow_get", {"id": 5}))
    note("unknown tool", talk.call("no-such-tool"))
    note("unknown method", talk.ask("no/such"))
    note("resources", talk.ask("resources/list"))
    note("templates", talk.ask("resources/templates/list"))
    note("resource", talk.ask("resources/read", {"uri": "workflow://asks-a-person"}))
    note("no resource", talk.ask("resources/read", {"uri": "workflow://no-such-workflow"}))
    note("skills", talk.ask("skills/list"))
    note("skill", talk.ask("skills/get", {"uri": "skill://asks-a-person/SKILL.md"}))
    note("no skill", talk.ask("skills/get", {"uri": "skill://no-such-workflow/SKILL.md"}))
    note("skill file", talk.ask("resources/read", {"uri": "skill://asks-a-person/SKILL.md"}))
    note("directory", talk.ask("resources/directory/read", {"uri": "skill://asks-a-person"}))
    note("prompts", talk.ask("prompts/list"))
    note("prompt", talk.ask("prompts/get", {"name": "asks-a-person"}))
    completion = {"ref": {"type": "ref/prompt", "name": "asks-a-person"}, "argument": {"name": "id", "value": "a"}}
    note("completion", talk.ask("completion/complete", completion))
    run = note("start", talk.call("workflow_start", {"workflowId": "asks-a-person"})).content["runId"]
    with talk.following(f"run://{run}") as news:
        submission = {"runId": run, "stepId": "one", "output": "done"}
        note("submit, confirmed", talk.call("workflow_submit", submission, answer=YES))
    conversation["news"] = news[:1]
    note("submit", talk.call("workflow_submit", {"runId": run, "stepId": "two", "output": "done"}))
    note("submit too much", talk.call("workflow_submit", {"runId": run, "stepId": "two", "output": "again"}))
    note("status", talk.call("workflow_status", {"runId": run}))
    waited = note("awaited", talk.call("workflow_start", {"workflowId": "goes-by-itself"}, token="how-far"))
    conversation["progress"] = [item["params"]["progressToken"] for item in waited.notifications][:1]
    done = [item["params"]["progress"] for item in waited.notifications]
    assert done, waited.notifications
    assert done == sorted(set(done))
    talk_of_tasks(talk, note)
    begin = {"name": "workflow_start", "arguments": {"workflowId": "takes-long"}}
    conversation["cancelled"] = talk.cancelled("tools/call", begin, 1.0)
    for _ in range(100):  # over HTTP the server notices a moment later that a client hung up
        conversation["after that"] = [
            run["state"] for run in talk.call("workflow_runs", {"workflowId": "takes-long"}).content["runs"]
        ]
        if conversation["after that"] == ["cancelled"]:
            break
        time.sleep(0.05)
    return plain(conversation)


def talk_of_tasks(talk: Talk, note: Callable[..., Exchange]) -> None:
    """A call that becomes a task, and what came of it."""
    call = {"name": "workflow_start", "arguments": {"workflowId": "goes-by-itself"}}
    if not talk.is_modern:
        created = note("task", talk.ask("tools/call", {**call, "task": {}}))
        named = {"taskId": created.reply["result"]["task"]["taskId"]}
        note("task's result", talk.ask("tasks/result", named))
        note("task, over", talk.ask("tasks/get", named))
        note("task cancelled too late", talk.ask("tasks/cancel", named))
        return
    knows: JsonObject = {"capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    created = note("task", talk.ask("tools/call", call, **knows))
    named = {"taskId": created.reply["result"]["taskId"]}
    end = time.monotonic() + 30
    while (exchange := talk.ask("tasks/get", named, **knows)).reply["result"]["status"] == "working":
        assert time.monotonic() < end
        time.sleep(0.1)
    note("task, over", exchange)
    note("task updated too late", talk.ask("tasks/update", {**named, "inputResponses": {}}, **knows))
    note("task of one who knows none", talk.ask("tasks/get", named))


def plain(conversation: JsonObject) -> Json:
    """Without what is different each time: the ids of runs, and when it was."""
    text = json.dumps(conversation, sort_keys=True)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "WHEN", text)
    text = text.replace("loopback via ", "")  # how the caller is known depends on what carries it
    text = re.sub(r"\b(Queued|Running): ", "AT WORK: ", text)  # whether the call has begun is a matter of moments
    runs = dict.fromkeys(re.findall(r'(?:runId|taskId)\\*": \\*"([^"\\]+)', text))
    for number, run in enumerate(runs):
        text = text.replace(run, f"RUN-{number}")
    text = re.sub(r'((?:started|updated|time|duration\w*|seconds)\\*"): ?[\d.]+', r"\1: 0", text)
    return json.loads(text)


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "envelope"])
def test_a_conversation_is_the_same_on_every_transport(talk: Callable[..., Talk], is_modern: bool) -> None:
    conversations = {carrier: converse(talk(carrier, is_modern=is_modern)) for carrier in CARRIERS}

    for carrier in CARRIERS[1:]:
        for name, expected in conversations["memory"].items():
            assert conversations[carrier][name] == expected, f"{name}, over {carrier}"
    assert conversations["memory"]["after that"] == ["cancelled"]
