"""The bodies of requests: read whole, up to a limit and in reasonable time, or refused."""

import asyncio
import contextlib
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope

from workflowlookup.protocol import jsonrpc
from workflowlookup.transport.metrics import Metrics
from workflowlookup.transport.refusals import in_json, invalid

BODY_SECONDS: Final = 20.0
"""How long a client may take to send a message, once its headers are there."""
FIRST_BYTES_SECONDS: Final = 1.0
"""How long the first bytes of a message that is too long are waited for."""


async def read_body(scope: Scope, receive: Receive, most_bytes: int, metrics: Metrics) -> bytes | Response:
    """The body of a request, or why it is not taken, which is counted."""
    headers = Headers(scope=scope)
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most_bytes:
        # To ask a client for a body that it announced with `Expect` is to say that it may send all of it.
        beginning = b"" if "expect" in headers else await _first_bytes(receive)
        return _refuse_long(most_bytes, beginning, metrics)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                event = await receive()
                if event["type"] != "http.request":
                    return Response(status_code=400)  # the client left
                body += event.get("body", b"")
                if len(body) > most_bytes:
                    return _refuse_long(most_bytes, bytes(body), metrics)
                if not event.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        metrics.refuse("slow")
        return invalid(408, f"the message did not come within {BODY_SECONDS:g} seconds; send it again")


async def _first_bytes(receive: Receive) -> bytes:
    """What has come of a body that is not read, to find its id in."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_BYTES_SECONDS):
            return bytes((await receive()).get("body", b""))
    return b""


def _refuse_long(most_bytes: int, beginning: bytes, metrics: Metrics) -> Response:
    metrics.refuse("size")
    too_long = jsonrpc.too_long(most_bytes, beginning)
    return in_json(413, jsonrpc.failure(too_long.id, too_long.problem))
