"""`workflowlookup init`."""

import json
from pathlib import Path

import pytest
import yaml

from support.command_line import Cli
from workflowlookup.language.workflow_schema import workflow_schema

HERE = ".workflowlookup/workflows"
FILES = [
    ".vscode/settings.json",
    ".workflowlookup/ci-example.yml",
    ".workflowlookup/workflow.schema.json",
    ".workflowlookup/workflows/example-workflow.test.yaml",
    ".workflowlookup/workflows/example-workflow.workflow.md",
]
SETTINGS = """\
{
    "editor.rulers": [120],
    "json.schemas": [
        {"fileMatch": ["x.json"], "url": "./x"}
    ]
}
"""


def files(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): file.read_text() for file in sorted(directory.rglob("*")) if file.is_file()
    }


def test_it_writes_a_project_whose_example_passes_all_that_the_ci_job_runs(cli: Cli, tmp_path: Path) -> None:
    done = cli("init")

    job = yaml.safe_load((tmp_path / ".workflowlookup/ci-example.yml").read_text())["jobs"]["workflows"]
    commands = [step["run"].split()[1:] for step in job["steps"] if "workflowlookup " in step.get("run", "")]
    assert (done.returncode, done.stderr, list(files(tmp_path))) == (0, "", FILES)
    assert sorted(done.stdout.splitlines()) == [f"wrote {name}" for name in FILES]
    assert [command[0] for command in commands] == ["validate", "lint", "fmt", "test"]
    assert [cli(*command).returncode for command in commands] == [0, 0, 0, 0]
    assert cli("test", "--min-coverage", "100", "--min-branches", "100", "--min-rules", "100").returncode == 0


def test_the_ci_job_says_what_to_put_for_an_index_that_lacks_the_package(cli: Cli, tmp_path: Path) -> None:
    cli("init")

    before = (
        (tmp_path / ".workflowlookup/ci-example.yml").read_text().partition("- run: pip install workflowlookup\n")[0]
    )
    assert "If your package index does not have it" in before
    assert "pip install git+https://" in before


def test_vs_code_finds_the_schema_for_json_and_for_yaml(cli: Cli, tmp_path: Path) -> None:
    cli("init")

    settings = json.loads((tmp_path / ".vscode/settings.json").read_text())
    (mapping,) = settings["json.schemas"]
    ((url, patterns),) = settings["yaml.schemas"].items()
    assert json.loads((tmp_path / mapping["url"]).read_text()) == workflow_schema()
    assert (url, mapping["fileMatch"][0]) == (mapping["url"], f"/{HERE}/**/*.json")
    assert patterns[:2] == [f"/{HERE}/**/*.yaml", f"/{HERE}/**/*.yml"]


def test_running_it_again_changes_nothing_and_says_so(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    before = files(tmp_path)

    again = cli("init")

    assert (again.returncode, files(tmp_path)) == (0, before)
    assert sorted(again.stdout.splitlines()) == [f"unchanged {name}" for name in FILES]


def test_a_changed_file_is_replaced_only_with_force(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    file = tmp_path / ".workflowlookup/ci-example.yml"
    file.write_text("mine")

    usual = cli("init")
    text = file.read_text()
    forced = cli("init", "--force")

    assert "kept .workflowlookup/ci-example.yml: it differs; --force replaces it\n" in usual.stdout
    assert (text, file.with_name("ci-example.yml.bak").read_text()) == ("mine", "mine")
    assert (forced.returncode, file.read_text().startswith("# A job")) == (0, True)


def test_other_settings_of_the_editor_stay(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / ".vscode" / "settings.json"
    file.parent.mkdir()
    file.write_text(SETTINGS)

    cli("init")

    text, settings = file.read_text(), json.loads(file.read_text())
    assert text.startswith(SETTINGS.partition('"./x"}')[0] + '"./x"},\n        {\n            "fileMatch"')
    assert [mapping["url"] for mapping in settings["json.schemas"]] == ["./x", "./.workflowlookup/workflow.schema.json"]
    assert settings["editor.rulers"] == [120]
    assert file.with_name("settings.json.bak").read_text() == SETTINGS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"yaml.schemas": 5}', "'yaml.schemas' should be an object"),
        ("[]", "is not a JSON object"),
        ("{", "it is not valid JSON"),
    ],
)
def test_settings_that_cannot_be_edited_safely_stay_and_the_mapping_is_printed(
    cli: Cli, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / ".vscode" / "settings.json"
    file.parent.mkdir()
    file.write_text(text)

    done = cli("init")

    assert (done.returncode, file.read_text(), reason in done.stderr) == (1, text, True)
    assert '"yaml.schemas": {' in done.stdout
    assert (tmp_path / FILES[3]).exists()


COMMENTED = """\
{
  // how wide
  "editor.rulers": [120], // "columns"
  /* of others, */ "json.schemas": [
    {"url": "./x"}, // theirs
  ],
}
"""


def test_comments_and_trailing_commas_in_the_settings_of_the_editor_stay(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / ".vscode" / "settings.json"
    file.parent.mkdir()
    file.write_text(COMMENTED)

    done, again = cli("init"), cli("init")

    text = file.read_text()
    assert (done.returncode, again.returncode, done.stderr) == (0, 0, "")
    assert "unchanged .vscode/settings.json" in again.stdout
    assert [line for line in COMMENTED.splitlines() if line not in text.splitlines()] == []
    assert '    {"url": "./x"}, // theirs\n    {\n      "fileMatch": [\n' in text
    assert text.count("./.workflowlookup/workflow.schema.json") == 2


@pytest.mark.parametrize(
    ("form", "reference"),
    [
        ("yaml", "# yaml-language-server: $schema=../workflow.schema.json\nid: "),
        ("json", '{\n  "$schema": "../workflow.schema.json",\n'),
    ],
)
def test_the_example_in_another_form_names_its_schema(cli: Cli, tmp_path: Path, form: str, reference: str) -> None:
    cli("init", f"--{form}")

    assert (tmp_path / HERE / f"example-workflow.{form}").read_text().startswith(reference)
    assert cli("test", HERE).returncode == 0


def test_a_project_with_workflows_gets_no_example(cli: Cli, project: Path) -> None:
    cli("new", "abc")

    done = cli("init")

    assert [file.name for file in project.iterdir()] == ["abc.workflow.md"]
    assert f"skipped {HERE}/example-workflow.workflow.md: there are workflows already\n" in done.stdout
