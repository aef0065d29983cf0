"""Tells the user's own files from files that a repository brought.

Paths are compared by device and inode, after following each symbolic link. So neither links nor file systems that fold
case or Unicode make a file of the repository look like one of the user's.
"""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

APPLICATION: Final = "workflowlookup"
CLIENT_VARIABLE: Final = "CLAUDE_PROJECT_DIR"
"""The variable in which Claude Code passes the project directory to the servers that it starts."""
SESSION_VARIABLE: Final = "CLAUDE_CODE_SESSION_ID"
"""The variable in which Claude Code passes its session to the servers and hooks that it starts."""
MAX_LINKS: Final = 40
"""How many symbolic links are followed; Linux has the same limit."""


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The project around a working directory."""

    root: str
    """A real path."""
    home: str
    """The home directory of the account, whatever `$HOME` says; empty when the account has none."""

    def brings(self, path: str) -> bool:
        """Whether a file, what it links to, or a link in between is in the project.

        The user's configuration directories are not, even if the home directory is the project.
        """
        own = os.path.join(self.home, ".config", APPLICATION), os.path.join(self.home, f".{APPLICATION}")
        if self._is_around_home and any(is_inside(path, directory) for directory in own):
            return False
        return any(self._has(location) for location in _links_and_target(path))

    def contains(self, path: str) -> bool:
        """Whether the target of a path, with all links followed, is in the project."""
        *_, target = _links_and_target(path)
        return self._has(target)

    def _has(self, location: str) -> bool:
        """Whether a path without links is in the project. If the root is the home directory or above it, only files
        directly in the root and files in repositories below it count.
        """
        if not _is_below(location, self.root):
            return False
        if not self._is_around_home:
            return True
        is_directly_in_root = _identity(os.path.dirname(location)) == _identity(self.root)
        library = os.path.join(self.root, f".{APPLICATION}")
        return is_directly_in_root or _is_below(location, library) or _is_in_repository(location, self.home)

    @property
    def _is_around_home(self) -> bool:
        return bool(self.home) and _is_below(self.home, self.root)


def find_project(directory: str) -> Project:
    """The project around a directory."""
    home = _account_home()
    return Project(root=find_root(directory, home), home=home)


def find_repository(path: str) -> Project | None:
    """The project around a file, whatever the working directory; None when no directory above it is marked as one."""
    project = find_project(os.path.dirname(os.path.realpath(path)))
    marks = (".git", f".{APPLICATION}")
    return project if any(os.path.exists(os.path.join(project.root, mark)) for mark in marks) else None


def find_root(directory: str, home: str) -> str:
    """The nearest directory with a `.git` directory; else the outermost with another mark; else the directory itself.

    A nested mark that a repository can bring (`.workflowlookup`, the `.git` file of a submodule) does not make a root.
    The account's home directory and the directories above it are not a root for directories below.
    """
    start = root = os.path.realpath(_absolute(directory))
    around_home = set(_upwards(home)) if home else set()
    identities = {_identity(parent) for parent in around_home} - {None}
    for parent in _upwards(start):
        if parent != start and (parent in around_home or _identity(parent) in identities):
            break
        git, library = os.path.join(parent, ".git"), os.path.join(parent, f".{APPLICATION}")
        has_git = os.access(git, os.F_OK)  # each run asks, and this is faster than `exists` where there is nothing
        if has_git and os.path.isdir(git):
            return parent
        if has_git or (os.access(library, os.F_OK) and os.path.isdir(library)):
            root = parent
    return root


def find_root_of_run(
    flag: str, environment: Mapping[str, str], directory: str, client_roots: Sequence[str] = ()
) -> tuple[str, str]:
    """The real path of the project directory of a run, and how it was determined. In this order: the setting `root`,
    also if no such directory exists, because the user named it; the variable of the client; the client's roots; the
    repository around the working directory; that directory. Empty if none exists.

    Of several roots it is the one around the working directory, or else the first. Those that do not exist are ignored.
    """
    if flag:
        return os.path.realpath(flag), "flag"
    roots = [path for path in client_roots if os.path.isabs(path) and os.path.isdir(path)]
    roots.sort(key=lambda path: not is_inside(directory, path))
    for source, path in ((CLIENT_VARIABLE, environment.get(CLIENT_VARIABLE, "")), ("roots", roots[0] if roots else "")):
        if os.path.isabs(path) and os.path.isdir(path):
            return os.path.realpath(path), source
    root = find_root(directory, _account_home())
    if not os.path.isdir(root):
        return "", ""
    return root, "git" if os.path.exists(os.path.join(root, ".git")) else "directory"


def find_above(name: str, root: str, directory: str) -> str:
    """The nearest path of this name in a project: from the directory, if that is in `root`, else from `root`, upwards
    to the root of the repository around it. If there is none, the path that it would have in `root`.

    Above the start only what belongs to this account, or to the owner of the start, counts: others may write there.
    """
    top = _identity(find_root(root, _account_home()))
    start = os.path.realpath(_absolute(directory)) if is_inside(directory, root) else root
    owners = {os.geteuid(), _owner(start)}
    for parent in _upwards(start):
        path = os.path.join(parent, name)
        if os.path.exists(path) and (parent == start or _owner(path) in owners):
            return path
        if _identity(parent) in (top, None):
            break
    return os.path.join(root, name)


def names_root(flag: str, environment: Mapping[str, str]) -> bool:
    """Whether the user or a variable of the client names the project directory, so that the client's roots are not
    needed.
    """
    return find_root_of_run(flag, environment, os.sep)[1] in ("flag", CLIENT_VARIABLE)


def _is_in_repository(path: str, home: str) -> bool:
    """Whether a path is, or is in, a repository below the home directory or beside it."""
    for parent in _upwards(path):
        if _is_below(home, parent):
            return False
        if any(os.path.exists(os.path.join(parent, mark)) for mark in (".git", f".{APPLICATION}")):
            return True
    return False


def touches(path: str, root: str) -> bool:
    """Whether the target of a path, or a link on the way to it, is in a directory or below it."""
    return any(_is_below(location, root) for location in _links_and_target(path))


def is_inside(path: str, root: str) -> bool:
    """Whether the target of a path is in a directory or below it."""
    *_, target = _links_and_target(path)
    return _is_below(target, root)


def configuration_directory(environment: Mapping[str, str], directory: str) -> str:
    """The user's configuration directory; a relative path counts from the working directory."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME") or "~", ".config")
    return os.path.join(directory, os.path.expanduser(base), APPLICATION)


def cache_directory(environment: Mapping[str, str]) -> str:
    """The user's cache directory, with the files of other repositories that are in the library."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.join(base, APPLICATION, "git")


def _absolute(path: str) -> str:
    """The absolute path, with links not followed."""
    try:
        return os.path.join(os.getcwd(), path)
    except OSError:  # the working directory was deleted
        return os.path.join(os.sep, path)


def _account_home() -> str:
    directory = _directory_of_account(os.getuid())
    return os.path.realpath(directory) if directory else ""


@functools.cache
def _directory_of_account(user_id: int) -> str:
    """As the system's database of users has it, which may be on another machine."""
    import pwd  # noqa: PLC0415 - with the first settings file

    try:
        return pwd.getpwuid(user_id).pw_dir
    except KeyError:  # a container may run with a user id that has no account
        return ""


def _links_and_target(path: str) -> Iterator[str]:
    """The path of each link on the way, then the path of the target; the directories of each contain no links."""
    current, remaining, links = os.sep, _absolute(path).split(os.sep)[::-1], 0
    while remaining and links <= MAX_LINKS:
        part = remaining.pop()
        if part in ("", os.curdir):
            continue
        if part == os.pardir:
            current = os.path.dirname(current)
            continue
        location = os.path.join(current, part)
        try:
            target = os.readlink(location)
        except OSError:  # not a link, or missing
            current = location
            continue
        yield location
        links += 1
        current = os.sep if target.startswith(os.sep) else current
        remaining += target.split(os.sep)[::-1]
    yield current


def _is_below(path: str, directory: str) -> bool:
    identity = _identity(directory)
    return any(parent == directory or (identity and _identity(parent) == identity) for parent in _upwards(path))


def _upwards(path: str) -> Iterator[str]:
    yield path
    while (parent := os.path.dirname(path)) != path:
        yield (path := parent)


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
