"""What the agent may use while it works on a step: the patterns of `tools`, and the tools of clients that they match.

A rule prevents accidents; it is no sandbox. A command can do in many ways what a pattern forbids in one, so a step that
must not change anything allows what it needs rather than denying what it can think of.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.read_commands import only_reads
from workflowlookup.language.values import Json

GROUPS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "read": {
        "claude-code": ("Read", "Glob", "Grep", "LS", "NotebookRead", "LSP"),
        "codex": ("read_file", "list_dir", "grep_files", "view_image"),
        "gemini": ("read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content"),
    },
    "edit": {
        "claude-code": ("Edit", "MultiEdit", "Write", "NotebookEdit"),
        "codex": ("apply_patch",),
        "gemini": ("replace", "write_file"),
    },
    "execute": {
        "claude-code": ("Bash", "PowerShell", "Monitor"),
        "codex": ("Bash", "shell", "local_shell", "exec_command", "write_stdin"),
        "gemini": ("run_shell_command",),
    },
    "network": {
        "claude-code": ("WebFetch", "WebSearch"),
        "codex": ("web_search",),
        "gemini": ("web_fetch", "google_web_search"),
    },
}
"""By group: the tools of each client. A new client is a line in each group."""

TOOLS_OF_GROUP: Final[Mapping[str, frozenset[str]]] = {
    group: frozenset(name for names in clients.values() for name in names) for group, clients in GROUPS.items()
}
_ALIASES: Final[Mapping[str, frozenset[str]]] = {
    "Edit": frozenset({"Edit", "MultiEdit", "NotebookEdit", "apply_patch", "replace"}),
    "Write": frozenset({"Write", "apply_patch", "write_file"}),
    "Bash": TOOLS_OF_GROUP["execute"] - {"PowerShell"},
}
"""Names that stand for the tools of other clients that do the same."""
_HARMLESS: Final = frozenset(
    {
        *("Agent", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "ListMcpResourcesTool", "ReadMcpResourceTool"),
        *("Skill", "SlashCommand", "StructuredOutput", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput"),
        *("TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch", "BashOutput", "KillShell", "request_user_input"),
        *("ListAgents", "ReadMcpResourceDirTool", "ReportFindings", "SendMessage", "update_plan", "tool_search"),
        *("create_goal", "get_goal", "update_goal", "list_mcp_resources", "list_mcp_resource_templates"),
        *("read_mcp_resource", "activate_skill", "ask_user", "enter_plan_mode", "exit_plan_mode", "invoke_agent"),
        *("list_background_processes", "read_background_output", "update_topic", "write_todos"),
    }
)
"""Tools that only organise the agent's own work. They are refused only by name: what a subagent does is asked again."""
_OWN_TOOL: Final = re.compile(
    r"mcp__.+__workflow_"
    r"(?:start|submit|status|next|validate|validate_json|list|get|search|runs|cancel|refresh)"
)
"""Tools of this server, by whatever name the client has it. Without them the agent could never leave the step."""

_PATTERN: Final = re.compile(r"(?P<name>[^()]+)(?:\((?P<argument>.*)\))?", re.DOTALL)
_COMMAND_PARTS: Final = re.compile(r"&&|\|\||[;|&\n(){}<>`]|\$\(")
_HARMLESS_REDIRECTION: Final = re.compile(r"(?:\d*>&\d+|\d*>{1,2}\s*/dev/null|<\s*/dev/null)(?=[\s;|&()<>]|$)")
_HARMLESS_PREFIX: Final = re.compile(r"(?:nohup|time|timeout \d\S*) ")
_PREFIX: Final = re.compile(r"(?:\w+=\S*|sudo|env|command|nohup|time|exec|timeout \S+) ")
_SHELL: Final = re.compile(r"(?:.*/)?(?:ba|da|k|z)?sh")
_SCRIPT_OPTION: Final = re.compile(r"-[a-z]*c")
"""How a program is asked to run a command line: `["bash", "-lc", LINE]`."""
_PATCHED_FILE: Final = re.compile(r"^[^\S\n]*\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
"""Codex ignores blanks around these lines."""
_PATCH_COMMAND: Final = re.compile(
    r"\s*apply_patch\s+<<\s*(['\"])(?P<end>\w+)\1\n(?P<patch>.*)\n(?P=end)\s*", re.DOTALL
)
_PATH_FIELDS: Final = ("file_path", "notebook_path", "path")
MAX_TEXT: Final = 100_000
"""Limit on the characters of a command that are searched."""


class ToolRules(msgspec.Struct, frozen=True, kw_only=True):
    """The `tools` of a step."""

    allow: tuple[str, ...] | None = None
    """Only these; None: all that are not denied."""
    deny: tuple[str, ...] = ()

    def describe(self) -> str:
        """A sentence for the agent."""
        listed = None if self.allow is None else ", ".join(self.allow) or "no tools but those of this server"
        denied = f"do not use {', '.join(self.deny)}" if self.deny else ""
        if listed is None:
            return f"In this step, {denied}." if denied else ""
        return f"In this step, use only {listed}{f'; {denied}' if denied else ''}."


class Argument(msgspec.Struct, frozen=True):
    """What a pattern is compared with: a command of a command line, a file of an edit, a URL."""

    spellings: tuple[str, ...]
    """One of them must match."""
    denied_spellings: tuple[str, ...] = ()
    """More of them for `deny`: a command without the variables and the directory that change what it does."""


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that an agent is about to use."""

    name: str
    arguments: tuple[Argument, ...] = ()
    only_reads: bool = False
    """Whether it is a command line that only reads, which counts as `read`."""
    is_unclear: bool = False
    """Whether its commands cannot be searched: every `deny` matches, and no `allow` with an argument."""


def tool_use(name: str, given: Mapping[str, Json], root: str) -> ToolUse:
    """The use of a tool with the arguments that a client gave. Paths are also compared relative to the root."""
    lines = _command_lines(given)
    if name == "apply_patch":
        patches = [*lines, str(given.get("input", ""))]
    else:
        patches = [patch for patch in map(_patch_in, lines) if patch] if name in _ALIASES["Bash"] else []
        is_too_long = takes_argument(name) and any(len(line) > MAX_TEXT for line in lines)
        if is_too_long or 0 < len(patches) < len(lines):
            return ToolUse(name=name, is_unclear=True)
    if patches:
        files = _PATCHED_FILE.findall("\n".join(patches))
        return ToolUse(name="apply_patch", arguments=tuple(Argument(_spellings(path.strip(), root)) for path in files))
    reads = name in _ALIASES["Bash"] and bool(lines) and all(map(only_reads, lines))
    return ToolUse(name=name, arguments=tuple(_arguments(given, lines, root)), only_reads=reads)


def refuses(rules: ToolRules, use: ToolUse) -> str:
    """The pattern of `deny` that forbids a use, or `allow` if that does not contain it; empty if it may go on."""
    if _OWN_TOOL.fullmatch(use.name):
        return ""
    denied = next((pattern for pattern in rules.deny if use.is_unclear or _denies(pattern, use)), "")
    if denied or rules.allow is None or use.name in _HARMLESS:
        return denied
    return "" if _is_allowed(rules.allow, use) else "allow"


def moves_run(name: str) -> bool:
    """Whether a tool of this server may start a run, or send something to it: `workflow_start`, `workflow_submit`, and
    the workflows that are tools."""
    return name.endswith(("__workflow_start", "__workflow_submit")) or not _OWN_TOOL.fullmatch(name)


def _is_allowed(allow: Sequence[str], use: ToolUse) -> bool:
    if (use.only_reads and "read" in allow) or any(_allows(pattern, use) for pattern in allow):
        return True
    with_argument = [pattern for pattern in allow if parts_of(pattern)[1] is not None]
    each = [msgspec.structs.replace(use, arguments=(argument,)) for argument in use.arguments]
    return bool(each) and all(any(_allows(pattern, one) for pattern in with_argument) for one in each)


def parts_of(pattern: str) -> tuple[str, str | None]:
    """The name of a pattern, and its argument if it has one."""
    match = _PATTERN.fullmatch(pattern)
    return (match["name"], match["argument"]) if match else (pattern, None)


def names_of(name: str) -> frozenset[str]:
    """The tools that a name without `*` stands for."""
    return TOOLS_OF_GROUP.get(name) or _ALIASES.get(name) or frozenset({name})


def is_known(name: str) -> bool:
    """Whether a client may have a tool that the name of a pattern stands for."""
    if "*" in name:
        return name.startswith(("mcp__", "*")) or any(_fits(name, tool) for tool in _known_tools())
    return name.startswith("mcp__") or name in TOOLS_OF_GROUP or name in _known_tools()


def takes_argument(name: str) -> bool:
    """Whether a pattern with this name may have an argument in parentheses."""
    return not name.startswith("mcp__") and name not in TOOLS_OF_GROUP and name not in _HARMLESS


def covers(wide: str, narrow: str) -> bool:
    """Whether every use that matches the narrow pattern certainly matches the wide one."""
    if wide in ("*", narrow):
        return True
    (name, argument), (inner, inner_argument) = parts_of(wide), parts_of(narrow)
    if argument is not None and argument != inner_argument:
        return False
    if "*" in inner:
        return False
    return all(_fits_name(name, tool) for tool in names_of(inner))


def _known_tools() -> Iterable[str]:
    return frozenset().union(*TOOLS_OF_GROUP.values(), _HARMLESS)


def _denies(pattern: str, use: ToolUse) -> bool:
    name, argument = parts_of(pattern)
    return _fits_name(name, use.name) and (
        argument is None
        or any(_fits_argument(argument, (*one.spellings, *one.denied_spellings)) for one in use.arguments)
    )


def _allows(pattern: str, use: ToolUse) -> bool:
    name, argument = parts_of(pattern)
    return _fits_name(name, use.name) and (
        argument is None
        or (bool(use.arguments) and all(_fits_argument(argument, one.spellings) for one in use.arguments))
    )


def _fits_name(name: str, tool: str) -> bool:
    return _fits(name, tool) if "*" in name else tool in names_of(name)


def _fits_argument(argument: str, spellings: Iterable[str]) -> bool:
    argument = f"{argument[:-2]} *" if argument.endswith(":*") else argument  # the older form of Claude Code
    patterns = (argument, argument[:-2]) if argument.endswith(" *") else (argument,)
    return any(_fits(pattern, text) for pattern in patterns for text in spellings)


def _fits(pattern: str, text: str) -> bool:
    """Whether a text is as the pattern says; `*` is any text. Takes linear time for each `*`."""
    first, *others = pattern.split("*")
    if not others:
        return text == first
    *middle, last = others
    if not text.startswith(first) or len(text) < len(first) + len(last) or not text.endswith(last):
        return False
    position, end = len(first), len(text) - len(last)
    for part in middle:
        position = text.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


def _command_lines(given: Mapping[str, Json]) -> list[str]:
    """The command lines among the arguments of a tool; which of two a client would run is not known."""
    lines = []
    for field in ("command", "cmd"):
        match given.get(field):
            case str(line):
                lines.append(line)
            case [str(shell), str(option), str(line)] if _SHELL.fullmatch(shell) and _SCRIPT_OPTION.fullmatch(option):
                lines.append(line)
            case [*words]:
                lines.append(" ".join(map(str, words)))
    return lines


def _arguments(given: Mapping[str, Json], lines: Sequence[str], root: str) -> Iterator[Argument]:
    if lines:
        yield from (command for line in lines for command in _commands(line))
    elif isinstance(url := given.get("url"), str):
        host = re.match(r"\w+://(?:[^/@]*@)?([^/:?#]+)", url)
        yield Argument((url, *((f"domain:{host[1].lower()}",) if host else ())))
    else:
        paths = [given[field] for field in _PATH_FIELDS if isinstance(given.get(field), str)]
        yield from (Argument(_spellings(str(path), root)) for path in paths[:1])


def _patch_in(line: str) -> str:
    """The patch of a command line that does nothing else; Codex applies it itself. The delimiter is quoted, else the
    shell would run what the patch contains in `$(…)`."""
    match = _PATCH_COMMAND.fullmatch(line) if len(line) <= MAX_TEXT else None
    return match["patch"] if match and match["end"] not in match["patch"].split("\n") else ""


def _commands(line: str) -> Iterator[Argument]:
    """The commands of a command line. Quotes are not read, so text in quotes may count as a command, too."""
    for part in _COMMAND_PARTS.split(_HARMLESS_REDIRECTION.sub(" ", line)):
        command = " ".join(part.split())
        if not command:
            continue
        bare = _without(_PREFIX, command)
        program, space, rest = bare.partition(" ")
        spellings = dict.fromkeys((command, _without(_HARMLESS_PREFIX, command)))
        yield Argument(tuple(spellings), (bare, f"{program.rpartition('/')[2]}{space}{rest}"))


def _without(prefix: re.Pattern[str], command: str) -> str:
    position = 0
    while match := prefix.match(command, position):
        position = match.end()
    return command[position:]


def _spellings(path: str, root: str) -> tuple[str, ...]:
    """A path without `..`: absolute, and relative to the root if it is in there."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{root}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    absolute, base = f"/{'/'.join(parts)}", root.rstrip("/")
    return (absolute, absolute[len(base) + 1 :]) if root and absolute.startswith(f"{base}/") else (absolute,)
