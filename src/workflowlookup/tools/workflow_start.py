"""`workflow_start`: begins a run, whose state the server keeps."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workflowlookup.core.model import Workflow
from workflowlookup.core.values import MAX_TIMEOUT_SECONDS, Json
from workflowlookup.errors import WorkflowNotFound
from workflowlookup.tools.contract import Caller, Elicitation, Outcome, Result, Services, Tool
from workflowlookup.tools.registry import arguments_schema, context, find_workflow, run_id
from workflowlookup.tools.run_schemas import RUN_PROPERTIES, RUN_SCHEMA, WAIT, WORKFLOW_SCHEMA

if TYPE_CHECKING:
    from workflowlookup.core.run import Run


def handle(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Outcome:
    from workflowlookup.tools.awaiting import await_run, is_at_work  # noqa: PLC0415 - with the first run
    from workflowlookup.tools.run_answers import answer  # noqa: PLC0415
    from workflowlookup.tools.trusting import start_trusted  # noqa: PLC0415

    def tell(run: "Run") -> Result:
        return {**answer(services, run, caller), "workflow": _view(run.workflow)}

    workflow = _find(services, arguments["workflowId"])
    given, known = arguments.get("input") or {}, arguments.get("context") or {}
    timeout = arguments.get("timeoutSeconds") or caller.timeout_seconds
    if timeout is None and services.workflows is not None:
        timeout = services.workflows.default_timeout(workflow)
    own_id = arguments.get("runId")

    def start() -> "Run":
        return services.runs.start(workflow, given, known, run_id=own_id, timeout=timeout, by=caller.name)

    run = start_trusted(services, workflow, caller, start)
    if isinstance(run, Elicitation):
        return run
    if is_at_work(run) and arguments.get("wait") is not False:
        return await_run(services, run, caller, tell)
    return tell(run)


def _find(services: Services, wanted: str) -> Workflow:
    """A workflow of the library by its id; or one of any provider, by its id or the name of its tool."""
    try:
        return find_workflow(services, wanted)
    except WorkflowNotFound:
        workflow = services.workflows.resolve(wanted) if services.workflows is not None else None
        if workflow is None:
            raise
        return workflow


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
        "do. Steps that the server does by itself need nothing of you: the answer comes when it is done with them, or "
        "at once with wait false. A run outlives this conversation: workflow_status shows where it is."
    ),
    input_schema=arguments_schema(
        {
            "workflowId": {
                "type": "string",
                "description": "The workflow ID, or the name of its tool",
                "pattern": "^[^\\x00-\\x1f\\x7f]+$",
                "minLength": 1,
                "maxLength": 256,
            },
            "input": context("What the workflow asks for at the start; checked against its inputSchema"),
            "context": context('More variables for conditions and templates, such as {"taskSize": "large"}'),
            "runId": {
                **run_id("An id of your own; the same call with the same id starts no second run"),
                "type": ["string", "null"],
            },
            "wait": WAIT,
            "timeoutSeconds": {
                "type": ["number", "null"],
                "exclusiveMinimum": 0,
                "maximum": MAX_TIMEOUT_SECONDS,
                "description": "How long the run may take before it fails, without the time that persons take",
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
    can_be_task=True,
)
