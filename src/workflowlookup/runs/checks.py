"""Checks whether a call is allowed in the state of the run, and whether its values fit. Each raises if not."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams, RunStateError, StepNotFound
from workflowlookup.language.contract import MAX_MISFITS, input_misfits, refuse_misfits
from workflowlookup.language.formats.schemas import suggest
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import find_step
from workflowlookup.language.values import MAX_CONTEXT_BYTES, Context, Json, brief, dotted_prefixes, json_equal, lookup
from workflowlookup.runs.draft import remedy_of
from workflowlookup.runs.events import How
from workflowlookup.runs.proofs.state import PROOF_VARIABLE
from workflowlookup.runs.run import CallState, Run, Waiting

ANOTHER_QUESTION: Final = "The run has moved on since you read the question. Read it again before you decide."


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


def refuse_unless_it_waits(run: Run, *waiting: Waiting) -> None:
    """Raises `RunStateError` if the run is over, or waits for something else."""
    if run.is_over:
        raise is_over_error(run)
    if run.waiting_for not in waiting:
        raise RunStateError(_WAITS[str(run.waiting_for)].format(run.current), **position_data(run, run.current))


_WAITS: Final[Mapping[str, str]] = {
    Waiting.CONFIRMATION: "It waits for a person to confirm step '{}', and goes on when that is done.",
    Waiting.OUTPUT: "It waits for the output of step '{}', not for a confirmation.",
    Waiting.CONTEXT: "It waits for a variable of loop '{}': call workflow_status, then send what missing lists.",
    Waiting.CALL: "The server carries out step '{}' itself, and the run then goes on: see workflow_status.",
    Waiting.PROOF: "The server takes the proofs of step '{}', and the run then goes on: see workflow_status.",
}


def refuse_unless_calling(run: Run, *, begun: bool | None = True) -> CallState:
    """The call that the run waits for. Raises `RunStateError` if there is none, or its `begun` differs."""
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
            f"Step '{step_id}' needs the answer of a person; an agent cannot relay it. Tell the user that the run "
            "waits for their answer.",
            **position_data(run, step_id),
        )


def is_over_error(run: Run, step_id: str = "") -> RunStateError:
    return RunStateError(f"The run is {run.state}. {remedy_of(run)}", **position_data(run, step_id))


def _wrong_step(run: Run, step_id: str) -> RunStateError | StepNotFound:
    position = position_data(run, step_id)
    if find_step(run.workflow, step_id) is None:
        suggestion = suggest(step_id, list(run.workflow.steps))
        message = f"The workflow '{run.workflow.id}' has no step {suggestion}. The run waits for step '{run.current}'."
        return StepNotFound(message, **position)
    message = f"The run waits for the {run.waiting_for} of step '{run.current}', not of '{step_id}'."
    return RunStateError(message, **position)


def position_data(run: Run, step_id: str) -> dict[str, Json]:
    """The state of the run, for the data of a refusal."""
    waiting = {"waitingFor": run.waiting_for, "expected": run.current} if run.waiting_for else {}
    return {"runId": run.id, "state": run.state, **waiting, **({"stepId": step_id} if step_id else {})}


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse_input(workflow: Workflow, run_input: Context) -> None:
    schema = workflow.input_schema
    misfits = schema.misfits(run_input) if schema is not None else []
    if misfits:
        problems = [msgspec.structs.replace(misfit, path=("input", *misfit.path)).sentence() for misfit in misfits]
        raise InvalidParams("; ".join(problems[:MAX_MISFITS]), workflowId=workflow.id)


def refuse_context(workflow: Workflow, context: Context, changes: Context) -> None:
    refuse_proof_variable(workflow, changes)
    refuse_misfits(workflow, context, changes)
    if changes:
        refuse_size({**context, **changes})


def refuse_proof_variable(workflow: Workflow, changes: Context) -> None:
    """Raises `InvalidParams` if a caller sets a measure of proofs."""
    name = next((name for name in changes if PROOF_VARIABLE in dotted_prefixes(name)), None)
    if name is not None and workflow.has_proofs:
        raise InvalidParams(
            f"context.{name} cannot be set: '{PROOF_VARIABLE}' has what the server measures when it takes proofs. "
            "Leave it out"
        )


def refuse_size(context: Context) -> None:
    if len(msgspec.json.encode(context)) > MAX_CONTEXT_BYTES:
        raise InvalidParams(
            f"the context of a run must be at most 256KB ({MAX_CONTEXT_BYTES:,} bytes) as JSON, all variables together"
        )


def refuse_override(run: Run, changes: Context, free: Collection[str]) -> None:
    """Raises `InvalidParams` if changes would override the input, a person's answer, or what an output or call set,
    except for variables that the current step produces.
    """
    refuse_changed_input(run.workflow, run.input, run.context, changes, free)
    for name, value in _overridden_parts(run.value_sources, run.context, changes, free):
        step_id = next(run.value_sources[prefix] for prefix in dotted_prefixes(name) if prefix in run.value_sources)
        source = f"step '{step_id}' set" if step_id else "a person answered"
        raise InvalidParams(
            f"context.{name} cannot be changed: {source} {name} = {brief(value)}, and this step does not produce it. "
            "Leave it out of the context"
        )


def refuse_changed_input(
    workflow: Workflow, run_input: Context, context: Context, changes: Context, free: Collection[str] = ()
) -> None:
    """Raises `InvalidParams` if the input would change, or take a value that its schema forbids."""
    for name, value in _overridden_parts(run_input, context, changes, free):
        raise InvalidParams(
            f"context.{name} cannot be changed: the run was started with {name} = {brief(value)} as input, and this "
            "step does not produce it. Leave it out of the context"
        )
    misfitting_inputs = list(input_misfits(workflow, run_input, changes))
    if misfitting_inputs:
        raise InvalidParams("; ".join(misfitting_inputs[:MAX_MISFITS]))


def _overridden_parts(
    fixed: Collection[str], context: Context, changes: Context, free: Collection[str]
) -> Iterator[tuple[str, Json]]:
    """The changes that would give a fixed variable, or a part of it, another value; each with the current value."""
    for name, value in changes.items():
        prefixes = tuple(dotted_prefixes(name))
        is_fixed = any(prefix in fixed for prefix in prefixes) and not any(prefix in free for prefix in prefixes)
        before = lookup(context, name)
        if is_fixed and not json_equal(value, before) and (name in fixed or before is not None):
            yield name, before
