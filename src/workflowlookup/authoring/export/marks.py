"""The mark of an exported file: which workflow it was made from, and whether somebody has changed its text since.

A mark is a comment on a line of its own: after the front matter of a file, or at the beginning of a section of a file
that belongs to others. `end_mark` ends such a section. Its second digest is about the text and the files beside it.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

_MARK: Final = re.compile(
    r"^<!-- workflowlookup export of (?P<workflow>\S+): document sha256:(?P<document>[0-9a-f]{64}), "
    r"text sha256:(?P<text>[0-9a-f]{64}) -->\r?\n",
    re.MULTILINE,
)
Digests = Sequence[tuple[str, str]]
"""The files beside a marked one: path and SHA-256 of each, ordered by path."""
_FRONT_MATTER: Final = re.compile(r"---\n.*?\n---\n", re.DOTALL)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the mark of a file or section says."""

    workflow: str
    """The id of the workflow."""
    document: str
    """The SHA-256 of its document, as in runs."""
    is_intact: bool
    """Whether the text and the files beside it are still those that were written."""


class BrokenSection(ValueError):
    """The section of a workflow does not end, or there are two; the message says which."""


def marked(text: str, workflow_id: str, document: str, files: Digests = ()) -> str:
    """The text with a mark: after its front matter, or at its beginning."""
    front = _FRONT_MATTER.match(text)
    at = front.end() if front else 0
    digests = f"document sha256:{document}, text sha256:{_digest(text, files)}"
    return f"{text[:at]}<!-- workflowlookup export of {workflow_id}: {digests} -->\n{text[at:]}"


def read_mark(text: str, files: Digests = ()) -> Mark | None:
    """The mark of a text; None if it has none. `files`: what is beside it now."""
    match = _MARK.search(text)
    if match is None:
        return None
    rest = text[: match.start()] + text[match.end() :]
    is_intact = _digest(rest, files) == match["text"]
    return Mark(workflow=match["workflow"], document=match["document"], is_intact=is_intact)


def _digest(text: str, files: Digests) -> str:
    lines = "".join(f"\n{digest} {path}" for path, digest in files)
    return hashlib.sha256((text.replace("\r\n", "\n") + lines).encode()).hexdigest()


# ── sections ────────────────────────────────────────────────────────────────────────────────────────────────────────


def end_mark(workflow_id: str) -> str:
    return f"<!-- workflowlookup end of {workflow_id} -->\n"


def section_of(text: str, workflow_id: str) -> str:
    """The section of a workflow with both marks; empty if there is none. Raises `BrokenSection`."""
    starts = [mark.start() for mark in _MARK.finditer(text) if mark["workflow"] == workflow_id]
    if not starts:
        return ""
    if len(starts) > 1:
        raise BrokenSection(f"it has two sections of '{workflow_id}'")
    end = re.compile(rf"^{re.escape(end_mark(workflow_id).rstrip())}\r?(?:\n|\Z)", re.MULTILINE).search(text, starts[0])
    if end is None:
        raise BrokenSection(f"its section of '{workflow_id}' has no end")
    return text[starts[0] : end.end()]


def with_section(text: str, before: str, section: str) -> str:
    """The text with a section in place of `before`, or at its end; everything else stays as it is."""
    if "\r\n" in text:
        section = section.replace("\n", "\r\n")
    if before:
        return text.replace(before, section, 1)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return text + gap + section
