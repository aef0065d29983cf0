"""The handshake: valid and invalid requests, and their answers."""

import re
from typing import Any

import pytest

from spec.roads import HANDSHAKE_VERSIONS, SERVER_INFO, failure, invalid_params
from support.client import Server, Start
from support.json_values import JsonObject

CLIENT = {"name": "claude-desktop", "version": "1.0.0"}
SEMANTIC_VERSION = r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server without a handshake, for requests that are refused and so leave it without one."""
    server = Server(tmp_path_factory.mktemp("home"))
    yield server
    server.stop()


# ── what is answered ────────────────────────────────────────────────────────────────────────────────────────────
TASKS: JsonObject = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


@pytest.mark.spec(
    "004/initialize/response-version",
    "004/initialize/response-capabilities",
    "004/initialize/tools-list-changed",
    "004/initialize/tools-notify-progress",
    "004/initialize/resources-list-changed",
    "004/initialize/server-name",
    "004/initialize/server-description",
    "004/overview/version",
    "004/checklist/version",
    "004/checklist/initialize",
    "004/checklist/capabilities",
    "001/compliance/initialize",
)
@pytest.mark.parametrize("is_on", [True, False], ids=["with workflow tools", "without"])
@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_initialize_returns_version_capabilities_and_server(start: Start, version: str, *, is_on: bool) -> None:
    server = start(version=None, WORKFLOWLOOKUP_WORKFLOW_TOOLS=str(is_on))

    result = server.result("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT})

    assert result.pop("instructions")
    assert result == {
        "protocolVersion": version,
        "capabilities": {
            "tools": {"listChanged": is_on, "notifyProgress": is_on},
            "resources": {"subscribe": True, "listChanged": is_on},
            "prompts": {"listChanged": False},
            "completions": {},
            **(TASKS if version == "2025-11-25" else {}),
        },
        "serverInfo": SERVER_INFO,
    }


@pytest.mark.spec("004/initialize/server-version")
def test_the_version_of_the_server_is_a_semantic_one(start: Start) -> None:
    result = start(version=None).result("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}})

    assert re.fullmatch(SEMANTIC_VERSION, result["serverInfo"]["version"])


@pytest.mark.spec("004/initialize/response-capabilities", "004/checklist/capabilities")
@pytest.mark.parametrize(
    ("method", "member"),
    [("tools/list", "tools"), ("resources/list", "resources"), ("prompts/list", "prompts")],
)
def test_every_announced_capability_works(server: Server, method: str, member: str) -> None:
    assert isinstance(server.result(method, {})[member], list)


@pytest.mark.spec("004/initialize/response-capabilities")
def test_the_capability_completions_is_there(server: Server) -> None:
    params = {"ref": {"type": "ref/resource", "uri": "workflow://{id}"}, "argument": {"name": "id", "value": ""}}

    assert server.result("completion/complete", params) == {"completion": {"values": [], "total": 0, "hasMore": False}}


# ── what is asked ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("004/initialize/client-info", "004/initialize/client-info-fields")
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"clientInfo": None},
        {"clientInfo": {}},
        {"clientInfo": {"name": "firebender", "version": "0.1.0-beta"}},
        {"clientInfo": {"name": "new", "version": "2", "title": "New", "icons": []}},
    ],
    ids=["missing", "null", "empty", "firebender", "more fields"],
)
def test_any_client_and_none_may_introduce_itself(start: Start, members: JsonObject) -> None:
    server = start(version=None)

    result = server.result("initialize", {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, **members})

    assert result["protocolVersion"] == "2024-11-05"


@pytest.mark.spec(
    "004/initialize/protocol-version",
    "004/initialize/capabilities",
    "004/initialize/client-info",
    "004/initialize/invalid-params",
    "004/checklist/input-validation",
)
@pytest.mark.parametrize(
    ("params", "details"),
    [
        (None, "protocolVersion is required"),
        ({}, "protocolVersion is required"),
        ({"capabilities": {}}, "protocolVersion is required"),
        ({"protocolVersion": None, "capabilities": {}}, "protocolVersion is required"),
        ({"protocolVersion": 20241105, "capabilities": {}}, "protocolVersion must be text ('string')"),
        ({"protocolVersion": "2024-11-05"}, "capabilities is required"),
        ({"protocolVersion": "2024-11-05", "capabilities": None}, "capabilities is required"),
        ({"protocolVersion": "2024-11-05", "capabilities": []}, "capabilities must be an object"),
        ({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": "me"}, "clientInfo must be an object"),
        (["2024-11-05", {}], "params must be an object"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_with_what_is_wrong(fresh: Server, params: Any, details: str) -> None:
    assert fresh.request("initialize", params) == invalid_params(details)


# ── versions ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec(
    "004/initialize/unsupported-version",
    "004/versioning/reject",
    "004/checklist/version-compatibility",
    "001/compliance/initialize",
    "001/codes/-32000",
    "004/errors/-32000",
)
@pytest.mark.parametrize("version", ["2024-10-01", "2024-11-06", "2026-07-28", "1.0", "", " 2024-11-05"])
def test_another_version_is_rejected_with_those_that_are_supported(fresh: Server, version: str) -> None:
    reply = fresh.request("initialize", {"protocolVersion": version, "capabilities": {}})

    assert reply == failure(
        -32000,
        "Unsupported protocol version",
        {"supportedVersions": HANDSHAKE_VERSIONS, "requestedVersion": version},
    )


@pytest.mark.spec("004/initialize/unsupported-version", "004/lifecycle/no-tools-before-initialize")
def test_a_client_whose_version_was_rejected_has_no_handshake_and_may_try_again(start: Start) -> None:
    server = start(version=None)
    server.error("initialize", {"protocolVersion": "2024-10-01", "capabilities": {}})
    refused = server.error("workflow_list")

    reply = server.initialize("2024-11-05")

    assert refused["message"] == "Server not initialized"
    assert reply["result"]["protocolVersion"] == "2024-11-05"
    assert server.result("workflow_list")["workflows"]


@pytest.mark.spec("004/overview/version")
def test_2026_07_28_is_served_in_its_envelope_without_a_handshake(fresh: Server) -> None:
    result = fresh.modern("server/discover")["result"]

    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
