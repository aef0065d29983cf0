"""Calls whose answer is not there yet, in both eras: looked at when the bell rings, told how far they are, given up.

A call waits here by the id of its request. Nothing else waits with it: other messages are answered meanwhile.
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

MAX_WAITING: Final = 256

Token: TypeAlias = str | int | None
"""What a client wants to know the news by; None when it wants none."""


def token_of(call: Call) -> Token:
    """The token that came with a call; `Connection` has checked what it is."""
    meta = call.object_params().get("_meta") or {}
    token: Token = meta.get("progressToken")
    return token


class Told(msgspec.Struct):
    """How far a client knows something to be."""

    token: Token
    done: float | None = None

    def news(self, progress: Progress, meta: Mapping[str, Json] | None = None) -> bytes | None:
        """The notification for a client that does not know this yet; None when there is nothing to tell it."""
        if self.token is None or (self.done is not None and progress.done <= self.done):
            return None
        self.done = progress.done
        params: dict[str, Json] = {"progressToken": self.token, "progress": progress.done}
        if progress.total is not None:
            params["total"] = progress.total
        if progress.message:
            params["message"] = progress.message
        if meta is not None:
            params["_meta"] = meta
        return jsonrpc.notification("notifications/progress", params)


class _Waiter(msgspec.Struct):
    """A call, what it waits for, and how far its client knows it to be."""

    call: Call
    later: Pending
    told: Told


class Waiting:
    """The calls of one client that wait for something that the server works on."""

    def __init__(self, outbox: list[bytes]) -> None:
        self._outbox = outbox
        self._waiters: dict[bytes, _Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def put(self, call: Call, later: Pending) -> None:
        """The call waits. Raises `InvalidParams`, and gives the work up, when it cannot."""
        problem = ""
        if call.id in self._waiters:
            problem = "a call with this id is waiting for its answer; ids must differ"
        elif len(self._waiters) >= MAX_WAITING:
            problem = f"at most {MAX_WAITING} calls wait at once; wait for one, or cancel one, and try again"
        if problem:
            self._give_up(later, problem)
            raise InvalidParams(problem)
        self._waiters[call.id] = _Waiter(call, later, Told(token_of(call)))

    def look(self, answer: Callable[[Call, Pending], bytes | None]) -> None:
        """Put the answers that are there now, and news of how far the others are, into the outbox.

        `answer` gives the reply to a call; None while there is none. It calls `take` when the wait is over.
        """
        for waiter in list(self._waiters.values()):
            self._tell_progress(waiter)
            reply = answer(waiter.call, waiter.later)
            if reply is not None:
                self._outbox.append(reply)

    def take(self, call: Call) -> None:
        """The wait of a call is over."""
        self._waiters.pop(call.id, None)

    def cancel(self, cancelled: Json, reason: Json) -> None:
        """The client wants no answer to this request any more."""
        for request_id, waiter in list(self._waiters.items()):
            if jsonrpc.same_id(msgspec.json.decode(request_id), cancelled):
                del self._waiters[request_id]
                said = reason if isinstance(reason, str) and reason else "the client gave no reason"
                self._give_up(waiter.later, f"the call was cancelled: {said}")

    def end(self, *, hands_over: bool) -> Iterator[tuple[Call, WorkflowLookupError]]:
        """Wait no more, and give up the work or leave it to others; what the calls are to be answered."""
        left = list(self._waiters.values())
        self._waiters.clear()
        for waiter in left:
            run_id = waiter.later.run_id
            if hands_over:
                details = "the server is stopping, and the run goes on without it; ask workflow_status how far it is"
                yield waiter.call, RunStateError(details, runId=run_id)
            else:
                self._give_up(waiter.later, "the client went away")
                yield waiter.call, ExecutionFailed("The server stopped before the run was over.", runId=run_id)

    def _give_up(self, later: Pending, reason: str) -> None:
        try:
            later.abandon(reason)
        except Exception:  # broad on purpose: nobody waits for it any more
            log.warning("run '%s' could not be given up", later.run_id, exc_info=True)

    def _tell_progress(self, waiter: _Waiter) -> None:
        """Say how far a call is, to a client that asked for it, when it moved forward."""
        if waiter.told.token is None:
            return
        try:
            progress = waiter.later.progress()
        except Exception:  # broad on purpose: the answer is what counts
            log.debug("the progress of run '%s' is not known", waiter.later.run_id, exc_info=True)
            return
        news = waiter.told.news(progress) if progress is not None else None
        if news is not None:
            self._outbox.append(news)
