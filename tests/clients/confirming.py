"""What every official client must see when two runs want a person's word at once, whatever the person says.

A client starts two runs of `WORKFLOW`, follows the first, submits both at once, and answers each question with `said`
once both are open; without `said` it cannot show forms. It writes down `ids`, `asked` (the parameters of each question),
`told` (what each submission got), `states`, `report` (of the first run), `heard` (addresses that changed), `troubles`.
"""

import os
import subprocess
import time
from pathlib import Path

from support.client import Server
from support.json_values import Json, JsonObject
from support.make import document, step, write

WORKFLOW = "needs-a-word"
SAID: dict[str, JsonObject | None] = {
    "accepted": {"action": "accept", "content": {"note": "Fine."}},
    "declined": {"action": "decline"},
    "dismissed": {"action": "cancel"},
    "no forms": None,
}
THEN = {
    "accepted": ("output", "two"),
    "declined": ("output", "one"),
    "dismissed": ("confirmation", "one"),
    "no forms": ("confirmation", "one"),
}
"""What the runs wait for then, and at which step."""


def settle(home: Path) -> dict[str, str]:
    """A home with the workflow in its library; the environment of a server that lives there."""
    write(home / "library", document(step("one", requireConfirmation=True), step("two"), identifier=WORKFLOW))
    return {"HOME": str(home), "WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOW_STORAGE_PATH": str(home / "library")}


NEVER = {"never": True}
"""A person who thinks for ever: the client says so on standard output and does not answer."""


def places_after_a_kill(home: Path, command: list[str], request: str = "", cwd: Path | None = None) -> list[Json]:
    """What the runs wait for after the client was killed with its questions open, and its server is gone."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(request.encode())
        client.stdin.close()
        for _ in range(2):
            assert client.stdout.readline().strip() == b"asked"
        client.kill()
    deadline = time.monotonic() + 20
    while _is_inhabited(home):
        assert time.monotonic() < deadline, "the server outlived its client"
        time.sleep(0.05)
    server = Server(home, directory=home / "library")
    try:
        server.initialize()
        runs = server.call("workflow_runs")["structuredContent"]["runs"]
        states = [server.call("workflow_status", {"runId": run["runId"]})["structuredContent"] for run in runs]
        return [(state["state"], state["waitingFor"]) for state in states]
    finally:
        server.stop()


def _is_inhabited(home: Path) -> bool:
    """Whether a process works in this directory."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == str(home):
                return True
        except OSError:
            continue
    return False


class RunPromises:
    """Tests over `acted`, for each `outcome` of `SAID`; a client's module makes a subclass whose name starts with Test."""

    def test_each_run_asks_its_own_question_where_that_is_possible(self, acted: JsonObject, outcome: str) -> None:
        assert len(acted["asked"]) == (0 if SAID[outcome] is None else 2)
        for question in acted["asked"]:
            assert "one" in question["message"]
            assert question["requestedSchema"]["properties"].keys() == {"note"}

    def test_the_runs_go_where_the_person_says(self, acted: JsonObject, outcome: str) -> None:
        for state in acted["states"]:
            step_id = state["confirmation"]["stepId"] if "confirmation" in state else state["step"]["id"]
            assert (state["waitingFor"], step_id) == THEN[outcome]
        for run_id, content in zip(acted["ids"], acted["told"], strict=True):
            assert (content["runId"], content["state"], content["waitingFor"]) == (run_id, "waiting", THEN[outcome][0])
            assert content["next"]

    def test_the_report_tells_it(self, acted: JsonObject, outcome: str) -> None:
        (content,) = acted["report"]["contents"]

        assert (content["uri"], content["mimeType"]) == (f"run://{acted['ids'][0]}", "text/markdown")
        answer = {"accepted": "Confirmed", "declined": "Not confirmed"}.get(outcome, "A person was asked")
        assert answer in content["text"]

    def test_who_follows_a_run_heard_of_its_changes_and_of_no_other(self, acted: JsonObject) -> None:
        assert set(acted["heard"]) == {f"run://{acted['ids'][0]}"}

    def test_nothing_on_the_wire_troubled_the_client(self, acted: JsonObject) -> None:
        assert acted["troubles"] == []
