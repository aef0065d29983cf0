"""`workflow_cancel`: ends a run that is not over, and says what became of what the server was doing for it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from workflowlookup.tools.arguments import RunId, StructArguments
from workflowlookup.tools.contract import Caller, Outcome, Services, Tool
from workflowlookup.tools.result_schemas import RUN_SCHEMA


class CancelArguments(msgspec.Struct, rename="camel"):
    """What `workflow_cancel` takes."""

    run_id: Annotated[RunId, Meta(description="The run, from workflow_start or workflow_runs")]
    reason: Annotated[
        str | None, Meta(description="Why it is not wanted any more", extra_json_schema={"maxLength": 2000})
    ] = None


def handle(services: Services, arguments: CancelArguments, caller: Caller) -> Outcome:
    from workflowlookup.tools.pending_runs import await_end  # noqa: PLC0415 - with the first run
    from workflowlookup.tools.run_answers import answer  # noqa: PLC0415

    run = services.runs.cancel(arguments.run_id, arguments.reason or "", by=caller.name)
    return await_end(services, run, lambda run: answer(services, run, caller))


TOOL = Tool(
    name="workflow_cancel",
    title="Cancel a run",
    description=(
        "Cancels a run that is not over, for good, and what the server is doing for it: stopped tells what was stopped "
        "and what could not be. Safe to repeat. Say why, for those who read the run later."
    ),
    arguments=StructArguments(CancelArguments),
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
