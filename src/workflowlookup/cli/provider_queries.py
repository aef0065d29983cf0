"""Other systems, asked once and then left: what providers have and servers offer, for commands that tell about them."""

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

PATIENCE: Final = 30.0
"""Seconds that each of them has for its answer."""
LATE: Final = f"it did not answer within {PATIENCE:g} seconds"


def unreachable(kind: str, name: str, cause: str) -> str:
    """`the provider 'ci' does not answer: …`, once where the cause names it already."""
    subject = f"the {kind} '{name}'"
    return cause if cause.startswith(subject) else f"{subject} does not answer: {cause}"


def reconnect_advice(entry: str, cause: str) -> str:
    """What to do about a system that does not answer; `entry` is its table in the settings."""
    if extras.is_missing(extras.CALLS):
        return extras.how_to_install(extras.CALLS)
    if cause.endswith("which is not set"):
        return "Set the variable where workflowlookup is started; for a client, in `env` of its entry."
    return f"Start it, or fix [{entry}] in the settings."


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an MCP server said when it was asked for its tools."""

    tools: tuple[str, ...] = ()
    cause: str = ""
    """Why it said nothing."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them said."""

    providers: Mapping[str, ProviderListing]
    servers: Mapping[str, ServerAnswer]
    remarks: tuple[str, ...] = ()
    """What is wrong with single workflows."""


def ask_systems(plan: Plan, *, servers: bool = False) -> Asked:
    """Ask every provider of the plan for its workflows and, if wanted, every server for its tools, all at once."""
    if not plan.providers and not (servers and plan.servers):
        return Asked(providers={}, servers={})
    if extras.is_missing(extras.CALLS):
        cause = f"it needs the extra '{extras.CALLS}', which is not installed"
        away = dict.fromkeys(plan.servers if servers else (), ServerAnswer(cause=cause))
        return Asked(providers=dict.fromkeys(plan.providers, ProviderListing(is_away=True, cause=cause)), servers=away)
    return asyncio.run(_ask(plan, servers=servers))


async def _ask(plan: Plan, *, servers: bool) -> Asked:
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
    found = dict(zip(providers, listed, strict=True))
    return Asked(
        providers={name: answer for name, (answer, _) in found.items()},
        servers=dict(zip(names, answers, strict=True)),
        remarks=tuple(
            f"provider '{name}': {one}" for name, (_, problems) in found.items() for one in first_problems(problems)
        ),
    )


async def _list(provider: Provider) -> tuple[ProviderListing, list[str]]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await list_provider(provider)
    except TimeoutError:
        return ProviderListing(is_away=True, cause=LATE), []


async def _tools(upstreams: Upstreams, name: str) -> ServerAnswer:
    try:
        return ServerAnswer(tools=tuple(tool.name for tool in await upstreams.tools(name, timeout=PATIENCE)))
    except ProviderUnavailable as problem:
        return ServerAnswer(cause=str(problem.data.get("cause") or problem.remedy).rstrip("."))
    except TimeoutError:
        return ServerAnswer(cause=LATE)


def workflow_tools(
    settings: Settings, plan: Plan, asked: Asked, services: ServerServices | None = None
) -> DynamicTools:
    """The workflow tools that a server would have by what was said; with `services`, under the names that are kept."""
    services = services or ServerServices(catalog=make_catalog(settings))
    tools = DynamicTools(services, plan, discovered=lambda: asked.providers)
    tools.attach(Registry(BUILTIN_TOOLS, services))
    tools.refresh_if_changed()
    return tools
