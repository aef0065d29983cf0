"""Fixtures: servers and clients over HTTP."""

import pytest

from support.web import WebClient, WebServer


@pytest.fixture
def serve(tmp_path):
    """Starts servers; ends them after the test."""
    started = []

    def start(*flags, **options):
        server = WebServer(tmp_path, *flags, **options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def connect():
    clients = []

    def make(server, **headers):
        client = WebClient(server.url, **headers)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()
