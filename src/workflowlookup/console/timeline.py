"""The events of a run as a reader follows them: one entry each, in words, with what was said and what it changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import in_words
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import find_step, scope_of
from workflowlookup.language.patterns import Budget
from workflowlookup.language.text import plural
from workflowlookup.language.values import Context, Json
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record, describe_how
from workflowlookup.runs.run import Run
from workflowlookup.runs.why import asked_because, decided_by, taken_back, with_context


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What an event is in words; all but `title`, `tone` and `lead` may come from strangers."""

    title: str
    tone: str = "minor"
    """How it is drawn: `done`, `refused`, `asked`, `failed`, `cancelled`, `offered` or `minor`."""
    step: str = ""
    subject: str = ""
    """The title of the step."""
    note: str = ""
    lines: tuple[str, ...] = ()
    """Reasons, one below the other."""
    hints: tuple[str, ...] = ()
    output: str | None = None
    values: Mapping[str, Any] = {}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An event in its place."""

    sequence: int
    time: int
    offset: int
    """Milliseconds since the run began."""
    took: int
    """Milliseconds since the event before."""
    by: str
    """Whose doing it was, where that was another's than the event before."""
    words: Words


def entries(run: Run, records: Sequence[Record], budget: Budget, after: int = 0) -> Iterator[Entry]:
    """The events after a sequence, in order; the records are all that the run has."""
    before, offered, by = run.started, "", ""
    for record, context, handed_out in with_context(records):
        event = record.event
        if record.sequence > after:
            words = _said(run, event, context, offered, budget)
            if isinstance(event, events.ConfirmationAsked) and (why := asked_because(run, event, handed_out, context)):
                words = msgspec.structs.replace(words, lines=(f"because {why}",))
            yield Entry(
                sequence=record.sequence,
                time=record.time,
                offset=record.time - run.started,
                took=record.time - before,
                by=record.by if record.by != by else "",
                words=words,
            )
        if isinstance(event, events.StepOffered):
            offered = event.step_id
        before, by = record.time, record.by


def _said(run: Run, event: Event, context: Context, offered: str, budget: Budget) -> Words:
    if isinstance(event, events.StepSkipped):
        return _skipped(run, event, context, budget)
    if isinstance(event, events.StepOffered) and event.step_id == offered:
        return Words(title="Offered again", step=event.step_id, lines=event.warnings)
    words = _WORDS[type(event)](event)
    return msgspec.structs.replace(words, subject=title_of(run.workflow, words.step)) if words.step else words


def title_of(workflow: Workflow, step_id: str) -> str:
    step = find_step(workflow, step_id) if step_id else None
    return step.title if step is not None else ""


def _skipped(run: Run, event: events.StepSkipped, context: Context, budget: Budget) -> Words:
    scope = scope_of(run.workflow, event.step_id, context, run.extents)
    values = tuple(dict.fromkeys(check.sentence() for check in decided_by(event.condition, scope, budget)))
    why = f"not true: {in_words(event.condition)}"
    subject = title_of(run.workflow, event.step_id)
    return Words(title="Skipped", tone="skipped", step=event.step_id, subject=subject, lines=(why,), hints=values)


def _started(event: events.Started) -> Words:
    more = {name: value for name, value in event.context.items() if name not in event.input}
    return Words(title="Run started", tone="offered", values={**event.input, **more})


def _offered(event: events.StepOffered) -> Words:
    title = f"Offered, iteration {event.loop.iteration}" if event.loop else "Offered"
    return Words(title=title, tone="offered", step=event.step_id, lines=event.warnings)


def _accepted(event: events.OutputAccepted) -> Words:
    title = "Output accepted" if event.key else "Output taken as it is"
    return Words(title=title, tone="done", step=event.step_id, output=event.output)


def _refused(event: events.OutputRefused) -> Words:
    lines = event.issues or ("no reason is recorded",)
    return Words(
        title="Output refused",
        tone="refused",
        step=event.step_id,
        output=event.output,
        lines=lines,
        hints=event.suggestions,
        values=event.context,
    )


def _asked(event: events.ConfirmationAsked) -> Words:
    why = {
        "attempts": ("it was refused as often as it may be",),
        "call": ("before the server makes the call",),
        "before": ("before the step is handed out",),
    }
    return Words(title="A person is asked", tone="asked", step=event.step_id, hints=why.get(event.reason, ()))


def _context_asked(event: events.ContextAsked) -> Words:
    lines = tuple(need.sentence() for need in event.missing)
    return Words(title="Variables are asked for", tone="asked", step=event.loop_id, lines=lines)


def _given(event: events.ConfirmationGiven) -> Words:
    return Words(title=f"Confirmed{describe_how(event)}", tone="done", step=event.step_id, note=event.note)


def _denied(event: events.ConfirmationDenied) -> Words:
    return Words(title=f"Not confirmed{describe_how(event)}", tone="refused", step=event.step_id, note=event.note)


def _entered(event: events.LoopEntered) -> Words:
    total = "" if event.total is None else f", {plural(event.total, 'time')}"
    return Words(title=f"Loop entered{total}", step=event.loop_id)


def _due(event: events.CallDue) -> Words:
    title = f"Call due, iteration {event.loop.iteration}" if event.loop else "Call due"
    return Words(title=title, tone="offered", step=event.step_id, lines=event.warnings)


def _begun(event: events.CallBegun) -> Words:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return Words(title=f"The server calls{again}", step=event.step_id)


def _acknowledged(event: events.CallAcknowledged) -> Words:
    return Words(title="Begun elsewhere", step=event.step_id, values={"run": event.remote_id})


def _progressed(event: events.CallProgressed) -> Words:
    total = f" of {event.total:g}" if event.total is not None else ""
    return Words(title=f"Progress: {event.done:g}{total}", step=event.step_id, note=event.message)


def _call_failed(event: events.CallFailed) -> Words:
    said: dict[str, Json] = msgspec.to_builtins(event.error) if event.error is not None else {}
    return Words(title="Call failed", tone="refused", step=event.step_id, lines=(event.reason,), values=said)


def _end_unknown(event: events.EndUnknown) -> Words:
    return Words(title="End unknown", tone="failed", step=event.step_id, lines=(event.reason,), hints=(event.remedy,))


def _stopped(event: events.CallStopped) -> Words:
    title, tone = ("The call was stopped", "minor") if event.stopped else ("The call may still run", "refused")
    return Words(title=title, tone=tone, step=event.step_id, lines=(event.told,))


_WORDS: Final[Mapping[type[Event], Callable[[Any], Words]]] = {
    events.Started: _started,
    events.StepOffered: _offered,
    events.OutputAccepted: _accepted,
    events.OutputRefused: _refused,
    events.ContextChanged: lambda event: Words(title="Context changed", values=event.changes),
    events.ContextRestored: lambda event: Words(
        title="Context restored", step=event.step_id, lines=(taken_back(event),)
    ),
    events.ContextAsked: _context_asked,
    events.ConfirmationAsked: _asked,
    events.ConfirmationDismissed: lambda event: Words(title="Closed without an answer", step=event.step_id),
    events.ConfirmationGiven: _given,
    events.ConfirmationDenied: _denied,
    events.CallDue: _due,
    events.CallBegun: _begun,
    events.CallAcknowledged: _acknowledged,
    events.CallProgressed: _progressed,
    events.CallFailed: _call_failed,
    events.EndUnknown: _end_unknown,
    events.CallStopped: _stopped,
    events.LoopEntered: _entered,
    events.LoopIterated: lambda event: Words(title=f"Iteration {event.iteration}", step=event.loop_id),
    events.LoopLeft: lambda event: Words(title="Loop left", step=event.loop_id, lines=(event.why,)),
    events.Completed: lambda event: Words(title="Completed", tone="done", lines=event.warnings),
    events.Failed: lambda event: Words(title="Failed", tone="failed", lines=(event.reason,), hints=(event.remedy,)),
    events.Cancelled: lambda event: Words(title="Cancelled", tone="cancelled", note=event.reason),
}
