"""`lint` of `tools`: what each code finds, and neighbours in which it finds nothing."""

import pytest

from support.json_values import JsonObject
from support.make import document, step
from workflowlookup.authoring.lint.checks import lint
from workflowlookup.authoring.lint.tools import TOOL_CHECKS

FOUND: dict[str, dict[str, tuple[JsonObject, str]]] = {
    "WL022": {
        "a misspelt group": ({"deny": ["edits"]}, "deny.0"),
        "a misspelt tool": ({"allow": ["Read", "Bsh(ls *)"]}, "allow.1"),
        "a group with an argument": ({"deny": ["edit(src/*)"]}, "deny.0"),
        "an MCP tool with an argument": ({"deny": ["mcp__github__push(main)"]}, "deny.0"),
        "an unknown beginning": ({"deny": ["Editor*"]}, "deny.0"),
    },
    "WL023": {
        "the same": ({"allow": ["Edit"], "deny": ["Edit"]}, "allow.0"),
        "a tool of a denied group": ({"allow": ["read", "Write(docs/*)"], "deny": ["edit"]}, "allow.1"),
        "a tool that a pattern denies": ({"allow": ["mcp__github__list"], "deny": ["mcp__github__*"]}, "allow.0"),
        "everything is denied": ({"allow": ["read"], "deny": ["*"]}, "allow.0"),
    },
}
CLEAN: dict[str, JsonObject] = {
    "groups, tools and commands": {"allow": ["read", "Edit", "Bash(git log *)", "Web*", "mcp__x__*"]},
    "a narrower deny": {"allow": ["execute", "edit"], "deny": ["Bash(git push *)", "Edit(tests/*)"]},
    "tools of Codex": {"deny": ["apply_patch", "shell(rm *)"]},
}


def findings(tools: JsonObject) -> list[tuple[str, str]]:
    return [
        (finding.code, ".".join(map(str, finding.path)))
        for finding in lint(document(step(tools=tools)))
        if finding.code in TOOL_CHECKS
    ]


@pytest.mark.parametrize(("code", "name"), [(code, name) for code, cases in FOUND.items() for name in cases])
def test_a_check_finds(code: str, name: str) -> None:
    tools, path = FOUND[code][name]
    assert findings(tools) == [(code, f"steps.0.tools.{path}")]


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found(name: str) -> None:
    assert findings(CLEAN[name]) == []
