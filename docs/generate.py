"""`make docs`: writes the lists of tools and settings anew from the code; `tests/test_docs.py` holds them equal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workflowlookup.settings import LIVE, PREFIX, SETTINGS, Setting
from workflowlookup.tools import BUILTIN_TOOLS, workflow_refresh, workflow_search
from workflowlookup.tools.contract import Tool

HERE = Path(__file__).parent
NOTE = "<!-- made by `make docs`; change the code instead -->\n"


def tools() -> str:
    head = (
        "# Tools\n\n"
        f"{NOTE}\n"
        "Each tool can be called through `tools/call`, or by its own name as a JSON-RPC method.\n"
        "Through `tools/call` the result comes as text and as `structuredContent`.\n"
        "What a tool refuses comes as a result with `isError`, whose text says what to do and whose\n"
        "`structuredContent` has `code`, `message` and `data`.\n"
        "(At 2024-11-05 it is a JSON-RPC error there too, and so are arguments that do not fit up to 2025-06-18.)\n"
        "By its own name a tool answers with the bare result, or with a JSON-RPC error.\n\n"
        "| code | message | when |\n| --- | --- | --- |\n"
        "| -32001 | Workflow not found | no source holds the id |\n"
        "| -32002 | Invalid workflow | the document, or a JSON Schema in it, is malformed |\n"
        "| -32003 | Step not found | the workflow has no such step |\n"
        "| -32004 | Validation error | the step's criteria are not well-formed |\n"
        "| -32005 | Run state error, Run not found | the run waits for something else, is over, or is not there |\n"
        "| -32006 | Storage error | the document cannot be read, or the journal of runs not used |\n"
        "| -32007 | Security error | the document is unsafe to read, or what would run is not [trusted](trust.md) |\n"
        "| -32008 | Workflow execution failed | the run that was waited for failed or was cancelled |\n"
        "| -32009 | Provider not available | the system that the workflow belongs to does not answer now |\n"
        "| -32010 | Not supported | the system that the workflow belongs to cannot do this |\n"
        "| -32011 | Not allowed | the caller may see it but not do this; `data.scope` is what it would take |\n"
        "| -32012 | Server busy | over HTTP: too many requests or sessions, or the server is stopping |\n"
        "| -32800 | Request cancelled | over HTTP: the client took the request back |\n"
        "| -32000 | Server not initialized, Unsupported protocol version | the handshake comes first |\n"
        "| -32600, -32601, -32700 | Invalid Request, Method not found, Parse error | the message is not well-formed |\n"
        "| -32602 | Invalid params | `data.details` names each parameter and what was expected |\n"
    )
    more = (
        "\n# Workflow tools\n\n"
        "While `workflow_tools` is on, each workflow that the filters admit is a tool: [providers.md](providers.md).\n"
        "`workflow_refresh` is there then, and `workflow_search` when there are too many of them for the budget.\n"
    )
    others = (workflow_refresh.TOOL, workflow_search.TOOL)
    return head + "".join(map(_tool, BUILTIN_TOOLS.values())) + more + "".join(map(_tool, others))


def _tool(tool: Tool) -> str:
    arguments, result = tool.example or ({}, {})
    rows, results = _rows(tool.arguments.schema, mark=" *"), _rows(tool.output_schema or {}, mark="")
    return (
        f"\n## {tool.name}\n\n{tool.description}\n\n"
        f"| argument (* required) | type | |\n| --- | --- | --- |\n{rows}\n"
        f"| result | type | |\n| --- | --- | --- |\n{results}\n"
        f"```json\n{json.dumps({'method': tool.name, 'params': arguments}, ensure_ascii=False)}\n```\n\n"
        f"```json\n{json.dumps(result, indent=2, ensure_ascii=False)}\n```\n"
    )


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
        "A flag wins over the environment, which wins over the files, which win over the default.\n"
        "Two files are read: the user's own, `~/.config/workflowlookup/workflowlookup.toml` (`XDG_CONFIG_HOME` moves\n"
        "it), and over it, setting by setting, `workflowlookup.toml` in the working directory. `--config` names\n"
        "another file: one of the project stands for the project's, any other for both.\n\n"
        "A file of the project came with a repository. What it sets without harm counts at once, and the last column\n"
        "says what that is; the rest is ignored until the user has [trusted](trust.md) it, and the user's own setting\n"
        "stays in force. The tables of servers and providers always need trust.\n\n"
        "In flags and in the environment, commas stand between the parts of a list, and in `directories` what stands\n"
        "between them in `PATH`.\n"
        "`workflowlookup doctor` shows each value and where it came from.\n\n"
        "| setting | flag | environment | default | | a repository may |\n| --- | --- | --- | --- | --- | --- |\n"
        f"{rows}\n"
        "`WORKFLOW_STORAGE_PATH` (directories separated as in `PATH`) is honoured too.\n\n"
        "```toml\n# workflowlookup.toml\n"
        'directories = ["~/team/workflows"]\nbundled = false\nlog_level = "info"\n```\n\n'
        "## Other systems\n\n"
        "Tables of the file name the MCP servers that steps call (`[mcpServers.NAME]`) and the systems whose\n"
        "workflows become tools (`[providers.NAME]`): [providers.md](providers.md).\n\n"
        "## While the server runs\n\n"
        f"These take effect when the file is saved: {live}, and the tables.\n"
        "A file that cannot be used changes nothing, and the log says why; so it does of settings that wait for\n"
        "the next start. `SIGHUP` and the tool `workflow_refresh` have it read, and every provider asked, at once.\n\n"
        "## Sources\n\n"
        "By precedence, later wins; `bundled`, `user` and `project` can be switched off:\n\n"
        "1. `bundled`: what comes with the package\n"
        "2. `user`: `~/.workflowlookup/workflows`\n"
        "3. `directories`\n"
        "4. `project`: `.workflowlookup/workflows` in the working directory\n"
    )


def _default(setting: Setting) -> str:
    text = setting.text_of(setting.default)
    return text if text == "none" else f"`{text}`"


PAGES = {"tools.md": tools, "settings.md": settings}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), "utf-8")
