"""Proofs over real pipes: a real server proves outputs in a real repository, whatever its client does meanwhile."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.client import Server, Start
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step, write
from support.processes import is_gone
from support.proving import Project
from support.waiting import read_when_written

ROOM = 30.0
"""Seconds that something may take which usually takes much less: the machine may be busy."""
TESTS: JsonObject = {"kind": "command", "name": "tests", "use": "test", "message": "The tests must pass."}
Serve = Callable[[], Server]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project directory, in which the server is started."""
    check = "echo checking; grep -q fixed app.txt || { echo 'E  app is broken'; exit 3; }\n"
    return Project.create(tmp_path / "project", {"check.sh": check, "app.txt": "broken\n"})


@pytest.fixture
def serve(start: Start, library: Path, tmp_path: Path, project: Project) -> Serve:
    assert project
    settings_file(tmp_path).write_text('[commands]\ntest = ["sh", "check.sh"]\nslow = ["sh", "slow.sh"]\n')
    write(library, document(step("fix", proof=[TESTS]), step("tell"), id="fix-it"))
    changed = {"kind": "git", "name": "changed", "changed": ["app.txt"], "unchanged": ["check.sh"]}
    write(library, document(step("fix", proof=[changed]), id="changes"))
    write(library, document(step("wait", proof=[{"kind": "command", "name": "slow", "use": "slow"}]), id="slow-one"))
    write(library, document(step("one", proof=[{**TESTS, "use": "nothing"}]), id="asks", whenUnproved="ask"))

    def serve_project() -> Server:
        return start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(tmp_path / "runs.sqlite"))

    return serve_project


def content(result: JsonObject) -> JsonObject:
    assert not result.get("isError"), result
    structured: JsonObject = result["structuredContent"]
    return structured


def begin(server: Server, workflow: str, run: str = "r1") -> JsonObject:
    return content(server.call("workflow_start", {"workflowId": workflow, "runId": run}))


def submit(server: Server, step_id: str, output: str = "I fixed it.", **more: Json) -> JsonObject:
    return content(server.call("workflow_submit", {"runId": "r1", "stepId": step_id, "output": output, **more}))


def status(server: Server) -> JsonObject:
    return content(server.call("workflow_status", {"runId": "r1"}))


def send_submit(server: Server, identifier: str, step_id: str) -> None:
    """Submit without waiting for the answer."""
    arguments = {"runId": "r1", "stepId": step_id, "output": "done"}
    params = {"name": "workflow_submit", "arguments": arguments, "_meta": {"progressToken": "p"}}
    server.send({"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params})


def test_a_claim_is_refused_until_it_is_true(serve: Serve, project: Project) -> None:
    server = serve()
    begin(server, "fix-it")

    refused = submit(server, "fix")
    project.write("app.txt", "fixed\n")
    accepted = submit(server, "fix")

    verdict = refused["verdict"]
    assert (refused["state"], refused["waitingFor"], verdict["valid"], refused["attempts"]) == (
        *("waiting", "output"),
        False,
        1,
    )
    assert verdict["issues"][0].startswith("The tests must pass. Proof 'tests' (sh check.sh) failed:")
    assert "3" in verdict["issues"][0]
    assert "E  app is broken" in verdict["suggestions"][-1]
    assert not any("criteria" in suggestion for suggestion in verdict["suggestions"])  # the output met them
    assert verdict["proofs"][0].startswith("failed: tests (sh check.sh, exit code 3, ")
    assert accepted["step"]["id"] == "tell"
    assert accepted["verdict"]["proofs"][0].startswith("proved: tests (sh check.sh, exit code 0, ")
    assert status(server)["proofs"] == {
        "taken": 1,
        "passed": 1,
        "failed": 0,
        "waived": 0,
        "unproved": 0,
        "summary": "proved 1 of 1",
    }


def test_the_project_is_looked_at_before_the_step_is_handed_out(serve: Serve, project: Project) -> None:
    server = serve()
    started = begin(server, "changes")
    assert started["step"]["id"] == "fix"

    assert submit(server, "fix")["verdict"]["valid"] is False
    project.write("app.txt", "fixed\n")
    project.commit("fix")
    assert submit(server, "fix")["state"] == "completed"

    kinds = [event["event"] for event in status(server)["history"]]
    assert kinds[:2] == ["step-offered", "proofs-due"] or "snapshot-taken" in kinds


def test_others_are_answered_and_progress_is_reported_while_a_proof_is_taken(serve: Serve, project: Project) -> None:
    project.write("slow.sh", "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done\n")
    server = serve()
    begin(server, "slow-one")

    send_submit(server, "long", "wait")
    read_when_written(project.root / "pid")
    while True:
        message = server.receive(ROOM)
        assert message["method"] == "notifications/progress"
        if re.fullmatch("Title wait: proving 1 of 1: sh slow.sh, [0-9]+ s", message["params"]["message"]):
            break
    server.send(
        {
            "jsonrpc": "2.0",
            "id": "now",
            "method": "tools/call",
            "params": {"name": "workflow_status", "arguments": {"runId": "r1"}},
        }
    )
    while (reply := server.receive(ROOM)).get("id") != "now":
        pass
    now = content(reply["result"])
    assert (now["state"], now["waitingFor"], now["proving"]["due"]) == ("running", "proof", ["slow"])
    project.write("go")
    while (reply := server.receive(ROOM)).get("id") != "long":
        pass
    assert content(reply["result"])["state"] == "completed"


def test_a_client_that_gives_up_loses_nothing(serve: Serve, project: Project) -> None:
    project.write("slow.sh", "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo once >> ran; exit 4\n")
    server = serve()
    begin(server, "slow-one")
    send_submit(server, "long", "wait")
    read_when_written(project.root / "pid")

    server.notify("notifications/cancelled", {"requestId": "long", "reason": "timeout"})
    assert status_of(server)["waitingFor"] == "proof"
    project.write("go")
    read_when_written(project.root / "ran")
    verdict = submit(server, "wait", "done")

    assert (verdict["verdict"]["valid"], verdict["attempts"]) == (False, 1)
    assert (project.root / "ran").read_text() == "once\n", "the same call has the same verdict"


def status_of(server: Server) -> JsonObject:
    """The status, whatever notifications come before it."""
    server.send(
        {
            "jsonrpc": "2.0",
            "id": "st",
            "method": "tools/call",
            "params": {"name": "workflow_status", "arguments": {"runId": "r1"}},
        }
    )
    while (reply := server.receive(ROOM)).get("id") != "st":
        pass
    return content(reply["result"])


def test_cancelling_the_run_ends_the_command_and_all_that_it_started(serve: Serve, project: Project) -> None:
    project.write("slow.sh", "sleep 300 & echo $! > child; echo $$ > pid; wait\n")
    server = serve()
    begin(server, "slow-one")
    send_submit(server, "long", "wait")
    pids = [read_when_written(project.root / name).strip() for name in ("pid", "child")]

    server.send(
        {
            "jsonrpc": "2.0",
            "id": "end",
            "method": "tools/call",
            "params": {"name": "workflow_cancel", "arguments": {"runId": "r1"}},
        }
    )

    for pid in pids:
        assert is_gone(int(pid), ROOM)
    assert status_of(server)["state"] == "cancelled"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_proof_is_taken_again_after_the_server_ended_in_it(
    serve: Serve, project: Project, how: signal.Signals
) -> None:
    project.write("slow.sh", "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo done >> ran\n")
    server = serve()
    begin(server, "slow-one")
    send_submit(server, "long", "wait")
    pid = read_when_written(project.root / "pid").strip()
    (project.root / "pid").unlink()

    os.kill(server.process.pid, how)
    server.wait(ROOM)
    assert is_gone(int(pid), ROOM)
    other = serve()
    read_when_written(project.root / "pid")
    project.write("go")

    assert submit(other, "wait", "done")["state"] == "completed"
    assert (project.root / "ran").read_text() == "done\n"


@pytest.mark.parametrize("trusts", [True, False])
def test_a_person_is_asked_whether_a_command_of_the_repository_may_run(
    start: Start, library: Path, tmp_path: Path, project: Project, *, trusts: bool
) -> None:
    own = {"kind": "command", "name": "own", "run": ["sh", "check.sh"]}
    write(project.root / ".workflowlookup" / "workflows", document(step("one", proof=[own]), id="brought"))
    project.write("app.txt", "fixed\n")
    server = start(directory=library, version=None, WORKFLOWLOOKUP_JOURNAL=str(tmp_path / "runs.sqlite"))
    server.initialize(capabilities={"elicitation": {}})

    arguments = {"workflowId": "brought", "runId": "r1"}
    params = {"name": "workflow_start", "arguments": arguments}
    server.send({"jsonrpc": "2.0", "id": "begin", "method": "tools/call", "params": params})
    question = server.receive(ROOM)
    assert "commands that prove step 'brought/one'" in question["params"]["message"]
    assert '"check.sh"' in question["params"]["message"]
    answer = {"action": "accept", "content": {"trust": True}} if trusts else {"action": "decline"}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    assert content(server.receive(ROOM)["result"])["step"]["id"] == "one", (
        "an untrusted proof keeps no run from starting"
    )
    verdict = submit(server, "one")["verdict"]

    assert verdict["valid"] is trusts
    if not trusts:
        assert "not trusted, because it came with a repository" in verdict["issues"][0]
        assert "workflowlookup trust" in verdict["issues"][0]


def test_what_cannot_be_proven_is_asked_and_an_agent_cannot_answer(serve: Serve) -> None:
    server = serve()
    begin(server, "asks")

    reply = submit(server, "one")
    relayed = server.call("workflow_submit", {"runId": "r1", "stepId": "one", "confirmed": True})

    assert (reply["waitingFor"], reply["state"]) == ("confirmation", "waiting")
    assert "What could not be proven:" in reply["confirmation"]["question"]
    assert relayed["isError"] is True
    assert status(server)["waitingFor"] == "confirmation"
