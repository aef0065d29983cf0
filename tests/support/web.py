"""The real server over HTTP, and a client for it: plain HTTP, and nothing clever."""

import contextlib
import itertools
import json
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import httpx2

from support.client import ENVELOPE, server_environment
from support.json_values import Json, JsonObject
from support.processes import end

TIMEOUT = 60.0
MODERN = {"mcp-protocol-version": "2026-07-28"}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}


def opening(version: str = "2025-11-25", **params: Json) -> JsonObject:
    """The message that begins a session."""
    params = {"protocolVersion": version, "capabilities": {}} | params
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def modern(method: str, params: JsonObject | None = None, identifier: Json = 1) -> JsonObject:
    """A request of the envelope era."""
    meta = {"_meta": ENVELOPE}
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**(params or {}), **meta}}


class WebServer:
    """The process `workflowlookup serve --http`, away from the user's own home and settings."""

    def __init__(
        self,
        home: Path,
        *flags: str,
        directory: Path | None = None,
        environment: dict[str, str] | None = None,
        program: tuple[str, ...] = ("-m", "workflowlookup", "serve"),
    ) -> None:
        (home / "project" / ".git").mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, *program, "--http", "127.0.0.1:0", *flags],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home / "project",
            env=server_environment(home, directory) | (environment or {}),
        )
        self.logged: list[str] = []
        ports: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read_log, args=(ports,), daemon=True)
        self._reader.start()
        self.url = ports.get(timeout=3 * TIMEOUT)  # many start at once
        assert self.url, f"the server ended at once; it logged: {self.log()}"
        self.base = self.url.removesuffix("/mcp")

    def _read_log(self, ports: "queue.Queue[str]") -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.logged.append(line)
            match = re.search(r"serves MCP at (http\S+)", line)
            if match:
                ports.put(match[1])
        ports.put("")

    def log(self) -> str:
        return "".join(self.logged)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = TIMEOUT) -> int:
        return self.process.wait(timeout)

    def stop(self) -> None:
        end(self.process)
        self._reader.join(TIMEOUT)
        assert self.process.stderr is not None
        self.process.stderr.close()


class WebClient:
    """One client; messages that belong to no request are in `unasked`, once `hearken` was called."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        self.http = httpx2.Client(timeout=TIMEOUT, headers=HEADERS | headers)
        self.session: dict[str, str] = {}
        self.unasked: queue.Queue[JsonObject] = queue.Queue()
        self.on_question: Callable[[JsonObject], JsonObject | None] = lambda _: None
        self.ids = itertools.count(1)

    def initialize(self, version: str = "2025-11-25", capabilities: JsonObject | None = None) -> JsonObject:
        about = {"capabilities": capabilities or {}, "clientInfo": {"name": "tests", "version": "1"}}
        reply = self.request("initialize", {"protocolVersion": version, **about})
        assert "result" in reply, reply
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return reply

    def post(self, message: Json, **headers: str) -> httpx2.Response:
        """One message, whole; the response of HTTP."""
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.http.post(self.url, content=content, headers=self.session | headers)

    def request(self, method: str, params: Json = None, heard: list[JsonObject] | None = None) -> JsonObject:
        """The reply to a request, without `jsonrpc` and `id`; what comes before it goes into `heard`."""
        identifier = next(self.ids)
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params or {}}
        for item in self.stream(message):
            if "method" not in item:
                assert item.pop("jsonrpc") == "2.0"
                assert item.pop("id") == identifier
                return item
            if "id" in item:
                answer = self.on_question(item)
                assert answer is not None, item
                self.post({"jsonrpc": "2.0", "id": item["id"], **answer})
            if heard is not None:
                heard.append(item)
        raise AssertionError("the stream ended without a reply")

    def stream(self, message: JsonObject) -> Iterator[JsonObject]:
        """What the server sends back for a message, as it comes."""
        headers = self.session | routing(message)
        with self.http.stream("POST", self.url, content=json.dumps(message).encode(), headers=headers) as response:
            if message["method"] == "initialize" and "mcp-session-id" in response.headers:
                version = message["params"]["protocolVersion"]
                self.session = {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": version}
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                yield from events(response)
            else:
                yield json.loads(response.read())

    def hearken(self) -> None:
        """Open the stream for messages that belong to no request."""
        opened = threading.Event()

        def listen() -> None:
            gone = contextlib.suppress(httpx2.HTTPError, httpx2.StreamError)
            with gone, self.http.stream("GET", self.url, headers=self.session) as response:
                assert response.status_code == 200, response.status_code
                opened.set()
                for item in events(response):
                    self.unasked.put(item)

        threading.Thread(target=listen, daemon=True).start()
        assert opened.wait(TIMEOUT)

    def close(self) -> None:
        self.http.close()


class Lines(Protocol):
    def iter_lines(self) -> Iterable[str]: ...


def events(response: Lines) -> Iterator[JsonObject]:
    """The messages of a stream of server-sent events."""
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: ":
            yield json.loads(line.removeprefix("data: "))


def routing(message: JsonObject) -> dict[str, str]:
    """The headers that a request of the envelope era repeats itself in."""
    params = message.get("params") or {}
    version = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
    if version is None:
        return {}
    headers = {"mcp-protocol-version": version, "mcp-method": message["method"]}
    named = NAMED.get(message["method"])
    return headers | ({"mcp-name": params[named]} if named in params else {})


Serve = Callable[..., WebServer]
"""A fixture that starts servers, with the arguments of `WebServer`."""
Connect = Callable[..., WebClient]
"""A fixture that makes clients of a server, with the headers of `WebClient`."""
