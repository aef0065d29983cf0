"""The service: events are stored before they are reported, repeated and concurrent calls are recognized."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.clocks import TickingClock
from support.make import document, long_run, step
from support.narrowing import instance_of
from workflowlookup.errors import InvalidParams, RunNotFound, RunStateError, StorageError
from workflowlookup.language.document.building import build
from workflowlookup.runs.events import kind_of
from workflowlookup.runs.fold import fold
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.store.journal import RunQuery, summarise
from workflowlookup.store.run_cache import MAX_FOLDED, SLICE
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

LONG = [{"type": "length", "min": 5, "message": "Too short."}]
TWO = build(document(step("one", validationCriteria=LONG), step("two")))
HELD = build(document(step("one", requireConfirmation=True), step("two")))


def kinds(runs: Runs, run_id: str) -> list[str]:
    return [kind_of(record.event) for record in runs.history(run_id)]


def test_another_process_reads_what_was_acknowledged(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    run = runs.start(TWO, {"ticket": "T-1"}, {"size": 2}, by="editor")
    run = runs.submit(run.id, "one", "long enough", {"risk": "low"}, by="editor")

    assert open_runs().get(run.id) == run
    assert [record.by for record in runs.history(run.id)] == ["editor"] * 5
    assert run.context == {"ticket": "T-1", "size": 2, "risk": "low"}


def test_a_run_equals_the_fold_of_its_journal_after_every_call(runs: Runs) -> None:
    run = runs.start(HELD, {}, {})
    calls: list[Callable[[], Run]] = [
        lambda: runs.submit(run.id, "one", " ", {}),
        lambda: runs.submit(run.id, "one", "done", {}),
        lambda: runs.deny(run.id, note="no", how="console"),
        lambda: runs.submit(run.id, "one", "done", {}),
        lambda: runs.confirm(run.id, how="console"),
        lambda: runs.cancel(run.id, "enough"),
    ]
    for call in calls:
        assert call() == fold(run.id, runs.history(run.id)) == runs.get(run.id)


# ── the same call again ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_repeated_submission_returns_the_current_run_and_records_nothing(
    runs: Runs, open_runs: Callable[..., Runs]
) -> None:
    run_id = runs.start(TWO, {}, {}).id
    runs.submit(run_id, "one", "no", {"a": 1})
    runs.submit(run_id, "one", "long enough", {})
    completed = runs.submit(run_id, "two", "done", {})
    before = kinds(runs, run_id)

    for service in (runs, open_runs()):
        assert service.submit(run_id, "one", "no", {"a": 1}) == completed
        assert service.submit(run_id, "one", "long enough", {}) == completed
        assert service.submit(run_id, "two", "done", {}) == completed
    assert kinds(runs, run_id) == before


def test_after_a_denial_the_same_output_counts_as_new(runs: Runs) -> None:
    run_id = runs.start(HELD, {}, {}).id
    runs.submit(run_id, "one", "done", {})
    runs.deny(run_id, "one", note="no", how="console")

    assert runs.submit(run_id, "one", "done", {}).waiting_for is Waiting.CONFIRMATION
    assert kinds(runs, run_id).count("output-accepted") == 2


def test_a_repeated_answer_returns_the_same_run_until_the_next_question(runs: Runs) -> None:
    run_id = runs.start(HELD, {}, {}).id
    runs.submit(run_id, "one", "done", {})
    denied = runs.deny(run_id, "one", note="no", how="console")
    assert runs.deny(run_id, "one", note="no", how="console") == denied
    runs.submit(run_id, "one", "done", {})
    assert runs.deny(run_id, "one", note="no", how="console").sequence > denied.sequence
    runs.submit(run_id, "one", "better", {})

    given = runs.confirm(run_id, "one", how="console")

    assert runs.confirm(run_id, "one", how="console") == given
    with pytest.raises(RunStateError):
        runs.deny(run_id, "one", how="console")


def test_a_cancelled_run_is_cancelled_once(runs: Runs) -> None:
    run_id = runs.start(TWO, {}, {}).id
    cancelled = runs.cancel(run_id, "not needed")

    assert runs.cancel(run_id, "another reason") == cancelled
    assert kinds(runs, run_id).count("cancelled") == 1


def test_a_start_with_an_id_is_repeated_without_harm(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    first = runs.start(TWO, {"a": 1}, {"b": 2}, run_id="mine")
    assert open_runs().start(TWO, {"a": 1}, {"b": 2}, run_id="mine") == first
    moved = runs.submit("mine", "one", "long enough", {"b": 3})

    assert runs.start(TWO, {"a": 1}, {"b": 2}, run_id="mine") == moved
    with pytest.raises(RunStateError, match="started with other values"):
        runs.start(TWO, {"a": 2}, {"b": 2}, run_id="mine")
    with pytest.raises(RunStateError, match="started with other values"):
        runs.start(build(document(identifier="another-one")), {"a": 1}, {"b": 2}, run_id="mine")


def test_a_random_id_that_exists_is_drawn_again(open_runs: Callable[..., Runs]) -> None:
    ids = iter(["same", "same", "other"])
    runs = open_runs(new_id=lambda: next(ids))

    assert [runs.start(TWO, {}, {}).id, runs.start(TWO, {}, {}).id] == ["same", "other"]


# ── two at once ─────────────────────────────────────────────────────────────────────────────────────────────────


def overtaken(runs: Runs, other: Runs, call: Callable[[Runs], object]) -> None:
    """Another process makes a call after `runs` has looked and before it stores."""
    append = runs.journal.append

    def late(*arguments: Any) -> None:
        patch.undo()
        call(other)
        append(*arguments)

    patch = pytest.MonkeyPatch()
    patch.setattr(runs.journal, "append", late)


def test_of_two_outputs_for_one_step_one_is_accepted_and_the_other_gets_what_is_expected(
    runs: Runs, open_runs: Callable[..., Runs]
) -> None:
    run_id = runs.start(TWO, {}, {}).id
    overtaken(runs, open_runs(), lambda other: other.submit(run_id, "one", "the other output", {}))

    with pytest.raises(RunStateError) as refusal:
        runs.submit(run_id, "one", "this output", {})

    assert refusal.value.data["expected"] == "two"
    assert runs.get(run_id).results == {"one": "the other output"}


def test_of_two_same_submissions_one_is_recorded_and_both_get_its_answer(
    runs: Runs, open_runs: Callable[..., Runs]
) -> None:
    run_id = runs.start(TWO, {}, {}).id
    other = open_runs()
    overtaken(runs, other, lambda other: other.submit(run_id, "one", "the same", {}))

    assert runs.submit(run_id, "one", "the same", {}) == other.get(run_id)
    assert kinds(runs, run_id).count("output-accepted") == 1


def test_a_call_that_conflicts_with_another_change_is_decided_again(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    run_id = runs.start(TWO, {}, {}).id
    overtaken(runs, open_runs(), lambda other: other.submit(run_id, "one", "no", {}))

    assert runs.submit(run_id, "one", "no!", {}).attempts == 2


# ── what only looks ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_not_there_is_not_found(runs: Runs) -> None:
    for call in (runs.get, runs.cancel, runs.history, runs.delete):
        with pytest.raises(RunNotFound) as refusal:
            call("nothing")
        assert (refusal.value.code, refusal.value.message) == (-32005, "Run not found")
        assert refusal.value.data["runId"] == "nothing"


def test_a_deadline_is_noticed_by_every_reader(runs: Runs, open_runs: Callable[..., Runs], clock: TickingClock) -> None:
    limited = build(document(step("one"), step("two"), deadlineSeconds=10))
    looked, listed, submitted = (runs.start(limited, {}, {}).id for _ in range(3))
    clock.now += 10_000

    assert open_runs().get(looked).state is State.FAILED
    with pytest.raises(RunStateError, match="The run is failed"):
        runs.submit(submitted, "one", "done", {})
    assert {line.state for line in runs.summaries(RunQuery())} == {"failed"}
    assert kinds(runs, listed)[-1] == "failed"


def test_runs_are_listed_with_what_they_wait_for(runs: Runs) -> None:
    run = runs.start(TWO, {}, {})
    runs.submit(run.id, "one", "long enough", {})

    (line,) = runs.recent(10)

    assert (line.id, line.workflow_id, line.version, line.state, line.waiting_for, line.step) == (
        run.id,
        "sample-workflow",
        "1.0.0",
        "waiting",
        "output",
        "two",
    )
    assert (line.done, line.total, line.sequence, line.started) == (1, 2, 4, run.started)


def test_more_runs_than_fit_the_cache_continue_as_well(runs: Runs) -> None:
    ids = [runs.start(TWO, {}, {}).id for _ in range(MAX_FOLDED + 5)]

    assert {runs.submit(run_id, "one", "long enough", {}).current for run_id in ids} == {"two"}


def test_times_in_a_run_never_decrease(runs: Runs, clock: TickingClock) -> None:
    run = runs.start(TWO, {}, {})
    clock.now = 5

    assert runs.submit(run.id, "one", "long enough", {}).updated == run.updated


def test_after_returns_the_state_after_the_next_call_only(runs: Runs) -> None:
    run_id = runs.start(HELD, {}, {}).id
    run = runs.submit(run_id, "one", "done", {})
    assert runs.after(run) == run
    given = runs.confirm(run_id, how="console")
    runs.submit(run_id, "two", "done", {})

    assert runs.after(run) == given


# ── watching ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_watch_notices_its_own_process_at_once_and_others_when_polled(
    runs: Runs, open_runs: Callable[..., Runs]
) -> None:
    ids: list[str] = []
    first, second = runs.start(TWO, {}, {}).id, runs.start(TWO, {}, {}).id
    watch = runs.watch(ids.append)
    runs.submit(first, "one", "long enough", {})
    assert (ids, list(watch.changed())) == ([first], [])

    other = open_runs()
    other.submit(second, "one", "long enough", {})
    third = other.start(TWO, {}, {}).id

    assert set(watch.changed()) == {second, third}
    assert list(watch.changed()) == []
    watch.close()
    runs.submit(first, "two", "done", {})
    assert ids == [first]


# ── whole journals ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_can_be_imported(runs: Runs, tmp_path: Path) -> None:
    run = runs.submit(runs.start(TWO, {}, {}).id, "one", "long enough", {})
    elsewhere = Runs(SqliteJournal(str(tmp_path / "elsewhere.sqlite")))

    assert elsewhere.store_import(run.id, runs.history(run.id)) == run
    assert elsewhere.get(run.id) == run
    assert elsewhere.submit(run.id, "two", "done", {}).state is State.COMPLETED
    with pytest.raises(RunStateError, match="already"):
        elsewhere.store_import(run.id, runs.history(run.id))
    elsewhere.close()


def test_an_incomplete_run_is_not_imported(runs: Runs) -> None:
    import msgspec

    records = runs.history(runs.start(TWO, {}, {}).id)
    forged = msgspec.structs.replace(records[0].event, document=msgspec.Raw(b'{"id":"x","steps":[]}'))
    with pytest.raises(InvalidParams, match="in the middle of a call"):
        runs.store_import("new", records[:1])
    with pytest.raises(InvalidParams, match="is not what it was"):
        runs.store_import("new", [msgspec.structs.replace(records[0], event=forged), *records[1:]])
    with pytest.raises(InvalidParams, match="does not begin with its start"):
        runs.store_import("new", records[1:])


def test_a_deleted_run_is_not_confused_with_a_new_one_of_the_same_id(
    runs: Runs, open_runs: Callable[..., Runs], clock: TickingClock
) -> None:
    runs.start(TWO, {}, {}, run_id="mine")
    other = open_runs()
    other.cancel("mine")
    other.purge(clock.now + 1)
    run = other.start(HELD, {}, {}, run_id="mine")

    assert runs.get("mine") == run
    runs.start(TWO, {}, {}, run_id="yours")
    other.cancel("yours")
    other.purge(clock.now + 1)
    other.start(HELD, {}, {}, run_id="yours")
    assert runs.submit("yours", "one", "long enough", {}).waiting_for is Waiting.CONFIRMATION
    assert runs.get("yours") == open_runs().get("yours")


def test_a_damaged_run_does_not_hide_others(runs: Runs, clock: TickingClock) -> None:
    late = build(document(step("one"), deadlineSeconds=1))
    broken, whole = (runs.start(late, {}, {}).id for _ in range(2))
    instance_of(SqliteJournal, runs.journal).query(
        "UPDATE events SET body = 'garbage' WHERE run = ? AND sequence = 2", (broken,)
    )
    clock.now += 2_000

    states = {line.id: line.state for line in Runs(runs.journal, clock=clock).recent(10)}

    assert states == {broken: "waiting", whole: "failed"}


def test_runs_are_deleted_one_by_one_or_all_old_finished_ones(runs: Runs, clock: TickingClock) -> None:
    old, waiting, gone = (runs.start(TWO, {}, {}).id for _ in range(3))
    runs.cancel(old)
    before = clock.now + 1
    young = runs.start(TWO, {}, {}).id
    runs.cancel(young)

    runs.delete(gone)
    assert runs.purge(before) == 1

    assert {line.id for line in runs.recent(10)} == {waiting, young}
    with pytest.raises(RunNotFound):
        runs.get(old)


# ── long runs ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_run_folded_in_slices_gives_the_same_state(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    records, run = long_run(3 * SLICE + 10)
    run = msgspec.structs.replace(run, head=runs.journal.append(run.id, 0, records, summarise(run)))
    other = open_runs()

    assert [other.load_slice(run.id) for _ in range(5)] == [False, False, False, True, True]
    assert other.get(run.id) == runs.get(run.id) == run


def test_between_two_slices_the_run_may_change_or_be_replaced(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    records, run = long_run(2 * SLICE)
    runs.journal.append(run.id, 0, records, summarise(run))
    other = open_runs()

    assert not other.load_slice(run.id)
    moved = runs.submit(run.id, run.current, "more", {})
    assert other.get(run.id) == moved
    assert not open_runs().load_slice(run.id)
    runs.delete(run.id)
    assert other.load_slice(run.id)
    with pytest.raises(RunNotFound):
        other.get(run.id)
    assert other.load_slice("no-such-run")


# ── several pieces of work in one commit ────────────────────────────────────────────────────────────────────────


def submission(run_id: str) -> Callable[[Runs], Run]:
    return lambda runs: runs.submit(run_id, "one", "long enough", {})


def test_listeners_are_notified_of_grouped_work_once_all_of_it_is_stored(
    runs: Runs, open_runs: Callable[..., Runs]
) -> None:
    others, heard = open_runs(), []
    ids = [runs.start(TWO, {}, {}).id for _ in range(3)]
    runs.listeners.append(lambda run_id, _: heard.append((run_id, {other: others.get(other).current for other in ids})))

    runs.do_all([submission(run_id) for run_id in ids])

    assert heard == [(run_id, dict.fromkeys(ids, "two")) for run_id in ids]


def test_grouped_work_that_cannot_be_stored_does_not_fail_the_rest(
    runs: Runs, open_runs: Callable[..., Runs], tmp_path: Path
) -> None:
    heard = []
    ids = [runs.start(TWO, {}, {}).id for _ in range(3)]
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.sqlite")) as database:
        database.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.run = '{ids[1]}'"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    runs.listeners.append(lambda run_id, _: heard.append(run_id))

    outcomes = runs.do_all([submission(run_id) for run_id in ids])

    assert isinstance(outcomes[1], StorageError)
    assert [outcomes[0], outcomes[2]] == [open_runs().get(ids[0]), open_runs().get(ids[2])]
    assert heard == [ids[0], ids[2]]
    assert [service.get(ids[1]).current for service in (runs, open_runs())] == ["one", "one"]


def test_nothing_is_cached_of_a_commit_that_fails(runs: Runs, open_runs: Callable[..., Runs]) -> None:
    run_id = runs.start(TWO, {}, {}).id

    def close(runs: Runs) -> str:
        runs.close()  # and with it the transaction of the commit
        return runs.get(run_id).current

    moved, current = runs.do_all([submission(run_id), close])

    assert (instance_of(Run, moved).current, current) == ("two", "two")
    assert open_runs().get(run_id) == moved
    assert kinds(runs, run_id).count("output-accepted") == 1
