"""The events that one call adds to a run: `Draft` collects them, and the functions here end it where the run rests.

`advance` and `server_calls` decide what a call means; what follows is the same for both: an output is accepted or
refused, the next step is offered, a question is asked, or the run ends. Nothing here is stored.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language.conditions import describe
from workflowlookup.language.contract import Need, input_misfits, need_of_loop, unmet
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.guidance import requires_confirmation
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
from workflowlookup.language.rules import Issue
from workflowlookup.language.templates import fill_values, filler
from workflowlookup.language.text import how_often
from workflowlookup.language.validation import judge_step
from workflowlookup.language.values import Context, Json, lookup
from workflowlookup.runs import events
from workflowlookup.runs.events import Event, Record
from workflowlookup.runs.fold import apply
from workflowlookup.runs.proofs.due import due_at_start, switched_off
from workflowlookup.runs.questions import asks_after
from workflowlookup.runs.run import Run
from workflowlookup.runs.run_document import hash_of

MAX_REMOTE_TEXT: Final = 2_000
"""Limit on the stored characters of a message from another system."""
START_NEW_RUN: Final = "Start a new run with workflow_start."
CORRECT_DOCUMENT: Final = (
    "The run keeps the document that it started with: correct the document, cancel this run, and start a new one."
)
FIX_REASON: Final = "Fix what the reason names, then start a new run with workflow_start."
CHECK_REMOTE_SYSTEM: Final = (
    "Tell the user to check there: only that system knows whether it is still running and how it ended."
)
"""For a job that may still be running: a new run would do its work twice."""
MAX_RECORDED_SKIPS: Final = 10_000
"""Limit on the recorded skips of one call, because nested loops skip up to `MAX_VISITS`."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a call, in milliseconds since 1970, its caller, and the time budget for its patterns."""

    time: int
    by: str = ""
    nonce: str = ""
    """The id of the question to a person, if this call leads to one."""
    budget: Budget = msgspec.field(default_factory=Budget)


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run was started; the fields are those of `Started`."""

    root: str = ""
    root_source: str = ""
    machine: str = ""
    client_session: str = ""
    client_root: str = ""


NOWHERE: Final = Location()
"""For a server that cannot see the files of the project."""


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


def storable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode and careless systems send."""
    return text.encode("utf-8", "replace").decode()


def submission_key(step_id: str, output: str, changes: Context) -> str:
    """A key that is equal for equal submissions, so that a repeated one is recognized."""
    return hash_of(msgspec.json.encode((step_id, output, changes), order="deterministic"))


def judge_output(
    run: Run, output: str, scope: Context, budget: Budget, *, handed_out: Context | None = None
) -> tuple[Sequence[Issue], Context]:
    """The issues of an output, and its captured variables; `handed_out` as for `judge`."""
    try:
        verdict = judge_step(run.step, output, scope, budget, handed_out=handed_out)
        forbidden = input_misfits(run.workflow, run.input, verdict.captured)
        input_issues = (Issue(message=sentence, suggestion="Change the value in the output.") for sentence in forbidden)
        return (*verdict.issues, *input_issues), verdict.captured
    except (InvalidCriteria, InvalidWorkflow) as refusal:
        location = {"runId": run.id, "workflowId": run.workflow.id, "stepId": run.current}
        remedy = f"{refusal.data['details']}. {CORRECT_DOCUMENT}"
        raise type(refusal)(remedy, **location, **refusal.data) from refusal


def accept_output(draft: Draft, accepted: events.OutputAccepted, changes: Context) -> None:
    """Accept the output. Captured variables and the result of a call also replace literal keys for their parts."""
    is_call = draft.run.calling is not None
    produced = {**changes, **accepted.captured} if is_call else accepted.captured
    context = {**draft.run.context, **changes} if produced else {}
    parts = {name: lookup(produced, name) for name in context if "." in name and lookup(produced, name) is not None}
    changes = {**changes, **parts, **produced}
    skipped = {} if is_call else switched_off(draft.run, changes, accepted.captured, draft.at.budget)
    draft.add(msgspec.structs.replace(accepted, skipped=skipped) if skipped else accepted)
    if changes:
        draft.add(events.ContextChanged(changes=changes))


def accept_and_go_on(
    draft: Draft,
    accepted: events.OutputAccepted,
    changes: Context,
    scope: Context,
    go_on: Callable[[Draft], Draft],
) -> Draft:
    """Accept the output; then a person is asked, or the run goes on. `scope`: the variables with the output's."""
    run = draft.run
    accept_output(draft, accepted, changes)
    if asks_after(run, scope, draft.at.budget):
        return draft.add(events.ConfirmationAsked(step_id=run.current, nonce=draft.at.nonce))
    return go_on(draft)


def refuse_output(  # noqa: PLR0913 - all that there is to say of it
    draft: Draft,
    output: str,
    changes: Context,
    issues: Sequence[Issue],
    needs: tuple[Need, ...],
    *,
    hints: Sequence[str] = (),
) -> events.OutputRefused:
    """Refuse the output of the current step, for these issues and missing variables."""
    refused = events.OutputRefused(
        step_id=draft.run.current,
        output=output,
        key=submission_key(draft.run.current, output, changes),
        context=changes,
        issues=(*(issue.message for issue in issues), *(need.sentence() for need in needs)),
        suggestions=tuple(dict.fromkeys([*(issue.suggestion for issue in issues if issue.suggestion), *hints])),
        missing=needs,
    )
    draft.add(refused)
    return refused


def go_on(draft: Draft) -> Draft:
    """Offer the next step or complete the run, and record the skipped steps and the loops on the way."""
    run = draft.run
    upcoming = next_step(
        run.workflow, run.passed, run.context, draft.at.budget, extents=run.extents, iterating=run.iterating
    )
    skips = [skip for skip in upcoming.skipped if skip.step_id not in run.skipped]
    for skip in skips[:MAX_RECORDED_SKIPS]:
        draft.add(events.StepSkipped(step_id=skip.step_id, condition=skip.condition))
    if len(skips) > MAX_RECORDED_SKIPS:
        cut = f"Only the first {MAX_RECORDED_SKIPS:,} of {len(skips):,} skipped steps were recorded"
        upcoming = msgspec.structs.replace(upcoming, warnings=(*upcoming.warnings, cut))
    for event in _loop_events(run, upcoming, draft.at.budget):
        draft.add(event)
    return draft.add(_final_event(draft, upcoming))


def go_on_or_fail(draft: Draft) -> Draft:
    """`go_on` after a call. If that fails, the run fails, because no caller could send a smaller context."""
    try:
        return go_on(draft)
    except InvalidWorkflow as refusal:
        return draft.add(events.Failed(reason=refusal.remedy, remedy=FIX_REASON))


def _final_event(draft: Draft, upcoming: NextStep) -> Event:
    """The event at which the run rests: a loop needs data, the run is over, a question, or the next step."""
    run, step = draft.run, upcoming.step
    details: dict[str, Any] = {"loop": upcoming.loop, "warnings": upcoming.warnings}
    if upcoming.need is not None:
        needs = (need_of_loop(run.workflow, upcoming.need),)
        return events.ContextAsked(loop_id=upcoming.instance_id, missing=needs, **details)
    if step is None:
        return events.Completed(warnings=upcoming.warnings)
    asks = (
        step.asks_before
        and requires_confirmation(step, upcoming.context, draft.at.budget)
        and not run.agreed_to(upcoming.instance_id)
    )
    sets_variables = asks and step.confirmation is not None and step.confirmation.answers
    is_call = step.call is not None
    missing = missing_for_call(run.workflow, step, upcoming.context) if is_call and not sets_variables else ()
    if missing:
        reason = f"Step '{upcoming.instance_id}' cannot be called: {'; '.join(missing)}."
        remedy = "Start a new run with workflow_start, and send these variables."
        return events.Failed(reason=reason, remedy=remedy)
    if asks:
        when: Literal["call", "before"] = "call" if is_call else "before"
        return events.ConfirmationAsked(step_id=upcoming.instance_id, reason=when, nonce=draft.at.nonce, **details)
    if not is_call and any(due_at_start(run, step, upcoming.instance_id, upcoming.context, draft.at.budget)):
        return events.ProofsDue(step_id=upcoming.instance_id, reason="start", **details)
    return _offer(step)(step_id=upcoming.instance_id, **details)


def missing_for_call(workflow: Workflow, step: PromptStep, scope: Context) -> list[str]:
    """Sentences about the variables that a call needs and that are not set or have a wrong value."""
    needs = [need.sentence() for need in unmet(workflow, step, scope)]
    unset: dict[str, None] = {}
    if step.call is not None:
        fill_values(step.call.arguments or {}, scope, filler(scope, unset))
    return [*needs, *(f"{name} is not set" for name in unset if not any(need.startswith(f"{name} ") for need in needs))]


def _offer(step: PromptStep) -> type[events.StepOffered | events.CallDue]:
    """The event that hands a step to the agent, or to the server."""
    return events.StepOffered if step.call is None else events.CallDue


def offer_again(draft: Draft) -> Draft:
    run = draft.run
    return draft.add(_offer(run.step)(step_id=run.current, loop=run.loop, warnings=run.warnings))


def retry_or_end(draft: Draft, refused: events.OutputRefused) -> Draft:
    """After a refusal: offer the step or call again, or end as the author wants if no attempt is left."""
    run, call = draft.run, draft.run.calling
    if call is None:
        may_retry = run.step.max_attempts is None or run.attempts < run.step.max_attempts
        reason = f"The output of step '{run.current}' was refused {how_often(run.attempts)}, the limit of this step."
    else:
        may_retry = call.attempt <= retries(run)
        times = f" {how_often(run.attempts)}" if run.attempts > 1 else ""
        issues = "; ".join(refused.issues)
        reason = f"The result of step '{run.current}', the call of {describe_call(run)}, was refused{times}: {issues}"
    if may_retry:
        return offer_again(draft)
    if run.step.when_exhausted == "ask":
        return draft.add(events.ConfirmationAsked(step_id=run.current, reason="attempts", nonce=draft.at.nonce))
    remedy = START_NEW_RUN if call is None else FIX_REASON
    return draft.add(events.Failed(reason=reason[:MAX_REMOTE_TEXT], remedy=remedy))


def remedy_of(run: Run) -> str:
    """What to do about a run that is over. It never advises a new run while the call may still be running."""
    if run.may_run:
        return CHECK_REMOTE_SYSTEM
    return run.end.remedy if isinstance(run.end, events.Failed | events.EndUnknown) else START_NEW_RUN


def retries(run: Run) -> int:
    return run.step.call.retries if run.step.call else 0


def describe_call(run: Run) -> str:
    return run.step.call.described if run.step.call else "nothing"


# ── loops ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def loops_to_end(run: Run) -> list[str]:
    """Loops around the current step that have no condition, so that the agent ends them by their id."""
    return [
        loop_id
        for loop_id in _iterations(run.workflow, run.current)
        if (loop := _loop(run.workflow, loop_id)).condition is None and loop.type in ("while", "until")
    ]


def _loop_events(run: Run, upcoming: NextStep, budget: Budget) -> Iterator[Event]:
    """Events of the loops that end, begin or iterate on the way to the next step."""
    for loop_id in upcoming.ended_loops:
        yield events.LoopLeft(loop_id=loop_id, why=_why_ended(run, loop_id, budget))
    for loop_id, iteration in _iterations(run.workflow, upcoming.instance_id).items():
        if loop_id not in run.iterating:
            total, items = _extent(run, loop_id)
            yield events.LoopEntered(loop_id=loop_id, iteration=iteration, total=total, items=items)
        elif run.iterating[loop_id] != iteration:
            yield events.LoopIterated(loop_id=loop_id, iteration=iteration)


def _iterations(workflow: Workflow, instance_id: str) -> dict[str, int]:
    """The iteration of each loop around a step, outermost first."""
    around = loops_around(workflow, instance_id)
    return {join_instance(loop_id, outer): iteration for loop_id, (*outer, iteration) in around}


def _loop(workflow: Workflow, loop_id: str) -> Loop:
    return find_step(workflow, loop_id).loop  # type: ignore[union-attr]


def _extent(run: Run, loop_id: str) -> tuple[int | None, list[Json] | None]:
    """The number of iterations of a loop, if it is fixed, and its list, if it has one."""
    loop = _loop(run.workflow, loop_id)
    if loop.type not in EXTENT_SCHEMAS:
        return None, None
    extent = extent_of(loop, scope_of(run.workflow, loop_id, run.context, run.extents), run.context)
    return (len(extent), extent) if isinstance(extent, list) else (extent, None)


def _why_ended(run: Run, loop_id: str, budget: Budget) -> str:
    loop, iteration = _loop(run.workflow, loop_id), run.iterating[loop_id]
    if loop_id in run.results:
        return "the agent ended it"
    for around in (*_iterations(run.workflow, loop_id), loop_id):
        condition = find_step(run.workflow, around).run_condition  # type: ignore[union-attr]
        scope = scope_of(run.workflow, around, run.context, run.extents)
        try:
            if condition and not condition.holds(scope, budget):
                return f"not true: {describe(condition)}"
        except TooSlow:
            return "its condition or its end; finding out which took too long"
    if iteration >= loop.max_iterations:
        return f"it ran {how_often(iteration)}, its limit"
    if loop.condition is not None:
        return f"{'true' if loop.type == 'until' else 'not true'}: {describe(loop.condition)}"
    return "every item is done" if loop.type == "forEach" else f"it ran {how_often(iteration)}"
