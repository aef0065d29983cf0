"""What workflows the providers have: asked behind, again and again, for as long as the server runs.

It works on the worker's loop. Anyone may read the `snapshot`, which never changes but is replaced; then the bell rings.
What a provider said last stays known while it does not answer.
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
LONGEST_RETRY: Final = 60.0
MAX_PROBLEMS: Final = 20
"""How many bad definitions of one list are named one by one."""


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a provider."""

    definitions: tuple[Definition, ...] = ()
    is_listed: bool = False
    """Whether it has ever answered."""
    is_remembered: bool = False
    """Whether it has not answered yet, and the definitions are those of another time."""
    is_away: bool = False
    cause: str = ""
    """Why it is away, as a sentence without its end."""
    can: frozenset[str] | None = None
    """Which of "start", "status" and "cancel" it can; None when that is not known."""
    at: float = 0.0
    """When it was last asked, in seconds since the epoch."""

    @property
    def state(self) -> str:
        """How it is, in a word or three."""
        return "away" if self.is_away else "ready" if self.is_listed else "not asked yet"


async def ask_provider(provider: Provider) -> tuple[Discovered, list[str]]:
    """What a provider answers now, and what is wrong with single workflows of it."""
    try:
        extras.require(extras.CALLS)
        definitions, problems = read_definitions(await provider.list(), provider.name)
    except (ProviderError, WorkflowLookupError, ValueError) as problem:
        return Discovered(is_away=True, cause=str(problem).strip().rstrip(".")), []
    except Exception:  # broad on purpose: whatever one provider does, the others are asked
        log.exception("the provider '%s' cannot be asked", provider.name)
        return Discovered(is_away=True, cause="asking it failed; the log has the particulars"), []
    return Discovered(definitions=tuple(definitions), is_listed=True, can=provider.can, at=time.time()), problems


def first_problems(problems: Sequence[str]) -> list[str]:
    """As many problems as are worth naming, and how many more there are."""
    more = len(problems) - MAX_PROBLEMS
    return [*problems[:MAX_PROBLEMS], *([f"{more} more like these"] if more > 0 else [])]


class Discovery:
    """Keeps asking the providers."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._snapshot: Mapping[str, Discovered] = {}
        self._watches: dict[str, _Watch] = {}

    def snapshot(self) -> Mapping[str, Discovered]:
        """By provider; the same object for as long as nothing of it changed but when it was asked."""
        return self._snapshot

    def apply(self, providers: Mapping[str, Provider], refresh_seconds: float) -> None:
        """Ask these from now on; those that were asked before and are the same go on. For the loop's own thread."""
        for name in [name for name, watch in self._watches.items() if providers.get(name) is not watch.provider]:
            self._watches.pop(name).end()
        for watch in self._watches.values():
            watch.refresh_seconds = refresh_seconds
            watch.wake.set()
        kept = {name: self._snapshot.get(name, Discovered()) for name in providers}
        if kept.keys() != self._snapshot.keys():
            self._change(kept)
        for name, provider in providers.items():
            if name not in self._watches:
                self._watches[name] = _Watch(provider, refresh_seconds, self._tell, kept[name])

    async def refresh(self, providers: Collection[str] | None = None) -> None:
        """Ask these now, or all of them; done when each has answered or failed."""
        asked = [watch for name, watch in self._watches.items() if providers is None or name in providers]
        await asyncio.gather(*(watch.ask_now() for watch in asked))

    async def aclose(self) -> None:
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.end()
        await asyncio.gather(*(watch.task for watch in watches), return_exceptions=True)

    def _tell(self, watch: "_Watch", found: Discovered) -> None:
        name = watch.provider.name
        if self._watches.get(name) is not watch:
            return  # it is no longer asked for
        self._change({**self._snapshot, name: found})

    def _change(self, snapshot: Mapping[str, Discovered]) -> None:
        if _essence(self._snapshot) != _essence(snapshot):
            self._snapshot = snapshot
            self._wake()


def _essence(snapshot: Mapping[str, Discovered]) -> object:
    return {name: msgspec.structs.replace(found, at=0.0) for name, found in snapshot.items()}


class _Watch:
    """One provider, and the task that asks it."""

    def __init__(
        self,
        provider: Provider,
        refresh_seconds: float,
        tell: Callable[["_Watch", Discovered], None],
        known: Discovered,
    ) -> None:
        """`known`: what it said under the settings before, which stays listed until it says something else."""
        self.provider = provider
        self.refresh_seconds = refresh_seconds
        self.wake = asyncio.Event()
        """Set when the time to wait has changed."""
        self._tell = tell
        self._known = msgspec.structs.replace(known, at=0.0)
        self._failures = 0
        self._reported: set[str] = set()
        self._asking = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._keep_asking())

    async def _keep_asking(self) -> None:
        while True:
            await self.ask()
            asked = time.monotonic()
            retry = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(self._failures - 1, 10)) * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
            while True:
                wait = retry if self._failures else self.refresh_seconds or None
                left = None if wait is None else asked + wait - time.monotonic()
                if left is not None and left <= 0:
                    break
                self.wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), left)

    def end(self) -> None:
        self.task.cancel()
        if self._next is not None:
            self._next.cancel()

    async def ask_now(self) -> None:
        """Ask, after what is under way; however many want that meanwhile, it is asked once. The very first question is
        anybody's.
        """
        if not self._known.at:
            async with self._asking:
                if self._known.at:
                    return
        if self._next is None:
            self._next = asyncio.create_task(self.ask())
        await asyncio.shield(self._next)

    async def ask(self) -> None:
        """Ask once; what comes of it is told and logged."""
        async with self._asking:
            if asyncio.current_task() is self._next:
                self._next = None  # who comes now wants to know what is there now
            found, problems = await ask_provider(self.provider)
            if found.is_away:
                self._failed(found.cause)
            else:
                self._listed(found, problems)
            self._tell(self, self._known)

    def _failed(self, cause: str) -> None:
        self._failures += 1
        is_news = not self._known.is_away or self._known.cause != cause
        level = logging.WARNING if is_news else logging.INFO
        kept = len(self._known.definitions)
        stays = f"; its {kept} workflows stay listed" if kept else ""
        log.log(level, "the workflows of provider '%s' are not known: %s%s", self.provider.name, cause, stays)
        self._known = msgspec.structs.replace(self._known, is_away=True, cause=cause, at=time.time())

    def _listed(self, found: Discovered, problems: list[str]) -> None:
        name = self.provider.name
        news = [problem for problem in problems if problem not in self._reported]
        for problem in first_problems(news):
            log.warning("provider '%s': %s", name, problem)
        self._reported = set(problems)
        if self._known.is_away:
            log.info("the provider '%s' is back", name)
        self._failures = 0
        log.info("the provider '%s' has %d workflows", name, len(found.definitions))
        self._known = found
