"""`workflowlookup runs`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Cli, plain
from support.make import document, step, write

SAMPLE = document(step("first-step"), step("sign-off", requireConfirmation=True))


@pytest.fixture(autouse=True)
def other_workflow(project: Path) -> None:
    write(project, document(step("only-step"), identifier="other-workflow"))


def listed(cli: Cli, *words: str) -> list[str]:
    return [run["runId"] for run in json.loads(cli("runs", "--json", *words).stdout)["runs"]]


def test_runs_are_listed_one_per_line_newest_first(cli: Cli) -> None:
    first, second = cli.start_run(), cli.start_run(workflow="other-workflow", stdin=b"done")
    third = cli.start_run(stdin=b"one\n.\ntwo")

    done = cli("runs")

    assert (done.returncode, done.stderr) == (0, "")
    heading, *lines = [line.split() for line in done.stdout.splitlines()]
    assert heading == ["RUN", "WORKFLOW", "STATE", "DONE", "STARTED", "CHANGED", "STEP"]
    assert [line[:3] for line in lines] == [
        [third, "sample-workflow", "waiting"],
        [second, "other-workflow", "completed"],
        [first, "sample-workflow", "waiting"],
    ]
    assert "waiting (person)  2/2" in done.stdout


def test_runs_are_filtered_by_state_workflow_and_time(cli: Cli) -> None:
    waiting, completed = cli.start_run(), cli.start_run(workflow="other-workflow", stdin=b"done")

    assert listed(cli, "--state", "completed") == [completed]
    assert listed(cli, "--workflow", "sample-workflow") == [waiting]
    assert listed(cli, "--since", "1h") == [completed, waiting]
    assert listed(cli, "--since", "2999-01-01") == []
    assert listed(cli, "is:done", "other") == [completed]
    assert listed(cli, "step:sign off") == listed(cli, "no such run") == []
    assert listed(cli, "--", "-other") == [waiting]


def test_a_truncated_list_of_runs_says_so(cli: Cli) -> None:
    cli.start_run()
    newest = cli.start_run()

    done = cli("runs", "--limit", "1")

    assert done.stdout.count("sample-workflow") == 1
    assert "there are more" in done.stderr
    assert listed(cli, "--limit", "1") == [newest]


@pytest.mark.parametrize(
    ("words", "text"), [((), "`workflowlookup run ID` starts one"), (("--state", "failed"), "no run matches")]
)
def test_an_empty_list_of_runs_is_not_an_error(cli: Cli, words: tuple[str, ...], text: str) -> None:
    done = cli("runs", *words)

    assert (done.returncode, done.stdout) == (0, "")
    assert text in done.stderr
    assert listed(cli, *words) == []


@pytest.mark.parametrize("words", [("--since", "yesterday"), ("--state", "lost"), ("--limit", "0"), ("--limit", "x")])
def test_invalid_filters_are_wrong_usage(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("runs", *words).returncode == 2


def test_a_narrow_terminal_gets_fewer_columns(cli: Cli) -> None:
    run_id = cli.start_run()

    code, seen = cli.on_terminal("runs", columns=60)

    assert code == 0
    assert run_id in seen
    assert plain(seen).splitlines()[0].split() == ["run", "state", "done", "workflow"]
    assert max(len(line) for line in plain(seen).splitlines()[:2]) <= 60


def test_a_closed_pipe_is_not_an_error(cli: Cli) -> None:
    cli.start_run()
    command = f"{sys.executable} -m workflowlookup runs | true; exit ${{PIPESTATUS[0]}}"

    environment = {**os.environ, "HOME": str(cli.home)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=cli.directory, env=environment, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_journal_path_below_a_file_is_reported(cli: Cli) -> None:
    (cli.directory / "file").write_text("")

    done = cli("run", "sample-workflow", "--journal", "file/runs.sqlite")

    assert done.returncode == 1
    assert "Storage error" in done.stderr
