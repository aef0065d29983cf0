"""A process that serves a web site until it is told to stop, and then ends what it is at in good order and in time."""

import asyncio
import contextlib
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from workflowlookup.transport.bodies import BODY_SECONDS
from workflowlookup.transport.endpoint import Endpoint

log = logging.getLogger(__name__)

HEAD_SECONDS: Final = 15.0
"""How long a client may take to send the headers of a request."""
WHOLE_SECONDS: Final = BODY_SECONDS + 5.0
"""How long it may take to send the rest; who is to be told that a message came too late is told before."""
KEEP_ALIVE_SECONDS: Final = 75
LAST_SECONDS: Final = 0.3
"""How long answers may take that are being written when the server ends."""
END_SECONDS: Final = 1.0
"""How long the process lives when the time of its calls is over, at most."""
CONNECTIONS_A_SESSION: Final = 4
BACKLOG: Final = 1024
"""How many clients may wait to be let in."""


class _BufferedTransport:
    """A transport that joins writes of one turn of the event loop: the head of a response and its body."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.set_protocol = transport.set_protocol

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)


class Impatient(H11Protocol):
    """HTTP/1.1, for clients that say what they want within reasonable time: whoever reads it, and if nobody does."""

    _expected: object = None
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_BufferedTransport(transport))  # type: ignore[arg-type]  # it has what uvicorn uses
        self._expect(h11.IDLE)

    def handle_events(self) -> None:
        super().handle_events()
        state = self.conn.their_state
        is_kept = state is h11.IDLE and not self.conn.trailing_data[0]  # until it asks again
        if self._late is not None or (state in (h11.IDLE, h11.SEND_BODY) and not is_kept):
            self._expect(None if is_kept else state)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._expect(None)

    def _expect(self, state: object) -> None:
        """Time runs from when something is expected; that a little of it comes does not stop it."""
        if state is self._expected:
            return
        self._expected = state
        if self._late is not None:
            self._late.cancel()
        limits: dict[object, float] = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: WHOLE_SECONDS}
        seconds = limits.get(state)
        self._late = self.loop.call_later(seconds, self.transport.close) if seconds is not None else None


class _Listener(uvicorn.Server):
    """Signals are ours: the first ends it in good order, the second at once."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Patience:
    """How long the end may take. A thread of its own sees to it: the others may be held up by whatever they wait for,
    such as a database that does not answer.
    """

    def __init__(self, drain_seconds: float, forsake: Callable[[], None]) -> None:
        """`forsake` is called right before the process ends in the midst of something."""
        self.drain_seconds = drain_seconds
        self._forsake = forsake
        self._told: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=self._wait, name="workflowlookup-patience", daemon=True).start()

    def hear(self) -> None:
        """Have signals counted from now on; the loop, when it has handlers of its own, is woken as before."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._told.put(number))

    def _wait(self) -> None:
        self._told.get()
        end = time.monotonic() + self.drain_seconds + END_SECONDS
        with contextlib.suppress(queue.Empty):
            self._told.get(timeout=self.drain_seconds + END_SECONDS)
            time.sleep(min(END_SECONDS, max(0.0, end - time.monotonic())))  # told twice: calls are not waited for
        log.warning("the end took too long and was cut short; runs go on with the next server")
        self._forsake()
        os._exit(0)


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
        raise OSError(
            problem.errno,
            f"cannot listen at {host}:{port}: {problem.strerror or problem}. Name another address with --http",
        ) from None
    return listener


def run(  # noqa: PLR0913 - what a server is told when it begins
    site: ASGIApp,
    mcp: Endpoint,
    listener: socket.socket,
    *,
    max_sessions: int,
    drain_seconds: float,
    reload: Callable[[], None],
    forsake: Callable[[], None] = lambda: None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. SIGHUP has the settings read again.

    From the signal on the process has `drain_seconds` and a second, for all that is left to do after this as well. What
    is not done by then is left to the next server; `forsake` is called first.
    """
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
        timeout_graceful_shutdown=LAST_SECONDS,  # type: ignore[arg-type]  # it takes parts of one
        limit_concurrency=CONNECTIONS_A_SESSION * max_sessions,
    )
    server = _Listener(config)
    patience = _Patience(drain_seconds, forsake)
    asyncio.run(_serve(server, mcp, listener, patience, reload))
    patience.hear()
    return 0 if server.started else 1


async def _serve(
    server: _Listener, mcp: Endpoint, listener: socket.socket, patience: _Patience, reload: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    endings: list[asyncio.Task[None]] = []

    async def end() -> None:
        try:
            await mcp.drain(patience.drain_seconds)
        finally:
            server.should_exit = True

    def stop() -> None:
        if endings:
            server.should_exit = server.force_exit = True
        else:
            endings.append(loop.create_task(end()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    patience.hear()
    loop.add_signal_handler(signal.SIGHUP, reload)
    where, port = listener.getsockname()[:2]
    shown = f"[{where}]" if ":" in where else where
    print(f"workflowlookup serves MCP at http://{shown}:{port}/mcp", file=sys.stderr, flush=True)  # noqa: T201 - said to whoever started it
    await server.serve(sockets=[listener])
