"""What servers at one PostgreSQL database tell each other: lines in a table, and `NOTIFY` to say that there are some.

A line is read from the table, never from the notification, so a server whose connection was lost misses nothing: once
it is connected again, it looks. A thread of its own waits for notifications and does nothing but ring; lines are read
by the thread that serves.
"""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

import psycopg

from workflowlookup.errors import StorageError
from workflowlookup.runs.clock import now
from workflowlookup.runs.postgres import PostgresJournal

log = logging.getLogger(__name__)

CHANNEL: Final = "workflowlookup"
LOOK_SECONDS: Final = 15.0
"""How often it is looked without being told to."""
RETRY_SECONDS: Final = 1.0
KEEP_SECONDS: Final = 600
"""How long lines are kept. A server that heard nothing for longer is told that it missed some."""
MISSED: Final = "missed"
"""The topic of that: anything may have been said."""
_IN_TURN: Final = 7_365_982_105
"""The advisory lock under which lines are added: their numbers are then in the order of their commits."""
_ADD: Final = """
    INSERT INTO news (number, time, origin, topic, body) SELECT COALESCE(MAX(number), 0) + 1, ?, ?, ?, ? FROM news
"""
_FORGET: Final = "DELETE FROM news WHERE time < ? AND number < (SELECT MAX(number) FROM news)"
_SINCE: Final = "SELECT number, origin, topic, body FROM news WHERE number > ? ORDER BY number"

Listener = Callable[[str, str], None]
"""Is given a topic and what is said about it."""


class Neighbours:
    """The other servers at the database of this one."""

    def __init__(self, journal: PostgresJournal, ring: Callable[[], None]) -> None:
        """`ring` is called, from another thread, when there may be lines to read."""
        self.listeners: list[Listener] = []
        self._journal = journal
        self._ring = ring
        self._origin = secrets.token_hex(8)
        self._last: int | None = None
        self._is_due = True
        self._next_look = self._not_before = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Hear of lines from now on. Safe to repeat."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="workflowlookup-neighbours", daemon=True)
            self._thread.start()

    def announce(self, topic: str, body: str = "") -> None:
        """Tell the others. Raises `StorageError` when they cannot be told."""
        written = now()
        self._journal.write(
            ("SELECT pg_advisory_xact_lock(?)", (_IN_TURN,)),
            (_ADD, (written, self._origin, topic, body)),
            (_FORGET, (written - KEEP_SECONDS * 1000,)),
            (f"NOTIFY {CHANNEL}", ()),
        )

    def look(self) -> None:
        """Read what others said since the last time, and tell the listeners; costs nothing when there is nothing."""
        moment = time.monotonic()
        if self._thread is None or moment < self._not_before or (not self._is_due and moment < self._next_look):
            return
        self._is_due = False  # before it is read: what comes now is read the next time
        self._next_look = moment + LOOK_SECONDS
        try:
            lines = self._read()
        except StorageError as problem:
            log.debug("what other servers say cannot be read: %s", problem)
            self._is_due = True
            self._not_before = moment + RETRY_SECONDS
            return
        if lines and self._last is not None and lines[0][0] > self._last + 1:
            self._tell(MISSED, "")
        for number, origin, topic, body in lines:
            self._last = number
            if origin != self._origin:
                self._tell(topic, body)

    def _read(self) -> list[tuple[int, str, str, str]]:
        if self._last is None:
            self._last = int(self._journal.query("SELECT COALESCE(MAX(number), 0) FROM news")[0][0])
            return []
        return self._journal.query(_SINCE, (self._last,))

    def _tell(self, topic: str, body: str) -> None:
        for listener in list(self.listeners):
            try:
                listener(topic, body)
            except Exception:  # broad on purpose: one line that cannot be followed must not hide the others
                log.exception("what another server said about %s could not be followed", topic)

    def close(self) -> None:
        """Hear nothing any more."""
        self._ended.set()
        self._journal.close()

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self) -> None:
        while not self._ended.is_set():
            try:
                with contextlib.closing(self._journal.connect_apart("workflowlookup-neighbours")) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._say()  # there may have been lines before
                    while not self._ended.is_set():
                        for _ in connection.notifies(timeout=LOOK_SECONDS, stop_after=1):
                            self._say()
                        connection.execute("SELECT 1")  # notices that the connection is gone
            except (psycopg.Error, StorageError) as problem:
                log.debug("other servers cannot be heard: %s", problem)
                self._ended.wait(RETRY_SECONDS)

    def _say(self) -> None:
        self._is_due = True
        self._ring()
