"""The three ways to call a tool, and the form of the reply for each.

`ask(tool, arguments)` gives `{"result": …}` or `{"error": {code, message, data}}`, as the spec shows it for the tool's own
name as the method. The other two roads wrap the same answer; the wrapping is checked here, on every call.
"""

import json
from collections.abc import Callable

from support.client import Server
from support.json_values import Json, JsonObject
from workflowlookup import __version__

"""The fixture `start` of `tests/conftest.py`."""
Publish = Callable[..., str]
"""The fixture `publish` of `conftest.py`."""

SPEC_VERSION = "2024-11-05"
HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
SERVER_INFO = {
    "name": "workflowlookup",
    "version": __version__,
    "description": "Workflow Orchestration System MCP Server",
}
TOOLS = ["workflow_list", "workflow_get", "workflow_next", "workflow_validate", "workflow_validate_json"]


def success(result: Json) -> JsonObject:
    return {"result": result}


def failure(code: int, message: str, data: Json) -> JsonObject:
    return {"error": {"code": code, "message": message, "data": data}}


def invalid_params(details: str) -> JsonObject:
    return failure(-32602, "Invalid params", {"details": details})


def by_name(server: Server, tool: str, arguments: Json) -> JsonObject:
    """The tool's name as the method, as in the spec."""
    return server.request(tool, arguments)


def through_tools_call(server: Server, tool: str, arguments: Json) -> JsonObject:
    """`tools/call` after a handshake: refusals are results too."""
    reply = server.request("tools/call", {"name": tool, "arguments": arguments})
    assert reply.keys() == {"result"}, reply
    return unwrap(reply["result"])


def in_the_envelope(server: Server, tool: str, arguments: Json) -> JsonObject:
    """`tools/call` without a handshake, in the envelope of 2026-07-28."""
    reply = server.modern("tools/call", {"name": tool, "arguments": arguments})
    assert reply.keys() == {"result"}, reply
    result = reply["result"]
    assert result.pop("resultType") == "complete"
    assert result.pop("_meta") == {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
    return unwrap(result)


def unwrap(result: JsonObject) -> JsonObject:
    """The answer inside a result of `tools/call`: the text is the JSON of the structured content, or says what is wrong."""
    structured, (content,) = result["structuredContent"], result["content"]
    assert content == {"type": "text", "text": content["text"]}
    if result.get("isError"):
        assert result.keys() == {"content", "structuredContent", "isError"}
        assert structured.keys() == {"code", "message", "data"}
        assert content["text"].startswith(f"{structured['message']}. ")
        return {"error": structured}
    assert result.keys() == {"content", "structuredContent"}
    assert json.loads(content["text"]) == structured
    return {"result": structured}


ROADS = {
    "by name": (by_name, SPEC_VERSION),
    "tools/call": (through_tools_call, "2025-11-25"),
    "envelope": (in_the_envelope, None),
}


class Ask:
    """A server at the end of one road."""

    def __init__(self, road: str, server: Server) -> None:
        self._road, version = ROADS[road]
        self._server = server
        if version:
            server.initialize(version)

    def __call__(self, tool: str, arguments: Json = None) -> JsonObject:
        """The whole reply."""
        return self._road(self._server, tool, arguments)

    def result(self, tool: str, arguments: Json = None) -> Json:
        reply = self(tool, arguments)
        assert "error" not in reply, reply
        return reply["result"]

    def error(self, tool: str, arguments: Json = None) -> JsonObject:
        reply = self(tool, arguments)
        assert "error" in reply, reply
        result: JsonObject = reply["error"]
        return result
