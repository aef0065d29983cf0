"""A blocking stdio client with a stopwatch: one process, one thread, one request at a time.

Owns the child process, the pipes and the clock. `run.py` says which requests are sent to which server.
"""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from threading import Thread
from time import perf_counter_ns
from types import FrameType
from typing import IO, Any, Final, Self

Request = Callable[[int], bytes]
"""From an id to a line, so that no id is used twice on a connection."""

_NOTIFICATION: Final = b'"method":"notifications/'
_CHUNK: Final = 1 << 16
_PATIENCE: Final = 120
"""Seconds without an answer after which a server counts as broken."""


class BrokenServer(Exception):
    """A contestant died, hung, or answered something other than what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a series of calls went."""

    calls: int
    calls_per_second: float
    p50_us: float
    p99_us: float


def request(method: str, params: Mapping[str, Any]) -> Request:
    """A JSON-RPC request that waits for its id."""
    tail = json.dumps({"method": method, "params": params}, separators=(",", ":"))[1:].encode() + b"\n"
    return lambda number: b'{"jsonrpc":"2.0","id":%d,%b' % (number, tail)


def tool_calls(name: str, variants: Sequence[Mapping[str, Any]]) -> Request:
    """A tool call as MCP clients send it, with the arguments of each variant in turn."""
    calls = [request("tools/call", {"name": name, "arguments": arguments}) for arguments in variants]
    return lambda number: calls[number % len(calls)](number)


def direct_calls(name: str, variants: Sequence[Mapping[str, Any]]) -> Request:
    """The same by the tool's own name, as the tool API has it."""
    calls = [request(name, arguments) for arguments in variants]
    return lambda number: calls[number % len(calls)](number)


INITIALIZE: Final = request(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1.0.0"}},
)
INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


class Peer:
    """A contestant at the other end of two pipes, in an empty home and working directory of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Spawn the contestant and wait for its first answer, to `initialize`; `start_ms` is the time of both."""
        self._command = " ".join(command)
        self._home = tempfile.TemporaryDirectory(prefix="bench-home-")
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._last_id = 0
        self._pending = b""
        home = Path(self._home.name)
        (home / "work").mkdir()
        first = INITIALIZE(self._next_id())
        start = perf_counter_ns()
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=home / "work",
            env={**environment, "HOME": str(home)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        try:
            with self._patience():
                self._write(first)
                self._greeting = self._read_line()
            self.start_ms = (perf_counter_ns() - start) / 1e6
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self) -> None:
        """Check a server's answer to `initialize` and tell it that the handshake is over."""
        if "protocolVersion" not in json.loads(self._greeting).get("result", {}):
            raise BrokenServer(f"{self._command} answered initialize with {self._greeting[:400]!r}")
        self._write(INITIALIZED)

    def ask(self, call: Request) -> tuple[Any, float]:
        """The checked result of one call, and the milliseconds from sending it to holding the answer."""
        number = self._next_id()
        line = call(number)
        with self._patience():
            start = perf_counter_ns()
            self._write(line)
            reply = self._read_line()
            elapsed = (perf_counter_ns() - start) / 1e6
        message = json.loads(reply)
        result = message.get("result")
        if message.get("id") != number or not isinstance(result, dict) or result.get("isError"):
            raise BrokenServer(f"{line[:200]!r} was answered with {reply[:400]!r}")
        return result, elapsed

    def pace(self, call: Request, calls: int, seconds: float) -> Pace:
        """Send `calls` requests one after the other, fewer when `seconds` are over, but 10 at least."""
        lines = [call(self._next_id()) for _ in range(calls)]
        write, read_line, clock = self._write, self._read_line, perf_counter_ns
        took: list[int] = []
        with self._patience():
            begin = clock()
            deadline = begin + int(seconds * 1e9)
            for line in lines:
                start = clock()
                write(line)
                read_line()
                end = clock()
                took.append(end - start)
                if end > deadline and len(took) >= 10:
                    break
        cuts = quantiles(took, n=100, method="inclusive")
        return Pace(
            calls=len(took),
            calls_per_second=len(took) / (end - begin) * 1e9,
            p50_us=cuts[49] / 1e3,
            p99_us=cuts[98] / 1e3,
        )

    def send(self, calls: Sequence[Request]) -> None:
        """Send requests without waiting for the answers."""
        for call in calls:
            self._write(call(self._next_id()))

    def collect(self, count: int) -> None:
        """Wait for so many answers, none of which may be an error."""
        with self._patience():
            for _ in range(count):
                line = self._read_line()
                if b'"isError":true' in line or b'"error":{' in line[:64]:
                    raise BrokenServer(f"{self._command} answered {line[:400]!r}")

    def bounce(self, size: int, times: int) -> float:
        """The middle of the microseconds in which a line of so many bytes comes back from an echo."""
        line = b"x" * (size - 1) + b"\n"
        took = []
        with self._patience():
            for _ in range(times):
                start = perf_counter_ns()
                sender = Thread(target=self._write_all, args=(line,))  # an echo that is full waits for its reader
                sender.start()
                self._read_line()
                took.append((perf_counter_ns() - start) / 1e3)
                sender.join()
        return median(took)

    def resident_mb(self) -> float:
        """Resident memory in MB (10^6 bytes), as the kernel counts it now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(kib) * 1024 / 1e6

    def cpu_ms(self) -> float:
        """Processor time that all threads have used so far, in milliseconds, as finely as the kernel counts it."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the input, wait for the process to leave by itself, and kill it if it does not."""
        process = self._process
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._errors.close()
        self._home.cleanup()

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _write(self, line: bytes) -> None:
        # Requests here are far smaller than a pipe, so that a write is whole and never waits for the reader.
        try:
            os.write(self._stdin, line)
        except BrokenPipeError:
            raise self._dead() from None

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._stdin, data) :]

    def _read_line(self) -> bytes:
        """The next line that is not a notification of the server."""
        while True:
            line = self._pending or self._read_chunk()
            if line.find(b"\n") != len(line) - 1:
                line, self._pending = self._assemble(line)
            else:
                self._pending = b""
            if _NOTIFICATION not in line[:64]:
                return line

    def _assemble(self, chunk: bytes) -> tuple[bytes, bytes]:
        """A whole line out of a long or crowded reply, and what came after it."""
        chunks = [chunk]
        while b"\n" not in chunks[-1]:
            chunks.append(self._read_chunk())
        line, newline, rest = b"".join(chunks).partition(b"\n")
        return line + newline, rest

    def _read_chunk(self) -> bytes:
        chunk = os.read(self._stdout, _CHUNK)
        if not chunk:
            raise self._dead()
        return chunk

    def _dead(self) -> BrokenServer:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._errors.seek(0)
        last_words = self._errors.read().decode(errors="replace")[-2000:]
        return BrokenServer(f"{self._command} ended with {self._process.returncode}\n{last_words}")

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """Turn silence into BrokenServer, at no cost to the calls that are timed."""

        def give_up(_signal: int, _frame: FrameType | None) -> None:
            raise BrokenServer(f"no answer for {_PATIENCE} s from {self._command}")

        before = signal.signal(signal.SIGALRM, give_up)
        signal.alarm(_PATIENCE)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
