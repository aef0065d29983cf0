"""`kill -9` of the server in the middle of proofs, a hundred times: nothing is lost, and no process is left."""

import os
import random
import re
import signal
import time
from pathlib import Path

from support.client import Server, Start
from support.json_values import JsonObject
from support.make import document, settings_file, step, write
from support.processes import is_alive
from support.proving import Project

KILLS = 100
ROOM = 60.0
PROOFS: list[JsonObject] = [
    {"kind": "git", "name": "changed", "changed": ["a.txt"]},
    {"kind": "command", "name": "quick", "use": "quick"},
    {"kind": "command", "name": "slow", "use": "slow"},
    {
        "kind": "file",
        "name": "there",
        "path": "*.txt",
        "text": [{"type": "contains", "value": "x", "message": "has x"}],
    },
]


def test_a_run_survives_all_of_them(start: Start, library: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    project = Project(root)
    project.git("init", "-q")
    project.write(
        "slow.sh", "sleep 300 & echo $! >> ../pids; echo $$ >> ../pids; while [ ! -e ../go ]; do sleep 0.02; done\n"
    )
    project.commit("begin")
    settings_file(tmp_path).write_text('[commands]\nquick = ["true"]\nslow = ["sh", "slow.sh"]\n')
    write(library, document(step("one", proof=PROOFS), id="proven"))
    chance = random.Random(16)

    def serve() -> Server:
        return start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(tmp_path / "runs.sqlite"))

    server = serve()
    started = server.call("workflow_start", {"workflowId": "proven", "runId": "r1"})
    assert started["structuredContent"]["step"]["id"] == "one"
    project.write("a.txt")
    arguments = {"runId": "r1", "stepId": "one", "output": "done"}
    submit = {"name": "workflow_submit", "arguments": arguments}
    for number in range(KILLS):
        server.send({"jsonrpc": "2.0", "id": f"s{number}", "method": "tools/call", "params": submit})
        time.sleep(chance.random() * 0.6)
        os.kill(server.process.pid, signal.SIGKILL)
        server.wait(ROOM)
        pids = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
        end = time.monotonic() + ROOM
        while left := [pid for pid in pids if is_alive(int(pid))]:
            assert time.monotonic() < end, (number, left)
            time.sleep(0.02)
        server = serve()

    (tmp_path / "go").touch()
    server.send({"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": submit})
    while (reply := server.receive(ROOM)).get("id") != "last":
        pass
    answer = reply["result"]["structuredContent"]
    assert answer["state"] == "completed", answer["verdict"]
    assert (answer["state"], answer["proofs"]["summary"]) == ("completed", "proved 4 of 4")
    history = server.call("workflow_status", {"runId": "r1"})["structuredContent"]["history"]
    kinds = re.sub(r"snapshot-taken ", "", " ".join(event["event"] for event in history))
    assert kinds.endswith("proof-taken proof-taken proof-taken proof-taken output-accepted completed"), kinds
    assert (tmp_path / "pids").read_text().split(), "no proof was killed in the middle"
