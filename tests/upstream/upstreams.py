"""Upstreams as tests use them: real processes on loopback, each in a directory of its own (see `state.py`).

    upstream = McpUpstream(tmp_path / "up")               # an MCP server over stdio: its client starts it
    upstream = McpUpstream(tmp_path / "up", http=True)    # over HTTP: `start()`, `stop()`, `kill()`, `start()` again
    service = HttpUpstream(tmp_path / "svc")              # likewise

`toml()` is what the settings file says about it; `with upstream:` starts and stops it.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from support.json_values import Json, JsonObject
from support.processes import is_alive
from upstream.state import ONE, UpstreamState

HERE = Path(__file__).parent
__all__ = ["ONE", "HttpUpstream", "McpUpstream", "UpstreamState"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Process(UpstreamState):
    """An upstream that is a process of its own, at a port that stays the same."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, cwd=self.directory)
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.process.poll() is None, "the upstream ended at once"
            assert time.monotonic() < end, "the upstream did not come up"
            time.sleep(0.02)

    def stop(self) -> None:
        """The upstream is gone, without a word; `start()` brings it back at the same port."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """It accepts connections and says nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class McpUpstream(_Process):
    """The MCP server of `mcp_server.py`."""

    def __init__(self, directory: Path, *, http: bool = False, sdk: bool = False, name: str = "up") -> None:
        """Over HTTP it is on the official SDK; over standard input and output, with `sdk`."""
        super().__init__(directory)
        self.http, self.sdk, self.name = http, sdk, name

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def command(self) -> list[str]:
        own = [sys.executable, str(HERE / "mcp_server.py"), str(self.directory)]
        return own + (["--http", str(self.port)] if self.http else ["--sdk"] * self.sdk)

    def __enter__(self) -> Self:
        return super().__enter__() if self.http else self

    def server(self) -> JsonObject:
        """As `mcpServers` has it."""
        program, *args = self.command()
        return {"url": self.url} if self.http else {"command": program, "args": args}

    def toml(self, *, provider: bool = False, **options: Any) -> str:
        """The server; with `provider`, also a provider of its name whose workflows become tools."""
        text = table(f"mcpServers.{self.name}", self.server())
        return (
            text + table(f"providers.{self.name}", {"kind": "mcp", "server": self.name, **options})
            if provider
            else text
        )

    def pids(self) -> list[int]:
        """The processes that were started and still live."""
        return [entry["pid"] for entry in self.seen("began") if is_alive(entry["pid"])]


class HttpUpstream(_Process):
    """The service of `http_service.py`."""

    def __init__(self, directory: Path, *, name: str = "svc") -> None:
        super().__init__(directory)
        self.name = name

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [sys.executable, str(HERE / "http_service.py"), str(self.directory), str(self.port)]

    def toml(self, **options: Any) -> str:
        return table(f"providers.{self.name}", {"kind": "http", "base_url": self.url, **options})


def table(name: str, values: JsonObject) -> str:
    """A table of TOML."""
    return f"[{name}]\n" + "".join(f"{key} = {_inline(value)}\n" for key, value in values.items()) + "\n"


def _inline(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return json.dumps(value)
