"""The replica bus: announcements between the servers at one journal.

Announcements are stored in the journal and read from there, so a server that lost its connection misses none. A thread
waits for announcements and calls `wake`; the serving thread then reads them with `poll`.
"""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from workflowlookup.errors import StorageError
from workflowlookup.store.journal import Announcement, Journal, now

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 15.0
"""Between two polls without a notification."""
RETRY_SECONDS: Final = 1.0
KEEP_SECONDS: Final = 600
"""How long announcements are stored. A server that read none for longer gets `MISSED`."""
MISSED: Final = "missed"
"""The topic that listeners get when announcements were deleted before they were read."""

Listener = Callable[[str, str], None]
"""Called with the topic and the body of an announcement."""


class ReplicaBus:
    """Sends announcements to the other servers, and passes theirs to `listeners`."""

    def __init__(
        self, open_journal: Callable[[], Journal], wake: Callable[[], None], journal: Journal | None = None
    ) -> None:
        """`wake` is called, from another thread, when there may be announcements to read; `journal` is used by the
        serving thread, if it is open already.
        """
        self.listeners: list[Listener] = []
        self._open_journal = open_journal
        self._journal = journal or open_journal()
        self._wake = wake
        self._origin = secrets.token_hex(8)
        self._last: int | None = None
        self._is_due = True
        self._is_reading = False
        self._next_poll = self._not_before = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Receive announcements from now on. Safe to repeat."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="workflowlookup-replica-bus", daemon=True)
            self._thread.start()

    def announce(self, topic: str, body: str = "") -> None:
        """Send an announcement to the other servers. Raises `StorageError`."""
        time = now()
        announcement = Announcement(time=time, origin=self._origin, topic=topic, body=body)
        self._journal.announce(announcement, time - KEEP_SECONDS * 1000)

    def poll(self) -> None:
        """Pass new announcements of other servers to the listeners. Does nothing unless there may be some."""
        moment = time.monotonic()
        is_due = moment >= self._not_before and (self._is_due or moment >= self._next_poll)
        if self._thread is None or self._is_reading or not is_due:
            return
        self._is_reading = True  # while a journal is read, other code may run and poll too
        try:
            self._poll(moment)
        finally:
            self._is_reading = False

    def _poll(self, moment: float) -> None:
        self._is_due = False  # before reading, so that a notification during it causes another poll
        self._next_poll = moment + POLL_SECONDS
        try:
            announcements = self._read()
        except StorageError as problem:
            log.debug("announcements of other servers cannot be read: %s", problem)
            self._is_due = True
            self._not_before = moment + RETRY_SECONDS
            return
        if announcements and self._last is not None and announcements[0].number > self._last + 1:
            self._notify(MISSED, "")
        for announcement in announcements:
            self._last = announcement.number
            if announcement.origin != self._origin:
                self._notify(announcement.topic, announcement.body)

    def _read(self) -> list[Announcement]:
        if self._last is None:
            self._last = self._journal.last_announcement()
            return []
        return self._journal.announcements(self._last)

    def _notify(self, topic: str, body: str) -> None:
        for listener in list(self.listeners):
            try:
                listener(topic, body)
            except Exception:  # broad on purpose: one failure must not lose the other announcements
                log.exception("a listener failed on the announcement %s of another server", topic)

    def close(self) -> None:
        """Stop receiving announcements."""
        self._ended.set()
        self._journal.close()

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self) -> None:
        with contextlib.closing(self._open_journal()) as journal:
            while not self._ended.is_set():
                try:
                    if journal.await_announcement(POLL_SECONDS):
                        self._is_due = True
                        self._wake()
                except StorageError as problem:
                    log.debug("announcements cannot be awaited: %s", problem)
                    self._ended.wait(RETRY_SECONDS)
