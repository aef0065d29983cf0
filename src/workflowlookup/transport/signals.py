"""Signals, how the process ends, and how other threads wake the one that waits for input.

The process ends after SIGTERM or SIGINT, or at the end of input, and within a time limit in every state. At first,
while there is nothing to close, a signal ends it at once (`end_when_signalled`). Then a server has a `Watchdog`; a
command without one calls `raise_when_signalled`, so that it can end what it started. This also works for process 1 of
a container, for which the kernel ignores signals without a handler.
"""

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

log = logging.getLogger(__name__)

END_SECONDS: Final = 0.6
"""Time to close everything once the drain is over. Official clients kill a server two seconds after SIGTERM; with the
default drain of one second, this leaves time to end child processes.
"""
STALL_SECONDS: Final = 5.0
"""After the end of input, a server that makes no progress may take this long, plus the time that a signal allows."""
_REPEAT_SECONDS: Final = 0.05
_CHECK_SECONDS: Final = 0.5
READ_BYTES: Final = 64
_END_OF_INPUT: Final = 0
"""Written to the signal pipe at the end of input; no signal has this number."""


class Terminated(BaseException):
    """SIGTERM came, in a process that needs no watchdog."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def end_when_signalled() -> None:
    """Make SIGTERM and SIGINT end the process at once and silently. A signal that is ignored stays ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def raise_when_signalled() -> None:
    """From now on, where `end_when_signalled` was called, raise `Terminated` and `KeyboardInterrupt` instead.

    Both must be called on the main thread, on which the exceptions are raised.
    """
    for number, handler in ((signal.SIGTERM, _terminate), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is _end:
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    end_by(number)


def _terminate(number: int, _: FrameType | None) -> None:
    raise Terminated(number)


def end_by(number: int) -> NoReturn:
    """End every child process, and then this one by a signal. Must be called on the main thread."""
    signal.signal(number, _ignore)  # not SIG_IGN, which a process that is just being started would inherit
    _end_children()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)  # process 1 of a container is not ended by the default action


def _end_children() -> None:
    if children := sys.modules.get("workflowlookup.processes.children"):  # else none was started
        children.end_all()


def _ignore(_: int, __: FrameType | None) -> None:
    """The handler of a signal that the watchdog reads from the pipe."""


def _nothing(_: int = 0) -> None:
    """The callback until a transport sets its own."""


class Watchdog:
    """Passes signals on to the transport, and ends the process if the transport does not end it in time.

    It has a thread of its own, because the others may be waiting for a database, a lock or the reader of the output.
    After the end of input the process may go on while it makes progress, such as answering what was sent before.
    """

    def __init__(
        self,
        seconds: float,
        *,
        stop: Callable[[int], None] = _nothing,
        reload: Callable[[], None] = _nothing,
        progress: Callable[[], int] = lambda: 0,
        input_descriptor: int | None = None,
    ) -> None:
        """The process has `seconds` after the first signal, and `END_SECONDS` after the second one.

        The callbacks are called on the watchdog's thread.
        `stop` asks the server to finish. It gets the number of signals so far, and is called repeatedly until the
        process has ended. `reload` is called after SIGHUP. `progress` returns a number that changes with any progress.
        """
        self.stop = stop
        self.reload = reload
        self._progress = progress
        self._seconds = seconds
        self._input = input_descriptor
        self._signals: list[int] = []
        """The SIGTERM and SIGINT signals received so far."""
        self._is_input_over = False
        self._deadline = float("inf")
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    def start(self) -> None:
        """Handle signals from now on. Must be called on the main thread. A signal that is ignored stays ignored."""
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _ignore)
        signal.signal(signal.SIGHUP, _ignore)
        threading.Thread(target=self._watch, name="workflowlookup-watchdog", daemon=True).start()

    def end_input(self) -> None:
        """Report the end of input: from now on a server that makes no progress is ended."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writing, bytes([_END_OF_INPUT]))

    def finish(self) -> None:
        """End the process by the first signal received, if any. Must be called on the main thread."""
        if self._signals:
            end_by(self._signals[0])

    # ── on the thread ───────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        if self._input is not None:
            poll.register(self._input, getattr(select, "POLLRDHUP", 0))  # POLLHUP of a pipe is always reported
        done = self._progress()
        while time.monotonic() < self._deadline:
            for descriptor, _ in poll.poll(self._milliseconds()):
                if descriptor == self._reading:
                    for number in os.read(self._reading, 64):
                        self._note(number)
                else:
                    poll.unregister(descriptor)
                    self._note(_END_OF_INPUT)
            if self._signals:
                self.stop(len(self._signals))
            elif self._is_input_over and done != (done := self._progress()):
                self._deadline = time.monotonic() + self._seconds + STALL_SECONDS
        self._cut_short()

    def _milliseconds(self) -> float | None:
        """How long to wait for the next signal."""
        if self._signals:
            return _REPEAT_SECONDS * 1000
        return _CHECK_SECONDS * 1000 if self._is_input_over else None

    def _note(self, number: int) -> None:
        now = time.monotonic()
        if number in (signal.SIGTERM, signal.SIGINT):
            self._signals.append(number)
            seconds = self._seconds if len(self._signals) == 1 else END_SECONDS
            self._deadline = min(self._deadline, now + seconds)
        elif number == signal.SIGHUP:
            self.reload()
        elif number == _END_OF_INPUT and not self._is_input_over:
            self._is_input_over = True
            self._deadline = min(self._deadline, now + self._seconds + STALL_SECONDS)

    def _cut_short(self) -> NoReturn:
        log.warning("stopping took too long, so the process is ended now; its runs go on with the next server")
        _end_children()
        os._exit(128 + self._signals[0] if self._signals else 0)


class Waker:
    """Wakes the thread that waits for input: a pipe that it polls together with the input.

    Several calls of `wake` before the next `clear` wake it once.
    """

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._writing, False)
        self._is_set = False

    def wake(self) -> None:
        """Make `descriptor` readable. May be called from any thread; never blocks."""
        if not self._is_set:
            self._is_set = True
            with contextlib.suppress(OSError):  # full: it is readable already; closed: nobody waits any more
                os.write(self._writing, b"!")

    def clear(self) -> None:
        """Make `descriptor` unreadable. Call it before checking for changes, so that later ones wake again."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.descriptor, READ_BYTES)) == READ_BYTES:
                pass
        self._is_set = False

    def close(self) -> None:
        """Close the pipe; `wake` has no effect from now on."""
        writing, self._writing = self._writing, -1
        os.close(writing)
        os.close(self.descriptor)
