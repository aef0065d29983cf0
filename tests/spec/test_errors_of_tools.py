"""How a tool refuses, by version: each of the spec's errors on every road."""

from pathlib import Path
from typing import Any

import pytest

from spec.roads import HANDSHAKE_VERSIONS, SERVER_INFO
from support.client import Server
from support.json_values import JsonObject
from support.make import document, step, write


@pytest.fixture(scope="module", params=HANDSHAKE_VERSIONS)
def at(request: pytest.FixtureRequest, shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The version, and a server that speaks it."""
    write(shelf, document(identifier="sound-workflow"))
    write(shelf, {"id": "broken-workflow", "name": "No steps"})
    rule = {"type": "contains", "message": "A rule without a value."}
    write(shelf, document(step("first-step", validationCriteria=[rule]), identifier="broken-criteria"))
    server = Server(tmp_path_factory.mktemp("home"), directory=shelf)
    server.initialize(request.param)
    yield request.param, server
    server.stop()


REFUSALS = [
    pytest.param("workflow_get", {"id": "no-such-workflow"}, -32001, "Workflow not found", id="-32001"),
    pytest.param("workflow_get", {"id": "broken-workflow"}, -32002, "Invalid workflow", id="-32002"),
    pytest.param(
        "workflow_next",
        {"workflowId": "sound-workflow", "completedSteps": [], "currentStep": "no-such-step"},
        -32003,
        "Step not found",
        id="-32003",
    ),
    pytest.param(
        "workflow_validate",
        {"workflowId": "broken-criteria", "stepId": "first-step", "output": "Done."},
        -32004,
        "Validation error",
        id="-32004",
    ),
]


@pytest.mark.spec("001/json-rpc/tools-call", "001/compliance/error-codes")
@pytest.mark.parametrize(("tool", "arguments", "code", "message"), REFUSALS)
def test_by_its_name_a_tool_refuses_with_the_error_of_the_spec(
    at: tuple[str, Server], tool: str, arguments: JsonObject, code: int, message: str
) -> None:
    _, server = at

    error = server.error(tool, arguments)

    assert (error["code"], error["message"]) == (code, message)
    assert error["data"]


@pytest.mark.spec(
    "001/compliance/error-codes",
    "001/json-rpc/tools-call",
    "004/checklist/error-codes",
    "004/checklist/error-messages",
    "004/checklist/error-context",
)
@pytest.mark.parametrize(("tool", "arguments", "code", "message"), REFUSALS)
def test_through_tools_call_it_is_the_same_error_at_the_first_version_and_a_result_from_the_second_on(
    at: tuple[str, Server], tool: str, arguments: JsonObject, code: int, message: str
) -> None:
    version, server = at
    error = server.error(tool, arguments)

    reply = server.request("tools/call", {"name": tool, "arguments": arguments})

    if version == "2024-11-05":
        assert reply == {"error": error}
        return
    (content,) = reply["result"]["content"]
    assert reply["result"] == {"content": [content], "structuredContent": error, "isError": True}
    assert content["type"] == "text"
    assert content["text"].startswith(f"{message}. ")
    assert len(content["text"]) > len(message) + 2  # and what to do about it


@pytest.mark.spec("001/compliance/error-codes", "001/codes/-32602", "004/checklist/input-validation")
def test_arguments_that_do_not_fit_are_an_error_up_to_2025_06_18_and_a_result_after(at: tuple[str, Server]) -> None:
    version, server = at
    error = {"code": -32602, "message": "Invalid params", "data": {"details": "id is required"}}

    reply = server.request("tools/call", {"name": "workflow_get", "arguments": {}})

    if version == "2025-11-25":
        text = "Invalid params. id is required"
        content = [{"type": "text", "text": text}]
        assert reply == {"result": {"content": content, "structuredContent": error, "isError": True}}
    else:
        assert reply == {"error": error}


@pytest.mark.spec("001/json-rpc/tools-call", "001/codes/-32602")
def test_an_unknown_tool_is_invalid_params_in_every_version(at: tuple[str, Server]) -> None:
    _, server = at

    errors = [
        server.error("tools/call", {"name": "workflow_gett", "arguments": {}}),
        server.modern("tools/call", {"name": "workflow_gett", "arguments": {}})["error"],
    ]

    for error in errors:
        assert (error["code"], error["message"], error["data"]["name"]) == (-32602, "Invalid params", "workflow_gett")
        assert "'workflow_get'" in error["data"]["details"]  # the name that was meant


@pytest.mark.spec("001/json-rpc/tools-call", "001/codes/-32602")
@pytest.mark.parametrize(
    ("params", "details"),
    [
        ({}, "name is required"),
        ({"name": 5}, "name must be text ('string')"),
        ({"name": "workflow_list", "arguments": []}, "arguments must be an object"),
    ],
)
def test_a_malformed_call_is_invalid_params_in_every_version(
    at: tuple[str, Server], params: JsonObject, details: str
) -> None:
    _, server = at
    error = {"code": -32602, "message": "Invalid params", "data": {"details": details}}

    assert server.error("tools/call", params) == error
    assert server.modern("tools/call", params) == {"error": error}


@pytest.mark.spec("001/json-rpc/tools-call")
@pytest.mark.parametrize("members", [{}, {"arguments": {}}, {"arguments": None}], ids=["none", "empty", "null"])
def test_a_tool_gives_the_same_answer_by_its_name_and_through_tools_call(
    at: tuple[str, Server], members: JsonObject
) -> None:
    _, server = at
    by_name = server.result("workflow_list")

    called = server.result("tools/call", {"name": "workflow_list", **members})

    assert called["structuredContent"] == by_name
    assert "isError" not in called


# ── in the envelope of 2026-07-28 ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/compliance/error-codes", "001/json-rpc/tools-call")
@pytest.mark.parametrize(("tool", "arguments", "code", "message"), REFUSALS)
def test_in_the_envelope_a_refusal_is_a_result_with_the_code_inside(
    at: tuple[str, Server], tool: str, arguments: JsonObject, code: int, message: str
) -> None:
    _, server = at
    error = server.error(tool, arguments)

    reply = server.modern("tools/call", {"name": tool, "arguments": arguments})

    (content,) = reply["result"]["content"]
    assert reply["result"] == {
        "resultType": "complete",
        "content": [content],
        "structuredContent": error,
        "isError": True,
        "_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO},
    }
    assert content["text"].startswith(f"{message}. ")


@pytest.mark.spec("001/compliance/error-codes", "001/codes/-32002")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("workflow_get", {"id": "broken-workflow"}),
        ("workflow_next", {"workflowId": "broken-workflow", "completedSteps": []}),
        ("workflow_validate", {"workflowId": "broken-workflow", "stepId": "some-step", "output": "Done."}),
        ("resources/read", {"uri": "workflow://broken-workflow"}),
        ("resources/read", {"uri": "workflow://no-such-workflow"}),
        ("resources/read", {"uri": "file:///etc/passwd"}),
        ("prompts/get", {"name": "broken-workflow"}),
    ],
)
def test_with_an_envelope_minus_32002_is_never_an_error_code(
    at: tuple[str, Server], method: str, params: JsonObject
) -> None:
    _, server = at

    reply = server.modern(method, params)

    assert reply["error"]["code"] == -32602


@pytest.mark.spec("001/compliance/error-codes")
def test_with_an_envelope_a_tool_called_by_name_has_its_code_in_the_data(at: tuple[str, Server]) -> None:
    _, server = at
    error = server.error("workflow_get", {"id": "broken-workflow"})

    reply = server.modern("workflow_get", {"id": "broken-workflow"})

    assert error["code"] == -32002
    assert reply == {"error": {"code": -32602, "message": error["message"], "data": {"code": -32002, **error["data"]}}}
