"""Pages of the library: the list and its problems, one workflow, and the comparison of two versions."""

from collections import Counter
from typing import Final

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from workflowlookup.authoring.compare import compare
from workflowlookup.authoring.graph import GraphNode, draw
from workflowlookup.authoring.svg import as_fragment
from workflowlookup.console.queries import WorkflowVersion, document_of_version, find_workflow, page_of, versions_of
from workflowlookup.console.rendering import pretty
from workflowlookup.console.request import PageNotFound, Visit
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.model import LoopStep, Workflow
from workflowlookup.library.catalog import CatalogEntry
from workflowlookup.store.journal import RunQuery

MAX_LATEST_RUNS: Final = 8
"""On the page of a workflow."""


async def library(visit: Visit) -> Response:
    snapshot = visit.services.catalog.snapshot()
    summaries = snapshot.summaries
    words, category = visit.query("q").casefold().split(), visit.query("category")
    matches = [
        one for one in summaries if all(word in f"{one.id} {one.name} {one.description}".casefold() for word in words)
    ]
    shown = [one for one in matches if category in ("", one.category)]
    return visit.page(
        "library.html",
        section="library",
        shown=[(one, " · ".join(filter(None, _source_of(snapshot.entries[one.id])))) for one in shown],
        total=len(summaries),
        categories=sorted(Counter(one.category for one in matches).items()),
        matching=len(matches),
        search=visit.query("q"),
        category=category,
        problems=[_problem(entry) for entry in snapshot.problems],
        shadowed=[(hidden.file.id, hidden.location, by.location) for hidden, by in snapshot.shadowed],
    )


def _source_of(entry: CatalogEntry) -> tuple[str, str]:
    return entry.source, entry.provenance


def _problem(entry: CatalogEntry) -> tuple[str, str, str, list[str]]:
    """The id that a document claims, its location, the kind of its problem, and each issue."""
    refusal = entry.file.refusal
    if refusal is None:
        return entry.file.id, entry.location, "", []
    return entry.file.id, entry.location, refusal.message, issues_of(refusal)


def issues_of(refusal: WorkflowLookupError) -> list[str]:
    """The issues of a document, without its location."""
    return list(refusal.data.get("issues") or [refusal.data.get("details") or "It cannot be read."])


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the list: its node in the picture, and what the picture has no room for."""

    node: GraphNode
    depth: int
    prompt: str = ""
    role: str = ""
    criteria: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()
    guidance: tuple[str, ...] = ()


async def workflow(visit: Visit) -> Response:
    workflow_id = visit.path_param("workflow")
    entry = visit.services.catalog.snapshot().entries.get(workflow_id)
    if entry is not None and entry.file.refusal is not None:
        return visit.page("invalid_workflow.html", section="library", problem=_problem(entry))
    shown, is_current = find_workflow(visit, workflow_id)
    graph = draw(shown)
    latest, are_more = page_of(visit, RunQuery(workflow_id=workflow_id), MAX_LATEST_RUNS)
    return visit.page(
        "workflow.html",
        section="library",
        workflow=shown,
        about=str(shown.document.get("about") or ""),
        source=entry.location if entry else "",
        is_current=is_current,
        flow=Markup(as_fragment(graph, "step")),  # noqa: S704 - we generated and escaped it
        steps=[_shown_step(shown, node) for node in graph.nodes()],
        versions=versions_of(visit, workflow_id),
        runs=latest,
        are_more=are_more,
    )


def _shown_step(workflow: Workflow, node: GraphNode) -> ShownStep:
    step = workflow.steps[node.id]
    depth = len(workflow.enclosing[node.id])
    if isinstance(step, LoopStep):
        return ShownStep(node=node, depth=depth)
    return ShownStep(
        node=node,
        depth=depth,
        prompt=step.prompt or (pretty(step.prompt_blocks) if step.prompt_blocks else ""),
        role=step.agent_role,
        criteria=tuple(one.sentence for one in step.requirements),
        proofs=tuple(proof.describe() for proof in step.proofs),
        guidance=step.guidance,
    )


async def changes(visit: Visit) -> Response:
    workflow_id = visit.path_param("workflow")
    versions = versions_of(visit, workflow_id)
    if not versions:
        raise PageNotFound("workflow")
    before = _chosen(versions, visit.query("before"), versions[min(1, len(versions) - 1)])
    after = _chosen(versions, visit.query("after"), versions[0])
    old, new = (document_of_version(visit, workflow_id, one) for one in (before, after))
    return visit.page(
        "changes.html",
        section="library",
        workflow=new,
        versions=versions,
        before=before,
        after=after,
        sections=compare(old, new),
    )


def _chosen(versions: list[WorkflowVersion], digest: str, default: WorkflowVersion) -> WorkflowVersion:
    if not digest:
        return default
    version = next((one for one in versions if one.hash == digest), None)
    if version is None:
        raise PageNotFound("version")
    return version
