"""Resources: each workflow as Markdown (`workflow://ID`), and the schema of documents (`workflow-schema://current`)."""

from collections.abc import Mapping
from typing import Any, Final

from workflowlookup.core.model import Workflow
from workflowlookup.core.schemas import workflow_schema_text
from workflowlookup.core.values import Json
from workflowlookup.errors import ResourceNotFound, WorkflowNotFound
from workflowlookup.tools.paging import page
from workflowlookup.tools.registry import Services
from workflowlookup.tools.workflow_get import first_step

SCHEME: Final = "workflow://"
SCHEMA_URI: Final = "workflow-schema://current"
PAGE_SIZE: Final = 100

_SCHEMA: Final[Mapping[str, Json]] = {
    "uri": SCHEMA_URI,
    "name": "workflow-schema",
    "title": "Schema of workflow documents",
    "description": "JSON Schema (draft 2020-12) for those who write workflows.",
    "mimeType": "application/schema+json",
}


def list_resources(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    cursor = params.get("cursor")
    shown, following = page(services.catalog.snapshot().summaries, lambda summary: summary.id, cursor, PAGE_SIZE)
    resources: list[Json] = [] if cursor else [_SCHEMA]
    resources += [
        {
            "uri": SCHEME + summary.id,
            "name": summary.id,
            "title": summary.name,
            "description": summary.description,
            "mimeType": "text/markdown",
        }
        for summary in shown
    ]
    return {"resources": resources, **({"nextCursor": following} if following else {})}


def list_templates(_: Services, __: Mapping[str, Any]) -> Mapping[str, Json]:
    template = {
        "uriTemplate": SCHEME + "{id}",
        "name": "workflow",
        "title": "A workflow",
        "description": "What a workflow is for and its first step, as Markdown.",
        "mimeType": "text/markdown",
    }
    return {"resourceTemplates": [template]}


def read_resource(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    uri: str = params["uri"]
    if uri == SCHEMA_URI:
        return _contents(uri, "application/schema+json", workflow_schema_text())
    if not uri.startswith(SCHEME):
        raise ResourceNotFound(f"No resource has the address '{uri}'. Call resources/list to see them.", uri=uri)
    try:
        workflow = services.catalog.get(uri.removeprefix(SCHEME))
    except WorkflowNotFound as problem:
        raise ResourceNotFound(f"{problem.remedy} Call resources/list to see them.", uri=uri) from problem
    return _contents(uri, "text/markdown", as_markdown(workflow))


def _contents(uri: str, mime_type: str, text: str) -> Mapping[str, Json]:
    return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}


def as_markdown(workflow: Workflow) -> str:
    """The preview of a workflow for people and models to read."""
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
    parts.append(f"Call `workflow_next` with `workflowId` `{workflow.id}` and `completedSteps` `[]` to begin.")
    return "\n\n".join(parts) + "\n"
