"""Computes a run from its events: `TRANSITIONS` says which each state allows, `_EFFECTS` what each one changes.

The events of one call are a batch, which ends where the run rests and is stored whole. So every stored run rests, and
what one call did ends at the first rest after its first event; only a batch that begins with a snapshot or a proof may
go on after that.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from workflowlookup.errors import RunStateError
from workflowlookup.language.navigation import is_inside
from workflowlookup.language.values import Context, json_bytes
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record, kind_of
from workflowlookup.runs.persistent_map import PersistentMap
from workflowlookup.runs.proofs.state import NO_PROOFS, PROOF_VARIABLE, Proving, StepProofs
from workflowlookup.runs.run import CallState, Run, State, Waiting
from workflowlookup.runs.run_document import workflow_of

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


_BY_HOOKS: Final = (events.StopBlocked, events.StopReleased, events.ToolRefused)


def _while_waiting(status: Status, *by_hooks: type[Event]) -> Mapping[type[Event], Status]:
    """What can happen to a run while it waits, and leaves it waiting: pauses, other sessions, and what hooks do to the
    agent."""
    return dict.fromkeys((events.Paused, events.Resumed, events.SessionChanged, *by_hooks), status)


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
            **_while_waiting(_WAITING_FOR_OUTPUT, *_BY_HOOKS),
        },
        _WAITING_FOR_CONTEXT: {
            events.ContextChanged: _RUNNING,
            events.Failed: _FAILED,
            events.Cancelled: _CANCELLED,
            **_while_waiting(_WAITING_FOR_CONTEXT, *_BY_HOOKS),
        },
        _WAITING_FOR_CONFIRMATION: {
            events.ConfirmationGiven: _RUNNING,
            events.ConfirmationDenied: _RUNNING,
            events.ConfirmationDismissed: _WAITING_FOR_CONFIRMATION,
            events.Cancelled: _CANCELLED,
            **_while_waiting(_WAITING_FOR_CONFIRMATION, events.ToolRefused),
        },
        _DUE: {
            events.CallBegun: _CALLING,
            events.Failed: _FAILED,
            events.Cancelled: _CANCELLED,
            **_while_waiting(_DUE),
        },
        _CALLING: {
            events.CallAcknowledged: _CALLING,
            events.CallProgressed: _CALLING,
            events.CallFailed: _RUNNING,
            events.OutputAccepted: _RUNNING,
            events.OutputRefused: _RUNNING,
            events.Failed: _FAILED,
            events.EndUnknown: _UNKNOWN,
            events.Cancelled: _CANCELLED,
            **_while_waiting(_CALLING),
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
            **_while_waiting(_PROVING, events.ToolRefused),
        },
        _COMPLETED: {},
        _UNKNOWN: {},
        _FAILED: {events.CallAcknowledged: _FAILED, events.CallStopped: _FAILED},
        _CANCELLED: {events.CallAcknowledged: _CANCELLED, events.CallStopped: _CANCELLED},
    }
)
"""By status: the events that are allowed, each with the status after it. Every other event is refused."""


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
        client_root=event.client_root,
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
        **_without_proofs(run, event),
        **key,
    }


def _without_proofs(run: Run, event: events.OutputAccepted) -> dict[str, Any]:
    if not event.waived and not event.skipped:
        return {}
    before = run.proofs.get(event.step_id, NO_PROOFS)
    proofs = msgspec.structs.replace(before, waived=event.waived, skipped=event.skipped)
    return _with_proofs(run, event.step_id, proofs)


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
    run: Run, record: Record, event: events.StepOffered | events.CallDue | events.ProofsDue | events.ConfirmationAsked
) -> dict[str, Any]:
    is_same_offer = run.current == event.step_id and run.attempts > 0
    return {
        "current": event.step_id,
        "offered_at": run.offered_at if is_same_offer else record.time,
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
    return {**offer, **last, "proving": Proving(due=record.sequence, request=event), "due_at": record.time}


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
    return {**_step_offered(run, record, event), "calling": call, "due_at": record.time}


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


MAX_CONFIRMERS: Final = 8


def _answered(run: Run, record: Record, event: events.ConfirmationGiven | events.ConfirmationDenied) -> dict[str, Any]:
    person = event.signature.person if event.signature is not None else record.by
    return {
        "confirmers": tuple(dict.fromkeys((*run.confirmers, person)))[:MAX_CONFIRMERS],
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
    events.ContextAsked: lambda _, record, event: {
        "current": event.loop_id,
        "offered_at": record.time,
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
    events.SessionChanged: lambda _, __, event: {"client_session": event.session},
    events.ToolRefused: lambda *_: {},
}
