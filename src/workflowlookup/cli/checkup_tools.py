"""The part of `workflowlookup doctor` about workflow tools: filters, providers, and MCP servers that steps call."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup import extras
from workflowlookup.cli.provider_queries import (
    SystemAnswers,
    query_systems,
    reconnect_advice,
    unreachable,
    workflow_tools,
)
from workflowlookup.language.formats.schemas import suggest
from workflowlookup.language.model import PromptStep, ToolCall, WorkflowCall
from workflowlookup.language.text import first_few
from workflowlookup.library.catalog import Catalog
from workflowlookup.providers.config import LIBRARY, FilterPattern, Filters, ProviderConfig, ServerConfig
from workflowlookup.providers.definition import Definition
from workflowlookup.settings import Settings, plan_of

MAX_SHOWN: Final = 20


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the parts of the report, which are printed as JSON with camelCase names."""


class Problem(ReportPart, frozen=True, kw_only=True):
    """Something that is wrong, and what to do about it."""

    problem: str
    remedy: str


class PatternState(ReportPart, frozen=True, kw_only=True):
    """A pattern of a filter, and the workflows that match it."""

    setting: str
    pattern: str
    workflows: int
    examples: tuple[str, ...]


class SystemState(ReportPart, frozen=True, kw_only=True):
    """Another system: `ready` or `away`, and why."""

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


class UnknownCall(ReportPart, frozen=True, kw_only=True):
    """A `call` of something that does not exist, in a workflow of the library."""

    workflow: str
    what: str
    remedy: str


class ToolsReport(ReportPart, frozen=True, kw_only=True):
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
    """Query every provider and server once, and check that the calls in the library name existing ones."""
    plan = plan_of(settings)
    answers = query_systems(plan, servers=True)
    everything = workflow_tools(settings, msgspec.structs.replace(plan, filters=Filters(), is_on=True), answers)
    tools = workflow_tools(settings, plan, answers)
    definitions = [offer.definition for offer in everything.offers.values()]
    count = sum(definition.provider == LIBRARY for definition in definitions)
    library = ProviderState(name=LIBRARY, kind=LIBRARY, state="ready", workflows=count)
    return ToolsReport(
        is_on=plan.is_on,
        tools=len(tools.offers),
        is_folded=tools.is_over_budget,
        patterns=(
            *_patterns("include", plan.filters.include, definitions),
            *_patterns("exclude", plan.filters.exclude, definitions),
        ),
        providers=(library, *_providers(plan.providers, answers)),
        servers=tuple(_servers(plan.servers, answers)),
        unknown_calls=tuple(_unknown_calls(catalog, settings, answers)),
        remarks=answers.remarks,
    )


def _unknown_calls(catalog: Catalog, settings: Settings, answers: SystemAnswers) -> Iterator[UnknownCall]:
    for workflow in catalog.workflows():
        for step in workflow.every_step:
            match step:
                case PromptStep(call=ToolCall() as call):
                    unknown = _unknown_tool(call, settings, answers)
                case PromptStep(call=WorkflowCall() as call):
                    unknown = _unknown_workflow(call, settings, answers)
                case _:
                    continue
            if unknown:
                yield UnknownCall(workflow=workflow.id, what=unknown[0], remedy=unknown[1])


def _unknown_tool(call: ToolCall, settings: Settings, answers: SystemAnswers) -> tuple[str, str] | None:
    """The missing server or tool of a call, and what to do; None when nothing is missing, or nobody knows."""
    if call.server not in settings.servers:
        reason, remedy = _missing(f"mcpServers.{call.server}", "server", settings)
        return f"the MCP server '{call.server}', {reason}", remedy
    answer = answers.servers[call.server]
    if answer.cause or call.tool in answer.tools:
        return None
    return (
        f"the tool {suggest(call.tool, answer.tools)} of the MCP server '{call.server}', which has no such tool",
        f"Fix 'tool' in the workflow. It has: {_few(answer.tools)}.",
    )


def _unknown_workflow(call: WorkflowCall, settings: Settings, answers: SystemAnswers) -> tuple[str, str] | None:
    """The missing provider or workflow of a call, and what to do; as `_unknown_tool`."""
    if call.provider not in settings.providers:
        reason, remedy = _missing(f"providers.{call.provider}", "provider", settings)
        return f"the provider '{call.provider}', {reason}", remedy
    listing = answers.providers[call.provider]
    ids = [definition.id for definition in listing.definitions]
    if listing.is_away or call.workflow in ids:
        return None
    return (
        f"the workflow {suggest(call.workflow, ids)} of the provider '{call.provider}', which lists no such workflow",
        f"Fix 'workflow' in the workflow. It lists: {_few(ids)}.",
    )


def _missing(table: str, field: str, settings: Settings) -> tuple[str, str]:
    """Why a table such as `providers.ci` is not in force, and what to do; a call names it in `field`."""
    if table in settings.left_out:
        return "which is ignored because of a mistake", f"Fix [{table}] in the settings."
    if any(f"{ignored.kind}.{ignored.name}" == table for ignored in settings.ignored):
        return "which is not trusted yet", f"Look at [{table}] and allow it in a terminal: `workflowlookup trust`."
    return "which is not in the settings", f"Add [{table}] to the settings, or fix '{field}' in the workflow."


def _few(names: Sequence[str]) -> str:
    return first_few(names, MAX_SHOWN) or "nothing"


def _patterns(setting: str, patterns: Sequence[str], definitions: Sequence[Definition]) -> Iterator[PatternState]:
    for text in patterns:
        pattern = FilterPattern(text)
        meant = [definition.id for definition in definitions if pattern.matches(definition)]
        yield PatternState(setting=setting, pattern=text, workflows=len(meant), examples=tuple(meant[:MAX_SHOWN]))


def _providers(configured: Mapping[str, ProviderConfig], answers: SystemAnswers) -> Iterator[ProviderState]:
    for name, config in configured.items():
        listing = answers.providers[name]
        state = "away" if listing.is_away else "ready"
        yield ProviderState(
            name=name, kind=config.kind, state=state, workflows=len(listing.definitions), cause=listing.cause
        )


def _servers(configured: Mapping[str, ServerConfig], answers: SystemAnswers) -> Iterator[ServerState]:
    for name, config in configured.items():
        answer = answers.servers[name]
        state = "away" if answer.cause else "ready"
        yield ServerState(name=name, where=_location(config), state=state, tools=len(answer.tools), cause=answer.cause)


def _location(server: ServerConfig) -> str:
    """The command or URL of a server, without anything that may be secret."""
    if server.command:
        return server.command
    url = re.sub(r"://[^/?#]*@", "://", server.url.partition("?")[0])
    return url.partition("#")[0]


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
                problem=f"The pattern '{pattern.pattern}' of {pattern.setting} matches no workflow ({origin}).",
                remedy="Fix it or remove it: `workflowlookup tools` shows ids, names and providers.",
            )
    systems: Sequence[tuple[str, str, Sequence[SystemState]]] = (
        ("provider", "providers", report.providers),
        ("MCP server", "mcpServers", report.servers),
    )
    for kind, table, states in systems:
        for system in states:
            if system.state == "away" and not extras.is_missing(extras.CALLS):  # reported by itself
                yield Problem(
                    problem=_sentence(unreachable(kind, system.name, system.cause)),
                    remedy=reconnect_advice(f"{table}.{system.name}", system.cause),
                )
    for remark in report.remarks:
        yield Problem(problem=_sentence(remark), remedy="Fix the definition in that system.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
