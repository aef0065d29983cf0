"""What was sent to a client of the handshake era lately, so that one whose connection broke can go on where it was."""

import itertools
import secrets
from collections import deque
from typing import Final

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage

MOST_EVENTS: Final = 200
MOST_BYTES: Final = 1 << 20


class Replay(EventStore):
    """The latest events of one session. Each session has its own: the SDK's names of streams repeat among them."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, StreamId, JSONRPCMessage | None, int]] = deque()
        self._bytes = 0
        self._numbers = itertools.count(secrets.randbits(40) << 12)  # another server finds nothing by them

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        number = next(self._numbers)
        size = len(message.model_dump_json(by_alias=True, exclude_unset=True)) if message is not None else 0
        self._events.append((number, stream_id, message, size))
        self._bytes += size
        while len(self._events) > MOST_EVENTS or (self._bytes > MOST_BYTES and len(self._events) > 1):
            self._bytes -= self._events.popleft()[3]
        return str(number)

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        found = next(((number, stream) for number, stream, _, _ in self._events if str(number) == last_event_id), None)
        if found is None:
            return None
        last, stream = found
        for number, stream_id, message, _ in list(self._events):
            if number > last and stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
