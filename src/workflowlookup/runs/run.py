"""A run, its states, and `fold`, which computes it from its events.

A run is its journal: an event says what happened and never changes. A run rests when it waits (for an agent, a person,
a call that the server makes, or proofs that it takes) or is over. The events of one call are a batch, which ends where
the run rests and is stored whole. So every stored run rests, and what one call did ends at the first rest after its
first event; only a batch that begins with a snapshot or a proof may go on after that.

`advance`, `server_calls` and `proofs` decide what happens next; this module only knows what has happened.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import RunStateError
from workflowlookup.language.building import build
from workflowlookup.language.conditions import Condition
from workflowlookup.language.contract import Need
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import Iterating, LoopPosition, NextStep, find_step, is_inside, scope_of
from workflowlookup.language.templates import fill_values, filler
from workflowlookup.language.values import Context, Json, json_bytes
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record, RemoteError, Snapshot, kind_of
from workflowlookup.runs.persistent_map import PersistentMap
from workflowlookup.runs.proof_state import NO_PROOFS, PROOF_VARIABLE, ProofCounts, Proving, StepProofs


class State(StrEnum):
    """What a run is doing."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """Another system worked on it, and nothing can say how that ended."""


class Waiting(StrEnum):
    """What a run waits for: the agent's output, variables without which the next step cannot be chosen, a person's
    answer, a call that the server makes, or proofs that it takes.
    """

    OUTPUT = "output"
    CONTEXT = "context"
    CONFIRMATION = "confirmation"
    CALL = "call"
    PROOF = "proof"


# ── states ──────────────────────────────────────────────────────────────────────────────────────────────────────

Status: TypeAlias = tuple[State, Waiting | None]

_QUEUED: Final[Status] = (State.QUEUED, None)
_RUNNING: Final[Status] = (State.RUNNING, None)
_WAITING_FOR_OUTPUT: Final[Status] = (State.WAITING, Waiting.OUTPUT)
_WAITING_FOR_CONTEXT: Final[Status] = (State.WAITING, Waiting.CONTEXT)
_WAITING_FOR_CONFIRMATION: Final[Status] = (State.WAITING, Waiting.CONFIRMATION)
_DUE: Final[Status] = (State.QUEUED, Waiting.CALL)
_CALLING: Final[Status] = (State.RUNNING, Waiting.CALL)
_PROVING: Final[Status] = (State.RUNNING, Waiting.PROOF)
_COMPLETED: Final[Status] = (State.COMPLETED, None)
_FAILED: Final[Status] = (State.FAILED, None)
_CANCELLED: Final[Status] = (State.CANCELLED, None)
_UNKNOWN: Final[Status] = (State.UNKNOWN, None)


def _while_waiting(status: Status, *, for_agent: bool = True) -> Mapping[type[Event], Status]:
    """What can happen to a run while it waits, and leaves it waiting: pauses, and what hooks do to the agent."""
    by_hooks = (events.StopBlocked, events.StopReleased, events.ToolRefused) if for_agent else ()
    return dict.fromkeys((events.Paused, events.Resumed, *by_hooks), status)


TRANSITIONS: Final[Mapping[Status, Mapping[type[Event], Status]]] = MappingProxyType(
    {
        _QUEUED: {events.Started: _RUNNING},
        _RUNNING: {
            events.OutputAccepted: _RUNNING,
            events.OutputRefused: _RUNNING,
            events.ContextChanged: _RUNNING,
            events.ContextRestored: _RUNNING,
            events.StepSkipped: _RUNNING,
            events.LoopEntered: _RUNNING,
            events.LoopIterated: _RUNNING,
            events.LoopLeft: _RUNNING,
            events.StepOffered: _WAITING_FOR_OUTPUT,
            events.ContextAsked: _WAITING_FOR_CONTEXT,
            events.ConfirmationAsked: _WAITING_FOR_CONFIRMATION,
            events.CallDue: _DUE,
            events.ProofsDue: _PROVING,
            events.Completed: _COMPLETED,
            events.Failed: _FAILED,
        },
        _WAITING_FOR_OUTPUT: {
            events.OutputAccepted: _RUNNING,
            events.OutputRefused: _RUNNING,
            events.ProofsDue: _PROVING,
            events.Failed: _FAILED,
            events.Cancelled: _CANCELLED,
            **_while_waiting(_WAITING_FOR_OUTPUT),
        },
        _WAITING_FOR_CONTEXT: {
            events.ContextChanged: _RUNNING,
            events.Failed: _FAILED,
            events.Cancelled: _CANCELLED,
            **_while_waiting(_WAITING_FOR_CONTEXT),
        },
        _WAITING_FOR_CONFIRMATION: {
            events.ConfirmationGiven: _RUNNING,
            events.ConfirmationDenied: _RUNNING,
            events.ConfirmationDismissed: _WAITING_FOR_CONFIRMATION,
            events.Cancelled: _CANCELLED,
            **_while_waiting(_WAITING_FOR_CONFIRMATION, for_agent=False),
        },
        _DUE: {events.CallBegun: _CALLING, events.Failed: _FAILED, events.Cancelled: _CANCELLED},
        _CALLING: {
            events.CallAcknowledged: _CALLING,
            events.CallProgressed: _CALLING,
            events.CallFailed: _RUNNING,
            events.OutputAccepted: _RUNNING,
            events.OutputRefused: _RUNNING,
            events.Failed: _FAILED,
            events.EndUnknown: _UNKNOWN,
            events.Cancelled: _CANCELLED,
        },
        _PROVING: {
            events.ProofClaimed: _PROVING,
            events.SnapshotTaken: _PROVING,
            events.ProofTaken: _PROVING,
            events.StepOffered: _WAITING_FOR_OUTPUT,
            events.OutputAccepted: _RUNNING,
            events.OutputRefused: _RUNNING,
            events.ConfirmationAsked: _WAITING_FOR_CONFIRMATION,
            events.Failed: _FAILED,
            events.Cancelled: _CANCELLED,
        },
        _COMPLETED: {},
        _UNKNOWN: {},
        _FAILED: {events.CallAcknowledged: _FAILED, events.CallStopped: _FAILED},
        _CANCELLED: {events.CallAcknowledged: _CANCELLED, events.CallStopped: _CANCELLED},
    }
)
"""By status: the events that are allowed, each with the status after it. Every other event is refused."""

OVER: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.UNKNOWN})


class CallState(msgspec.Struct, frozen=True, kw_only=True):
    """The call of a step, and how far it is."""

    step_id: str
    due: int
    """The sequence of the event that first made it due."""
    key: str
    """Idempotency key for the called system. Every attempt has the same key, also after a crash, until an attempt has
    started a job there that has ended.
    """
    attempt: int = 0
    """How many times it was begun."""
    begun: bool = False
    """Whether it is being made now, according to the journal."""
    remote_id: str = ""
    """The id of the other system's run for this attempt."""
    progress: events.CallProgressed | None = None
    progressed_at: int = 0
    failure: str = ""
    """Why the last attempt failed."""
    error: RemoteError | None = None
    """What the other system reported about that failure."""
    may_run: bool = False
    """Whether the other system may still work on that attempt."""
    stopped: events.CallStopped | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run after the events so far."""

    id: str
    workflow: Workflow
    """Of the document that the run started with."""
    hash: str
    input: Mapping[str, Json]
    context: Context
    started: int
    by: str
    """Who started it."""
    updated: int
    sequence: int
    head: str = ""
    """The hash of the last stored event (see `chain`); empty if unknown."""
    state: State
    waiting_for: Waiting | None = None
    current: str = ""
    """The step that was offered last, with its iteration; while the run waits for context, the loop that needs it."""
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()
    attempts: int = 0
    """How many outputs of the current step were refused."""
    last_submission: events.OutputAccepted | events.OutputRefused | None = None
    """The last output and its verdict; None again after a person's answer."""
    results: PersistentMap[str, str] = PersistentMap()
    """By completed step, in order: its output."""
    characters: int = 0
    """The total length of `results`."""
    large_results: PersistentMap[str, events.OutputAccepted] = PersistentMap()
    """By step: results of calls that are cut, or that variables only refer to."""
    skipped: PersistentMap[str, Condition] = PersistentMap()
    passed: PersistentMap[str, None] = PersistentMap()
    """Ids that navigation takes as completed: steps, within a loop only those of its current iteration, and loops that
    are over.
    """
    iterating: Iterating = {}
    extents: PersistentMap[str, list[Json] | int] = PersistentMap()
    """The list or count of each loop, as it was when the loop was entered."""
    missing: tuple[Need, ...] = ()
    """The variables that the run waits for, if it waits for context."""
    open_question: events.ConfirmationAsked | None = None
    question_time: int = 0
    question_id: str = ""
    """The id of the open question. An answer names the question that the person saw."""
    dismissals: int = 0
    """How many times the open question was closed without an answer."""
    waited: int = 0
    """Milliseconds spent waiting for people."""
    answers: PersistentMap[str, tuple[int, events.ConfirmationGiven | events.ConfirmationDenied]] = PersistentMap()
    """By step: the sequence of the last answer of a person, and the answer."""
    value_sources: PersistentMap[str, str] = PersistentMap()
    """By variable: the step whose output or call set it; empty if a person filled it in. Callers cannot override it."""
    context_before: Context = {}
    """The variables before the last accepted output. They are restored if a person denies it."""
    value_sources_before: PersistentMap[str, str] = PersistentMap()
    """`value_sources` before that output."""
    note: str = ""
    """The note of the person who denied the current step."""
    is_paused: bool = False
    """Whether a person paused it, so that hooks leave the agent alone."""
    stop_blocks: int = 0
    """How often the agent was told to go on since the last progress."""
    is_released: bool = False
    """Whether the agent was let go after that, and may stop until there is progress."""
    submissions: PersistentMap[str, int] = PersistentMap()
    """By key: the sequence of the event that recorded the submission."""
    calling: CallState | None = None
    """The call that is due or being made; once the run is over, the call during which it ended."""
    remote_ids: PersistentMap[str, str] = PersistentMap()
    """By step: the id of the last run that another system started for it."""
    proving: Proving | None = None
    """The proofs that are due; once the run is over, those during which it ended."""
    proofs: PersistentMap[str, StepProofs] = PersistentMap()
    """By step: its proofs."""
    proof_counts: ProofCounts = ProofCounts()
    """Of all steps together."""
    run_snapshot: Snapshot | None = None
    """The root when the first step was handed out; None if no proof needs that."""
    step_snapshot: tuple[str, Snapshot] | None = None
    """The last step for which a snapshot was taken, and the root when that step was first handed out."""
    root: str = ""
    root_source: str = ""
    machine: str = ""
    client_session: str = ""
    """As in `Started`."""
    timeout: float | None = None
    imported_from: str = ""
    """Where the run was imported from."""
    imported_head: str = ""
    """As in `Started`."""
    origin: str = ""
    """As in `Started`."""
    weight: int = 0
    """Estimated bytes in memory, including the workflow, although runs may share it."""
    end: events.Failed | events.EndUnknown | events.Cancelled | None = None
    unverified: tuple[str, ...] = ()
    """Answers of people that are not proven here, each a sentence. `signing.verify` adds them; `fold` does not."""

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def rests(self) -> bool:
        """Whether it waits or is over, and so is not between two events of a batch."""
        return self.waiting_for is not None or self.state in OVER

    @property
    def needs_stop(self) -> bool:
        """Whether the run is over, but its call may still be running and has to be stopped."""
        call = self.calling
        return self.is_over and call is not None and call.begun and (call.stopped is None or call.stopped.is_pending)

    @property
    def may_run(self) -> bool:
        """Whether the run is over, but another system may still work on its call."""
        call = self.calling
        if not self.is_over or call is None:
            return False
        return call.may_run or (call.begun and not (call.stopped is not None and call.stopped.stopped))

    @property
    def needs_server(self) -> bool:
        """Whether the server has work to do: a call to make or to stop, or proofs to take."""
        return self.due is not None or self.needs_stop

    @property
    def ended_at_proofs(self) -> bool:
        """Whether the run is over, and ended while proofs were taken, which have to stop."""
        return self.is_over and self.proving is not None

    @property
    def due(self) -> int | None:
        """The sequence at which the current call or proofs came due; None if the server has nothing to do."""
        if self.waiting_for is Waiting.CALL and self.calling is not None:
            return self.calling.due
        if self.waiting_for is Waiting.PROOF and self.proving is not None:
            return self.proving.due
        return None

    @property
    def step(self) -> PromptStep:
        """The step that was offered last."""
        return find_step(self.workflow, self.current)  # type: ignore[return-value]

    @property
    def scope(self) -> Context:
        """The context with the variables of the loops around the current step."""
        return scope_of(self.workflow, self.current, self.context, self.extents)

    @property
    def call_arguments(self) -> Mapping[str, Json]:
        """The arguments of the current call, filled in; the input of the run where a workflow has none."""
        call = self.step.call
        if call is None or call.arguments is None:
            return self.input
        arguments: Mapping[str, Json] = fill_values(call.arguments, self.scope, filler(self.scope, {}))
        return arguments

    @property
    def offered(self) -> NextStep:
        """The step that was offered last, as `next_step` returned it."""
        return NextStep(
            step=self.step,
            instance_id=self.current,
            context=self.scope,
            loop=self.loop,
            skipped=(),
            warnings=self.warnings,
            completed=len(self.passed),
            in_run=True,
        )

    @property
    def total(self) -> int | None:
        """The number of steps; None if it is not known yet, because loops decide it as they run."""
        if self.state is State.COMPLETED:
            return len(self.results)
        return None if self.workflow.has_loops else self.workflow.total_steps - len(self.skipped)

    def agreed_to(self, step_id: str) -> bool:
        """Whether a person's last answer about the step is yes."""
        return isinstance(self.answers.get(step_id, (0, None))[1], events.ConfirmationGiven)

    def refused_by_person(self, step_id: str) -> bool:
        """Whether a person's last answer about the step is no."""
        return isinstance(self.answers.get(step_id, (0, None))[1], events.ConfirmationDenied)

    def required_confirmer(self, setting: str) -> str:
        """Who may confirm the current step: `person` if the step says so or something could not be proven, else the
        value of the setting `confirmation`.
        """
        if self.open_question is not None and self.open_question.reason == "unproved":
            return "person"
        return "person" if self.needs_person else setting

    @property
    def needs_person(self) -> bool:
        """Whether the current step says `by: person`, so that an answer counts only if a person proves to be one."""
        step = find_step(self.workflow, self.current) if self.current else None
        confirmation = step.confirmation if isinstance(step, PromptStep) else None
        return confirmation is not None and confirmation.by == "person"

    @property
    def deadline(self) -> int | None:
        """When the run fails if nothing happens; None while it waits for a person or is over."""
        seconds = self.seconds
        if seconds is None or self.waiting_for is None or self.waiting_for is Waiting.CONFIRMATION:
            return None
        return self.started + int(seconds * 1000) + self.waited

    @property
    def seconds(self) -> float | None:
        """The time limit, set by the caller or else the author. Time spent waiting for people does not count."""
        return self.workflow.deadline_seconds if self.timeout is None else self.timeout


# ── fold ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fold(run_id: str, records: Iterable[Record], *, until: int | None = None) -> Run:
    """The run after these records; with `until`, after the first rest at or beyond that sequence.

    Raises `RunStateError` for records that are not a valid run.
    """
    remaining = iter(records)
    run = _begin(run_id, next(remaining, None))
    for record in remaining:
        if until is not None and run.sequence >= until and run.rests:
            break
        run = apply(run, record)
    return run


def apply(run: Run, record: Record) -> Run:
    """The run after one more event. Raises `RunStateError` if the event is not allowed in its state."""
    event = record.event
    status = TRANSITIONS[run.state, run.waiting_for].get(type(event))
    if status is None or record.sequence != run.sequence + 1:
        raise _not_allowed(run.id, run.state, record)
    return msgspec.structs.replace(
        run,
        sequence=record.sequence,
        head=record.hash or run.head,
        updated=record.time,
        state=status[0],
        waiting_for=status[1],
        weight=run.weight + _weight(event),
        **(_NO_STOPS if type(event) in _PROGRESS else {}),
        **_EFFECTS[type(event)](run, record, event),
    )


_PROGRESS: Final = frozenset(
    {
        *(events.OutputAccepted, events.ContextChanged, events.ConfirmationGiven, events.ConfirmationDenied),
        events.Resumed,
    }
)
"""After these the agent is told to go on again. A refused output is no progress: it may be refused forever."""
_NO_STOPS: Final[Mapping[str, Any]] = {"stop_blocks": 0, "is_released": False}


def _begin(run_id: str, record: Record | None) -> Run:
    event = record.event if record else None
    if record is None or not isinstance(event, events.Started) or record.sequence != 1:
        raise _not_allowed(run_id, State.QUEUED, record)
    workflow = workflow_of(bytes(event.document))
    return Run(
        id=run_id,
        workflow=workflow,
        hash=event.hash,
        input=event.input,
        context=event.context,
        started=record.time,
        by=record.by,
        updated=record.time,
        sequence=1,
        head=record.hash,
        state=TRANSITIONS[_QUEUED][events.Started][0],
        timeout=event.timeout,
        origin=event.origin,
        imported_from=event.imported_from,
        imported_head=event.imported_head,
        root=event.root,
        root_source=event.root_source,
        machine=event.machine,
        client_session=event.client_session,
        weight=workflow.weight + json_bytes(event.context),
    )


_BYTES_OF_EVENT: Final = 300


def _weight(event: Event) -> int:
    """An upper estimate of the bytes that an event adds to a run."""
    if isinstance(event, events.OutputAccepted):
        return _BYTES_OF_EVENT + len(event.output) + len(event.value)
    if isinstance(event, events.ContextChanged):
        return _BYTES_OF_EVENT + json_bytes(event.changes)
    if isinstance(event, events.ProofsDue):
        return _BYTES_OF_EVENT + len(event.output)
    if isinstance(event, events.ProofTaken | events.SnapshotTaken):
        return _BYTES_OF_EVENT + len(msgspec.json.encode(event))
    return _BYTES_OF_EVENT


def _not_allowed(run_id: str, state: State, record: Record | None) -> RunStateError:
    what = f"event {record.sequence} '{kind_of(record.event)}'" if record else "no event"
    return RunStateError(
        f"The journal has {what} where the run is {state}: it was not written by this server.",
        runId=run_id,
        state=state,
    )


def _output_accepted(run: Run, record: Record, event: events.OutputAccepted) -> dict[str, Any]:
    key = {"submissions": run.submissions.set(event.key, record.sequence)} if event.key else {}
    results = run.results.set(event.step_id, event.output)
    characters = run.characters - len(run.results.get(event.step_id, "")) + len(event.output)
    is_large = event.is_reference or event.characters
    large = run.large_results
    large_results = large.set(event.step_id, event) if is_large else large.without(event.step_id)
    return {
        "last_submission": event,
        "attempts": 0,
        "note": "",
        "results": results,
        "characters": characters,
        "large_results": large_results,
        "passed": run.passed.set(event.step_id, None),
        "calling": None,
        "value_sources": _with_sources(run, _variables_of(run, event), event.step_id),
        "context_before": run.context,
        "value_sources_before": run.value_sources,
        "proving": None,
        **_waived(run, event),
        **key,
    }


def _waived(run: Run, event: events.OutputAccepted) -> dict[str, Any]:
    if not event.waived:
        return {}
    before = run.proofs.get(event.step_id, NO_PROOFS)
    return _with_proofs(run, event.step_id, msgspec.structs.replace(before, waived=event.waived))


def _variables_of(run: Run, event: events.OutputAccepted) -> Iterable[str]:
    """The variables that an output or the result of a call sets."""
    if run.calling is None or run.step.call is None or not run.step.call.save_as:
        return event.captured
    return (run.step.call.save_as, *event.captured)


def _output_refused(run: Run, record: Record, event: events.OutputRefused) -> dict[str, Any]:
    submissions = run.submissions.set(event.key, record.sequence)
    return {
        "last_submission": event,
        "attempts": run.attempts + 1,
        "submissions": submissions,
        "proving": None,
        **({} if run.proving is not None else _without_output_proofs(run, event.step_id)),
        **_with_call(run, begun=False),
    }


def _context_changed(run: Run, record: Record, event: events.ContextChanged) -> dict[str, Any]:
    key = {"submissions": run.submissions.set(event.key, record.sequence)} if event.key else {}
    return {"context": context_after(run.context, event), "missing": (), **key}


def _context_restored(run: Run, _: Record, event: events.ContextRestored) -> dict[str, Any]:
    return {"context": context_after(run.context, event), "value_sources": run.value_sources_before}


def context_after(
    context: Context, event: events.ContextChanged | events.ContextRestored | events.ProofTaken
) -> Context:
    """The variables after an event that sets or restores some of them. The measures of proofs are in `proof`."""
    if isinstance(event, events.ProofTaken):
        name, measures, before = event.judgement.name, event.judgement.measures, context.get(PROOF_VARIABLE)
        measured = before if isinstance(before, Mapping) else {}
        return {**context, PROOF_VARIABLE: {**measured, name: dict(measures)}} if measures else context
    removed = event.removed if isinstance(event, events.ContextRestored) else ()
    rest = {name: value for name, value in context.items() if name not in removed} if removed else context
    return {**rest, **event.changes}


def _step_offered(
    run: Run, _: Record, event: events.StepOffered | events.CallDue | events.ProofsDue | events.ConfirmationAsked
) -> dict[str, Any]:
    return {
        "current": event.step_id,
        "proving": None,
        "loop": event.loop,
        "warnings": event.warnings,
        "skipped": run.skipped.without(event.step_id),
    }


def _confirmation_asked(run: Run, record: Record, event: events.ConfirmationAsked) -> dict[str, Any]:
    offer = _step_offered(run, record, event) if event.reason in ("call", "before") else {}
    question_id = event.nonce or str(record.sequence)
    return {"open_question": event, "question_time": record.time, "question_id": question_id, "dismissals": 0, **offer}


def _proofs_due(run: Run, record: Record, event: events.ProofsDue) -> dict[str, Any]:
    is_start = event.reason == "start"
    offer = _step_offered(run, record, event) if is_start else _without_output_proofs(run, event.step_id)
    last = {} if is_start else {"last_submission": None}
    return {**offer, **last, "proving": Proving(due=record.sequence, request=event)}


def _without_output_proofs(run: Run, step_id: str) -> dict[str, Any]:
    """Proofs of an earlier output do not count for the next one."""
    before = run.proofs.get(step_id)
    return {} if before is None else _with_proofs(run, step_id, before.measures)


def _proof_claimed(run: Run, _: Record, event: events.ProofClaimed) -> dict[str, Any]:
    return {"proving": msgspec.structs.replace(run.proving, claim=event)} if run.proving is not None else {}


def _snapshot_taken(run: Run, _: Record, event: events.SnapshotTaken) -> dict[str, Any]:
    claim = {"proving": msgspec.structs.replace(run.proving, claim=None)} if run.proving is not None else {}
    if event.since == "run":
        return {"run_snapshot": event.snapshot, **claim}
    return {"step_snapshot": (event.step_id, event.snapshot), **claim}


def _proof_taken(run: Run, _: Record, event: events.ProofTaken) -> dict[str, Any]:
    judgement, before = event.judgement, run.proofs.get(event.step_id, NO_PROOFS)
    judgements = {**before.judgements, judgement.name: judgement}
    proving = run.proving
    if proving is not None:
        taken = {**proving.judgements, judgement.name: judgement}
        proving = msgspec.structs.replace(proving, judgements=taken, claim=None)
    return {
        "context": context_after(run.context, event),
        "proving": proving,
        **_with_proofs(run, event.step_id, msgspec.structs.replace(before, judgements=judgements)),
    }


def _with_proofs(run: Run, step_id: str, proofs: StepProofs) -> dict[str, Any]:
    before = run.proofs.get(step_id, NO_PROOFS)
    counts = run.proof_counts.plus(before.counts, -1).plus(proofs.counts)
    return {"proofs": run.proofs.set(step_id, proofs), "proof_counts": counts}


def _call_due(run: Run, record: Record, event: events.CallDue) -> dict[str, Any]:
    call = run.calling
    if call is None or call.step_id != event.step_id:
        call = CallState(step_id=event.step_id, due=record.sequence, key=f"{run.id}:{event.step_id}")
    return {**_step_offered(run, record, event), "calling": call}


def _with_call(run: Run, **changes: Any) -> dict[str, Any]:
    return {"calling": msgspec.structs.replace(run.calling, **changes)} if run.calling else {}


def _call_begun(run: Run, _: Record, event: events.CallBegun) -> dict[str, Any]:
    fresh = {"begun": True, "remote_id": "", "progress": None, "progressed_at": 0, "may_run": False}
    return _with_call(run, attempt=event.attempt, key=event.key, **fresh)


def _call_acknowledged(run: Run, _: Record, event: events.CallAcknowledged) -> dict[str, Any]:
    remote_ids = run.remote_ids.set(event.step_id, event.remote_id)
    return {"remote_ids": remote_ids, **_with_call(run, remote_id=event.remote_id)}


def _confirmation_given(run: Run, record: Record, event: events.ConfirmationGiven) -> dict[str, Any]:
    sources = _with_sources(run, event.answers, "")
    return {"last_submission": None, "value_sources": sources, **_answered(run, record, event)}


def _with_sources(run: Run, names: Iterable[str], step_id: str) -> PersistentMap[str, str]:
    sources = run.value_sources
    for name in names:
        sources = sources.set(name, step_id)
    return sources


def _confirmation_denied(run: Run, record: Record, event: events.ConfirmationDenied) -> dict[str, Any]:
    """The output no longer counts as submitted, so that the agent can send the same text again."""
    denied = run.last_submission
    is_of_step = isinstance(denied, events.OutputAccepted) and denied.step_id == event.step_id
    return {
        "last_submission": None,
        "note": event.note,
        "results": run.results.without(event.step_id),
        "characters": run.characters - len(run.results.get(event.step_id, "")),
        "passed": run.passed.without(event.step_id),
        "submissions": run.submissions.without(denied.key if denied and is_of_step else ""),
        **_answered(run, record, event),
    }


def _answered(run: Run, record: Record, event: events.ConfirmationGiven | events.ConfirmationDenied) -> dict[str, Any]:
    return {
        "open_question": None,
        "question_id": "",
        "waited": run.waited + max(0, record.time - run.question_time),
        "answers": run.answers.set(event.step_id, (record.sequence, event)),
    }


def _loop_entered(run: Run, _: Record, event: events.LoopEntered) -> dict[str, Any]:
    extent = event.total if event.items is None else event.items
    fixed = {} if extent is None else {"extents": run.extents.set(event.loop_id, extent)}
    return {"iterating": {**run.iterating, event.loop_id: event.iteration}, **fixed}


def _loop_iterated(run: Run, _: Record, event: events.LoopIterated) -> dict[str, Any]:
    return {
        "iterating": {**run.iterating, event.loop_id: event.iteration},
        "passed": _passed_outside(run, event.loop_id),
    }


def _loop_left(run: Run, _: Record, event: events.LoopLeft) -> dict[str, Any]:
    iterating = {loop_id: number for loop_id, number in run.iterating.items() if loop_id != event.loop_id}
    return {"iterating": iterating, "passed": _passed_outside(run, event.loop_id).set(event.loop_id, None)}


def _passed_outside(run: Run, loop_id: str) -> PersistentMap[str, None]:
    passed = run.passed
    for step_id in run.passed:
        if "@" in step_id and is_inside(run.workflow, step_id, loop_id):  # without `@` it is in no loop
            passed = passed.without(step_id)
    return passed


_EFFECTS: Final[Mapping[type[Event], Callable[[Run, Record, Any], dict[str, Any]]]] = {
    events.StepOffered: _step_offered,
    events.OutputAccepted: _output_accepted,
    events.OutputRefused: _output_refused,
    events.ContextChanged: _context_changed,
    events.ContextRestored: _context_restored,
    events.ContextAsked: lambda _, __, event: {
        "current": event.loop_id,
        "loop": event.loop,
        "warnings": event.warnings,
        "missing": event.missing,
    },
    events.ConfirmationAsked: _confirmation_asked,
    events.ConfirmationDismissed: lambda run, _, __: {"dismissals": run.dismissals + 1},
    events.ConfirmationGiven: _confirmation_given,
    events.ConfirmationDenied: _confirmation_denied,
    events.ProofsDue: _proofs_due,
    events.ProofClaimed: _proof_claimed,
    events.SnapshotTaken: _snapshot_taken,
    events.ProofTaken: _proof_taken,
    events.CallDue: _call_due,
    events.CallBegun: _call_begun,
    events.CallAcknowledged: _call_acknowledged,
    events.CallProgressed: lambda run, record, event: _with_call(run, progress=event, progressed_at=record.time),
    events.CallFailed: lambda run, _, event: _with_call(
        run, begun=False, failure=event.reason, error=event.error, may_run=event.may_run
    ),
    events.CallStopped: lambda run, _, event: _with_call(run, stopped=event),
    events.StepSkipped: lambda run, _, event: {"skipped": run.skipped.set(event.step_id, event.condition)},
    events.LoopEntered: _loop_entered,
    events.LoopIterated: _loop_iterated,
    events.LoopLeft: _loop_left,
    events.Completed: lambda _, __, event: {"current": "", "loop": None, "warnings": event.warnings},
    events.Failed: lambda _, __, event: {"end": event},
    events.EndUnknown: lambda run, _, event: {"end": event, **_with_call(run, begun=False, may_run=True)},
    events.Cancelled: lambda _, __, event: {"end": event, "open_question": None, "question_id": ""},
    events.Paused: lambda *_: {"is_paused": True},
    events.Resumed: lambda *_: {"is_paused": False},
    events.StopBlocked: lambda run, _, event: {"stop_blocks": run.stop_blocks + (not event.agent)},
    events.StopReleased: lambda *_: {"is_released": True},
    events.ToolRefused: lambda *_: {},
}


# ── the document of a run ───────────────────────────────────────────────────────────────────────────────────────


def encode_document(workflow: Workflow) -> tuple[msgspec.Raw, str]:
    """The document of a workflow as a run stores it, and its hash."""
    text = msgspec.json.encode(workflow.document)
    return msgspec.Raw(text), hash_of(text)


def hash_of(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


MAX_CACHED_BYTES: Final = 8 << 20
"""Limit on the cached workflows together, in estimated bytes. A larger workflow is not cached."""

_workflows: Final[BoundedCache[bytes, Workflow]] = BoundedCache(
    256, max_weight=MAX_CACHED_BYTES, weigh=lambda workflow: workflow.weight
)


def workflow_of(document: bytes) -> Workflow:
    """The workflow of a stored document. Runs of the same document share it."""
    workflow = _workflows.get(document)
    if workflow is None:
        workflow = build(msgspec.json.decode(document))
        if workflow.weight <= MAX_CACHED_BYTES:
            _workflows[document] = workflow
    return workflow


def submission_key(step_id: str, output: str, changes: Context) -> str:
    """A key that is equal for equal submissions, so that a repeated one is recognized."""
    return hash_of(msgspec.json.encode((step_id, output, changes), order="deterministic"))
