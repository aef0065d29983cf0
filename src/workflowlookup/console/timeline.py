"""The timeline of a run: one entry for each event, in words, grouped by step and iteration; and its variables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import in_words
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.navigation import join_instance, loops_around, scope_of, split_instance
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


class TimelineGroup(msgspec.Struct, kw_only=True):
    """Consecutive events of one step, or of one iteration of a loop."""

    first: int
    """The sequence of its first event, also if a page does not show that one."""
    title: str
    is_iteration: bool
    started: int
    ended: int
    refused: int = 0
    """How many of its events are refusals or failures."""
    is_last: bool = False
    is_continued: bool = False
    """Whether it has events that the view would show, but for `after`."""
    entries: list[TimelineEntry] = []
    """Those that a page shows."""


class TimelineView(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a page shows, and in which order."""

    newest_first: bool = False
    refusals_only: bool = False
    after: int = 0
    """Only events after this sequence."""
    until: int | None = None
    limit: int | None = None
    """How many of the last ones."""


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of a run, and where its value came from."""

    name: str
    value: Json
    source: str
    step: str = ""
    """The step that set it."""
    sequence: int = 0
    """The event that set it; 0 if it is not known."""


_OFFERS: Final = (events.StepOffered, events.CallDue, events.ConfirmationAsked, events.ProofsDue, events.LoopEntered)
"""Events with the values that the title of a step has from then on."""


def groups(run: Run, records: Sequence[Record], budget: Budget, view: TimelineView) -> list[TimelineGroup]:
    """The events that a view shows, in their groups. `records` are all records of the run."""
    found = list(_all_entries(run, records, budget, view))
    if found:
        found[-1][0].is_last = True
    shown = [(group, entry) for group, entry in found if entry is not None]
    if view.limit is not None:
        shown = shown[-view.limit :]
    if view.newest_first:
        shown.reverse()
    for group, entry in shown:
        group.entries.append(entry)
    return list({group.first: group for group, _ in shown}.values())


def _all_entries(
    run: Run, records: Sequence[Record], budget: Budget, view: TimelineView
) -> Iterator[tuple[TimelineGroup, TimelineEntry | None]]:
    """Each event with its group, in order; without an entry if the view does not show it."""
    before, offered, by = run.started, "", ""
    titles: dict[str, str] = {}
    key: tuple[str, tuple[int, ...]] = ("", ())
    group = TimelineGroup(first=1, title="Start", is_iteration=False, started=run.started, ended=run.started)
    for record, context, handed_out in records_with_context(records):
        event = record.event
        step_id = getattr(event, "step_id", "") or getattr(event, "loop_id", "")
        if step_id and (step_id not in titles or isinstance(event, _OFFERS)):
            scope = scope_of(run.workflow, step_id, context, run.extents)
            titles[step_id] = step_title(run.workflow, step_id, scope, getattr(event, "loop", None))
        new_key = _group_key(run, event) or key
        if new_key != key:
            key = new_key
            group = TimelineGroup(
                first=record.sequence, title="", is_iteration=bool(key[1]), started=record.time, ended=record.time
            )
        if not group.title or isinstance(event, _OFFERS):
            group.title = _group_title(run, key, event, context) or group.title or titles.get(step_id, "")
        group.ended = record.time
        is_refusal = _is_refusal(event)
        group.refused += is_refusal
        entry = None
        is_wanted = is_refusal or not view.refusals_only
        group.is_continued |= is_wanted and record.sequence <= view.after
        if is_wanted and view.after < record.sequence and (view.until is None or record.sequence <= view.until):
            words = _describe(run, event, context, offered, budget)
            words = msgspec.structs.replace(words, subject=titles.get(words.step, ""))
            if isinstance(event, events.ConfirmationAsked) and (why := why_asked(run, event, handed_out, context)):
                words = msgspec.structs.replace(words, lines=(f"because {why}",))
            entry = TimelineEntry(
                sequence=record.sequence,
                time=record.time,
                offset=record.time - run.started,
                took=record.time - before,
                by=record.by if record.by != by else "",
                words=words,
            )
        yield group, entry
        if isinstance(event, events.StepOffered):
            offered = event.step_id
        before, by = record.time, record.by


def _group_key(run: Run, event: Event) -> tuple[str, tuple[int, ...]] | None:
    """The step of an event, or the innermost loop and its iteration; None if it belongs to the group before it."""
    if isinstance(event, events.LoopEntered | events.LoopIterated):
        loop_id, outer = split_instance(event.loop_id)
        return loop_id, (*outer, event.iteration)
    if not (step_id := getattr(event, "step_id", "")):
        return None
    loops = loops_around(run.workflow, step_id)
    return loops[-1] if loops else (step_id, ())


def _group_title(run: Run, key: tuple[str, tuple[int, ...]], event: Event, context: Context) -> str:
    """The title of the loop with the item and number of the iteration; empty for a step that is in no loop."""
    loop_id, iterations = key
    if not iterations:
        return ""
    instance_id = join_instance(loop_id, iterations[:-1])
    position = getattr(event, "loop", None)
    title = step_title(run.workflow, instance_id, scope_of(run.workflow, instance_id, context, run.extents), position)
    return title if position is not None else f"{title}, iteration {iterations[-1]}"


def _is_refusal(event: Event) -> bool:
    """Whether something was refused, denied, or failed."""
    match event:
        case events.ProofTaken():
            return verdict_of(event.judgement) == "failed"
        case (
            events.OutputRefused()
            | events.ConfirmationDenied()
            | events.CallFailed()
            | events.EndUnknown()
            | events.ToolRefused()
            | events.StopReleased()
            | events.Failed()
        ):
            return True
    return False


def variables(run: Run, records: Sequence[Record]) -> list[Variable]:
    """The variables that a run has now, and where each came from."""
    sources: dict[str, tuple[str, str, int]] = {}
    set_by: dict[str, set[str]] = {}
    for name, step_id in run.value_sources.items():
        set_by.setdefault(step_id, set()).add(name.partition(".")[0])
    for record in records:
        event = record.event
        match event:
            case events.Started():
                sources |= dict.fromkeys(event.context, ("the start", "", record.sequence))
                sources |= dict.fromkeys(event.input, ("the input", "", record.sequence))
            case events.ContextChanged():
                who = record.by or "the agent"
                sources |= dict.fromkeys(event.changes, (who, "", record.sequence))
            case events.ConfirmationGiven():
                who = record.by or "a person"
                sources |= {name.partition(".")[0]: (who, "", record.sequence) for name in event.answers}
            case events.OutputAccepted():
                sources |= dict.fromkeys(set_by.get(event.step_id, ()), ("", event.step_id, record.sequence))
    return [
        Variable(name=name, value=value, source=source, step=step_id, sequence=sequence)
        for name, value in run.context.items()
        for source, step_id, sequence in [sources.get(name, ("the server", "", 0))]
    ]


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
