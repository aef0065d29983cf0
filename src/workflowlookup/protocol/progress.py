"""`notifications/progress`: how far something is, for a client that sent a token, and only when it moved forward."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from workflowlookup.language.values import Json, Progress
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.requests import Call

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
