"""The catalog: all sources of documents merged by precedence, as immutable snapshots.

A later source shadows an earlier one. Nothing is read before the first use. After that, each use asks the kernel what
changed, and reads only that again.
"""

import functools
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import (
    NotAsLocked,
    NotReadYet,
    OutOfDescriptors,
    StorageError,
    WorkflowLookupError,
    WorkflowNotFound,
    not_read_yet,
    out_of_descriptors,
)
from workflowlookup.language.formats.schemas import nearest
from workflowlookup.library.changes import ChangeWatcher, make_change_watcher
from workflowlookup.library.directory import Listing
from workflowlookup.library.files import (
    FETCH_AGAIN,
    LoadedFile,
    WorkflowSummary,
    folder_of,
    parse_document,
    read_bytes,
    refuse_unless_locked,
    summarise,
)

if TYPE_CHECKING:
    from workflowlookup.language.model import Workflow
    from workflowlookup.library.attachments import Attachment, AttachmentReader

log = logging.getLogger(__name__)

MAX_BUILT: Final = 512
"""How many built workflows are cached; the others are read again when they are needed."""
MAX_BUILT_BYTES: Final = 8 << 20
"""Their total size, in estimated bytes. A workflow that alone is larger is not cached; hardly any but an attack is."""
READ_SECONDS: Final = 0.5
"""Processor time for reading documents in one request of a server. The last document may exceed it."""
ROOT_CHECK_SECONDS: Final = 0.25
"""Between two checks whether a source's root was replaced, which causes no event inside the source. As often, documents
are read for which there was no time before.
"""


class Source(Protocol):
    """Where documents come from, such as a directory."""

    name: str
    root: str

    def identity(self) -> object:
        """A value that changes when the root as a whole is replaced."""

    def scan(self, previous: Listing, changed: frozenset[str], watcher: ChangeWatcher, deadline: float) -> Listing:
        """List the current documents, and register with `watcher` what to watch.

        No more documents are read once `time.thread_time()` reaches the deadline: see `DirectorySource`.
        """


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A document and its source."""

    source: str
    root: str
    file: LoadedFile
    provenance: str = ""
    """The repository and the commit, for a document that is in the cache of a source from git."""
    attachment_digests: Mapping[str, str] | None = None
    """As in its `Listing`."""

    @property
    def location(self) -> str:
        """The source and where the document is in it."""
        return f"{self.source}: {f'{self.provenance}, ' if self.provenance else ''}{self.file.path}"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The library at one moment."""

    summaries: tuple[WorkflowSummary, ...]
    """Every valid workflow, ordered by id."""
    encoded: msgspec.Raw
    """`summaries` as JSON, ready to be sent."""
    entries: Mapping[str, CatalogEntry]
    """By id: a valid workflow, or the reason why the document of this id is not one."""
    problems: tuple[CatalogEntry, ...]
    shadowed: tuple[tuple[CatalogEntry, CatalogEntry], ...]
    """Pairs: the hidden document, and the one that hides it."""
    incomplete: StorageError | None = None
    """Why documents are missing that a later scan may read: no file descriptor, or no time, was left for them."""


class CatalogView(Protocol):
    """The part of `Catalog` that tool handlers and console pages may use: for one caller, or for all."""

    @property
    def sources(self) -> Sequence[Source]: ...
    def snapshot(self) -> Snapshot: ...
    def listing(self, source: Source, /) -> Listing: ...
    def get(self, workflow_id: str, /) -> "Workflow": ...
    def workflows(self) -> "Iterator[Workflow]": ...
    def attachments(self, workflow_id: str, /) -> "Sequence[Attachment]": ...
    def read_attachment(self, workflow_id: str, path: str, /) -> bytes: ...


class Catalog:
    """The workflows of all sources, up to date at each call."""

    def __init__(
        self,
        sources: Sequence[Source],
        make_watcher: Callable[[], ChangeWatcher] = make_change_watcher,
        *,
        origin_of: Callable[[CatalogEntry], str] = lambda _: "",
        read_seconds: float = math.inf,
    ) -> None:
        """`origin_of`: returns the real path of a document that came with a repository; empty for the user's own.

        `read_seconds`: the processor time after which a scan leaves the remaining documents to the next scan.
        """
        self.sources = tuple(sources)
        self._read_seconds = read_seconds
        self._origin_of = origin_of
        self._make_watcher = make_watcher
        self._watcher: ChangeWatcher | None = None
        self._identities: list[object] = []
        self._next_root_check = 0.0
        self._listings: dict[str, Listing] = {}
        self._snapshot: Snapshot | None = None
        self._built: BoundedCache[str, tuple[LoadedFile, Workflow]] = BoundedCache(
            MAX_BUILT, max_weight=MAX_BUILT_BYTES, weigh=lambda built: built[1].weight
        )
        self._reported: set[str] = set()
        self._refused_folders: BoundedCache[str, str] = BoundedCache(MAX_BUILT)
        """By id: the error that was logged about the files of a workflow."""
        self._incomplete: StorageError | None = None

    def replace_sources(self, sources: Sequence[Source]) -> None:
        """From now on, use these sources. What is unchanged in them is not read again."""
        self.sources = tuple(sources)
        self._identities, self._next_root_check = [], 0.0

    def snapshot(self) -> Snapshot:
        """The library as it is now; the same object as before when nothing changed."""
        if self._watcher is None:
            self._watcher = self._make_watcher()
        elif (
            self._snapshot is not None
            and not self._watcher.pending()
            and (time.monotonic() < self._next_root_check or not self._roots_changed())
        ):
            return self._snapshot
        return self._scan(self._watcher)

    def _roots_changed(self) -> bool:
        """Whether a root was replaced by another directory, or documents are left to read. Called now and then."""
        self._next_root_check = time.monotonic() + ROOT_CHECK_SECONDS
        if self._incomplete:
            return True
        return [source.identity() for source in self.sources] != self._identities

    def listing(self, source: Source) -> Listing:
        """The documents of one source."""
        self.snapshot()
        return self._listings[source.root]

    def get(self, workflow_id: str) -> "Workflow":
        """The workflow with this id. Raises `WorkflowNotFound`, or the error that makes its document invalid."""
        entry = self._entry(workflow_id)
        cached = self._built.get(workflow_id)
        if cached is not None and cached[0] is entry.file:
            return cached[1]
        from workflowlookup.language.document.building import build  # noqa: PLC0415 - lists do not need it

        path = entry.file.path
        data, signature = read_bytes(path, entry.root)
        refuse_unless_locked(data, path, entry.file.digest)
        document = parse_document(data, path)
        if signature == entry.file.signature:
            workflow = build(document, self._origin_of(entry))
            if workflow.weight <= MAX_BUILT_BYTES:
                self._built[workflow_id] = (entry.file, workflow)
            return workflow
        if summarise(document, path).id == workflow_id:  # changed since the scan: use what was just read
            return build(document, self._origin_of(entry))
        raise workflow_not_found(workflow_id, self.snapshot())

    def _entry(self, workflow_id: str) -> CatalogEntry:
        """The valid document with this id. Raises as `get`."""
        entry = self.snapshot().entries.get(workflow_id)
        if entry is None:
            raise workflow_not_found(workflow_id, self.snapshot())
        if entry.file.refusal is not None:
            raise _with_id(entry.file.refusal, workflow_id)
        return entry

    def attachments(self, workflow_id: str) -> "Sequence[Attachment]":
        """The files that a workflow brings along. Raises as `get`, and the error of a folder that cannot be served."""
        entry = self._entry(workflow_id)
        try:
            attachments = self._attachments.list(entry.file.path)
            _refuse_unless_all_locked(entry, {one.path: one.digest for one in attachments})
            return attachments
        except WorkflowLookupError as refusal:
            if self._refused_folders.get(workflow_id) != str(refusal):
                self._refused_folders[workflow_id] = str(refusal)
                log.warning("skipped the files of %s: %s", workflow_id, refusal)
            raise

    def read_attachment(self, workflow_id: str, path: str) -> bytes:
        """The content of one of the `attachments`."""
        entry = self._entry(workflow_id)
        data = self._attachments.read(entry.file.path, path)
        if entry.attachment_digests is not None:
            full = os.path.join(folder_of(entry.file.path), path)
            refuse_unless_locked(data, full, entry.attachment_digests.get(full, ""))
        return data

    @functools.cached_property
    def _attachments(self) -> "AttachmentReader":
        from workflowlookup.library.attachments import AttachmentReader  # noqa: PLC0415 - lookups do not need it

        return AttachmentReader()

    def workflows(self) -> "Iterator[Workflow]":
        """Every workflow whose document can be loaded, ordered by id."""
        for summary in self.snapshot().summaries:
            try:
                workflow = self.get(summary.id)
            except WorkflowLookupError:  # its file was changed a moment ago
                continue
            yield workflow

    def _scan(self, watcher: ChangeWatcher) -> Snapshot:
        changed = watcher.take()
        deadline = time.thread_time() + self._read_seconds
        self._identities = [source.identity() for source in self.sources]
        listings = {
            source.root: source.scan(self._listings.get(source.root, Listing()), changed, watcher, deadline)
            for source in self.sources
        }
        watcher.scanned()
        self._next_root_check = time.monotonic() + ROOT_CHECK_SECONDS
        self._incomplete = _incomplete(listings)
        previous, self._listings = self._listings, listings
        has_other_roots = list(listings) != list(previous)
        if (
            self._snapshot is None
            or has_other_roots
            or any(not _same(listings[root], previous[root]) for root in listings)
        ):
            self._snapshot = snapshot = self._merge()
            for workflow_id in self._built:
                entry, built = snapshot.entries.get(workflow_id), self._built.get(workflow_id)
                if entry is None or built is None or built[0] is not entry.file:
                    self._built.pop(workflow_id)
            self._report()
        return self._snapshot

    def _merge(self) -> Snapshot:
        entries: dict[str, CatalogEntry] = {}
        problems: list[CatalogEntry] = []
        shadowed: list[tuple[CatalogEntry, CatalogEntry]] = []
        for source in self.sources:
            listing = self._listings[source.root]
            for file in listing.files.values():
                entry = CatalogEntry(
                    source=source.name,
                    root=source.root,
                    file=file,
                    provenance=listing.provenance,
                    attachment_digests=listing.attachment_digests,
                )
                if file.refusal is not None:
                    problems.append(entry)
                    if file.id:  # else it is a directory
                        entries.setdefault(file.id, entry)  # a broken file never hides a sound one
                    continue
                hidden = entries.get(file.id)
                if hidden is not None and hidden.file.refusal is None:
                    if hidden.source == entry.source and hidden.root == entry.root:
                        shadowed.append((entry, hidden))  # twice in one directory: the first by name stays
                        continue
                    shadowed.append((hidden, entry))
                entries[file.id] = entry
        summaries = tuple(entries[key].file.summary for key in sorted(entries) if entries[key].file.summary is not None)
        return Snapshot(
            summaries=summaries,  # type: ignore[arg-type]
            encoded=msgspec.Raw(msgspec.json.encode(summaries)),
            entries=entries,
            problems=tuple(problems),
            shadowed=tuple(shadowed),
            incomplete=self._incomplete,
        )

    def _report(self) -> None:
        """Log each document and directory that is left out, once."""
        reasons = {str(refusal) for refusal in _refusals(self._listings)}
        for reason in sorted(reasons - self._reported):
            log.warning("skipped %s", reason)
        self._reported = reasons


def _refusals(listings: Mapping[str, Listing]) -> Iterator[WorkflowLookupError]:
    """Why sources, files and directories are left out."""
    for listing in listings.values():
        refusals = [listing.refusal] if listing.refusal else [file.refusal for file in listing.files.values()]
        yield from (refusal for refusal in refusals if refusal is not None)


def _incomplete(listings: Mapping[str, Listing]) -> StorageError | None:
    """Why a later scan may find more documents, without naming any; None when this scan read all."""
    kinds = {type(refusal) for refusal in _refusals(listings)}
    return out_of_descriptors() if OutOfDescriptors in kinds else not_read_yet() if NotReadYet in kinds else None


def workflow_not_found(workflow_id: str, snapshot: Snapshot) -> WorkflowLookupError:
    """The error for an id that no workflow of a snapshot has."""
    if snapshot.incomplete:  # it may be in what could not be read
        return _with_id(snapshot.incomplete, workflow_id)
    suggestion = nearest(workflow_id, [summary.id for summary in snapshot.summaries])
    hint = f" Did you mean '{suggestion}'?" if suggestion else ""
    return WorkflowNotFound(f"No workflow has the id '{workflow_id}'.{hint}", workflowId=workflow_id)


def _refuse_unless_all_locked(entry: CatalogEntry, digests: Mapping[str, str]) -> None:
    """Raises `NotAsLocked` unless a workflow brings along exactly the files that the lock has. `digests`: by path."""
    if entry.attachment_digests is None:
        return
    folder = folder_of(entry.file.path)
    digests_by_path = {os.path.join(folder, path): digest for path, digest in digests.items()}
    locked = {path: one for path, one in entry.attachment_digests.items() if path.startswith(f"{folder}{os.sep}")}
    for path in sorted(digests_by_path.keys() | locked.keys()):
        if digests_by_path.get(path) != locked.get(path):
            raise NotAsLocked(f"{path} is not what the lock file says.", FETCH_AGAIN, file=path)


def _same(listing: Listing, previous: Listing) -> bool:
    return (
        listing.refusal is previous.refusal
        and listing.provenance == previous.provenance
        and listing.attachment_digests == previous.attachment_digests
        and listing.files.keys() == previous.files.keys()
        and all(file is previous.files[path] for path, file in listing.files.items())
    )


def _with_id(refusal: WorkflowLookupError, workflow_id: str) -> WorkflowLookupError:
    """The error of a file, with the id that was requested."""
    return type(refusal)(refusal.remedy, **{"workflowId": workflow_id, **refusal.data})
