"""Clients that do not say what they want within reasonable time are let go; all others are not."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from workflowlookup.transport.http import http1
from workflowlookup.transport.http.connections import ConnectionTable
from workflowlookup.transport.http.http1 import HttpProtocol
from workflowlookup.transport.http.server import listen

HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"


async def site(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once; at `/read`, when it has the whole body."""
    if scope["path"] == "/read":
        while (await receive()).get("more_body"):
            pass
    await PlainTextResponse("here you are")(scope, receive, send)


@pytest.fixture
def refused() -> list[str]:
    """The reasons of refusals."""
    return []


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, refused: list[str]) -> Callable[..., str]:
    """Says something every now and then; how it ends: `let go`, `told why`, or `kept`. Time runs 30 times as fast."""
    monkeypatch.setattr(http1, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(http1, "BODY_SECONDS", 0.8)

    async def held(*parts: bytes, seconds: float = 2.0) -> str:
        listener = listen("127.0.0.1", 0)
        connections = ConnectionTable(10, 10, on_refused=refused.append)

        def protocol(*, server_state: ServerState, **_: object) -> HttpProtocol:
            return HttpProtocol(site, connections, server_state)

        config = uvicorn.Config(
            site,
            http=cast("type[asyncio.Protocol]", protocol),
            ws="none",
            lifespan="off",
            log_config=None,
        )
        server = uvicorn.Server(config)
        monkeypatch.setattr(server, "capture_signals", contextlib.nullcontext)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        ended = asyncio.create_task(reader.read())
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        words = iter(parts)
        while loop.time() < end and not ended.done():
            with contextlib.suppress(ConnectionError):
                writer.write(next(words, b""))
                await writer.drain()
            await asyncio.sleep(0.1)
        outcome = "let go" if ended.done() else "kept"
        writer.close()
        server.should_exit = True
        await serving
        with contextlib.suppress(ConnectionError):
            outcome = "told why" if b" 408 " in await ended else outcome
        return outcome

    return lambda *parts, **options: asyncio.run(held(*parts, **options))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [HEAD[:1], *[b"x"] * 100],
        [HEAD, HEAD[:5], *[b"x"] * 100],
        [HEAD + HEAD[:5]],
        [POST % b"/at-once", *[b"x"] * 100],
    ],
    ids=["nothing", "head", "second-head", "pipelined-head", "body-that-nobody-reads"],
)
def test_a_client_that_does_not_finish_is_disconnected(talk: Callable[..., str], parts: list[bytes]) -> None:
    assert talk(*parts) == "let go"


@pytest.mark.parametrize(
    "said", [[POST % b"/read", *[b"x"] * 100], [HEAD + POST % b"/read"]], ids=["first", "pipelined"]
)
def test_a_client_whose_body_does_not_come_is_told_why(
    talk: Callable[..., str], refused: list[str], said: list[bytes]
) -> None:
    assert talk(*said) == "told why"
    assert refused == ["slow"]


def test_a_client_that_finishes_may_wait_and_send_another_request(talk: Callable[..., str]) -> None:
    whole = POST.replace(b"1000", b"3") % b"/read"

    assert talk(HEAD, *[b""] * 8, whole, b"a", b"bc", *[b""] * 8, HEAD) == "kept"
