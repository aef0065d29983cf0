"""What agents and people do to a run: each function takes the run and returns a `Draft` with the events that follow.

Nothing is stored or sent here. A call that is not allowed in the state of the run raises. An output that does not meet
the criteria does not raise: it is an event. Every draft ends where the run rests.
"""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.contract import produced_by, unmet
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.text import how_often
from workflowlookup.language.values import Context, assign, brief, json_equal
from workflowlookup.runs import events
from workflowlookup.runs.checks import (
    is_over_error,
    position_data,
    refuse_changed_input,
    refuse_confirmation,
    refuse_context,
    refuse_input,
    refuse_override,
    refuse_size,
    refuse_unless_it_waits,
    refuse_unless_waiting_for,
)
from workflowlookup.runs.draft import (
    NOWHERE,
    START_NEW_RUN,
    Draft,
    Location,
    Moment,
    accept_and_go_on,
    accept_output,
    describe_call,
    go_on,
    judge_output,
    loops_to_end,
    offer_again,
    refuse_output,
    retry_or_end,
    submission_key,
)
from workflowlookup.runs.events import How, Record, Signature
from workflowlookup.runs.fold import fold
from workflowlookup.runs.proofs.due import due_for_output
from workflowlookup.runs.proofs.taking import accept_unproved, refuse_unproved, waived_by_acceptance
from workflowlookup.runs.questions import captures_of_refused, refuse_answers
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.run_document import encode_document

MAX_STOP_BLOCKS: Final = 3
"""How often an agent that wants to stop is told to go on with a step before it is let go."""
NO_ANSWERS: Final[Context] = MappingProxyType({})


def begin(  # noqa: PLR0913 - all that a run begins with
    run_id: str,
    workflow: Workflow,
    run_input: Context,
    context: Context,
    at: Moment,
    *,
    timeout: float | None = None,
    location: Location = NOWHERE,
) -> Draft:
    """A new run of the workflow. Raises `InvalidParams` if the input or the context does not fit its schemas."""
    refuse_input(workflow, run_input)
    refuse_changed_input(workflow, run_input, run_input, context)
    variables = {**run_input, **context}
    refuse_context(workflow, {}, variables)
    document, digest = encode_document(workflow)
    started = events.Started(
        hash=digest,
        document=document,
        input=run_input,
        context=variables,
        timeout=timeout,
        origin=workflow.origin,
        root=location.root,
        root_source=location.root_source,
        machine=location.machine,
        client_session=location.client_session,
        client_root=location.client_root,
    )
    record = Record(sequence=1, time=at.time, by=at.by, event=started)
    draft = Draft(fold(run_id, [record]), at)
    draft.records.append(record)
    return go_on(draft)


def submit(run: Run, step_id: str, output: str, changes: Context, at: Moment) -> Draft:
    """The output of the current step was sent: accept it, or refuse it with the reasons.

    Raises `RunStateError` and `StepNotFound` if the run waits for something else, `InvalidParams` if the changes of the
    context do not fit, and what `judge` raises.
    """
    refuse_unless_waiting_for(run, Waiting.OUTPUT, step_id, or_loops=loops_to_end(run))
    ends_loop = step_id != run.current
    refuse_override(run, changes, () if ends_loop else produced_by(run.step))
    refuse_context(run.workflow, run.context, changes)
    key = submission_key(step_id, output, changes)
    draft = Draft(run, at)
    if ends_loop:
        accept_output(draft, events.OutputAccepted(step_id=step_id, output=output, key=key), changes)
        return go_on(draft)
    scope = scope_of(run.workflow, step_id, {**run.context, **changes}, run.extents)
    issues, captured = judge_output(run, output, scope, at.budget, handed_out=run.scope if changes else None)
    refuse_size({**run.context, **changes, **captured})
    scope = assign(scope, captured)
    needs = unmet(run.workflow, run.step, scope, is_done=True)
    if issues or needs:
        hints = [f"Send {msgspec.json.encode(need.example).decode()} with the output." for need in needs]
        return retry_or_end(draft, refuse_output(draft, output, changes, issues, needs, hints=hints))
    submission: dict[str, Any] = {"step_id": step_id, "output": output, "key": key, "captured": captured}
    warnings = tuple(_overridden(changes, captured))
    if any(due_for_output(run, run.step, scope, at.budget)):
        return draft.add(events.ProofsDue(reason="output", context=changes, warnings=warnings, **submission))
    return accept_and_go_on(draft, events.OutputAccepted(warnings=warnings, **submission), changes, scope, go_on=go_on)


def _overridden(changes: Context, captured: Context) -> Iterator[str]:
    """Warnings about variables that the caller sent with another value than the output has."""
    for name, value in captured.items():
        if name in changes and not json_equal(changes[name], value):
            yield (
                f"'{name}' is {brief(value)}, as the output says; {brief(changes[name])}, which came in the context, "
                "was not taken"
            )


def supply(run: Run, loop_id: str, changes: Context, at: Moment) -> Draft:
    """The variables that the run waits for were sent.

    Raises `RunStateError` and `StepNotFound` if it waits for something else, `InvalidParams` if the loop still cannot
    be entered or the changes do not fit.
    """
    refuse_unless_waiting_for(run, Waiting.CONTEXT, loop_id)
    variables = [need.variable for need in run.missing]
    refuse_override(run, changes, variables)
    refuse_context(run.workflow, run.context, changes)
    changed = events.ContextChanged(changes=changes, key=submission_key(loop_id, "", changes))
    draft = go_on(Draft(run, at).add(changed))
    if draft.run.waiting_for is Waiting.CONTEXT and draft.run.current == loop_id:
        need = draft.run.missing[0]
        raise InvalidParams(
            f"context.{need.sentence()}. Send {msgspec.json.encode(need.example).decode()}",
            **position_data(run, loop_id),
        )
    return draft


def confirm(  # noqa: PLR0913 - all that an answer is
    run: Run,
    step_id: str,
    at: Moment,
    *,
    how: How,
    question: str = "",
    note: str = "",
    answers: Context = NO_ANSWERS,
    signature: Signature | None = None,
) -> Draft:
    """A person agreed. `question` is the id of the question that they saw; by default the open one.

    Raises `RunStateError` if the run does not wait for that, or another question is open, and `InvalidParams` for
    answers that do not fit.
    """
    refuse_confirmation(run, step_id, how, question)
    refuse_answers(run, answers, at.budget)
    refuse_override(run, answers, answers)
    refuse_context(run.workflow, run.context, answers)
    draft = Draft(run, at)
    draft.add(
        events.ConfirmationGiven(
            step_id=run.current,
            how=how,
            question=run.question_id,
            note=note,
            answers=dict(answers),
            signature=signature,
        )
    )
    reason = run.open_question.reason if run.open_question is not None else ""
    if reason == "attempts" and isinstance(run.last_submission, events.OutputRefused):
        captured = captures_of_refused(run, at.budget)
        accepted = events.OutputAccepted(
            step_id=run.current,
            output=run.last_submission.output,
            captured=captured,
            waived=waived_by_acceptance(run, {**run.last_submission.context, **captured}, at.budget),
        )
        accept_output(draft, accepted, run.last_submission.context)
    elif reason == "unproved":
        accept_unproved(draft)
    if answers:
        draft.add(events.ContextChanged(changes=answers))
    return go_on(draft)


def deny(  # noqa: PLR0913 - all that an answer is
    run: Run,
    step_id: str,
    at: Moment,
    *,
    how: How,
    question: str = "",
    note: str = "",
    signature: Signature | None = None,
    restores: bool = True,
) -> Draft:
    """A person did not agree. Raises `RunStateError` if the run does not wait for that.

    The variables that the output changed are restored, except in journals of older versions (`restores` is false).
    """
    refuse_confirmation(run, step_id, how, question)
    draft = Draft(run, at)
    draft.add(
        events.ConfirmationDenied(
            step_id=run.current, how=how, question=run.question_id, note=note, signature=signature
        )
    )
    note_text = f": {note}" if note else "."
    match run.open_question.reason if run.open_question else "step":
        case "call":
            reason = f"A person did not agree to step '{run.current}', the call of {describe_call(run)}{note_text}"
        case "before":
            reason = f"A person did not agree to step '{run.current}'{note_text}"
        case "attempts":
            reason = (
                f"Step '{run.current}' was refused {how_often(run.attempts)}, and a person did not accept it{note_text}"
            )
        case "unproved":
            return refuse_unproved(draft, note)
        case _:
            if restores:
                _restore_context(draft)
            return offer_again(draft)
    return draft.add(events.Failed(reason=reason, remedy=START_NEW_RUN))


def _restore_context(draft: Draft) -> None:
    """Restore the variables that the denied output changed."""
    run = draft.run
    now, before = run.context, run.context_before
    changes = {name: value for name, value in before.items() if name not in now or not json_equal(now[name], value)}
    removed = tuple(name for name in now if name not in before)
    if changes or removed:
        draft.add(events.ContextRestored(step_id=run.current, changes=changes, removed=removed))


def dismiss(run: Run, step_id: str, at: Moment, *, question: str = "") -> Draft:
    """A person closed the form without an answer: the question stays open."""
    refuse_confirmation(run, step_id, "form", question)
    return Draft(run, at).add(events.ConfirmationDismissed(step_id=run.current))


def pause(run: Run, at: Moment, reason: str = "") -> Draft:
    """Pause the run, so that hooks leave the agent alone. Raises `RunStateError` if it is over."""
    refuse_unless_it_waits(run, *Waiting)
    return Draft(run, at).add(events.Paused(reason=reason))


def resume(run: Run, at: Moment) -> Draft:
    """End the pause. Raises as `pause`."""
    refuse_unless_it_waits(run, *Waiting)
    return Draft(run, at).add(events.Resumed())


def block_stop(run: Run, at: Moment, agent: str = "") -> Draft:
    """The agent, or a sub-agent, wants to stop: it has to go on, or is let go after `MAX_STOP_BLOCKS` without progress.

    Raises `RunStateError` unless the run waits for the agent.
    """
    refuse_unless_it_waits(run, Waiting.OUTPUT, Waiting.CONTEXT)
    if not agent and run.stop_blocks >= MAX_STOP_BLOCKS:
        return Draft(run, at).add(events.StopReleased(step_id=run.current))
    return Draft(run, at).add(events.StopBlocked(step_id=run.current, agent=agent))


def change_session(run: Run, at: Moment, session: str) -> Draft:
    """Another session of the client works on the run. Raises `RunStateError` if the run is over."""
    refuse_unless_it_waits(run, *Waiting)
    return Draft(run, at).add(events.SessionChanged(session=session))


def refuse_tool(run: Run, at: Moment, tool: str, pattern: str) -> Draft:
    """The step does not allow this tool. Raises `RunStateError` if the run is over, or the server makes a call."""
    refuse_unless_it_waits(run, Waiting.OUTPUT, Waiting.CONTEXT, Waiting.PROOF, Waiting.CONFIRMATION)
    return Draft(run, at).add(events.ToolRefused(step_id=run.current, tool=tool, pattern=pattern))


def cancel(run: Run, at: Moment, reason: str = "") -> Draft:
    """Cancel the run. Raises `RunStateError` if it is over already."""
    if run.is_over:
        raise is_over_error(run)
    return Draft(run, at).add(events.Cancelled(reason=reason))


def expire(run: Run, at: Moment) -> Draft | None:
    """Fail the run if its deadline has passed; else None."""
    if run.deadline is None or at.time <= run.deadline:
        return None
    status = f"it waited for the output of step '{run.current}'"
    if run.waiting_for is Waiting.CONTEXT:
        status = f"it waited for the variable '{run.missing[0].variable}', which loop '{run.current}' needs"
    if run.waiting_for is Waiting.CALL:
        doing = "was still running" if run.state is State.RUNNING else "had not started"
        status = f"step '{run.current}', the call of {describe_call(run)}, {doing}"
    if run.waiting_for is Waiting.PROOF:
        status = f"the server was still taking the proofs of step '{run.current}'"
    reason = f"The run was not done within {run.seconds:,g} seconds; {status}."
    return Draft(run, at).add(events.Failed(reason=reason, remedy=START_NEW_RUN, timed_out=True))
