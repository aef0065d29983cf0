"""`workflow_next`: the next step for a caller who tells what is completed and what is known."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.core.conditions import evaluate
from workflowlookup.core.contract import forgotten, unmet
from workflowlookup.core.guidance import Guidance, guide, warn_of_unset
from workflowlookup.core.model import Workflow
from workflowlookup.core.navigation import MOST_SKIPPED, Next, explain_skip, find_step, next_step
from workflowlookup.core.schemas import suggest
from workflowlookup.core.values import Json
from workflowlookup.errors import StepNotFound
from workflowlookup.tools.registry import (
    GUIDANCE_SCHEMA,
    STEP_SCHEMA,
    TEXTS,
    Caller,
    Result,
    Services,
    Tool,
    arguments_schema,
    completed_steps,
    context,
    find_workflow,
    step_id,
    workflow_id,
)

_encode: Final = msgspec.json.Encoder().encode


def handle(services: Services, arguments: Mapping[str, Any], _: Caller) -> Result:
    workflow = find_workflow(services, arguments["workflowId"])
    current = arguments.get("currentStep")
    if current is not None and find_step(workflow, current) is None:
        raise step_not_found(workflow, current)
    found = next_step(workflow, arguments["completedSteps"], arguments.get("context") or {})
    return _ready(workflow, found) or answer(workflow, found, arguments["completedSteps"])


def _ready(workflow: Workflow, found: Next) -> msgspec.Raw | None:
    """The answer with a step that needs no words of its own for this context; they are made and encoded once."""
    step = found.step
    if step is None or step.told_by is None or found.loop or found.warnings or workflow.has_contract:
        return None
    key = (step.id, *[evaluate(told, found.context) for told in step.told_by]) if step.told_by else step.id
    head = workflow.memo.get(key)
    if head is None:
        head = workflow.memo[key] = _encode({**answer(workflow, found, ()), "progress": 0}).removesuffix(b"0}")
    return msgspec.Raw(b"".join((head, _encode(_progress(workflow, found)), b"}")))


def answer(workflow: Workflow, found: Next, completed: Iterable[str]) -> dict[str, Json]:
    is_complete = found.step is None
    reply = {**tell(workflow, found), "isComplete": is_complete, "progress": _progress(workflow, found)}
    if is_complete and found.skipped:
        reply["skipped"] = [explain_skip(skip) for skip in found.skipped[:MOST_SKIPPED]]
    if workflow.has_contract:
        told = {need.variable for need in reply.get("missing", ())}
        unset = forgotten(workflow, completed, found.context)
        warnings = [*reply.get("warnings", ()), *(unset[name] for name in unset if name not in told)]
        if warnings:
            reply["warnings"] = warnings
    return reply


def tell(workflow: Workflow, found: Next) -> dict[str, Json]:
    """The step and its guidance, what the context lacks for it, and warnings."""
    step = found.step
    told = guide(workflow, found)
    warnings = told.warnings
    reply: dict[str, Json] = {"step": told.step or None, "guidance": _guidance(told)}
    needs = unmet(workflow, step, found.context) if step is not None else ()
    if needs:
        reply["missing"] = needs
        needed = {need.variable for need in needs}
        others = [name for name in told.unset if name.partition(".")[0] not in needed]
        warnings = (
            *found.warnings,
            *warn_of_unset(others),
            "The step needs more context: " + "; ".join(need.sentence() for need in needs),
        )
    if warnings:
        reply["warnings"] = warnings
    return reply


def _progress(workflow: Workflow, found: Next) -> dict[str, Json]:
    """How many steps are done, and of how many as far as that is known: loops and conditions decide it on the way."""
    if found.step is None:
        return {"completed": found.completed, "total": found.completed}
    if len(workflow.flow) != len(workflow.steps):  # there are loops
        return {"completed": found.completed}
    return {"completed": found.completed, "total": workflow.total_steps - len(found.skipped)}


def _guidance(told: Guidance) -> dict[str, Json]:
    hint = {"modelHint": told.model_hint} if told.model_hint else {}
    return {
        "prompt": told.prompt,
        **hint,
        "requiresConfirmation": told.requires_confirmation,
        "validationCriteria": told.criteria,
    }


def step_not_found(workflow: Workflow, wanted: str) -> StepNotFound:
    return StepNotFound(
        f"The workflow '{workflow.id}' has no step {suggest(wanted, list(workflow.steps))}. "
        "Use the ids that workflow_next gave you.",
        stepId=wanted,
    )


TOOL = Tool(
    name="workflow_next",
    title="Next step",
    description=(
        "Gets the next step guidance based on workflow state. Do what guidance.prompt says, check the output with "
        "workflow_validate, add step.id to completedSteps, and call again with the context variables that the prompts "
        "asked you to set, until isComplete is true."
    ),
    input_schema=arguments_schema(
        {
            "workflowId": workflow_id("The workflow ID"),
            "currentStep": {**step_id("Current step ID (optional)"), "type": ["string", "null"]},
            "completedSteps": completed_steps(
                "Array of completed step IDs; in a loop they carry the iteration, as in review@2"
            ),
            "context": context('Variables for conditions and templates, such as {"taskSize": "large"}'),
        },
        "workflowId",
        "completedSteps",
    ),
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
                "description": "At the end: steps that were passed over, and why.",
            },
            "missing": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Variables that the step needs and the context lacks, or has of the wrong type.",
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
                    "The output is at least 150 characters long: The reproduction is too thin to repeat."
                ],
            },
            "isComplete": False,
        },
    ),
    handler=handle,
)
