"""`workflowlookup confirm`."""

import json
from pathlib import Path

import pytest
from commands import Cli

from make import document, step, write


@pytest.fixture(autouse=True)
def _sample(project: Path) -> None:
    write(project, document(step("sign-off", requireConfirmation=True), step("last-step")))


@pytest.fixture
def held(cli: Cli) -> str:
    """A run that waits for a person."""
    done = cli("run", "sample-workflow", "--json", stdin=b"Signed \x1b[2J off.")
    return str(json.loads(done.stdout)["runId"])


def test_a_run_goes_on_when_a_person_agrees(cli: Cli, held: str) -> None:
    done = cli("confirm", held[:6], "--note", "Fine.")

    assert (done.returncode, done.stderr) == (0, "")
    assert "Signed \ufffd[2J off." in done.stdout
    assert done.stdout.endswith("Confirmed: Fine.\nThe run waits for the output of step 'last-step'.\n")
    history = json.loads(cli("run", "show", held, "--json").stdout)["history"]
    given = next(event for event in history if event["event"] == "confirmation-given")
    assert (given["id"], given["why"]) == ("sign-off", "Fine.")


def test_the_step_is_done_again_when_they_do_not(cli: Cli, held: str) -> None:
    answer = json.loads(cli("confirm", held, "--deny", "--note", "Too soon.", "--json").stdout)

    assert (answer["step"]["id"], answer["progress"]["done"]) == ("sign-off", 0)
    assert "They said: Too soon." in cli("run", "--resume", held).stdout


def test_a_run_that_waits_for_no_word_is_told(cli: Cli, held: str) -> None:
    cli("confirm", held)

    done = cli("confirm", held)

    assert (done.returncode, done.stdout) == (1, "")
    assert "It waits for the output of step 'last-step', not for a confirmation." in done.stderr


def test_what_is_confirmed_is_shown_on_a_terminal_without_control_characters(cli: Cli, held: str) -> None:
    code, seen = cli.on_terminal("confirm", held)

    assert code == 0
    assert "\x1b[2J" not in seen
    assert "Confirmed" in seen


def test_a_run_that_is_not_there_is_told(cli: Cli) -> None:
    done = cli("confirm", "abc")

    assert (done.returncode, "no runs yet" in done.stderr) == (1, True)
