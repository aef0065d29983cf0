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
DRAIN_SECONDS: Final = 5.0
"""How long the rest of a message that is too long is read and dropped. A client that sends all of it before it reads
would otherwise find the connection reset, and no answer.
"""
MAX_DRAIN_BYTES: Final = 64 << 20
"""Of a message that is longer, nothing is dropped that way."""


async def read_body(scope: Scope, receive: Receive, most_bytes: int, metrics: Metrics) -> bytes | Response:
    """The body of a request, or why it is not taken, which is counted."""
    headers = Headers(scope=scope)
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most_bytes:
        # To ask a client for a body that it announced with `Expect` is to say that it may send all of it.
        beginning, has_more = (b"", False) if "expect" in headers else await _first_bytes(receive)
        if has_more and int(declared[:20]) <= MAX_DRAIN_BYTES:
            await _drain(receive)
        return _refuse_long(most_bytes, beginning, metrics)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                event = await receive()
                if event["type"] != "http.request":
                    return Response(status_code=400)  # the client left
                body += event.get("body", b"")
                has_more = event.get("more_body", False)
                if len(body) > most_bytes:
                    if has_more:
                        await _drain(receive)
                    return _refuse_long(most_bytes, bytes(body), metrics)
                if not has_more:
                    return bytes(body)
    except TimeoutError:
        metrics.refuse("slow")
        return invalid(408, f"the message did not come within {BODY_SECONDS:g} seconds; send it again")


async def _first_bytes(receive: Receive) -> tuple[bytes, bool]:
    """What has come of a body that is too long, to find its id in; and whether more of it is coming."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_BYTES_SECONDS):
            event = await receive()
            return bytes(event.get("body", b"")), event.get("more_body", False)
    return b"", False


async def _drain(receive: Receive) -> None:
    """Read and drop the rest of a body, up to a size and for a time."""
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while dropped <= MAX_DRAIN_BYTES:
                event = await receive()
                dropped += len(event.get("body", b""))
                if not event.get("more_body", False):  # the end, or the client left
                    return


def _refuse_long(most_bytes: int, beginning: bytes, metrics: Metrics) -> Response:
    metrics.refuse("size")
    too_long = jsonrpc.too_long(most_bytes, beginning)
    return in_json(413, jsonrpc.failure(too_long.id, too_long.problem))
