"""Damaged journal files: kept beside the journal under another name, and replaced by what could be saved of them.

Everything here is done by one process at a time, behind the lock of the journal. A process that is killed in the
middle leaves a note of what it had begun, and the next one that opens the journal finishes it: a journal comes back
whole or not at all.
"""

import contextlib
import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable
from typing import Final

import msgspec

from workflowlookup.errors import StorageError
from workflowlookup.store.journal import SetAside
from workflowlookup.store.salvage import salvage
from workflowlookup.store.sql import SqlJournal

log = logging.getLogger(__name__)

SIDE_FILES: Final = ("", "-wal", "-shm")
_INFIX: Final = ".corrupt-"
_REPORT: Final = ".txt"


class _Note(msgspec.Struct, frozen=True):
    """What was begun: the name that the file gets, and why."""

    aside: str
    reason: str


def files_set_aside(path: str) -> list[SetAside]:
    """The damaged files that are still kept beside a journal."""
    directory, name = os.path.split(path)
    try:
        found = sorted(entry for entry in os.listdir(directory) if entry.startswith(name + _INFIX))
    except OSError:
        return []
    files = [entry for entry in found if not entry.endswith((*SIDE_FILES[1:], _REPORT))]
    return [_set_aside(os.path.join(directory, file)) for file in files]


def _set_aside(file: str) -> SetAside:
    try:
        with open(file + _REPORT, encoding="utf-8") as report:
            outcome, *details = report.read().splitlines() or [""]
    except (OSError, UnicodeDecodeError):  # set aside by an older version, or by hand
        return SetAside(file=file)
    return SetAside(file=file, outcome=outcome, details=tuple(details))


def begin(path: str, reason: str) -> None:
    """Note that the file is to be set aside; `finish` does it."""
    name = f"{path}{_INFIX}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
    names = (f"{name}-{number}" if number else name for number in itertools.count())
    aside = next(name for name in names if not os.path.lexists(name))
    _write(_note_path(path), msgspec.json.encode(_Note(aside, reason)))


def is_begun(path: str) -> bool:
    return os.path.lexists(_note_path(path))


def finish(path: str, open_journal: Callable[[str], SqlJournal], wait_for_writers: Callable[[], None]) -> SetAside:
    """Set the file aside and put what can be saved in its place, from wherever that was interrupted.

    Returns what is kept, and what was saved of it. Raises `StorageError` and `OSError` when there is no room for
    it; nothing is lost by that, and the next call goes on.
    """
    with open(_note_path(path), "rb") as file:
        note = msgspec.json.decode(file.read(), type=_Note)
    if os.path.lexists(path) and not os.path.lexists(note.aside):
        os.rename(path, note.aside)
    if not os.path.lexists(path):
        for suffix in SIDE_FILES[1:]:
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + suffix, note.aside + suffix)
        wait_for_writers()
        log.warning("%s is damaged (%s): saving what can be read of it", path, note.reason)
        outcome = _replace(path, note, open_journal)
        report = "; ".join(outcome.splitlines())
        log.error("%s was damaged (%s) and is kept as %s: %s", path, note.reason, note.aside, report)
    _remove_unfinished(f"{path}.salvaged")
    os.remove(_note_path(path))
    return _set_aside(note.aside)


def _replace(path: str, note: _Note, open_journal: Callable[[str], SqlJournal]) -> str:
    new = f"{path}.salvaged"
    _remove_unfinished(new)
    journal = open_journal(new)
    try:
        outcome = salvage(note.aside, journal).report
    except (StorageError, OSError):
        _remove_unfinished(new)
        raise
    except Exception:  # broad on purpose: the file is kept, and a new journal is better than none
        log.exception("nothing could be saved of %s", note.aside)
        outcome = "nothing of it could be saved into the new journal"
        _remove_unfinished(new)
        journal.upgrade()
    finally:
        journal.close()
    _write(note.aside + _REPORT, outcome.encode())
    shutil.copymode(note.aside, new)
    _sync(new)
    os.rename(new, path)
    sync_directory(path)
    return outcome


def _note_path(path: str) -> str:
    return f"{path}.salvaging"


def _write(path: str, content: bytes) -> None:
    """Have a file on the disk, whole or not at all."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    sync_directory(path)


def _remove_unfinished(journal: str) -> None:
    for suffix in (*SIDE_FILES, ".lock", ".reserve"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(journal + suffix)


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_directory(path: str) -> None:
    """Have the names in the directory of a file on the disk."""
    _sync(os.path.dirname(path))
