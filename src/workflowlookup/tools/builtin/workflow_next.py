"""`workflow_next`: the next step, from the completed steps and the context that the caller sends."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from workflowlookup.errors import StepNotFound
from workflowlookup.language.contract import Need, how_to_send, missing_product_warnings, need_of_loop, unmet
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import suggest
from workflowlookup.language.guidance import Guidance, guide, warn_of_unset
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import MAX_SKIPPED, NextStep, explain_skip, find_step, next_step
from workflowlookup.language.values import Json
from workflowlookup.tools.arguments import CompletedSteps, StepId, StructArguments, Variables, WorkflowId, server_only
from workflowlookup.tools.contract import Caller, Result, Services, Tool
from workflowlookup.tools.registry import find_workflow
from workflowlookup.tools.result_schemas import GUIDANCE_SCHEMA, STEP_SCHEMA, TEXTS


class NextArguments(msgspec.Struct, kw_only=True, rename="camel"):
    """What `workflow_next` takes."""

    workflow_id: Annotated[WorkflowId, Meta(description="The workflow ID")]
    current_step: Annotated[StepId | None, Meta(description="Current step ID")] = None
    completed_steps: Annotated[
        CompletedSteps,
        Meta(description="Step IDs; in a loop review@2"),
        server_only("Array of completed step IDs; in a loop with the iteration: review@2"),
    ]
    context: Annotated[
        Variables | None,
        Meta(description="Variables"),
        server_only('Variables for conditions and templates, such as {"taskSize": "large"}'),
    ] = None


def handle(services: Services, arguments: NextArguments, _: Caller) -> Result:
    workflow = find_workflow(services, arguments.workflow_id)
    current = arguments.current_step
    if current is not None and find_step(workflow, current) is None:
        raise step_not_found(workflow, current)
    budget = Budget()
    following = next_step(workflow, arguments.completed_steps, arguments.context or {}, budget)
    return answer(workflow, following, arguments.completed_steps, budget)


def answer(workflow: Workflow, following: NextStep, completed: Iterable[str], budget: Budget) -> dict[str, Json]:
    reply = step_answer(workflow, following, budget, beside_step=True)
    reply["isComplete"] = following.is_complete
    reply["progress"] = _progress(workflow, following)
    if following.is_complete and following.skipped:
        reply["skipped"] = [explain_skip(skip) for skip in following.skipped[:MAX_SKIPPED]]
    if unset := missing_product_warnings(workflow, completed, following.context, reply.get("missing", ())):
        reply["warnings"] = (*reply.get("warnings", ()), *unset)
    return reply


def step_answer(
    workflow: Workflow, following: NextStep, budget: Budget, *, beside_step: bool = False
) -> dict[str, Json]:
    """The step with its guidance, the variables that the context lacks for it, and warnings.

    `beside_step`: a long prompt stands only in `step`, and the guidance refers to it.
    """
    if following.need is not None:
        need = need_of_loop(workflow, following.need)
        return need_answer(workflow, following.instance_id, need, following.warnings)
    step = following.step
    guidance = guide(workflow, following, budget, beside_step=beside_step)
    warnings = guidance.warnings
    reply: dict[str, Json] = {"step": guidance.step or None, "guidance": _guidance(guidance)}
    needs = unmet(workflow, step, following.context) if step is not None else ()
    if needs:
        reply["missing"] = needs
        needed = {need.variable for need in needs}
        others = [name for name in guidance.unset if name.partition(".")[0] not in needed]
        warnings = (
            *following.warnings,
            *warn_of_unset(others),
            "The step needs more context: " + "; ".join(need.sentence() for need in needs),
        )
    if warnings:
        reply["warnings"] = warnings
    return reply


def need_answer(workflow: Workflow, loop_id: str, need: Need, warnings: Sequence[str]) -> dict[str, Json]:
    """There is no step before the context has the list or count of the loop; says how to send it."""
    guidance = Guidance(
        step={},
        prompt=how_to_send(workflow, loop_id, need),
        model_hint="",
        requires_confirmation=False,
        criteria=(),
        warnings=(),
    )
    reply: dict[str, Json] = {"step": None, "guidance": _guidance(guidance), "missing": (need,)}
    return {**reply, "warnings": warnings} if warnings else reply


def _progress(workflow: Workflow, following: NextStep) -> dict[str, Json]:
    """The number of completed steps, and of all steps unless loops leave it open."""
    if following.is_complete:
        return {"completed": following.completed, "total": following.completed}
    if workflow.has_loops:
        return {"completed": following.completed}
    return {"completed": following.completed, "total": workflow.total_steps - len(following.skipped)}


def _guidance(guidance: Guidance) -> dict[str, Json]:
    hint = {"modelHint": guidance.model_hint} if guidance.model_hint else {}
    return {
        "prompt": guidance.prompt,
        **hint,
        "requiresConfirmation": guidance.requires_confirmation,
        "validationCriteria": guidance.criteria,
        **({"proofs": guidance.proofs} if guidance.proofs else {}),
    }


def step_not_found(workflow: Workflow, step_id: str) -> StepNotFound:
    return StepNotFound(
        f"The workflow '{workflow.id}' has no step {suggest(step_id, list(workflow.steps))}. "
        "Use the ids that workflow_next gave you.",
        stepId=step_id,
    )


TOOL = Tool(
    name="workflow_next",
    title="Next step without a run",
    description=(
        "Gets the next step guidance based on workflow state that you keep yourself (else: workflow_start). Add "
        "step.id to completedSteps until isComplete."
    ),
    arguments=StructArguments(NextArguments, is_closed=True),
    output_schema={
        "type": "object",
        "properties": {
            "step": STEP_SCHEMA,
            "guidance": GUIDANCE_SCHEMA,
            "isComplete": {"type": "boolean"},
            "progress": {
                "type": "object",
                "properties": {"completed": {"type": "integer"}, "total": {"type": "integer"}},
            },
            "skipped": {
                "type": "array",
                "items": {"type": "object"},
                "description": "At the end: steps that were skipped, and why.",
            },
            "missing": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Variables that the step (if null: the next loop) needs and the context lacks or has "
                "with a wrong type; each with an example to send.",
            },
            "warnings": TEXTS,
        },
        "required": ["step", "guidance", "isComplete"],
    },
    example=(
        {"workflowId": "bug-investigation", "completedSteps": [], "context": {}},
        {
            "step": {
                "id": "reproduce",
                "title": "Reproduce the failure",
                "prompt": "Make the failure happen…",
            },
            "guidance": {
                "prompt": "Make the failure happen…",
                "requiresConfirmation": False,
                "validationCriteria": [
                    "The output is at least 100 characters long: The reproduction is too thin to repeat."
                ],
            },
            "isComplete": False,
        },
    ),
    handler=handle,
)
