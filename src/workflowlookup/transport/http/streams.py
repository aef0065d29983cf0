"""Streams of messages to clients as HTTP responses, and the replay of events for a client that resumes a broken one.

A `Stream` has the messages of one response, in order, and writes them: in one piece if the last of them is there, else
as server-sent events as they come. A `Replay` belongs to a session and has the events that its client may not have
received: those of open streams, and those of complete streams for another `REPLAY_SECONDS`. HTTP does not say whether
the client received the last bytes; a client that did not resumes the stream within that time.
"""

import asyncio
import contextlib
import itertools
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.types import Receive, Send

from workflowlookup.shares import Shares
from workflowlookup.transport.http.bodies import RETRY_SECONDS

if TYPE_CHECKING:
    from workflowlookup.protocol.jsonrpc import Request
    from workflowlookup.transport.http.traces import RequestSpan

log = logging.getLogger(__name__)

PING_SECONDS: Final = 15.0
"""The longest silence of a stream: after a longer one, proxies close the connection."""
MAX_UNREAD: Final = 256
"""Messages that are buffered for a client that does not read; further notifications are dropped."""
MAX_EVENTS: Final = 200
MAX_BYTES: Final = 1 << 20
"""Of a session's replay."""
REPLAY_BYTES: Final = 32 << 20
"""Of the replays of all sessions; each caller has its share."""
REPLAY_SECONDS: Final = 10.0
"""How long the events of a stream that was written to its end can be sent again."""
STATUS_OF_CODE: Final = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
"""HTTP status of a JSON-RPC error that answers a request of the envelope era; 200 for all others."""

Header = tuple[bytes, bytes]
StreamId = int | str | None
"""The id of the request that a stream answers; None for the stream that a client opens with GET."""

_JSON: Final = ((b"content-type", b"application/json"),)
_PING: Final = b": ping\r\n\r\n"
_EVENT: Final = b"id: %d-%d\r\nevent: message\r\ndata: %b\r\n\r\n"
_BEGINNING: Final = b"id: %%d-%%d\r\ndata: %%b\r\nretry: %d\r\n\r\n" % (RETRY_SECONDS * 1000)
_EVENT_ID: Final = re.compile(rb"([0-9]{1,20})-([0-9]{1,20})")
_SSE: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class StreamLog(msgspec.Struct, eq=False):
    """The state of one stream in the replay, without its events."""

    key: int
    """Begins the ids of its events."""
    stream_id: StreamId
    last: int
    """The number of its latest event."""
    lost: int = -1
    """The number of the latest event that cannot be sent again."""
    delivered_at: float | None = None
    """When the stream was completely written."""


class Replay:
    """The events of one session for a client that resumes a stream, within its caller's share of memory."""

    def __init__(self, memory: Shares | None = None, caller: str = "") -> None:
        self._memory = memory or Shares(REPLAY_BYTES)
        self._caller = caller
        self._logs: dict[int, StreamLog] = {}
        self._events: deque[tuple[int, StreamLog, bytes]] = deque()
        self._bytes = 0
        self._numbers = itertools.count(secrets.randbits(40) << 12)  # random: replicas use different ids

    def open(self, stream_id: StreamId) -> StreamLog:
        """The log of a stream. The streams that a client opens with GET, one after the other, share one."""
        log = next((log for log in self._logs.values() if log.stream_id is None), None) if stream_id is None else None
        if log is None:
            number = next(self._numbers)
            log = self._logs[number] = StreamLog(number, stream_id, number)
        return log

    def add(self, log: StreamLog, message: bytes) -> bytes:
        """Encode a message as an event and store it. An empty message makes the event that begins a stream."""
        log.last = next(self._numbers)
        event = (_EVENT if message else _BEGINNING) % (log.key, log.last, message)
        while self._events and (len(self._events) >= MAX_EVENTS or self._bytes + len(event) > MAX_BYTES):
            self._drop_oldest()
        while self._events and not self._memory.has_room(self._caller, len(event)):
            self._drop_oldest()
        if self._memory.take(self._caller, len(event)):
            self._events.append((log.last, log, event))
            self._bytes += len(event)
        else:
            log.lost = log.last
        return event

    def _drop_oldest(self) -> None:
        number, log, event = self._events.popleft()
        log.lost = number
        self._release(len(event))

    def _release(self, size: int) -> None:
        self._bytes -= size
        self._memory.release(self._caller, size)

    def after(self, last_event_id: bytes) -> tuple[StreamLog, list[bytes]] | None:
        """The log of an event's stream, and the later events of it; None if they cannot be sent again."""
        parts = _EVENT_ID.fullmatch(last_event_id)
        log = self._logs.get(int(parts[1])) if parts else None
        if parts is None or log is None or not max(log.key, log.lost) <= (last := int(parts[2])) <= log.last:
            return None
        return log, [event for number, stream, event in self._events if stream is log and number > last]

    def forget_delivered(self, now: float) -> None:
        """Drop the streams that were completely written `REPLAY_SECONDS` ago."""
        old = [log for log in self._logs.values() if log.delivered_at and log.delivered_at <= now - REPLAY_SECONDS]
        for log in old:
            del self._logs[log.key]
        if old:
            self._keep(lambda log: log.key in self._logs)

    def clear(self) -> None:
        """Drop everything."""
        self._logs.clear()
        self._keep(lambda _: False)

    def _keep(self, is_kept: Callable[[StreamLog], bool]) -> None:
        events, self._events = self._events, deque()
        for number, log, event in events:
            if is_kept(log):
                self._events.append((number, log, event))
            else:
                self._release(len(event))


class Stream:
    """The messages of one response, in order, until it is ended.

    With `replay` a client can resume it. Without, a reply that no other message precedes is written as plain JSON.
    """

    def __init__(
        self, request: "Request | None", stream_id: StreamId, replay: Replay | None, log: StreamLog | None = None
    ) -> None:
        """`log`: of a stream that is already in the replay."""
        self.request = request
        self.id = stream_id
        self.begun_at = time.perf_counter()
        self.is_ended = False
        self.reply: bytes | None = None
        self.code: int | None = None
        """The error code of the reply, if it is an error."""
        self.retry_seconds: int | None = None
        """When to send the request again, if it could not be served now."""
        self.span: RequestSpan | None = None
        self.on_end: Callable[[], None] = lambda: None
        """Called when the stream ends, to release what its request holds."""
        self._replay = replay
        self._log = log or (replay.open(stream_id) if replay is not None else None)
        self._events: list[bytes] = []
        """The events that are not written yet."""
        self._has_begun = False
        """Whether a response with events has begun."""
        self._has_messages = False
        """Whether there was a message before the reply."""
        self._is_disconnected = False
        self._response: object = None
        """Identifies the response that writes the stream. When the client resumes, another response replaces it."""
        self._changed = asyncio.Event()

    def put(self, message: bytes, *, is_optional: bool = False) -> None:
        """Add a message; an optional one is dropped if the client does not read."""
        self._has_messages |= bool(message) and message is not self.reply
        if self._replay is not None and self._log is not None:
            event = self._replay.add(self._log, message)
        else:
            event = b"event: message\r\ndata: %b\r\n\r\n" % message
        if self._is_disconnected:
            return  # a client that resumes gets it from the replay
        if is_optional and len(self._events) >= MAX_UNREAD:
            log.debug("a client does not read: a notification was dropped")
            return
        self._events.append(event)
        self._changed.set()

    def finish(self, reply: bytes, code: int | None, retry_seconds: int | None = None) -> None:
        """Add the reply, which is the last message."""
        self.reply, self.code, self.retry_seconds = reply, code, retry_seconds
        if self._replay is not None or self._events or self._has_begun:
            self.put(reply)
        self.end()

    def end(self) -> None:
        """End the stream: no message follows."""
        self.is_ended = True
        self.on_end()
        self._changed.set()

    @property
    def log(self) -> StreamLog | None:
        return self._log

    def resume(self, events: list[bytes]) -> None:
        """Let the next response begin with these events, which the client has not received."""
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
            if self.reply is not None and self.retry_seconds is not None and not self._has_messages:
                retry = (b"retry-after", b"%d" % self.retry_seconds)
                await _write_whole(send, 503, (*_JSON, *headers, retry), self.reply)
                self._mark_delivered()
            elif self.reply is not None and not self._events and self._replay is None:
                await _write_whole(send, STATUS_OF_CODE.get(self.code or 0, 200), _JSON, self.reply)
            elif self.is_ended:
                await _write_whole(send, 200, (*_SSE, *headers), self._take())
                self._mark_delivered()
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
                self._mark_delivered()
                break
            body = body or _PING
        await send({"type": "http.response.body", "body": b""})

    def _mark_delivered(self) -> None:
        if self._log is not None and not self._is_disconnected:
            self._log.delivered_at = time.monotonic()

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
        """Mark this response as disconnected."""
        if self._response is response:
            self._response, self._is_disconnected, self._events = None, True, []
            self._changed.set()


async def _write_whole(send: Send, status: int, headers: Sequence[Header], body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
