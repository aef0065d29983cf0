"""The server's own work as the rest of the server sees it: it is asked for here, and done on another thread.

Nothing here waits, and nothing heavy is loaded until there is work.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from workflowlookup.errors import StorageError
from workflowlookup.execution.worker import Worker
from workflowlookup.journals import JournalUrl
from workflowlookup.providers.config import Plan

if TYPE_CHECKING:
    from concurrent.futures import Future

    from workflowlookup.core.progress import Progress
    from workflowlookup.core.run import Run
    from workflowlookup.execution.engine import Drive, Engine
    from workflowlookup.execution.loop_services import LoopServices
    from workflowlookup.providers.discovery import Discovered
    from workflowlookup.runs.service import Runs
    from workflowlookup.trust import Consent

log = logging.getLogger(__name__)

WARM_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 10.0
"""How long laying work down may take; as a rule it takes a tenth of a second."""
_SHORT_WHILE: Final = 0.01
NOTHING_YET: "Final[Mapping[str, Discovered]]" = {}


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
        ring: Callable[[], None],
        make_consent: "Callable[[], Consent]" = no_consent,
        *,
        is_guest: bool = False,
    ) -> None:
        """`ring` is called, from the worker's thread, whenever there may be news. A guest takes nothing over.

        What is made here is made on the worker's thread, once there is work.
        """
        self._is_guest = is_guest
        self._plan = plan
        self._make_runs = make_runs
        self._journal = journal
        self._ring = ring
        self._make_consent = make_consent
        self._progress: dict[str, Progress] = {}
        self._services: LoopServices | None = None
        """Once it is there; only what is said to be for any thread may be asked of it here."""
        self._looks_after = False
        self.worker: Worker[LoopServices] = Worker(self._make_services)

    def _make_services(self) -> "LoopServices":
        from workflowlookup.execution.loop_services import LoopServices  # noqa: PLC0415 - on the worker's thread

        services = LoopServices(
            self._plan,
            self._make_runs,
            self._make_engine,
            ring=self._ring,
            on_change=self._note_change,
            consent=self._make_consent(),
            is_guest=self._is_guest,
        )
        self._progress = services.progress
        self._services = services
        return services

    def _make_engine(self, drive: "Drive", max_concurrent: int) -> "Engine":
        from workflowlookup.execution.engines import engine_of  # noqa: PLC0415 - on the worker's thread

        return engine_of(self._journal).make(self._journal, drive, max_concurrent, self._is_guest)

    def _note_change(self, _: str, __: "Run | None") -> None:
        self._ring()

    def discovered(self) -> "Mapping[str, Discovered]":
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

        Where nothing is configured that could be called, nothing is taken up from others, and nothing is loaded.
        """
        if self._looks_after:
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
            return bool(runs.at_work(1) or runs.left_running())
        except StorageError:
            return False  # whoever needs the journal is told
        finally:
            with contextlib.suppress(StorageError):
                runs.close()

    def refresh(self) -> "Future[None]":
        """Ask all providers now what they have; done when each has answered or failed."""
        return self.worker.ask(lambda services: services.refresh())

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
