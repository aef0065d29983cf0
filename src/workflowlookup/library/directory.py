"""A directory of documents as a source. A scan reads only the files that changed."""

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from time import thread_time
from types import MappingProxyType
from typing import Final

import msgspec

from workflowlookup.errors import SecurityError, StorageError, WorkflowLookupError, not_read_yet
from workflowlookup.language.text import plural
from workflowlookup.library.changes import ChangeWatcher
from workflowlookup.library.files import LoadedFile, folder_of, is_document_name, load, signature_of, unreadable

MAX_DEPTH: Final = 32
"""How deep directories may nest; deeper ones are reported and not read."""
MAX_DOCUMENTS: Final = 10_000
MAX_ENTRIES: Final = 50_000
"""Documents, and files and directories of any kind, in one source; the rest is left out."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a source at one moment: its files by path, or why it cannot be read."""

    files: Mapping[str, LoadedFile] = MappingProxyType({})
    ignored: int = 0
    refusal: WorkflowLookupError | None = None
    provenance: str = ""
    """Where the documents come from, if the directory does not say it: a repository and its commit."""
    attachment_digests: Mapping[str, str] | None = None
    """By path: the SHA-256 that each file must have that the documents bring along; None if they may have any."""


class DirectorySource:
    """Every document below a directory, except hidden files and directories, and what documents bring along."""

    def __init__(
        self, name: str, root: str, *, required: bool = False, digests: Mapping[str, str] | None = None
    ) -> None:
        """`digests`: by path from the root, the SHA-256 that each document must have."""
        self.name = name
        self._digests = digests
        self.root = os.path.abspath(root)
        self._required = required

    def identity(self) -> tuple[int, int] | None:
        """Identifies the directory at the root; None when there is none."""
        try:
            status = os.stat(self.root)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def scan(self, previous: Listing, changed: Collection[str], watcher: ChangeWatcher, deadline: float) -> Listing:
        """List the documents. Files in `changed` and files with another signature are read again.

        Each directory is watched before it is listed, so that no change is missed. What is not read by the deadline is
        left to the next scan; `files` then has one refusal for all of it, under the path of the root.
        """
        if self.identity() is None:
            watcher.expect(self.root)
            if self.identity() is None:
                return self._without_root(previous)
        files: dict[str, LoadedFile] = {}
        ignored = 0
        left_out: dict[str, WorkflowLookupError] = {}
        unread: list[str] = []
        try:
            for number, entry in enumerate(self._entries(self.root, watcher, left_out)):
                if number == MAX_ENTRIES or len(files) + len(unread) == MAX_DOCUMENTS:
                    left_out[self.root] = _too_many(self.root, entry.path)
                    break
                if entry.is_dir(follow_symlinks=False):
                    continue
                if not is_document_name(entry.name):
                    ignored += not entry.name.startswith(".")
                    continue
                before = previous.files.get(entry.path)
                digest = self._digest_of(entry.path)
                if before is not None and entry.path not in changed and not _differs(before, entry, digest):
                    files[entry.path] = before
                elif thread_time() < deadline:
                    files[entry.path] = _unless_same(before, load(entry.path, self.root, digest))
                else:
                    unread.append(entry.path)
        except OSError as problem:
            return withdrawn(previous, unreadable(self.root, problem))
        if unread:
            what = f"{plural(len(unread), 'document')} of {self.root} cannot be used yet, the first is {unread[0]}"
            left_out[self.root] = not_read_yet(what, file=self.root)
        for path, refusal in left_out.items():
            files[path] = _unless_same(
                previous.files.get(path), LoadedFile(path=path, id="", signature=None, refusal=refusal)
            )
        return Listing(files=files, ignored=ignored)

    def _digest_of(self, path: str) -> str | None:
        return None if self._digests is None else self._digests.get(os.path.relpath(path, self.root), "")

    def _entries(
        self,
        directory: str,
        watcher: ChangeWatcher,
        left_out: dict[str, WorkflowLookupError],
        levels: int = MAX_DEPTH,
    ) -> Iterator[os.DirEntry[str]]:
        """The entries below a directory; adds to `left_out` the directories that are not read, and why."""
        watcher.watch(directory)
        with os.scandir(directory) as listed:
            entries = sorted(itertools.islice(listed, MAX_ENTRIES + 1), key=lambda entry: entry.name)
        attached = {folder_of(entry.name) for entry in entries if is_document_name(entry.name)}
        for entry in entries:
            if entry.name in attached:
                continue
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith("."):
                    yield entry
                    yield from self._subdirectory(entry, watcher, left_out, levels - 1)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                if not entry.name.startswith("."):
                    left_out[entry.path] = _not_followed(entry.path)
            else:
                yield entry

    def _subdirectory(
        self, entry: os.DirEntry[str], watcher: ChangeWatcher, left_out: dict[str, WorkflowLookupError], levels: int
    ) -> Iterator[os.DirEntry[str]]:
        if levels < 0:
            details = f"more than {MAX_DEPTH} directories deep"
            refusal = SecurityError(f"{entry.path} is {details}. Move it up.", file=entry.path, details=details)
            left_out[entry.path] = refusal
            return
        try:
            yield from self._entries(entry.path, watcher, left_out, levels)
        except FileNotFoundError:
            return  # it was deleted meanwhile
        except OSError as problem:  # the other directories are still read
            left_out[entry.path] = unreadable(entry.path, problem)

    def _without_root(self, previous: Listing) -> Listing:
        if not self._required and not previous.files:
            return Listing()
        refusal = StorageError(f"{self.root} does not exist.", file=self.root, details="does not exist")
        return withdrawn(previous, refusal)


def _not_followed(path: str) -> SecurityError:
    details = "a link to a directory, which is not followed"
    return SecurityError(
        f"{path} is {details}. Copy the directory, or name it in the setting directories.", file=path, details=details
    )


def _too_many(root: str, first: str) -> SecurityError:
    details = (
        f"more than {MAX_DOCUMENTS:,} documents, or {MAX_ENTRIES:,} files and directories of any kind: "
        f"{first} and what comes after it is left out"
    )
    return SecurityError(f"{root} has {details}. Move documents to another directory.", file=root, details=details)


def withdrawn(previous: Listing, refusal: WorkflowLookupError) -> Listing:
    """The previous files by name, each with the refusal in place of its content."""
    files = {
        path: LoadedFile(path=path, id=loaded.id, signature=None, refusal=refusal)
        for path, loaded in previous.files.items()
    }
    return Listing(files=files, refusal=refusal)


def _differs(before: LoadedFile, entry: os.DirEntry[str], digest: str | None) -> bool:
    """Whether the file must be read again. A file that could not be read is tried every time."""
    if before.signature is None or before.digest != digest:
        return True
    try:
        return signature_of(entry.stat()) != before.signature
    except OSError:
        return True


def _unless_same(before: LoadedFile | None, now: LoadedFile) -> LoadedFile:
    """The previous object when both have the same refusal, so that the file does not count as changed."""
    is_same = before is not None and before.refusal and now.refusal and str(before.refusal) == str(now.refusal)
    return before if before is not None and is_same and before.signature == now.signature else now
