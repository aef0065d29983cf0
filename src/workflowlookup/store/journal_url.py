"""Journal URLs, and the table of journal kinds: what the rest of the program must know about each.

The scheme of a URL is the key in `JOURNALS`; a path has no scheme. The module of a kind is imported when its first
journal is opened.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup import extras
from workflowlookup.errors import JOURNAL_SECONDS

if TYPE_CHECKING:
    from workflowlookup.store.journal import Journal


class JournalKind(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the rest of the program must know about one kind of journals."""

    open: "Callable[[str, float], Journal]"
    """Called with a URL and how many seconds a use may take. The journal connects on its first use."""
    prefix: str = ""
    """How its URLs begin, for error messages; empty for paths."""
    extra: str = ""
    """The extra that it needs; empty for none."""
    has_replicas: bool = False
    """Whether servers on several machines can share it: they notify each other, share sessions and take over runs."""

    @property
    def is_file(self) -> bool:
        return not self.prefix


def _sqlite(url: str, seconds: float) -> "Journal":
    from workflowlookup.store.sqlite import SqliteJournal  # noqa: PLC0415

    return SqliteJournal(url, seconds)


def _postgres(url: str, seconds: float) -> "Journal":
    from workflowlookup.store.postgres import PostgresJournal  # noqa: PLC0415

    return PostgresJournal(url, seconds)


SQLITE: Final = JournalKind(open=_sqlite)
POSTGRES: Final = JournalKind(open=_postgres, prefix="postgresql://", extra=extras.POSTGRES, has_replicas=True)

JOURNALS: Final[Mapping[str, JournalKind]] = {"": SQLITE, "postgresql": POSTGRES, "postgres": POSTGRES}
"""By scheme."""


class JournalUrl:
    """A journal URL, or the path of a journal file. Raises `ValueError` for a scheme that is not in `JOURNALS`."""

    def __init__(self, text: str) -> None:
        scheme, separator, _ = text.partition("://")
        kind = JOURNALS.get(scheme if separator else "")
        if not text or kind is None:
            prefixes = dict.fromkeys(kind.prefix for kind in JOURNALS.values() if kind.prefix)
            raise ValueError(f"a path, or a URL that begins with {' or '.join(prefixes)}")
        self.kind = kind
        self.text = os.path.expanduser(text) if kind.is_file else text

    def open(self, seconds: float = JOURNAL_SECONDS) -> "Journal":
        """The journal. A use that takes longer than so many seconds raises `JournalUnavailable`.

        Raises `MissingExtra`.
        """
        if self.kind.extra:
            extras.require(self.kind.extra)
        return self.kind.open(self.text, seconds)

    def relative_to(self, directory: str) -> str:
        """The URL as text; a relative path is joined to this directory."""
        return os.path.join(directory, self.text) if self.kind.is_file else self.text

    @property
    def identity(self) -> str:
        """The same for every spelling of one path."""
        return os.path.realpath(self.text) if self.kind.is_file else self.text

    @property
    def shown(self) -> str:
        """The URL with its password replaced, for people."""
        return without_password(self.text)

    def as_argument(self) -> tuple[str, bool]:
        """The URL without its password, for a command line in any directory; and whether it had a password."""
        if self.kind.is_file:
            return os.path.abspath(self.text), False
        url = re.sub(r"(://[^:/@]*):[^/]*@", r"\1@", self.text)
        url = re.sub(r"([?&])password=[^&]*&?", r"\1", url).rstrip("?&")
        return url, url != self.text


def without_password(text: str) -> str:
    """A text that may contain journal URLs, with their passwords replaced."""
    return re.sub(r"(password=)[^&'\"]*", r"\1…", re.sub(r"(://[^:/@]*:)[^/]*@", r"\1…@", text))
