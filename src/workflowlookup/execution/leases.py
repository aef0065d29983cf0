"""Leases of replicas: an advisory lock in PostgreSQL that each holds for as long as it lives.

Every engine has a unique id, and holds the lock of that id on a connection of its own. The database releases the lock
when the process dies. It also closes the connection, and so releases the lock, after `IDLE_SECONDS` without a
heartbeat, because a machine that loses power or its network does not close connections.
"""

import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from workflowlookup.store.postgres import Connection

IDLE_SECONDS: Final = 10.0
"""How long the database waits for a heartbeat before it releases a lease."""
ANSWER_SECONDS: Final = 3.0
"""How long the database may take to answer on the connection of a lease, before another connection is made."""
FREE_CHECKS: Final = 3
"""How often in a row a lease must be free before its holder counts as dead: a restart of PostgreSQL frees all."""
_LOCK_PAUSE: Final = 0.05
_HAS_IDLE_TIMEOUT: Final = 140_000
"""The first version of PostgreSQL with `idle_session_timeout`. Older ones release a lease when TCP notices."""
_LOCK_SPACE: Final = 1_463_571_276
"""The first key of our advisory locks; any number that no other program uses."""


def new_id() -> str:
    return f"engine-{secrets.token_hex(4)}"


class Lease:
    """The lease of one replica, and checks on the leases of others. For one thread at a time."""

    def __init__(self, url: str) -> None:
        self.id = new_id()
        self._url = url
        self._connection: Connection | None = None
        self._was_held = False
        self._free: dict[str, int] = {}

    def hold(self) -> bool:
        """Acquire the lease, or check that it is still held.

        False when it was lost and is acquired again: others may have seen it free. Raises `psycopg.Error` when the
        database cannot be reached, or has not noticed yet that our previous connection is gone.
        """
        if self._connection is not None:
            with contextlib.suppress(self._errors()):
                self._connection.execute("SELECT 1")
                return True
            self.release()
            self._free.clear()
        self._connection = self._connect()
        is_first, self._was_held = not self._was_held, True
        return is_first

    def is_dead(self, other: str) -> bool:
        """Whether the lease of another engine was free `FREE_CHECKS` times in a row."""
        if not self.acquire(other):
            return False
        self.give_back(other)
        self._free[other] = self._free.get(other, 0) + 1
        return self._free[other] >= FREE_CHECKS

    def acquire(self, other: str) -> bool:
        """Acquire the lease of another engine, so that no third one can; False when it is held."""
        if self._connection is None or other == self.id:  # PostgreSQL would grant it a second time
            return False
        with contextlib.suppress(self._errors()):
            if self._try("SELECT pg_try_advisory_lock(%s, %s)", _LOCK_SPACE, _key(other)):
                return True
            self._free.pop(other, None)
        return False

    def give_back(self, other: str) -> None:
        if self._connection is not None:
            with contextlib.suppress(self._errors()):  # it ends with the connection
                self._try("SELECT pg_advisory_unlock(%s, %s)", _LOCK_SPACE, _key(other))

    def lock(self) -> None:
        """Wait until no other engine is being opened on this database; call it while the lease is held.

        Until `unlock` there are no heartbeats, and the database expects none.
        """
        if self._connection is not None:
            self._set_idle_timeout(self._connection, 0)
        # Polled: CREATE INDEX CONCURRENTLY waits for every transaction, also for one that waits for this lock.
        while self._connection is not None and not self._try("SELECT pg_try_advisory_lock(%s, %s)", _LOCK_SPACE + 1, 0):
            time.sleep(_LOCK_PAUSE)

    def _try(self, statement: LiteralString, space: int, key: int) -> bool:
        assert self._connection is not None
        return self._connection.execute(statement, (space, key)).fetchone() == (True,)

    def unlock(self) -> None:
        if self._connection is not None:
            self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", (_LOCK_SPACE + 1, 0))
            self._set_idle_timeout(self._connection, IDLE_SECONDS)

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> "Connection":
        import psycopg  # noqa: PLC0415 - only for PostgreSQL

        from workflowlookup.store.postgres import SERVER_TCP_KEEPALIVE, TCP_KEEPALIVE, Connection  # noqa: PLC0415

        connection = Connection.connect(
            self._url,
            autocommit=True,
            connect_timeout=round(ANSWER_SECONDS),
            application_name="workflowlookup-lease",
            **TCP_KEEPALIVE,
        )
        connection.max_seconds = ANSWER_SECONDS
        try:
            connection.execute(SERVER_TCP_KEEPALIVE)
            self._set_idle_timeout(connection, IDLE_SECONDS)
            locked = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (_LOCK_SPACE, _key(self.id))).fetchone()
        except BaseException:
            connection.close()
            raise
        if locked != (True,):
            connection.close()
            raise psycopg.OperationalError("the lease is still held by a connection that was lost")
        return connection

    @staticmethod
    def _set_idle_timeout(connection: "Connection", seconds: float) -> None:
        """Make the database close the connection after so many seconds without a heartbeat; 0 for never."""
        if connection.info.server_version >= _HAS_IDLE_TIMEOUT:
            connection.execute(f"SET idle_session_timeout TO {round(seconds * 1000)}".encode())

    @staticmethod
    def _errors() -> type[Exception]:
        import psycopg  # noqa: PLC0415 - as above

        return psycopg.Error


def _key(engine: str) -> int:
    """The second key of an engine's lock: its id as a signed 32-bit number."""
    digits = engine.rpartition("-")[2]
    try:
        return int(digits, 16) - (1 << 31)
    except ValueError:
        return 0
