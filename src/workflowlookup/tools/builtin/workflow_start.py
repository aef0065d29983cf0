"""`workflow_start`: starts a run, whose state the server stores."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from workflowlookup.errors import WorkflowNotFound
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import MAX_TIMEOUT_SECONDS, Json
from workflowlookup.tools.arguments import RunId, StructArguments, Wait, server_only
from workflowlookup.tools.contract import ALWAYS_LOADED, Caller, Elicitation, Outcome, Result, Services, Tool
from workflowlookup.tools.registry import find_workflow
from workflowlookup.tools.result_schemas import RUN_PROPERTIES, RUN_SCHEMA, WORKFLOW_SCHEMA

if TYPE_CHECKING:
    from workflowlookup.runs.run import Run


class StartArguments(msgspec.Struct, rename="camel"):
    """What `workflow_start` takes."""

    workflow_id: Annotated[
        str,
        Meta(description="Its id or tool"),
        server_only(
            "The workflow ID, or the name of its tool", pattern="^[^\\x00-\\x1f\\x7f]+$", minLength=1, maxLength=256
        ),
    ]
    input: Annotated[
        dict[str, Any] | None,
        Meta(description="As its inputSchema says: the task"),
        server_only("Input of the workflow; validated by its inputSchema"),
    ] = None
    context: Annotated[
        dict[str, Any] | None,
        Meta(description="More variables"),
        server_only('More variables for conditions and templates, such as {"taskSize": "large"}'),
    ] = None
    run_id: Annotated[
        RunId | None,
        Meta(description="Your own id: starts once"),
        server_only("Your own id; the same call with the same id starts no second run"),
    ] = None
    wait: Wait = None
    timeout_seconds: Annotated[
        float | None,
        server_only(
            "Time limit of the run, without the time that people take",
            exclusiveMinimum=0,
            maximum=MAX_TIMEOUT_SECONDS,
        ),
    ] = None


def handle(services: Services, arguments: StartArguments, caller: Caller) -> Outcome:
    from workflowlookup.tools.elicitation import start_trusted  # noqa: PLC0415 - with the first run
    from workflowlookup.tools.pending_runs import await_run, is_at_work  # noqa: PLC0415
    from workflowlookup.tools.run_answers import answer  # noqa: PLC0415

    def make_answer(run: "Run") -> Result:
        return {**answer(services, run, caller), "workflow": view_workflow(services, run.workflow)}

    workflow = find_startable(services, arguments.workflow_id)
    input_, context = arguments.input or {}, arguments.context or {}
    timeout = arguments.timeout_seconds or caller.timeout_seconds
    if timeout is None and services.workflows is not None:
        timeout = services.workflows.default_timeout(workflow)

    def start() -> "Run":
        return services.runs.start(
            workflow,
            input_,
            context,
            run_id=arguments.run_id,
            timeout=timeout,
            by=caller.name,
            client_roots=caller.roots,
        )

    run = start_trusted(services, workflow, caller, start)
    if isinstance(run, Elicitation):
        return run
    if is_at_work(run) and arguments.wait is not False:
        return await_run(services, run, caller, make_answer)
    return make_answer(run)


def find_startable(services: Services, name: str) -> Workflow:
    """A workflow of the library by its id, or a workflow of a provider by its id or tool name."""
    try:
        return find_workflow(services, name)
    except WorkflowNotFound:
        workflow = services.workflows.resolve(name) if services.workflows is not None else None
        if workflow is None:
            raise
        return workflow


def view_workflow(services: Services, workflow: Workflow) -> dict[str, Json]:
    """What the agent should know about the workflow before the first step."""
    from workflowlookup.tools.skills import advice_about_files  # noqa: PLC0415 - seldom needed

    lists = {
        "preconditions": workflow.preconditions,
        "clarificationPrompts": workflow.clarification_prompts,
        "metaGuidance": (*workflow.meta_guidance, *advice_about_files(services, workflow.id)),
    }
    non_empty = {name: lines for name, lines in lists.items() if lines}
    return {"id": workflow.id, "name": workflow.name, "version": workflow.version, **non_empty}


TOOL = Tool(
    name="workflow_start",
    title="Start a run of a workflow, playbook or checklist",
    description=(
        "Starts a run of a workflow (playbook, checklist, procedure) that leads you: each answer has one step to do, "
        "and next says how to go on. workflow_status resumes it later."
    ),
    arguments=StructArguments(StartArguments),
    output_schema={**RUN_SCHEMA, "properties": {**RUN_PROPERTIES, "workflow": WORKFLOW_SCHEMA}},
    example=(
        {"workflowId": "bug-investigation", "context": {}},
        {
            "runId": "9f2c41d07b3e",
            "state": "waiting",
            "progress": {"done": 0, "total": 6},
            "waitingFor": "output",
            "step": {"id": "reproduce", "title": "Reproduce the failure"},
            "guidance": {
                "prompt": "Make the failure happen…",
                "validationCriteria": [
                    "The output is at least 100 characters long: The reproduction is too thin to repeat."
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
    starts_run=True,
    meta=ALWAYS_LOADED,
)
