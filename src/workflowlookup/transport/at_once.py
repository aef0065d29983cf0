"""What a connection answers at once over HTTP: it is asked before the SDK, and its reply is written in one piece.

A task and a stream of the SDK's, which are most of the work, are for what waits, asks or has more to say. The answer
looks as if the SDK had written it, and what the SDK may refuse is left to it: it must not be done before.
"""

from typing import Final

import msgspec
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, check_accept_headers
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.version import is_version_at_least
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.types import Scope

from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.transport.inner import Http
from workflowlookup.transport.refusals import in_json
from workflowlookup.transport.replay import Replay
from workflowlookup.transport.routing import InputSchemaOf, agrees

_SDK_FIRST: Final = frozenset({"initialize", "shutdown", "subscriptions/listen"})
"""What the SDK has to hear of first: it has a part in these, or knows no result that is null."""


def may_begin(request: Request, scope: Scope) -> bool:
    """Whether the SDK would take a request of a session beyond doubt, and need not have it."""
    if request.method in _SDK_FIRST or isinstance(request.params, list):
        return False
    http = HttpRequest(scope)
    kind = http.headers.get("content-type", "").partition(";")[0].strip()
    return kind == "application/json" and all(check_accept_headers(http))


def may_begin_single(request: Request, scope: Scope, input_schema_of: InputSchemaOf) -> bool:
    """The same of a single request, of the envelope era: its headers have to repeat it rightly."""
    try:
        return may_begin(request, scope) and agrees(request, Headers(scope=scope), input_schema_of)
    except Exception:  # noqa: BLE001 - broad on purpose: the SDK serves a tool without its schema, and logs why
        return False


async def write_stream(session: str, replay: Replay, request: Request, reply: bytes, http: Http) -> None:
    """Answer a request of a session with all of its stream, which begins and ends with the reply."""
    scope, _, send = http
    version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
    stream = str(msgspec.json.decode(request.id))  # what the SDK calls it
    body = replay.write(stream, reply, is_resumable=is_version_at_least(version, "2025-11-25"))
    headers = [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-cache, no-transform"),
        (b"content-length", b"%d" % len(body)),
        (MCP_SESSION_ID_HEADER.encode(), session.encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def write_single(reply: bytes, code: int | None, http: Http) -> None:
    """Answer a single request; `code`: of the error that the reply tells, if it does."""
    status = 200 if code is None else ERROR_CODE_HTTP_STATUS.get(code, 200)
    await in_json(status, reply)(*http)
