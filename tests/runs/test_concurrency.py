"""Many at once on one journal: every run ends where it should, of two answers one wins, and the other is refused."""

import collections
import random
import threading

import pytest

import journey
from client import TIMEOUT
from journey import folded, open_journal, read
from make import document, loop, step, write
from workflowlookup.core.run import kind_of
from workflowlookup.runs.journal import Query

RUNS, CLIENTS = (200, 8) if journey.IS_SOAK else (40, 4)
FLOW = document(
    step("begin"),
    loop("rounds", [step("turn")], type="for", count=2),
    step("release", requireConfirmation=True),
    step("end"),
)
STEPS = ["begin", "turn@1", "turn@2", "release", "end"]


def all_at_once(work, number):
    """Do the work in so many threads; whatever one of them raises is raised here."""
    together, problems = threading.Barrier(number, timeout=TIMEOUT), []

    def do(index):
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


class Client:
    """An agent with a server of its own, that takes up whatever run is not over, and notes what it is told."""

    def __init__(self, name, server):
        self.name, self.server = name, server
        self.accepted, self.refused, self.confirmed = {}, [], []

    def advance(self, run_id):
        """One step further, if nobody is faster; whether the run is over."""
        status = self.server.result("workflow_status", {"runId": run_id})
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

    def _send(self, arguments):
        """Whether it counted; when not, it must have been refused by name."""
        reply = self.server.request("workflow_submit", arguments)
        if "error" not in reply:
            return True
        assert reply["error"]["code"] == -32005, reply
        assert reply["error"]["data"]["runId"] == arguments["runId"]
        self.refused.append(arguments)
        return False


@pytest.fixture
def clients(serve, place, library):
    write(library, FLOW)
    servers = [serve(place) for _ in range(CLIENTS)]
    return [Client(f"client-{number}", server) for number, server in enumerate(servers)]


def test_runs_that_are_advanced_by_all_at_once_end_where_they_should(clients, place):
    names = [f"run-{number}" for number in range(RUNS)]

    def work(index):
        client, chance = clients[index], random.Random(index)
        for run_id in names[index::CLIENTS]:
            client.server.result(*journey.start(run_id, "sample-workflow"))
        mine = names[:]
        for _ in range(1_000 * RUNS):
            if not mine:
                return
            run_id = mine[chance.randrange(min(4, len(mine)))]  # the front is where they meet
            reply = client.server.request("workflow_status", {"runId": run_id})
            if "error" in reply:  # not begun yet
                assert reply["error"]["message"] == "Run not found"
            elif client.advance(run_id):
                mine.remove(run_id)
        raise AssertionError(f"{mine} never ended")

    all_at_once(work, CLIENTS)

    assert any(client.refused for client in clients), "they met"
    told = collections.Counter(key for client in clients for key in client.accepted)
    assert told == {(run_id, step_id): 1 for run_id in names for step_id in STEPS}, "of the answers to a step one wins"
    accepted = {key: output for client in clients for key, output in client.accepted.items()}
    for run_id in names:
        records = read(place, run_id)
        run = folded(run_id, records)
        assert run.state == "completed"
        assert dict(run.results) == {step_id: accepted[run_id, step_id] for step_id in STEPS}
        given = [record.event.note for record in records if kind_of(record.event) == "confirmation-given"]
        assert given == [client.name for client in clients if run_id in client.confirmed]


def test_of_all_answers_to_one_step_one_wins_and_the_others_are_told_where_the_run_is(clients, place):
    first = clients[0].server
    rounds = 20
    for number in range(rounds):
        first.result(*journey.start(f"run-{number}", "sample-workflow"))
    replies = collections.defaultdict(dict)
    together = threading.Barrier(CLIENTS, timeout=TIMEOUT)

    def work(index):
        for number in range(rounds):
            together.wait()
            call = journey.submit("begin", f"output of {index}", f"run-{number}")
            replies[number][index] = clients[index].server.request(*call)

    all_at_once(work, CLIENTS)

    for number in range(rounds):
        won = {index: reply["result"] for index, reply in replies[number].items() if "result" in reply}
        ((winner, result),) = won.items()
        assert result["step"]["id"] == "turn@1"
        records = read(place, f"run-{number}")
        outputs = [record.event.output for record in records if kind_of(record.event) == "output-accepted"]
        assert outputs == [f"output of {winner}"]
        for index in replies[number].keys() - {winner}:
            error = replies[number][index]["error"]
            assert error["code"] == -32005
            expected = {"runId": f"run-{number}", "state": "waiting", "expected": "turn@1", "stepId": "begin"}
            assert expected.items() <= error["data"].items()


def test_the_same_submission_from_all_at_once_is_stored_once_and_answered_alike(clients, place):
    clients[0].server.result(*journey.start(workflow_id="sample-workflow"))
    replies = {}

    def work(index):
        replies[index] = clients[index].server.result(*journey.submit("begin", "the same"))

    all_at_once(work, CLIENTS)

    assert list(replies.values()) == [replies[0]] * CLIENTS
    assert [kind_of(record.event) for record in read(place)].count("output-accepted") == 1


def test_a_run_that_all_begin_at_once_is_begun_once(clients, place):
    replies = {}

    def work(index):
        replies[index] = clients[index].server.result(*journey.start(workflow_id="sample-workflow"))

    all_at_once(work, CLIENTS)

    assert list(replies.values()) == [replies[0]] * CLIENTS
    journal = open_journal(place)
    assert [line.id for line in journal.summaries(Query())] == [journey.RUN]
    journal.close()
