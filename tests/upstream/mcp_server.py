"""An MCP server on the official SDK: tools for steps, and workflows behind four tools. For tests, over stdio or HTTP.

    python mcp_server.py DIRECTORY              standard input and output
    python mcp_server.py DIRECTORY --http PORT  http://127.0.0.1:PORT/mcp

`world.py` says how a test controls it and sees what it saw. Every call is in seen.jsonl with tool, arguments, and key.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from world import World

Context = ServerRequestContext[Any]
KEY = "workflowlookup/idempotencyKey"


def answer(value: Any, *, text: str | None = None) -> types.CallToolResult:
    import json

    structured = value if isinstance(value, dict) else None
    shown = text if text is not None else json.dumps(value)
    return types.CallToolResult(content=[types.TextContent(type="text", text=shown)], structured_content=structured)


def failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


class Tools:
    """What can be called."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tools: dict[str, Callable[[Context, dict[str, Any], str], Awaitable[types.CallToolResult]]] = {
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

    def offered(self) -> dict[str, Any]:
        said = self.world.said()
        direct = {name: self.direct(name) for name in said.get("direct", ())}
        return {name: tool for name, tool in (self.tools | direct).items() if name not in said.get("without", ())}

    async def list(self, ctx: Context, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "additionalProperties": True}
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in self.offered()])

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        meta = dict(params.meta or {})
        key = meta.get(KEY, "")
        self.world.see(
            "call", tool=params.name, arguments=arguments, key=key, meta={k: str(v) for k, v in meta.items()}
        )
        await asyncio.sleep(self.world.said().get("delay", 0))
        tool = self.offered().get(params.name)
        if tool is None:
            return failure(f"Unknown tool: {params.name}")
        try:
            result: types.CallToolResult = await tool(ctx, arguments, key)
        except BaseException as end:
            if not isinstance(end, Exception):
                self.world.see("cancelled", tool=params.name, arguments=arguments, key=key)
            raise
        self.world.see("done", tool=params.name, key=key)
        return result

    # ── tools for steps ──

    async def echo(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """The arguments, as structured content and as JSON."""
        return answer(arguments)

    async def say(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """`text`, without structured content."""
        return answer(None, text=str(arguments.get("text", "")))

    async def nothing(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """No content at all."""
        return types.CallToolResult(content=[])

    async def sleep(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """Takes `seconds`, in `steps` steps, each with progress; can be cancelled."""
        seconds, steps = float(arguments.get("seconds", 1)), int(arguments.get("steps", 10))
        for step in range(steps):
            await ctx.session.report_progress(step, steps, f"part {step + 1} of {steps}")
            await asyncio.sleep(seconds / steps)
        await ctx.session.report_progress(steps, steps, "done")
        return answer({"slept": seconds})

    async def stubborn(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """Takes `seconds` and hears nothing meanwhile: only the end of the process ends it."""
        time.sleep(float(arguments.get("seconds", 30)))  # noqa: ASYNC251 - on purpose
        return answer({"slept": arguments.get("seconds")})

    async def fail(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """`isError` with `message`; with `how` "raise" an error of the protocol."""
        if arguments.get("how") == "raise":
            raise RuntimeError(arguments.get("message", "raised"))
        return failure(str(arguments.get("message", "it does not work")))

    async def flaky(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """Fails the first `times` times, counted by `name`."""
        counter = self.world.directory / f"flaky-{arguments.get('name', 'x')}"
        count = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(count + 1))
        if count < int(arguments.get("times", 1)):
            return failure(f"not yet ({count + 1})")
        return answer({"attempts": count + 1})

    async def crash(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """Ends the process; with `times`, only so often (counted in a file), and is fine after that."""
        counter = self.world.directory / "crashes"
        count = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(count + 1))
        if count < int(arguments.get("times", 1)):
            os._exit(9)
        return answer({"crashes": count})

    async def append(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """Appends `line` to effects.txt after `seconds`: an effect that can be counted."""
        await asyncio.sleep(float(arguments.get("seconds", 0)))
        with (self.world.directory / "effects.txt").open("a") as file:
            file.write(f"{arguments.get('line', key)}\n")
        return answer({"line": arguments.get("line", key)})

    async def environment(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """The environment variable `name`."""
        return answer({"value": os.environ.get(str(arguments.get("name", "")))})

    # ── workflows ──

    def direct(self, workflow: str) -> Any:
        """A workflow that is a tool of its own, which answers when it is done."""

        async def run(ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
            run_id = self.world.begin(workflow, arguments, key)
            over = ("COMPLETED", "FAILED", "CANCELLED")
            while (state := self.world.run(run_id)) and state["state"] not in over:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert state is not None
            return failure(state["error"]) if "error" in state else answer(state["output"])

        return run

    async def behave(self, what: str) -> types.CallToolResult | None:
        match self.world.said().get(what, "ok"):
            case "fail":
                return failure(f"{what} is broken today")
            case "hang":
                await asyncio.sleep(3600)
            case "garbage":
                return answer(None, text="<html>no workflows here</html>")
        return None

    async def list_workflows(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        return await self.behave("list") or answer(self.world.workflows())

    async def start_workflow(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        if bad := await self.behave("start"):
            return bad
        run_id = self.world.begin(str(arguments.get("workflowId")), arguments.get("input"), key)
        if self.world.said().get("start") == "lost":
            return failure("the answer was lost")
        return answer({"runId": run_id})

    async def workflow_status(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        if bad := await self.behave("status"):
            return bad
        run = self.world.run(str(arguments.get("runId")))
        if run is None:
            return failure("no such run")
        shown = {"runId": run["id"], "status": run["state"].lower(), "output": run["output"]}
        return answer(shown | {name: run[name] for name in ("error", "progress") if name in run})

    async def cancel_workflow(self, ctx: Context, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        if bad := await self.behave("cancel"):
            return bad
        if self.world.said().get("cancel") == "ignore":
            return answer({"cancelled": True})
        stopped = self.world.cancel(str(arguments.get("runId")))
        self.world.see("stopped" if stopped else "not-stopped", run=arguments.get("runId"))
        return answer({"cancelled": stopped})


def main() -> None:
    world = World(Path(sys.argv[1]))
    tools = Tools(world)
    server: Server[Any] = Server("upstream", version="1", on_list_tools=tools.list, on_call_tool=tools.call)
    world.see("began", pid=os.getpid())
    if "--http" in sys.argv:
        import uvicorn

        port = int(sys.argv[sys.argv.index("--http") + 1])
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error")
        return

    async def serve() -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(serve())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
