"""The upstreams behave as the tests tell them: what other tests stand on."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import TextContent

from support.json_values import Json, JsonObject
from support.narrowing import instance_of
from upstream.upstreams import ONE, HttpUpstream, McpUpstream


def get(url: str, body: JsonObject | None = None) -> Json:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=10) as reply:
        return json.loads(reply.read())


def test_the_http_service_lists_starts_and_tells(tmp_path: Path) -> None:
    with HttpUpstream(tmp_path) as service:
        service.control(runs={"deploy": {"seconds": 30, "progress": True, "states": ["QUEUED", "RUNNING"]}})
        assert get(f"{service.url}/workflows") == [ONE]
        run_id = get(f"{service.url}/workflows/deploy/runs", {"input": {"service": "a"}})["runId"]
        state = get(f"{service.url}/workflows/deploy/runs/{run_id}")
        assert (state["status"], state["progress"]["total"]) == ("QUEUED", 10)
        service.stop()
        service.start()
        assert get(f"{service.url}/workflows/deploy/runs/{run_id}/cancel", {}) == {"cancelled": True}
        assert get(f"{service.url}/workflows/deploy/runs/{run_id}")["status"] == "CANCELLED"
        assert [entry["what"] for entry in service.seen()].count("began") == 2


@pytest.mark.parametrize("options", [{}, {"sdk": True}, {"http": True}], ids=["stdio", "stdio-sdk", "http"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_mcp_server_echoes_and_has_workflows(tmp_path: Path, options: JsonObject, mode: str) -> None:
    async def talk(upstream: McpUpstream) -> tuple[Json, Json]:
        program, *words = upstream.command()
        target = upstream.url if upstream.http else StdioServerParameters(command=program, args=words)
        async with Client(target, mode=mode) as client:
            echoed = await client.call_tool("echo", {"a": 1})
            listed = await client.call_tool("workflows-list-tool", {})
            return echoed.structured_content, json.loads(instance_of(TextContent, listed.content[0]).text)

    with McpUpstream(tmp_path, **options) as upstream:
        assert asyncio.run(talk(upstream)) == ({"a": 1}, [ONE])
        assert [entry["tool"] for entry in upstream.seen("call")] == ["echo", "workflows-list-tool"]
