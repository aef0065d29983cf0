"""Checks that a call is allowed where the run stands, and that what it brings fits. Each raises if not."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams, RunStateError, StepNotFound
from workflowlookup.language.contract import MAX_MISFITS, input_misfits, refuse_misfits
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import find_step
from workflowlookup.language.schemas import suggest
from workflowlookup.language.values import MAX_CONTEXT_BYTES, Context, Json, brief, dotted_prefixes, json_equal, lookup
from workflowlookup.runs.draft import remedy_of
from workflowlookup.runs.events import How
from workflowlookup.runs.run import CallState, Run, Waiting

ANOTHER_QUESTION: Final = "The run has gone on since you looked at it. Look again before you decide."


def refuse_unless_question_open(run: Run) -> None:
    """Raises `RunStateError` unless the run waits for a person's answer."""
    refuse_unless_waiting_for(run, Waiting.CONFIRMATION, run.current)


def refuse_unless_waiting_for(run: Run, what: Waiting, step_id: str, or_loops: Collection[str] = ()) -> None:
    if run.is_over:
        raise is_over_error(run, step_id)
    if run.waiting_for is not what:
        raise RunStateError(_WAITS[str(run.waiting_for)].format(run.current), **position_data(run, step_id))
    if step_id != run.current and step_id not in or_loops:
        raise _wrong_step(run, step_id)


_WAITS: Final[Mapping[str, str]] = {
    Waiting.CONFIRMATION: "It waits for a person to confirm step '{}', and goes on when that is done.",
    Waiting.OUTPUT: "It waits for the output of step '{}', not for a confirmation.",
    Waiting.CONTEXT: "It waits for a variable that loop '{}' needs: call workflow_status, and send what missing names.",
    Waiting.CALL: "The server does step '{}' by itself, and the run goes on when that is done: see workflow_status.",
}


def refuse_unless_calling(run: Run, *, begun: bool | None = True) -> CallState:
    """The call that the run waits for, when it is begun or not, as it is wanted."""
    if run.is_over:
        raise is_over_error(run)
    if run.waiting_for is not Waiting.CALL or run.calling is None:
        raise RunStateError("The run does not wait for a call.", **position_data(run, ""))
    if begun is not None and run.calling.begun is not begun:
        problem = "has been begun already" if run.calling.begun else "has not been begun"
        raise RunStateError(f"The call of step '{run.current}' {problem}.", **position_data(run, ""))
    return run.calling


def refuse_confirmation(run: Run, step_id: str, how: How, question: str) -> None:
    if question and question != run.question_id:
        raise RunStateError(ANOTHER_QUESTION, **position_data(run, step_id))
    refuse_unless_waiting_for(run, Waiting.CONFIRMATION, step_id)
    if how == "relayed" and run.required_confirmer("") == "person":
        raise RunStateError(
            f"Step '{step_id}' needs the word of a person; an agent's word for it does not count. Tell the user that "
            "the run waits for their answer.",
            **position_data(run, step_id),
        )


def is_over_error(run: Run, step_id: str = "") -> RunStateError:
    return RunStateError(f"The run is {run.state}. {remedy_of(run)}", **position_data(run, step_id))


def _wrong_step(run: Run, step_id: str) -> RunStateError | StepNotFound:
    position = position_data(run, step_id)
    if find_step(run.workflow, step_id) is None:
        wanted = suggest(step_id, list(run.workflow.steps))
        message = f"The workflow '{run.workflow.id}' has no step {wanted}. The run waits for step '{run.current}'."
        return StepNotFound(message, **position)
    message = f"The run waits for the {run.waiting_for} of step '{run.current}', not of '{step_id}'."
    return RunStateError(message, **position)


def position_data(run: Run, step_id: str) -> dict[str, Json]:
    """Where the run is, for the data of a refusal."""
    waiting = {"waitingFor": run.waiting_for, "expected": run.current} if run.waiting_for else {}
    return {"runId": run.id, "state": run.state, **waiting, **({"stepId": step_id} if step_id else {})}


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse_input(workflow: Workflow, given: Context) -> None:
    schema = workflow.input_schema
    misfits = schema.misfits(given) if schema is not None else []
    if misfits:
        found = [msgspec.structs.replace(misfit, path=("input", *misfit.path)).sentence() for misfit in misfits]
        raise InvalidParams("; ".join(found[:MAX_MISFITS]), workflowId=workflow.id)


def refuse_context(workflow: Workflow, context: Context, changes: Context) -> None:
    refuse_misfits(workflow, context, changes)
    if changes:
        refuse_size({**context, **changes})


def refuse_size(context: Context) -> None:
    if len(msgspec.json.encode(context)) > MAX_CONTEXT_BYTES:
        raise InvalidParams(
            f"the context of a run must be at most 256KB ({MAX_CONTEXT_BYTES:,} bytes) as JSON, all variables together"
        )


def refuse_override(run: Run, changes: Context, free: Collection[str]) -> None:
    """What came with the input, what persons filled in, and what outputs and calls said stays, but for variables that
    the current step produces.

    Raises `InvalidParams`.
    """
    refuse_changed_input(run.workflow, run.input, run.context, changes, free)
    for name, known in _overridden_parts(run.value_sources, run.context, changes, free):
        step_id = next(run.value_sources[owner] for owner in dotted_prefixes(name) if owner in run.value_sources)
        source = f"step '{step_id}' gave" if step_id else "a person answered"
        raise InvalidParams(
            f"context.{name} cannot be changed: {source} {name} = {brief(known)}, and this step does not produce it. "
            "Leave it out of the context"
        )


def refuse_changed_input(
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
        of = tuple(dotted_prefixes(name))
        is_fixed = any(owner in fixed for owner in of) and not any(owner in free for owner in of)
        before = lookup(known, name)
        if is_fixed and not json_equal(value, before) and (name in fixed or before is not None):
            yield name, before
