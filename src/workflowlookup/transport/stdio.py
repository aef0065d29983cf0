"""MCP on standard input and output: one message a line, and nothing else on the wire.

One thread, one loop. First the descriptors of the wire are duplicated and descriptor 1 is redirected to standard error,
so that a stray print cannot reach the client. Output that the client does not read yet is buffered, and reading goes
on, so that two sides that both write cannot block each other; reading pauses only when the buffer is large. The loop
waits for pipes and sockets, and reads files without waiting. While a call is pending, or the client is notified of
changes, the loop polls the connection from time to time, and when the `Waker` wakes it. At the end of input, pending
calls get some time.
"""

import contextlib
import errno
import logging
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from workflowlookup.errors import InternalError
from workflowlookup.logs import announce
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.jsonrpc import MalformedMessage
from workflowlookup.protocol.memory import MemoryMeter
from workflowlookup.transport.signals import Waker

log = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 16
MAX_UNSENT_BYTES: Final = 16 << 20
DRAIN_SECONDS: Final = 1.0
"""How long pending calls may take after the end of input. Official clients send SIGTERM after two seconds: by then,
what is cancelled must have reached the other system.
"""
FLUSH_MS: Final = 5_000
"""How long a client may read nothing at the end before the remaining output is dropped."""

INTERRUPT_SIGNAL: Final = signal.SIGURG
"""Interrupts the main thread while it waits for the client. Without a handler it is ignored."""

GREETING: Final = """\
workflowlookup serves MCP on this terminal: type JSON-RPC messages, one a line, or press Ctrl-D to leave.
It is meant to be started by an MCP client: `workflowlookup install CLIENT` adds it to one, `--help` has more.
"""


def redirect_stdio() -> tuple[int, int]:
    """Duplicate descriptors 0 and 1 for the wire, and replace them by /dev/null and standard error."""
    null = os.open(os.devnull, os.O_RDWR)
    while null < 3:  # a standard descriptor was closed: nothing that is opened later may get its number
        null = os.open(os.devnull, os.O_RDWR)
    wire_in, wire_out = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(null, 0)
    os.close(null)
    return wire_in, wire_out


class Interrupted(Exception):
    """A signal came while the main thread waited for the client."""


class Stdio:
    """Serves one connection on a pair of descriptors, until the input ends or the client sends `shutdown`."""

    def __init__(
        self,
        connection: Connection,
        wire: tuple[int, int],
        max_message_bytes: int,
        waker: Waker,
        *,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._connection = connection
        self._in, self._out = wire
        self._lines = LineSplitter(max_message_bytes)
        self._memory = MemoryMeter()
        self._waker = waker
        self._drain_seconds = drain_seconds
        self._unsent = bytearray()
        self._is_client_gone = False
        self._next_poll = 0.0
        self._must_reload = False
        self._must_stop = False
        self._is_waiting = False
        """Whether the main thread waits for the client, so that a signal may interrupt it."""
        self._is_finishing = False
        self._main_thread = threading.get_ident()
        self.progress = 0
        """Counts messages and writes; the watchdog uses it to notice that the server is stuck."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when no more input is read."""
        self._input_poll = select.poll()
        self._input_poll.register(self._in, select.POLLIN)
        self._input_poll.register(waker.descriptor, select.POLLIN)

    def run(self) -> int:
        """Serve. Returns the exit code."""
        if os.isatty(self._in):
            announce(GREETING.rstrip("\n"))
        is_nonblocking = _make_nonblocking(self._out)
        try:
            with contextlib.suppress(Interrupted):
                self._serve()
            self._finish()
        except Exception:  # broad on purpose: the client gets an error before the end
            log.exception("fatal")
            self._send_fatal_error(jsonrpc.failure(jsonrpc.NULL_ID, InternalError()))
            with contextlib.suppress(Exception):
                self._connection.close()
            return 1
        finally:
            if is_nonblocking:
                os.set_blocking(self._out, True)
        return 0

    def reload(self) -> None:
        """Read the settings again after the current message. May be called from any thread."""
        self._must_reload = True
        self._waker.wake()

    def stop(self, _: int = 1) -> None:
        """Stop as at the end of input. May be called from any thread.

        Call it repeatedly: a signal that comes just before a system call does not interrupt it.
        """
        self._must_stop = True
        self._waker.wake()
        if self._is_waiting:
            signal.pthread_kill(self._main_thread, INTERRUPT_SIGNAL)

    def interrupt(self, _: int, __: FrameType | None) -> None:
        """The handler of `INTERRUPT_SIGNAL`: stop waiting for the client."""
        if self._is_waiting:
            self._is_waiting = False
            raise Interrupted

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Mark that this thread waits for the client: only then a signal ends the wait (Python would repeat it)."""
        self._is_waiting = not self._is_finishing
        try:
            yield
        finally:
            self._is_waiting = False

    def _serve(self) -> None:
        poll = select.poll()
        waits = not stat.S_ISREG(os.fstat(self._in).st_mode)  # reading a file never blocks
        handle = self._connection.handle
        has_replied = has_background = False
        while not self._connection.is_finished and not self._is_client_gone and not self._must_stop:
            if self._unsent:
                self._write_or_wait(poll, read_too=waits)
                if self._unsent and not (waits and _is_ready(self._in)):
                    continue
            if (
                (self._connection.needs_polling or self._must_reload)
                and not self._unsent
                and not self._poll_until_input()
            ):
                continue
            data = self._read()
            if self._must_reload:
                self._poll()
            for line in self._lines.feed(data):
                started = time.monotonic()
                reply = self._connection.answer(line) if isinstance(line, MalformedMessage) else handle(line)
                uses_memory = self._memory.add_elapsed(time.monotonic() - started)
                self._send(reply)
                self.progress += 1
                has_replied = has_replied or reply is not None
                del line, reply  # their memory is returned, too
                if uses_memory:
                    self._memory.release()
                while len(self._unsent) > MAX_UNSENT_BYTES and not self._is_client_gone and not self._must_stop:
                    self._write_or_wait(poll, read_too=False)
                if self._connection.is_finished or self._is_client_gone:
                    return
            if not data:
                return
            if has_replied and not has_background:
                has_background = True
                self._start_background()

    def _start_background(self) -> None:
        """Start background work, after the client has its first reply."""
        try:
            self._connection.start_background()
        except Exception:  # broad on purpose: requests are answered without it
            log.exception("background work could not be started")

    def _poll_until_input(self) -> bool:
        """Poll when the waker wakes and when it is time, until there is input or no more need to poll.

        Returns False if the client does not read what is sent.
        """
        while not self._unsent and not self._is_client_gone and not self._must_stop:
            remaining = self._next_poll - time.monotonic()
            is_ready = False
            if remaining > 0 and not self._must_reload:
                ready = self._input_poll.poll(int(remaining * 1000) + 1)
                is_ready = any(descriptor == self._in for descriptor, _ in ready)
                if len(ready) == is_ready:  # the waker did not wake
                    if is_ready:
                        return True
                    continue
            self._poll()
            if is_ready or not self._connection.needs_polling:
                return not self._unsent
        return False

    def _poll(self) -> None:
        self._waker.clear()
        if self._must_reload:
            self._must_reload = False
            self._connection.refresh()
        self._connection.poll()
        self._send(None)
        self._next_poll = time.monotonic() + self._connection.poll_seconds

    def _finish(self) -> None:
        """Give pending calls some time, then close the connection."""
        self._is_finishing = True
        self.on_end()
        self.progress += 1
        deadline = time.monotonic() + self._drain_seconds
        waker_poll = select.poll()
        waker_poll.register(self._waker.descriptor, select.POLLIN)
        while self._connection.is_busy and not self._is_client_gone:
            self._poll()
            remaining = min(deadline, self._next_poll) - time.monotonic()
            if remaining <= 0 and time.monotonic() >= deadline:
                break
            if self._connection.is_busy:
                waker_poll.poll(int(max(remaining, 0) * 1000) + 1)
        self._connection.close()
        self.progress += 1
        self._send(None)
        self._flush()

    def _read(self) -> bytes:
        """Wait for input. Returns nothing at the end of input."""
        while True:
            try:
                self._is_waiting = True
                return os.read(self._in, READ_BYTES)
            except BlockingIOError:  # input and output are one socket, or the client made it non-blocking
                _is_ready(self._in, None)
            except ConnectionResetError:
                return b""
            except OSError as problem:
                if problem.errno == errno.EIO:  # the terminal is gone
                    return b""
                raise
            finally:
                self._is_waiting = False

    def _send(self, reply: bytes | None) -> None:
        """Write the outbox and the reply, in this order; what the client does not read yet stays in the buffer."""
        outbox = self._connection.outbox
        if outbox:
            data = b"".join(message + b"\n" for message in outbox)
            outbox.clear()
            if reply is not None:
                data += reply + b"\n"
        elif reply is not None:
            data = reply + b"\n"
        else:
            return
        if self._unsent:
            self._unsent += data
            return
        written = self._write(data)
        if written < len(data):
            self._unsent += data[written:]

    def _write(self, data: bytes | bytearray) -> int:
        try:
            written = os.write(self._out, data)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):
            log.info("the client stopped reading")
            self._is_client_gone = True
            self._unsent.clear()
            return len(data)
        self.progress += 1
        return written

    def _write_or_wait(self, poll: select.poll, *, read_too: bool, timeout: int | None = None) -> bool:
        """Wait until the client reads, or there is input, and write. Returns False at the timeout."""
        poll.register(self._out, select.POLLOUT)
        if read_too:
            poll.register(self._in, select.POLLIN)
        with self._waiting():
            ready = poll.poll(timeout)
        poll.unregister(self._out)
        if read_too:
            poll.unregister(self._in)
        if any(descriptor == self._out for descriptor, _ in ready):
            del self._unsent[: self._write(self._unsent)]
        return bool(ready)

    def _flush(self) -> None:
        poll = select.poll()
        while self._unsent and not self._is_client_gone:
            if not self._write_or_wait(poll, read_too=False, timeout=FLUSH_MS):
                log.warning("the client does not read: %d bytes were dropped", len(self._unsent))
                return

    def _send_fatal_error(self, message: bytes) -> None:
        try:
            self._unsent += message + b"\n"
            self._flush()
        except OSError:
            log.info("the client could not be sent the fatal error")


class LineSplitter:
    """Splits a stream of bytes into lines. A line over the limit becomes a `MalformedMessage` with its id."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = b""
        self._too_long: MalformedMessage | None = None
        """The line that is being read, if it is over the limit."""

    def feed(self, data: bytes) -> list[bytes | MalformedMessage]:
        """The lines that are complete with this data. Empty data is the end of the stream, and ends the last line."""
        if (
            data[:1] == b"{"
            and data.find(b"\n") == len(data) - 1 <= self.limit
            and not self._rest
            and self._too_long is None
        ):
            return [data]  # one whole line, the usual case
        if not data:
            pieces = [self._rest, b""]
        else:
            pieces = (self._rest + data).split(b"\n") if b"\n" in data else [self._rest + data]
        self._rest = pieces.pop()
        lines: list[bytes | MalformedMessage] = []
        for line in pieces:
            if self._too_long is not None:
                lines.append(self._too_long)
                self._too_long = None
            elif len(line) > self.limit:
                lines.append(jsonrpc.too_long(self.limit, line))
            elif line.strip():
                lines.append(line)
        if self._too_long is not None:
            self._rest = b""
        elif len(self._rest) > self.limit:
            self._too_long = jsonrpc.too_long(self.limit, self._rest)
            self._rest = b""
        return lines


def _is_ready(descriptor: int, timeout: int | None = 0) -> bool:
    """Whether there is input, now or within `timeout` milliseconds; None waits for ever."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout))


def _make_nonblocking(descriptor: int) -> bool:
    """Make a pipe or a socket non-blocking for writing. Other files may share their mode with other processes."""
    mode = os.fstat(descriptor).st_mode
    if (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and os.get_blocking(descriptor):
        os.set_blocking(descriptor, False)
        return True
    return False
