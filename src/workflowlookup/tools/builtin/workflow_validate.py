"""`workflow_validate`: judges the output of a step by the author's criteria."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import find_step, scope_of
from workflowlookup.language.patterns import Budget
from workflowlookup.language.rules import Issue
from workflowlookup.language.validation import judge_step
from workflowlookup.language.values import Context, Json
from workflowlookup.tools.arguments import StepId, StructArguments, Variables, WorkflowId
from workflowlookup.tools.builtin.workflow_next import step_not_found
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.registry import find_workflow
from workflowlookup.tools.result_schemas import VERDICT_SCHEMA

REVIEW: Final = "Review validation criteria and adjust output accordingly."
_VALID: Final[Mapping[str, Json]] = {"valid": True, "issues": [], "suggestions": []}


class ValidateArguments(msgspec.Struct, rename="camel"):
    """What `workflow_validate` takes."""

    workflow_id: Annotated[WorkflowId, Meta(description="The workflow ID")]
    step_id: Annotated[StepId, Meta(description="The step ID to validate")]
    output: Annotated[str, Meta(description="The step output to validate", min_length=1)]
    context: Annotated[Variables | None, Meta(description="Variables for rules that depend on the context")] = None


def handle(services: Services, arguments: ValidateArguments, _: Caller) -> Mapping[str, Json]:
    workflow = find_workflow(services, arguments.workflow_id)
    return judge_output(workflow, arguments.step_id, arguments.output, arguments.context or {})


def judge_output(workflow: Workflow, wanted: str, output: str, known: Context) -> Mapping[str, Json]:
    """What an output is told. Raises `StepNotFound`, or what keeps the criteria from being applied."""
    step = find_step(workflow, wanted)
    if step is None:
        raise step_not_found(workflow, wanted)
    scope = scope_of(workflow, wanted, known)
    try:
        verdict = judge_step(step, output, scope, Budget())
    except (InvalidCriteria, InvalidWorkflow) as refusal:
        raise type(refusal)(refusal.remedy, workflowId=workflow.id, stepId=wanted, **refusal.data) from refusal
    reply = _tell(verdict.issues)
    return {**reply, "captured": verdict.captured} if isinstance(step, PromptStep) and step.captures else reply


def _tell(issues: Sequence[Issue]) -> Mapping[str, Json]:
    if not issues:
        return _VALID
    messages, suggestions = [], {REVIEW: True}  # a dict as a set that keeps its order
    for issue in issues:
        messages.append(issue.message)
        suggestions[issue.suggestion] = True
    return {"valid": False, "issues": messages, "suggestions": list(suggestions)}


TOOL = Tool(
    name="workflow_validate",
    title="Validate an output",
    description=(
        "Validates step output against workflow requirements. Call it with the full output before you add the step to "
        "completedSteps; when valid is false, fix what issues and suggestions name and call again. "
        "Pass captured on in the context of workflow_next."
    ),
    arguments=StructArguments(ValidateArguments),
    output_schema={
        **VERDICT_SCHEMA,
        "properties": {
            **VERDICT_SCHEMA["properties"],
            "captured": {
                "type": "object",
                "description": "The variables that were read from the output, as the step's produces says.",
            },
        },
    },
    example=(
        {"workflowId": "bug-investigation", "stepId": "reproduce", "output": "It crashes."},
        {
            "valid": False,
            "issues": ["The reproduction is too thin to repeat."],
            "suggestions": [REVIEW, "Add at least 139 more characters (now 11, at least 150 are needed)."],
        },
    ),
    handler=handle,
)
