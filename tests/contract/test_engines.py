"""The contract of engines, over every implementation, with processes that are killed, frozen and closed."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.journaling import URLS
from support.json_values import Json
from support.narrowing import not_none
from workflowlookup.errors import StorageError
from workflowlookup.execution.engine import ConcurrencyLimits, engine_of

SCRIPT = Path(__file__).with_name("engine_process.py")
PATIENCE = 60.0
TAKEN_OVER = {"sqlite": 4.0, "postgres": 8.0}
"""Within how many seconds a run goes on whose process died, as docs/operations.md has it."""


class Engine:
    """An engine in a process of its own."""

    def __init__(self, url: str, directory: Path, limits: tuple[int, int], *words: str) -> None:
        command = [sys.executable, str(SCRIPT), url, str(directory), *map(str, limits), *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._read()

    def __getattr__(self, name: str) -> Callable[..., Json]:
        def do(*arguments: Json, **options: Any) -> Json:
            not_none(self.process.stdin).write(json.dumps([name, arguments, options]) + "\n")
            not_none(self.process.stdin).flush()
            return self._read()

        return do

    def _read(self) -> Json:
        line = not_none(self.process.stdout).readline()
        assert line, not_none(self.process.stderr).read()
        return json.loads(line)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class EngineGroup:
    """The engines at one journal, and what their drivers wrote."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self._engines: list[Engine] = []

    def engine(self, *words: str, limits: tuple[int, int] = (10, 0)) -> Engine:
        self._engines.append(Engine(self.url, self.directory, limits, *words))
        return self._engines[-1]

    def log(self, what: str = "begin") -> list[tuple[str, int]]:
        """The runs that drivers began, or ended, and in which process."""
        path = self.directory / "log"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(run, int(pid)) for happened, run, pid in lines if happened == what]

    def runs(self, what: str = "begin") -> list[str]:
        return [run for run, _ in self.log(what)]

    def release(self, *runs: str) -> None:
        for run in runs:
            (self.directory / run).touch()

    def wait(self, is_so: Callable[[], object], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def driven_again(self, engine: Engine, run: str, sequence: int) -> None:
        """Do what a server does every two seconds, until somebody drives the run again."""
        before = self.runs().count(run)

        def is_driven() -> bool:
            engine.take_over()
            if run not in engine.driven([run]):
                engine.start(run, sequence, again=True)
            time.sleep(0.5)
            return self.runs().count(run) > before

        self.wait(is_driven)

    def close(self) -> None:
        for engine in self._engines:
            engine.kill()
            for stream in (engine.process.stdin, engine.process.stdout, engine.process.stderr):
                not_none(stream).close()


@pytest.fixture(params=URLS)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EngineGroup]:
    made = EngineGroup(URLS[request.param](request, tmp_path), tmp_path)
    yield made
    made.close()


def test_a_run_is_driven_and_then_no_more(group: EngineGroup) -> None:
    engine = group.engine()
    assert engine.driven(["run"]) == []

    engine.start("run", 3)

    group.wait(lambda: group.runs("end") == ["run"])
    group.wait(lambda: engine.driven(["run"]) == [])


def test_starting_a_run_twice_is_starting_it_once(group: EngineGroup) -> None:
    first, second = group.engine(), group.engine()
    for engine in (first, second, first):
        engine.start("hold-it", 3)
    group.wait(lambda: group.runs() == ["hold-it"])

    assert first.driven(["hold-it", "other"]) == second.driven(["hold-it", "other"]) == ["hold-it"]
    time.sleep(0.5)
    assert group.runs() == ["hold-it"]
    group.release("hold-it")
    group.wait(lambda: group.runs("end") == ["hold-it"])


def test_a_run_that_comes_due_again_while_its_driver_ends_is_driven_again(group: EngineGroup) -> None:
    engine = group.engine()
    engine.start("hold-it", 3)
    group.wait(lambda: group.runs() == ["hold-it"])

    engine.start("hold-it", 7)
    group.release("hold-it")

    group.wait(lambda: group.runs("end") == ["hold-it"] * 2)


def test_no_more_runs_than_the_limit_are_driven_at_once_and_in_order(group: EngineGroup) -> None:
    engine = group.engine(limits=(2, 0))
    runs = [f"hold-{number}" for number in range(5)]
    for run in runs:
        engine.start(run, 3)
        time.sleep(0.01)
    group.wait(lambda: len(group.runs()) == 2)
    time.sleep(0.5)
    assert sorted(group.runs()) == runs[:2]
    assert engine.driven(runs) == runs  # also those that are queued

    group.release(runs[0])
    group.wait(lambda: len(group.runs()) == 3)
    engine.set_limits(4, 0)

    group.wait(lambda: sorted(group.runs()) == runs)
    group.release(*runs)
    group.wait(lambda: sorted(group.runs("end")) == runs)


def test_replicas_together_drive_no_more_runs_than_their_common_limit(database: str, tmp_path: Path) -> None:
    group = EngineGroup(database, tmp_path)
    processes = [group.engine(limits=(2, 3)) for _ in range(2)]
    runs = [f"hold-{number}" for number in range(6)]
    for run in runs:
        processes[0].start(run, 3)
    group.wait(lambda: len(group.runs()) == 3)
    time.sleep(1)
    assert len(group.runs()) == 3
    assert {pid for _, pid in group.log()} == {engine.pid for engine in processes}

    group.release(*runs)

    group.wait(lambda: sorted(group.runs("end")) == runs)
    group.close()


def test_what_a_killed_process_was_driving_is_driven_by_another(
    group: EngineGroup, request: pytest.FixtureRequest
) -> None:
    first = group.engine()
    first.start("hold-it", 3)
    group.wait(lambda: group.runs() == ["hold-it"])
    second = group.engine()
    first.kill()
    killed = time.monotonic()

    group.driven_again(second, "hold-it", 3)

    assert time.monotonic() - killed < TAKEN_OVER[request.node.callspec.params["group"]]
    assert group.log()[-1] == ("hold-it", second.pid)
    group.release("hold-it")
    group.wait(lambda: group.log("end") == [("hold-it", second.pid)])


def test_what_a_frozen_process_drives_is_left_to_it(group: EngineGroup) -> None:
    """For a while: the database cannot tell it from one that is gone (`leases.IDLE_SECONDS`)."""
    first, second = group.engine(), None
    first.start("hold-it", 3)
    group.wait(lambda: group.runs() == ["hold-it"])
    second = group.engine()
    first.process.send_signal(signal.SIGSTOP)
    for _ in range(5):
        second.take_over()
        assert second.driven(["hold-it"]) == ["hold-it"]
        second.start("hold-it", 3)
        time.sleep(0.5)

    first.process.send_signal(signal.SIGCONT)
    group.release("hold-it")

    group.wait(lambda: group.log("end") == [("hold-it", first.pid)])
    assert group.runs() == ["hold-it"]


def test_an_engine_that_is_closed_leaves_its_runs_to_others(group: EngineGroup) -> None:
    first = group.engine()
    first.start("hold-it", 3)
    group.wait(lambda: group.runs() == ["hold-it"])
    first.close()
    assert first.process.wait(20) == 0
    second = group.engine()

    group.driven_again(second, "hold-it", 3)

    assert group.log("end") == []
    assert group.log()[-1] == ("hold-it", second.pid)


def test_a_driver_that_ended_by_a_fault_can_be_started_again(group: EngineGroup) -> None:
    engine = group.engine()
    engine.start("fail-once", 3)
    group.wait(lambda: group.runs() == ["fail-once"])
    group.wait(lambda: engine.driven(["fail-once"]) == [])

    engine.start("fail-once", 3, again=True)

    group.wait(lambda: group.runs("end") == ["fail-once"])


def test_a_guest_drives_its_own_run_and_no_others(group: EngineGroup) -> None:
    guest = group.engine("guest")
    guest.start("mine", 3)
    group.wait(lambda: group.log("end") == [("mine", guest.pid)])
    server = group.engine()

    for number in range(5):
        server.start(f"run-{number}", 3)

    group.wait(lambda: len(group.runs("end")) == 6)
    assert {pid for run, pid in group.log() if run != "mine"} == {server.pid}


def test_a_guest_takes_its_run_from_a_process_that_died(group: EngineGroup) -> None:
    server = group.engine()
    server.start("hold-it", 3)
    group.wait(lambda: group.runs() == ["hold-it"])
    server.kill()
    guest = group.engine("guest")

    guest.start("hold-it", 3)

    group.wait(lambda: group.log()[-1] == ("hold-it", guest.pid))


@pytest.mark.parametrize("url", ["{}/no-directory/runs.sqlite", "postgresql://nobody@127.0.0.1:1/nothing"])
def test_an_engine_that_cannot_be_used_says_so(url: str, tmp_path: Path) -> None:
    (tmp_path / "no-directory").touch()
    url = url.format(tmp_path)

    async def never(_: str, __: object) -> None:
        raise AssertionError("no run is due")

    with pytest.raises(StorageError, match=r"^The engine that carries out calls, .*, cannot be used: "):
        asyncio.run(engine_of(url).make(url, never, ConcurrencyLimits(1), False).open())
