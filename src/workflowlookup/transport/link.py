"""A client over HTTP: one `Connection`, and which of the SDK's streams each of its messages leaves by.

The SDK frames messages and keeps their streams; what a message means is decided by the connection alone. A request that
cannot be answered at once has a task of the SDK's. What it waits for comes into its box: the reply, how far it is, a
question to the person. What belongs to no request leaves by the stream that the client keeps open for it.
"""

import asyncio
import contextlib
import functools
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from workflowlookup.errors import InvalidRequest, StorageError
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.jsonrpc import Message, Notification, Request, Response
from workflowlookup.protocol.versions import META_SUBSCRIPTION
from workflowlookup.transport.metrics import Metrics
from workflowlookup.transport.replay import Replay

if TYPE_CHECKING:
    from mcp_types import ServerNotification

log = logging.getLogger(__name__)

POST: Final = "workflowlookup.post"
"""Where a request's `Post` is, in the scope of its ASGI request."""
MOST_UNREAD: Final = 256
"""How much news is kept for a client that does not read it."""

Context = ServerRequestContext[Any, Any]
Item = Mapping[str, Any]


class _Outgoing(BaseModel):
    """A message of ours, as the SDK takes it."""

    method: str
    params: dict[str, Any] | None = None


class Box:
    """What one request waits for, in its order."""

    def __init__(self, request_id: int | str, token: object) -> None:
        self.id = request_id
        self.token = token
        self._items: asyncio.Queue[Item] = asyncio.Queue()

    def put(self, item: Item) -> None:
        """Keep a message. News that nobody reads is passed over; replies and questions, which are few, never are."""
        if "id" in item or self._items.qsize() < MOST_UNREAD:
            self._items.put_nowait(item)
        else:
            log.debug("a client does not read: %s about its request %r was dropped", item["method"], self.id)

    async def take(self) -> Item:
        return await self._items.get()


def _nothing(_: "Link", __: Request) -> None:
    """Nobody else needs to know."""


class Link:
    """One client: its connection and its open requests. In the envelope era there is one for each request."""

    def __init__(self, connection: Connection, access: object) -> None:
        self.connection = connection
        self.access = access
        """Who may use it."""
        self.opening: bytes | None = None
        """The reply to `initialize`, until it is sent."""
        self.inner = ""
        """The SDK's id of the session; the client's is another one where another server began it."""
        self.key = ""
        """What servers call the session among themselves."""
        self.note: Callable[[Link, Request], None] = _nothing
        """Called with each request of the session that was answered at once, before the answer is sent; may raise
        `StorageError`.
        """
        self.passed = 0
        """How many messages that want no answer were given to the SDK, which hears them a little later."""
        self.reached = 0
        """Up to which of them it has come."""
        self.told_used_at = 0.0
        self.in_flight = 0
        self.used_at = time.monotonic()
        self._boxes: dict[int | str, Box] = {}
        self._asked: set[str] = set()
        self._session: ServerSession | None = None
        self._next_look = 0.0
        self._unread: asyncio.Queue[Item] = asyncio.Queue(MOST_UNREAD)
        self._sender: asyncio.Task[None] | None = None

    @functools.cached_property
    def replay(self) -> Replay:
        """What was sent in the session."""
        return Replay()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """While something of it is under way it does not grow old."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.used_at = time.monotonic()

    def is_to_be_told(self, before: float) -> bool:
        """Whether others should hear that it is in use, when they last heard it before a time."""
        return self.told_used_at < before and (self.in_flight > 0 or self.used_at > self.told_used_at)

    def has_open(self, request_id: int | str) -> bool:
        """Whether a request of this id waits; the SDK tells ids apart by their text."""
        return any(str(open_id) == str(request_id) for open_id in self._boxes)

    def has_asked(self, question_id: object) -> bool:
        """Whether a question of this id waits for its answer."""
        return question_id in self._asked

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, request: Request) -> bytes | None:
        """The reply to a request, when it is there at once and is all that there is to say.

        If not, `answer` goes on with the request, in the task that the SDK gives it.
        """
        reply = self._answer(request)
        if reply is not None and not self.connection.outbox:
            return reply
        request_id = msgspec.json.decode(request.id)
        box = self._boxes[request_id] = Box(request_id, _token(request))
        self.deliver(box)
        if reply is not None:
            box.put(msgspec.json.decode(reply))
        return None

    async def answer(self, context: Context, request: Request) -> dict[str, Any]:
        """The result of a request, as soon as there is one. Raises `MCPError` with what it is refused with."""
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not is_modern:
            self._session = context.session
        if self.opening is not None and request.method == "initialize":
            opening, self.opening = self.opening, None
            return _result(msgspec.json.decode(opening))
        request_id = msgspec.json.decode(request.id)
        if request_id not in self._boxes:
            if is_modern and request.method == "subscriptions/listen":
                self.connection.continues()
            reply = self.begin(request)
            if reply is not None:
                return _result(msgspec.json.decode(reply))
        box = self._boxes[request_id]
        try:
            while "method" in (item := await box.take()):
                if "id" in item:
                    await self._ask(context, box, item)
                else:
                    await _notify(context.session, item, context.request_id)
            return _result(item)
        except asyncio.CancelledError:
            if is_modern:  # closing the stream is how a request is cancelled; earlier versions say so in a message
                self._hear_cancelled(request_id)
            raise
        finally:
            if self._boxes.get(request_id) is box:
                del self._boxes[request_id]

    def _answer(self, request: Request) -> bytes | None:
        reply = self.connection.answer(request)
        try:
            self.note(self, request)
        except StorageError as problem:  # others would not know of it: the client asks again
            return jsonrpc.failure(request.id, problem)
        return reply

    async def _ask(self, context: Context, box: Box, question: Item) -> None:
        """Put a question to the person at the client, and the answer to the connection."""
        asked = f"{question['id']}-{secrets.token_hex(8)}"  # which no other server asks by
        channel = context.session._request_outbound  # noqa: SLF001 - `send_request` gives ids that others give, too
        said: dict[str, Any]
        self._asked.add(asked)
        try:
            answer = await channel.send_raw_request(
                question["method"], question.get("params"), {"request_id": asked, "cancel_on_abandon": True}
            )
            said = {"result": answer}
        except MCPError as refusal:
            said = {"error": {"code": refusal.code, "message": refusal.message}}
        finally:
            self._asked.discard(asked)
        name = msgspec.json.encode(question["id"])
        result, error = (msgspec.json.encode(said[part]) if part in said else b"" for part in ("result", "error"))
        reply = self.connection.answer(Response(name, result, error))
        self.deliver(box)
        if reply is not None:
            box.put(msgspec.json.decode(reply))

    def hear(self, message: Message) -> None:
        """A notification of the client."""
        self.connection.answer(message)
        self.deliver(None)

    def _hear_cancelled(self, request_id: int | str) -> None:
        params = {"requestId": request_id, "reason": "the client closed the stream of its request"}
        self.hear(Notification("notifications/cancelled", params))

    # ── what the server has to say ──────────────────────────────────────────────────────────────────────────────

    def look(self, *, is_rung: bool) -> None:
        """Tell what is there now for those who wait, when it is time or somebody rang."""
        now = time.monotonic()
        if self.connection.is_watching and (is_rung or now >= self._next_look):
            self._next_look = now + self.connection.look_seconds
            self.connection.look()
        self.deliver(None)

    def deliver(self, current: Box | None) -> None:
        """Put what the connection has to say where it belongs; `current` is the request that is being answered."""
        outbox = self.connection.outbox
        if not outbox:
            return
        items = [msgspec.json.decode(message) for message in outbox]
        outbox.clear()
        for item in items:
            box = self._box_of(item, current)
            if box is not None:
                box.put(item)
            elif item.get("method") != "notifications/cancelled":  # the SDK itself takes back what it asked
                self._tell(item)

    def _box_of(self, item: Item, current: Box | None) -> Box | None:
        """The request that a message is about, if there is one."""
        if "method" not in item:
            return self._boxes.get(item["id"])
        params = item.get("params") or {}
        if "id" in item:
            asker = self.connection.asker_of(item["id"])
            return self._boxes.get(msgspec.json.decode(asker)) if asker is not None else current
        subscription = (params.get("_meta") or {}).get(META_SUBSCRIPTION)
        if subscription is not None:
            return self._boxes.get(subscription)
        if "progressToken" in params:
            return next((box for box in self._boxes.values() if box.token == params["progressToken"]), current)
        return None if item["method"] in _FOR_EVERYBODY else current

    def _tell(self, item: Item) -> None:
        """Send what belongs to no request by the stream that the client keeps open for it, if it does."""
        if self._session is None:
            log.debug("nobody to tell: %s", item.get("method"))
            return
        try:
            self._unread.put_nowait(item)
        except asyncio.QueueFull:
            log.warning("a client does not read: %s was dropped", item.get("method"))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send(self._session))

    async def _send(self, session: ServerSession) -> None:
        while True:
            await _notify(session, await self._unread.get(), None)

    def close(self, *, hands_over: bool) -> None:
        """End what is open; `hands_over`: runs that are waited for go on without it."""
        if self._sender is not None:
            self._sender.cancel()
        self._session = None
        self.connection.close(hands_over=hands_over)
        self.deliver(None)


_FOR_EVERYBODY: Final = frozenset(
    {
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/tasks/status",
        "notifications/cancelled",
    }
)
"""What is about no request, even when one led to it."""


class Post(msgspec.Struct, frozen=True):
    """A message that came by HTTP, and the client that it came from."""

    link: Link
    message: Message
    after: int = 0
    """What `passed` was of its link, itself included."""
    came_at: float = msgspec.field(default_factory=time.perf_counter)


class Bridge:
    """The middleware of the SDK's server: hands each message to its client's connection, and does nothing else."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer one message."""
        if ctx.request is None:
            raise RuntimeError("a message that did not come by HTTP")
        post: Post = ctx.request.scope[POST]
        post.link.reached = max(post.link.reached, post.after)
        if ctx.request_id is None:
            post.link.hear(post.message)
            return await call_next(ctx)  # the SDK notes for itself that the client is ready
        if not isinstance(post.message, Request):
            raise MCPError(InvalidRequest.code, InvalidRequest.message)
        with self._metrics.request(post.message.method, post.came_at) as outcome:
            result = await post.link.answer(ctx, post.message)
            outcome.is_refusal = bool(result.get("isError"))
            return result


async def _notify(session: ServerSession, item: Item, related: int | str | None) -> None:
    outgoing = _Outgoing(method=item["method"], params=item.get("params"))
    await session.send_notification(cast("ServerNotification", outgoing), related)


def _result(item: Item) -> dict[str, Any]:
    """The result in a reply; raised when it is a refusal. The SDK knows no result that is null."""
    error = item.get("error")
    if error is not None:
        raise MCPError(error["code"], error["message"], error.get("data"))
    return item["result"] if item["result"] is not None else {}


def _token(request: Request) -> object:
    meta = request.params.get("_meta") if isinstance(request.params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None
