"""The real Codex with our server and hooks: it starts a run, stays on it, and touches only what a step allows."""

import pytest

from clients.coding_agents import Codex, run_id_in, submit
from clients.model_api import Say, ScriptedModel, Use
from support.command_line import Cli
from workflowlookup.cli.client_hooks import HOOK_EVENTS

START = Codex.tool("workflow_start", workflowId="small-change")
STEP = "workflow 'small-change', step 'look-around': waits for output."
"""What only the hook at the start of a session says."""
SUMMARY = "A summary without the run."


@pytest.fixture
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Codex:
    """Codex with our server, and with hooks that nobody has looked at."""
    return Codex(Cli(tmp_path_factory.mktemp("codex")))


@pytest.fixture
def codex(untrusted: Codex) -> Codex:
    untrusted.trust_hooks()
    return untrusted


def test_an_agent_that_stops_too_early_goes_on_until_the_run_is_done(codex: Codex) -> None:
    look, change = submit(Codex, "look-around", "x is 1."), submit(Codex, "change-it", "It is two.")
    with ScriptedModel([START, Say("I am done."), look, Say("Now?"), change, Say("It is done.")]) as model:
        codex.say(model, "Change it.")

    run = codex.only_run()
    last = model.texts()[-1]
    assert f"Run {run['runId']} of workflow 'small-change' is not done" in last
    assert "it waits for the output of step 'change-it'" in last
    assert run["state"] == "completed"
    assert codex.events(run["runId"]).count("stop-blocked") == 2


def test_hooks_run_once_a_person_has_trusted_them_and_until_they_change(untrusted: Codex) -> None:
    let_go = [*["stop-blocked"] * 3, "stop-released"]
    with ScriptedModel([START, Say("I am done."), *[Say("Hello.")] * 9]) as model:
        untrusted.say(model, "Change it.")
        run_id = untrusted.only_run()["runId"]
        assert untrusted.events(run_id) == ["started", "step-offered"]
        hooks = untrusted.trust_hooks()
        untrusted.say(model, "Say hello.")  # the run has no session, so it holds this one
        assert (STEP in model.texts()[-1], untrusted.events(run_id)[2:]) == (True, let_go)
        untrusted.install("codex", "--log-level", "debug")
        untrusted.say(model, "Say hello again.")

    assert STEP not in model.texts()[-1]
    assert {str(hook["command"]).split()[-1] for hook in hooks} == set(HOOK_EVENTS["codex"])
    assert {hook["trustStatus"] for hook in hooks} == {"untrusted"}


def test_a_run_of_one_session_does_not_hold_another(codex: Codex) -> None:
    with ScriptedModel([START, *[Say("I wait.")] * 4, Say("Hello.")]) as model:
        codex.say(model, "Change it.")
        codex.say(model, "Say hello.")

    events = codex.events(codex.only_run()["runId"])
    assert events[-4:] == [*["stop-blocked"] * 3, "stop-released"]
    assert events.count("session-changed") == 1
    assert STEP in model.texts()[-1]


def test_a_patch_is_refused_in_one_step_and_made_in_the_next(codex: Codex) -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch\n"
    edit = Use("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF\n"})
    before: list[str] = []

    def look(request: str) -> Use:
        before.append(codex.file.read_text())
        return Codex.tool("workflow_submit", runId=run_id_in(request), stepId="look-around", output="x is 1.")

    change = submit(Codex, "change-it", "It is two.")
    read = Use("exec_command", {"cmd": "sed -n '1,9p' a.py"})  # it has no tool to read files with
    with ScriptedModel([START, read, edit, look, edit, change, Say("Done.")]) as model:
        codex.say(model, "Change it.")

    run = codex.only_run()
    assert before == ["x = 1\n"]
    last = model.texts()[-1]
    assert "Output:\\nx = 1" in last
    assert f"Step 'look-around' of run {run['runId']} (workflow 'small-change') does not allow this." in last
    assert codex.file.read_text() == "x = 2\n"
    assert run["state"] == "completed"
    assert codex.events(run["runId"]).count("tool-refused") == 1


def test_compaction_brings_the_step_back(codex: Codex) -> None:
    with ScriptedModel(
        [START, Use("exec_command", {"cmd": "true"}, tokens=20_000), *[Say("I go on.")] * 4], SUMMARY
    ) as model:
        codex.say(model, "Change it.")

    before, after = model.texts()[1:3]
    assert (STEP in before, "runId" in before) == (False, True)
    assert SUMMARY in after
    assert STEP in after


def test_resuming_a_session_brings_the_step_back(codex: Codex) -> None:
    with ScriptedModel([START, *[Say("I wait.")] * 4, Say("I go on.")]) as model:
        session = str(codex.say(model, "Change it.")[0]["thread_id"])
        before = model.texts()
        codex.say(model, "resume", session, "Go on.")

    assert not any(STEP in request for request in before)
    assert STEP in model.texts()[-1]
