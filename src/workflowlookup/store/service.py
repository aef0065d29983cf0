"""The service that starts, advances, reads, imports and deletes runs.

`run_writer` decides and stores the changes; `server_work` has the calls and proofs of the server. A method returns only
after its events are stored.
"""

import contextlib
import functools
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from workflowlookup import extras
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import (
    InvalidParams,
    RunDamaged,
    RunNotFound,
    RunStateError,
    WorkflowLookupError,
)
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Context
from workflowlookup.runs import advance
from workflowlookup.runs.draft import NOWHERE, Draft, Location, Moment, submission_key
from workflowlookup.runs.events import (
    ConfirmationDenied,
    ConfirmationGiven,
    How,
    OutputAccepted,
    OutputRefused,
    Record,
    Signature,
    Started,
)
from workflowlookup.runs.exchange import refuse_changed
from workflowlookup.runs.fold import apply, fold
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.signing import NoPeople, People, refuse_unproven
from workflowlookup.runs.triage import Triage
from workflowlookup.store.imports import as_imported, check_import, refuse_future, without_source
from workflowlookup.store.journal import (
    Conflict,
    DamagedJournal,
    Journal,
    NoRoom,
    ReadOnly,
    RunQuery,
    RunSummary,
    now,
    summarise,
)
from workflowlookup.store.run_cache import SLICE, RunCache
from workflowlookup.store.run_writer import MAX_TRIES, RunWriter, moment, repeatable
from workflowlookup.store.runs_view import JournalWatch
from workflowlookup.store.server_work import ServerWork
from workflowlookup.trust import NO_CONSENT, Consent

T = TypeVar("T")

MAX_CHARACTERS: Final = 64 << 20
"""Of all submitted outputs of a run, because a run in use is in memory as a whole."""
PAGE: Final = 1_000
"""How many summaries are read at once when all are needed."""
MAX_REFUSALS: Final = 10_000
"""For how many runs a process remembers the last refusal."""
CLOCK_SKEW: Final = 60_000
"""By how many milliseconds the clocks of processes that share a journal may differ."""


def _new_id() -> str:
    return secrets.token_hex(6)


class Runs:
    """The runs of one journal."""

    def __init__(  # noqa: PLR0913 - all that the runs of a server need
        self,
        journal: Journal,
        *,
        clock: Callable[[], int] = now,
        new_id: Callable[[], str] = _new_id,
        consent: Consent = NO_CONSENT,
        locate: Callable[[], Location] = lambda: NOWHERE,
        people: People | None = None,
        began: int | None = None,
    ) -> None:
        """`consent`: what workflows that came with a repository may do; by default nothing. `locate` says where a run
        starts, `began` when this process did. `people`: who can sign answers; by default nobody.
        """
        self.journal = journal
        self._began = clock() if began is None else began
        self._locate = locate
        self._people = people or NoPeople()
        self.consent = consent
        self._clock = clock
        self._new_id = new_id
        self._cache = RunCache(journal, self._people)
        self._refusals: BoundedCache[str, int] = BoundedCache(MAX_REFUSALS)
        """By run: the sequence of the last refusal that this process has answered."""
        self._writer = RunWriter(journal, self._cache, clock)
        self.listeners = self._writer.listeners
        self.server_work = ServerWork(self._writer)

    # ── by agents and people ────────────────────────────────────────────────────────────────────────────────────

    def start(  # noqa: PLR0913 - everything a run starts with
        self,
        workflow: Workflow,
        inputs: Context,
        context: Context,
        *,
        run_id: str | None = None,
        by: str = "",
        timeout: float | None = None,
        client_roots: Sequence[str] = (),
    ) -> Run:
        """Start a run, and return it at its first step. `timeout`: in seconds, without the time it waits for people.
        `client_roots`: the directories of a client whose files this server cannot see.

        If a run with this id was started with the same values, it is returned in its current state.

        Raises `InvalidParams` for an invalid input or context, `RunStateError` for an id that is taken, `Untrusted` for
        a workflow from a repository that nobody trusted, `MissingExtra` for calls that this installation cannot make.
        """
        for _ in range(MAX_TRIES):
            if run_id is not None and self.journal.head(run_id) is not None:
                return self._same_start(run_id, workflow, inputs, context)
            if workflow.has_calls:
                extras.require(extras.CALLS)
            self.consent.refuse_untrusted(workflow.origin, workflow.document)
            at = moment(self._clock(), by)
            location = self._locate()
            if client_roots and not location.root:
                location = msgspec.structs.replace(location, client_root=client_roots[0])
            draft = advance.begin(
                run_id or self._new_id(), workflow, inputs, context, at, timeout=timeout, location=location
            )
            with repeatable() if run_id is not None else contextlib.nullcontext():
                is_stored = self._writer.store(0, draft)
            if is_stored:
                return draft.run
        raise RunStateError("No id could be found for the run. Try again.")

    def _same_start(self, run_id: str, workflow: Workflow, inputs: Context, context: Context) -> Run:
        run = self.get(run_id)
        started = self.journal.read(run_id, limit=1)[0].event
        is_same = isinstance(started, Started) and started.input == inputs and started.context == {**inputs, **context}
        if run.workflow.id == workflow.id and is_same:
            return run
        message = (
            f"There is a run '{run_id}' of workflow '{run.workflow.id}' that was started with other values. "
            "Use another id."
        )
        raise RunStateError(message, runId=run_id, state=run.state, workflowId=run.workflow.id)

    def submit(self, run_id: str, step_id: str, output: str, changes: Context, *, by: str = "") -> Run:
        """Submit an output; returns the run after it. For an output that was submitted before, the current run.

        A refused output that is sent again counts as a new attempt, unless it may be a retry whose answer was lost:
        its refusal is the last event of the run, and this process has not answered with it yet. An output that a proof
        refused before this process began is always a new attempt.

        Raises `RunNotFound` and the errors of `advance.submit`.
        """
        key = submission_key(step_id, output, changes)

        def decide(run: Run, at: Moment) -> Draft | Run:
            if run.waiting_for is Waiting.PROOF and run.proving is not None and run.proving.request.key == key:
                return run  # it is being proven
            if key in run.submissions and not self._is_new_attempt(run, step_id, key):
                return run
            if run.characters + len(output) > MAX_CHARACTERS:
                message = (
                    f"The outputs of the run have {run.characters:,} characters; with this one they would have more "
                    f"than {MAX_CHARACTERS:,}. Put long outputs into files, and submit their paths."
                )
                raise RunStateError(message, runId=run.id, state=run.state, stepId=step_id)
            return advance.submit(run, step_id, output, changes, at)

        with repeatable():
            run = self._writer.move(run_id, by, decide)
        if run.last_submission is not None and run.last_submission.key == key:
            self.note_answered(run)
        return run

    def note_answered(self, run: Run) -> None:
        """Note that a client has got the refusal of the last output. If it sends that again, this is a new attempt."""
        if isinstance(run.last_submission, OutputRefused):
            self._refusals[run.id] = run.submissions.get(run.last_submission.key, 0)

    def earlier_verdict(
        self, run: Run, step_id: str, output: str, changes: Context
    ) -> OutputAccepted | OutputRefused | None:
        """The verdict on a submission that was sent before, if the run has moved on since."""
        key = submission_key(step_id, output, changes)
        if run.proving is not None and run.proving.request.key == key:
            return None
        is_last = run.last_submission is not None and run.last_submission.key == key
        sequence = 0 if is_last else run.submissions.get(key, 0)
        event = self.journal.read(run.id, sequence - 1, 1)[0].event if sequence else None
        return event if isinstance(event, OutputAccepted | OutputRefused) else None

    def _is_new_attempt(self, run: Run, step_id: str, key: str) -> bool:
        """Whether an output that was refused before is sent as a new attempt: the client got the refusal."""
        if run.waiting_for is not Waiting.OUTPUT or run.current != step_id:
            return False
        is_last = run.last_submission is not None and run.last_submission.key == key
        is_of_earlier_process = run.updated < self._began and step_id in run.proofs  # what is proven may have changed
        return not is_last or is_of_earlier_process or self._refusals.get(run.id) == run.submissions[key]

    def supply(self, run_id: str, loop_id: str, changes: Context, *, by: str = "") -> Run:
        """Supply the variables that a loop waits for. Safe to repeat.

        Raises `RunNotFound` and the errors of `advance.supply`.
        """
        key = submission_key(loop_id, "", changes)

        def decide(run: Run, at: Moment) -> Draft | Run:
            return run if key in run.submissions else advance.supply(run, loop_id, changes, at)

        with repeatable():
            return self._writer.move(run_id, by, decide)

    def confirm(  # noqa: PLR0913 - everything an answer has
        self,
        run_id: str,
        step_id: str = "",
        *,
        how: How,
        question: str = "",
        note: str = "",
        answers: Context = advance.NO_ANSWERS,
        signature: Signature | None = None,
        by: str = "",
    ) -> Run:
        """Store that a person agreed to a step, by default the current one. Safe to repeat.

        `question`: the id of the question that the person saw. The answer does not count for another one.
        Raises the errors of `advance.confirm` and `signing.refuse_unproven`.
        """

        def decide(run: Run, at: Moment) -> Draft | Run:
            step = step_id or run.current
            answered = self._answered(run, step, ConfirmationGiven, question, note)
            return answered or self._proven(
                run,
                advance.confirm(
                    run, step, at, how=how, question=question, note=note, answers=answers, signature=signature
                ),
            )

        return self._writer.move(run_id, by, decide)

    def deny(  # noqa: PLR0913 - everything an answer has
        self,
        run_id: str,
        step_id: str = "",
        *,
        how: How,
        question: str = "",
        note: str = "",
        signature: Signature | None = None,
        by: str = "",
    ) -> Run:
        """Store that a person did not agree to a step. Safe to repeat. Raises as `confirm`."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            step = step_id or run.current
            answered = self._answered(run, step, ConfirmationDenied, question, note)
            return answered or self._proven(
                run, advance.deny(run, step, at, how=how, question=question, note=note, signature=signature)
            )

        return self._writer.move(run_id, by, decide)

    def _proven(self, run: Run, draft: Draft) -> Draft:
        """The draft of an answer, if the answer counts."""
        record = draft.records[0]
        if isinstance(record.event, ConfirmationGiven | ConfirmationDenied):
            refuse_unproven(self._people, run, record.event, record.time)
        return draft

    def dismiss(self, run_id: str, step_id: str, *, question: str, by: str = "") -> Run:
        """Store that a person closed the form of a question without an answer."""
        return self._writer.move(run_id, by, lambda run, at: advance.dismiss(run, step_id, at, question=question))

    def _answered(
        self, run: Run, step_id: str, kind: type[ConfirmationGiven | ConfirmationDenied], question: str, note: str
    ) -> Run | None:
        """The run as it was after the same answer was given before; None when this answer is new."""
        sequence, answer = run.answers.get(step_id, (0, None))
        is_open = run.waiting_for is Waiting.CONFIRMATION and run.current == step_id
        is_same = isinstance(answer, kind) and answer.note == note and question in ("", answer.question)
        if not is_same or (is_open and not question):
            return None
        return fold(run.id, self._cache.records(run.id), until=sequence)

    def cancel(self, run_id: str, reason: str = "", *, by: str = "") -> Run:
        """Cancel a run. Safe to repeat."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            return run if run.state is State.CANCELLED else advance.cancel(run, at, reason)

        return self._writer.move(run_id, by, decide)

    def pause(self, run_id: str, reason: str = "", *, by: str = "") -> Run:
        """Pause a run, so that hooks leave the agent alone. Safe to repeat."""
        return self._writer.move(run_id, by, lambda run, at: run if run.is_paused else advance.pause(run, at, reason))

    def resume(self, run_id: str, *, by: str = "") -> Run:
        """End the pause of a run. Safe to repeat."""
        return self._writer.move(run_id, by, lambda run, at: advance.resume(run, at) if run.is_paused else run)

    def block_stop(self, run_id: str, *, agent: str = "", by: str = "") -> Run:
        """Store that the agent wants to stop; after that, `is_released` says whether it may."""
        return self._writer.move(
            run_id, by, lambda run, at: run if run.is_released else advance.block_stop(run, at, agent)
        )

    def change_session(self, run_id: str, session: str, *, by: str = "") -> Run:
        """Store that this session of the client works on the run. Safe to repeat."""

        def decide(run: Run, at: Moment) -> Draft | Run:
            return run if run.client_session == session else advance.change_session(run, at, session)

        return self._writer.move(run_id, by, decide)

    def refuse_tool(self, run_id: str, tool: str, pattern: str, *, by: str = "") -> Run:
        """Store that a tool was refused."""
        return self._writer.move(run_id, by, lambda run, at: advance.refuse_tool(run, at, tool, pattern))

    def open_runs(self, root: str) -> list[str]:
        """The runs of a project that are not over, the last started first."""
        return self.journal.open_runs(root)

    def counts(self) -> dict[str, int]:
        """The number of runs in each state. Deadlines that passed since a run's last change are not counted."""
        return self.journal.counts()

    def queue_position(self, run_id: str) -> tuple[int, int]:
        """The position of a run in the queue of calls that are not begun yet, from 1, or 0; and the queue's length."""
        return self.journal.queue_position(run_id)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, run_id: str) -> Run:
        """The current run. Raises `RunNotFound`."""
        run = self._cache.get(run_id)
        if advance.expire(run, Moment(time=max(self._clock(), run.updated))) is None:
            return run
        try:
            with repeatable():
                return self._writer.move(run_id, "", lambda run, _: run)
        except (ReadOnly, NoRoom):  # that its deadline has passed cannot be stored
            return self._cache.read(run_id)

    def offer(self, run: Run) -> None:
        """Cache a run that was folded elsewhere in this process."""
        self._cache.offer(run)

    def load_slice(self, run_id: str) -> bool:
        """Fold a slice of a long run; True when `get` will be quick, because little is left to fold."""
        return self._cache.load_slice(run_id)

    def after(self, run: Run) -> Run:
        """The run at its next resting point after this one; the same when there is none yet."""
        for record in self._cache.records(run.id, run.sequence, run.head):
            run = apply(run, record)
            if run.rests:
                break
        return run

    def workflow_of(self, run_id: str) -> str | None:
        """The id of a run's workflow; None when there is no such run."""
        return self.journal.workflow_of(run_id)

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Those of these runs that were imported, each with its source."""
        return self.journal.imported(run_ids)

    def history(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        """The records of a run after a sequence; all, or the first `limit`. Raises `RunNotFound`."""
        self.get(run_id)
        return self.journal.read(run_id, after, limit)

    def records(self, run_id: str, after: int = 0, limit: int = SLICE) -> list[Record]:
        """The next records of a run, without checking the run; empty when there is no such run."""
        return self.journal.read(run_id, after, limit)

    def summaries(self, query: RunQuery) -> list[RunSummary]:
        """A page of runs, the last started first."""
        for run_id in self.journal.overdue(self._clock()):
            with contextlib.suppress(WorkflowLookupError):  # a damaged or deleted run must not hide the others
                self.get(run_id)
        return self.journal.summaries(query)

    def triage_counts(self, query: RunQuery) -> dict[tuple[str, Triage], int]:
        """By workflow and group: the number of runs that match."""
        return self.journal.triage_counts(query)

    def all_summaries(self, query: RunQuery | None = None) -> Iterator[RunSummary]:
        """All runs that match, the last started first, read in pages."""
        query = msgspec.structs.replace(query or RunQuery(), limit=PAGE)
        while page := self.summaries(query):
            yield from page
            if len(page) < PAGE:
                return
            query = msgspec.structs.replace(query, after=(page[-1].started, page[-1].id))

    def recent(self, limit: int) -> list[RunSummary]:
        """The runs that were started last."""
        return self.summaries(RunQuery(limit=limit))

    def heads(self) -> dict[str, int]:
        """The last sequence of each run that any process changed recently."""
        return self.journal.heads(self._clock() - CLOCK_SKEW)

    def watch(self, listener: Callable[[str], None]) -> JournalWatch:
        """Follow all runs: the listener is called for changes by this process, the watch reports those by others."""
        return JournalWatch(self, listener)

    # ── import and deletion ─────────────────────────────────────────────────────────────────────────────────────

    def import_run(self, run_id: str, records: Sequence[Record], source: str, length: int = 0) -> bool:
        """Import a run from another journal, and record its source. False when the same run is stored already.

        `length`: how many records were exported; 0 if that is not known.

        Raises `InvalidParams` for records that are not a run, and `RunStateError` when another run has its id.
        """
        refuse_changed(run_id, records, length)
        if self.journal.head(run_id) is None:
            refuse_future(run_id, records, self._clock())
            self.store_import(run_id, as_imported(records, source))
            return True
        if without_source(records) == without_source(self.journal.read(run_id)):
            return False
        message = f"There is a run '{run_id}' already, with other events. Import this one into another journal."
        raise RunStateError(message, runId=run_id)

    def store_import(self, run_id: str, records: Sequence[Record]) -> Run:
        """Store a run from another journal. Raises `InvalidParams` or `RunStateError`."""
        run = check_import(run_id, records)
        try:
            self._cache.fold(run_id, records)
        except RunDamaged as damage:
            raise InvalidParams(damage.problem.rstrip(".")) from damage
        try:
            head = self.journal.append(run_id, 0, records, summarise(run))
        except Conflict:
            raise RunStateError(f"There is a run '{run_id}' already.", runId=run_id) from None
        run = msgspec.structs.replace(run, head=head)
        self._writer.notify(run_id, run)
        return run

    def delete(self, run_id: str) -> None:
        """Delete a run. Raises `RunNotFound`."""
        self._cache.forget(run_id)
        if not self.journal.delete(run_id):
            raise self.not_found(run_id)
        self._writer.notify(run_id, None)

    def purge(self, before: int) -> int:
        """Delete the runs that are over and were last updated before a time; returns how many."""
        self._cache.clear()
        return self.journal.purge(before)

    def damaged_runs(self, deadline: float = math.inf) -> Iterator[tuple[RunSummary, str]]:
        """The runs that cannot be read, or were changed after they were written, each with a sentence that says what
        is wrong. Reads all of them, the last started first, until the deadline, by `time.monotonic`.
        """
        for summary in self.all_summaries():
            if time.monotonic() > deadline:
                return
            try:
                self._cache.read(summary.id)
            except RunDamaged as damage:
                yield summary, damage.problem
            except RunStateError as refusal:
                yield summary, refusal.remedy
            except RunNotFound:
                pass  # it was deleted meanwhile

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        """The damaged journals that were set aside and still exist: a run that is missing may be in one."""
        return self.journal.damaged_journals()

    def not_found(self, run_id: str) -> RunNotFound:
        """The error for an id that no run has."""
        return self._cache.not_found(run_id)

    def close(self) -> None:
        self.journal.close()

    def do_all(self, pieces: Sequence[Callable[["Runs"], T]]) -> list[T | Exception]:
        """As `RunWriter.do_all`; each piece gets these runs."""
        return self._writer.do_all([functools.partial(piece, self) for piece in pieces])
