"""A client for the real server: JSON-RPC over the pipes of a real process, and nothing clever."""

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from support.json_values import Json, JsonObject
from support.processes import end

TIMEOUT = 60.0
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}


def server_environment(home: Path, directory: Path | None) -> dict[str, str]:
    """The environment of a server with this home, without the user's settings; with a directory, only its workflows."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("WORKFLOW", "XDG_"))}
    only = {"WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOW_STORAGE_PATH": str(directory)} if directory else {}
    return clean | {"HOME": str(home)} | only


class Server:
    """The process `workflowlookup serve`, away from the user's own home and settings."""

    def __init__(
        self,
        home: Path,
        *,
        directory: Path | None = None,
        environment: dict[str, str] | None = None,
        program: Sequence[str] = ("-m", "workflowlookup"),
    ) -> None:
        (home / "project" / ".git").mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, *program, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=home / "project",
            env=server_environment(home, directory) | (environment or {}),
        )
        self._ids = itertools.count(1)
        self._unread = b""

    def initialize(self, version: str = "2025-11-25", capabilities: JsonObject | None = None) -> JsonObject:
        about = {"capabilities": capabilities or {}, "clientInfo": {"name": "tests", "version": "1"}}
        params = {"protocolVersion": version, **about}
        reply = self.request("initialize", params)
        self.notify("notifications/initialized")
        return reply

    def request(self, method: str, params: Json = None) -> JsonObject:
        """The whole reply to one request, without `jsonrpc` and `id`, which are checked here."""
        identifier = next(self._ids)
        self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        reply = self.receive()
        assert reply.pop("jsonrpc") == "2.0"
        assert reply.pop("id") == identifier
        result: JsonObject = reply
        return result

    def result(self, method: str, params: Json = None) -> Json:
        reply = self.request(method, params)
        assert "error" not in reply, reply
        return reply["result"]

    def error(self, method: str, params: Json = None) -> JsonObject:
        reply = self.request(method, params)
        assert "error" in reply, reply
        result: JsonObject = reply["error"]
        return result

    def call(self, tool: str, arguments: JsonObject | None = None) -> JsonObject:
        """The result of `tools/call`."""
        result: JsonObject = self.result("tools/call", {"name": tool, "arguments": arguments or {}})
        return result

    def start_run(self, workflow_id: str = "sample-workflow", **arguments: Json) -> Json:
        """The answer of `workflow_start`."""
        return self.result("workflow_start", {"workflowId": workflow_id, **arguments})

    def submit(self, run: JsonObject, step_id: str, output: str = "done", **arguments: Json) -> Json:
        """The answer of `workflow_submit`; `run` is an earlier answer about the run."""
        submission = {"runId": run["runId"], "stepId": step_id, "output": output, **arguments}
        return self.result("workflow_submit", submission)

    def modern(self, method: str, params: JsonObject | None = None) -> JsonObject:
        """The whole reply to a request of the envelope era."""
        return self.request(method, {**(params or {}), "_meta": ENVELOPE})

    def notify(self, method: str, params: Json = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: Json) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self, timeout: float = TIMEOUT) -> Json:
        """The next message; fails when none comes."""
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.process.stdout], [], [], timeout)
            assert ready, f"no answer within {timeout} seconds"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the server closed its output; it logged: {self.log()}"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def is_silent(self) -> bool:
        """Whether nothing comes: asked by sending a ping, whose answer must be the next message."""
        identifier = f"silence-{next(self._ids)}"
        self.send({"jsonrpc": "2.0", "id": identifier, "method": "ping"})
        result: bool = self.receive() == {"jsonrpc": "2.0", "id": identifier, "result": {}}
        return result

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, timeout: float = TIMEOUT) -> int:
        return self.process.wait(timeout)

    def log(self) -> str:
        """Everything on standard error; only once the process is over."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def stop(self) -> None:
        end(self.process)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


Start = Callable[..., Server]
"""The fixture `start`: starts a server, with the options of `conftest.start`."""
