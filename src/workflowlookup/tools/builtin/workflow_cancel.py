"""`workflow_cancel`: cancels a run, and says whether the call that the server was making was stopped."""

from typing import Annotated

import msgspec

from workflowlookup.tools.arguments import RunId, StructArguments, server_only
from workflowlookup.tools.contract import Caller, Outcome, Services, Tool
from workflowlookup.tools.result_schemas import RUN_SCHEMA


class CancelArguments(msgspec.Struct, rename="camel"):
    """What `workflow_cancel` takes."""

    run_id: Annotated[RunId, server_only("The run, from workflow_start or workflow_runs")]
    reason: Annotated[str | None, server_only("Why the run is cancelled", maxLength=2000)] = None


def handle(services: Services, arguments: CancelArguments, caller: Caller) -> Outcome:
    from workflowlookup.tools.pending_runs import await_end  # noqa: PLC0415 - with the first run
    from workflowlookup.tools.run_answers import answer  # noqa: PLC0415

    run = services.runs.cancel(arguments.run_id, arguments.reason or "", by=caller.name)
    return await_end(services, run, lambda run: answer(services, run, caller))


TOOL = Tool(
    name="workflow_cancel",
    title="Cancel a run",
    description="Cancels a run for good, and the server's call for it.",
    arguments=StructArguments(CancelArguments),
    output_schema=RUN_SCHEMA,
    example=(
        {"runId": "9f2c41d07b3e", "reason": "The bug is fixed upstream."},
        {
            "runId": "9f2c41d07b3e",
            "state": "cancelled",
            "progress": {"done": 2, "total": 6},
            "reason": "The bug is fixed upstream.",
            "next": "The run is cancelled: stop. To run it again, call workflow_start.",
        },
    ),
    handler=handle,
    read_only=False,
    destructive=True,
)
