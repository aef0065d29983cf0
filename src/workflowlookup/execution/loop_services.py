"""Composes the parts that live on the worker's loop: the journal, MCP servers, providers, the driver, the engine."""

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
from workflowlookup.execution.engine import TAKE_OVER_SECONDS, ConcurrencyLimits, Drive, Engine
from workflowlookup.execution.proof_runner import ProofRunner
from workflowlookup.language.values import Progress
from workflowlookup.providers.config import Plan
from workflowlookup.providers.discovery import Discovery, ProviderListing
from workflowlookup.providers.provider import Provider, make_provider
from workflowlookup.providers.upstream import Upstreams
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.store.journal import RunSummary
from workflowlookup.store.server_work import MAX_AT_WORK
from workflowlookup.store.service import Runs
from workflowlookup.trust import Consent

log = logging.getLogger(__name__)

REOPEN_SECONDS: Final = 5.0
"""Between two attempts to open the engine."""
GRACE_SECONDS: Final = 0.5
"""At the end, for drivers that make no call and only have to finish."""
ORPHAN_MS: Final = 1_000
"""How long a due call may have no driver: the process that stored it is about to start one."""
FIRST_STOP_PAUSE: Final = 2.0
MAX_STOP_PAUSE: Final = 300.0
"""Between two attempts to stop the same remote job: doubled each time, up to the maximum."""
MAX_STOPPING: Final = 8
"""How many such attempts are made at the same time."""


class LoopServices:
    """The services of one loop. Must be created on it."""

    def __init__(  # noqa: PLR0913 - everything that lives on it
        self,
        plan: Plan,
        make_runs: Callable[[], Runs],
        make_engine: Callable[[Drive, ConcurrencyLimits], Engine],
        *,
        wake: Callable[[], None],
        on_change: Callable[[str, Run | None], None],
        consent: Consent,
        proofs: ProofRunner,
        is_guest: bool = False,
        can_call: bool = True,
    ) -> None:
        """`can_call`: whether this installation can make calls; proofs it can always take."""
        self.plan = plan
        self._can_call = can_call
        self._proofs = proofs
        self._is_guest = is_guest
        self._make_engine = make_engine
        self._runs = AsyncRuns(make_runs, on_change)
        self.upstreams = Upstreams(plan.servers)
        self._providers: dict[str, Provider] = {}
        self._driver = Driver(self._runs, CallRunner(self.upstreams, self.provider, consent), proofs, wake)
        self._discovery = Discovery(wake)
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self._chores: asyncio.Task[None] | None = None
        self._failed_runs: set[str] = set()
        """The runs that cannot be continued and for which that was logged."""
        self._closing: set[asyncio.Task[None]] = set()
        self._stopping: dict[str, asyncio.Task[None]] = {}
        """By run: the current attempt to stop its call."""
        self._stop_retries: dict[str, tuple[int, float]] = {}
        """By run: the number of attempts so far, and the time of the next one."""

    @property
    def progress(self) -> dict[str, Progress]:
        return self._driver.progress

    @property
    def fault(self) -> str:
        """Why no call can be made here at present; empty when calls can be. For any thread."""
        return self._engine.fault if self._engine is not None else ""

    def discovered(self) -> Mapping[str, ProviderListing]:
        """The workflows of the providers. For any thread."""
        return self._discovery.snapshot()

    def provider(self, name: str) -> Provider | None:
        """The provider with this name, created on first use; None when the settings have none."""
        config = self.plan.providers.get(name)
        if config is None:
            return None
        if name not in self._providers:
            self._providers[name] = make_provider(config, self.upstreams)
        return self._providers[name]

    # ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def drive(self, run: Run, *, again: bool = False) -> None:
        """Start driving a run whose call or proofs are due, in this process or another."""
        if run.due is not None:
            self._runs.offer(run)
            engine = self._engine or await self._open_engine()
            await engine.start(run.id, run.due, again=again, is_here=run.waiting_for is Waiting.PROOF)

    async def stop(self, run_id: str) -> None:
        """Stop the call or the proofs of a run that is over, if they are made here."""
        self._driver.nudge(run_id)

    async def at_work(self) -> frozenset[str] | None:
        """The runs that wait for a call or proofs by any server; None when they cannot be read."""
        try:
            work = await self._runs.do(lambda runs: runs.server_work.at_work())
        except StorageError:
            return None
        return frozenset(summary.id for summary in work) if len(work) < MAX_AT_WORK else None

    async def recover(self) -> None:
        """From now on, drive due calls that have no driver, and stop calls whose run is over.

        The engine is opened only when there is such work.
        """
        while self._engine is None:
            with contextlib.suppress(StorageError):
                if await self._runs.do(
                    lambda runs: bool(runs.server_work.at_work(1) or runs.server_work.runs_to_stop())
                ):
                    await self._open_engine()
                    return
            await asyncio.sleep(TAKE_OVER_SECONDS)

    async def warm(self, seconds: float) -> None:
        """Open the engine after a while, so that the first call need not wait for it."""
        await asyncio.sleep(seconds)
        await self._open_engine()

    async def _open_engine(self) -> Engine:
        async with self._opening:
            while self._engine is None:
                engine = self._make_engine(self._driver.drive, _limits(self.plan))
                try:
                    await engine.open()
                except StorageError as problem:
                    log.error("%s", problem.remedy)  # noqa: TRY400 - a traceback would not help
                    await asyncio.sleep(REOPEN_SECONDS)
                else:
                    self._engine = engine
                    if not self._is_guest:
                        self._chores = asyncio.create_task(self._run_chores(engine))
        return self._engine

    async def _run_chores(self, engine: Engine) -> None:
        """Take over and drive orphaned runs, again and again. Each chore runs even if another fails."""
        while True:
            for name, chore in (("take-over", engine.take_over), ("driving orphaned runs", self._drive_orphans)):
                try:
                    await chore()
                except Exception as problem:  # noqa: BLE001 - DBOS and drivers raise many kinds
                    log.debug("%s failed: %r", name, problem)
            await asyncio.sleep(TAKE_OVER_SECONDS)

    async def _drive_orphans(self) -> None:
        """Drive the due calls that no process drives, and stop the calls of runs that are over."""
        engine = self._engine
        at_work = await self._runs.do(lambda runs: [*runs.server_work.at_work()])
        to_stop = await self._runs.do(lambda runs: runs.server_work.runs_to_stop() if self._can_call else [])
        if engine is None or not (at_work or to_stop):
            return
        now = time.time() * 1000
        for summary in at_work:
            if summary.deadline is not None and summary.deadline < now:
                await self._try_with(summary.id, self._runs.get)  # reading ends a run whose deadline has passed
        old = [one.id for one in at_work if one.updated < now - ORPHAN_MS and self._can_drive(one)]
        driven = await engine.driven([*old, *to_stop])
        for run_id in old:
            if run_id not in driven:
                await self._try_with(run_id, self._drive_again)
        self._stop_retries = {run_id: retry for run_id, retry in self._stop_retries.items() if run_id in to_stop}
        for run_id in to_stop:
            if run_id not in driven and run_id not in self._stopping:
                self._stop_in_background(run_id)

    def _can_drive(self, summary: RunSummary) -> bool:
        return self._can_call or summary.waiting_for == Waiting.PROOF

    async def _drive_again(self, run_id: str) -> None:
        await self.drive(await self._runs.get(run_id), again=True)

    def _stop_in_background(self, run_id: str) -> None:
        """Try to stop the call of a run that is over, unless that was tried a moment ago."""
        tries, at = self._stop_retries.get(run_id, (0, 0.0))
        if time.monotonic() < at or len(self._stopping) >= MAX_STOPPING:
            return
        pause = min(FIRST_STOP_PAUSE * 2 ** min(tries, 10), MAX_STOP_PAUSE)
        self._stop_retries[run_id] = (tries + 1, time.monotonic() + pause)

        async def stop() -> None:
            try:
                await self._try_with(run_id, self._driver.stop_orphan)
            finally:
                del self._stopping[run_id]

        self._stopping[run_id] = asyncio.create_task(stop())

    async def _try_with(self, run_id: str, do: Callable[[str], Awaitable[object]]) -> None:
        """Call `do` with a run. A failure is logged once, and does not affect other runs."""
        try:
            await do(run_id)
        except RunNotFound:
            pass  # it was deleted meanwhile
        except Exception as problem:  # noqa: BLE001 - DBOS and drivers raise many kinds
            if run_id not in self._failed_runs:
                self._failed_runs.add(run_id)
                log.warning("run %s cannot be continued: %s", run_id, getattr(problem, "remedy", "") or repr(problem))
        else:
            self._failed_runs.discard(run_id)

    # ── providers ───────────────────────────────────────────────────────────────────────────────────────────────

    async def discover(self) -> None:
        """Poll the providers for their workflows from now on."""
        names = self.plan.providers if self.plan.is_on else ()
        providers = {name: provider for name in names if (provider := self.provider(name))}
        self._discovery.apply(providers, self.plan.refresh_seconds)

    async def refresh(self, providers: Collection[str] | None) -> None:
        """Poll these providers now, or all; returns when each has answered or failed."""
        await self.discover()
        await self._discovery.refresh(providers)

    # ── settings ────────────────────────────────────────────────────────────────────────────────────────────────

    async def apply(self, plan: Plan) -> None:
        """Apply changed settings. What they affect is closed, and opened again on its next use."""
        before, self.plan = self.plan, plan
        if self._engine is not None and _limits(plan) != _limits(before):
            await self._engine.set_limits(_limits(plan))
        self.upstreams.apply(plan.servers)
        for name in [name for name in self._providers if _settings_of(name, plan) != _settings_of(name, before)]:
            task = asyncio.create_task(self._providers.pop(name).aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        await self.discover()

    async def aclose(self) -> None:
        """Close everything. Runs that are driven stay as they are, so that other processes can take them over."""
        await self._driver.stop_what_is_over(STOP_SECONDS)
        for task in (*self._stopping.values(), *filter(None, (self._chores,))):
            task.cancel()
        if self._engine is not None:
            await self._engine.close(0.0 if self._driver.is_calling else GRACE_SECONDS)
        await self._discovery.aclose()
        for provider in self._providers.values():
            await provider.aclose()
        await self.upstreams.aclose()
        self._proofs.close()
        await self._runs.aclose()


def _limits(plan: Plan) -> ConcurrencyLimits:
    return ConcurrencyLimits(plan.max_concurrent, plan.max_concurrent_total)


def _settings_of(name: str, plan: Plan) -> object:
    """The settings of a provider, with those of its MCP server."""
    config = plan.providers.get(name)
    return config, plan.servers.get(config.options.get("server") or name) if config else None
