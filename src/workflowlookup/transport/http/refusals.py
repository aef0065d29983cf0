"""Answers over HTTP that need no connection: a JSON-RPC message as the body, and a status that says the same."""

from typing import Final

from starlette.responses import Response

from workflowlookup.errors import InvalidRequest, Overloaded, StorageError, WorkflowLookupError
from workflowlookup.protocol import jsonrpc

RETRY_SECONDS: Final = 1
"""When somebody should ask again who is turned away for what soon passes."""


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
