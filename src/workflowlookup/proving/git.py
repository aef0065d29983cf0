"""What git says about a root, without trusting its repository, and without writing to it.

Git runs with a private git directory: its own configuration, no hooks, the objects and refs of the repository, and an
index that only we write. So nothing in the repository's configuration (hooks, filters, fsmonitor, aliases, pagers,
helpers, includes) is ever read, and nothing in its index (assume-unchanged, forged times) hides a change. Attributes
may name filters, but none is defined. What the environment could change is left out of it.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.text import one_line, shorten
from workflowlookup.proving.contract import CannotJudge
from workflowlookup.proving.files import MAX_DIGEST_BYTES, blob_id, entry_digest, escape, matching, read, shown
from workflowlookup.proving.running import Stop
from workflowlookup.proving.scratch import Scratch
from workflowlookup.runs.events import Snapshot

MAX_SNAPSHOT_FILES: Final = 5_000
GIT_SECONDS: Final = 60.0
MAX_SUBMODULES: Final = 100
_MAX_HEAD: Final = 4096
_MAX_EXCLUDES: Final = 1 << 20
_POLL_SECONDS: Final = 0.2
_OPTIONS: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.attributesFile=/dev/null"),
    *("core.commitGraph=false", "core.multiPackIndex=false", "core.pager=cat", "core.sshCommand=false"),
    *("core.quotePath=false", "core.preloadIndex=true", "index.threads=true", "diff.external=", "credential.helper="),
    *("protocol.allow=never", "submodule.recurse=false", "gc.auto=0", "maintenance.auto=false", "status.renames=false"),
)
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ASKPASS": "false",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "1",  # the private index may be refreshed
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_IN_PROGRESS: Final = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}
Tree = Mapping[str, tuple[str, str]]
"""By path from the top of the working tree: mode and object id."""
_LINK_MODE: Final = "160000"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The working tree compared with `HEAD`."""

    commit: str
    """Empty in a repository without commits."""
    branch: str
    """Empty if `HEAD` is detached."""
    changes: Mapping[str, str]
    """The files that differ from the commit, by path from the top: ` M` and the like of `git status`, or `??`."""


class Repositories:
    """The repositories that proofs look at, each with its private git directory."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._opened: dict[str, _Private] = {}
        self._lock = threading.Lock()

    def find(self, root: str, stop: Stop) -> "Repository | None":
        """The repository around a root; None if there is none. Raises `CannotJudge`, for a bare one too."""
        if not os.path.isdir(root):
            raise CannotJudge(f"The project directory {root} does not exist.", "Restore it, or start a new run.")
        top = _top(root)
        if not top:
            return None
        if shutil.which("git", path=_search_path()) is None:
            raise CannotJudge("The program git is not installed.", "Install git.")
        with self._lock:
            private = self._opened.get(top)
            if private is None or not os.path.isdir(private.directory):
                try:
                    private = _Private(self._scratch.make("git", root), threading.RLock())
                except OSError as problem:
                    raise CannotJudge(
                        f"No temporary directory can be made: {problem}.", "Set TMPDIR to a directory with free space."
                    ) from problem
                self._opened[top] = private
        return Repository(top, root, private, stop)


def _top(root: str) -> str:
    directory = root
    while True:
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
        if directory == root and all(os.path.exists(os.path.join(root, n)) for n in ("HEAD", "objects", "refs")):
            raise CannotJudge(
                f"{root} is a bare repository, without a working tree.", "Use a clone of it as project directory."
            )
        if (parent := os.path.dirname(directory)) == directory:
            return ""
        directory = parent


def _search_path() -> str:
    return os.pathsep.join(path for path in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(path))


class _Private:
    """A private git directory, and the commit that its index has."""

    def __init__(self, directory: str, lock: "threading.RLock") -> None:
        self.directory = directory
        self.lock = lock
        self.commit: str | None = None


class Repository:
    """A repository for one proof or snapshot. Every method may raise `CannotJudge`."""

    def __init__(self, top: str, root: str, private: _Private, stop: Stop) -> None:
        self.top = top
        self.root = root
        self.prefix = "" if root == top else f"{os.path.relpath(root, top)}/"
        """The path of the root from the top, with a slash at its end."""
        self._private = private
        self._stop = stop
        self._git_dir = _linked(top, ".git")
        self._common = _linked(self._git_dir, "commondir", self._git_dir)
        self._state: State | None = None
        with private.lock:
            self.algorithm = "sha1"
            self._prepare(private.directory)

    def _prepare(self, directory: str) -> None:
        """Write what git needs in a git directory. Nothing of the repository's configuration is among it."""
        content = _small(self._common, "config", _MAX_EXCLUDES)
        if re.search(rb"(?im)^\s*refstorage\s*=\s*(?!files)", content):
            raise CannotJudge("The repository stores its refs in a form that is not supported.", "Use files for refs.")
        version = b"0"
        if re.search(rb"(?im)^\s*objectformat\s*=\s*\"?sha256", content):
            self.algorithm, version = "sha256", b"1"
        config = b"[core]\n\trepositoryformatversion = %s\n\tbare = false\n" % version
        if version == b"1":
            config += b"[extensions]\n\tobjectFormat = sha256\n"
        objects = os.path.join(self._common, "objects")
        if "\n" in objects:
            raise CannotJudge("The path of the repository contains a line break.", "Rename the directory.")
        for name in ("objects/info", "info"):
            os.makedirs(os.path.join(directory, name), exist_ok=True)
        _write(directory, "config", config)
        _write(directory, "objects/info/alternates", os.fsencode(objects) + b"\n")
        _write(directory, "info/exclude", _small(self._common, "info/exclude", _MAX_EXCLUDES))
        head = _small(self._git_dir, "HEAD", _MAX_HEAD)
        if not head:
            raise CannotJudge("The repository has no HEAD.", "Repair the repository.")
        _write(directory, "HEAD", head)
        if shallow := _small(self._common, "shallow", _MAX_EXCLUDES):
            _write(directory, "shallow", shallow)
        for name in ("refs", "packed-refs"):
            link = os.path.join(directory, name)
            if not os.path.lexists(link):
                os.symlink(os.path.join(self._common, name), link)

    # ── what git says ───────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> State:
        """The working tree now; the same for all calls of one `Repository`."""
        if self._state is None:
            self._state = self._read_state()
        return self._state

    def _read_state(self) -> State:
        with self._private.lock:
            commit = self._read_index()
            output = self._git(
                "status",
                "--porcelain=v1",
                "-z",
                "-uall",
                "--no-renames",
                "--ignore-submodules=dirty",
                "--no-ahead-behind",
            )
        changes = {entry[3:]: entry[:2] for entry in _texts(output)}
        for name in [name for name, code in changes.items() if name.endswith("/") and code == "??"]:
            del changes[name]  # a repository inside, of which nothing is tracked
            changes |= dict.fromkeys(
                (path for path in matching(self.top, [f"{escape(name)}**"], self._stop.is_set)), "??"
            )
        head = _small(self._git_dir, "HEAD", _MAX_HEAD).decode(errors="replace").strip()
        branch = head.removeprefix("ref: refs/heads/")
        return State(commit=commit, branch=branch if branch != head else "", changes=changes)

    def _read_index(self) -> str:
        """Have the private index contain the commit of `HEAD`, which is returned."""
        private = self._private
        commit = self._git("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1)).decode().strip()
        if private.commit != commit:
            self._git("read-tree", *(("--reset", commit) if commit else ("--empty",)))
            private.commit = commit
        return commit

    def is_clean(self, depth: int = 0) -> bool:
        """Whether nothing differs from `HEAD`: no file, no entry of the index, and nothing in submodules."""
        state = self.state()
        if filtered := self._filtered(state):
            if len(filtered) == len(state.changes):
                raise CannotJudge(
                    f"Only a filter knows whether {shown(filtered[0])} differs from the commit, and none is run.",
                    "Leave out `clean`; `changed` and `unchanged` can be judged.",
                )
            return False
        if state.changes or self._staged(state.commit):
            return False
        return all(inner.is_clean(depth + 1) for inner in self._submodules(depth))

    def _filtered(self, state: State) -> list[str]:
        """The changed files that a filter would convert, such as those of Git LFS."""
        names = [name for name, code in state.changes.items() if code != "??"]
        places = ((self.top, ".gitattributes"), (self._common, "info/attributes"))
        if not names or not any(os.path.exists(os.path.join(*place)) for place in places):
            return []
        answers = _texts(self._git("check-attr", "-z", "--stdin", "filter", given=names))
        return [name for name, value in zip(answers[::3], answers[2::3], strict=True) if value not in _NO_FILTER]

    def _staged(self, commit: str) -> bool:
        """Whether the repository's own index differs from the commit."""
        index = os.path.join(self._git_dir, "index")
        if not os.path.isfile(index):
            return bool(commit)
        base = commit or self.empty_tree()
        return bool(self._git("diff-index", "--cached", "--name-only", "-z", "--no-renames", base, index=index))

    def empty_tree(self) -> str:
        return self._git("hash-object", "-t", "tree", os.devnull).decode().strip()

    def _submodules(self, depth: int) -> Iterator["Repository"]:
        links = [name for name, (mode, _) in self.tree(self.state().commit).items() if mode == _LINK_MODE]
        if depth > 5 or len(links) > MAX_SUBMODULES:
            raise CannotJudge("The repository has too many submodules.", "Leave out `clean`.")
        for name in links:
            inside = os.path.join(self.top, name)
            if os.path.lexists(os.path.join(inside, ".git")):
                directory = os.path.join(self._private.directory, "submodules", f"{abs(hash(name)):x}")
                os.makedirs(directory, exist_ok=True)
                yield Repository(inside, inside, _Private(directory, threading.RLock()), self._stop)

    def submodules_matching(self, globs: Sequence[str]) -> str:
        """A file inside a submodule that matches one of these globs; empty if there is none."""
        links = [name for name, (mode, _) in self.tree(self.state().commit).items() if mode == _LINK_MODE]
        inside = tuple(f"{self.inner(name)}/" for name in links if self.inner(name))
        if not inside:
            return ""
        return next((path for path in matching(self.root, globs, self._stop.is_set) if path.startswith(inside)), "")

    def in_progress(self) -> str:
        """`rebase`, `merge` and the like, if one has been begun and not finished."""
        names = (word for name, word in _IN_PROGRESS.items() if os.path.lexists(os.path.join(self._git_dir, name)))
        return next(names, "")

    def tree(self, commit: str) -> Tree:
        """All files of a commit; of none, if there is no commit."""
        entries: dict[str, tuple[str, str]] = {}
        if commit:
            for entry in _texts(self._object("ls-tree", "-r", "-z", "--full-tree", commit)):
                about, _, name = entry.partition("\t")
                mode, _, identifier = about.split()
                entries[name] = mode, identifier
        return entries

    def commits_since(self, commit: str) -> int:
        """How many commits `HEAD` has that the commit has not."""
        now = self.state().commit
        if not now:
            return 0
        excluded = (f"^{commit}",) if commit else ()
        return int(self._object("rev-list", "--count", now, *excluded))

    def resolve(self, revision: str) -> str:
        """The commit of a revision. Raises `CannotJudge` if it is not there."""
        output = self._git(
            "rev-parse", "-q", "--verify", "--end-of-options", f"{revision}^{{commit}}", codes=(0, 1, 128)
        )
        if not output.strip():
            is_shallow = bool(_small(self._common, "shallow", _MAX_EXCLUDES))
            raise CannotJudge(
                f"The commit '{shown(revision)}' is not in the repository{', which is shallow' if is_shallow else ''}.",
                "Fetch the history: `git fetch --unshallow`."
                if is_shallow
                else "Name a commit, branch or tag that exists.",
            )
        return output.decode().split()[-1]

    def tree_of(self, commit: str) -> str:
        """The id of the tree of a commit."""
        return (
            self._object("rev-parse", "-q", "--verify", "--end-of-options", f"{commit}^{{tree}}").decode().split()[-1]
        )

    def inner(self, path: str) -> str:
        """A path from the top as a path from the root; empty if it is outside."""
        return path.removeprefix(self.prefix) if path.startswith(self.prefix) else ""

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, globs: Sequence[str]) -> Snapshot:
        """The state of the root: the commit, and digests of files that differ from it, or are ignored and match."""
        state = self.state()
        names = {path for name in state.changes if (path := self.inner(name))}
        if globs:
            tracked = self.tree(state.commit)
            more = matching(self.root, globs, self._stop.is_set)
            names |= {path for path in more if f"{self.prefix}{path}" not in tracked}
        return Snapshot(commit=state.commit, files=digests(self.root, names), is_repository=True)

    def changed(self, since: Snapshot) -> Mapping[str, str]:
        """The paths from the root whose content is not what it was, with their SHA-256 now; empty for deleted ones."""
        if not since.is_repository:
            raise CannotJudge("The project directory was not in a git repository then.", "Start a new run.")
        state = self.state()
        before, now = self.tree(since.commit), self.tree(state.commit)
        candidates = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        candidates |= state.changes.keys()
        by_text = {shown(name): name for name in candidates | before.keys() | now.keys()}
        candidates |= {by_text.get(text, text) for text in (f"{shown(self.prefix)}{path}" for path in since.files)}
        if len(candidates) > MAX_SNAPSHOT_FILES:
            raise CannotJudge(
                f"More than {MAX_SNAPSHOT_FILES:,} files may have changed, which is the limit.",
                "Commit or ignore generated files.",
            )
        changed = {}
        for name in sorted(candidates):
            path = self.inner(name)
            if path and self._has_changed(name, since.files.get(shown(path)), before.get(name), now.get(name), state):
                changed[path], _ = entry_digest(self.root, path)
        return changed

    def _has_changed(
        self,
        name: str,
        digest: str | None,
        before: tuple[str, str] | None,
        now: tuple[str, str] | None,
        state: State,
    ) -> bool:
        is_as_committed = now is not None and name not in state.changes
        if digest is not None:
            return digest != entry_digest(self.top, name)[0]
        if before is None:
            return is_as_committed or os.path.lexists(os.path.join(self.top, name))
        if is_as_committed and now is not None:
            return before[1] != now[1]
        return before[1] != blob_id(self.top, name, self.algorithm)

    # ── another commit ──────────────────────────────────────────────────────────────────────────────────────────

    def export(self, commit: str, directory: str, depth: int = 0) -> None:
        """Write the files of a commit into an empty directory, with a git directory of its own. No filter is run."""
        git_dir = os.path.join(directory, ".git")
        os.makedirs(git_dir, exist_ok=True)
        self._prepare(git_dir)
        _write(git_dir, "HEAD", commit.encode() + b"\n")
        for name in ("refs", "packed-refs"):  # commands that are run there must not write to the repository
            os.unlink(os.path.join(git_dir, name))
        os.makedirs(os.path.join(git_dir, "refs"))
        self._git("read-tree", commit, git_dir=git_dir, work_tree=directory)
        self._git("checkout-index", "-a", "-f", "-q", "-u", git_dir=git_dir, work_tree=directory)
        for name, (mode, identifier) in self.tree(commit).items():
            inside = os.path.join(self.top, name)
            if mode == _LINK_MODE and os.path.lexists(os.path.join(inside, ".git")):
                if depth > 5:
                    raise CannotJudge("Submodules are nested too deeply.", "Use fewer submodules.")
                private = _Private(os.path.join(git_dir, "submodule"), threading.RLock())
                Repository(inside, inside, private, self._stop).export(
                    identifier, os.path.join(directory, name), depth + 1
                )
                shutil.rmtree(private.directory, ignore_errors=True)

    # ── running git ─────────────────────────────────────────────────────────────────────────────────────────────

    def _object(self, *arguments: str) -> bytes:
        """The output of a command on an object that may be missing."""
        try:
            return self._git(*arguments)
        except CannotJudge as problem:
            raise CannotJudge(
                f"A commit is no longer in the repository ({problem}).",
                "Restore it, or start a new run of the workflow.",
            ) from problem

    def _git(
        self,
        *arguments: str,
        git_dir: str = "",
        work_tree: str = "",
        index: str = "",
        given: Iterable[str] = (),
        codes: Sequence[int] = (0,),
    ) -> bytes:
        environment = {
            **_ENVIRONMENT,
            **{name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "TMPDIR") if name in os.environ},
            "PATH": _search_path(),
            "GIT_DIR": git_dir or self._private.directory,
            "GIT_WORK_TREE": work_tree or self.top,
            **({"GIT_INDEX_FILE": index} if index else {}),
        }
        options = [word for option in _OPTIONS for word in ("-c", option)]
        sent = b"".join(os.fsencode(text) + b"\0" for text in given)
        code, output, errors = _run(
            ["git", "--no-pager", *options, *arguments], environment, work_tree or self.top, sent, self._stop
        )
        if code not in codes:
            reason = shorten(one_line(errors.decode(errors="replace")), 300) or f"exit code {code}"
            raise CannotJudge(
                f"git {arguments[0]} failed: {reason}", "Repair the repository: `git status`, `git fsck`."
            )
        return output if code == 0 else b""


_NO_FILTER: Final = frozenset({"unspecified", "unset", "set", ""})


def _run(
    arguments: Sequence[str], environment: Mapping[str, str], cwd: str, sent: bytes, stop: Stop
) -> tuple[int, bytes, bytes]:
    """Run git. Raises `CannotJudge` if it takes too long, or is not wanted any more."""
    deadline = time.monotonic() + GIT_SECONDS
    try:
        process = subprocess.Popen(  # noqa: S603 - the arguments are ours
            arguments,
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as problem:
        raise CannotJudge(f"git cannot be run in {cwd}: {problem.strerror}.", "Restore the directory.") from problem
    try:
        with process:
            given: bytes | None = sent
            while True:
                try:
                    output, errors = process.communicate(given, timeout=_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    given = None
                    if stop.is_set() or time.monotonic() > deadline:
                        raise CannotJudge(
                            f"git {arguments[-1]} did not end within {GIT_SECONDS:g} s.", "Make the repository smaller."
                        ) from None
                else:
                    return process.returncode, output, errors
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _texts(output: bytes) -> list[str]:
    return [os.fsdecode(entry) for entry in output.split(b"\0") if entry]


def _write(directory: str, name: str, content: bytes) -> None:
    path = os.path.join(directory, name)
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read() == content:
            return
    try:
        with open(path, "wb") as file:
            file.write(content)
    except OSError as problem:
        raise CannotJudge(f"{path} cannot be written: {problem.strerror}.", "Free some space in TMPDIR.") from problem


def _small(directory: str, name: str, limit: int) -> bytes:
    """The content of a small regular file; empty if there is none."""
    try:
        real = os.path.realpath(directory)
        return read(real, name, limit)
    except (FileNotFoundError, NotADirectoryError):
        return b""


def _linked(directory: str, name: str, default: str = "") -> str:
    """The directory that `.git` or `commondir` is or names."""
    path = os.path.join(directory, name)
    if os.path.isdir(path):
        return path
    content = _small(directory, name, _MAX_HEAD)
    target = os.fsdecode(content).removeprefix("gitdir:").strip()
    if not target:
        if default:
            return default
        raise CannotJudge(f"{path} does not name a git directory.", "Repair the repository.")
    return os.path.normpath(os.path.join(directory, target))


def digests(root: str, names: Iterable[str]) -> Mapping[str, str]:
    """The SHA-256 of files by name as text; empty for missing ones.

    Raises `CannotJudge` if there are too many, or too large ones.
    """
    ordered = sorted(names)
    if len(ordered) > MAX_SNAPSHOT_FILES:
        raise CannotJudge(
            f"{len(ordered):,} files would have to be compared, and {MAX_SNAPSHOT_FILES:,} is the limit.",
            "Commit or ignore generated files.",
        )
    remaining = MAX_DIGEST_BYTES
    result = {}
    for name in ordered:
        result[shown(name)], size = entry_digest(root, name, remaining)
        remaining -= size
    return result
