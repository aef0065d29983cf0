"""Another repository: which commit a revision is there, and the objects of that commit, in a git directory of ours.

Git runs under a supervisor, which ends it with everything that it started when it takes too long, fetches too much, or
this process is killed. `proving.git_directory` says which configuration it reads, and `library.git_source` which URLs
may come here. Nothing is checked out: hooks, filters, submodules and symbolic links of the repository have no effect.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from workflowlookup.errors import StorageError
from workflowlookup.language.text import one_line, shorten
from workflowlookup.library.git_source import GitSource, is_commit
from workflowlookup.proving.contract import CannotJudge
from workflowlookup.proving.git_directory import Git, program, remote_command
from workflowlookup.proving.running import Command, ServerEnds, Stop, Supervisors
from workflowlookup.proving.scratch import Scratch

MAX_FETCH_BYTES: Final = 256 << 20
"""How much git may store of one repository, compressed."""
MAX_MEMORY_KIB: Final = 4 << 20
"""How much memory git may use for another host, because a small object can say that it unfolds to any size."""
MAX_HISTORY: Final = 1_000
"""How many commits are searched for an earlier one."""
_TIP: Final = "refs/fetched/tip"
_LOCAL_SERVER: Final = "GIT_ALLOW_PROTOCOL= GIT_NO_LAZY_FETCH=1 git-upload-pack"
"""What serves a repository on this machine: as git would, but so that its configuration can fetch nothing more."""


class FetchFailed(StorageError):
    """A repository cannot be fetched: it does not answer, has no such revision or path, or is too large."""

    message = "Cannot be fetched"


class Tip(msgspec.Struct, frozen=True, kw_only=True):
    """What a revision is in the other repository."""

    commit: str
    kind: Literal["default", "branch", "tag", "commit"]
    ref: str
    """What is fetched: the full name of the branch or tag, or the commit."""


@contextlib.contextmanager
def open_remote(source: GitSource, cache: str, seconds: float) -> Iterator["Remote"]:
    """The repository of a source, until the block ends. `seconds`: how long one answer may take.

    Raises `FetchFailed`. The source must have been `checked`.
    """
    if not program():
        raise FetchFailed("The program git is not installed. Install git.")
    stop, supervisors = Stop(), Supervisors(starts_in_advance=False)
    scratch = Scratch(cache)
    try:
        os.makedirs(cache, mode=0o700, exist_ok=True)
        yield Remote(source, scratch, supervisors, stop, seconds)
    except CannotJudge as problem:
        raise FetchFailed(f"{source} cannot be read: {problem} {problem.remedy}") from problem
    except ServerEnds as problem:
        raise FetchFailed(f"{source} was not fetched, because this process ends.") from problem
    except OSError as problem:
        raise FetchFailed(f"{cache} cannot be written: {problem.strerror or problem}.") from problem
    finally:
        supervisors.close()
        scratch.close()
        stop.close()


class Remote:
    """A repository that is asked. Every method raises `FetchFailed`."""

    def __init__(
        self, source: GitSource, scratch: Scratch, supervisors: Supervisors, stop: Stop, seconds: float
    ) -> None:
        self._source = source
        self._scratch = scratch
        self._supervisors = supervisors
        self._stop = stop
        self._seconds = seconds
        self._is_local = source.url.startswith("file:")

    def make_directory(self, prefix: str) -> str:
        """A new directory beside the cache, which is removed at the end."""
        return self._scratch.make(prefix, os.devnull)

    def resolve(self) -> Tip:
        """The commit that the revision is now. A commit id stands for itself."""
        revision = self._source.rev
        if is_commit(revision):
            return Tip(commit=revision, kind="commit", ref=revision)
        wanted = [f"refs/tags/{revision}", f"refs/tags/{revision}^{{}}", f"refs/heads/{revision}"] if revision else []
        output = self._ask(
            self._new_git_directory(), "ls-remote", "--symref", "--", self._source.url, *wanted or ["HEAD"]
        )
        refs = dict(line.split("\t")[::-1] for line in output.decode(errors="replace").splitlines() if "\t" in line)
        commits = {name: commit for name, commit in refs.items() if is_commit(commit)}
        if not revision and "HEAD" in commits:
            return Tip(commit=commits["HEAD"], kind="default", ref="HEAD")
        if not revision:
            raise FetchFailed(f"{self._source.url} has no default branch. Name a branch or a tag with --rev.")
        tag, peeled, branch = wanted
        if tag in commits:
            return Tip(commit=commits.get(peeled, commits[tag]), kind="tag", ref=tag)
        if branch in commits:
            return Tip(commit=commits[branch], kind="branch", ref=branch)
        short = ", or the full id of a commit" if len(revision) < 40 else ""
        raise FetchFailed(f"{self._source.url} has no branch or tag '{revision}'. Name one that it has{short}.")

    def fetch(self, tip: Tip) -> tuple[Git, str]:
        """Git with the objects of a commit, and the id of that commit: the branch may have moved meanwhile."""
        directory = self._fetch(tip, "--depth=1")
        git = Git(directory, directory, self._stop)
        output = git("rev-parse", "-q", "--verify", "--end-of-options", f"{_TIP}^{{commit}}", codes=(0, 1, 128))
        if not (commit := output.decode().strip()):
            raise FetchFailed(f"{self._source} is not a commit. Name a branch, a tag or a commit.")
        return git, commit

    def follows(self, earlier: str, tip: Tip) -> bool | None:
        """Whether a commit comes after an earlier one; None if that cannot be told from the last `MAX_HISTORY`."""
        try:
            directory = self._fetch(tip, f"--depth={MAX_HISTORY}", "--filter=tree:0")
            commits = Git(directory, directory, self._stop)("rev-list", f"--max-count={2 * MAX_HISTORY}", _TIP).decode()
        except (FetchFailed, CannotJudge):
            return None
        if earlier in commits.split():
            return True
        return None if os.path.exists(os.path.join(directory, "shallow")) else False

    def _fetch(self, tip: Tip, *options: str) -> str:
        directory = self._new_git_directory("sha256" if len(tip.commit) == 64 else "sha1")
        self._ask(directory, "fetch", "-q", "--no-tags", *options, "--", self._source.url, f"+{tip.ref}:{_TIP}")
        return directory

    def _new_git_directory(self, algorithm: str = "sha1") -> str:
        directory = self._scratch.make("git", os.devnull)
        for name in ("objects", "refs"):
            os.mkdir(os.path.join(directory, name))
        is_sha256 = algorithm == "sha256"
        config = f"[core]\nrepositoryformatversion = {int(is_sha256)}\nbare = false\n"
        config += "[extensions]\nobjectFormat = sha256\n" if is_sha256 else ""
        for name, text in (("config", config), ("HEAD", "ref: refs/heads/none\n")):
            with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                file.write(text)
        return directory

    def _ask(self, directory: str, command: str, *words: str) -> bytes:
        """The output of a git command that asks the repository."""
        if self._is_local:
            words = (f"--upload-pack={_LOCAL_SERVER}", *words)
        protocols = ["file"] if self._is_local else ["https", "ssh"]  # users replace one by the other (`insteadOf`)
        arguments, environment = remote_command(directory, protocols, command, *words)
        path = program()
        if not self._is_local:
            limit = f'ulimit -v {MAX_MEMORY_KIB} 2>/dev/null; exec "$0" "$@"'  # not all systems have it
            path, arguments = "/bin/sh", ["sh", "-c", limit, path, *arguments[1:]]
        is_too_large = False

        def check_size(_: float) -> None:
            nonlocal is_too_large
            if not is_too_large and _size_of(directory) > MAX_FETCH_BYTES:
                is_too_large = True
                self._stop.set()

        ended = self._supervisors.run(
            Command(program=path, arguments=arguments, cwd=directory, environment=environment, seconds=self._seconds),
            self._stop,
            check_size,
        )
        if is_too_large or _size_of(directory) > MAX_FETCH_BYTES:
            raise FetchFailed(
                f"{self._source} has more than {MAX_FETCH_BYTES >> 20} MiB. Keep workflows in a smaller repository."
            )
        if ended.timed_out:
            raise FetchFailed(
                f"{self._source.url} did not answer within {self._seconds:g} s. Try again later, or allow more time "
                "with git_timeout_seconds."
            )
        if ended.exit_code != 0:
            message = ended.stderr.end.decode(errors="replace").strip().removeprefix("fatal: ")
            reason = shorten(one_line(message), 500).rstrip(".") or f"git ended with {ended.exit_code}"
            raise FetchFailed(
                f"{self._source} cannot be fetched: {reason}. Check it with `git ls-remote {self._source.url}`."
            )
        return ended.stdout.end


def _size_of(directory: str) -> int:
    """How many bytes the files below a directory have."""
    size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(parent, name)).st_size
    return size
