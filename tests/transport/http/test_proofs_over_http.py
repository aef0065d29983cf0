"""Proofs over HTTP: the server cannot see the files of its clients, and proves nothing in a directory of its own."""

from pathlib import Path

from support.make import document, step, write
from support.web import Connect, Serve


def test_what_is_on_the_clients_machine_is_unproved(serve_http: Serve, connect: Connect, tmp_path: Path) -> None:
    proof = {"kind": "command", "name": "tests", "run": ["touch", "ran"]}
    write(tmp_path / "library", document(step("one-step", proof=[proof]), id="proven"))
    client = connect(serve_http("--directories", str(tmp_path / "library"), "--journal", str(tmp_path / "runs.sqlite")))
    client.initialize()

    client.request("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "proven", "runId": "r1"}})
    output = {"runId": "r1", "stepId": "one-step", "output": "done"}
    reply = client.request("tools/call", {"name": "workflow_submit", "arguments": output})

    verdict = reply["result"]["structuredContent"]["verdict"]
    assert verdict["valid"] is False
    assert verdict["issues"] == ["Proof 'tests' could not be taken: this server cannot see the files of the project."]
    assert any("`workflowlookup witness --server URL`" in suggestion for suggestion in verdict["suggestions"])
    assert not list(tmp_path.rglob("ran"))
