"""`workflow_refresh`: reads the library and the settings again, and polls every provider."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from workflowlookup.language.values import Json
from workflowlookup.tools.arguments import StructArguments
from workflowlookup.tools.contract import Caller, Outcome, Pending, Result, Services, Tool, WorkflowTools

if TYPE_CHECKING:
    from workflowlookup.providers.discovery import ProviderListing
    from workflowlookup.tools.dynamic import Offer


class RefreshArguments(msgspec.Struct):
    """`workflow_refresh` takes no arguments."""


def handle(services: Services, _: RefreshArguments, caller: Caller) -> Outcome:
    from workflowlookup.tools.elicitation import elicit_trust  # noqa: PLC0415 - with the first question

    if (elicitation := elicit_trust(services, services.consent.ignored(), caller)) is not None:
        return elicitation
    workflows = services.workflows
    assert workflows is not None  # only servers with workflow tools have this tool
    before = _descriptions(workflows.offers)
    services.reload()
    if not workflows.plan.providers:
        workflows.refresh_if_changed()
        return _answer(before, workflows)
    refresh = services.execution.refresh()

    def poll() -> Result | None:
        if not refresh.done():
            return None
        workflows.refresh_if_changed()
        return _answer(before, workflows)

    return Pending(run_id="", poll=poll, progress=lambda: None, abandon=lambda _: None)


def _descriptions(offers: Mapping[str, "Offer"]) -> dict[str, bytes]:
    return {name: msgspec.json.encode(offer.tool.describe()) for name, offer in offers.items()}


def _answer(before: Mapping[str, bytes], workflows: WorkflowTools) -> dict[str, Json]:
    after = _descriptions(workflows.offers)
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
        "tools": len(after),
        "providers": {name: _state(provider) for name, provider in workflows.discovered().items()},
    }


def _state(provider: "ProviderListing") -> dict[str, Json]:
    cause: dict[str, Json] = {"cause": provider.cause} if provider.is_away else {}
    return {"state": provider.state, "workflows": len(provider.definitions), **cause}


TOOL = Tool(
    name="workflow_refresh",
    title="Refresh workflows",
    description="Looks for new workflows now; says which tools changed.",
    arguments=StructArguments(RefreshArguments),
    output_schema={
        "type": "object",
        "properties": {
            "added": {"type": "array", "items": {"type": "string"}, "description": "Tool names."},
            "removed": {"type": "array", "items": {"type": "string"}},
            "changed": {"type": "array", "items": {"type": "string"}},
            "tools": {"type": "integer", "description": "Number of workflow tools."},
            "providers": {
                "type": "object",
                "description": "By name: state, number of workflows, cause if it does not answer.",
            },
        },
        "required": ["added", "removed", "changed", "tools", "providers"],
    },
    example=(
        {},
        {
            "added": ["deploy_a_service"],
            "removed": [],
            "changed": [],
            "tools": 11,
            "providers": {"ci": {"state": "ready", "workflows": 1}},
        },
    ),
    handler=handle,
    idempotent=True,
    open_world=True,
)
