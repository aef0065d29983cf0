"""One way to talk to a server, whatever carries the messages: pipes, HTTP, or nothing at all; in both eras of MCP.

A `Talk` sends requests and tells what came back: the reply, what was said before it, and what a person was asked.
"""

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from support.client import ENVELOPE, Server
from support.json_values import JsonObject
from support.web import HEADERS, WebClient, routing
from workflowlookup.protocol.connection import Connection

ASKS: JsonObject = {"elicitation": {}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
MODERN = {**ENVELOPE, CAPABILITIES: ASKS}
SECONDS = 60.0
Message = JsonObject
Person = Callable[[Message], Message]
"""Answers a question."""


class Exchange:
    """What came back for one request."""

    def __init__(self, reply: Message, notifications: list[Message], questions: list[Message]) -> None:
        self.reply, self.notifications, self.questions = reply, notifications, questions

    @property
    def content(self) -> Message:
        """The structured content of a tool's result."""
        result: JsonObject = self.reply["result"]["structuredContent"]
        return result


class Talk:
    """A client. `wire` carries messages; what differs between the eras is here."""

    def __init__(self, wire: "Wire", *, is_modern: bool) -> None:
        self.wire, self.is_modern = wire, is_modern
        self.ids = itertools.count(100)
        self.opening = None if is_modern else self._initialize()

    def _initialize(self) -> Message:
        about = {"capabilities": ASKS, "clientInfo": {"name": "tests", "version": "1"}}
        exchange = self.ask("initialize", {"protocolVersion": "2025-11-25", **about})
        self.wire.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.wire.is_ready()
        return exchange.reply

    def ask(
        self,
        method: str,
        params: Message | None = None,
        *,
        answer: Message | None = None,
        token: str | None = None,
        capabilities: Message | None = None,
    ) -> Exchange:
        """Send a request; `answer` is what the person says when asked, `token` asks to be told how far it is.

        `capabilities`: what the client can do besides, as far as a request can say so.
        """
        questions: list[Message] = []
        notifications: list[Message] = []

        def person(question: Message) -> Message:
            questions.append(question)
            assert answer is not None, question
            return answer

        reply = self.wire.request(self._message(method, params, token, capabilities), notifications, person)
        if self.is_modern and reply.get("result", {}).get("resultType") == "input_required":
            answers = {key: person(question) for key, question in reply["result"]["inputRequests"].items()}
            again = {**(params or {}), "inputResponses": answers}
            reply = self.wire.request(self._message(method, again, token), notifications, person)
        return Exchange(reply, notifications, questions)

    def call(self, tool: str, arguments: Message | None = None, **options: Any) -> Exchange:
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **options)

    def cancelled(self, method: str, params: Message, after: float) -> bool:
        """Send a request and take it back after a while; whether no result came of it."""
        message = self._message(method, params)
        return self.wire.cancel(message, after, says_so=not self.is_modern)

    @contextlib.contextmanager
    def following(self, uri: str) -> Iterator[list[Message]]:
        """Follow a resource; the news of it are in the list afterwards."""
        news: list[Message] = []
        if self.is_modern:
            message = self._message("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
            with self.wire.listening(message, news):
                yield news
            return
        assert self.ask("resources/subscribe", {"uri": uri}).reply == {"result": {}}
        with self.wire.hearing(news):
            yield news
        assert self.ask("resources/unsubscribe", {"uri": uri}).reply == {"result": {}}

    def _message(
        self, method: str, params: Message | None, token: str | None = None, capabilities: Message | None = None
    ) -> Message:
        meta = {**(MODERN if self.is_modern else {}), **({"progressToken": token} if token else {})}
        if capabilities and self.is_modern:
            meta[CAPABILITIES] = {**ASKS, **capabilities}
        params = {**(params or {}), **({"_meta": meta} if meta else {})}
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}


class Wire:
    """Carries messages."""

    def request(self, message: Message, notifications: list[Message], person: Person) -> Message:
        raise NotImplementedError

    def notify(self, message: Message) -> None:
        raise NotImplementedError

    def is_ready(self) -> None:
        """The handshake is over."""

    def cancel(self, message: Message, after: float, *, says_so: bool) -> bool:
        raise NotImplementedError

    @contextlib.contextmanager
    def listening(self, message: Message, news: list[Message]) -> Iterator[None]:
        raise NotImplementedError
        yield

    @contextlib.contextmanager
    def hearing(self, news: list[Message]) -> Iterator[None]:
        raise NotImplementedError
        yield


def cancellation(message: Message) -> Message:
    params = {"requestId": message["id"], "reason": "changed my mind"}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


class LineWire(Wire):
    """Whatever takes and gives messages one by one: `send` and `receive`."""

    news: list[Message] | None = None

    def send(self, message: Message) -> None:
        raise NotImplementedError

    def receive(self, timeout: float = SECONDS) -> Message:
        raise NotImplementedError

    def request(self, message: Message, notifications: list[Message], person: Person) -> Message:
        self.send(message)
        while True:
            item = self.receive()
            if "method" not in item:
                assert item.pop("id") == message["id"]
                assert item.pop("jsonrpc") == "2.0"
                return item
            if "id" in item:
                self.send({"jsonrpc": "2.0", "id": item["id"], "result": person(plain(item))})
            elif self.news is not None and item["method"] == "notifications/resources/updated":
                self.news.append(item)
            else:
                notifications.append(item)

    def notify(self, message: Message) -> None:
        self.send(message)

    def cancel(self, message: Message, after: float, *, says_so: bool) -> bool:
        self.send(message)
        time.sleep(after)
        self.send(cancellation(message))
        meta = {"_meta": message["params"]["_meta"]} if "_meta" in message["params"] else {}
        notifications: list[
            Message
        ] = []  # a reply to what was cancelled would come before this one, and fail in `request`
        self.request({"jsonrpc": "2.0", "id": "then", "method": "workflow_list", "params": meta}, notifications, nobody)
        return True

    @contextlib.contextmanager
    def listening(self, message: Message, news: list[Message]) -> Iterator[None]:
        self.send(message)
        acknowledged = self.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged", acknowledged
        with self.hearing(news):
            yield
        self.notify(cancellation(message))

    @contextlib.contextmanager
    def hearing(self, news: list[Message]) -> Iterator[None]:
        self.news = news
        yield
        while not news:
            news.append(self.receive())
        self.news = None


class PipeWire(LineWire):
    """The real process over pipes."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def send(self, message: Message) -> None:
        self.server.send(message)

    def receive(self, timeout: float = SECONDS) -> Message:
        result: JsonObject = self.server.receive(timeout)
        return result


class MemoryWire(LineWire):
    """A connection in this process."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arrived: list[Message] = []

    def send(self, message: Message) -> None:
        reply = self.connection.handle(json.dumps(message).encode())
        self._take()
        if reply is not None:
            self.arrived.append(json.loads(reply))

    def receive(self, timeout: float = SECONDS) -> Message:
        end = time.monotonic() + timeout
        while not self.arrived:
            assert time.monotonic() < end, "no answer"
            time.sleep(0.01)
            self.connection.poll()
            self._take()
        return self.arrived.pop(0)

    def _take(self) -> None:
        self.arrived += [json.loads(line) for line in self.connection.outbox]
        self.connection.outbox.clear()


class WebWire(Wire):
    """The real process over HTTP."""

    def __init__(self, client: WebClient) -> None:
        self.client = client

    def request(self, message: Message, notifications: list[Message], person: Person) -> Message:
        self.client.ids = itertools.count(message["id"])
        self.client.on_question = lambda question: {"result": person(plain(question))}
        items: list[Message] = []
        reply = self.client.request(message["method"], message["params"], items)
        notifications += [item for item in items if "id" not in item]
        return reply

    def notify(self, message: Message) -> None:
        assert self.client.post(message).status_code == 202

    def is_ready(self) -> None:
        self.client.hearken()

    def cancel(self, message: Message, after: float, *, says_so: bool) -> bool:
        items: list[Message] = []

        def read() -> None:
            with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
                items.extend(self.client.stream(message))

        thread = threading.Thread(target=read, daemon=True)
        if says_so:
            thread.start()
            time.sleep(after)
            self.notify(cancellation(message))
            thread.join(SECONDS)
            return not any("result" in item for item in items)
        with contextlib.suppress(httpx2.TimeoutException), httpx2.Client(timeout=after) as impatient:
            impatient.post(self.client.url, content=json.dumps(message).encode(), headers=HEADERS | routing(message))
            return False
        return True

    @contextlib.contextmanager
    def listening(self, message: Message, news: list[Message]) -> Iterator[None]:
        stream = self.client.stream(message)
        acknowledged = next(stream)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged", acknowledged
        yield
        news.append(next(stream))
        stream.close()  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def hearing(self, news: list[Message]) -> Iterator[None]:
        yield
        news.append(self.client.unasked.get(timeout=SECONDS))


def nobody(question: Message) -> Message:
    """For requests that ask no person."""
    raise AssertionError(question)


def plain(question: Message) -> Message:
    """A question without what only its carrier knows."""
    return {name: value for name, value in question.items() if name not in ("id", "jsonrpc")}
