"""What is refused of a run that comes from elsewhere: records that none of our servers could have written.

Everything that reads runs relies on steps being there and on times that a calendar has. `fold` sees to the order.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from workflowlookup.core.document import is_sound
from workflowlookup.core.events import (
    CallAcknowledged,
    CallBegun,
    CallDue,
    CallFailed,
    CallProgressed,
    CallStopped,
    ConfirmationAsked,
    ConfirmationDenied,
    ConfirmationDismissed,
    ConfirmationGiven,
    EndUnknown,
    Event,
    LoopEntered,
    LoopIterated,
    LoopLeft,
    OutputAccepted,
    OutputRefused,
    Record,
    Started,
    StepOffered,
    StepSkipped,
)
from workflowlookup.core.model import LoopStep, PromptStep, Workflow
from workflowlookup.core.navigation import find_step
from workflowlookup.core.run import hash_of, workflow_of
from workflowlookup.errors import InvalidParams

RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LATEST: Final = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds."""


def refuse_foreign(run_id: str, records: Sequence[Record]) -> None:
    """Raises `InvalidParams` with what is wrong."""
    if RUN_ID.fullmatch(run_id) is None:
        raise InvalidParams(f"'{run_id}' is no id of a run")
    started = records[0].event if records else None
    if not isinstance(started, Started):
        return  # no run at all, as `fold` will say
    document = bytes(started.document)
    if hash_of(document) != started.hash or not is_sound(msgspec.json.decode(document)):
        raise InvalidParams(f"the document of run '{run_id}' is not what it was when the run was started")
    workflow, time, current = workflow_of(document), 0, ""
    for record in records:
        place = f"event {record.sequence} of run '{run_id}'"
        if not time <= record.time <= LATEST:
            raise InvalidParams(f"{place} has a time that cannot be")
        if not _fits(record.event, workflow, current):
            raise InvalidParams(f"{place} is about a step that the run does not have there")
        time = record.time
        current = _current(record.event, current)


def _current(event: Event, current: str) -> str:
    is_new = isinstance(event, (StepOffered, CallDue)) or (
        isinstance(event, ConfirmationAsked) and event.reason in ("call", "before")
    )
    return event.step_id if is_new else current  # type: ignore[union-attr]


def _fits(event: Event, workflow: Workflow, current: str) -> bool:
    """Whether what an event is about is there."""
    match event:
        case StepOffered(step_id=step_id) | ConfirmationAsked(step_id=step_id, reason="before"):
            return isinstance(find_step(workflow, step_id), PromptStep)
        case CallDue(step_id=step_id) | ConfirmationAsked(step_id=step_id, reason="call"):
            step = find_step(workflow, step_id)
            return isinstance(step, PromptStep) and step.call is not None
        case OutputAccepted(step_id=step_id) | StepSkipped(step_id=step_id):
            return find_step(workflow, step_id) is not None
        case LoopEntered(loop_id=loop_id) | LoopIterated(loop_id=loop_id) | LoopLeft(loop_id=loop_id):
            return isinstance(find_step(workflow, loop_id), LoopStep)
        case CallBegun() | CallAcknowledged() | CallProgressed() | CallFailed() | CallStopped() | EndUnknown():
            return event.step_id == current != ""
        case OutputRefused() | ConfirmationAsked() | ConfirmationDismissed():
            return event.step_id == current != ""
        case ConfirmationGiven() | ConfirmationDenied():
            return event.step_id == current != ""
    return True
