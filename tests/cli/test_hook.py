"""`workflowlookup hook`: every event in every state of a run, through the real command."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cli import hooks
from cli.hooks import EVENTS, SESSION, call, git, journal, kind, kinds_of_events, start, submit
from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, step, write
from workflowlookup.cli.hook_entry import _may_concern_a_run

SAMPLE = hooks.SAMPLE


def test_the_agent_learns_which_run_waits_for_what(cli: Cli) -> None:
    run_id = start(cli)

    answer = json.loads(call(cli, "Stop"))

    waits = f"Run {run_id} of workflow 'sample-workflow' is not done: it waits for the output of step 'look-around' ("
    assert answer["reason"].startswith(waits)
    assert "Needed: The output is at least 3 characters long: Longer; " in answer["reason"]
    assert "send its output with workflow_submit" in answer["reason"]


def test_after_three_turns_without_progress_the_agent_is_let_go(cli: Cli) -> None:
    run_id = start(cli)

    answers = [kind(call(cli, "Stop")) for _ in range(5)]

    assert answers == ["block", "block", "block", "", ""]
    assert kinds_of_events(cli, run_id)[2:] == [*["stop-blocked"] * 3, "stop-released"]
    assert "let go" in cli("export", run_id, "--markdown").stdout


def test_a_refused_output_is_no_progress_and_is_named(cli: Cli) -> None:
    run_id = start(cli)
    answers = []
    for output in ("a", "b", "c", "d"):
        submit(cli, run_id, output)
        answers.append(call(cli, "Stop"))

    assert [kind(answer) for answer in answers] == ["block", "block", "block", ""]
    assert "Still wrong: Longer." in answers[0]


def test_a_sub_agent_is_told_once_and_counts_not_for_the_agent(cli: Cli) -> None:
    run_id = start(cli)

    told = [kind(call(cli, "SubagentStop", agent_id="a1", stop_hook_active=active)) for active in (False, True)]

    assert told == ["block", ""]
    assert [kind(call(cli, "Stop")) for _ in range(4)] == ["block", "block", "block", ""]
    assert kinds_of_events(cli, run_id)[2] == "stop-blocked"


def test_a_forbidden_tool_is_refused_and_stored_and_an_allowed_one_is_not(cli: Cli) -> None:
    run_id = start(cli)

    refused = json.loads(call(cli, "PreToolUse"))["hookSpecificOutput"]
    allowed = call(cli, "PreToolUse", tool_name="Read")

    assert (refused["permissionDecision"], allowed) == ("deny", "")
    assert f"Step 'look-around' of run {run_id}" in refused["permissionDecisionReason"]
    assert "In this step, use only read." in refused["permissionDecisionReason"]
    assert kinds_of_events(cli, run_id)[2:] == ["tool-refused"]


def test_a_session_gets_the_step_and_what_was_captured(cli: Cli, project: Path) -> None:
    content = document(
        step("measure-it", produces={"size": {"pattern": "size (\\d+)", "type": "integer"}}),
        step("long-step", prompt="ä" * 3_000),
        id="long-workflow",
    )
    write(project, content)
    run = json.loads(cli("run", "long-workflow", "--json", stdin=b"size 42", CLAUDE_CODE_SESSION_ID=SESSION).stdout)
    assert run["state"] == "waiting"

    text = json.loads(call(cli, "SessionStart", source="compact"))["hookSpecificOutput"]["additionalContext"]

    assert f"Run {run['runId']}, workflow 'long-workflow', step 'long-step': waits for output." in text
    assert "Known so far: size = 42." in text
    assert len(text.encode()) < 2_600
    assert text.endswith("(cut; workflow_status has the rest)")


def test_a_prompt_that_matches_names_the_workflow_if_that_is_switched_on(cli: Cli) -> None:
    on = call(cli, "UserPromptSubmit", "--hook-triggers", "true")
    other = call(cli, "UserPromptSubmit", "--hook-triggers", "true", prompt="Something else.")

    assert "'sample-workflow'" in json.loads(on)["hookSpecificOutput"]["additionalContext"]
    assert (other, call(cli, "UserPromptSubmit")) == ("", "")


def test_gemini_cli_gets_the_same_answers_under_its_own_names(cli: Cli) -> None:
    start(cli)
    github = {"server_name": "github", "tool_name": "create"}
    own = {"server_name": "flows", "tool_name": "workflow_submit"}

    edit = json.loads(call(cli, "BeforeTool", tool_name="write_file"))
    other, submitted = (
        call(cli, "BeforeTool", tool_name=f"mcp_{one['server_name']}_{one['tool_name']}", mcp_context=one)
        for one in (github, own)
    )

    assert (edit["decision"], "Step 'look-around'" in edit["reason"]) == ("deny", True)
    assert (json.loads(other)["decision"], submitted) == ("deny", "")
    assert call(cli, "BeforeTool", tool_name="read_file") == ""
    assert json.loads(call(cli, "AfterAgent"))["decision"] == "block"
    on = call(cli, "BeforeAgent", "--hook-triggers", "true")
    assert json.loads(on)["hookSpecificOutput"]["hookEventName"] == "BeforeAgent"


MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"cwd": "\xff"}',
    "another event": b'{"hook_event_name": "SessionEnd"}',
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("event", EVENTS)
def test_what_cannot_be_read_lets_the_agent_go_on(cli: Cli, event: str, name: str) -> None:
    done = cli("hook", event, stdin=MALFORMED[name], WORKFLOWLOOKUP_HOOK_TRIGGERS="1")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("workflowlookup hook: the agent goes on unchecked: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", MALFORMED)
def test_without_a_run_and_settings_it_is_said_as_well(cli: Cli, name: str) -> None:
    done = cli("hook", "PreToolUse", stdin=MALFORMED[name])

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1)
    assert done.stderr.startswith("workflowlookup hook: the agent goes on unchecked: the message is ")


@pytest.mark.parametrize("words", [["Nothing"], [], ["Stop", "--unknown"], ["Stop", "--journal-timeout-seconds", "x"]])
def test_wrong_usage_does_not_stop_the_agent(cli: Cli, words: list[str]) -> None:
    done = cli("hook", *words, stdin=b"{}")

    assert (done.returncode, done.stdout, done.stderr != "") == (0, "", True)


@pytest.mark.parametrize("field", ["session_id", "tool_name", "tool_input", "cwd", "stop_hook_active", "agent_id"])
@pytest.mark.parametrize("value", [None, 7, [], {"a": 1}, "\0"])
def test_fields_of_another_type_do_no_harm(cli: Cli, field: str, value: Json) -> None:
    start(cli)
    message = json.dumps({"session_id": SESSION, "cwd": str(cli.directory), field: value}).encode()

    for event in ("PreToolUse", "SubagentStop"):
        assert cli("hook", event, stdin=message).returncode == 0


@pytest.mark.parametrize("event", ["SessionStart", "PreToolUse", "Stop", "SubagentStop"])
def test_a_journal_that_is_no_database_lets_the_agent_go_on(cli: Cli, event: str) -> None:
    journal(cli).parent.mkdir(parents=True)
    journal(cli).write_bytes(b"This is no database, and was never one." * 100)
    before = journal(cli).read_bytes()

    done = cli("hook", event, stdin=json.dumps({"cwd": str(cli.directory)}).encode())

    assert (done.returncode, done.stdout) == (0, "")
    assert "goes on unchecked: " in done.stderr
    assert journal(cli).read_bytes() == before


def test_a_missing_journal_is_not_made(cli: Cli) -> None:
    assert [call(cli, event) for event in EVENTS] == [""] * len(EVENTS)
    assert not journal(cli).parent.exists()


LOCKED = {
    "SessionStart": ("context", False),
    "PreToolUse": ("deny", True),
    "Stop": ("", True),
    "SubagentStop": ("", True),
}
"""By event: what is answered while another process writes, and whether the hook complains."""


def test_a_locked_journal_still_refuses_tools_and_lets_the_agent_stop(cli: Cli) -> None:
    start(cli)
    message = json.dumps({"session_id": SESSION, "cwd": str(cli.directory), "tool_name": "Edit"}).encode()
    with closing(sqlite3.connect(journal(cli), isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        done = {event: cli("hook", event, "--journal-timeout-seconds", "1", stdin=message) for event in LOCKED}

    assert {event: (kind(one.stdout), one.stderr != "") for event, one in done.items()} == LOCKED
    assert all(one.returncode == 0 for one in done.values())
    assert "the tool is refused, and that is not stored: " in done["PreToolUse"].stderr


def test_a_tool_is_refused_even_if_others_keep_changing_the_run(cli: Cli) -> None:
    start(cli)
    with closing(sqlite3.connect(journal(cli))) as file, file:
        file.execute("CREATE TRIGGER lost BEFORE UPDATE ON runs BEGIN SELECT RAISE(IGNORE); END")
    message = json.dumps({"session_id": SESSION, "cwd": str(cli.directory), "tool_name": "Edit"}).encode()

    done = cli("hook", "PreToolUse", stdin=message)

    assert (kind(done.stdout), "Other processes kept changing the run" in done.stderr) == ("deny", True)


def test_the_settings_of_a_project_are_read_from_every_directory_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(below))
    assert not _may_concern_a_run("UserPromptSubmit", b"{}")

    (tmp_path / "workflowlookup.toml").write_text("hook_triggers = true")

    assert _may_concern_a_run("UserPromptSubmit", b"{}")


def test_settings_that_cannot_be_read_let_the_agent_go_on(cli: Cli) -> None:
    start(cli)
    (cli.own / "workflowlookup.toml").write_text("journal = [")

    done = cli("hook", "Stop", stdin=json.dumps({"session_id": SESSION, "cwd": str(cli.directory)}).encode())

    assert (done.returncode, done.stdout) == (0, "")
    assert "workflowlookup.toml" in done.stderr


# ── projects and sessions ───────────────────────────────────────────────────────────────────────────────────────────


def test_two_sessions_in_one_project_have_their_own_runs(cli: Cli) -> None:
    first, second = start(cli, session="session-1"), start(cli, session="session-2")

    assert first in call(cli, "Stop", session="session-1")
    assert second in call(cli, "Stop", session="session-2")
    assert call(cli, "Stop", session="session-3") == ""
    assert all(run_id in call(cli, "SessionStart", session="session-3") for run_id in (first, second))


RESPONSES: dict[str, Callable[[JsonObject], Json]] = {
    "Claude Code": json.dumps,
    "Codex": lambda answer: {"content": [{"type": "text", "text": json.dumps(answer)}], "structuredContent": answer},
    "Gemini CLI": lambda answer: {"llmContent": [{"text": f"<context>\n{json.dumps(answer)}\n</context>"}]},
}
"""How each client passes the answer of a tool on."""


@pytest.mark.parametrize("client", RESPONSES)
def test_a_run_belongs_to_the_session_that_last_sent_something_to_it(cli: Cli, client: str) -> None:
    run_id = start(cli, session="at-the-start-of-the-server")
    response = RESPONSES[client]({"runId": run_id, "state": "waiting"})
    assert call(cli, "Stop") == ""

    for tool in ("workflow_status", "workflow_submit"):
        call(cli, "PostToolUse", tool_name=f"mcp__workflowlookup__{tool}", tool_response=response)
        held = kind(call(cli, "Stop"))
        assert held == ("block" if tool == "workflow_submit" else "")

    assert call(cli, "Stop", session="at-the-start-of-the-server") == ""
    assert kinds_of_events(cli, run_id)[2:] == ["session-changed", "stop-blocked"]
    assert "Another session of the client went on" in cli("export", run_id, "--markdown").stdout


@pytest.mark.parametrize("response", [None, 7, [], {}, "", '{"runId": 7}', '{"runId": "123456789abc"}', "\0"])
def test_an_answer_about_no_open_run_changes_nothing(cli: Cli, response: Json) -> None:
    run_id = start(cli, session="session-2")

    assert call(cli, "PostToolUse", tool_name="mcp__flows__workflow_start", tool_response=response) == ""
    assert len(kinds_of_events(cli, run_id)) == 2


def test_a_run_of_a_client_that_tells_no_session_belongs_to_every_session(cli: Cli) -> None:
    """Codex tells its hooks the session, and its servers not."""
    run_id = cli.start_run()
    message = json.dumps({"session_id": "any", "turn_id": "1", "cwd": str(cli.directory)}).encode()

    assert run_id in cli("hook", "Stop", stdin=message).stdout


def test_one_session_in_two_projects_stops_only_where_its_run_is(cli: Cli, tmp_path: Path) -> None:
    start(cli)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")

    assert call(cli, "Stop", directory=other) == ""
    assert call(cli, "SessionStart", directory=other) == ""
    below = cli.directory / "src"
    below.mkdir()
    assert kind(call(cli, "Stop", directory=below)) == "block"


def test_a_worktree_is_a_project_of_its_own(cli: Cli, tmp_path: Path) -> None:
    git(cli.directory, "init")
    git(cli.directory, "commit", "--allow-empty", "-m", "First")
    worktree = tmp_path.with_name(f"{tmp_path.name}-worktree")
    git(cli.directory, "worktree", "add", str(worktree))
    start(cli)

    assert kind(call(cli, "Stop")) == "block"
    assert call(cli, "Stop", directory=worktree) == ""
    shutil.rmtree(worktree)


def test_a_project_that_was_renamed_has_no_run_any_more(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(cli.directory / ".workflowlookup", old / ".workflowlookup")
    git(old, "init")
    start(cli, root=str(old))
    assert kind(call(cli, "Stop", directory=old)) == "block"

    os.rename(old, new)

    assert call(cli, "Stop", directory=new) == ""


def test_an_agent_cannot_pause_its_run(cli: Cli) -> None:
    run_id = start(cli)

    done = cli("pause", run_id, CLAUDECODE="1")

    assert (done.returncode, "Only a person may pause a run" in done.stderr) == (1, True)
    assert kind(call(cli, "Stop")) == "block"
