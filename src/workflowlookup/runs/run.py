"""A run and its states, as `fold` computes them from the events of the run.

A run is its journal: an event says what happened and never changes. A run rests when it waits (for an agent, a person,
a call that the server makes, or proofs that it takes) or is over.

`advance`, `server_calls` and `proofs.taking` decide what happens next; this module only knows what has happened.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from workflowlookup.language.conditions import Condition
from workflowlookup.language.contract import Need
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import Iterating, LoopPosition, NextStep, find_step, scope_of
from workflowlookup.language.proof import is_at_start
from workflowlookup.language.templates import fill_values, filler
from workflowlookup.language.values import Context, Json
from workflowlookup.runs import events
from workflowlookup.runs.events import RemoteError, Snapshot
from workflowlookup.runs.persistent_map import PersistentMap
from workflowlookup.runs.proofs.state import ProofCounts, Proving, StepProofs


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
    offered_at: int = 0
    """When the current step was first offered, or offered again after a person denied its output."""
    due_at: int = 0
    """When the last call or proofs came due."""
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
    confirmers: tuple[str, ...] = ()
    """Who answered questions: the person who signed, else the sender. Each once, in order, the first few."""
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
    client_root: str = ""
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
    def waiting_since(self) -> int:
        """When it began to wait for what it waits for now; when it ended, if it is over."""
        match self.waiting_for:
            case Waiting.CONFIRMATION:
                return self.question_time
            case Waiting.CALL | Waiting.PROOF:
                return self.due_at
            case Waiting.OUTPUT | Waiting.CONTEXT:
                return self.offered_at
        return self.updated

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
        """Who may confirm the current step: `person` if the step says so, or if the answer accepts an output without
        its proofs, else the value of the setting `confirmation`.
        """
        return "person" if self.needs_person or self._waives_proofs else setting

    @property
    def _waives_proofs(self) -> bool:
        """Whether a yes to the open question accepts an output without some of its proofs."""
        reason = self.open_question.reason if self.open_question is not None else ""
        if reason == "step":
            return self.current in self.proofs and bool(self.proofs[self.current].skipped)
        step = find_step(self.workflow, self.current) if reason == "attempts" else None
        proofs = step.proofs if isinstance(step, PromptStep) else ()
        return reason == "unproved" or any(not is_at_start(proof) for proof in proofs)

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
