"""Fixtures: a library on disk, and the real server over pipes. What waits most is begun first."""

import contextlib
import gc
import logging
import os
import signal
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.client import Server, Start
from support.postgres import Postgres
from support.web import Serve, WebServer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: so would be all that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected, which makes no garbage

LONGEST = (
    "execution/test_killed_work.py",
    "transport/http/test_slow_calls.py",
    "transport/http/test_http.py",
    "console/test_browser.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest modules first, or one worker would be left alone with them; the others mixed, for some wait while
    others compute.
    """
    root = Path(__file__).parent
    rank = {root / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (rank.get(item.path, len(rank)), zlib.crc32(bytes(item.path.relative_to(root)))))


def pytest_collection_finish() -> None:
    """What was collected lives to the end: the garbage collector need not look at it again and again."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: the tests wait for processes for half of their time."""
    return 2 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@pytest.fixture(autouse=True)
def restored_logger() -> Iterator[None]:
    """What a test that runs the program in this process has done to its logger is undone."""
    logger = logging.getLogger("workflowlookup")
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers[:]
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers[:] = propagate, handlers


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the real process in an empty directory; ends it after the test."""
    servers: list[Server] = []

    def start_server(
        *,
        directory: Path | None = None,
        version: str | None = "2025-11-25",
        program: Sequence[str] = ("-m", "workflowlookup"),
        **environment: str,
    ) -> Server:
        """`directory` holds the workflows, alone; without it the bundled ones are. `version` None: no handshake."""
        server = Server(tmp_path, directory=directory, environment=environment, program=program)
        servers.append(server)
        if version:
            server.initialize(version)
        return server

    yield start_server
    for server in servers:
        server.stop()


@pytest.fixture
def serve_http(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers over HTTP; ends them after the test."""
    with contextlib.ExitStack() as stack:

        def start_server(*flags: str, **options: Any) -> WebServer:
            server = WebServer(tmp_path, *flags, **options)
            stack.callback(server.stop)
            return server

        yield start_server


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """An empty directory for workflow documents."""
    directory = tmp_path / "library"
    directory.mkdir()
    return directory


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL, for as long as the tests take."""
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The URL of a new, empty database."""
    return postgres.create_database()


@pytest.fixture(params=["sqlite", "postgres"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL or path of a journal, of each kind: a value of the setting `journal`."""
    if request.param == "sqlite":
        return str(tmp_path / "data" / "runs.sqlite")
    return str(request.getfixturevalue("database"))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that `time.monotonic` returns; a test changes it."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now
