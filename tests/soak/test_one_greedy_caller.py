"""One token takes all that it can get, and one address opens idle connections, while other tokens read.

Prints how long the others waited, quiet and under attack by turns, because others use the machine as well: the medians
of the rounds are compared. Only what is no timing is asserted: all of them are served.
"""

import collections
import contextlib
import json
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import msgspec
import pytest

from soak import greedy_caller
from support.make import document, step, write
from support.web import WebClient, WebServer
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens

ROUNDS = 5
SECONDS = 6.0
"""Of each measurement: the same for both, because a 99th percentile of few reads is the slowest of them."""
WARM_UP_SECONDS = 2.0
"""The first pages are compiled, and caches are filled."""
READERS = 6
READ_PAUSE_SECONDS = 0.017
"""So that no reader exceeds its rate."""
IDLE_CONNECTIONS = 4_050
GET = {"name": "workflow_get", "arguments": {"id": "docs"}}


class Latencies(msgspec.Struct, frozen=True):
    """How long the reads of one measurement took, in milliseconds."""

    reads: int
    p50: float
    p99: float


class Crowd:
    """A server, and callers within their limits that read a workflow by turns."""

    def __init__(self, server: WebServer, secrets: dict[str, str]) -> None:
        self.server = server
        self.greedy_secret = secrets.pop("greedy")
        self._readers = [WebClient(server.url, authorization=f"Bearer {secret}") for secret in secrets.values()]
        for reader in self._readers:
            reader.initialize()

    def warm_up(self) -> None:
        """Have everything done once that is measured later."""
        headers = {"authorization": f"Bearer {self.greedy_secret}"}
        for page in greedy_caller.PAGES:
            assert httpx2.get(self.server.base + page, headers=headers).status_code == 200
        self.read(WARM_UP_SECONDS)

    def read(self, seconds: float = SECONDS) -> Latencies:
        """Read for so long; all of it is served."""
        latencies: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for reader in self._readers:
                begun = time.perf_counter()
                assert "result" in reader.request("tools/call", GET)
                latencies.append((time.perf_counter() - begun) * 1000)
                time.sleep(READ_PAUSE_SECONDS)
        latencies.sort()
        return Latencies(len(latencies), statistics.median(latencies), latencies[int(len(latencies) * 0.99)])

    def attacked(self) -> tuple[Latencies, dict[str, int]]:
        """The same while one token takes all that it can get; and the statuses of its answers."""
        command = [sys.executable, greedy_caller.__file__, self.server.url, self.greedy_secret, str(SECONDS + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as greedy:
            latencies = self.read()
            statuses = json.loads(greedy.communicate()[0])
        assert greedy.returncode == 0
        return latencies, statuses


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    write(tmp_path / "library", document(step(), identifier="docs"))
    tokens = Tokens(SqliteJournal(str(tmp_path / "runs.sqlite")))
    names = ("greedy", *(f"reader-{number}" for number in range(READERS)))
    secrets = {name: tokens.create(name, ["read"], ["*"], seconds=600)[0] for name in names}
    tokens.close()
    server = WebServer(tmp_path, "--journal", str(tmp_path / "runs.sqlite"), directory=tmp_path / "library")
    yield Crowd(server, secrets)
    server.stop()


def report(name: str, rounds: Sequence[Latencies]) -> float:
    """Print the medians of the rounds; that of the 99th percentile."""
    p50, p99 = (statistics.median(getattr(each, field) for each in rounds) for field in ("p50", "p99"))
    print(f"{name}: {sum(each.reads for each in rounds):,} reads, p50 {p50:.1f}, p99 {p99:.1f} ms")
    return float(p99)


def test_others_are_served_while_one_token_takes_all_it_can(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    crowd.warm_up()
    quiet, attacked = [], []
    statuses: collections.Counter[str] = collections.Counter()
    for _ in range(ROUNDS):
        quiet.append(crowd.read())
        latencies, answers = crowd.attacked()
        attacked.append(latencies)
        statuses.update(answers)

    with capsys.disabled():
        print()
        before = report("quiet", quiet)
        after = report("one greedy token", attacked)
        print(f"p99 under attack: {after / before:.1f} times the quiet one")
        print(f"what the greedy token was answered: {dict(statuses)}")


def test_others_are_served_while_one_address_has_idle_connections(
    crowd: Crowd, capsys: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE_CONNECTIONS + 256:
        pytest.skip(f"at most {hard} files can be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE_CONNECTIONS + 256), hard))
    crowd.warm_up()
    address = ("127.0.0.1", int(crowd.server.base.rpartition(":")[2]))
    quiet, attacked = [], []
    for _ in range(ROUNDS):
        quiet.append(crowd.read())
        with contextlib.ExitStack() as idle:
            for _ in range(IDLE_CONNECTIONS):
                idle.enter_context(socket.create_connection(address, timeout=30, source_address=("127.0.0.2", 0)))
            attacked.append(crowd.read())

    with capsys.disabled():
        print()
        report("quiet", quiet)
        report(f"{IDLE_CONNECTIONS:,} idle connections", attacked)
