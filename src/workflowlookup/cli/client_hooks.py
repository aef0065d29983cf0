"""The hooks of coding agents that `install CLIENT --hooks` writes: their files, and our entries in them.

All share one form: by event, groups of commands. A new client of that form is a line in each table.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from workflowlookup.cli.clients import SERVER_NAME, folders
from workflowlookup.cli.configuration import NotReadable, json_section, read_text, with_member, without_server
from workflowlookup.cli.hook_entry import ALIASES, EVENTS
from workflowlookup.errors import StorageError
from workflowlookup.language.values import Json

HOOK_FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "claude-code": {"user": "{claude_directory}/settings.json", "project": ".claude/settings.json"},
    "codex": {"user": "{codex}/hooks.json", "project": ".codex/hooks.json"},
    "gemini": {"user": "~/.gemini/settings.json", "project": ".gemini/settings.json"},
}
"""By client and scope: the file with its hooks."""
AFTERWARDS: Final[Mapping[str, str]] = {
    "claude-code": "Restart Claude Code; /hooks shows them.",
    "codex": "Restart Codex. It asks you to review the hooks, as /hooks does, and runs none before: trust those of "
    "{file} whose command is `{command} hook EVENT`. It asks again when one of them changes.",
    "gemini": "Restart Gemini CLI; /hooks shows them.",
}
"""By client: what the user does next. Codex stores the hash of each trusted hook in its config.toml, by the file, the
event and the position of the hook."""
HOOK_EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": EVENTS,
    "codex": EVENTS,
    "gemini": ("SessionStart", *ALIASES),
}
TOOLS_OF_SERVER: Final[Mapping[str, str]] = {
    "claude-code": "mcp__.*{}__.*",
    "codex": "mcp__.*{}__.*",
    "gemini": "mcp_{}_.*",
}
"""By client: a pattern for the tools of a server with this name; those of a plugin have its name before."""
_FOR_OWN_TOOLS: Final = ("PostToolUse", "AfterTool")
TIMEOUTS: Final[Mapping[str, int]] = {"claude-code": 10, "codex": 10, "gemini": 10_000}
"""By client: after this time it goes on without an answer; in seconds or milliseconds, as it wants."""
SECTION: Final = "hooks"
_OURS: Final = re.compile(rf"(?:.*/)?{SERVER_NAME}(?:@.*|==.*)?")


def groups(
    client: str, command: Sequence[str], options: Sequence[str] = (), server: str = SERVER_NAME
) -> dict[str, Json]:
    """By event of a client: the group of hooks that starts this command. `server`: our name in the client."""
    timeout = TIMEOUTS[client]
    own_tools = TOOLS_OF_SERVER[client].format(re.sub(r"\W|_", ".", server))
    return {
        event: ({"matcher": own_tools} if event in _FOR_OWN_TOOLS else {})
        | {
            "hooks": [
                {"type": "command", "command": shlex.join([*command, "hook", event, *options]), "timeout": timeout}
            ]
        }
        for event in HOOK_EVENTS[client]
    }


def with_hooks(text: str, entries: Mapping[str, Json]) -> str:
    """JSON text with our hooks in place of older ones of ours. Raises `NotReadable` and `NotEditable`."""
    for event, group in entries.items():
        before = _groups_of(text, event)
        after = [*_foreign(before), group]
        if before != after:
            text = with_member(text, SECTION, event, after)
    return text


def without_hooks(text: str, file: str) -> str:
    """JSON text without our hooks. Raises as `with_hooks`."""
    for event in (*EVENTS, *ALIASES):
        before = _groups_of(text, event)
        after = _foreign(before)
        if after and after != before:
            text = with_member(text, SECTION, event, after)
        elif before and not after:
            text = without_server(text, file, SECTION, event)
    return text


def has_hooks(text: str, event: str = "") -> bool:
    """Whether JSON text has hooks of ours, for any event or for this one. Raises `NotReadable`."""
    groups_of_events = (_groups_of(text, each) for each in ([event] if event else (*EVENTS, *ALIASES)))
    return any(_foreign(existing) != existing for existing in groups_of_events)


def is_in_settings(event: str, directory: str, environment: Mapping[str, str]) -> bool:
    """Whether the settings of the user, or of the project in this directory, make Claude Code start our hook."""
    for scope in HOOK_FILES["claude-code"]:
        try:
            text = read_text(hook_file("claude-code", scope, folders(environment), directory))
            if text and has_hooks(text, event):
                return True
        except (NotReadable, StorageError):  # Claude Code cannot read it either
            continue
    return False


def _groups_of(text: str, event: str) -> list[Json]:
    section = json_section(text, SECTION)
    if section is not None and not isinstance(section, dict):
        raise NotReadable(f"'{SECTION}' should be an object")
    registered = (section or {}).get(event, [])
    if not isinstance(registered, list):
        raise NotReadable(f"'{SECTION}.{event}' should be a list")
    return registered


def _foreign(existing: Sequence[Json]) -> list[Json]:
    """The groups without our hooks; a group that had only ours is left out."""
    remaining = []
    for group in existing:
        hooks = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(hooks, list) or not any(map(_is_ours, hooks)):
            remaining.append(group)
        elif rest := [hook for hook in hooks if not _is_ours(hook)]:
            remaining.append({**group, "hooks": rest})
    return remaining


def _is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # quotes that are not closed
        return False
    position = words.index("hook") if "hook" in words else 0
    return any(_OURS.fullmatch(word) for word in words[:position]) and words[position + 1 : position + 2] != []


def hook_file(client: str, scope: str, places: Mapping[str, str], directory: str = "") -> str:
    """The path of the file with the hooks of a client; that of a project is in this directory, by default the working
    directory."""
    path = os.path.expanduser(HOOK_FILES[client][scope].format_map(places))
    return os.path.abspath(os.path.join(directory, path))
