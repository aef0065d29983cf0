"""Services that send head and body of a response separately: the body comes when the head is acknowledged."""

import asyncio
import contextlib
import socket
import sys
import threading
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Coroutine
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from workflowlookup.errors import ProviderUnavailable
from workflowlookup.providers.config import ProviderConfig, ServerConfig
from workflowlookup.providers.http import HttpProvider
from workflowlookup.providers.provider import ProviderError
from workflowlookup.providers.upstream import Upstreams

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nobody can ask for it elsewhere")


async def ask_service(url: str) -> None:
    provider = HttpProvider(ProviderConfig(name="far", kind="http", options={"base_url": url}))
    with contextlib.suppress(ProviderError):
        await provider.list()
    await provider.aclose()


async def ask_mcp_server(url: str) -> None:
    upstreams = Upstreams({"far": ServerConfig(name="far", url=url)})
    with contextlib.suppress(ProviderUnavailable):
        await upstreams.tools("far")
    await upstreams.aclose()


@pytest.mark.parametrize("ask", [ask_service, ask_mcp_server])
def test_the_head_of_an_answer_is_acknowledged_before_there_is_a_body(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    acknowledged = threading.Event()
    before_the_body = []

    def set_option(wire: Any, *option: int) -> None:
        if option == (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1):
            acknowledged.set()
        wire._sock.setsockopt(*option)

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "2")
            self.end_headers()
            before_the_body.append(acknowledged.wait(5))
            self.wfile.write(b"{}")

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(TransportSocket, "setsockopt", set_option)
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as service:
        threading.Thread(target=service.serve_forever, args=(0.02,), daemon=True).start()
        asyncio.run(ask(f"http://127.0.0.1:{service.server_port}"))
        service.shutdown()

    assert all(before_the_body)
    assert before_the_body
