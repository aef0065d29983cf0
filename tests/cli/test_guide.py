"""The commands of the authoring guide: each does what the page says, in a project that has the page's workflows."""

import re
import shlex
from pathlib import Path

import pytest
from commands import Cli

PAGE = (Path(__file__).parents[2] / "docs" / "authoring.md").read_text("utf-8")
BLOCKS = [block.splitlines() for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)]
ONE = ("diff ", "test .workflowlookup/workflows --min-coverage")
"""They differ, and the page has fixtures for some of its workflows only: that is exit code 1."""


@pytest.mark.parametrize("lines", BLOCKS, ids=[block[0].removeprefix("$ workflowlookup ") for block in BLOCKS])
def test_every_command_of_the_guide_works(cli: Cli, project: Path, lines: list[str]) -> None:
    for text in re.findall(r"```yaml\n(id: .*?)```", PAGE, re.DOTALL):
        name = text.partition("\n")[0].removeprefix("id: ")
        (project / f"{name}.yaml").write_text(text)
    for fixture in re.findall(r"```yaml\n(workflow: .*?)```", PAGE, re.DOTALL):
        name = fixture.partition("\n")[0].removeprefix("workflow: ")
        (project / f"{name}.test.yaml").write_text(fixture)

    for line in lines:
        command = line.removeprefix("$ workflowlookup ").partition(" > ")[0]
        done = cli(*shlex.split(command))

        assert (done.returncode, done.stderr) == (int(command.startswith(ONE)), ""), (command, done.stdout)
