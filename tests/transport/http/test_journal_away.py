"""A journal that does not answer, under a real server: a stopped PostgreSQL, one that is silent, a table or a file that
somebody else holds. Everything that needs no journal goes on, what needs it is refused in time, and all is well after.
"""

import contextlib
import functools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from replicas.fleet import DatabaseLink
from support.client import Start
from support.json_values import Json
from support.make import document, settings_file, step, write
from support.postgres import Postgres
from support.waiting import wait_until
from support.web import HEADERS, WebClient, WebServer, modern, routing
from upstream.upstreams import McpUpstream
from workflowlookup.errors import JournalUnavailable
from workflowlookup.language.document.building import build
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import NoRoom
from workflowlookup.store.pool import MAX_THREADS
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.service import Runs
from workflowlookup.store.tokens import Tokens

TIMEOUT_SECONDS = 2.0
OUTAGE_SECONDS = 7.0
CALL_SECONDS = 1.0
QUICK_SECONDS = 1.0
"""What a request takes that waits for nothing, on a machine that others use, too."""


class Frozen:
    """PostgreSQL whose processes are stopped."""

    def __init__(self, postgres: Postgres) -> None:
        self.url = postgres.create_database()
        self._postgres = postgres

    def outage(self) -> contextlib.AbstractContextManager[None]:
        return self._postgres.paused()

    def close(self) -> None:
        pass


class Silent:
    """PostgreSQL behind a network that takes everything and brings nothing back."""

    def __init__(self, postgres: Postgres) -> None:
        self._link = DatabaseLink(postgres.create_database())
        self.url = self._link.url

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        self._link.freeze()
        yield
        self._link.restore()

    def close(self) -> None:
        self._link.close()


class Locked:
    """PostgreSQL with a table that another connection holds."""

    mode = "ACCESS EXCLUSIVE"

    def __init__(self, postgres: Postgres) -> None:
        self.url = postgres.create_database()

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        with psycopg.connect(self.url) as connection:
            connection.execute(f"LOCK TABLE workflowlookup.runs IN {self.mode} MODE")
            yield
            connection.rollback()

    def close(self) -> None:
        pass


class WriteLocked(Locked):
    """PostgreSQL with a table that another connection holds, and that can still be read."""

    mode = "EXCLUSIVE"


class Answer:
    """What came back for a request, and how many seconds that took."""

    def __init__(self, send: Callable[[httpx2.Client], httpx2.Response]) -> None:
        with httpx2.Client(timeout=60, verify=False) as http:
            begun = time.monotonic()
            response = send(http)
            self.seconds = time.monotonic() - begun
        self.status, self.headers, self.text, self.json = (
            response.status_code,
            response.headers,
            response.text,
            response.json,
        )


def is_ready(url: str) -> bool:
    return httpx2.get(url).status_code == 200


class Site:
    """A server, and its database."""

    def __init__(self, home: Path, database: "Frozen | Silent | Locked | HeldFile") -> None:
        self.database = database
        self.upstream = McpUpstream(home / "up")
        self._home = home
        write(home / "library", document(step("one"), step("two"), identifier="by-hand"))
        call = {"server": "up", "tool": "sleep", "arguments": {"seconds": CALL_SECONDS, "steps": 1}}
        calls = [{"id": name, "title": name, "call": call} for name in ("first", "second")]
        write(home / "library", document(*calls, identifier="with-calls"))
        settings_file(home).write_text(self.upstream.toml())
        self._servers: list[WebServer] = []
        self.server = self.start()
        self.headers: dict[str, str] = {}

    def start(self) -> WebServer:
        """Start another replica."""
        flags = ("--journal-timeout-seconds", str(TIMEOUT_SECONDS), "--requests-per-minute", "0")
        environment = {"WORKFLOWLOOKUP_JOURNAL": self.database.url}
        server = WebServer(self._home, *flags, directory=self._home / "library", environment=environment)
        self._servers.append(server)
        return server

    def get(self, path: str) -> Answer:
        return Answer(lambda http: http.get(f"{self.server.base}{path}"))

    def call(self, name: str, **arguments: Json) -> Answer:
        """Call a tool, without a session."""
        message = modern("tools/call", {"name": name, "arguments": arguments})
        headers = HEADERS | self.headers | routing(message)
        return Answer(lambda http: http.post(self.server.url, json=message, headers=headers))

    def close(self) -> None:
        for server in self._servers:
            server.stop()
        self.database.close()


@pytest.fixture(params=[Frozen, Silent, Locked], ids=lambda kind: kind.__name__.lower())
def site(request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, request.param(postgres))
    yield site
    site.close()


def result(response: Answer) -> Json:
    return response.json()["result"]["structuredContent"]


def test_health_is_answered_at_once_and_what_needs_the_journal_in_time(site: Site) -> None:
    run = result(site.call("workflow_start", workflowId="by-hand"))["runId"]
    probes, refusals = [], []
    with site.database.outage():
        needing = threading.Thread(target=lambda: refusals.append(site.call("workflow_start", workflowId="by-hand")))
        needing.start()
        end = time.monotonic() + OUTAGE_SECONDS
        while time.monotonic() < end:
            probes += [(site.get("/healthz"), site.get("/readyz"))]
            time.sleep(0.1)
        read = site.call("workflow_get", id="by-hand")
        refusals.append(site.call("workflow_status", runId=run))
        needing.join(30)

    print(f"slowest probe: {max(answer.seconds for pair in probes for answer in pair) * 1000:.0f} ms")
    assert all(answer.seconds < QUICK_SECONDS for pair in probes for answer in pair)
    assert {health.status for health, _ in probes} == {200}
    assert probes[-1][1].status == 503
    assert (read.status, result(read)["id"]) == (200, "by-hand")
    assert read.seconds < QUICK_SECONDS
    for refused in refusals:
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "-32006" in refused.text
        assert refused.seconds < TIMEOUT_SECONDS + QUICK_SECONDS
    wait_until(lambda: site.get("/readyz").status == 200)
    assert result(site.call("workflow_submit", runId=run, stepId="one", output="done"))["runId"] == run
    assert "Traceback" not in site.server.log()
    assert "the event loop waits" not in site.server.log()


# ── one outage, and all that depends on it ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def frozen(postgres: Postgres, tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, Frozen(postgres))
    yield site
    site.close()


def make_token(url: str, name: str) -> str:
    with contextlib.closing(PostgresJournal(url)) as journal:
        return Tokens(journal).create(name, ["run"], ["*"], seconds=None)[0]


def test_a_cached_token_is_accepted_during_an_outage_and_another_is_refused(frozen: Site) -> None:
    seen, unseen = (make_token(frozen.database.url, name) for name in ("seen", "unseen"))
    frozen.headers = {"authorization": f"Bearer {seen}"}
    assert frozen.call("workflow_get", id="by-hand").status == 200
    with frozen.database.outage():
        reply = frozen.call("workflow_get", id="by-hand")
        needs_journal = frozen.call("workflow_runs")
        frozen.headers = {"authorization": f"Bearer {unseen}"}
        unknown = frozen.call("workflow_get", id="by-hand")

    assert (reply.status, needs_journal.status) == (200, 503)
    assert (unknown.status, unknown.headers["retry-after"]) == (503, "5")


def test_a_request_of_a_session_is_refused_with_503_and_the_session_goes_on(frozen: Site) -> None:
    client = WebClient(frozen.server.url)
    client.initialize()
    status = {"name": "workflow_runs", "arguments": {}}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": status}
    with frozen.database.outage():
        answers = [client.post(message) for _ in range(2)]

    assert [(one.status_code, one.headers["retry-after"]) for one in answers] == [(503, "5")] * 2
    assert answers[0].json()["id"] == 7
    wait_until(lambda: frozen.get("/readyz").status == 200)
    assert client.request("tools/call", status)["result"]["structuredContent"]["runs"] == []
    client.close()


def test_a_run_at_a_call_goes_on_after_an_outage_and_makes_each_call_once(frozen: Site) -> None:
    run = result(frozen.call("workflow_start", workflowId="with-calls", wait=False))["runId"]
    frozen.upstream.wait_for("call")
    with frozen.database.outage():
        time.sleep(CALL_SECONDS + 2 * TIMEOUT_SECONDS)  # the call has ended, and that cannot be stored
        assert frozen.call("workflow_status", runId=run).status == 503

    wait_until(lambda: frozen.get("/readyz").status == 200)
    wait_until(lambda: result(frozen.call("workflow_status", runId=run))["state"] == "completed", 60)
    assert len(frozen.upstream.seen("call")) == 2
    assert "Traceback" not in frozen.server.log()


def test_a_session_of_two_replicas_goes_on_at_both_after_an_outage(frozen: Site) -> None:
    urls = [frozen.server.url, frozen.start().url]
    client = WebClient(urls[0])
    client.initialize()
    run = call_tool(client, "workflow_start", workflowId="by-hand")["runId"]
    client.url = urls[1]
    assert call_tool(client, "workflow_submit", runId=run, stepId="one", output="done")["state"] == "waiting"
    status = {"name": "workflow_status", "arguments": {"runId": run}}
    with frozen.database.outage():
        for client.url in urls:
            refused = client.post({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": status})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")

    for url in urls:
        wait_until(functools.partial(is_ready, url.replace("/mcp", "/readyz")))
    assert call_tool(client, "workflow_submit", runId=run, stepId="two", output="done")["state"] == "completed"
    client.url = urls[0]
    assert call_tool(client, "workflow_status", runId=run)["state"] == "completed"
    client.close()


def call_tool(client: WebClient, name: str, **arguments: Json) -> Json:
    return client.request("tools/call", {"name": name, "arguments": arguments})["result"]["structuredContent"]


def test_the_server_ends_in_time(frozen: Site) -> None:
    with frozen.database.outage():
        thread = threading.Thread(target=frozen_call, args=(frozen,))
        thread.start()
        time.sleep(0.3)
        begun = time.monotonic()
        frozen.server.terminate()
        frozen.server.wait(30)
        took = time.monotonic() - begun
        thread.join(30)

    assert took < 5


def test_a_replica_without_its_lease_drives_nothing_and_is_not_ready(frozen: Site) -> None:
    frozen.call("workflow_start", workflowId="with-calls")
    with psycopg.connect(frozen.database.url, autocommit=True) as other, psycopg.connect(frozen.database.url) as thief:
        ((pid, space, key),) = other.execute(
            "SELECT pid, classid::int, objid::bigint FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND application_name = 'workflowlookup-lease' AND datname = current_database()"
        ).fetchall()
        lock = "SELECT pg_advisory_lock(%s, %s)", (space, key - (key >> 31 << 32))
        waiting = threading.Thread(target=thief.execute, args=lock)
        waiting.start()  # it is first in line when the server loses its lease
        wait_until(lambda: other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        waiting.join(30)
        wait_until(lambda: frozen.get("/readyz").status == 503, 60)
        assert frozen.get("/healthz").status == 200

    wait_until(lambda: frozen.get("/readyz").status == 200)
    assert "has not reached the journal's database" in frozen.server.log()


@contextlib.contextmanager
def read_only(postgres: Postgres, url: str) -> Iterator[None]:
    """The database of a URL, as after a fail-over: connections are cut, and new ones may only read."""
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only TO on".encode())
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        try:
            yield
        finally:
            connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())


def test_a_database_that_refuses_writes_is_unavailable_until_it_accepts_them(frozen: Site, postgres: Postgres) -> None:
    frozen.call("workflow_start", workflowId="with-calls")
    with read_only(postgres, frozen.database.url):
        wait_until(lambda: frozen.get("/readyz").status == 503)
        refused = frozen.call("workflow_start", workflowId="by-hand")
        time.sleep(2 * TIMEOUT_SECONDS)  # everything connects again, and may only read

    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "Nothing was changed" in refused.text
    wait_until(lambda: frozen.get("/readyz").status == 200)
    wait_until(lambda: frozen.call("workflow_start", workflowId="by-hand").status == 200)
    run = result(frozen.call("workflow_start", workflowId="with-calls", wait=False))["runId"]
    wait_until(lambda: result(frozen.call("workflow_status", runId=run))["state"] == "completed", 60)


def frozen_call(site: Site) -> None:
    with contextlib.suppress(httpx2.HTTPError):
        site.call("workflow_start", workflowId="by-hand")


WORKFLOW = build(document(step("one"), step("two")))


@pytest.fixture
def link(postgres: Postgres) -> Iterator[DatabaseLink]:
    link = DatabaseLink(postgres.create_database())
    yield link
    link.close()


@pytest.fixture
def runs(link: DatabaseLink) -> Iterator[Runs]:
    with contextlib.closing(Runs(PostgresJournal(link.url, 1.0))) as runs:
        yield runs


def submit(runs: Runs, run: str) -> Run:
    return runs.submit(run, "one", "done", {})


def start_with_id(runs: Runs, _: object) -> Run:
    return runs.start(WORKFLOW, {}, {}, run_id="mine")


def start(runs: Runs, _: object) -> Run:
    return runs.start(WORKFLOW, {}, {})


def test_a_change_that_a_read_only_session_refuses_is_stored_when_it_is_sent_again(postgres: Postgres) -> None:
    url = postgres.create_database()
    with contextlib.closing(Runs(PostgresJournal(url))) as runs:
        run = runs.start(WORKFLOW, {}, {}).id
        with read_only(postgres, url):
            runs.get(run)  # on a new connection
            with pytest.raises(JournalUnavailable, match="read-only") as refused:
                submit(runs, run)
            with pytest.raises(JournalUnavailable, match="read-only"):
                runs.journal.ping()
        assert refused.value.data["retryAfterSeconds"] == 5
        assert submit(runs, run).sequence > 2
        runs.journal.ping()


def test_a_change_that_a_full_disk_refuses_was_not_stored_and_may_be_sent_again(postgres: Postgres) -> None:
    url = postgres.create_database()
    with contextlib.closing(Runs(PostgresJournal(url))) as runs, psycopg.connect(url, autocommit=True) as connection:
        run = runs.start(WORKFLOW, {}, {}).id
        connection.execute(
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END$$"
        )
        connection.execute("CREATE TRIGGER fill BEFORE INSERT ON workflowlookup.events EXECUTE FUNCTION fill()")
        with pytest.raises(NoRoom, match=r"could not extend file\. Nothing was changed") as refused:
            submit(runs, run)
        connection.execute("DROP TRIGGER fill ON workflowlookup.events")
        assert refused.value.data["retryAfterSeconds"] == 5
        assert submit(runs, run).sequence > 2


@pytest.mark.parametrize("act", [submit, start_with_id])
def test_a_change_without_an_answer_that_is_recognised_may_be_sent_again(
    link: DatabaseLink, runs: Runs, act: Callable[..., Run]
) -> None:
    run = runs.start(WORKFLOW, {}, {}).id
    link.freeze_after(rb"UPDATE runs|INSERT INTO runs.*COMMIT")
    with pytest.raises(JournalUnavailable, match="Sending the same request again is safe") as refused:
        act(runs, run)
    link.restore()

    assert refused.value.data["retryAfterSeconds"] == 5
    moved = act(runs, run)
    assert [one.sequence for one in runs.records(moved.id)] == list(range(1, moved.sequence + 1))


@pytest.mark.parametrize("act", [Runs.cancel, start])
def test_another_change_without_an_answer_has_an_unknown_outcome(
    link: DatabaseLink, runs: Runs, act: Callable[[Runs, str], Run]
) -> None:
    run = runs.start(WORKFLOW, {}, {}).id
    link.freeze_after(rb"UPDATE runs|INSERT INTO runs.*COMMIT")
    with pytest.raises(JournalUnavailable, match="It is not known whether it was stored") as refused:
        act(runs, run)

    assert "retryAfterSeconds" not in refused.value.data
    assert "call workflow_status with the runId" in refused.value.data["details"]


def test_a_start_whose_commit_was_not_sent_has_changed_nothing(link: DatabaseLink, runs: Runs) -> None:
    runs.start(WORKFLOW, {}, {})
    link.freeze_after(rb"INSERT INTO runs")
    with pytest.raises(JournalUnavailable, match="Nothing was changed") as refused:
        runs.start(WORKFLOW, {}, {})

    assert refused.value.data["retryAfterSeconds"] == 5


def test_a_replica_that_cannot_store_a_session_opens_none(frozen: Site) -> None:
    """Other replicas would not know it. Open sessions and requests without one are still served."""
    client, late = WebClient(frozen.server.url), WebClient(frozen.server.url)
    client.initialize()
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
    read = {"name": "workflow_get", "arguments": {"id": "by-hand"}}
    with frozen.database.outage():
        refused = late.post({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": opening})
        in_session = client.request("tools/call", read)
        without_session = frozen.call("workflow_get", id="by-hand")

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert "mcp-session-id" not in refused.headers
    assert (refused.json()["id"], refused.json()["error"]["code"]) == (7, -32006)
    assert in_session["result"]["structuredContent"]["id"] == "by-hand"
    assert without_session.status == 200
    wait_until(lambda: frozen.get("/readyz").status == 200)
    late.initialize()
    assert "workflowlookup_sessions 2" in frozen.get("/metrics").text
    client.close()
    late.close()


def test_over_stdio_a_call_is_refused_within_the_setting(postgres: Postgres, start: Start) -> None:
    database = postgres.create_database()
    server = start(WORKFLOWLOOKUP_JOURNAL=database, WORKFLOWLOOKUP_JOURNAL_TIMEOUT_SECONDS=str(TIMEOUT_SECONDS))
    assert server.call("workflow_runs")["structuredContent"]["runs"] == []
    with postgres.paused():
        begun = time.monotonic()
        refused = server.call("workflow_runs")["structuredContent"]
        took = time.monotonic() - begun

    assert refused["code"] == -32006
    assert took < TIMEOUT_SECONDS + QUICK_SECONDS
    assert server.call("workflow_runs")["structuredContent"]["runs"] == []


# ── a file ──────────────────────────────────────────────────────────────────────────────────────────────────────


class HeldFile:
    """A SQLite file in which another process is writing, and does not finish."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        with contextlib.closing(sqlite3.connect(self.url, isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            yield
            holder.execute("ROLLBACK")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("is_file", [True, False], ids=["sqlite", "postgresql"])
def test_a_journal_locked_by_another_process_blocks_no_client(
    is_file: bool, tmp_path: Path, postgres: Postgres
) -> None:
    site = Site(tmp_path, HeldFile(tmp_path / "runs.sqlite") if is_file else WriteLocked(postgres))
    run = result(site.call("workflow_start", workflowId="by-hand"))["runId"]
    probes, refusals = [], []
    with site.database.outage():
        needing = [
            threading.Thread(target=lambda: refusals.append(site.call("workflow_start", workflowId="by-hand")))
            for _ in range(2 * MAX_THREADS)
        ]
        for thread in needing:
            thread.start()
        while any(thread.is_alive() for thread in needing):
            with contextlib.closing(WebClient(site.server.url)) as client:
                client.initialize()
            probes += [site.get("/healthz"), site.get("/readyz"), site.call("workflow_status", runId=run)]
            probes += [site.call("workflow_get", id="by-hand")]
            time.sleep(0.05)
    site.close()

    assert {probe.status for probe in probes} == {200}
    assert all(probe.seconds < QUICK_SECONDS for probe in probes)
    assert [(one.status, one.headers["retry-after"]) for one in refusals] == [(503, "5")] * len(needing)
    assert all(refused.seconds < TIMEOUT_SECONDS + QUICK_SECONDS for refused in refusals)
