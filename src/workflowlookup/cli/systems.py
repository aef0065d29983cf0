"""Other systems, asked once and then left: what providers have and servers offer, for commands that tell about them."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup.app import make_catalog
from workflowlookup.errors import ProviderAway
from workflowlookup.providers.config import Plan
from workflowlookup.providers.discovery import Discovered, Discovery
from workflowlookup.providers.kinds import make_provider
from workflowlookup.providers.provider import Provider
from workflowlookup.providers.upstream import Upstreams
from workflowlookup.settings import Settings
from workflowlookup.tools import BUILTIN_TOOLS
from workflowlookup.tools.contract import ServerServices
from workflowlookup.tools.dynamic import DynamicTools
from workflowlookup.tools.registry import Registry

PATIENCE: Final = 30.0
"""Seconds that each of them has for its answer."""


def unreachable(kind: str, name: str, cause: str) -> str:
    """`the provider 'ci' does not answer: …`, once where the cause names it already."""
    subject = f"the {kind} '{name}'"
    return cause if cause.startswith(subject) else f"{subject} does not answer: {cause}"


def reconnect_advice(entry: str, cause: str) -> str:
    """What to do about a system that does not answer; `entry` is its table in the settings."""
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

    providers: Mapping[str, Discovered]
    servers: Mapping[str, ServerAnswer]
    remarks: tuple[str, ...] = ()
    """What is wrong with single workflows."""


def ask_systems(plan: Plan, *, servers: bool = False) -> Asked:
    """Ask every provider of the plan for its workflows and, if wanted, every server for its tools, all at once."""
    if not plan.providers and not (servers and plan.servers):
        return Asked(providers={}, servers={})
    return asyncio.run(_ask(plan, servers=servers))


async def _ask(plan: Plan, *, servers: bool) -> Asked:
    upstreams = Upstreams(plan.servers)
    providers = {name: make_provider(config, upstreams) for name, config in plan.providers.items()}
    remarks = _Remarks()
    logger = logging.getLogger("workflowlookup.providers.discovery")
    logger.addHandler(remarks)
    logger.propagate = False  # what goes wrong is told by the command
    logger.setLevel(logging.WARNING)  # however quiet the command is otherwise
    try:
        names = list(plan.servers if servers else ())
        found, answers = await asyncio.gather(
            _discover(providers), asyncio.gather(*(_tools(upstreams, name) for name in names))
        )
    finally:
        logger.removeHandler(remarks)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
        for provider in providers.values():
            await provider.aclose()
        await upstreams.aclose()
    return Asked(providers=found, servers=dict(zip(names, answers, strict=True)), remarks=tuple(remarks.lines))


class _Remarks(logging.Handler):
    """Keeps what discovery has to say of single workflows."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("provider "):
            self.lines.append(record.getMessage())


async def _discover(providers: Mapping[str, Provider]) -> Mapping[str, Discovered]:
    discovery = Discovery(lambda: None)
    try:
        async with asyncio.timeout(PATIENCE):
            discovery.apply(providers, 0)
            await discovery.refresh()
    except TimeoutError:
        pass  # those that did not answer have not been listed
    finally:
        await discovery.aclose()
    late = Discovered(is_away=True, cause=f"it did not answer within {PATIENCE:g} seconds")
    return {name: found if found.is_listed or found.is_away else late for name, found in discovery.snapshot().items()}


async def _tools(upstreams: Upstreams, name: str) -> ServerAnswer:
    try:
        return ServerAnswer(tools=tuple(tool.name for tool in await upstreams.tools(name, timeout=PATIENCE)))
    except ProviderAway as problem:
        return ServerAnswer(cause=str(problem.data.get("cause") or problem.remedy).rstrip("."))
    except TimeoutError:
        return ServerAnswer(cause=f"it did not answer within {PATIENCE:g} seconds")


def workflow_tools(
    settings: Settings, plan: Plan, asked: Asked, services: ServerServices | None = None
) -> DynamicTools:
    """The workflow tools that a server would have by what was said; with `services`, under the names that are kept."""
    services = services or ServerServices(catalog=make_catalog(settings))
    tools = DynamicTools(services, plan, discovered=lambda: asked.providers)
    tools.attach(Registry(BUILTIN_TOOLS, services))
    tools.refresh_if_changed()
    return tools
