"""`workflow_start`: begins a run, whose state the server keeps."""

from collections.abc import Mapping
from typing import Any

from workflowlookup.core.model import Workflow
from workflowlookup.core.values import Json
from workflowlookup.tools.registry import (
    Caller,
    Services,
    Tool,
    arguments_schema,
    context,
    find_workflow,
    run_id,
    workflow_id,
)
from workflowlookup.tools.run_schemas import RUN_PROPERTIES, RUN_SCHEMA, WORKFLOW_SCHEMA


def handle(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Mapping[str, Json]:
    from workflowlookup.tools.run_answers import answer  # noqa: PLC0415 - with the first run

    workflow = find_workflow(services, arguments["workflowId"])
    given, known = arguments.get("input") or {}, arguments.get("context") or {}
    run = services.runs.start(workflow, given, known, run_id=arguments.get("runId"), by=caller.name)
    return {**answer(services, run, caller), "workflow": _view(run.workflow)}


def _view(workflow: Workflow) -> dict[str, Json]:
    """What the agent should know of the workflow before the first step."""
    lists = {
        "preconditions": workflow.preconditions,
        "clarificationPrompts": workflow.clarification_prompts,
        "metaGuidance": workflow.meta_guidance,
    }
    told = {name: lines for name, lines in lists.items() if lines}
    return {"id": workflow.id, "name": workflow.name, "version": workflow.version, **told}


TOOL = Tool(
    name="workflow_start",
    title="Start a run",
    description=(
        "Starts a run of a workflow: the server keeps its state, gives one step at a time, and goes on only when the "
        "output of a step is good. Do what guidance.prompt says, then call workflow_submit; next always says what to "
        "do. A run outlives this conversation: workflow_status shows where it is."
    ),
    input_schema=arguments_schema(
        {
            "workflowId": workflow_id("The workflow ID"),
            "input": context("What the workflow asks for at the start; checked against its inputSchema"),
            "context": context('More variables for conditions and templates, such as {"taskSize": "large"}'),
            "runId": {
                **run_id("An id of your own; the same call with the same id starts no second run"),
                "type": ["string", "null"],
            },
        },
        "workflowId",
    ),
    output_schema={**RUN_SCHEMA, "properties": {**RUN_PROPERTIES, "workflow": WORKFLOW_SCHEMA}},
    example=(
        {"workflowId": "bug-investigation", "context": {}},
        {
            "runId": "9f2c41d07b3e",
            "state": "waiting",
            "progress": {"done": 0, "total": 6},
            "waitingFor": "output",
            "step": {"id": "reproduce", "title": "Reproduce the failure", "prompt": "Make the failure happen…"},
            "guidance": {
                "prompt": "Make the failure happen…",
                "requiresConfirmation": False,
                "validationCriteria": [
                    "The output is at least 150 characters long: The reproduction is too thin to repeat."
                ],
            },
            "next": "Do what guidance.prompt says, then call workflow_submit with runId '9f2c41d07b3e', stepId "
            "'reproduce' and the full output.",
            "workflow": {"id": "bug-investigation", "name": "Bug investigation", "version": "1.0.0"},
        },
    ),
    handler=handle,
    read_only=False,
    idempotent=False,
)
