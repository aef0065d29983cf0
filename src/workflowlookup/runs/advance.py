"""What follows from a call: a run and what somebody wants of it in, the run after it and its new records out.

Nothing here is stored or told to anyone. A call that is not allowed where the run stands raises; an output that is not
good enough is no such thing, it is an event. Every draft ends where the run rests.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from workflowlookup.errors import InvalidCriteria, InvalidParams, InvalidWorkflow, RunStateError, StepNotFound
from workflowlookup.language.conditions import describe
from workflowlookup.language.contract import (
    MAX_MISFITS,
    Need,
    input_misfits,
    need_of_loop,
    produced_by,
    refuse_misfits,
    unmet,
)
from workflowlookup.language.guidance import requires_confirmation
from workflowlookup.language.model import Loop, PromptStep, Workflow
from workflowlookup.language.navigation import (
    EXTENT_SCHEMAS,
    Next,
    extent_of,
    find_step,
    join_instance,
    loops_around,
    next_step,
    scope_of,
)
from workflowlookup.language.patterns import Budget, TooSlow
from workflowlookup.language.rules import Issue
from workflowlookup.language.schemas import suggest
from workflowlookup.language.text import how_often, shorten
from workflowlookup.language.validation import judge_step
from workflowlookup.language.values import (
    MAX_CONTEXT_BYTES,
    Context,
    Json,
    assign,
    brief,
    json_equal,
    lookup,
    owners,
    text_or_json,
)
from workflowlookup.runs import events
from workflowlookup.runs.call_arguments import missing_for_call
from workflowlookup.runs.events import Event, How, Record, RemoteError
from workflowlookup.runs.questions import asks_after, captured_anyway, refuse_answers
from workflowlookup.runs.results import MAX_KEPT, reference_to
from workflowlookup.runs.run import CallState, Run, State, Waiting, apply, fold, kept_document, submission_key

MAX_REMOTE_TEXT: Final = 2_000
"""How many characters of what another system says about a call are kept."""
MAX_ERROR: Final = 16_000
"""How many characters of the detail and of the output of a remote failure are kept, each."""
START_AGAIN: Final = "Start a new run with workflow_start."
CORRECT_AND_START: Final = (
    "The run keeps the document that it started with: correct the document, cancel this run, and start a new one."
)
FIX_AND_START: Final = "Fix what the reason names, then start a new run with workflow_start."
LOOK_THERE: Final = "Tell the user, who can look there: only that system can say what became of it."
"""Where a job may be running: to start another one then would do its work twice."""
ANOTHER_QUESTION: Final = "The run has gone on since you looked at it. Look again before you decide."
MAX_RECORDED_SKIPS: Final = 10_000
"""How many steps that one call skips are recorded: nested loops skip up to `MAX_VISITS`."""
NOTHING: Final[Context] = MappingProxyType({})


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


# ── what can be asked of a run ──────────────────────────────────────────────────────────────────────────────────


def begin(  # noqa: PLR0913 - all that a run begins with
    run_id: str, workflow: Workflow, given: Context, context: Context, at: Moment, *, timeout: float | None = None
) -> Draft:
    """A new run of the workflow. Raises `InvalidParams` when the input or the context does not fit its schemas."""
    _refuse_input(workflow, given)
    _refuse_changed_input(workflow, given, given, context)
    variables = {**given, **context}
    _refuse_context(workflow, {}, variables)
    document, digest = kept_document(workflow)
    started = events.Started(
        hash=digest, document=document, input=given, context=variables, timeout=timeout, origin=workflow.origin
    )
    record = Record(sequence=1, time=at.time, by=at.by, event=started)
    draft = Draft(fold(run_id, [record]), at)
    draft.records.append(record)
    return _go_on(draft)


def submit(run: Run, step_id: str, output: str, changes: Context, at: Moment) -> Draft:
    """The run after the output of its current step: accepted, or refused with the reasons.

    Raises `RunStateError` and `StepNotFound` when the run waits for something else, `InvalidParams` when the changes of
    the context do not fit, and what `judge` raises.
    """
    _refuse_unless_waiting_for(run, Waiting.OUTPUT, step_id, or_loops=loops_to_end(run))
    ends_loop = step_id != run.current
    _refuse_override(run, changes, () if ends_loop else produced_by(run.step))
    _refuse_context(run.workflow, run.context, changes)
    key = submission_key(step_id, output, changes)
    draft = Draft(run, at)
    if ends_loop:
        _accept(draft, events.OutputAccepted(step_id=step_id, output=output, key=key), changes)
        return _go_on(draft)
    scope = scope_of(run.workflow, step_id, {**run.context, **changes}, run.extents)
    issues, captured = _judge(run, output, scope, at.budget, handed_out=run.scope if changes else None)
    _refuse_size({**run.context, **changes, **captured})
    scope = assign(scope, captured)
    needs = unmet(run.workflow, run.step, scope, is_done=True)
    if issues or needs:
        how = [f"Send {msgspec.json.encode(need.example).decode()} with the output." for need in needs]
        return _try_again(draft, _refuse(draft, output, changes, issues, needs, how=how))
    warnings = tuple(_overridden(changes, captured))
    accepted = events.OutputAccepted(step_id=step_id, output=output, key=key, captured=captured, warnings=warnings)
    _accept(draft, accepted, changes)
    if asks_after(run, scope, at.budget):
        return draft.add(events.ConfirmationAsked(step_id=step_id, nonce=at.nonce))
    return _go_on(draft)


def supply(run: Run, loop_id: str, changes: Context, at: Moment) -> Draft:
    """The run after the variables that it waits for.

    Raises `RunStateError` and `StepNotFound` when it waits for something else, `InvalidParams` when the loop still
    cannot be entered or the changes do not fit.
    """
    _refuse_unless_waiting_for(run, Waiting.CONTEXT, loop_id)
    asked = [need.variable for need in run.missing]
    _refuse_override(run, changes, asked)
    _refuse_context(run.workflow, run.context, changes)
    changed = events.ContextChanged(changes=changes, key=submission_key(loop_id, "", changes))
    draft = _go_on(Draft(run, at).add(changed))
    if draft.run.waiting_for is Waiting.CONTEXT and draft.run.current == loop_id:
        need = draft.run.missing[0]
        raise InvalidParams(
            f"context.{need.sentence()}. Send {msgspec.json.encode(need.example).decode()}", **_position(run, loop_id)
        )
    return draft


def confirm(  # noqa: PLR0913 - all that an answer is
    run: Run, step_id: str, at: Moment, *, how: How, question: str = "", note: str = "", answers: Context = NOTHING
) -> Draft:
    """The run after a person agreed to `question`, the one that is open unless it is named.

    Raises `RunStateError` when it does not wait for that, or another question was shown, and `InvalidParams` for
    answers that do not fit.
    """
    _refuse_confirmation(run, step_id, how, question)
    refuse_answers(run, answers, at.budget)
    _refuse_override(run, answers, answers)
    _refuse_context(run.workflow, run.context, answers)
    draft = Draft(run, at)
    draft.add(
        events.ConfirmationGiven(
            step_id=run.current, how=how, question=run.question_id, note=note, answers=dict(answers)
        )
    )
    if run.asked is not None and run.asked.reason == "attempts" and isinstance(run.judged, events.OutputRefused):
        captured = captured_anyway(run, at.budget)
        accepted = events.OutputAccepted(step_id=run.current, output=run.judged.output, captured=captured)
        _accept(draft, accepted, run.judged.context)
    if answers:
        draft.add(events.ContextChanged(changes=answers))
    return _go_on(draft)


def deny(  # noqa: PLR0913 - all that an answer is
    run: Run, step_id: str, at: Moment, *, how: How, question: str = "", note: str = "", restores: bool = True
) -> Draft:
    """The run after a person did not agree. Raises `RunStateError` when it does not wait for that.

    What came with the output does not count any more, except in journals of older versions (`restores` is false).
    """
    _refuse_confirmation(run, step_id, how, question)
    draft = Draft(run, at)
    draft.add(events.ConfirmationDenied(step_id=run.current, how=how, question=run.question_id, note=note))
    said = f": {note}" if note else "."
    match run.asked.reason if run.asked else "step":
        case "call":
            reason = f"A person did not agree to step '{run.current}', the call of {_called(run)}{said}"
        case "before":
            reason = f"A person did not agree that step '{run.current}' is done{said}"
        case "attempts":
            reason = f"Step '{run.current}' was refused {how_often(run.attempts)}, and a person did not accept it{said}"
        case _:
            if restores:
                _restore_context(draft)
            return _offer_again(draft)
    return draft.add(events.Failed(reason=reason, remedy=START_AGAIN))


def _restore_context(draft: Draft) -> None:
    """Take back what came with the output that was denied."""
    run = draft.run
    now, before = run.context, run.context_before
    changes = {name: value for name, value in before.items() if name not in now or not json_equal(now[name], value)}
    removed = tuple(name for name in now if name not in before)
    if changes or removed:
        draft.add(events.ContextRestored(step_id=run.current, changes=changes, removed=removed))


def refuse_unless_asked(run: Run) -> None:
    """Raises `RunStateError` unless the run waits for a person's answer."""
    _refuse_unless_waiting_for(run, Waiting.CONFIRMATION, run.current)


def dismiss(run: Run, step_id: str, at: Moment, *, question: str = "") -> Draft:
    """The run after a person closed the form without an answer: the question stays open."""
    _refuse_confirmation(run, step_id, "form", question)
    return Draft(run, at).add(events.ConfirmationDismissed(step_id=run.current))


def cancel(run: Run, at: Moment, reason: str = "") -> Draft:
    """The run, ended. Raises `RunStateError` when it is over already."""
    if run.is_over:
        raise _is_over(run)
    return Draft(run, at).add(events.Cancelled(reason=reason))


def expire(run: Run, at: Moment) -> Draft | None:
    """The run, failed, when its deadline has passed."""
    if run.deadline is None or at.time <= run.deadline:
        return None
    what = f"it waited for the output of step '{run.current}'"
    if run.waiting_for is Waiting.CONTEXT:
        what = f"it waited for the variable '{run.missing[0].variable}', which loop '{run.current}' needs"
    if run.waiting_for is Waiting.CALL:
        doing = "was still being made" if run.state is State.RUNNING else "had still to wait for its turn"
        what = f"step '{run.current}', the call of {_called(run)}, {doing}"
    reason = f"The run was not done within {run.seconds:,g} seconds; {what}."
    return Draft(run, at).add(events.Failed(reason=reason, remedy=START_AGAIN, timed_out=True))


def loops_to_end(run: Run) -> list[str]:
    """Loops around the current step that the agent ends by their id, because no condition of their own does."""
    return [
        loop_id
        for loop_id in _loops(run.workflow, run.current)
        if (loop := _loop(run.workflow, loop_id)).condition is None and loop.type in ("while", "until")
    ]


# ── what the server does by itself ──────────────────────────────────────────────────────────────────────────────


def begin_call(run: Run, at: Moment) -> Draft:
    """The run while its call is made. Raises `RunStateError` when no call is due.

    After a job that has ended, the next attempt is another job, with another key: a system that honours keys would
    answer the old one with the job that failed.
    """
    call = _refuse_unless_calling(run, begun=False)
    attempt = call.attempt + 1
    has_ended = bool(call.remote_id) and not call.may_run
    key = f"{run.id}:{run.current}:{attempt}" if has_ended else call.key
    return Draft(run, at).add(events.CallBegun(step_id=run.current, attempt=attempt, key=key))


def acknowledge_call(run: Run, remote_id: str, at: Moment) -> Draft:
    """The run when the other system has begun one of its own.

    A run that is over takes it too while its call has no id yet: by it the other one can be cancelled, also later.
    """
    if not (run.needs_stop and run.calling is not None and not run.calling.remote_id):
        _refuse_unless_calling(run)
    return Draft(run, at).add(events.CallAcknowledged(step_id=run.current, remote_id=_storable(remote_id)))


def report_call(run: Run, done: float, total: float | None, message: str, at: Moment) -> Draft:
    """The run when its call has told how far it is."""
    _refuse_unless_calling(run)
    if not math.isfinite(done):
        done = 0.0
    if total is not None and not math.isfinite(total):
        total = None
    message = _storable(message)[:MAX_REMOTE_TEXT]
    return Draft(run, at).add(
        events.CallProgressed(step_id=run.current, done=float(done), total=total and float(total), message=message)
    )


def finish_call(run: Run, output: str, value: Json, at: Moment) -> Draft:
    """The run after its call gave a result: `output` is what is judged, `value` what its variable takes.

    A result that does not do counts as a failed attempt.
    """
    _refuse_unless_calling(run)
    output, step = _storable(output), run.step
    save_as = step.call.save_as if step.call else ""
    value = _storable_json(value, output)
    changes: Context = {save_as: value} if save_as else {}
    draft = Draft(run, at)
    try:
        refuse_misfits(run.workflow, run.context, changes)
        accepted, changes = _kept_result(run, output, changes)
        scope = scope_of(run.workflow, run.current, {**run.context, **changes}, run.extents)
        issues, captured = _judge(run, output, scope, at.budget)
        if captured:
            _refuse_size({**run.context, **changes, **captured})
    except (InvalidParams, InvalidCriteria, InvalidWorkflow) as refusal:
        is_misfit = isinstance(refusal, InvalidParams)
        why = f"does not fit: {refusal.remedy}" if is_misfit else f"cannot be judged: {refusal.data['details']}"
        issue = Issue(message=f"its result {why}", suggestion="")
        _refuse(draft, output[:MAX_KEPT], {}, [issue], ())
        reason = f"The result of step '{run.current}', the call of {_called(run)}, was refused: {issue.message}"
        return draft.add(events.Failed(reason=reason[:MAX_REMOTE_TEXT], remedy=FIX_AND_START))
    needs = unmet(run.workflow, step, assign(scope, captured), is_done=True)
    if issues or needs:
        return _try_again(draft, _refuse(draft, accepted.output, changes, issues, needs))
    _accept(draft, msgspec.structs.replace(accepted, captured=captured), changes)
    return _go_on_or_fail(draft)


def accept_result(run: Run, accepted: events.OutputAccepted, changes: Context, at: Moment) -> Draft:
    """The run after a result of its call that was accepted when it came, and is not kept whole."""
    _refuse_unless_calling(run)
    draft = Draft(run, at)
    _accept(draft, msgspec.structs.replace(accepted, step_id=run.current), changes)
    return _go_on_or_fail(draft)


def refuse_result(run: Run, refused: events.OutputRefused, at: Moment, *, is_final: bool) -> Draft:
    """The run after a result of its call that was refused when it came, for good or to be tried again."""
    _refuse_unless_calling(run)
    draft = Draft(run, at).add(msgspec.structs.replace(refused, step_id=run.current))
    if is_final:
        return draft.add(events.Failed(reason="; ".join(refused.issues)[:MAX_REMOTE_TEXT], remedy=FIX_AND_START))
    return _try_again(draft, refused)


def _kept_result(run: Run, output: str, changes: Context) -> tuple[events.OutputAccepted, Context]:
    """A result as the journal keeps it, and what its variable takes: a job that completed does not fail by its size."""
    whole = len(output)
    accepted = events.OutputAccepted(
        step_id=run.current,
        output=output[:MAX_KEPT],
        key=submission_key(run.current, output, changes),
        characters=whole if whole > MAX_KEPT else 0,
    )
    if not changes or len(msgspec.json.encode({**run.context, **changes})) <= MAX_CONTEXT_BYTES:
        return accepted, changes
    ((name, value),) = changes.items()
    text = text_or_json(value)
    is_output = text == output
    accepted = msgspec.structs.replace(
        accepted,
        characters=len(text) if len(text) > MAX_KEPT else 0,
        is_reference=True,
        value="" if is_output else text[:MAX_KEPT],
        is_json=not isinstance(value, str),
    )
    return accepted, {name: reference_to(run.id, run.current, text)}


def _storable_json(value: Json, output: str) -> Json:
    """The value as JSON has it; the text of the output where the value is none."""
    try:
        whole: Json = msgspec.json.decode(msgspec.json.encode(value))
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return output
    return whole


class CallFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a call that came to nothing."""

    reason: str
    error: RemoteError | None = None
    """What the other system said."""
    is_final: bool = False
    """Whether another attempt would do harm, or no good."""
    timed_out: bool = False
    may_run: bool = False
    """Whether the other system may be at work on it all the same."""
    is_running: bool = False
    """Whether it is at work on it still, and has to be stopped."""


def fail_call(run: Run, failure: CallFailure, at: Moment) -> Draft:
    """The run after its call came to nothing: the call is due again, or the run has failed.

    A call that is due and was not begun can only fail for good; so can one that is still running.
    """
    call = _refuse_unless_calling(run, begun=None)
    reason = _storable(failure.reason)[:MAX_REMOTE_TEXT]
    draft = Draft(run, at)
    if call.begun and not failure.is_running:
        error = _kept_error(failure.error)
        draft.add(events.CallFailed(step_id=run.current, reason=reason, error=error, may_run=failure.may_run))
        if not failure.is_final and call.attempt <= _retries(run):
            return _offer_again(draft)
    times = f" {how_often(call.attempt)}" if call.attempt > 1 else ""
    message = f"Step '{run.current}', the call of {_called(run)}, failed{times}: {reason.rstrip('.')}."
    remedy = LOOK_THERE if failure.may_run or failure.is_running else FIX_AND_START
    return draft.add(events.Failed(reason=message, remedy=remedy, timed_out=failure.timed_out))


def lose_call(run: Run, reason: str, at: Moment) -> Draft:
    """The run after its call was started and nobody can be asked how it ended."""
    call = _refuse_unless_calling(run)
    there = f" there as run {call.remote_id}" if call.remote_id else ""
    message = f"Step '{run.current}', the call of {_called(run)}, was started{there}, and its end cannot be known"
    why = _storable(reason)[:MAX_REMOTE_TEXT].rstrip(".")
    return Draft(run, at).add(events.EndUnknown(step_id=run.current, reason=f"{message}: {why}.", remedy=LOOK_THERE))


def stop_call(run: Run, stopped: bool, message: str, at: Moment, *, is_pending: bool = False) -> Draft:  # noqa: FBT001
    """The run, which is over, with what became of its call. Raises `RunStateError` when none was running."""
    if not run.needs_stop:
        raise RunStateError("No call of this run is running.", **_position(run, ""))
    text = _storable(message)[:MAX_REMOTE_TEXT]
    return Draft(run, at).add(
        events.CallStopped(step_id=run.current, stopped=stopped, told=text, is_pending=is_pending)
    )


def remedy_of(run: Run) -> str:
    """What to do about a run that is over: never to start another while its call may still be running."""
    if run.may_run:
        return LOOK_THERE
    return run.end.remedy if isinstance(run.end, events.Failed | events.EndUnknown) else START_AGAIN


def _kept_error(error: RemoteError | None) -> RemoteError | None:
    """What another system said, as much of it as is kept."""
    if error is None:
        return None
    return RemoteError(
        code=_storable(error.code)[:MAX_REMOTE_TEXT],
        message=_storable(error.message)[:MAX_REMOTE_TEXT],
        detail=_kept_json(error.detail),
        output=_kept_json(error.output),
    )


def _kept_json(value: Json) -> Json:
    """The value, or the beginning of it as text where it is too long to be kept or no JSON."""
    try:
        text = msgspec.json.encode(value).decode()
        return value if len(text) <= MAX_ERROR else shorten(text, MAX_ERROR)
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return _storable(str(value))[:MAX_ERROR]


def _retries(run: Run) -> int:
    return run.step.call.retries if run.step.call else 0


def _called(run: Run) -> str:
    return run.step.call.described if run.step.call else "nothing"


def _storable(text: str) -> str:
    """The text without what UTF-8 cannot say: halves of characters, from systems that escape carelessly."""
    return text.encode("utf-8", "replace").decode()


# ── going on ────────────────────────────────────────────────────────────────────────────────────────────────────


def _accept(draft: Draft, accepted: events.OutputAccepted, changes: Context) -> None:
    """The output is taken. What came out of it, or of a call, also wins over keys that stand for a part of it."""
    is_call = draft.run.calling is not None
    found = {**changes, **accepted.captured} if is_call else accepted.captured
    known = {**draft.run.context, **changes} if found else {}
    parts = {name: lookup(found, name) for name in known if "." in name and lookup(found, name) is not None}
    changes = {**changes, **parts, **found}
    draft.add(accepted)
    if changes:
        draft.add(events.ContextChanged(changes=changes))


def _refuse(  # noqa: PLR0913 - all that there is to say of it
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


def _go_on(draft: Draft) -> Draft:
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


def _go_on_or_fail(draft: Draft) -> Draft:
    """As `_go_on`, after a call: nobody is there who could send something smaller."""
    try:
        return _go_on(draft)
    except InvalidWorkflow as refusal:
        return draft.add(events.Failed(reason=refusal.remedy, remedy=FIX_AND_START))


def _rest_at(draft: Draft, found: Next) -> Event:
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


def _offer(step: PromptStep) -> type[events.StepOffered | events.CallDue]:
    """The event by which a step is handed to the agent, or to the server itself."""
    return events.StepOffered if step.call is None else events.CallDue


def _offer_again(draft: Draft) -> Draft:
    run = draft.run
    return draft.add(_offer(run.step)(step_id=run.current, loop=run.loop, warnings=run.warnings))


def _try_again(draft: Draft, refused: events.OutputRefused) -> Draft:
    """After a refusal: the same step or call; or what is to happen when it was tried often enough."""
    run, call = draft.run, draft.run.calling
    if call is None:
        is_left = run.step.max_attempts is None or run.attempts < run.step.max_attempts
        reason = f"The output of step '{run.current}' was refused {how_often(run.attempts)}, as often as it may be."
    else:
        is_left = call.attempt <= _retries(run)
        times = f" {how_often(run.attempts)}" if run.attempts > 1 else ""
        issues = "; ".join(refused.issues)
        reason = f"The result of step '{run.current}', the call of {_called(run)}, was refused{times}: {issues}"
    if is_left:
        return _offer_again(draft)
    if run.step.when_exhausted == "ask":
        return draft.add(events.ConfirmationAsked(step_id=run.current, reason="attempts", nonce=draft.at.nonce))
    remedy = START_AGAIN if call is None else FIX_AND_START
    return draft.add(events.Failed(reason=reason[:MAX_REMOTE_TEXT], remedy=remedy))


def _loop_events(run: Run, found: Next, budget: Budget) -> Iterator[Event]:
    """What happens to loops on the way to the step that comes next."""
    for loop_id in found.left:
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


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────


def _refuse_input(workflow: Workflow, given: Context) -> None:
    schema = workflow.input_schema
    misfits = schema.misfits(given) if schema is not None else []
    if misfits:
        found = [msgspec.structs.replace(misfit, path=("input", *misfit.path)).sentence() for misfit in misfits]
        raise InvalidParams("; ".join(found[:MAX_MISFITS]), workflowId=workflow.id)


def _refuse_context(workflow: Workflow, context: Context, changes: Context) -> None:
    refuse_misfits(workflow, context, changes)
    if changes:
        _refuse_size({**context, **changes})


def _refuse_size(context: Context) -> None:
    if len(msgspec.json.encode(context)) > MAX_CONTEXT_BYTES:
        raise InvalidParams(
            f"the context of a run must be at most 256KB ({MAX_CONTEXT_BYTES:,} bytes) as JSON, all variables together"
        )


def _refuse_override(run: Run, changes: Context, free: Collection[str]) -> None:
    """What came with the input, what persons filled in, and what outputs and calls said stays, but for variables that
    the current step produces.

    Raises `InvalidParams`.
    """
    _refuse_changed_input(run.workflow, run.input, run.context, changes, free)
    for name, known in _overridden_parts(run.settled, run.context, changes, free):
        step_id = next(run.settled[owner] for owner in owners(name) if owner in run.settled)
        source = f"step '{step_id}' gave" if step_id else "a person answered"
        raise InvalidParams(
            f"context.{name} cannot be changed: {source} {name} = {brief(known)}, and this step does not produce it. "
            "Leave it out of the context"
        )


def _refuse_changed_input(
    workflow: Workflow, given: Context, known: Context, changes: Context, free: Collection[str] = ()
) -> None:
    """Raises `InvalidParams` when the input would change, or take a value that its schema forbids."""
    for name, value in _overridden_parts(given, known, changes, free):
        raise InvalidParams(
            f"context.{name} cannot be changed: the run was started with {name} = {brief(value)} as input, and this "
            "step does not produce it. Leave it out of the context"
        )
    misfitting_inputs = list(input_misfits(workflow, given, changes))
    if misfitting_inputs:
        raise InvalidParams("; ".join(misfitting_inputs[:MAX_MISFITS]))


def _overridden_parts(
    fixed: Collection[str], known: Context, changes: Context, free: Collection[str]
) -> Iterator[tuple[str, Json]]:
    """Which changes would give a fixed variable, or a part of one, another value; each with the value that it has."""
    for name, value in changes.items():
        of = tuple(owners(name))
        is_fixed = any(owner in fixed for owner in of) and not any(owner in free for owner in of)
        before = lookup(known, name)
        if is_fixed and not json_equal(value, before) and (name in fixed or before is not None):
            yield name, before


def _overridden(changes: Context, captured: Context) -> Iterator[str]:
    """What to say of variables that the caller sent with another value than the output has."""
    for name, value in captured.items():
        if name in changes and not json_equal(changes[name], value):
            yield (
                f"'{name}' is {brief(value)}, as the output says; {brief(changes[name])}, which came in the context, "
                "was not taken"
            )


def _judge(
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


def _refuse_unless_calling(run: Run, *, begun: bool | None = True) -> CallState:
    """The call that the run waits for, when it is begun or not, as it is wanted."""
    if run.is_over:
        raise _is_over(run)
    if run.waiting_for is not Waiting.CALL or run.calling is None:
        raise RunStateError("The run does not wait for a call.", **_position(run, ""))
    if begun is not None and run.calling.begun is not begun:
        problem = "has been begun already" if run.calling.begun else "has not been begun"
        raise RunStateError(f"The call of step '{run.current}' {problem}.", **_position(run, ""))
    return run.calling


def _refuse_confirmation(run: Run, step_id: str, how: How, question: str) -> None:
    if question and question != run.question_id:
        raise RunStateError(ANOTHER_QUESTION, **_position(run, step_id))
    _refuse_unless_waiting_for(run, Waiting.CONFIRMATION, step_id)
    if how == "relayed" and run.who_confirms("") == "person":
        raise RunStateError(
            f"Step '{step_id}' needs the word of a person; an agent's word for it does not count. Tell the user that "
            "the run waits for their answer.",
            **_position(run, step_id),
        )


def _refuse_unless_waiting_for(run: Run, what: Waiting, step_id: str, or_loops: Collection[str] = ()) -> None:
    if run.is_over:
        raise _is_over(run, step_id)
    if run.waiting_for is not what:
        raise RunStateError(_WAITS[str(run.waiting_for)].format(run.current), **_position(run, step_id))
    if step_id != run.current and step_id not in or_loops:
        raise _wrong_step(run, step_id)


_WAITS: Final[Mapping[str, str]] = {
    Waiting.CONFIRMATION: "It waits for a person to confirm step '{}', and goes on when that is done.",
    Waiting.OUTPUT: "It waits for the output of step '{}', not for a confirmation.",
    Waiting.CONTEXT: "It waits for a variable that loop '{}' needs: call workflow_status, and send what missing names.",
    Waiting.CALL: "The server does step '{}' by itself, and the run goes on when that is done: see workflow_status.",
}


def _is_over(run: Run, step_id: str = "") -> RunStateError:
    return RunStateError(f"The run is {run.state}. {remedy_of(run)}", **_position(run, step_id))


def _wrong_step(run: Run, step_id: str) -> RunStateError | StepNotFound:
    position = _position(run, step_id)
    if find_step(run.workflow, step_id) is None:
        wanted = suggest(step_id, list(run.workflow.steps))
        message = f"The workflow '{run.workflow.id}' has no step {wanted}. The run waits for step '{run.current}'."
        return StepNotFound(message, **position)
    message = f"The run waits for the {run.waiting_for} of step '{run.current}', not of '{step_id}'."
    return RunStateError(message, **position)


def _position(run: Run, step_id: str) -> dict[str, Json]:
    """Where the run is, for the data of a refusal."""
    waiting = {"waitingFor": run.waiting_for, "expected": run.current} if run.waiting_for else {}
    return {"runId": run.id, "state": run.state, **waiting, **({"stepId": step_id} if step_id else {})}
