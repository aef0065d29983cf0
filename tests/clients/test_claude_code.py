"""The real Claude Code with our server and hooks: it starts a run, stays on it, and touches only what a step allows."""

import json
import os
import shlex
import sys
from contextlib import closing
from pathlib import Path

import pytest

import release
from clients.coding_agents import WORKFLOW, ClaudeCode, run_id_in, submit
from clients.model_api import Say, ScriptedModel, Use
from support.command_line import Cli
from support.json_values import JsonObject
from support.make import write
from support.web import WebServer
from workflowlookup import __version__
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens

START = ClaudeCode.tool("workflow_start", workflowId="small-change")
SENTENCE = "The export of March lacks a day."
STEP = "workflow 'small-change', step 'look-around': waits for output."
"""What only the hook at the start of a session says."""


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> ClaudeCode:
    """Claude Code as it comes."""
    return ClaudeCode(Cli(tmp_path_factory.mktemp("claude")))


@pytest.fixture
def claude(bare: ClaudeCode) -> ClaudeCode:
    bare.install("claude-code")
    return bare


def test_an_agent_that_stops_too_early_goes_on_until_the_run_is_done(claude: ClaudeCode) -> None:
    look, change = submit(ClaudeCode, "look-around", "x is 1."), submit(ClaudeCode, "change-it", "It is two.")
    script = [START, Say("I am done."), look, Say("Now I am done."), change, Say("It is done.")]
    with ScriptedModel(script) as model:
        lines = claude.say(model, "Change it.")

    run = claude.only_run()
    last = model.texts()[-1]
    assert f"Run {run['runId']} of workflow 'small-change' is not done" in last
    assert "it waits for the output of step 'change-it'" in last
    assert (run["state"], lines[-1]["result"]) == ("completed", "It is done.")
    assert claude.events(run["runId"]).count("stop-blocked") == 2


def test_a_sub_agent_is_stopped_once_and_an_agent_without_progress_is_let_go(claude: ClaudeCode) -> None:
    task: JsonObject = {"description": "Look", "prompt": "Look.", "subagent_type": "general-purpose"}
    delegate = Use("Agent", task | {"run_in_background": False})
    with ScriptedModel([START, delegate, *[Say("I looked.")] * 2, *[Say("I am done.")] * 9]) as model:
        lines = claude.say(model, "Change it.")

    run_id = claude.only_run()["runId"]
    assert claude.events(run_id)[2:] == [*["stop-blocked"] * 4, "stop-released"]
    assert any(f"If you were given this step: Run {run_id}" in request for request in model.texts())
    assert lines[-1]["result"] == "I am done."


def test_an_agent_may_stop_once_a_person_has_paused_the_run(claude: ClaudeCode) -> None:
    def pause(request: str) -> Say:
        assert claude.cli("pause", run_id_in(request)).returncode == 0
        return Say("I am done.")

    with ScriptedModel([START, Say("I am done."), pause]) as model:
        claude.say(model, "Change it.")

    run = claude.only_run()
    assert run["state"] == "waiting"
    assert claude.events(run["runId"])[2:] == ["stop-blocked", "paused"]


def test_a_prompt_that_a_workflow_is_for_names_it(bare: ClaudeCode) -> None:
    bare.install("claude-code", "--hook-triggers", "true")
    with ScriptedModel([Say("I see.")]) as model:
        bare.say(model, "Please set x to two.")

    assert "There is a workflow for this: 'small-change'" in model.texts()[0]


def test_an_edit_is_refused_in_one_step_and_made_in_the_next(claude: ClaudeCode) -> None:
    file = str(claude.file)
    edit = Use("Edit", {"file_path": file, "old_string": "x = 1", "new_string": "x = 2"})
    before: list[str] = []

    def look(request: str) -> Use:
        before.append(claude.file.read_text())
        return ClaudeCode.tool("workflow_submit", runId=run_id_in(request), stepId="look-around", output="x is 1.")

    change = submit(ClaudeCode, "change-it", "It is two.")
    with ScriptedModel([START, Use("Read", {"file_path": file}), edit, look, edit, change, Say("Done.")]) as model:
        claude.say(model, "Change it.")

    run = claude.only_run()
    assert before == ["x = 1\n"]
    assert (
        f"Step 'look-around' of run {run['runId']} (workflow 'small-change') does not allow this." in model.texts()[-1]
    )
    assert claude.file.read_text() == "x = 2\n"
    assert run["state"] == "completed"
    assert claude.events(run["runId"]).count("tool-refused") == 1


def test_compaction_brings_the_step_back(claude: ClaudeCode) -> None:
    with ScriptedModel([START, *[Say("I wait.")] * 4, Say("A summary without the run."), Say("I go on.")]) as model:
        claude.say(model, "Change it.", "/compact", "Go on.")

    *_, summarized, last = model.texts()
    assert STEP not in summarized
    assert "A summary without the run." in last
    assert STEP in last


def test_resuming_a_session_brings_the_step_back(claude: ClaudeCode) -> None:
    with ScriptedModel([START, *[Say("I wait.")] * 4, Say("I go on.")]) as model:
        session = str(claude.say(model, "Change it.")[-1]["session_id"])
        before = model.texts()
        claude.say(model, "Go on.", options=("--resume", session))

    assert not any(STEP in request for request in before)
    assert STEP in model.texts()[-1]


def test_a_run_that_is_started_after_clear_holds_the_agent_and_an_older_one_once_it_goes_on(claude: ClaudeCode) -> None:
    """`/clear` begins another session, and keeps the server, which knows only the first."""
    wait = [Say("I wait.")] * 4
    held = [START, Say("I am done."), submit(ClaudeCode, "look-around", "x is 1."), *wait]
    with ScriptedModel([START, *wait, *held, Say("Another task.")]) as model:
        claude.say(model, "Change it.", "/clear", "Change it again.", "/clear", "Something else.")

    second, first = (claude.events(run["runId"])[2:] for run in claude.runs())  # the last started comes first
    let_go = [*["stop-blocked"] * 3, "stop-released"]
    assert first == let_go
    assert second == ["session-changed", "stop-blocked", "output-accepted", "step-offered", *let_go]
    assert STEP in model.texts()[-1]


def test_over_http_a_run_has_the_directory_of_the_client(bare: ClaudeCode, tmp_path: Path, library: Path) -> None:
    """So that a witness knows whether it is a run of its project."""
    write(library, WORKFLOW)
    journal = SqliteJournal(str(tmp_path / "runs.sqlite"))
    secret, _ = Tokens(journal).create("ada", ["run"], ["*"], seconds=600, is_person=False)
    server = WebServer(tmp_path, "--journal", str(tmp_path / "runs.sqlite"), directory=library)
    entry = {"type": "http", "url": server.url, "headers": {"Authorization": f"Bearer {secret}"}}
    (bare.cli.home / ".claude.json").write_text(json.dumps({"mcpServers": {"workflowlookup": entry}}))
    with ScriptedModel([START, Say("I wait.")]) as model:
        bare.say(model, "Change it.")
    server.stop()

    with closing(Runs(journal)) as runs:
        assert runs.get(run_id_in(model.texts()[1])).client_root == str(bare.cli.directory)


def test_a_slash_command_carries_a_whole_sentence(claude: ClaudeCode) -> None:
    with ScriptedModel([Say("I see.")]) as model:
        claude.say(model, f"/mcp__workflowlookup__bug-investigation {SENTENCE}")

    typed, ours = model.texts()[0].split("</command-args>")
    assert typed.endswith(f"<command-args>{SENTENCE}")
    assert "workflow_start" in ours
    assert "March" not in ours  # nothing was split over arguments


QUERIES = ("workflow steps", "playbook", "checklist", "procedure", "workflow run status")


def test_the_tools_to_start_with_are_there_and_every_search_for_what_a_workflow_is_finds_others(
    claude: ClaudeCode,
) -> None:
    """The word `workflow` alone finds only the built-in tool that has exactly this name."""
    searches = [Use("ToolSearch", {"query": query, "max_results": 5}) for query in QUERIES]
    with ScriptedModel([*searches, Say("I see.")]) as model:
        claude.say(model, "How do we handle a bug?")

    first, *_, last = model.requests
    blocks = [block for message in last["messages"] for block in message["content"] if isinstance(block, dict)]
    results = [block["content"] for block in blocks if block["type"] == "tool_result"]
    found = [{str(tool["tool_name"]) for tool in result} for result in results]
    assert {f"mcp__workflowlookup__workflow_{name}" for name in ("start", "submit", "list")} <= {
        str(tool["name"]) for tool in first["tools"]
    }
    assert [any(name.startswith("mcp__workflowlookup__") for name in names) for names in found] == [True] * len(QUERIES)
    assert "mcp__workflowlookup__workflow_status" in found[-1]


PLUGIN_SERVER = "mcp__plugin_workflowlookup_workflowlookup"


@pytest.fixture
def plugin(bare: ClaudeCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The options of Claude Code that load the plugin; its commands start what is installed here."""
    for name, content in release.plugin_files(__version__).items():
        file = tmp_path / "plugin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    uvx = tmp_path / "bin" / "uvx"  # runs what is installed here, whatever version it is asked for
    uvx.parent.mkdir()
    uvx.write_text(f'#!/bin/sh\nshift\nexec {shlex.quote(sys.executable)} -P -m workflowlookup "$@"\n')
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uvx.parent}{os.pathsep}{os.environ['PATH']}")
    return ("--plugin-dir", str(tmp_path / "plugin"), "--allowedTools", PLUGIN_SERVER)


def test_the_plugin_brings_the_server_and_the_hooks(bare: ClaudeCode, plugin: tuple[str, ...]) -> None:
    write_file = Use("Write", {"file_path": str(bare.file.with_name("b.py")), "content": "y = 1"})

    def submit_with_plugin(request: str) -> Use:
        arguments = {"runId": run_id_in(request), "stepId": "look-around", "output": "x is 1."}
        return Use(f"{PLUGIN_SERVER}__workflow_submit", dict(arguments))

    start = Use(f"{PLUGIN_SERVER}__workflow_start", {"workflowId": "small-change"})
    with ScriptedModel([start, write_file, Say("Done."), submit_with_plugin, write_file, Say("Done.")]) as model:
        bare.say(model, "Change it.", options=plugin)

    run_id = bare.only_run()["runId"]
    assert f"Step 'look-around' of run {run_id}" in model.texts()[-1]
    assert f"Run {run_id} of workflow 'small-change' is not done" in model.texts()[-1]
    assert bare.file.with_name("b.py").read_text() == "y = 1"
    assert bare.events(run_id).count("tool-refused") == 1


def test_a_stop_counts_once_with_the_plugin_and_hooks_in_the_settings(
    claude: ClaudeCode, plugin: tuple[str, ...]
) -> None:
    with ScriptedModel([START, *[Say("I wait.")] * 9]) as model:
        claude.say(model, "Change it.", options=plugin)

    assert claude.events(claude.only_run()["runId"])[2:] == [*["stop-blocked"] * 3, "stop-released"]
