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
    CHECK_REMOTE_SYSTEM,
    FIX_REASON,
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
    storable,
    submission_key,
)
from workflowlookup.runs.events import RemoteError
from workflowlookup.runs.results import MAX_STORED_RESULT, reference_to
from workflowlookup.runs.run import Run

MAX_REMOTE_JSON: Final = 16_000
"""Limit on the stored characters of the detail and of the output of a remote failure, each."""


def begin_call(run: Run, at: Moment) -> Draft:
    """The call begins. Raises `RunStateError` if no call is due.

    If the job of an earlier attempt has ended, the next attempt has a new key: a system that honours idempotency keys
    would answer the old key with the failed job.
    """
    call = refuse_unless_calling(run, begun=False)
    attempt = call.attempt + 1
    has_ended = bool(call.remote_id) and not call.may_run
    key = f"{run.id}:{run.current}:{attempt}" if has_ended else call.key
    return Draft(run, at).add(events.CallBegun(step_id=run.current, attempt=attempt, key=key))


def acknowledge_call(run: Run, remote_id: str, at: Moment) -> Draft:
    """The other system has started its own run, with this id.

    A run that is over accepts it too if its call has no id yet, so that the other run can still be cancelled.
    """
    if not (run.needs_stop and run.calling is not None and not run.calling.remote_id):
        refuse_unless_calling(run)
    return Draft(run, at).add(events.CallAcknowledged(step_id=run.current, remote_id=storable(remote_id)))


def report_call(run: Run, done: float, total: float | None, message: str, at: Moment) -> Draft:
    """The call reported its progress."""
    refuse_unless_calling(run)
    if not math.isfinite(done):
        done = 0.0
    if total is not None and not math.isfinite(total):
        total = None
    message = storable(message)[:MAX_REMOTE_TEXT]
    return Draft(run, at).add(
        events.CallProgressed(step_id=run.current, done=float(done), total=total and float(total), message=message)
    )


def finish_call(run: Run, output: str, value: Json, at: Moment) -> Draft:
    """The call returned a result: `output` is judged, `value` is for its variable.

    A result that is refused counts as a failed attempt.
    """
    refuse_unless_calling(run)
    output, step = storable(output), run.step
    save_as = step.call.save_as if step.call else ""
    value = _storable_json(value, output)
    changes: Context = {save_as: value} if save_as else {}
    draft = Draft(run, at)
    try:
        refuse_misfits(run.workflow, run.context, changes)
        accepted, changes = _stored_result(run, output, changes)
        scope = scope_of(run.workflow, run.current, {**run.context, **changes}, run.extents)
        issues, captured = judge_output(run, output, scope, at.budget)
        if captured:
            refuse_size({**run.context, **changes, **captured})
    except (InvalidParams, InvalidCriteria, InvalidWorkflow) as refusal:
        is_misfit = isinstance(refusal, InvalidParams)
        why = f"does not fit: {refusal.remedy}" if is_misfit else f"cannot be judged: {refusal.data['details']}"
        issue = Issue(message=f"its result {why}", suggestion="")
        refuse_output(draft, output[:MAX_STORED_RESULT], {}, [issue], ())
        reason = f"The result of step '{run.current}', the call of {describe_call(run)}, was refused: {issue.message}"
        return draft.add(events.Failed(reason=reason[:MAX_REMOTE_TEXT], remedy=FIX_REASON))
    needs = unmet(run.workflow, step, assign(scope, captured), is_done=True)
    if issues or needs:
        return retry_or_end(draft, refuse_output(draft, accepted.output, changes, issues, needs))
    accept_output(draft, msgspec.structs.replace(accepted, captured=captured), changes)
    return go_on_or_fail(draft)


def accept_result(run: Run, accepted: events.OutputAccepted, changes: Context, at: Moment) -> Draft:
    """Repeat the acceptance of a result that is not stored whole, and so cannot be judged again (see `exchange`)."""
    refuse_unless_calling(run)
    draft = Draft(run, at)
    accept_output(draft, msgspec.structs.replace(accepted, step_id=run.current), changes)
    return go_on_or_fail(draft)


def refuse_result(run: Run, refused: events.OutputRefused, at: Moment, *, is_final: bool) -> Draft:
    """Repeat the refusal of a result, after which the run fails or tries again (see `exchange`)."""
    refuse_unless_calling(run)
    draft = Draft(run, at).add(msgspec.structs.replace(refused, step_id=run.current))
    if is_final:
        return draft.add(events.Failed(reason="; ".join(refused.issues)[:MAX_REMOTE_TEXT], remedy=FIX_REASON))
    return retry_or_end(draft, refused)


def _stored_result(run: Run, output: str, changes: Context) -> tuple[events.OutputAccepted, Context]:
    """A result as the journal stores it, and the value of its variable. A large result is cut or referred to."""
    length = len(output)
    accepted = events.OutputAccepted(
        step_id=run.current,
        output=output[:MAX_STORED_RESULT],
        key=submission_key(run.current, output, changes),
        characters=length if length > MAX_STORED_RESULT else 0,
    )
    if not changes or len(msgspec.json.encode({**run.context, **changes})) <= MAX_CONTEXT_BYTES:
        return accepted, changes
    ((name, value),) = changes.items()
    text = text_or_json(value)
    is_output = text == output
    accepted = msgspec.structs.replace(
        accepted,
        characters=len(text) if len(text) > MAX_STORED_RESULT else 0,
        is_reference=True,
        value="" if is_output else text[:MAX_STORED_RESULT],
        is_json=not isinstance(value, str),
    )
    return accepted, {name: reference_to(run.id, run.current, text)}


def _storable_json(value: Json, output: str) -> Json:
    """The value as JSON; the output if the value is not JSON."""
    try:
        plain: Json = msgspec.json.decode(msgspec.json.encode(value))
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return output
    return plain


class CallFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a call that failed."""

    reason: str
    error: RemoteError | None = None
    """What the other system reported."""
    is_final: bool = False
    """Whether another attempt would be harmful or useless."""
    timed_out: bool = False
    may_run: bool = False
    """Whether the other system may still work on it."""
    is_running: bool = False
    """Whether it still works on it and has to be stopped."""


def fail_call(run: Run, failure: CallFailure, at: Moment) -> Draft:
    """The call failed: it is due again, or the run fails.

    The run fails at once if the call was not begun, or is still running.
    """
    call = refuse_unless_calling(run, begun=None)
    reason = storable(failure.reason)[:MAX_REMOTE_TEXT]
    draft = Draft(run, at)
    if call.begun and not failure.is_running:
        error = _stored_error(failure.error)
        draft.add(events.CallFailed(step_id=run.current, reason=reason, error=error, may_run=failure.may_run))
        if not failure.is_final and call.attempt <= retries(run):
            return offer_again(draft)
    times = f" {how_often(call.attempt)}" if call.attempt > 1 else ""
    message = f"Step '{run.current}', the call of {describe_call(run)}, failed{times}: {reason.rstrip('.')}."
    remedy = CHECK_REMOTE_SYSTEM if failure.may_run or failure.is_running else FIX_REASON
    return draft.add(events.Failed(reason=message, remedy=remedy, timed_out=failure.timed_out))


def lose_call(run: Run, reason: str, at: Moment) -> Draft:
    """The call was started, and nothing can say how it ended."""
    call = refuse_unless_calling(run)
    there = f" there as run {call.remote_id}" if call.remote_id else ""
    message = f"Step '{run.current}', the call of {describe_call(run)}, was started{there}, and how it ended is unknown"
    why = storable(reason)[:MAX_REMOTE_TEXT].rstrip(".")
    return Draft(run, at).add(
        events.EndUnknown(step_id=run.current, reason=f"{message}: {why}.", remedy=CHECK_REMOTE_SYSTEM)
    )


def stop_call(run: Run, stopped: bool, message: str, at: Moment, *, is_pending: bool = False) -> Draft:  # noqa: FBT001
    """The call of a run that is over was stopped, or not. Raises `RunStateError` if none was running."""
    if not run.needs_stop:
        raise RunStateError("No call of this run is running.", **position_data(run, ""))
    text = storable(message)[:MAX_REMOTE_TEXT]
    return Draft(run, at).add(
        events.CallStopped(step_id=run.current, stopped=stopped, told=text, is_pending=is_pending)
    )


def _stored_error(error: RemoteError | None) -> RemoteError | None:
    """What another system reported, cut to the limits."""
    if error is None:
        return None
    return RemoteError(
        code=storable(error.code)[:MAX_REMOTE_TEXT],
        message=storable(error.message)[:MAX_REMOTE_TEXT],
        detail=_stored_json(error.detail),
        output=_stored_json(error.output),
    )


def _stored_json(value: Json) -> Json:
    """The value; as text, and cut, if it is too long or not JSON."""
    try:
        text = msgspec.json.encode(value).decode()
        return value if len(text) <= MAX_REMOTE_JSON else shorten(text, MAX_REMOTE_JSON)
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return storable(str(value))[:MAX_REMOTE_JSON]
