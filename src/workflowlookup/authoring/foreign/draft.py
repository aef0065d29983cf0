"""What every format is read to before it becomes a document: `Draft`, with the lines that each part came from."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from workflowlookup.language.values import Json

NO_FIELDS: Final[Mapping[str, Json]] = MappingProxyType({})


class NotImportable(ValueError):
    """The source has nothing that a workflow could be made of. The message is a sentence with file and line."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What is imported: the main file, and the files of its folder as far as they were read."""

    main: str
    """Path of the main file in `files`."""
    files: Mapping[str, bytes]
    """By path within the folder, with `/`."""
    location: str
    """Where the main file is, as far as that tells its format: `.claude/commands/fix.md`."""

    @property
    def folder_name(self) -> str:
        """The name of the folder of the main file; empty if it is not known."""
        parts = self.location.split("/")
        return parts[-2] if len(parts) > 1 else ""

    @property
    def data(self) -> bytes:
        return self.files[self.main]


class Place(msgspec.Struct, frozen=True):
    """Lines of a file, counted from 1; both are included."""

    file: str
    first: int
    last: int

    def __str__(self) -> str:
        lines = f"line {self.first}" if self.last <= self.first else f"lines {self.first} to {self.last}"
        return f"{self.file}, {lines}"


class Note(msgspec.Struct, frozen=True):
    """A sentence of the report, and what it is about."""

    text: str
    place: Place | None = None

    def __str__(self) -> str:
        return self.text if self.place is None else f"{self.place}: {self.text}"


class SuggestionKind(StrEnum):
    """What an author may take over."""

    CRITERION = "criterion"
    PROOF = "proof"
    CONFIRMATION = "confirmation"


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, a proof or a confirmation that a line of the source suggests."""

    kind: SuggestionKind
    value: Json
    """The value in the form of a document: a rule, a proof, or the question."""
    place: Place
    quote: str
    """The line."""


class DraftStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it was found."""

    title: str
    text: str
    """Verbatim, without blank lines around it."""
    place: Place
    identifier: str = ""
    """The id in the source; empty if it has none."""
    fields: Mapping[str, Json] = NO_FIELDS
    """Further fields of the document's step, which the source states in so many words."""
    suggestions: Sequence[Suggestion] = ()


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure as it was found, in no particular format."""

    name: str
    description: str
    steps: Sequence[DraftStep]
    title: str = ""
    """What people call it, if that is not its name."""
    split: str
    """How the steps were found, as a phrase: "6 numbered headings"."""
    is_split: bool = True
    guidance: Sequence[tuple[str, Place]] = ()
    """Text that belongs to no step, in order."""
    fields: Mapping[str, Json] = NO_FIELDS
    """Further fields of the document, which the source states in so many words."""
    parameters: frozenset[str] = frozenset()
    """Variables whose templates in the text stay templates."""
    header: Mapping[str, Json] = NO_FIELDS
    """What else the source says about itself, kept as it is."""
    guessed: Sequence[Note] = ()
    left_out: Sequence[Note] = ()
