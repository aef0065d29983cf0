"""What the scenarios of the tasks extension ask for: workflows of ours, run by our own engine; for tests only.

Two things no run of ours does: put two questions at once, and fail as the protocol fails. Those are played by `Played`.
"""

import datetime as dt
import itertools
from typing import Any

from conformance.fixtures import NAME, WORD, ask, form, text
from support.json_values import Json, JsonObject

EXTENSION = "io.modelcontextprotocol/tasks"
REQUIRED = ("failing_job", "test_tool_with_task")
"""Tools that are for clients that know tasks alone."""
WORKFLOWS = ("slow_compute", "failing_job", "confirm_delete", "test_tool_with_task")
PLAYED = ("multi_input", "protocol_error_job")
TOOLS = (*WORKFLOWS, *PLAYED, "greet")


def _calling(tool: str, **arguments: Json) -> JsonObject:
    return {"id": tool, "title": tool, "call": {"server": "up", "tool": tool, "arguments": arguments, "saveAs": "got"}}


def documents() -> list[JsonObject]:
    """The workflows, as files have them."""
    steps: dict[str, list[JsonObject]] = {
        "slow_compute": [_calling("sleep", seconds="{{seconds}}", steps=1)],
        "failing_job": [_calling("fail", message="This job always fails.")],
        "confirm_delete": [_calling("say", text="looked"), {**_calling("echo"), "requireConfirmation": True}],
        "test_tool_with_task": [_calling("say", text="Hello, {{name}}!")],
    }
    taken = {
        "slow_compute": {"seconds": {"type": "number"}, "label": WORD},
        "confirm_delete": {"filename": WORD},
        "test_tool_with_task": {"name": WORD},
    }
    return [
        {
            "id": name.replace("_", "-"),
            "name": name,
            "description": f"The fixture {name}.",
            "version": "1.0.0",
            "inputSchema": {"type": "object", "properties": taken.get(name, {})},
            "steps": steps[name],
        }
        for name in WORKFLOWS
    ]


class Played:
    """Tasks without runs."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._questions: dict[str, JsonObject] = {}

    def start(self, name: str) -> JsonObject:
        task = f"played-{name}-{next(self._numbers)}"
        consent = ask("Go on?", form(confirm={"type": "boolean"}))
        self._questions[task] = {"user_name": NAME, "consent": consent} if name == "multi_input" else {}
        return {"resultType": "task", **self._about(task, "working")}

    def has(self, task: Any) -> bool:
        return task in self._questions

    def get(self, task: str) -> JsonObject:
        if "protocol_error" in task:
            return {**self._about(task, "failed"), "error": {"code": -32603, "message": "Internal error"}}
        if self._questions[task]:
            return {**self._about(task, "input_required"), "inputRequests": self._questions[task]}
        return {**self._about(task, "completed"), "result": {"content": [text("Both were answered.")]}}

    def update(self, task: str, responses: JsonObject) -> JsonObject:
        self._questions[task] = {
            key: question for key, question in self._questions[task].items() if key not in responses
        }
        return {}

    @staticmethod
    def _about(task: str, status: str) -> JsonObject:
        now = dt.datetime.now(dt.UTC).isoformat()
        moments = {"createdAt": now, "lastUpdatedAt": now}
        return {"taskId": task, "status": status, **moments, "ttlMs": None, "pollIntervalMs": 100}
