"""The server process over HTTP: it listens, serves until a signal, and stops gracefully within a time limit."""

import asyncio
import contextlib
import ctypes
import errno
import functools
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from workflowlookup import greenlets
from workflowlookup.logs import announce
from workflowlookup.transport.http.connections import ConnectionTable
from workflowlookup.transport.http.endpoint import Endpoint
from workflowlookup.transport.http.http1 import HttpProtocol
from workflowlookup.transport.signals import Watchdog

log = logging.getLogger(__name__)

LAST_SECONDS: Final = 0.3
"""Time allowed for responses that are being written when the server ends."""
CONSOLE_LAST_SECONDS: Final = 5.0
"""The same for the console of one person."""
MAX_CONSOLE_CONNECTIONS: Final = 256
END_SECONDS: Final = 1.0
"""How long the process may live after the time for pending calls is over."""
BACKLOG: Final = 1024
"""How many connections may wait to be accepted."""
MAX_ACCEPTED_AT_ONCE: Final = 32
"""Each takes a file descriptor before `ConnectionTable` decides whether there is room for it."""
ACCEPT_LOG_SECONDS: Final = 60.0
"""How often the log says that no connection can be accepted, at most."""
HANDSHAKE_SECONDS: Final = 0.05
"""Time to accept connections that are being opened, before the listening socket is closed."""
DRAIN_POLL_SECONDS: Final = 0.05
SO_ATTACH_FILTER: Final = 26
_DROP_SYN: Final = (
    struct.pack("=HBBI", 0x30, 0, 0, 13)  # load the byte with the TCP flags
    + struct.pack("=HBBI", 0x45, 1, 0, 0x02)  # is SYN set?
    + struct.pack("=HBBI", 0x06, 0, 0, 0xFFFFFFFF)  # no: accept the packet
    + struct.pack("=HBBI", 0x06, 0, 0, 0)  # yes: drop it
)
"""A classic BPF program for a listening socket."""


class _Listener(uvicorn.Server):
    """A uvicorn server with our own protocol, `HttpProtocol`."""

    def __init__(self, app: ASGIApp, connections: ConnectionTable, last_seconds: float) -> None:
        """`last_seconds`: time allowed for responses that are being written when the server ends."""

        def make_protocol(*, server_state: ServerState, **_: object) -> HttpProtocol:
            return HttpProtocol(app, connections, server_state)

        config = uvicorn.Config(
            app,
            http=make_protocol,  # type: ignore[arg-type]  # any function that makes a protocol works
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=MAX_ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=last_seconds,  # type: ignore[arg-type]  # fractions of a second work
        )
        super().__init__(config)
        self.servers = []  # none until it has started
        self._logged_at = -ACCEPT_LOG_SECONDS

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._log_exception)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio uses one number for this and for how many it accepts at once

    def _log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what asyncio reports. That no file descriptor is left is logged at most every `ACCEPT_LOG_SECONDS`."""
        problem = context.get("exception")
        if not isinstance(problem, OSError) or problem.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self._logged_at >= ACCEPT_LOG_SECONDS:
            self._logged_at = loop.time()
            log.warning(
                "no connection can be accepted: %s. Raise the limit of open files (ulimit -n)", problem.strerror
            )


class _Server(_Listener):
    """Leaves signals to the watchdog: the first one stops the server gracefully, the second at once."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _ConsoleServer(_Listener):
    """Ends the event streams of pages before it waits for connections: they never end by themselves."""

    end_streams: Callable[[], None]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.end_streams()
        await super().shutdown(sockets)


class _StopTracker:
    """Counts unanswered requests. While the server is stopping, it adds `Connection: close` to every response.

    So clients send their next request on another connection, which may reach another replica.
    """

    def __init__(self, app: ASGIApp, mcp: Endpoint) -> None:
        self._app = app
        self._mcp = mcp
        self.unanswered = 0
        """Requests whose response has not begun."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_unanswered = True
        self.unanswered += 1

        async def respond(message: Message) -> None:
            nonlocal is_unanswered
            if message["type"] == "http.response.start":
                if self._mcp.is_stopping:
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
                self.unanswered -= is_unanswered
                is_unanswered = False
            await send(message)

        try:
            await self._app(scope, receive, respond)
        finally:
            self.unanswered -= is_unanswered


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # without IPPROTO_TCP, asyncio does not disable Nagle's algorithm
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


def run(  # noqa: PLR0913 - the options of a server
    site: ASGIApp,
    mcp: Endpoint,
    listener: socket.socket,
    *,
    connections: ConnectionTable,
    stop_delay_seconds: float,
    drain_seconds: float,
    reload: Callable[[], None],
    watchdog: Watchdog,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. SIGHUP reloads the settings.

    After the signal the server is not ready, but still serves for `stop_delay_seconds`. Then it accepts no more
    connections, and pending calls may finish within `drain_seconds`. The watchdog ends the process if stopping takes
    too long.
    """
    app = _StopTracker(site, mcp)
    server = _Server(app, connections, LAST_SECONDS)

    async def stop() -> None:
        mcp.is_stopping = True
        await asyncio.sleep(stop_delay_seconds)
        await _stop_accepting(server, listener)
        deadline = time.monotonic() + drain_seconds
        await drain(deadline)
        for connection in list(server.server_state.connections):
            connection.shutdown()  # at once if it is idle, else after its response
        await drain(deadline)  # requests that had arrived by then
        mcp.close()
        await asyncio.sleep(DRAIN_POLL_SECONDS)  # time to write the streams

    async def drain(deadline: float) -> None:
        while True:
            await asyncio.sleep(DRAIN_POLL_SECONDS)  # so that requests that have just arrived are counted
            if time.monotonic() >= deadline or not (mcp.is_busy or app.unanswered):
                return

    asyncio.run(_serve(server, stop, listener, reload, watchdog))
    return 0 if server.started else 1


def run_pages(app: ASGIApp, listener: socket.socket, *, end_streams: Callable[[], None]) -> None:
    """Serve the console of one person until SIGTERM or SIGINT, which is then raised again for the process."""
    connections = ConnectionTable(MAX_CONSOLE_CONNECTIONS, MAX_CONSOLE_CONNECTIONS)
    server = _ConsoleServer(app, connections, CONSOLE_LAST_SECONDS)
    server.end_streams = end_streams
    server.run(sockets=[listener])


async def _serve(
    server: _Server,
    stop: Callable[[], Coroutine[None, None, None]],
    listener: socket.socket,
    reload: Callable[[], None],
    watchdog: Watchdog,
) -> None:
    loop = asyncio.get_running_loop()
    stops: list[asyncio.Task[None]] = []
    reloads: set[asyncio.Task[None]] = set()

    async def stop_and_exit() -> None:
        try:
            await stop()
        finally:
            server.should_exit = True

    def on_signal(signals: int) -> None:
        if not stops:
            stops.append(loop.create_task(stop_and_exit()))
        if signals > 1:
            server.should_exit = server.force_exit = True

    async def do_reload() -> None:
        reload()

    def on_hangup() -> None:
        task = loop.create_task(greenlets.run(do_reload))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    def on_loop(*call: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server is ending
            loop.call_soon_threadsafe(*call)

    watchdog.stop = functools.partial(on_loop, on_signal)
    watchdog.reload = functools.partial(on_loop, on_hangup)
    host, port = listener.getsockname()[:2]
    shown_host = f"[{host}]" if ":" in host else host
    announce(f"workflowlookup serves MCP at http://{shown_host}:{port}/mcp")
    await server.serve(sockets=[listener])


async def _stop_accepting(server: _Server, listener: socket.socket) -> None:
    """Close the listening socket without resetting a connection that its client believes to be open.

    When the socket is closed, the kernel resets connections that are not accepted yet, although their requests may have
    been sent, and a load balancer does not send such a `POST` again. So first the kernel drops new connections until
    those that are being opened are accepted. A client that connects meanwhile tries again after a second, and is
    refused then.
    """
    with contextlib.suppress(OSError):  # then a connection of the last moment may be reset
        _drop_new_connections(listener)
    await asyncio.sleep(HANDSHAKE_SECONDS)
    for asyncio_server in server.servers:
        asyncio_server.close()


def _drop_new_connections(listener: socket.socket) -> None:
    """Let the kernel drop SYN packets for this socket. Raises `OSError`."""
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(_DROP_SYN, len(_DROP_SYN))
        count = len(_DROP_SYN) // struct.calcsize("=HBBI")
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", count, ctypes.addressof(program)))
