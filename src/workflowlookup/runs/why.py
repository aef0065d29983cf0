"""Why each step ran, was skipped or waits: the condition that decided, and the values that it saw at the time.

For a run the journal tells: what was true when a step was offered or passed over is what counts, not what is true now.
What lies ahead is told for the context as it is. Without a run everything lies ahead.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from workflowlookup.errors import InvalidWorkflow
from workflowlookup.language.conditions import OPERATORS, Condition, describe, evaluate, in_words, walk
from workflowlookup.language.contract import how_to_send, need_of_loop
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
from workflowlookup.language.patterns import Budget, TooSlow
from workflowlookup.language.text import first_few
from workflowlookup.language.values import Context, Json, brief, json_equal, lookup
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record, RemoteError, describe_how
from workflowlookup.runs.run import Run, State, Waiting, context_after

MAX_VARIABLES: Final = 8
"""How many variables of a condition are named with their values."""
NO_CONDITION: Final = "it has no condition"
FOLDED_FROM: Final = 4
"""How many iterations that say the same of a step are shown as one."""
MAX_RANGES: Final = 5
"""How many ranges of iterations are named."""


class Fate(StrEnum):
    """What became of a step, or will as things stand."""

    RAN = "ran"
    WAITS = "waits"
    SKIPPED = "skipped"
    WOULD_RUN = "would run"
    WOULD_BE_SKIPPED = "would be skipped"
    NOT_REACHED = "not reached"


class ConditionCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a condition that decided, and the value that it saw; null is also what is not set."""

    says: str
    holds: bool
    variable: str
    value: Json

    def sentence(self) -> str:
        """`size is "small"`."""
        return f"{self.variable} is {'not set' if self.value is None else brief(self.value)}"


class Reason(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A step, in a loop each time it came up, with its fate and why."""

    id: str
    title: str
    fate: Fate
    because: str
    depth: int = 0
    """How many loops are around it."""
    checks: tuple[ConditionCheck, ...] = ()
    refused: int = 0
    issues: tuple[str, ...] = ()
    """What the rules said of the output that was refused last."""
    failed: int = 0
    """How often its call came to nothing."""
    failure: str = ""
    """Why it did so last."""
    error: RemoteError | None = None
    """What the other system said about that."""
    confirmation: str = ""
    """What a person said, and whether we have only the agent's word for it."""

    times: int = 1
    """How many iterations this stands for: those with the same reason are shown once, as the first of them."""
    iterations: str = ""
    """Which these are, such as `1-998, 1000`, where there are several."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Every step of a workflow, in the order of the document."""

    steps: tuple[Reason, ...]
    path: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...] = ()


def explain_run(run: Run, records: Sequence[Record], budget: Budget) -> Explanation:
    """Why the run took the way that it took, and what lies ahead of it."""
    found = _from_journal(run, records, budget)
    skipped = [Skipped(step_id=step, condition=condition) for step, condition in run.skipped.items()]
    warnings = run.warnings
    ahead = _Ahead(run.workflow, run.context, run.extents, budget)
    if not run.is_over:
        try:
            ahead.go({**run.passed, run.current: None}, run.iterating)
        except InvalidWorkflow as refusal:  # what has happened can be told all the same
            ahead.warnings.append(refusal.remedy)
        found |= {step: told for step, told in ahead.reasons.items() if _is_news(told, found.get(step))}
        warnings = tuple(dict.fromkeys([*warnings, *ahead.warnings]))
    rest = _over(run) if run.is_over else ""
    path = [step for step in run.results if not isinstance(find_step(run.workflow, step), LoopStep)]
    if run.waiting_for in (Waiting.OUTPUT, Waiting.CALL):
        path.append(run.current)
    return Explanation(
        steps=tuple(ahead.in_order(found, rest)),
        path=tuple(path),
        skipped=tuple(skipped),
        warnings=warnings,
    )


def _is_news(ahead: Reason, before: Reason | None) -> bool:
    """What was passed over is passed over, unless the context has changed its fate since."""
    return before is None or (before.fate is Fate.SKIPPED and ahead.fate is Fate.WOULD_RUN)


def explain_context(workflow: Workflow, context: Context, budget: Budget) -> Explanation:
    """Which steps would run in a context, and why."""
    ahead = _Ahead(workflow, context, NO_EXTENTS, budget)
    path = ahead.go([])
    return Explanation(
        steps=tuple(ahead.in_order(ahead.reasons)),
        path=tuple(path),
        skipped=tuple(ahead.skipped),
        warnings=tuple(ahead.warnings),
    )


# ── what decided ────────────────────────────────────────────────────────────────────────────────────────────────


def decided_by(condition: Condition, scope: Context, budget: Budget) -> tuple[ConditionCheck, ...]:
    """The parts of a condition that made it come out as it did; none when it takes too long to find out."""
    try:
        return tuple(_decisive(condition, scope, budget))
    except TooSlow:
        return ()


def _decisive(condition: Condition, scope: Context, budget: Budget) -> Iterator[ConditionCheck]:
    parts = list(_conjuncts(condition))
    wrong = next((part for part in parts if not evaluate(part, scope, budget)), None)
    for part in parts if wrong is None else [wrong]:
        if "or" in part:
            right = next((one for one in part["or"] if evaluate(one, scope, budget)), None)
            for one in part["or"] if right is None else [right]:
                yield from _decisive(one, scope, budget)
        elif "not" in part:
            yield from _decisive(part["not"], scope, budget)
        elif "var" in part:
            name = part["var"]
            value = scope[name] if name in scope else lookup(scope, name)
            yield ConditionCheck(says=describe(part), holds=evaluate(part, scope, budget), variable=name, value=value)


def _conjuncts(condition: Condition) -> Iterator[Condition]:
    """Conditions that hold together exactly when this one does: variables, alternatives and opposites."""
    if condition.get("var") is not None:
        yield {key: value for key, value in condition.items() if key == "var" or key in OPERATORS}
    for part in condition.get("and", ()):
        yield from _conjuncts(part)
    yield from ({key: condition[key]} for key in ("or", "not") if key in condition)


def asked_because(run: Run, event: events.ConfirmationAsked, before: Context, after: Context) -> str:
    """Why a person was asked where a condition decides it, with the values that it saw: when the step was handed out,
    and with what came with its output. Empty where no condition does.
    """
    step = find_step(run.workflow, event.step_id)
    wanted = step.confirmation.condition if isinstance(step, PromptStep) and step.confirmation else True
    if event.reason == "attempts" or isinstance(wanted, bool) or not wanted:
        return ""
    then, now = (scope_of(run.workflow, event.step_id, context, run.extents) for context in (before, after))
    names = dict.fromkeys(part["var"] for part in walk(wanted) if "var" in part)
    values = [_then_and_now(name, lookup(then, name), lookup(now, name)) for name in list(names)[:MAX_VARIABLES]]
    return f"{in_words(wanted)} ({', '.join(values)})"


def _then_and_now(name: str, then: Json, now: Json) -> str:
    old, new = ("not set" if value is None else brief(value) for value in (then, now))
    same = old == new and json_equal(then, now)
    if same:
        return f"{name} is {new}"
    return f"{name} was {old} when the step was handed out, and is {new} with its output"


def _judged(step: Step, scope: Context, budget: Budget, *, is_run: bool) -> tuple[str, tuple[ConditionCheck, ...]]:
    """Why a step was offered, or passed over, in words and in particular."""
    if not step.run_condition:
        return NO_CONDITION, ()
    words = in_words(step.run_condition)
    return f"{'true' if is_run else 'not true'}: {words}", decided_by(step.run_condition, scope, budget)


# ── what happened ───────────────────────────────────────────────────────────────────────────────────────────────


def _from_journal(run: Run, records: Sequence[Record], budget: Budget) -> dict[str, Reason]:
    """By instance, in the order in which they came up."""
    found: dict[str, Reason] = {}
    for record, context, handed_out in with_context(records):
        event = record.event
        step_id = getattr(event, "step_id", "") or getattr(event, "loop_id", "")
        asked = _asked(run, event, handed_out, context)
        fate = _fate_at_first(event, found.get(step_id))
        if fate is not None:
            scope = scope_of(run.workflow, step_id, context, run.extents)
            found[step_id] = replace(_reason(run.workflow, step_id, scope, fate, budget), confirmation=asked)
        elif step_id in found:
            found[step_id] = _changed(found[step_id], record, asked)
    if run.current in found:
        found[run.current] = _last(run, found[run.current])
    return found


def _fate_at_first(event: Event, before: Reason | None) -> Fate | None:
    """What an event makes of a step or loop that comes up with it; None when it is about one that has come up."""
    match event:
        case events.StepSkipped():
            return Fate.SKIPPED
        case events.LoopEntered():
            return Fate.RAN
        case events.ContextAsked():
            return Fate.NOT_REACHED
        case events.StepOffered() | events.CallDue() | events.ConfirmationAsked(reason="call" | "before"):
            return Fate.NOT_REACHED if before is None or before.fate is Fate.SKIPPED else None
    return None


def _changed(reason: Reason, record: Record, asked: str) -> Reason:
    """The reason of a step that has come up, after a later event."""
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
            return replace(reason, confirmation=asked)
        case events.ConfirmationGiven() | events.ConfirmationDenied() as answer:
            is_yes = isinstance(answer, events.ConfirmationGiven)
            who = f" by {record.by}" if record.by else ""
            note = f": {answer.note}" if answer.note else ""
            _, because, why = reason.confirmation.partition(", because ")
            words = f"{'' if is_yes else 'not '}confirmed{who}{describe_how(answer)}{note}{because}{why}"
            return replace(reason, fate=reason.fate if is_yes else Fate.NOT_REACHED, confirmation=words)
        case events.ContextRestored() as restored:
            undone = f"what came with the output was {taken_back(restored)}"
            return replace(reason, confirmation=f"{reason.confirmation}; {undone}")
    return reason


def _reason(workflow: Workflow, step_id: str, scope: Context, fate: Fate, budget: Budget) -> Reason:
    step: Step = find_step(workflow, step_id)  # type: ignore[assignment]
    because, checks = _judged(step, scope, budget, is_run=fate not in (Fate.SKIPPED, Fate.WOULD_BE_SKIPPED))
    depth = len(workflow.enclosing[step.id])
    return Reason(id=step_id, title=step.title, fate=fate, because=because, depth=depth, checks=checks)


def with_context(records: Iterable[Record]) -> Iterator[tuple[Record, Context, Context]]:
    """Each record with the variables after it, and with those that the current step was handed out with."""
    context: Context = {}
    handed_out: Context = {}
    for record in records:
        match record.event:
            case events.Started(context=given):
                context = given
            case events.ContextChanged() | events.ContextRestored():
                context = context_after(context, record.event)
            case events.StepOffered() | events.ConfirmationAsked(reason="call" | "before"):
                handed_out = context
        yield record, context, handed_out


def _asked(run: Run, event: Event, before: Context, after: Context) -> str:
    if not isinstance(event, events.ConfirmationAsked):
        return ""
    why = asked_because(run, event, before, after)
    return f"a person was asked{f', because {why}' if why else ''}"


def taken_back(event: events.ContextRestored) -> str:
    """`taken back: risk is "high" again, ok is no longer set`."""
    values = [f"{name} is {brief(value)} again" for name, value in event.changes.items()]
    values += [f"{name} is no longer set" for name in event.removed]
    more = f" and {len(values) - MAX_VARIABLES} more" if len(values) > MAX_VARIABLES else ""
    return f"taken back: {', '.join(values[:MAX_VARIABLES])}{more}"


def _last(run: Run, reason: Reason) -> Reason:
    """The step that was offered last: the run waits at it, or ended there."""
    if not run.is_over:
        what = f" for {_WAITS_FOR[str(run.waiting_for)]}"
        if run.missing:
            what = f", because {'; '.join(need.sentence() for need in run.missing)}"
        return replace(reason, fate=Fate.WAITS, because=f"{reason.because}; it waits{what}")
    if reason.fate is Fate.NOT_REACHED:
        return replace(reason, because=f"{reason.because}; it was offered, and not done")
    return reason


_WAITS_FOR: Final[Mapping[str, str]] = {
    Waiting.OUTPUT: "its output",
    Waiting.CONFIRMATION: "a person's word",
    Waiting.CALL: "the call that the server makes",
    Waiting.CONTEXT: "variables that are not set",
}


def _over(run: Run) -> str:
    """Why what was not reached was not."""
    if run.state is State.COMPLETED:
        return "the way did not lead here"
    reason = f": {run.end.reason}" if run.end and run.end.reason else ""
    return f"the run was {run.state} before{reason}"


# ── what lies ahead ─────────────────────────────────────────────────────────────────────────────────────────────


class _Ahead:
    """The walk that follows when the context stays as it is, and every step in its order."""

    def __init__(self, workflow: Workflow, context: Context, extents: Extents, budget: Budget) -> None:
        self._workflow = workflow
        self._context = context
        self._extents = extents
        self._budget = budget
        self.reasons: dict[str, Reason] = {}
        self.skipped: list[Skipped] = []
        self.warnings: list[str] = []

    def go(self, done: Collection[str], iterating: Iterating = NOT_ITERATING) -> list[str]:
        """Complete whatever comes next until nothing does; the instances, in order."""
        path: list[str] = []
        walk = walk_ahead(self._workflow, done, self._context, self._budget, extents=self._extents, iterating=iterating)
        for found in walk:
            self.warnings += [warning for warning in found.warnings if warning not in self.warnings]
            for skip in found.skipped:
                if skip.step_id not in self.reasons:
                    self.skipped.append(skip)
                    scope = scope_of(self._workflow, skip.step_id, self._context, self._extents)
                    self._note(skip.step_id, scope, Fate.WOULD_BE_SKIPPED)
            if found.need is not None:
                self.warnings.append(
                    how_to_send(self._workflow, found.instance_id, need_of_loop(self._workflow, found.need))
                )
            if found.step is None:
                break
            if len(path) >= MAX_INSTANCES:
                self.warnings.append(f"Only the first {MAX_INSTANCES:,} steps ahead are shown")
                break
            self._note(found.instance_id, found.context, Fate.WOULD_RUN)
            path.append(found.instance_id)
        return path

    def _note(self, step_id: str, scope: Context, fate: Fate) -> None:
        self.reasons[step_id] = _reason(self._workflow, step_id, scope, fate, self._budget)

    def in_order(self, found: Mapping[str, Reason], rest: str = "") -> Iterator[Reason]:
        """Every step in the order of the document; `rest` is why the others were not reached."""
        instances: dict[str, list[Reason]] = {}
        for instance_id, reason in found.items():
            instances.setdefault(split_instance(instance_id)[0], []).append(reason)
        enclosing = self._workflow.enclosing
        for step in self._workflow.every_step:
            depth = len(enclosing[step.id])
            known = instances.get(step.id, [])
            if isinstance(step, LoopStep):
                body = [inner for inner, around in enclosing.items() if step.id in around]
                inside = [reason for inner in body for reason in instances.get(inner, ())]
                yield from _folded(_loop(step, known, inside, self._extent(step), depth))
            elif known:
                yield from _folded(known)
            else:
                because = "its loop was not entered" if depth else rest
                yield Reason(id=step.id, title=step.title, fate=Fate.NOT_REACHED, because=because, depth=depth)

    def _extent(self, step: LoopStep) -> tuple[str, tuple[ConditionCheck, ...]]:
        """How often a loop goes round, as far as that is known, and the values that decide it."""
        loop = step.loop
        if loop.condition is not None:
            scope = {**self._context, loop.iteration_var: 1}
            checks = decided_by(loop.condition, scope, self._budget)
            return f"it repeats {loop.type} {in_words(loop.condition)}", checks
        name = loop.items if loop.type == "forEach" else loop.count
        if not isinstance(name, str):
            return ("it repeats until the agent ends it" if name is None else f"it repeats {name} times"), ()
        value = self._extents.get(step.id) or lookup(self._context, name)
        size = f"a list of {len(value)}" if isinstance(value, list) else "not set" if value is None else brief(value)
        return f"it repeats for {name}, which is {size}", ()


def _loop(
    step: LoopStep,
    known: list[Reason],
    inside: list[Reason],
    extent: tuple[str, tuple[ConditionCheck, ...]],
    depth: int,
) -> Iterator[Reason]:
    """A loop: as the journal tells it; or as its body does, which is all that a walk ahead knows."""
    how, checks = extent
    if known:
        for reason in known:
            is_run = reason.fate is Fate.RAN
            yield replace(reason, because=f"{reason.because}; {how}") if is_run else reason
        return
    is_entered = any(reason.fate is not Fate.NOT_REACHED for reason in inside)
    fate = Fate.WOULD_RUN if is_entered else Fate.NOT_REACHED
    yield Reason(id=step.id, title=step.title, fate=fate, because=how, depth=depth, checks=checks)


# ── many iterations as one ──────────────────────────────────────────────────────────────────────────────────────


def _folded(reasons: Iterable[Reason]) -> Iterator[Reason]:
    """The reasons of one step; iterations with the same reason become one, where the first of them stands."""
    groups: dict[bytes, list[Reason]] = {}
    keyed = [(msgspec.json.encode(replace(reason, id="", checks=())), reason) for reason in reasons]
    for likeness, reason in keyed:
        groups.setdefault(likeness, []).append(reason)
    for likeness, reason in keyed:
        alike = groups[likeness]
        if len(alike) < FOLDED_FROM:
            yield reason
        elif reason is alike[0]:
            yield _as_one(alike)


def _as_one(reasons: Sequence[Reason]) -> Reason:
    """Without the values that were not the same in all of them."""
    common = [check for check in reasons[0].checks if all(check in reason.checks for reason in reasons)]
    iterations = _ranges([split_instance(reason.id)[1] for reason in reasons])
    return replace(reasons[0], checks=tuple(common), times=len(reasons), iterations=iterations)


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
