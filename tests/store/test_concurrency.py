"""Many at once on one journal: every run ends where it should, of two answers one wins, and the other is refused."""

import collections
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support import journey
from support.client import TIMEOUT, Server, Start
from support.journey import folded, open_journal, read
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from workflowlookup.runs.events import ConfirmationGiven, OutputAccepted, kind_of
from workflowlookup.store.journal import RunQuery

RUNS, CLIENTS = (200, 8) if journey.IS_SOAK else (20, 3)
FLOW = document(
    step("begin"),
    loop("rounds", [step("turn")], type="for", count=2),
    step("release", requireConfirmation=True),
    step("end"),
)
STEPS = ["begin", "turn@1", "turn@2", "release", "end"]


def all_at_once(work: Callable[..., None], number: int) -> None:
    """Do the work in so many threads; whatever one of them raises is raised here."""
    together, problems = threading.Barrier(number, timeout=TIMEOUT), []

    def do(index: int) -> None:
        try:
            together.wait()
            work(index)
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=do, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


class Agent:
    """An agent with a server of its own, that takes up whatever run is not over, and notes what it is told."""

    def __init__(self, name: str, start_server: Callable[[], Server]) -> None:
        self.name, self._start_server = name, start_server
        self.server = start_server()
        self._chance = random.Random(name)
        self.deaths = 0
        self.accepted: dict[tuple[str, str], str] = {}
        self.refused: list[Json] = []
        self.confirmed: list[str] = []

    def advance(self, run_id: str) -> bool:
        """One step further, if nobody is faster; whether the run is over."""
        reply = self.request("workflow_status", {"runId": run_id})
        if "error" in reply:
            assert reply["error"]["message"] == "Run not found", "another one will begin it"
            return False
        status = reply["result"]
        if status["state"] != "waiting":
            assert status["state"] == "completed", status
            return True
        if status["waitingFor"] == "confirmation":
            step_id = status["confirmation"]["stepId"]
            arguments = {"runId": run_id, "stepId": step_id, "confirmed": True, "note": self.name}
            if self._send(arguments):
                self.confirmed.append(run_id)
            return False
        step_id, output = status["step"]["id"], f"{self.name} did it"
        if self._send({"runId": run_id, "stepId": step_id, "output": output}):
            assert (run_id, step_id) not in self.accepted
            self.accepted[run_id, step_id] = output
        return False

    def request(self, tool: str, arguments: JsonObject) -> JsonObject:
        return self.server.request(tool, arguments)

    def _send(self, arguments: JsonObject) -> bool:
        """Whether it counted; when not, it must have been refused by name."""
        reply = self.request("workflow_submit", arguments)
        if "error" not in reply:
            return True
        assert reply["error"]["code"] == -32005, reply
        assert reply["error"]["data"]["runId"] == arguments["runId"]
        self.refused.append(arguments)
        return False


class Unlucky(Agent):
    """One whose server is killed now and then in the middle of a call, which is then sent again to a new one."""

    def request(self, tool: str, arguments: JsonObject) -> JsonObject:
        reply: JsonObject | None = None
        while reply is None:
            killer = threading.Timer(self._chance.uniform(0, 0.004), self.server.process.kill)
            is_doomed = tool != "workflow_status" and self._chance.random() < 0.1
            if is_doomed:
                killer.start()
            try:
                reply = self.server.request(tool, arguments)
            except (AssertionError, BrokenPipeError):
                assert self.server.process.wait() == -signal.SIGKILL, self.server.log()
            if is_doomed:
                killer.join()
                self.server.stop()
                self.server = self._start_server()
                self.deaths += 1
        return reply


@pytest.fixture
def clients(serve: Start, journal_url: str, library: Path, request: pytest.FixtureRequest) -> list[Agent]:
    write(library, FLOW)
    kind = getattr(request, "param", Agent)
    return [kind(f"client-{number}", lambda: serve(journal_url)) for number in range(CLIENTS)]


@pytest.mark.parametrize("clients", [Agent, Unlucky], indirect=True, ids=["undisturbed", "with kills"])
def test_runs_that_are_advanced_by_all_at_once_end_where_they_should(clients: list[Agent], journal_url: str) -> None:
    is_unlucky = isinstance(clients[0], Unlucky)
    names = [f"run-{number}" for number in range(RUNS // 4 if is_unlucky else RUNS)]

    def work(index: int) -> None:
        client, chance = clients[index], random.Random(index)
        for run_id in names[index::CLIENTS]:
            assert client.request(*journey.start(run_id, "sample-workflow"))["result"]["runId"] == run_id
        mine = names[:]
        for _ in range(1_000 * RUNS):
            if not mine:
                return
            run_id = mine[chance.randrange(min(4, len(mine)))]  # the front is where they meet
            if client.advance(run_id):
                mine.remove(run_id)
        raise AssertionError(f"{mine} never ended")

    all_at_once(work, CLIENTS)

    assert is_unlucky or any(client.refused for client in clients), "they met"
    assert any(client.deaths for client in clients) == is_unlucky
    counts = collections.Counter(key for client in clients for key in client.accepted)
    assert counts == {(run_id, step_id): 1 for run_id in names for step_id in STEPS}, (
        "of the answers to a step one wins"
    )
    accepted = {key: output for client in clients for key, output in client.accepted.items()}
    for run_id in names:
        records = read(journal_url, run_id)
        run = folded(run_id, records)
        assert run.state == "completed"
        assert dict(run.results) == {step_id: accepted[run_id, step_id] for step_id in STEPS}
        given = [record.event.note for record in records if isinstance(record.event, ConfirmationGiven)]
        assert given == [client.name for client in clients if run_id in client.confirmed]


def test_of_all_outputs_for_one_step_one_is_accepted_and_the_others_get_the_state(
    clients: list[Agent], journal_url: str
) -> None:
    first = clients[0].server
    rounds = 20 if journey.IS_SOAK else 8
    for number in range(rounds):
        first.result(*journey.start(f"run-{number}", "sample-workflow"))
    replies: dict[int, dict[int, JsonObject]] = collections.defaultdict(dict)
    together = threading.Barrier(CLIENTS, timeout=TIMEOUT)

    def work(index: int) -> None:
        for number in range(rounds):
            together.wait()
            call = journey.submit("begin", f"output of {index}", f"run-{number}")
            replies[number][index] = clients[index].server.request(*call)

    all_at_once(work, CLIENTS)

    for number in range(rounds):
        won = {index: reply["result"] for index, reply in replies[number].items() if "result" in reply}
        ((winner, result),) = won.items()
        assert result["step"]["id"] == "turn@1"
        records = read(journal_url, f"run-{number}")
        outputs = [record.event.output for record in records if isinstance(record.event, OutputAccepted)]
        assert outputs == [f"output of {winner}"]
        for index in replies[number].keys() - {winner}:
            error = replies[number][index]["error"]
            assert error["code"] == -32005
            expected = {"runId": f"run-{number}", "state": "waiting", "expected": "turn@1", "stepId": "begin"}
            assert expected.items() <= error["data"].items()


def test_the_same_submission_from_all_at_once_is_stored_once_and_answered_alike(
    clients: list[Agent], journal_url: str
) -> None:
    clients[0].server.result(*journey.start(workflow_id="sample-workflow"))
    replies: dict[int, Json] = {}

    def work(index: int) -> None:
        replies[index] = clients[index].server.result(*journey.submit("begin", "the same"))

    all_at_once(work, CLIENTS)

    assert list(replies.values()) == [replies[0]] * CLIENTS
    assert [kind_of(record.event) for record in read(journal_url)].count("output-accepted") == 1


def test_concurrent_starts_with_one_id_start_one_run(clients: list[Agent], journal_url: str) -> None:
    replies: dict[int, Json] = {}

    def work(index: int) -> None:
        replies[index] = clients[index].server.result(*journey.start(workflow_id="sample-workflow"))

    all_at_once(work, CLIENTS)

    assert list(replies.values()) == [replies[0]] * CLIENTS
    journal = open_journal(journal_url)
    assert [line.id for line in journal.summaries(RunQuery())] == [journey.RUN]
    journal.close()
