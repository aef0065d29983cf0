"""SIGTERM and SIGINT while a server speaks over standard input and output: it drains, and ends by the signal."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

END_SECONDS: Final = 0.8
"""From the end of the drain to the end of the process, after a signal: official clients kill two seconds after it."""


def ask_children_to_end() -> None:
    """Ask every process that was started to end."""
    if child := sys.modules.get("workflowlookup.providers.child"):  # else none was started
        child.ask_all_to_end()


def _end_with_children(number: int) -> None:
    """End this process by a signal, as it would end by itself, and ask those that it started to end."""
    signal.signal(number, _ignore)  # not SIG_IGN, which a process that is just being started would inherit
    ask_children_to_end()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _ignore(_: int, __: FrameType | None) -> None:
    """The handler of a signal that is being dealt with."""


class Termination:
    """Handles SIGTERM and SIGINT: the server drains, for a limited time, and then ends by the signal.

    Python runs handlers on the main thread, which may miss a signal that comes just before it waits for input. So
    another thread waits for signals, and repeats them to the main thread until the process has ended.
    """

    def __init__(self, drain: Callable[[], None], seconds: float) -> None:
        """`drain` has the main thread finish; it may raise there. The process has `seconds` from the signal on."""
        self._drain = drain
        self._seconds = seconds
        self._deadline = 0.0
        self._number: int | None = None
        """The signal that came."""

    def install(self) -> None:
        """Handle the signals from now on; to be called on the main thread."""
        signals = [signal.SIGTERM]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, or somebody else's
            signals.append(signal.SIGINT)
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, self._handle)
        waiting = (reading, threading.get_ident(), frozenset(signals))
        threading.Thread(target=_wake_when_terminated, args=waiting, name="workflowlookup-signals", daemon=True).start()

    def finish(self) -> None:
        """End the process by the signal that came; nothing is done when none did."""
        if self._number is not None:
            _end_with_children(self._number)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._number is None:
            self._number, self._deadline = number, time.monotonic() + self._seconds
        if time.monotonic() >= self._deadline:
            self.finish()
        self._drain()


def _wake_when_terminated(reading: int, main: int, signals: frozenset[int]) -> None:
    while not (found := signals.intersection(os.read(reading, 64))):
        pass
    while True:  # one that comes just before a read is missed
        signal.pthread_kill(main, min(found))
        time.sleep(0.05)
