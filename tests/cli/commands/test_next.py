"""`workflowlookup next`."""

import json
from pathlib import Path

from support.command_line import Cli, plain
from support.make import document, loop, step, write

RULES = [{"type": "regex", "pattern": r"^\$ \S", "message": "Show the command."}]


SAMPLE = document(
    step("plan-work", prompt="Plan for {{who}}.", requireConfirmation=True, validationCriteria=RULES),
    step("large-only", runCondition={"var": "task.size", "equals": "large"}),
    step("many-only", runCondition={"var": "count", "gt": 2}),
)


def test_the_step_comes_with_criteria_confirmation_warnings_and_progress(cli: Cli) -> None:
    done = cli("next", "sample-workflow")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.replace("\n\n", "\n").splitlines() == [
        "# Title plan-work",
        "`plan-work` · 0 of 3 steps are done",
        "**The agent must ask for confirmation before it continues.**",
        "Plan for {{who}}.",
        "## The output must meet",
        "- Show the command.",
        "## Warnings",
        "- These variables are not set in the context: who",
    ]


def test_a_value_is_json_when_it_can_be_and_text_otherwise_and_a_dotted_name_stays_one_name(cli: Cli) -> None:
    words = ("next", "sample-workflow", "--done", "plan-work", "--json")

    by_text = json.loads(cli(*words, "--context", "task.size=large").stdout)
    by_number = json.loads(cli(*words, "--context", "count=3").stdout)
    neither = json.loads(cli(*words, "--context", "task.size=small", "--context", "count=2").stdout)

    assert (by_text["step"]["id"], by_number["step"]["id"], neither["step"]) == ("large-only", "many-only", None)


def test_done_takes_commas_and_may_be_repeated(cli: Cli) -> None:
    words = ("--done", "plan-work,large-only", "--done", "many-only,", "--done", "plan-work")

    answer = json.loads(cli("next", "sample-workflow", *words, "--json").stdout)

    assert (answer["isComplete"], answer["progress"]) == (True, {"completed": 3, "total": 3})


def test_the_end_names_what_was_skipped(cli: Cli) -> None:
    done = cli("next", "sample-workflow", "--done", "plan-work")

    assert done.stdout.startswith("# Workflow complete.\n\n1 of 1 steps are done\n")
    assert "- large-only: not true: " in done.stdout


def test_in_a_workflow_with_a_loop_the_steps_done_are_counted_without_a_total(cli: Cli, project: Path) -> None:
    write(project, document(loop("each", [step("work")], type="for", count=2), identifier="with-a-loop"))

    first, second = cli("next", "with-a-loop"), cli("next", "with-a-loop", "--done", "work@1")

    assert (first.returncode, second.returncode) == (0, 0)
    assert "`work@1` · 0 steps done\n" in first.stdout
    assert "`work@2` · 1 step done\n" in second.stdout


def test_a_variable_that_the_step_requires_is_named_once(cli: Cli, project: Path) -> None:
    needy = step("needy", prompt="{{deadline}} for {{who}}", requires=["deadline"])
    write(project, document(needy, identifier="with-a-contract"))

    warnings = json.loads(cli("next", "with-a-contract", "--json").stdout)["warnings"]

    assert warnings[0] == "These variables are not set in the context: who"
    assert [warning.count("deadline") for warning in warnings] == [0, 1]


def test_a_terminal_shows_the_criteria_and_the_command_that_follows(cli: Cli) -> None:
    code, seen = cli.on_terminal("next", "sample-workflow", "--context", "who=a friend", columns=200)

    assert code == 0
    assert "Show the command." in seen
    assert "workflowlookup next sample-workflow --done plan-work --context 'who=a friend'" in seen


def test_a_value_that_is_not_text_is_wrong_usage(cli: Cli) -> None:
    done = cli("next", "sample-workflow", "--context", "who=\udcff")

    assert (done.returncode, "UTF-8" in done.stderr) == (2, True)


def test_a_missing_list_of_a_loop_is_requested_with_the_command_that_sets_it(cli: Cli, project: Path) -> None:
    write(project, document(loop("each", [step("look-at")], type="forEach", items="files"), identifier="each-file"))

    code, seen = cli.on_terminal("next", "each-file", columns=200)

    assert code == 0
    assert "A loop needs files" in plain(seen)
    assert "workflowlookup next each-file --context 'files=[\"…\"]'" in plain(seen)


def test_what_a_run_would_prove_follows_the_criteria(cli: Cli, project: Path) -> None:
    write(project, document(step("plan", proof=[{"kind": "command", "use": "test"}]), identifier="proved"))

    done = cli("next", "proved")
    as_json = cli("next", "proved", "--json")

    sentence = "The project's command `test` ends with exit code 0"
    assert f"## In a run, the server would check\n\n- {sentence}\n" in done.stdout
    assert json.loads(as_json.stdout)["guidance"]["proofs"] == [sentence]
