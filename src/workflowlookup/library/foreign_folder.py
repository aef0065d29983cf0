"""Reads the folder of a procedure that is imported: bounded, and nothing outside of it.

Nothing in such a folder is trusted. Links that lead out of it are left out and named, folders of tools and hidden ones
are not entered, and a folder that is too large is read up to the limits.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.errors import StorageError, WorkflowLookupError
from workflowlookup.language.text import escaped
from workflowlookup.library.files import read_bytes, unreadable

MAX_FILES: Final = 512
MAX_BYTES: Final = 16 << 20
"""How many files are read with the main file, and how many bytes of them."""
MAX_NAMES: Final = 100_000
"""How many files and folders are looked at."""
MAX_DEPTH: Final = 12
MAIN_FILES: Final = (
    "SKILL.md",
    "skill.md",
    "Skill.md",
    "workflow.md",
    "workflow.yml",
    "workflow.yaml",
    "recipe.yaml",
    "recipe.yml",
)
"""What the main file of a folder can be called, best first."""
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv", "dist", "target"})


class FolderFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a folder as far as they were read."""

    main: str
    files: dict[str, bytes]
    """By path within the folder, with `/`; the main file is the first."""
    refused: Sequence[tuple[str, str]]
    """What was not read, and why."""
    is_complete: bool
    """Whether the limits were enough."""


def read_one(path: str) -> FolderFiles:
    """One file, without the others of its folder. Raises `WorkflowLookupError`."""
    name, target = os.path.basename(path), os.path.realpath(path)
    data, _ = read_bytes(target, os.path.dirname(target))
    return FolderFiles(main=name, files={name: data}, refused=(), is_complete=True)


def has_folder(path: str) -> bool:
    """Whether the file is the main file of a folder, so that the files beside it belong to it."""
    return os.path.basename(path) in MAIN_FILES


def read_folder(root: str, main: str) -> FolderFiles:
    """The main file of a folder, and the others in it. Raises `WorkflowLookupError` if the main file cannot be read."""
    data, _ = read_bytes(os.path.join(root, main), root)
    files, refused, size, is_complete = {main: data}, list[tuple[str, str]](), len(data), True
    for path in _paths(root):
        if path == main:
            continue
        if len(files) >= MAX_FILES or size >= MAX_BYTES:
            is_complete = False
            break
        full = os.path.join(root, path)
        if not path.isprintable() or os.path.isdir(full):
            reason = "a link to a folder, which is not followed" if path.isprintable() else "its name is not text"
            refused.append((escaped(path), reason))
            continue
        try:
            files[path], _ = read_bytes(full, root)
        except WorkflowLookupError as problem:
            refused.append((path, str(problem.data.get("details") or problem)))
        else:
            size += len(files[path])
    return FolderFiles(main=main, files=files, refused=refused, is_complete=is_complete)


def main_file(root: str) -> str:
    """The name of the main file of a folder; empty if it has none. Raises `StorageError` if it cannot be listed."""
    try:
        names = set(os.listdir(root))
    except OSError as problem:
        raise unreadable(root, problem) from problem
    return next((name for name in MAIN_FILES if name in names), "")


def folders_below(root: str) -> list[str]:
    """The folders below that have a main file of a skill, relative and in order. Raises `StorageError` if too large."""
    found: list[str] = []
    for path in _paths(root):
        folder, _, name = path.rpartition("/")
        if name.lower() == "skill.md":
            found.append(folder)
    return found


def _paths(root: str) -> Iterator[str]:
    """The files and the links below a folder, by path, those of a folder before those of its folders."""
    looked_at = 0
    for directory, folders, names in os.walk(root):
        inner = os.path.relpath(directory, root)
        depth = 0 if inner == "." else inner.count(os.sep) + 1
        links = [name for name in folders if os.path.islink(os.path.join(directory, name))]
        folders[:] = sorted(
            name
            for name in folders
            if name not in links and name not in _SKIPPED and name != ".git" and depth < MAX_DEPTH
        )
        looked_at += len(folders) + len(names)
        if looked_at > MAX_NAMES:
            details = f"it has more than {MAX_NAMES:,} files. Name the folder of the one that you want"
            raise StorageError(f"{root} cannot be searched: {details}.", file=root, details=details)
        for name in sorted([*names, *links]):
            yield name if depth == 0 else f"{inner}/{name}".replace(os.sep, "/")
