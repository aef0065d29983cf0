"""The MCP clients that we know: where each keeps its servers, and the command that it shall start.

A new client is a row of `CLIENTS`.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.core.values import Json
from workflowlookup.settings import SETTINGS, paths

SERVER_NAME: Final = "workflowlookup"


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that starts MCP servers."""

    title: str
    files: Mapping[str, str]
    """By scope, the usual one first: the file that it reads; `{name}` is a folder of `_folders`."""
    section: str = "mcpServers"
    """The field of the file under which servers stand."""
    fields: Mapping[str, Json] = MappingProxyType({})
    """What an entry has beside its command."""
    afterwards: str
    """How to see that it works."""

    def file(self, scope: str) -> str:
        """The configuration file as it is found from here, now."""
        return os.path.abspath(os.path.expanduser(self.files[scope].format_map(_folders(os.environ))))


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client(
        title="Claude Code",
        files={"user": "{claude}/.claude.json", "project": ".mcp.json"},
        afterwards="Restart Claude Code; /mcp shows the server.",
    ),
    "claude-desktop": Client(
        title="Claude Desktop",
        files={"user": "{applications}/Claude/claude_desktop_config.json"},
        afterwards="Quit Claude Desktop and start it again.",
    ),
    "codex": Client(
        title="Codex",
        files={"user": "{codex}/config.toml"},
        section="mcp_servers",
        afterwards="Restart Codex; /mcp shows the server.",
    ),
    "cursor": Client(
        title="Cursor",
        files={"user": "~/.cursor/mcp.json", "project": ".cursor/mcp.json"},
        afterwards="Restart Cursor; its settings show the server under MCP.",
    ),
    "vscode": Client(
        title="VS Code",
        files={"user": "{applications}/Code/User/mcp.json", "project": ".vscode/mcp.json"},
        section="servers",
        fields={"type": "stdio"},
        afterwards="Run 'MCP: List Servers' in VS Code and start the server.",
    ),
}


def _folders(environment: Mapping[str, str]) -> Mapping[str, str]:
    applications = {
        "darwin": "~/Library/Application Support",
        "win32": environment.get("APPDATA") or "~/AppData/Roaming",
    }
    return {
        "applications": applications.get(sys.platform) or environment.get("XDG_CONFIG_HOME") or "~/.config",
        "claude": environment.get("CLAUDE_CONFIG_DIR") or "~",
        "codex": environment.get("CODEX_HOME") or "~/.codex",
    }


def server_command(options: argparse.Namespace) -> list[str]:
    """What starts this very installation as a server, with the settings that were given as flags."""
    script = os.path.join(os.path.dirname(sys.executable), SERVER_NAME + (".exe" if sys.platform == "win32" else ""))
    # `-P`: else Python would look for modules in the working directory first, which is somebody's repository
    command = [script] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", SERVER_NAME]
    return [*command, "serve", *_flags(vars(options))]


def _flags(options: Mapping[str, Any]) -> list[str]:
    """The settings among the options as flags that mean the same from any directory."""
    given = {setting.name: options[setting.name] for setting in SETTINGS if options.get(setting.name) is not None}
    if "directories" in given:
        given["directories"] = os.pathsep.join(map(os.path.abspath, paths(given["directories"])))
    if options.get("config"):
        given["config"] = os.path.abspath(options["config"])
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
