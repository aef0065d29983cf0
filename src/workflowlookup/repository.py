"""Tells files of the user from files that a repository brought.

Paths are compared by what they lead to (device and inode), link by link. So neither links nor file systems that fold
case or Unicode make a file of the repository look like one of the user's.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

APPLICATION: Final = "workflowlookup"
MAX_LINKS: Final = 40
"""How many links are followed on the way to a file; more lead nowhere, as for the system itself."""


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The project around a working directory."""

    root: str
    """A real path."""
    home: str
    """The home directory of the account, not that of the environment; empty when the account has none."""

    def brings(self, path: str) -> bool:
        """Whether a file belongs to the project, by its own place, by that of what it links to, or of a link between.

        What the account keeps in its own directories does not, even where the home directory is the project.
        """
        own = os.path.join(self.home, ".config", APPLICATION), os.path.join(self.home, f".{APPLICATION}")
        if self._is_around_home and any(is_inside(path, directory) for directory in own):
            return False
        return any(self._has(place) for place in _links_and_end(path))

    def contains(self, path: str) -> bool:
        """Whether what a path leads to lies in the project."""
        *_, end = _links_and_end(path)
        return self._has(end)

    def _has(self, place: str) -> bool:
        """Whether a place is in the project. The home directory, or one above it, is no project as a whole: in it only
        what lies right there, and whatever is in a repository further down.
        """
        if not _is_below(place, self.root):
            return False
        if not self._is_around_home:
            return True
        is_right_there = _identity(os.path.dirname(place)) == _identity(self.root)
        library = os.path.join(self.root, f".{APPLICATION}")
        return is_right_there or _is_below(place, library) or _has_mark(place, self.home)

    @property
    def _is_around_home(self) -> bool:
        return bool(self.home) and _is_below(self.home, self.root)


def find_project(directory: str) -> Project:
    """The project around a directory."""
    home = _account_home()
    return Project(root=find_root(directory, home), home=home)


def find_repository(path: str) -> Project | None:
    """The project that a file belongs to wherever one works; None where no mark makes a repository of a place above."""
    project = find_project(os.path.dirname(os.path.realpath(path)))
    marks = (".git", f".{APPLICATION}")
    return project if any(os.path.exists(os.path.join(project.root, mark)) for mark in marks) else None


def find_root(directory: str, home: str) -> str:
    """The nearest directory with a `.git` directory; else the outermost with another mark; else the directory itself.

    A nested mark that a repository can bring (`.workflowlookup`, the `.git` file of a submodule) makes no root of its
    own. The account's home directory and what is above it are no root for what lies below.
    """
    start = root = os.path.realpath(_absolute(directory))
    for place in _upwards(start):
        if place != start and home and _is_below(home, place):
            break
        git = os.path.join(place, ".git")
        if os.path.isdir(git):
            return place
        if os.path.exists(git) or os.path.isdir(os.path.join(place, f".{APPLICATION}")):
            root = place
    return root


def _has_mark(path: str, home: str) -> bool:
    """Whether a path is, or is in, a repository below the home directory or beside it."""
    for place in _upwards(path):
        if _is_below(home, place):
            return False
        if any(os.path.exists(os.path.join(place, mark)) for mark in (".git", f".{APPLICATION}")):
            return True
    return False


def touches(path: str, root: str) -> bool:
    """Whether what a path leads to, or a link on the way to it, lies in a directory or below it."""
    return any(_is_below(place, root) for place in _links_and_end(path))


def is_inside(path: str, root: str) -> bool:
    """Whether what a path leads to lies in a directory or below it."""
    *_, end = _links_and_end(path)
    return _is_below(end, root)


def configuration_directory(environment: Mapping[str, str], directory: str) -> str:
    """Where the user's own configuration is; a relative path counts from the working directory."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME") or "~", ".config")
    return os.path.join(directory, os.path.expanduser(base), APPLICATION)


def _absolute(path: str) -> str:
    """The path from the root of the file system, links and all."""
    try:
        return os.path.join(os.getcwd(), path)
    except OSError:  # the working directory was deleted: what cannot be placed may be anywhere
        return os.path.join(os.sep, path)


def _account_home() -> str:
    import pwd  # noqa: PLC0415 - with the first settings file

    try:
        return os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container may run with an id that nobody has
        return ""


def _links_and_end(path: str) -> Iterator[str]:
    """The place of each link on the way, and the place where the way ends; none of them contains a link."""
    at, rest, links = os.sep, _absolute(path).split(os.sep)[::-1], 0
    while rest and links <= MAX_LINKS:
        part = rest.pop()
        if part in ("", os.curdir):
            continue
        if part == os.pardir:
            at = os.path.dirname(at)
            continue
        place = os.path.join(at, part)
        try:
            target = os.readlink(place)
        except OSError:  # no link, or not there
            at = place
            continue
        yield place
        links += 1
        at = os.sep if target.startswith(os.sep) else at
        rest += target.split(os.sep)[::-1]
    yield at


def _is_below(path: str, directory: str) -> bool:
    identity = _identity(directory)
    return any(place == directory or (identity and _identity(place) == identity) for place in _upwards(path))


def _upwards(path: str) -> Iterator[str]:
    yield path
    while (parent := os.path.dirname(path)) != path:
        yield (path := parent)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
