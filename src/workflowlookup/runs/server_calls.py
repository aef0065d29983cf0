"""Steps that the server carries out itself: what happens to a run when its call begins, progresses, ends or is lost.

Like `advance`, these functions return a `Draft` and store nothing.
"""

import math
from typing import Final

import msgspec

from workflowlookup.errors import InvalidCriteria, InvalidParams, InvalidWorkflow, RunStateError
from workflowlookup.language.contract import refuse_misfits, unmet
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.rules import Issue
from workflowlookup.language.text import how_often, shorten
from workflowlookup.language.values import MAX_CONTEXT_BYTES, Context, Json, assign, text_or_json
from workflowlookup.runs import events
from workflowlookup.runs.checks import position_data, refuse_size, refuse_unless_calling
from workflowlookup.runs.draft import (
    FIX_AND_START,
    LOOK_THERE,
    MAX_REMOTE_TEXT,
    Draft,
    Moment,
    accept_output,
    describe_call,
    go_on_or_fail,
    judge_output,
    offer_again,
    refuse_output,
    retries,
    retry_or_end,
)
from workflowlookup.runs.events import RemoteError
from workflowlookup.runs.results import MAX_KEPT, reference_to
from workflowlookup.runs.run import Run, submission_key

MAX_ERROR: Final = 16_000
"""How many characters of the detail and of the output of a remote failure are kept, each."""


def begin_call(run: Run, at: Moment) -> Draft:
    """The run while its call is made. Raises `RunStateError` when no call is due.

    After a job that has ended, the next attempt is another job, with another key: a system that honours keys would
    answer the old one with the job that failed.
    """
    call = refuse_unless_calling(run, begun=False)
    attempt = call.attempt + 1
    has_ended = bool(call.remote_id) and not call.may_run
    key = f"{run.id}:{run.current}:{attempt}" if has_ended else call.key
    return Draft(run, at).add(events.CallBegun(step_id=run.current, attempt=attempt, key=key))


def acknowledge_call(run: Run, remote_id: str, at: Moment) -> Draft:
    """The run when the other system has begun one of its own.

    A run that is over takes it too while its call has no id yet: by it the other one can be cancelled, also later.
    """
    if not (run.needs_stop and run.calling is not None and not run.calling.remote_id):
        refuse_unless_calling(run)
    return Draft(run, at).add(events.CallAcknowledged(step_id=run.current, remote_id=_storable(remote_id)))


def report_call(run: Run, done: float, total: float | None, message: str, at: Moment) -> Draft:
    """The run when its call has told how far it is."""
    refuse_unless_calling(run)
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
    refuse_unless_calling(run)
    output, step = _storable(output), run.step
    save_as = step.call.save_as if step.call else ""
    value = _storable_json(value, output)
    changes: Context = {save_as: value} if save_as else {}
    draft = Draft(run, at)
    try:
        refuse_misfits(run.workflow, run.context, changes)
        accepted, changes = _kept_result(run, output, changes)
        scope = scope_of(run.workflow, run.current, {**run.context, **changes}, run.extents)
        issues, captured = judge_output(run, output, scope, at.budget)
        if captured:
            refuse_size({**run.context, **changes, **captured})
    except (InvalidParams, InvalidCriteria, InvalidWorkflow) as refusal:
        is_misfit = isinstance(refusal, InvalidParams)
        why = f"does not fit: {refusal.remedy}" if is_misfit else f"cannot be judged: {refusal.data['details']}"
        issue = Issue(message=f"its result {why}", suggestion="")
        refuse_output(draft, output[:MAX_KEPT], {}, [issue], ())
        reason = f"The result of step '{run.current}', the call of {describe_call(run)}, was refused: {issue.message}"
        return draft.add(events.Failed(reason=reason[:MAX_REMOTE_TEXT], remedy=FIX_AND_START))
    needs = unmet(run.workflow, step, assign(scope, captured), is_done=True)
    if issues or needs:
        return retry_or_end(draft, refuse_output(draft, accepted.output, changes, issues, needs))
    accept_output(draft, msgspec.structs.replace(accepted, captured=captured), changes)
    return go_on_or_fail(draft)


def accept_result(run: Run, accepted: events.OutputAccepted, changes: Context, at: Moment) -> Draft:
    """The run after a result of its call that was accepted when it came, and is not kept whole."""
    refuse_unless_calling(run)
    draft = Draft(run, at)
    accept_output(draft, msgspec.structs.replace(accepted, step_id=run.current), changes)
    return go_on_or_fail(draft)


def refuse_result(run: Run, refused: events.OutputRefused, at: Moment, *, is_final: bool) -> Draft:
    """The run after a result of its call that was refused when it came, for good or to be tried again."""
    refuse_unless_calling(run)
    draft = Draft(run, at).add(msgspec.structs.replace(refused, step_id=run.current))
    if is_final:
        return draft.add(events.Failed(reason="; ".join(refused.issues)[:MAX_REMOTE_TEXT], remedy=FIX_AND_START))
    return retry_or_end(draft, refused)


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
    call = refuse_unless_calling(run, begun=None)
    reason = _storable(failure.reason)[:MAX_REMOTE_TEXT]
    draft = Draft(run, at)
    if call.begun and not failure.is_running:
        error = _kept_error(failure.error)
        draft.add(events.CallFailed(step_id=run.current, reason=reason, error=error, may_run=failure.may_run))
        if not failure.is_final and call.attempt <= retries(run):
            return offer_again(draft)
    times = f" {how_often(call.attempt)}" if call.attempt > 1 else ""
    message = f"Step '{run.current}', the call of {describe_call(run)}, failed{times}: {reason.rstrip('.')}."
    remedy = LOOK_THERE if failure.may_run or failure.is_running else FIX_AND_START
    return draft.add(events.Failed(reason=message, remedy=remedy, timed_out=failure.timed_out))


def lose_call(run: Run, reason: str, at: Moment) -> Draft:
    """The run after its call was started and nobody can be asked how it ended."""
    call = refuse_unless_calling(run)
    there = f" there as run {call.remote_id}" if call.remote_id else ""
    message = f"Step '{run.current}', the call of {describe_call(run)}, was started{there}, and its end cannot be known"
    why = _storable(reason)[:MAX_REMOTE_TEXT].rstrip(".")
    return Draft(run, at).add(events.EndUnknown(step_id=run.current, reason=f"{message}: {why}.", remedy=LOOK_THERE))


def stop_call(run: Run, stopped: bool, message: str, at: Moment, *, is_pending: bool = False) -> Draft:  # noqa: FBT001
    """The run, which is over, with what became of its call. Raises `RunStateError` when none was running."""
    if not run.needs_stop:
        raise RunStateError("No call of this run is running.", **position_data(run, ""))
    text = _storable(message)[:MAX_REMOTE_TEXT]
    return Draft(run, at).add(
        events.CallStopped(step_id=run.current, stopped=stopped, told=text, is_pending=is_pending)
    )


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


def _storable(text: str) -> str:
    """The text without what UTF-8 cannot say: halves of characters, from systems that escape carelessly."""
    return text.encode("utf-8", "replace").decode()
