"""The tools of the MCP upstream: some for steps, and workflows behind four of them. Results are as JSON has them."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from support.json_values import Json, JsonObject
from upstream.state import UpstreamState

Result: TypeAlias = JsonObject
Report: TypeAlias = Callable[[float, float, str], Awaitable[None]]
Tool: TypeAlias = Callable[[Report, JsonObject, str], Awaitable[Result]]
KEY = "workflowlookup/idempotencyKey"


def answer(value: Json, *, text: str | None = None) -> Result:
    shown = text if text is not None else json.dumps(value)
    structured = {"structuredContent": value} if isinstance(value, dict) else {}
    return {"content": [{"type": "text", "text": shown}], **structured}


def failure(text: str) -> Result:
    return {"content": [{"type": "text", "text": text}], "isError": True}


class Tools:
    """What can be called."""

    def __init__(self, state: UpstreamState) -> None:
        self.state = state
        self.tools: dict[str, Tool] = {
            "echo": self.echo,
            "say": self.say,
            "nothing": self.nothing,
            "sleep": self.sleep,
            "stubborn": self.stubborn,
            "fail": self.fail,
            "flaky": self.flaky,
            "crash": self.crash,
            "append": self.append,
            "environment": self.environment,
            "workflows-list-tool": self.list_workflows,
            "workflows-start-tool": self.start_workflow,
            "workflows-status-tool": self.workflow_status,
            "workflows-cancel-tool": self.cancel_workflow,
        }

    def offered(self) -> JsonObject:
        rules = self.state.rules()
        direct = {name: self.direct(name) for name in rules.get("direct", ())}
        return {name: tool for name, tool in (self.tools | direct).items() if name not in rules.get("without", ())}

    def list(self) -> list[JsonObject]:
        schema = {"type": "object", "additionalProperties": True}
        return [{"name": name, "inputSchema": schema} for name in self.offered()]

    async def call(self, name: str, arguments: JsonObject, meta: JsonObject, report: Report) -> Result:
        key = meta.get(KEY, "")
        self.state.see("call", tool=name, arguments=arguments, key=key, meta={k: str(v) for k, v in meta.items()})
        await asyncio.sleep(self.state.rules().get("delay", 0))
        tool = self.offered().get(name)
        if tool is None:
            return failure(f"Unknown tool: {name}")
        try:
            result: Result = await tool(report, arguments, key)
        except BaseException as end:
            if not isinstance(end, Exception):
                self.state.see("cancelled", tool=name, arguments=arguments, key=key)
            raise
        self.state.see("done", tool=name, key=key)
        return result

    # ── tools for steps ──

    async def echo(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """The arguments, as structured content and as JSON."""
        return answer(arguments)

    async def say(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """`text`, without structured content."""
        return answer(None, text=str(arguments.get("text", "")))

    async def nothing(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """No content at all."""
        return {"content": []}

    async def sleep(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """Takes `seconds`, in `steps` steps, each with progress; can be cancelled."""
        seconds, steps = float(arguments.get("seconds", 1)), int(arguments.get("steps", 10))
        for step in range(steps):
            await report(step, steps, f"part {step + 1} of {steps}")
            await asyncio.sleep(seconds / steps)
        await report(steps, steps, "done")
        return answer({"slept": seconds})

    async def stubborn(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """Takes `seconds` and hears nothing meanwhile: only the end of the process ends it."""
        time.sleep(float(arguments.get("seconds", 30)))  # noqa: ASYNC251 - on purpose
        return answer({"slept": arguments.get("seconds")})

    async def fail(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """`isError` with `message`; with `how` "raise" an error of the protocol."""
        if arguments.get("how") == "raise":
            raise RuntimeError(arguments.get("message", "raised"))
        return failure(str(arguments.get("message", "it does not work")))

    async def flaky(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """Fails the first `times` times, counted by `name`."""
        counter = self.state.directory / f"flaky-{arguments.get('name', 'x')}"
        count = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(count + 1))
        if count < int(arguments.get("times", 1)):
            return failure(f"not yet ({count + 1})")
        return answer({"attempts": count + 1})

    async def crash(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """Ends the process; with `times`, only so often (counted in a file), and is fine after that."""
        counter = self.state.directory / "crashes"
        count = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(count + 1))
        if count < int(arguments.get("times", 1)):
            os._exit(9)
        return answer({"crashes": count})

    async def append(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """Appends `line` to effects.txt after `seconds`: an effect that can be counted."""
        await asyncio.sleep(float(arguments.get("seconds", 0)))
        with (self.state.directory / "effects.txt").open("a") as file:
            file.write(f"{arguments.get('line', key)}\n")
        return answer({"line": arguments.get("line", key)})

    async def environment(self, report: Report, arguments: JsonObject, key: str) -> Result:
        """The environment variable `name`."""
        return answer({"value": os.environ.get(str(arguments.get("name", "")))})

    # ── workflows ──

    def direct(self, workflow: str) -> Json:
        """A workflow that is a tool of its own, which answers when it is done."""

        async def run(report: Report, arguments: JsonObject, key: str) -> Result:
            run_id = self.state.begin(workflow, arguments, key)
            over = ("COMPLETED", "FAILED", "CANCELLED")
            while (state := self.state.run(run_id)) and state["state"] not in over:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert state is not None
            return failure(state["error"]) if "error" in state else answer(state["output"])

        return run

    async def behave(self, what: str) -> Result | None:
        match self.state.rules().get(what, "ok"):
            case "fail":
                return failure(f"{what} is broken today")
            case "hang":
                await asyncio.sleep(3600)
            case "garbage":
                return answer(None, text="<html>no workflows here</html>")
        return None

    async def list_workflows(self, report: Report, arguments: JsonObject, key: str) -> Result:
        return await self.behave("list") or answer(self.state.workflows())

    async def start_workflow(self, report: Report, arguments: JsonObject, key: str) -> Result:
        if bad := await self.behave("start"):
            return bad
        run_id = self.state.begin(str(arguments.get("workflowId")), arguments.get("input"), key)
        if self.state.rules().get("start") == "lost":
            return failure("the answer was lost")
        match self.state.rules().get("start"):
            case {"answer": value}:
                return answer(value)
            case {"unreadable": value}:
                return {"content": value}
        return answer({"runId": run_id})

    async def workflow_status(self, report: Report, arguments: JsonObject, key: str) -> Result:
        if bad := await self.behave("status"):
            return bad
        run = self.state.run(str(arguments.get("runId")))
        if run is None:
            return failure("no such run")
        shown = {"runId": run["id"], "status": run["state"].lower(), "output": run["output"]}
        return answer(shown | {name: run[name] for name in ("error", "progress") if name in run})

    async def cancel_workflow(self, report: Report, arguments: JsonObject, key: str) -> Result:
        if bad := await self.behave("cancel"):
            return bad
        if self.state.rules().get("cancel") == "ignore":
            return answer({"cancelled": True})
        stopped = self.state.cancel(str(arguments.get("runId")))
        self.state.see("stopped" if stopped else "not-stopped", run=arguments.get("runId"))
        return answer({"cancelled": stopped})
