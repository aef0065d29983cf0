"""An MCP server that is a process of ours: started in a group of its own, spoken to through pipes, and killed whole.

The SDK has a transport for this too; this one tells the process id, logs what the process says on standard error, and
can kill it while others are at work.
"""

import asyncio
import collections
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from workflowlookup.providers.config import ServerConfig, hidden

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

log = logging.getLogger(__name__)

MOST_BYTES: Final = 64 << 20
"""How long a message may be."""
KILL_SECONDS: Final = 1.0
"""How long a process that was asked to end has until it is killed."""
_LOOK_SECONDS: Final = 0.01
_LAST_LINES: Final = 5
_LAST_SECONDS: Final = 0.3


class Child:
    """The process of one server; for one connection."""

    def __init__(self, config: ServerConfig, secrets: frozenset[str] = frozenset()) -> None:
        """`secrets`: what is not repeated of what the process says."""
        self._config = config
        self._secrets = secrets
        self._process: asyncio.subprocess.Process | None = None
        self.gone = asyncio.Event()
        """Set when nothing more comes from the process."""
        self._said: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator["TransportStreams"]:
        """Start the process, speak with it, end it. Raises `OSError` when it cannot be started."""
        config = self._config
        self._process = process = await asyncio.create_subprocess_exec(
            config.command,
            *config.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(config.env),
            cwd=config.cwd,
            start_new_session=True,
        )
        to_session, from_child = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_child, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._read(process, to_session)),
            asyncio.create_task(self._write(process, from_session)),
            asyncio.create_task(self._listen(process)),
        ]
        try:
            yield from_child, to_child
        finally:
            from_child.close()
            to_child.close()
            await asyncio.shield(self._end(process, tasks))

    async def _read(
        self, process: asyncio.subprocess.Process, to_session: "anyio.abc.ObjectSendStream[SessionMessage | Exception]"
    ) -> None:
        assert process.stdout is not None
        rest = bytearray()
        try:
            async with to_session:
                while data := await process.stdout.read(1 << 16):
                    *lines, last = data.split(b"\n")
                    for line in lines:
                        await to_session.send(_parsed(bytes(rest) + line))
                        rest.clear()
                    rest += last
                    if len(rest) > MOST_BYTES:
                        log.warning("the MCP server '%s' sends a message that does not end", self._config.name)
                        return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            pass  # nobody listens any more
        finally:
            self.gone.set()

    async def _write(
        self, process: asyncio.subprocess.Process, from_session: "anyio.abc.ObjectReceiveStream[SessionMessage]"
    ) -> None:
        assert process.stdin is not None
        try:
            async with from_session:
                async for item in from_session:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()
        except (ConnectionError, RuntimeError):
            pass  # it reads no more; that it is gone is seen where it is read
        with contextlib.suppress(ConnectionError, RuntimeError):
            process.stdin.close()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Log what it says on standard error, and keep the last of it: it may be why it ended."""
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # longer than anybody reads
                continue
            if not line:
                return
            if text := hidden(line.decode(errors="replace").strip(), self._secrets):
                self._said.append(text)
                log.info("%s says: %s", self._config.name, text)

    async def _end(self, process: asyncio.subprocess.Process, tasks: list["asyncio.Task[None]"]) -> None:
        """Its input ends; if it does not then end by itself, it is killed."""
        await asyncio.wait(tasks[1:2], timeout=KILL_SECONDS)
        if not await _ended(process, KILL_SECONDS):
            await self.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        transport = getattr(process, "_transport", None)
        if transport is not None:  # else it is complained of when it is collected, if a grandchild holds a pipe
            transport.close()

    async def kill(self) -> None:
        """End the process and all that it started: asked first, then forced."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        group = process.pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGTERM)
            deadline = asyncio.get_running_loop().time() + KILL_SECONDS
            while asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(_LOOK_SECONDS)
                os.killpg(group, 0)
            os.killpg(group, signal.SIGKILL)
        await _ended(process, KILL_SECONDS)

    async def last_words(self) -> str:
        """How it ended, as far as that is known."""
        if self._process is not None:
            await _ended(self._process, _LAST_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)  # for what it said
        code = self._process.returncode if self._process else None
        said = f", saying: {' / '.join(self._said)}" if self._said else ""
        if code is None:
            return f"it closed its output{said}"
        return f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}{said}"


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the process ends in time. Not `wait`, which waits for the pipes too, and a grandchild may hold them."""
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as problem:
        return problem
