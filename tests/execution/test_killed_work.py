"""Nothing is lost: processes that are killed, frozen and taken over, and a database that is restarted, in mid-call."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from execution.working import effects, open_runs
from support.journey import IS_SOAK, mostly_on
from support.narrowing import not_none
from support.postgres import Postgres
from upstream.upstreams import McpUpstream
from workflowlookup.runs.run import Run, State

REPLICA = Path(__file__).with_name("replica.py")
PATIENCE = 90.0


class Replicas:
    """Processes that drive the runs of one journal."""

    def __init__(self, journal_url: str, upstream: McpUpstream) -> None:
        self.journal_url, self.upstream = journal_url, upstream
        self.runs = open_runs(journal_url)
        self.processes: list[subprocess.Popen[str]] = []

    def begin(self, *arguments: object) -> tuple[subprocess.Popen[str], list[str]]:
        command = [sys.executable, str(REPLICA), self.journal_url, str(self.upstream.directory), *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        words = not_none(process.stdout).readline().split()
        assert words, not_none(process.stderr).read()
        return process, words

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()

    def finish(self, ids: list[str], seconds: float = PATIENCE) -> list[Run]:
        """Wait until these are over."""
        end = time.monotonic() + seconds
        while True:
            runs = [self.runs.get(run_id) for run_id in ids]
            if all(run.is_over for run in runs):
                return runs
            assert time.monotonic() < end, [
                (r.state, r.waiting_for, r.current, r.calling) for r in runs if not r.is_over
            ]
            time.sleep(0.1)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            not_none(process.stdout).close()
            assert "Traceback" not in not_none(process.stderr).read()
            not_none(process.stderr).close()
        self.runs.close()
        for pid in self.upstream.pids():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def replicas(journal_url: str, upstream: McpUpstream) -> Iterator[Replicas]:
    made = Replicas(journal_url, upstream)
    yield made
    made.close()


def assert_all_done(replicas: Replicas, runs: list[Run]) -> None:
    """Each run is completed, each of its calls was made, and one that was made twice had the same key both times."""
    assert {run.state for run in runs} == {State.COMPLETED}
    keys = {f"{run.id}:s{n}" for run in runs for n in range(3)}
    assert set(effects(replicas.upstream)) == keys
    for run in runs:
        kinds = [type(record.event).__name__ for record in replicas.runs.history(run.id)]
        assert (kinds.count("OutputAccepted"), kinds.count("CallBegun")) == (3, 3)


def test_a_run_continues_after_a_kill_during_a_call(replicas: Replicas) -> None:
    first, ids = replicas.begin("--start", 1, 1.5)
    replicas.upstream.wait_for("call", 2, PATIENCE)
    replicas.kill(first)

    replicas.begin()

    assert_all_done(replicas, replicas.finish(ids))
    assert effects(replicas.upstream).count(f"{ids[0]}:s0") == 1  # what was done stays done


@mostly_on("postgres")
def test_a_second_replica_takes_over(replicas: Replicas) -> None:
    replicas.begin()
    first, ids = replicas.begin("--start", 3, 1.5)
    replicas.upstream.wait_for("call", 3, PATIENCE)
    replicas.kill(first)

    assert_all_done(replicas, replicas.finish(ids))


@mostly_on("postgres")
def test_a_frozen_process_that_was_taken_over_is_harmless_when_it_resumes(replicas: Replicas) -> None:
    first, ids = replicas.begin("--start", 2, 1.0)
    replicas.upstream.wait_for("call", 2, PATIENCE)
    first.send_signal(signal.SIGSTOP)
    with_files = "://" not in replicas.journal_url
    replicas.begin()
    if with_files:  # a frozen process holds its file: it is not dead, and nobody takes its runs
        time.sleep(5)
        assert not any(replicas.runs.get(run_id).is_over for run_id in ids)
    else:  # as when its connection is cut: the database lets go of its lock
        end_connections(replicas.journal_url)
        replicas.finish(ids)
    first.send_signal(signal.SIGCONT)

    assert_all_done(replicas, replicas.finish(ids))


def end_connections(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'workflowlookup-lease' AND pid <> pg_backend_pid()"
        )


def test_a_database_that_is_restarted_in_the_middle_loses_nothing(
    database: str, postgres: Postgres, upstream: McpUpstream
) -> None:
    replicas = Replicas(database, upstream)
    try:
        replicas.begin()
        _, ids = replicas.begin("--start", 3, 1.5)
        upstream.wait_for("call", 4, PATIENCE)
        postgres.restart()
        assert_all_done(replicas, replicas.finish(ids))
    finally:
        replicas.close()


@mostly_on("sqlite")
def test_many_kills_lose_nothing(replicas: Replicas) -> None:
    """A replica is killed at random, and another comes; at the end everything was done."""
    count, kills = (30, 12) if IS_SOAK else (4, 2)
    process, ids = replicas.begin("--start", count, 0.5)
    for _ in range(kills):
        time.sleep(random.uniform(0.5, 3.0))
        replicas.kill(process)
        process, _ = replicas.begin()

    assert_all_done(replicas, replicas.finish(ids, 3 * PATIENCE))


@mostly_on("sqlite")
def test_a_run_cancelled_without_a_driver_says_what_may_still_run(replicas: Replicas) -> None:
    first, (run_id,) = replicas.begin("--start", 1, 30)
    replicas.upstream.wait_for("call", 1, PATIENCE)
    replicas.kill(first)
    assert replicas.runs.cancel(run_id).needs_stop

    replicas.begin()

    end = time.monotonic() + PATIENCE
    while (run := replicas.runs.get(run_id)).needs_stop:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert not not_none(not_none(run.calling).stopped).stopped
    assert "the MCP server 'up' may still be at work on it" in not_none(not_none(run.calling).stopped).told
