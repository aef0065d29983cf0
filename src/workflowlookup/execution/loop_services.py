"""Everything that lives on the worker's loop, put together: the journal, the servers, the driver, the engine."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from workflowlookup.errors import RunNotFound, StorageError
from workflowlookup.execution.async_runs import AsyncRuns
from workflowlookup.execution.call_runner import STOP_SECONDS, CallRunner
from workflowlookup.execution.driver import Driver
from workflowlookup.execution.engine import TAKE_OVER_SECONDS, Drive, Engine, Limits
from workflowlookup.language.values import Progress
from workflowlookup.providers.config import Plan
from workflowlookup.providers.discovery import Discovery, ProviderListing
from workflowlookup.providers.provider import Provider, make_provider
from workflowlookup.providers.upstream import Upstreams
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.store.service import PAGE, Runs
from workflowlookup.trust import Consent

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 5.0
"""Until an engine that could not be opened is tried again."""
LAST_SECONDS: Final = 0.5
"""For drivers that have nothing left to do but to say so."""
ORPHAN_MS: Final = 1_000
"""How long a run may be without a driver: the process that stored the due call is about to start one."""
FIRST_STOP_PAUSE: Final = 2.0
MAX_STOP_PAUSE: Final = 300.0
"""Between two attempts to stop the same job at another system: the first, doubled each time, and the longest."""
MAX_STOPPING: Final = 8
"""How many such attempts are made at once."""


class LoopServices:
    """For one loop, on which it is made."""

    def __init__(  # noqa: PLR0913 - all that lives on it
        self,
        plan: Plan,
        make_runs: Callable[[], Runs],
        make_engine: Callable[[Drive, Limits], Engine],
        *,
        wake: Callable[[], None],
        on_change: Callable[[str, Run | None], None],
        consent: Consent,
        is_guest: bool = False,
    ) -> None:
        self.plan = plan
        self._is_guest = is_guest
        self._make_engine = make_engine
        self._runs = AsyncRuns(make_runs, on_change)
        self.upstreams = Upstreams(plan.servers)
        self._providers: dict[str, Provider] = {}
        self._driver = Driver(self._runs, CallRunner(self.upstreams, self.provider, consent), wake)
        self._discovery = Discovery(wake)
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self._chores: asyncio.Task[None] | None = None
        self._hopeless: set[str] = set()
        """The runs that cannot be continued, for which that was logged."""
        self._closing: set[asyncio.Task[None]] = set()
        self._stopping: dict[str, asyncio.Task[None]] = {}
        """By run: the attempt to stop a call that was left running."""
        self._stop_again: dict[str, tuple[int, float]] = {}
        """By run: how often that was tried, and when it is tried again."""

    @property
    def progress(self) -> dict[str, Progress]:
        return self._driver.progress

    @property
    def fault(self) -> str:
        """Why no call can be carried out here for now; from any thread."""
        return self._engine.fault if self._engine is not None else ""

    def discovered(self) -> Mapping[str, ProviderListing]:
        """What is known of the providers; from any thread."""
        return self._discovery.snapshot()

    def provider(self, name: str) -> Provider | None:
        """The provider of a name, made when it is first needed; None when the settings name none such."""
        config = self.plan.providers.get(name)
        if config is None:
            return None
        if name not in self._providers:
            self._providers[name] = make_provider(config, self.upstreams)
        return self._providers[name]

    # ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def drive(self, run: Run, *, again: bool = False) -> None:
        """Have a run driven whose call is due, here or elsewhere."""
        if run.waiting_for is Waiting.CALL and run.calling is not None:
            self._runs.offer(run)
            engine = self._engine or await self._opened()
            await engine.start(run.id, run.calling.due, again=again)

    async def stop(self, run_id: str) -> None:
        """Have the call of a run that is over stopped, if it is made here."""
        self._driver.nudge(run_id)

    async def at_work(self) -> frozenset[str] | None:
        """The runs that a server has work to do for, here or elsewhere; None when that cannot be said."""
        try:
            work = await self._runs.do(lambda runs: runs.at_work())
        except StorageError:
            return None
        return frozenset(summary.id for summary in work) if len(work) < PAGE else None

    async def look_after(self) -> None:
        """Drive what has no driver, and stop what was left running, as long as the server runs.

        The engine is opened only when there is something to do for it.
        """
        while self._engine is None:
            with contextlib.suppress(StorageError):
                if await self._runs.do(lambda runs: bool(runs.at_work(1) or runs.runs_to_stop())):
                    await self._opened()
                    return
            await asyncio.sleep(TAKE_OVER_SECONDS)

    async def warm(self, seconds: float) -> None:
        """Open the engine after a while, so that the first call need not wait for it."""
        await asyncio.sleep(seconds)
        await self._opened()

    async def _opened(self) -> Engine:
        async with self._opening:
            while self._engine is None:
                engine = self._make_engine(self._driver.drive, _limits(self.plan))
                try:
                    await engine.open()
                except StorageError as problem:
                    log.error("%s", problem.remedy)  # noqa: TRY400 - the sentence says it all
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    self._engine = engine
                    if not self._is_guest:
                        self._chores = asyncio.create_task(self._look_after_others(engine))
        return self._engine

    async def _look_after_others(self, engine: Engine) -> None:
        """Each chore runs even if another fails: the database may be unreachable, and all of them run again soon."""
        while True:
            for what, chore in (("taking over", engine.take_over), ("driving what nobody drives", self._adopt)):
                try:
                    await chore()
                except Exception as problem:  # noqa: BLE001 - DBOS and drivers raise what they like
                    log.debug("%s failed: %r", what, problem)
            await asyncio.sleep(TAKE_OVER_SECONDS)

    async def _adopt(self) -> None:
        """Drive the due calls, and stop the orphaned ones, of which the journal tells and that no process works on."""
        engine = self._engine
        work = await self._runs.do(lambda runs: [*runs.at_work()])
        left = await self._runs.do(lambda runs: runs.runs_to_stop())
        if engine is None or not (work or left):
            return
        now = time.time() * 1000
        for summary in work:
            if summary.deadline is not None and summary.deadline < now:
                await self._take_up(summary.id, self._runs.get)  # which ends a run whose time is over
        old = [summary.id for summary in work if summary.updated < now - ORPHAN_MS]
        driven = await engine.driven([*old, *left])
        for run_id in old:
            if run_id not in driven:
                await self._take_up(run_id, self._drive_again)
        self._stop_again = {run_id: pause for run_id, pause in self._stop_again.items() if run_id in left}
        for run_id in left:
            if run_id not in driven and run_id not in self._stopping:
                self._stop_beside(run_id)

    async def _drive_again(self, run_id: str) -> None:
        await self.drive(await self._runs.get(run_id), again=True)

    def _stop_beside(self, run_id: str) -> None:
        """Try once more to stop what was left running, beside everything else, unless that was tried a moment ago."""
        tries, at = self._stop_again.get(run_id, (0, 0.0))
        if time.monotonic() < at or len(self._stopping) >= MAX_STOPPING:
            return
        pause = min(FIRST_STOP_PAUSE * 2 ** min(tries, 10), MAX_STOP_PAUSE)
        self._stop_again[run_id] = (tries + 1, time.monotonic() + pause)

        async def stop() -> None:
            try:
                await self._take_up(run_id, self._driver.stop_orphan)
            finally:
                del self._stopping[run_id]

        self._stopping[run_id] = asyncio.create_task(stop())

    async def _take_up(self, run_id: str, do: Callable[[str], Awaitable[object]]) -> None:
        """Do something for a run; if that fails, it is logged once, and the other runs are not affected."""
        try:
            await do(run_id)
        except RunNotFound:
            pass  # it was forgotten meanwhile
        except Exception as problem:  # noqa: BLE001 - DBOS and drivers raise what they like
            if run_id not in self._hopeless:
                self._hopeless.add(run_id)
                log.warning("run %s cannot be continued: %s", run_id, getattr(problem, "remedy", "") or repr(problem))
        else:
            self._hopeless.discard(run_id)

    # ── providers ───────────────────────────────────────────────────────────────────────────────────────────────

    async def discover(self) -> None:
        """Keep asking the providers what they have, from now on."""
        names = self.plan.providers if self.plan.is_on else ()
        providers = {name: provider for name in names if (provider := self.provider(name))}
        self._discovery.apply(providers, self.plan.refresh_seconds)

    async def refresh(self, providers: Collection[str] | None) -> None:
        """Ask these now, or all of them; done when each has answered or failed."""
        await self.discover()
        await self._discovery.refresh(providers)

    # ── settings ────────────────────────────────────────────────────────────────────────────────────────────────

    async def apply(self, plan: Plan) -> None:
        """Other settings from now on: what changed is closed, and opened again when it is next needed."""
        before, self.plan = self.plan, plan
        if self._engine is not None and _limits(plan) != _limits(before):
            await self._engine.set_limits(_limits(plan))
        self.upstreams.apply(plan.servers)
        for name in [name for name in self._providers if _said_of(name, plan) != _said_of(name, before)]:
            task = asyncio.create_task(self._providers.pop(name).aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        await self.discover()

    async def aclose(self) -> None:
        """Close everything. Runs that are driven stay as they are, for others to take over."""
        await self._driver.stop_what_is_over(STOP_SECONDS)
        for task in (*self._stopping.values(), *filter(None, (self._chores,))):
            task.cancel()
        if self._engine is not None:
            await self._engine.close(0.0 if self._driver.is_calling else LAST_SECONDS)
        await self._discovery.aclose()
        for provider in self._providers.values():
            await provider.aclose()
        await self.upstreams.aclose()
        await self._runs.aclose()


def _limits(plan: Plan) -> Limits:
    return Limits(plan.max_concurrent, plan.max_concurrent_total)


def _said_of(name: str, plan: Plan) -> object:
    """All that the settings say about a provider: the server that it is behind is part of that."""
    config = plan.providers.get(name)
    return config, plan.servers.get(config.options.get("server") or name) if config else None
