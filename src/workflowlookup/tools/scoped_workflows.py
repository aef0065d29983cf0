"""What one caller sees of the workflows that are tools, and of the work behind them; see `tools.scoped`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from workflowlookup.access import Access
from workflowlookup.core.model import Workflow
from workflowlookup.providers.config import LIBRARY, Plan
from workflowlookup.providers.definition import document_id
from workflowlookup.tools import workflow_refresh, workflow_search
from workflowlookup.tools.contract import Tool
from workflowlookup.tools.registry import Registry

if TYPE_CHECKING:
    from workflowlookup.providers.discovery import Discovered
    from workflowlookup.tools.dynamic import DynamicTools, Offer


class ScopedWorkflows:
    """The workflow tools of a caller: those of the server that they may read, in a registry of their own."""

    def __init__(self, whole: "DynamicTools", access: Access, bring_up_to_date: Callable[[], None]) -> None:
        """`bring_up_to_date` has the server look what workflows there are, when anything has changed."""
        self._whole = whole
        self._access = access
        self._bring_up_to_date = bring_up_to_date
        self._registry: Registry | None = None
        self._seen: object = None
        self._offers: Mapping[str, Offer] = {}
        self._shown: tuple[object, ...] = ()
        """What the registry was last told: the offers, and the settings."""

    @property
    def plan(self) -> Plan:
        return self._whole.plan

    @property
    def offers(self) -> Mapping[str, "Offer"]:
        """By the name of the tool, in its order."""
        everything = self._whole.offers
        if everything is not self._seen:
            self._seen = everything
            self._offers = {name: offer for name, offer in everything.items() if self._sees(offer.workflow_id)}
        return self._offers

    def _sees(self, workflow_id: str) -> bool:
        return self._access.may("read", workflow_id)

    def attach(self, registry: Registry) -> None:
        self._registry = registry
        self._shown = ()

    def refresh_if_changed(self) -> bool:
        self._bring_up_to_date()
        offers, plan = self.offers, self.plan
        if self._registry is None or (self._shown and self._shown[0] is offers and self._shown[1] is plan):
            return False
        self._shown = (offers, plan)
        return self._registry.replace(self._tools(self._registry, [offer.tool for offer in offers.values()]))

    def _tools(self, registry: Registry, tools: list[Tool]) -> list[Tool]:
        """The tools, or what stands for them when the list would be too long."""
        if not self.plan.is_on:
            return []
        size = len(msgspec.json.encode([tool.describe() for tool in (*registry.built_in.values(), *tools)]))
        return [workflow_refresh.TOOL, *([workflow_search.TOOL] if size > self.plan.budget_bytes else tools)]

    def resolve(self, wanted: str) -> Workflow | None:
        self._bring_up_to_date()
        offers = self.offers
        offer = offers.get(wanted) or next((one for one in offers.values() if one.workflow_id == wanted), None)
        return self._whole.resolve(offer.tool.name) if offer is not None else None

    def folded(self, name: str) -> Tool | None:
        offer = self.offers.get(name)
        return offer.tool if offer is not None else None

    def default_timeout(self, workflow: Workflow) -> float | None:
        return self._whole.default_timeout(workflow)

    def abilities(self, provider: str) -> frozenset[str] | None:
        return self._whole.abilities(provider)

    def discovered(self) -> Mapping[str, "Discovered"]:
        """What is known of the providers that have something for this caller, and nothing else of these."""
        everything = self._whole.discovered()
        if self._access.sees_all:
            return everything
        parts = {name: self._part_of(found) for name, found in everything.items()}
        return {name: part for name, part in parts.items() if part.definitions}

    def _part_of(self, found: "Discovered") -> "Discovered":
        seen = tuple(
            one
            for one in found.definitions
            if self._sees(one.id if one.provider == LIBRARY else document_id(one.provider, one.id))
        )
        return msgspec.structs.replace(found, definitions=seen)


class ScopedExecution:
    """The server's own work, as far as a caller may know of it."""

    def __init__(self, whole: Any, access: Access, sees_run: Callable[[str], bool]) -> None:
        self._whole = whole
        self._access = access
        self._sees_run = sees_run

    def progress(self, run_id: str) -> Any:
        return self._whole.progress(run_id) if self._sees_run(run_id) else None

    def refresh(self) -> Any:
        """For those who may have providers asked again."""
        self._access.need("admin")
        return self._whole.refresh()
