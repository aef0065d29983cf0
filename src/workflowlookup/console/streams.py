"""Notifications of changed runs for open pages, as server-sent events.

While a page is open, one task polls for changes by other processes; a change by this process is sent at once. An event
contains only the ids of changed runs that the viewer may see; the page then fetches what is new.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Sequence
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
"""For a console without a server. On a server, pages and MCP clients share one limit."""
POLL_SECONDS: Final = 0.5
POLLS_BETWEEN_DEADLINES: Final = 10
"""Listing runs ends those past their deadline, so they are listed once in this many polls."""
HEARTBEAT_SECONDS: Final = 15.0
MAX_PENDING: Final = 500
"""Maximum number of ids in one event."""

RETRY: Final = b"retry: 2000\n\n"
HEARTBEAT: Final = b": heartbeat\n\n"


class _Page:
    """One open page: the runs that changed since the last event."""

    def __init__(self, backend: Backend, run_id: str) -> None:
        self.changed: dict[str, None] = {}
        self.has_changes = asyncio.Event()
        self._backend = backend
        self._run_id = run_id
        self._watch: RunWatch | None = None

    def poll(self, *, expires: bool = False) -> None:
        """Collect changes by other processes; with `expires`, also end runs past their deadline."""
        if self._watch is None:
            self._watch = self._backend.watch(self._on_change)
        for run_id in self._watch.changed():
            self._on_change(run_id)
        if expires:
            self._backend.services.runs.summaries(RunQuery(limit=1))

    def _on_change(self, run_id: str) -> None:
        if len(self.changed) < MAX_PENDING and self._run_id in ("", run_id):
            self.changed[run_id] = None
            self.has_changes.set()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


class Streams:
    """All open pages."""

    def __init__(
        self,
        listeners: Shares | None = None,
        *,
        pause: float = POLL_SECONDS,
        beat: float = HEARTBEAT_SECONDS,
    ) -> None:
        """`listeners`: the limit per caller, which other streams may share."""
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
        """Whether a caller may not open another live page."""
        return self._is_closed or not self._listeners.has_room(caller)

    def hold(self, caller: str) -> Holding:
        """Count one more stream of a caller. Check `is_full` first."""
        holding = Holding(self._listeners, caller)
        holding.take(1)
        return holding

    def close(self) -> None:
        """End every stream, so that the server can stop; no new one is started."""
        self._is_closed = True
        for page in self._pages:
            page.has_changes.set()

    async def follow(self, backend: Backend, run_id: str = "") -> AsyncGenerator[bytes, None]:
        """The events for one page, about all runs or one of them, until the page or the server is closed."""
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
                        await page.has_changes.wait()
                except TimeoutError:
                    yield HEARTBEAT
                    continue
                if self._is_closed:
                    break
                changed, page.changed = list(page.changed), {}
                page.has_changes.clear()
                yield b"event: changed\ndata: " + msgspec.json.encode(changed) + b"\n\n"
        finally:
            self._pages.discard(page)
            page.close()
            if not self._pages and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _keep_polling(self) -> None:
        """Poll the journal while a page is open; a journal that cannot be read is tried again."""
        for polls in itertools.count():
            await greenlets.run(self._poll, tuple(self._pages), expires=polls % POLLS_BETWEEN_DEADLINES == 0)
            await asyncio.sleep(self._pause)

    async def _poll(self, pages: Sequence[_Page], *, expires: bool = False) -> None:
        try:
            for page in pages:
                page.poll(expires=expires and page is pages[0])
        except WorkflowLookupError as refusal:
            log.warning("the journal cannot be polled for changes: %s", refusal)
