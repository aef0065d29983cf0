"""Which connections a server keeps open: a deadline for each, a limit for all, and a share of it for each address.

At a limit the oldest connection is closed to make room of those that are missed least (`Worth`). So an address that
opens connections and sends nothing, or only parts of requests, loses its own, and a client with a request can still
connect.
"""

import asyncio
import enum
import logging
import resource
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from workflowlookup.auth.callers import Proxies, network_of

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 0.25
"""How often deadlines are checked."""
CONNECTIONS_PER_SESSION: Final = 4
RESERVED_FILES: Final = 128
"""File descriptors that are left for files, the database, child processes and connections that are being refused."""
LOG_SECONDS: Final = 60.0
"""The log says at most this often that connections are closed to make room."""


class Worth(enum.IntEnum):
    """What is lost with a connection; at a limit the least is."""

    NOTHING = 0
    """Nothing was ever answered on it, or its request is neither complete nor authenticated."""
    IDLE = 1
    UNKNOWN = 2
    """A request of somebody who is not authenticated."""
    INCOMPLETE = 3
    """A request of which a part is missing."""
    REQUEST = 4
    """A request that is being answered. Such a connection is not closed for another."""


class Connection(Protocol):
    """What `ConnectionTable` needs of a connection."""

    deadline: float
    """When it is closed, by the clock of the event loop."""

    @property
    def address(self) -> str:
        """Of the socket at the other end."""

    @property
    def worth(self) -> Worth:
        """What would be lost with it."""

    def expire(self) -> None:
        """Close it."""


class ConnectionTable:
    """The open connections of a server."""

    def __init__(
        self, limit: int, share: int, *, proxies: Proxies | None = None, refused: Callable[[], None] = lambda: None
    ) -> None:
        """`share`: for each address that is not a trusted proxy. `refused` counts those that are closed at a limit."""
        self._limit = limit
        self._share = min(share, max(1, limit // 2))
        self._proxies = proxies or Proxies()
        self._refused = refused
        self._open: dict[Connection, str] = {}
        """The network of each, in the order in which they were opened."""
        self._by_network: dict[str, dict[Connection, None]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._logged_at = -LOG_SECONDS

    def add(self, connection: Connection) -> bool:
        """Add a connection, and close another if that is necessary; False when there is no room."""
        network = network_of(connection.address)
        same = self._by_network.get(network, {})
        is_shared = self._proxies.is_trusted(connection.address)
        if len(same) >= self._share and not is_shared:
            has_room = self._make_room(same, f"{network} has {len(same):,} connections open")
        else:
            has_room = len(self._open) < self._limit or self._make_room(self._open, "all connections are in use")
        if has_room:
            self._open[connection] = network
            self._by_network.setdefault(network, {})[connection] = None
            if self._sweep is None:
                self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._close_late)
        return has_room

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed, or will be."""
        network = self._open.pop(connection, None)
        if network is None:
            return
        same = self._by_network[network]
        del same[connection]
        if not same:
            del self._by_network[network]
        if not self._open and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _make_room(self, candidates: Iterable[Connection], reason: str) -> bool:
        self._refused()
        now = time.monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.warning("%s: idle ones are closed to make room for new ones", reason)
        oldest, least = None, Worth.REQUEST
        for connection in candidates:
            if (worth := connection.worth) < least:
                oldest, least = connection, worth
                if worth is Worth.NOTHING:  # not all are looked at: there may be thousands
                    break
        if oldest is None:
            return False
        self.remove(oldest)
        oldest.expire()
        return True

    def _close_late(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [connection for connection in self._open if connection.deadline < now]:
            connection.expire()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_late)


def connection_limit(max_sessions: int) -> int:
    """How many connections this process can have open: enough for the sessions, or as many as the system allows.

    The soft limit of open files is raised towards the hard one as far as that takes.
    """
    wanted = CONNECTIONS_PER_SESSION * max_sessions
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            log.warning("at most %d files can be open (ulimit -n), so fewer than %d connections", soft, wanted)
            return max(soft - RESERVED_FILES, soft // 2)
    return wanted
