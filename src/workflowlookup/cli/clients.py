"""The MCP clients that `install` supports: their configuration files, and the command that starts our server.

A new client is a row of `CLIENTS`.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup import extras
from workflowlookup.language.values import Json
from workflowlookup.settings import SETTINGS, paths

SERVER_NAME: Final = "workflowlookup"


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that starts MCP servers."""

    title: str
    files: Mapping[str, str]
    """By scope, the default first: its configuration file; `{name}` is a key of `folders`."""
    section: str = "mcpServers"
    """The field of the file that has the servers."""
    entry: Callable[[str, Sequence[str]], Mapping[str, Json]] = lambda command, arguments: {
        "command": command,
        "args": [*arguments],
    }
    """Makes the entry of a server from its command and arguments."""
    afterwards: str
    """What to do next, and how to see that it works."""

    def file(self, scope: str) -> str:
        """The path of the configuration file."""
        return os.path.abspath(os.path.expanduser(self.files[scope].format_map(folders(os.environ))))


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
        files={"user": "{codex}/config.toml", "project": ".codex/config.toml"},
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
        entry=lambda command, arguments: {"type": "stdio", "command": command, "args": [*arguments]},
        afterwards="Run 'MCP: List Servers' in VS Code and start the server.",
    ),
    "gemini": Client(
        title="Gemini CLI",
        files={"user": "~/.gemini/settings.json", "project": ".gemini/settings.json"},
        afterwards="Restart Gemini CLI; /mcp shows the server.",
    ),
    "opencode": Client(
        title="opencode",
        files={"user": "{opencode}/opencode.json", "project": "opencode.json"},
        section="mcp",
        entry=lambda command, arguments: {"type": "local", "command": [command, *arguments], "enabled": True},
        afterwards="Restart opencode; `opencode mcp list` shows the server.",
    ),
    "zed": Client(
        title="Zed",
        files={"user": "{zed}/settings.json", "project": ".zed/settings.json"},
        section="context_servers",
        afterwards="The settings of Zed's agent panel show the server.",
    ),
    "windsurf": Client(
        title="Windsurf",
        files={"user": "~/.codeium/windsurf/mcp_config.json"},
        afterwards="Refresh the servers in Windsurf's MCP settings.",
    ),
    "goose": Client(
        title="goose",
        files={"user": "{goose}/config.yaml"},
        section="extensions",
        entry=lambda command, arguments: {
            "type": "stdio",
            "name": SERVER_NAME,
            "enabled": True,
            "cmd": command,
            "args": [*arguments],
            "timeout": 300,
        },
        afterwards="Begin a new goose session; it lists the extension.",
    ),
}


def folders(environment: Mapping[str, str]) -> Mapping[str, str]:
    config = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return {
        "applications": "~/Library/Application Support" if sys.platform == "darwin" else config,
        "claude": environment.get("CLAUDE_CONFIG_DIR") or "~",
        "claude_directory": environment.get("CLAUDE_CONFIG_DIR") or "~/.claude",
        "codex": environment.get("CODEX_HOME") or "~/.codex",
        "goose": f"{config}/goose",
        "opencode": f"{config}/opencode",
        "zed": f"{config}/zed",
    }


def words_of(entry: object) -> list[str]:
    """The command and the arguments of an entry of any client; empty for an entry with a URL."""
    if not isinstance(entry, Mapping):
        return []
    command, arguments = entry.get("command", entry.get("cmd")), entry.get("args")
    words = command if isinstance(command, list) else [command] if isinstance(command, str) else []
    return [*map(str, words), *(map(str, arguments) if isinstance(arguments, list) else ())]


def server_command(options: argparse.Namespace) -> list[str]:
    """The command that starts this installation as a server, with the settings that were given as flags."""
    return [*_program(), "serve", *_flags(vars(options))]


def hook_command(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The command of this installation, and the settings that were given as flags, which follow `hook EVENT`."""
    return _program(), _flags(vars(options))


def typed_program() -> list[str]:
    """The command that a person types to start this installation: its name, if it is on the path."""
    program = _program()
    on_path = shutil.which(SERVER_NAME)
    is_on_path = on_path is not None and [os.path.realpath(on_path)] == [os.path.realpath(word) for word in program]
    return [SERVER_NAME] if is_on_path else program


def _program() -> list[str]:
    """The command of this installation, with a path that is not temporary."""
    if extras.is_ephemeral():
        return extras.one_run_command()
    script = os.path.join(os.path.dirname(sys.executable), SERVER_NAME)
    # `-P`: otherwise Python would import modules from the working directory, which may be an untrusted repository
    return [script] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", SERVER_NAME]


def _flags(options: Mapping[str, Any]) -> list[str]:
    """The settings among the options as flags, with absolute paths."""
    flags = {setting.name: options[setting.name] for setting in SETTINGS if options.get(setting.name) is not None}
    if "directories" in flags:
        flags["directories"] = os.pathsep.join(map(os.path.abspath, paths(flags["directories"])))
    if options.get("config"):
        flags["config"] = os.path.abspath(options["config"])
    return [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", value)]
