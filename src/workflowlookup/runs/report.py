"""The report of a run as Markdown, from its records: what was done, what was refused, which path it took and why.

Outputs, notes, names and context come from strangers. They are shown as plain text: in code blocks whose fence they
cannot close, or on one line with all Markdown escaped.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import Condition, describe, walk
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import find_step, scope_of
from workflowlookup.language.templates import filler, has_template
from workflowlookup.language.text import duration, length_of, plural
from workflowlookup.language.untrusted_text import code, fenced, inline, item
from workflowlookup.language.values import Context, brief, lookup
from workflowlookup.runs import events
from workflowlookup.runs.draft import remedy_of
from workflowlookup.runs.events import Event, Record, describe_how
from workflowlookup.runs.fold import fold
from workflowlookup.runs.proofs.words import proved, sentence_of
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.runs.why import describe_restored, records_with_context, why_asked

MAX_EVENTS: Final = 2_000
FIRST_EVENTS: Final = 200
MAX_OUTPUT: Final = 50_000
MAX_REFUSED: Final = 1_000
MAX_ISSUES: Final = 20
"""Issues shown of one refused output."""
MAX_LENGTH: Final = 1_000_000
MAX_ROWS: Final = 200
MAX_VARIABLES: Final = 5


def report(run_id: str, records: Sequence[Record]) -> str:
    """The report of a run. Raises `RunStateError` for records that are not a valid run."""
    return report_of(fold(run_id, records), records)


def report_of(run: Run, records: Sequence[Record]) -> str:
    """The report of a run that is folded already, with its records."""
    titles = _filled_titles(run, records)
    parts = [
        *_head(run),
        *_steps(run, records, titles),
        "## What happened",
        *_EventWriter(run, records, titles).paragraphs(),
    ]
    if run.context:
        parts += ["## Context", fenced(msgspec.json.format(msgspec.json.encode(run.context)).decode(), "json")]
    return "\n\n".join(parts) + "\n"


MAX_UNVERIFIED: Final = 20
"""How many unproven answers of people the head lists."""

# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def clock(milliseconds: int) -> str:
    """`2026-11-16 00:59:07 UTC`."""
    try:
        return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):  # an imported journal may have any number
        return f"{milliseconds} ms"


# ── the head ────────────────────────────────────────────────────────────────────────────────────────────────────


def _head(run: Run) -> Iterator[str]:
    workflow = run.workflow
    yield f"# {inline(workflow.name)}"
    state = f"**{run.state}**{_WAITING_FOR[run.waiting_for].format(code(run.current))}"
    yield f"Run {code(run.id)} of {code(workflow.id)} version {inline(workflow.version)}: {state}."
    waited = f", of these {duration(run.waited)} waiting for a person" if run.waited else ""
    total = f" of {run.total}" if run.total is not None else ""
    imported = [f"Imported from {code(run.imported_from)}"] if run.imported_from else []
    facts = [
        f"Started {clock(run.started)}{_by(run.by)}",
        *imported,
        f"Last change {clock(run.updated)}, after {duration(run.updated - run.started)}{waited}",
        f"Steps done: {len(run.results)}{total}",
        *_proof_facts(run),
        *(f"**Not proven:** {inline(doubt)}" for doubt in run.unverified[:MAX_UNVERIFIED]),
    ]
    if isinstance(run.end, events.Failed):
        facts.append(f"Failed: {inline(run.end.reason)} {inline(remedy_of(run))}")
    elif isinstance(run.end, events.EndUnknown):
        facts.append(f"End unknown: {inline(run.end.reason)} {inline(run.end.remedy)}")
    elif isinstance(run.end, events.Cancelled):
        facts.append(f"Cancelled{': ' + inline(run.end.reason) if run.end.reason else ''}")
    yield "\n".join(f"- {fact}" for fact in facts)


def _proof_facts(run: Run) -> Iterator[str]:
    counts = run.proof_counts
    if run.root:
        yield f"Project: {code(run.root)}"
    if counts.total:
        others = {
            "failed": counts.failed,
            "waived by a person": counts.waived,
            "not proved": counts.unproved,
            "skipped": counts.skipped,
        }
        yield ", ".join([f"P{proved(counts)[1:]}", *(f"{count} {words}" for words, count in others.items() if count)])


_WAITING_FOR: Final[Mapping[Waiting | None, str]] = {
    None: "",
    Waiting.OUTPUT: " for the output of step {}",
    Waiting.CONFIRMATION: " for a person to confirm step {}",
    Waiting.CALL: ", at the call of step {}",
    Waiting.PROOF: ", at the proofs of step {}",
    Waiting.CONTEXT: " for variables that loop {} needs",
}


def _steps(run: Run, records: Sequence[Record], titles: Mapping[str, str]) -> Iterator[str]:
    """A table of the steps that were reached or skipped: status, number of tries, and time."""
    times = _times_of_steps(records)
    tries = Counter(
        record.event.step_id
        for record in records
        if isinstance(record.event, events.CallFailed)
        or (
            isinstance(record.event, events.OutputRefused | events.OutputAccepted) and record.event.key
        )  # without a key, a person accepted it anyway
    )
    skipped = [step_id for step_id in run.skipped if step_id not in times]
    count = len(times) + len(skipped)
    if not count:
        return
    rows = []
    for step_id, (offered, done) in itertools.islice(times.items(), MAX_ROWS):
        if step_id in run.results:
            status, took = "done", duration(done - offered)
        elif step_id == run.current and not run.is_over:
            status, took = str(run.state), ""
        else:
            status, took = "not done", ""
        rows.append(f"| {_titled(run.workflow, step_id, titles)} | {status} | {tries[step_id]} | {took} |")
    rows += [
        f"| {_titled(run.workflow, step_id, titles)} | skipped | | |" for step_id in skipped[: MAX_ROWS - len(rows)]
    ]
    if count > MAX_ROWS:
        rows.append(f"| … {count - MAX_ROWS:,} more | | | |")
    yield "## Steps"
    yield "\n".join(["| step | | tries | time |", "| --- | --- | --- | --- |", *rows])


def _times_of_steps(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """By step: the time of its first offer, and of its last accepted output."""
    times: dict[str, tuple[int, int]] = {}
    for record in records:
        if isinstance(record.event, events.StepOffered | events.CallDue):
            times.setdefault(record.event.step_id, (record.time, record.time))
        elif isinstance(record.event, events.OutputAccepted) and record.event.step_id in times:
            times[record.event.step_id] = (times[record.event.step_id][0], record.time)
    return times


def _filled_titles(run: Run, records: Sequence[Record]) -> dict[str, str]:
    """By step id with the iteration: its title, if it has templates, as filled when the step was last offered."""
    if not any(has_template(step.title) for step in run.workflow.every_step):
        return {}
    titles: dict[str, str] = {}
    for record, context, _ in records_with_context(records):
        event = record.event
        if isinstance(event, events.StepOffered | events.CallDue | events.ConfirmationAsked):
            step = find_step(run.workflow, event.step_id)
            if step is not None and has_template(step.title):
                scope = scope_of(run.workflow, event.step_id, context, run.extents)
                titles[event.step_id] = filler(scope, {})(step.title)
    return titles


def _titled(workflow: Workflow, step_id: str, titles: Mapping[str, str]) -> str:
    """The title of a step, and its id with the iteration."""
    step = find_step(workflow, step_id)
    return f"{inline(titles.get(step_id, step.title))} ({code(step_id)})" if step is not None else code(step_id)


def _by(name: str) -> str:
    return f" by {inline(name)}" if name else ""


def _note(text: str) -> str:
    return f": {inline(text)}" if text else ""


def _warnings(warnings: Sequence[str]) -> str:
    return "".join(f" {inline(warning)}" for warning in warnings)


# ── the events ──────────────────────────────────────────────────────────────────────────────────────────────────


class _EventWriter:
    """The records in words, one after the other, with as much of the outputs as fits."""

    def __init__(self, run: Run, records: Sequence[Record], titles: Mapping[str, str]) -> None:
        self._run = run
        self._titles = titles
        self._records = records
        self._remaining = MAX_LENGTH
        self._step = ""
        self._context: Context = {}
        self._handed_out: Context = {}
        """The context when the step was handed out."""

    def paragraphs(self) -> Iterator[str]:
        left_out = len(self._records) - MAX_EVENTS
        for index, (record, context, handed_out) in enumerate(records_with_context(self._records)):
            self._context, self._handed_out = context, handed_out
            if left_out > 0 and FIRST_EVENTS <= index < FIRST_EVENTS + left_out:
                if index == FIRST_EVENTS:
                    yield f"… {left_out:,} events are omitted here; {self._export} has them all."
                continue
            when = f"+{duration(record.time - self._run.started)}"
            yield from self._WORDS[type(record.event)](self, record.event, f"{when}{_by(record.by)}")

    @property
    def _export(self) -> str:
        return code(f"workflowlookup export {self._run.id}")

    def _started(self, event: events.Started, _: str) -> Iterator[str]:
        if event.input:
            yield "Input:"
            yield self._excerpt(msgspec.json.format(msgspec.json.encode(event.input)).decode(), MAX_OUTPUT, "json")

    def _step_offered(self, event: events.StepOffered, when: str) -> Iterator[str]:
        yield from self._with_heading(event, f"Offered {when}")

    def _with_heading(
        self,
        event: events.StepOffered | events.CallDue | events.ProofsDue | events.ConfirmationAsked,
        heading: str,
    ) -> Iterator[str]:
        if event.step_id == self._step:
            return  # offered again after a refusal, which is in the report already
        self._step = event.step_id
        yield f"### {_titled(self._run.workflow, event.step_id, self._titles)}"
        iteration = f", iteration {event.loop.iteration} of loop {code(event.loop.id)}" if event.loop else ""
        yield f"{heading}{iteration}.{_warnings(event.warnings)}"

    def _call_due(self, event: events.CallDue, when: str) -> Iterator[str]:
        yield from self._with_heading(event, f"Due {when}: the call of {self._called(event.step_id)}")

    def _called(self, step_id: str) -> str:
        step = find_step(self._run.workflow, step_id)
        return inline(step.call.described) if isinstance(step, PromptStep) and step.call else "nothing"

    def _call_begun(self, event: events.CallBegun, when: str) -> Iterator[str]:
        yield f"Called {when}{f', attempt {event.attempt}' if event.attempt > 1 else ''}."

    def _call_progressed(self, event: events.CallProgressed, when: str) -> Iterator[str]:
        total = f" of {event.total:g}" if event.total is not None else ""
        yield f"Progress {when}: {event.done:g}{total}{_note(event.message)}"

    def _call_failed(self, event: events.CallFailed, when: str) -> Iterator[str]:
        yield f"The call failed {when}{_note(event.reason)}"
        if event.error is not None:
            yield "What the other system said:"
            yield self._excerpt(msgspec.json.format(msgspec.json.encode(event.error)).decode(), MAX_REFUSED, "json")

    def _proofs_due(self, event: events.ProofsDue, when: str) -> Iterator[str]:
        if event.reason == "start":
            yield from self._with_heading(event, f"The server looked at the project {when}, before the step began")
        else:
            yield f"An output met the criteria {when}, and the server took the proofs."

    def _proof_claimed(self, event: events.ProofClaimed, when: str) -> Iterator[str]:
        what = f"proof {code(event.name)}" if event.name else "the snapshot"
        yield f"{inline(event.witness)} began to take {what} {when}."

    def _snapshot_taken(self, event: events.SnapshotTaken, when: str) -> Iterator[str]:
        snapshot = event.snapshot
        subject = f"Snapshot of the project at the start of the {event.since}, {when}"
        if snapshot.problem:
            yield f"{subject}: {inline(snapshot.problem)}"
        else:
            commit = f"commit {code(snapshot.commit)}, " if snapshot.commit else ""
            yield f"{subject}: {commit}{plural(len(snapshot.files), 'file')} recorded."

    def _proof_taken(self, event: events.ProofTaken, when: str) -> Iterator[str]:
        judgement = event.judgement
        program = f"; the program was {code(judgement.program)}" if judgement.program else ""
        yield f"Proof {when}: {inline(sentence_of(judgement))}{program}"
        if judgement.tail:
            yield self._excerpt(judgement.tail, MAX_OUTPUT)

    def _output_accepted(self, event: events.OutputAccepted, when: str) -> Iterator[str]:
        waived = f", without {', '.join(map(code, event.waived))}" if event.waived else ""
        by_person = not event.key or event.waived
        for name, reason in event.skipped.items():
            yield f"Proof skipped: {code(name)}. {inline(reason)}"
        yield f"Output {'accepted by a person' if by_person else 'accepted'}{waived} {when}:"
        yield self._excerpt(event.output, MAX_OUTPUT)

    def _output_refused(self, event: events.OutputRefused, when: str) -> Iterator[str]:
        yield f"Output refused {when}:"
        yield self._issues(event.issues) or "- no reason is recorded"
        yield self._excerpt(event.output, MAX_REFUSED)

    def _context_asked(self, event: events.ContextAsked, when: str) -> Iterator[str]:
        needs = "; ".join(need.sentence() for need in event.missing)
        loop = _titled(self._run.workflow, event.loop_id, self._titles)
        yield f"Variables for loop {loop} were asked for {when}: {inline(needs)}."

    def _confirmation_asked(self, event: events.ConfirmationAsked, when: str) -> Iterator[str]:
        condition = why_asked(self._run, event, self._handed_out, self._context)
        why = f", because {inline(condition)}" if condition else ""
        if event.reason in ("call", "before"):
            what = f"the call of {self._called(event.step_id)}" if event.reason == "call" else "the step was handed out"
            yield from self._with_heading(event, f"A person was asked {when}, before {what}{why}")
            return
        if event.reason == "attempts":
            why = ", because no attempts were left"
        yield f"A person was asked {when}{why or ', as the step requires'}."

    def _step_skipped(self, event: events.StepSkipped, _: str) -> Iterator[str]:
        scope = scope_of(self._run.workflow, event.step_id, self._context, self._run.extents)
        why = f"{code(describe(event.condition))}{_values(event.condition, scope)}"
        yield f"Skipped {_titled(self._run.workflow, event.step_id, self._titles)}, because this is not true: {why}"

    def _loop_entered(self, event: events.LoopEntered, _: str) -> Iterator[str]:
        total = f", {plural(event.total, 'time')}" if event.total is not None else ""
        yield f"Entered loop {code(event.loop_id)}{total}."

    def _issues(self, issues: Sequence[str]) -> str:
        """The first issues, one per line, and how many more there are."""
        items = list(map(item, issues[:MAX_ISSUES])) if self._remaining > 0 else []
        if len(items) < len(issues):
            items.append(f"- … {len(issues) - len(items):,} more; {self._export} has them all.")
        text = "\n".join(items)
        self._remaining -= len(text)
        return text

    def _excerpt(self, text: str, limit: int, language: str = "text") -> str:
        """A text in full, or its beginning with the number of missing characters."""
        length, limit = length_of(text), min(limit, max(self._remaining, 0), len(text))
        self._remaining -= limit
        if length <= limit:
            return fenced(text, language)
        rest = f"… {length - limit:,} more characters; {self._export} has them all."
        return f"{fenced(text[:limit])}\n\n{rest}" if limit else rest

    _WORDS: Final[Mapping[type[Event], Callable[["_EventWriter", Any, str], Iterable[str]]]] = {
        events.Started: _started,
        events.StepOffered: _step_offered,
        events.OutputAccepted: _output_accepted,
        events.OutputRefused: _output_refused,
        events.ContextChanged: lambda _, event, __: [f"Set {', '.join(map(code, event.changes))}."],
        events.ContextRestored: lambda _, event, __: [
            f"What came with this output was {inline(describe_restored(event))}."
        ],
        events.ContextAsked: _context_asked,
        events.ConfirmationAsked: _confirmation_asked,
        events.ConfirmationDismissed: lambda _, __, when: [f"The question was closed without an answer {when}."],
        events.ConfirmationGiven: lambda _, event, when: [f"Confirmed {when}{describe_how(event)}{_note(event.note)}"],
        events.ConfirmationDenied: lambda _, event, when: [
            f"Not confirmed {when}{describe_how(event)}{_note(event.note)}"
        ],
        events.ProofsDue: _proofs_due,
        events.ProofClaimed: _proof_claimed,
        events.SnapshotTaken: _snapshot_taken,
        events.ProofTaken: _proof_taken,
        events.CallDue: _call_due,
        events.CallBegun: _call_begun,
        events.CallAcknowledged: lambda _, event, when: [
            f"Accepted by the other system {when}, as run {code(event.remote_id)}."
        ],
        events.CallProgressed: _call_progressed,
        events.CallFailed: _call_failed,
        events.CallStopped: lambda _, event, when: [f"Stopping the call, {when}: {inline(event.told)}"],
        events.StepSkipped: _step_skipped,
        events.LoopEntered: _loop_entered,
        events.LoopIterated: lambda _, event, __: [f"Loop {code(event.loop_id)}, iteration {event.iteration}."],
        events.LoopLeft: lambda _, event, __: [f"Loop {code(event.loop_id)} ended: {inline(event.why)}."],
        events.Completed: lambda _, event, when: [f"**Completed** {when}.{_warnings(event.warnings)}"],
        events.Failed: lambda _, event, when: [f"**Failed** {when}: {inline(event.reason)} {inline(event.remedy)}"],
        events.EndUnknown: lambda _, event, when: [
            f"**End unknown** {when}: {inline(event.reason)} {inline(event.remedy)}"
        ],
        events.Cancelled: lambda _, event, when: [f"**Cancelled** {when}{_note(event.reason)}"],
        events.Paused: lambda _, event, when: [f"Paused {when}{_note(event.reason)}"],
        events.Resumed: lambda _, __, when: [f"Resumed {when}."],
        events.StopBlocked: lambda _, event, when: [
            f"{'A sub-agent' if event.agent else 'The agent'} wanted to stop {when}, and was told to go on."
        ],
        events.StopReleased: lambda _, __, when: [f"The agent made no progress, and was let go {when}."],
        events.SessionChanged: lambda _, event, when: [
            f"Another session of the client went on with the run {when}: {code(event.session)}."
        ],
        events.ToolRefused: lambda _, event, when: [
            f"The tool {code(event.tool)} was refused {when}: {_why_refused(event)}."
        ],
    }


def _why_refused(event: events.ToolRefused) -> str:
    return f"{code(event.pattern)} is denied" if event.pattern else "the step does not allow it"


def _values(condition: Condition, scope: Context) -> str:
    """The values of the variables of a condition."""
    names = dict.fromkeys(part["var"] for part in walk(condition) if "var" in part)
    values = [f"{code(name)} is {code(brief(lookup(scope, name)))}" for name in list(names)[:MAX_VARIABLES]]
    return f" ({', '.join(values)})" if values else ""
