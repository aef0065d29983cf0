"""A file in the user's configuration directory that lists the journals for which tokens are required.

It is the second record of that, for when the journal is lost together with the record beside it: a data directory that
was deleted, a disk that is not mounted, a database that was dropped. Where there is no such directory, or it cannot be
written, the record beside the journal counts alone.
"""

import hashlib
import logging
import os
import re
from collections.abc import Collection
from typing import Final

from workflowlookup.atomic import locked, replace_file

log = logging.getLogger(__name__)

FILE_NAME: Final = "tokens-required"
MAX_BYTES: Final = 8 << 20

_LINE: Final = re.compile(r"([0-9a-f]{64})( .*)?")
_HEADER: Final = """\
# Journals for which tokens were made: over HTTP nobody is served without one, also when the journal is lost.
# Each line is the SHA-256 of a path or of a database, and its name. How to serve without tokens: docs/access.md.
"""


class RequiredTokens:
    """The list in one file. Without a path nothing is listed, and nothing is kept."""

    def __init__(self, path: str) -> None:
        self.path = path

    def lists(self, names: Collection[str]) -> bool:
        """Whether the journal with these names is listed; also when the list cannot be read."""
        try:
            return not self._digests().isdisjoint(map(_digest, names))
        except (OSError, ValueError) as problem:
            log.warning("%s cannot be read, so tokens are required: %s", self.path, problem)
            return True

    def signature(self) -> tuple[int, int] | None:
        """Changes whenever the list does; None where there is no list. Costs one system call."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def add(self, names: Collection[str]) -> None:
        """List a journal under all of its names, if that is possible."""
        if not self.path:
            return
        try:
            with locked(self.path):
                known = self._digests()
                lines = [f"{_digest(name)} {name!a}\n" for name in sorted(names) if _digest(name) not in known]
                if lines:
                    self._append("".join(lines))
        except (OSError, ValueError) as problem:  # a home that is read-only or not there: the other record counts
            log.info("%s cannot be written, so it does not say that tokens are required: %s", self.path, problem)

    def _digests(self) -> frozenset[str]:
        """What is listed. Raises `OSError` or `ValueError` for a list that is there and cannot be read."""
        if not self.path or not self._may_exist():
            return frozenset()
        lines = [line for line in self._read().splitlines() if line and not line.startswith("#")]
        found = [_LINE.fullmatch(line) for line in lines]
        if None in found:
            raise ValueError("a line is not a SHA-256 and a name")
        return frozenset(match[1] for match in found if match)

    def _may_exist(self) -> bool:
        """Whether the list may be there: not in the home directory of another account, which nobody can look into."""
        try:
            os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            return os.path.isdir(os.path.dirname(self.path))
        return True

    def _read(self) -> str:
        with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError("it is too long")
        return data.decode()

    def _append(self, lines: str) -> None:
        """Replace the file by a longer one, whole or not at all, for its owner alone."""
        content = self._read() if self._may_exist() else _HEADER
        replace_file(os.path.realpath(self.path), f"{content.rstrip()}\n{lines}".encode())


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
