"""Sessions over HTTP: a `Session` has the connection and the open streams of a client, `SessionTable` all sessions.

Up to 2025-11-25 a client has one session for all its requests; since 2026-07-28 every request has its own session,
without an id and without replay. The connection decides what a message means; the session decides on which stream each
message of the server is sent.
"""

import logging
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from workflowlookup.errors import RequestCancelled
from workflowlookup.greenlets import Lock
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.jsonrpc import Message, Notification, Request, Response
from workflowlookup.protocol.versions import META_SUBSCRIPTION
from workflowlookup.shares import Shares
from workflowlookup.transport.http.headers import SESSION
from workflowlookup.transport.http.metrics import CANCELLED, Metrics, outcome_of
from workflowlookup.transport.http.rate_limits import HttpLimits
from workflowlookup.transport.http.streams import Replay, Stream, StreamId

log = logging.getLogger(__name__)

RESUMABLE_SINCE: Final = "2025-11-25"
"""Clients of this and later versions accept an event without data, which begins a stream that can be resumed."""
CHANGES_PAUSE_SECONDS: Final = 0.1
"""The least time between two notifications of changes by others: with hundreds of listeners, sending takes a while."""
EVICTION_SHARE: Final = 1 / 30
"""A caller with its full share of sessions may replace one that was idle for this fraction of `idle_seconds`."""
_SESSION_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/tasks/status",
    }
)
"""Notifications that belong to no request, even when a request caused them."""


class _Meta(msgspec.Struct, rename={"subscription": META_SUBSCRIPTION}.get):
    subscription: Any = None


class _Params(msgspec.Struct, rename={"progress_token": "progressToken", "meta": "_meta"}.get):
    progress_token: Any = None
    meta: _Meta | None = None


class _Outgoing(msgspec.Struct):
    """The parts of a message of the server by which its stream is chosen."""

    id: Any = None
    method: str = ""
    params: _Params | None = None


_decode_outgoing: Final = msgspec.json.Decoder(_Outgoing).decode


class Session:
    """One client: its connection and the streams of its open requests."""

    def __init__(  # noqa: PLR0913 - what identifies a client
        self,
        connection: Connection,
        access: object,
        metrics: Metrics,
        version: str = "",
        session_id: str = "",
        *,
        caller: str = "",
        replay_memory: Shares | None = None,
    ) -> None:
        """`version`: of MCP, empty until it is agreed; `session_id`: empty in the envelope era.

        `caller`: the session counts against its share, and its replay against that of `replay_memory`.
        """
        self.connection = connection
        self.access = access
        """The caller that began the session; no other may use it."""
        self.caller = caller
        self.id = session_id
        self.version = version
        self.headers = ((SESSION, session_id.encode("latin-1")),) if session_id else ()
        """Sent with every response."""
        self.key = ""
        """The hash of the id, by which replicas refer to the session; empty if they do not share it."""
        self.shared_at = 0.0
        """When the use of the session was last stored for other replicas."""
        self.in_flight = 0
        self.used_at = time.monotonic()
        self._metrics = metrics
        self._replay = Replay(replay_memory, caller) if session_id else None
        self.streams: dict[StreamId, Stream] = {}
        """The streams of open requests, by request id."""
        self._notifications: Stream | None = None
        """The stream that the client opened with GET."""
        self._next_poll = 0.0
        self._sent_changes_at = 0.0
        """When the client was last sent changes by others."""
        self.lock = Lock()
        """Held while the connection handles a message: the next message may depend on it."""

    def begin(self, initialize: Request) -> None:
        """Set the version that `initialize` agreed on, and a prefix of question ids that no other replica uses."""
        self.version = str(initialize.params.get("protocolVersion")) if isinstance(initialize.params, dict) else ""
        self.connection.question_prefix = f"wl-{secrets.token_hex(8)}"

    def __enter__(self) -> None:
        """While a request of it is in flight, a session is not idle."""
        self.in_flight += 1

    def __exit__(self, *_: object) -> None:
        self.in_flight -= 1
        self.used_at = time.monotonic()

    # ── messages of the client ──────────────────────────────────────────────────────────────────────────────────

    def open_stream(self, request: Request) -> Stream | None:
        """Open the stream of a request; None if a request with this id is open."""
        request_id = msgspec.json.decode(request.id)
        if request_id in self.streams:
            return None
        stream = self.streams[request_id] = Stream(request, request_id, self._replay)
        return stream

    def answer(self, stream: Stream, reply: bytes | None) -> None:
        """Put the messages in the outbox on their streams, and the reply, unless it comes later, on `stream`."""
        if self._replay is not None and self.version >= RESUMABLE_SINCE:
            stream.put(b"")
        if self.connection.outbox:
            self.deliver(stream)
        if reply is not None:
            self._finish(stream, reply)

    def receive(self, message: Notification | Response) -> None:
        """Handle a message that gets no reply: a notification, or the answer to a question of the server."""
        cancelled = cancelled_in(message)
        if isinstance(message, Response):
            call_id = self.connection.call_id_of_question(msgspec.json.decode(message.id))
            stream = self.streams.get(msgspec.json.decode(call_id)) if call_id is not None else None
        else:
            stream = self.streams.get(cancelled) if cancelled is not None else None
        reply = self.connection.answer(message)
        self.deliver(stream)
        if stream is not None and reply is not None:
            self._finish(stream, reply)
        elif stream is not None and cancelled is not None and stream.request is not None:
            # Clients take a stream that ends without a reply for broken, and would resume it.
            self._finish(stream, jsonrpc.failure(stream.request.id, RequestCancelled()))

    def abandon(self) -> None:
        """Cancel all open requests: since 2026-07-28 a client cancels a request by closing its stream."""
        for stream in [*self.streams.values()]:
            params = {"requestId": stream.id, "reason": "the client closed the stream of its request"}
            self.connection.answer(Notification("notifications/cancelled", params))
            self._finish(stream, jsonrpc.failure(jsonrpc.NULL_ID, RequestCancelled()))

    def expects(self, message: Message) -> bool:
        """False for the answer to a question, or the cancellation of a call, that is not open here."""
        if isinstance(message, Response):
            return self.connection.call_id_of_question(msgspec.json.decode(message.id)) is not None
        cancelled = cancelled_in(message)
        return cancelled is None or cancelled in self.streams

    # ── messages of the server ──────────────────────────────────────────────────────────────────────────────────

    def open_notifications(self) -> Stream | None:
        """Open the stream for notifications that belong to no request; None if it is open already."""
        if self._notifications is not None:
            return None
        self._notifications = Stream(None, None, self._replay)
        return self._notifications

    def close_notifications(self, stream: Stream) -> None:
        """Remove the stream of notifications if it is this one and no response writes it any more."""
        if self._notifications is stream and not stream.is_read:
            self._notifications = None

    def resume(self, last_event_id: bytes) -> Stream | None:
        """The stream of an event, beginning with the next event; None if that cannot be sent again."""
        replayed = self._replay.after(last_event_id) if self._replay is not None else None
        if replayed is None:
            return None
        log, events = replayed
        stream = self.streams.get(log.stream_id)
        if log.stream_id is None:
            stream = self._notifications or self.open_notifications()
        if stream is None or stream.log is not log:
            stream = Stream(None, None, self._replay, log)
            stream.end()
        stream.resume(events)
        return stream

    def forget_delivered(self) -> None:
        """Drop from the replay what the client has received."""
        if self._replay is not None:
            self._replay.forget_delivered(time.monotonic())

    def must_poll(self, *, is_woken: bool) -> bool:
        """Whether the connection needs polling, and it is time: from time to time, or when the waker woke.

        If the waker wakes often, only sessions with pending calls are polled each time.
        """
        if not self.connection.needs_polling:
            return False
        now = time.monotonic()
        return now >= self._next_poll or (is_woken and (self.connection.is_busy or self._may_send_changes(now)))

    def poll(self) -> None:
        """Poll the connection, and send what is ready."""
        self._sent_changes_at = time.monotonic()
        self._next_poll = self._sent_changes_at + self.connection.poll_seconds
        self.connection.poll()
        self.deliver(None)

    def send_changes(self) -> None:
        """Send the changes by others, unless some were sent a moment ago; those are then sent together."""
        now = time.monotonic()
        if self.connection.outbox and self._may_send_changes(now):
            self._sent_changes_at = now
            self.deliver(None)

    def _may_send_changes(self, now: float) -> bool:
        return now >= self._sent_changes_at + CHANGES_PAUSE_SECONDS

    def deliver(self, current: Stream | None) -> None:
        """Put each message of the outbox on its stream; `current` is the stream of the request being answered."""
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
                self._replay.add(self._replay.open(None), message)

    def _stream_of(self, outgoing: _Outgoing, current: Stream | None) -> Stream | None:
        """The stream of the request that a message is about; None if it is about none."""
        if not outgoing.method:
            return self.streams.get(outgoing.id)
        if outgoing.id is not None:
            call_id = self.connection.call_id_of_question(outgoing.id)
            return self.streams.get(msgspec.json.decode(call_id)) if call_id is not None else current
        params = outgoing.params or _Params()
        if params.meta is not None and params.meta.subscription is not None:
            return self.streams.get(params.meta.subscription)
        if params.progress_token is not None:
            token = params.progress_token
            return next((stream for stream in self.streams.values() if _progress_token(stream) == token), current)
        return None if outgoing.method in _SESSION_NOTIFICATIONS else current

    def _finish(self, stream: Stream, reply: bytes) -> None:
        """Send the reply to a request, which is the last message of its stream."""
        if self.streams.pop(stream.id, None) is None or stream.request is None:
            return
        outcome = outcome_of(reply)
        self._metrics.count(stream.request.method, outcome, stream.begun_at)
        if stream.span is not None:
            stream.span.end(outcome)
        stream.finish(reply, outcome.code, outcome.retry_seconds)

    def close(self, *, hands_over: bool) -> None:
        """Close the connection and all streams; `hands_over`: runs that the client waits for go on."""
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
        if self._replay is not None:
            self._replay.clear()


def cancelled_in(message: Message) -> int | str | None:
    """The id of the request that a notification cancels; None for any other message."""
    if not isinstance(message, Notification) or message.method != "notifications/cancelled":
        return None
    cancelled = message.params.get("requestId") if isinstance(message.params, dict) else None
    return cancelled if type(cancelled) in (int, str) else None


def _progress_token(stream: Stream) -> object:
    params = stream.request.params if stream.request is not None else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None


class SessionTable:
    """The sessions of the handshake era that are open at this server, by their ids."""

    def __init__(self, limits: HttpLimits) -> None:
        self.by_id: dict[str, Session] = {}
        self.shares = Shares(limits.max_sessions)
        self._limits = limits

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self.by_id.values()))

    def with_key(self, key: str) -> list[Session]:
        """The session with this key, if it is open here; at most one."""
        return [session for session in self.by_id.values() if session.key == key]

    def add(self, session: Session) -> bool:
        """Add a session; False if its caller, or the server, has too many."""
        if not self.shares.has_room(session.caller):
            oldest = self._replaceable(session.caller)
            if oldest is not None:
                self.end(oldest)
        if not self.shares.take(session.caller):
            return False
        self.by_id[session.id] = session
        return True

    def _replaceable(self, caller: str) -> Session | None:
        """The session to end to make room for a new one of this caller; None if there is none.

        Many clients never end their sessions. A caller with its full share replaces its own session that has been idle
        longest, if that is long enough. If the server is full, the caller with the most sessions loses one, if it has
        more than this caller would have.
        """
        owner, min_idle = caller, self._limits.idle_seconds * EVICTION_SHARE
        if not self.shares.is_over(caller):
            owner = max({session.caller for session in self}, key=self.shares.amount_of, default=caller)
            if self.shares.amount_of(owner) > self.shares.amount_of(caller) + 1:
                min_idle = 0.0
        idle = [session for session in self if session.caller == owner and not session.in_flight]
        oldest = min(idle, key=lambda session: session.used_at, default=None)
        return oldest if oldest is not None and oldest.used_at <= time.monotonic() - min_idle else None

    def end(self, session: Session) -> None:
        """End a session at this server."""
        if self.by_id.pop(session.id, None) is not None:
            self.shares.release(session.caller)
        session.close(hands_over=False)

    def end_idle(self) -> None:
        """End the sessions that were idle for too long, and drop delivered events of the others."""
        oldest = time.monotonic() - self._limits.idle_seconds
        for session in self:
            session.forget_delivered()
            if not session.in_flight and session.used_at < oldest:
                log.info("a session was idle for %g seconds and is ended", self._limits.idle_seconds)
                self.end(session)
