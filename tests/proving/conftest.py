"""A project directory with a repository, and a prover that may do everything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.proving import Project


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Project]:
    """A project directory without a repository."""
    root = tmp_path / "project"
    root.mkdir()
    project = Project(root)
    yield project
    project.prover.close()


@pytest.fixture
def project(folder: Project) -> Project:
    """A project directory with a repository and a commit."""
    folder.git("init", "-q")
    folder.write("src/app.py", "x = 1\n")
    folder.write("tests/test_app.py", "assert True\n")
    folder.commit("begin")
    return folder
