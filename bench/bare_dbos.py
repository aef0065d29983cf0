"""Bare DBOS: durable workflows of three steps, each of which calls a tool of an MCP server through the official client.

    python bare_dbos.py URL COUNT CONCURRENCY

What somebody would write who needs durable calls and nothing else that we have. Prints how many it made a second.
"""

import asyncio
import sys
import time
from pathlib import Path

from dbos import DBOS
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

_UPSTREAM = StdioServerParameters(command=sys.executable, args=[str(Path(__file__).with_name("upstream.py")), "mcp"])
_clients: list[Client] = []


@DBOS.step()
async def call() -> object:
    result = await _clients[0].call_tool("echo", {"said": "go"})
    return result.structured_content


@DBOS.workflow()
async def three_calls() -> None:
    for _ in range(3):
        await call()


async def measure(url: str, count: int, concurrency: int) -> float:
    async with Client(stdio_client(_UPSTREAM)) as client:
        _clients.append(client)
        DBOS(config={"name": "bare", "system_database_url": url, "log_level": "ERROR"})
        DBOS.launch()
        await (await DBOS.start_workflow_async(three_calls)).get_result()
        limit = asyncio.Semaphore(concurrency)

        async def run() -> None:
            async with limit:
                await (await DBOS.start_workflow_async(three_calls)).get_result()

        began = time.perf_counter()
        await asyncio.gather(*(run() for _ in range(count)))
        pace = count / (time.perf_counter() - began)
        await asyncio.to_thread(DBOS.destroy)
        return pace


if __name__ == "__main__":
    print(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
