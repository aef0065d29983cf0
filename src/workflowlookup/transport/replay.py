"""What was sent to a client of the handshake era lately, so that one whose connection broke can go on where it was."""

import itertools
import secrets
from collections import deque
from typing import Final

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from workflowlookup.transport.refusals import RETRY_SECONDS

MOST_EVENTS: Final = 200
MOST_BYTES: Final = 1 << 20


class Replay(EventStore):
    """The latest events of one session. Each session has its own: the SDK's names of streams repeat among them."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, StreamId, JSONRPCMessage | bytes | None, int]] = deque()
        self._bytes = 0
        self._numbers = itertools.count(secrets.randbits(40) << 12)  # another server finds nothing by them

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        size = len(message.model_dump_json(by_alias=True, exclude_unset=True)) if message is not None else 0
        return str(self._keep(stream_id, message, size))

    def write(self, stream_id: StreamId, reply: bytes, *, is_resumable: bool) -> bytes:
        """A stream that is a reply and nothing else, as the SDK would write it; it is kept like those.

        `is_resumable`: it begins with an event that says nothing, so that a client can go on from the very beginning.
        """
        begun = b""
        if is_resumable:
            begun = b"id: %d\r\ndata: \r\nretry: %d\r\n\r\n" % (self._keep(stream_id, None, 0), RETRY_SECONDS * 1000)
        number = self._keep(stream_id, reply, len(reply))
        return b"%bid: %d\r\nevent: message\r\ndata: %b\r\n\r\n" % (begun, number, reply)

    def _keep(self, stream_id: StreamId, message: JSONRPCMessage | bytes | None, size: int) -> int:
        number = next(self._numbers)
        self._events.append((number, stream_id, message, size))
        self._bytes += size
        while len(self._events) > MOST_EVENTS or (self._bytes > MOST_BYTES and len(self._events) > 1):
            self._bytes -= self._events.popleft()[3]
        return number

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        found = next(((number, stream) for number, stream, _, _ in self._events if str(number) == last_event_id), None)
        if found is None:
            return None
        last, stream = found
        for number, stream_id, message, _ in list(self._events):
            if number > last and stream_id == stream and message is not None:
                told = jsonrpc_message_adapter.validate_json(message) if isinstance(message, bytes) else message
                await send_callback(EventMessage(told, str(number)))
        return stream
