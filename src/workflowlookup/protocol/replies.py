"""Results and errors as replies, in the form of each era. Here exceptions become replies."""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup import __version__
from workflowlookup.errors import (
    InternalError,
    InvalidParams,
    InvalidWorkflow,
    ResourceNotFound,
    WorkflowLookupError,
    is_out_of_descriptors,
    out_of_descriptors,
)
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.protocol.requests import Call
from workflowlookup.protocol.versions import META_SERVER_INFO, Rules

log = logging.getLogger(__name__)

SERVER_INFO: Final[Mapping[str, Json]] = {
    "name": "workflowlookup",
    "version": __version__,
    "description": "Workflow Orchestration System MCP Server",
}
LIST_TTL_MS: Final = 0
"""How long a client may cache a list: not at all, because the library can change at any time."""
PENDING: Final = object()
"""In place of a result that comes later, or never."""
_PROTOCOL_CODES: Final = frozenset({-32021, -32022, -32603})
"""Errors about the protocol, not about the tool: never a tool's result."""


# ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────


def cacheable(result: Mapping[str, Json]) -> dict[str, Json]:
    return {**result, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}


def cacheable_in(call: Call, result: Mapping[str, Json]) -> Mapping[str, Json]:
    return cacheable(result) if call.rules.envelope else result


def success(call: Call, result: Json) -> bytes:
    """The reply to a call that succeeded."""
    return jsonrpc.success(call.id, in_envelope(result) if call.rules.envelope else result)


def in_envelope(result: Mapping[str, Json] | msgspec.Raw) -> dict[str, Json]:
    fields = msgspec.json.decode(result, type=dict[str, msgspec.Raw]) if isinstance(result, msgspec.Raw) else result
    return {"resultType": "complete", **fields, "_meta": {META_SERVER_INFO: SERVER_INFO}}


def tool_result(result: Mapping[str, Json] | msgspec.Raw) -> dict[str, Json]:
    """The result of a tool as the result of `tools/call`."""
    encoded = bytes(result) if isinstance(result, msgspec.Raw) else msgspec.json.encode(result)
    return {"content": [{"type": "text", "text": encoded.decode()}], "structuredContent": msgspec.Raw(encoded)}


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────


def is_sent_as_result(error: WorkflowLookupError, rules: Rules) -> bool:
    """Whether an error of a tool is sent as a result, which the model reads; else it is a JSON-RPC error."""
    if isinstance(error, InvalidParams):
        return rules.misfits_as_results
    return rules.errors_as_results and error.code not in _PROTOCOL_CODES


def error_result(error: WorkflowLookupError) -> dict[str, Json]:
    """An error of a tool as a result, which the model reads."""
    return {
        "content": [{"type": "text", "text": error.explain()}],
        "structuredContent": {"code": error.code, "message": error.message, "data": error.data},
        "isError": True,
    }


def _failure(request_id: bytes, error: WorkflowLookupError, rules: Rules) -> bytes:
    """An error reply. In the envelope era -32002 is forbidden and is sent as -32602 with the code in `data`."""
    if rules.envelope and isinstance(error, ResourceNotFound):
        return jsonrpc.failure(request_id, error, code=InvalidParams.code)
    if rules.envelope and isinstance(error, InvalidWorkflow):
        data = {"code": error.code, **error.data}
        return jsonrpc.failure(request_id, error, code=InvalidParams.code, data=data)
    return jsonrpc.failure(request_id, error)


def refuse(call: Call, problem: Exception) -> bytes:
    """The error reply to a pending call, in the same form as that of a call that fails at once."""
    if (
        isinstance(problem, WorkflowLookupError)
        and call.method == "tools/call"
        and is_sent_as_result(problem, call.rules)
    ):
        return success(call, error_result(problem))
    return explain(call, problem, call.rules)


def explain(request: Request | Call, problem: Exception, rules: Rules) -> bytes:
    """The error reply to a request."""
    if isinstance(problem, WorkflowLookupError):
        return _failure(request.id, problem, rules)
    if isinstance(problem, RecursionError):  # msgspec decodes deeper nesting than we can handle
        log.info("%s was nested too deeply", request.method, exc_info=problem)
        return _failure(request.id, InvalidParams("params are nested too deeply"), rules)
    if is_out_of_descriptors(problem):
        log.warning("%s failed: no file descriptor is left", request.method)
        return _failure(request.id, out_of_descriptors(), rules)
    log.error("%s failed", request.method, exc_info=problem)
    return jsonrpc.failure(request.id, InternalError())
