"""The commands that `init` finds in the files of a project, and that nothing of them runs before a person trusts it."""

import json
from pathlib import Path

import pytest

from support.command_line import Cli
from workflowlookup.cli.project_commands import find_commands
from workflowlookup.settings import read_settings

MAKEFILE = "VERSION := 1\n.PHONY: test\ntest lint: deps\n\tpytest\nbuild-all:\n\ttrue\n"
PYPROJECT = '[dependency-groups]\ndev = ["pytest>=8", "ruff"]\n[tool.mypy]\nstrict = true\n'
SCRIPTS = json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1', "build": "tsc"}})


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"Makefile": MAKEFILE}, {"test": ["make", "test"], "lint": ["make", "lint"]}),
        ({"pyproject.toml": PYPROJECT}, {"test": ["pytest"], "lint": ["ruff", "check"], "typecheck": ["mypy"]}),
        (
            {"pyproject.toml": '[tool.pytest.ini_options]\nminversion = "8"\n', "uv.lock": ""},
            {"test": ["uv", "run", "pytest"]},
        ),
        ({"tox.ini": "[tox]\n"}, {"test": ["tox"]}),
        ({"tox.toml": ""}, {"test": ["tox"]}),
        ({"noxfile.py": "import nox\n"}, {"test": ["nox"]}),
        ({"package.json": SCRIPTS}, {"build": ["npm", "run", "build"]}),
        ({"package.json": SCRIPTS, "pnpm-lock.yaml": ""}, {"build": ["pnpm", "run", "build"]}),
        (
            {"Cargo.toml": "[package]\n"},
            {"test": ["cargo", "test"], "lint": ["cargo", "clippy"], "build": ["cargo", "build"]},
        ),
        (
            {"go.mod": "module x\n", "Makefile": "test:\n\tgo test ./...\n"},
            {"test": ["make", "test"], "lint": ["go", "vet", "./..."], "build": ["go", "build", "./..."]},
        ),
        ({"package.json": "[", "pyproject.toml": "=", "Makefile": "\0:\n"}, {}),
        ({"package.json": '{"scripts": ["test"]}'}, {}),
        ({}, {}),
    ],
)
def test_the_files_of_a_project_suggest_its_commands(
    tmp_path: Path, files: dict[str, str], commands: dict[str, list[str]]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert find_commands(str(tmp_path)) == commands


def test_init_writes_them_beside_other_settings_and_they_wait_for_trust(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "workflowlookup.toml").write_text('log_level = "info"\n')

    shown = cli("init")
    assert 'test = ["make", "test"]' in shown.stdout
    assert "[commands]" not in (tmp_path / "workflowlookup.toml").read_text()
    cli("init", "--commands")

    text = 'log_level = "info"\n\n[commands]\ntest = ["make", "test"]\nlint = ["make", "lint"]\n'
    assert (tmp_path / "workflowlookup.toml").read_text() == text
    settings = read_settings({}, {"HOME": str(tmp_path / "home")}, directory=str(tmp_path))
    assert settings.commands == {}
    assert [(entry.kind, entry.name, entry.value) for entry in settings.ignored] == [
        ("commands", "test", ["make", "test"]),
        ("commands", "lint", ["make", "lint"]),
    ]
    assert "Its files suggest" not in cli("init").stdout


def test_in_a_terminal_a_person_is_asked_and_can_trust_them_at_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "Makefile").write_text("test:\n\ttrue\n")
    own = cli.own

    sitting = cli.sit_down("init")
    sitting.see("Write them into workflowlookup.toml?").type("y\n")
    sitting.see("Look at them now?").type("y\n")
    code, seen = sitting.see("May this run").type("y\n").leave()

    assert (code, "Trusted: 1." in seen) == (0, True)
    settings = read_settings({}, {"XDG_CONFIG_HOME": str(own.parent)}, directory=str(tmp_path))
    assert settings.commands == {"test": ("make", "test")}
