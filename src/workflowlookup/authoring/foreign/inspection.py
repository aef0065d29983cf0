"""The injection check of `lint` over whole files of others, with the line of each finding."""

from collections.abc import Iterator, Mapping
from typing import Final

from workflowlookup.authoring.foreign.draft import Note, Place
from workflowlookup.authoring.lint.injection import suspicions
from workflowlookup.language.text import one_line, shorten

MAX_NOTES: Final = 100
WINDOW: Final = 8_192
"""Files are searched in parts of this length, because the time of some signs grows faster than the text."""
OVERLAP: Final = 512
_BINARY: Final = b"\0"
_PROBE: Final = 8_192


def suspicious(files: Mapping[str, bytes]) -> list[Note]:
    """What the files say that tries to instruct an agent outside of its task; binary files are left out."""
    notes: list[Note] = []
    for path, data in files.items():
        if _BINARY not in data[:_PROBE]:
            notes += _in_text(path, data.decode("utf-8-sig", "replace"))
        if len(notes) >= MAX_NOTES:
            return notes[:MAX_NOTES]
    return notes


def _in_text(path: str, text: str) -> Iterator[Note]:
    reported: set[str] = set()
    for start in range(0, len(text) or 1, WINDOW - OVERLAP):
        part = text[start : start + WINDOW]
        for found, reason in suspicions(part):
            if reason not in reported:
                reported.add(reason)
                line = text.count("\n", 0, start + part.index(found)) + 1
                yield Note(f"{reason}: {shorten(one_line(found), 100)!r}", Place(path, line, line))
