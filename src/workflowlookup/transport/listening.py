"""A process that serves a web site until it is told to stop, and then ends what it is at in good order."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from workflowlookup.transport.http import Door

log = logging.getLogger(__name__)

HEAD_SECONDS: Final = 15.0
"""How long a client may take to send the headers of a request."""
KEEP_ALIVE_SECONDS: Final = 75
LAST_SECONDS: Final = 1
"""How long answers may take that are being written when the server ends."""
CONNECTIONS_A_SESSION: Final = 4
BACKLOG: Final = 1024
"""How many clients may wait to be let in."""


class Impatient(H11Protocol):
    """HTTP/1.1, for clients that say what they want within reasonable time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()

    def _expect_head(self) -> None:
        if self.conn.their_state is not h11.IDLE and self._late is not None:
            self._late.cancel()
            self._late = None
        elif self.conn.their_state is h11.IDLE and self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)


class _Listener(uvicorn.Server):
    """Signals are ours: the first ends it in good order, the second at once."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket that clients can reach from now on. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise OSError(problem.errno, f"cannot listen at {host}:{port}: {problem.strerror or problem}") from None
    return listener


def run(  # noqa: PLR0913 - what a server is told when it begins
    site: ASGIApp,
    door: Door,
    listener: socket.socket,
    *,
    max_sessions: int,
    drain_seconds: float,
    reload: Callable[[], None],
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. SIGHUP has the settings read again."""
    config = uvicorn.Config(
        site,
        http=Impatient,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=LAST_SECONDS,
        limit_concurrency=CONNECTIONS_A_SESSION * max_sessions,
    )
    server = _Listener(config)
    asyncio.run(_serve(server, door, listener, drain_seconds, reload))
    return 0 if server.started else 1


async def _serve(
    server: _Listener, door: Door, listener: socket.socket, drain_seconds: float, reload: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    endings: list[asyncio.Task[None]] = []

    async def end() -> None:
        try:
            await door.drain(drain_seconds)
        finally:
            server.should_exit = True

    def stop() -> None:
        if endings:
            server.should_exit = server.force_exit = True
        else:
            endings.append(loop.create_task(end()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    where, port = listener.getsockname()[:2]
    shown = f"[{where}]" if ":" in where else where
    print(f"workflowlookup serves MCP at http://{shown}:{port}/mcp", file=sys.stderr, flush=True)  # noqa: T201 - said to whoever started it
    await server.serve(sockets=[listener])
