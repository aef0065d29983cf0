"""What every kind of provider promises, against real upstreams."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.json_values import Json
from support.narrowing import not_none
from upstream.upstreams import ONE, HttpUpstream, McpUpstream
from workflowlookup.errors import NotSupported
from workflowlookup.providers.config import ProviderConfig, ServerConfig
from workflowlookup.providers.definition import Definition, read_definitions
from workflowlookup.providers.provider import Provider, ProviderError, RemoteStatus, make_provider
from workflowlookup.providers.upstream import Upstreams

KINDS = ["mcp-stdio", "mcp-http", "http-plain", "http-simplified"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    result: str = request.param
    return result


@pytest.fixture
def upstream(kind: str, tmp_path: Path) -> Iterator[McpUpstream | HttpUpstream]:
    made: McpUpstream | HttpUpstream
    if kind.startswith("mcp"):
        made = McpUpstream(tmp_path / "up", http=kind == "mcp-http")
    else:
        made = HttpUpstream(tmp_path / "up", name="up")
    with made:
        yield made


@contextlib.asynccontextmanager
async def opened(kind: str, upstream: McpUpstream | HttpUpstream, **options: Any) -> AsyncIterator[Provider]:
    servers = {}
    if isinstance(upstream, McpUpstream):
        server = upstream.server()
        servers["up"] = ServerConfig(
            name="up", command=server.get("command", ""), args=tuple(server.get("args", ())), url=server.get("url", "")
        )
        config = ProviderConfig(name="up", kind="mcp", options={"server": "up", **options})
    else:
        preset = {"base_url": upstream.url, "preset": kind.removeprefix("http-")}
        config = ProviderConfig(name="up", kind="http", options={**preset, **options})
    upstreams = Upstreams(servers)
    provider = make_provider(config, upstreams)
    try:
        yield provider
    finally:
        await provider.aclose()
        await upstreams.aclose()


async def finish(provider: Provider, workflow: str, remote_id: str) -> RemoteStatus:
    async with asyncio.timeout(20):
        while (status := await provider.status(workflow, remote_id)).state == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return status


def test_it_lists_starts_and_tells_the_end(kind: str, upstream: McpUpstream | HttpUpstream) -> None:
    async def go() -> tuple[list[Definition], list[str], RemoteStatus]:
        async with opened(kind, upstream) as provider:
            definitions, problems = read_definitions(await provider.list(), "up")
            run = await provider.start("deploy", {"service": "a"}, "key-1")
            return definitions, problems, await finish(provider, "deploy", run.remote_id)

    definitions, problems, status = asyncio.run(go())

    assert ([d.id for d in definitions], problems) == (["deploy"], [])
    assert (definitions[0].name, definitions[0].input_schema) == (ONE["name"], ONE["inputSchema"])
    assert (status.state, status.output) == ("completed", {"echo": {"service": "a"}})
    assert len(upstream.runs()) == 1


def test_states_that_nobody_knows_mean_that_it_goes_on_and_null_is_an_output(
    kind: str, upstream: McpUpstream | HttpUpstream
) -> None:
    upstream.control(runs={"*": {"seconds": 1.5, "states": ["QUEUED", "WARMING-UP", "paused"], "output": None}})

    async def go() -> tuple[RemoteStatus, RemoteStatus]:
        async with opened(kind, upstream) as provider:
            run = await provider.start("deploy", {}, "")
            first = await provider.status("deploy", run.remote_id)
            return first, await finish(provider, "deploy", run.remote_id)

    first, last = asyncio.run(go())

    assert first.state == "running"
    assert first.word.lower() in ("queued", "warming-up", "paused")
    assert (last.state, last.output) == ("completed", None)


def test_a_failure_comes_with_what_the_provider_says(kind: str, upstream: McpUpstream | HttpUpstream) -> None:
    upstream.control(runs={"*": {"seconds": 0, "outcome": "failed", "error": "no more disk"}})

    async def go() -> RemoteStatus:
        async with opened(kind, upstream) as provider:
            run = await provider.start("deploy", {}, "")
            return await finish(provider, "deploy", run.remote_id)

    status = asyncio.run(go())

    assert (status.state, not_none(status.error).message) == ("failed", "no more disk")


def test_a_run_is_cancelled_or_it_is_said_that_it_cannot_be(kind: str, upstream: McpUpstream | HttpUpstream) -> None:
    upstream.control(runs={"*": {"seconds": 60}})

    async def go() -> tuple[str | None, str]:
        async with opened(kind, upstream) as provider:
            run = await provider.start("deploy", {}, "")
            outcome = await provider.cancel("deploy", run.remote_id)
            return outcome, (await provider.status("deploy", run.remote_id)).state

    if kind == "http-simplified":
        with pytest.raises(NotSupported, match="has no endpoint for this: cancel"):
            asyncio.run(go())
        return
    assert asyncio.run(go()) == ("cancelled", "cancelled")


@pytest.mark.parametrize("how", ["fail", "garbage"])
def test_a_list_that_cannot_be_used_is_an_error_with_its_cause(
    kind: str, upstream: McpUpstream | HttpUpstream, how: str
) -> None:
    upstream.control(list=how)

    async def go() -> tuple[list[Definition], list[str]]:
        async with opened(kind, upstream) as provider:
            return read_definitions(await provider.list(), "up")

    with pytest.raises((ProviderError, ValueError)) as problem:
        asyncio.run(go())
    assert {"fail": "is broken today", "garbage": "answer"}[how] in str(problem.value)


def test_one_that_hangs_is_given_up(kind: str, upstream: McpUpstream | HttpUpstream) -> None:
    upstream.control(list="hang", status="hang")

    async def go() -> None:
        async with opened(kind, upstream, timeout=3) as provider:
            with pytest.raises(ProviderError, match="did not answer within 3 seconds"):
                await provider.list()

    asyncio.run(go())


def test_a_start_is_sent_once_and_an_unclear_answer_is_told_as_such(
    kind: str, upstream: McpUpstream | HttpUpstream
) -> None:
    upstream.control(start="fail")

    async def go() -> bool:
        async with opened(kind, upstream) as provider:
            await provider.list()
            with pytest.raises(ProviderError, match="start is broken today") as problem:
                await provider.start("deploy", {}, "k")
            return problem.value.maybe_started

    maybe = asyncio.run(go())

    sent = [seen for seen in upstream.seen() if seen["what"] == "start" or seen.get("tool") == "workflows-start-tool"]
    assert len([seen for seen in sent if seen["what"] != "done"]) == 1
    assert maybe is kind.startswith("http")  # a tool that says no has said so; a 500 says nothing


def test_one_that_is_down_is_told_and_comes_back(kind: str, upstream: McpUpstream | HttpUpstream) -> None:
    if kind == "mcp-stdio":
        pytest.skip("its client starts it")
    upstream.stop()

    async def go() -> tuple[str, Json]:
        async with opened(kind, upstream) as provider:
            with pytest.raises(ProviderError) as problem:
                await provider.list()
            upstream.start()
            return str(problem.value), await provider.list()

    outcome, raw = asyncio.run(go())

    assert "up'" in outcome
    assert [definition.id for definition in read_definitions(raw, "up")[0]] == ["deploy"]


def test_a_start_that_never_reached_a_system_that_is_down_was_not_begun_there(
    kind: str, upstream: McpUpstream | HttpUpstream
) -> None:
    if kind == "mcp-stdio":
        pytest.skip("its client starts it")
    upstream.stop()

    async def go() -> bool:
        async with opened(kind, upstream) as provider:
            with pytest.raises(ProviderError) as problem:
                await provider.start("deploy", {}, "k")
            return problem.value.maybe_started

    assert asyncio.run(go()) is False
