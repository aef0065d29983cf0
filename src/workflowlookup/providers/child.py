"""An MCP server that is a process of ours: started in a group of its own, spoken to through pipes, and killed whole.

The SDK has a transport for this too; this one tells the process id, logs what the process says on standard error, and
can kill it while others are at work.

No child survives this process, nor does what a child started: its group is ended, and on Linux also what left the
group but is still below the child, or still has the child's mark in its environment. What left the group, cleared its
environment and has no parent below the child any more is not found. When this process is killed itself (`kill -9`), all
of that is left to the children, whose input then ends.
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
from workflowlookup.providers.secrets import hidden

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

log = logging.getLogger(__name__)

MOST_BYTES: Final = 64 << 20
"""How long a message may be."""
MAX_DIGITS: Final = 400
"""Of an integer; what is longer is read as a float."""
KILL_SECONDS: Final = 1.0
"""How long a process that was asked to end has until it is killed."""
END_SECONDS: Final = 0.2
"""The same when our own process ends and cannot wait."""
MARK: Final = "WORKFLOWLOOKUP_CHILD"
"""The environment variable by which descendants of a child are recognized."""
_LOOK_SECONDS: Final = 0.01
_LAST_LINES: Final = 5
_LAST_SECONDS: Final = 0.3

_running: Final[dict[int, str]] = {}
"""The children that run: the process group, which is the process id, and the mark of each."""
_starting: Final[set["Child"]] = set()
"""Those whose process may run already, in a group that is not known yet."""
_is_ending: Final = threading.Event()
"""Set when our own process ends: nothing more is started."""


class Child:
    """The process of one server; for one connection."""

    def __init__(self, config: ServerConfig, secrets: frozenset[str] = frozenset()) -> None:
        """`secrets`: what is not repeated of what the process says."""
        self._config = config
        self._secrets = secrets
        self._mark = tokens.token_hex(16)
        self._process: asyncio.subprocess.Process | None = None
        self.gone = asyncio.Event()
        """Set when nothing more comes from the process."""
        self._fault = ""
        """Why nothing more is read from it, when that is not its own doing."""
        self._said: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator["TransportStreams"]:
        """Start the process, speak with it, end it. Raises `OSError` when it cannot be started."""
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
                f"{', '.join(changed)} changed since it was trusted. A person can look at it and allow it: "
                "`workflowlookup trust`"
            )
        _starting.add(self)
        try:
            if _is_ending.is_set():
                _starting.discard(self)
                await asyncio.get_running_loop().create_future()  # not refused: that would be a failure of the run
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
                    if len(rest) > MOST_BYTES:
                        self._give_up("it sent a message that does not end")
                        return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            pass  # nobody listens any more
        except RecursionError:  # whose answer it was cannot be told: nobody may wait for it for ever
            self._give_up("it sent a message that is nested too deeply")
        finally:
            self.gone.set()

    async def _receive(self, output: asyncio.StreamReader) -> bytes:
        """What the process wrote; nothing at the end of its output."""
        data = await output.read(1 << 16)
        if not data and _is_ending.is_set():
            await asyncio.get_running_loop().create_future()  # we ended it: that is no failure of the run
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
        """Its input ends; if it does not then end by itself, it is killed, and what it leaves behind is in any case."""
        family = self._family(process)  # while the child is there, and what it started is below it
        await asyncio.wait(tasks[1:2], timeout=KILL_SECONDS)
        await _ended(process, KILL_SECONDS)
        await self._kill(process, family)
        _running.pop(process.pid, None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        transport = getattr(process, "_transport", None)
        if transport is not None:  # else it is complained of when it is collected, if a grandchild holds a pipe
            transport.close()

    async def kill(self) -> None:
        """End the process and all that it started: asked first, then forced."""
        if self._process is not None and self._process.returncode is None:
            await self._kill(self._process, self._family(self._process))

    def _family(self, process: asyncio.subprocess.Process) -> "_Family":
        return _Family({process.pid: self._mark})

    async def _kill(self, process: asyncio.subprocess.Process, family: "_Family") -> None:
        family.send(signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + KILL_SECONDS
        while family.is_alive() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_SECONDS)
        family.send(signal.SIGKILL)
        await _ended(process, KILL_SECONDS)

    async def last_words(self) -> str:
        """How it ended, as far as that is known."""
        if self._fault:
            return self._fault
        if self._process is not None:
            await _ended(self._process, _LAST_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)  # for what it said
        code = self._process.returncode if self._process else None
        said = f", saying: {' / '.join(self._said)}" if self._said else ""
        if code is None:
            return f"it closed its output{said}"
        return f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}{said}"


class _Family:
    """Children and everything that they started."""

    def __init__(self, children: Mapping[int, str]) -> None:
        """`children`: process groups, and the marks of those who may have left them."""
        self._groups = tuple(children)
        self._marks = frozenset(f"{MARK}={mark}".encode() for mark in children.values())
        self._others: frozenset[int] = frozenset()
        self._below: dict[int, bytes] = {}
        """Those below the children, and when each was started: its number may be another's later."""
        self._look_below()

    def _look_below(self) -> None:
        """Add what is below the children now; what was below them stays known when its parent ends."""
        processes = _processes()
        self._below = {
            process: born for process, born in self._below.items() if processes.get(process, (0, b""))[1] == born
        }
        found = {*self._groups, *self._below}
        size = 0
        while size != len(found):
            size = len(found)
            found |= {process for process, (parent, _) in processes.items() if parent in found}
        self._below |= {process: processes[process][1] for process in found - {*self._groups} if process in processes}

    def send(self, number: signal.Signals) -> None:
        """Send a signal to each of them."""
        self._look_below()
        self._others = frozenset(_with_environment(self._marks)) | self._below.keys()
        for group in self._groups:
            with contextlib.suppress(OSError):
                os.killpg(group, number)
        for process in self._others:
            with contextlib.suppress(OSError):
                os.kill(process, number)

    def is_alive(self) -> bool:
        """Whether one of those that got the last signal is still there."""
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
    """By process: its parent, and when it was started, where the system tells (Linux)."""
    found: dict[int, tuple[int, bytes]] = {}
    for name in _process_names():
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            if fields[0] != b"Z":  # which has ended, and waits for its parent
                found[int(name)] = int(fields[1]), fields[19]
    return found


def _process_names() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _with_environment(entries: frozenset[bytes]) -> Iterator[int]:
    """The processes that were started with one of these environment variables, where the system tells (Linux)."""
    for name in _process_names():
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:  # it has ended, or it is somebody else's
            continue
        if not entries.isdisjoint(environment):
            yield int(name)


@atexit.register
def end_all(seconds: float = END_SECONDS) -> None:
    """End all children and what they started: asked first, and killed after this time. Nothing is started any more.

    Not on the thread of the loop, which has to register those that are just being started.
    """
    _is_ending.set()
    deadline = time.monotonic() + KILL_SECONDS
    while _starting and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if not _running:
        return
    family = _Family(dict(_running))
    family.send(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while family.is_alive() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    family.send(signal.SIGKILL)


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the process ends in time. Not `wait`, which waits for the pipes too, and a grandchild may hold them."""
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


def _parsed(line: bytes) -> SessionMessage | Exception:
    """The message of a line. Raises `RecursionError`."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as problem:
        return _mended(line) or problem


def _mended(line: bytes) -> SessionMessage | None:
    """An answer that the SDK cannot read, so that nobody waits for it: without halves of characters, or as an error."""
    try:
        said = json.loads(line.decode(errors="replace"), parse_int=_number)
        if not isinstance(said, dict) or "method" in said or type(said.get("id")) not in (int, str):
            return None
        text = json.dumps(said, ensure_ascii=False).encode(errors="replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except json.JSONDecodeError:
        return None
    except ValueError:
        error = ErrorData(code=PARSE_ERROR, message="its answer cannot be read")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=said["id"], error=error))


def _number(digits: str) -> int | float:
    """Python refuses to read integers of more than 4,300 digits."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)
