"""Pages of the library: what there is and what is wrong with it, a workflow, and two of its versions compared."""

from collections import Counter
from typing import Final

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from workflowlookup.authoring.compare import compare
from workflowlookup.authoring.graph import Node, draw
from workflowlookup.authoring.svg import as_fragment
from workflowlookup.console.queries import Version, document_of_version, find_workflow, page_of, versions_of
from workflowlookup.console.rendering import pretty
from workflowlookup.console.request import NotThere, Visit
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.model import LoopStep, Workflow
from workflowlookup.library.catalog import CatalogEntry
from workflowlookup.store.journal import RunQuery

LATEST: Final = 8
"""How many runs the page of a workflow shows."""


async def library(visit: Visit) -> Response:
    snapshot = visit.services.catalog.snapshot()
    seen = snapshot.summaries
    words, category = visit.asked("q").casefold().split(), visit.asked("category")
    fit = [one for one in seen if all(word in f"{one.id} {one.name} {one.description}".casefold() for word in words)]
    shown = [one for one in fit if category in ("", one.category)]
    return visit.page(
        "library.html",
        place="library",
        shown=[(one, snapshot.entries[one.id].source) for one in shown],
        total=len(seen),
        categories=sorted(Counter(one.category for one in fit).items()),
        fitting=len(fit),
        asked=visit.asked("q"),
        category=category,
        problems=[_problem(entry) for entry in snapshot.problems],
        shadowed=[(hidden.file.id, _named(hidden), _named(by)) for hidden, by in snapshot.shadowed],
    )


def _named(entry: CatalogEntry) -> str:
    """Where a document is."""
    return f"{entry.source}: {entry.file.path}"


def _problem(entry: CatalogEntry) -> tuple[str, str, str, list[str]]:
    """The id that a document claims, where it is, what kind of problem it has, and each of them."""
    refusal = entry.file.refusal
    if refusal is None:
        return entry.file.id, _named(entry), "", []
    return entry.file.id, _named(entry), refusal.message, issues_of(refusal)


def issues_of(refusal: WorkflowLookupError) -> list[str]:
    """What is wrong with a document, without where it is."""
    return list(refusal.data.get("issues") or [refusal.data.get("details") or "It cannot be read."])


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step for the list: what the picture has of it, and what it has no room for."""

    node: Node
    depth: int
    prompt: str = ""
    role: str = ""
    criteria: tuple[str, ...] = ()
    guidance: tuple[str, ...] = ()


async def workflow(visit: Visit) -> Response:
    workflow_id = visit.named("workflow")
    entry = visit.services.catalog.snapshot().entries.get(workflow_id)
    if entry is not None and entry.file.refusal is not None:
        return visit.page("broken.html", place="library", problem=_problem(entry))
    found, is_current = find_workflow(visit, workflow_id)
    graph = draw(found)
    latest, are_more = page_of(visit, RunQuery(workflow_id=workflow_id), LATEST)
    return visit.page(
        "workflow.html",
        place="library",
        workflow=found,
        about=str(found.document.get("about") or ""),
        source=_named(entry) if entry else "",
        is_current=is_current,
        flow=Markup(as_fragment(graph, "step")),  # noqa: S704 - made and escaped by us
        steps=[_shown(found, node) for node in graph.nodes()],
        versions=versions_of(visit, workflow_id),
        runs=latest,
        are_more=are_more,
    )


def _shown(found: Workflow, node: Node) -> ShownStep:
    step = found.steps[node.id]
    depth = len(found.enclosing[node.id])
    if isinstance(step, LoopStep):
        return ShownStep(node=node, depth=depth)
    return ShownStep(
        node=node,
        depth=depth,
        prompt=step.prompt or (pretty(step.prompt_blocks) if step.prompt_blocks else ""),
        role=step.agent_role,
        criteria=tuple(one.sentence for one in step.requirements),
        guidance=step.guidance,
    )


async def changes(visit: Visit) -> Response:
    workflow_id = visit.named("workflow")
    versions = versions_of(visit, workflow_id)
    if not versions:
        raise NotThere("workflow")
    before = _chosen(versions, visit.asked("before"), versions[min(1, len(versions) - 1)])
    after = _chosen(versions, visit.asked("after"), versions[0])
    old, new = (document_of_version(visit, workflow_id, one) for one in (before, after))
    return visit.page(
        "changes.html",
        place="library",
        workflow=new,
        versions=versions,
        before=before,
        after=after,
        sections=compare(old, new),
    )


def _chosen(versions: list[Version], digest: str, default: Version) -> Version:
    if not digest:
        return default
    found = next((one for one in versions if one.hash == digest), None)
    if found is None:
        raise NotThere("version")
    return found
