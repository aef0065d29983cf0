"""What every journal promises, held against each of them: a file of SQLite, and a real PostgreSQL."""

import contextlib
import fcntl
import os
import sqlite3
import stat
import threading

import msgspec
import psycopg
import pytest

from make import document, step
from workflowlookup.core import advance
from workflowlookup.core.advance import Moment
from workflowlookup.core.building import build
from workflowlookup.errors import StorageError
from workflowlookup.runs.journal import Conflict, Mark, Query, summarise
from workflowlookup.runs.postgres import PostgresJournal
from workflowlookup.runs.sql import MIGRATIONS
from workflowlookup.runs.sqlite import SqliteJournal

WORKFLOW = build(document(step("one"), step("two"), step("three"), deadlineSeconds=60))

CALLING = build(
    document({"id": "make-it", "title": "Make", "call": {"server": "s", "tool": "t", "saveAs": "made", "retries": 1}})
)


class Store:
    """A place for a journal, which as many as like can open."""

    def __init__(self, make):
        self.make = make
        self._opened = []

    def open(self):
        journal = self.make()
        self._opened.append(journal)
        return journal

    def close(self):
        for journal in self._opened:
            with contextlib.suppress(StorageError):
                journal.close()


def at_once(call, number):
    """Call a function in so many threads, all at the same moment."""
    barrier = threading.Barrier(number)

    def wait_and_call(index):
        barrier.wait()
        call(index)

    threads = [threading.Thread(target=wait_and_call, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "sqlite":
        path = str(tmp_path / "data" / "runs.sqlite")
        store = Store(lambda: SqliteJournal(path))
    else:
        url = request.getfixturevalue("database")
        store = Store(lambda: PostgresJournal(url))
    yield store
    store.close()


@pytest.fixture
def journal(store):
    return store.open()


def begin(journal, run_id="r1", *, time=1_000, workflow=WORKFLOW):
    draft = advance.begin(
        run_id, workflow, {"ticket": "T-1"}, {"text": "nül\0 \U0001f600", "big": 10**30}, Moment(time=time, by="é")
    )
    journal.append(run_id, 0, draft.records, summarise(draft.run))
    return draft


def submit(journal, run, *, time=2_000, output="done"):
    draft = advance.submit(run, run.current, output, {"a": [1, 2.5, None]}, Moment(time=time))
    journal.append(run.id, run.sequence, draft.records, summarise(draft.run))
    return draft


def test_what_is_appended_is_read_in_order_by_everyone(store, journal):
    first = begin(journal)
    second = submit(journal, first.run)

    for reader in (journal, store.open()):
        assert reader.read("r1") == [*first.records, *second.records]
        assert reader.read("r1", after=2) == second.records
        assert reader.read("r1", after=99) == []
        assert reader.head("r1") == second.run.sequence


def test_it_is_there_after_everyone_has_gone(store, journal):
    draft = begin(journal)
    journal.close()

    assert store.open().read("r1") == draft.records
    assert journal.read("r1") == draft.records, "a journal opens itself again"


def test_a_run_that_is_not_there_has_no_head_and_no_records(journal):
    assert journal.head("r1") is None
    assert journal.read("r1") == []


def test_a_document_is_stored_once_for_all_its_runs(journal):
    for run_id in ("r1", "r2", "r3"):
        begin(journal, run_id)
    begin(journal, "r4", workflow=build(document(step("other"))))

    assert journal.query("SELECT COUNT(*) FROM documents") == [(2,)]
    assert "steps" not in journal.query("SELECT body FROM events WHERE run = 'r1' AND sequence = 1")[0][0]


def test_of_two_appends_that_build_on_the_same_record_one_is_a_conflict_and_leaves_nothing(store, journal):
    run = begin(journal).run
    submit(journal, run, output="mine")

    with pytest.raises(Conflict):
        submit(store.open(), run, output="another's")

    assert [record.event.output for record in journal.read("r1", after=run.sequence)[:1]] == ["mine"]
    assert journal.head("r1") == len(journal.read("r1"))


def test_a_run_is_begun_once(store, journal):
    first = begin(journal, time=1_000)

    with pytest.raises(Conflict):
        begin(store.open(), time=5_000)

    assert journal.read("r1") == first.records
    assert [line.started for line in journal.summaries(Query())] == [1_000]


def test_an_append_is_stored_whole_or_not_at_all(journal):
    run = begin(journal).run
    draft = advance.submit(run, "one", "done", {}, Moment(time=9))
    twice = [*draft.records, draft.records[-1]]

    with pytest.raises(StorageError):
        journal.append("r1", run.sequence, twice, summarise(draft.run))

    assert (journal.head("r1"), len(journal.read("r1"))) == (run.sequence, run.sequence)
    assert journal.summaries(Query())[0] == summarise(run)
    journal.append("r1", run.sequence, draft.records, summarise(draft.run))
    assert journal.head("r1") == draft.run.sequence


def test_many_at_once_and_each_record_is_stored_once(store):
    run = begin(store.open()).run
    won, lost = [], []

    def race(number):
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


@pytest.fixture
def many(journal):
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
def test_runs_are_listed_the_last_started_first(many, query, expected):
    assert [line.id for line in many.summaries(Query(**query))] == expected


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
def test_runs_are_listed_by_patterns_of_workflows(journal, patterns, expected):
    for time, name in enumerate(("docs-b", "docs_a", "docsxa"), 1):
        begin(journal, f"run-{name}", time=time, workflow=build(document(step("one"), identifier=name)))

    found = journal.summaries(Query(workflows=patterns))

    assert sorted(summary.workflow_id for summary in found) == expected
    assert [journal.workflow_of(summary.id) for summary in found] == [summary.workflow_id for summary in found]
    assert journal.workflow_of("no-such-run") is None


def test_a_line_about_a_run_says_what_the_run_says(journal):
    run = submit(journal, begin(journal).run).run

    assert journal.summaries(Query()) == [summarise(run)]


def test_runs_are_overdue_after_their_deadline_and_not_when_they_are_over(journal):
    run = begin(journal, time=1_000).run
    begin(journal, "unlimited", workflow=build(document()))

    assert journal.overdue(61_000) == []
    assert journal.overdue(61_001) == ["r1"]
    draft = advance.cancel(run, Moment(time=61_002))
    journal.append("r1", run.sequence, draft.records, summarise(draft.run))
    assert journal.overdue(99_999) == []


def call(journal, run_id, *, time=1_000):
    return begin(journal, run_id, time=time, workflow=CALLING).run


def store_draft(journal, run, draft):
    journal.append(run.id, run.sequence, draft.records, summarise(draft.run))
    return draft.run


def test_runs_at_work_are_known_the_one_that_waits_longest_first(journal):
    begin(journal, "prompt")
    second, first = call(journal, "b", time=2_000), call(journal, "c", time=1_000)
    call(journal, "a", time=2_000)
    store_draft(journal, first, advance.begin_call(first, Moment(time=3_000)))

    assert [(one.id, one.state, one.waiting_for) for one in journal.at_work(10)] == [
        ("a", "queued", "call"),
        ("b", "queued", "call"),
        ("c", "running", "call"),
    ]
    assert [one.id for one in journal.at_work(1)] == ["a"]
    assert [journal.queue_position(run_id) for run_id in ("a", "b", "c", "prompt", "none")] == [
        *((1, 2), (2, 2), (0, 2), (0, 2), (0, 2)),
    ]
    store_draft(journal, second, advance.cancel(second, Moment(time=3_000)))
    assert journal.queue_position("a") == (1, 1)


def test_a_call_that_was_left_running_is_known_until_it_is_said_what_became_of_it(store, journal):
    run = call(journal, "a")
    run = store_draft(journal, run, advance.begin_call(run, Moment(time=2_000)))
    assert journal.left_running() == []
    run = store_draft(journal, run, advance.cancel(run, Moment(time=3_000)))
    assert store.open().left_running() == ["a"]
    store_draft(journal, run, advance.stop_call(run, False, "It may still be running.", Moment(time=4_000)))
    assert journal.left_running() == []


def test_events_of_calls_are_read_as_they_were_stored(journal):
    run, records = call(journal, "a"), journal.read("a")
    at = Moment(time=2_000)
    for move in (
        lambda run: advance.begin_call(run, at),
        lambda run: advance.acknowledge_call(run, "7 \0 é", at),
        lambda run: advance.report_call(run, 1, 2.5, "half", at),
        lambda run: advance.fail_call(run, "no route", at),
        lambda run: advance.begin_call(run, at),
        lambda run: advance.finish_call(run, "ok", {"a": [1, None]}, at),
    ):
        draft = move(run)
        records += draft.records
        run = store_draft(journal, run, draft)

    assert journal.read("a") == records
    assert run.context["made"] == {"a": [1, None]}


def test_the_version_changes_when_another_process_writes(store, journal):
    run = begin(journal).run
    other = store.open()
    before = other.version()
    assert other.version() == before

    submit(journal, run)

    assert other.version() != before
    assert other.heads(since=2_000) == {"r1": journal.head("r1")}
    assert other.heads(since=2_001) == {}


def test_a_run_that_is_deleted_is_gone_and_can_be_begun_again(journal):
    begin(journal)
    begin(journal, "r2")

    assert journal.delete("r1") is True
    assert journal.delete("r1") is False
    assert (journal.head("r1"), journal.read("r1"), journal.head("r2")) == (None, [], 2)
    begin(journal)


def test_nothing_is_appended_to_another_run_of_the_same_id(journal):
    old = begin(journal, time=1_000).run
    journal.delete("r1")
    new = begin(journal, time=1_001)

    with pytest.raises(Conflict):
        submit(journal, old)

    assert journal.read("r1") == new.records
    assert journal.mark("r1") == Mark(new.run.sequence, 1_001, new.run.hash)


def test_purging_takes_what_is_over_and_old(many):
    assert many.purge(before=6_000) == 0
    assert many.purge(before=6_001) == 1
    assert many.head("over") is None
    assert many.query("SELECT COUNT(*) FROM events WHERE run = 'over'") == [(0,)]
    assert len(many.summaries(Query())) == 5


def test_a_record_that_cannot_be_read_is_named(journal):
    begin(journal)
    with journal.writing() as transaction:
        transaction.execute("UPDATE events SET body = ? WHERE sequence = ?", ('{"event":"from-the-future"}', 2))

    with pytest.raises(StorageError, match="Event 2 of run 'r1' cannot be read"):
        journal.read("r1")


def test_it_can_be_opened_by_many_at_the_same_moment(store):
    heads = []

    def look(_):
        journal = store.make()
        heads.append(journal.head("r1"))
        journal.close()

    at_once(look, 8)

    assert heads == [None] * 8


# ── SQLite ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "runs.sqlite"


@pytest.fixture
def opened(path):
    store = Store(lambda: SqliteJournal(str(path)))
    yield store.open
    store.close()


def test_only_its_user_may_read_the_file(path, opened):
    begin(opened())

    modes = {name: stat.S_IMODE(os.stat(path.parent / name).st_mode) for name in os.listdir(path.parent)}
    assert set(modes.values()) == {0o600}
    assert {"runs.sqlite", "runs.sqlite-wal"} <= modes.keys()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_commit_is_on_the_disk_when_it_returns(opened):
    journal = opened()
    begin(journal)

    assert journal.query("PRAGMA journal_mode") == [("wal",)]
    assert journal.query("PRAGMA synchronous") == [(2,)]


def spoil(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize("offset", [0, 4096], ids=["header", "a page"])
def test_a_damaged_file_is_set_aside_named_and_never_deleted(path, opened, caplog, offset):
    first = opened()
    begin(first)
    first.close()
    spoil(path, offset)
    spoilt = path.read_bytes()
    journal = opened()

    with pytest.raises(StorageError) as refusal:
        journal.read("r1")

    (aside,) = path.parent.glob("runs.sqlite.corrupt-*[0-9]")
    assert aside.read_bytes() == spoilt
    assert str(aside) in str(refusal.value)
    assert str(aside) in caplog.text
    begin(journal)
    assert journal.head("r1") == 2


def test_a_file_that_several_find_damaged_is_set_aside_once(path, opened):
    first = opened()
    begin(first)
    first.close()
    spoil(path, 0)
    stored, refusals = [], []

    def use(number):
        journal = SqliteJournal(str(path))
        for turn in range(2):
            try:
                stored.append(begin(journal, f"{number}-{turn}").run.id)
            except StorageError as refusal:
                refusals.append(refusal)
        journal.close()

    at_once(use, 6)

    assert len(list(path.parent.glob("runs.sqlite.corrupt-*[0-9]"))) == 1
    assert (1 <= len(refusals) <= 6, len(stored) + len(refusals)) == (True, 12)
    assert sorted(line.id for line in opened().summaries(Query())) == sorted(stored), "nothing went to the old file"


def test_those_who_had_a_damaged_file_open_go_on_with_the_new_one(path, opened):
    first, second = opened(), opened()
    begin(first)
    assert second.head("r1") == 2
    os.rename(path, f"{path}.corrupt-by-hand")
    for suffix in ("-wal", "-shm"):
        os.rename(f"{path}{suffix}", f"{path}.corrupt-by-hand{suffix}")

    begin(first, "new")
    assert (second.head("new"), second.head("r1")) == (2, None)
    second.close()
    first.close()
    assert SqliteJournal(f"{path}.corrupt-by-hand").head("r1") == 2


def test_a_file_that_another_process_holds_is_waited_for_and_then_refused(path, opened, monkeypatch):
    monkeypatch.setattr("workflowlookup.runs.sqlite.BUSY_SECONDS", 0.1)
    journal = opened()
    run = begin(journal).run
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(StorageError, match=r"Another process holds it for too long\. Try again"):
        submit(journal, run)

    holder.execute("ROLLBACK")
    holder.close()
    submit(journal, run)


def test_a_file_that_cannot_be_written_is_refused_until_it_can(path, opened):
    journal = opened()
    run = begin(journal).run
    journal.query("PRAGMA query_only = ON")  # what a read-only file answers, also to root

    with pytest.raises(StorageError, match="readonly"):
        submit(journal, run)

    submit(journal, run)


def test_a_place_that_cannot_be_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    journal = SqliteJournal(str(tmp_path / "file" / "runs.sqlite"))

    with pytest.raises(StorageError, match=r"runs\.sqlite, cannot be used: File exists"):
        journal.head("r1")


def test_a_file_of_an_older_version_is_brought_up_to_date(path, opened):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(MIGRATIONS[0])
        old.execute("PRAGMA user_version = 1")

    journal = opened()
    call(journal, "a")
    assert journal.queue_position("a") == (1, 1)
    assert [one.id for one in journal.at_work(5)] == ["a"]


def test_a_file_of_a_newer_version_is_left_alone(path, opened):
    first = opened()
    begin(first)
    first.query("PRAGMA user_version = 99")
    first.query("UPDATE levels SET least = 98")
    first.close()

    for _ in range(2):
        with pytest.raises(StorageError, match=r"written by a newer version of workflowlookup\. Update this one"):
            opened().head("r1")


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shared(database):
    store = Store(lambda: PostgresJournal(database))
    yield store.open
    store.close()


def cut(url):
    """End all other connections to a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_connection_that_was_lost_is_made_anew(shared, database):
    journal = shared()
    run = begin(journal).run
    cut(database)
    assert journal.head("r1") == 2
    cut(database)

    draft = submit(journal, run)

    assert journal.read("r1", after=2) == draft.records


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_append_whose_fate_is_unknown_is_stored_once(shared, database, is_stored):
    journal = shared()
    run = begin(journal).run
    whole = journal.writing

    @contextlib.contextmanager
    def broken():
        """Loses the connection just after the commit, or just before it."""
        journal.writing = whole
        with whole() as transaction:
            yield transaction
            if not is_stored:
                cut(database)
        cut(database)
        with journal._connected() as connection:
            connection.execute("SELECT 1")

    journal.writing = broken

    draft = submit(journal, run)

    assert journal.read("r1", after=2) == draft.records


def test_a_database_that_restarts_is_found_again(shared, postgres):
    journal = shared()
    run = begin(journal).run
    postgres.restart()

    assert submit(journal, run).run.sequence == journal.head("r1")


def test_a_database_that_cannot_be_reached_is_named_without_its_password():
    for url in (
        "postgresql://me:secret@127.0.0.1:1/db",
        "postgresql://me:secret@host:secret/db?nonsense=secret",
        "postgresql://me:very@secret@127.0.0.1/db",
    ):
        with pytest.raises(StorageError) as refusal:
            PostgresJournal(url).head("r1")

        assert refusal.value.remedy.startswith("The journal of runs, ")
        assert "secret" not in str(refusal.value)


def test_a_process_that_never_opens_its_file_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("workflowlookup.runs.sqlite.BUSY_SECONDS", 0.1)
    journal = SqliteJournal(str(tmp_path / "runs.sqlite"))
    with open(tmp_path / "runs.sqlite.lock", "w") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="Another process holds it for too long"):
            journal.head("r1")

    assert begin(journal).run.sequence == journal.head("r1")
    journal.close()


def test_a_network_that_is_gone_is_not_waited_for(shared):
    journal = shared()
    journal.head("r1")

    settings = journal._connection.info.get_parameters()

    assert settings["tcp_user_timeout"] == "20000"
    assert int(settings["keepalives_idle"]) + 2 * int(settings["keepalives_interval"]) <= 20


def test_a_database_of_a_newer_version_is_left_alone(shared):
    first = shared()
    begin(first)
    with first.writing() as transaction:
        transaction.execute("UPDATE meta SET version = 99")
        transaction.execute("UPDATE levels SET least = 98")

    with pytest.raises(StorageError, match="written by a newer version"):
        shared().head("r1")


def test_records_are_the_same_in_both(shared, opened):
    there, here = shared(), opened()
    for journal in (there, here):
        submit(journal, begin(journal).run)

    assert msgspec.json.encode(there.read("r1")) == msgspec.json.encode(here.read("r1"))
    assert there.summaries(Query()) == here.summaries(Query())


def test_names_of_tools_are_kept_and_the_first_to_take_one_has_it(store):
    journal, other = store.open(), store.open()
    journal.keep_tool_names({("p", "1"): "report", ("p", "2"): "report_2"}, [])

    other.keep_tool_names({("q", "9"): "report", ("p", "1"): "another", ("q", "8"): "free"}, [])
    assert journal.tool_names() == {("p", "1"): "report", ("p", "2"): "report_2", ("q", "8"): "free"}

    other.keep_tool_names({("q", "9"): "report"}, [("p", "1")])
    assert journal.tool_names() == {("q", "9"): "report", ("p", "2"): "report_2", ("q", "8"): "free"}
