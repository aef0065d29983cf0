"""Why each step ran, was skipped or waits: the condition that decided, and the values that it saw at the time.

For past steps of a run, the journal has the values at the time they were offered or skipped. For later steps, and for a
workflow without a run, the current context is used.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from workflowlookup.errors import InvalidWorkflow
from workflowlookup.language.conditions import OPERATORS, Condition, describe, evaluate, in_words, walk
from workflowlookup.language.contract import how_to_send, need_of_loop
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.model import LoopStep, PromptStep, Step, Workflow
from workflowlookup.language.navigation import (
    MAX_INSTANCES,
    NO_EXTENTS,
    NOT_ITERATING,
    Extents,
    Iterating,
    Iterations,
    Skipped,
    find_step,
    scope_of,
    split_instance,
    walk_ahead,
)
from workflowlookup.language.text import first_few
from workflowlookup.language.values import Context, Json, brief, json_equal, lookup
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record, RemoteError, describe_how
from workflowlookup.runs.fold import context_after
from workflowlookup.runs.proofs.words import sentences_of
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.titles import step_title

MAX_VARIABLES: Final = 8
"""Limit on the variables of a condition that are listed with their values."""
NO_CONDITION: Final = "it has no condition"
MERGED_FROM: Final = 4
"""Iterations of a step with the same reason are shown as one from this number on."""
MAX_RANGES: Final = 5
"""Limit on the ranges of iterations that are listed."""


class Fate(StrEnum):
    """What happened to a step, or would happen with the current context."""

    RAN = "ran"
    WAITS = "waits"
    SKIPPED = "skipped"
    WOULD_RUN = "would run"
    WOULD_BE_SKIPPED = "would be skipped"
    NOT_REACHED = "not reached"
    FAILED = "failed"
    """The run failed at this step."""
    CANCELLED = "cancelled"
    """The run was cancelled at this step."""
    END_UNKNOWN = "end unknown"
    """Nothing can say how its call ended."""


class ConditionCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A decisive part of a condition, and the value that it saw; null also means not set."""

    says: str
    holds: bool
    variable: str
    value: Json

    def sentence(self) -> str:
        """`size is "small"`."""
        return f"{self.variable} is {'not set' if self.value is None else brief(self.value)}"


class Reason(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A step, or an iteration of a step, with its fate and the reason."""

    id: str
    title: str
    fate: Fate
    because: str
    depth: int = 0
    """How many loops are around it."""
    checks: tuple[ConditionCheck, ...] = ()
    refused: int = 0
    issues: tuple[str, ...] = ()
    """The issues of the last refused output."""
    failed: int = 0
    """How many times its call failed."""
    failure: str = ""
    """Why it failed last."""
    error: RemoteError | None = None
    """What the other system reported about that."""
    confirmation: str = ""
    """A person's answer, and whether the agent relayed it."""
    proofs: tuple[str, ...] = ()
    """What the server proved or measured, a sentence each."""
    outputs: Mapping[str, str] = {}
    """By proof: the part of its output that matters most."""

    times: int = 1
    """How many iterations this represents. Iterations with the same reason are shown once, as the first of them."""
    iterations: str = ""
    """These iterations, such as `1-998, 1000`; empty for a single one."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Every step of a workflow, in the order of the document."""

    steps: tuple[Reason, ...]
    path: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...] = ()


def explain_run(run: Run, records: Sequence[Record], budget: Budget) -> Explanation:
    """Why the run took its path, and the path ahead of it."""
    reasons = _from_journal(run, records, budget)
    skipped = [Skipped(step_id=step, condition=condition) for step, condition in run.skipped.items()]
    warnings = run.warnings
    forecast = _Forecast(run.workflow, run.context, run.extents, budget)
    if not run.is_over:
        try:
            forecast.walk({**run.passed, run.current: None}, run.iterating)
        except InvalidWorkflow as refusal:  # the past can still be explained
            forecast.warnings.append(refusal.remedy)
        reasons |= {step: reason for step, reason in forecast.reasons.items() if _is_new(reason, reasons.get(step))}
        warnings = tuple(dict.fromkeys([*warnings, *forecast.warnings]))
    rest = _why_not_reached(run) if run.is_over else ""
    path = [step for step in run.results if not isinstance(find_step(run.workflow, step), LoopStep)]
    if run.waiting_for in (Waiting.OUTPUT, Waiting.CALL, Waiting.PROOF):
        path.append(run.current)
    return Explanation(
        steps=tuple(forecast.in_order(reasons, rest)),
        path=tuple(path),
        skipped=tuple(skipped),
        warnings=warnings,
    )


def _is_new(forecast: Reason, before: Reason | None) -> bool:
    """Whether the forecast replaces the past: only if a skipped step would run now."""
    return before is None or (before.fate is Fate.SKIPPED and forecast.fate is Fate.WOULD_RUN)


def explain_context(workflow: Workflow, context: Context, budget: Budget) -> Explanation:
    """Which steps would run with this context, and why."""
    forecast = _Forecast(workflow, context, NO_EXTENTS, budget)
    path = forecast.walk([])
    return Explanation(
        steps=tuple(forecast.in_order(forecast.reasons)),
        path=tuple(path),
        skipped=tuple(forecast.skipped),
        warnings=tuple(forecast.warnings),
    )


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────────


def decisive_checks(condition: Condition, scope: Context, budget: Budget) -> tuple[ConditionCheck, ...]:
    """The parts of a condition that decided its result; none if evaluating them takes too long."""
    try:
        return tuple(_decisive(condition, scope, budget))
    except TooSlow:
        return ()


def _decisive(condition: Condition, scope: Context, budget: Budget) -> Iterator[ConditionCheck]:
    parts = list(_conjuncts(condition))
    false_part = next((part for part in parts if not evaluate(part, scope, budget)), None)
    for part in parts if false_part is None else [false_part]:
        if "or" in part:
            true_part = next((option for option in part["or"] if evaluate(option, scope, budget)), None)
            for option in part["or"] if true_part is None else [true_part]:
                yield from _decisive(option, scope, budget)
        elif "not" in part:
            yield from _decisive(part["not"], scope, budget)
        elif "var" in part:
            name = part["var"]
            value = scope[name] if name in scope else lookup(scope, name)
            yield ConditionCheck(says=describe(part), holds=evaluate(part, scope, budget), variable=name, value=value)


def _conjuncts(condition: Condition) -> Iterator[Condition]:
    """Simple conditions whose conjunction is this condition: comparisons, alternatives and negations."""
    if condition.get("var") is not None:
        yield {key: value for key, value in condition.items() if key == "var" or key in OPERATORS}
    for part in condition.get("and", ()):
        yield from _conjuncts(part)
    yield from ({key: condition[key]} for key in ("or", "not") if key in condition)


def why_asked(run: Run, event: events.ConfirmationAsked, before: Context, after: Context) -> str:
    """Why a person was asked, if a condition decided that; else empty. It has the values that the condition saw: when
    the step was handed out, and with the changes that came with its output.
    """
    step = find_step(run.workflow, event.step_id)
    condition = step.confirmation.condition if isinstance(step, PromptStep) and step.confirmation else True
    if event.reason == "unproved":
        return "something could not be proven"
    if event.reason == "attempts" or isinstance(condition, bool) or not condition:
        return ""
    then, now = (scope_of(run.workflow, event.step_id, context, run.extents) for context in (before, after))
    names = dict.fromkeys(part["var"] for part in walk(condition) if "var" in part)
    values = [_then_and_now(name, lookup(then, name), lookup(now, name)) for name in list(names)[:MAX_VARIABLES]]
    return f"{in_words(condition)} ({', '.join(values)})"


def _then_and_now(name: str, then: Json, now: Json) -> str:
    old, new = ("not set" if value is None else brief(value) for value in (then, now))
    same = old == new and json_equal(then, now)
    if same:
        return f"{name} is {new}"
    return f"{name} was {old} when the step was handed out, and is {new} with its output"


def _because(step: Step, scope: Context, budget: Budget, *, is_run: bool) -> tuple[str, tuple[ConditionCheck, ...]]:
    """Why a step was offered or skipped, in words, and the decisive parts of its condition."""
    if not step.run_condition:
        return NO_CONDITION, ()
    words = in_words(step.run_condition)
    return f"{'true' if is_run else 'not true'}: {words}", decisive_checks(step.run_condition, scope, budget)


# ── the past ────────────────────────────────────────────────────────────────────────────────────────────────────


def _from_journal(run: Run, records: Sequence[Record], budget: Budget) -> dict[str, Reason]:
    """By instance, in the order of the events."""
    reasons: dict[str, Reason] = {}
    for record, context, handed_out in records_with_context(records):
        event = record.event
        step_id = getattr(event, "step_id", "") or getattr(event, "loop_id", "")
        question_note = _question_note(run, event, handed_out, context)
        fate = _fate_at_first(event, reasons.get(step_id))
        if fate is not None:
            scope = scope_of(run.workflow, step_id, context, run.extents)
            reasons[step_id] = replace(_reason(run.workflow, step_id, scope, fate, budget), confirmation=question_note)
        elif step_id in reasons:
            reasons[step_id] = _changed(reasons[step_id], record, question_note)
    for step_id in run.proofs:
        if step_id in reasons:
            proofs, taken = tuple(sentences_of(run, step_id, measures=True)), run.proofs[step_id].judgements.values()
            outputs = {judgement.name: judgement.tail for judgement in taken if judgement.tail}
            reasons[step_id] = replace(reasons[step_id], proofs=proofs, outputs=outputs)
    if run.current in reasons:
        reasons[run.current] = _at_current_step(run, reasons[run.current])
    return reasons


def _fate_at_first(event: Event, before: Reason | None) -> Fate | None:
    """The fate of a step or loop that this event is the first of; None if it appeared before."""
    match event:
        case events.StepSkipped():
            return Fate.SKIPPED
        case events.LoopEntered():
            return Fate.RAN
        case events.ContextAsked():
            return Fate.NOT_REACHED
        case (
            events.StepOffered()
            | events.CallDue()
            | events.ProofsDue(reason="start")
            | events.ConfirmationAsked(reason="call" | "before")
        ):
            return Fate.NOT_REACHED if before is None or before.fate is Fate.SKIPPED else None
    return None


def _changed(reason: Reason, record: Record, question_note: str) -> Reason:
    """The reason of a step after another event about it."""
    match record.event:
        case events.CallFailed(reason=failure, error=error):
            return replace(reason, failed=reason.failed + 1, failure=failure, error=error)
        case events.LoopLeft(why=why):
            return replace(reason, because=f"{reason.because}; left: {why}")
        case events.OutputAccepted():
            return replace(reason, fate=Fate.RAN)
        case events.OutputRefused(issues=issues):
            return replace(reason, refused=reason.refused + 1, issues=issues)
        case events.ConfirmationAsked():
            return replace(reason, confirmation=question_note)
        case events.ConfirmationGiven() | events.ConfirmationDenied() as answer:
            is_yes = isinstance(answer, events.ConfirmationGiven)
            by = f" by {record.by}" if record.by else ""
            note = f": {answer.note}" if answer.note else ""
            _, because, why = reason.confirmation.partition(", because ")
            words = f"{'' if is_yes else 'not '}confirmed{by}{describe_how(answer)}{note}{because}{why}"
            return replace(reason, fate=reason.fate if is_yes else Fate.NOT_REACHED, confirmation=words)
        case events.ContextRestored() as restored:
            restoration = f"what came with the output was {describe_restored(restored)}"
            return replace(reason, confirmation=f"{reason.confirmation}; {restoration}")
    return reason


def _reason(workflow: Workflow, step_id: str, scope: Context, fate: Fate, budget: Budget) -> Reason:
    step: Step = find_step(workflow, step_id)  # type: ignore[assignment]
    because, checks = _because(step, scope, budget, is_run=fate not in (Fate.SKIPPED, Fate.WOULD_BE_SKIPPED))
    depth = len(workflow.enclosing[step.id])
    title = step_title(workflow, step_id, scope, None)
    return Reason(id=step_id, title=title, fate=fate, because=because, depth=depth, checks=checks)


def records_with_context(records: Iterable[Record]) -> Iterator[tuple[Record, Context, Context]]:
    """Each record with the variables after it, and the variables when the current step was handed out."""
    context: Context = {}
    handed_out: Context = {}
    for record in records:
        match record.event:
            case events.Started():
                context = record.event.context
            case events.ContextChanged() | events.ContextRestored() | events.ProofTaken():
                context = context_after(context, record.event)
            case events.StepOffered() | events.ConfirmationAsked(reason="call" | "before"):
                handed_out = context
        yield record, context, handed_out


def _question_note(run: Run, event: Event, before: Context, after: Context) -> str:
    if not isinstance(event, events.ConfirmationAsked):
        return ""
    why = why_asked(run, event, before, after)
    return f"a person was asked{f', because {why}' if why else ''}"


def describe_restored(event: events.ContextRestored) -> str:
    """`taken back: risk is "high" again, ok is no longer set`."""
    values = [f"{name} is {brief(value)} again" for name, value in event.changes.items()]
    values += [f"{name} is no longer set" for name in event.removed]
    more = f" and {len(values) - MAX_VARIABLES} more" if len(values) > MAX_VARIABLES else ""
    return f"taken back: {', '.join(values[:MAX_VARIABLES])}{more}"


def _at_current_step(run: Run, reason: Reason) -> Reason:
    """The reason of the current step: the run waits there, or ended there."""
    if not run.is_over:
        waiting = f" for {_WAITS_FOR[str(run.waiting_for)]}"
        if run.missing:
            waiting = f", because {'; '.join(need.sentence() for need in run.missing)}"
        return replace(reason, fate=Fate.WAITS, because=f"{reason.because}; it waits{waiting}")
    if reason.fate is Fate.NOT_REACHED and run.state in _ENDS:
        end = f": {run.end.reason}" if run.end and run.end.reason else ""
        return replace(reason, fate=_ENDS[run.state], because=f"{reason.because}; {_ENDED_HERE[run.state]}{end}")
    return reason


_ENDS: Final[Mapping[State, Fate]] = {
    State.FAILED: Fate.FAILED,
    State.CANCELLED: Fate.CANCELLED,
    State.UNKNOWN: Fate.END_UNKNOWN,
}
_ENDED_HERE: Final[Mapping[State, str]] = {
    State.FAILED: "the run failed here",
    State.CANCELLED: "the run was cancelled here",
    State.UNKNOWN: "its end is unknown",
}


_WAITS_FOR: Final[Mapping[str, str]] = {
    Waiting.OUTPUT: "its output",
    Waiting.CONFIRMATION: "a person's answer",
    Waiting.CALL: "the call that the server makes",
    Waiting.PROOF: "the proofs that the server takes",
    Waiting.CONTEXT: "variables that are not set",
}


def _why_not_reached(run: Run) -> str:
    """Why the other steps were not reached."""
    if run.state is State.COMPLETED:
        return "the path did not lead here"
    reason = f": {run.end.reason}" if run.end and run.end.reason else ""
    return f"the run was {run.state} before{reason}"


# ── the path ahead ──────────────────────────────────────────────────────────────────────────────────────────────


class _Forecast:
    """The path that follows if the context does not change."""

    def __init__(self, workflow: Workflow, context: Context, extents: Extents, budget: Budget) -> None:
        self._workflow = workflow
        self._context = context
        self._extents = extents
        self._budget = budget
        self.reasons: dict[str, Reason] = {}
        self.skipped: list[Skipped] = []
        self.warnings: list[str] = []

    def walk(self, done: Collection[str], iterating: Iterating = NOT_ITERATING) -> list[str]:
        """Take each next step as completed until none is left. Returns the instances in order."""
        path: list[str] = []
        steps = walk_ahead(
            self._workflow, done, self._context, self._budget, extents=self._extents, iterating=iterating
        )
        for upcoming in steps:
            self.warnings += [warning for warning in upcoming.warnings if warning not in self.warnings]
            for skip in upcoming.skipped:
                if skip.step_id not in self.reasons:
                    self.skipped.append(skip)
                    scope = scope_of(self._workflow, skip.step_id, self._context, self._extents)
                    self._note(skip.step_id, scope, Fate.WOULD_BE_SKIPPED)
            if upcoming.need is not None:
                self.warnings.append(
                    how_to_send(self._workflow, upcoming.instance_id, need_of_loop(self._workflow, upcoming.need))
                )
            if upcoming.step is None:
                break
            if len(path) >= MAX_INSTANCES:
                self.warnings.append(f"Only the first {MAX_INSTANCES:,} steps ahead are shown")
                break
            self._note(upcoming.instance_id, upcoming.context, Fate.WOULD_RUN)
            path.append(upcoming.instance_id)
        return path

    def _note(self, step_id: str, scope: Context, fate: Fate) -> None:
        self.reasons[step_id] = _reason(self._workflow, step_id, scope, fate, self._budget)

    def in_order(self, reasons: Mapping[str, Reason], rest: str = "") -> Iterator[Reason]:
        """Every step in the order of the document; `rest` is why the others were not reached."""
        instances: dict[str, list[Reason]] = {}
        for instance_id, reason in reasons.items():
            instances.setdefault(split_instance(instance_id)[0], []).append(reason)
        enclosing = self._workflow.enclosing
        for step in self._workflow.every_step:
            depth = len(enclosing[step.id])
            reached = instances.get(step.id, [])
            if isinstance(step, LoopStep):
                body = [inner for inner, around in enclosing.items() if step.id in around]
                inside = [reason for inner in body for reason in instances.get(inner, ())]
                yield from _merged(_loop(step, reached, inside, self._extent(step), depth))
            elif reached:
                yield from _merged(reached)
            else:
                because = "its loop was not entered" if depth else rest
                title = step_title(self._workflow, step.id, {}, None)
                yield Reason(id=step.id, title=title, fate=Fate.NOT_REACHED, because=because, depth=depth)

    def _extent(self, step: LoopStep) -> tuple[str, tuple[ConditionCheck, ...]]:
        """How often a loop repeats, as far as known, and the decisive parts of its condition."""
        loop = step.loop
        if loop.condition is not None:
            scope = {**self._context, loop.iteration_var: 1}
            checks = decisive_checks(loop.condition, scope, self._budget)
            return f"it repeats {loop.type} {in_words(loop.condition)}", checks
        name = loop.items if loop.type == "forEach" else loop.count
        if not isinstance(name, str):
            return ("it repeats until the agent ends it" if name is None else f"it repeats {name} times"), ()
        value = self._extents.get(step.id) or lookup(self._context, name)
        size = f"a list of {len(value)}" if isinstance(value, list) else "not set" if value is None else brief(value)
        return f"it repeats for {name}, which is {size}", ()


def _loop(
    step: LoopStep,
    reached: list[Reason],
    inside: list[Reason],
    extent: tuple[str, tuple[ConditionCheck, ...]],
    depth: int,
) -> Iterator[Reason]:
    """The reasons of a loop: from the journal, or else from its body, since a forecast has only the steps."""
    how, checks = extent
    if reached:
        for reason in reached:
            is_run = reason.fate is Fate.RAN
            yield replace(reason, because=f"{reason.because}; {how}") if is_run else reason
        return
    is_entered = any(reason.fate is not Fate.NOT_REACHED for reason in inside)
    fate = Fate.WOULD_RUN if is_entered else Fate.NOT_REACHED
    yield Reason(id=step.id, title=step.title, fate=fate, because=how, depth=depth, checks=checks)


# ── merging iterations ──────────────────────────────────────────────────────────────────────────────────────────


def _merged(reasons: Iterable[Reason]) -> Iterator[Reason]:
    """The reasons of one step; iterations with the same reason become one, at the position of the first."""
    groups: dict[bytes, list[Reason]] = {}
    keyed = [
        (msgspec.json.encode(replace(reason, id="", title="", checks=(), proofs=(), outputs={})), reason)
        for reason in reasons
    ]
    for key, reason in keyed:
        groups.setdefault(key, []).append(reason)
    for key, reason in keyed:
        group = groups[key]
        if len(group) < MERGED_FROM:
            yield reason
        elif reason is group[0]:
            yield _merge(group)


def _merge(reasons: Sequence[Reason]) -> Reason:
    """One reason for several, with the checks that all of them share."""
    common = [check for check in reasons[0].checks if all(check in reason.checks for reason in reasons)]
    iterations = _ranges([split_instance(reason.id)[1] for reason in reasons])
    titles = {reason.title for reason in reasons}
    title = reasons[0].title if len(titles) == 1 else f"{reasons[0].title} and others"
    return replace(reasons[0], title=title, checks=tuple(common), times=len(reasons), iterations=iterations)


def _ranges(iterations: Sequence[Iterations]) -> str:
    """`1-998, 1000`; in a loop in a loop `1.1-1.10, 2.1-2.10`."""
    ranges: list[list[Iterations]] = []
    for one in iterations:
        if ranges and one[:-1] == ranges[-1][-1][:-1] and one[-1] == ranges[-1][-1][-1] + 1:
            ranges[-1][1:] = [one]
        else:
            ranges.append([one])
    named = ["-".join(".".join(map(str, end)) for end in ends) for ends in ranges]
    return first_few(named, MAX_RANGES)
