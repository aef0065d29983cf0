"""The events that one call adds to a run: `Draft` collects them, and the functions here end it where the run rests.

`advance` and `server_calls` decide what a call means; what follows is the same for both: an output is accepted or
refused, the next step is offered, a question is asked, or the run ends. Nothing here is stored.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language.conditions import describe
from workflowlookup.language.contract import Need, input_misfits, need_of_loop, unmet
from workflowlookup.language.guidance import fill_values, filler, requires_confirmation
from workflowlookup.language.model import Loop, PromptStep, Workflow
from workflowlookup.language.navigation import (
    EXTENT_SCHEMAS,
    NextStep,
    extent_of,
    find_step,
    join_instance,
    loops_around,
    next_step,
    scope_of,
)
from workflowlookup.language.patterns import Budget, TooSlow
from workflowlookup.language.rules import Issue
from workflowlookup.language.text import how_often
from workflowlookup.language.validation import judge_step
from workflowlookup.language.values import Context, Json, lookup
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record
from workflowlookup.runs.run import Run, apply, submission_key

MAX_REMOTE_TEXT: Final = 2_000
"""How many characters of what another system says about a call are kept."""
START_AGAIN: Final = "Start a new run with workflow_start."
CORRECT_AND_START: Final = (
    "The run keeps the document that it started with: correct the document, cancel this run, and start a new one."
)
FIX_AND_START: Final = "Fix what the reason names, then start a new run with workflow_start."
LOOK_THERE: Final = "Tell the user, who can look there: only that system can say what became of it."
"""Where a job may be running: to start another one then would do its work twice."""
MAX_RECORDED_SKIPS: Final = 10_000
"""How many steps that one call skips are recorded: nested loops skip up to `MAX_VISITS`."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When a call came, in milliseconds since 1970, and from whom."""

    time: int
    by: str = ""
    nonce: str = ""
    """Identifies a question to a person that this call leads to."""
    budget: Budget = msgspec.field(default_factory=Budget)
    """The time that the patterns of this call may take."""


class Draft:
    """A run, and the records that one call adds to it."""

    def __init__(self, run: Run, at: Moment) -> None:
        self.run = run
        self.records: list[Record] = []
        self.at = at

    def add(self, event: Event) -> "Draft":
        record = Record(sequence=self.run.sequence + 1, time=self.at.time, by=self.at.by, event=event)
        self.run = apply(self.run, record)
        self.records.append(record)
        return self


def judge_output(
    run: Run, output: str, scope: Context, budget: Budget, *, handed_out: Context | None = None
) -> tuple[Sequence[Issue], Context]:
    """What is wrong with an output, and the variables that came out of it; `handed_out` as for `judge`."""
    try:
        verdict = judge_step(run.step, output, scope, budget, handed_out=handed_out)
        forbidden = input_misfits(run.workflow, run.input, verdict.captured)
        wrong = (Issue(message=sentence, suggestion="Change the value in the output.") for sentence in forbidden)
        return (*verdict.issues, *wrong), verdict.captured
    except (InvalidCriteria, InvalidWorkflow) as refusal:
        place = {"runId": run.id, "workflowId": run.workflow.id, "stepId": run.current}
        remedy = f"{refusal.data['details']}. {CORRECT_AND_START}"
        raise type(refusal)(remedy, **place, **refusal.data) from refusal


def accept_output(draft: Draft, accepted: events.OutputAccepted, changes: Context) -> None:
    """The output is taken. What came out of it, or of a call, also wins over keys that stand for a part of it."""
    is_call = draft.run.calling is not None
    found = {**changes, **accepted.captured} if is_call else accepted.captured
    known = {**draft.run.context, **changes} if found else {}
    parts = {name: lookup(found, name) for name in known if "." in name and lookup(found, name) is not None}
    changes = {**changes, **parts, **found}
    draft.add(accepted)
    if changes:
        draft.add(events.ContextChanged(changes=changes))


def refuse_output(  # noqa: PLR0913 - all that there is to say of it
    draft: Draft,
    output: str,
    changes: Context,
    issues: Sequence[Issue],
    needs: tuple[Need, ...],
    *,
    how: Sequence[str] = (),
) -> events.OutputRefused:
    """The output of the current step does not do: for these issues, and for what the context lacks."""
    refused = events.OutputRefused(
        step_id=draft.run.current,
        output=output,
        key=submission_key(draft.run.current, output, changes),
        context=changes,
        issues=(*(issue.message for issue in issues), *(need.sentence() for need in needs)),
        suggestions=tuple(dict.fromkeys([*(issue.suggestion for issue in issues), *how])),
        missing=needs,
    )
    draft.add(refused)
    return refused


def go_on(draft: Draft) -> Draft:
    """Offer the step that comes next, or complete the run; and tell how the walk got there."""
    run = draft.run
    found = next_step(
        run.workflow, run.passed, run.context, draft.at.budget, extents=run.extents, iterating=run.iterating
    )
    skips = [skip for skip in found.skipped if skip.step_id not in run.skipped]
    for skip in skips[:MAX_RECORDED_SKIPS]:
        draft.add(events.StepSkipped(step_id=skip.step_id, condition=skip.condition))
    if len(skips) > MAX_RECORDED_SKIPS:
        cut = f"Only the first {MAX_RECORDED_SKIPS:,} of {len(skips):,} skipped steps were recorded"
        found = msgspec.structs.replace(found, warnings=(*found.warnings, cut))
    for event in _loop_events(run, found, draft.at.budget):
        draft.add(event)
    return draft.add(_rest_at(draft, found))


def go_on_or_fail(draft: Draft) -> Draft:
    """As `go_on`, after a call: nobody is there who could send something smaller."""
    try:
        return go_on(draft)
    except InvalidWorkflow as refusal:
        return draft.add(events.Failed(reason=refusal.remedy, remedy=FIX_AND_START))


def _rest_at(draft: Draft, found: NextStep) -> Event:
    """Where the walk ends: a loop that lacks data, the end, a question before the next step, or that step itself."""
    run, step = draft.run, found.step
    place: dict[str, Any] = {"loop": found.loop, "warnings": found.warnings}
    if found.need is not None:
        needs = (need_of_loop(run.workflow, found.need),)
        return events.ContextAsked(loop_id=found.instance_id, missing=needs, **place)
    if step is None:
        return events.Completed(warnings=found.warnings)
    asks = (
        step.asks_before
        and requires_confirmation(step, found.context, draft.at.budget)
        and not run.agreed_to(found.instance_id)
    )
    brings_variables = asks and step.confirmation is not None and step.confirmation.answers
    is_call = step.call is not None
    missing = missing_for_call(run.workflow, step, found.context) if is_call and not brings_variables else ()
    if missing:
        reason = f"Step '{found.instance_id}' cannot be called: {'; '.join(missing)}."
        remedy = "Start a new run with workflow_start, and give it these variables."
        return events.Failed(reason=reason, remedy=remedy)
    if asks:
        why: Literal["call", "before"] = "call" if is_call else "before"
        return events.ConfirmationAsked(step_id=found.instance_id, reason=why, nonce=draft.at.nonce, **place)
    return _offer(step)(step_id=found.instance_id, **place)


def missing_for_call(workflow: Workflow, step: PromptStep, scope: Context) -> list[str]:
    """The variables that a call needs and that are not set, or of the wrong kind, each as a sentence."""
    needs = [need.sentence() for need in unmet(workflow, step, scope)]
    unset: dict[str, None] = {}
    if step.call is not None:
        fill_values(step.call.arguments or {}, scope, filler(scope, unset))
    return [*needs, *(f"{name} is not set" for name in unset if not any(told.startswith(f"{name} ") for told in needs))]


def _offer(step: PromptStep) -> type[events.StepOffered | events.CallDue]:
    """The event by which a step is handed to the agent, or to the server itself."""
    return events.StepOffered if step.call is None else events.CallDue


def offer_again(draft: Draft) -> Draft:
    run = draft.run
    return draft.add(_offer(run.step)(step_id=run.current, loop=run.loop, warnings=run.warnings))


def retry_or_end(draft: Draft, refused: events.OutputRefused) -> Draft:
    """After a refusal: the same step or call; or what is to happen when it was tried often enough."""
    run, call = draft.run, draft.run.calling
    if call is None:
        is_left = run.step.max_attempts is None or run.attempts < run.step.max_attempts
        reason = f"The output of step '{run.current}' was refused {how_often(run.attempts)}, as often as it may be."
    else:
        is_left = call.attempt <= retries(run)
        times = f" {how_often(run.attempts)}" if run.attempts > 1 else ""
        issues = "; ".join(refused.issues)
        reason = f"The result of step '{run.current}', the call of {describe_call(run)}, was refused{times}: {issues}"
    if is_left:
        return offer_again(draft)
    if run.step.when_exhausted == "ask":
        return draft.add(events.ConfirmationAsked(step_id=run.current, reason="attempts", nonce=draft.at.nonce))
    remedy = START_AGAIN if call is None else FIX_AND_START
    return draft.add(events.Failed(reason=reason[:MAX_REMOTE_TEXT], remedy=remedy))


def remedy_of(run: Run) -> str:
    """What to do about a run that is over: never to start another while its call may still be running."""
    if run.may_run:
        return LOOK_THERE
    return run.end.remedy if isinstance(run.end, events.Failed | events.EndUnknown) else START_AGAIN


def retries(run: Run) -> int:
    return run.step.call.retries if run.step.call else 0


def describe_call(run: Run) -> str:
    return run.step.call.described if run.step.call else "nothing"


# ── loops ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def loops_to_end(run: Run) -> list[str]:
    """Loops around the current step that the agent ends by their id, because no condition of their own does."""
    return [
        loop_id
        for loop_id in _loops(run.workflow, run.current)
        if (loop := _loop(run.workflow, loop_id)).condition is None and loop.type in ("while", "until")
    ]


def _loop_events(run: Run, found: NextStep, budget: Budget) -> Iterator[Event]:
    """What happens to loops on the way to the step that comes next."""
    for loop_id in found.ended_loops:
        yield events.LoopLeft(loop_id=loop_id, why=_why_left(run, loop_id, budget))
    for loop_id, iteration in _loops(run.workflow, found.instance_id).items():
        if loop_id not in run.iterating:
            total, items = _extent(run, loop_id)
            yield events.LoopEntered(loop_id=loop_id, iteration=iteration, total=total, items=items)
        elif run.iterating[loop_id] != iteration:
            yield events.LoopIterated(loop_id=loop_id, iteration=iteration)


def _loops(workflow: Workflow, instance_id: str) -> dict[str, int]:
    """The loops around a step, outermost first, each with its iteration."""
    around = loops_around(workflow, instance_id)
    return {join_instance(loop_id, outer): iteration for loop_id, (*outer, iteration) in around}


def _loop(workflow: Workflow, loop_id: str) -> Loop:
    return find_step(workflow, loop_id).loop  # type: ignore[union-attr]


def _extent(run: Run, loop_id: str) -> tuple[int | None, list[Json] | None]:
    """How often a loop will run, if that is known, and the list that it goes through."""
    loop = _loop(run.workflow, loop_id)
    if loop.type not in EXTENT_SCHEMAS:
        return None, None
    extent = extent_of(loop, scope_of(run.workflow, loop_id, run.context, run.extents), run.context)
    return (len(extent), extent) if isinstance(extent, list) else (extent, None)


def _why_left(run: Run, loop_id: str, budget: Budget) -> str:
    loop, iteration = _loop(run.workflow, loop_id), run.iterating[loop_id]
    if loop_id in run.results:
        return "the agent ended it"
    for around in (*_loops(run.workflow, loop_id), loop_id):
        condition = find_step(run.workflow, around).run_condition  # type: ignore[union-attr]
        scope = scope_of(run.workflow, around, run.context, run.extents)
        try:
            if condition and not condition.holds(scope, budget):
                return f"not true: {describe(condition)}"
        except TooSlow:
            return "its condition, or its end; it took too long to find out which"
    if iteration >= loop.max_iterations:
        return f"it ran {how_often(iteration)}, as often as it may"
    if loop.condition is not None:
        return f"{'true' if loop.type == 'until' else 'not true'}: {describe(loop.condition)}"
    return "every item is done" if loop.type == "forEach" else f"it ran {how_often(iteration)}"
