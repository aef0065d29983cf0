"""The opening messages of real clients, as they send them over stdio, and the answers that each can go on with.

Methods, order, ids, versions and capabilities of Claude Code 2.1, Codex 0.166, Gemini CLI 0.61, opencode 1.18 and
Inspector 2.12 are those of recordings, with names and tokens filled in. VS Code is written after its source, the two
oldest after the specification.
"""

import json
from pathlib import Path

import pytest

from support.client import Server, Start
from support.json_values import Json, JsonObject
from workflowlookup import __version__

TOOLS = ["workflow_list", "workflow_get", "workflow_next", "workflow_validate", "workflow_validate_json"]
TOOLS += ["workflow_start", "workflow_submit", "workflow_status", "workflow_runs", "workflow_cancel"]
TOOLS += ["bug_investigation", "code_review", "dependency_upgrade", "documentation_writing", "feature_implementation"]
TOOLS += ["incident_review", "performance_investigation", "refactoring", "test_writing", "workflow_authoring"]
TOOLS += ["workflow_refresh"]
META = "io.modelcontextprotocol/"
SERVER_INFO = {
    "name": "workflowlookup",
    "version": __version__,
    "description": "Workflow Orchestration System MCP Server",
}

CLAUDE_CODE_INFO = {
    "name": "claude-code",
    "title": "Claude Code",
    "version": "2.1.325",
    "description": "Anthropic's agentic coding tool",
    "websiteUrl": "https://claude.com/claude-code",
}
TASKS: JsonObject = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
CLAUDE_CODE_CAPABILITIES = {"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}
CLAUDE_CODE_ENVELOPE = {
    META + "protocolVersion": "2026-07-28",
    META + "clientInfo": CLAUDE_CODE_INFO,
    META + "clientCapabilities": CLAUDE_CODE_CAPABILITIES,
}
PROBE = {
    "jsonrpc": "2.0",
    "id": "server-discover-probe-1",
    "method": "server/discover",
    "params": {"_meta": CLAUDE_CODE_ENVELOPE},
}
LISTEN = {
    "jsonrpc": "2.0",
    "id": "listen:0",
    "method": "subscriptions/listen",
    "params": {
        "_meta": CLAUDE_CODE_ENVELOPE,
        "notifications": {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
    },
}
CLAUDE_CODE_INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": CLAUDE_CODE_CAPABILITIES,
    "clientInfo": CLAUDE_CODE_INFO,
}

HANDSHAKES = {
    "Claude Code": CLAUDE_CODE_INITIALIZE,
    "Codex": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"experimental": {"codex/auth-change": {}}, "elicitation": {"form": {}, "url": {}}},
        "clientInfo": {"name": "codex-mcp-client", "title": "Codex", "version": "0.166.0"},
    },
    "Gemini CLI": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "gemini-cli-mcp-client", "version": "0.61.0"},
    },
    "opencode": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "opencode", "version": "1.18.33"},
    },
    "VS Code": {
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "roots": {"listChanged": True},
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
            "tasks": {
                "list": {},
                "cancel": {},
                "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
            },
        },
        "clientInfo": {"name": "Visual Studio Code", "version": "1.140.0"},
    },
    "Inspector": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {"listChanged": True}, "extensions": {META + "tasks": {}, META + "skills": {}}},
        "clientInfo": {"name": "inspector-client", "version": "2.12.0"},
    },
    "a client of 2025-03-26": {
        "protocolVersion": "2025-03-26",
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}},
        "clientInfo": {"name": "Visual Studio Code", "version": "1.100.2"},
    },
    "a client of 2024-11-05": {
        "protocolVersion": "2024-11-05",
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}},
        "clientInfo": {"name": "ExampleClient", "version": "1.0.0"},
    },
}


def exchange(server: Server, message: JsonObject) -> JsonObject:
    """The result of a message that is sent as it stands."""
    server.send(message)
    reply = server.receive()
    assert reply.keys() == {"jsonrpc", "id", "result"}, reply
    assert (reply["jsonrpc"], reply["id"]) == ("2.0", message["id"])
    result: JsonObject = reply["result"]
    return result


def shake_hands(server: Server, params: JsonObject) -> JsonObject:
    """As the TypeScript SDK does it: the first id is 0, and what comes after has no `params`."""
    result = exchange(server, {"method": "initialize", "params": params, "jsonrpc": "2.0", "id": 0})
    server.send({"method": "notifications/initialized", "jsonrpc": "2.0"})
    if "roots" in params["capabilities"]:
        answer_roots(server)
    return result


def answer_roots(server: Server) -> None:
    """Answer the request for the client's roots, which comes next."""
    request = server.receive()
    assert request.keys() == {"jsonrpc", "id", "method", "params"}
    assert (request["method"], request["params"]) == ("roots/list", {})
    server.send({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": []}})


def names(result: JsonObject) -> list[str]:
    return [tool["name"] for tool in result["tools"]]


def modern(method: str, identifier: int | str, **params: Json) -> JsonObject:
    """A request as Claude Code makes it in the envelope era."""
    meta = {**CLAUDE_CODE_ENVELOPE, "progressToken": identifier}
    return {"method": method, "params": {**params, "_meta": meta}, "jsonrpc": "2.0", "id": identifier}


@pytest.mark.parametrize("client", HANDSHAKES)
def test_a_client_shakes_hands_at_its_own_version_and_lists_the_tools(start: Start, client: str) -> None:
    server = start(version=None)

    result = shake_hands(server, HANDSHAKES[client])

    assert result.pop("instructions").startswith("Workflows lead you")
    assert result == {
        "protocolVersion": HANDSHAKES[client]["protocolVersion"],
        "capabilities": {
            "tools": {"listChanged": True, "notifyProgress": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": False},
            "completions": {},
            **(TASKS if HANDSHAKES[client]["protocolVersion"] == "2025-11-25" else {}),
        },
        "serverInfo": SERVER_INFO,
    }
    assert names(exchange(server, {"method": "tools/list", "jsonrpc": "2.0", "id": 1})) == TOOLS


@pytest.mark.parametrize("client", HANDSHAKES)
def test_no_capability_of_a_client_makes_the_server_ask_it_anything_but_its_roots(start: Start, client: str) -> None:
    server = start(version=None)

    shake_hands(server, HANDSHAKES[client])
    server.send({"method": "notifications/roots/list_changed", "jsonrpc": "2.0"})
    if "roots" in HANDSHAKES[client]["capabilities"]:
        answer_roots(server)

    assert server.is_silent()


def test_a_client_that_never_answers_for_its_roots_gets_its_calls_answered(start: Start) -> None:
    server = start(version=None)
    exchange(server, {"method": "initialize", "params": HANDSHAKES["opencode"], "jsonrpc": "2.0", "id": 0})
    server.send({"method": "notifications/initialized", "jsonrpc": "2.0"})
    params = {"name": "workflow_list", "arguments": {}}

    server.send({"method": "tools/call", "params": params, "jsonrpc": "2.0", "id": 1})

    assert server.receive()["method"] == "roots/list"
    assert "workflows" in server.receive()["result"]["structuredContent"]


def test_gemini_cli_pings_right_after_the_handshake(start: Start) -> None:
    server = start(version=None)

    shake_hands(server, HANDSHAKES["Gemini CLI"])

    assert exchange(server, {"method": "ping", "jsonrpc": "2.0", "id": 1}) == {}


def test_codex_calls_a_tool_with_its_own_keys_in_the_meta(start: Start) -> None:
    server = start(version=None)
    shake_hands(server, HANDSHAKES["Codex"])
    params = {
        "_meta": {"progressToken": 1, "threadId": "019a8f", "x-codex-turn-metadata": {"turn_id": "7"}},
        "name": "workflow_get",
        "arguments": {"id": "bug-investigation", "mode": "metadata"},
    }

    result = exchange(server, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})

    assert result["structuredContent"]["name"] == "Bug investigation"
    assert "resultType" not in result


def test_claude_code_discovers_listens_and_lists_without_a_handshake(start: Start) -> None:
    server = start(version=None)

    discovered = exchange(server, PROBE)
    server.send(LISTEN)
    server.send(modern("tools/list", 1))
    acknowledged, listed = server.receive(), server.receive()

    assert discovered["resultType"] == "complete"
    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert discovered["capabilities"].keys() == {"tools", "resources", "prompts", "completions", "extensions"}
    assert discovered["_meta"] == {META + "serverInfo": SERVER_INFO}
    assert acknowledged == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "notifications": {"toolsListChanged": True, "resourcesListChanged": True},
            "_meta": {META + "subscriptionId": "listen:0"},
        },
    }
    assert listed["id"] == 1
    assert names(listed["result"]) == TOOLS
    assert (listed["result"]["ttlMs"], listed["result"]["cacheScope"]) == (0, "private")


def test_claude_code_calls_a_tool_while_its_subscription_is_open(start: Start, tmp_path: Path) -> None:
    server = start(version=None, CLAUDE_PROJECT_DIR=str(tmp_path))
    exchange(server, PROBE)
    server.send(LISTEN)
    server.receive()
    call = modern("tools/call", 2, name="workflow_next", arguments={"workflowId": "code-review", "completedSteps": []})
    call["params"]["_meta"]["claudecode/toolUseId"] = "toolu_01A"

    result = exchange(server, call)

    assert result["structuredContent"]["progress"]["completed"] == 0
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert result["_meta"] == {META + "serverInfo": SERVER_INFO}


def test_a_subscription_ends_with_its_result_when_claude_code_closes_the_pipe(start: Start) -> None:
    server = start(version=None)
    server.send(LISTEN)
    server.receive()

    server.close_input()

    assert server.receive() == {
        "jsonrpc": "2.0",
        "id": "listen:0",
        "result": {
            "resultType": "complete",
            "_meta": {META + "serverInfo": SERVER_INFO, META + "subscriptionId": "listen:0"},
        },
    }
    assert server.wait() == 0


def test_a_cancelled_subscription_gets_no_answer(start: Start) -> None:
    server = start(version=None)
    server.send(LISTEN)
    server.receive()

    cancelled = {"requestId": "listen:0", "reason": "closed", "_meta": CLAUDE_CODE_ENVELOPE}
    server.send({"method": "notifications/cancelled", "params": cancelled, "jsonrpc": "2.0"})
    server.close_input()

    assert server.wait() == 0
    assert server.process.stdout is not None
    assert server.process.stdout.read() == b""


def test_claude_code_that_lost_patience_falls_back_to_the_handshake_on_the_same_connection(start: Start) -> None:
    server = start(version=None)

    server.send(PROBE)  # and the client does not wait for the answer
    server.send({"method": "initialize", "params": CLAUDE_CODE_INITIALIZE, "jsonrpc": "2.0", "id": 0})
    server.send({"method": "notifications/initialized", "jsonrpc": "2.0"})
    server.send({"method": "tools/list", "jsonrpc": "2.0", "id": 1})
    probed, initialized = server.receive(), server.receive()
    answer_roots(server)
    listed = server.receive()

    assert (probed["id"], probed["result"]["supportedVersions"]) == ("server-discover-probe-1", ["2026-07-28"])
    assert (initialized["id"], initialized["result"]["protocolVersion"]) == (0, "2025-11-25")
    assert (listed["id"], names(listed["result"])) == (1, TOOLS)
    assert listed["result"].keys() == {"tools"}


def test_a_probe_without_an_envelope_is_answered_and_the_handshake_can_follow(start: Start) -> None:
    server = start(version=None)

    discovered = exchange(server, {"jsonrpc": "2.0", "id": "server-discover-probe-1", "method": "server/discover"})

    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert shake_hands(server, HANDSHAKES["opencode"])["protocolVersion"] == "2025-11-25"


def test_a_probe_of_a_version_to_come_is_told_which_one_is_served(start: Start) -> None:
    server = start(version=None)
    probe = json.loads(json.dumps(PROBE))
    probe["params"]["_meta"][META + "protocolVersion"] = "2027-07-28"

    server.send(probe)

    assert server.receive() == {
        "jsonrpc": "2.0",
        "id": "server-discover-probe-1",
        "error": {
            "code": -32022,
            "message": "Unsupported protocol version",
            "data": {"supported": ["2026-07-28"], "requested": "2027-07-28"},
        },
    }


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_both_eras_are_served_in_turn_on_one_connection(start: Start, version: str) -> None:
    server = start(version=None)
    unknown = {"name": "workflow_get", "arguments": {"id": "no-such-workflow"}}
    roots: JsonObject = {"roots": {"roots": []}}

    before = exchange(server, modern("tools/call", "m-1", name="workflow_list", arguments={}, inputResponses=roots))
    shake_hands(server, {**CLAUDE_CODE_INITIALIZE, "protocolVersion": version})
    handshake = exchange(server, {"method": "resources/list", "jsonrpc": "2.0", "id": 1})
    server.send(LISTEN)
    acknowledged = server.receive()
    server.send({"method": "tools/call", "params": unknown, "jsonrpc": "2.0", "id": 2})
    refused = server.receive()
    after = exchange(server, modern("tools/call", "m-2", **unknown))
    listed = exchange(server, {"method": "prompts/list", "jsonrpc": "2.0", "id": 3})

    assert before["resultType"] == "complete"
    assert handshake.keys() == {"resources"}
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    if version == "2024-11-05":
        assert refused["error"]["code"] == -32001
    else:
        assert refused["result"]["isError"] is True
        assert "resultType" not in refused["result"]
    assert (after["resultType"], after["isError"]) == ("complete", True)
    assert listed.keys() == {"prompts"}


def test_methods_of_the_other_era_are_not_found(start: Start) -> None:
    server = start(version=None)
    shake_hands(server, HANDSHAKES["Claude Code"])

    for identifier, method in enumerate(("initialize", "ping", "shutdown"), 10):
        server.send(modern(method, identifier, protocolVersion="2025-11-25", capabilities={}))
        assert server.receive()["error"] == {"code": -32601, "message": "Method not found", "data": {"method": method}}
    server.send({"method": "subscriptions/listen", "params": {"notifications": {}}, "jsonrpc": "2.0", "id": 20})
    assert server.receive()["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["logging/setLevel", "sampling/createMessage", "tasks/update", "roots/list"])
def test_what_was_not_offered_is_not_found_and_the_connection_lives_on(start: Start, method: str) -> None:
    server = start(version=None)
    shake_hands(server, HANDSHAKES["VS Code"])

    server.send({"jsonrpc": "2.0", "id": 5, "method": method, "params": {}})

    assert server.receive()["error"] == {"code": -32601, "message": "Method not found", "data": {"method": method}}
    assert names(exchange(server, {"jsonrpc": "2.0", "id": 6, "method": "tools/list", "params": {}})) == TOOLS
