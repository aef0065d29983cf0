"""Hooks as clients call them, and the runs that they are about, for tests."""

import json
import subprocess
from pathlib import Path

from support.command_line import Cli
from support.json_values import Json
from support.make import document, step

EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop")
SAMPLE = document(
    step(
        "look-around",
        prompt="Look around.",
        tools={"allow": ["read"]},
        validationCriteria=[{"type": "length", "min": 3, "message": "Longer"}],
        produces={"size": {"pattern": "size (\\d+)", "type": "integer", "optional": True}},
    ),
    step("ask-first", requireConfirmation={"when": "before"}),
    step("the-end"),
    triggers=["odd thing"],
)
SESSION = "session-1"


def start(cli: Cli, *, session: str = SESSION, root: str = "") -> str:
    done = cli("run", "sample-workflow", "--json", CLAUDE_CODE_SESSION_ID=session, CLAUDE_PROJECT_DIR=root)
    return str(json.loads(done.stdout)["runId"])


def call(
    cli: Cli, event: str, *words: str, session: str = SESSION, directory: Path | None = None, **fields: Json
) -> str:
    """What the hook prints for a message of Claude Code. It always exits with 0 and, here, without a complaint."""
    message = {
        "hook_event_name": event,
        "session_id": session,
        "cwd": str(directory or cli.directory),
        "tool_name": "Edit",
        "tool_input": {"file_path": "a.py"},
        "prompt": "An odd thing happened.",
        **fields,
    }
    done = cli("hook", event, *words, stdin=json.dumps(message).encode(), CLAUDE_CODE_SESSION_ID=session)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def kind(output: str) -> str:
    """`block`, `deny`, `context` or nothing."""
    if not output:
        return ""
    answer = json.loads(output)
    specific = answer.get("hookSpecificOutput", {})
    return str(
        answer.get("decision") or specific.get("permissionDecision") or ("additionalContext" in specific and "context")
    )


def submit(cli: Cli, run_id: str, output: str) -> None:
    """As the agent does over MCP: the output of the current step."""
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "workflow_submit",
        "params": {"runId": run_id, "stepId": "look-around", "output": output},
    }
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    lines = "".join(json.dumps(message) + "\n" for message in (hello, request))
    assert cli("serve", stdin=lines.encode()).returncode == 0


def kinds_of_events(cli: Cli, run_id: str) -> list[str]:
    lines = cli("export", run_id).stdout.splitlines()
    return [record["event"]["event"] for line in lines if "event" in (record := json.loads(line))]


def journal(cli: Cli) -> Path:
    return cli.home / ".local/share/workflowlookup/runs.sqlite"


def git(directory: Path, *words: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)
