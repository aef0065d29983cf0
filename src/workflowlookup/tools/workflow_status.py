"""`workflow_status`: where a run stands, what happened to it lately, and what came of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from workflowlookup.core.values import Json
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.tools.registry import Caller, Services, Tool, arguments_schema, run_id
from workflowlookup.tools.run_schemas import RUN_PROPERTIES, RUN_SCHEMA, WORKFLOW_SCHEMA

if TYPE_CHECKING:
    from workflowlookup.core.events import Record
    from workflowlookup.core.run import Run

MOST_EVENTS: Final = 10
MOST_RESULTS: Final = 20
MOST_OF_A_RESULT: Final = 2_000
MOST_OF_RESULTS: Final = 8_000
"""How many characters all results together take: an answer is read by a model, each time."""


def handle(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Mapping[str, Json]:
    from workflowlookup.tools.run_answers import answer, iso  # noqa: PLC0415 - with the first run

    run = services.runs.get(arguments["runId"])
    history = services.runs.history(run.id, after=run.sequence - MOST_EVENTS)
    workflow = run.workflow
    return {
        **answer(services, run, caller),
        "workflow": {"id": workflow.id, "name": workflow.name, "version": workflow.version},
        **_newer(services, run),
        "started": iso(run.started),
        "updated": iso(run.updated),
        "history": [_in_brief(record) for record in history],
        **_results(run),
    }


def _newer(services: Services, run: "Run") -> dict[str, Json]:
    """The version in the library, when it is another document than the one that the run keeps."""
    from workflowlookup.core.run import document_of  # noqa: PLC0415

    try:
        workflow = services.catalog.get(run.workflow.id)
    except WorkflowLookupError:  # gone or broken: nothing that the run could be started anew with
        return {}
    return {} if document_of(workflow)[1] == run.hash else {"newerVersion": workflow.version}


def _in_brief(record: "Record") -> dict[str, Json]:
    from workflowlookup.core.events import kind_of  # noqa: PLC0415
    from workflowlookup.tools.run_answers import iso  # noqa: PLC0415

    event = record.event
    about: str = getattr(event, "step_id", "") or getattr(event, "loop_id", "")
    why: str = getattr(event, "note", "") or getattr(event, "reason", "") or getattr(event, "why", "")
    told = {"id": about, "why": why, "by": record.by}
    return {"time": iso(record.time), "event": kind_of(event), **{name: text for name, text in told.items() if text}}


def _results(run: "Run") -> dict[str, Json]:
    """The last outputs, as much of them as one wants to read here."""
    results: dict[str, Json] = {}
    room = MOST_OF_RESULTS
    for step_id, output in list(run.results.items())[: -MOST_RESULTS - 1 : -1]:
        most = min(room, MOST_OF_A_RESULT)
        if not most:
            break
        results[step_id] = output if len(output) <= most else f"{output[:most]}…"
        room -= min(len(output), most)
    where = {} if results == run.results else {"resultsCut": f"Read the resource run://{run.id} for all of it."}
    return {"results": dict(reversed(results.items())), **where}


TOOL = Tool(
    name="workflow_status",
    title="Status of a run",
    description=(
        "Shows where a run stands: state, progress, the current step with its guidance, what it waits for, what "
        "happened lately, and the outputs so far. Call it to take up a run again."
    ),
    input_schema=arguments_schema({"runId": run_id("The run, from workflow_start or workflow_runs")}, "runId"),
    output_schema={
        **RUN_SCHEMA,
        "properties": {
            **RUN_PROPERTIES,
            "workflow": WORKFLOW_SCHEMA,
            "newerVersion": {
                "type": "string",
                "description": "The version in the library, when it is not the document that the run keeps.",
            },
            "started": {"type": "string", "format": "date-time"},
            "updated": {"type": "string", "format": "date-time"},
            "history": {
                "type": "array",
                "items": {"type": "object"},
                "description": f"The last {MOST_EVENTS} events: time, event, id of step or loop, why, by whom.",
            },
            "results": {"type": "object", "description": "By step, the latest: its output, or the beginning."},
            "resultsCut": {"type": "string", "description": "Where the rest of the results is."},
        },
    },
    example=(
        {"runId": "9f2c41d07b3e"},
        {
            "runId": "9f2c41d07b3e",
            "state": "waiting",
            "progress": {"done": 1, "total": 6},
            "waitingFor": "output",
            "step": {"id": "isolate", "title": "Isolate the cause", "prompt": "Narrow it down…"},
            "next": "Do what guidance.prompt says, then call workflow_submit with runId '9f2c41d07b3e', stepId "
            "'isolate' and the full output.",
            "workflow": {"id": "bug-investigation", "name": "Bug investigation", "version": "1.0.0"},
            "started": "2026-11-16T09:30:00.000Z",
            "updated": "2026-11-16T09:41:12.345Z",
            "history": [{"time": "2026-11-16T09:41:12.345Z", "event": "step-offered", "id": "isolate"}],
            "results": {"reproduce": "Run `make test` with TZ=UTC+14…"},
        },
    ),
    handler=handle,
)
