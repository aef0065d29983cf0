"""`workflowlookup stats`."""

import json

import pytest

from support.command_line import Cli, plain
from support.json_values import JsonObject
from support.make import document, loop, step, write

RULES = [{"type": "contains", "value": "done", "message": "Say that it is done."}]
STEPS = (
    step("triage", validationCriteria=RULES),
    step("large-only", runCondition={"var": "size", "equals": "large"}),
    loop("each", [step("work")], type="for", count=2),
    step("sign-off", requireConfirmation=True),
)


SAMPLE = document(*STEPS)


@pytest.fixture
def runs(cli: Cli) -> None:
    """One that is refused twice and then completed, one that is cancelled at work, one of another version."""
    first = cli.start_run(stdin=b"no")
    cli("run", "--resume", first, stdin=b"never")
    cli("run", "--resume", first, stdin=b"done\n.\none\n.\ntwo\n.\nSigned.")
    cli.confirm(first)
    second = cli.start_run("--context", "size=large", stdin=b"done\n.\nlarge")
    cli("cancel", second)
    write(cli.directory / ".workflowlookup" / "workflows", document(*STEPS, version="2.0.0"))
    cli.start_run()


def figures(cli: Cli, *words: str) -> list[JsonObject]:
    return list(json.loads(cli("stats", "--json", *words).stdout)["workflows"])


@pytest.mark.usefixtures("runs")
def test_each_version_has_its_statistics(cli: Cli) -> None:
    newer, older = figures(cli, "sample-workflow")

    assert (newer["version"], newer["states"]) == ("2.0.0", {"waiting": 1})
    assert (older["version"], older["runs"], older["states"]) == ("1.0.0", 2, {"completed": 1, "cancelled": 1})
    steps = {one.pop("id"): one for one in older["steps"]}
    for one in steps.values():
        one.pop("title"), one.pop("medianTime", 0), one.pop("slowTime", 0)
    assert steps == {
        "triage": {"reached": 2, "done": 2, "refused": 2, "tries": 2.0, "issues": {"Say that it is done.": 2}},
        "large-only": {"reached": 1, "skipped": 1, "done": 1, "tries": 1.0},
        "work": {"depth": 1, "reached": 3, "done": 2, "tries": 1.0, "stopped": 1},
        "sign-off": {"reached": 1, "done": 1, "tries": 1.0},
    }
    assert newer["steps"][0]["waiting"] == 1


@pytest.mark.usefixtures("runs")
def test_the_table_has_one_row_per_step(cli: Cli) -> None:
    done = cli("stats")

    assert (done.returncode, done.stderr) == (0, "")
    assert "sample-workflow 1.0.0: 2 runs (1 cancelled, 1 completed; median " in done.stdout
    assert [line.split()[:5] for line in done.stdout.splitlines() if line.startswith("triage")][1] == [
        "triage",
        "2",
        "-",
        "2",
        "2",
    ]


@pytest.mark.usefixtures("runs")
def test_a_narrow_terminal_gets_fewer_columns(cli: Cli) -> None:
    code, seen = cli.on_terminal("stats", columns=50)

    assert code == 0
    assert ["step", "reached", "refused", "time", "stopped"] in [line.split() for line in plain(seen).splitlines()]


@pytest.mark.usefixtures("runs")
def test_a_workflow_without_runs_is_reported_with_one_that_has_some(cli: Cli) -> None:
    done = cli("stats", "sample-workflw")

    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean 'sample-workflow'?" in done.stderr


def test_an_empty_list_of_runs_is_not_an_error(cli: Cli) -> None:
    done = cli("stats")

    assert (done.returncode, done.stdout) == (0, "")
    assert "`workflowlookup run ID` starts one" in done.stderr
    assert figures(cli) == []


@pytest.mark.usefixtures("runs")
def test_a_terminal_shows_the_progress_of_counting_and_a_pipe_does_not(cli: Cli) -> None:
    _, seen = cli.on_terminal("stats")
    piped = cli("stats")

    assert "Counting" in seen
    assert "100%" in seen
    assert "Counting" not in piped.stdout + piped.stderr


def test_each_proof_has_a_row_with_its_verdicts(cli: Cli) -> None:
    proof = {"kind": "file", "name": "notes", "path": "notes.txt"}
    write(cli.directory / ".workflowlookup" / "workflows", document(step("note", proof=[proof]), id="sample-workflow"))
    run_id = cli.start_run(stdin=b"done")
    (cli.directory / "notes.txt").write_text("x")
    cli("run", "--resume", run_id, stdin=b"done now")

    (counted,) = figures(cli)
    row, last = (line for line in cli("stats").stdout.splitlines() if line.startswith("note/notes"))

    assert [(one["name"], one["proved"], one["failed"]) for one in counted["proofs"]] == [("notes", 1, 1)]
    assert row.split()[:5] == ["note/notes", "1", "1", "-", "-"]
    assert last == f"note/notes did not pass the last time: {counted['proofs'][0]['failure']}"
    assert "notes.txt" in last
