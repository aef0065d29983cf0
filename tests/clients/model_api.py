"""A model that follows a script, behind the APIs of coding agents: Anthropic's Messages, OpenAI's Responses, Gemini's.

It listens on loopback, answers as a stream of server-sent events, and records every request.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

from support.json_values import JsonObject


class Say(msgspec.Struct, frozen=True):
    """The model writes a text, which ends its turn."""

    text: str
    tokens: int = 100
    """How long the request was, by the count of the API: what makes an agent compact its context."""


class Use(msgspec.Struct, frozen=True):
    """The model uses a tool."""

    tool: str
    arguments: JsonObject
    namespace: str = ""
    """In the Responses API: the name of the server that has the tool."""
    tokens: int = 100


Reply = Say | Use
Turn = Reply | Callable[[str], Reply]
"""A reply, or what makes one from the text of the request."""


class ScriptedModel:
    """Use as a context manager. `requests` are the bodies of the agent's turns, oldest first; requests without tools
    (titles, summaries) are answered with `summary`, and take nothing from the script. A request that comes again,
    because the agent did not get its answer, gets the same answer and counts once."""

    def __init__(self, script: Sequence[Turn], summary: str = "A summary.") -> None:
        self.requests: list[JsonObject] = []
        self._replies: dict[str, Reply] = {}
        self._script = iter(script)
        self._summary = summary
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                model._answer(self, self.path.partition("?")[0], self.rfile.read(size))

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def texts(self) -> list[str]:
        """The requests of the agent's turns as text."""
        return [json.dumps(request, ensure_ascii=False) for request in self.requests]

    def _answer(self, handler: BaseHTTPRequestHandler, path: str, data: bytes) -> None:
        body: dict[str, Any] = json.loads(data)
        with self._lock:
            if path.endswith("/count_tokens"):
                return _send(handler, "application/json", json.dumps({"input_tokens": 100}))
            reply, number = self._reply(body), next(self._numbers)
        if path.endswith("/messages"):
            events = _messages(reply, number)
        elif path.endswith("/responses"):
            events = _responses(reply, number)
        else:
            events = iter([_content(reply)])
        text = "".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            if "type" in event
            else f"data: {json.dumps(event)}\n\n"
            for event in events
        )
        return _send(handler, "text/event-stream", text)

    def _reply(self, body: JsonObject) -> Reply:
        if not body.get("tools"):
            return Say(self._summary)
        text = json.dumps(body, ensure_ascii=False)
        if text not in self._replies:
            self.requests.append(body)
            turn = next(self._script, Say("The script is over."))
            self._replies[text] = turn if isinstance(turn, Say | Use) else turn(text)
        return self._replies[text]


def _send(handler: BaseHTTPRequestHandler, kind: str, text: str) -> None:
    data = text.encode()
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _messages(reply: Reply, number: int) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer of Anthropic's Messages API."""
    usage = {"input_tokens": reply.tokens, "output_tokens": 10}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    if isinstance(reply, Say):
        block: JsonObject = {"type": "text", "text": ""}
        delta: JsonObject = {"type": "text_delta", "text": reply.text}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": reply.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if isinstance(reply, Say) else "tool_use"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _responses(reply: Reply, number: int) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer of OpenAI's Responses API."""
    if isinstance(reply, Say):
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        item: JsonObject = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
    else:
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": reply.tool,
            "arguments": json.dumps(reply.arguments),
        }
        if reply.namespace:
            item = item | {"namespace": reply.namespace}
    usage = {"input_tokens": reply.tokens, "output_tokens": 10, "total_tokens": reply.tokens + 10}
    yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": f"resp_{number}", "output": [], "usage": usage}}


def _content(reply: Reply) -> dict[str, Any]:
    """The only event of a streamed answer of Gemini's API."""
    part = {"text": reply.text} if isinstance(reply, Say) else {"functionCall": _call(reply)}
    usage = {"promptTokenCount": reply.tokens, "candidatesTokenCount": 10, "totalTokenCount": reply.tokens + 10}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


def _call(use: Use) -> JsonObject:
    return {"name": use.tool, "args": use.arguments}
