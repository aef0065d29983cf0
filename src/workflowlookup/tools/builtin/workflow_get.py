"""`workflow_get`: a workflow without its steps, with its first step, or with all steps."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidWorkflow
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import view_step
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import next_step
from workflowlookup.language.templates import filler
from workflowlookup.language.values import Json
from workflowlookup.tools.arguments import StructArguments, WorkflowId, server_only
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.registry import find_workflow
from workflowlookup.tools.result_schemas import STEP_SCHEMA, TEXTS

_OPTIONAL: Final = ("preconditions", "clarificationPrompts", "metaGuidance")


class GetArguments(msgspec.Struct):
    """What `workflow_get` takes."""

    id: Annotated[WorkflowId, Meta(description="The workflow ID")]
    mode: Annotated[
        str | None,
        Meta(description="How much", extra_json_schema={"enum": ["metadata", "preview", "full"]}),
        server_only("metadata: no steps; preview: with the first step; full: with every step, for authors"),
    ] = "preview"


def handle(services: Services, arguments: GetArguments, _: Caller) -> Mapping[str, Json]:
    return view(find_workflow(services, arguments.id), arguments.mode or "preview")


def view(workflow: Workflow, mode: str) -> Mapping[str, Json]:
    """The workflow in one of the three modes."""
    if mode == "full":
        return {**workflow.document, "version": workflow.version, "category": workflow.category}
    return metadata(workflow) if mode == "metadata" else {**metadata(workflow), "firstStep": first_step(workflow)}


def metadata(workflow: Workflow) -> dict[str, Json]:
    return {
        "id": workflow.id,
        "name": workflow.name,
        "description": workflow.description,
        "version": workflow.version,
        "category": workflow.category,
        **{name: workflow.document[name] for name in _OPTIONAL if name in workflow.document},
        "totalSteps": workflow.total_steps,
    }


def first_step(workflow: Workflow) -> dict[str, Json] | None:
    """The first step that is eligible with an empty context; None if there is none, or if loops have too many steps to
    find out.
    """
    budget = Budget()
    try:
        following = next_step(workflow, (), {}, budget)
    except InvalidWorkflow:
        return None
    return None if following.step is None else view_step(following.step, following, filler({}, {}), budget)


TOOL = Tool(
    name="workflow_get",
    title="Show a workflow",
    description="Retrieves a specific workflow by ID, with its first step. Run it by workflow_start.",
    arguments=StructArguments(GetArguments, is_closed=True),
    output_schema={
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "name": {"type": "string"},
            "description": {"type": "string"},
            "version": {"type": "string"},
            "category": {"type": "string"},
            "preconditions": {**TEXTS, "description": "What must be true before the first step."},
            "clarificationPrompts": {**TEXTS, "description": "Questions to ask the user first."},
            "metaGuidance": {**TEXTS, "description": "Advice that holds for every step."},
            "totalSteps": {"type": "integer"},
            "firstStep": {**STEP_SCHEMA, "description": "mode preview: the first eligible step."},
            "steps": {
                "type": "array",
                "items": {"type": "object"},
                "description": "mode full: every step as the author wrote it.",
            },
        },
        "required": ["id", "name", "description", "version"],
    },
    example=(
        {"id": "bug-investigation", "mode": "metadata"},
        {
            "id": "bug-investigation",
            "name": "Bug investigation",
            "description": "Find and prove the cause of a defect, then fix it behind a regression test.",
            "version": "1.0.0",
            "category": "development",
            "preconditions": ["The wrong behaviour can be described, together with what was expected instead."],
            "totalSteps": 9,
        },
    ),
    handler=handle,
)
