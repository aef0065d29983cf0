"""`workflowlookup why`."""

import json
from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, loop, step, write

RULES = [{"type": "contains", "value": "done", "message": "Say that it is done."}]


SAMPLE = document(
    step("triage", validationCriteria=RULES),
    step("large-only", runCondition={"var": "size", "equals": "large"}),
    step("sign-off", requireConfirmation=True),
    step("last-step"),
)


@pytest.fixture
def held(cli: Cli) -> str:
    """A run that was refused once, skipped a step and waits for a person."""
    run_id = cli.start_run("--context", "size=small\x1b[2J", stdin=b"no")
    cli("run", "--resume", run_id, stdin=b"done\n.\nSigned.")
    return run_id


def test_each_step_of_a_run_is_explained_with_what_decided(cli: Cli, held: str) -> None:
    done = cli("why", held[:6])

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"Sample workflow  sample-workflow · version 1.0.0 · run {held} · waiting for a person",
        "",
        "✓ triage  Title triage: ran",
        "    it has no condition",
        "    refused once: Say that it is done.",
        "",
        "· large-only  Title large-only: skipped",
        '    not true: size equals "large"',
        '    here size is "small\\u001b[2J"',
        "",
        "→ sign-off  Title sign-off: waits",
        "    it has no condition; it waits for a person's answer",
        "    a person was asked",
        "",
        "○ last-step  Title last-step: would run",
        "    it has no condition",
    ]


def test_a_loop_without_its_list_is_explained_in_a_sentence(cli: Cli, project: Path) -> None:
    each = loop("each", [step("review")], type="forEach", items="files", itemVar="file")
    write(project, document(each, identifier="each-flow"))
    run_id = cli.start_run(workflow="each-flow")

    assert "it has no condition; it waits, because files is not set: expected a list" in cli("why", run_id).stdout


def test_a_workflow_is_explained_for_a_context(cli: Cli) -> None:
    answer = json.loads(cli("why", "sample-workflow", "--context", "size=large", "--json").stdout)

    assert answer["context"] == {"size": "large"}
    assert answer["steps"][1] == {
        "id": "large-only",
        "title": "Title large-only",
        "fate": "would run",
        "because": 'true: size equals "large"',
        "checks": [{"says": 'size equals "large"', "holds": True, "variable": "size", "value": "large"}],
    }


def test_explaining_a_workflow_needs_neither_context_nor_journal(cli: Cli) -> None:
    done = cli("why", "sample-workflow")

    assert "· large-only  Title large-only: would be skipped" in done.stdout
    assert "here size is not set" in done.stdout


def test_json_of_a_run_names_it_and_its_state(cli: Cli, held: str) -> None:
    answer = json.loads(cli("why", held, "--json").stdout)

    assert (answer["runId"], answer["state"], answer["workflowId"]) == (held, "waiting", "sample-workflow")
    assert [one["fate"] for one in answer["steps"]] == ["ran", "skipped", "waits", "would run"]


def test_mermaid_marks_taken_skipped_and_waiting_steps(cli: Cli, held: str) -> None:
    of_run, of_context = cli("why", held, "--mermaid").stdout, cli("why", "sample-workflow", "--mermaid").stdout

    assert [line.strip() for line in of_run.splitlines() if line.startswith("  class ")] == [
        "class q2 question",
        "class s1 taken",
        "class s2 skipped",
        "class s3 waiting",
    ]
    assert "class s1,s3,s4 taken" in of_context


def test_a_finished_run_is_explained_completely(cli: Cli, held: str) -> None:
    cli.confirm(held, "--note", "Go on.")
    cli("run", "--resume", held, stdin=b"The end.")

    done = cli("why", held)

    assert "✓ last-step  Title last-step: ran" in done.stdout
    assert ": Go on." in done.stdout
    assert "class s1,s3,s4 taken" in cli("why", held, "--mermaid").stdout


def test_a_terminal_shows_colours_and_no_control_characters(cli: Cli, held: str) -> None:
    code, seen = cli.on_terminal("why", held, columns=40)

    assert code == 0
    assert "\x1b[32m" in seen
    assert "\x1b[2J" not in seen


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("no-such-thing",), 1, "Run `workflowlookup list`"),
        (("no-such-thing", "--context", "a=1"), 1, "No workflow has the id"),
        (("sample-workflow", "--json", "--mermaid"), 2, "not allowed with argument"),
    ],
)
def test_impossible_requests_are_refused_with_a_reason(
    cli: Cli, words: tuple[str, ...], code: int, problem: str
) -> None:
    done = cli("why", *words)

    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr


def test_with_a_journal_an_unknown_id_is_reported_as_neither_run_nor_workflow(cli: Cli, held: str) -> None:
    done = cli("why", held[:-1] + "zz")

    assert done.returncode == 1
    assert f"Did you mean {held}?" in done.stderr
    assert "There is no workflow with this id either" in done.stderr


def test_equal_iterations_are_merged(cli: Cli, project: Path) -> None:
    body = [step("work"), step("rest", runCondition={"var": "currentIteration", "gt": 398})]
    write(project, document(loop("each", body, type="for", count=400, maxIterations=400), id="long-loop"))

    done = cli("why", "long-loop")

    assert done.stdout.splitlines()[2:] == [
        "○ each  Loop each: would run",
        "    it repeats 400 times",
        "",
        "  ○ work@1  Title work: would run",
        "      the same in 400 iterations: 1-400",
        "      it has no condition",
        "",
        "  · rest@1  Title rest: would be skipped",
        "      the same in 398 iterations: 1-398",
        "      not true: currentIteration is greater than 398",
        "",
        "  ○ rest@399  Title rest: would run",
        "      true: currentIteration is greater than 398",
        "      here currentIteration is 399",
        "",
        "  ○ rest@400  Title rest: would run",
        "      true: currentIteration is greater than 398",
        "      here currentIteration is 400",
    ]


def test_the_iterations_of_a_run_are_grouped_by_what_happened(cli: Cli, project: Path) -> None:
    body = [step("work", validationCriteria=RULES)]
    write(project, document(loop("each", body, type="for", count=9, maxIterations=9), id="long-loop"))
    typed = "\n.\n".join(["done"] * 4 + ["no"]).encode()
    run_id = json.loads(cli("run", "long-loop", "--json", stdin=typed).stdout)["runId"]
    cli("run", "--resume", run_id, stdin="\n.\n".join(["done"] * 3).encode())

    steps = json.loads(cli("why", run_id, "--json").stdout)["steps"]

    assert [(one["id"], one["fate"], one.get("times", 1), one.get("iterations", "")) for one in steps] == [
        ("each", "ran", 1, ""),
        ("work@1", "ran", 6, "1-4, 6-7"),
        ("work@5", "ran", 1, ""),
        ("work@8", "waits", 1, ""),
        ("work@9", "would run", 1, ""),
    ]


def test_a_conditional_question_is_explained_with_old_and_new_values(cli: Cli, project: Path) -> None:
    asks = {"var": "risk", "equals": "high"}
    write(project, document(step("deploy", requireConfirmation=asks), step("then"), identifier="risky-flow"))
    started = cli("run", "risky-flow", "--context", "risk=high", "--json")
    run_id = json.loads(started.stdout)["runId"]
    cli("run", "--resume", run_id, "--context", "risk=low", "--json", stdin=b"Deployed.")

    text = " ".join(cli("why", run_id).stdout.split())

    assert 'risk was "high" when the step was handed out, and is "low" with its output' in text
