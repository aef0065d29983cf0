"""Polls the providers for their workflows in the background, for as long as the server runs.

It runs on the worker's loop. Any thread may read `snapshot`, which is immutable: a change replaces it and calls
`wake`. While a provider does not answer, its last list stays.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup import extras
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.providers.definition import Definition, read_definitions
from workflowlookup.providers.provider import Provider, ProviderError

log = logging.getLogger(__name__)

FIRST_RETRY: Final = 1.0
MAX_RETRY: Final = 60.0
MAX_PROBLEMS: Final = 20
"""How many problems of one list are logged one by one."""


class ProviderListing(msgspec.Struct, frozen=True, kw_only=True):
    """The last list of a provider, and whether the provider answers."""

    definitions: tuple[Definition, ...] = ()
    is_listed: bool = False
    """Whether it has answered since the server started."""
    is_remembered: bool = False
    """Whether it has not answered yet, and the definitions come from an earlier process."""
    is_away: bool = False
    cause: str = ""
    """Why it is away, as a sentence without its full stop."""
    can: frozenset[str] | None = None
    """Which of "start", "status" and "cancel" it supports; None if that is not known."""
    at: float = 0.0
    """When it was last polled, in seconds since the epoch."""

    @property
    def state(self) -> str:
        """For people: `ready`, `away` or `not asked yet`."""
        return "away" if self.is_away else "ready" if self.is_listed else "not asked yet"


async def list_provider(provider: Provider) -> tuple[ProviderListing, list[str]]:
    """List the workflows of a provider; the second value names the workflows that were skipped, and why."""
    try:
        extras.require(extras.CALLS)
        definitions, problems = read_definitions(await provider.list(), provider.name)
    except (ProviderError, WorkflowLookupError, ValueError) as problem:
        return ProviderListing(is_away=True, cause=str(problem).strip().rstrip(".")), []
    except Exception:  # broad on purpose: a fault of one provider must not stop the others
        log.exception("listing the workflows of provider '%s' failed", provider.name)
        return ProviderListing(is_away=True, cause="listing its workflows failed; the server's log has the details"), []
    return ProviderListing(definitions=tuple(definitions), is_listed=True, can=provider.can, at=time.time()), problems


def first_problems(problems: Sequence[str]) -> list[str]:
    """The first `MAX_PROBLEMS` problems, and how many more there are."""
    more = len(problems) - MAX_PROBLEMS
    return [*problems[:MAX_PROBLEMS], *([f"{more} more like these"] if more > 0 else [])]


class Discovery:
    """Polls the providers, each in a task of its own."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._snapshot: Mapping[str, ProviderListing] = {}
        self._pollers: dict[str, _Poller] = {}

    def snapshot(self) -> Mapping[str, ProviderListing]:
        """By provider. The same object is returned until something other than a time of polling changes."""
        return self._snapshot

    def apply(self, providers: Mapping[str, Provider], refresh_seconds: float) -> None:
        """Poll these providers from now on; pollers of unchanged providers continue. Call it on the loop's thread."""
        for name in [name for name, poller in self._pollers.items() if providers.get(name) is not poller.provider]:
            self._pollers.pop(name).end()
        for poller in self._pollers.values():
            poller.refresh_seconds = refresh_seconds
            poller.wake.set()
        listings = {name: self._snapshot.get(name, ProviderListing()) for name in providers}
        if listings.keys() != self._snapshot.keys():
            self._change(listings)
        for name, provider in providers.items():
            if name not in self._pollers:
                self._pollers[name] = _Poller(provider, refresh_seconds, self._on_listing, listings[name])

    async def refresh(self, providers: Collection[str] | None = None) -> None:
        """Poll these providers now, or all of them; returns when each has answered or failed."""
        pollers = [poller for name, poller in self._pollers.items() if providers is None or name in providers]
        await asyncio.gather(*(poller.poll_now() for poller in pollers))

    async def aclose(self) -> None:
        pollers, self._pollers = list(self._pollers.values()), {}
        for poller in pollers:
            poller.end()
        await asyncio.gather(*(poller.task for poller in pollers), return_exceptions=True)

    def _on_listing(self, poller: "_Poller", listing: ProviderListing) -> None:
        name = poller.provider.name
        if self._pollers.get(name) is not poller:
            return  # the provider was removed or replaced
        self._change({**self._snapshot, name: listing})

    def _change(self, snapshot: Mapping[str, ProviderListing]) -> None:
        if _without_times(self._snapshot) != _without_times(snapshot):
            self._snapshot = snapshot
            self._wake()


def _without_times(snapshot: Mapping[str, ProviderListing]) -> object:
    return {name: msgspec.structs.replace(listing, at=0.0) for name, listing in snapshot.items()}


class _Poller:
    """One provider, and the task that polls it."""

    def __init__(
        self,
        provider: Provider,
        refresh_seconds: float,
        on_listing: Callable[["_Poller", ProviderListing], None],
        listing: ProviderListing,
    ) -> None:
        """`listing`: its last list under the settings before, which stays until there is a new one."""
        self.provider = provider
        self.refresh_seconds = refresh_seconds
        self.wake = asyncio.Event()
        """Set when the time to wait changes."""
        self._on_listing = on_listing
        self._listing = msgspec.structs.replace(listing, at=0.0)
        self._failures = 0
        self._logged_problems: set[str] = set()
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._poll_forever())

    async def _poll_forever(self) -> None:
        while True:
            await self.poll()
            polled_at = time.monotonic()
            retry = min(MAX_RETRY, FIRST_RETRY * 2 ** min(self._failures - 1, 10)) * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
            while True:
                wait = retry if self._failures else self.refresh_seconds or None
                remaining = None if wait is None else polled_at + wait - time.monotonic()
                if remaining is not None and remaining <= 0:
                    break
                self.wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), remaining)

    def end(self) -> None:
        self.task.cancel()
        if self._next is not None:
            self._next.cancel()

    async def poll_now(self) -> None:
        """Poll after the request that is under way, once for all callers that wait. Before the first answer, the
        request under way is enough.
        """
        if not self._listing.at:
            async with self._lock:
                if self._listing.at:
                    return
        if self._next is None:
            self._next = asyncio.create_task(self.poll())
        await asyncio.shield(self._next)

    async def poll(self) -> None:
        """Poll once; publish and log the result."""
        async with self._lock:
            if asyncio.current_task() is self._next:
                self._next = None  # a caller from here on needs a later request
            listing, problems = await list_provider(self.provider)
            if listing.is_away:
                self._failed(listing.cause)
            else:
                self._listed(listing, problems)
            self._on_listing(self, self._listing)

    def _failed(self, cause: str) -> None:
        self._failures += 1
        is_new = not self._listing.is_away or self._listing.cause != cause
        level = logging.WARNING if is_new else logging.INFO
        count = len(self._listing.definitions)
        stays = f"; its {count} workflows stay listed" if count else ""
        log.log(level, "the workflows of provider '%s' cannot be listed: %s%s", self.provider.name, cause, stays)
        self._listing = msgspec.structs.replace(self._listing, is_away=True, cause=cause, at=time.time())

    def _listed(self, listing: ProviderListing, problems: list[str]) -> None:
        name = self.provider.name
        new_problems = [problem for problem in problems if problem not in self._logged_problems]
        for problem in first_problems(new_problems):
            log.warning("provider '%s': %s", name, problem)
        self._logged_problems = set(problems)
        if self._listing.is_away:
            log.info("the provider '%s' is back", name)
        self._failures = 0
        log.info("the provider '%s' has %d workflows", name, len(listing.definitions))
        self._listing = listing
