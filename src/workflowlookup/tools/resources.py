"""Resources: workflows and runs as Markdown, and the schema of documents; completion of ids.

`workflow://ID`, `run://ID`, `run://ID/result`, `runs://recent`, `workflow-schema://current`, `tool-result://TOOL`,
`skill://ID/PATH`.
Clients can subscribe to runs.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workflowlookup.errors import InvalidParams, ResourceNotFound, RunNotFound, WorkflowLookupError, WorkflowNotFound
from workflowlookup.language.model import Workflow
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Json, brief
from workflowlookup.language.workflow_schema import workflow_schema_text
from workflowlookup.tools.builtin.workflow_get import first_step
from workflowlookup.tools.contract import Services

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from workflowlookup.store.journal import RunSummary

SCHEME: Final = "workflow://"
SKILL_SCHEME: Final = "skill://"
"""Of the files of skills; see `skills`."""
RUN_SCHEME: Final = "run://"
RECENT_URI: Final = "runs://recent"
SCHEMA_URI: Final = "workflow-schema://current"
PART_META: Final = "workflowlookup/part"
"""The key in `_meta` of a part of a result: `from`, `to`, `characters`."""
MAX_RECENT: Final = 50
MAX_SUBSCRIBED_URI: Final = 300
RESULT_SCHEME: Final = "tool-result://"
"""Of resources with the whole result of a tool; see `long_results`."""
MAX_URI: Final = 2_000
"""A longer URI is not even parsed."""
MAX_COMPLETIONS: Final = 100
MAX_COMPLETED_VALUE: Final = 300
"""The rest of a longer value is ignored; no id is that long."""

_SCHEMA: Final[Mapping[str, Json]] = {
    "uri": SCHEMA_URI,
    "name": "workflow-schema",
    "title": "Schema of workflow documents",
    "description": "JSON Schema (draft 2020-12) of workflow documents.",
    "mimeType": "application/schema+json",
}
_RECENT: Final[Mapping[str, Json]] = {
    "uri": RECENT_URI,
    "name": "recent-runs",
    "title": "Recent runs",
    "description": f"The {MAX_RECENT} latest runs and their states.",
    "mimeType": "text/markdown",
}
_TEMPLATES: Final[Sequence[Mapping[str, Json]]] = (
    {
        "uriTemplate": SCHEME + "{id}",
        "name": "workflow",
        "title": "A workflow",
        "description": "The purpose of a workflow and its first step, as Markdown.",
        "mimeType": "text/markdown",
    },
    {
        "uriTemplate": RUN_SCHEME + "{id}",
        "name": "run",
        "title": "A run",
        "description": "The report of a run as Markdown: its steps, outputs and refusals, which path it took and why. "
        "Subscribe to be notified of changes.",
        "mimeType": "text/markdown",
    },
    {
        "uriTemplate": RUN_SCHEME + "{id}/result{?from,length,step}",
        "name": "run-result",
        "title": "The result of a run",
        "description": "The result of a run or of one of its steps, or a part of it. A part has at most 1,048,576 "
        "characters; `_meta` says where the next one begins.",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": SKILL_SCHEME + "{+path}",
        "name": "skill-file",
        "title": "A file of a skill",
        "description": "The SKILL.md of a workflow, or a file that the workflow brings along.",
    },
    {
        "uriTemplate": RESULT_SCHEME + "{tool}{?arguments}",
        "name": "tool-result",
        "title": "The whole result of a tool",
        "description": "The result of a tool that only reads, for arguments as JSON. Answers with only the first part "
        "of a long result link to it.",
        "mimeType": "application/json",
    },
)


def list_resources(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    from workflowlookup.tools.skills import page_of_resources  # noqa: PLC0415 - seldom needed

    cursor = params.get("cursor")
    workflows, next_cursor = page_of_resources(services, cursor)
    resources: list[Json] = [] if cursor else [_SCHEMA, _RECENT]
    for summary, files in workflows:
        resources.append(
            {
                "uri": SCHEME + summary.id,
                "name": summary.id,
                "title": summary.name,
                "description": summary.description,
                "mimeType": "text/markdown",
            }
        )
        resources += files
    return {"resources": resources, **({"nextCursor": next_cursor} if next_cursor else {})}


def list_templates(_: Services, __: Mapping[str, Any]) -> Mapping[str, Json]:
    return {"resourceTemplates": _TEMPLATES}


def read_resource(
    services: Services, params: Mapping[str, Any], prepared: str | WorkflowLookupError | None = None
) -> Mapping[str, Json]:
    """`prepared` is what `prepare_report` returned or raised for this URI, if it was called."""
    uri: str = params["uri"]
    if len(uri) > MAX_URI:
        message = f"A URI has at most {MAX_URI:,} characters. Call resources/list to see them all."
        raise ResourceNotFound(message, uri=shorten(uri, MAX_SUBSCRIBED_URI))
    if isinstance(prepared, WorkflowLookupError):
        raise prepared
    if prepared is not None:
        return _contents(uri, "text/markdown", prepared)
    if uri.startswith(RESULT_SCHEME):
        return _tool_result(services, uri)
    if uri == SCHEMA_URI:
        return _contents(uri, "application/schema+json", workflow_schema_text())
    if uri == RECENT_URI:
        return _contents(uri, "text/markdown", recent_as_markdown(services.runs.recent(MAX_RECENT)))
    if _is_report(uri):
        return _contents(uri, "text/markdown", _report(services, uri))
    if uri.startswith(RUN_SCHEME):
        return _result(services, uri)
    if uri.startswith(SKILL_SCHEME):
        return {"contents": [_skill_file(services, uri)]}
    if not uri.startswith(SCHEME):
        raise no_such_resource(uri, "Call resources/list to see them all.")
    try:
        workflow = services.catalog.get(uri.removeprefix(SCHEME))
    except WorkflowNotFound as problem:
        raise ResourceNotFound(f"{problem.remedy} Call resources/list to see them all.", uri=uri) from problem
    return _contents(uri, "text/markdown", as_markdown(workflow, _file_uris(services, workflow.id)))


def _skill_file(services: Services, uri: str) -> Mapping[str, Json]:
    from workflowlookup.tools.skills import read_file  # noqa: PLC0415 - seldom needed

    return read_file(services, uri)


def _file_uris(services: Services, workflow_id: str) -> Sequence[str]:
    from workflowlookup.tools.skills import file_uris  # noqa: PLC0415 - seldom needed

    return file_uris(services, workflow_id)


def _result(services: Services, uri: str) -> Mapping[str, Json]:
    """The result of a run, or a part of it."""
    from urllib.parse import parse_qsl  # noqa: PLC0415 - rarely needed

    from workflowlookup.runs.results import MAX_PART, part_of, result_of  # noqa: PLC0415 - with the runs

    remedy = "Use run://ID/result?from=0&length=1000."
    address = split_uri(uri, remedy)
    query = dict(parse_qsl(address.query))
    numbers: dict[str, str] = {name: query.pop(name) for name in ("from", "length") if name in query}
    run_id, step_id = address.netloc, query.pop("step", "")
    if address.path != "/result" or query or not all(n.isascii() and n.isdigit() for n in numbers.values()):
        raise no_such_resource(uri, remedy)
    try:
        run = services.runs.get(run_id)
    except RunNotFound as problem:
        raise _no_such_run(uri, run_id) from problem
    result = result_of(run, step_id)
    if result is None:
        owner = f"Step '{step_id}' of run '{run_id}'" if step_id else f"Run '{run_id}'"
        raise ResourceNotFound(f"{owner} has no result yet. The run is {run.state}: read run://{run_id}.", uri=uri)
    start = int(numbers.get("from", "0")[:12])
    length = int(numbers.get("length", str(MAX_PART))[:12])
    part = part_of(result, start, min(length, MAX_PART))
    text = part.pop("text")
    mime_type = "application/json" if result.is_json else "text/plain"
    return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text, "_meta": {PART_META: part}}]}


def _tool_result(services: Services, uri: str) -> Mapping[str, Json]:
    """The whole result of a tool that only reads."""
    from workflowlookup.tools.long_results import read  # noqa: PLC0415 - seldom needed

    return _contents(uri, "application/json", read(services, uri))


def run_named_by(uri: str) -> str:
    """The run that a resource is about, as far as its URI says so; empty if it names none."""
    if uri.startswith(RESULT_SCHEME) and len(uri) <= MAX_URI:
        from workflowlookup.tools.long_results import run_id_of  # noqa: PLC0415 - seldom needed

        return run_id_of(uri)
    return uri.removeprefix(RUN_SCHEME) if uri.startswith(RUN_SCHEME) else ""


def split_uri(uri: str, remedy: str) -> "SplitResult":
    """The parts of a URI. Raises `ResourceNotFound` for one that cannot be parsed, or has a fragment."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - rarely needed

    try:
        address = urlsplit(uri)
    except ValueError as problem:
        raise no_such_resource(uri, remedy) from problem
    if "#" in uri:
        raise no_such_resource(uri, remedy)
    return address


def no_such_resource(uri: str, remedy: str) -> ResourceNotFound:
    return ResourceNotFound(f"No resource has the URI '{uri}'. {remedy}", uri=uri)


def _no_such_run(uri: str, run_id: str) -> ResourceNotFound:
    return ResourceNotFound(f"No run has the id '{run_id}'. Read {RECENT_URI} for the latest.", uri=uri)


def _is_report(uri: str) -> bool:
    return uri.startswith(RUN_SCHEME) and "/" not in uri.removeprefix(RUN_SCHEME)


def _report(services: Services, uri: str) -> str:
    from workflowlookup.runs.report import report_of  # noqa: PLC0415 - with the first report
    from workflowlookup.store.loading import read_excerpts  # noqa: PLC0415

    run_id = uri.removeprefix(RUN_SCHEME)
    try:
        run = services.runs.get(run_id)
        return report_of(run, read_excerpts(services.runs, run_id))
    except RunNotFound as problem:
        raise _no_such_run(uri, run_id) from problem


async def prepare_report(services: Services, uri: str, caller: str) -> str | None:
    """The report of a run, made while the event loop serves others; None if the URI is not that of a report.

    Raises `RunNotFound` and the errors of the journal.
    """
    import asyncio  # noqa: PLC0415 - only where there is an event loop

    from workflowlookup.runs.report import report_of  # noqa: PLC0415 - with the first report
    from workflowlookup.store.loading import read_in_slices, reading  # noqa: PLC0415

    if not _is_report(uri):
        return None
    run = services.runs.get(uri.removeprefix(RUN_SCHEME))
    async with reading(caller):
        return await asyncio.to_thread(report_of, run, await read_in_slices(services.runs, run))


def recent_as_markdown(runs: "Sequence[RunSummary]") -> str:
    """A table of runs, in the order of the argument."""
    from workflowlookup.language.untrusted_text import code, inline  # noqa: PLC0415
    from workflowlookup.runs.report import clock  # noqa: PLC0415

    if not runs:
        return "# Recent runs\n\nThere are none yet. Call `workflow_start` to begin one.\n"
    table = [("run", "workflow", "state", "step", "done", "started", "last change"), ("---",) * 7]
    table += [
        (
            code(run.id),
            f"{code(run.workflow_id)} {inline(run.version)}",
            run.state,
            code(run.step) if run.step else "",
            str(run.done) if run.total is None else f"{run.done} of {run.total}",
            clock(run.started),
            clock(run.updated),
        )
        for run in runs
    ]
    rows = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return f"# Recent runs\n\n{rows}\n\nRead `run://ID` for the report of one.\n"


def changes(uri: str) -> bool:
    """Whether clients can subscribe to this resource."""
    return uri == RECENT_URI or (uri.startswith(RUN_SCHEME) and len(RUN_SCHEME) < len(uri) <= MAX_SUBSCRIBED_URI)


def addresses_of_run(run_id: str) -> tuple[str, ...]:
    """The URIs of the resources that change when a run does."""
    return RUN_SCHEME + run_id, RECENT_URI


def _contents(uri: str, mime_type: str, text: str) -> Mapping[str, Json]:
    return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}


def as_markdown(workflow: Workflow, files: Sequence[str] = ()) -> str:
    """The preview of a workflow. `files`: the URIs of what it brings along."""
    parts = [
        f"# {workflow.name}",
        workflow.description,
        f"`{workflow.id}` · version {workflow.version} · {workflow.category}",
    ]
    for title, lines in (
        ("Before you start", workflow.preconditions),
        ("Questions to ask first", workflow.clarification_prompts),
        ("Throughout", workflow.meta_guidance),
    ):
        if lines:
            parts.append(f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines))
    step = first_step(workflow)
    if step:
        parts.append(f"## First step of {workflow.total_steps}: {step['title']}\n\n{step['prompt']}")
    if files:
        parts.append("## Files\n\n" + "\n".join(f"- `{uri}`" for uri in files))
    parts.append(f"Call `workflow_start` with `workflowId` `{workflow.id}` to begin.")
    return "\n\n".join(parts) + "\n"


# ── completion ──────────────────────────────────────────────────────────────────────────────────────────────────


def complete(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    """Ids of workflows or recent runs that start with the value, then those that contain it."""
    ref, argument = params["ref"], params["argument"]
    match ref.get("type"):
        case "ref/resource":
            is_id = argument.get("name") in ("id", "uri", "workflowId")
        case "ref/prompt":
            is_id = argument.get("name") in ("id", "workflowId")
        case other:
            raise InvalidParams(f"ref.type must be ref/resource or ref/prompt; found {brief(other)}")
    value = argument.get("value")
    if not isinstance(value, str):
        raise InvalidParams("argument.value is required, as text")
    value = value[:MAX_COMPLETED_VALUE]
    if not is_id:
        ids = []
    elif str(ref.get("uri")).startswith(RUN_SCHEME):
        ids = [run.id for run in services.runs.recent(MAX_COMPLETIONS)]
        value = value.removeprefix(RUN_SCHEME)
    else:
        ids = [summary.id for summary in services.catalog.snapshot().summaries]
        value = value.casefold().removeprefix(SCHEME)
    typed = value
    matches = [item for item in ids if item.startswith(typed)] + [
        item for item in ids if typed in item and not item.startswith(typed)
    ]
    total = len(matches)
    return {"completion": {"values": matches[:MAX_COMPLETIONS], "total": total, "hasMore": total > MAX_COMPLETIONS}}
