"""`tools` of a step and `triggers` of a workflow: what the patterns match."""

import pytest

from support.json_values import JsonObject
from support.make import document, step
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import guide
from workflowlookup.language.navigation import next_step
from workflowlookup.language.tool_rules import ToolRules, refuses, tool_use
from workflowlookup.language.triggers import is_triggered
from workflowlookup.tools.builtin import BUILTIN_TOOLS, workflow_refresh, workflow_search

ROOT = "/home/ada/shop"
PATCH = "*** Begin Patch\n*** Update File: src/a.py\n+$(rm -r build)\n*** End Patch"
ONLY_SOURCE = ToolRules(allow=("Edit(src/*)",))
READ_ONLY = ToolRules(allow=("read", "Bash(git log *)", "Bash(ls)", "WebFetch(domain:example.org)"))
NO_EDITS = ToolRules(deny=("edit", "Bash(git push *)", "mcp__github__*"))
NO_TESTS = ToolRules(deny=("Edit(tests/*)", "Write(/etc/*)"))


def bash(command: str) -> tuple[str, JsonObject]:
    return "Bash", {"command": command}


def patch(*paths: str) -> tuple[str, JsonObject]:
    return "apply_patch", {"command": "\n".join(f"*** Update File: {path}" for path in paths)}


REFUSED: dict[str, tuple[ToolRules, tuple[str, JsonObject], str]] = {
    "an edit where only reading is allowed": (READ_ONLY, ("Edit", {"file_path": f"{ROOT}/a.py"}), "allow"),
    "another command": (READ_ONLY, bash("rm -r build"), "allow"),
    "an allowed command and another": (READ_ONLY, bash("git log -1 && rm -r build"), "allow"),
    "a command in a substitution": (READ_ONLY, bash("git log $(rm -r build)"), "allow"),
    "a command that writes a file": (READ_ONLY, bash("git log -1 > notes.txt"), "allow"),
    "another host": (READ_ONLY, ("WebFetch", {"url": "https://evil.org/example.org"}), "allow"),
    "a host in the user part": (READ_ONLY, ("WebFetch", {"url": "https://example.org@evil.org/"}), "allow"),
    "a tool of another server": (READ_ONLY, ("mcp__github__create", {}), "allow"),
    "a command too long to be read": (READ_ONLY, bash("git log " + "x" * 200_000), "allow"),
    "an edit by its group": (NO_EDITS, ("Write", {"file_path": f"{ROOT}/a.py"}), "edit"),
    "a patch of Codex by its group": (NO_EDITS, patch("a.py"), "edit"),
    "a denied command that only reads": (ToolRules(allow=("read",), deny=("execute",)), bash("cat a"), "execute"),
    "a command that only reads where nothing is allowed": (ToolRules(allow=("Edit",)), bash("cat a"), "allow"),
    "a denied command": (NO_EDITS, bash("git push origin main"), "Bash(git push *)"),
    "a denied command without arguments": (NO_EDITS, bash("git push"), "Bash(git push *)"),
    "a denied command after another": (NO_EDITS, bash("make; git  push"), "Bash(git push *)"),
    "a denied command with a variable": (NO_EDITS, bash("GIT_DIR=x /usr/bin/git push"), "Bash(git push *)"),
    "a tool of a denied server": (NO_EDITS, ("mcp__github__create", {}), "mcp__github__*"),
    "a file by its path in the project": (NO_TESTS, ("Edit", {"file_path": f"{ROOT}/tests/a.py"}), "Edit(tests/*)"),
    "a file by a roundabout path": (NO_TESTS, ("Edit", {"file_path": "src/../tests/a.py"}), "Edit(tests/*)"),
    "one of several files": (NO_TESTS, patch("src/a.py", "tests/a.py"), "Edit(tests/*)"),
    "a file by its absolute path": (NO_TESTS, ("Write", {"file_path": "/etc/passwd"}), "Write(/etc/*)"),
    "a patch by a command that goes on": (
        ONLY_SOURCE,
        bash(f"apply_patch <<'EOF'\n{PATCH}\nEOF\nrm -r build\nEOF"),
        "allow",
    ),
    "a patch in which the shell runs commands": (ONLY_SOURCE, bash(f"apply_patch <<EOF\n{PATCH}\nEOF"), "allow"),
    "a patch of another file by a command": (
        ONLY_SOURCE,
        bash(f"apply_patch <<'EOF'\n{PATCH.replace('src', 'tests')}\nEOF"),
        "allow",
    ),
    "a patch of another file, with blanks before its name": (
        ONLY_SOURCE,
        bash(f"apply_patch <<'EOF'\n{PATCH}\n \t*** Add File: tests/a.py\nEOF"),
        "allow",
    ),
    "a file of a patch with blanks before its name": (
        NO_TESTS,
        patch("src/a.py\n  *** Add File: tests/a.py"),
        "Edit(tests/*)",
    ),
    "a file of a patch as input": (NO_TESTS, ("apply_patch", {"input": "*** Add File: tests/a.py"}), "Edit(tests/*)"),
    "a command too long to be searched": (NO_EDITS, bash("git push " + "x" * 200_000), "edit"),
    "an allowed command with a variable": (READ_ONLY, bash("GIT_PAGER=rm git log"), "allow"),
    "an allowed name in another directory": (READ_ONLY, bash("./git log"), "allow"),
    "a variable after a harmless prefix": (READ_ONLY, bash("time GIT_PAGER=rm git log"), "allow"),
    "a file with a number for a name": (READ_ONLY, bash("git log >&1foo"), "allow"),
    "a file whose name begins as that of the null device": (READ_ONLY, bash("git log >/dev/nullx"), "allow"),
    "a command after one in the background": (READ_ONLY, bash("git log &2>/dev/null rm -r build"), "allow"),
    "the second of two command lines": (READ_ONLY, ("exec_command", {"command": "ls", "cmd": "rm x"}), "allow"),
    "the first of two command lines": (READ_ONLY, ("exec_command", {"command": "rm x", "cmd": "ls"}), "allow"),
    "a command line for a shell": (NO_EDITS, ("shell", {"command": ["bash", "-lc", "git push x"]}), "Bash(git push *)"),
    "the words of a command": (NO_EDITS, ("shell", {"command": ["git", "push", "x"]}), "Bash(git push *)"),
    "a denied command line of two": (NO_EDITS, ("shell", {"command": "ls", "cmd": "git push"}), "Bash(git push *)"),
    "a patch and another command line": (
        NO_EDITS,
        ("shell", {"command": "ls", "cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}),
        "edit",
    ),
    "a tool of another server with a name like ours": (READ_ONLY, ("mcp__github__workflow_run", {}), "allow"),
    "everything": (ToolRules(allow=()), ("Read", {"file_path": "a"}), "allow"),
}
ALLOWED: dict[str, tuple[ToolRules, tuple[str, JsonObject]]] = {
    "reading": (READ_ONLY, ("Grep", {"pattern": "x"})),
    "an allowed command": (READ_ONLY, bash("git log -3 --stat")),
    "two allowed commands": (READ_ONLY, bash("git log -3 2>&1 | ls")),
    "output that is thrown away": (READ_ONLY, bash("git log -3 2>/dev/null")),
    "an allowed host": (READ_ONLY, ("WebFetch", {"url": "https://example.org/a"})),
    "an allowed command with a time limit": (READ_ONLY, bash("time timeout 10s git log -3")),
    "output that is thrown away whole": (READ_ONLY, bash("git log -3 &>/dev/null")),
    "a long command where it is allowed by name": (ToolRules(allow=("execute",)), bash("git log " + "x" * 200_000)),
    "a command that only reads": (READ_ONLY, bash("sed -n '1,9p' a.py | grep 'a|b'")),
    "a try of an output": (READ_ONLY, ("mcp__plugin_flows_flows__workflow_validate", {})),
    "a list of tasks": (READ_ONLY, ("TodoWrite", {})),
    "a command that is not denied": (NO_EDITS, bash("git pull")),
    "a command that only begins alike": (NO_EDITS, bash("git pushx")),
    "a file elsewhere": (NO_TESTS, ("Edit", {"file_path": f"{ROOT}/src/a.py"})),
    "a patch by a command": (ONLY_SOURCE, ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"})),
    "arguments of another shape": (NO_TESTS, ("Edit", {"file_path": 7, "command": None})),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_use_is_refused_and_the_pattern_is_named(name: str) -> None:
    rules, (tool, given), reason = REFUSED[name]
    assert refuses(rules, tool_use(tool, given, ROOT)) == reason


@pytest.mark.parametrize("name", ALLOWED)
def test_a_use_is_allowed(name: str) -> None:
    rules, (tool, given) = ALLOWED[name]
    assert refuses(rules, tool_use(tool, given, ROOT)) == ""


@pytest.mark.parametrize("name", [*BUILTIN_TOOLS, workflow_search.TOOL.name, workflow_refresh.TOOL.name])
def test_the_tools_of_this_server_are_always_allowed(name: str) -> None:
    use = tool_use(f"mcp__my-flows.2__{name}", {}, ROOT)
    assert refuses(ToolRules(allow=(), deny=("*",)), use) == ""


@pytest.mark.parametrize(
    ("tools", "sentence"),
    [
        ({"allow": ["read"]}, "In this step, use only read."),
        ({"deny": ["edit", "network"]}, "In this step, do not use edit, network."),
        ({"allow": ["read"], "deny": ["LS"]}, "In this step, use only read; do not use LS."),
        ({"allow": []}, "In this step, use only no tools but those of this server."),
    ],
)
def test_the_agent_reads_the_rule_in_one_sentence(tools: JsonObject, sentence: str) -> None:
    workflow = build(document(step(tools=tools)))
    guidance = guide(workflow, next_step(workflow, [], {}, Budget()), Budget())
    assert guidance.step["tools"] == sentence
    assert guidance.prompt.endswith(sentence)


@pytest.mark.parametrize(
    "tools", [{}, {"allow": "read"}, {"allow": ["Bash("]}, {"deny": [""]}, {"deny": ["a b"]}, {"denied": ["edit"]}]
)
def test_rules_of_another_form_are_errors(tools: JsonObject) -> None:
    assert any("tools" in finding.path for finding in check(document(step(tools=tools))))


@pytest.mark.parametrize(
    ("trigger", "prompt", "matches"),
    [
        ("flaky test", "Why is this Flaky  Test red?", True),
        ("flaky test", "flaky tests", False),
        ("flaky test", "test flaky", False),
        ("/fails? (only )?sometimes/i", "It FAILS sometimes.", True),
        ("/fails? (only )?sometimes/", "It FAILS sometimes.", False),
        ("/(/", "(", False),
        ("!!", "!!", False),
    ],
)
def test_a_prompt_matches_words_or_a_pattern(trigger: str, prompt: str, matches: bool) -> None:
    assert is_triggered([trigger], prompt, Budget()) is matches


def test_a_trigger_that_does_not_compile_is_an_error() -> None:
    (finding,) = check(document(step(), triggers=["fine", "/(/"]))
    assert (finding.path, "does not compile" in finding.message) == (("triggers", 1), True)
