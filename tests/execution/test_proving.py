"""Proofs that the server takes: with either engine, in a real repository, with calls before and after them."""

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from execution.working import PATIENCE, Working, call, flow
from support.make import step
from support.processes import is_alive, is_gone
from support.proving import Project
from support.waiting import read_when_written
from workflowlookup.execution import driver
from workflowlookup.runs.proofs.state import ProofCounts
from workflowlookup.runs.run import State, Waiting

Work = Callable[..., Working]
COMMANDS = {"test": ["sh", "check.sh"], "slow": ["sh", "slow.sh"]}
TESTS = {"kind": "command", "name": "tests", "use": "test"}
SLOW = {"kind": "command", "name": "slow", "use": "slow"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path / "project", {"check.sh": "echo 7 passed; test -e fixed\n"})


@pytest.fixture
def proving(work: Work, journal_url: str, project: Project) -> Working:
    return work(journal_url, str(project.root), COMMANDS)


def test_a_run_is_proven_step_by_step_between_its_calls(proving: Working, project: Project) -> None:
    baseline = {
        "kind": "command",
        "name": "before",
        "use": "test",
        "at": "start",
        "measure": {"passed": {"pattern": r"(\d+) passed", "type": "integer"}},
    }
    changed = {"kind": "git", "name": "changed", "changed": ["fixed"], "unchanged": ["check.sh"]}
    workflow = flow(
        call("first", "say", {"text": "a"}),
        step("fix", proof=[baseline, TESTS, changed]),
        call("last", "say", {"text": "{{proof.before.passed}}"}),
    )

    run = proving.start(workflow)
    run = proving.until(run.id, lambda run: run.waiting_for is Waiting.OUTPUT)
    assert run.context["proof"] == {"before": {"passed": 7}}
    assert (run.run_snapshot is not None, run.root) == (True, str(project.root))
    proving.runs.submit(run.id, "fix", "fixed", {})
    run = proving.until(run.id, lambda run: run.waiting_for is Waiting.OUTPUT and run.attempts)
    assert run.proofs["fix"].judgements["tests"].exit_code == 1
    project.write("fixed")
    proving.runs.note_answered(run)
    proving.runs.submit(run.id, "fix", "fixed", {})
    run = proving.over(run.id)

    assert (run.state, run.results["last"], run.proof_counts) == (State.COMPLETED, "7", ProofCounts(passed=2))


def test_a_cancelled_run_ends_what_its_proof_has_started(proving: Working, project: Project) -> None:
    project.write("slow.sh", "sleep 300 & echo $! > child; wait\n")
    run = proving.start(flow(step("one", proof=[SLOW])))
    proving.runs.submit(run.id, "one", "done", {})
    child = int(read_when_written(project.root / "child"))

    proving.runs.cancel(run.id, "enough")

    assert is_gone(child, PATIENCE)
    assert proving.events(run.id)[-1] == "Cancelled"
    assert proving.execution.progress(run.id) is None


def test_a_run_that_is_out_of_time_ends_its_proof(proving: Working, project: Project) -> None:
    project.write("slow.sh", "echo $$ > pid; sleep 300\n")
    run = proving.start(flow(step("one", proof=[SLOW])), timeout=2.0)
    proving.runs.submit(run.id, "one", "done", {})
    pid = int(read_when_written(project.root / "pid"))

    run = proving.over(run.id)

    assert is_gone(pid, PATIENCE)
    assert run.end is not None
    assert "still taking the proofs of step 'one'" in run.end.reason


def test_proofs_of_several_runs_are_taken_at_once(proving: Working, project: Project) -> None:
    project.write("slow.sh", "mkdir -p here; touch here/$$; while [ $(ls here | wc -l) -lt 3 ]; do sleep 0.05; done\n")
    workflow = flow(step("one", proof=[SLOW]))
    ids = [proving.start(workflow).id for _ in range(3)]
    for run_id in ids:
        proving.runs.submit(run_id, "one", "done", {})

    assert [proving.over(run_id).proof_counts.passed for run_id in ids] == [1, 1, 1]


def test_the_proof_of_a_stopped_server_is_taken_by_the_next(work: Work, journal_url: str, project: Project) -> None:
    project.write("slow.sh", "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo x >> ran\n")
    first = work(journal_url, str(project.root), COMMANDS)
    run = first.start(flow(step("one", proof=[TESTS | {"use": "slow", "name": "a"}, SLOW])))
    first.runs.submit(run.id, "one", "done", {})
    pid = int(read_when_written(project.root / "pid"))
    (project.root / "pid").unlink()
    first.execution.close(20.0)
    assert not is_alive(pid)

    second = work(journal_url, str(project.root), COMMANDS)
    second.execution.recover()
    read_when_written(project.root / "pid")
    project.write("go")
    run = second.over(run.id)

    assert (run.state, run.proof_counts.passed) == (State.COMPLETED, 2)
    assert (project.root / "ran").read_text() == "x\nx\n"


def test_a_signal_is_an_exit_code_that_does_not_pass(proving: Working, project: Project) -> None:
    project.write("check.sh", "kill -KILL $$\n")
    run = proving.start(flow(step("one", proof=[TESTS])))
    proving.runs.submit(run.id, "one", "done", {})

    run = proving.until(run.id, lambda run: run.attempts)

    assert run.proofs["one"].judgements["tests"].exit_code == -signal.SIGKILL
    assert os.listdir(project.root / ".git")


class ClockThatGoesBack:
    """The module `time`, with a wall clock that jumps back whenever somebody reads it."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._seconds = itertools.count(time.time(), -3600.0)

    def time(self) -> float:
        return next(self._seconds)


def test_a_clock_that_jumps_does_not_prolong_the_wait_for_a_witness(
    work: Work, journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "time", ClockThatGoesBack())
    elsewhere = work(journal_url)
    run = elsewhere.start(flow(step("one", proof=[TESTS])), by="token ada")

    elsewhere.runs.submit(run.id, "one", "done", {})

    run = elsewhere.until(run.id, lambda run: run.attempts)
    assert run.proof_counts == ProofCounts(unproved=1)
