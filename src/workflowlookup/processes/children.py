"""The children of this process, and how they end together with everything that they started.

The process group of a child is killed, and on Linux also processes that left the group but are still descendants, or
still have the child's mark in their environment. A process that left the group, cleared its environment and lost its
parent is not found; under a `supervisor` that one is found as well.
"""

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from workflowlookup.processes.supervisor import KILL_SECONDS, live_processes, process_names

END_SECONDS: Final = 0.2
"""Time between SIGTERM and SIGKILL while our own process exits."""
MARK: Final = "WORKFLOWLOOKUP_CHILD"
"""The environment variable by which descendants of a child are recognized."""
POLL_SECONDS: Final = 0.01

running: Final[dict[int, str]] = {}
"""Running children: the mark of each by its process id, which is also its process group."""
_starting: Final[set[object]] = set()
"""Children whose process may already run, although its id is not known yet."""
at_end: Final[set[Callable[[], None]]] = set()
"""What else is done when our own process exits, after the children have ended."""
is_ending: Final = threading.Event()
"""Set when our own process exits: nothing more is started."""


@contextlib.contextmanager
def starting() -> Iterator[bool]:
    """Surrounds the start of a child, up to its entry in `running`. False if it must not be started any more."""
    start = object()
    _starting.add(start)
    try:
        yield not is_ending.is_set()
    finally:
        _starting.discard(start)


class Family:
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
        processes = live_processes()
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


def _with_environment(entries: frozenset[bytes]) -> Iterator[int]:
    """The processes that were started with one of these environment entries (Linux only)."""
    for name in process_names():
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
    is_ending.set()
    deadline = time.monotonic() + KILL_SECONDS
    while _starting and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if running:
        family = Family(dict(running))
        family.send(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while family.is_alive() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        family.send(signal.SIGKILL)
    for action in tuple(at_end):
        with contextlib.suppress(Exception):
            action()
