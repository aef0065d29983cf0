"""The two eras on one connection: what each version is answered, and what waits."""

import json
from pathlib import Path

import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from support.narrowing import not_none
from workflowlookup import __version__
from workflowlookup.app import make_connection
from workflowlookup.library.catalog import Catalog
from workflowlookup.protocol import connection as connections
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.versions import HANDSHAKE_VERSIONS
from workflowlookup.settings import read_settings
from workflowlookup.tools.arguments import SchemaArguments
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.registry import Registry

SERVER = {"name": "workflowlookup", "version": __version__, "description": "Workflow Orchestration System MCP Server"}
META = {"io.modelcontextprotocol/serverInfo": SERVER}


@pytest.fixture
def connection(library: Path) -> connections.Connection:
    write(library, document(step("one"), step("two")))
    write(library, {"id": "broken", "name": "N"})
    settings = read_settings(
        {"bundled": "no", "user": "no", "project": "no", "directories": str(library)}, {}, directory="."
    )
    return make_connection(settings)


def ask(connection: Connection, method: str, params: JsonObject | None = None, identifier: int | str = 1) -> Json:
    message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
    reply = connection.handle(json.dumps(message).encode())
    return reply and json.loads(reply)


def initialize(connection: connections.Connection, version: str) -> Json:
    return ask(connection, "initialize", {"protocolVersion": version, "capabilities": {}})


def modern(
    connection: connections.Connection,
    method: str,
    params: JsonObject | None = None,
    identifier: int | str = 1,
    **meta: Json,
) -> Json:
    return ask(connection, method, {**(params or {}), "_meta": {**ENVELOPE, **meta}}, identifier)


@pytest.mark.parametrize(
    "identifier",
    ["1", "0", "-7", "1.0", "1e2", "123456789012345678901234567890", '"a"', '""', '"\\u00e9\\n"', '"\u00e9"'],
)
def test_a_reply_repeats_the_id_exactly_as_it_was_sent(connection: connections.Connection, identifier: str) -> None:
    reply = connection.handle(f'{{"jsonrpc":"2.0","id":{identifier},"method":"ping"}}'.encode())

    assert reply == f'{{"jsonrpc":"2.0","id":{identifier},"result":{{}}}}'.encode()


@pytest.mark.parametrize("identifier", ["true", "null", "[1]", "{}", '"\\ud800"'])
def test_an_invalid_id_is_an_invalid_request(connection: connections.Connection, identifier: str) -> None:
    reply = json.loads(not_none(connection.handle(f'{{"jsonrpc":"2.0","id":{identifier},"method":"ping"}}'.encode())))

    assert (reply["id"], reply["error"]["code"]) in [(None, -32600), (None, -32700)]


def test_discover_is_answered_at_once_and_initialize_after_it_on_the_same_connection(
    connection: connections.Connection,
) -> None:
    discovered = modern(connection, "server/discover")["result"]
    initialized = initialize(connection, "2025-11-25")["result"]
    del initialized["capabilities"]["tasks"]
    skills: JsonObject = {"directoryRead": True}
    known: JsonObject = {"io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/skills": skills}
    extensions: JsonObject = {"extensions": known}

    assert discovered == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": initialized["capabilities"] | extensions,
        "instructions": initialized["instructions"],
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": META,
    }


def test_a_request_with_an_envelope_needs_no_handshake_and_changes_nothing_for_the_others(
    connection: connections.Connection,
) -> None:
    assert modern(connection, "workflow_list")["result"]["resultType"] == "complete"
    assert ask(connection, "workflow_list")["error"]["message"] == "Server not initialized"


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"])
def test_lists_of_the_envelope_era_say_how_long_they_may_be_cached(
    connection: connections.Connection, method: str
) -> None:
    result = modern(connection, method)["result"]

    assert (result["resultType"], result["ttlMs"], result["cacheScope"], result["_meta"]) == (
        "complete",
        0,
        "private",
        META,
    )
    assert modern(connection, method)["result"] == result


def test_an_unknown_version_in_the_envelope_is_refused_with_what_is_supported(
    connection: connections.Connection,
) -> None:
    version: JsonObject = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    reply = modern(connection, "tools/list", **version)

    assert reply["error"] == {
        "code": -32022,
        "message": "Unsupported protocol version",
        "data": {"supported": ["2026-07-28"], "requested": "2099-01-01"},
    }


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"io.modelcontextprotocol/protocolVersion": 7}, "must be text"),
        ({"io.modelcontextprotocol/clientCapabilities": None}, "clientCapabilities'] is required"),
        ({"progressToken": True}, "progressToken must be text or a whole number"),
    ],
)
def test_an_envelope_that_is_not_well_formed_is_refused_by_name(
    connection: connections.Connection, meta: JsonObject, words: str
) -> None:
    error = modern(connection, "tools/list", **meta)["error"]

    assert error["code"] == -32602
    assert words in error["data"]["details"]


@pytest.mark.parametrize("method", ["initialize", "ping", "shutdown", "logging/setLevel"])
def test_methods_that_the_envelope_era_removed_are_not_found_there(
    connection: connections.Connection, method: str
) -> None:
    assert modern(connection, method)["error"]["code"] == -32601
    assert not connection.is_finished


def test_codes_that_the_envelope_era_forbids_are_not_sent_there(connection: connections.Connection) -> None:
    direct = modern(connection, "workflow_get", {"id": "broken"})["error"]
    resource = modern(connection, "resources/read", {"uri": "workflow://nope-nope"})["error"]
    called = modern(connection, "tools/call", {"name": "workflow_get", "arguments": {"id": "broken"}})["result"]

    assert (direct["code"], direct["message"], direct["data"]["code"]) == (-32602, "Invalid workflow", -32002)
    assert (resource["code"], resource["message"]) == (-32602, "Resource not found")
    assert (called["isError"], called["structuredContent"]["code"]) == (True, -32002)


def test_a_handler_gets_the_caller_in_both_eras() -> None:
    seen: list[Caller] = []

    def handle(_services: Services, _arguments: JsonObject, caller: Caller) -> JsonObject:
        seen.append(caller)
        return {}

    tool = Tool(
        name="who",
        title="Who",
        description="Says who calls.",
        arguments=SchemaArguments({"type": "object"}),
        output_schema={"type": "object", "properties": {}, "required": []},
        example=({}, {}),
        handler=handle,
    )
    backend = Backend(lambda: Services(catalog=Catalog([])))
    backend.registry = Registry({tool.name: tool}, backend.services)
    connection = Connection(backend)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "old"}}
    ask(connection, "initialize", hello)

    ask(connection, "tools/call", {"name": "who"})
    ask(connection, "who")
    modern(connection, "tools/call", {"name": "who"})
    ask(connection, "initialize", {**hello, "clientInfo": {"name": 5}})
    ask(connection, "who")

    roots: JsonObject = {"roots": {}}
    assert seen == [
        Caller(capabilities=roots, name="old"),
        Caller(capabilities=roots, name="old"),
        Caller(name="tests"),
        Caller(capabilities=roots),
    ]


@pytest.mark.parametrize(
    ("capabilities", "can"),
    [
        ({}, False),
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}}}, True),
        ({"elicitation": {"form": {}, "url": {}}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({"elicitation": None}, False),
        ({"elicitation": True}, False),
    ],
)
def test_a_client_can_be_asked_when_it_shows_forms(capabilities: JsonObject, can: bool) -> None:
    assert Caller(capabilities=capabilities).supports_elicitation is can


def test_a_subscription_is_acknowledged_first_waits_and_ends_with_the_connection(
    connection: connections.Connection,
) -> None:
    reply = modern(connection, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "listen:0")
    acknowledged = json.loads(connection.outbox.pop())
    connection.close()

    assert reply is None
    assert acknowledged == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "notifications": {"toolsListChanged": True},
            "_meta": {"io.modelcontextprotocol/subscriptionId": "listen:0"},
        },
    }
    assert json.loads(connection.outbox.pop()) == {
        "jsonrpc": "2.0",
        "id": "listen:0",
        "result": {"resultType": "complete", "_meta": {**META, "io.modelcontextprotocol/subscriptionId": "listen:0"}},
    }


def test_a_cancelled_subscription_is_never_answered(connection: connections.Connection) -> None:
    modern(connection, "subscriptions/listen", {"notifications": {}}, 7)
    connection.outbox.clear()
    for wrong in ("7", 8, None, True):
        connection.handle(
            json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": wrong}}).encode()
        )
    connection.handle(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}')
    connection.close()

    assert connection.outbox == []


def test_subscriptions_are_limited_and_an_open_id_is_taken(connection: connections.Connection) -> None:
    for number in range(64):
        assert modern(connection, "subscriptions/listen", {"notifications": {}}, number) is None

    assert (
        "at most 64"
        in modern(connection, "subscriptions/listen", {"notifications": {}}, 64)["error"]["data"]["details"]
    )
    assert (
        "with this id"
        in modern(connection, "subscriptions/listen", {"notifications": {}}, 3)["error"]["data"]["details"]
    )


BATCH = b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":2,"method":"nope"},5]'


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_a_batch_is_answered_where_the_version_has_them(connection: connections.Connection, version: str) -> None:
    initialize(connection, version)

    replies = json.loads(not_none(connection.handle(BATCH)))

    assert [(reply["id"], reply.get("error", {}).get("code")) for reply in replies] == [
        (1, None),
        (2, -32601),
        (None, -32600),
    ]
    assert connection.handle(b'[{"jsonrpc":"2.0","method":"x"}]') is None


@pytest.mark.parametrize("version", [None, "2025-06-18", "2025-11-25"])
def test_a_batch_is_refused_elsewhere(connection: connections.Connection, version: str | None) -> None:
    if version:
        initialize(connection, version)

    reply = json.loads(not_none(connection.handle(BATCH)))

    assert (reply["id"], reply["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize(
    "batch",
    [b"[]", b"[" + b",".join([b"1"] * 101) + b"]", b'[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]'],
    ids=["empty", "huge", "nested"],
)
def test_a_batch_of_invalid_size_or_form_is_refused(connection: connections.Connection, batch: bytes) -> None:
    initialize(connection, "2024-11-05")
    replies = json.loads(not_none(connection.handle(batch)))

    assert all(reply["error"]["code"] == -32600 for reply in (replies if isinstance(replies, list) else [replies]))


def test_initialize_and_shutdown_are_refused_in_a_batch(connection: connections.Connection) -> None:
    initialize(connection, "2024-11-05")
    batch = [{"jsonrpc": "2.0", "id": name, "method": name} for name in ("initialize", "shutdown")]

    replies = json.loads(not_none(connection.handle(json.dumps(batch).encode())))

    assert [reply["error"]["code"] for reply in replies] == [-32600, -32600]
    assert not connection.is_finished


UNKNOWN = {"name": "workflow_get", "arguments": {"id": "nope-nope"}}
UNFIT = {"name": "workflow_get", "arguments": {"id": 5}}


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_an_error_of_a_tool_has_the_form_of_the_version(connection: connections.Connection, version: str) -> None:
    initialize(connection, version)

    unknown, unfit = ask(connection, "tools/call", UNKNOWN), ask(connection, "tools/call", UNFIT)
    by_name = ask(connection, "workflow_get", {"id": "nope-nope"})

    assert by_name["error"] == {"code": -32001, "message": "Workflow not found", "data": {"workflowId": "nope-nope"}}
    assert ("error" in unknown) is (version == "2024-11-05")
    assert ("error" in unfit) is (version != "2025-11-25")
    if "result" in unknown:
        assert unknown["result"]["isError"]
        assert unknown["result"]["structuredContent"] == by_name["error"]
    assert ask(connection, "tools/call", {"name": "nope"})["error"]["code"] == -32602


def test_an_internal_error_is_sent_without_its_text_and_logged_with_it(
    connection: connections.Connection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialize(connection, "2025-11-25")
    monkeypatch.setattr("workflowlookup.library.catalog.Catalog.get", lambda *_: 1 / 0)

    reply = ask(connection, "workflow_get", {"id": "sample-workflow"})

    assert reply == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error"}}
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_that_cannot_be_encoded_ends_the_request_and_not_the_server(
    connection: connections.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialize(connection, "2025-11-25")
    monkeypatch.setattr("workflowlookup.tools.builtin.workflow_next.answer", lambda *_: {"step": object()})

    reply = ask(connection, "workflow_next", {"workflowId": "sample-workflow", "completedSteps": []})

    assert reply["error"]["code"] == -32603
    assert ask(connection, "ping")["result"] == {}


def test_progress_never_counts_more_than_there_is(connection: connections.Connection, library: Path) -> None:
    initialize(connection, "2025-11-25")
    write(library, document(loop("each", [step("leaf")], type="for", count=2), step("last"), identifier="looping"))
    write(library, document(step("one", runCondition={"var": "no"}), step("two"), identifier="skipping"))

    def progress(workflow_id: str, *completed: str) -> Json:
        return ask(connection, "workflow_next", {"workflowId": workflow_id, "completedSteps": completed})["result"][
            "progress"
        ]

    assert progress("looping", "leaf@1") == {"completed": 1}
    assert progress("looping", "leaf@1", "leaf@2", "last") == {"completed": 3, "total": 3}
    assert progress("skipping") == {"completed": 0, "total": 1}
    assert progress("skipping", "two") == {"completed": 1, "total": 1}


def test_a_cached_answer_about_a_step_equals_a_new_one(connection: connections.Connection, library: Path) -> None:
    initialize(connection, "2025-11-25")
    blocks = {"goal": ["{", "{name}}"], "verify": ["done"]}
    write(library, document({"id": "one", "title": "T", "promptBlocks": blocks}, identifier="joined"))

    def prompt(name: str) -> Json:
        params = {"workflowId": "joined", "completedSteps": [], "context": {"name": name}}
        return ask(connection, "workflow_next", params)["result"]["step"]["prompt"]

    assert [prompt("a").splitlines()[1], prompt("b").splitlines()[1]] == ["a", "b"]


def test_deeply_nested_values_are_refused_and_no_internal_error(connection: connections.Connection) -> None:
    initialize(connection, "2025-11-25")
    for depth in (100, 500, 900, 990):
        line = b'{"jsonrpc":"2.0","id":1,"method":"workflow_next","params":{"workflowId":"sample-workflow","completedSteps":[],"context":{"x":%b}}}'
        reply = json.loads(not_none(connection.handle(line % (b"[" * depth + b"]" * depth))))
        assert "result" in reply or reply["error"]["code"] in (-32602, -32700)


def test_of_long_capabilities_only_the_used_ones_are_stored(connection: connections.Connection) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}, "x": "y" * 100_000}}

    assert "result" in ask(connection, "initialize", params)

    assert connection._handshake.initialized_caller().capabilities == {"elicitation": {}}


@pytest.mark.parametrize("address", ["run://r1/result?", "run://", "workflow://", "other://"])
def test_a_long_uri_is_refused_before_it_is_parsed(
    connection: connections.Connection, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("urllib.parse.parse_qsl", None)
    initialize(connection, "2025-11-25")

    error = ask(connection, "resources/read", {"uri": address + "a=1&" * 1_000_000})["error"]

    assert error["code"] == -32002
    assert len(json.dumps(error)) < 1_000


def test_a_long_value_has_no_completions(connection: connections.Connection) -> None:
    initialize(connection, "2025-11-25")
    params = {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "id", "value": "s" * 1_000_000}}

    assert ask(connection, "completion/complete", params)["result"]["completion"]["values"] == []
