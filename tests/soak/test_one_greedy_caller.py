"""One token takes all that it can get, and one address opens idle connections, while two other tokens read.

Prints how long the others waited, quiet and under attack, for as long each and after a warm-up: the first requests
import modules and fill caches. Only what is no timing is asserted: all of them are served.
"""

import collections
import contextlib
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.make import document, step, write
from support.web import HEADERS, WebServer, opening
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens

SECONDS = 15.0
"""Of each measurement: the same for both, because a 99th percentile of few reads is the slowest of them."""
WARM_UP_SECONDS = 2.0
PAGES = ("/statistics", "/library", "/runs")
IDLE_CONNECTIONS = 4_050
GREEDY_THREADS = 4
GET = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "workflow_get", "arguments": {"id": "docs"}},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[WebServer, dict[str, str]]]:
    write(tmp_path / "library", document(step(), identifier="docs"))
    tokens = Tokens(SqliteJournal(str(tmp_path / "runs.sqlite")))
    secrets = {name: tokens.create(name, ["read"], ["*"], seconds=600)[0] for name in ("greedy", "ada", "bob")}
    tokens.close()
    server = WebServer(tmp_path, "--journal", str(tmp_path / "runs.sqlite"), directory=tmp_path / "library")
    yield server, secrets
    server.stop()


class Reader(threading.Thread):
    """A caller within its limits that reads a workflow again and again."""

    def __init__(self, server: WebServer, secret: str, seconds: float) -> None:
        super().__init__()
        self._server, self._secret, self._seconds = server, secret, seconds
        self.latencies, self.refusals = [], []

    def run(self) -> None:
        headers = HEADERS | {"authorization": f"Bearer {self._secret}"}
        with httpx2.Client(headers=headers, timeout=30) as http:
            session = http.post(self._server.url, json=opening()).headers["mcp-session-id"]
            headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
            end = time.monotonic() + self._seconds
            while time.monotonic() < end:
                begun = time.perf_counter()
                answer = http.post(self._server.url, json=GET, headers=headers)
                self.latencies.append(time.perf_counter() - begun)
                if answer.status_code != 200:
                    self.refusals.append(answer.status_code)
                time.sleep(0.15)
            http.delete(self._server.url, headers=headers)


class Greedy(threading.Thread):
    """Opens sessions and listeners and sends requests as fast as it can."""

    def __init__(self, server: tuple[WebServer, dict[str, str]], secret: str) -> None:
        super().__init__()
        self._server, self._secret = server, secret
        self.statuses = []

    def run(self) -> None:
        headers = HEADERS | {"authorization": f"Bearer {self._secret}"}
        end = time.monotonic() + SECONDS
        with httpx2.Client(headers=headers, timeout=30) as http, contextlib.ExitStack() as listeners:
            while time.monotonic() < end:
                opened = http.post(self._server.url, json=opening())
                self.statuses.append(opened.status_code)
                stream = http.stream("GET", f"{self._server.base}/events", headers={"accept": "text/event-stream"})
                if len(self.statuses) <= 80:
                    self.statuses.append(listeners.enter_context(stream).status_code)
                for page in PAGES:
                    self.statuses.append(http.get(self._server.base + page).status_code)


def warm_up(server: WebServer, secrets: dict[str, str]) -> None:
    """Have everything done once that is measured later."""
    with httpx2.Client(headers={"authorization": f"Bearer {secrets['greedy']}"}, timeout=30) as http:
        for page in PAGES:
            assert http.get(server.base + page).status_code == 200
    read(server, secrets, WARM_UP_SECONDS)


def read(server: WebServer, secrets: dict[str, str], seconds: float = SECONDS) -> list[Reader]:
    readers = [Reader(server, secrets[name], seconds) for name in ("ada", "bob")]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return readers


def report(name: str, readers: list[Reader]) -> float:
    """Print the latencies; the 99th percentile in milliseconds."""
    latencies = sorted(latency for reader in readers for latency in reader.latencies)
    p99 = latencies[int(len(latencies) * 0.99)] * 1000
    print(f"{name}: {len(latencies)} reads, p50 {statistics.median(latencies) * 1000:.1f}, p99 {p99:.1f} ms")
    return p99


def assert_served(readers: list[Reader]) -> None:
    assert all(reader.latencies for reader in readers)
    assert [reader.refusals for reader in readers] == [[], []]


def test_others_are_served_while_one_token_takes_all_it_can(
    server: tuple[WebServer, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, secrets = server
    warm_up(server, secrets)
    quiet = read(server, secrets)
    greedy = [Greedy(server, secrets["greedy"]) for _ in range(GREEDY_THREADS)]
    for thread in greedy:
        thread.start()
    attacked = read(server, secrets)
    for thread in greedy:
        thread.join()

    with capsys.disabled():
        print()
        before = report("quiet", quiet)
        after = report("one greedy token", attacked)
        print(f"p99 under attack: {after / before:.1f} times the quiet one")
        statuses = collections.Counter(status for thread in greedy for status in thread.statuses)
        print(f"what the greedy token was answered: {dict(statuses)}")
    assert_served(quiet)
    assert_served(attacked)


def test_others_are_served_while_one_address_has_idle_connections(
    server: tuple[WebServer, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, secrets = server
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE_CONNECTIONS + 256:
        pytest.skip(f"at most {hard} files can be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE_CONNECTIONS + 256), hard))
    warm_up(server, secrets)
    address = ("127.0.0.1", int(server.base.rpartition(":")[2]))
    with contextlib.ExitStack() as idle:
        for _ in range(IDLE_CONNECTIONS):
            idle.enter_context(socket.create_connection(address, timeout=30, source_address=("127.0.0.2", 0)))
        readers = read(server, secrets)

    with capsys.disabled():
        print()
        report(f"{IDLE_CONNECTIONS:,} idle connections", readers)
    assert_served(readers)
