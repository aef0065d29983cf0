"""Signs of life: a lock that a process holds for as long as it lives, so that others can tell when it is dead.

Every engine has an id that no other ever had, and holds the lock of that id: a locked file where the journal is a
SQLite file, an advisory lock where it is a PostgreSQL database. The system lets go of it when the process dies.
"""

import contextlib
import fcntl
import os
import secrets
import time
from typing import TYPE_CHECKING, Final, LiteralString, Protocol

if TYPE_CHECKING:
    import psycopg

PATIENCE: Final = 3
"""How often in a row a lock in PostgreSQL must be found free: after a restart of the database all are, for a moment."""
_LOCK_PAUSE: Final = 0.05
_CLASS: Final = 1_463_571_276
"""The class of our advisory locks; any number that nobody else takes."""


def new_id() -> str:
    return f"engine-{secrets.token_hex(4)}"


class Lease(Protocol):
    """The sign of life of one engine, and the eyes for those of others. For one thread at a time."""

    id: str

    def hold(self) -> bool:
        """Take the lock, or make sure that it is still held. False when it had been lost, and is held again."""

    def is_dead(self, other: str) -> bool:
        """Whether the engine of another id is surely gone."""

    def bury(self, other: str) -> None:
        """Clear away what a dead one left."""

    def lock(self) -> None:
        """Wait until no other engine is being opened here; to be called when it is held."""

    def unlock(self) -> None: ...

    def release(self) -> None: ...


class FileLease:
    """By locked files in a directory, one an engine."""

    def __init__(self, directory: str) -> None:
        self.id = new_id()
        self._directory = directory
        self._descriptor: int | None = None
        self._lock: int | None = None

    def hold(self) -> bool:
        if self._descriptor is None:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            self._descriptor = os.open(self._path(self.id), os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True

    def is_dead(self, other: str) -> bool:
        try:
            descriptor = os.open(self._path(other), os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def bury(self, other: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path(other))

    def lock(self) -> None:
        self._lock = os.open(self._path("opening"), os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def release(self) -> None:
        self.unlock()
        if self._descriptor is not None:
            self.bury(self.id)
            os.close(self._descriptor)
            self._descriptor = None

    def _path(self, engine: str) -> str:
        return os.path.join(self._directory, f"{os.path.basename(engine)}.lock")


class PostgresLease:
    """By advisory locks of a connection that is kept for this."""

    def __init__(self, url: str) -> None:
        self.id = new_id()
        self._url = url
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._found_free: dict[str, int] = {}

    def hold(self) -> bool:
        if self._connection is not None:
            with contextlib.suppress(self._errors()):
                self._connection.execute("SELECT 1")
                return True
            self._connection.close()
            self._connection = None
            self._found_free.clear()
            self._connect()
            return False
        self._connect()
        return True

    def is_dead(self, other: str) -> bool:
        if self._connection is None or other == self.id:  # whoever holds a lock gets it a second time
            return False
        key = _key(other)
        try:
            row = self._connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (_CLASS, key)).fetchone()
            if row != (True,):
                self._found_free.pop(other, None)
                return False
            self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", (_CLASS, key))
        except self._errors():
            return False
        self._found_free[other] = self._found_free.get(other, 0) + 1
        return self._found_free[other] >= PATIENCE

    def bury(self, other: str) -> None:
        self._found_free.pop(other, None)

    def lock(self) -> None:
        # One that waits in the database would be waited for by the one who makes indexes there.
        while self._connection is not None and not self._try("SELECT pg_try_advisory_lock(%s, %s)"):
            time.sleep(_LOCK_PAUSE)

    def _try(self, statement: LiteralString) -> bool:
        assert self._connection is not None
        return self._connection.execute(statement, (_CLASS + 1, 0)).fetchone() == (True,)

    def unlock(self) -> None:
        if self._connection is not None:
            self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", (_CLASS + 1, 0))

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> None:
        import psycopg  # noqa: PLC0415 - only where there is such a database

        connection = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=5,
            application_name="workflowlookup-lease",
            tcp_user_timeout=20_000,
        )
        connection.execute("SELECT pg_advisory_lock(%s, %s)", (_CLASS, _key(self.id)))
        self._connection = connection

    @staticmethod
    def _errors() -> type[Exception]:
        import psycopg  # noqa: PLC0415 - as above

        return psycopg.Error


def _key(engine: str) -> int:
    """The id as the signed number that locks are named by."""
    digits = engine.rpartition("-")[2]
    try:
        return int(digits, 16) - (1 << 31)
    except ValueError:
        return 0
