"""Fixtures: the command line, and a library of the project."""

from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import write


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Where the project in the working directory has its workflows."""
    directory = tmp_path / ".workflowlookup" / "workflows"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture(autouse=True)
def sample(request: pytest.FixtureRequest) -> None:
    """Write the document that a module has as `SAMPLE` into the project's library."""
    if (content := getattr(request.module, "SAMPLE", None)) is not None:
        write(request.getfixturevalue("project"), content)
