"""An MCP server as a child process: started in its own process group, connected by pipes, and killed with descendants.

The SDK has a transport for this as well; this one knows the process id, logs standard error, and can kill the process
while others are at work.

No child survives this process, nor does what a child started. Its process group is killed, and on Linux also processes
that left the group but are still descendants, or still have the child's mark in their environment. A process that left
the group, cleared its environment and lost its parent is not found. After a `kill -9` of this process, the children
see the end of their input and must end by themselves.
"""

import asyncio
import atexit
import collections
import contextlib
import json
import logging
import os
import secrets as tokens
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from workflowlookup.providers.config import ServerConfig, changed_files
from workflowlookup.providers.secrets import redact

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 64 << 20
MAX_DIGITS: Final = 400
"""Longer integers are read as floats."""
KILL_SECONDS: Final = 1.0
"""Time between SIGTERM and SIGKILL."""
END_SECONDS: Final = 0.2
"""The same while our own process exits."""
MARK: Final = "WORKFLOWLOOKUP_CHILD"
"""The environment variable by which descendants of a child are recognized."""
_POLL_SECONDS: Final = 0.01
_STDERR_LINES: Final = 5
_EXIT_SECONDS: Final = 0.3

_running: Final[dict[int, str]] = {}
"""Running children: the mark of each by its process id, which is also its process group."""
_starting: Final[set["Child"]] = set()
"""Children whose process may already run, although its id is not known yet."""
_is_ending: Final = threading.Event()
"""Set when our own process exits: nothing more is started."""


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
        _starting.add(self)
        try:
            if _is_ending.is_set():
                _starting.discard(self)
                await (
                    asyncio.get_running_loop().create_future()
                )  # wait instead of failing: a refusal would fail the run
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
            _running[process.pid] = self._mark
        finally:
            _starting.discard(self)
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
        if not data and _is_ending.is_set():
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
        _running.pop(process.pid, None)
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

    def _family(self, process: asyncio.subprocess.Process) -> "_Family":
        return _Family({process.pid: self._mark})

    async def _kill(self, process: asyncio.subprocess.Process, family: "_Family") -> None:
        family.send(signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + KILL_SECONDS
        while family.is_alive() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_POLL_SECONDS)
        family.send(signal.SIGKILL)
        await _ended(process, KILL_SECONDS)

    async def exit_message(self) -> str:
        """How it ended, as far as that is known."""
        if self._fault:
            return self._fault
        if self._process is not None:
            await _ended(self._process, _EXIT_SECONDS)
            await asyncio.sleep(_POLL_SECONDS)  # for the rest of its standard error
        code = self._process.returncode if self._process else None
        stderr = f", saying: {' / '.join(self._stderr)}" if self._stderr else ""
        if code is None:
            return f"it closed its output{stderr}"
        return f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}{stderr}"


class _Family:
    """Children and their descendants."""

    def __init__(self, children: Mapping[int, str]) -> None:
        """`children`: the mark of each by process group."""
        self._groups = tuple(children)
        self._marks = frozenset(f"{MARK}={mark}".encode() for mark in children.values())
        self._others: frozenset[int] = frozenset()
        self._descendants: dict[int, bytes] = {}
        """Descendants by id, with their start times: ids are reused."""
        self._find_descendants()

    def _find_descendants(self) -> None:
        """Add the current descendants; earlier ones stay even if their parent has ended."""
        processes = _processes()
        self._descendants = {
            process: started
            for process, started in self._descendants.items()
            if processes.get(process, (0, b""))[1] == started
        }
        family = {*self._groups, *self._descendants}
        size = 0
        while size != len(family):
            size = len(family)
            family |= {process for process, (parent, _) in processes.items() if parent in family}
        self._descendants |= {
            process: processes[process][1] for process in family - {*self._groups} if process in processes
        }

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of them."""
        self._find_descendants()
        self._others = frozenset(_with_environment(self._marks)) | self._descendants.keys()
        for group in self._groups:
            with contextlib.suppress(OSError):
                os.killpg(group, number)
        for process in self._others:
            with contextlib.suppress(OSError):
                os.kill(process, number)

    def is_alive(self) -> bool:
        """Whether a process that got the last signal still exists."""
        return any(_exists(os.killpg, group) for group in self._groups) or any(
            _exists(os.kill, process) for process in self._others
        )


def _exists(kill: Callable[[int, int], None], identifier: int) -> bool:
    try:
        kill(identifier, 0)
    except OSError:
        return False
    return True


def _processes() -> dict[int, tuple[int, bytes]]:
    """By process: its parent and its start time. Empty on systems without /proc."""
    processes: dict[int, tuple[int, bytes]] = {}
    for name in _process_names():
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            if fields[0] != b"Z":  # not a zombie
                processes[int(name)] = int(fields[1]), fields[19]
    return processes


def _process_names() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _with_environment(entries: frozenset[bytes]) -> Iterator[int]:
    """The processes that were started with one of these environment entries (Linux only)."""
    for name in _process_names():
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        if not entries.isdisjoint(environment):
            yield int(name)


@atexit.register
def end_all(seconds: float = END_SECONDS) -> None:
    """End all children and their descendants: SIGTERM, and SIGKILL after this time. Nothing is started any more.

    Do not call it on the loop's thread, which must register children that are just being started.
    """
    _is_ending.set()
    deadline = time.monotonic() + KILL_SECONDS
    while _starting and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    if not _running:
        return
    family = _Family(dict(_running))
    family.send(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while family.is_alive() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    family.send(signal.SIGKILL)


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the process ends in time. `wait` is no option: it also waits for pipes that a grandchild may hold."""
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
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
