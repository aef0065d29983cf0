"""The SDK's side of the door: its sessions, and requests in the form in which it takes them."""

import asyncio
import contextvars
import json
from typing import Any, Final

import msgspec
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PARAM_HEADER_PREFIX, MCP_PROTOCOL_VERSION_HEADER, NAME_BEARING_METHODS
from starlette.datastructures import MutableHeaders
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from workflowlookup.protocol.jsonrpc import Message, Request
from workflowlookup.protocol.versions import META_CAPABILITIES, META_VERSION
from workflowlookup.transport.link import POST, Link, Post
from workflowlookup.transport.replay import Replay

Http = tuple[Scope, Receive, Send]
Headers = list[tuple[bytes, bytes]]

_SESSION: Final = MCP_SESSION_ID_HEADER.encode()
_ARGUMENT: Final = MCP_PARAM_HEADER_PREFIX.lower().encode()
_REPLAY: Final[contextvars.ContextVar[Replay]] = contextvars.ContextVar("replay")
"""The memory of the session that is being opened: the SDK asks for one without saying whose."""


class SdkSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, each with the memory of its link of what was sent."""

    @property
    def event_store(self) -> EventStore:
        return _REPLAY.get(None) or Replay()  # what opens no session has no link

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """There is none for all."""

    async def open(self, link: Link, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may open the session of a link."""
        _REPLAY.set(link.replay)
        await self.handle_request(scope, receive, send)

    async def post(self, link: Link, message: Message, body: bytes) -> str:
        """Hand over a message that did not come by the door; the SDK's id of its session, or nothing."""
        headers = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
        if link.inner:
            headers.append((_SESSION, link.inner.encode()))
        found: list[str] = []
        done = asyncio.Event()

        async def receive() -> Event:
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(event: Event) -> None:
            if event["type"] == "http.response.start" and event["status"] < 400:
                found.append(session_in(event) or link.inner)
            elif event["type"] == "http.response.body" and not event.get("more_body", False):
                done.set()

        scope = {**_scope("POST", headers), POST: Post(link, message)}
        await self.open(link, scope, replaying(body, receive), send)
        return found[0] if found else ""

    async def end(self, link: Link) -> None:
        """End a session as its client would."""

        async def receive() -> Event:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Event) -> None:
            """Nobody hears it."""

        await self.handle_request(_scope("DELETE", [(_SESSION, link.inner.encode())]), receive, send)


def _scope(method: str, headers: Headers) -> Scope:
    """A request of our own."""
    headers = [*headers, (b"host", b"localhost")]
    return {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": headers}


def session_in(start: Event) -> str | None:
    """The id of the session that the beginning of a response names."""
    return MutableHeaders(raw=start["headers"]).get(MCP_SESSION_ID_HEADER)


def introduce(message: Request) -> bytes:
    """`initialize` as the SDK takes it: what the client said of itself is the connection's business alone."""
    version = message.params.get("protocolVersion") if isinstance(message.params, dict) else None
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "client", "version": ""}}
    return _told(message, {"params": params})


def outline(message: Request) -> bytes:
    """A request that the connection is at, as the SDK takes it: it keeps the stream, and need not know what for."""
    return _told(message, {})


def outline_once(message: Request, http: Http) -> Http:
    """The same in the envelope era, with what the SDK compares with headers; arguments it need not compare again."""
    scope, receive, send = http
    params = message.params if isinstance(message.params, dict) else {}
    named = NAME_BEARING_METHODS.get(message.method)
    kept = {named: params.get(named)} if named is not None else {}
    version = MutableHeaders(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER)
    headers = [(name, value) for name, value in scope["headers"] if not name.startswith(_ARGUMENT)]
    told = _told(message, {"params": {**kept, "_meta": {META_VERSION: version, META_CAPABILITIES: {}}}})
    return {**scope, "headers": headers}, replaying(told, receive), send


def _told(message: Request, rest: dict[str, Any]) -> bytes:
    told = {"jsonrpc": "2.0", "id": msgspec.json.decode(message.id), "method": message.method}
    return json.dumps(told | rest).encode()


def replaying(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read already, then goes on as before."""
    events: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Event:
        return events.pop() if events else await receive()

    return replay


def between(session: str, inner: str, http: Http) -> Http:
    """A request of a session that the client and the SDK have different ids of."""
    if session == inner:
        return http
    scope, receive, send = http

    async def outward(event: Event) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": _renamed(event["headers"], session)}
        await send(event)

    return {**scope, "headers": _renamed(scope["headers"], inner)}, receive, outward


def _renamed(headers: Headers, session: str) -> Headers:
    return [(name, session.encode() if name.lower() == _SESSION else value) for name, value in headers]
