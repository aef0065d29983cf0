"""News of runs for those who look at them, as server-sent events.

While somebody listens, one task polls for what other processes changed; what this process changes is told at once. A
stream tells ids only, each time a run that its viewer sees has changed; the page then asks for what is new.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.protocol.surface import Surface
from workflowlookup.runs.journal import Query

if TYPE_CHECKING:
    from workflowlookup.runs.view import Watch

log = logging.getLogger(__name__)

MOST_STREAMS: Final = 256
MOST_EACH: Final = 32
"""How many of them one viewer may have: nobody's pages keep those of others from being live."""
SECONDS_BETWEEN_POLLS: Final = 0.5
POLLS_BETWEEN_DEADLINES: Final = 10
"""A run past its deadline fails when somebody lists the runs; so they are listed once in so many polls."""
SECONDS_BETWEEN_BEATS: Final = 15.0
MOST_PENDING: Final = 500
"""How many runs are told of by name at once."""

RETRY: Final = b"retry: 2000\n\n"
BEAT: Final = b": still here\n\n"


class _Page:
    """One page that is open: the runs that changed since it was last told."""

    def __init__(self, surface: Surface, run_id: str, who: str) -> None:
        self.who = who
        self.changed: dict[str, None] = {}
        self.news = asyncio.Event()
        self._surface = surface
        self._run_id = run_id
        self._watch: Watch | None = None

    def poll(self, *, expires: bool = False) -> None:
        """Hear of what other processes changed; with `expires`, also of runs whose time is over."""
        if self._watch is None:
            self._watch = self._surface.watch(self._hear)
        for run_id in self._watch.changed():
            self._hear(run_id)
        if expires:
            self._surface.services.runs.summaries(Query(limit=1))

    def _hear(self, run_id: str) -> None:
        if len(self.changed) < MOST_PENDING and self._run_id in ("", run_id):
            self.changed[run_id] = None
            self.news.set()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


class Streams:
    """All pages that are open."""

    def __init__(
        self, *, most: int = MOST_STREAMS, pause: float = SECONDS_BETWEEN_POLLS, beat: float = SECONDS_BETWEEN_BEATS
    ) -> None:
        self._most = most
        self._pause = pause
        self._beat = beat
        self._pages: set[_Page] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def count(self) -> int:
        return len(self._pages)

    def is_full(self, who: str) -> bool:
        """Whether a viewer may open no other page that is live."""
        theirs = sum(page.who == who for page in self._pages)
        return self._is_closed or len(self._pages) >= self._most or theirs >= MOST_EACH

    def close(self) -> None:
        """End every stream, so that the server can stop; no new one is begun."""
        self._is_closed = True
        for page in self._pages:
            page.news.set()

    async def follow(self, surface: Surface, run_id: str = "", who: str = "") -> AsyncIterator[bytes]:
        """What one page is sent of the runs of a surface, or of one of them, until it leaves or the server stops."""
        page = _Page(surface, run_id, who)
        self._poll((page,))
        self._pages.add(page)
        if self._task is None:
            self._task = asyncio.create_task(self._keep_polling())
        try:
            yield RETRY
            while not self._is_closed:
                try:
                    async with asyncio.timeout(self._beat):
                        await page.news.wait()
                except TimeoutError:
                    yield BEAT
                    continue
                if self._is_closed:
                    break
                changed, page.changed = list(page.changed), {}
                page.news.clear()
                yield b"event: changed\ndata: " + msgspec.json.encode(changed) + b"\n\n"
        finally:
            self._pages.discard(page)
            page.close()
            if not self._pages and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _keep_polling(self) -> None:
        """Follow the journal for as long as somebody listens; one that cannot be read is tried again."""
        for polls in itertools.count():
            self._poll(tuple(self._pages), expires=polls % POLLS_BETWEEN_DEADLINES == 0)
            await asyncio.sleep(self._pause)

    def _poll(self, pages: Sequence[_Page], *, expires: bool = False) -> None:
        try:
            for page in pages:
                page.poll(expires=expires and page is pages[0])
        except WorkflowLookupError as refusal:
            log.warning("the journal cannot be followed: %s", refusal)
