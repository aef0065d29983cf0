"""The open connections of a server: a deadline for each, a limit for all, and a share of the limit for each address.

At a limit, a connection is closed to make room: the one with the lowest `EvictionRank`, and of these the oldest. So an
address that opens connections and sends nothing, or only parts of requests, loses its own, and a client with a request
can still connect.
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
"""File descriptors for files, the database, child processes and connections that are being refused."""
LOG_SECONDS: Final = 60.0
"""The log says at most this often that connections are closed to make room."""


class EvictionRank(enum.IntEnum):
    """How much is lost if a connection is closed; at a limit, the lowest is closed."""

    NOTHING = 0
    """Nothing was ever answered on it, or its request is neither complete nor authenticated."""
    IDLE = 1
    UNKNOWN = 2
    """A complete request that is not authenticated yet."""
    INCOMPLETE = 3
    """An authenticated request of which a part is missing."""
    REQUEST = 4
    """A request that is being answered. Such a connection is never closed to make room."""


class EvictableConnection(Protocol):
    """What `ConnectionTable` needs to know of a connection; `HttpProtocol` implements it."""

    deadline: float
    """When it is closed, by the clock of the event loop."""

    @property
    def address(self) -> str:
        """Of the peer: the client, or a proxy."""

    @property
    def rank(self) -> EvictionRank:
        """What would be lost with this connection."""

    def expire(self) -> None:
        """Close it."""


class ConnectionTable:
    """The open connections of a server."""

    def __init__(
        self,
        limit: int,
        share: int,
        *,
        proxies: Proxies | None = None,
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`share`: the limit for each address that is not a trusted proxy. `on_refused` gets the reason."""
        self._limit = limit
        self._share = min(share, max(1, limit // 2))
        self._proxies = proxies or Proxies()
        self.on_refused = on_refused
        self._open: dict[EvictableConnection, str] = {}
        """The network of each, in the order in which they were opened."""
        self._by_network: dict[str, dict[EvictableConnection, None]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._logged_at = -LOG_SECONDS

    def add(self, connection: EvictableConnection) -> bool:
        """Add a connection, and close another if necessary. Returns False if there is no room."""
        network = network_of(connection.address)
        siblings = self._by_network.get(network, {})
        is_shared = self._proxies.is_trusted(connection.address)
        if len(siblings) >= self._share and not is_shared:
            has_room = self._make_room(siblings, f"{network} has {len(siblings):,} connections open")
        else:
            has_room = len(self._open) < self._limit or self._make_room(self._open, "all connections are in use")
        if has_room:
            self._open[connection] = network
            self._by_network.setdefault(network, {})[connection] = None
            if self._sweep is None:
                self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._close_expired)
        return has_room

    def remove(self, connection: EvictableConnection) -> None:
        """Remove a connection that is closed, or will be."""
        network = self._open.pop(connection, None)
        if network is None:
            return
        siblings = self._by_network[network]
        del siblings[connection]
        if not siblings:
            del self._by_network[network]
        if not self._open and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _make_room(self, candidates: Iterable[EvictableConnection], reason: str) -> bool:
        self.on_refused("connections")
        now = time.monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.warning("%s: idle ones are closed to make room for new ones", reason)
        evicted, lowest = None, EvictionRank.REQUEST
        for connection in candidates:
            if (rank := connection.rank) < lowest:
                evicted, lowest = connection, rank
                if rank is EvictionRank.NOTHING:  # no need to search further: there may be thousands
                    break
        if evicted is None:
            return False
        self.remove(evicted)
        evicted.expire()
        return True

    def _close_expired(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [connection for connection in self._open if connection.deadline < now]:
            connection.expire()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_expired)


def connection_limit(max_sessions: int) -> int:
    """How many connections this process can have open: enough for the sessions, or as many as the system allows.

    Raises the soft limit of open files as far as needed and allowed.
    """
    needed_connections = CONNECTIONS_PER_SESSION * max_sessions
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed_files = needed_connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed_files:
        soft = needed_files if hard == resource.RLIM_INFINITY else min(needed_files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed_files:
            log.warning(
                "at most %d files can be open (ulimit -n), so fewer than %d connections", soft, needed_connections
            )
            return max(soft - RESERVED_FILES, soft // 2)
    return needed_connections
