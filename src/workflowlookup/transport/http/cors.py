"""CORS: how pages of the origins in the setting `allowed_origins` use MCP from a browser.

A page sends its token itself, as any client does: credentials of the browser (cookies) are never allowed, and the
console has no CORS at all.
"""

import re
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Scope, Send

METHODS: Final = "GET, POST, DELETE"
REQUEST_HEADERS: Final = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Last-Event-ID",
    "Mcp-Session-Id",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "traceparent",
    "tracestate",
)
RESPONSE_HEADERS: Final = "Mcp-Session-Id, Retry-After, WWW-Authenticate"
MAX_AGE_SECONDS: Final = 600

_ARGUMENT: Final = re.compile(r"mcp-param-[a-z0-9_.-]{1,100}")
"""Headers that repeat an argument of a tool; their names depend on the tools."""


def is_preflight(scope: Scope) -> bool:
    """Whether a browser asks what a page may send."""
    return scope["method"] == "OPTIONS" and "access-control-request-method" in Headers(scope=scope)


def answer_preflight(scope: Scope) -> Response:
    """What a page may send; `allowing` adds the origin."""
    wanted = Headers(scope=scope).get("access-control-request-headers", "").lower().split(",")
    arguments = [name for one in wanted if _ARGUMENT.fullmatch(name := one.strip())]
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": ", ".join((*REQUEST_HEADERS, *arguments)),
        "Access-Control-Max-Age": str(MAX_AGE_SECONDS),
    }
    return Response(status_code=204, headers=headers)


def allowing(origins: Sequence[str], send: Send) -> Send:
    """Wrap `send` so that a page of this origin may read the response. `Vary` keeps caches from mixing up origins."""

    async def send_allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.add_vary_header("Origin")
            if len(origins) == 1:
                headers["Access-Control-Allow-Origin"] = origins[0]
                headers["Access-Control-Expose-Headers"] = RESPONSE_HEADERS
        await send(message)

    return send_allowing
