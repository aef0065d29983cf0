"""An MCP server as a child process: started in its own process group, connected by pipes, and killed with descendants.

The SDK has a transport for this as well; this one knows the process id, logs standard error, and can kill the process
while others are at work.

No child survives this process, nor does what a child started (`processes.children`). After a `kill -9` of this process,
the children see the end of their input and must end by themselves.
"""

import asyncio
import collections
import contextlib
import json
import logging
import secrets as tokens
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from workflowlookup.language.text import redact
from workflowlookup.processes import children
from workflowlookup.processes.children import MARK, POLL_SECONDS, Family
from workflowlookup.processes.supervisor import KILL_SECONDS
from workflowlookup.providers.config import ServerConfig, changed_files

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 64 << 20
MAX_DIGITS: Final = 400
"""Longer integers are read as floats."""
_STDERR_LINES: Final = 5
_EXIT_SECONDS: Final = 0.3


class Child:
    """The process of one server, for one session."""

    def __init__(self, config: ServerConfig, secrets: frozenset[str] = frozenset()) -> None:
        """`secrets`: words to hide in what the process prints."""
        self._config = config
        self._secrets = secrets
        self._mark = tokens.token_hex(16)
        self._process: asyncio.subprocess.Process | None = None
        self.gone = asyncio.Event()
        """Set at the end of the process's output."""
        self._fault = ""
        """Why we stopped reading from it, if we did."""
        self._stderr: collections.deque[str] = collections.deque(maxlen=_STDERR_LINES)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator["TransportStreams"]:
        """Start the process, exchange messages with it, end it. Raises `OSError` if it cannot be started."""
        self._process = process = await self._start()
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

    async def _start(self) -> asyncio.subprocess.Process:
        config = self._config
        if changed := await asyncio.to_thread(changed_files, config):
            raise PermissionError(
                f"{', '.join(changed)} changed since it was trusted. A person can review and allow the change: "
                "`workflowlookup trust`"
            )
        with children.starting() as may_start:
            if may_start:
                return await self._start_process()
        never: asyncio.Future[asyncio.subprocess.Process] = asyncio.get_running_loop().create_future()
        return await never  # instead of failing, which would fail the run

    async def _start_process(self) -> asyncio.subprocess.Process:
        config = self._config
        process = await asyncio.create_subprocess_exec(
            config.command,
            *config.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(config.env) | {MARK: self._mark},
            cwd=config.cwd,
            start_new_session=True,
        )
        children.running[process.pid] = self._mark
        return process

    async def _read(
        self, process: asyncio.subprocess.Process, to_session: "anyio.abc.ObjectSendStream[SessionMessage | Exception]"
    ) -> None:
        assert process.stdout is not None
        rest = bytearray()
        try:
            async with to_session:
                while data := await self._receive(process.stdout):
                    *lines, last = data.split(b"\n")
                    for line in lines:
                        await to_session.send(_parsed(bytes(rest) + line))
                        rest.clear()
                    rest += last
                    if len(rest) > MAX_MESSAGE_BYTES:
                        self._give_up("it sent a message that does not end")
                        return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            pass  # the session is closed
        except RecursionError:  # its request id is unknown, so the session ends: nobody may wait for ever
            self._give_up("it sent a message that is nested too deeply")
        finally:
            self.gone.set()

    async def _receive(self, output: asyncio.StreamReader) -> bytes:
        """Output of the process; empty at its end."""
        data = await output.read(1 << 16)
        if not data and children.is_ending.is_set():
            await asyncio.get_running_loop().create_future()  # we ended it; an end of output would fail the run
        return data

    def _give_up(self, fault: str) -> None:
        log.warning("the MCP server '%s' is ended: %s", self._config.name, fault)
        self._fault = fault

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
            pass  # it stopped reading; `_read` notices that it is gone
        with contextlib.suppress(ConnectionError, RuntimeError):
            process.stdin.close()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Log its standard error, and keep the last lines: they may say why it ended."""
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # the line is too long
                continue
            if not line:
                return
            if text := redact(line.decode(errors="replace").strip(), self._secrets):
                self._stderr.append(text)
                log.info("%s says: %s", self._config.name, text)

    async def _end(self, process: asyncio.subprocess.Process, tasks: list["asyncio.Task[None]"]) -> None:
        """Close its input; if it does not exit, kill it. Descendants are killed in any case."""
        family = self._family(process)  # while the child lives, its descendants can be found
        await asyncio.wait(tasks[1:2], timeout=KILL_SECONDS)
        await _ended(process, KILL_SECONDS)
        await self._kill(process, family)
        children.running.pop(process.pid, None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        transport = getattr(process, "_transport", None)
        if transport is not None:  # avoids a ResourceWarning if a grandchild holds a pipe
            transport.close()

    async def kill(self) -> None:
        """End the process and its descendants: SIGTERM, then SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            await self._kill(self._process, self._family(self._process))

    def _family(self, process: asyncio.subprocess.Process) -> Family:
        return Family({process.pid: self._mark})

    async def _kill(self, process: asyncio.subprocess.Process, family: Family) -> None:
        family.send(signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + KILL_SECONDS
        while family.is_alive() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(POLL_SECONDS)
        family.send(signal.SIGKILL)
        await _ended(process, KILL_SECONDS)

    async def exit_message(self) -> str:
        """How it ended, as far as that is known."""
        if self._fault:
            return self._fault
        if self._process is not None:
            await _ended(self._process, _EXIT_SECONDS)
            await asyncio.sleep(POLL_SECONDS)  # for the rest of its standard error
        code = self._process.returncode if self._process else None
        stderr = f", saying: {' / '.join(self._stderr)}" if self._stderr else ""
        if code is None:
            return f"it closed its output{stderr}"
        return f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}{stderr}"


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the process ends in time. `wait` is no option: it also waits for pipes that a grandchild may hold."""
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


def _parsed(line: bytes) -> SessionMessage | Exception:
    """The message of a line. Raises `RecursionError`."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as problem:
        return _repaired(line) or problem


def _repaired(line: bytes) -> SessionMessage | None:
    """A response that the SDK cannot parse, with invalid characters replaced or else as an error, so nobody waits."""
    try:
        message = json.loads(line.decode(errors="replace"), parse_int=_number)
        if not isinstance(message, dict) or "method" in message or type(message.get("id")) not in (int, str):
            return None
        text = json.dumps(message, ensure_ascii=False).encode(errors="replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except json.JSONDecodeError:
        return None
    except ValueError:
        error = ErrorData(code=PARSE_ERROR, message="its answer cannot be read")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message["id"], error=error))


def _number(digits: str) -> int | float:
    """Python refuses to read integers of more than 4,300 digits."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)
