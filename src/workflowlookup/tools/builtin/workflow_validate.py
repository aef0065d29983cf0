"""`workflow_validate`: validates the output of a step against its criteria."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import describe_proofs
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import find_step, scope_of
from workflowlookup.language.rules import Issue
from workflowlookup.language.validation import judge_step
from workflowlookup.language.values import Context, Json
from workflowlookup.tools.arguments import StepId, StructArguments, Variables, WorkflowId
from workflowlookup.tools.builtin.workflow_next import step_not_found
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.registry import find_workflow
from workflowlookup.tools.result_schemas import TEXTS, VERDICT_SCHEMA

REVIEW: Final = "Review validation criteria and adjust output accordingly."
_VALID: Final[Mapping[str, Json]] = {"valid": True, "issues": [], "suggestions": []}


class ValidateArguments(msgspec.Struct, rename="camel"):
    """What `workflow_validate` takes."""

    workflow_id: Annotated[WorkflowId, Meta(description="The workflow ID")]
    step_id: Annotated[StepId, Meta(description="The step ID")]
    output: Annotated[str, Meta(description="The step output", min_length=1)]
    context: Annotated[Variables | None, Meta(description="Variables")] = None


def handle(services: Services, arguments: ValidateArguments, _: Caller) -> Mapping[str, Json]:
    workflow = find_workflow(services, arguments.workflow_id)
    return judge_output(workflow, arguments.step_id, arguments.output, arguments.context or {})


def judge_output(workflow: Workflow, step_id: str, output: str, context: Context) -> Mapping[str, Json]:
    """The verdict on an output. Raises `StepNotFound`, or the error of criteria that are invalid."""
    step = find_step(workflow, step_id)
    if step is None:
        raise step_not_found(workflow, step_id)
    scope = scope_of(workflow, step_id, context)
    budget = Budget()
    try:
        verdict = judge_step(step, output, scope, budget)
    except (InvalidCriteria, InvalidWorkflow) as refusal:
        raise type(refusal)(refusal.remedy, workflowId=workflow.id, stepId=step_id, **refusal.data) from refusal
    reply = _verdict_json(verdict.issues)
    if isinstance(step, PromptStep) and step.captures:
        reply = {**reply, "captured": verdict.captured}
    if isinstance(step, PromptStep) and step.proofs:
        reply = {**reply, "proofs": describe_proofs(step, {**scope, **verdict.captured}, budget)}
    return reply


def _verdict_json(issues: Sequence[Issue]) -> Mapping[str, Json]:
    if not issues:
        return _VALID
    messages, suggestions = [], {REVIEW: True}  # a dict as an ordered set
    for issue in issues:
        messages.append(issue.message)
        if issue.suggestion:
            suggestions[issue.suggestion] = True
    return {"valid": False, "issues": messages, "suggestions": list(suggestions)}


TOOL = Tool(
    name="workflow_validate",
    title="Validate an output without a run",
    description=(
        "Validates step output against workflow requirements, for workflow_next. Add captured to the context."
    ),
    arguments=StructArguments(ValidateArguments, is_closed=True),
    output_schema={
        **VERDICT_SCHEMA,
        "properties": {
            **VERDICT_SCHEMA["properties"],
            "captured": {
                "type": "object",
                "description": "Variables read from the output, as produces of the step says.",
            },
            "proofs": {**TEXTS, "description": "Not checked here: what the server would check in a run."},
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
