"""A fault of the server: the client learns that there was one, the log has its traceback, and it is counted."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.web import WebServer, modern, routing

FAULTY = """
import sys
from workflowlookup.cli.main import main
from workflowlookup.console.request import Visit
from workflowlookup.library.catalog import Catalog
from workflowlookup.transport.http.endpoint import Endpoint

async def fail(*_):
    raise RuntimeError("a fault of the endpoint")

def fail_at_once(*_, **__):
    raise RuntimeError("a fault behind")

Endpoint._delete = fail
Visit.page = fail_at_once
Catalog.get = fail_at_once
sys.exit(main(["serve", *sys.argv[1:]]))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    server = WebServer(tmp_path, program=("-c", FAULTY))
    yield server
    server.stop()


def failures(server: WebServer) -> set[str]:
    lines = httpx2.get(f"{server.base}/metrics").text.splitlines()
    return {line.partition("{")[2] for line in lines if line.startswith("workflowlookup_failures_total")}


def test_every_internal_error_is_logged_with_its_traceback_and_counted(server: WebServer) -> None:
    call = modern("tools/call", {"name": "workflow_get", "arguments": {"id": "code-review"}})
    before = failures(server)

    answers = [
        httpx2.delete(server.url),
        httpx2.get(f"{server.base}/library"),
        httpx2.post(server.url, json=call, headers={"accept": "*/*", **routing(call)}),
    ]

    assert before == {'where="mcp"} 0', 'where="http"} 0'}
    assert [answer.status_code for answer in answers] == [500, 500, 200]
    assert answers[2].json()["error"]["code"] == -32603
    assert failures(server) == {'where="mcp"} 1', 'where="http"} 2'}
    server.stop()
    assert server.log().count("Traceback (most recent call last)") == 3
    assert server.log().count("RuntimeError: a fault of the endpoint") == 1
    assert "fault of the endpoint" not in answers[0].text


def test_a_form_whose_sender_disconnects_is_no_internal_error(tmp_path: Path) -> None:
    server = WebServer(tmp_path)
    try:
        host, port = server.base.removeprefix("http://").split(":")
        head = (
            f"POST /login HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {server.base}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ntoken="
        )
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(head.encode())
            time.sleep(0.5)  # for the server to wait for the rest
        time.sleep(0.5)
        assert httpx2.get(f"{server.base}/healthz").status_code == 200
    finally:
        server.stop()

    assert "Traceback" not in server.log()
