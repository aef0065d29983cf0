"""`workflow_search`: finds workflows when there are too many for a tool each."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.language.values import Json
from workflowlookup.tools.arguments import StructArguments
from workflowlookup.tools.contract import Caller, Services, Tool

if TYPE_CHECKING:
    from workflowlookup.tools.dynamic import Offer

MOST_FOUND: Final = 50


class SearchArguments(msgspec.Struct):
    """What `workflow_search` takes."""

    query: Annotated[str | None, Meta(description="Words; none finds all", extra_json_schema={"maxLength": 1_000})] = (
        None
    )
    category: Annotated[str | None, Meta(description="Only of this category")] = None
    provider: Annotated[str | None, Meta(description="Only of this provider; 'library' is our own")] = None
    limit: Annotated[
        int | None,
        Meta(description="At most so many", extra_json_schema={"minimum": 1, "maximum": MOST_FOUND}),
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
    found = [_view(offers[name]) for _, name in ranked[:limit]]
    told = "Call workflow_start with the workflowId and, as input, what its inputSchema asks for."
    return {"workflows": found, "total": len(ranked), "next": told if found else "Try other words, or none to see all."}


def _score(offer: "Offer", words: list[str]) -> int:
    """How well a workflow fits the words; 0 when it fits none."""
    if not words:
        return 1
    about = offer.definition
    places = ((about.name, 4), (about.id, 4), (about.category, 2), (about.provider, 2), (about.description, 1))
    score = 0
    for place, weight in places:
        text = place.lower()
        whole = set(re.findall(r"\w+", text))
        score += sum(weight * (3 if word in whole else 1) for word in words if word in text)
    return score


def _view(offer: "Offer") -> dict[str, Json]:
    about = offer.definition
    return {
        "workflowId": offer.workflow_id,
        "tool": offer.tool.name,
        "name": about.name,
        "description": about.description,
        "category": about.category,
        "version": about.version,
        "provider": about.provider,
        "inputSchema": about.input_schema,
    }


TOOL = Tool(
    name="workflow_search",
    title="Find workflows",
    description=(
        "Finds workflows by words in their name, id, category, provider and description, with what each asks for. "
        "Start one with workflow_start. Stands in for one tool per workflow when there are too many of them."
    ),
    arguments=StructArguments(SearchArguments),
    output_schema={
        "type": "object",
        "properties": {
            "workflows": {"type": "array", "items": {"type": "object"}, "description": "Best matches first."},
            "total": {"type": "integer", "description": "How many match."},
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
