"""Finds the runs that people are told about, and sends the notices, in a thread of each server.

What is to be sent is stored in the journal first: of several servers one sends it, and after a crash another one does.
A notice may arrive twice if a server dies while it sends it; both have the same id. Nothing here changes a run.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.notices.config import Recipient
from workflowlookup.notices.delivery import NotSent, send
from workflowlookup.notices.messages import notice_of
from workflowlookup.runs.triage import Triage
from workflowlookup.store.journal import Journal, PendingNotice, RunOrder, RunQuery, RunSummary, summarise
from workflowlookup.store.service import Runs

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0
SCAN_MILLISECONDS: Final = 60_000
"""A run gets stuck without any change, so runs are also scanned after this time."""
LOOK_BACK_MILLISECONDS: Final = 600_000
"""How long ago a run may have failed when a server starts to tell people about it."""
MAX_RUNS: Final = 500
"""Of each kind in one scan: those that began to wait last, so that no number of others hides a new one."""
MAX_SENT: Final = 20
"""In one poll."""
LEASE_MILLISECONDS: Final = 60_000
"""How long one server tries to send a notice before another one may."""
RETRY_SECONDS: Final = (5, 20, 60, 300, 1_200, 3_600)
"""The pauses after failed attempts; after the last one the notice is given up."""

KINDS: Final = (Triage.PERSON, Triage.STUCK, Triage.FAILED)


class Notifier:
    """Tells the recipients about the runs of a journal, until it is stopped."""

    def __init__(
        self,
        runs: Runs,
        recipients: Sequence[Recipient],
        *,
        public_url: str,
        clock: Callable[[], int],
    ) -> None:
        """`runs`: on a connection of their own, because everything happens in a thread of this object."""
        self._runs = runs
        self._recipients = {recipient.name: recipient for recipient in recipients}
        self._public_url = public_url
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="notices", daemon=True)
        self._failed_since = clock() - LOOK_BACK_MILLISECONDS
        self._scanned: tuple[int, int] | None = None
        """The journal's version and the time of the last scan."""

    @property
    def _journal(self) -> Journal:
        return self._runs.journal

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. An attempt that is being made is cut."""
        self._stop.set()
        self._thread.join(POLL_SECONDS)

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self.poll()
                except WorkflowLookupError as problem:
                    log.warning("no notices are sent for now: %s", problem)
                except Exception:  # broad on purpose: notices end neither a server nor their own thread
                    log.exception("no notices are sent for now")
                self._stop.wait(POLL_SECONDS)
        finally:
            self._runs.close()

    def poll(self) -> None:
        """Store the notices for new events, and send those that are due."""
        self._scan()
        away: set[str] = set()
        for pending in self._journal.due_notices(self._clock(), MAX_SENT):
            if self._stop.is_set():
                return
            if pending.recipient in away or not self._journal.claim_notice(pending, self._clock() + LEASE_MILLISECONDS):
                continue
            if not self._send(pending, self._recipients.get(pending.recipient)):
                away.add(pending.recipient)  # its other notices wait for the next poll, and delay nobody else's

    def _scan(self) -> None:
        now, version = self._clock(), self._journal.version()
        if self._scanned is not None and self._scanned[0] == version and now - self._scanned[1] < SCAN_MILLISECONDS:
            return
        self._scanned = version, now
        notices = [
            PendingNotice(
                id=f"{notice_of(run, kind).id}:{recipient.name}",
                run=run.id,
                kind=kind,
                recipient=recipient.name,
                due=now,
            )
            for kind in KINDS
            for run in self._runs_of(kind, now)
            for recipient in self._recipients.values()
            if recipient.wants(kind, run.workflow_id)
        ]
        if notices:
            self._journal.add_notices(notices)

    def _runs_of(self, kind: Triage, now: int) -> Iterator[RunSummary]:
        since = self._failed_since if kind is Triage.FAILED else None
        query = RunQuery(triage=kind, now=now, updated_since=since, order=RunOrder.LAST_WAITING, limit=MAX_RUNS)
        yield from self._runs.summaries(query)

    def _send(self, pending: PendingNotice, recipient: Recipient | None) -> bool:
        """Send a notice that is ours for now; afterwards it has ended, or it is due again. False if it was not sent."""
        now = self._clock()
        try:
            run = self._runs.get(pending.run)
        except WorkflowLookupError:
            self._journal.end_notice(pending.id, now, "the run cannot be read")
            return True
        summary = summarise(run)
        is_current = summary.triage(now) == pending.kind
        if recipient is None or not is_current:
            self._journal.end_notice(pending.id, now, "no longer needed")
            return True
        asked_about = run.last_submission.output if run.last_submission is not None else ""
        output = asked_about if recipient.with_output and pending.kind == Triage.PERSON else ""
        notice = notice_of(summary, Triage(pending.kind), public_url=self._public_url, output=output)
        try:
            send(notice, recipient, self._stop)
        except NotSent as problem:
            self._retry(pending, problem)
            return False
        self._journal.end_notice(pending.id, self._clock())
        return True

    def _retry(self, pending: PendingNotice, problem: NotSent) -> None:
        is_given_up = problem.is_final or pending.attempts >= len(RETRY_SECONDS)
        if is_given_up:
            self._journal.end_notice(pending.id, self._clock(), str(problem))
        else:
            due = self._clock() + RETRY_SECONDS[pending.attempts] * 1000
            self._journal.postpone_notice(pending.id, due)
        verb = "was given up" if is_given_up else "is tried again"
        log.warning("the notice about run %s to [notify.%s] %s: %s", pending.run, pending.recipient, verb, problem)
