"""The bodies of requests: read whole, up to a limit and in reasonable time, or refused."""

import asyncio
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope

from workflowlookup.protocol import jsonrpc
from workflowlookup.transport.metrics import Metrics
from workflowlookup.transport.refusals import in_json, invalid

BODY_SECONDS: Final = 20.0
"""How long a client may take to send a message, once its headers are there."""


async def read_body(scope: Scope, receive: Receive, most_bytes: int, metrics: Metrics) -> bytes | Response:
    """The body of a request, or why it is not taken, which is counted."""
    declared = Headers(scope=scope).get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most_bytes:
        return _refuse_long(most_bytes, metrics)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                event = await receive()
                if event["type"] != "http.request":
                    return Response(status_code=400)  # the client left
                body += event.get("body", b"")
                if len(body) > most_bytes:
                    return _refuse_long(most_bytes, metrics)
                if not event.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        metrics.refuse("slow")
        return invalid(408, f"the message did not come within {BODY_SECONDS:g} seconds; send it again")


def _refuse_long(most_bytes: int, metrics: Metrics) -> Response:
    metrics.refuse("size")
    too_long = jsonrpc.too_long(most_bytes)
    return in_json(413, jsonrpc.failure(too_long.id, too_long.problem))
