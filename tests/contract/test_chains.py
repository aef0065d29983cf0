"""The hash chain of a run, on every journal: what is changed behind the back of the program is named."""

import hashlib
import json
from collections.abc import Callable, Sequence

import pytest

from contract.journaling import Store, append, begin, submit
from support.make import document, step
from workflowlookup.errors import RunDamaged
from workflowlookup.language.document.building import build
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Moment
from workflowlookup.store.journal import Conflict, Revision
from workflowlookup.store.service import Runs
from workflowlookup.store.sql import SqlJournal

Tampering = Callable[[SqlJournal], object]
RUN = "the-run"
OTHER = "the-other"
COLUMNS = "run, sequence, time, who, kind, body, hash"


@pytest.fixture
def journal(store: Store[SqlJournal]) -> SqlJournal:
    """A journal with two runs of eight events each, which wait for the output of their last step."""
    journal = store.open()
    for run_id in (RUN, OTHER):
        run = begin(journal, run_id).run
        for output in ("first", "second"):
            run = submit(journal, run, output=output).run
    return journal


def runs_of(journal: SqlJournal) -> Runs:
    """The runs of a journal for a process that has just started, before any deadline."""
    return Runs(journal, clock=lambda: 3_000)


def change(journal: SqlJournal, *statements: str) -> None:
    """Change the tables as somebody with the file or the database, but without this program, would."""
    journal.write(*((statement, ()) for statement in statements))


def shifted(first: int, by: int) -> list[str]:
    """Renumber the events from one on, so that a gap closes or opens."""
    far = 1_000
    return [
        f"UPDATE events SET sequence = sequence + {far} WHERE run = '{RUN}' AND sequence >= {first}",
        f"UPDATE events SET sequence = sequence - {far - by} WHERE run = '{RUN}' AND sequence >= {far}",
        f"UPDATE runs SET sequence = sequence + {by} WHERE id = '{RUN}'",
    ]


def copied(source: str, number: int, target: int, digest: str = "hash") -> str:
    """Copy an event of a run to a free sequence of the run."""
    return (
        f"INSERT INTO events ({COLUMNS}) SELECT '{RUN}', {target}, time, who, kind, body, {digest} "
        f"FROM events WHERE run = '{source}' AND sequence = {number}"
    )


def swapped(one: int, two: int) -> list[str]:
    """Exchange two events with their hashes."""
    return [
        f"UPDATE events SET sequence = 999 WHERE run = '{RUN}' AND sequence = {one}",
        f"UPDATE events SET sequence = {one} WHERE run = '{RUN}' AND sequence = {two}",
        f"UPDATE events SET sequence = {two} WHERE run = '{RUN}' AND sequence = 999",
    ]


HERE = f"WHERE run = '{RUN}' AND sequence ="
TAMPERING: dict[str, tuple[Sequence[str], str]] = {
    "an output is edited": (
        [f"UPDATE events SET body = replace(body, 'second', 'better') {HERE} 6"],
        "Event 6 of run 'the-run' was changed after it was written",
    ),
    "who did it is edited": ([f"UPDATE events SET who = 'judge' {HERE} 3"], "Event 3 of run 'the-run' was changed"),
    "the time is edited": ([f"UPDATE events SET time = time + 1 {HERE} 4"], "Event 4 of run 'the-run' was changed"),
    "an event and its hash are edited": (
        [f"UPDATE events SET body = replace(body, 'first', 'First'), hash = '{'0' * 64}' {HERE} 3"],
        "Event 3 of run 'the-run' was changed",
    ),
    "an event is edited and its hash removed": (
        [f"UPDATE events SET body = replace(body, 'first', 'First'), hash = NULL {HERE} 3"],
        "One of the events 3 to 4 of run 'the-run' was changed",
    ),
    "an event is removed": ([f"DELETE FROM events {HERE} 4"], "event 4 was removed after it was written"),
    "the first event is removed": ([f"DELETE FROM events {HERE} 1"], "event 1 was removed after it was written"),
    "an event is removed and the gap closed": (
        [f"DELETE FROM events {HERE} 4", *shifted(5, -1)],
        "Event 4 of run 'the-run' was changed",
    ),
    "two events are exchanged": (swapped(3, 6), "Event 3 of run 'the-run' was changed"),
    "an event is inserted": (
        [*shifted(4, 1), copied(RUN, 3, 4)],
        "Event 4 of run 'the-run' was changed",
    ),
    "an event without a hash is inserted": (
        [*shifted(4, 1), copied(RUN, 3, 4, "NULL")],
        "One of the events 4 to 5 of run 'the-run' was changed",
    ),
    "an event of another run takes the place of one": (
        [f"DELETE FROM events {HERE} 6", copied(OTHER, 6, 6)],
        "Event 6 of run 'the-run' was changed",
    ),
    "the last events are removed": (
        [f"DELETE FROM events WHERE run = '{RUN}' AND sequence > 5"],
        "event 6 was removed after it was written",
    ),
    "the last events are removed and no longer counted": (
        [
            f"DELETE FROM events WHERE run = '{RUN}' AND sequence > 5",
            f"UPDATE runs SET sequence = 5 WHERE id = '{RUN}'",
        ],
        "event 6 was removed after it was written",
    ),
    "an event is added and not counted": (
        [copied(RUN, 6, 9, "NULL"), f"UPDATE events SET body = replace(body, 'two', 'three') {HERE} 9"],
        "The summary of run 'the-run' in the journal does not match its events: it counts 8 events, and there are 9",
    ),
    "all hashes of the events are removed and one edited": (
        [f"UPDATE events SET hash = NULL WHERE run = '{RUN}'", f"UPDATE events SET who = 'judge' {HERE} 3"],
        "does not match its events: one of them was changed after it was written",
    ),
    "the last hash of the run is edited": (
        [f"UPDATE runs SET head = '{'0' * 64}' WHERE id = '{RUN}'"],
        "does not match its events",
    ),
    "the document is edited": (
        [
            f"UPDATE {table} SET document = replace(document, 'Title one', 'Title 1')"
            for table in ("documents", "document_copies")
        ],
        "The document of run 'the-run' is not what it was when the run was started",
    ),
}


@pytest.mark.parametrize("case", TAMPERING)
def test_what_was_changed_is_named_and_the_run_cannot_go_on(
    store: Store[SqlJournal], journal: SqlJournal, case: str
) -> None:
    statements, problem = TAMPERING[case]
    change(journal, *statements)
    runs = runs_of(store.open())

    for use in (
        lambda: runs.get(RUN),
        lambda: runs.history(RUN),
        lambda: runs.submit(RUN, "three", "third", {}),
        lambda: runs.cancel(RUN),
    ):
        with pytest.raises(RunDamaged) as refused:
            use()
        assert problem in refused.value.problem
        assert "cannot go on" in refused.value.remedy
    damaged = {summary.id: what for summary, what in runs.damaged_runs()}
    assert problem in damaged[RUN]
    assert set(damaged) == ({RUN} if "document" not in case else {RUN, OTHER})


def test_a_run_with_another_document_is_named_even_if_the_document_is_a_stored_one(
    store: Store[SqlJournal], journal: SqlJournal
) -> None:
    other = begin(journal, "third", workflow=build(document(step("one"), step("other")))).run
    change(
        journal,
        f"UPDATE events SET body = (SELECT body FROM events WHERE run = 'third' AND sequence = 1) {HERE} 1",
        f"UPDATE runs SET hash = '{other.hash}' WHERE id = '{RUN}'",
    )

    with pytest.raises(RunDamaged, match="Event 1 of run 'the-run' was changed after it was written"):
        runs_of(store.open()).get(RUN)


def test_a_whole_run_cannot_get_another_id(store: Store[SqlJournal], journal: SqlJournal) -> None:
    change(
        journal,
        f"UPDATE events SET run = 'renamed' WHERE run = '{RUN}'",
        f"UPDATE runs SET id = 'renamed' WHERE id = '{RUN}'",
    )

    with pytest.raises(RunDamaged, match="Event 1 of run 'renamed' was changed after it was written"):
        runs_of(store.open()).get("renamed")


def test_the_hash_of_an_event_is_what_the_documentation_says(journal: SqlJournal) -> None:
    head = ""
    for sequence, at, by, digest, body in journal.query(
        f"SELECT sequence, time, who, hash, body FROM events WHERE run = '{RUN}' ORDER BY sequence"
    ):
        text = json.dumps([head, RUN, sequence, at, by, body], ensure_ascii=False, separators=(",", ":"))
        head = hashlib.sha256(text.encode()).hexdigest()
        assert digest == head

    run = runs_of(journal).get(RUN)
    assert (run.sequence, run.head) == (8, head)
    assert journal.revision(RUN) == Revision(8, run.started, run.hash, 8, head)


def test_a_run_that_is_cached_is_checked_from_there_on(store: Store[SqlJournal], journal: SqlJournal) -> None:
    runs, others = runs_of(store.open()), runs_of(store.open())
    runs.get(RUN)
    others.submit(RUN, "three", "third", {})
    change(journal, f"UPDATE events SET time = time + 1 {HERE} 9")

    with pytest.raises(RunDamaged, match="Event 9 of run 'the-run' was changed after it was written"):
        runs.get(RUN)


def test_a_run_that_was_deleted_and_came_back_is_another_one_for_who_has_the_old(
    store: Store[SqlJournal], journal: SqlJournal
) -> None:
    runs, others = runs_of(store.open()), runs_of(store.open())
    old = runs.get(RUN)
    records = others.history(RUN)
    others.delete(RUN)
    assert others.import_run(RUN, records, "a file")

    assert runs.submit(RUN, "three", "third", {}).state == "completed"
    assert others.get(RUN) == runs_of(store.open()).get(RUN) != old
    with pytest.raises(Conflict):
        append(journal, old.sequence, advance.submit(old, "three", "late", {}, Moment(time=9_000)))


# ── older versions ──────────────────────────────────────────────────────────────────────────────────────────────


def as_before(journal: SqlJournal, run_id: str, after: int = 0) -> None:
    """Make events look as if a version without hashes had written them."""
    change(
        journal,
        f"UPDATE events SET hash = NULL WHERE run = '{run_id}' AND sequence > {after}",
        f"UPDATE runs SET hashed = {after or 'NULL'}, "
        f"head = (SELECT hash FROM events WHERE run = '{run_id}' AND sequence = {after}) WHERE id = '{run_id}'",
    )


def test_events_without_hashes_are_covered_by_the_next_one_that_is_stored(
    store: Store[SqlJournal], journal: SqlJournal
) -> None:
    for after in (4, 0):
        as_before(journal, RUN, after)
        before = runs_of(store.open()).get(RUN)
        assert (before.sequence, len(before.head)) == (8, 64)

    runs_of(store.open()).submit(RUN, "three", "third", {})

    assert runs_of(store.open()).get(RUN).state == "completed"
    change(journal, f"UPDATE events SET who = 'judge' {HERE} 3")
    with pytest.raises(RunDamaged, match="One of the events 1 to 9 of run 'the-run' was changed after it was written"):
        runs_of(store.open()).get(RUN)


def test_a_later_slice_with_a_change_names_the_events_back_to_the_last_hash(
    store: Store[SqlJournal], journal: SqlJournal
) -> None:
    as_before(journal, RUN, 2)
    change(journal, f"UPDATE events SET hash = '{'0' * 64}' {HERE} 8")
    head = journal.read(RUN, 0, 5)[-1].hash

    with pytest.raises(RunDamaged, match="One of the events 3 to 8 of run 'the-run' was changed"):
        journal.read(RUN, 5, 5, head)
    assert [record.hash for record in journal.read(RUN, 5)] == ["", "", "0" * 64], "unchecked without the hash before"
