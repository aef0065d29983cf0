"""The headers in which requests of the envelope era repeat themselves, as far as the SDK does not know them."""

from typing import Final

from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from starlette.datastructures import Headers

from workflowlookup.protocol.jsonrpc import Request

_ABOUT_TASKS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})


def names_another(request: Request, headers: Headers) -> bool:
    """Whether `Mcp-Name` is not the task that a request is about: who routes by it would have sent it elsewhere."""
    if request.method not in _ABOUT_TASKS or not isinstance(request.params, dict):
        return False
    task = request.params.get("taskId")
    return isinstance(task, str) and decode_header_value(headers.get(MCP_NAME_HEADER)) != task
