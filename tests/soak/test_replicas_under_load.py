"""Three replicas, a real PostgreSQL and a crowd of clients, while replicas are killed and the database is restarted.

Nothing that was acknowledged may be lost, nothing may be in the journal twice, every refusal must be honest, a request
may fail only because of what was done to the servers at that moment, and no server may grow. `make soak` takes minutes
and hundreds of clients; otherwise a small crowd must do.
"""

import asyncio
import collections
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from replicas.fleet import ProxySender
from soak.crowd import Ledger, Member, crowd_http, judge, wait_for_calls, write_library
from soak.proxy import Proxy
from support.journey import IS_SOAK
from support.json_values import JsonObject
from support.make import settings_file
from support.postgres import Postgres
from support.web import WebServer
from upstream.upstreams import McpUpstream
from workflowlookup.store.postgres import PostgresJournal

CLIENTS = 200 if IS_SOAK else 16
SECONDS = 180 if IS_SOAK else 12
FAULT_SECONDS = 8 if IS_SOAK else 3
KILL_SECONDS = 2
"""How long after a kill a request may fail: those that were at that replica."""
RECOVERY_SECONDS = 6
"""How long after the restart of PostgreSQL replicas may take to use it again."""
MAX_GROWTH = 24 << 20


class LoadedReplicas:
    """The replicas, and what happens to them. The first one is spared: its memory is looked at."""

    def __init__(self, home: Path, postgres: Postgres) -> None:
        self.postgres = postgres
        self.place = postgres.create_database()
        self.proxy = Proxy()
        self.kills = self.restarts = 0
        self.memory: list[int] = []
        self.faults: list[tuple[float, float]] = []
        """From when to when a request may fail."""
        self._home = home
        write_library(home / "library")
        settings_file(home).write_text(McpUpstream(home / "up").toml())
        self.servers = [self._start() for _ in range(3)]

    def _start(self) -> WebServer:
        flags = ("--requests-per-minute", "0", "--timeout-seconds", "600")
        environment = {"WORKFLOWLOOKUP_JOURNAL": self.place}
        return WebServer(self._home, *flags, directory=self._home / "library", environment=environment)

    def publish(self) -> None:
        self.proxy.backends = [int(server.base.rpartition(":")[2]) for server in self.servers]

    async def trouble(self, until: float) -> None:
        """Kill and restart in turn, until it is time to let them be."""
        turn = 0
        while time.monotonic() < until:
            await asyncio.sleep(FAULT_SECONDS)
            turn += 1
            begun = time.monotonic()
            if turn % 3 == 1:
                await asyncio.to_thread(self.postgres.restart)
                self.faults.append((begun, time.monotonic() + RECOVERY_SECONDS))
                self.restarts += 1
            else:
                which = 1 + self.kills % 2
                self.faults.append((begun, begun + KILL_SECONDS))
                self.servers[which].process.kill()
                await asyncio.to_thread(self.servers[which].stop)
                self.servers[which] = await asyncio.to_thread(self._start)
                self.publish()
                self.kills += 1

    async def weigh(self) -> None:
        while True:
            self.memory.append(size_of(self.servers[0].process.pid))
            await asyncio.sleep(1)

    def connections(self) -> JsonObject:
        """How many there are to the database, by what they are for."""
        statement = (
            "SELECT application_name, COUNT(*) FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1"
        )
        with psycopg.connect(self.place) as connection:
            return dict(connection.execute(statement).fetchall())

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


def size_of(process: int | str) -> int:
    return int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1]) * 4096


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[LoadedReplicas]:
    postgres = Postgres()
    loaded = LoadedReplicas(tmp_path, postgres)
    yield loaded
    loaded.stop()
    postgres.remove()


def test_nothing_acknowledged_is_lost_and_nothing_is_done_twice(
    loaded: LoadedReplicas, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger()
    begun = time.monotonic()
    asyncio.run(ride(loaded, ledger))
    took = time.monotonic() - begun
    journal = PostgresJournal(loaded.place)
    wait_for_calls(journal)
    problems = judge(journal, ledger)
    journal.close()
    with capsys.disabled():
        tell(loaded, ledger, took, problems)

    assert ledger.lies == []
    assert ledger.failures(loaded.faults) == []
    assert problems == {"lost": [], "twice": [], "unfinished": []}
    settled = loaded.memory[len(loaded.memory) * 2 // 5 :]
    if IS_SOAK:
        assert settled[-1] - min(settled) < MAX_GROWTH, settled
    assert "Traceback" not in loaded.servers[0].log()


async def ride(loaded: LoadedReplicas, ledger: Ledger) -> None:
    await loaded.proxy.start()
    loaded.publish()
    until = time.monotonic() + SECONDS
    url = f"http://127.0.0.1:{loaded.proxy.port}/mcp"
    weighing = asyncio.create_task(loaded.weigh())
    trouble = asyncio.create_task(loaded.trouble(until - FAULT_SECONDS))
    async with crowd_http() as http:
        sender = ProxySender(http, url)
        crowd = [Member(f"m{number}", sender, ledger, is_modern=number % 2 == 0) for number in range(CLIENTS)]
        await asyncio.gather(*(member.lead_runs(until) for member in crowd))
    await trouble
    weighing.cancel()
    await loaded.proxy.stop()


def tell(loaded: LoadedReplicas, ledger: Ledger, took: float, problems: dict[str, list[str]]) -> None:
    seconds = sorted(ledger.seconds)
    p99 = seconds[int(len(seconds) * 0.99)] if seconds else 0
    mebibytes = [size / (1 << 20) for size in loaded.memory]
    print(
        f"\n{CLIENTS} clients of both eras, 3 replicas, {took:.0f} s: {len(seconds):,} calls acknowledged "
        f"({len(seconds) / took:.0f}/s), p50 {statistics.median(seconds) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms "
        f"(with waiting and asking again), {len(ledger.outputs):,} runs\n"
        f"{loaded.kills} replicas killed, PostgreSQL restarted {loaded.restarts} times; longest time without any answer "
        f"{ledger.longest_silence:.1f} s\n"
        f"asked again because: {dict(collections.Counter(word for _, word in ledger.troubles).most_common())}; "
        f"late: {ledger.late[:20]}; failed without a fault: {len(ledger.failures(loaded.faults))}\n"
        f"lost {len(problems['lost'])}, twice {len(problems['twice'])}, unfinished {len(problems['unfinished'])}, "
        f"dishonest answers {len(ledger.lies)}\n"
        f"runs taken over: {sum(server.log().count('was taken over by another replica') for server in loaded.servers)} "
        f"(by the servers that live)\n"
        f"connections to PostgreSQL, of all three: {loaded.connections()}\n"
        f"memory of the replica that was never killed: {mebibytes[0]:.0f} MiB at first, "
        f"{mebibytes[len(mebibytes) * 2 // 5]:.0f} after two fifths, {mebibytes[-1]:.0f} at the end"
    )
