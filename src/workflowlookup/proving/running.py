"""Runs a command under a supervisor, with bounded output, until it ends, takes too long, or is no longer wanted.

Nothing that the command started survives: `processes.supervisor` ends it all, also if this process is killed.
"""

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.processes import children, supervisor
from workflowlookup.processes.children import MARK, Family

MAX_OUTPUT_BYTES: Final = 64 << 10
"""Limit on what is kept of each stream: one half from its beginning, one from its end."""
PROGRESS_SECONDS: Final = 1.0
_HALF: Final = MAX_OUTPUT_BYTES // 2
_DRAIN_SECONDS: Final = 0.5
_END_SECONDS: Final = supervisor.KILL_SECONDS + supervisor.GIVE_UP_SECONDS + 1.0


class ServerEnds(Exception):
    """This process is about to exit. The proof is taken again by the next one."""


class Stop:
    """Tells the thread that takes a proof that it is no longer wanted."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._is_set = threading.Event()
        self._lock = threading.Lock()
        self._is_closed = False

    def fileno(self) -> int:
        return self._read

    def is_set(self) -> bool:
        return self._is_set.is_set()

    def set(self) -> None:
        """End what the thread does or waits for. Safe to repeat, and after `close`."""
        self._is_set.set()
        with self._lock:
            if not self._is_closed:
                os.write(self._write, b".")

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, for at most this time. Whether it is set."""
        return self._is_set.wait(max(0.0, seconds))

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._read)
                os.close(self._write)


class Captured:
    """The output of a stream: its beginning and its end, and how long it was."""

    def __init__(self) -> None:
        self.size = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = _HALF - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * _HALF:
            del self._tail[:-_HALF]

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return self.size <= MAX_OUTPUT_BYTES

    @property
    def end(self) -> bytes:
        """All of it, or only the end of an output that was cut."""
        return bytes(self._head + self._tail) if self.is_whole else bytes(self._tail[-_HALF:])

    @property
    def data(self) -> bytes:
        """What was kept, with a line that says how much was not."""
        if self.is_whole:
            return self.end
        cut = self.size - len(self._head) - len(self.end)
        return bytes(self._head) + f"\n[… {cut:,} bytes left out …]\n".encode() + self.end


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. Without `exit_code`, it was ended by us, could not be started, or lost its supervisor."""

    exit_code: int | None = None
    """Negative for a signal."""
    timed_out: bool = False
    error: int = 0
    """The `errno` of a command that could not be started."""
    failed_call: str = ""
    """What failed then: `chdir` or `exec`."""
    seconds: float = 0.0
    stdout: Captured
    stderr: Captured
    both: Captured
    """Both streams in the order in which they were read."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What is run."""

    program: str
    """An absolute path."""
    arguments: Sequence[str]
    """The first is the name of the program as it was written."""
    cwd: str
    environment: Mapping[str, str]
    seconds: float
    """The time limit."""


class _Supervisor:
    """A process that waits for a job."""

    def __init__(self) -> None:
        """Raises `OSError`, and `ServerEnds` if nothing may be started any more."""
        mark = secrets.token_hex(16)
        read, write = os.pipe()
        try:
            with children.starting() as may_start:
                _raise_unless(may_start)
                self.process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", "-S", supervisor.__file__, str(write)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(write,),
                    cwd=os.sep,
                    env={**os.environ, MARK: mark},
                    start_new_session=True,
                    bufsize=0,
                )
                children.running[self.process.pid] = mark
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self.report = read
        self._mark = mark

    def send(self, data: bytes) -> None:
        """Send the job. Raises `OSError`."""
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def kill(self, command: int) -> None:
        """Kill it, the command and their descendants; for a supervisor that did not do so itself."""
        Family({self.process.pid: self._mark, **({command: self._mark} if command else {})}).send(signal.SIGKILL)

    def close(self) -> None:
        """End it: without its input, it ends everything."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        os.close(self.report)
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill(0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)
        children.running.pop(self.process.pid, None)


def _raise_unless(may_start: bool) -> None:  # noqa: FBT001 - the name says it
    if not may_start:
        raise ServerEnds


class Supervisors:
    """Supervisors of commands. One is started in advance, so that the next command need not wait for it."""

    def __init__(self, *, starts_in_advance: bool = True) -> None:
        self._starts_in_advance = starts_in_advance
        self._spare: _Supervisor | None = None
        self._lock = threading.Lock()

    def take(self) -> _Supervisor:
        """A supervisor for one command; the caller closes it. Raises `OSError` and `ServerEnds`."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and spare.process.poll() is None:
            return spare
        if spare is not None:
            spare.close()
        return _Supervisor()

    def prepare(self) -> None:
        """Start the next one."""
        with self._lock, contextlib.suppress(OSError, ServerEnds):
            if self._spare is None:
                self._spare = _Supervisor()

    def close(self) -> None:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()

    def run(self, command: Command, stop: Stop, on_progress: Callable[[float], None]) -> Ended:
        """Run a command. Raises `OSError`, `ValueError` for a NUL character in it, and `ServerEnds`."""
        job = supervisor.job(command.cwd, command.program, list(command.arguments), dict(command.environment))
        taken = self.take()
        try:
            running = _Running(taken, job, stop)
            if self._starts_in_advance:
                self.prepare()
            return running.run(command.seconds, on_progress)
        finally:
            taken.close()


class _Running:
    """One command while it runs."""

    def __init__(self, taken: _Supervisor, job: bytes, stop: Stop) -> None:
        self._supervisor = taken
        self._stop = stop
        self._start = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has ended; there will be no report
            taken.send(job)
        self._reports = b""
        self._stdout, self._stderr, self._both = Captured(), Captured(), Captured()

    def run(self, seconds: float, on_progress: Callable[[float], None]) -> Ended:
        process, start = self._supervisor.process, self._start
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        deadline, next_progress, ended, timed_out = start + seconds, start + PROGRESS_SECONDS, 0.0, False
        streams = {process.stdout.fileno(): self._stdout, process.stderr.fileno(): self._stderr}
        with selectors.DefaultSelector() as selector:
            for descriptor in (*streams, self._supervisor.report):
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(self._stop, selectors.EVENT_READ)
            while selector.get_map().keys() & streams.keys() or self._supervisor.report in selector.get_map():
                now = time.monotonic()
                if now >= deadline:
                    if ended or process.stdin.closed:  # a process that cannot be killed, or holds the output
                        break
                    timed_out = True
                    self._end(selector)
                    deadline = now + _END_SECONDS
                for key, _ in selector.select(min(deadline, next_progress) - now):
                    if key.fileobj is self._stop:
                        self._end(selector)
                        deadline = time.monotonic() + _END_SECONDS
                    elif not self._read(key.fd, streams.get(key.fd)):
                        selector.unregister(key.fd)
                        if key.fd == self._supervisor.report:
                            deadline = time.monotonic() + _DRAIN_SECONDS
                            ended = ended or time.monotonic()
                    elif key.fd == self._supervisor.report and self._value("exit", "signal") and not ended:
                        ended = time.monotonic()
                        deadline = ended + _END_SECONDS
                if (now := time.monotonic()) >= next_progress:
                    next_progress = now + PROGRESS_SECONDS
                    on_progress(now - start)
        return self._outcome((ended or time.monotonic()) - start, timed_out=timed_out)

    def _end(self, selector: selectors.BaseSelector) -> None:
        if self._stop in selector.get_map():
            selector.unregister(self._stop)
        assert self._supervisor.process.stdin is not None
        self._supervisor.process.stdin.close()

    def _read(self, descriptor: int, stream: Captured | None) -> bool:
        data = os.read(descriptor, 1 << 16)
        if stream is None:
            self._reports += data
        else:
            stream.add(data)
            self._both.add(data)
        return bool(data)

    def _value(self, *names: str) -> tuple[str, list[str]] | None:
        """The report with one of these names, split into words."""
        for line in self._reports.decode(errors="replace").splitlines():
            name, *words = line.split()
            if name in names:
                return name, words
        return None

    def _outcome(self, seconds: float, *, timed_out: bool) -> Ended:
        if children.is_ending.is_set():
            raise ServerEnds
        started = self._value("pid")
        status = self._value("exit", "signal", "error")
        if status is None and not self._stop.is_set():
            self._supervisor.kill(int(started[1][0]) if started else 0)
        name, words = status or ("", [])
        code = int(words[0]) if words else 0
        return Ended(
            exit_code={"exit": code, "signal": -code}.get(name) if not timed_out else None,
            timed_out=timed_out,
            error=code if name == "error" else 0,
            failed_call=words[1] if name == "error" else "",
            seconds=seconds,
            stdout=self._stdout,
            stderr=self._stderr,
            both=self._both,
        )
