"""A private directory of this process for temporary worktrees and git directories: outside every root, mode 700.

It is removed when the process exits. What a killed process left is removed by the next one: a directory belongs to a
living process as long as its lock is held.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from typing import Final

from workflowlookup.processes import children

PREFIX: Final = "workflowlookup-proof-"
_LOCK: Final = "lock"
_MIN_AGE_SECONDS: Final = 60.0
"""A directory without a lock that is younger may be one that is just being made."""


class Scratch:
    """A directory that is made when it is first needed."""

    def __init__(self, parent: str = "") -> None:
        """`parent`: where it is made, in place of the system's directory for temporary files."""
        self._parent = parent
        self._path = ""
        self._file: int | None = None
        self._guard = threading.Lock()

    def make(self, prefix: str, root: str) -> str:
        """A new empty directory. Raises `OSError`, also if there is no temporary directory outside the root."""
        with self._guard:
            parent = os.path.dirname(self._path) or self._parent or tempfile.gettempdir()
            if f"{os.path.realpath(parent)}/".startswith(f"{root.rstrip('/')}/"):
                raise OSError(f"the temporary directory {parent} is inside the root")
            if not self._path or not os.path.isdir(self._path):
                if self._file is not None:  # of a directory that somebody else removed
                    os.close(self._file)
                    self._file = None
                self._path, self._file = _make(parent)
                children.at_end.add(self.close)
            path = self._path
        return tempfile.mkdtemp(prefix=f"{prefix}-", dir=path)

    def close(self) -> None:
        """Remove it with everything in it."""
        with self._guard:
            path, self._path = self._path, ""
            file, self._file = self._file, None
        if path:
            remove(path)
        if file is not None:
            os.close(file)
        children.at_end.discard(self.close)


def _make(parent: str) -> tuple[str, int]:
    _remove_leftovers(parent)
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        file = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return path, file
        os.close(file)  # another process locked it first, and removed it as a leftover


def _remove_leftovers(parent: str) -> None:
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(entry)


def _remove_if_left(entry: "os.DirEntry[str]") -> None:
    """Remove a directory unless it belongs to a living process. Raises `OSError`, also if its lock is held."""
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    try:
        file = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - status.st_mtime > _MIN_AGE_SECONDS:
            remove(entry.path)
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(entry.path)
    finally:
        os.close(file)


def remove(path: str) -> None:
    """Remove a directory with everything in it, also what was made read-only. Links are not followed.

    Nothing outside it is changed: another process may have removed it already, and its parent is everybody's.
    """

    def retry(_: object, name: str, __: object) -> None:
        with contextlib.suppress(OSError):
            if name != path:
                os.chmod(os.path.dirname(name), 0o700)
            if os.path.isdir(name) and not os.path.islink(name):
                os.chmod(name, 0o700)
                shutil.rmtree(name, ignore_errors=True)
            else:
                os.unlink(name)

    shutil.rmtree(path, onerror=retry)
    if os.path.lexists(path):
        shutil.rmtree(path, ignore_errors=True)
