"""The temporary worktree of `against`: the files of another commit, with some of the working tree copied over.

It is outside the root, in a private directory. Neither the root nor its repository is written to, and it is removed
whatever happens.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.language.proof import CommandProof
from workflowlookup.proving.contract import CannotJudge, ProofTask, World
from workflowlookup.proving.files import MAX_DIGEST_BYTES, blocks, escape, matching, shown
from workflowlookup.proving.git import Repository
from workflowlookup.proving.scratch import remove
from workflowlookup.runs.events import Snapshot

_MAX_DIGESTS: Final = 100


class Worktree(msgspec.Struct, frozen=True, kw_only=True):
    """A temporary worktree, with the SHA-256 of the files that were copied to it."""

    directory: str
    """What the root is in the worktree."""
    commit: str
    digests: Mapping[str, str]
    copy_whole_change: Callable[[], None]
    """Copies all files that differ from the commit, and removes those that were deleted. Raises `CannotJudge`."""


@contextlib.contextmanager
def temporary_worktree(task: ProofTask, world: World) -> Iterator[Worktree]:
    """The worktree that a command runs in. Raises `CannotJudge`."""
    proof = task.proof
    assert isinstance(proof, CommandProof)
    assert proof.against is not None
    repository = world.repositories.find(task.root, world.stop)
    if repository is None:
        raise CannotJudge("The project directory is not in a git repository, so there is no other commit.", "Use git.")
    base = proof.against.base
    if base in ("run", "step"):
        commit = task.snapshot("run" if base == "run" else "step").commit
        if not commit:
            raise CannotJudge(f"There was no commit when the {base} began.", "Commit something, and start a new run.")
    else:
        commit = base
    commit = repository.resolve(commit)
    names = matching(task.root, [task.fill(glob, escape) for glob in proof.against.copied], world.stop.is_set)
    if proof.against.copied and not names:
        raise CannotJudge(
            f"No file matches {', '.join(map(task.fill, proof.against.copied))}, so there is nothing to copy.",
            "Write the files first.",
        )
    directory = ""
    try:
        try:
            directory = world.scratch.make("worktree", task.root)
            repository.export(commit, directory)
            inside = os.path.join(directory, repository.prefix).rstrip("/")
            os.makedirs(inside, exist_ok=True)
            digests = {shown(name): _copy(task.root, name, inside) for name in names}
        except OSError as problem:
            raise CannotJudge(
                f"The temporary worktree cannot be made: {problem.strerror or problem}.",
                "Set TMPDIR to a directory with free space.",
            ) from problem
        yield Worktree(
            directory=inside,
            commit=commit,
            digests=dict(list(digests.items())[:_MAX_DIGESTS]),
            copy_whole_change=lambda: _copy_change(task.root, repository, commit, inside),
        )
    finally:
        if directory:
            remove(directory)


def _copy_change(root: str, repository: Repository, commit: str, directory: str) -> None:
    try:
        for name in repository.changed(Snapshot(commit=commit, is_repository=True)):
            if os.path.lexists(os.path.join(root, name)):
                _copy(root, name, directory)
            else:
                _delete(directory, name)
    except OSError as problem:
        raise CannotJudge(
            f"The change cannot be copied to the temporary worktree: {problem.strerror or problem}.",
            "Set TMPDIR to a directory with free space.",
        ) from problem


def _copy(root: str, name: str, directory: str) -> str:
    """Copy a file of the root. Returns the SHA-256 of what was copied. Links in the worktree are replaced, never
    followed.
    """
    sha = hashlib.sha256()
    mode = stat.S_IMODE(os.stat(os.path.join(root, name)).st_mode) & 0o755 | 0o600
    parent, last = _enter_all(directory, name)
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
                raise CannotJudge(f"'{shown(name)}' is a directory in the other commit.", "Leave it out of `with`.")
            os.unlink(last, dir_fd=parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(last, flags, mode, dir_fd=parent), "wb") as file:
            for block in blocks(root, name, MAX_DIGEST_BYTES):
                sha.update(block)
                file.write(block)
    finally:
        os.close(parent)
    return sha.hexdigest()


def _delete(directory: str, name: str) -> None:
    parent, last = _enter_all(directory, name)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(last, dir_fd=parent)
    finally:
        os.close(parent)


def _enter_all(directory: str, name: str) -> tuple[int, str]:
    """Open the directory of a file in the worktree. Returns it, and the name of the file in it."""
    *parents, last = name.split("/")
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parents:
        parent = _enter(parent, part)
    return parent, last


def _enter(parent: int, name: str) -> int:
    """Open a directory below an open one, which is closed; anything else of that name is replaced by a directory."""
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
