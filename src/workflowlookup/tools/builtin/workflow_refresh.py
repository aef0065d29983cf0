"""`workflow_refresh`: looks again what workflows there are, in the library, in every provider, and in the settings."""

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
    """What `workflow_refresh` takes: nothing."""


def handle(services: Services, _: RefreshArguments, caller: Caller) -> Outcome:
    from workflowlookup.tools.elicitation import elicit_trust  # noqa: PLC0415 - with the first question

    if (question := elicit_trust(services, services.consent.ignored(), caller)) is not None:
        return question
    workflows = services.workflows
    assert workflows is not None  # who calls this has found it among the tools that it makes
    before = _seen(workflows.offers)
    services.reload()
    if not workflows.plan.providers:
        workflows.refresh_if_changed()
        return _answer(before, workflows)
    asked = services.execution.refresh()

    def poll() -> Result | None:
        if not asked.done():
            return None
        workflows.refresh_if_changed()
        return _answer(before, workflows)

    return Pending(run_id="", poll=poll, progress=lambda: None, abandon=lambda _: None)


def _seen(offers: Mapping[str, "Offer"]) -> dict[str, bytes]:
    return {name: msgspec.json.encode(offer.tool.describe()) for name, offer in offers.items()}


def _answer(before: Mapping[str, bytes], workflows: WorkflowTools) -> dict[str, Json]:
    after = _seen(workflows.offers)
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
        "tools": len(after),
        "providers": {name: _state(found) for name, found in workflows.discovered().items()},
    }


def _state(found: "ProviderListing") -> dict[str, Json]:
    cause: dict[str, Json] = {"cause": found.cause} if found.is_away else {}
    return {"state": found.state, "workflows": len(found.definitions), **cause}


TOOL = Tool(
    name="workflow_refresh",
    title="Look for workflows again",
    description=(
        "Looks again what workflows there are: reads the library and the settings, asks every provider, and says which "
        "tools came, went or changed. It happens by itself, too; call it when something is missing."
    ),
    arguments=StructArguments(RefreshArguments),
    output_schema={
        "type": "object",
        "properties": {
            "added": {"type": "array", "items": {"type": "string"}, "description": "Names of tools."},
            "removed": {"type": "array", "items": {"type": "string"}},
            "changed": {"type": "array", "items": {"type": "string"}},
            "tools": {"type": "integer", "description": "How many workflows are tools now."},
            "providers": {
                "type": "object",
                "description": "By name: state, number of workflows, and why it does not answer.",
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
