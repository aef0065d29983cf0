"""The headers in which requests of the envelope era repeat themselves.

What is wrong with them is for the SDK to say, but for those that it does not know.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp.shared.inbound import (
    MCP_NAME_HEADER,
    InboundModernRoute,
    classify_inbound_request,
    decode_header_value,
    find_duplicated_routing_header,
    validate_mcp_param_headers,
)
from starlette.datastructures import Headers

from workflowlookup.protocol.jsonrpc import Request

InputSchemaOf = Callable[[str], Mapping[str, Any] | None]
"""The input schema of a tool by its name; it says which arguments are mirrored in headers."""

_ABOUT_TASKS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})


def names_another(request: Request, headers: Headers) -> bool:
    """Whether `Mcp-Name` is not the task that a request is about: who routes by it would have sent it elsewhere."""
    if request.method not in _ABOUT_TASKS or not isinstance(request.params, dict):
        return False
    task = request.params.get("taskId")
    return isinstance(task, str) and decode_header_value(headers.get(MCP_NAME_HEADER)) != task


def agrees(request: Request, headers: Headers, input_schema_of: InputSchemaOf) -> bool:
    """Whether headers and request say the same, as far as the SDK looks at them."""
    params = request.params
    if not isinstance(params, dict) or find_duplicated_routing_header(headers.items()) is not None:
        return False
    route = classify_inbound_request({"method": request.method, "params": params}, headers=headers)
    if not isinstance(route, InboundModernRoute):
        return False
    if request.method != "tools/call":
        return True
    name, arguments = params.get("name"), params.get("arguments")
    schema = input_schema_of(name) if isinstance(name, str) else None
    given = arguments if isinstance(arguments, dict) else {}
    return schema is None or validate_mcp_param_headers(schema, given, headers) is None
