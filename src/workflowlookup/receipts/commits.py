"""The commit that a receipt is about, looked up without trusting the repository (see `proving.git`)."""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.proving.contract import CannotJudge
from workflowlookup.proving.git import Repositories, Repository
from workflowlookup.proving.running import Stop
from workflowlookup.proving.scratch import Scratch


class NoCommit(WorkflowLookupError):
    """A commit cannot be found."""

    code, message = -32602, "Commit not found"


class Commit(NamedTuple):
    """The ids of a commit and of its tree."""

    commit: str
    tree: str


def find_commit(directory: str, revision: str) -> Commit:
    """A commit of the repository around a directory. Raises `NoCommit`."""
    with _repository(directory) as repository:
        commit = repository.resolve(revision)
        return Commit(commit, repository.tree_of(commit))


@contextlib.contextmanager
def _repository(directory: str) -> Iterator[Repository]:
    scratch, stop = Scratch(), Stop()
    try:
        repository = Repositories(scratch).find(os.path.realpath(directory), stop)
        if repository is None:
            raise NoCommit(f"{directory} is not in a git repository. Run the command in a clone.")
        yield repository
    except CannotJudge as problem:
        raise NoCommit(f"{problem} {problem.remedy}") from problem
    finally:
        stop.close()
        scratch.close()
