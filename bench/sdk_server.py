"""The official SDK's lowlevel server with the same tools and the same answers as ours, at its fastest.

`python sdk_server.py ANSWERS [--http HOST:PORT]`: ANSWERS is a JSON object from tool name to the results recorded from
our server, which are handed out in turn. They are built once, no work stands behind a call, and the telemetry
middleware is off.
"""

import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Context = ServerRequestContext[dict[str, Any]]


@cache
def answers() -> dict[str, Iterator[types.CallToolResult]]:
    """The answers, read at the first call: a start does not pay for them."""
    recorded = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return {name: cycle([answer(result) for result in results]) for name, results in recorded.items()}


def answer(result: dict[str, Any]) -> types.CallToolResult:
    """A recorded result in the SDK's own types."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=part["text"]) for part in result["content"]],
        structured_content=result["structuredContent"],
    )


async def list_tools(_context: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Every tool, with the plainest schema."""
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in answers()]
    return types.ListToolsResult(tools=tools)


async def call_tool(_context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    """The next recorded answer of the tool."""
    return next(answers()[params.name])


async def serve(server: Server[dict[str, Any]]) -> None:
    """Serve until the input ends."""
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def main() -> None:
    """Serve on standard input and output, or at an address."""
    server: Server[dict[str, Any]] = Server("sdk", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.clear()
    if "--http" not in sys.argv:
        anyio.run(serve, server)
        return
    import uvicorn  # noqa: PLC0415 - not for pipes

    host, _, port = sys.argv[-1].partition(":")
    app = server.streamable_http_app()
    uvicorn.run(app, host=host, port=int(port), log_level="error", http="h11")  # what `pip install mcp` brings


if __name__ == "__main__":
    main()
