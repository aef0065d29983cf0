"""Three replicas under load while PostgreSQL is frozen, and while one of them is cut off from it.

`/healthz` is answered all the time. What needs no journal is served, and what needs it is refused with a 503 that has
`Retry-After`, or served by a replica beside. Afterwards nothing that was acknowledged is lost, nothing is in the journal
twice, and runs go on that were at a call. `make soak` takes 30 seconds for each outage; otherwise some must do.
"""

import asyncio
import collections
import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

import httpx2
import pytest

from replicas.fleet import Fleet, RoundRobinSender, reply_of
from soak.crowd import REFUSED, UNKNOWN, Ledger, Member, crowd_http, judge, wait_for_calls, write_library
from support.journey import IS_SOAK
from support.json_values import Json
from support.postgres import Postgres
from support.web import HEADERS, modern, routing
from workflowlookup.runs.fold import fold
from workflowlookup.runs.run import State
from workflowlookup.store.journal import Journal
from workflowlookup.store.postgres import PostgresJournal

CLIENTS: Final = 12 if IS_SOAK else 4
"""Those that lead runs."""
READERS: Final = 3 if IS_SOAK else 2
OUTAGE_SECONDS: Final = 30.0 if IS_SOAK else 5.0
QUIET_SECONDS: Final = 5.0 if IS_SOAK else 2.0
"""Before the outage, and after it."""
JOURNAL_TIMEOUT_SECONDS: Final = 5.0 if IS_SOAK else 3.0
PROBE_PAUSE_SECONDS: Final = 0.1
MAX_PROBE_SECONDS: Final = 2.0
"""Generous, because others use the machine; less than a probe takes that waits for the journal."""


Outage = Callable[[], contextlib.AbstractContextManager[None]]


class Probes:
    """A thread that asks a replica for `/healthz` again and again, while the context is entered."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/healthz"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(120)

    def _run(self) -> None:
        limits = httpx2.Limits(max_keepalive_connections=0)  # as a kubelet does
        with httpx2.Client(timeout=60, limits=limits) as http:
            while not self._is_over.wait(PROBE_PAUSE_SECONDS):
                begun = time.monotonic()
                try:
                    response = http.get(self._url)
                except httpx2.HTTPError as problem:
                    self.failures.append(repr(problem))
                    continue
                self.seconds.append(time.monotonic() - begun)
                if response.status_code != 200:
                    self.failures.append(f"{response.status_code} {response.text}")

    def figures(self) -> str:
        ordered = sorted(self.seconds)
        points = (statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1])
        p50, p99, slowest = (f"{seconds * 1000:.0f} ms" for seconds in points)
        return f"{len(ordered)} times, p50 {p50}, p99 {p99}, slowest {slowest}"


class Trial:
    """An outage under load, and all that was seen of it."""

    def __init__(self, fleet: Fleet, journal: Journal) -> None:
        self._fleet = fleet
        self._journal = journal
        self.probes = [Probes(port) for port in fleet.ports]
        self.writers = Ledger()
        """Of the clients that lead runs."""
        self.readers = Ledger()
        self.refusals = 0
        """Answers 503 with `Retry-After` of single replicas; a client may have had its answer from the next one."""
        self.findings: dict[str, list[str]] = {}
        self.driven: list[State] = []
        """How the runs ended that were at a call when the outage began."""

    def carry_out(self, outage: Outage) -> None:
        with contextlib.ExitStack() as stack:
            for probes in self.probes:
                stack.enter_context(probes)
            asyncio.run(self._ride(outage))
        wait_for_calls(self._journal)
        self.findings = judge(self._journal, self.writers)
        self.driven = [fold(run, self._journal.read(run)).state for run in self._slow_runs]

    async def _ride(self, outage: Outage) -> None:
        hooks = {"response": [self._count]}
        headers = {"authorization": f"Bearer {self._fleet.token}"}
        async with crowd_http(headers=headers, event_hooks=hooks) as http:
            until = time.monotonic() + QUIET_SECONDS + OUTAGE_SECONDS + QUIET_SECONDS
            clients = asyncio.gather(*self._clients(http, until))
            await asyncio.sleep(QUIET_SECONDS)
            await self._start_slow_runs(http)
            with outage():
                await asyncio.sleep(OUTAGE_SECONDS)
            await clients

    def _clients(self, http: httpx2.AsyncClient, until: float) -> Iterator[Json]:
        for number in range(CLIENTS + READERS):
            sender = RoundRobinSender(http, self._fleet.urls, number % 3)
            ledger = self.writers if number < CLIENTS else self.readers
            client = Member(f"client-{number}", sender, ledger, is_modern=number % 2 == 0)
            yield client.lead_runs(until) if number < CLIENTS else client.read_workflows(until)

    @property
    def _slow_runs(self) -> list[str]:
        return [f"slow-{number}" for number in range(3)]

    async def _start_slow_runs(self, http: httpx2.AsyncClient) -> None:
        """Start a run on every replica whose call ends in the midst of the outage."""
        for url, run in zip(self._fleet.urls, self._slow_runs, strict=True):
            arguments = {"workflowId": "slow", "runId": run, "wait": False}
            message = modern("tools/call", {"name": "workflow_start", "arguments": arguments})
            reply = reply_of(await http.post(url, json=message, headers=HEADERS | routing(message)))
            assert reply["result"]["structuredContent"]["runId"] == run

    async def _count(self, response: httpx2.Response) -> None:
        self.refusals += response.status_code == 503 and "retry-after" in response.headers

    def failures(self, *allowed: str) -> list[str]:
        """Why requests failed, without these reasons."""
        return [reason for _, reason in self.writers.troubles + self.readers.troubles if reason not in allowed]

    @property
    def unknown(self) -> int:
        """How many changes were under way when the journal fell silent, and were sent again."""
        return sum(reason == UNKNOWN for _, reason in self.writers.troubles)

    def figures(self, name: str) -> str:
        reasons = collections.Counter(reason for _, reason in self.writers.troubles)
        probes = "\n".join(f"  /healthz of replica {n}: {each.figures()}" for n, each in enumerate(self.probes, 1))
        return (
            f"{name}, {OUTAGE_SECONDS:.0f} s, {CLIENTS} clients and {READERS} readers at 3 replicas\n{probes}\n"
            f"  reads: served {len(self.readers.seconds):,}, slowest {max(self.readers.seconds):.1f} s, "
            f"failed {len(self.readers.troubles)}\n"
            f"  requests of runs: served {len(self.writers.seconds):,}, {REFUSED} {reasons[REFUSED]:,} "
            f"(of single replicas {self.refusals:,}), {UNKNOWN} {reasons[UNKNOWN]}, "
            f"other failures {len(self.failures(REFUSED, UNKNOWN))}; "
            f"longest time without an answer {self.writers.longest_silence:.1f} s\n"
            f"  {len(self.writers.outputs):,} runs: lost {len(self.findings['lost'])}, "
            f"doubled {len(self.findings['twice'])}, unfinished {len(self.findings['unfinished'])}; "
            f"at a call when it began: {', '.join(self.driven)}"
        )


CarryOut = Callable[[Outage], Trial]


@pytest.fixture
def fleet(postgres: Postgres, tmp_path: Path) -> Iterator[Fleet]:
    write_library(tmp_path / "library")
    flags = ("--journal-timeout-seconds", str(JOURNAL_TIMEOUT_SECONDS))
    fleet = Fleet(tmp_path, postgres.create_database(), *flags, slow_seconds=OUTAGE_SECONDS / 2)
    yield fleet
    fleet.stop()


@pytest.fixture
def carry_out(fleet: Fleet, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> CarryOut:
    """Carries out a trial, prints its figures, and asserts what holds whatever the outage is."""

    def carry_out(outage: Outage) -> Trial:
        with contextlib.closing(PostgresJournal(fleet.database)) as journal:
            trial = Trial(fleet, journal)
            trial.carry_out(outage)
        with capsys.disabled():
            print("\n" + trial.figures(request.node.name))
        for probes in trial.probes:
            assert probes.failures == []
            assert max(probes.seconds) < MAX_PROBE_SECONDS
        assert trial.writers.lies == trial.readers.lies == []
        assert trial.readers.troubles == []
        assert trial.findings == {"lost": [], "twice": [], "unfinished": []}
        assert trial.driven == [State.COMPLETED] * 3
        assert trial.unknown <= CLIENTS
        assert trial.refusals > 0
        assert "Traceback" not in fleet.log()
        assert "the event loop waits" not in fleet.log()
        return trial

    return carry_out


def test_postgresql_is_frozen(carry_out: CarryOut, postgres: Postgres) -> None:
    trial = carry_out(postgres.paused)

    assert trial.failures(REFUSED, UNKNOWN) == []


def test_one_replica_is_cut_off_from_postgresql(carry_out: CarryOut, fleet: Fleet) -> None:
    @contextlib.contextmanager
    def outage() -> Iterator[None]:
        fleet.link.cut()
        yield
        fleet.link.restore()

    trial = carry_out(outage)

    assert trial.failures(UNKNOWN) == []
