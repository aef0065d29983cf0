"""A change whose answer was lost on the way from PostgreSQL is sent again, to another replica.

One replica reaches the database by a link that is frozen at a chosen statement. It answers 503 with `Retry-After`; the
other replica answers as if the first had never been asked, and the journal has every event once.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from replicas.fleet import DatabaseLink
from support.json_values import JsonObject
from support.make import document, settings_file, step, write
from support.postgres import Postgres
from support.waiting import wait_until
from support.web import HEADERS, WebServer, modern, routing
from upstream.upstreams import McpUpstream
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.service import Runs

SECONDS = 2.0
LONG = {"type": "length", "min": 10, "message": "too short"}
STARTED = rb"INSERT INTO runs.*COMMIT"
BEGUN = rb"INSERT INTO runs"
MOVED = rb"UPDATE runs.*INSERT INTO events"
POSITION = rb"WITH one AS"
"""Statements at which the link is frozen; the second is in the middle of a transaction."""


class Pair:
    """Two replicas; the first reaches the database by `link`."""

    def __init__(self, home: Path, database: str) -> None:
        write(home / "library", document(step("one", validationCriteria=LONG), step("two"), identifier="by-hand"))
        call = {"server": "up", "tool": "sleep", "arguments": {"seconds": 0.1}}
        write(home / "library", document({"id": "work", "title": "Work", "call": call}, identifier="by-server"))
        settings_file(home).write_text(McpUpstream(home / "up").toml())
        self.database = database
        self.link = DatabaseLink(database)
        self.servers = [self._start(home, url) for url in (self.link.url, database)]

    def _start(self, home: Path, url: str) -> WebServer:
        flags = ("--journal-timeout-seconds", str(SECONDS), "--requests-per-minute", "0")
        return WebServer(home, *flags, directory=home / "library", environment={"WORKFLOWLOOKUP_JOURNAL": url})

    def call(self, number: int, name: str, arguments: JsonObject) -> httpx2.Response:
        message = modern("tools/call", {"name": name, "arguments": arguments})
        return httpx2.post(self.servers[number].url, json=message, headers=HEADERS | routing(message), timeout=60)

    def events(self, run: str) -> list[tuple[int, str]]:
        runs = Runs(PostgresJournal(self.database))
        events = [(record.sequence, type(record.event).__name__) for record in runs.records(run)]
        runs.close()
        return events

    def is_ready(self) -> bool:
        return httpx2.get(f"{self.servers[0].base}/readyz", timeout=10).status_code == 200

    def stop(self) -> None:
        self.link.close()
        for server in self.servers:
            server.stop()


@pytest.fixture(scope="module")
def pair(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"), postgres.create_database())
    yield pair
    pair.stop()


def start(workflow: str, run: str) -> tuple[str, JsonObject]:
    return "workflow_start", {"workflowId": workflow, "runId": run}


def submit(run: str, output: str) -> tuple[str, JsonObject]:
    return "workflow_submit", {"runId": run, "stepId": "one", "output": output}


@pytest.mark.parametrize(
    ("statement", "before", "call"),
    [
        pytest.param(STARTED, [], lambda run: start("by-hand", run), id="start"),
        pytest.param(BEGUN, [], lambda run: start("by-hand", run), id="start-half-done"),
        pytest.param(STARTED, [], lambda run: start("by-server", run), id="start-of-a-call"),
        pytest.param(MOVED, [start], lambda run: submit(run, "It is done."), id="accepted-output"),
        pytest.param(MOVED, [start], lambda run: submit(run, "short"), id="refused-output"),
    ],
)
def test_what_is_sent_again_to_another_replica_is_answered_alike_and_stored_once(
    pair: Pair,
    request: pytest.FixtureRequest,
    statement: bytes,
    before: list[Callable[..., tuple[str, JsonObject]]],
    call: Callable[..., tuple[str, JsonObject]],
) -> None:
    lost, undisturbed = f"{request.node.callspec.id}-lost", f"{request.node.callspec.id}-undisturbed"
    for run in (lost, undisturbed):
        for prepare in before:
            pair.call(1, *prepare("by-hand", run))
    expected = pair.call(1, *call(undisturbed)).json()["result"]["structuredContent"]

    pair.link.freeze_after(statement)
    refused = pair.call(0, *call(lost))
    stored = pair.events(lost)
    repeated = pair.call(1, *call(lost))
    pair.link.restore()

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert ("Sending the same request again is safe" in refused.text) is bool(stored) is (statement is not BEGUN)
    assert repeated.status_code == 200, repeated.text
    answer = repeated.text.replace(lost, undisturbed)
    assert httpx2.Response(200, text=answer).json()["result"]["structuredContent"] == expected
    wait_until(pair.is_ready)
    assert pair.events(lost) == pair.events(undisturbed)


def test_a_run_that_was_started_is_not_refused_when_the_journal_goes_away_after_that(pair: Pair) -> None:
    """It has no `runId` of the client: sent again after a 503, it would start a second run."""
    pair.link.freeze_after(POSITION)
    response = pair.call(0, "workflow_start", {"workflowId": "by-server", "wait": False})
    pair.link.restore()

    assert response.status_code == 200
    answer = response.json()["result"]["structuredContent"]
    assert (answer["state"], "queue" in answer) == ("queued", False)
    assert pair.events(answer["runId"])
    wait_until(pair.is_ready)
