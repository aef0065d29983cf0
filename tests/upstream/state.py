"""What the upstreams of the tests share: a directory that says how they behave, what they saw, and which runs they have.

    control.json   how to behave; read for every request, so that a test changes it while the upstream runs
    seen.jsonl     every request received, one JSON object a line, with "at"
    runs/ID.json   runs that were started; their state follows from the clock, so a restarted upstream still knows them

What `control.json` may say (all optional):

    workflows   the definitions that are listed (any JSON: a test may put nonsense here)
    list        "ok", "fail" (an error), "hang" (no answer), "garbage" (an answer that is no list)
    start       "ok", "fail", "hang", "garbage", "lost" (the run is begun, but the answer is an error);
                MCP: {"answer": JSON} answers with that, {"unreadable": JSON} with that as content
    status      "ok", "fail", "hang", "garbage"; HTTP: {"code": 404, "times": 2} refuses the first two (also for the others),
                with "retry_after" in seconds; {"codes": [503, 401]} refuses the first two, each with its own code
    cancel      "ok", "fail" (an error), "ignore" (says yes, goes on)
    delay       seconds before any answer
    page        HTTP: how many workflows a page has (paged by ?page=N with `next`)
    without     MCP: names of tools that are not offered
    direct      MCP: workflow ids that are tools of their own
    runs        by workflow id, or "*": {"seconds": 0.1, "outcome": "completed" | "failed" | "cancelled", "output": JSON,
                "error": "text", "states": ["QUEUED", …] (names while it runs), "progress": true}
    token       HTTP: what the header Authorization must be
"""

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from support.json_values import Json, JsonObject

ONE = {
    "id": "deploy",
    "name": "Deploy a service",
    "description": "Puts a service into production.",
    "category": "operations",
    "version": "2.1.0",
    "inputSchema": {
        "type": "object",
        "properties": {"service": {"type": "string", "minLength": 1}, "replicas": {"type": "integer", "minimum": 1}},
        "required": ["service"],
        "additionalProperties": False,
    },
    "executionType": "async",
    "metadata": {"owner": "platform"},
}
"""The workflow that is listed when the test says nothing."""


class UpstreamState:
    """The directory, seen by the test and by the upstream."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        (self.directory / "runs").mkdir(parents=True, exist_ok=True)

    # ── the test's side ──

    def control(self, **changes: Json) -> None:
        """Changes how the upstream behaves; a value of None takes it back."""
        rules = self.rules() | changes
        self._write("control.json", {name: value for name, value in rules.items() if value is not None})

    def seen(self, what: str = "") -> list[JsonObject]:
        """The requests that came, in order; only those of this kind."""
        try:
            lines = (self.directory / "seen.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if not what or entry["what"] == what]

    def wait_for(self, what: str, count: int = 1, timeout: float = 20.0) -> list[JsonObject]:
        """The requests of this kind, as soon as there are so many."""
        end = time.monotonic() + timeout
        while len(requests := self.seen(what)) < count:
            assert time.monotonic() < end, f"{len(requests)} x {what} in {timeout} s; seen: {self.seen()}"
            time.sleep(0.01)
        return requests

    # ── the upstream's side ──

    def rules(self) -> JsonObject:
        try:
            control: JsonObject = json.loads((self.directory / "control.json").read_text())
        except FileNotFoundError:
            return {}
        return control

    def workflows(self) -> Json:
        return self.rules().get("workflows", [ONE])

    def see(self, what: str, **particulars: Any) -> None:
        """Writes down that this came."""
        line = json.dumps({"what": what, "at": time.time(), "pid": os.getpid()} | particulars) + "\n"
        with (self.directory / "seen.jsonl").open("a") as file:
            file.write(line)

    def begin(self, workflow: str, arguments: Json, key: str = "") -> str:
        """Begins a run, and tells its id."""
        run_id = str(uuid.uuid4())
        rules = self.rules().get("runs", {})
        rule = rules.get(workflow, rules.get("*", {}))
        run = {"id": run_id, "workflow": workflow, "input": arguments, "key": key, "began": time.time(), "rule": rule}
        self._write(f"runs/{run_id}.json", run)
        return run_id

    def name_run(self, run_id: str, name: str) -> None:
        """Gives a run the id that its caller chose."""
        directory = self.directory / "runs"
        run = json.loads((directory / f"{run_id}.json").read_text())
        self._write(f"runs/{name}.json", run | {"id": name})
        (directory / f"{run_id}.json").unlink()

    def run(self, run_id: str) -> JsonObject | None:
        """A run and its state by now: "state", "output", "error", "progress"."""
        try:
            run: JsonObject = json.loads((self.directory / "runs" / f"{run_id}.json").read_text())
        except FileNotFoundError:
            return None
        rule, passed = run["rule"], time.time() - run["began"]
        seconds = rule.get("seconds", 0.05)
        if "cancelled" in run:
            return run | {"state": "CANCELLED", "output": None}
        if passed < seconds:
            states = rule.get("states") or ["RUNNING"]
            state = states[min(int(len(states) * passed / seconds), len(states) - 1)]
            progress = {"done": round(passed / seconds * 10, 1), "total": 10, "message": f"{state.lower()}…"}
            return run | {"state": state, "output": None} | ({"progress": progress} if rule.get("progress") else {})
        outcome = rule.get("outcome", "completed")
        ended = {"state": outcome.upper(), "output": rule.get("output", {"echo": run["input"]})}
        return run | ended | ({"error": rule.get("error", "it broke")} if outcome == "failed" else {})

    def runs(self) -> list[JsonObject]:
        """Every run, oldest first."""
        runs = [self.run(path.stem) for path in (self.directory / "runs").glob("*.json")]
        return sorted((run for run in runs if run), key=lambda run: run["began"])

    def cancel(self, run_id: str) -> bool:
        """Whether the run was stopped."""
        run = self.run(run_id)
        if run is None or run["state"] in ("COMPLETED", "FAILED", "CANCELLED"):
            return False
        self._write(f"runs/{run_id}.json", run | {"cancelled": time.time()})
        return True

    def _write(self, name: str, value: Json) -> None:
        path = self.directory / name
        beside = path.with_name(f"{path.name}.{os.getpid()}.{uuid.uuid4().hex}.tmp")
        beside.write_text(json.dumps(value))
        beside.replace(path)
