"""Servers that a whole module shares, one for each road, and a library that a test can add to."""

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec.roads import ROADS, SPEC_VERSION, Ask, Publish
from spec.stage import Stage, staged
from support.client import Server
from support.json_values import Json, JsonObject
from support.make import document, write

_numbers = itertools.count(1)
_QUIET = {"WORKFLOWLOOKUP_LOG_LEVEL": "error"}
"""Nobody reads what a shared server logs, and a pipe holds only so much."""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the module's servers read."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="module")
def server(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server at the spec's own version, for tests that leave it as it was."""
    server = Server(tmp_path_factory.mktemp("home"), directory=shelf, environment=_QUIET)
    server.initialize(SPEC_VERSION)
    yield server
    server.stop()


@pytest.fixture(scope="module", params=ROADS)
def ask(request: pytest.FixtureRequest, shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The same question on each of the three roads."""
    server = Server(tmp_path_factory.mktemp("home"), directory=shelf, environment=_QUIET)
    yield Ask(request.param, server)
    server.stop()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Servers and other systems with which they work."""
    with staged(tmp_path / "home") as stage:
        yield stage


@pytest.fixture
def publish(shelf: Path) -> Iterator[Publish]:
    """Puts a workflow of these steps and fields on the shelf for one test; its id, a new one unless given."""
    written: list[Path] = []

    def publish_workflow(*steps: JsonObject, **fields: Json) -> str:
        content = document(*steps, **{"identifier": f"workflow-{next(_numbers)}", **fields})
        written.append(write(shelf, content))
        if sys.platform != "linux":
            time.sleep(0.1)  # only the Linux kernel tells at once what has changed
        return str(content["id"])

    yield publish_workflow
    for path in written:
        path.unlink()
