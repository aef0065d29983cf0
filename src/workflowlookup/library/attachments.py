"""The files that a workflow brings along, such as templates: `NAME.files/` beside the document `NAME.json`.

They become part of a skill, whose hosts approve all of it or nothing. So a folder is served whole or not at all: one
link, pipe or file too many, and the error names it. Nothing outside the folder is
read, even if somebody changes it meanwhile.
"""

import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterator
from typing import Final

import msgspec

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import SecurityError, StorageError
from workflowlookup.language.text import HIDDEN
from workflowlookup.library.files import SKILL_FILE, Signature, folder_of, signature_of, unreadable

MAX_FILES: Final = 511
"""A skill has at most 512 files with its `SKILL.md`."""
MAX_BYTES: Final = (16 << 20) - (64 << 10)
"""A skill has at most 16 MiB with its `SKILL.md`, which is never larger than 64 KiB."""
MAX_DEPTH: Final = 16
MAX_ENTRIES: Final = 2_048
"""How many files and directories of a folder are looked at, hidden ones included."""
MAX_PATH: Final = 500
MAX_DIGESTS: Final = 16_384
"""How many digests are cached."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a workflow brings along."""

    path: str
    """Within the folder, with `/` between its parts."""
    size: int
    digest: str
    """SHA-256 of its bytes, in hexadecimal."""


class AttachmentReader:
    """Lists and reads the folders of documents. A file that did not change is hashed once."""

    def __init__(self) -> None:
        self._digests: BoundedCache[str, tuple[Signature, str]] = BoundedCache(MAX_DIGESTS)

    def list(self, document: str) -> tuple[Attachment, ...]:
        """The files that a document brings along, ordered by path.

        Raises `SecurityError` and `StorageError` for a folder with something in it that cannot be served.
        """
        folder = folder_of(document)
        files = _files_in(folder)
        for path, _ in files:
            if path.casefold() == SKILL_FILE.casefold():
                details = f"in the place of the {SKILL_FILE} that the workflow becomes"
                raise _refused(os.path.join(folder, path), details, "Rename it")
        return tuple(self._attachment(folder, path, status) for path, status in files)

    def list_skill(self, folder: str) -> tuple[Attachment, ...]:
        """The files of a skill without its `SKILL.md`. Raises as `list`."""
        files = [file for file in _files_in(folder) if file[0] != SKILL_FILE]
        return tuple(self._attachment(folder, path, status) for path, status in files)

    def _attachment(self, folder: str, path: str, status: os.stat_result) -> Attachment:
        key = os.path.join(folder, path)
        cached = self._digests.get(key)
        signature = signature_of(status)
        if cached is None or cached[0] != signature:
            data, signature = _read(folder, path)
            cached = self._digests[key] = (signature, hashlib.sha256(data).hexdigest())
        return Attachment(path=path, size=signature[2], digest=cached[1])

    def read(self, document: str, path: str) -> bytes:
        """The content of an attachment. Raises `StorageError` and `SecurityError`."""
        return _read(folder_of(document), path)[0]


def _files_in(folder: str) -> list[tuple[str, os.stat_result]]:
    """The files below a folder in the order of their paths. Raises `SecurityError` and `StorageError`."""
    try:
        root = os.open(folder, _DIRECTORY)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise _refused(folder, "not a directory, or a link to one", "Make it a directory of its own") from None
    except OSError as problem:
        raise unreadable(folder, problem) from problem
    try:
        files = sorted(_walk(root, folder, "", itertools.count(1)), key=lambda file: file[0])
    except OSError as problem:
        raise unreadable(folder, problem) from problem
    finally:
        os.close(root)
    if sum(path != SKILL_FILE for path, _ in files) > MAX_FILES:
        raise _refused(folder, f"a folder of more than {MAX_FILES} files", "Move some elsewhere")
    if sum(status.st_size for _, status in files) > MAX_BYTES:
        raise _refused(folder, f"larger than {MAX_BYTES:,} bytes in all", "Move some of its files elsewhere")
    return files


def _walk(
    directory: int, folder: str, prefix: str, counter: "itertools.count[int]", depth: int = 0
) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if next(counter) > MAX_ENTRIES:
                raise _refused(folder, f"a folder of more than {MAX_ENTRIES:,} files and directories", "Remove some")
            if entry.name.startswith("."):
                continue
            path = f"{prefix}{entry.name}"
            full = os.path.join(folder, path)
            if len(path) > MAX_PATH or depth > MAX_DEPTH or re.search(f"{HIDDEN}|[\n\t\\\\]", path):
                raise _refused(full, "a path that is too long, or has invisible characters", "Rename it")
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                inner = os.open(entry.name, _DIRECTORY, dir_fd=directory)
                try:
                    yield from _walk(inner, folder, f"{path}/", counter, depth + 1)
                finally:
                    os.close(inner)
            elif stat.S_ISLNK(status.st_mode):
                raise _refused(full, "a link, which is not followed", "Copy the file instead")
            elif not stat.S_ISREG(status.st_mode):
                raise StorageError(f"{full} is not a regular file.", file=full)
            else:
                yield path, status


def _read(folder: str, path: str) -> tuple[bytes, Signature]:
    """The content of a file, opened part by part, so that no part can be a link."""
    full = os.path.join(folder, path)
    *parents, name = path.split("/")
    opened: list[int] = []
    try:
        try:
            opened.append(os.open(folder, _DIRECTORY))
            for parent in parents:
                opened.append(os.open(parent, _DIRECTORY, dir_fd=opened[-1]))
            opened.append(os.open(name, _FILE, dir_fd=opened[-1]))
            status = os.fstat(opened[-1])
            if not stat.S_ISREG(status.st_mode):
                raise StorageError(f"{full} is not a regular file.", file=full)
            with open(opened.pop(), "rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        finally:
            for descriptor in opened:
                os.close(descriptor)
    except OSError as problem:
        raise unreadable(full, problem) from problem
    if len(data) > MAX_BYTES:
        raise _refused(full, f"larger than {MAX_BYTES:,} bytes", "Move it elsewhere")
    modified, changed, _, inode = signature_of(status)
    return data, (modified, changed, len(data), inode)


def _refused(path: str, details: str, remedy: str) -> SecurityError:
    return SecurityError(f"{path} is {details}. {remedy}.", file=path, details=details)
