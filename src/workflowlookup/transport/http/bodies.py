"""The bodies of requests: read whole, up to a limit and in reasonable time, or refused."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope

from workflowlookup.errors import InvalidRequest, Overloaded, StorageError, WorkflowLookupError
from workflowlookup.protocol import jsonrpc
from workflowlookup.transport.http.metrics import Metrics

BODY_SECONDS: Final = 20.0
"""How long a client may take to send a message, once its headers are there."""
FIRST_BYTES_SECONDS: Final = 1.0
"""How long the first bytes of a message that is too long are waited for."""
DRAIN_SECONDS: Final = 5.0
"""How long the rest of a message that is too long is read and dropped. A client that sends all of it before it reads
would otherwise find the connection reset, and no answer.
"""
MAX_VALUES: Final = 250_000
"""In one message. Each takes up to 60 times the memory of its text: 8 MiB of `[]` would take 280 MiB."""
VALUE_BYTES: Final = 64
"""What a value in a message takes beside its text, at least. All values of a message count for no more than twice the
longest message, so that any message fits into a caller's share of memory.
"""
MAX_DRAIN_BYTES: Final = 64 << 20
"""Of a message that is longer, nothing is dropped that way."""
RETRY_SECONDS: Final = 1
"""When somebody should ask again who is turned away for what soon passes."""


async def read_body(
    scope: Scope, receive: Receive, most_bytes: int, metrics: Metrics, take: Callable[[int], bool] = lambda _: True
) -> bytes | Response:
    """The body of a request, or why it is not taken, which is counted. `take` asks for memory for so many bytes."""
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
                part = event.get("body", b"")
                body += part
                has_more = event.get("more_body", False)
                if len(body) > most_bytes:
                    if has_more:
                        await _drain(receive)
                    return _refuse_long(most_bytes, bytes(body), metrics)
                if not take(len(part)):
                    if has_more:
                        await _drain(receive)
                    return _refuse_more(metrics)
                if has_more:
                    continue
                if has_many_values(body):
                    return _refuse_many(body, metrics)
                if not take(min(VALUE_BYTES * _count_values(body), 2 * most_bytes)):
                    return _refuse_more(metrics)
                return bytes(body)
    except TimeoutError:
        metrics.refuse("slow")
        return invalid(408, f"the message did not come within {BODY_SECONDS:g} seconds; send it again")


def has_many_values(body: bytes | bytearray) -> bool:
    """Whether a message has more than `MAX_VALUES`, as far as can be known without reading it as JSON."""
    if _count_values(body) <= MAX_VALUES:
        return False
    text = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if text.count(b'"') > 2 * MAX_VALUES:
        return True
    return _count_values(b"".join(text.split(b'"')[::2])) > MAX_VALUES  # texts may have any number of commas


def _count_values(text: bytes | bytearray) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _refuse_more(metrics: Metrics) -> Response:
    metrics.refuse("memory")
    return busy(429, "your messages that are not answered yet take your share of memory; wait for them")


def _refuse_many(body: bytearray, metrics: Metrics) -> Response:
    metrics.refuse("size")
    request_id = jsonrpc.too_long(MAX_VALUES, bytes(body)).reply_id
    return invalid(413, f"a message has at most {MAX_VALUES:,} values; send fewer, or in several messages", request_id)


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
    return in_json(413, jsonrpc.failure(too_long.reply_id, too_long.problem))


# ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────────


def in_json(status: int, body: bytes) -> Response:
    return Response(body, status_code=status, media_type="application/json")


def refuse(
    status: int, error: WorkflowLookupError, *, request_id: bytes = jsonrpc.NULL_ID, retry: int | None = None
) -> Response:
    response = in_json(status, jsonrpc.failure(request_id, error))
    if retry is not None:
        response.headers["Retry-After"] = str(retry)
    return response


def invalid(status: int, problem: str, request_id: bytes = jsonrpc.NULL_ID) -> Response:
    """For what should not have been sent."""
    return refuse(status, InvalidRequest(problem, details=problem), request_id=request_id)


def busy(status: int, problem: str, seconds: int = RETRY_SECONDS, *, request_id: bytes = jsonrpc.NULL_ID) -> Response:
    """For what may be sent again, after so many seconds."""
    error = Overloaded(problem, details=problem, retryAfterSeconds=seconds)
    return refuse(status, error, request_id=request_id, retry=seconds)


def unavailable(problem: StorageError, request_id: bytes = jsonrpc.NULL_ID) -> Response:
    """For what needs the journal while that cannot be used."""
    seconds = problem.data.get("retryAfterSeconds", RETRY_SECONDS)
    return refuse(503, problem, request_id=request_id, retry=seconds)
