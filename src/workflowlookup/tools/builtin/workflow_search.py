"""`workflow_search`: finds workflows, when there are too many for one tool each."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.language.values import Json
from workflowlookup.tools.arguments import StructArguments, server_only
from workflowlookup.tools.contract import Caller, Services, Tool

if TYPE_CHECKING:
    from workflowlookup.tools.dynamic import Offer

MAX_MATCHES: Final = 50


class SearchArguments(msgspec.Struct):
    """What `workflow_search` takes."""

    query: Annotated[str | None, Meta(description="Words; none matches all"), server_only("", maxLength=1_000)] = None
    category: Annotated[str | None, Meta(description="Only this category")] = None
    provider: Annotated[str | None, Meta(description="Only this provider, or 'library'")] = None
    limit: Annotated[
        int | None,
        server_only("Maximum number", minimum=1, maximum=MAX_MATCHES),
    ] = None


def handle(services: Services, arguments: SearchArguments, _: Caller) -> Mapping[str, Json]:
    workflows = services.workflows
    offers = workflows.offers if workflows is not None else {}
    words = re.findall(r"\w+", (arguments.query or "").lower())
    provider, category = arguments.provider, arguments.category
    ranked = sorted(
        (
            (-score, name)
            for name, offer in offers.items()
            if (provider is None or offer.definition.provider == provider)
            and (category is None or offer.definition.category == category)
            and (score := _score(offer, words))
        ),
    )
    limit = arguments.limit or 10
    matches = [_view(offers[name]) for _, name in ranked[:limit]]
    advice = "Call workflow_start with the workflowId and, as input, what its inputSchema asks for."
    if not matches:
        advice = "Try other words, or none to see all."
    return {"workflows": matches, "total": len(ranked), "next": advice}


def _score(offer: "Offer", words: list[str]) -> int:
    """How well a workflow matches the words; 0 if it has none of them."""
    if not words:
        return 1
    workflow = offer.definition
    fields = (
        *((workflow.name, 4), (workflow.id, 4), (workflow.category, 2)),
        *((workflow.provider, 2), (workflow.description, 1)),
    )
    score = 0
    for field, weight in fields:
        text = field.lower()
        whole_words = set(re.findall(r"\w+", text))
        score += sum(weight * (3 if word in whole_words else 1) for word in words if word in text)
    return score


def _view(offer: "Offer") -> dict[str, Json]:
    workflow = offer.definition
    return {
        "workflowId": offer.workflow_id,
        "tool": offer.tool.name,
        "name": workflow.name,
        "description": workflow.description,
        "category": workflow.category,
        "version": workflow.version,
        "provider": workflow.provider,
        "inputSchema": workflow.input_schema,
    }


TOOL = Tool(
    name="workflow_search",
    title="Find workflows",
    description=(
        "Finds workflows (playbooks, checklists, procedures) by words, with the input that each needs. Run one with "
        "workflow_start. There are too many here for a tool each."
    ),
    arguments=StructArguments(SearchArguments),
    output_schema={
        "type": "object",
        "properties": {
            "workflows": {"type": "array", "items": {"type": "object"}, "description": "Best matches first."},
            "total": {"type": "integer", "description": "Number of matches."},
            "next": {"type": "string"},
        },
        "required": ["workflows", "total"],
    },
    example=(
        {"query": "deploy"},
        {
            "workflows": [
                {
                    "workflowId": "ci.deploy",
                    "tool": "deploy_a_service",
                    "name": "Deploy a service",
                    "description": "Puts a service into production.",
                    "category": "operations",
                    "version": "2.1.0",
                    "provider": "ci",
                    "inputSchema": {"type": "object", "properties": {"service": {"type": "string"}}},
                }
            ],
            "total": 1,
            "next": "Call workflow_start with the workflowId and, as input, what its inputSchema asks for.",
        },
    ),
    handler=handle,
)
