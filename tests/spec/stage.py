"""A server with other systems around it, all real processes, and a client that records notifications."""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from support.client import Server
from support.json_values import Json, JsonObject
from support.make import settings_file
from upstream.upstreams import HttpUpstream, McpUpstream

DEPLOY = "deploy_a_service"
"""The tool of the workflow that the upstreams list when a test says nothing."""
Upstream = McpUpstream | HttpUpstream


class Listener(Server):
    """Takes down notifications while it waits for replies, and can have several calls open at once."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.noticed: list[JsonObject] = []
        self._replies: dict[Json, JsonObject] = {}
        self._numbers = itertools.count(1_000)

    def begin(self, method: str, params: Json = None) -> int:
        """Sends a request, and tells its id."""
        number = next(self._numbers)
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        return number

    def end(self, number: int, timeout: float = 60.0) -> JsonObject:
        """The whole reply to a request."""
        while number not in self._replies:
            message = self.receive(timeout)
            if "method" in message:
                self.noticed.append(message)
            else:
                self._replies[message.pop("id")] = message
        return self._replies.pop(number)

    def request(self, method: str, params: Json = None) -> JsonObject:
        return self.end(self.begin(method, params))

    def begin_call(self, tool: str, arguments: JsonObject | None = None, **meta: Any) -> int:
        return self.begin(
            "tools/call", {"name": tool, "arguments": arguments or {}, **({"_meta": meta} if meta else {})}
        )

    def tools(self) -> dict[str, JsonObject]:
        return {tool["name"]: tool for tool in self.result("tools/list")["tools"]}

    def tools_when(self, *names: str, gone: tuple[str, ...] = (), timeout: float = 60.0) -> dict[str, JsonObject]:
        """The tools as soon as these are among them, and those are not."""
        end = time.monotonic() + timeout
        while True:
            tools = self.tools()
            if all(name in tools for name in names) and not any(name in tools for name in gone):
                return tools
            assert time.monotonic() < end, f"tools after {timeout} s: {sorted(tools)}"
            time.sleep(0.05)

    def hear(self, method: str) -> JsonObject:
        """The next notification of this kind."""
        while True:
            message = self.receive(60.0)
            self.noticed.append(message)
            if message.get("method") == method:
                return dict(message)

    def leave(self) -> str:
        """Everything that was logged, after an orderly end."""
        self.close_input()
        self.wait()
        return self.log()


def state(reply: JsonObject) -> JsonObject:
    """The structured content of a result that is no refusal."""
    assert not reply.get("result", {"isError": True}).get("isError"), reply
    return dict(reply["result"]["structuredContent"])


def refusal(reply: JsonObject) -> JsonObject:
    """The structured content of a refusal."""
    assert reply.get("result", {}).get("isError"), reply
    return dict(reply["result"]["structuredContent"])


class Stage:
    """A directory with settings, and what is started in it."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home = home
        self._stack = stack
        home.mkdir(exist_ok=True)

    def upstream(self, kind: str, **control: Any) -> Upstream:
        """An upstream that runs: "http", "mcp" (over HTTP) or "stdio"."""
        name = "svc" if kind == "http" else "up"
        made: Upstream = (
            HttpUpstream(self.home / name) if kind == "http" else McpUpstream(self.home / name, http=kind == "mcp")
        )
        if control:
            made.control(**control)
        self._stack.enter_context(made)
        return made

    def configure(self, *upstreams: Upstream, options: JsonObject | None = None, **settings: Any) -> None:
        """Writes the settings file."""
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
        for one in upstreams:
            lines.append(one.toml(**({} if isinstance(one, HttpUpstream) else {"provider": True}), **(options or {})))
        path = settings_file(self.home)
        path.with_suffix(".new").write_text("".join(lines))
        path.with_suffix(".new").replace(path)

    def serve(self, version: str = "2025-11-25", *, log_level: str = "info", **environment: str) -> Listener:
        quiet = {"WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOWLOOKUP_LOG_LEVEL": log_level}
        server = Listener(self.home, environment=quiet | environment)
        self._stack.callback(server.stop)
        server.initialize(version)
        return server


@contextmanager
def staged(home: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(home, stack)
