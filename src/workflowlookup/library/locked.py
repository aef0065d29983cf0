"""A git repository as a source: exactly the documents that a lock file names, read from the user's cache.

Nothing is fetched here (`fetching` does that), so a library is the same offline. A document whose SHA-256 is not the
one in the lock is refused by name, and the others are used.
"""

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from workflowlookup.atomic import replace_file
from workflowlookup.errors import NotAsLocked, SecurityError, StorageError, WorkflowLookupError
from workflowlookup.library.attachments import AttachmentReader
from workflowlookup.library.changes import ChangeWatcher, PollingWatcher
from workflowlookup.library.directory import DirectorySource, Listing, withdrawn
from workflowlookup.library.files import FETCH_AGAIN, LoadedFile, data_digest, folder_of, read_bytes
from workflowlookup.library.git_source import (
    PREFIX,
    SHORT_COMMIT,
    GitSource,
    commit_directory,
    is_safe_name,
    source_directory,
)
from workflowlookup.trust import file_digest

MAX_LOCK_BYTES: Final = 8 << 20

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class LockedCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a source was when it was locked."""

    url: str
    rev: str
    path: str
    kind: Literal["default", "branch", "tag", "commit"]
    """What the revision was."""
    commit: Annotated[str, Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]
    documents: dict[str, Digest]
    """By path from the source's path: the SHA-256 of each document."""
    files: dict[str, Digest] = {}
    """The same for the files that the documents bring along."""

    @property
    def source(self) -> GitSource:
        return GitSource(url=self.url, rev=self.rev, path=self.path)

    def __str__(self) -> str:
        return f"{self.source} (commit {self.commit[:SHORT_COMMIT]})"


class Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a lock file."""

    version: Literal[1] = 1
    sources: dict[str, LockedCommit] = {}


def read_lock(path: str) -> Lock:
    """The lock file at a path; an empty lock if there is none. Raises `StorageError`."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            return _parse_lock(stream.read(MAX_LOCK_BYTES + 1))
    except FileNotFoundError:
        return Lock()
    except (OSError, ValueError, RecursionError) as problem:
        raise StorageError(
            f"{path} cannot be used: {problem}. Restore it from version control, or delete it and run `workflowlookup "
            "update`.",
            file=path,
            details=str(problem),
        ) from None


def _parse_lock(data: bytes) -> Lock:
    """Raises `ValueError`."""
    if len(data) > MAX_LOCK_BYTES:
        raise ValueError(f"larger than {MAX_LOCK_BYTES >> 20} MiB")
    lock = msgspec.json.decode(data, type=Lock)
    for locked in lock.sources.values():
        names = (*locked.documents, *locked.files)
        if not all(is_safe_name(part) for name in names for part in name.split("/")):
            raise ValueError("the path of a file leads out of its source")
    return lock


def write_lock(path: str, lock: Lock) -> None:
    """Replace a lock file; one without sources is removed. Raises `StorageError`."""
    ordered = {name: lock.sources[name] for name in sorted(lock.sources)}
    try:
        if not ordered:
            os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        replace_file(path, msgspec.json.format(msgspec.json.encode(Lock(sources=ordered))) + b"\n", mode=None)
    except OSError as problem:
        raise StorageError(f"{path} cannot be written: {problem.strerror}.", file=path) from problem


def look_at(directory: str) -> Listing:
    """The documents of a directory in the cache."""
    return DirectorySource("", directory).scan(Listing(), (), PollingWatcher(), math.inf)


def digests_in(directory: str) -> dict[str, str]:
    """By path: the SHA-256 of each document of a directory in the cache."""
    return {
        os.path.relpath(file.path, directory): data_digest(read_bytes(file.path, directory)[0])
        for file in look_at(directory).files.values()
        if file.signature is not None
    }


def attachment_digests_in(directory: str, documents: Iterable[str]) -> dict[str, str]:
    """By path: the SHA-256 of each file that these documents bring along. None of a folder that cannot be served."""
    digests: dict[str, str] = {}
    reader = AttachmentReader()
    for name in documents:
        with contextlib.suppress(SecurityError, StorageError):
            for attachment in reader.list(os.path.join(directory, name)):
                digests[os.path.join(folder_of(name), attachment.path)] = attachment.digest
    return digests


class LockedSource:
    """The documents of one source of the settings."""

    def __init__(self, name: str, source: GitSource, lock_file: str, cache: str) -> None:
        """`name`: its name in the settings."""
        self.name = PREFIX + name
        self.root = f"{lock_file}#{name}"
        """Only a name: the directory is another one for each commit."""
        self._key = name
        self._source = source
        self._lock_file = lock_file
        self._cache = cache

    def identity(self) -> object:
        """Changes when the lock file does, and when a commit comes into the cache or goes."""
        return _version(self._lock_file), _version(source_directory(self._cache, self._source))

    def locked(self) -> LockedCommit:
        """What the lock says about the source. Raises `StorageError`, and `NotAsLocked` if it is about another one."""
        locked = read_lock(self._lock_file).sources.get(self._key)
        if locked is None or locked.source != self._source:
            other = f"has {locked.source} for it" if locked else "does not have it"
            raise NotAsLocked(
                f"The source '{self._key}' is {self._source}, and {self._lock_file} {other}.",
                f"`workflowlookup update {self._key}` locks it.",
                file=self._lock_file,
            )
        return locked

    def scan(self, previous: Listing, changed: frozenset[str], watcher: ChangeWatcher, deadline: float) -> Listing:
        try:
            locked = self.locked()
        except (StorageError, NotAsLocked) as refusal:
            return withdrawn(previous, refusal)
        directory = commit_directory(self._cache, self._source, locked.commit)
        if not os.path.isdir(directory):
            problem = f"The source '{self._key}' is locked to {locked}, which is not in the cache."
            return withdrawn(previous, NotAsLocked(problem, FETCH_AGAIN, file=directory))
        inner = DirectorySource(self.name, directory, required=True, digests=locked.documents)
        listing = inner.scan(previous, changed, watcher, deadline)
        if listing.refusal is not None:
            return listing
        files = {**listing.files, **dict(_missing(directory, locked.documents, listing, previous))}
        attachments = {os.path.join(directory, name): digest for name, digest in locked.files.items()}
        return msgspec.structs.replace(listing, files=files, provenance=str(locked), attachment_digests=attachments)


def faults(source: LockedSource) -> list[WorkflowLookupError]:
    """Why the lock, the cache and the settings do not agree about a source; none if they do."""
    listing = source.scan(Listing(), frozenset(), PollingWatcher(), math.inf)
    if listing.refusal is not None:
        return [listing.refusal]
    refusals = [file.refusal for file in listing.files.values() if isinstance(file.refusal, NotAsLocked)]
    changed = [path for path, digest in (listing.attachment_digests or {}).items() if file_digest(path) != digest]
    return [*refusals, *(NotAsLocked(f"{path} is not what the lock file says.", FETCH_AGAIN) for path in changed)]


def _missing(
    directory: str, documents: Mapping[str, str], listing: Listing, previous: Listing
) -> Iterator[tuple[str, LoadedFile]]:
    """The documents of the lock that the cache has not. None of them, if there was no time to read all."""
    if directory in listing.files:
        return
    for name in documents:
        path = os.path.join(directory, name)
        if path in listing.files:
            continue
        refusal = NotAsLocked(f"{path} is missing from the cache.", FETCH_AGAIN, file=path)
        before = previous.files.get(path)
        is_known = before is not None and str(before.refusal) == str(refusal)
        stem = os.path.basename(name).partition(".")[0]
        missing = LoadedFile(path=path, id=stem, signature=None, refusal=refusal)
        yield path, before if is_known and before is not None else missing


def _version(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
