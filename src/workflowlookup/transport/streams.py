"""The responses that carry messages to clients, and the events by which a client resumes one that broke.

A `Stream` has the messages of one response, in order, and writes them: in one piece when the last of them is there,
else as server-sent events as they come. A `Replay` belongs to a session and has the latest events of all its streams.
"""

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from starlette.types import Receive, Send

from workflowlookup.transport.refusals import RETRY_SECONDS

if TYPE_CHECKING:
    from workflowlookup.protocol.jsonrpc import Request
    from workflowlookup.transport.traces import RequestSpan

log = logging.getLogger(__name__)

PING_SECONDS: Final = 15.0
"""How long a stream may be silent: after a longer silence proxies close the connection."""
MAX_UNREAD: Final = 256
"""Messages that wait for a client that does not read; further notifications are dropped."""
MAX_EVENTS: Final = 200
MAX_BYTES: Final = 1 << 20
"""Of a session's replay."""
STATUS_OF_CODE: Final = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
"""HTTP status of a JSON-RPC error that answers a request of the envelope era; 200 for all others."""

Header = tuple[bytes, bytes]
StreamId = int | str | None
"""The id of the request that a stream answers; None for the stream that a client opens with GET."""

_JSON: Final = ((b"content-type", b"application/json"),)
_PING: Final = b": ping\r\n\r\n"
_EVENT: Final = b"id: %d\r\nevent: message\r\ndata: %b\r\n\r\n"
_BEGINNING: Final = b"id: %%d\r\ndata: %%b\r\nretry: %d\r\n\r\n" % (RETRY_SECONDS * 1000)
_SSE: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Replay:
    """The latest events of one session, for a client that resumes a stream."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, StreamId, bytes]] = deque()
        self._bytes = 0
        self._numbers = itertools.count(secrets.randbits(40) << 12)  # random: replicas use different ids

    def add(self, stream_id: StreamId, message: bytes) -> bytes:
        """Encode a message as an event and remember it. An empty message makes the event that begins a stream."""
        number = next(self._numbers)
        event = (_EVENT if message else _BEGINNING) % (number, message)
        self._events.append((number, stream_id, event))
        self._bytes += len(event)
        while len(self._events) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self._events) > 1):
            self._bytes -= len(self._events.popleft()[2])
        return event

    def after(self, last_event_id: bytes) -> tuple[StreamId, list[bytes]] | None:
        """The stream of an event, and the events that followed it there; None when the event is not in the replay."""
        matches = ((number, stream) for number, stream, _ in self._events if b"%d" % number == last_event_id)
        last, wanted = next(matches, (None, None))
        if last is None:
            return None
        return wanted, [event for number, stream, event in self._events if number > last and stream == wanted]


class Stream:
    """The messages of one response, in order, until it is ended.

    With `replay` a client can resume it. Without, a reply that no other message precedes is written as plain JSON.
    """

    def __init__(self, request: "Request | None", stream_id: StreamId, replay: Replay | None) -> None:
        self.request = request
        self.id = stream_id
        self.begun_at = time.perf_counter()
        self.is_ended = False
        self.reply: bytes | None = None
        self.code: int | None = None
        """The code of the reply, if that is an error."""
        self.span: RequestSpan | None = None
        self._replay = replay
        self._events: list[bytes] = []
        """The events that are not written yet."""
        self._has_begun = False
        """Whether a response with events has begun."""
        self._is_disconnected = False
        self._response: object = None
        """Identifies the response that writes the stream; another one takes its place when the client resumes."""
        self._changed = asyncio.Event()

    def put(self, message: bytes, *, is_optional: bool = False) -> None:
        """Add a message; an optional one is dropped when the client does not read."""
        replay = self._replay
        event = b"event: message\r\ndata: %b\r\n\r\n" % message if replay is None else replay.add(self.id, message)
        if self._is_disconnected:
            return  # a client that resumes gets it from the replay
        if is_optional and len(self._events) >= MAX_UNREAD:
            log.debug("a client does not read: a notification was dropped")
            return
        self._events.append(event)
        self._changed.set()

    def finish(self, reply: bytes, code: int | None) -> None:
        """Add the reply, which is the last message."""
        self.reply, self.code = reply, code
        if self._replay is not None or self._events or self._has_begun:
            self.put(reply)
        self.is_ended = True
        self._changed.set()

    def end(self) -> None:
        """No message follows."""
        self.is_ended = True
        self._changed.set()

    def resume(self, events: list[bytes]) -> None:
        """Have the next response begin with these events, which the client has not received."""
        self._events, self._is_disconnected = events, False

    @property
    def is_read(self) -> bool:
        """Whether a response writes the stream now."""
        return self._response is not None

    # ── the response ────────────────────────────────────────────────────────────────────────────────────────────

    async def write(self, receive: Receive, send: Send, headers: Iterable[Header] = ()) -> None:
        """Write a response with these headers, until the stream is ended or the client disconnects."""
        response = self._response = object()
        self._changed.set()  # wakes the response before this one, if there is one, which then ends
        watch = None if self.is_ended else asyncio.create_task(self._watch_for_disconnect(receive, response))
        try:
            if self._replay is None and not self._events and not self.is_ended:
                await self._wait()
            if self.reply is not None and not self._events and self._replay is None:
                await _write_whole(send, STATUS_OF_CODE.get(self.code or 0, 200), _JSON, self.reply)
            elif self.is_ended:
                await _write_whole(send, 200, (*_SSE, *headers), self._take())
            elif not self._is_disconnected:
                self._has_begun = True
                await self._write_events(response, send, (*_SSE, *headers))
        finally:
            if watch is not None:
                watch.cancel()
            self._disconnect(response)

    async def _write_events(self, response: object, send: Send, headers: Sequence[Header]) -> None:
        body = self._take()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if self._response is response and not self._events and not self.is_ended:
                await self._wait()
            if self._response is not response:
                break
            body = self._take()
            if not body and self.is_ended:
                break
            body = body or _PING
        await send({"type": "http.response.body", "body": b""})

    def _take(self) -> bytes:
        events, self._events = self._events, []
        return b"".join(events)

    async def _wait(self) -> None:
        """Wait until something changes, or a ping is due."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PING_SECONDS):
                await self._changed.wait()

    async def _watch_for_disconnect(self, receive: Receive, response: object) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._disconnect(response)

    def _disconnect(self, response: object) -> None:
        """Note that this response is not read any more."""
        if self._response is response:
            self._response, self._is_disconnected, self._events = None, True, []
            self._changed.set()


async def _write_whole(send: Send, status: int, headers: Sequence[Header], body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
