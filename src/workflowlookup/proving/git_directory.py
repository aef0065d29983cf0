"""Runs git with a private git directory, so that nothing of a repository's configuration is trusted or even read.

`Git` is for commands on what is on this machine, and reaches no network. `remote_command` is for those that ask another
repository (`fetching`).

The private directory has a configuration of its own, no hooks and no drivers; the objects and refs of the repository;
and an index that only we write. So hooks, filters, fsmonitor, aliases, pagers, helpers and includes of the repository
do not exist for the git that we run. Attributes may name filters, but none is defined. Nothing is written to the
repository.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Final

from workflowlookup.language.text import one_line, shorten
from workflowlookup.proving.contract import CannotJudge
from workflowlookup.proving.files import read
from workflowlookup.proving.running import Stop

GIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2
_MAX_HEAD: Final = 4096
_MAX_CONFIG: Final = 1 << 20
_OPTIONS: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.attributesFile=/dev/null"),
    *("core.commitGraph=false", "core.multiPackIndex=false", "core.pager=cat", "core.sshCommand=false"),
    *(
        "core.quotePath=false",
        "diff.external=",
        "credential.helper=",
        "protocol.allow=never",
        "submodule.recurse=false",
    ),
    *("gc.auto=0", "maintenance.auto=false", "status.renames=false"),
)
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ASKPASS": "false",
    "GIT_ATTR_NOSYSTEM": "1",
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
_REMOTE_OPTIONS: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "core.pager=cat"),
    *("core.commitGraph=false", "core.bigFileThreshold=1m", "submodule.recurse=false", "fetch.recurseSubmodules=false"),
    *("fetch.unpackLimit=1", "fetch.writeCommitGraph=false", "credential.interactive=false"),
    *("gc.auto=0", "maintenance.auto=false"),
)
_OF_THE_USER: Final = re.compile(
    r"HOME|XDG_CONFIG_HOME|TMPDIR|USER|LOGNAME|SSH_AUTH_SOCK|SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE|(https|all|no)_proxy"
    r"|GIT_(SSH|SSH_COMMAND|SSH_VARIANT|SSL_\w+|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+))",
    re.IGNORECASE,
)
"""Variables by which the user says how to reach other machines."""
_FILE_SETTINGS: Final = ("filemode", "symlinks", "autocrlf")
"""Settings of the repository that say how its file system stores files; each can only make fewer files look changed,
never one whose content differs in more than line ends."""


class Source:
    """Where a repository has its parts."""

    def __init__(self, top: str) -> None:
        """`top`: the directory with `.git`. Raises `CannotJudge`."""
        self.top = top
        self.git_dir = _directory_at(top, ".git")
        self.common = _directory_at(self.git_dir, "commondir", self.git_dir)
        config = small_file(self.common, "config", _MAX_CONFIG)
        if re.search(rb"(?im)^\s*refstorage\s*=\s*(?!files)", config):
            raise CannotJudge("The repository stores its refs in a form that is not supported.", "Use files for refs.")
        is_sha256 = re.search(rb"(?im)^\s*objectformat\s*=\s*\"?sha256", config) is not None
        self.algorithm = "sha256" if is_sha256 else "sha1"
        lines = ["[core]", f"repositoryformatversion = {int(is_sha256)}", "bare = false"]
        for name in _FILE_SETTINGS:
            values = re.findall(rf"(?im)^\s*{name}\s*=\s*(true|false|input)\s*$".encode(), config)
            lines += [f"{name} = {values[-1].decode()}"] if values else []
        lines += ["[extensions]", "objectFormat = sha256"] if is_sha256 else []
        self._config = "\n".join([*lines, ""]).encode()

    @property
    def head(self) -> bytes:
        head = small_file(self.git_dir, "HEAD", _MAX_HEAD)
        if not head:
            raise CannotJudge("The repository has no HEAD.", "Repair the repository.")
        return head

    @property
    def is_shallow(self) -> bool:
        return bool(small_file(self.common, "shallow", _MAX_CONFIG))

    def prepare(self, directory: str, head: bytes, *, has_refs: bool) -> None:
        """Make a git directory that uses the objects of the repository, and its refs too if it `has_refs`."""
        objects = os.path.join(self.common, "objects")
        if "\n" in objects:
            raise CannotJudge("The path of the repository contains a line break.", "Rename the directory.")
        for name in ("objects/info", "info", *(() if has_refs else ("refs",))):
            os.makedirs(os.path.join(directory, name), exist_ok=True)
        _write(directory, "config", self._config)
        _write(directory, "objects/info/alternates", os.fsencode(objects) + b"\n")
        _write(directory, "info/exclude", small_file(self.common, "info/exclude", _MAX_CONFIG))
        _write(directory, "HEAD", head)
        if self.is_shallow:
            _write(directory, "shallow", small_file(self.common, "shallow", _MAX_CONFIG))
        for name in ("refs", "packed-refs") if has_refs else ():
            link = os.path.join(directory, name)
            if not os.path.lexists(link):
                os.symlink(os.path.join(self.common, name), link)


class PrivateDirectory:
    """A private git directory, and what is known of its index."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self.commit: str | None = None
        """The commit that the index has."""
        self.links: tuple[str, ...] = ()
        """The submodules of that commit."""
        self.unstaged: tuple[str, int, int, int] | None = None
        """Commit, and times and size of the repository's own index, when both were the same."""


class Git:
    """Git with a private git directory and a working tree."""

    def __init__(self, directory: str, work_tree: str, stop: Stop) -> None:
        self._directory = directory
        self._work_tree = work_tree
        self._stop = stop

    def __call__(
        self,
        *arguments: str,
        index: str = "",
        given: Iterable[str] = (),
        separator: bytes = b"\0",
        codes: Sequence[int] = (0,),
        max_bytes: int | None = None,
    ) -> bytes:
        """The output of git; empty for another exit code than 0 that is among `codes`. Raises `CannotJudge`, and
        `TooMuchOutput` for more than `max_bytes`.

        `given` is its input, with the separator after each text.
        """
        environment = {
            **_environment(),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_DIR": self._directory,
            "GIT_WORK_TREE": self._work_tree,
            **({"GIT_INDEX_FILE": index} if index else {}),
        }
        options = [word for option in (*_OPTIONS, *_excludes()) for word in ("-c", option)]
        command = ["git", "--no-pager", *options, *arguments]
        sent = b"".join(os.fsencode(text) + separator for text in given)
        if max_bytes is None:
            code, output, errors = _run(command, environment, self._work_tree, sent, self._stop)
        else:
            with tempfile.TemporaryFile(dir=self._directory) as stream:
                code, _, errors = _run(
                    command, environment, self._work_tree, sent, self._stop, stream=stream, max_bytes=max_bytes
                )
                stream.seek(0)
                output = stream.read()
        if code not in codes:
            reason = shorten(one_line(errors.decode(errors="replace")), 300) or f"exit code {code}"
            raise CannotJudge(
                f"git {arguments[0]} failed: {reason}", "Repair the repository: `git status`, `git fsck`."
            )
        return output if code == 0 else b""


class TooMuchOutput(CannotJudge):
    """Git writes more than its caller allows."""


def program() -> str:
    """The path of git; empty if it is not installed."""
    return shutil.which("git", path=_environment()["PATH"]) or ""


def is_installed() -> bool:
    return bool(program())


def remote_command(directory: str, protocols: Sequence[str], *words: str) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of a git command that asks another repository, over one of these protocols.

    `directory` is a git directory of ours. Of configurations, only those of the user and the system are read, because
    they say how to reach a host and who the user is there. Nothing prompts.
    """
    own = {name: value for name, value in os.environ.items() if _OF_THE_USER.fullmatch(name)}
    ours = {name: value for name, value in _environment().items() if not name.startswith("GIT_CONFIG")}
    environment = {**own, **ours, "GIT_DIR": directory, "GIT_ALLOW_PROTOCOL": ":".join(protocols)}
    environment |= {"SSH_ASKPASS_REQUIRE": "never", "GIT_PROTOCOL_FROM_USER": "0"}
    options = [word for option in _REMOTE_OPTIONS for word in ("-c", option)]
    return ["git", "--no-pager", *options, *words], environment


def _environment() -> dict[str, str]:
    path = os.environ.get("PATH", os.defpath)
    return {
        **_ENVIRONMENT,
        **{name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "TMPDIR") if name in os.environ},
        "PATH": os.pathsep.join(part for part in path.split(os.pathsep) if os.path.isabs(part)),
    }


@functools.cache
def _excludes() -> tuple[str, ...]:
    """The user's own file of ignored names, from the user's own configuration."""
    command = ["git", "config", "--global", "--path", "core.excludesFile"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - the arguments are ours
            command,
            env=_environment(),
            cwd=os.sep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=5,
            check=True,
        )
        return (f"core.excludesFile={os.fsdecode(done.stdout).strip()}",)
    return ()


def user_excludes() -> str:
    """The path of the user's own file of ignored names, as `git check-ignore` names it."""
    if setting := _excludes():
        return setting[0].partition("=")[2]
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME", os.sep), ".config")
    return os.path.join(base, "git", "ignore")


def _run(  # noqa: PLR0913 - what a process needs
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: str,
    sent: bytes,
    stop: Stop,
    *,
    stream: IO[bytes] | None = None,
    max_bytes: int = 0,
) -> tuple[int, bytes, bytes]:
    """Run git. Raises `CannotJudge` if it takes too long, or is not wanted any more. With a stream, the output goes
    there, and `TooMuchOutput` is raised if it has more than `max_bytes`.
    """
    deadline = time.monotonic() + GIT_SECONDS
    try:
        process = subprocess.Popen(  # noqa: S603 - the arguments are ours
            arguments,
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=stream or subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as problem:
        raise CannotJudge(f"git cannot be run in {cwd}: {problem.strerror}.", "Restore the directory.") from problem
    given: bytes | None = sent
    with process:
        while True:
            try:
                output, errors = process.communicate(given, timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                given = None
                is_too_much = stream is not None and os.fstat(stream.fileno()).st_size > max_bytes
                if is_too_much or stop.is_set() or time.monotonic() > deadline:
                    with contextlib.suppress(OSError):
                        os.killpg(process.pid, signal.SIGKILL)
                    if is_too_much:
                        raise _too_much(arguments, max_bytes) from None
                    raise CannotJudge(
                        f"git did not end within {GIT_SECONDS:g} s.", "Make the repository smaller."
                    ) from None
            else:
                if stream is not None and os.fstat(stream.fileno()).st_size > max_bytes:
                    raise _too_much(arguments, max_bytes)
                return process.returncode, output or b"", errors


def _too_much(arguments: Sequence[str], max_bytes: int) -> TooMuchOutput:
    return TooMuchOutput(f"{arguments[0]} writes more than {max_bytes:,} bytes.", "Make the repository smaller.")


def split_at_nul(output: bytes) -> list[str]:
    """The entries of an output that are separated by NUL."""
    return [os.fsdecode(entry) for entry in output.split(b"\0") if entry]


def small_file(directory: str, name: str, limit: int) -> bytes:
    """The content of a small regular file; empty if there is none. Raises `CannotJudge`."""
    try:
        return read(os.path.realpath(directory), name, limit)
    except (FileNotFoundError, NotADirectoryError):
        return b""


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


def _directory_at(directory: str, name: str, default: str = "") -> str:
    """The directory that `.git` or `commondir` is or names."""
    path = os.path.join(directory, name)
    if os.path.isdir(path):
        return path
    target = os.fsdecode(small_file(directory, name, _MAX_HEAD)).removeprefix("gitdir:").strip()
    if not target:
        if default:
            return default
        raise CannotJudge(f"{path} does not name a git directory.", "Repair the repository.")
    return os.path.normpath(os.path.join(directory, target))
