"""The part of the checkup about workflow tools: filters, providers, and the MCP servers that steps call."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup import extras
from workflowlookup.cli.provider_queries import Asked, ask_systems, reconnect_advice, unreachable, workflow_tools
from workflowlookup.language.model import PromptStep, ToolCall, WorkflowCall
from workflowlookup.language.schemas import suggest
from workflowlookup.language.text import first_few
from workflowlookup.library.catalog import Catalog
from workflowlookup.providers.config import LIBRARY, FilterPattern, Filters, ProviderConfig, ServerConfig
from workflowlookup.providers.definition import Definition
from workflowlookup.settings import Settings, plan_of

MAX_SHOWN: Final = 20


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the report."""


class Problem(Record, frozen=True, kw_only=True):
    """Something that is wrong, and what to do about it."""

    problem: str
    remedy: str


class PatternState(Record, frozen=True, kw_only=True):
    """A pattern of the filters, and what it stands for."""

    setting: str
    pattern: str
    workflows: int
    examples: tuple[str, ...]


class SystemState(Record, frozen=True, kw_only=True):
    """Another system: whether it is `ready` or `away`, and why."""

    name: str
    state: str
    cause: str = ""


class ProviderState(SystemState, frozen=True, kw_only=True):
    """A system that has workflows."""

    kind: str
    workflows: int


class ServerState(SystemState, frozen=True, kw_only=True):
    """An MCP server that steps can call."""

    where: str
    tools: int


class UnknownCall(Record, frozen=True, kw_only=True):
    """A `call` in a workflow of the library that would lead nowhere."""

    workflow: str
    what: str
    remedy: str


class ToolsReport(Record, frozen=True, kw_only=True):
    """Workflows as tools."""

    is_on: bool
    tools: int
    is_folded: bool
    patterns: tuple[PatternState, ...]
    providers: tuple[ProviderState, ...]
    servers: tuple[ServerState, ...]
    unknown_calls: tuple[UnknownCall, ...]
    remarks: tuple[str, ...]


def examine_tools(settings: Settings, catalog: Catalog) -> ToolsReport:
    """Ask every provider and every server once, and see whether the calls of the library lead to one of them."""
    plan = plan_of(settings)
    asked = ask_systems(plan, servers=True)
    everything = workflow_tools(settings, msgspec.structs.replace(plan, filters=Filters(), is_on=True), asked)
    tools = workflow_tools(settings, plan, asked)
    definitions = [offer.definition for offer in everything.offers.values()]
    own = sum(definition.provider == LIBRARY for definition in definitions)
    library = ProviderState(name=LIBRARY, kind=LIBRARY, state="ready", workflows=own)
    return ToolsReport(
        is_on=plan.is_on,
        tools=len(tools.offers),
        is_folded=tools.is_over_budget,
        patterns=(
            *_patterns("include", plan.filters.include, definitions),
            *_patterns("exclude", plan.filters.exclude, definitions),
        ),
        providers=(library, *_providers(plan.providers, asked)),
        servers=tuple(_servers(plan.servers, asked)),
        unknown_calls=tuple(_unknown_calls(catalog, settings, asked)),
        remarks=asked.remarks,
    )


def _unknown_calls(catalog: Catalog, settings: Settings, asked: Asked) -> Iterator[UnknownCall]:
    for workflow in catalog.workflows():
        for step in workflow.every_step:
            match step:
                case PromptStep(call=ToolCall() as call):
                    unknown = _unknown_tool(call, settings, asked)
                case PromptStep(call=WorkflowCall() as call):
                    unknown = _unknown_workflow(call, settings, asked)
                case _:
                    continue
            if unknown:
                yield UnknownCall(workflow=workflow.id, what=unknown[0], remedy=unknown[1])


def _unknown_tool(call: ToolCall, settings: Settings, asked: Asked) -> tuple[str, str] | None:
    """What a call of a tool names that is not there, and what to do; None when nothing is known to be wrong."""
    if call.server not in settings.servers:
        why, remedy = _missing(f"mcpServers.{call.server}", "server", settings)
        return f"the MCP server '{call.server}', {why}", remedy
    answer = asked.servers[call.server]
    if answer.cause or call.tool in answer.tools:
        return None
    return (
        f"the tool {suggest(call.tool, answer.tools)} of the MCP server '{call.server}', which has no such tool",
        f"Fix 'tool' in the workflow. It has: {_few(answer.tools)}.",
    )


def _unknown_workflow(call: WorkflowCall, settings: Settings, asked: Asked) -> tuple[str, str] | None:
    """The same of a call of another system's workflow."""
    if call.provider not in settings.providers:
        why, remedy = _missing(f"providers.{call.provider}", "provider", settings)
        return f"the provider '{call.provider}', {why}", remedy
    found = asked.providers[call.provider]
    ids = [definition.id for definition in found.definitions]
    if found.is_away or call.workflow in ids:
        return None
    return (
        f"the workflow {suggest(call.workflow, ids)} of the provider '{call.provider}', which lists no such workflow",
        f"Fix 'workflow' in the workflow. It lists: {_few(ids)}.",
    )


def _missing(entry: str, field: str, settings: Settings) -> tuple[str, str]:
    """Why the settings have no such entry (`providers.ci`) in force, and what to do; a call names it in `field`."""
    if entry in settings.left_out:
        return "which is ignored because of a mistake", f"Fix [{entry}] in the settings."
    if any(f"{ignored.kind}.{ignored.name}" == entry for ignored in settings.ignored):
        return "which is not trusted yet", f"Look at [{entry}] and allow it in a terminal: `workflowlookup trust`."
    return "which the settings do not have", f"Add [{entry}] to the settings, or fix '{field}' in the workflow."


def _few(names: Sequence[str]) -> str:
    return first_few(names, MAX_SHOWN) or "nothing"


def _patterns(setting: str, patterns: Sequence[str], definitions: Sequence[Definition]) -> Iterator[PatternState]:
    for text in patterns:
        pattern = FilterPattern(text)
        meant = [definition.id for definition in definitions if pattern.matches(definition)]
        yield PatternState(setting=setting, pattern=text, workflows=len(meant), examples=tuple(meant[:MAX_SHOWN]))


def _providers(configured: Mapping[str, ProviderConfig], asked: Asked) -> Iterator[ProviderState]:
    for name, config in configured.items():
        found = asked.providers[name]
        state = "away" if found.is_away else "ready"
        yield ProviderState(
            name=name, kind=config.kind, state=state, workflows=len(found.definitions), cause=found.cause
        )


def _servers(configured: Mapping[str, ServerConfig], asked: Asked) -> Iterator[ServerState]:
    for name, config in configured.items():
        answer = asked.servers[name]
        state = "away" if answer.cause else "ready"
        yield ServerState(name=name, where=_where(config), state=state, tools=len(answer.tools), cause=answer.cause)


def _where(server: ServerConfig) -> str:
    """Where a server is, without anything that may be secret."""
    if server.command:
        return server.command
    where = re.sub(r"://[^/?#]*@", "://", server.url.partition("?")[0])
    return where.partition("#")[0]


def tools_problems(report: ToolsReport, settings: Settings) -> Iterator[Problem]:
    for entry, problem in settings.left_out.items():
        yield Problem(
            problem=f"[{entry}] is ignored: {problem}.",
            remedy="Fix the entry; until then the server works without it.",
        )
    for call in dict.fromkeys(report.unknown_calls):
        yield Problem(problem=f"The workflow '{call.workflow}' calls {call.what}.", remedy=call.remedy)
    for pattern in report.patterns:
        if not pattern.workflows:
            origin = settings.origins[pattern.setting]
            yield Problem(
                problem=f"The pattern '{pattern.pattern}' of {pattern.setting} fits no workflow ({origin}).",
                remedy="Fix it or remove it: `workflowlookup tools` shows ids, names and providers.",
            )
    systems: Sequence[tuple[str, str, Sequence[SystemState]]] = (
        ("provider", "providers", report.providers),
        ("MCP server", "mcpServers", report.servers),
    )
    for kind, table, states in systems:
        for system in states:
            if system.state == "away" and not extras.is_missing(extras.CALLS):  # which is a problem of its own
                yield Problem(
                    problem=_sentence(unreachable(kind, system.name, system.cause)),
                    remedy=reconnect_advice(f"{table}.{system.name}", system.cause),
                )
    for remark in report.remarks:
        yield Problem(problem=_sentence(remark), remedy="Fix the definition in the system that has it.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
