"""The timeline of a run: one entry for each event, in words, with outputs and changed values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import in_words
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.text import plural
from workflowlookup.language.values import Context, Json
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record, describe_how
from workflowlookup.runs.proofs.words import describe, verdict_of
from workflowlookup.runs.run import Run
from workflowlookup.runs.titles import step_title
from workflowlookup.runs.why import decisive_checks, describe_restored, records_with_context, why_asked


class EventText(msgspec.Struct, frozen=True, kw_only=True):
    """An event in words. All fields except `title` and `tone` may contain untrusted text."""

    title: str
    tone: str = "minor"
    """The CSS class: `done`, `refused`, `asked`, `failed`, `cancelled`, `skipped`, `offered` or `minor`."""
    step: str = ""
    subject: str = ""
    """The title of the step."""
    note: str = ""
    lines: tuple[str, ...] = ()
    """Reasons, each on its own line."""
    hints: tuple[str, ...] = ()
    output: str | None = None
    tail: str = ""
    """The end of what a proof wrote."""
    values: Mapping[str, Any] = {}


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its time and author."""

    sequence: int
    time: int
    offset: int
    """Milliseconds since the run was started."""
    took: int
    """Milliseconds since the event before."""
    by: str
    """Who caused it; empty if the same as for the event before."""
    words: EventText


_OFFERS: Final = (events.StepOffered, events.CallDue, events.ConfirmationAsked, events.ProofsDue, events.LoopEntered)
"""Events with the values that the title of a step has from then on."""


def entries(run: Run, records: Sequence[Record], budget: Budget, after: int = 0) -> Iterator[TimelineEntry]:
    """The events after a sequence, in order. `records` are all records of the run."""
    before, offered, by = run.started, "", ""
    titles: dict[str, str] = {}
    for record, context, handed_out in records_with_context(records):
        event = record.event
        step_id = getattr(event, "step_id", "") or getattr(event, "loop_id", "")
        if step_id and (step_id not in titles or isinstance(event, _OFFERS)):
            scope = scope_of(run.workflow, step_id, context, run.extents)
            titles[step_id] = step_title(run.workflow, step_id, scope, getattr(event, "loop", None))
        if record.sequence > after:
            words = _describe(run, event, context, offered, budget)
            words = msgspec.structs.replace(words, subject=titles.get(words.step, ""))
            if isinstance(event, events.ConfirmationAsked) and (why := why_asked(run, event, handed_out, context)):
                words = msgspec.structs.replace(words, lines=(f"because {why}",))
            yield TimelineEntry(
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


def _describe(run: Run, event: Event, context: Context, offered: str, budget: Budget) -> EventText:
    if isinstance(event, events.StepSkipped):
        return _skipped(run, event, context, budget)
    if isinstance(event, events.StepOffered) and event.step_id == offered:
        return EventText(title="Offered again", step=event.step_id, lines=event.warnings)
    return _WORDS[type(event)](event)


def _skipped(run: Run, event: events.StepSkipped, context: Context, budget: Budget) -> EventText:
    scope = scope_of(run.workflow, event.step_id, context, run.extents)
    values = tuple(dict.fromkeys(check.sentence() for check in decisive_checks(event.condition, scope, budget)))
    why = f"not true: {in_words(event.condition)}"
    return EventText(title="Skipped", tone="skipped", step=event.step_id, lines=(why,), hints=values)


def _started(event: events.Started) -> EventText:
    more = {name: value for name, value in event.context.items() if name not in event.input}
    return EventText(title="Run started", tone="offered", values={**event.input, **more})


def _offered(event: events.StepOffered) -> EventText:
    return EventText(title="Offered", tone="offered", step=event.step_id, lines=event.warnings)


def _accepted(event: events.OutputAccepted) -> EventText:
    title = "Output accepted" if event.key else "Output accepted as it is"
    hints = [f"without proof of {', '.join(event.waived)}"] if event.waived else []
    hints += [f"proof {name} was skipped. {reason}" for name, reason in event.skipped.items()]
    return EventText(title=title, tone="done", step=event.step_id, output=event.output, hints=tuple(hints))


def _refused(event: events.OutputRefused) -> EventText:
    lines = event.issues or ("no reason is recorded",)
    return EventText(
        title="Output refused",
        tone="refused",
        step=event.step_id,
        output=event.output,
        lines=lines,
        hints=event.suggestions,
        values=event.context,
    )


def _asked(event: events.ConfirmationAsked) -> EventText:
    why = {
        "attempts": ("its output was refused as often as allowed",),
        "call": ("before the server makes the call",),
        "before": ("before the step is handed out",),
        "unproved": ("whether the output counts without proof",),
    }
    return EventText(title="A person is asked", tone="asked", step=event.step_id, hints=why.get(event.reason, ()))


def _context_asked(event: events.ContextAsked) -> EventText:
    lines = tuple(need.sentence() for need in event.missing)
    return EventText(title="Variables are asked for", tone="asked", step=event.loop_id, lines=lines)


def _given(event: events.ConfirmationGiven) -> EventText:
    return EventText(title=f"Confirmed{describe_how(event)}", tone="done", step=event.step_id, note=event.note)


def _denied(event: events.ConfirmationDenied) -> EventText:
    return EventText(title=f"Not confirmed{describe_how(event)}", tone="refused", step=event.step_id, note=event.note)


def _entered(event: events.LoopEntered) -> EventText:
    total = "" if event.total is None else f", {plural(event.total, 'time')}"
    return EventText(title=f"Loop entered{total}", step=event.loop_id)


def _due(event: events.CallDue) -> EventText:
    title = f"Call due, iteration {event.loop.iteration}" if event.loop else "Call due"
    return EventText(title=title, tone="offered", step=event.step_id, lines=event.warnings)


def _proofs_due(event: events.ProofsDue) -> EventText:
    title = "The server looks at the project" if event.reason == "start" else "Output met the criteria; proofs are due"
    return EventText(title=title, step=event.step_id)


def _proof_claimed(event: events.ProofClaimed) -> EventText:
    what = f"proof {event.name}" if event.name else "the snapshot"
    return EventText(title=f"A witness takes {what}", step=event.step_id, values={"witness": event.witness})


def _snapshot_taken(event: events.SnapshotTaken) -> EventText:
    values: dict[str, Json] = {"commit": event.snapshot.commit} if event.snapshot.commit else {}
    lines = (event.snapshot.problem,) if event.snapshot.problem else ()
    title = f"Snapshot at the start of the {event.since}"
    return EventText(
        title=title, step=event.step_id, lines=lines, values={**values, "files": len(event.snapshot.files)}
    )


_TONES: Final = {"proved": "done", "failed": "refused", "not proved": "asked"}


def _proof_taken(event: events.ProofTaken) -> EventText:
    judgement = event.judgement
    verdict = verdict_of(judgement)
    has_reason = judgement.verdict != "passed" and judgement.reason
    return EventText(
        title=f"{verdict.capitalize()}: {describe(judgement)}",
        tone=_TONES.get(verdict, "minor"),
        step=event.step_id,
        lines=(judgement.reason,) if has_reason else (),
        hints=(judgement.remedy,) if judgement.remedy and has_reason else (),
        values=judgement.measures,
        tail=judgement.tail,
    )


def _begun(event: events.CallBegun) -> EventText:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return EventText(title=f"The server calls{again}", step=event.step_id)


def _acknowledged(event: events.CallAcknowledged) -> EventText:
    return EventText(title="Begun elsewhere", step=event.step_id, values={"run": event.remote_id})


def _progressed(event: events.CallProgressed) -> EventText:
    total = f" of {event.total:g}" if event.total is not None else ""
    return EventText(title=f"Progress: {event.done:g}{total}", step=event.step_id, note=event.message)


def _call_failed(event: events.CallFailed) -> EventText:
    error: dict[str, Json] = msgspec.to_builtins(event.error) if event.error is not None else {}
    return EventText(title="Call failed", tone="refused", step=event.step_id, lines=(event.reason,), values=error)


def _end_unknown(event: events.EndUnknown) -> EventText:
    return EventText(
        title="End unknown", tone="failed", step=event.step_id, lines=(event.reason,), hints=(event.remedy,)
    )


def _stopped(event: events.CallStopped) -> EventText:
    title, tone = ("The call was stopped", "minor") if event.stopped else ("The call may still run", "refused")
    return EventText(title=title, tone=tone, step=event.step_id, lines=(event.told,))


_WORDS: Final[Mapping[type[Event], Callable[[Any], EventText]]] = {
    events.Started: _started,
    events.StepOffered: _offered,
    events.OutputAccepted: _accepted,
    events.OutputRefused: _refused,
    events.ContextChanged: lambda event: EventText(title="Context changed", values=event.changes),
    events.ContextRestored: lambda event: EventText(
        title="Context restored", step=event.step_id, lines=(describe_restored(event),)
    ),
    events.ContextAsked: _context_asked,
    events.ConfirmationAsked: _asked,
    events.ConfirmationDismissed: lambda event: EventText(title="Closed without an answer", step=event.step_id),
    events.ConfirmationGiven: _given,
    events.ConfirmationDenied: _denied,
    events.ProofsDue: _proofs_due,
    events.ProofClaimed: _proof_claimed,
    events.SnapshotTaken: _snapshot_taken,
    events.ProofTaken: _proof_taken,
    events.CallDue: _due,
    events.CallBegun: _begun,
    events.CallAcknowledged: _acknowledged,
    events.CallProgressed: _progressed,
    events.CallFailed: _call_failed,
    events.EndUnknown: _end_unknown,
    events.CallStopped: _stopped,
    events.LoopEntered: _entered,
    events.LoopIterated: lambda event: EventText(title=f"Iteration {event.iteration}", step=event.loop_id),
    events.LoopLeft: lambda event: EventText(title="Loop left", step=event.loop_id, lines=(event.why,)),
    events.Completed: lambda event: EventText(title="Completed", tone="done", lines=event.warnings),
    events.Failed: lambda event: EventText(title="Failed", tone="failed", lines=(event.reason,), hints=(event.remedy,)),
    events.Cancelled: lambda event: EventText(title="Cancelled", tone="cancelled", note=event.reason),
    events.Paused: lambda event: EventText(title="Paused", note=event.reason),
    events.Resumed: lambda _: EventText(title="Resumed"),
    events.StopBlocked: lambda event: EventText(
        title=f"{'A sub-agent' if event.agent else 'The agent'} was told to go on", tone="minor", step=event.step_id
    ),
    events.StopReleased: lambda event: EventText(
        title="The agent was let go", tone="refused", step=event.step_id, lines=("It made no progress.",)
    ),
    events.SessionChanged: lambda event: EventText(
        title="Another session of the client", tone="minor", lines=(event.session,)
    ),
    events.ToolRefused: lambda event: EventText(
        title=f"Tool refused: {event.tool}",
        tone="refused",
        step=event.step_id,
        lines=(f"Denied by {event.pattern}" if event.pattern else "The step does not allow it.",),
    ),
}


# ── where the time went ─────────────────────────────────────────────────────────────────────────────────────────

_AT_WORK: Final[Mapping[type[Event], str]] = {
    events.StepOffered: "agent",
    events.ContextAsked: "agent",
    events.ConfirmationAsked: "person",
    events.CallDue: "server",
    events.ProofsDue: "server",
}
"""By event: who has to do something after it. After every other event, it is still the same one."""


def time_split(run: Run, records: Sequence[Record], now: int) -> dict[str, int]:
    """Milliseconds for which the run waited for an agent, a person and the server, up to now if it is not over."""
    spent = dict.fromkeys(("agent", "person", "server"), 0)
    turn, since = "", run.started
    for record in records:
        if turn:
            spent[turn] += max(0, record.time - since)
        turn, since = _AT_WORK.get(type(record.event), turn), record.time
    if turn and not run.is_over:
        spent[turn] += max(0, now - since)
    return {who: time for who, time in spent.items() if time}
