"""News of runs for those who look at them, as server-sent events.

While somebody listens, one task looks for what other processes changed; what this process changes is told at once. A
stream tells ids only, each time a run that its viewer may see has changed; the page then asks for what is new.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.runs.journal import Query
from workflowlookup.runs.view import RunsView, Watch

log = logging.getLogger(__name__)

MOST_STREAMS: Final = 256
MOST_EACH: Final = 32
"""How many of them one viewer may have: nobody's pages keep those of others from being live."""
SECONDS_BETWEEN_LOOKS: Final = 0.5
LOOKS_BETWEEN_DEADLINES: Final = 10
"""A run past its deadline fails when somebody looks at it; this is how many looks are between two such looks."""
SECONDS_BETWEEN_BEATS: Final = 15.0
MOST_PENDING: Final = 500
"""How many runs are told of by name at once."""

RETRY: Final = b"retry: 2000\n\n"
BEAT: Final = b": still here\n\n"


class Listener:
    """One page that is open: the runs that changed since it was last told."""

    def __init__(self, wants: Callable[[str], bool], who: str) -> None:
        self.wants = wants
        self.who = who
        self.changed: dict[str, None] = {}
        self.news = asyncio.Event()

    def hear(self, run_id: str) -> None:
        if len(self.changed) < MOST_PENDING and self.wants(run_id):
            self.changed[run_id] = None
            self.news.set()


class Streams:
    """All pages that are open."""

    def __init__(
        self,
        runs: RunsView,
        *,
        most: int = MOST_STREAMS,
        pause: float = SECONDS_BETWEEN_LOOKS,
        beat: float | None = None,
    ) -> None:
        self._runs = runs
        self._most = most
        self._pause = pause
        self._beat = SECONDS_BETWEEN_BEATS if beat is None else beat
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def count(self) -> int:
        return len(self._listeners)

    def is_full(self, who: str) -> bool:
        """Whether a viewer may open no other page that is live."""
        theirs = sum(listener.who == who for listener in self._listeners)
        return self._is_closed or len(self._listeners) >= self._most or theirs >= MOST_EACH

    def close(self) -> None:
        """End every stream, so that the server can stop; no new one is begun."""
        self._is_closed = True
        for listener in self._listeners:
            listener.news.set()

    async def follow(self, wants: Callable[[str], bool], who: str = "") -> AsyncIterator[bytes]:
        """What one page of a viewer is sent, from now until it leaves or the server stops."""
        listener = Listener(wants, who)
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield RETRY
            while not self._is_closed:
                try:
                    async with asyncio.timeout(self._beat):
                        await listener.news.wait()
                except TimeoutError:
                    yield BEAT
                    continue
                if self._is_closed:
                    break
                changed, listener.changed = list(listener.changed), {}
                listener.news.clear()
                yield b"event: changed\ndata: " + msgspec.json.encode(changed) + b"\n\n"
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    def _hear(self, run_id: str) -> None:
        for listener in tuple(self._listeners):
            listener.hear(run_id)

    async def _look(self) -> None:
        """Follow the journal for as long as somebody listens; one that cannot be read is tried again."""
        watch: Watch | None = None
        looks = 0
        try:
            while True:
                try:
                    watch = watch or self._runs.watch(self._hear)
                    for run_id in watch.changed():
                        self._hear(run_id)
                    if looks % LOOKS_BETWEEN_DEADLINES == 0:
                        self._runs.summaries(Query(limit=1))
                except WorkflowLookupError as refusal:
                    log.warning("the journal cannot be followed: %s", refusal)
                looks += 1
                await asyncio.sleep(self._pause)
        finally:
            if watch is not None:
                with contextlib.suppress(ValueError):
                    watch.close()
