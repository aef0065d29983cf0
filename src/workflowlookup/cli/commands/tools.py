"""`workflowlookup tools`: lists the workflows that are tools, with their names and providers."""

import argparse
from collections.abc import Mapping
from typing import Any

from workflowlookup.app import make_services
from workflowlookup.cli.output import CommandError, complain, write_hint, write_json, write_records
from workflowlookup.cli.provider_queries import query_systems, reconnect_advice, unreachable, workflow_tools
from workflowlookup.language.text import plural
from workflowlookup.providers.config import LIBRARY
from workflowlookup.providers.discovery import ProviderListing
from workflowlookup.settings import Settings, plan_of
from workflowlookup.tools.dynamic import Offer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the tools as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    plan = plan_of(settings)
    if not plan.is_on:
        origin = settings.origins["workflow_tools"]
        raise CommandError(f"workflows are not offered as tools, because workflow_tools is false ({origin}).")
    answers = query_systems(plan)
    services = make_services(settings)
    tools = workflow_tools(settings, plan, answers, services)
    rows = [_row(name, offer, answers.providers) for name, offer in tools.offers.items()]
    services.close()
    left_out = settings.left_out
    away = {name: listing.cause for name, listing in answers.providers.items() if listing.is_away}
    if options.json:
        remarks = list(answers.remarks)
        answer = {"tools": rows, "folded": tools.is_over_budget, "away": away, "leftOut": left_out, "remarks": remarks}
        write_json(answer)
        return int(bool(away or left_out))
    if rows:
        write_records(rows, ("name", "workflow", "provider", "state"), cut=True)
    else:
        complain("no workflow is a tool. `workflowlookup doctor` shows what the filters match.")
    if tools.is_over_budget:
        write_hint(
            f"{plural(len(rows), 'tool')} would take more than tools_budget_bytes ({plan.budget_bytes:,}): clients see "
            "workflow_search and workflow_start in their place."
        )
    for remark in answers.remarks:
        complain(remark)
    for name, cause in away.items():
        complain(f"{unreachable('provider', name, cause)}. {reconnect_advice(f'providers.{name}', cause)}")
    for table, problem in left_out.items():
        complain(f"[{table}] is ignored; the rest works: {problem}. Fix the entry.")
    return int(bool(away or left_out))


def _row(name: str, offer: Offer, providers: Mapping[str, ProviderListing]) -> dict[str, Any]:
    definition = offer.definition
    listing = providers.get(definition.provider)
    state = "ready" if definition.provider == LIBRARY or (listing and not listing.is_away) else "away"
    return {
        "name": name,
        "workflow": definition.id,
        "provider": definition.provider,
        "state": state,
        "title": definition.name,
        "category": definition.category,
        "version": definition.version,
    }


EXAMPLES = """\
  workflowlookup tools                                what clients see, in addition to the built-in tools
  workflowlookup tools --include 'category:ops'       what they would see with this filter
  workflowlookup tools --json | jq '.tools[].name'    for a script"""
