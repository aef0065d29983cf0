"""The form of requests and replies, and the error code of each kind of malformed request."""

import json
from typing import Any

import pytest

from spec.roads import HANDSHAKE_VERSIONS, Publish, failure, invalid_params, success
from support.client import Server, Start
from support.json_values import Json, JsonObject
from support.make import document, step


def exchange(server: Server, message: Json) -> Json:
    """The whole reply to one message, with `jsonrpc` and `id`."""
    server.send(message)
    return server.receive()


def refusal(identifier: Json, details: str) -> JsonObject:
    """An invalid request, answered as the spec wants it."""
    return {"jsonrpc": "2.0", "id": identifier, **failure(-32600, "Invalid Request", {"details": details})}


# ── the request ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/request/jsonrpc", "001/codes/-32600", "004/errors/-32600", "001/error/id")
@pytest.mark.parametrize(
    "members", [{"jsonrpc": "1.0"}, {"jsonrpc": 2.0}, {"jsonrpc": None}, {}], ids=["1.0", "number", "null", "missing"]
)
def test_a_message_whose_jsonrpc_is_not_2_0_is_invalid(server: Server, members: JsonObject) -> None:
    reply = exchange(server, {**members, "id": 7, "method": "workflow_list"})

    assert reply == refusal(7, 'jsonrpc must be "2.0"')


@pytest.mark.spec("001/request/id-number", "001/success/id", "001/success/jsonrpc")
@pytest.mark.parametrize("identifier", [1, 0, -7, 1.5, 2**53 + 1])
def test_a_number_as_id_is_returned_unchanged(server: Server, identifier: float) -> None:
    reply = exchange(server, {"jsonrpc": "2.0", "id": identifier, "method": "ping"})

    assert reply == {"jsonrpc": "2.0", "id": identifier, "result": {}}


@pytest.mark.spec("001/request/id-string", "001/success/id")
@pytest.mark.parametrize("identifier", ["list-1", "", "1", 'quote " and → arrow', "a" * 1000])
def test_a_string_as_id_is_returned_unchanged(server: Server, identifier: str) -> None:
    reply = exchange(server, {"jsonrpc": "2.0", "id": identifier, "method": "ping"})

    assert reply == {"jsonrpc": "2.0", "id": identifier, "result": {}}


@pytest.mark.spec("001/request/id-of-another-kind", "001/error/id-null", "001/codes/-32600")
@pytest.mark.parametrize("identifier", [None, True, False, [1], {"id": 1}], ids=json.dumps)
def test_an_id_that_is_neither_number_nor_string_is_refused_and_answered_with_null(
    server: Server, identifier: Json
) -> None:
    reply = exchange(server, {"jsonrpc": "2.0", "id": identifier, "method": "ping"})

    assert reply == refusal(None, "id must be a number or a string")


@pytest.mark.spec("001/request/method", "001/success/result", "004/overview/base")
def test_the_method_is_the_name_of_the_tool(server: Server, publish: Publish) -> None:
    publish(identifier="only-one")

    reply = exchange(server, {"jsonrpc": "2.0", "id": "a", "method": "workflow_list", "params": None})

    assert reply.keys() == {"jsonrpc", "id", "result"}
    assert [workflow["id"] for workflow in reply["result"]["workflows"]] == ["only-one"]


@pytest.mark.spec("001/request/method-of-another-kind", "001/codes/-32600")
@pytest.mark.parametrize(
    ("members", "details"),
    [
        ({}, "method is required"),
        ({"method": 5}, "method must be a string"),
        ({"method": None}, "method must be a string"),
        ({"method": ["workflow_list"]}, "method must be a string"),
    ],
    ids=["missing", "number", "null", "array"],
)
def test_a_request_needs_a_method_that_is_a_string(server: Server, members: JsonObject, details: str) -> None:
    reply = exchange(server, {"jsonrpc": "2.0", "id": 7, **members})

    assert reply == refusal(7, details)


@pytest.mark.spec("001/request/params-object", "001/request/params-array")
def test_parameters_are_given_by_name_or_by_position(server: Server, publish: Publish) -> None:
    workflow = publish(step("first-step"), step("second-step"))

    by_name = server.request("workflow_get", {"id": workflow, "mode": "metadata"})
    by_position = server.request("workflow_get", [workflow, "metadata"])

    assert by_name["result"]["totalSteps"] == 2
    assert by_position == by_name


@pytest.mark.spec("001/request/params-array", "001/codes/-32602")
def test_more_positions_than_parameters_are_refused(server: Server) -> None:
    reply = server.request("workflow_get", ["some-workflow", "metadata", "more"])

    assert reply == invalid_params("at most 2 parameters (id, mode); found 3")


@pytest.mark.spec("001/request/params-null")
@pytest.mark.parametrize("members", [{"params": None}, {}], ids=["null", "missing"])
def test_params_may_be_null_or_missing(server: Server, members: JsonObject) -> None:
    reply = exchange(server, {"jsonrpc": "2.0", "id": 1, "method": "workflow_list", **members})

    assert reply == {"jsonrpc": "2.0", "id": 1, "result": {"workflows": []}}


@pytest.mark.spec("001/request/params-of-another-kind", "001/codes/-32600")
@pytest.mark.parametrize("params", ["text", 5, True], ids=json.dumps)
def test_params_of_another_kind_are_refused(server: Server, params: Json) -> None:
    reply = exchange(server, {"jsonrpc": "2.0", "id": 7, "method": "workflow_list", "params": params})

    assert reply == refusal(7, "params must be an object, an array or null")


@pytest.mark.spec("001/codes/-32600", "004/errors/-32600", "001/error/id-null")
@pytest.mark.parametrize("message", [1, "text", None, True], ids=json.dumps)
def test_json_that_is_not_an_object_is_an_invalid_request(server: Server, message: Json) -> None:
    assert exchange(server, message) == refusal(None, "a message is a JSON object")


# ── notifications and batches ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/json-rpc/notification", "004/checklist/json-rpc")
@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/initialized"},
        {"method": "no/such/notification"},
        {"method": "workflow_list"},
        {"method": "workflow_get", "params": {"id": "no-such-workflow"}},
        {"method": "shutdown"},
    ],
    ids=["known", "unknown", "tool", "refused tool", "shutdown"],
)
def test_a_notification_gets_no_answer(server: Server, message: JsonObject) -> None:
    server.send({"jsonrpc": "2.0", **message})

    assert server.is_silent()


BATCH = [
    {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": "b", "method": "workflow_get", "params": {"id": "no-such-workflow"}},
    5,
]


@pytest.mark.spec("001/json-rpc/batch")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_a_batch_is_answered_with_a_list_where_the_version_has_batches(start: Start, version: str) -> None:
    server = start(version=version)

    reply = exchange(server, BATCH)

    assert reply == [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": "b", **failure(-32001, "Workflow not found", {"workflowId": "no-such-workflow"})},
        refusal(None, "a message is a JSON object"),
    ]


@pytest.mark.spec("001/json-rpc/batch")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", None])
def test_a_batch_is_invalid_in_versions_without_batches(start: Start, version: str | None) -> None:
    server = start(version=version)

    reply = exchange(server, BATCH)

    assert (reply["id"], reply["error"]["code"]) == (None, -32600)


@pytest.mark.spec("001/json-rpc/batch", "001/codes/-32600")
@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_an_empty_batch_is_invalid_in_every_version(start: Start, version: str) -> None:
    reply = exchange(start(version=version), [])

    assert (reply["id"], reply["error"]["code"]) == (None, -32600)


@pytest.mark.spec("001/json-rpc/batch", "001/json-rpc/notification")
def test_a_batch_of_notifications_gets_no_answer(server: Server) -> None:
    server.send([{"jsonrpc": "2.0", "method": "notifications/initialized"}])

    assert server.is_silent()


# ── the reply ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/success/jsonrpc", "001/success/id", "001/success/result")
def test_a_success_has_jsonrpc_id_and_result_and_nothing_else(server: Server) -> None:
    reply = exchange(server, {"jsonrpc": "2.0", "id": "x-1", "method": "workflow_list", "params": None})

    assert reply == {"jsonrpc": "2.0", "id": "x-1", "result": {"workflows": []}}


@pytest.mark.spec(
    "001/error/jsonrpc",
    "001/error/id",
    "001/error/code",
    "001/error/message",
    "001/error/data",
    "004/errors/format",
    "001/codes/-32001",
    "004/errors/-32001",
    "004/checklist/error-context",
)
def test_a_failure_has_jsonrpc_id_and_error_with_code_message_and_data(server: Server) -> None:
    reply = exchange(
        server, {"jsonrpc": "2.0", "id": 5, "method": "workflow_get", "params": {"id": "no-such-workflow"}}
    )

    assert reply == {
        "jsonrpc": "2.0",
        "id": 5,
        "error": {"code": -32001, "message": "Workflow not found", "data": {"workflowId": "no-such-workflow"}},
    }


@pytest.mark.spec("001/codes/-32700", "004/errors/-32700", "001/error/id-null", "001/error/data")
@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b'{"jsonrpc": "2.0", "id": 7, "method": "ping"',
        b'{"jsonrpc": "2.0", "id": 7, "method": "ping"} {}',
        b"{'jsonrpc': '2.0', 'id': 7, 'method': 'ping'}",
        b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"n": NaN}}',
        b"[" * 100_000,
    ],
    ids=["text", "truncated", "two values", "single quotes", "NaN", "nested without end"],
)
def test_invalid_json_is_a_parse_error_with_reason_and_position(server: Server, line: bytes) -> None:
    server.write(line + b"\n")

    reply = server.receive()

    details, position = reply["error"]["data"]["details"], reply["error"]["data"]["position"]
    assert details
    assert 0 <= position <= len(line)
    assert reply == {
        "jsonrpc": "2.0",
        "id": None,
        **failure(-32700, "Parse error", {"details": details, "position": position}),
    }


@pytest.mark.spec("001/codes/-32601", "004/errors/-32601")
@pytest.mark.parametrize("method", ["non_existent_tool", "tools/delete", "", "WORKFLOW_LIST"])
def test_an_unknown_method_is_not_found(server: Server, method: str) -> None:
    assert server.request(method, {}) == failure(-32601, "Method not found", {"method": method})


@pytest.mark.spec("001/codes/-32602", "004/errors/-32602")
def test_parameters_that_do_not_fit_are_invalid_and_each_is_named(server: Server) -> None:
    reply = server.request("workflow_next", {})

    assert reply == invalid_params("workflowId is required; completedSteps is required")


@pytest.mark.spec("001/codes/-32003", "004/errors/-32003")
def test_an_unknown_step_is_not_found(server: Server, publish: Publish) -> None:
    arguments = {"workflowId": publish(), "stepId": "no-such-step", "output": "Done."}

    assert server.request("workflow_validate", arguments) == failure(
        -32003, "Step not found", {"stepId": "no-such-step"}
    )


@pytest.mark.spec("001/codes/-32005", "001/workflow_next/completed-steps")
def test_an_inconsistent_state_is_a_warning_and_not_an_error(server: Server, publish: Publish) -> None:
    workflow = publish(step("first-step"), step("second-step"))
    completed = ["second-step", "of-another-workflow"]

    reply = server.request(
        "workflow_next", {"workflowId": workflow, "currentStep": "second-step", "completedSteps": completed}
    )

    assert reply["result"]["step"]["id"] == "first-step"
    assert "of-another-workflow" in " ".join(reply["result"]["warnings"])


@pytest.fixture
def broken(start: Start, tmp_path: Any) -> Server:
    """A server in whose process the package for patterns that are not plain cannot be imported."""
    sabotage = tmp_path / "sabotage"
    sabotage.mkdir()
    (sabotage / "regex.py").write_text("raise RuntimeError('the secret of the house')", encoding="utf-8")
    return start(PYTHONPATH=str(sabotage))


RULE = {"type": "regex", "pattern": "(?=a)", "message": "Say a."}
WITH_PATTERN = json.dumps(document(step(validationCriteria=[RULE])))


@pytest.mark.spec("001/codes/-32603", "004/errors/-32603", "001/workflow_validate_json/internal-error")
def test_an_internal_error_discloses_nothing(broken: Server) -> None:
    reply = broken.request("workflow_validate_json", {"workflowJson": WITH_PATTERN})

    assert reply == {"error": {"code": -32603, "message": "Internal error"}}


@pytest.mark.spec("001/codes/-32603", "001/compliance/error-codes")
def test_a_fault_of_the_server_is_a_json_rpc_error_through_tools_call_too(broken: Server) -> None:
    call = {"name": "workflow_validate_json", "arguments": {"workflowJson": WITH_PATTERN}}

    replies = [broken.request("tools/call", call), broken.modern("tools/call", call)]

    assert replies == [{"error": {"code": -32603, "message": "Internal error"}}] * 2


@pytest.mark.spec(
    "004/lifecycle/recoverable-error", "001/compliance/lifecycle", "001/workflow_validate_json/internal-error"
)
def test_after_a_fault_of_the_server_the_next_request_is_answered(broken: Server) -> None:
    broken.error("workflow_validate_json", {"workflowJson": WITH_PATTERN})

    reply = broken.request("workflow_validate_json", {"workflowJson": json.dumps(document())})

    assert reply == success({"valid": True, "issues": [], "suggestions": []})
