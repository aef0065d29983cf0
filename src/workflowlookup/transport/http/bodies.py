"""JSON-RPC in HTTP bodies: how the body of a request is read, within limits, and error responses."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope

from workflowlookup.errors import InvalidRequest, Overloaded, StorageError, WorkflowLookupError
from workflowlookup.protocol import jsonrpc
from workflowlookup.transport.http.metrics import Metrics

FIRST_BYTES_SECONDS: Final = 1.0
"""Time allowed for the first bytes of a message that is too long. Its id is searched for in them."""
DRAIN_SECONDS: Final = 5.0
"""How long the rest of a message that is too long is read and dropped. Otherwise a client that sends all of it before
it reads would see a connection reset, and no response.
"""
MAX_VALUES: Final = 250_000
"""Of JSON in one message. Each takes up to 60 times the memory of its text: 8 MiB of `[]` would take 280 MiB."""
VALUE_BYTES: Final = 64
"""The least memory that a value takes in addition to its text. All values of a message count for at most twice the
longest message, so that any message fits into a caller's share of memory.
"""
MAX_DRAIN_BYTES: Final = 64 << 20
"""A longer message is refused without reading the rest."""
RETRY_SECONDS: Final = 1
"""`Retry-After` of a refusal for a reason that soon passes."""


async def read_body(
    scope: Scope, receive: Receive, max_bytes: int, metrics: Metrics, reserve: Callable[[int], bool] = lambda _: True
) -> bytes | Response:
    """The body of a request, or the response that refuses it, which is counted.

    `reserve` reserves memory for so many bytes; it returns False if there is none.
    """
    headers = dict(scope["headers"])
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > max_bytes:
        # A client that sent `Expect` waits: to read from it would tell it to send the whole body.
        beginning, has_more = (b"", False) if b"expect" in headers else await _first_bytes(receive)
        if has_more and int(declared[:20]) <= MAX_DRAIN_BYTES:
            await _drain(receive)
        return _refuse_size(max_bytes, beginning, metrics)
    body, has_more = bytearray(), True
    while has_more:
        event = await receive()
        if event["type"] != "http.request":
            return Response(status_code=400)  # the client left
        part = event.get("body", b"")
        body += part
        has_more = event.get("more_body", False)
        if len(body) > max_bytes:
            if has_more:
                await _drain(receive)
            return _refuse_size(max_bytes, bytes(body), metrics)
        if not reserve(len(part)):
            if has_more:
                await _drain(receive)
            return _refuse_memory(metrics)
    values = count_values(body)
    if values > MAX_VALUES:
        return _refuse_values(body, metrics)
    return bytes(body) if reserve(min(VALUE_BYTES * values, 2 * max_bytes)) else _refuse_memory(metrics)


def count_values(body: bytes | bytearray) -> int:
    """The number of values of a message, estimated without decoding it; exact enough to compare with `MAX_VALUES`."""
    count = _count_punctuation(body)
    if count <= MAX_VALUES:
        return count
    text = body.replace(rb"\\", b"").replace(rb"\"", b"")
    strings = text.count(b'"') // 2
    if strings > MAX_VALUES:
        return strings
    return _count_punctuation(b"".join(text.split(b'"')[::2]))  # strings may have any number of commas


def _count_punctuation(text: bytes | bytearray) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _refuse_memory(metrics: Metrics) -> Response:
    metrics.refuse("memory")
    return busy(429, "your messages that are not answered yet take your share of memory; wait for them")


def _refuse_values(body: bytearray, metrics: Metrics) -> Response:
    metrics.refuse("size")
    request_id = jsonrpc.too_long(MAX_VALUES, bytes(body)).reply_id
    return invalid(413, f"a message has at most {MAX_VALUES:,} values; send fewer, or in several messages", request_id)


async def _first_bytes(receive: Receive) -> tuple[bytes, bool]:
    """The beginning of a body that is too long, to find its id in; and whether more of it is coming."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_BYTES_SECONDS):
            event = await receive()
            return bytes(event.get("body", b"")), event.get("more_body", False)
    return b"", False


async def _drain(receive: Receive) -> None:
    """Read and drop the rest of a body, within a size and a time."""
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while dropped <= MAX_DRAIN_BYTES:
                event = await receive()
                dropped += len(event.get("body", b""))
                if not event.get("more_body", False):  # the end, or the client left
                    return


def _refuse_size(max_bytes: int, beginning: bytes, metrics: Metrics) -> Response:
    metrics.refuse("size")
    too_long = jsonrpc.too_long(max_bytes, beginning)
    return json_response(413, jsonrpc.failure(too_long.reply_id, too_long.problem))


# ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────────


def json_response(status: int, body: bytes) -> Response:
    return Response(body, status_code=status, media_type="application/json")


def refuse(
    status: int, error: WorkflowLookupError, *, request_id: bytes = jsonrpc.NULL_ID, retry: int | None = None
) -> Response:
    response = json_response(status, jsonrpc.failure(request_id, error))
    if retry is not None:
        response.headers["Retry-After"] = str(retry)
    return response


def invalid(status: int, problem: str, request_id: bytes = jsonrpc.NULL_ID) -> Response:
    """The response to an invalid request."""
    return refuse(status, InvalidRequest(problem, details=problem), request_id=request_id)


def busy(status: int, problem: str, seconds: int = RETRY_SECONDS, *, request_id: bytes = jsonrpc.NULL_ID) -> Response:
    """The response to a request that may be sent again after so many seconds."""
    error = Overloaded(problem, details=problem, retryAfterSeconds=seconds)
    return refuse(status, error, request_id=request_id, retry=seconds)


def unavailable(problem: StorageError, request_id: bytes = jsonrpc.NULL_ID) -> Response:
    """The response to a request that needs the journal while that cannot be used."""
    seconds = problem.data.get("retryAfterSeconds", RETRY_SECONDS)
    return refuse(503, problem, request_id=request_id, retry=seconds)
