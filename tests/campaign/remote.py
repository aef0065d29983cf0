"""Attempts at a server over HTTP, which cannot see the files: the agent has a token, and a witness has another one."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from campaign.attacker import PROOFS, RUN, Attempt, Result
from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.waiting import wait_until
from support.web import WebClient, WebServer
from workflowlookup.runs.report import report
from workflowlookup.runs.run import Run
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens

PROCESS = "0123456789abcdef"
ROOM = 60.0


class RemoteAttacker:
    """An agent with a token of scope `run`, and whatever else it can reach over HTTP."""

    def __init__(self, home: Path) -> None:
        library = home / "library"
        library.mkdir()
        write(library, document(step("fix", proof=PROOFS["suite"]), id="suite"))
        write(library, document(step("fix", requireConfirmation={"by": "person"}), id="agreed"))
        journal = SqliteJournal(str(home / "runs.sqlite"))
        self.runs = Runs(journal)
        self._tokens = Tokens(journal)
        self.tokens = {
            name: self._tokens.create(name, [scope], ["*"], seconds=600, is_person=False)[0]
            for name, scope in {
                "ada": "run",
                "ada+witness": "witness",
                "eve+witness": "witness",
                "root": "admin",
            }.items()
        }
        words = ("--journal", str(home / "runs.sqlite"), "--witness-seconds", "2")
        self._server = WebServer(home, *words, directory=library)
        self.client = WebClient(self._server.url, authorization=f"Bearer {self.tokens['ada']}")
        self.client.initialize()
        self.transcript = ""

    def call(self, name: str, **arguments: Json) -> JsonObject:
        result: JsonObject = self.client.request("tools/call", {"name": name, "arguments": arguments})["result"]
        self.transcript += json.dumps(result)
        return result

    def post(self, name: str, message: Json, token: str) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.tokens[token]}"}
        url = f"{self._server.base}/witness/{name}"
        answer = httpx2.post(url, content=json.dumps(message), headers=headers, timeout=ROOM)
        self.transcript += answer.text
        return answer

    def submit_without_waiting(self) -> None:
        self.call("workflow_submit", runId=RUN, stepId="fix", output="All tests pass now.", wait=False)
        wait_until(lambda: self.run.waiting_for == "proof", ROOM)

    @property
    def run(self) -> Run:
        return self.runs.get(RUN)

    def report(self, token: str, **fields: Json) -> httpx2.Response:
        """Report that the proof has passed."""
        judgement = {"name": "suite", "kind": "command", "verdict": "passed", "exitCode": 0}
        due = self.run.proving.due if self.run.proving is not None else 0
        about = {"runId": RUN, "stepId": "fix", "due": due, "name": "suite", "judgement": judgement, **fields}
        return self.post("report", {"witness": PROCESS, "report": about}, token)

    def close(self) -> None:
        self.client.close()
        self._server.stop()
        self._tokens.close()
        self.runs.close()


class RemoteAttempt(Attempt, frozen=True, kw_only=True):
    """An attempt at a server over HTTP."""

    remote: Callable[[RemoteAttacker], object]

    def make(self, home: Path) -> Result:
        attacker = RemoteAttacker(home)
        with contextlib.closing(attacker):
            attacker.call("workflow_start", workflowId=self.workflow, runId=RUN, **self.start)
            self.remote(attacker)
            wait_until(lambda: attacker.run.waiting_for != "proof", ROOM)
            run = attacker.run
            text = report(RUN, attacker.runs.history(RUN))
            if run.state != "completed":
                return Result("refused", attacker.transcript + text)
            return Result("shown" if self.evidence and self.evidence in text else "passed", attacker.transcript + text)


def without_witness(attacker: RemoteAttacker) -> None:
    attacker.call("workflow_submit", runId=RUN, stepId="fix", output="All tests pass now.")


def reports_as(token: str) -> Callable[[RemoteAttacker], None]:
    def attack(attacker: RemoteAttacker) -> None:
        attacker.submit_without_waiting()
        attacker.post("claim", {"witness": PROCESS}, token)
        attacker.report(token)

    return attack


def reports_unclaimed(attacker: RemoteAttacker) -> None:
    attacker.submit_without_waiting()
    attacker.report("ada+witness")


def reports_before_the_output(attacker: RemoteAttacker) -> None:
    attacker.report("ada+witness")
    without_witness(attacker)


def reports_for_another_process(attacker: RemoteAttacker) -> None:
    attacker.submit_without_waiting()
    attacker.post("claim", {"witness": "f" * 16}, "ada+witness")
    attacker.report("ada+witness")


def reports_again(attacker: RemoteAttacker) -> None:
    """A report for an earlier output, sent again for the next one."""
    attacker.submit_without_waiting()
    due = attacker.run.proving.due if attacker.run.proving is not None else 0
    wait_until(lambda: attacker.run.waiting_for != "proof", ROOM)
    attacker.call("workflow_submit", runId=RUN, stepId="fix", output="Really done.", wait=False)
    wait_until(lambda: attacker.run.waiting_for == "proof", ROOM)
    attacker.post("claim", {"witness": PROCESS}, "ada+witness")
    attacker.report("ada+witness", due=due)


def confirms(attacker: RemoteAttacker) -> None:
    attacker.call("workflow_submit", runId=RUN, stepId="fix", output="Done.")
    attacker.call("workflow_submit", runId=RUN, stepId="fix", confirmed=True)


def attempts() -> Iterator[RemoteAttempt]:
    more: dict[str, Any] = {"attack": "true", "submits": False}
    rows: dict[str, tuple[Callable[[RemoteAttacker], None], str]] = {
        "no witness": (without_witness, "no witness took the proof in time"),
        "the agent's own token as a witness": (reports_as("ada"), "scope 'witness'"),
        "the token of an administrator as a witness": (reports_as("root"), "scope 'witness'"),
        "the witness of another person": (reports_as("eve+witness"), "same person"),
        "a report that was not claimed": (reports_unclaimed, "not due any more"),
        "a report before the output": (reports_before_the_output, "not due any more"),
        "a report for the claim of another process": (reports_for_another_process, "Another witness takes this"),
        "a report for an earlier output": (reports_again, "not due any more"),
    }
    for name, (attack, reason) in rows.items():
        yield RemoteAttempt(kind="over HTTP", name=name, remote=attack, reason=reason, **more)
    yield RemoteAttempt(
        kind="over HTTP",
        name="confirmed by the agent's token",
        workflow="agreed",
        remote=confirms,
        reason="person",
        **more,
    )
    yield RemoteAttempt(
        kind="over HTTP",
        name="the agent reads the token of the witness",
        remote=reports_as("ada+witness"),
        expected="shown",
        evidence="taken by token ada+witness",
        reason="taken by token ada\\+witness",
        **more,
    )


REMOTE = [*attempts()]
