"""The real Gemini CLI with our server and hooks: it starts a run, stays on it, and touches only what a step allows."""

import pytest

from clients.coding_agents import GeminiCli, submit
from clients.model_api import Say, ScriptedModel, Use
from support.command_line import Cli

START = GeminiCli.tool("workflow_start", workflowId="small-change")


@pytest.fixture
def gemini(tmp_path_factory: pytest.TempPathFactory) -> GeminiCli:
    return GeminiCli(Cli(tmp_path_factory.mktemp("gemini")))


def test_an_agent_stays_on_its_step_until_the_run_is_done(gemini: GeminiCli) -> None:
    file = gemini.file.with_name("b.py")
    write_file = Use("write_file", {"file_path": str(file), "content": "y = 1"})
    look, change = submit(GeminiCli, "look-around", "x is 1."), submit(GeminiCli, "change-it", "It is two.")
    with ScriptedModel([START, write_file, Say("I am done."), look, write_file, change, Say("It is done.")]) as model:
        gemini.say(model, "Change it.")

    run = gemini.only_run()
    last = model.texts()[-1]
    assert f"Step 'look-around' of run {run['runId']} (workflow 'small-change') does not allow this." in last
    assert f"Run {run['runId']} of workflow 'small-change' is not done" in last
    assert file.read_text() == "y = 1"
    assert run["state"] == "completed"
    assert {"tool-refused", "stop-blocked"} <= set(gemini.events(run["runId"]))


def test_a_new_session_reads_the_step(gemini: GeminiCli) -> None:
    gemini.cli("run", "small-change", "--json")
    with ScriptedModel([Say("I see.")] * 4) as model:
        gemini.say(model, "Go on.")

    assert "workflow 'small-change', step 'look-around': waits for output." in model.texts()[0]
