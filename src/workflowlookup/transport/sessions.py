"""Clients over HTTP: a `Session` has one client's connection and its open streams, the `SessionTable` all sessions.

Up to 2025-11-25 a client has a session for all its requests; since 2026-07-28 every request is a session of its own,
without an id and without replay. What a message means is decided by the connection alone; here is decided by which
stream each message of the server leaves.
"""

import logging
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from workflowlookup.errors import RequestCancelled
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.jsonrpc import Message, Notification, Request, Response
from workflowlookup.protocol.versions import META_SUBSCRIPTION
from workflowlookup.transport.headers import SESSION
from workflowlookup.transport.limits import Limits
from workflowlookup.transport.metrics import CANCELLED, Metrics, outcome_of
from workflowlookup.transport.streams import Replay, Stream, StreamId

log = logging.getLogger(__name__)

RESUMABLE_SINCE: Final = "2025-11-25"
"""Since then clients understand an event without a message, with which a stream begins that can be resumed."""
SPARE_PART: Final = 1 / 30
"""Of `idle_seconds`: a session that is not used for so long makes room for a new one, where there is none left."""
_FOR_SESSION: Final = frozenset(
    {
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/tasks/status",
    }
)
"""Notifications that belong to no request, even when one led to them."""


class _Meta(msgspec.Struct, rename={"subscription": META_SUBSCRIPTION}.get):
    subscription: Any = None


class _Params(msgspec.Struct, rename={"progress_token": "progressToken", "meta": "_meta"}.get):
    progress_token: Any = None
    meta: _Meta | None = None


class _Outgoing(msgspec.Struct):
    """What says where a message of the server belongs."""

    id: Any = None
    method: str = ""
    params: _Params | None = None


_decode_outgoing: Final = msgspec.json.Decoder(_Outgoing).decode


class Session:
    """One client: its connection and the streams of its open requests."""

    def __init__(
        self, connection: Connection, access: object, metrics: Metrics, version: str = "", session_id: str = ""
    ) -> None:
        """`version`: of MCP, as far as it is agreed; `session_id`: in the handshake era."""
        self.connection = connection
        self.access = access
        """Who may use it."""
        self.id = session_id
        self.version = version
        self.headers = ((SESSION, session_id.encode("latin-1")),) if session_id else ()
        """Of every response."""
        self.key = ""
        """What replicas call the session among themselves."""
        self.shared_at = 0.0
        """When replicas were last told that it is in use."""
        self.in_flight = 0
        self.used_at = time.monotonic()
        self._metrics = metrics
        self._replay = Replay() if session_id else None
        self.streams: dict[StreamId, Stream] = {}
        """Those of the requests that wait for their answers."""
        self._notifications: Stream | None = None
        """The stream that the client opened with GET."""
        self._next_poll = 0.0

    def begin(self, opening: Request) -> None:
        """`initialize` was answered."""
        self.version = str(opening.params.get("protocolVersion")) if isinstance(opening.params, dict) else ""
        self.connection.question_prefix = f"wl-{secrets.token_hex(8)}"  # which no other replica asks by

    def __enter__(self) -> None:
        """While something of it is under way it does not grow old."""
        self.in_flight += 1

    def __exit__(self, *_: object) -> None:
        self.in_flight -= 1
        self.used_at = time.monotonic()

    # ── messages of the client ──────────────────────────────────────────────────────────────────────────────────

    def open_stream(self, request: Request) -> Stream | None:
        """The stream that answers a request; None when one with its id is open."""
        request_id = msgspec.json.decode(request.id)
        if request_id in self.streams:
            return None
        stream = self.streams[request_id] = Stream(request, request_id, self._replay)
        return stream

    def answer(self, stream: Stream, reply: bytes | None) -> None:
        """Put what the connection has to say on its streams, and the reply to a request, if it is there, on its own."""
        if self._replay is not None and self.version >= RESUMABLE_SINCE:
            stream.put(b"")
        if self.connection.outbox:
            self.deliver(stream)
        if reply is not None:
            self._finish(stream, reply)

    def hear(self, message: Notification | Response) -> None:
        """A message of the client that is not answered: a notification, or the answer to a question of ours."""
        cancelled = cancelled_in(message)
        if isinstance(message, Response):
            asker = self.connection.asker_of(msgspec.json.decode(message.id))
            stream = self.streams.get(msgspec.json.decode(asker)) if asker is not None else None
        else:
            stream = self.streams.get(cancelled) if cancelled is not None else None
        reply = self.connection.answer(message)
        self.deliver(stream)
        if stream is not None and reply is not None:
            self._finish(stream, reply)
        elif stream is not None and cancelled is not None and stream.request is not None:
            # Clients take a stream that ends without a reply for a broken one, and resume it.
            self._finish(stream, jsonrpc.failure(stream.request.id, RequestCancelled()))

    def abandon(self) -> None:
        """The client closed its streams: since 2026-07-28 that cancels requests."""
        for stream in [*self.streams.values()]:
            params = {"requestId": stream.id, "reason": "the client closed the stream of its request"}
            self.connection.answer(Notification("notifications/cancelled", params))
            self._finish(stream, jsonrpc.failure(jsonrpc.NULL_ID, RequestCancelled()))

    def is_waited_for(self, message: Message) -> bool:
        """Whether a message is about something that is open here: an answer to a question, the cancelling of a call."""
        if isinstance(message, Response):
            return self.connection.asker_of(msgspec.json.decode(message.id)) is not None
        cancelled = cancelled_in(message)
        return cancelled is None or cancelled in self.streams

    # ── messages of the server ──────────────────────────────────────────────────────────────────────────────────

    def open_notifications(self) -> Stream | None:
        """The stream for what belongs to no request; None when it is open already."""
        if self._notifications is not None:
            return None
        self._notifications = Stream(None, None, self._replay)
        return self._notifications

    def close_notifications(self, stream: Stream) -> None:
        """A response is over that may have been the one with this stream."""
        if self._notifications is stream and not stream.is_read:
            self._notifications = None

    def resume(self, last_event_id: bytes) -> Stream:
        """A stream with what followed an event, and all that is still to come there."""
        found = self._replay.after(last_event_id) if self._replay is not None else None
        stream_id, events = found or (None, [])
        stream = self.streams.get(stream_id)
        if found is not None and stream_id is None:
            stream = self._notifications or self.open_notifications()
        if stream is None:
            stream = Stream(None, None, self._replay)
            stream.end()
        stream.resume(events)
        return stream

    def poll(self, *, is_rung: bool) -> None:
        """Send what is there now for those who wait, when it is time or somebody rang."""
        now = time.monotonic()
        if self.connection.is_watching and (is_rung or now >= self._next_poll):
            self._next_poll = now + self.connection.look_seconds
            self.connection.look()
        self.deliver(None)

    def deliver(self, current: Stream | None) -> None:
        """Put what the connection has to say where it belongs; `current` is the stream that is being answered."""
        outbox = self.connection.outbox
        messages = outbox.copy()
        outbox.clear()
        for message in messages:
            outgoing = _decode_outgoing(message)
            stream = self._stream_of(outgoing, current)
            if not outgoing.method:
                if stream is not None:
                    self._finish(stream, message)
            elif stream is not None:
                stream.put(message, is_optional=outgoing.id is None)
            elif self._notifications is not None:
                self._notifications.put(message, is_optional=True)
            elif self._replay is not None:
                self._replay.add(None, message)

    def _stream_of(self, outgoing: _Outgoing, current: Stream | None) -> Stream | None:
        """The stream of the request that a message is about, if there is one."""
        if not outgoing.method:
            return self.streams.get(outgoing.id)
        if outgoing.id is not None:
            asker = self.connection.asker_of(outgoing.id)
            return self.streams.get(msgspec.json.decode(asker)) if asker is not None else current
        params = outgoing.params or _Params()
        if params.meta is not None and params.meta.subscription is not None:
            return self.streams.get(params.meta.subscription)
        if params.progress_token is not None:
            token = params.progress_token
            return next((stream for stream in self.streams.values() if _token(stream) == token), current)
        return None if outgoing.method in _FOR_SESSION else current

    def _finish(self, stream: Stream, reply: bytes) -> None:
        """Answer a request with the last message of its stream."""
        if self.streams.pop(stream.id, None) is None or stream.request is None:
            return
        outcome = outcome_of(reply)
        self._metrics.count(stream.request.method, outcome, stream.begun_at)
        if stream.span is not None:
            stream.span.end(outcome)
        stream.finish(reply, outcome.code)

    def close(self, *, hands_over: bool) -> None:
        """End what is open; `hands_over`: runs that are waited for go on without it."""
        self.connection.close(hands_over=hands_over)
        if self.connection.outbox:
            self.deliver(None)
        for stream in self.streams.values():
            if stream.span is not None:
                stream.span.end(CANCELLED)
            stream.end()
        self.streams.clear()
        if self._notifications is not None:
            self._notifications.end()


def cancelled_in(message: Message) -> int | str | None:
    """The id of the request that a notification cancels."""
    if not isinstance(message, Notification) or message.method != "notifications/cancelled":
        return None
    cancelled = message.params.get("requestId") if isinstance(message.params, dict) else None
    return cancelled if type(cancelled) in (int, str) else None


def _token(stream: Stream) -> object:
    params = stream.request.params if stream.request is not None else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None


class SessionTable:
    """The sessions of the handshake era that are open at this server, by their ids."""

    def __init__(self, limits: Limits) -> None:
        self.by_id: dict[str, Session] = {}
        self._limits = limits

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self.by_id.values()))

    def of_key(self, key: str) -> list[Session]:
        """The session that replicas call by this key, if it is open here."""
        return [session for session in self.by_id.values() if session.key == key]

    def add(self, session: Session) -> bool:
        """Open a session; False when there are too many."""
        if len(self.by_id) >= self._limits.max_sessions and not self._make_room():
            return False
        self.by_id[session.id] = session
        return True

    def _make_room(self) -> bool:
        """End the session that was not used for longest, if that is long enough: many clients never say goodbye."""
        idle = [session for session in self.by_id.values() if not session.in_flight]
        oldest = min(idle, key=lambda session: session.used_at, default=None)
        if oldest is None or oldest.used_at > time.monotonic() - self._limits.idle_seconds * SPARE_PART:
            return False
        self.end(oldest)
        return True

    def end(self, session: Session) -> None:
        """End a session at this server."""
        self.by_id.pop(session.id, None)
        session.close(hands_over=False)

    def end_idle(self) -> None:
        """End the sessions that nobody has used for too long."""
        oldest = time.monotonic() - self._limits.idle_seconds
        for session in self:
            if not session.in_flight and session.used_at < oldest:
                log.info("a session was not used for %g seconds and is ended", self._limits.idle_seconds)
                self.end(session)
