"""`workflowlookup new`."""

import json
from pathlib import Path

import pytest
import yaml

import workflowlookup
from support.command_line import Cli
from support.json_values import JsonObject
from workflowlookup.library.files import parse_document

BUNDLED = Path(workflowlookup.__file__).parent / "bundled"


def walk(cli: Cli, identifier: str, *context: str) -> list[str]:
    """The steps that an agent is led through."""
    done: list[str] = []
    words = [word for variable in context for word in ("--context", variable)]
    while True:
        answer = cli("next", identifier, *words, *[word for step in done for word in ("--done", step)], "--json")
        step = json.loads(answer.stdout)["step"]
        if step is None:
            return done
        done.append(step["id"])


def test_the_new_document_is_valid_formatted_and_branches_by_task_size(cli: Cli) -> None:
    done = cli("new", "release-notes")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Wrote .workflowlookup/workflows/release-notes.workflow.md.\n")
    for command in (["validate"], ["lint"], ["fmt", "--check"]):
        assert cli(*command, ".workflowlookup/workflows").returncode == 0, command
    assert walk(cli, "release-notes", "taskSize=small") == ["understand-the-task", "do-the-work"]
    assert walk(cli, "release-notes") == ["understand-the-task", "plan-the-work", "do-the-work"]


def document_in(file: Path) -> JsonObject:
    content: JsonObject = parse_document(file.read_bytes(), str(file))
    return content


def test_every_form_has_the_same_document(cli: Cli, tmp_path: Path) -> None:
    for form in ((), ("--yaml",), ("--json",)):
        assert cli("new", "release-notes", *form, "--directory", f"in{''.join(form)}").returncode == 0

    (markdown, in_json, in_yaml) = sorted(tmp_path.glob("in*/*"))
    assert "    prompt: |-\n      Say in your own words" in in_yaml.read_text()
    assert "\n\nSay in your own words" in markdown.read_text()
    assert document_in(markdown) == document_in(in_yaml) == document_in(in_json)


def test_from_another_workflow_all_but_the_id_and_what_was_named_stays(cli: Cli, project: Path) -> None:
    done = cli("new", "my-review", "--from", "code-review", "--name", "My review")

    document = document_in(project / "my-review.workflow.md")
    assert (done.returncode, cli("validate").returncode) == (0, 0)
    assert document == {**document_in(BUNDLED / "code-review.json"), "id": "my-review", "name": "My review"}


def test_with_all_flags_nothing_is_asked(cli: Cli, tmp_path: Path) -> None:
    words = ["--name", "N", "--description", "D", "--category", "review", "--step", "Go on", "--step", "Go on"]

    done = cli("new", "abc", *words, "--step", "Prüfen", "--directory", "flows")

    document = document_in(tmp_path / "flows" / "abc.workflow.md")
    assert done.returncode == 0
    assert [document[name] for name in ("name", "description", "category")] == ["N", "D", "review"]
    assert [(step["id"], step["title"]) for step in document["steps"]] == [
        ("go-on", "Go on"),
        ("go-on-2", "Go on"),
        ("pr-fen", "Prüfen"),
    ]
    assert "  workflowlookup next abc --directories flows\n" in done.stdout


def test_steps_that_were_named_are_all_handed_out_and_each_prompt_is_about_its_title(cli: Cli, project: Path) -> None:
    cli("new", "triage", "--step", "Read the report", "--step", "Name the owner")

    steps = document_in(project / "triage.workflow.md")["steps"]
    assert [one["prompt"].partition(".")[0] for one in steps] == ["Read the report", "Name the owner"]
    assert walk(cli, "triage", "taskSize=small") == ["read-the-report", "name-the-owner"]
    assert cli("lint").returncode == 0


def test_the_command_for_a_fixture_that_it_shows_makes_one_that_passes(cli: Cli, project: Path) -> None:
    shown = cli("new", "abc").stdout.splitlines()[-1]

    command, _, path = shown.partition(" > ")
    (cli.directory / path).write_text(cli(*command.split()[1:]).stdout)

    assert path == ".workflowlookup/workflows/abc.test.yaml"
    assert cli("test").returncode == 0


@pytest.mark.parametrize(("words", "count"), [(["--steps", "2"], 2), (["--steps", "7"], 7), (["--step", "One"], 1)])
def test_there_are_as_many_steps_as_asked_for(cli: Cli, project: Path, words: list[str], count: int) -> None:
    cli("new", "abc", *words)

    assert len(document_in(project / "abc.workflow.md")["steps"]) == count
    assert cli("lint", ".workflowlookup/workflows").returncode == 0


def test_with_the_schema_of_the_project_the_document_refers_to_it(cli: Cli, project: Path) -> None:
    cli("init")

    cli("new", "abc", "--json")

    assert json.loads((project / "abc.json").read_text())["$schema"] == "../workflow.schema.json"


@pytest.mark.parametrize("name", ["abc.workflow.md", "abc.yml"])
def test_an_existing_file_is_not_overwritten(cli: Cli, project: Path, name: str) -> None:
    (project / name).write_text("mine")

    done = cli("new", "abc")

    assert (done.returncode, done.stdout, (project / name).read_text()) == (1, "", "mine")
    assert f"{name} exists. " in done.stderr


def test_with_force_a_file_is_overwritten_and_a_copy_is_kept(cli: Cli, project: Path) -> None:
    (project / "abc.workflow.md").write_text("mine")

    done = cli("new", "abc", "--force")

    assert (done.returncode, (project / "abc.workflow.md.bak").read_text()) == (0, "mine")


def test_nothing_is_written_that_would_not_load(cli: Cli, project: Path) -> None:
    done = cli("new", "abc", "--name", "n" * 200)

    assert (done.returncode, list(project.iterdir())) == (1, [])
    assert "nothing was written. Field 'name' must be at most 128 characters long" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["A b"],
        ["ab"],
        ["abc", "--steps", "1"],
        ["abc", "--steps", "2", "--step", "x"],
        ["abc", "--from", "code-review", "--steps", "2"],
        [],
    ],
)
def test_invalid_arguments_are_wrong_usage(cli: Cli, words: list[str]) -> None:
    assert cli("new", *words).returncode == 2


def test_on_a_terminal_it_asks_for_what_is_missing(cli: Cli, project: Path) -> None:
    typed = "A b\nabc\nYAML\nMy flow\nreview\nLook\nLeap\n\n"

    code, seen = cli.on_terminal("new", "--description", "D", typed=typed)

    document = yaml.safe_load((project / "abc.yaml").read_text())
    assert "'A b' must be lower" in seen
    assert document["category"] == "review"
    assert (code, document["name"], document["description"]) == (0, "My flow", "D")
    assert [step["title"] for step in document["steps"]] == ["Look", "Leap"]
    assert "Name [Abc]: " in seen
    assert "Description" not in seen


def test_empty_answers_give_the_defaults(cli: Cli, project: Path) -> None:
    code, _ = cli.on_terminal("new", "my-flow", typed="\n" * 5)

    document = document_in(project / "my-flow.workflow.md")
    assert (code, document["name"], len(document["steps"])) == (0, "My flow", 3)


def test_an_answer_that_is_too_long_is_asked_for_again(cli: Cli, project: Path) -> None:
    code, seen = cli.on_terminal("new", "abc", "--json", "--steps", "2", typed=f"{'n' * 129}\nMy flow\n\n\n")

    assert (code, json.loads((project / "abc.json").read_text())["name"]) == (0, "My flow")
    assert "At most 128 characters; you typed 129.\nName [Abc]: " in seen


@pytest.mark.parametrize("typed", ["", "abc\n", "abc\n\n\n\n\nLook\n"])
def test_closing_the_input_creates_nothing(cli: Cli, project: Path, typed: str) -> None:
    code, seen = cli.on_terminal("new", typed=typed + "\x04")

    assert (code, list(project.iterdir())) == (1, [])
    assert seen.endswith("\nworkflowlookup: the input ended. Nothing was written.\n")


def test_bytes_that_are_not_utf_8_are_refused(cli: Cli, project: Path) -> None:
    done = cli("new", "abc", "--name", "\udcff")

    assert (done.returncode, list(project.iterdir())) == (1, [])
    assert done.stderr == (
        "workflowlookup: nothing was written. The document cannot be written, because a text in it is not valid Unicode\n"
    )
