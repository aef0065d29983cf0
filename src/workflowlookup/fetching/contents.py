"""The files of a commit, written into the cache: all of them or nothing, and nothing but regular files."""

import contextlib
import errno
import filecmp
import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.fetching.remote import FetchFailed, Tip, open_remote
from workflowlookup.language.text import escaped, first_few
from workflowlookup.library.files import MAX_FILE_BYTES
from workflowlookup.library.git_source import GitSource, commit_directory, is_safe_name
from workflowlookup.proving.git_directory import Git, TooMuchOutput

MAX_FILES: Final = 20_000
MAX_BYTES: Final = 64 << 20
"""How many files one source may have, and how many bytes all together."""
MAX_DEPTH: Final = 32
_MAX_LISTING: Final = 32 << 20
_REGULAR: Final = frozenset({"100644", "100755", "100664"})
_LFS_MARK: Final = b"version https://git-lfs.github.com/spec/"
_EXISTS: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
_OTHERS: Final = {"120000": "a symbolic link, which is not followed", "160000": "a submodule, which is not fetched"}


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not taken over."""

    path: str
    reason: str


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A commit whose files are in the cache."""

    source: GitSource
    tip: Tip
    commit: str
    directory: str
    """The files of the source's path."""
    left_out: tuple[LeftOut, ...] = ()


class _Entry(msgspec.Struct, frozen=True):
    mode: str
    identifier: str
    size: int
    path: str


class NoSuchPath(FetchFailed):
    """The commit has no directory with this path."""


def fetch(source: GitSource, *, cache: str, seconds: float, tip: Tip | None = None) -> Fetched:
    """Fetch a commit into the cache. Raises `FetchFailed`. The source must have been `checked`. `tip` is what its
    revision is, if that was asked before.

    `cache` is the `cache_directory`, `seconds` the time limit for each answer of the repository. The files are complete
    and are those of the commit, also if the process is killed, or another one fetches the same at this moment.
    """
    with open_remote(source, cache, seconds) as remote:
        tip = tip or remote.resolve()
        git, commit = remote.fetch(tip)
        content = os.path.join(remote.make_directory("content"), "files")
        left_out = tuple(_write(git, commit, source, content))
        directory = commit_directory(cache, source, commit)
        _install(content, directory, remote.make_directory("old"))
    return Fetched(source=source, tip=tip, commit=commit, directory=directory, left_out=left_out)


def _write(git: Git, commit: str, source: GitSource, content: str) -> Iterator[LeftOut]:
    """Write the files into a new directory; gives what was left out."""
    os.mkdir(content, 0o700)
    wanted: list[_Entry] = []
    for entry in _entries(git, commit, source):
        if reason := _flaw(entry):
            yield LeftOut(path=escaped(entry.path), reason=reason)
        else:
            wanted.append(entry)
    if sum(entry.size for entry in wanted) > MAX_BYTES:
        raise FetchFailed(f"{source} has files of more than {MAX_BYTES >> 20} MiB{_where(source)}. {_NARROW}")
    for entry, data in zip(wanted, _contents(git, wanted), strict=True):
        reason = "a pointer to a file in Git LFS, which is not fetched" if data.startswith(_LFS_MARK) else ""
        if reason := reason or _put(content, entry.path, data):
            yield LeftOut(path=escaped(entry.path), reason=reason)


_NARROW: Final = "Name the directory that has the workflows with --path."


def _where(source: GitSource) -> str:
    return f" in {source.path}" if source.path else ""


def _entries(git: Git, commit: str, source: GitSource) -> Sequence[_Entry]:
    """The files below the path of the source."""
    words = ("rev-parse", "-q", "--verify", "--end-of-options", f"{commit}:{source.path}")
    tree = git(*words, codes=(0, 1, 128)).decode().strip()
    if not tree or git("cat-file", "-t", tree).strip() != b"tree":
        raise NoSuchPath(f"{source} has no directory '{source.path}'. Name one that it has with --path.")
    try:
        output = git("ls-tree", "-r", "-z", "-l", "--full-tree", tree, max_bytes=_MAX_LISTING)
    except TooMuchOutput as problem:
        raise FetchFailed(f"{source} has more than {MAX_FILES:,} files{_where(source)}. {_NARROW}") from problem
    entries = [_parsed(line) for line in output.split(b"\0") if line]
    if len(entries) > MAX_FILES:
        raise FetchFailed(
            f"{source} has {len(entries):,} files{_where(source)}, and {MAX_FILES:,} is the limit. {_NARROW}"
        )
    return entries


def _parsed(line: bytes) -> _Entry:
    about, _, path = line.partition(b"\t")
    mode, _, identifier, size = about.decode().split()
    return _Entry(mode, identifier, int(size) if size.isdecimal() else 0, os.fsdecode(path))


def _flaw(entry: _Entry) -> str:
    """Why a file is left out; empty if it is not."""
    if entry.mode not in _REGULAR:
        return _OTHERS.get(entry.mode, "of an unknown kind")
    parts = entry.path.split("/")
    if not all(map(is_safe_name, parts)):
        return "a name that is not allowed here"
    if len(parts) > MAX_DEPTH:
        return f"more than {MAX_DEPTH} directories deep"
    return f"larger than {MAX_FILE_BYTES:,} bytes" if entry.size > MAX_FILE_BYTES else ""


def _contents(git: Git, entries: Sequence[_Entry]) -> Iterator[bytes]:
    """The content of each file."""
    if not entries:
        return
    limit = sum(entry.size + 200 for entry in entries)
    given = [entry.identifier for entry in entries]
    output = memoryview(git("cat-file", "--batch", "--buffer", given=given, separator=b"\n", max_bytes=limit))
    start = 0
    for entry in entries:
        end = start + len(f"{entry.identifier} blob {entry.size}\n")
        yield bytes(output[end : end + entry.size])
        start = end + entry.size + 1


def _put(content: str, path: str, data: bytes) -> str:
    """Write a file; why that is not possible, or empty. The names of a tree may collide where the case is ignored."""
    target = os.path.join(content, path)
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
    except OSError as problem:
        if problem.errno not in (*_EXISTS, errno.EISDIR, errno.ENAMETOOLONG):
            raise
        return "a name that another file has here, or that is too long"
    return ""


def _install(content: str, target: str, old: str) -> None:
    """Move complete files to their place in the cache, and a damaged copy there out of the way."""
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    for attempt in range(10):
        try:
            os.rename(content, target)
        except OSError as problem:
            if problem.errno not in _EXISTS:
                raise
            if _is_same(content, target):
                return
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                os.rename(target, os.path.join(old, str(attempt)))
        else:
            return
    raise FetchFailed(f"{target} is replaced by other processes all the time. Try again.")


def _is_same(one: str, other: str) -> bool:
    """Whether two directories have the same files with the same content."""
    names = _names(one)
    if os.path.islink(other) or names != _names(other):
        return False
    _, different, unreadable = filecmp.cmpfiles(one, other, sorted(names), shallow=False)
    return not different and not unreadable


def _names(directory: str) -> set[str]:
    """The paths of everything below a directory."""
    return {
        os.path.relpath(os.path.join(parent, name), directory)
        for parent, directories, files in os.walk(directory)
        for name in (*files, *(inner for inner in directories if os.path.islink(os.path.join(parent, inner))))
    }


def describe_left_out(left_out: Sequence[LeftOut]) -> str:
    """A sentence about files that were left out; empty if there are none."""
    words = [f"{one.path} ({one.reason})" for one in left_out]
    return f"Left out: {first_few(words, 5)}." if words else ""
