"""What every journal promises, held against each of them: a file of SQLite, and a real PostgreSQL."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from contract.journaling import WORKFLOW, Store, append, at_once, begin, call, submit
from support.json_values import JsonObject
from support.make import document, step
from support.narrowing import instance_of
from workflowlookup.errors import InvalidParams, RunStateError, StorageError
from workflowlookup.language.document.building import build
from workflowlookup.runs import advance, server_calls
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.events import OutputAccepted
from workflowlookup.runs.run import Run, State
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.runs.triage import STUCK_MILLISECONDS, STUCK_REFUSALS, Triage
from workflowlookup.store.journal import (
    READ_BYTES,
    Announcement,
    Conflict,
    Revision,
    RunOrder,
    RunQuery,
    Token,
    summarise,
)
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.run_search import parse_search
from workflowlookup.store.service import Runs
from workflowlookup.store.sql import SqlJournal
from workflowlookup.store.sqlite import SqliteJournal


@pytest.fixture
def journal(store: Store[SqlJournal]) -> SqlJournal:
    return store.open()


def test_what_is_appended_is_read_in_order_by_everyone(store: Store[SqlJournal], journal: SqlJournal) -> None:
    first = begin(journal)
    second = submit(journal, first.run)

    for reader in (journal, store.open()):
        assert reader.read("r1") == [*first.records, *second.records]
        assert reader.read("r1", after=2) == second.records
        assert reader.read("r1", after=99) == []
        assert reader.read("r1", after=1, limit=2) == [*first.records, *second.records][1:3]
        assert reader.head("r1") == second.run.sequence


def test_of_long_records_fewer_are_read_at_once(journal: SqlJournal) -> None:
    run = begin(journal, workflow=build(document(*(step(f"step-{number}") for number in range(3))))).run
    for number in range(3):
        run = submit(journal, run, output=f"{number}" * READ_BYTES).run

    seen, after = [], 0
    while part := journal.read("r1", after, limit=100):
        seen.append([len(str(record.event)) > READ_BYTES for record in part])
        after = part[-1].sequence

    assert [sum(is_long) for is_long in seen if any(is_long)] == [1, 1, 1]
    assert sum(map(len, seen)) == run.sequence == len(journal.read("r1"))


def test_it_is_there_after_everyone_has_gone(store: Store[SqlJournal], journal: SqlJournal) -> None:
    draft = begin(journal)
    journal.close()

    assert store.open().read("r1") == draft.records
    assert journal.read("r1") == draft.records, "a journal opens itself again"


def test_a_run_that_is_not_there_has_no_head_and_no_records(journal: SqlJournal) -> None:
    assert journal.head("r1") is None
    assert journal.read("r1") == []


def test_what_no_id_can_hold_is_asked_for_and_not_found(journal: SqlJournal) -> None:
    begin(journal)

    assert (journal.head("r1\0"), journal.workflow_of("\0"), journal.read("r\x001")) == (None, None, [])
    assert journal.summaries(RunQuery(workflow_id="\0")) == []


def test_a_document_is_stored_once_for_all_its_runs(journal: SqlJournal) -> None:
    for run_id in ("r1", "r2", "r3"):
        begin(journal, run_id)
    begin(journal, "r4", workflow=build(document(step("other"))))

    assert journal.query("SELECT COUNT(*) FROM documents") == [(2,)]
    assert "steps" not in journal.query("SELECT body FROM events WHERE run = 'r1' AND sequence = 1")[0][0]


def test_of_two_appends_that_build_on_the_same_record_one_is_a_conflict_and_leaves_nothing(
    store: Store[SqlJournal], journal: SqlJournal
) -> None:
    run = begin(journal).run
    submit(journal, run, output="mine")

    with pytest.raises(Conflict):
        submit(store.open(), run, output="another's")

    assert [
        instance_of(OutputAccepted, record.event).output for record in journal.read("r1", after=run.sequence)[:1]
    ] == ["mine"]
    assert journal.head("r1") == len(journal.read("r1"))


def test_a_run_is_begun_once(store: Store[SqlJournal], journal: SqlJournal) -> None:
    first = begin(journal, time=1_000)

    with pytest.raises(Conflict):
        begin(store.open(), time=5_000)

    assert journal.read("r1") == first.records
    assert [line.started for line in journal.summaries(RunQuery())] == [1_000]


def test_an_append_is_stored_whole_or_not_at_all(journal: SqlJournal) -> None:
    run = begin(journal).run
    draft = advance.submit(run, "one", "done", {}, Moment(time=9))
    twice = [*draft.records, draft.records[-1]]

    with pytest.raises(StorageError):
        journal.append("r1", run.sequence, twice, summarise(draft.run), run.head)

    assert (journal.head("r1"), len(journal.read("r1"))) == (run.sequence, run.sequence)
    assert journal.summaries(RunQuery())[0] == summarise(run)
    journal.append("r1", run.sequence, draft.records, summarise(draft.run), run.head)
    assert journal.head("r1") == draft.run.sequence


def test_many_at_once_and_each_record_is_stored_once(store: Store[SqlJournal]) -> None:
    run = begin(store.open()).run
    won, lost = [], []

    def race(number: int) -> None:
        journal = store.make()
        for turn in range(5):
            try:
                won.append(submit(journal, run, output=f"{number}.{turn}"))
            except Conflict:
                lost.append(number)
        journal.close()

    at_once(race, 6)

    assert (len(won), len(lost)) == (1, 29)
    assert store.open().read("r1", after=run.sequence) == won[0].records


def test_pieces_of_work_are_each_answered_and_a_refused_one_takes_no_other_with_it(
    store: Store[SqlJournal], journal: SqlJournal
) -> None:
    runs, others = Runs(journal), Runs(store.open())
    first, second = (runs.start(WORKFLOW, {}, {}).id for _ in range(2))
    others.cancel(second)

    after_first, refusal, after_both = runs.do_all(
        [
            lambda runs: runs.submit(first, "one", "done", {}),
            lambda runs: runs.submit(second, "one", "done", {}),
            lambda runs: runs.submit(first, "two", "done", {}),
        ]
    )

    assert isinstance(refusal, RunStateError)
    assert [instance_of(Run, after_first).current, instance_of(Run, after_both).current] == ["two", "three"]
    assert others.get(first) == after_both
    assert others.get(second).state is State.CANCELLED


@pytest.fixture
def many(journal: SqlJournal) -> SqlJournal:
    """Runs of two workflows, two of them started in the same millisecond."""
    other = build(document(step("one"), identifier="other-workflow"))
    for number, time in enumerate([1_000, 2_000, 2_000, 3_000, 4_000]):
        begin(journal, f"r{number}", time=time, workflow=other if number == 3 else WORKFLOW)
    run = begin(journal, "over", time=5_000, workflow=other).run
    submit(journal, run, time=6_000)
    return journal


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["over", "r4", "r3", "r2", "r1", "r0"]),
        ({"limit": 2}, ["over", "r4"]),
        ({"state": "waiting"}, ["r4", "r3", "r2", "r1", "r0"]),
        ({"state": "completed"}, ["over"]),
        ({"workflow_id": "other-workflow"}, ["over", "r3"]),
        ({"since": 2_000, "until": 4_000}, ["r3", "r2", "r1"]),
        ({"state": "waiting", "workflow_id": "other-workflow", "since": 1}, ["r3"]),
        ({"after": (2_000, "r2")}, ["r1", "r0"]),
        ({"after": (4_000, "r4"), "limit": 2}, ["r3", "r2"]),
        ({"state": "failed"}, []),
    ],
    ids=repr,
)
def test_runs_are_listed_the_last_started_first(many: SqlJournal, query: JsonObject, expected: list[str]) -> None:
    assert [line.id for line in many.summaries(RunQuery(**query))] == expected


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("*",), ["docs-b", "docs_a", "docsxa"]),
        (("docs-*",), ["docs-b"]),
        (("docs_a",), ["docs_a"]),
        (("docs?a", "docs-b"), ["docs-b", "docs_a", "docsxa"]),
        (("%",), []),
        (("!_*", "docs"), []),
        ((), []),
    ],
)
def test_runs_are_listed_by_patterns_of_workflows(
    journal: SqlJournal, patterns: tuple[str, ...], expected: list[str]
) -> None:
    for time, name in enumerate(("docs-b", "docs_a", "docsxa"), 1):
        begin(journal, f"run-{name}", time=time, workflow=build(document(step("one"), identifier=name)))

    summaries = journal.summaries(RunQuery(workflows=patterns))

    assert sorted(summary.workflow_id for summary in summaries) == expected
    assert [journal.workflow_of(summary.id) for summary in summaries] == [summary.workflow_id for summary in summaries]
    assert journal.workflow_of("no-such-run") is None


NOW = 10_000_000


@pytest.fixture
def searched(journal: SqlJournal) -> SqlJournal:
    """A run in each group, and one that an older version wrote last."""
    about = build(document(step("one"), step("two"), identifier="month-export", name="Export of the month"))
    runs: dict[str, dict[str, object]] = {
        "aa01": {
            "subject": "The März export lacks a day",
            "who": "claude-code 2.1, anna",
            "waiting_for": "confirmation",
        },
        "aa02": {"subject": "100% of_it", "attempts": STUCK_REFUSALS, "title": "Write up, 3 of 4"},
        "aa03": {"since": NOW - STUCK_MILLISECONDS - 1},
        "aa04": {"since": NOW - STUCK_MILLISECONDS - 1, "paused": 1},
        "bb05": {"state": "running", "waiting_for": "call"},
        "bb06": {"state": "completed", "waiting_for": None},
        "bb07": {"state": "unknown", "waiting_for": None},
        "bb08": {"state": "cancelled", "waiting_for": None},
        "old9": dict.fromkeys(("name", "subject", "title", "who", "since", "attempts", "paused")),
    }
    for run_id, changes in runs.items():
        draft = advance.begin(run_id, about, {}, {}, Moment(time=NOW - 1_000, by="codex"))
        journal.append(
            run_id, 0, draft.records, msgspec.structs.replace(summarise(draft.run), **{"since": NOW - 500, **changes})
        )
    return journal


GROUPS = {
    Triage.PERSON: ["aa01"],
    Triage.STUCK: ["aa02", "aa03"],
    Triage.AGENT: ["aa04", "old9"],
    Triage.SERVER: ["bb05"],
    Triage.DONE: ["bb06"],
    Triage.FAILED: ["bb07"],
    Triage.CANCELLED: ["bb08"],
}


def test_each_run_is_in_one_group_of_the_triage(searched: SqlJournal) -> None:
    query = RunQuery(now=NOW)
    found = {group: searched.summaries(msgspec.structs.replace(query, triage=group)) for group in Triage}

    assert {group: sorted(run.id for run in runs) for group, runs in found.items()} == GROUPS
    assert all(run.triage(NOW) is group for group, runs in found.items() for run in runs)
    assert searched.triage_counts(query) == {("month-export", group): len(ids) for group, ids in GROUPS.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a0", ["aa01", "aa02", "aa03", "aa04"]),
        ("month export", ["aa01", "aa02", "aa03", "aa04", "bb05", "bb06", "bb07", "bb08", "old9"]),
        ("EXPORT of the month", ["aa01", "aa02", "aa03", "aa04", "bb05", "bb06", "bb07", "bb08"]),
        ("MÄRZ", ["aa01"]),
        ("märz lacks", ["aa01"]),
        ('"lacks märz"', []),
        ("by:anna", ["aa01"]),
        ("about:anna", []),
        ("by:codex -aa -bb06", ["bb05", "bb07", "bb08"]),
        ('step:"write up"', ["aa02"]),
        ("100%", ["aa02"]),
        ("of_it", ["aa02"]),
        ("state:running", ["bb05"]),
        ("is:stuck", ["aa02", "aa03"]),
        ("is:stuck write", ["aa02"]),
        ("https://x", []),
        ("' OR 1=1 --", []),
        ("no\0such", []),
    ],
)
def test_runs_are_searched(searched: SqlJournal, text: str, expected: list[str]) -> None:
    search = parse_search(text)
    query = RunQuery(now=NOW, terms=search.terms, triage=search.triage)

    assert sorted(run.id for run in searched.summaries(query)) == expected


def test_the_run_that_waits_longest_comes_first_and_pages_go_on_behind_it(searched: SqlJournal) -> None:
    query = RunQuery(now=NOW, order=RunOrder.LONGEST_WAITING, limit=3)
    pages: list[str] = []
    while page := searched.summaries(query):
        pages += [run.id for run in page]
        query = msgspec.structs.replace(query, after=query.place_of(page[-1]))

    assert pages[:2] == ["aa03", "aa04"]
    assert sorted(pages) == sorted(run.id for run in searched.summaries(RunQuery()))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 201, "at most 200 characters"),
        ("a " * 11, "at most 10 words"),
        ("is:busy", "choose one"),
        ("-is:done", "left out"),
    ],
)
def test_a_search_that_cannot_be_understood_says_why(text: str, why: str) -> None:
    with pytest.raises(InvalidParams, match=why):
        parse_search(text)


def test_a_line_about_a_run_says_what_the_run_says(journal: SqlJournal) -> None:
    run = submit(journal, begin(journal).run).run

    assert journal.summaries(RunQuery()) == [summarise(run)]


def test_runs_are_overdue_after_their_deadline_and_not_when_they_are_over(journal: SqlJournal) -> None:
    run = begin(journal, time=1_000).run
    begin(journal, "unlimited", workflow=build(document()))

    assert journal.overdue(61_000) == []
    assert journal.overdue(61_001) == ["r1"]
    draft = advance.cancel(run, Moment(time=61_002))
    journal.append("r1", run.sequence, draft.records, summarise(draft.run), run.head)
    assert journal.overdue(99_999) == []


def test_runs_that_wait_for_proofs_are_known_by_who_started_them(journal: SqlJournal) -> None:
    proved = build(document(step("fix", proof=[{"kind": "command", "name": "tests", "use": "test"}])))
    call(journal, "call")
    for number, starter in enumerate(("token bob", "token ada via x", "token ada (person)", "Token ada")):
        run_id = f"run-{number}"
        run = append(journal, 0, advance.begin(run_id, proved, {}, {}, Moment(time=1_000, by=starter))).run
        draft = advance.submit(run, "fix", "done", {}, Moment(time=9_000 - number, by="token eve"))
        append(journal, run.sequence, draft)

    assert journal.waiting_for_proof("token ada", 10) == ["run-2", "run-1"]
    assert journal.waiting_for_proof("token ada", 1) == ["run-2"]
    assert journal.waiting_for_proof("token %", 10) == []


def test_runs_at_work_are_known_the_one_that_waits_longest_first(journal: SqlJournal) -> None:
    begin(journal, "prompt")
    second, first = call(journal, "b", time=2_000), call(journal, "c", time=1_000)
    call(journal, "a", time=2_000)
    append(journal, first.sequence, server_calls.begin_call(first, Moment(time=3_000)))

    assert [(one.id, one.state, one.waiting_for) for one in journal.at_work(10)] == [
        ("a", "queued", "call"),
        ("b", "queued", "call"),
        ("c", "running", "call"),
    ]
    assert [one.id for one in journal.at_work(1)] == ["a"]
    assert [journal.queue_position(run_id) for run_id in ("a", "b", "c", "prompt", "none")] == [
        *((1, 2), (2, 2), (0, 2), (0, 2), (0, 2)),
    ]
    append(journal, second.sequence, advance.cancel(second, Moment(time=3_000)))
    assert journal.queue_position("a") == (1, 1)


def test_a_pause_leaves_a_queued_call_at_its_place(journal: SqlJournal) -> None:
    first = call(journal, "b", time=1_000)
    call(journal, "a", time=2_000)
    paused = append(journal, first.sequence, advance.pause(first, Moment(time=3_000))).run
    append(journal, paused.sequence, advance.resume(paused, Moment(time=4_000)))

    assert [one.id for one in journal.at_work(10)] == ["b", "a"]
    assert [journal.queue_position(run_id) for run_id in ("b", "a")] == [(1, 2), (2, 2)]


def test_a_call_that_was_left_running_is_known_until_it_is_said_what_became_of_it(
    store: Store[SqlJournal], journal: SqlJournal
) -> None:
    run = call(journal, "a")
    run = append(journal, run.sequence, server_calls.begin_call(run, Moment(time=2_000))).run
    assert journal.runs_to_stop() == []
    run = append(journal, run.sequence, advance.cancel(run, Moment(time=3_000))).run
    assert store.open().runs_to_stop() == ["a"]
    append(journal, run.sequence, server_calls.stop_call(run, False, "It may still be running.", Moment(time=4_000)))
    assert journal.runs_to_stop() == []


def test_events_of_calls_are_read_as_they_were_stored(journal: SqlJournal) -> None:
    run, records = call(journal, "a"), journal.read("a")
    at = Moment(time=2_000)
    moves: list[Callable[[Run], Draft]] = [
        lambda run: server_calls.begin_call(run, at),
        lambda run: server_calls.acknowledge_call(run, "7 \0 é", at),
        lambda run: server_calls.report_call(run, 1, 2.5, "half", at),
        lambda run: server_calls.fail_call(run, CallFailure(reason="no route"), at),
        lambda run: server_calls.begin_call(run, at),
        lambda run: server_calls.finish_call(run, "ok", {"a": [1, None]}, at),
    ]
    for move in moves:
        draft = append(journal, run.sequence, move(run))
        records += draft.records
        run = draft.run

    assert journal.read("a") == records
    assert run.context["made"] == {"a": [1, None]}


def test_the_version_changes_when_another_process_writes(store: Store[SqlJournal], journal: SqlJournal) -> None:
    run = begin(journal).run
    other = store.open()
    before = other.version()
    assert other.version() == before

    submit(journal, run)

    assert other.version() != before
    assert other.heads(since=2_000) == {"r1": journal.head("r1")}
    assert other.heads(since=2_001) == {}


def test_a_run_that_is_deleted_is_gone_and_can_be_begun_again(journal: SqlJournal) -> None:
    begin(journal)
    begin(journal, "r2")

    assert journal.delete("r1") is True
    assert journal.delete("r1") is False
    assert (journal.head("r1"), journal.read("r1"), journal.head("r2")) == (None, [], 2)
    begin(journal)


def test_nothing_is_appended_to_another_run_of_the_same_id(journal: SqlJournal) -> None:
    old = begin(journal, time=1_000).run
    journal.delete("r1")
    new = begin(journal, time=1_001)

    with pytest.raises(Conflict):
        submit(journal, old)

    assert journal.read("r1") == new.records
    assert journal.revision("r1") == Revision(new.run.sequence, 1_001, new.run.hash, new.run.sequence, new.run.head)


def test_purging_takes_what_is_over_and_old(many: SqlJournal) -> None:
    assert many.purge(before=6_000) == 0
    assert many.purge(before=6_001) == 1
    assert many.head("over") is None
    assert many.query("SELECT COUNT(*) FROM events WHERE run = 'over'") == [(0,)]
    assert len(many.summaries(RunQuery())) == 5


def test_a_record_that_cannot_be_read_is_named(journal: SqlJournal) -> None:
    begin(journal)
    with journal.writing() as transaction:
        transaction.execute("UPDATE events SET body = ? WHERE sequence = ?", ('{"event":"from-the-future"}', 2))

    with pytest.raises(StorageError, match="Event 2 of run 'r1' cannot be read"):
        journal.read("r1")


def test_it_can_be_opened_by_many_at_the_same_moment(store: Store[SqlJournal]) -> None:
    heads = []

    def look(_: object) -> None:
        journal = store.make()
        heads.append(journal.head("r1"))
        journal.close()

    at_once(look, 8)

    assert heads == [None] * 8


def test_names_of_tools_are_kept_and_the_first_to_take_one_has_it(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    journal.store_tool_names({("p", "1"): "report", ("p", "2"): "report_2"}, [], 1_000)

    other.store_tool_names({("q", "9"): "report", ("p", "1"): "another", ("q", "8"): "free"}, [], 2_000)
    assert journal.tool_names() == {("p", "1"): "report", ("p", "2"): "report_2", ("q", "8"): "free"}

    other.store_tool_names({("q", "9"): "report"}, [("p", "1")], 3_000)
    assert journal.tool_names() == {("q", "9"): "report", ("p", "2"): "report_2", ("q", "8"): "free"}


def test_a_freed_name_is_known_with_its_time_and_who_had_it(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    journal.store_tool_names({("p", "1"): "report", ("p", "2"): "other"}, [], 1_000)
    journal.store_tool_names({}, [("p", "1"), ("p", "7")], 3_000)

    assert other.freed_names(3_000) == {"report": ("p", "1")}
    assert other.freed_names(3_001) == {}

    journal.store_tool_names({("p", "1"): "report"}, [], 4_000)
    journal.store_tool_names({}, [("p", "1")], 5_000)
    assert other.freed_names(4_000) == {"report": ("p", "1")}


def test_what_a_provider_listed_is_remembered(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    journal.store_provider_listing("p", "settings", "[]")
    journal.store_provider_listing("p", "others", '["ä"]')

    assert other.provider_listings() == {"p": ("others", '["ä"]')}


def test_records_are_the_same_in_both(database: str, tmp_path: Path) -> None:
    there, here = PostgresJournal(database), SqliteJournal(str(tmp_path / "runs.sqlite"))
    for journal in (there, here):
        submit(journal, begin(journal).run)

    assert msgspec.json.encode(there.read("r1")) == msgspec.json.encode(here.read("r1"))
    assert there.summaries(RunQuery()) == here.summaries(RunQuery())
    there.close()
    here.close()


def test_runs_of_a_state_are_found_by_an_index_and_counted_by_it(journal: SqlJournal) -> None:
    run = begin(journal, "r1").run
    for number in range(40):
        begin(journal, f"other-{number}", time=2_000 + number)
    submit(journal, run, output="one")
    cancelled = advance.cancel(begin(journal, "r2").run, Moment(time=3_000), "enough")
    journal.append("r2", 2, cancelled.records, summarise(cancelled.run), cancelled.run.head)

    assert [line.id for line in journal.summaries(RunQuery(state="cancelled"))] == ["r2"]
    assert journal.counts() == {"waiting": 41, "cancelled": 1}
    plan = "EXPLAIN QUERY PLAN" if isinstance(journal, SqliteJournal) else "EXPLAIN"
    if isinstance(journal, PostgresJournal):
        journal.query("SELECT set_config('enable_seqscan', 'off', false)")
        journal.query("SELECT set_config('enable_sort', 'off', false)")
    rows = journal.query(
        f"{plan} SELECT * FROM runs WHERE state = ? ORDER BY started DESC, id DESC LIMIT 5", ("failed",)
    )
    assert "runs_by_state" in str(rows)


def test_a_submission_that_leaves_the_state_as_it_is_touches_no_index_of_states(tmp_path: Path) -> None:
    journal = SqliteJournal(str(tmp_path / "runs.sqlite"))
    run = begin(journal, workflow=build(document(*(step(f"step-{number}") for number in range(12))))).run
    for number in range(300):
        begin(journal, f"other-{number}")

    def pages() -> int:
        journal.query("PRAGMA wal_checkpoint(TRUNCATE)")
        nonlocal run
        run = submit(journal, run, output=str(run.sequence)).run
        ((_, logged, _),) = journal.query("PRAGMA wal_checkpoint(PASSIVE)")
        result: int = logged
        return result

    with_index = min(pages() for _ in range(5))
    journal.query("DROP INDEX runs_by_state")

    assert min(pages() for _ in range(5)) == with_index
    journal.close()


# ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def token(identifier: str, name: str = "ci-bot", created: int = 1_000) -> Token:
    return Token(
        id=identifier,
        name=name,
        kind="agent",
        scopes=("read", "run"),
        workflows=("docs-*", "other"),
        created=created,
        expires=None,
        revoked=None,
        maker="ada",
    )


def test_a_token_is_stored_once_a_name_until_it_is_revoked(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    first, second = token("first"), token("second", created=2_000)

    assert journal.add_token(first, "digest-1", lambda: None)
    assert not other.add_token(second, "digest-2", lambda: None)
    assert other.tokens_by_id("first") == [(first, "digest-1")]
    assert other.revoke_token("ci-bot", 1_500)
    assert not journal.revoke_token("ci-bot", 1_600)
    assert journal.add_token(second, "digest-2", lambda: None)

    assert other.tokens() == [second, msgspec.structs.replace(first, revoked=1_500)]
    assert other.count_tokens() == (2, 1)
    assert other.tokens_by_id("third") == []


def test_no_token_is_stored_when_what_comes_before_fails(journal: SqlJournal) -> None:
    def fail() -> NoReturn:
        raise StorageError("no room")

    with pytest.raises(StorageError, match="no room"):
        journal.add_token(token("first"), "digest", fail)

    assert journal.tokens() == []


def test_that_tokens_are_required_is_known_to_all(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    assert not other.requires_tokens()

    journal.require_tokens()

    assert other.requires_tokens()
    assert other.names == journal.names != frozenset()


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_is_found_by_its_owner_while_it_is_used(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    journal.add_session("s", "ada", '{"é": 1}', 1_000)
    journal.add_session("s", "eve", "{}", 1_001)

    assert other.session_opening("s", "ada", 1_000) == '{"é": 1}'
    assert other.session_opening("s", "eve", 1_000) is None
    assert other.session_opening("s", "ada", 1_001) is None
    other.touch_sessions(["s"], 2_000, 1_000)
    assert journal.session_opening("s", "ada", 2_000) == '{"é": 1}'


def test_what_a_session_follows_is_forgotten_with_it(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    for key in ("idle", "used", "ended"):
        journal.add_session(key, "ada", "{}", 1_000)
        journal.subscribe(key, "run://r1")
        journal.subscribe(key, "run://r1")
    journal.subscribe("used", "runs://recent")
    journal.subscribe("nobody", "run://r1")
    journal.unsubscribe("used", "run://r1")

    other.end_session("ended")
    other.touch_sessions(["used"], 2_000, 1_500)

    assert [journal.subscriptions(key) for key in ("idle", "used", "ended", "nobody")] == [
        *(frozenset(), frozenset({"runs://recent"}), frozenset(), frozenset()),
    ]
    assert journal.session_opening("idle", "ada", 0) is None


# ── the console, and secrets of the servers ─────────────────────────────────────────────────────────────────────────


def test_a_session_of_the_console_is_there_until_it_expires_or_ends(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    journal.add_console_session("a", "é", 2_000, 1_000)
    journal.add_console_session("b", "b", 3_000, 1_000)

    assert other.console_session("a", 1_999) == "é"
    assert other.console_session("a", 2_000) is None
    assert other.console_session("none", 0) is None
    other.end_console_session("b")
    assert journal.console_session("b", 1_000) is None
    other.add_console_session("c", "c", 9_000, 2_000)
    assert journal.console_session("a", 0) is None  # what has expired is deleted


def test_a_secret_is_the_same_for_all_servers(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()

    assert journal.shared_secret("questions", "one") == "one"
    assert other.shared_secret("questions", "two") == "one"
    assert other.shared_secret("others", "three") == "three"


# ── announcements ───────────────────────────────────────────────────────────────────────────────────────────────────


def announce(journal: SqlJournal, topic: str, time: int = 1_000, oldest: int = 0) -> None:
    journal.announce(Announcement(time=time, origin="one", topic=topic, body="é"), oldest)


def announce_apart(store: Store[SqlJournal], topic: str) -> None:
    """From another thread, as another server would."""
    with contextlib.closing(store.make()) as journal:
        announce(journal, topic)


def test_announcements_are_numbered_in_order_and_old_ones_are_forgotten(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    assert (other.last_announcement(), other.announcements(0)) == (0, [])

    announce(journal, "a")
    announce(other, "b", time=2_000)

    assert [(one.number, one.origin, one.topic, one.body) for one in other.announcements(0)] == [
        *((1, "one", "a", "é"), (2, "one", "b", "é")),
    ]
    announce(journal, "c", time=3_000, oldest=9_000)
    assert [(one.number, one.topic) for one in other.announcements(1)] == [(3, "c")]
    assert other.last_announcement() == 3


def test_many_announcements_at_once_have_numbers_of_their_own(store: Store[SqlJournal]) -> None:
    store.open().head("r1")

    at_once(lambda number: announce_apart(store, str(number)), 6)

    announcements = store.open().announcements(0)
    assert [one.number for one in announcements] == [1, 2, 3, 4, 5, 6]
    assert {one.topic for one in announcements} == set("012345")


def test_whoever_waits_for_an_announcement_hears_of_it(store: Store[SqlJournal]) -> None:
    journal, other = store.open(), store.open()
    assert other.await_announcement(30), "there may have been some before"
    assert not other.await_announcement(0.05)

    timer = threading.Timer(0.2, announce_apart, (store, "a"))
    timer.start()

    assert other.await_announcement(30)
    assert [one.topic for one in journal.announcements(0)] == ["a"]
    timer.join()


# ── which journal it is ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_url_of_a_journal_says_what_kind_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "runs.sqlite")
    path, link = JournalUrl("~/runs.sqlite"), JournalUrl("link.sqlite")
    url = JournalUrl("postgresql://me:se@cret@host/runs?password=x")

    assert isinstance(path.open(), SqliteJournal)
    assert path.identity == link.identity == str(tmp_path / "runs.sqlite")
    assert (path.shown, path.as_argument()) == (path.identity, (path.identity, False))
    assert (link.relative_to("/etc"), url.relative_to("/etc")) == ("/etc/link.sqlite", url.text)
    assert isinstance(url.open(), PostgresJournal)
    assert (url.identity, url.shown) == (url.text, "postgresql://me:…@host/runs?password=…")
    assert url.as_argument() == ("postgresql://me@host/runs", True)
    assert (path.kind.has_replicas, url.kind.has_replicas) == (False, True)
    with pytest.raises(ValueError, match="a path, or a URL that begins with postgresql://"):
        JournalUrl("mysql://host/runs")
