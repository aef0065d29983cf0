"""`workflowlookup hook EVENT`: clients start it before each use of a tool, so every import counts.

Most uses are outside of a run. So this module, with nothing but the standard library, looks into the default journal
for an open run of the project, and ends if there is none. Whatever it cannot decide it leaves to `hook_answers`. A hook
that fails lets the agent go on: the exit code is always 0, and one line on standard error says why.
"""

import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

EVENTS: Final = ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SubagentStop")
MAX_INPUT: Final = 16 << 20
BUSY_SECONDS: Final = 1.0
PREFIX: Final = "WORKFLOWLOOKUP_"
_OPEN: Final = {"SessionStart": "state IN ('queued', 'running', 'waiting')"}
_WAITING: Final = "state = 'waiting'"
_MISSING: Final = ("no such table", "no such column")


class UnreadableHook(Exception):
    """The message of the client cannot be used; the exception says why."""


def run_hook(arguments: Sequence[str]) -> int:
    """Answer a hook. Returns the exit code, which is 0: others would stop the agent."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        from workflowlookup.cli.main import main  # noqa: PLC0415 - with options only

        with contextlib.suppress(SystemExit):
            main(["hook", *arguments])
        return 0
    event = arguments[0]
    try:
        message = read_message(event)
        directory = project_directory(message)
        if _may_concern_a_run(event, directory):
            from workflowlookup.cli.hook_answers import answer_hook  # noqa: PLC0415 - only if there may be a run

            answer_hook(event, message, {}, directory, None)
    except Exception as problem:  # noqa: BLE001 - no fault of ours may stop the agent
        complain(problem)
    return 0


def complain(problem: BaseException) -> None:
    """Say in one line why nothing was done."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    print(f"workflowlookup hook: the agent goes on unchecked: {text[:500]}", file=sys.stderr)


def read_message(event: str) -> Mapping[str, Any]:
    """The message of the client on standard input. Raises `UnreadableHook`."""
    if event not in EVENTS:
        raise UnreadableHook(f"there is no hook for '{event[:60]}'. There are {', '.join(EVENTS)}")
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise UnreadableHook("the message is too long")
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


def project_directory(message: Mapping[str, Any]) -> str:
    """The directory of the client's project: its variable, else the working directory that its message names."""
    for path in (os.environ.get("CLAUDE_PROJECT_DIR"), message.get("cwd")):
        if isinstance(path, str) and os.path.isabs(path) and "\0" not in path:
            return path
    return os.getcwd()


def _may_concern_a_run(event: str, directory: str) -> bool:
    """False only if the settings are the defaults, and no run of this directory is open."""
    environment = {name for name in os.environ if name.startswith(PREFIX)}
    if environment - {f"{PREFIX}JOURNAL"} or any(map(os.path.lexists, _settings_files(directory))):
        return True
    if event == "UserPromptSubmit":
        return False
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    path = os.environ.get(f"{PREFIX}JOURNAL") or os.path.join(data, "workflowlookup", "runs.sqlite")
    if not os.path.isabs(path):
        return True
    return any(_is_around(root, directory) for root in _roots_of_open_runs(path, event))


def _settings_files(directory: str) -> tuple[str, str]:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME") or "~", ".config")
    name = "workflowlookup.toml"
    own = os.path.join(directory, os.path.expanduser(base), "workflowlookup", name)
    return own, os.path.join(directory, name)


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
        condition = _OPEN.get(event, _WAITING)
        rows = connection.execute(f"SELECT DISTINCT root FROM runs WHERE {condition} AND root <> ''")  # noqa: S608
        return {root for (root,) in rows}
    except sqlite3.OperationalError as problem:
        if str(problem).startswith(_MISSING):
            return set()
        raise
    finally:
        connection.close()
