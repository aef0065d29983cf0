"""`workflowlookup diff`."""

import json
import subprocess
from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, step, write

BEFORE = document(step("one", prompt="Look.\nThen tell."), step("two", runCondition={"var": "size", "gt": 2}))
AFTER = document(step("one", prompt="Look twice.\nThen tell."), step("two"), step("three"), version="1.1.0")


@pytest.fixture(autouse=True)
def _documents(cli: Cli) -> None:
    write(cli.directory, BEFORE, "before.json")
    write(cli.directory, AFTER, "after.json")


def test_changes_are_listed_by_step_with_exit_code_1(cli: Cli) -> None:
    done = cli("diff", "before.json", "after.json")

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "~ workflow",
        "    ~ version: 1.0.0 -> 1.1.0",
        "",
        "~ step one  Title one",
        "    ~ prompt",
        "        @@ -1,2 +1,2 @@",
        "        -Look.",
        "        +Look twice.",
        "         Then tell.",
        "",
        "~ step two  Title two",
        "    - condition: size is greater than 2",
        "",
        "+ step three  Title three  (after two)",
        "",
        "steps: 1 added, 2 changed",
    ]


def test_equal_documents_have_exit_code_0(cli: Cli) -> None:
    done = cli("diff", "before.json", "before.json")

    assert (done.returncode, done.stdout) == (0, "no difference\n")


def test_json_has_the_same_changes(cli: Cli) -> None:
    done = cli("diff", "before.json", "after.json", "--json")

    answer = json.loads(done.stdout)
    assert (done.returncode, answer["same"]) == (1, False)
    assert answer["after"] == {"id": "sample-workflow", "version": "1.1.0"}
    assert answer["changes"][2] == {
        "kind": "changed",
        "step": "two",
        "title": "Title two",
        "changes": [{"kind": "removed", "what": "condition", "before": "size is greater than 2"}],
    }


def test_a_terminal_has_colour(cli: Cli) -> None:
    code, seen = cli.on_terminal("diff", "before.json", "after.json")

    assert (code, "\x1b[32m" in seen) == (1, True)


def test_an_id_of_the_library_and_a_document_can_be_compared(cli: Cli, project: Path) -> None:
    write(project, BEFORE)

    assert cli("diff", "sample-workflow", "before.json").returncode == 0


def test_control_characters_of_a_document_are_escaped(cli: Cli) -> None:
    write(cli.directory, document(step("one", title="\x1b[2J")), "hostile.json")

    assert "\x1b" not in cli("diff", "before.json", "hostile.json").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("before.json",),
        ("before.json", "gone.json"),
        ("no-such-id", "before.json"),
        ("before.json@HEAD", "before.json"),
        ("before.json@--help", "before.json"),
    ],
)
def test_documents_that_cannot_be_compared_have_exit_code_2(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli("diff", *words, GIT_CEILING_DIRECTORIES=str(cli.directory.parent))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def commit(directory: Path, *paths: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    for words in (("init",), ("add", *paths), ("commit", "-m", "first")):
        subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True)


def test_a_git_revision_can_be_compared_with_the_working_tree(cli: Cli) -> None:
    commit(cli.directory, "before.json")
    write(cli.directory, AFTER, "before.json")

    assert cli("diff", "before.json").stdout.endswith("steps: 1 added, 2 changed\n")
    assert cli("diff", "before.json@HEAD", "before.json").stdout.endswith("steps: 1 added, 2 changed\n")
    assert cli("diff", "before.json@HEAD", "before.json@HEAD").returncode == 0


def test_an_id_can_be_compared_with_itself_in_a_revision(cli: Cli, project: Path) -> None:
    file = write(project, BEFORE)
    commit(cli.directory, str(file))
    write(project, AFTER)

    for words in (("sample-workflow@HEAD", "sample-workflow"), ("sample-workflow",)):
        assert cli("diff", *words).stdout.endswith("steps: 1 added, 2 changed\n")
    assert "no-such-id" in cli("diff", "no-such-id@HEAD", "before.json").stderr


def test_git_runs_nothing_that_a_directory_of_a_clone_configures(cli: Cli, project: Path, tmp_path: Path) -> None:
    """A directory that is itself a bare repository: its configuration says how a missing object is fetched."""
    source, marker = tmp_path / "source", tmp_path / "marker"
    source.mkdir()
    commit(source, write(source, BEFORE).name)
    file = write(project, AFTER)
    for part in ("HEAD", "refs", "objects"):
        subprocess.run(["cp", "-r", source / ".git" / part, project], check=True)
    blob = subprocess.check_output(["git", "rev-parse", f"HEAD:{file.name}"], cwd=source, text=True).strip()
    (project / "objects" / blob[:2] / blob[2:]).unlink()
    (project / "config").write_text(
        "[core]\nrepositoryformatversion = 1\nbare = false\nworktree = .\n[extensions]\npartialClone = origin\n"
        f'[remote "origin"]\npromisor = true\nurl = {source}\nuploadpack = touch {marker} &&\n'
    )

    done = cli("diff", f"{file.relative_to(cli.directory)}@HEAD", str(file))

    assert (done.returncode, marker.exists()) == (2, False)
    assert "git has no" in done.stderr
