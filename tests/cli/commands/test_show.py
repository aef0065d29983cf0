"""`workflowlookup show`."""

import json
from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, loop, step, write


@pytest.fixture
def sample(project: Path) -> None:
    write(
        project,
        document(
            step("look-around", guidance=["Be quick"], agentRole="You are a patient reader."),
            loop("each-file", [step("read-file", prompt="Read <file>.")], type="forEach", items="files"),
            preconditions=["There is a file"],
        ),
    )


@pytest.mark.usefixtures("sample")
def test_the_preview_is_markdown_with_the_first_step(cli: Cli) -> None:
    done = cli("show", "sample-workflow")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n\n") == [
        "# Sample workflow",
        "A workflow for tests",
        "`sample-workflow` · version 1.0.0 · workflow · steps: 2",
        "## Before you start",
        "- There is a file",
        "## First step",
        "### Title look-around (`look-around`)",
        "*Role: You are a patient reader.*",
        "Do look-around.",
        "- Be quick\n",
    ]


@pytest.mark.usefixtures("sample")
def test_metadata_has_no_steps(cli: Cli) -> None:
    done = cli("show", "sample-workflow", "--mode", "metadata")

    assert done.stdout.endswith("- There is a file\n")


@pytest.mark.usefixtures("sample")
def test_full_has_every_step_and_what_the_author_wrote_about_it(cli: Cli) -> None:
    done = cli("show", "sample-workflow", "--mode", "full")

    assert "### 1. Title look-around (`look-around`)" in done.stdout
    assert "### 2. Loop each-file (`each-file`)" in done.stdout
    assert '"items": "files"' in done.stdout
    assert "### 2.1. Title read-file (`read-file`)" in done.stdout


@pytest.mark.usefixtures("sample")
@pytest.mark.parametrize(
    ("mode", "fields"),
    [("metadata", {"totalSteps"}), ("preview", {"totalSteps", "firstStep"}), ("full", {"steps"})],
)
def test_json_is_the_answer_of_the_tool_in_each_mode(cli: Cli, mode: str, fields: set[str]) -> None:
    answer = json.loads(cli("show", "sample-workflow", "--mode", mode, "--json").stdout)

    assert answer.keys() - {"id", "name", "description", "version", "category", "preconditions"} == fields


@pytest.mark.usefixtures("sample")
def test_a_terminal_renders_markdown_and_shows_html_as_text(cli: Cli) -> None:
    code, seen = cli.on_terminal("show", "sample-workflow", "--mode", "full", columns=200)

    assert code == 0
    assert "\x1b[" in seen
    assert "## " not in seen
    assert "Read <file>." in seen
    assert "`workflowlookup graph sample-workflow` outlines every step; " in seen
    assert "`workflowlookup next sample-workflow` shows its first step as agents see it." in seen


def test_proofs_are_sentences_above_their_json(cli: Cli, project: Path) -> None:
    write(project, document(step("plan", proof=[{"kind": "file", "path": "a.md"}]), identifier="proved"))

    done = cli("show", "proved", "--mode", "full")

    assert "In a run, the server checks:\n\n- The file `a.md` exists\n\n```json\n" in done.stdout
