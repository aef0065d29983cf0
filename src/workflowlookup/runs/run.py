"""A run: the states that its events lead through, and the fold of the one into the other.

A run is its journal. An event says what happened, once and for good; `fold` tells what it comes to. A run rests when it
waits (for an agent, a person, or a call of the server's own) or is over; only between the first and the last event of a
batch it does not, and batches are stored whole. So every run that can be read rests, and what one call brought about
ends at the first rest after its first event.

What happens next is decided in `advance`; here is only what has happened.
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
from workflowlookup.language.guidance import fill_values, filler
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import Iterating, LoopPosition, Next, find_step, is_inside, scope_of
from workflowlookup.language.values import Context, Json, json_bytes
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record, RemoteError, kind_of
from workflowlookup.runs.persistent_map import PersistentMap


class State(StrEnum):
    """What a run is doing."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """It was handed to another system, and how it ended there cannot be known."""


class Waiting(StrEnum):
    """What a run that waits is waiting for: the agent's output, a person's word, a call of the server's own, or
    variables without which no step can be chosen.
    """

    OUTPUT = "output"
    CONTEXT = "context"
    CONFIRMATION = "confirmation"
    CALL = "call"


# ── states ──────────────────────────────────────────────────────────────────────────────────────────────────────

Place: TypeAlias = tuple[State, Waiting | None]

_QUEUED: Final[Place] = (State.QUEUED, None)
_RUNNING: Final[Place] = (State.RUNNING, None)
_FOR_OUTPUT: Final[Place] = (State.WAITING, Waiting.OUTPUT)
_FOR_CONTEXT: Final[Place] = (State.WAITING, Waiting.CONTEXT)
_FOR_CONFIRMATION: Final[Place] = (State.WAITING, Waiting.CONFIRMATION)
_DUE: Final[Place] = (State.QUEUED, Waiting.CALL)
_CALLING: Final[Place] = (State.RUNNING, Waiting.CALL)
_COMPLETED: Final[Place] = (State.COMPLETED, None)
_FAILED: Final[Place] = (State.FAILED, None)
_CANCELLED: Final[Place] = (State.CANCELLED, None)
_UNKNOWN: Final[Place] = (State.UNKNOWN, None)

TRANSITIONS: Final[Mapping[Place, Mapping[type[Event], Place]]] = MappingProxyType(
    {
        _QUEUED: {events.Started: _RUNNING},
        _RUNNING: {
            events.OutputAccepted: _RUNNING,
            events.ContextChanged: _RUNNING,
            events.ContextRestored: _RUNNING,
            events.StepSkipped: _RUNNING,
            events.LoopEntered: _RUNNING,
            events.LoopIterated: _RUNNING,
            events.LoopLeft: _RUNNING,
            events.StepOffered: _FOR_OUTPUT,
            events.ContextAsked: _FOR_CONTEXT,
            events.ConfirmationAsked: _FOR_CONFIRMATION,
            events.CallDue: _DUE,
            events.Completed: _COMPLETED,
            events.Failed: _FAILED,
        },
        _FOR_OUTPUT: {
            events.OutputAccepted: _RUNNING,
            events.OutputRefused: _RUNNING,
            events.Failed: _FAILED,
            events.Cancelled: _CANCELLED,
        },
        _FOR_CONTEXT: {events.ContextChanged: _RUNNING, events.Failed: _FAILED, events.Cancelled: _CANCELLED},
        _FOR_CONFIRMATION: {
            events.ConfirmationGiven: _RUNNING,
            events.ConfirmationDenied: _RUNNING,
            events.ConfirmationDismissed: _FOR_CONFIRMATION,
            events.Cancelled: _CANCELLED,
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
        _COMPLETED: {},
        _UNKNOWN: {},
        _FAILED: {events.CallAcknowledged: _FAILED, events.CallStopped: _FAILED},
        _CANCELLED: {events.CallAcknowledged: _CANCELLED, events.CallStopped: _CANCELLED},
    }
)
"""Which event is allowed where, and where it leads. What is not here is refused."""

OVER: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.UNKNOWN})


class CallState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the call of a step stands."""

    step_id: str
    due: int
    """The sequence of the event by which it became due first."""
    key: str
    """What the called system can tell repetitions by: the same for every attempt, also after a crash, until one has
    begun a job there that has ended.
    """
    attempt: int = 0
    """How often it was begun."""
    begun: bool = False
    """Whether it is being made now, as far as the journal knows."""
    remote_id: str = ""
    """The id of the run that the other system has begun for this attempt."""
    progress: events.CallProgressed | None = None
    progressed_at: int = 0
    failure: str = ""
    """Why the last attempt came to nothing."""
    error: RemoteError | None = None
    """What the other system said about that."""
    may_run: bool = False
    """Whether it may be at work on that attempt all the same."""
    stopped: events.CallStopped | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What the events so far come to."""

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
    state: State
    waiting_for: Waiting | None = None
    current: str = ""
    """The step that was offered last, with its iteration; the loop, of a run that waits for context."""
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()
    attempts: int = 0
    """How many outputs of the current step were refused."""
    judged: events.OutputAccepted | events.OutputRefused | None = None
    """What was said of the last output, as long as nothing else was said since."""
    results: PersistentMap[str, str] = PersistentMap()
    """By completed step, in order: its output."""
    characters: int = 0
    """How many characters `results` have."""
    large: PersistentMap[str, events.OutputAccepted] = PersistentMap()
    """By step: results of calls that variables only refer to, or that were cut."""
    skipped: PersistentMap[str, Condition] = PersistentMap()
    passed: PersistentMap[str, None] = PersistentMap()
    """What counts as completed from here on: steps, but of loops only those of the iteration that they are in, and
    loops that are over.
    """
    iterating: Iterating = {}
    extents: PersistentMap[str, list[Json] | int] = PersistentMap()
    """The lists and counts of loops, as they were when each was entered."""
    missing: tuple[Need, ...] = ()
    """The variables that a run waits for, one that waits for context."""
    asked: events.ConfirmationAsked | None = None
    asked_at: int = 0
    question_id: str = ""
    """Identifies the open question; an answer names the one that was shown."""
    dismissals: int = 0
    """How often the open question was closed without an answer."""
    waited: int = 0
    """Milliseconds spent waiting for persons."""
    answers: PersistentMap[str, tuple[int, events.ConfirmationGiven | events.ConfirmationDenied]] = PersistentMap()
    """By step: the last answer of a person, and its sequence."""
    settled: PersistentMap[str, str] = PersistentMap()
    """By variable: the step whose output or call said its value; empty where a person filled it in."""
    context_before: Context = {}
    """The variables before the last output that was accepted: what they are again when a person denies it."""
    settled_before: PersistentMap[str, str] = PersistentMap()
    """As `settled`, before that output."""
    note: str = ""
    """What the person said who denied the current step."""
    submissions: PersistentMap[str, int] = PersistentMap()
    """By key: the sequence of what was said of it."""
    calling: CallState | None = None
    """The call that is due or being made; of a run that is over, the one that it ended in."""
    remotes: PersistentMap[str, str] = PersistentMap()
    """By step: the id of the last run that another system has begun for it."""
    timeout: float | None = None
    imported_from: str = ""
    """Where the run was imported from."""
    origin: str = ""
    """As in `Started`."""
    weight: int = 0
    """About how many bytes it takes in memory; its workflow is counted with each of its runs."""
    end: events.Failed | events.EndUnknown | events.Cancelled | None = None

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def rests(self) -> bool:
        """Whether it is more than a moment between two events of a batch."""
        return self.waiting_for is not None or self.state in OVER

    @property
    def needs_stop(self) -> bool:
        """Whether it is over while its call may still be running, and what became of that is not known yet."""
        call = self.calling
        return self.is_over and call is not None and call.begun and (call.stopped is None or call.stopped.is_pending)

    @property
    def may_run(self) -> bool:
        """Whether it is over and another system may still be at work on its call."""
        call = self.calling
        if not self.is_over or call is None:
            return False
        return call.may_run or (call.begun and not (call.stopped is not None and call.stopped.stopped))

    @property
    def needs_server(self) -> bool:
        """Whether there is something that the server itself must do: make its call, or stop one."""
        return self.waiting_for is Waiting.CALL or self.needs_stop

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
    def offered(self) -> Next:
        """The step that was offered last, as the walk found it."""
        return Next(
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
        """How many steps there will be, as far as that is known: loops decide it on the way."""
        if self.state is State.COMPLETED:
            return len(self.results)
        return None if self.workflow.has_loops else self.workflow.total_steps - len(self.skipped)

    def agreed_to(self, step_id: str) -> bool:
        """Whether the last answer of a person about a step is a yes."""
        return isinstance(self.answers.get(step_id, (0, None))[1], events.ConfirmationGiven)

    def refused_by_person(self, step_id: str) -> bool:
        """Whether the last answer of a person about a step is a no."""
        return isinstance(self.answers.get(step_id, (0, None))[1], events.ConfirmationDenied)

    def who_confirms(self, setting: str) -> str:
        """Whose word on the current step counts: as the setting `confirmation` says, or a person's by the step's own
        `by`.
        """
        step = find_step(self.workflow, self.current) if self.current else None
        wanted = step.confirmation if isinstance(step, PromptStep) else None
        return "person" if wanted is not None and wanted.by == "person" else setting

    @property
    def deadline(self) -> int | None:
        """When the run fails unless something happens; nothing while it waits for a person or is over."""
        seconds = self.seconds
        if seconds is None or self.waiting_for is None or self.waiting_for is Waiting.CONFIRMATION:
            return None
        return self.started + int(seconds * 1000) + self.waited

    @property
    def seconds(self) -> float | None:
        """How long the run may take, without the time of persons: by its caller, else by its author."""
        return self.workflow.deadline_seconds if self.timeout is None else self.timeout


# ── fold ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fold(run_id: str, records: Iterable[Record], *, until: int | None = None) -> Run:
    """What the records come to; with `until`, at the first rest at or after that sequence.

    Raises `RunStateError` for records that no run can have.
    """
    remaining = iter(records)
    run = _begin(run_id, next(remaining, None))
    for record in remaining:
        if until is not None and run.sequence >= until and run.rests:
            break
        run = apply(run, record)
    return run


def apply(run: Run, record: Record) -> Run:
    """The run after one more event. Raises `RunStateError` when the event is not allowed where the run stands."""
    event = record.event
    place = TRANSITIONS[run.state, run.waiting_for].get(type(event))
    if place is None or record.sequence != run.sequence + 1:
        raise _not_allowed(run.id, run.state, record)
    return msgspec.structs.replace(
        run,
        sequence=record.sequence,
        updated=record.time,
        state=place[0],
        waiting_for=place[1],
        weight=run.weight + _weight(event),
        **_EFFECTS[type(event)](run, record, event),
    )


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
        state=TRANSITIONS[_QUEUED][events.Started][0],
        timeout=event.timeout,
        origin=event.origin,
        imported_from=event.imported_from,
        weight=workflow.weight + json_bytes(event.context),
    )


_BYTES_OF_EVENT: Final = 300


def _weight(event: Event) -> int:
    """About how many bytes a run grows by an event at most."""
    if isinstance(event, events.OutputAccepted):
        return _BYTES_OF_EVENT + len(event.output) + len(event.value)
    if isinstance(event, events.ContextChanged):
        return _BYTES_OF_EVENT + json_bytes(event.changes)
    return _BYTES_OF_EVENT


def _not_allowed(run_id: str, state: State, record: Record | None) -> RunStateError:
    what = f"event {record.sequence} '{kind_of(record.event)}'" if record else "a journal without events"
    return RunStateError(
        f"The journal has {what} where the run is {state}: it was not written by this server.",
        runId=run_id,
        state=state,
    )


def _accepted(run: Run, record: Record, event: events.OutputAccepted) -> dict[str, Any]:
    key = {"submissions": run.submissions.set(event.key, record.sequence)} if event.key else {}
    results = run.results.set(event.step_id, event.output)
    characters = run.characters - len(run.results.get(event.step_id, "")) + len(event.output)
    is_large = event.is_reference or event.characters
    large = run.large.set(event.step_id, event) if is_large else run.large.without(event.step_id)
    passed = run.passed.set(event.step_id, None)
    done = {"results": results, "characters": characters, "large": large, "passed": passed, "calling": None}
    found = {"settled": _settled(run, _found_in(run, event), event.step_id)}
    before = {"context_before": run.context, "settled_before": run.settled}
    return {"judged": event, "attempts": 0, "note": "", **done, **found, **before, **key}


def _found_in(run: Run, event: events.OutputAccepted) -> Iterable[str]:
    """The variables whose values an output says, or a call gives."""
    if run.calling is None or run.step.call is None or not run.step.call.save_as:
        return event.captured
    return (run.step.call.save_as, *event.captured)


def _refused(run: Run, record: Record, event: events.OutputRefused) -> dict[str, Any]:
    submissions = run.submissions.set(event.key, record.sequence)
    return {
        "judged": event,
        "attempts": run.attempts + 1,
        "submissions": submissions,
        **_call(run, begun=False),
    }


def _changed(run: Run, record: Record, event: events.ContextChanged) -> dict[str, Any]:
    key = {"submissions": run.submissions.set(event.key, record.sequence)} if event.key else {}
    return {"context": context_after(run.context, event), "missing": (), **key}


def _restored(run: Run, _: Record, event: events.ContextRestored) -> dict[str, Any]:
    return {"context": context_after(run.context, event), "settled": run.settled_before}


def context_after(context: Context, event: events.ContextChanged | events.ContextRestored) -> Context:
    """The variables after an event that sets them or takes them back."""
    removed = event.removed if isinstance(event, events.ContextRestored) else ()
    kept = {name: value for name, value in context.items() if name not in removed} if removed else context
    return {**kept, **event.changes}


def _offered(
    run: Run, _: Record, event: events.StepOffered | events.CallDue | events.ConfirmationAsked
) -> dict[str, Any]:
    return {
        "current": event.step_id,
        "loop": event.loop,
        "warnings": event.warnings,
        "skipped": run.skipped.without(event.step_id),
    }


def _asked(run: Run, record: Record, event: events.ConfirmationAsked) -> dict[str, Any]:
    place = _offered(run, record, event) if event.reason in ("call", "before") else {}
    question_id = event.nonce or str(record.sequence)
    return {"asked": event, "asked_at": record.time, "question_id": question_id, "dismissals": 0, **place}


def _due(run: Run, record: Record, event: events.CallDue) -> dict[str, Any]:
    call = run.calling
    if call is None or call.step_id != event.step_id:
        call = CallState(step_id=event.step_id, due=record.sequence, key=f"{run.id}:{event.step_id}")
    return {**_offered(run, record, event), "calling": call}


def _call(run: Run, **changes: Any) -> dict[str, Any]:
    return {"calling": msgspec.structs.replace(run.calling, **changes)} if run.calling else {}


def _begun(run: Run, _: Record, event: events.CallBegun) -> dict[str, Any]:
    fresh = {"begun": True, "remote_id": "", "progress": None, "progressed_at": 0, "may_run": False}
    return _call(run, attempt=event.attempt, key=event.key, **fresh)


def _acknowledged(run: Run, _: Record, event: events.CallAcknowledged) -> dict[str, Any]:
    remotes = run.remotes.set(event.step_id, event.remote_id)
    return {"remotes": remotes, **_call(run, remote_id=event.remote_id)}


def _given(run: Run, record: Record, event: events.ConfirmationGiven) -> dict[str, Any]:
    return {"judged": None, "settled": _settled(run, event.answers, ""), **_answered(run, record, event)}


def _settled(run: Run, names: Iterable[str], step_id: str) -> PersistentMap[str, str]:
    settled = run.settled
    for name in names:
        settled = settled.set(name, step_id)
    return settled


def _denied(run: Run, record: Record, event: events.ConfirmationDenied) -> dict[str, Any]:
    """The output no longer counts as submitted, so that the same words can be sent again for a better reason."""
    is_about_it = isinstance(run.judged, events.OutputAccepted) and run.judged.step_id == event.step_id
    forgotten = run.judged.key if run.judged and is_about_it else ""
    return {
        "judged": None,
        "note": event.note,
        "results": run.results.without(event.step_id),
        "characters": run.characters - len(run.results.get(event.step_id, "")),
        "passed": run.passed.without(event.step_id),
        "submissions": run.submissions.without(forgotten),
        **_answered(run, record, event),
    }


def _answered(run: Run, record: Record, event: events.ConfirmationGiven | events.ConfirmationDenied) -> dict[str, Any]:
    return {
        "asked": None,
        "question_id": "",
        "waited": run.waited + max(0, record.time - run.asked_at),
        "answers": run.answers.set(event.step_id, (record.sequence, event)),
    }


def _entered(run: Run, _: Record, event: events.LoopEntered) -> dict[str, Any]:
    extent = event.total if event.items is None else event.items
    fixed = {} if extent is None else {"extents": run.extents.set(event.loop_id, extent)}
    return {"iterating": {**run.iterating, event.loop_id: event.iteration}, **fixed}


def _iterated(run: Run, _: Record, event: events.LoopIterated) -> dict[str, Any]:
    return {
        "iterating": {**run.iterating, event.loop_id: event.iteration},
        "passed": _passed_outside(run, event.loop_id),
    }


def _left(run: Run, _: Record, event: events.LoopLeft) -> dict[str, Any]:
    iterating = {loop_id: number for loop_id, number in run.iterating.items() if loop_id != event.loop_id}
    return {"iterating": iterating, "passed": _passed_outside(run, event.loop_id).set(event.loop_id, None)}


def _passed_outside(run: Run, loop_id: str) -> PersistentMap[str, None]:
    passed = run.passed
    for step_id in run.passed:
        if "@" in step_id and is_inside(run.workflow, step_id, loop_id):  # without a mark it is in no loop
            passed = passed.without(step_id)
    return passed


_EFFECTS: Final[Mapping[type[Event], Callable[[Run, Record, Any], dict[str, Any]]]] = {
    events.StepOffered: _offered,
    events.OutputAccepted: _accepted,
    events.OutputRefused: _refused,
    events.ContextChanged: _changed,
    events.ContextRestored: _restored,
    events.ContextAsked: lambda _, __, event: {
        "current": event.loop_id,
        "loop": event.loop,
        "warnings": event.warnings,
        "missing": event.missing,
    },
    events.ConfirmationAsked: _asked,
    events.ConfirmationDismissed: lambda run, _, __: {"dismissals": run.dismissals + 1},
    events.ConfirmationGiven: _given,
    events.ConfirmationDenied: _denied,
    events.CallDue: _due,
    events.CallBegun: _begun,
    events.CallAcknowledged: _acknowledged,
    events.CallProgressed: lambda run, record, event: _call(run, progress=event, progressed_at=record.time),
    events.CallFailed: lambda run, _, event: _call(
        run, begun=False, failure=event.reason, error=event.error, may_run=event.may_run
    ),
    events.CallStopped: lambda run, _, event: _call(run, stopped=event),
    events.StepSkipped: lambda run, _, event: {"skipped": run.skipped.set(event.step_id, event.condition)},
    events.LoopEntered: _entered,
    events.LoopIterated: _iterated,
    events.LoopLeft: _left,
    events.Completed: lambda _, __, event: {"current": "", "loop": None, "warnings": event.warnings},
    events.Failed: lambda _, __, event: {"end": event},
    events.EndUnknown: lambda run, _, event: {"end": event, **_call(run, begun=False, may_run=True)},
    events.Cancelled: lambda _, __, event: {"end": event, "asked": None, "question_id": ""},
}


# ── the document of a run ───────────────────────────────────────────────────────────────────────────────────────


def kept_document(workflow: Workflow) -> tuple[msgspec.Raw, str]:
    """The document of a workflow as a run keeps it, and its hash."""
    text = msgspec.json.encode(workflow.document)
    return msgspec.Raw(text), hash_of(text)


def hash_of(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


MAX_CACHED_BYTES: Final = 8 << 20
"""How large the workflows of runs in the cache may be together, in estimated bytes; larger ones are not cached."""

_workflows: Final[BoundedCache[bytes, Workflow]] = BoundedCache(
    256, max_weight=MAX_CACHED_BYTES, weigh=lambda workflow: workflow.weight
)


def workflow_of(document: bytes) -> Workflow:
    """The workflow of a document that a run keeps; runs of the same document share it."""
    workflow = _workflows.get(document)
    if workflow is None:
        workflow = build(msgspec.json.decode(document))
        if workflow.weight <= MAX_CACHED_BYTES:
            _workflows[document] = workflow
    return workflow


def submission_key(step_id: str, output: str, changes: Context) -> str:
    """The same for the same submission, whenever and by whomever it is sent."""
    return hash_of(msgspec.json.encode((step_id, output, changes), order="deterministic"))
