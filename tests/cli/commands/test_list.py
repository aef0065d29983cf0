"""`workflowlookup list`."""

import json
import re
from pathlib import Path

from support.command_line import Cli
from support.make import document, write


def test_into_a_pipe_each_workflow_is_one_whole_line(cli: Cli, project: Path) -> None:
    write(project, document(identifier="first-one", name="First", category="review"))
    write(project, document(identifier="second-one", description="Long. " * 40))

    done = cli("list", "--bundled", "false")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "ID          NAME             CATEGORY  VERSION  DESCRIPTION",
        "first-one   First            review    1.0.0    A workflow for tests",
        "second-one  Sample workflow  workflow  1.0.0    " + " ".join(["Long."] * 40),
    ]


def test_json_is_the_answer_of_the_tool(cli: Cli, project: Path) -> None:
    write(project, document(identifier="first-one"))

    done = cli("list", "--bundled", "false", "--json")

    assert json.loads(done.stdout) == {
        "workflows": [
            {
                "id": "first-one",
                "name": "Sample workflow",
                "description": "A workflow for tests",
                "category": "workflow",
                "version": "1.0.0",
            }
        ]
    }


def test_category_and_query_choose(cli: Cli) -> None:
    done = cli("list", "--category", "Development", "--query", "cause defect")

    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ID", "bug-investigation"]


def test_finding_nothing_is_not_an_error_and_has_a_hint(cli: Cli) -> None:
    nothing_fits = cli("list", "--query", "no such words")
    nothing_there = cli("list", "--bundled", "false")

    assert (nothing_fits.returncode, nothing_fits.stdout) == (0, "")
    assert "Without --category and --query" in nothing_fits.stderr
    assert (nothing_there.returncode, nothing_there.stdout) == (0, "")
    assert "workflowlookup doctor" in nothing_there.stderr


def test_a_broken_document_is_left_out_and_named_on_standard_error(cli: Cli, project: Path) -> None:
    (project / "broken.json").write_text("{")

    done = cli("list")

    assert (done.returncode, "broken" in done.stdout) == (0, False)
    assert "broken.json: JSON syntax error" in done.stderr


def without_styles(text: str) -> list[str]:
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


def test_a_terminal_has_colour_and_a_hint(cli: Cli) -> None:
    code, seen = cli.on_terminal("list")
    _, uncoloured = cli.on_terminal("list", NO_COLOR="1")

    assert (code, "\x1b[36mbug-investigation" in seen, "\x1b[36m" in uncoloured) == (0, True, False)
    assert "`workflowlookup show bug-investigation` shows one of them" in seen


def test_no_line_is_wider_than_the_terminal(cli: Cli) -> None:
    _, seen = cli.on_terminal("list", columns=80)

    assert max(len(line) for line in without_styles(seen)) <= 80


def test_a_narrow_terminal_has_whole_ids_and_descriptions(cli: Cli, project: Path) -> None:
    write(project, document(identifier="a-workflow-with-quite-a-long-id", description="Words " * 10))

    _, seen = cli.on_terminal("list", "--bundled", "false", columns=40)

    assert without_styles(seen)[:3] == [
        "a-workflow-with-quite-a-long-id",
        "  " + "Words " * 5 + "Words",
        "  Words Words Words Words",
    ]


def test_a_wide_terminal_has_all_columns(cli: Cli) -> None:
    _, seen = cli.on_terminal("list", columns=160)

    assert without_styles(seen)[0].split() == ["id", "name", "category", "version", "description"]
