"""`workflow_cancel`: ends a run that is not over, and says what became of what the server was doing for it."""

from collections.abc import Mapping
from typing import Any

from workflowlookup.tools.contract import Caller, Outcome, Services, Tool
from workflowlookup.tools.registry import arguments_schema, run_id
from workflowlookup.tools.run_schemas import RUN_SCHEMA


def handle(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Outcome:
    from workflowlookup.tools.awaiting import await_end  # noqa: PLC0415 - with the first run
    from workflowlookup.tools.run_answers import answer  # noqa: PLC0415

    run = services.runs.cancel(arguments["runId"], arguments.get("reason") or "", by=caller.name)
    return await_end(services, run, lambda run: answer(services, run, caller))


TOOL = Tool(
    name="workflow_cancel",
    title="Cancel a run",
    description=(
        "Cancels a run that is not over, for good, and what the server is doing for it: stopped tells what was stopped "
        "and what could not be. Safe to repeat. Say why, for those who read the run later."
    ),
    input_schema=arguments_schema(
        {
            "runId": run_id("The run, from workflow_start or workflow_runs"),
            "reason": {"type": ["string", "null"], "maxLength": 2000, "description": "Why it is not wanted any more"},
        },
        "runId",
    ),
    output_schema=RUN_SCHEMA,
    example=(
        {"runId": "9f2c41d07b3e", "reason": "The bug is fixed upstream."},
        {
            "runId": "9f2c41d07b3e",
            "state": "cancelled",
            "progress": {"done": 2, "total": 6},
            "reason": "The bug is fixed upstream.",
            "next": "The run is cancelled: stop. Start a new one with workflow_start if it is wanted again.",
        },
    ),
    handler=handle,
    read_only=False,
    destructive=True,
)
