"""Queries providers for their workflows, and MCP servers for their tools, once, for `doctor` and `tools`."""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup import extras
from workflowlookup.app import make_catalog
from workflowlookup.errors import ProviderUnavailable
from workflowlookup.providers.config import Plan
from workflowlookup.providers.discovery import ProviderListing, first_problems, list_provider
from workflowlookup.providers.provider import Provider, make_provider
from workflowlookup.providers.upstream import Upstreams
from workflowlookup.settings import Settings
from workflowlookup.tools.builtin import BUILTIN_TOOLS
from workflowlookup.tools.contract import ServerServices
from workflowlookup.tools.dynamic import DynamicTools
from workflowlookup.tools.registry import Registry

TIMEOUT_SECONDS: Final = 30.0
"""Time limit for the answer of each system."""
TIMED_OUT: Final = f"it did not answer within {TIMEOUT_SECONDS:g} seconds"


def unreachable(kind: str, name: str, cause: str) -> str:
    """`the provider 'ci' does not answer: …`; only the cause if it names the system already."""
    subject = f"the {kind} '{name}'"
    return cause if cause.startswith(subject) else f"{subject} does not answer: {cause}"


def reconnect_advice(table: str, cause: str) -> str:
    """What to do about a system that does not answer; `table` is its table in the settings."""
    if extras.is_missing(extras.CALLS):
        return extras.how_to_install(extras.CALLS)
    if cause.endswith("which is not set"):
        return "Set the variable where workflowlookup is started; for a client, in `env` of its entry."
    return f"Start it, or fix [{table}] in the settings."


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of an MCP server, or why it did not answer."""

    tools: tuple[str, ...] = ()
    cause: str = ""


class SystemAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all systems."""

    providers: Mapping[str, ProviderListing]
    servers: Mapping[str, ServerAnswer]
    remarks: tuple[str, ...] = ()
    """What is wrong with single workflows of providers."""


def query_systems(plan: Plan, *, servers: bool = False) -> SystemAnswers:
    """Query every provider of the plan and, with `servers`, every MCP server, concurrently."""
    if not plan.providers and not (servers and plan.servers):
        return SystemAnswers(providers={}, servers={})
    if extras.is_missing(extras.CALLS):
        cause = f"it needs the extra '{extras.CALLS}', which is not installed"
        away = dict.fromkeys(plan.servers if servers else (), ServerAnswer(cause=cause))
        return SystemAnswers(
            providers=dict.fromkeys(plan.providers, ProviderListing(is_away=True, cause=cause)), servers=away
        )
    return asyncio.run(_query(plan, servers=servers))


async def _query(plan: Plan, *, servers: bool) -> SystemAnswers:
    upstreams = Upstreams(plan.servers)
    providers = {name: make_provider(config, upstreams) for name, config in plan.providers.items()}
    names = list(plan.servers if servers else ())
    try:
        listed, answers = await asyncio.gather(
            asyncio.gather(*map(_list, providers.values())),
            asyncio.gather(*(_tools(upstreams, name) for name in names)),
        )
    finally:
        for provider in providers.values():
            await provider.aclose()
        await upstreams.aclose()
    listings = dict(zip(providers, listed, strict=True))
    return SystemAnswers(
        providers={name: listing for name, (listing, _) in listings.items()},
        servers=dict(zip(names, answers, strict=True)),
        remarks=tuple(
            f"provider '{name}': {problem}"
            for name, (_, problems) in listings.items()
            for problem in first_problems(problems)
        ),
    )


async def _list(provider: Provider) -> tuple[ProviderListing, list[str]]:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await list_provider(provider)
    except TimeoutError:
        return ProviderListing(is_away=True, cause=TIMED_OUT), []


async def _tools(upstreams: Upstreams, name: str) -> ServerAnswer:
    try:
        return ServerAnswer(tools=tuple(tool.name for tool in await upstreams.tools(name, timeout=TIMEOUT_SECONDS)))
    except ProviderUnavailable as problem:
        return ServerAnswer(cause=str(problem.data.get("cause") or problem.remedy).rstrip("."))
    except TimeoutError:
        return ServerAnswer(cause=TIMED_OUT)


def workflow_tools(
    settings: Settings, plan: Plan, answers: SystemAnswers, services: ServerServices | None = None
) -> DynamicTools:
    """The workflow tools that a server would have with these answers; with `services`, under their stored names."""
    services = services or ServerServices(catalog=make_catalog(settings))
    tools = DynamicTools(services, plan, discovered=lambda: answers.providers)
    tools.attach(Registry(BUILTIN_TOOLS, services))
    tools.refresh_if_changed()
    return tools
