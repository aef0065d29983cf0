"""Fixtures: servers and clients over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.web import Connect, Serve, WebClient, WebServer


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers; ends them after the test."""
    started: list[WebServer] = []

    def start(*flags: str, **options: Any) -> WebServer:
        server = WebServer(tmp_path, *flags, **options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[WebClient] = []

    def make(server: WebServer, **headers: str) -> WebClient:
        client = WebClient(server.url, **headers)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()
