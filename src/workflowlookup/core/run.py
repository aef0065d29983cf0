"""A run: the events that make it, the states that they lead through, and the fold of the one into the other.

A run is its journal. An event says what happened, once and for good; `fold` tells what it comes to. A run rests when it
waits or is over; it is running only between the first and the last event of a batch, and batches are stored whole. So
every run that can be read rests, and what one call brought about ends at the first rest after its first event.

What happens next is decided in `advance`; here is only what has happened.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from workflowlookup.core.building import build
from workflowlookup.core.conditions import Condition
from workflowlookup.core.contract import Need
from workflowlookup.core.model import PromptStep, Workflow
from workflowlookup.core.navigation import Iterating, Lists, LoopPosition, Next, find_step, is_inside, scope_of
from workflowlookup.core.values import Context, Json
from workflowlookup.errors import RunStateError


class State(StrEnum):
    """What a run is doing."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Waiting(StrEnum):
    """What a run that waits is waiting for: the agent's output, or a person's word."""

    OUTPUT = "output"
    CONFIRMATION = "confirmation"


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


class _Event(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="event", tag=_kebab
):
    """Something that happened to a run. Ids of steps carry their iteration."""


NO_DOCUMENT: Final = msgspec.Raw(b"null")


class Started(_Event, frozen=True, kw_only=True):
    """The run began, with this document, which it keeps."""

    hash: str
    document: msgspec.Raw = NO_DOCUMENT
    """The whole document as JSON; journals store it once for all runs that have it."""
    input: Mapping[str, Json] = {}
    context: Mapping[str, Json] = {}
    """All variables at the start, those of the input included."""


class StepOffered(_Event, frozen=True, kw_only=True):
    """The agent was asked for the output of a step: for the first time, or once more."""

    step_id: str
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()


class OutputAccepted(_Event, frozen=True, kw_only=True):
    """The output meets the step's criteria, or a person took it as it is; then it has no key."""

    step_id: str
    output: str
    key: str = ""


class OutputRefused(_Event, frozen=True, kw_only=True):
    """The output does not do, or the context lacks what the step should have left in it."""

    step_id: str
    output: str
    key: str
    context: Mapping[str, Json] = {}
    """The changes of the context that came with it; they count when a person takes the output as it is."""
    issues: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    missing: tuple[Need, ...] = ()


class ContextChanged(_Event, frozen=True, kw_only=True):
    """Variables were set."""

    changes: Mapping[str, Json]


class ConfirmationAsked(_Event, frozen=True, kw_only=True):
    """A person must agree: to the step, or to taking its last output after as many attempts as it has."""

    step_id: str
    reason: Literal["step", "attempts"] = "step"


class ConfirmationGiven(_Event, frozen=True, kw_only=True):
    """A person agreed; `relayed` when we have only the agent's word for it."""

    step_id: str
    relayed: bool = False
    note: str = ""


class ConfirmationDenied(_Event, frozen=True, kw_only=True):
    """A person did not agree."""

    step_id: str
    relayed: bool = False
    note: str = ""


class StepSkipped(_Event, frozen=True, kw_only=True):
    """A step was passed over, by this condition."""

    step_id: str
    condition: Condition


class LoopEntered(_Event, frozen=True, kw_only=True):
    """The first step of a loop comes next. The list of a `forEach` is fixed from here on."""

    loop_id: str
    iteration: int = 1
    total: int | None = None
    items: list[Json] | None = None


class LoopIterated(_Event, frozen=True, kw_only=True):
    """The next iteration of a loop began."""

    loop_id: str
    iteration: int


class LoopLeft(_Event, frozen=True, kw_only=True):
    """A loop was left, and why."""

    loop_id: str
    why: str


class Completed(_Event, frozen=True, kw_only=True):
    """No step is left."""

    warnings: tuple[str, ...] = ()


class Failed(_Event, frozen=True, kw_only=True):
    """The run ended without being completed: why, and what can be done."""

    reason: str
    remedy: str


class Cancelled(_Event, frozen=True, kw_only=True):
    """Somebody ended the run."""

    reason: str = ""


Event: TypeAlias = (
    Started
    | StepOffered
    | OutputAccepted
    | OutputRefused
    | ContextChanged
    | ConfirmationAsked
    | ConfirmationGiven
    | ConfirmationDenied
    | StepSkipped
    | LoopEntered
    | LoopIterated
    | LoopLeft
    | Completed
    | Failed
    | Cancelled
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An event in its place: the first has sequence 1; time is UTC in milliseconds since 1970; `by` "" is unknown."""

    sequence: int
    time: int
    by: str = ""
    event: Event


def kind_of(event: Event) -> str:
    """`output-accepted`."""
    return str(event.__struct_config__.tag)


# ── states ──────────────────────────────────────────────────────────────────────────────────────────────────────

Place: TypeAlias = tuple[State, Waiting | None]

_QUEUED: Final[Place] = (State.QUEUED, None)
_RUNNING: Final[Place] = (State.RUNNING, None)
_FOR_OUTPUT: Final[Place] = (State.WAITING, Waiting.OUTPUT)
_FOR_CONFIRMATION: Final[Place] = (State.WAITING, Waiting.CONFIRMATION)
_COMPLETED: Final[Place] = (State.COMPLETED, None)
_FAILED: Final[Place] = (State.FAILED, None)
_CANCELLED: Final[Place] = (State.CANCELLED, None)

TRANSITIONS: Final[Mapping[Place, Mapping[type[Event], Place]]] = MappingProxyType(
    {
        _QUEUED: {Started: _RUNNING},
        _RUNNING: {
            OutputAccepted: _RUNNING,
            ContextChanged: _RUNNING,
            StepSkipped: _RUNNING,
            LoopEntered: _RUNNING,
            LoopIterated: _RUNNING,
            LoopLeft: _RUNNING,
            StepOffered: _FOR_OUTPUT,
            ConfirmationAsked: _FOR_CONFIRMATION,
            Completed: _COMPLETED,
            Failed: _FAILED,
        },
        _FOR_OUTPUT: {OutputAccepted: _RUNNING, OutputRefused: _RUNNING, Failed: _FAILED, Cancelled: _CANCELLED},
        _FOR_CONFIRMATION: {ConfirmationGiven: _RUNNING, ConfirmationDenied: _RUNNING, Cancelled: _CANCELLED},
        _COMPLETED: {},
        _FAILED: {},
        _CANCELLED: {},
    }
)
"""Which event is allowed where, and where it leads. What is not here is refused."""

OVER: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


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
    """The step that was offered last, with its iteration."""
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()
    attempts: int = 0
    """How many outputs of the current step were refused."""
    judged: OutputAccepted | OutputRefused | None = None
    """What was said of the last output, as long as nothing else was said since."""
    results: Mapping[str, str] = {}
    """By completed step, in order: its output."""
    skipped: Mapping[str, Condition] = {}
    passed: tuple[str, ...] = ()
    """What counts as completed from here on: steps, but of loops only those of the iteration that they are in, and
    loops that are over.
    """
    iterating: Iterating = {}
    lists: Lists = {}
    """The lists of loops, as they were when each was entered."""
    asked: ConfirmationAsked | None = None
    asked_at: int = 0
    waited: int = 0
    """Milliseconds spent waiting for persons."""
    answers: Mapping[str, tuple[int, ConfirmationGiven | ConfirmationDenied]] = {}
    """By step: the last answer of a person, and its sequence."""
    note: str = ""
    """What the person said who denied the current step."""
    submissions: Mapping[str, int] = {}
    """By key: the sequence of what was said of it."""
    end: Failed | Cancelled | None = None

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def step(self) -> PromptStep:
        """The step that was offered last."""
        return find_step(self.workflow, self.current)  # type: ignore[return-value]

    @property
    def scope(self) -> Context:
        """The context with the variables of the loops around the current step."""
        return scope_of(self.workflow, self.current, self.context, self.lists)

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
        )

    @property
    def total(self) -> int | None:
        """How many steps there will be, as far as that is known: loops decide it on the way."""
        if self.state is State.COMPLETED:
            return len(self.results)
        has_loops = len(self.workflow.flow) != len(self.workflow.steps)
        return None if has_loops else self.workflow.total_steps - len(self.skipped)

    @property
    def deadline(self) -> int | None:
        """When the run fails unless something happens; nothing while it waits for a person or is over."""
        seconds = self.workflow.deadline_seconds
        if seconds is None or self.waiting_for is not Waiting.OUTPUT:
            return None
        return self.started + int(seconds * 1000) + self.waited


# ── fold ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fold(run_id: str, records: Iterable[Record], *, until: int | None = None) -> Run:
    """What the records come to; with `until`, at the first rest at or after that sequence.

    Raises `RunStateError` for records that no run can have.
    """
    remaining = iter(records)
    run = _begin(run_id, next(remaining, None))
    for record in remaining:
        if until is not None and run.sequence >= until and run.state is not State.RUNNING:
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
        **_EFFECTS[type(event)](run, record, event),
    )


def _begin(run_id: str, record: Record | None) -> Run:
    event = record.event if record else None
    if record is None or not isinstance(event, Started) or record.sequence != 1:
        raise _not_allowed(run_id, State.QUEUED, record)
    return Run(
        id=run_id,
        workflow=workflow_of(bytes(event.document)),
        hash=event.hash,
        input=event.input,
        context=event.context,
        started=record.time,
        by=record.by,
        updated=record.time,
        sequence=1,
        state=TRANSITIONS[_QUEUED][Started][0],
    )


def _not_allowed(run_id: str, state: State, record: Record | None) -> RunStateError:
    what = f"event {record.sequence} '{kind_of(record.event)}'" if record else "a journal without events"
    return RunStateError(
        f"The journal has {what} where the run is {state}: it was not written by this server.",
        runId=run_id,
        state=state,
    )


def _accepted(run: Run, record: Record, event: OutputAccepted) -> dict[str, Any]:
    key = {"submissions": {**run.submissions, event.key: record.sequence}} if event.key else {}
    results = {**run.results, event.step_id: event.output}
    passed = (*run.passed, event.step_id)
    return {"judged": event, "results": results, "passed": passed, "attempts": 0, "note": "", **key}


def _refused(run: Run, record: Record, event: OutputRefused) -> dict[str, Any]:
    submissions = {**run.submissions, event.key: record.sequence}
    return {"judged": event, "attempts": run.attempts + 1, "submissions": submissions}


def _offered(run: Run, _: Record, event: StepOffered) -> dict[str, Any]:
    return {
        "current": event.step_id,
        "loop": event.loop,
        "warnings": event.warnings,
        "skipped": _without(run.skipped, event.step_id),
    }


def _given(run: Run, record: Record, event: ConfirmationGiven) -> dict[str, Any]:
    return {"judged": None, **_answered(run, record, event)}


def _denied(run: Run, record: Record, event: ConfirmationDenied) -> dict[str, Any]:
    """The output no longer counts as submitted, so that the same words can be sent again for a better reason."""
    forgotten = run.judged.key if isinstance(run.judged, OutputAccepted) else ""
    return {
        "judged": None,
        "note": event.note,
        "results": _without(run.results, event.step_id),
        "passed": tuple(step_id for step_id in run.passed if step_id != event.step_id),
        "submissions": _without(run.submissions, forgotten),
        **_answered(run, record, event),
    }


def _answered(run: Run, record: Record, event: ConfirmationGiven | ConfirmationDenied) -> dict[str, Any]:
    return {
        "asked": None,
        "waited": run.waited + max(0, record.time - run.asked_at),
        "answers": {**run.answers, event.step_id: (record.sequence, event)},
    }


def _entered(run: Run, _: Record, event: LoopEntered) -> dict[str, Any]:
    fixed = {} if event.items is None else {"lists": {**run.lists, event.loop_id: event.items}}
    return {"iterating": {**run.iterating, event.loop_id: event.iteration}, **fixed}


def _iterated(run: Run, _: Record, event: LoopIterated) -> dict[str, Any]:
    return {
        "iterating": {**run.iterating, event.loop_id: event.iteration},
        "passed": _passed_outside(run, event.loop_id),
    }


def _left(run: Run, _: Record, event: LoopLeft) -> dict[str, Any]:
    passed = (*_passed_outside(run, event.loop_id), event.loop_id)
    return {"iterating": _without(run.iterating, event.loop_id), "passed": tuple(dict.fromkeys(passed))}


def _passed_outside(run: Run, loop_id: str) -> tuple[str, ...]:
    return tuple(step_id for step_id in run.passed if not is_inside(run.workflow, step_id, loop_id))


def _without(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {name: value for name, value in mapping.items() if name != key} if key in mapping else mapping


_EFFECTS: Final[Mapping[type[Event], Callable[[Run, Record, Any], dict[str, Any]]]] = {
    StepOffered: _offered,
    OutputAccepted: _accepted,
    OutputRefused: _refused,
    ContextChanged: lambda run, _, event: {"context": {**run.context, **event.changes}},
    ConfirmationAsked: lambda _, record, event: {"asked": event, "asked_at": record.time},
    ConfirmationGiven: _given,
    ConfirmationDenied: _denied,
    StepSkipped: lambda run, _, event: {"skipped": {**run.skipped, event.step_id: event.condition}},
    LoopEntered: _entered,
    LoopIterated: _iterated,
    LoopLeft: _left,
    Completed: lambda _, __, event: {"current": "", "loop": None, "warnings": event.warnings},
    Failed: lambda _, __, event: {"end": event},
    Cancelled: lambda _, __, event: {"end": event},
}


# ── the document of a run ───────────────────────────────────────────────────────────────────────────────────────


def document_of(workflow: Workflow) -> tuple[msgspec.Raw, str]:
    """The document of a workflow as a run keeps it, and its hash."""
    kept: tuple[msgspec.Raw, str] | None = workflow.memo.get(document_of)
    if kept is None:
        text = msgspec.json.encode(workflow.document)
        kept = workflow.memo[document_of] = msgspec.Raw(text), hash_of(text)
    return kept


def hash_of(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


@functools.lru_cache(maxsize=256)
def workflow_of(document: bytes) -> Workflow:
    """The workflow of a document that a run keeps; runs of the same document share it."""
    return build(msgspec.json.decode(document))


def submission_key(step_id: str, output: str, changes: Context) -> str:
    """The same for the same submission, whenever and by whomever it is sent."""
    return hash_of(msgspec.json.encode((step_id, output, changes), order="deterministic"))
