"""The SDK's side of the door: its sessions, and requests in the form in which it takes them."""

import asyncio
import json
from typing import Final

import msgspec
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import MutableHeaders
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from workflowlookup.protocol.jsonrpc import Message, Request
from workflowlookup.transport.link import POST, Link, Post
from workflowlookup.transport.replay import Replay

Http = tuple[Scope, Receive, Send]
Headers = list[tuple[bytes, bytes]]

_SESSION: Final = MCP_SESSION_ID_HEADER.encode()


class SdkSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, each with a memory of its own of what was sent."""

    @property
    def event_store(self) -> EventStore:
        return Replay()

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """There is none for all."""

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
        await self.handle_request(scope, replaying(body, receive), send)
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
    told = {"jsonrpc": "2.0", "id": msgspec.json.decode(message.id), "method": "initialize", "params": params}
    return json.dumps(told).encode()


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
