"""An MCP server for tests, with the tools of `mcp_tools.py`; every call is in seen.jsonl with tool, arguments, and key.

    python mcp_server.py DIRECTORY              standard input and output, by hand: it is there ten times as fast
    python mcp_server.py DIRECTORY --sdk        the same on the official SDK
    python mcp_server.py DIRECTORY --http PORT  http://127.0.0.1:PORT/mcp, on the official SDK

`state.py` says how a test controls it and sees what it saw.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from upstream.mcp_tools import Tools
from upstream.state import UpstreamState

ABOUT = {"name": "upstream", "version": "1"}
CAPABILITIES = {"tools": {"listChanged": False}}
LASTING = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MAX_LINE = 64 * 1024 * 1024


class Wire:
    """One connection over standard input and output, in either era."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._calls: dict[Any, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        reader = asyncio.StreamReader(limit=MAX_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            self._take(json.loads(line))
        for call in self._calls.values():
            call.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)

    def _take(self, message: dict[str, Any]) -> None:
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                version = params["protocolVersion"]
                self._reply(number, {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": ABOUT})
            case "server/discover":
                result = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "serverInfo": ABOUT}
                self._reply(number, {**LASTING, **result})
            case "ping":
                self._reply(number, {})
            case "tools/list":
                self._reply(number, {**LASTING, "tools": self._tools.list()})
            case "tools/call":
                call = asyncio.ensure_future(self._call(number, params))
                self._calls[number] = call
                call.add_done_callback(lambda _: self._calls.pop(number, None))
            case "notifications/cancelled":
                if begun := self._calls.get(params.get("requestId")):
                    begun.cancel()
            case _ if number is not None:
                self._say(id=number, error={"code": -32601, "message": "no such method"})

    async def _call(self, number: Any, params: dict[str, Any]) -> None:
        meta = params.get("_meta") or {}
        token = meta.get("progressToken")

        async def report(done: float, total: float, message: str) -> None:
            if token is not None:
                params = {"progressToken": token, "progress": done, "total": total, "message": message}
                self._say(method="notifications/progress", params=params)

        try:
            result = await self._tools.call(params["name"], params.get("arguments") or {}, meta, report)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is told
            self._say(id=number, error={"code": -32603, "message": str(problem)})
        else:
            self._reply(number, {"resultType": "complete", **result})

    def _reply(self, number: Any, result: dict[str, Any]) -> None:
        self._say(id=number, result=result)

    def _say(self, **fields: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **fields}), flush=True)


def sdk_server(tools: Tools) -> Any:
    import mcp_types as types
    from mcp.server import Server

    async def offer(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": tools.list()})

    async def call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        result = await tools.call(
            params.name, params.arguments or {}, dict(params.meta or {}), ctx.session.report_progress
        )
        return types.CallToolResult.model_validate(result)

    return Server(ABOUT["name"], version=ABOUT["version"], on_list_tools=offer, on_call_tool=call)


async def serve_with_sdk(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    state = UpstreamState(Path(sys.argv[1]))
    tools = Tools(state)
    state.see("began", pid=os.getpid())
    if "--http" in sys.argv:
        import uvicorn

        port = int(sys.argv[sys.argv.index("--http") + 1])
        uvicorn.run(sdk_server(tools).streamable_http_app(), host="127.0.0.1", port=port, log_level="error")
    elif "--sdk" in sys.argv:
        asyncio.run(serve_with_sdk(sdk_server(tools)))
    else:
        asyncio.run(Wire(tools).serve())


if __name__ == "__main__":
    main()
