"""`workflow_status`: the state of a run, its latest events, its outputs and its result."""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidParams, WorkflowLookupError
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Json
from workflowlookup.tools.arguments import RunId, StructArguments, server_only
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.result_schemas import RUN_PROPERTIES, RUN_SCHEMA, WORKFLOW_SCHEMA

if TYPE_CHECKING:
    from workflowlookup.runs.events import Record
    from workflowlookup.runs.run import Run

MAX_EVENTS: Final = 10
NO_STATUS: Final = "not supported: this system does not report on runs; this is what this server knows"
MAX_RESULTS: Final = 20
MAX_RESULT_CHARACTERS: Final = 2_000
MAX_TOTAL_CHARACTERS: Final = 8_000
"""Of all results together, because a model reads the whole answer each time."""


class StatusArguments(msgspec.Struct, rename="camel"):
    """What `workflow_status` takes."""

    run_id: Annotated[RunId, server_only("The run, from workflow_start or workflow_runs")]
    result_from: Annotated[
        int | msgspec.UnsetType,
        Meta(description="Start in a long result"),
        server_only("Of a long result: where the part starts, in characters", minimum=0),
    ] = msgspec.UNSET


def handle(services: Services, arguments: StatusArguments, caller: Caller) -> Mapping[str, Json]:
    from workflowlookup.store.loading import read_excerpts  # noqa: PLC0415 - with the first run
    from workflowlookup.tools.run_answers import answer, iso, proof_counts  # noqa: PLC0415

    run = services.runs.get(arguments.run_id)
    history = read_excerpts(services.runs, run.id, after=run.sequence - MAX_EVENTS)
    workflow = run.workflow
    return {
        **answer(services, run, caller),
        **_part(run, arguments.result_from),
        **_progress(services, run),
        **proof_counts(run),
        **_remote(services, run),
        "workflow": {"id": workflow.id, "name": workflow.name, "version": workflow.version},
        **_newer(services, run),
        "started": iso(run.started),
        **({"importedFrom": run.imported_from} if run.imported_from else {}),
        "updated": iso(run.updated),
        "history": [_in_brief(record) for record in history],
        **_results(run),
    }


def _part(run: "Run", start: int | msgspec.UnsetType) -> dict[str, Json]:
    """The part of the result that `resultFrom` asks for."""
    from workflowlookup.runs.results import part_of, result_of, result_uri  # noqa: PLC0415

    if start is msgspec.UNSET:
        return {}
    result = result_of(run)
    if result is None:
        raise InvalidParams("resultFrom: the run has no result yet", runId=run.id)
    return {"resultPart": {**part_of(result, start), "resource": result_uri(run.id)}}


def _progress(services: Services, run: "Run") -> dict[str, Json]:
    """The progress of the call that the server makes now."""
    from workflowlookup.tools.pending_runs import is_at_work, progress_of  # noqa: PLC0415

    if not is_at_work(run):
        return {}
    progress = progress_of(services, run)
    total = {} if progress.total is None else {"total": progress.total}
    return {"progress": {"done": progress.done, **total, "message": progress.message}}


def _remote(services: Services, run: "Run") -> dict[str, Json]:
    """For a run that another system works on: its id there, and whether that system reports states of runs."""
    from workflowlookup.language.model import PromptStep, WorkflowCall  # noqa: PLC0415
    from workflowlookup.language.navigation import find_step  # noqa: PLC0415

    def call_at(step_id: str) -> WorkflowCall | None:
        step = find_step(run.workflow, step_id)
        return step.call if isinstance(step, PromptStep) and isinstance(step.call, WorkflowCall) else None

    step_ids = (run.current, *reversed(run.remote_ids), *run.workflow.steps)  # the current call, the last one, any
    step_id, call = next(((each, call) for each in step_ids if each and (call := call_at(each))), ("", None))
    if call is None:
        return {}
    remote_id = {"runId": run.remote_ids[step_id]} if run.remote_ids.get(step_id) else {}
    remote = {"provider": call.provider, "workflowId": call.workflow, **remote_id}
    workflows = services.workflows
    can = workflows.abilities(call.provider) if workflows is not None else None
    if can is not None:
        remote["status"] = "supported" if "status" in can else NO_STATUS
    return {"remote": remote}


def _newer(services: Services, run: "Run") -> dict[str, Json]:
    """The version in the library, if that document differs from the document of the run."""
    from workflowlookup.runs.run_document import encode_document  # noqa: PLC0415

    try:
        workflow = services.catalog.get(run.workflow.id)
    except WorkflowLookupError:  # deleted or broken: there is no newer version
        return {}
    return {} if encode_document(workflow)[1] == run.hash else {"newerVersion": workflow.version}


def _in_brief(record: "Record") -> dict[str, Json]:
    from workflowlookup.runs.events import kind_of  # noqa: PLC0415
    from workflowlookup.tools.run_answers import iso  # noqa: PLC0415

    event = record.event
    step_id: str = getattr(event, "step_id", "") or getattr(event, "loop_id", "")
    why: str = getattr(event, "note", "") or getattr(event, "reason", "") or getattr(event, "why", "")
    details = {"id": step_id, "why": why, "by": record.by}
    return {"time": iso(record.time), "event": kind_of(event), **{name: text for name, text in details.items() if text}}


def _results(run: "Run") -> dict[str, Json]:
    """The latest outputs, within the limits."""
    results: dict[str, Json] = {}
    remaining = MAX_TOTAL_CHARACTERS
    is_cut = len(run.results) > MAX_RESULTS
    for step_id in itertools.islice(reversed(run.results), MAX_RESULTS):
        output = run.results[step_id]
        limit = min(remaining, MAX_RESULT_CHARACTERS)
        is_cut = is_cut or len(output) > limit
        if not limit:
            break
        results[step_id] = shorten(output, limit)
        remaining -= min(len(output), limit)
    rest = {} if not is_cut else {"resultsCut": f"Read the resource run://{run.id} for all of it."}
    return {"results": dict(reversed(results.items())), **rest}


TOOL = Tool(
    name="workflow_status",
    title="Resume or show a run",
    description=(
        "Shows a run: current step, progress, outputs, result. Call it to resume a run, or to follow the server's work."
    ),
    arguments=StructArguments(StatusArguments),
    output_schema={
        **RUN_SCHEMA,
        "properties": {
            **RUN_PROPERTIES,
            "workflow": WORKFLOW_SCHEMA,
            "remote": {
                "type": "object",
                "description": "If another system does the work: the run there.",
                "properties": {
                    "provider": {"type": "string"},
                    "workflowId": {"type": "string"},
                    "runId": {"type": "string"},
                    "status": {"type": "string", "description": "Whether that system reports states of runs."},
                },
                "required": ["provider", "workflowId"],
            },
            "newerVersion": {
                "type": "string",
                "description": "Version in the library, if it differs from the run's.",
            },
            "started": {"type": "string", "format": "date-time"},
            "importedFrom": {"type": "string", "description": "The file from which the run was imported."},
            "updated": {"type": "string", "format": "date-time"},
            "history": {
                "type": "array",
                "items": {"type": "object"},
                "description": f"The last {MAX_EVENTS} events: time, event, id of step or loop, why, by.",
            },
            "results": {"type": "object", "description": "Latest outputs by step, or their beginnings."},
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
            "step": {"id": "isolate", "title": "Isolate the cause"},
            "guidance": {"prompt": "Narrow it down…", "validationCriteria": []},
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
