"""Calls whose result is pending, in both eras: polled until it is there, with progress reports, and cancelled.

A call is stored by the id of its request, and does not block the connection: other messages are answered meanwhile.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from workflowlookup.errors import ExecutionFailed, InvalidParams, RunStateError, WorkflowLookupError
from workflowlookup.language.values import Json, Progress
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.requests import Call
from workflowlookup.tools.contract import Pending

log = logging.getLogger(__name__)

MAX_PENDING: Final = 256

ProgressToken: TypeAlias = str | int | None
"""Identifies the progress notifications of a call; None if its client wants none."""


def progress_token_of(call: Call) -> ProgressToken:
    """The progress token of a call; `requests` has checked its type."""
    meta = call.object_params().get("_meta") or {}
    token: ProgressToken = meta.get("progressToken")
    return token


class ProgressReporter(msgspec.Struct):
    """Makes the `notifications/progress` of one call: only for a client that sent a token, and only increasing."""

    token: ProgressToken
    reported: float | None = None
    """The progress that the client was last notified of."""

    def notification(self, progress: Progress, meta: Mapping[str, Json] | None = None) -> bytes | None:
        """The notification of this progress; None if the client wants none or was notified of as much."""
        if self.token is None or (self.reported is not None and progress.done <= self.reported):
            return None
        self.reported = progress.done
        params: dict[str, Json] = {"progressToken": self.token, "progress": progress.done}
        if progress.total is not None:
            params["total"] = progress.total
        if progress.message:
            params["message"] = progress.message
        if meta is not None:
            params["_meta"] = meta
        return jsonrpc.notification("notifications/progress", params)


class _PendingCall(msgspec.Struct):
    """A call, its pending result, and its progress reports."""

    call: Call
    pending: Pending
    reporter: ProgressReporter


class PendingCalls:
    """The calls of one client whose result is pending."""

    def __init__(self, outbox: list[bytes]) -> None:
        self._outbox = outbox
        self._by_id: dict[bytes, _PendingCall] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, call: Call, pending: Pending) -> None:
        """Add a call. If there are too many, or its id is in use, abandons the work and raises `InvalidParams`."""
        problem = ""
        if call.id in self._by_id:
            problem = "a call with this id is waiting for its answer; ids must differ"
        elif len(self._by_id) >= MAX_PENDING:
            problem = f"at most {MAX_PENDING} calls wait at once; wait for one, or cancel one, and try again"
        if problem:
            self._abandon(pending, problem)
            raise InvalidParams(problem)
        self._by_id[call.id] = _PendingCall(call, pending, ProgressReporter(progress_token_of(call)))

    def poll(self, answer: Callable[[Call, Pending], bytes | None]) -> None:
        """Put the replies that are ready, and progress notifications, into the outbox.

        `answer` returns the reply to a call, or None while there is none. It calls `remove` when the wait is over.
        """
        for pending_call in list(self._by_id.values()):
            self._report_progress(pending_call)
            reply = answer(pending_call.call, pending_call.pending)
            if reply is not None:
                self._outbox.append(reply)

    def remove(self, call: Call) -> None:
        """Remove a call that is answered, or will be."""
        self._by_id.pop(call.id, None)

    def cancel(self, cancelled_id: Json, reason: Json) -> None:
        """Abandon the call with this request id. It gets no reply."""
        for request_id, pending_call in list(self._by_id.items()):
            if jsonrpc.same_id(msgspec.json.decode(request_id), cancelled_id):
                del self._by_id[request_id]
                reason_text = reason if isinstance(reason, str) and reason else "the client gave no reason"
                self._abandon(pending_call.pending, f"the call was cancelled: {reason_text}")

    def close(self, *, hands_over: bool) -> Iterator[tuple[Call, WorkflowLookupError]]:
        """Remove all calls, and yield each with the error to answer it with.

        Their work is abandoned, unless it is handed over to another server.
        """
        pending_calls = list(self._by_id.values())
        self._by_id.clear()
        for pending_call in pending_calls:
            run_id = pending_call.pending.run_id
            if hands_over:
                details = "the server is stopping, and the run goes on without it; ask workflow_status how far it is"
                yield pending_call.call, RunStateError(details, runId=run_id)
            else:
                self._abandon(pending_call.pending, "the client went away")
                yield pending_call.call, ExecutionFailed("The server stopped before the run was over.", runId=run_id)

    def _abandon(self, pending: Pending, reason: str) -> None:
        try:
            pending.abandon(reason)
        except Exception:  # broad on purpose: nobody waits for it any more
            log.warning("run '%s' could not be abandoned", pending.run_id, exc_info=True)

    def _report_progress(self, pending_call: _PendingCall) -> None:
        if pending_call.reporter.token is None:
            return
        try:
            progress = pending_call.pending.progress()
        except Exception:  # broad on purpose: the reply matters, progress does not
            log.debug("the progress of run '%s' is unknown", pending_call.pending.run_id, exc_info=True)
            return
        notification = pending_call.reporter.notification(progress) if progress is not None else None
        if notification is not None:
            self._outbox.append(notification)
