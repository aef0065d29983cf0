"""`make docs`: writes the pages of tools, settings and commands, and the man page, from the code.

`tests/test_docs.py` fails when one of them is out of date.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workflowlookup.cli.main import COMMANDS, make_parser
from workflowlookup.settings import LIVE, PREFIX, SETTINGS, Setting
from workflowlookup.tools.arguments import StructArguments
from workflowlookup.tools.builtin import BUILTIN_TOOLS, workflow_refresh, workflow_search
from workflowlookup.tools.contract import Tool

HERE = Path(__file__).parent
NOTE = "<!-- made by `make docs`; change the code instead -->\n"


def tools() -> str:
    head = (
        "# Tools\n\n"
        f"{NOTE}\n"
        "Each tool can be called through `tools/call`, or by its own name as a JSON-RPC method.\n"
        "Through `tools/call` the result comes as text and as `structuredContent`, with the same content: clients\n"
        "show a model only one of them. Of a result over 30,000 characters both have the first part, with long\n"
        "texts and lists cut, and `cut`: its length, and the `resource` with all of it\n"
        "(`tool-result://TOOL?arguments=…`), to which the result also links ([0031](decisions/0031-long-results.md)).\n"
        "Without `resource` (the arguments are too long for a URI), call the tool again with narrower arguments.\n"
        "A refusal is a result with `isError`: its text says what to do, and its `structuredContent` has `code`,\n"
        "`message` and `data`. (In version 2024-11-05 it is a JSON-RPC error; up to 2025-06-18, so are\n"
        "arguments that do not fit the schema.)\n"
        "By its own name a tool answers with the bare result, or with a JSON-RPC error.\n\n"
        "## A transcript\n\n"
        "What a client sends and receives, shortened: the next step, an output that is refused, and a run that is\n"
        "started through the tool of the workflow.\n\n"
        "<!-- transcript: run by tests/test_docs.py -->\n"
        f"```json\n{_transcript()}\n```\n\n"
        "## Error codes\n\n"
        "| code | message | when |\n| --- | --- | --- |\n"
        "| -32001 | Workflow not found | no source has the id |\n"
        "| -32002 | Invalid workflow | the document, or a JSON Schema in it, is malformed |\n"
        "| -32003 | Step not found | the workflow has no such step |\n"
        "| -32004 | Validation error | the step's criteria are not well-formed |\n"
        "| -32005 | Run state error, Run not found | the run waits for something else, has ended, or does not exist |\n"
        "| -32006 | Storage error | the document cannot be read, or the journal cannot be read or written. Where the "
        "journal did not answer: with `data.retryAfterSeconds` sending the request again is safe, without it ask "
        "`workflow_status` first ([more](http.md#when-the-journal-does-not-answer)) |\n"
        "| -32007 | Security error | the document is unsafe to read, or what would run is not [trusted](trust.md) |\n"
        "| -32008 | Workflow execution failed | the run that the call waited for failed or was cancelled |\n"
        "| -32009 | Provider not available | the system that the workflow belongs to does not answer now |\n"
        "| -32010 | Not supported | the other system cannot do this, or an extra is missing: see `data.install` |\n"
        "| -32011 | Not allowed | the caller may see it but not do this; `data.scope` is the scope that is needed |\n"
        "| -32012 | Server busy | over HTTP: too many requests or sessions, or the server is stopping |\n"
        "| -32800 | Request cancelled | over HTTP: the client took the request back |\n"
        "| -32000 | Server not initialized, Unsupported protocol version | the handshake comes first |\n"
        "| -32600, -32601, -32700 | Invalid Request, Method not found, Parse error | the message is not well-formed |\n"
        "| -32602 | Invalid params | `data.details` names each parameter and what was expected |\n"
    )
    more = (
        "\n# Workflow tools\n\n"
        "While the setting `workflow_tools` is on, each workflow that passes the filters is a tool as well:\n"
        "[providers.md](providers.md). `workflow_refresh` is listed then, and `workflow_search` when the list of\n"
        "tools would exceed `tools_budget_bytes`.\n"
    )
    others = (workflow_refresh.TOOL, workflow_search.TOOL)
    return head + "".join(map(_tool, BUILTIN_TOOLS.values())) + more + "".join(map(_tool, others))


def _transcript() -> str:
    exchanges: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (
            {
                "method": "workflow_next",
                "params": {
                    "workflowId": "bug-investigation",
                    "completedSteps": ["reproduce", "triage", "root-cause"],
                    "context": {"bugKind": "plain", "goal": "fix"},
                },
            },
            {"step": {"id": "fix", "title": "Fix it behind a regression test"}, "isComplete": False},
        ),
        (
            {
                "method": "workflow_validate",
                "params": {"workflowId": "bug-investigation", "stepId": "fix", "output": "Fixed it, all tests pass."},
            },
            {
                "valid": False,
                "issues": [
                    "Name the changed lines as 'path/to/file.ext:line'.",
                    "Report the regression test, how it failed, the change and the result of the suite.",
                    "regressionTest is not in the output: expected text ('string'). Add the line `regressionTest: …`.",
                ],
            },
        ),
        (
            {
                "method": "tools/call",
                "params": {"name": "bug_investigation", "arguments": {"bug": "The March export lacks a day."}},
            },
            {
                "structuredContent": {
                    "state": "waiting",
                    "progress": {"done": 0, "total": 9},
                    "waitingFor": "output",
                    "step": {"id": "reproduce", "title": "Reproduce the failure"},
                }
            },
        ),
    ]
    return "\n\n".join(f"→ {json.dumps(request)}\n← {json.dumps(answer)}" for request, answer in exchanges)


def _tool(tool: Tool) -> str:
    arguments, result = tool.example or ({}, {})
    rows, results = _rows(_full_schema(tool), mark=" *"), _rows(tool.output_schema or {}, mark="")
    return (
        f"\n## {tool.name}\n\n{tool.description}\n\n"
        f"| argument (* required) | type | |\n| --- | --- | --- |\n{rows}\n"
        f"| result | type | |\n| --- | --- | --- |\n{results}\n"
        f"```json\n{json.dumps({'method': tool.name, 'params': arguments}, ensure_ascii=False)}\n```\n\n"
        f"```json\n{json.dumps(result, indent=2, ensure_ascii=False)}\n```\n"
    )


def _full_schema(tool: Tool) -> Mapping[str, Any]:
    return tool.arguments.full_schema if isinstance(tool.arguments, StructArguments) else tool.arguments.schema


def _rows(schema: Mapping[str, Any], mark: str) -> str:
    return "".join(
        f"| `{name}`{mark if name in schema['required'] else ''} | {_types(one)} | {one.get('description', '')} |\n"
        for name, one in schema.get("properties", {}).items()
    )


def _types(schema: dict[str, object]) -> str:
    kinds = schema.get("type", "any")
    return " or ".join(kind for kind in (kinds if isinstance(kinds, list) else [str(kinds)]) if kind != "null")


def settings() -> str:
    rows = "".join(
        f"| `{setting.name}` | `--{setting.name.replace('_', '-')}` | `{PREFIX}{setting.name.upper()}` "
        f"| {_default(setting)} | {setting.help} | {setting.needs_trust.words} |\n"
        for setting in SETTINGS
    )
    live = ", ".join(f"`{setting.name}`" for setting in SETTINGS if setting.name in LIVE)
    return (
        "# Settings\n\n"
        f"{NOTE}\n"
        "A flag takes precedence over the environment, the environment over the files, the files over the default.\n"
        "Two files are read: the user's, `~/.config/workflowlookup/workflowlookup.toml` (or below `XDG_CONFIG_HOME`),\n"
        "and the project's, `workflowlookup.toml` in the working directory or the nearest directory above it, up to\n"
        "the project's root. Setting by setting, the project's takes precedence.\n"
        "`--config` names another file. If that file is inside the project, it replaces the project's file; otherwise\n"
        "it replaces both.\n\n"
        "The project's file came with a repository. Some of its settings apply at once: the last column says which\n"
        "values. All others are ignored until the user has [trusted](trust.md) them, and the user's own settings stay\n"
        "in force. The tables of servers, providers and commands always need trust; so does fetching from `sources`.\n"
        "What is wrong in the project's file is ignored with a warning, and stops no command. A mistake in the user's\n"
        "own file, in one that `--config` names, in a flag or in the environment does.\n\n"
        "In flags and in the environment the items of a list are separated by commas, and those of `directories` as\n"
        "in `PATH`.\n"
        "`workflowlookup doctor` shows each value and where it came from.\n\n"
        "| setting | flag | environment | default | meaning | a repository may |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        f"{rows}\n"
        "The variable `WORKFLOW_STORAGE_PATH` (directories, separated as in `PATH`) adds to `directories`.\n\n"
        "```toml\n# workflowlookup.toml\n"
        'directories = ["~/team/workflows"]\nbundled = false\nlog_level = "info"\n```\n\n'
        "## Other systems\n\n"
        "Tables of the file name the MCP servers that steps call (`[mcpServers.NAME]`) and the systems whose\n"
        "workflows become tools (`[providers.NAME]`): [providers.md](providers.md).\n\n"
        "## Commands\n\n"
        "The table `[commands]` defines what proofs run by name, each as a list of the program and its arguments:\n"
        "[runs.md](runs.md#commands-of-a-project).\n\n"
        '```toml\n[commands]\ntest = ["make", "test"]\n```\n\n'
        "## Libraries from git\n\n"
        "Each table `[sources.NAME]` names a git repository with workflows: `url`, and perhaps `rev` and `path`.\n"
        "`workflowlookup add` writes it, and `workflowlookup.lock` beside the file: [libraries.md](libraries.md).\n\n"
        '```toml\n[sources.team]\nurl = "https://git.example.com/team/workflows.git"\nrev = "v1.2"\n```\n\n'
        "## While the server runs\n\n"
        f"These take effect when the file is saved: {live}, and the tables except `sources`.\n"
        "All others take effect at the next start, and the log says so. A file with mistakes changes nothing, and the\n"
        "log says why. `SIGHUP` and the tool `workflow_refresh` read the file, and ask every provider, at once.\n\n"
        "## Sources\n\n"
        "Workflows come from these sources. If two have a workflow with the same id, the later one takes precedence.\n"
        "`bundled`, `user` and `project` can be switched off.\n\n"
        "1. `bundled`: the workflows that come with the package\n"
        "2. git repositories: the tables `[sources.NAME]`, as they are locked ([libraries.md](libraries.md))\n"
        "3. `user`: `~/.workflowlookup/workflows`\n"
        "4. `directories`\n"
        "5. `project`: `.workflowlookup/workflows` in the working directory or the nearest directory above it, up to\n"
        "   the root of the repository; or in the project that `root` or the client names. `workflowlookup doctor`\n"
        "   says which root was taken, and why. Above the working directory, only your own directories count.\n"
    )


def _default(setting: Setting) -> str:
    text = setting.text_of(setting.default)
    return text if text == "none" else f"`{text}`"


class Command(NamedTuple):
    """What `--help` says about a command, without the settings, which every command takes."""

    name: str
    group: str
    description: str
    usage: str
    options: list[tuple[str, str]]
    examples: str


def _commands() -> Iterator[Command]:
    for name, (_, group, _) in COMMANDS.items():
        (choices,) = (action.choices for action in make_parser(name)._actions if action.dest == "command")  # noqa: SLF001
        parser: argparse.ArgumentParser = dict(choices or {})[name]
        others = {"help", "config", *(setting.name for setting in SETTINGS)}
        actions = [
            action
            for action in parser._actions  # noqa: SLF001 - argparse has no other way to list them
            if action.dest not in others and action.help != argparse.SUPPRESS
        ]
        positionals = [_value(action) for action in actions if not action.option_strings]
        flags = ["[OPTIONS]"] if len(positionals) < len(actions) else []
        yield Command(
            name=name,
            group=group,
            description=str(parser.description),
            usage=" ".join(["workflowlookup", name, *flags, *positionals]),
            options=[(_spelling(action), str(action.help) % vars(action)) for action in actions],
            examples=str(parser.epilog).removeprefix("examples:\n"),
        )


def _spelling(action: argparse.Action) -> str:
    """`-o FILE, --output FILE`, or the name of a positional argument."""
    value = _value(action)
    return ", ".join(f"{flag} {value}".strip() for flag in action.option_strings) or value


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    choices = "{" + ",".join(map(str, action.choices or ())) + "}"
    name = str(action.metavar or (choices if action.choices else action.dest.upper()))
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(str(action.nargs), name)


def commands() -> str:
    parts = [
        "# Commands\n",
        NOTE,
        "`workflowlookup help COMMAND` prints the same in the terminal, and `man workflowlookup` has all of it.",
        "Every command also takes `--config FILE`, and every [setting](settings.md) as a flag: `--directories DIR`.",
        "The exit code is 0 when all is well, 1 when problems were found, and 2 for wrong usage.",
    ]
    group = ""
    for command in _commands():
        if command.group != group:
            group = command.group
            parts.append(f"\n## {group}")
        parts.append(f"\n### {command.name}\n\n{command.description}\n\n```text\n{command.usage}\n```\n")
        if command.options:
            parts.append("| argument or option | |\n| --- | --- |")
            parts += [f"| `{_cell(spelling)}` | {_cell(about)} |" for spelling, about in command.options]
            parts.append("")
        parts.append(f"```text\n{_outdented(command.examples)}\n```")
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _outdented(text: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in text.splitlines())


def manual() -> str:
    """The man page, in the macros of man(7)."""
    lines = [
        '.\\" made by `make docs`; change the code instead',
        '.TH WORKFLOWLOOKUP 1 "" workflowlookup "User Commands"',
        ".SH NAME",
        r"workflowlookup \- workflows that AI agents follow and people trust, as an MCP server",
        ".SH SYNOPSIS",
        ".B workflowlookup",
        r"\fICOMMAND\fR [\fIOPTIONS\fR]",
        ".br",
        r".B workflowlookup \-\-version",
        ".SH COMMANDS",
    ]
    for command in _commands():
        lines += [f".SS {_roff(command.usage)}", _roff(command.description)]
        lines += _entries(command.options)
        lines += [".PP", "Examples:", ".PP", ".nf", *map(_roff, command.examples.splitlines()), ".fi"]
    lines += [
        ".SH SETTINGS",
        "Every command takes every setting as a flag. A setting can also be a variable of the environment",
        _roff(f"({PREFIX}NAME) or a line of a settings file."),
    ]
    lines += _entries(
        (f"--{setting.name.replace('_', '-')} VALUE", f"{setting.help} Default: {setting.text_of(setting.default)}.")
        for setting in SETTINGS
    )
    lines += [
        ".SH FILES",
        *_entries(
            [
                ("~/.config/workflowlookup/workflowlookup.toml", "The user's settings."),
                ("workflowlookup.toml", "The project's settings, in the working directory or above it."),
                ("~/.workflowlookup/workflows", "The user's workflows."),
                (".workflowlookup/workflows", "The project's workflows, in the working directory or above it."),
                (
                    "~/.local/share/workflowlookup/runs.sqlite",
                    "The journal, unless the setting journal says otherwise.",
                ),
            ]
        ),
        ".SH EXIT STATUS",
        "0 when all is well, 1 when problems were found, 2 for wrong usage.",
    ]
    return "\n".join(lines) + "\n"


def _entries(entries: Iterable[tuple[str, str]]) -> list[str]:
    return [line for term, about in entries for line in (".TP", f".B {_roff(term)}", _roff(about))]


def _roff(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    escaped = "".join(one if one.isascii() else rf"\[u{ord(one):04X}]" for one in escaped)
    return rf"\&{escaped}" if escaped.startswith((".", " ")) else escaped


PAGES = {
    "tools.md": tools,
    "settings.md": settings,
    "commands.md": commands,
    "man/workflowlookup.1": manual,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(make(), "utf-8")
