"""Drafts: outputs that a person has written but not submitted, stored in files so that Ctrl-C loses nothing.

A draft belongs to one step of one run in one journal. It is removed when it is submitted. The file is text for an
editor: the output, a scissors line, and below it what is not part of the output.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.atomic import replace_file
from workflowlookup.errors import StorageError
from workflowlookup.language.values import Json
from workflowlookup.store.journal_url import JournalUrl

SCISSORS: Final = "# ------------------------ >8 ------------------------"
BELOW: Final = "# This line and all lines below it are ignored. Save an empty file to leave the run as it is."
_VARIABLES: Final = "# Variables: "
_UNSAFE_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9@._-]+")


class OutputDraft(msgspec.Struct, frozen=True):
    """An unfinished output, and the variables that were set with it."""

    text: str = ""
    changes: dict[str, Json] = {}


class Drafts:
    """The drafts of one run."""

    def __init__(self, journal: str, run_id: str, environment: Mapping[str, str] = os.environ) -> None:
        self._directory = _directory(environment)
        self._prefix = _prefix(journal, run_id)

    def load(self, step_id: str) -> OutputDraft:
        """The draft of a step, or an empty one. Raises `StorageError` when it cannot be read."""
        path = self.path(step_id)
        try:
            with open(path, encoding="utf-8", errors="replace", newline="") as file:
                return _parse(file.read())
        except FileNotFoundError:
            return OutputDraft()
        except OSError as problem:
            raise StorageError(f"The draft {path} cannot be read: {problem.strerror}.", file=path) from problem

    def save(self, step_id: str, draft: OutputDraft, notes: Iterable[str] = ()) -> str:
        """Store a draft that only the user can read. Returns the path of the file. Raises `StorageError`."""
        path = self.path(step_id)
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            replace_file(path, "\n".join([*_lines(draft), *notes, ""]).encode(errors="replace"))
        except OSError as problem:
            reason = f"What you have written cannot be saved in {path}: {problem.strerror}"
            raise StorageError(f"{reason}. Submit it, or copy it elsewhere.", file=path) from problem
        return path

    def drop(self, step_id: str) -> None:
        """Delete the draft of a step."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(step_id))

    def path(self, step_id: str) -> str:
        """The file of a step's draft. Its name is readable and unique."""
        return os.path.join(self._directory, f"{self._prefix}{_name(step_id, step_id)}.md")


def delete_drafts(journal: str, run_ids: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Delete the drafts of deleted runs."""
    directory = _directory(environment)
    with contextlib.suppress(OSError):
        files = os.listdir(directory)
        prefixes = tuple(_prefix(journal, run_id) for run_id in run_ids) if files else ()
        for file in files:
            if file.startswith(prefixes):
                os.unlink(os.path.join(directory, file))


def _directory(environment: Mapping[str, str]) -> str:
    state = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "workflowlookup", "drafts")


def _prefix(journal: str, run_id: str) -> str:
    """The prefix of the file names of a run's drafts."""
    identity = "\0".join((JournalUrl(journal).identity, run_id))
    return f"{_name(run_id, identity)}."


def _name(words: str, identity: str) -> str:
    """A part of a file name: readable text, and a digest that makes it unique."""
    digest = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{_UNSAFE_IN_NAMES.sub('_', words)[:60]}-{digest}"


def _lines(draft: OutputDraft) -> Iterator[str]:
    yield draft.text
    yield SCISSORS
    yield BELOW
    if draft.changes:
        yield _VARIABLES + msgspec.json.encode(draft.changes).decode()


def _parse(content: str) -> OutputDraft:
    text, _, below = content.partition(SCISSORS)
    changes: dict[str, Json] = {}
    for line in below.splitlines():
        if line.startswith(_VARIABLES):
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                changes = msgspec.json.decode(line.removeprefix(_VARIABLES), type=dict[str, Json])
            break
    return OutputDraft(text.removesuffix("\n"), changes)
