"""The checks of `lint` for `tools`: patterns that no tool matches, and rules that contradict each other."""

from collections.abc import Iterator, Mapping
from typing import Final

from workflowlookup.authoring.lint.subject import Findings, LintCheck, LintSubject, LocatedStep
from workflowlookup.language.formats.schemas import PathTo, suggest
from workflowlookup.language.tool_rules import TOOLS_OF_GROUP, covers, is_known, parts_of, takes_argument


def _patterns(subject: LintSubject) -> Iterator[tuple[LocatedStep, PathTo, str]]:
    for located in subject.steps:
        for field in ("allow", "deny"):
            for index, pattern in enumerate(located.step.get("tools", {}).get(field, ())):
                yield located, (*located.path, "tools", field, index), pattern


def unmatched_patterns(subject: LintSubject) -> Findings:
    names = sorted({*TOOLS_OF_GROUP, *(name for tools in TOOLS_OF_GROUP.values() for name in tools)})
    for located, path, pattern in _patterns(subject):
        name, argument = parts_of(pattern)
        if not is_known(name):
            yield (
                path,
                f"No tool matches {suggest(name, names)} in step '{located.id}'",
                "Name a tool of a client, a tool of an MCP server as mcp__SERVER__TOOL, or one of the groups "
                + ", ".join(TOOLS_OF_GROUP),
            )
        elif argument is not None and not takes_argument(name):
            yield (
                path,
                f"'{pattern}' in step '{located.id}' never matches: '{name}' takes no argument",
                f"Write '{name}'",
            )


def contradictory_rules(subject: LintSubject) -> Findings:
    for located in subject.steps:
        tools = located.step.get("tools", {})
        for index, allowed in enumerate(tools.get("allow", ())):
            denied = next((pattern for pattern in tools.get("deny", ()) if covers(pattern, allowed)), None)
            if denied is not None:
                yield (
                    (*located.path, "tools", "allow", index),
                    f"'{allowed}' in step '{located.id}' is never allowed, because '{denied}' is denied",
                    "Remove one of the two",
                )


TOOL_CHECKS: Final[Mapping[str, LintCheck]] = {
    "WL022": LintCheck(
        name="unmatched-tool", find=unmatched_patterns, description="No tool can match a pattern of `tools`."
    ),
    "WL023": LintCheck(
        name="contradictory-tools",
        find=contradictory_rules,
        description="A tool is allowed and denied, so it is never allowed.",
    ),
}
