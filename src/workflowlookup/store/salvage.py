"""Salvages a damaged journal: sets the file aside under another name, and copies what can be read into a new one.

One process at a time does this, holding the lock of the journal. It first writes a note of what it is about to do. If
it is killed, the next process that opens the journal finds the note and finishes: the new journal appears whole or not
at all.

Copied are runs, tokens and names of tools. Records and documents are enough to rebuild a run, and each run is folded
before it counts as saved; the hashes of its events are copied, and checked. A run with missing or changed records is
copied too: it is listed, but refused as damaged, because repeating its last steps could repeat what must happen only
once.
"""

import contextlib
import itertools
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.errors import RunDamaged, RunStateError, StorageError
from workflowlookup.runs.fold import apply, fold
from workflowlookup.runs.run import Run
from workflowlookup.runs.run_document import hash_of
from workflowlookup.store.journal import DamagedJournal, now, summarise
from workflowlookup.store.sql import SqlJournal, Transaction
from workflowlookup.store.sqlite_pages import Pages, Row

log = logging.getLogger(__name__)

SIDE_FILES: Final = ("", "-wal", "-shm")
_INFIX: Final = ".corrupt-"
_REPORT: Final = ".txt"
_MAX_NOTE_BYTES: Final = 1 << 16

_TEXT: Final = (str,)
_NUMBER: Final = (int,)
_TEXT_OR_NULL: Final = (str, type(None))
_NUMBER_OR_NULL: Final = (int, type(None))


class TableShape(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of a table are recognised: the kind of tree, the columns and their types."""

    is_index: bool
    columns: Mapping[str, tuple[type, ...]]
    added: int = 0
    """How many of the columns, at the end, are missing in rows that an older version wrote."""

    @property
    def first_columns(self) -> Sequence[str]:
        """The columns that rows of all versions have."""
        return list(self.columns)[: len(self.columns) - self.added]

    def matches(self, row: Row) -> bool:
        return (
            row.is_index == self.is_index
            and len(self.first_columns) <= len(row.values) <= len(self.columns)
            and all(map(isinstance, row.values, self.columns.values()))
        )


SHAPES: Final[Mapping[str, TableShape]] = {
    "events": TableShape(
        is_index=True,
        columns={
            "run": _TEXT,
            **dict.fromkeys(("sequence", "time"), _NUMBER),
            **dict.fromkeys(("who", "kind", "body"), _TEXT),
            "hash": _TEXT_OR_NULL,
        },
        added=1,
    ),
    "runs": TableShape(
        is_index=True,
        columns={
            **dict.fromkeys(("id", "workflow_id", "version", "hash"), _TEXT),
            **dict.fromkeys(("started", "updated"), _NUMBER),
            "state": _TEXT,
            "waiting_for": _TEXT_OR_NULL,
            "step": _TEXT,
            "done": _NUMBER,
            **dict.fromkeys(("total", "deadline"), _NUMBER_OR_NULL),
            "sequence": _NUMBER,
            "hashed": _NUMBER_OR_NULL,
            "head": _TEXT_OR_NULL,
            **dict.fromkeys(("proved", "proofs"), _NUMBER_OR_NULL),
            **dict.fromkeys(("root", "session", "name", "subject", "title", "who"), _TEXT_OR_NULL),
            **dict.fromkeys(("since", "attempts", "paused"), _NUMBER_OR_NULL),
        },
        added=13,
    ),
    "documents": TableShape(is_index=False, columns={"hash": _TEXT, "document": _TEXT}),
    "tokens": TableShape(
        is_index=False,
        columns={
            **dict.fromkeys(("id", "name", "hash", "kind", "scopes", "workflows"), _TEXT),
            "created": _NUMBER,
            **dict.fromkeys(("expires", "revoked"), _NUMBER_OR_NULL),
            "maker": _TEXT,
        },
    ),
    "tool_names": TableShape(is_index=True, columns={"provider": _TEXT, "workflow": _TEXT, "name": _TEXT}),
}
"""The tables whose rows are copied, with their columns in storage order."""

NOT_COPIED: Final = frozenset(
    {"console_sessions", "document_copies", "freed_names", "levels", "news", "notices", "remembered", "secrets"}
    | {"session_addresses", "sessions"}
)
"""Tables that are derived from others, that every new journal fills by itself, that only PostgreSQL uses, or that are
dispensable.
"""

_ADD: Final = {
    table: f"INSERT INTO {table} ({', '.join(shape.columns)}) VALUES ({', '.join('?' * len(shape.columns))}) "  # noqa: S608 - our own names
    "ON CONFLICT DO NOTHING"
    for table, shape in SHAPES.items()
}
_HASH: Final = re.compile("[0-9a-f]{64}")


class SalvageResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a salvage."""

    saved: int
    """Runs that are complete."""
    damaged: Mapping[str, str]
    """By id: runs with missing records, and what is left of each."""
    lost: Sequence[str]
    """Runs of which too little is left to list them."""
    revoked: int
    """Tokens that were revoked because their revocation may have been lost."""
    rehashed: int
    """Saved runs whose last hash was not recorded any more: removed events at their end would not show."""
    unreadable: int
    """Pages of the file that are missing or cannot be read."""

    @property
    def report(self) -> str:
        """A first line without ids, which everybody may see, and a line for each run that is not complete."""
        total = self.saved + len(self.damaged) + len(self.lost)
        counts = {
            "damaged in part": len(self.damaged),
            "lost": len(self.lost),
            "tokens revoked": self.revoked,
            "last hashes computed again": self.rehashed,
        }
        more = "".join(f", {words}: {count}" for words, count in counts.items() if count)
        is_guess = self.unreadable > 1
        if is_guess:  # a run is on at least two pages, one with its summary and one with its events
            more += f"; {self.unreadable} pages of the file are missing or cannot be read: more runs may be lost"
        lines = [f"{self.saved} of {total} runs{' that are known' * is_guess} were saved into a new journal{more}"]
        lines += [f"damaged in part: {run_id} ({rest})" for run_id, rest in self.damaged.items()]
        lines += [f"lost: {run_id}" for run_id in self.lost]
        return "\n".join(lines)


def copy_readable(path: str, target: SqlJournal) -> SalvageResult:
    """Copy what can be read of a damaged file, which is not changed, into a new, empty journal."""
    saved, rehashed, damaged, lost = 0, 0, {}, []
    with Pages(path) as pages, target.writing() as transaction:
        revoked = _copy(pages, transaction)
        for (run_id,) in target.query("SELECT run FROM events UNION SELECT id FROM runs ORDER BY 1"):
            run, last, problem = _fold(target, run_id)
            revision = target.revision(run_id)
            head = revision and revision.sequence
            if run is not None and revision is not None and revision.hashed == run.sequence and not revision.is_of(run):
                problem, run = problem or "its events are not those of its last hash", None
            # Without its summary the end of a run is unknown, unless nothing else is lost.
            is_end_known = head is not None or pages.unreadable <= 1
            if run is not None and run.rests and is_end_known and run.sequence == last >= (head or 0):
                saved += 1
                rehashed += revision is None or not revision.hashed
                _replace_summary(transaction, run, run.sequence)
            elif run is None and head is None:
                lost.append(run_id)
                transaction.execute("DELETE FROM events WHERE run = ?", (run_id,))
            else:
                if run is not None and head is None:
                    _replace_summary(transaction, run, max(last, run.sequence + 1))
                ((count,),) = target.query("SELECT COUNT(*) FROM events WHERE run = ?", (run_id,))
                total = max(last, head or 0)
                problem = problem or "its last events may be lost"
                damaged[run_id] = problem if count == total else f"{count} of {total} events are left"
    return SalvageResult(
        saved=saved, damaged=damaged, lost=lost, revoked=revoked, rehashed=rehashed, unreadable=pages.unreadable
    )


def has_journal_rows(path: str) -> bool:
    """Whether any row in a file, whatever file it is, looks like one of a journal."""
    with Pages(path) as pages:
        return any(_table_of(row) for row in pages.rows())


def _table_of(row: Row) -> str | None:
    return next((table for table, shape in SHAPES.items() if shape.matches(row)), None)


def _copy(pages: Pages, transaction: Transaction) -> int:
    """Copy all rows that look like ours; returns how many tokens were revoked."""
    tokens: dict[str, dict[str, Any]] = {}
    names: set[tuple[Any, ...]] = set()
    for row in pages.rows():
        table = _table_of(row)
        if table is None:
            continue
        values = (*row.values, *[None] * (len(SHAPES[table].columns) - len(row.values)))
        columns = dict(zip(SHAPES[table].columns, values, strict=True))
        if table == "tool_names":
            names.add(row.values)
        elif table == "tokens":
            if _HASH.fullmatch(columns["hash"]) and not tokens.get(columns["id"], {}).get("revoked"):
                tokens[columns["id"]] = columns
        elif table != "documents" or hash_of(columns["document"].encode()) == columns["hash"]:
            transaction.execute(_ADD[table], values)
    transaction.execute("INSERT INTO document_copies SELECT hash, document FROM documents")
    transaction.executemany(_ADD["tool_names"], sorted(_tool_names(names)))
    transaction.executemany(_ADD["tokens"], [tuple(token.values()) for token in tokens.values()])
    if not pages.is_log_damaged:
        return 0
    return transaction.execute("UPDATE tokens SET revoked = ? WHERE revoked IS NULL", (now(),)).rowcount


def _tool_names(rows: set[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
    """The rows of the table, without those of its index by name, which has the same columns in another order."""
    return ((provider, workflow, name) for provider, workflow, name in rows if (name, provider, workflow) in rows)


def _fold(journal: SqlJournal, run_id: str) -> tuple[Run | None, int, str]:
    """The run as far as its records can be folded, the sequence of its last record, and the error that stopped it."""
    ((last,),) = journal.query("SELECT COALESCE(MAX(sequence), 0) FROM events WHERE run = ?", (run_id,))
    run, problem = None, ""
    try:
        for record in journal.read(run_id):
            run = fold(run_id, [record]) if run is None else apply(run, record)
    except (RunStateError, StorageError) as refusal:
        problem = (refusal.problem if isinstance(refusal, RunDamaged) else refusal.remedy).rstrip(".")
    return run, int(last), problem


def _replace_summary(transaction: Transaction, run: Run, sequence: int) -> None:
    """Replace the summary of a run. If its records end before `sequence`, the run is refused as damaged."""
    summary = msgspec.structs.asdict(msgspec.structs.replace(summarise(run), sequence=sequence))
    row = summary | {"hashed": run.sequence, "head": run.head, "root": run.root, "session": run.client_session}
    transaction.execute("DELETE FROM runs WHERE id = ?", (run.id,))
    transaction.execute(_ADD["runs"], [row[column] for column in SHAPES["runs"].columns])


# ── the files ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Note(msgspec.Struct, frozen=True):
    """A salvage that was begun: the new name of the file, and the reason. Stored as JSON."""

    aside: str
    reason: str


def find_damaged_journals(path: str) -> list[DamagedJournal]:
    """The damaged files beside a journal that were set aside."""
    directory, name = os.path.split(path)
    try:
        names = sorted(file for file in os.listdir(directory) if file.startswith(name + _INFIX))
    except OSError:
        return []
    files = [file for file in names if not file.endswith((*SIDE_FILES[1:], _REPORT))]
    return [_damaged_journal(os.path.join(directory, file)) for file in files]


def _damaged_journal(file: str) -> DamagedJournal:
    try:
        with open(file + _REPORT, encoding="utf-8") as report:
            outcome, *details = report.read().splitlines() or [""]
    except (OSError, UnicodeDecodeError):  # set aside by an older version, or by hand
        return DamagedJournal(file=file)
    return DamagedJournal(file=file, outcome=outcome, details=tuple(details))


def begin_salvage(path: str, reason: str) -> None:
    """Write the note; `finish_salvage` does the rest."""
    name = f"{path}{_INFIX}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
    names = (f"{name}-{number}" if number else name for number in itertools.count())
    aside = next(name for name in names if not os.path.lexists(name))
    _write(_note_path(path), msgspec.json.encode(_Note(aside, reason)))


def is_salvage_begun(path: str) -> bool:
    return os.path.lexists(_note_path(path))


def finish_salvage(
    path: str, open_journal: Callable[[str], SqlJournal], wait_for_writers: Callable[[], None]
) -> DamagedJournal:
    """Set the file aside and replace it by what can be saved, from wherever that was interrupted.

    Raises `StorageError` and `OSError`, such as for a full disk; nothing is lost, and the next call continues.
    """
    note = _read_note(path)
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
    return _damaged_journal(note.aside)


def _replace(path: str, note: _Note, open_journal: Callable[[str], SqlJournal]) -> str:
    new = f"{path}.salvaged"
    _remove_unfinished(new)
    journal = open_journal(new)
    try:
        outcome = copy_readable(note.aside, journal).report
    except (StorageError, OSError):
        _remove_unfinished(new)
        raise
    except Exception:  # broad on purpose: the damaged file stays, and an empty journal is better than none
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


def _read_note(path: str) -> _Note:
    """The note. Only a name beside the journal counts: the owner of the directory must not choose where files go."""
    with open(_note_path(path), "rb") as file:
        content = file.read(_MAX_NOTE_BYTES)
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        note = msgspec.json.decode(content, type=_Note)
        directory, name = os.path.split(path)
        aside = os.path.basename(note.aside)
        if aside.startswith(name + _INFIX):
            return _Note(os.path.join(directory, aside), note.reason)
    message = f"{_note_path(path)} does not say where the damaged journal is to be kept. Delete it to go on."
    raise StorageError(message, path=path, details=message)


def _write(path: str, content: bytes) -> None:
    """Write a file durably, whole or not at all. Links at the paths that it uses are replaced, not followed."""
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.remove(new)
    with open(new, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)
    sync_directory(path)


def _remove_unfinished(journal: str) -> None:
    for suffix in (*SIDE_FILES, ".lock", ".reserve"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(journal + suffix)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Make the names in the directory of a file durable."""
    _sync(os.path.dirname(path))
