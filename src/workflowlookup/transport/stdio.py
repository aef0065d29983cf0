"""Standard input and output: lines in, lines out, and nothing else ever on the wire.

One thread, one loop. The real descriptors are taken aside first and 1 is pointed at standard error, so that a stray
print cannot reach the client. Output that the reader does not take yet is kept, and reading goes on, so that two
sides that both write cannot wait for each other for ever; only when a great deal is kept does reading pause. Pipes and
sockets are waited for; files are read straight on. While a call waits for its answer, or the client follows something
that others may change, waiting for input is interrupted by the bell, and now and then, to look; else nothing happens
until there is input. At the end of input calls that wait are given a little time.
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
from workflowlookup.protocol.jsonrpc import Malformed
from workflowlookup.transport.signals import Waker

log = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 16
MOST_KEPT_BYTES: Final = 16 << 20
DRAIN_SECONDS: Final = 1.0
"""How long calls that wait are given once there is no more input. Official clients send SIGTERM after two seconds: what
is cancelled then must have reached the other system by that time.
"""
LAST_WORDS_MS: Final = 5_000
"""How long a reader may stand still, once there is nothing more to read, before what is left is dropped."""

INTERRUPT_SIGNAL: Final = signal.SIGURG
"""Interrupts the main thread while it waits for the client. Without a handler it does nothing."""

GREETING: Final = """\
workflowlookup serves MCP on this terminal: type JSON-RPC messages, one a line, or press Ctrl-D to leave.
It is meant to be started by an MCP client: `workflowlookup install CLIENT` adds it to one, `--help` has more.
"""


def redirect_stdio() -> tuple[int, int]:
    """Take descriptors 0 and 1 aside for the wire and leave harmless ones in their place."""
    null = os.open(os.devnull, os.O_RDWR)
    while null < 3:  # a standard descriptor was closed: what is opened next must not take its place
        null = os.open(os.devnull, os.O_RDWR)
    wire_in, wire_out = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(null, 0)
    os.close(null)
    return wire_in, wire_out


class Interrupted(Exception):
    """A signal came while the main thread waited for the client."""


class Stdio:
    """Carries one connection over a pair of descriptors until the input ends or the client says goodbye."""

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
        self._lines = Lines(max_message_bytes)
        self._waker = waker
        self._drain_seconds = drain_seconds
        self._kept = bytearray()
        self._reader_is_gone = False
        self._next_look = 0.0
        self._must_reload = False
        self._must_stop = False
        self._is_waiting = False
        """Whether the client is waited for, so that a signal may interrupt it."""
        self._is_finishing = False
        self._main_thread = threading.get_ident()
        self.progress = 0
        """Counts messages and writes, for those who watch whether the server is stuck."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when no more input is read."""
        self._news = select.poll()
        self._news.register(self._in, select.POLLIN)
        self._news.register(waker.descriptor, select.POLLIN)

    def run(self) -> int:
        """Serve; the exit code."""
        if os.isatty(self._in):
            announce(GREETING.rstrip("\n"))
        unblocked = _unblock(self._out)
        try:
            with contextlib.suppress(Interrupted):
                self._serve()
            self._finish()
        except Exception:  # broad on purpose: whatever it is, the client is told that this is the end
            log.exception("fatal")
            self._last_words(jsonrpc.failure(jsonrpc.NULL_ID, InternalError()))
            with contextlib.suppress(Exception):
                self._connection.close()
            return 1
        finally:
            if unblocked:
                os.set_blocking(self._out, True)
        return 0

    def reload(self) -> None:
        """Have the settings read again as soon as the message at hand is answered; from any thread."""
        self._must_reload = True
        self._waker.wake()

    def stop(self, _: int = 1) -> None:
        """End as at the end of input; from any thread. To be called repeatedly, because a system call that is just
        being entered misses the signal.
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
        """While this thread waits for the client: a system call that a signal interrupts would else be repeated."""
        self._is_waiting = not self._is_finishing
        try:
            yield
        finally:
            self._is_waiting = False

    def _serve(self) -> None:
        poll = select.poll()
        waits = not stat.S_ISREG(os.fstat(self._in).st_mode)  # reading a file never blocks
        handle = self._connection.handle
        has_replied = is_settled = False
        while not self._connection.is_finished and not self._reader_is_gone and not self._must_stop:
            if self._kept:
                self._write_or_wait(poll, read_too=waits)
                if self._kept and not (waits and _is_ready(self._in)):
                    continue
            if (
                (self._connection.needs_polling or self._must_reload)
                and not self._kept
                and not self._look_until_ready()
            ):
                continue
            data = self._read()
            if self._must_reload:
                self._look()
            for line in self._lines.feed(data):
                reply = self._connection.answer(line) if isinstance(line, Malformed) else handle(line)
                self._send(reply)
                self.progress += 1
                has_replied = has_replied or reply is not None
                while len(self._kept) > MOST_KEPT_BYTES and not self._reader_is_gone and not self._must_stop:
                    self._write_or_wait(poll, read_too=False)
                if self._connection.is_finished or self._reader_is_gone:
                    return
            if not data:
                return
            if has_replied and not is_settled:
                is_settled = True
                self._settle()

    def _settle(self) -> None:
        """The client has its first reply: what goes on behind may begin."""
        try:
            self._connection.start_background()
        except Exception:  # broad on purpose: lookups are answered all the same
            log.exception("what goes on behind could not be started")

    def _look_until_ready(self) -> bool:
        """Look whenever the bell rings or it is time, until there is input or nothing to look for; False when the
        reader does not take the news.
        """
        while not self._kept and not self._reader_is_gone and not self._must_stop:
            left = self._next_look - time.monotonic()
            is_ready = False
            if left > 0 and not self._must_reload:
                ready = self._news.poll(int(left * 1000) + 1)
                is_ready = any(descriptor == self._in for descriptor, _ in ready)
                if len(ready) == is_ready:  # the bell did not ring
                    if is_ready:
                        return True
                    continue
            self._look()
            if is_ready or not self._connection.needs_polling:
                return not self._kept
        return False

    def _look(self) -> None:
        self._waker.clear()
        if self._must_reload:
            self._must_reload = False
            self._connection.refresh()
        self._connection.poll()
        self._send(None)
        self._next_look = time.monotonic() + self._connection.poll_seconds

    def _finish(self) -> None:
        """Give the calls that wait their time, then end what is left."""
        self._is_finishing = True
        self.on_end()
        self.progress += 1
        deadline = time.monotonic() + self._drain_seconds
        rings = select.poll()
        rings.register(self._waker.descriptor, select.POLLIN)
        while self._connection.is_busy and not self._reader_is_gone:
            self._look()
            left = min(deadline, self._next_look) - time.monotonic()
            if left <= 0 and time.monotonic() >= deadline:
                break
            if self._connection.is_busy:
                rings.poll(int(max(left, 0) * 1000) + 1)
        self._connection.close()
        self.progress += 1
        self._send(None)
        self._drain()

    def _read(self) -> bytes:
        """Wait for more input; nothing at its end."""
        while True:
            try:
                self._is_waiting = True
                return os.read(self._in, READ_BYTES)
            except BlockingIOError:  # input and output are one socket, or the client left its end like this
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
        """Write what the server has to say, in order; keep what the reader does not take."""
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
        if self._kept:
            self._kept += data
            return
        written = self._write(data)
        if written < len(data):
            self._kept += data[written:]

    def _write(self, data: bytes | bytearray) -> int:
        try:
            written = os.write(self._out, data)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):
            log.info("the client stopped reading")
            self._reader_is_gone = True
            self._kept.clear()
            return len(data)
        self.progress += 1
        return written

    def _write_or_wait(self, poll: select.poll, *, read_too: bool, timeout: int | None = None) -> bool:
        """Wait until the reader takes more, or there is something to read; False when the time is up."""
        poll.register(self._out, select.POLLOUT)
        if read_too:
            poll.register(self._in, select.POLLIN)
        with self._waiting():
            ready = poll.poll(timeout)
        poll.unregister(self._out)
        if read_too:
            poll.unregister(self._in)
        if any(descriptor == self._out for descriptor, _ in ready):
            del self._kept[: self._write(self._kept)]
        return bool(ready)

    def _drain(self) -> None:
        poll = select.poll()
        while self._kept and not self._reader_is_gone:
            if not self._write_or_wait(poll, read_too=False, timeout=LAST_WORDS_MS):
                log.warning("the client does not read: %d bytes were dropped", len(self._kept))
                return

    def _last_words(self, message: bytes) -> None:
        try:
            self._kept += message + b"\n"
            self._drain()
        except OSError:
            log.info("the client could not be told")


class Lines:
    """Cuts a stream of bytes into lines. Of a line over the limit only the beginning is kept, to find its id."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = b""
        self._too_long: Malformed | None = None
        """The line that is being read is this."""

    def feed(self, data: bytes) -> list[bytes | Malformed]:
        """The lines that are complete now; without data, at the end of the stream, what is left counts as one."""
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
        lines: list[bytes | Malformed] = []
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
    """Whether there is something to read, now or within `timeout` milliseconds; None waits."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout))


def _unblock(descriptor: int) -> bool:
    """Let writing give up instead of waiting, where nobody else shares the descriptor's mode: pipes and sockets."""
    mode = os.fstat(descriptor).st_mode
    if (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and os.get_blocking(descriptor):
        os.set_blocking(descriptor, False)
        return True
    return False
