"""Where commands look for documents: without a path, in a project, and what they say about a path that is an id."""

from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, step, write
from workflowlookup.cli.documents import documents_in
from workflowlookup.library import directory


@pytest.mark.parametrize("place", [".workflowlookup", "."])
@pytest.mark.parametrize("command", ["validate", "lint", "fmt --check", "test", "watch --once"])
def test_a_project_directory_means_its_workflows(cli: Cli, command: str, place: str) -> None:
    cli("init")

    done = cli(*command.split(), place)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "1 case " in done.stdout or "example-workflow" in done.stdout or "1 document, " in done.stdout
    assert "schema.json" not in done.stdout


@pytest.mark.parametrize("command", ["validate", "lint", "fmt --check"])
def test_documents_in_the_root_of_a_project_are_listed_too(cli: Cli, project: Path, command: str) -> None:
    write(project, document(step(validationCriteria=["ok"])))
    write(cli.directory, document(step(validationCriteria=["ok"]), identifier="another"))

    assert "2 documents, " in cli(*command.split(), ".").stdout


@pytest.mark.parametrize("command", ["validate", "lint", "fmt --check", "test", "watch --once"])
def test_without_a_path_the_project_is_used(cli: Cli, command: str) -> None:
    nowhere = cli(*command.split())
    cli("init")
    here = cli(*command.split())

    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert ".workflowlookup/workflows" in nowhere.stderr
    assert (here.returncode, here.stderr) == (0, "")


@pytest.mark.parametrize("command", ["validate", "lint", "fmt"])
@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("example-workflow", "not ids: did you mean .workflowlookup/workflows/example-workflow.workflow.md?"),
        ("no-such-id", "not ids; the workflows of a project are in .workflowlookup/workflows"),
        ("no/such.json", "Check that the path is right"),
    ],
)
def test_a_missing_path_gets_a_hint(cli: Cli, command: str, path: str, hint: str) -> None:
    cli("init")

    done = cli(command, path)

    assert done.returncode == 1
    assert hint in done.stdout + done.stderr


def test_documents_that_the_library_leaves_out_are_reported(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_DOCUMENTS", 1)
    first, second = (str(write(library, document(identifier=name))) for name in ("first", "second"))

    paths, refusal = documents_in(str(library))

    assert paths == [first]
    assert f"{second} and what comes after it is left out" in str(refusal)
