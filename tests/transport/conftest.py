"""Fixtures: servers and clients over HTTP."""

from collections.abc import Iterator

import pytest

from support.web import Connect, WebClient, WebServer


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
