"""`workflowlookup hook EVENT`: clients start it before each use of a tool, so every import counts.

Most uses are outside of a run. So this module, with nothing but the standard library, looks into the default journal
for an open run of the project, and ends if there is none. Whatever it cannot decide it leaves to `hook_answers`. A hook
that fails lets the agent go on: the exit code is always 0, and one line on standard error says why.
"""

import os
import sqlite3
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than the journal to read
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop")
ALIASES = {
    "BeforeAgent": "UserPromptSubmit",
    "BeforeTool": "PreToolUse",
    "AfterTool": "PostToolUse",
    "AfterAgent": "Stop",
}
"""The events of Gemini CLI that have another name, and those that mean the same."""
PLUGIN_VARIABLE = "CLAUDE_PLUGIN_ROOT"
"""Claude Code sets it for the hooks of a plugin."""
MAX_INPUT = 16 << 20
MAX_PATH = 4096
BUSY_SECONDS = 1.0
PREFIX = "WORKFLOWLOOKUP_"
_OPEN = {
    "SessionStart": "state IN ('queued', 'running', 'waiting')",
    "PreToolUse": "state IN ('running', 'waiting')",
    "PostToolUse": "state IN ('queued', 'running', 'waiting')",
}
_WAITING = "state = 'waiting'"
_EVENT_OF_MESSAGE = """SELECT CASE WHEN json_valid(?1) THEN
    CASE WHEN json_type(?1) = 'object' THEN coalesce(json_extract(?1, '$.hook_event_name'), ?2) END END"""
_MISSING = ("no such table", "no such column")


class UnreadableHook(Exception):
    """The message of the client cannot be used; the exception says why."""


def run_hook(arguments: "Sequence[str]") -> int:
    """Answer a hook. Returns the exit code, which is 0: others would stop the agent."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        from workflowlookup.cli.main import main  # noqa: PLC0415 - with options only

        try:
            main(["hook", *arguments])
        except SystemExit:
            return 0
        return 0
    event = arguments[0]
    try:
        data = read_input(event)
        if _may_concern_a_run(event, data):
            from workflowlookup.cli.hook_answers import answer_hook  # noqa: PLC0415 - only if there may be a run

            answer_hook(event, parse_message(event, data), {}, None)
        elif not _is_message(event, data):
            parse_message(event, data)  # raises, and says what is wrong
    except Exception as problem:  # noqa: BLE001 - no fault of ours may stop the agent
        complain(problem)
    return 0


def complain(problem: BaseException, outcome: str = "the agent goes on unchecked") -> None:
    """Say in one line what came of a problem."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    if sys.stderr is not None:  # closed: `print` would write to standard output, which the client reads
        print(f"workflowlookup hook: {outcome}: {text[:500]}", file=sys.stderr)


def read_input(event: str) -> bytes:
    """What the client sent for an event. Raises `UnreadableHook`."""
    if event not in EVENTS and event not in ALIASES:
        raise UnreadableHook(f"there is no hook for '{event[:60]}'. There are {', '.join((*EVENTS, *ALIASES))}")
    if sys.stdin is None:
        raise UnreadableHook("the message is missing: standard input is closed")
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise UnreadableHook("the message is too long")
    return data


def _is_message(event: str, data: bytes) -> bool:
    """Whether `parse_message` can certainly read the message. SQLite is imported already, and `json` is not."""
    connection = sqlite3.connect(":memory:")
    try:
        (named,) = connection.execute(_EVENT_OF_MESSAGE, (data.decode(), event)).fetchone()
    except (UnicodeDecodeError, sqlite3.Error):
        return False
    finally:
        connection.close()
    return bool(named == event)


def parse_message(event: str, data: bytes) -> "Mapping[str, Any]":
    """The message of the client. Raises `UnreadableHook`."""
    import json  # noqa: PLC0415 - slower than all the rest

    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise UnreadableHook(f"the message is not JSON ({problem})") from None
    if not isinstance(message, dict):
        raise UnreadableHook("the message is not a JSON object")
    named = message.get("hook_event_name", event)
    if named != event:
        raise UnreadableHook(f"the message is of the event '{str(named)[:60]}', not of '{event}'")
    return message


def project_directory(directory: object = None) -> str:
    """The directory of the client's project: its variable, else the working directory that its message names, else
    that of this process, which is the same in all clients that are known."""
    for path in (os.environ.get("CLAUDE_PROJECT_DIR"), directory):
        if isinstance(path, str) and os.path.isabs(path) and "\0" not in path and len(path) <= MAX_PATH:
            return path
    return os.getcwd()


def _may_concern_a_run(event: str, data: bytes) -> bool:
    """False only if the settings are the defaults, and no run of the project is open."""
    directory = project_directory()
    environment = {name for name in os.environ if name.startswith(PREFIX)}
    if environment - {f"{PREFIX}JOURNAL"} or any(map(os.path.lexists, _settings_files(directory))):
        return True
    if ALIASES.get(event, event) == "UserPromptSubmit":
        return False
    share = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    path = os.environ.get(f"{PREFIX}JOURNAL") or os.path.join(share, "workflowlookup", "runs.sqlite")
    if not os.path.isabs(path):
        return True
    return any(_is_around(root, directory) or _is_named(root, data) for root in _roots_of_open_runs(path, event))


def _is_named(root: str, data: bytes) -> bool:
    """Whether the message may name a directory, as far as its text shows."""
    return not root.isascii() or '"' in root or "\\" in root or root.encode() in data


def _settings_files(directory: str) -> "Iterator[str]":
    """Where settings files may be: of the user, and in the directory and all above it."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME") or "~", ".config")
    name = "workflowlookup.toml"
    yield os.path.join(directory, os.path.expanduser(base), "workflowlookup", name)
    parent = os.path.realpath(directory)
    yield os.path.join(parent, name)
    while parent != (parent := os.path.dirname(parent)):
        yield os.path.join(parent, name)


def _is_around(root: str, directory: str) -> bool:
    real = os.path.realpath(directory)
    return real == root or real.startswith(f"{root.rstrip(os.sep)}{os.sep}")


def _roots_of_open_runs(path: str, event: str) -> set[str]:
    """The projects with open runs in a journal. A journal that is missing or has never had any has none."""
    try:
        if not os.stat(path).st_size:
            return set()
    except FileNotFoundError:
        return set()
    try:
        has_log = os.stat(f"{path}-wal").st_size > 0
    except FileNotFoundError:
        has_log = False
    name = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri = f"file://{name}?{'mode=ro' if has_log else 'immutable=1'}"  # as in store/sqlite_file
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)
    try:
        condition = _OPEN.get(ALIASES.get(event, event), _WAITING)
        rows = connection.execute(f"SELECT DISTINCT root FROM runs WHERE {condition} AND root <> ''")  # noqa: S608
        return {root for (root,) in rows}
    except sqlite3.OperationalError as problem:
        if str(problem).startswith(_MISSING):
            return set()
        raise
    finally:
        connection.close()
