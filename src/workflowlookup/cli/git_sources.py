"""What `add`, `update`, `outdated` and `remove` share: sources of the settings, what a fetch would change, the lock."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from workflowlookup.atomic import locked as holding_lock
from workflowlookup.authoring.compare import ChangeKind, Section, compare
from workflowlookup.cli.output import CommandError, complain, shown_path, write
from workflowlookup.errors import StorageError, WorkflowLookupError
from workflowlookup.fetching.contents import Fetched, describe_left_out, fetch
from workflowlookup.fetching.remote import FetchFailed, Tip, open_remote
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.language.text import joined
from workflowlookup.library.files import parse_document, read_bytes, refuse_unless_locked, summarise
from workflowlookup.library.git_source import SHORT_COMMIT, GitSource, commit_directory
from workflowlookup.library.locked import (
    Lock,
    LockedCommit,
    LockedSource,
    attachment_digests_in,
    digests_in,
    faults,
    read_lock,
    write_lock,
)
from workflowlookup.settings import ConfiguredSource, Settings
from workflowlookup.trust import how_to_trust


class DocumentChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a document differs from the locked one."""

    kind: ChangeKind
    path: str
    id: str = ""
    changes: tuple[Section, ...] = ()
    problem: str = ""
    """Why the new document cannot be used, or the old one cannot be compared."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """What a fetch of a source found."""

    name: str
    configured: ConfiguredSource
    before: LockedCommit | None
    after: LockedCommit
    reason: str
    """Why the commit is another one, as a sentence; empty if it is the same."""
    left_out: str = ""

    @property
    def is_change(self) -> bool:
        return self.before != self.after


def refuse_if_frozen(settings: Settings) -> None:
    if settings.frozen:
        origin = settings.origins["frozen"]
        raise CommandError(f"frozen is set ({origin}): nothing is fetched, and the lock stays as it is.")


def chosen_sources(settings: Settings, names: Sequence[str]) -> dict[str, ConfiguredSource]:
    """The sources with these names; all of them without names."""
    for name in names:
        if name not in settings.sources:
            others = ", ".join(settings.sources) or "none"
            raise CommandError(f"there is no source '{name}'. Those of the settings: {others}.", 2)
    return {name: one for name, one in settings.sources.items() if not names or name in names}


def refuse_unless_trusted(name: str, configured: ConfiguredSource) -> None:
    """Raises `CommandError` for a repository that only the project's settings name."""
    if not configured.may_fetch:
        raise CommandError(
            f"the project names the source '{name}' ({configured.source}), and you have not trusted that. "
            f"{how_to_trust([shown_path(configured.file)])}"
        )


# ── what a fetch finds ──────────────────────────────────────────────────────────────────────────────────────────


def locked_of(name: str, configured: ConfiguredSource) -> LockedCommit | None:
    """What the lock file has for a source, perhaps with an older revision. Raises `StorageError`."""
    return read_lock(configured.lock_file).sources.get(name)


def as_locked(fetched: Fetched, source: GitSource) -> LockedCommit:
    """The entry of a lock file for what was fetched."""
    documents = digests_in(fetched.directory)
    return LockedCommit(
        url=source.url,
        rev=source.rev,
        path=source.path,
        kind=fetched.tip.kind,
        commit=fetched.commit,
        documents=dict(sorted(documents.items())),
        files=dict(sorted(attachment_digests_in(fetched.directory, documents).items())),
    )


def look_upstream(name: str, configured: ConfiguredSource, settings: Settings) -> Pending:
    """What the source is now. Files of a new commit come into the cache. Raises `FetchFailed` and `StorageError`."""
    source, cache = configured.source, settings.cache_directory
    before = locked_of(name, configured)
    with open_remote(source, cache, settings.git_timeout_seconds) as remote:
        tip = remote.resolve()
        reason = _reason(before, source, tip, lambda commit: remote.follows(commit, tip))
    is_cached = not reason and not faults(LockedSource(name, source, configured.lock_file, cache))
    if before is not None and is_cached:
        return Pending(name=name, configured=configured, before=before, after=before, reason="")
    fetched = fetch(source, cache=cache, seconds=settings.git_timeout_seconds, tip=tip)
    after = as_locked(fetched, source)
    left_out = describe_left_out(fetched.left_out)
    if not reason and before != after:
        reason = "The lock file had other digests than the documents of the commit have."
    return Pending(name=name, configured=configured, before=before, after=after, reason=reason, left_out=left_out)


def fetch_locked(name: str, configured: ConfiguredSource, settings: Settings) -> LockedCommit:
    """Fetch exactly what is locked into the cache. Raises `CommandError`, `FetchFailed` and `StorageError`."""
    locked = LockedSource(name, configured.source, configured.lock_file, settings.cache_directory)
    entry = locked.locked()
    if faults(locked):
        _fetch_commit(entry, settings)
    if remaining := faults(locked):
        raise CommandError(
            f"the lock file does not belong to commit {entry.commit[:SHORT_COMMIT]}: {remaining[0]} Restore it from "
            "version control."
        )
    return entry


def _fetch_commit(entry: LockedCommit, settings: Settings) -> None:
    """Fetch the locked commit by its id; by its revision from hosts that give only branches and tags."""
    cache, seconds = settings.cache_directory, settings.git_timeout_seconds
    try:
        fetch(msgspec.structs.replace(entry.source, rev=entry.commit), cache=cache, seconds=seconds)
    except FetchFailed as problem:
        with contextlib.suppress(FetchFailed):
            if fetch(entry.source, cache=cache, seconds=seconds).commit == entry.commit:
                return
        raise FetchFailed(
            f"{problem.remedy} If the repository no longer has commit {entry.commit[:SHORT_COMMIT]}, `workflowlookup "
            "update` locks another one."
        ) from problem


def _reason(before: LockedCommit | None, source: GitSource, tip: Tip, follows: Callable[[str], bool | None]) -> str:
    """Why the commit is not the one in the lock; empty if it is."""
    if before is None:
        return "It was not locked yet."
    if before.source != source:
        return f"It was locked as {before.source}{_path_words(before, source)}."
    if before.commit == tip.commit:
        return ""
    then, now = before.commit[:SHORT_COMMIT], tip.commit[:SHORT_COMMIT]
    match tip.kind:
        case "tag":
            return (
                f"The tag {source.rev} now points to another commit: {then} before, {now} now. Tags should not move: "
                "ask the people of the repository."
            )
        case "commit":  # an id of something that leads to the commit
            return ""
    branch = f"The branch {source.rev}" if source.rev else "The default branch"
    match follows(before.commit):
        case True:
            return f"{branch} has new commits: {then} before, {now} now."
        case False:
            return f"{branch} was rewritten (force-pushed): {then} is no longer in its history. It is {now} now."
    return f"{branch} is another commit, and its history is too long to tell why: {then} before, {now} now."


def _path_words(before: LockedCommit, source: GitSource) -> str:
    return f" with path '{before.path}'" if before.path != source.path else ""


# ── what changed ────────────────────────────────────────────────────────────────────────────────────────────────


def document_changes(pending: Pending, cache: str) -> list[DocumentChange]:
    """The differences of meaning between the locked documents and the new ones."""
    before, after = pending.before, pending.after
    old = _Documents(before, cache) if before else None
    new = _Documents(after, cache)
    names = sorted({*(before.documents if before else ()), *after.documents})
    changes: list[DocumentChange] = []
    for name in names:
        digests = before.documents.get(name) if before else None, after.documents.get(name)
        if digests[0] != digests[1]:
            changes.append(_change(name, old if digests[0] else None, new if digests[1] else None))
    return [*changes, *_file_changes(before.files if before else {}, after.files)]


def _file_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[DocumentChange]:
    """The files that workflows bring along."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            kind = ChangeKind.ADDED if name not in before else ChangeKind.CHANGED
            yield DocumentChange(kind=ChangeKind.REMOVED if name not in after else kind, path=name)


class _Documents:
    """The documents of a locked commit in the cache."""

    def __init__(self, locked: LockedCommit, cache: str) -> None:
        self._directory = commit_directory(cache, locked.source, locked.commit)
        self._digests = locked.documents

    def open(self, name: str) -> Workflow:
        """Raises `WorkflowLookupError`."""
        path = os.path.join(self._directory, name)
        data, _ = read_bytes(path, self._directory)
        refuse_unless_locked(data, path, self._digests[name])
        document = parse_document(data, path)
        summarise(document, path)
        return build(document, path)


def _change(name: str, old: _Documents | None, new: _Documents | None) -> DocumentChange:
    kind = ChangeKind.REMOVED if new is None else ChangeKind.ADDED if old is None else ChangeKind.CHANGED
    before, _ = _opened(old, name)
    after, problem = _opened(new, name)
    if problem:
        return DocumentChange(kind=kind, path=name, problem=f"It cannot be used: {problem}")
    if after is None:
        return DocumentChange(kind=kind, path=name, id=before.id if before else "")
    if before is None:
        unknown = "" if old is None else "The locked version cannot be read here, so the differences are not known."
        return DocumentChange(kind=kind, path=name, id=after.id, problem=unknown)
    return DocumentChange(kind=kind, path=name, id=after.id, changes=compare(before, after))


def _opened(documents: _Documents | None, name: str) -> tuple[Workflow | None, str]:
    if documents is None:
        return None, ""
    try:
        return documents.open(name), ""
    except WorkflowLookupError as problem:
        return None, joined(str(problem))


_SIGNS: Mapping[ChangeKind, tuple[str, str]] = {
    ChangeKind.ADDED: ("+", "bold green"),
    ChangeKind.REMOVED: ("-", "bold red"),
    ChangeKind.CHANGED: ("~", "bold yellow"),
}


def write_pending(pending: Pending, changes: Sequence[DocumentChange], *, is_whole: bool) -> None:
    """Show what would change; with `is_whole`, each difference."""
    from workflowlookup.cli.commands.diff import write_sections  # noqa: PLC0415 - only where something changed

    write((pending.name, "bold"), f": {pending.after}")
    if pending.reason:
        write(f"  {pending.reason}", hang=2)
    for change in changes:
        sign, style = _SIGNS[change.kind]
        write((f"  {sign} {change.id or change.path}", style), f"  {change.path}" if change.id else "")
        if change.problem:
            write(f"    {change.problem}", hang=4)
        if is_whole and change.changes:
            write_sections(change.changes)
    if not changes:
        write("  No workflow changes.")
    if pending.left_out:
        write(f"  {pending.left_out}", hang=2)


# ── the lock file ───────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def changing(settings: Settings, file: str) -> Iterator[None]:
    """Surrounds a change of a settings file and its lock: one process at a time."""
    name = os.path.realpath(file).replace(os.sep, "%")[-200:]
    try:
        with holding_lock(os.path.join(settings.cache_directory, name)):
            yield
    except OSError as problem:
        directory = settings.cache_directory
        raise StorageError(f"{directory} cannot be written: {problem.strerror}.", file=directory) from problem


def put_into_lock(lock_file: str, name: str, entry: LockedCommit | None) -> None:
    """Replace an entry of a lock file; None removes it. Raises `StorageError`."""
    sources = dict(read_lock(lock_file).sources)
    before = sources.pop(name, None)
    if entry is not None:
        sources[name] = entry
    if before != entry:
        write_lock(lock_file, Lock(sources=sources))


def complain_about(name: str, problem: WorkflowLookupError) -> None:
    text = problem.explain() if isinstance(problem, CommandError) else problem.remedy
    complain(f"{name}: {text}")
