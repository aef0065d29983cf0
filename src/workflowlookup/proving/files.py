"""Files below the root: globs, and reading that neither leaves the root nor waits for anything.

A link is followed only if its target is in the root. Names are text as `os.fsdecode` gives it; `shown` makes text of
them that can be stored.
"""

import errno
import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from workflowlookup.proving.contract import CannotJudge

MAX_MATCHES: Final = 10_000
MAX_ENTRIES: Final = 1_000_000
"""Limit on the entries of directories that one glob looks at."""
MAX_FILE_BYTES: Final = 16 << 20
MAX_DEPTH: Final = 200
MAX_DIGEST_BYTES: Final = 1 << 30
"""Limit on the files that one snapshot or comparison reads together."""
_MAX_GLOB: Final = 4096


def shown(name: str) -> str:
    """A name as text that can be stored and shown: bytes that are not UTF-8, control characters and backslashes are
    escaped, so that different names stay different."""
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in name
    )


# ── globs ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Glob:
    """A glob relative to the root: `*` and `?` stay within a name, `**` stands for any directories."""

    def __init__(self, glob: str) -> None:
        """Raises `CannotJudge` for a glob that leaves the root."""
        self.text = glob
        parts = [part for part in glob.split("/") if part not in ("", ".")]
        if glob.startswith("/") or ".." in parts or not parts or len(glob) > _MAX_GLOB or "\0" in glob:
            raise CannotJudge(
                f"'{shown(glob[:200])}' is not a path inside the root.", "Use a path relative to the project directory."
            )
        if glob.endswith("/") or parts[-1] == "**":
            parts += ["**", "*"]
        self.parts = parts
        self._names = [None if part == "**" else re.compile(fnmatch.translate(part)).match for part in parts]
        literal = (index for index, part in enumerate(parts) if re.search(r"[*?\[]", part))
        self.fixed = next(literal, len(parts))
        """How many parts at the beginning are names, not patterns."""

    def matches(self, path: str) -> bool:
        """Whether a path relative to the root matches."""
        states = self.start()
        for name in path.split("/"):
            states = self.advance(states, name)
            if not states:
                return False
        return len(self.parts) in states

    def start(self) -> set[int]:
        """The state before the first part of a path."""
        return self._skip({0})

    def advance(self, states: set[int], name: str) -> set[int]:
        """The state after one more part of a path; empty if nothing below it can match."""
        following = set()
        for state in states:
            if state == len(self.parts):
                continue
            matches = self._names[state]
            if matches is None:
                following.add(state)
            elif matches(name):
                following.add(state + 1)
        return self._skip(following)

    def _skip(self, states: set[int]) -> set[int]:
        """`**` stands for no directory as well."""
        for state in range(len(self.parts)):
            if state in states and self._names[state] is None:
                states.add(state + 1)
        return states


def escape(text: str) -> str:
    """Text as a part of a glob that matches only itself."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text)


def matching(root: str, globs: Sequence[str], is_stopped: Callable[[], bool] = lambda: False) -> list[str]:
    """The paths that match one of the globs, sorted: everything but directories. `.git` is never looked into.

    Raises `CannotJudge` if there are too many, or if a glob leaves the root by a link.
    """
    paths: set[str] = set()
    for glob in map(Glob, globs):
        for path in _walk(root, glob, is_stopped):
            paths.add(path)
            if len(paths) > MAX_MATCHES:
                raise CannotJudge(
                    f"'{glob.text}' matches more than {MAX_MATCHES:,} files.", "Use a glob that matches fewer files."
                )
    return sorted(paths)


def _walk(root: str, glob: Glob, is_stopped: Callable[[], bool]) -> Iterator[str]:
    """The paths that match a glob. The named directories at its beginning may be links that stay in the root."""
    fixed = min(glob.fixed, len(glob.parts) - 1)
    names = glob.parts[:fixed]
    if ".git" in names:
        return
    start = os.path.join(root, *names)
    if names and os.path.lexists(start):
        _refuse_outside(root, start)
    states = glob.start()
    for name in names:
        states = glob.advance(states, name)
    waiting = [("/".join(names), states)]
    entries = 0
    while waiting:
        path, states = waiting.pop()
        try:
            listing = os.scandir(os.path.join(root, path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            raise _cannot("list", path, problem) from problem
        with listing:
            for entry in listing:
                entries += 1
                if entries > MAX_ENTRIES or is_stopped():
                    raise CannotJudge(
                        f"'{glob.text}' has to look at more than {MAX_ENTRIES:,} files.",
                        "Use a glob that begins with a directory.",
                    )
                if entry.name == ".git" or not (following := glob.advance(states, entry.name)):
                    continue
                below = f"{path}/{entry.name}" if path else entry.name
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_directory and len(glob.parts) in following:
                    yield below
                elif is_directory and below.count("/") < MAX_DEPTH:
                    waiting.append((below, following))
                elif is_directory:
                    raise CannotJudge(f"'{shown(below[:200])}…' is nested too deeply.", "Use a more exact glob.")


def _refuse_outside(root: str, path: str) -> str:
    """The real path. Raises `CannotJudge` if it is outside the root."""
    real = os.path.realpath(path)
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise CannotJudge(
            f"'{shown(os.path.relpath(path, root))}' is a link that leaves the root.",
            "Name a file inside the project directory.",
        )
    return real


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────


def read(root: str, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file in the root. Raises `FileNotFoundError` and `CannotJudge`."""
    return b"".join(blocks(root, path, limit))


def digest(root: str, path: str, limit: int = MAX_DIGEST_BYTES) -> str:
    """The SHA-256 of a regular file in the root. Raises `FileNotFoundError` and `CannotJudge`."""
    sha = hashlib.sha256()
    for block in blocks(root, path, limit):
        sha.update(block)
    return sha.hexdigest()


def entry_digest(root: str, path: str, limit: int = MAX_DIGEST_BYTES) -> tuple[str, int]:
    """The SHA-256 of a file, or of the target of a link, which is not followed; and its size.

    The digest is empty for a file that does not exist. Raises `CannotJudge`.
    """
    full = os.path.join(root, path)
    try:
        status = os.lstat(full)
        if stat.S_ISLNK(status.st_mode):
            return hashlib.sha256(b"link " + os.fsencode(os.readlink(full))).hexdigest(), 0
        if stat.S_ISDIR(status.st_mode):
            return "", 0
        return digest(root, path, limit), status.st_size
    except (FileNotFoundError, NotADirectoryError):
        return "", 0
    except OSError as problem:
        raise _cannot("read", path, problem) from problem


def digests(root: str, names: Iterable[str], max_files: int) -> Mapping[str, str]:
    """The SHA-256 of files and links by name as text; empty for missing ones.

    Raises `CannotJudge` if there are too many, or too large ones.
    """
    ordered = sorted(names)
    if len(ordered) > max_files:
        raise CannotJudge(
            f"{len(ordered):,} files would have to be compared, and {max_files:,} is the limit.",
            "Commit or ignore generated files.",
        )
    remaining = MAX_DIGEST_BYTES
    result = {}
    for name in ordered:
        result[shown(name)], size = entry_digest(root, name, remaining)
        remaining -= size
    return result


def blob_id(root: str, path: str, algorithm: str) -> str:
    """The id that git gives to the content of a file or link as it is; empty if there is none. Raises `CannotJudge`."""
    full = os.path.join(root, path)
    try:
        status = os.lstat(full)
        if stat.S_ISLNK(status.st_mode):
            content: Iterable[bytes] = [os.fsencode(os.readlink(full))]
        elif stat.S_ISDIR(status.st_mode):
            return ""
        else:
            content = blocks(root, path, MAX_DIGEST_BYTES)
        sha = hashlib.new(algorithm, b"blob %d\0" % status.st_size, usedforsecurity=False)
        for block in content:
            sha.update(block)
        return sha.hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as problem:
        raise _cannot("read", path, problem) from problem


def blocks(root: str, path: str, limit: int) -> Iterator[bytes]:
    """The content of a regular file in the root, in blocks. No part of the real path may become a link meanwhile, and
    nothing waits for a FIFO. Raises `FileNotFoundError` and `CannotJudge`.
    """
    full = os.path.join(root, path)
    if not os.path.lexists(full):
        raise FileNotFoundError(errno.ENOENT, "No such file", path)
    real = _refuse_outside(root, full)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *parents, name = os.path.relpath(real, root).split("/")
        try:
            for parent in parents:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(parent, flags, dir_fd=directory)
                os.close(directory)
                directory = inner
            file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except OSError as problem:
            raise _cannot("read", path, problem) from problem
    finally:
        os.close(directory)
    with open(file, "rb", buffering=0) as stream:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise CannotJudge(f"'{shown(path)}' is not a regular file.", "Replace it by a regular file.")
        total = 0
        try:
            while block := stream.read(1 << 18):
                total += len(block)
                if total > limit:
                    raise CannotJudge(
                        f"'{shown(path)}' is longer than {limit:,} bytes, which is the limit.", "Use smaller files."
                    )
                yield block
        except OSError as problem:
            raise _cannot("read", path, problem) from problem


def _cannot(verb: str, path: str, problem: OSError) -> CannotJudge:
    return CannotJudge(
        f"Cannot {verb} '{shown(path) or '.'}': {problem.strerror or problem}.",
        "Make it readable for the account of the server.",
    )
