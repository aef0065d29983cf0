"""Notifications of changed runs for open pages, as server-sent events.

While a page is open, one task polls for changes by other processes; a change by this process is sent at once. An event
has only the ids of runs that changed and that the viewer sees; the page then fetches what is new.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup import greenlets
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.protocol.backend import Backend
from workflowlookup.shares import Holding, Shares
from workflowlookup.store.journal import RunQuery

if TYPE_CHECKING:
    from workflowlookup.store.runs_view import RunWatch

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 256
"""Of a console by itself. On a server, streams of pages and of MCP clients are shared together."""
SECONDS_BETWEEN_POLLS: Final = 0.5
POLLS_BETWEEN_DEADLINES: Final = 10
"""Listing the runs ends those past their deadline; so they are listed once in so many polls."""
SECONDS_BETWEEN_BEATS: Final = 15.0
MAX_PENDING: Final = 500
"""How many ids one event has at most."""

RETRY: Final = b"retry: 2000\n\n"
BEAT: Final = b": still here\n\n"


class _Page:
    """One open page: the runs that changed since the last event."""

    def __init__(self, backend: Backend, run_id: str) -> None:
        self.changed: dict[str, None] = {}
        self.news = asyncio.Event()
        self._backend = backend
        self._run_id = run_id
        self._watch: RunWatch | None = None

    def poll(self, *, expires: bool = False) -> None:
        """Collect what other processes changed; with `expires`, also end the runs that are out of time."""
        if self._watch is None:
            self._watch = self._backend.watch(self._on_change)
        for run_id in self._watch.changed():
            self._on_change(run_id)
        if expires:
            self._backend.services.runs.summaries(RunQuery(limit=1))

    def _on_change(self, run_id: str) -> None:
        if len(self.changed) < MAX_PENDING and self._run_id in ("", run_id):
            self.changed[run_id] = None
            self.news.set()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


class Streams:
    """All pages that are open."""

    def __init__(
        self,
        listeners: Shares | None = None,
        *,
        pause: float = SECONDS_BETWEEN_POLLS,
        beat: float = SECONDS_BETWEEN_BEATS,
    ) -> None:
        """`listeners`: the shares of callers, of these streams and of others."""
        self._listeners = listeners or Shares(MAX_STREAMS)
        self._pause = pause
        self._beat = beat
        self._pages: set[_Page] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def count(self) -> int:
        return len(self._pages)

    def is_full(self, caller: str) -> bool:
        """Whether a caller may open no other page that is live."""
        return self._is_closed or not self._listeners.has_room(caller)

    def hold(self, caller: str) -> Holding:
        """Count one more stream against the share of a caller, for whom `is_full` is not so."""
        holding = Holding(self._listeners, caller)
        holding.take(1)
        return holding

    def close(self) -> None:
        """End every stream, so that the server can stop; no new one is begun."""
        self._is_closed = True
        for page in self._pages:
            page.news.set()

    async def follow(self, backend: Backend, run_id: str = "") -> AsyncIterator[bytes]:
        """The events for one page, about all runs of a surface or one of them, until it or the server is closed."""
        page = _Page(backend, run_id)
        await greenlets.run(self._poll, (page,))
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
            await greenlets.run(self._poll, tuple(self._pages), expires=polls % POLLS_BETWEEN_DEADLINES == 0)
            await asyncio.sleep(self._pause)

    async def _poll(self, pages: Sequence[_Page], *, expires: bool = False) -> None:
        try:
            for page in pages:
                page.poll(expires=expires and page is pages[0])
        except WorkflowLookupError as refusal:
            log.warning("the journal cannot be followed: %s", refusal)
