"""What git says about a root: what differs from a commit, what has changed since a snapshot, and other commits.

The comparison is with the commit and with what we saw ourselves, never with the repository's own index, so that nothing
in it (assume-unchanged, forged times) hides a change. `git_directory` runs git.
"""

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.proving.contract import CannotJudge
from workflowlookup.proving.files import Glob, blob_id, digests, entry_digest, escape, matching, shown
from workflowlookup.proving.git_directory import (
    Git,
    PrivateDirectory,
    Source,
    is_installed,
    small_file,
    split_at_nul,
    user_excludes,
)
from workflowlookup.proving.running import Stop
from workflowlookup.proving.scratch import Scratch
from workflowlookup.runs.events import Snapshot

MAX_SNAPSHOT_FILES: Final = 5_000
MAX_SUBMODULES: Final = 100
MAX_SUBMODULE_DEPTH: Final = 5
SUBMODULE_MODE: Final = "160000"
"""Of the entry of a submodule in a tree."""
_MAX_RULES: Final = 1 << 20
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
_NO_FILTER: Final = frozenset({"unspecified", "unset", "set", ""})


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
        self._opened: dict[str, PrivateDirectory] = {}
        self._lock = threading.Lock()

    def find(self, root: str, stop: Stop) -> "Repository | None":
        """The repository around a root; None if there is none. Raises `CannotJudge`, for a bare one too."""
        if not os.path.isdir(root):
            raise CannotJudge(f"The project directory {root} does not exist.", "Restore it, or start a new run.")
        top = _top(root)
        if not top:
            return None
        if not is_installed():
            raise CannotJudge("The program git is not installed.", "Install git.")
        with self._lock:
            private = self._opened.get(top)
            if private is None or not os.path.isdir(private.directory):
                try:
                    private = PrivateDirectory(self._scratch.make("git", root))
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


def in_submodule(name: str) -> CannotJudge:
    """Why changes of this file cannot be judged."""
    return CannotJudge(
        f"{shown(name)} is in a submodule, and the repository does not record what changes there.",
        "Ask the author for globs outside of submodules, or for the path of the submodule itself, which changes with "
        "its commit.",
    )


class Repository:
    """A repository for one proof or snapshot. Every method may raise `CannotJudge`."""

    def __init__(self, top: str, root: str, private: PrivateDirectory, stop: Stop) -> None:
        self.top = top
        self.root = root
        self.prefix = "" if root == top else f"{os.path.relpath(root, top)}/"
        """The path of the root from the top, with a slash at its end."""
        self._private = private
        self._stop = stop
        self._git = Git(private.directory, top, stop)
        self._source = Source(top)
        self.algorithm = self._source.algorithm
        self._state: State | None = None
        with private.lock:
            self._source.prepare(private.directory, self._source.head, has_refs=True)

    # ── what git says ───────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> State:
        """The working tree now; the same for all calls of one `Repository`."""
        if self._state is None:
            self._state = self._read_state()
        return self._state

    def _read_state(self) -> State:
        options = ("--porcelain=v1", "-z", "-uall", "--no-renames", "--ignore-submodules=dirty", "--no-ahead-behind")
        with self._private.lock:
            commit = self._read_index()
            output = self._git("status", *options)
        changes = {entry[3:]: entry[:2] for entry in split_at_nul(output)}
        for name in [name for name, code in changes.items() if name.endswith("/") and code == "??"]:
            del changes[name]  # a repository inside, of which nothing is tracked
            changes |= dict.fromkeys(matching(self.top, [f"{escape(name)}**"], self._stop.is_set), "??")
        head = os.fsdecode(self._source.head).strip()
        branch = head.removeprefix("ref: refs/heads/")
        return State(commit=commit, branch=branch if branch != head else "", changes=changes)

    def _read_index(self) -> str:
        """Have the private index contain the commit of `HEAD`, which is returned."""
        private = self._private
        commit = self._head_commit()
        if private.commit != commit:
            private.commit = None
            lock = os.path.join(private.directory, "index.lock")
            if os.path.exists(lock):  # of a git that was killed
                os.unlink(lock)
            self._git("read-tree", *(("--reset", commit) if commit else ("--empty",)))
            private.links = tuple(name for name, (mode, _) in self.tree(commit).items() if mode == _LINK_MODE)
            private.commit = commit
        return commit

    def _head_commit(self) -> str:
        """The commit of `HEAD`; empty if there is none. A branch that has a file needs no git."""
        head = self._source.head.strip()
        if re.fullmatch(rb"ref: refs/heads/[\w./-]+", head) and b".." not in head:
            commit = small_file(self._source.common, os.fsdecode(head.removeprefix(b"ref: ")), 100).strip()
            if re.fullmatch(rb"[0-9a-f]{40}|[0-9a-f]{64}", commit):
                return commit.decode()
        return self._git("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1)).decode().strip()

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
        if state.changes or self._is_staged(state.commit):
            return False
        return all(inner.is_clean(depth + 1) for inner in self._submodules(depth))

    def _filtered(self, state: State) -> list[str]:
        """The changed files that a filter would convert, such as those of Git LFS."""
        names = [name for name, code in state.changes.items() if code != "??"]
        places = ((self.top, ".gitattributes"), (self._source.common, "info/attributes"))
        if not names or not any(os.path.exists(os.path.join(*place)) for place in places):
            return []
        answers = split_at_nul(self._git("check-attr", "-z", "--stdin", "filter", given=names))
        return [name for name, value in zip(answers[::3], answers[2::3], strict=True) if value not in _NO_FILTER]

    def _is_staged(self, commit: str) -> bool:
        """Whether the repository's own index differs from the commit."""
        index = os.path.join(self._source.git_dir, "index")
        if not os.path.isfile(index):
            return bool(commit)
        status = os.stat(index)
        version = (commit, status.st_ctime_ns, status.st_ino, status.st_size)
        if self._private.unstaged == version:
            return False
        base = commit or self._git("hash-object", "-t", "tree", os.devnull).decode().strip()
        if self._git("diff-index", "--cached", "--name-only", "-z", "--no-renames", base, index=index):
            return True
        self._private.unstaged = version
        return False

    def _submodules(self, depth: int) -> Iterator["Repository"]:
        if depth > MAX_SUBMODULE_DEPTH or len(self._private.links) > MAX_SUBMODULES:
            raise CannotJudge("The repository has too many submodules.", "Leave out `clean`.")
        for name in self._private.links:
            inside = os.path.join(self.top, name)
            if os.path.lexists(os.path.join(inside, ".git")):
                key = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
                directory = os.path.join(self._private.directory, "submodules", key)
                os.makedirs(directory, exist_ok=True)
                yield Repository(inside, inside, PrivateDirectory(directory), self._stop)

    def submodule_file(self, globs: Sequence[str]) -> str:
        """A file inside a submodule that matches one of these globs; empty if there is none."""
        self.state()
        inside = tuple(f"{self.inner(name)}/" for name in self._private.links if self.inner(name))
        if not inside:
            return ""
        return next((path for path in matching(self.root, globs, self._stop.is_set) if path.startswith(inside)), "")

    def in_progress(self) -> str:
        """`rebase`, `merge` and the like, if one has been begun and not finished."""
        git_dir = self._source.git_dir
        names = (word for name, word in _IN_PROGRESS.items() if os.path.lexists(os.path.join(git_dir, name)))
        return next(names, "")

    def tree(self, commit: str) -> Tree:
        """All files of a commit; none, if there is no commit."""
        entries: dict[str, tuple[str, str]] = {}
        trees: set[str] = set()
        for entry in (
            split_at_nul(self._on_commit("ls-tree", "-r", "-t", "-z", "--full-tree", commit)) if commit else ()
        ):
            about, _, name = entry.partition("\t")
            mode, kind, identifier = about.split()
            if kind == "tree":
                trees.add(identifier)
            else:
                entries[name] = mode, identifier
        self._verify(trees)
        return entries

    def _verify(self, identifiers: Iterable[str]) -> None:
        """Raises `CannotJudge` if an object has not the content that its id stands for. Git itself compares only the
        commit and its first tree, so that others could be overwritten."""
        wanted = sorted(identifiers)
        output = self._on_commit("cat-file", "--batch", "--buffer", given=wanted) if wanted else b""
        start = 0
        for identifier in wanted:
            end = output.find(b"\n", start)
            _, kind, size = output[start:end].split()
            start = end + 1 + int(size) + 1
            header = b"%s %s\0" % (kind, size)
            content = hashlib.new(self.algorithm, header, usedforsecurity=False)
            content.update(output[end + 1 : start - 1])
            if content.hexdigest() != identifier:
                raise CannotJudge(
                    f"The object {identifier} of the repository was overwritten: it has another content.",
                    "Restore it from another clone: `git fsck` lists such objects.",
                )

    def commits_since(self, commit: str) -> int:
        """How many commits `HEAD` has that the commit has not."""
        now = self.state().commit
        if not now:
            return 0
        excluded = (f"^{commit}",) if commit else ()
        return int(self._on_commit("rev-list", "--count", now, *excluded))

    def resolve(self, revision: str) -> str:
        """The commit of a revision. Raises `CannotJudge` if it is not there."""
        words = ("rev-parse", "-q", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        output = self._git(*words, codes=(0, 1, 128)).decode().split()
        if output:
            return output[-1]
        if self._source.is_shallow:
            raise CannotJudge(
                f"The commit '{shown(revision)}' is not in the repository, which is shallow.",
                "Fetch the history: `git fetch --unshallow`.",
            )
        raise CannotJudge(
            f"The commit '{shown(revision)}' is not in the repository.", "Name a commit, branch or tag that exists."
        )

    def tree_of(self, commit: str) -> str:
        """The id of the tree of a commit."""
        return self._on_commit("rev-parse", "-q", "--verify", f"{commit}^{{tree}}").decode().split()[-1]

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
        inside = [n for n in {*self.tree(state.commit), *self._untracked()} if os.path.basename(n) == ".gitignore"]
        ignores = dict(map(self._rules, (*inside, self._own_excludes, user_excludes())))
        return Snapshot(commit=state.commit, files=self.digests(names), ignores=ignores, is_repository=True)

    def tracked_changes(self, depth: int = 0) -> Mapping[str, str]:
        """The SHA-256 of the tracked files that differ from the commit, by path from the top; also of those in
        submodules, unless there are too many."""
        names = {name for name, code in self.state().changes.items() if code != "??"}
        changes = dict(digests(self.top, names, MAX_SNAPSHOT_FILES))
        if depth < MAX_SUBMODULE_DEPTH and len(self._private.links) <= MAX_SUBMODULES:
            for inner in self._submodules(depth):
                directory = os.path.relpath(inner.top, self.top)
                inside = inner.tracked_changes(depth + 1)
                changes |= {os.path.join(directory, name): digest for name, digest in inside.items()}
        return changes

    def digests(self, names: Iterable[str]) -> Mapping[str, str]:
        """The SHA-256 of files by their path from the root; empty for missing ones."""
        return digests(self.root, names, MAX_SNAPSHOT_FILES)

    def changed(self, since: Snapshot) -> list[str]:
        """The paths from the root whose content is not what it was then, sorted."""
        if not since.is_repository:
            raise CannotJudge("The project directory was not in a git repository then.", "Start a new run.")
        state = self.state()
        before, now = self.tree(since.commit), self.tree(state.commit)
        by_text = {shown(name): name for name in state.changes.keys() | before.keys() | now.keys()}
        then = (f"{shown(self.prefix)}{path}" for path in since.files)
        compared = state.changes.keys() | {by_text.get(text, text) for text in then}
        if len(compared) > MAX_SNAPSHOT_FILES:
            raise CannotJudge(
                f"{len(compared):,} files would have to be compared, and {MAX_SNAPSHOT_FILES:,} is the limit.",
                "Commit or ignore generated files.",
            )
        committed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}

        def has_changed(name: str) -> bool:
            digest = since.files.get(shown(self.inner(name)))
            is_as_committed = name in now and name not in state.changes
            if digest is not None:
                return digest != entry_digest(self.top, name)[0]
            if name not in before:
                return is_as_committed or os.path.lexists(os.path.join(self.top, name))
            if is_as_committed:
                return before[name][1] != now[name][1]
            return before[name][1] != blob_id(self.top, name, self.algorithm)

        return [path for name in sorted(compared | committed) if (path := self.inner(name)) and has_changed(name)]

    # ── ignored files ───────────────────────────────────────────────────────────────────────────────────────────

    def hidden(self, globs: Sequence[str], since: Snapshot) -> list[str]:
        """The paths from the root that match, and that git ignores only by rules that have changed since a snapshot."""
        patterns = [Glob(glob) for glob in globs]
        names = [
            name
            for name in self._untracked()
            if name not in self.state().changes and any(glob.matches(self.inner(name)) for glob in patterns)
        ]
        if not names:
            return []
        words = ("--no-literal-pathspecs", "check-ignore", "-z", "-v", "--stdin")
        answers = split_at_nul(self._git(*words, given=[f"./{name}" for name in names], codes=(0, 1)))
        sources = dict(zip((name.removeprefix("./") for name in answers[3::4]), answers[::4], strict=True))
        then = since.ignores.items()
        changed = {source for source in set(sources.values()) if self._rules(source) not in then}
        return [self.inner(name) for name, source in sources.items() if source in changed]

    def _untracked(self) -> list[str]:
        """All files that the commit has not, ignored ones too, and repositories inside, by path from the top."""
        with self._private.lock:
            self._read_index()
            return [name.rstrip("/") for name in split_at_nul(self._git("ls-files", "-o", "-z"))]

    @property
    def _own_excludes(self) -> str:
        return os.path.join(self._private.directory, "info", "exclude")

    def _rules(self, source: str) -> tuple[str, str]:
        """The name and the SHA-256 of a file that says what is ignored; `source` is as `git check-ignore` names it."""
        directory, last = os.path.split(os.path.join(self.top, source))
        name = "info/exclude" if source == self._own_excludes else shown(source)
        return name, hashlib.sha256(small_file(directory, last, _MAX_RULES)).hexdigest()

    # ── another commit ──────────────────────────────────────────────────────────────────────────────────────────

    def export(self, commit: str, directory: str, depth: int = 0) -> None:
        """Write the files of a commit into an empty directory, with a git directory of its own. No filter is run."""
        git_dir = os.path.join(directory, ".git")
        os.makedirs(git_dir, exist_ok=True)
        self._source.prepare(git_dir, commit.encode() + b"\n", has_refs=False)
        git = Git(git_dir, directory, self._stop)
        git("read-tree", commit)
        git("checkout-index", "-a", "-f", "-q", "-u")
        tree = self.tree(commit)
        files = {name: identifier for name, (mode, identifier) in tree.items() if mode != _LINK_MODE}
        converted = {own for name, own in files.items() if blob_id(directory, name, self.algorithm) != own}
        self._verify(converted)  # only line ends and the like may differ from the object
        for name, (mode, identifier) in tree.items():
            inside = os.path.join(self.top, name)
            if mode == _LINK_MODE and os.path.lexists(os.path.join(inside, ".git")):
                if depth > MAX_SUBMODULE_DEPTH:
                    raise CannotJudge("Submodules are nested too deeply.", "Use fewer submodules.")
                private = PrivateDirectory(os.path.join(git_dir, "submodule"))
                submodule = Repository(inside, inside, private, self._stop)
                submodule.export(identifier, os.path.join(directory, name), depth + 1)
                shutil.rmtree(private.directory, ignore_errors=True)

    def _on_commit(self, *arguments: str, given: Iterable[str] = ()) -> bytes:
        """The output of a command on objects that may be missing; `given` are lines."""
        try:
            return self._git(*arguments, given=given, separator=b"\n")
        except CannotJudge as problem:
            raise CannotJudge(
                f"A commit is no longer in the repository ({problem}).",
                "Restore it, or start a new run.",
            ) from problem
