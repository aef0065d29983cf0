"""The server's own work as the rest of the server sees it: it is asked for here, and done on another thread.

Nothing here waits, and nothing heavy is loaded until there is work.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from workflowlookup import extras
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import StorageError
from workflowlookup.execution.worker import Worker
from workflowlookup.providers.config import Plan
from workflowlookup.store.journal_url import JournalUrl

if TYPE_CHECKING:
    from concurrent.futures import Future

    from workflowlookup.execution.engine import Drive, Engine, Limits
    from workflowlookup.execution.loop_services import LoopServices
    from workflowlookup.language.values import Progress
    from workflowlookup.providers.discovery import ProviderListing
    from workflowlookup.runs.run import Run
    from workflowlookup.store.service import Runs
    from workflowlookup.trust import Consent

log = logging.getLogger(__name__)

WARM_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 10.0
"""How long laying work down may take; as a rule it takes a tenth of a second."""
MAX_SETTLED: Final = 256
"""How many runs that the worker is done with are cached for those who wait for them."""
RING_SECONDS: Final = 0.1
"""Between two rings for changes of runs that are still worked on."""
POLL_SECONDS: Final = 0.1
"""Between two polls for runs that others drive and somebody here waits for."""
WAIT_SECONDS: Final = 1.0
"""How long polling goes on after somebody last waited."""
_SHORT_WHILE: Final = 0.01
NOTHING_YET: "Final[Mapping[str, ProviderListing]]" = {}


def no_consent() -> "Consent":
    """Nothing that a repository brings may be done."""
    from workflowlookup.trust import NO_CONSENT  # noqa: PLC0415 - with the first work

    return NO_CONSENT


class Execution:
    """What runs need the server for. For one thread, which is not the worker's."""

    def __init__(  # noqa: PLR0913 - all that its work needs
        self,
        plan: Plan,
        make_runs: "Callable[[], Runs]",
        journal: str,
        wake: Callable[[], None],
        make_consent: "Callable[[], Consent]" = no_consent,
        *,
        is_guest: bool = False,
    ) -> None:
        """`wake` is called, from the worker's thread, whenever there may be news. A guest takes nothing over.

        What is made here is made on the worker's thread, once there is work.
        """
        self._is_guest = is_guest
        self._plan = plan
        self._make_runs = make_runs
        self._journal = journal
        self._wake = wake
        self._make_consent = make_consent
        self._progress: dict[str, Progress] = {}
        self._services: LoopServices | None = None
        """Once it is there; only what is said to be for any thread may be asked of it here."""
        self._settled: BoundedCache[str, Run] = BoundedCache(MAX_SETTLED)
        """Written on the journal's thread alone."""
        self._rung = self._waited = 0.0
        self._is_polling = False
        self._at_work: frozenset[str] | None = None
        """The runs at work when they were last polled; only ever replaced. None while nobody polls."""
        self._looks_after = False
        self.worker: Worker[LoopServices] = Worker(self._make_services)

    def _make_services(self) -> "LoopServices":
        from workflowlookup.execution.loop_services import LoopServices  # noqa: PLC0415 - on the worker's thread

        services = LoopServices(
            self._plan,
            self._make_runs,
            self._make_engine,
            wake=self._wake,
            on_change=self._note_change,
            consent=self._make_consent(),
            is_guest=self._is_guest or extras.is_missing(extras.CALLS),
        )
        self._progress = services.progress
        self._services = services
        return services

    def _make_engine(self, drive: "Drive", limits: "Limits") -> "Engine":
        from workflowlookup.execution.engine import engine_of  # noqa: PLC0415 - on the worker's thread

        return engine_of(self._journal).make(self._journal, drive, limits, self._is_guest)

    def _note_change(self, run_id: str, run: "Run | None") -> None:
        """On the journal's thread, after a change: cache a settled run, and ring for those who wait, not too often."""
        if is_settled := run is not None and not run.needs_server:
            self._settled[run_id] = run
        else:
            self._settled.pop(run_id)
        now = time.monotonic()
        if is_settled or now - self._rung > RING_SECONDS:
            self._rung = now
            self._wake()

    def cached_run(self, run_id: str) -> "Run | None":
        """A run for which the worker has nothing left to do, as it stored it a moment ago; else None."""
        return self._settled.get(run_id)

    def is_at_work(self, run_id: str) -> bool:
        """Whether a server, this one or another, has work to do for a run; False also when that cannot be said.

        The worker polls for it, for all runs together and only while somebody waits for one.
        """
        self._waited = time.monotonic()
        if not self._is_polling and self.worker.is_started:
            self._is_polling = True
            self.worker.post(self._poll)
        return self._at_work is not None and run_id in self._at_work

    async def _poll(self, services: "LoopServices") -> None:
        from asyncio import sleep  # noqa: PLC0415 - loaded with the worker

        try:
            while time.monotonic() - self._waited < POLL_SECONDS + WAIT_SECONDS:
                before, self._at_work = self._at_work, await services.at_work()
                if before is None or self._at_work is None or before - self._at_work:
                    self._wake()
                await sleep(POLL_SECONDS)
        finally:
            self._at_work, self._is_polling = None, False

    @property
    def fault(self) -> str:
        """Why no call can be carried out here for now; empty when calls can be, or when there were none yet."""
        return self._services.fault if self._services is not None else ""

    def discovered(self) -> "Mapping[str, ProviderListing]":
        """What the providers have, by name; the same object for as long as nothing of it changed."""
        return self._services.discovered() if self._services is not None else NOTHING_YET

    def await_discovered(self, names: Collection[str], seconds: float) -> None:
        """Wait until each of these providers has answered or failed, at most so long."""
        self.recover()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.discovered()
            if all(name in found and found[name].at for name in names):
                return
            time.sleep(_SHORT_WHILE)

    def follow(self, run: "Run") -> None:
        """A run has changed: what it needs the server for now is done."""
        if run.needs_stop:
            self.stop(run.id)
        elif run.needs_server:
            self.worker.post(lambda services: services.drive(run))

    def stop(self, run_id: str) -> None:
        """This run is over, and a call runs beneath: stop that, and store what came of it."""
        if self.worker.is_started:  # else nothing runs beneath anything here
            self.worker.post(lambda services: services.stop(run_id))

    def progress(self, run_id: str) -> "Progress | None":
        """How far a run is that is driven here, as of now; None when nothing is known."""
        return self._progress.get(run_id)

    def recover(self) -> None:
        """Take up what was left: runs at work without a driver, and calls that run though their run is over.

        Where nothing is configured that could be called, nothing is taken up from others, and nothing is loaded. Nor
        is anything taken up that cannot be called here: another server may have what it needs.
        """
        if self._looks_after:
            return
        if extras.is_missing(extras.CALLS):
            self._looks_after = True
            if self._plan.providers:
                self.worker.post(lambda services: services.discover())
            return
        if self._plan.servers or self._plan.providers or JournalUrl(self._journal).kind.has_replicas:
            self._looks_after = True
            self.worker.post(lambda services: services.discover())
            self.worker.post(lambda services: services.look_after())
            self.worker.post(lambda services: services.warm(WARM_SECONDS))
        elif self._has_work():
            self.worker.post(lambda services: services.look_after())

    def _has_work(self) -> bool:
        url = JournalUrl(self._journal)
        if url.kind.is_file and not os.path.exists(url.text):
            return False
        runs = self._make_runs()
        try:
            return bool(runs.at_work(1) or runs.runs_to_stop())
        except StorageError:
            return False  # whoever needs the journal is told
        finally:
            with contextlib.suppress(StorageError):
                runs.close()

    def refresh(self, providers: Collection[str] | None = None) -> "Future[None]":
        """Ask these providers now what they have, or all of them; done when each has answered or failed."""
        return self.worker.submit(lambda services: services.refresh(providers))

    def apply(self, plan: Plan) -> None:
        """Other settings from now on."""
        self._plan = plan
        if self.worker.is_started or (plan.is_on and plan.providers):
            self.worker.post(lambda services: services.apply(plan))
        if plan.servers or plan.providers:
            self.recover()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Lay down work; what was not done is taken up by whoever comes next."""
        self.worker.close(seconds)
