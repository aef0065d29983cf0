"""A cold hook outside of a run and in one, beside a bare interpreter that reads the same journal once."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from workflowlookup.language.document.building import build
from workflowlookup.runs.draft import Location
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

BARE: Final = "bare interpreter and one read of SQLite"
OUTSIDE: Final = "hook outside of a run"
INSIDE: Final = "hook in a run"
_READ: Final = """
import sqlite3, sys
sys.stdin.buffer.read()
connection = sqlite3.connect(f"file://{sys.argv[1]}?mode=ro", uri=True)
connection.execute("SELECT DISTINCT root FROM runs WHERE state = 'waiting'").fetchall()
"""
_HOOK: Final = "import sys; from workflowlookup.__main__ import main; sys.exit(main())"
"""What the installed command does."""
_WORKFLOW: Final = {
    "id": "measured-hook",
    "name": "Measured hook",
    "description": "A run to measure what a hook costs.",
    "steps": [{"id": "look", "title": "Look", "prompt": "Look.", "tools": {"allow": ["read"]}}],
}


def measure(scratch: Path, rounds: int) -> Mapping[str, Sequence[float]]:
    """Milliseconds from spawn to end, for each round."""
    project, other = scratch / "hooked", scratch / "unhooked"
    for directory in (project, other):
        directory.mkdir()
    path = str(scratch / "hooks.sqlite")
    with closing(Runs(SqliteJournal(path), locate=lambda: Location(root=os.path.realpath(project)))) as runs:
        runs.start(build(_WORKFLOW), {}, {})
    hook = [sys.executable, "-c", _HOOK, "hook", "PreToolUse"]
    commands = {BARE: [sys.executable, "-c", _READ, path], OUTSIDE: hook, INSIDE: hook}
    took: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            elapsed = _run(command, path, project if name == INSIDE else other, scratch)
            if number:  # the first round only warms caches and writes bytecode
                took[name].append(elapsed)
    return took


def _run(command: Sequence[str], journal: str, project: Path, home: Path) -> float:
    message = {"hook_event_name": "PreToolUse", "session_id": "1", "cwd": str(project), "tool_name": "Read"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "WORKFLOWLOOKUP_JOURNAL": journal}
    start = time.perf_counter_ns()
    subprocess.run(
        command, input=json.dumps(message).encode(), env=environment, cwd=project, capture_output=True, check=True
    )
    return (time.perf_counter_ns() - start) / 1e6
