"""`workflowlookup export ID --as …`: what is written, and what is replaced."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, loop, step, write
from workflowlookup.authoring.export.marks import read_mark
from workflowlookup.language.formats.syntax import parse_yaml

BUNDLED = ("code-review", "bug-investigation")
MARK = re.compile(
    r"<!-- workflowlookup export of code-review: document sha256:[0-9a-f]{64}, text sha256:[0-9a-f]{64} -->"
)
WHEN = {"var": "size", "equals": "large"}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A workflow with a file; the folder of the file is returned."""
    write(tmp_path, document(identifier="my.release", description="Ship it !`date`"))
    folder = tmp_path / "my.release.files"
    (folder / "templates").mkdir(parents=True)
    (folder / "templates" / "note.md").write_bytes(b"Dear all,\r\n")
    return folder


def export(cli: Cli, *words: str, target: str = "skill") -> str:
    """Export the workflow; an error message if that is refused."""
    done = cli("export", "my.release.json", "--as", target, *words)
    assert (done.returncode == 0) == (done.stderr == ""), done
    return done.stderr or done.stdout


def test_a_skill_leads_to_the_run_and_names_its_files(cli: Cli, release: Path, tmp_path: Path) -> None:
    said = export(cli, "--output", "skills")

    skill = tmp_path / "skills" / "my-release"
    text = (skill / "SKILL.md").read_text()
    assert said == "Wrote skills/my-release/SKILL.md\n"
    assert (skill / "templates" / "note.md").read_bytes() == b"Dear all,\r\n"
    assert parse_yaml(text.split("---\n")[1].encode()) == {
        "name": "my-release",
        "description": "Ship it ! `date`",
        "metadata": {"workflow": "my.release", "version": "1.0.0"},
    }
    assert "Call `workflow_start` with `workflowId` `my.release`" in text
    assert "- `templates/note.md`" in text
    assert "!`" not in text, "Claude Code would run the command"
    assert release.is_dir()


def test_a_command_of_claude_code_and_a_section_of_agents_md(cli: Cli) -> None:
    command = cli("export", "code-review", "--as", "claude-command").stdout
    section = cli("export", "code-review", "--as", "agents-md").stdout

    assert parse_yaml(command.split("---\n")[1].encode())["argument-hint"] == "[task]"
    assert command.endswith("$ARGUMENTS\n")
    assert MARK.match(section)
    assert section.splitlines()[1] == "## Code review"
    assert section.endswith("<!-- workflowlookup end of code-review -->\n")
    assert all(MARK.search(text) for text in (command, section))


@pytest.mark.parametrize("identifier", BUNDLED)
def test_a_standalone_skill_has_every_step_in_order(cli: Cli, identifier: str) -> None:
    full = json.loads(cli("show", identifier, "--mode", "full", "--json").stdout)

    text = cli("export", identifier, "--as", "skill", "--standalone").stdout

    titles = re.findall(r"^## \d+\. (.*)$", text, re.MULTILINE)
    assert titles == [each["title"] for each in full["steps"]]
    assert all(each["prompt"] in text for each in full["steps"] if "prompt" in each)
    assert "workflow_start" not in text


def test_a_standalone_skill_is_imported_with_its_steps_in_order(cli: Cli, tmp_path: Path) -> None:
    full = json.loads(cli("show", "code-review", "--mode", "full", "--json").stdout)
    cli("export", "code-review", "--as", "skill", "--standalone", "--output", "skills")

    assert cli("import", "skills/code-review").returncode == 0

    imported = tmp_path / ".workflowlookup" / "workflows" / "code-review.workflow.md"
    headings = re.findall(r"^## (.*)$", imported.read_text(), re.MULTILINE)
    assert len(headings) == len(full["steps"])
    assert all(each["title"] in heading for each, heading in zip(full["steps"], headings, strict=True))
    assert cli("validate", str(imported)).returncode == 0


def test_conditions_loops_criteria_proofs_and_confirmations_are_words(cli: Cli, tmp_path: Path) -> None:
    write(
        tmp_path,
        document(
            step(
                "plan",
                promptFragments=[{"id": "f", "text": "Think of the customers.", "when": WHEN}],
                validationCriteria=[
                    {"type": "contains", "value": "risk", "message": "Name a risk.", "condition": WHEN}
                ],
                produces=["size"],
            ),
            loop("each", [step("work", runCondition=WHEN), step("look")], type="forEach", items="parts"),
            step(
                "finish",
                requireConfirmation={"when": "before", "by": "person", "question": "Really?"},
                proof=[
                    {"kind": "command", "run": ["make", "test"], "message": "The tests pass."},
                    {"kind": "command", "run": ["make", "count"], "at": "start", "measure": {"n": {"pattern": "(.)"}}},
                ],
            ),
        ),
    )

    text = cli("export", "sample-workflow.json", "--as", "skill", "--standalone").stdout

    for words in (
        'If size equals "large": Think of the customers.',
        "- `size`",
        '### Criteria\n\n- [ ] If size equals "large": The output contains the text "risk" (with this case): Name a risk.',
        "## 2. Loop each\n\n**Repeat** steps 2.1 to 2.2 for each currentItem of parts, at most 10 times.",
        '### 2.1. Title work\n\n**Only if** size equals "large". Otherwise skip this step.',
        "**Stop:** this step asks for confirmation by a person before it is done. Ask the user, and go on only when they "
        "have agreed. Ask: Really?",
        "**Before you begin:**\n\n- [ ] Run `make count`, and note `n`",
        "### Proof\n\nRun the commands and look at the results yourself:\n\n"
        "- [ ] `make test` ends with exit code 0: The tests pass.",
    ):
        assert words in text


def test_json_has_the_text_and_the_files(cli: Cli, release: Path) -> None:
    (exported,) = json.loads(cli("export", "my.release.json", "--as", "skill", "--json").stdout)

    assert [exported[name] for name in ("workflow", "version", "as", "path")] == [
        "my.release",
        "1.0.0",
        "skill",
        "my-release/SKILL.md",
    ]
    digest = hashlib.sha256((release / "templates" / "note.md").read_bytes()).hexdigest()
    assert exported["files"] == [{"path": "templates/note.md", "size": 11, "digest": digest}]
    mark = read_mark(exported["text"], [("templates/note.md", digest)])
    assert mark is not None
    assert mark.is_intact
    assert exported["document"] == f"sha256:{mark.document}"


# ── what is replaced ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_untouched_export_follows_its_workflow(cli: Cli, release: Path, tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "my-release"
    export(cli, "--output", "skills")
    assert export(cli, "--output", "skills") == "skills/my-release/SKILL.md is up to date\n"

    (release / "templates" / "note.md").unlink()
    (release / "other.md").write_text("new")
    (skill / ".hidden").touch()

    assert export(cli, "--output", "skills/my-release/SKILL.md") == "Wrote skills/my-release/SKILL.md\n"
    assert sorted(path.name for path in skill.rglob("*") if path.is_file()) == [".hidden", "SKILL.md", "other.md"]


@pytest.mark.parametrize("changed", ["SKILL.md", "templates/note.md", "added.md"])
def test_an_export_that_was_changed_is_replaced_only_by_force(
    cli: Cli, release: Path, tmp_path: Path, changed: str
) -> None:
    skill = tmp_path / "skills" / "my-release"
    export(cli, "--output", "skills")
    with (skill / changed).open("a") as file:
        file.write("mine")
    before = (skill / "SKILL.md").read_text()
    (release / "other.md").write_text("new")

    refused = export(cli, "--output", "skills")

    assert "was changed after it was exported" in refused
    assert "--force" in refused
    assert (skill / "SKILL.md").read_text() == before
    assert not (skill / "other.md").exists()
    export(cli, "--output", "skills", "--force")
    assert (skill / "other.md").read_text() == "new"
    assert (skill / "templates" / "note.md").read_bytes() == b"Dear all,\r\n"
    assert (skill / "added.md").exists() == (changed == "added.md")


@pytest.mark.parametrize("taken", ["SKILL.md", "templates/note.md"])
def test_what_has_no_mark_is_never_replaced(cli: Cli, release: Path, tmp_path: Path, taken: str) -> None:
    skill = tmp_path / "skills" / "my-release"
    (skill / "templates").mkdir(parents=True)
    (skill / taken).write_text("mine")

    for force in ((), ("--force",)):
        assert "Choose another path with --output" in export(cli, "--output", "skills", *force)
    assert [path.name for path in skill.rglob("*") if path.is_file()] == [Path(taken).name]
    assert (skill / taken).read_text() == "mine"
    assert release.is_dir()


def test_a_folder_that_leads_elsewhere_is_not_written_to(cli: Cli, release: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "skills" / "my-release").mkdir(parents=True)
    (tmp_path / "skills" / "my-release" / "templates").symlink_to(tmp_path / "elsewhere")

    assert "templates is a link" in export(cli, "--output", "skills", "--force")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert release.is_dir()


@pytest.mark.usefixtures("release")
def test_the_command_of_another_workflow_is_replaced_only_by_force(cli: Cli, tmp_path: Path) -> None:
    export(cli, "--output", "one.md", target="claude-command")
    words = ("export", "code-review", "--as", "claude-command", "--output", "one.md")

    assert "was exported from 'my.release'" in cli(*words).stderr
    assert cli(*words, "--force").returncode == 0
    assert "code-review" in (tmp_path / "one.md").read_text()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_section_of_agents_md_is_inserted_and_replaced_and_the_rest_stays(
    cli: Cli, release: Path, tmp_path: Path, newline: str
) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_bytes(f"# Ours{newline}{newline}Be kind.".replace("\n\r", "\n\r").encode())
    export(cli, "--output", "AGENTS.md", target="agents-md")
    cli("export", "code-review", "--as", "agents-md", "--output", "AGENTS.md")
    with file.open("ab") as stream:
        stream.write(f"{newline}The end.".encode())
    before = file.read_bytes()
    write(tmp_path, document(identifier="my.release", description="Ship it twice"))

    export(cli, "--output", "AGENTS.md", target="agents-md")

    after = file.read_bytes()
    assert after.count(b"workflowlookup export of") == 2
    assert before.count(b"\n") == after.count(b"\n")
    assert (newline == "\r\n") == (after.count(b"\r\n") == after.count(b"\n"))
    assert after.startswith(f"# Ours{newline}{newline}Be kind.{newline}{newline}<!--".encode())
    assert after.endswith(f"<!-- workflowlookup end of code-review -->{newline}{newline}The end.".encode())
    assert b"Ship it twice" in after
    assert b"Ship it !" not in after
    file.write_bytes(after.replace(b"Ship it twice", b"Ship it never"))
    assert "was changed after it was exported" in export(cli, "--output", "AGENTS.md", target="agents-md")
    file.write_bytes(after.replace(b"<!-- workflowlookup end of my.release -->", b""))
    assert "has no end" in export(cli, "--output", "AGENTS.md", "--force", target="agents-md")
    assert release.is_dir()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("code-review", "--standalone"), "add --as skill"),
        (("code-review", "--as", "skill", "--markdown"), "--markdown is for runs"),
        (("code-review", "--as", "agents-md", "--standalone"), "gets no whole workflow"),
        ((*BUNDLED, "--as", "skill"), "name it with --output"),
        ((*BUNDLED, "--as", "claude-command", "--output", "one.md"), "cannot be all of them"),
        (("code-review", "--as", "skill", "--output", "SKILL.md"), "ends in code-review/SKILL.md"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(cli: Cli, words: tuple[str, ...], problem: str) -> None:
    done = cli("export", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
