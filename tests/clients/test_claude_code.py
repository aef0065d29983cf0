"""The real Claude Code with our server and hooks: it starts a run, stays on it, and touches only what a step allows."""

import pytest

from cli.commands import Cli
from clients.coding_agents import ClaudeCode, run_id_in, submit
from clients.model_api import Say, ScriptedModel, Use

START = ClaudeCode.tool("workflow_start", workflowId="small-change")
STEP = "workflow 'small-change', step 'look-around': waits for output."
"""What only the hook at the start of a session says."""


@pytest.fixture
def claude(tmp_path_factory: pytest.TempPathFactory) -> ClaudeCode:
    return ClaudeCode(Cli(tmp_path_factory.mktemp("claude")))


def test_an_agent_that_stops_too_early_goes_on_until_the_run_is_done(claude: ClaudeCode) -> None:
    look, change = submit(ClaudeCode, "look-around", "x is 1."), submit(ClaudeCode, "change-it", "It is two.")
    script = [START, Say("I am done."), look, Say("Now I am done."), change, Say("It is done.")]
    with ScriptedModel(script) as model:
        lines = claude.say(model, "Change it.")

    requests = model.texts()
    run_id = run_id_in(requests[1])
    assert f"Run {run_id} of workflow 'small-change' is not done" in requests[2]
    assert "it waits for the output of step 'change-it'" in requests[4]
    assert (len(requests), lines[-1]["result"]) == (6, "It is done.")
    assert claude.only_run()["state"] == "completed"
    assert claude.events(run_id).count("stop-blocked") == 2


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

    run_id = run_id_in(model.texts()[1])
    assert before == ["x = 1\n"]
    assert f"Step 'look-around' of run {run_id} (workflow 'small-change') does not allow this." in model.texts()[3]
    assert claude.file.read_text() == "x = 2\n"
    assert claude.only_run()["state"] == "completed"
    assert claude.events(run_id).count("tool-refused") == 1


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
