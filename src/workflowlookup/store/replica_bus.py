"""The replica bus: announcements between the servers at one journal.

Announcements are stored in the journal and read from there, so a server whose connection was lost misses nothing: it
polls once it is connected again. A thread of its own waits for announcements and only rings; they are read by the
thread that serves.
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
"""How often it is looked without being told to."""
RETRY_SECONDS: Final = 1.0
KEEP_SECONDS: Final = 600
"""How long announcements are stored. A server that read none for longer gets `MISSED`."""
MISSED: Final = "missed"
"""The topic that listeners get when announcements were lost: any may have been made."""

Listener = Callable[[str, str], None]
"""Called with the topic and the body of an announcement."""


class ReplicaBus:
    """The other servers at the database of this one."""

    def __init__(
        self, open_journal: Callable[[], Journal], wake: Callable[[], None], journal: Journal | None = None
    ) -> None:
        """`wake` is called, from another thread, when there may be announcements to read; `journal` is used by the
        thread that serves, if it is open already.
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
        """Tell the others. Raises `StorageError` when they cannot be told."""
        time = now()
        announcement = Announcement(time=time, origin=self._origin, topic=topic, body=body)
        self._journal.announce(announcement, time - KEEP_SECONDS * 1000)

    def poll(self) -> None:
        """Read what others said since the last time, and tell the listeners; costs nothing when there is nothing."""
        moment = time.monotonic()
        is_due = moment >= self._not_before and (self._is_due or moment >= self._next_poll)
        if self._thread is None or self._is_reading or not is_due:
            return
        self._is_reading = True  # a journal may let others go on while it is read
        try:
            self._poll(moment)
        finally:
            self._is_reading = False

    def _poll(self, moment: float) -> None:
        self._is_due = False  # before it is read: what comes now is read the next time
        self._next_poll = moment + POLL_SECONDS
        try:
            announcements = self._read()
        except StorageError as problem:
            log.debug("what other servers say cannot be read: %s", problem)
            self._is_due = True
            self._not_before = moment + RETRY_SECONDS
            return
        if announcements and self._last is not None and announcements[0].number > self._last + 1:
            self._notify(MISSED, "")
        for one in announcements:
            self._last = one.number
            if one.origin != self._origin:
                self._notify(one.topic, one.body)

    def _read(self) -> list[Announcement]:
        if self._last is None:
            self._last = self._journal.last_announcement()
            return []
        return self._journal.announcements(self._last)

    def _notify(self, topic: str, body: str) -> None:
        for listener in list(self.listeners):
            try:
                listener(topic, body)
            except Exception:  # broad on purpose: one announcement that fails must not hide the others
                log.exception("what another server said about %s could not be followed", topic)

    def close(self) -> None:
        """Hear nothing any more."""
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
                    log.debug("other servers cannot be heard: %s", problem)
                    self._ended.wait(RETRY_SECONDS)
