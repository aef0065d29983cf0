"""The authoring guide as a reader follows it: each document is put where the page says, each command is run as printed."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Cli

Shell = Callable[[str], subprocess.CompletedProcess[str]]
DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    (kind, text)
    for _, kind, text in re.findall(
        r"^(`{3,4})(yaml|console|markdown)\n(.*?)^\1$",
        (DOCS / "authoring.md").read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
]
DIFFERS = "$ workflowlookup diff "
"""Its exit code is 1 when something changed, as the page says."""


def put(project: Path, text: str) -> None:
    """A document or a fixture of the page, where a reader would put it."""
    mark, field, identifier = re.match("(---\n)?(.*?): (.*)", text).groups()  # type: ignore[union-attr]
    suffix = ".test.yaml" if field == "workflow" else ".workflow.md" if mark else ".yaml"
    (project / f"{identifier}{suffix}").write_text(text)


@pytest.fixture
def shell(cli: Cli, tmp_path: Path) -> Shell:
    """Runs a line that begins with `$` as a person would who has the command installed."""
    bin_directory = tmp_path / "home" / "bin"
    bin_directory.mkdir()
    command = bin_directory / "workflowlookup"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m workflowlookup "$@"\n')
    command.chmod(0o755)

    def run(line: str) -> subprocess.CompletedProcess[str]:
        environment = cli._environment()
        environment["PATH"] = f"{bin_directory}:{environment['PATH']}"
        return subprocess.run(
            ["bash", "-c", line.removeprefix("$ ")],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_following_the_guide_from_top_to_bottom_works(shell: Shell, tmp_path: Path) -> None:
    for kind, text in BLOCKS:
        if kind != "console":
            put(tmp_path / ".workflowlookup" / "workflows", text)
            continue
        for line in text.splitlines():
            done = shell(line)
            assert (done.returncode, done.stderr) == (int(line.startswith(DIFFERS)), ""), (line, done.stdout)


def test_the_documents_of_the_guide_are_formatted_and_pass_lint(cli: Cli, project: Path) -> None:
    for kind, text in BLOCKS:
        if kind != "console":
            put(project, text)

    checks = [cli("fmt", "--check"), cli("lint"), cli("validate"), cli("test")]

    assert [(done.returncode, done.stderr) for done in checks] == [(0, "")] * 4, [done.stdout for done in checks]


def test_the_commands_of_the_page_about_lint_work_after_init(shell: Shell) -> None:
    lines = [
        line
        for text in re.findall(r"```console\n(.*?)```", (DOCS / "lint.md").read_text("utf-8"), re.DOTALL)
        for line in text.splitlines()
    ]

    codes = [shell(line).returncode for line in ["$ workflowlookup init", *lines]]

    assert codes == [0] * (len(lines) + 1)
    assert lines
