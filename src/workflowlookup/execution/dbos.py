"""The engine for a journal in PostgreSQL: a durable queue of DBOS, from which every replica takes runs to drive.

DBOS stores which replica drives which run, spreads the runs over the replicas and limits how many each drives at once.
It does not notice that a replica died. So each replica holds a lease (`leases`), and the runs of a dead one are put
back into the queue. A driver is a DBOS workflow with the id `run:sequence`.
"""

import asyncio
import concurrent.futures
import contextlib
import datetime as dt
import functools
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from workflowlookup.errors import StorageError
from workflowlookup.execution.engine import ConcurrencyLimits, Drive, Superseded
from workflowlookup.execution.leases import FREE_CHECKS, Lease
from workflowlookup.logs import capture_library_logs
from workflowlookup.preload import preload

if TYPE_CHECKING:
    import sqlalchemy
    from dbos import DBOSConfig, WorkflowStatus

log = logging.getLogger(__name__)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

APPLICATION: Final = "workflowlookup"
VERSION: Final = "interp-2"
"""The version of how runs are driven, not of the package: replicas take only runs of this version from the queue."""
NAME: Final = "drive"
QUEUE: Final = "runs"
POLL_SECONDS: Final = 0.05
"""How often a replica polls the queue."""
HEARTBEAT_SECONDS: Final = 1.0
"""How often a replica checks that it still has its lease."""
KEEP_SECONDS: Final = 24 * 3600
"""How long ended drivers stay in the tables of DBOS."""
ORPHANED_POLLS: Final = 4
"""A driver that DBOS assigns to this replica, but that does not run here for so many polls, is put back into the queue.
A driver takes a moment to begin after it was taken from the queue."""
CONNECT_SECONDS: Final = 5
STATEMENT_SECONDS: Final = 10.0
"""How long DBOS waits for the answer to a statement before its connection is replaced."""
LAUNCH_SECONDS: Final = 600.0
"""Likewise during launch, when it creates its tables and indexes."""
IDLE_SECONDS: Final = 10
"""After so many seconds PostgreSQL ends a transaction of DBOS whose client is silent, and releases its locks."""
MAX_SILENT_SECONDS: Final = 15.0
"""How long a replica may be without its lease before it reports that it is not ready."""
CANCEL_SECONDS: Final = 2.0
"""How long `close` waits for cancelled drivers."""
_READ_ONLY: Final = "25006"
"""The SQLSTATE of a write that a read-only database refuses."""
_CHECKS_CLIENTS: Final = 140_000
"""Since this version PostgreSQL can end a statement whose client is gone. Without that, each connection that is closed
while its statement waits for a lock would leave a session behind.
"""
_SWEEP_SECONDS: Final = 3600.0
_SWEEP_BATCH: Final = 500
_STALE_SECONDS: Final = 0.5
_THREADS: Final = 32
_POOL: Final = 8
_QUEUED: Final = ["ENQUEUED", "DELAYED"]
_ACTIVE: Final = ["PENDING", *_QUEUED]

_workflows: list[Any] = []
"""The function `_drive` as registered with DBOS, once per process."""
_current: "DbosEngine | None" = None
"""The engine that is open."""


class DbosEngine:
    """Drives the runs of a journal in PostgreSQL. At most one is open in a process, because DBOS is a singleton."""

    def __init__(self, url: str, drive: Drive, limits: ConcurrencyLimits, *, is_guest: bool = False) -> None:
        """`is_guest`: a command, which drives the runs that it starts at once, and takes nothing from the queue."""
        self._url = url
        self._drive = drive
        self._limits = limits
        self._is_guest = is_guest
        self._lease = Lease(url)
        self._threads = concurrent.futures.ThreadPoolExecutor(1, "workflowlookup-engine")
        """For blocking calls; a single thread, because a lease must not be used by two at a time."""
        self._heartbeat: asyncio.Task[None] | None = None
        self._database: sqlalchemy.Engine | None = None
        self._drivers: dict[str, asyncio.Task[Any]] = {}
        """By id: the drivers that run here."""
        self._orphaned: dict[str, int] = {}
        """By id of a driver that DBOS assigns to this replica and that does not run here: for how many polls."""
        self._swept = 0.0
        self._max_seconds = LAUNCH_SECONDS
        """For a statement of DBOS."""
        self._held_at = time.monotonic()
        """When the lease was last known to be held."""

    @property
    def id(self) -> str:
        return self._lease.id

    @property
    def fault(self) -> str:
        silent = time.monotonic() - self._held_at
        if silent < MAX_SILENT_SECONDS:
            return ""
        return f"The engine that carries out calls has not reached the journal's database for {silent:.0f} seconds"

    async def open(self) -> None:
        global _current  # noqa: PLW0603 - DBOS is a singleton, and calls a global function
        _current = self
        try:
            await self._in_thread(self._lease.hold)
            await self._in_thread(self._lease.lock)  # two processes must not create the tables of DBOS at the same time
            await self._launch()
            await self._in_thread(self._lease.unlock)
            self._max_seconds, self._held_at = STATEMENT_SECONDS, time.monotonic()
            _freeze_loaded_objects()
        except asyncio.CancelledError:  # the server is stopping
            await self.close()
            raise
        except Exception as problem:  # broad on purpose: DBOS, SQLAlchemy and drivers raise many kinds
            await self.close()
            reason = str(problem).strip().partition("\n")[0]
            message = f"The engine that carries out calls, in the journal's database, cannot be used: {reason}."
            raise StorageError(message, details=message) from problem
        self._heartbeat = asyncio.create_task(self._keep_lease())

    async def _launch(self) -> None:
        capture_library_logs("dbos")
        dbos = await self._in_thread(_import)
        self._database = _make_pool(self._url, lambda: self._max_seconds)
        config: DBOSConfig = {
            "name": APPLICATION,
            "application_version": VERSION,
            "executor_id": self.id,
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "max_executor_threads": _THREADS,
            "log_level": "WARNING",
            "enable_otlp": False,
            "system_database_url": self._database.url.render_as_string(hide_password=False),
            "system_database_engine": self._database,
        }
        dbos.DBOS(config=config)
        if not _workflows:
            _workflows.append(dbos.DBOS.workflow(name=NAME, max_recovery_attempts=None)(_drive))
        if self._is_guest:
            dbos.DBOS.listen_queues([])
        dbos.DBOS.launch()  # on this thread, so that DBOS uses its event loop
        if not self._is_guest:
            await self.set_limits(self._limits)

    async def set_limits(self, limits: ConcurrencyLimits) -> None:
        """Set the limits of all replicas: they are stored with the queue, so the last replica to set them decides."""
        from dbos import DBOS  # noqa: PLC0415 - loaded with the engine

        await DBOS.register_queue_async(
            QUEUE,
            worker_concurrency=min(limits.each, limits.total or limits.each),
            global_concurrency=limits.total or None,
            polling_interval_sec=POLL_SECONDS,
            on_conflict="always_update",
        )

    # ── driving ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, run_id: str, sequence: int, *, again: bool = False, is_here: bool = False) -> None:
        from dbos import DBOS, SetWorkflowID  # noqa: PLC0415 - as above

        driver = f"{run_id}:{sequence}"
        if again or self._is_guest:
            earlier = await self._list(workflow_id_prefix=driver)
            earlier = [one for one in earlier if one.workflow_id == driver or one.workflow_id.startswith(f"{driver}:")]
            if [one for one in earlier if one.status in _ACTIVE and not await self._end_stale(one)]:
                return
            driver = f"{driver}:{len(earlier)}" if earlier else driver  # the same id in all processes
        with SetWorkflowID(driver):
            if self._is_guest or is_here:
                await DBOS.start_workflow_async(_workflows[0], run_id)
            else:
                await DBOS.enqueue_workflow_async(QUEUE, _workflows[0], run_id)

    async def _end_stale(self, status: "WorkflowStatus") -> bool:
        """For a guest: cancel a driver that is queued or whose replica is dead, so that the guest can drive the run."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        for _ in range(FREE_CHECKS if self._is_guest else 0):
            owner = str(status.executor_id)
            if status.status == "PENDING" and await self._in_thread(self._lease.is_dead, owner):
                break
            await asyncio.sleep(_STALE_SECONDS)
            (status,) = await self._list(workflow_ids=[status.workflow_id])
        else:
            if status.status not in _QUEUED or not self._is_guest:
                return False
        await DBOS.cancel_workflow_async(status.workflow_id)
        return True

    async def driven(self, run_ids: Collection[str]) -> set[str]:
        active = {status.workflow_id.partition(":")[0] for status in await self._list(status=_ACTIVE)}
        return active.intersection(run_ids)

    async def run(self, run_id: str, driver: str) -> None:
        """Drive a run; called by DBOS. DBOS steps are not used, because the journal has the result of each call."""
        task = asyncio.current_task()
        assert task is not None
        self._drivers[driver] = task
        try:
            await self._drive(run_id, _SLOT)
        except Superseded as problem:
            log.warning("%s", problem)
            raise asyncio.CancelledError from None  # DBOS stores nothing: the driver belongs to another replica
        finally:
            if self._drivers.get(driver) is task:
                del self._drivers[driver]

    async def _list(self, **options: Any) -> "list[WorkflowStatus]":
        from dbos import DBOS  # noqa: PLC0415 - as above

        return await DBOS.list_workflows_async(name=NAME, load_input=False, load_output=False, **options)

    # ── other replicas ──────────────────────────────────────────────────────────────────────────────────────────

    async def _keep_lease(self) -> None:
        """Renew the lease, so that other replicas do not take over the runs that are driven here."""
        was_lost = False
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                was_lost |= not await self._in_thread(self._lease.hold)
                self._held_at = time.monotonic()
                if was_lost:
                    await self._cancel_taken_over()
                    was_lost = False
            except Exception as problem:  # noqa: BLE001 - the database may be unreachable; retried
                log.debug("the lease could not be renewed: %r", problem)

    async def _cancel_taken_over(self) -> None:
        """Cancel the drivers whose runs other replicas took over while this one had lost its lease."""
        ours = {status.workflow_id for status in await self._list(status=["PENDING"], executor_id=self.id)}
        for driver, task in self._drivers.items():
            if driver not in ours:
                log.warning("the run of driver %s was taken over by another replica", driver)
                task.cancel()

    async def take_over(self) -> None:
        pending = await self._list(status=["PENDING"])
        await self._put_back_orphaned([status for status in pending if status.executor_id == self.id])
        for other in {str(status.executor_id) for status in pending} - {self.id}:
            if await self._in_thread(self._lease.is_dead, other):
                await self._take_over_from(other)
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self._swept = time.monotonic()
            await self.sweep()

    async def _take_over_from(self, other: str) -> None:
        """Put the runs of a dead replica back into the queue, holding its lease so that no other one does the same."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        if not await self._in_thread(self._lease.acquire, other):
            return
        try:
            pending = await self._list(status=["PENDING"], executor_id=other)
            ours = [status.workflow_id for status in pending if status.app_version == VERSION]
            others = [status.workflow_id for status in pending if status.app_version != VERSION]
            if ours:
                await DBOS.resume_workflows_async(ours, queue_name=QUEUE)
            if others:  # this version cannot drive them; they are started again from the journal
                await DBOS.cancel_workflows_async(others)
            log.info("took over %d runs from a process that ended", len(pending))
        finally:
            await self._in_thread(self._lease.give_back, other)

    async def _put_back_orphaned(self, ours: "list[WorkflowStatus]") -> None:
        """Put back drivers that were taken from the queue here and never began, because the database was lost."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        missing = [status.workflow_id for status in ours if status.workflow_id not in self._drivers]
        self._orphaned = {driver: self._orphaned.get(driver, 0) + 1 for driver in missing}
        lost = [driver for driver, polls in self._orphaned.items() if polls >= ORPHANED_POLLS]
        if lost:
            log.warning("put back into the queue, because they did not begin here: %s", ", ".join(lost))
            await DBOS.resume_workflows_async(lost, queue_name=QUEUE)
            self._orphaned.clear()

    async def sweep(self, keep_seconds: float = KEEP_SECONDS) -> int:
        """Delete drivers that ended so long ago from the tables of DBOS; returns how many."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        before = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=keep_seconds)).isoformat()
        deleted = 0
        while old := await self._list(status=["SUCCESS", "ERROR", "CANCELLED"], end_time=before, limit=_SWEEP_BATCH):
            await DBOS.delete_workflows_async([status.workflow_id for status in old])
            deleted += len(old)
        return deleted

    async def close(self, grace_seconds: float = 0.0) -> None:
        global _current  # noqa: PLW0603 - as above
        if _current is self:
            _current = None  # a driver that is taken from the queue now is left to other replicas
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        drivers = [*self._drivers.values()]
        if drivers and grace_seconds:
            await asyncio.wait(drivers, timeout=grace_seconds)
        for task in drivers:
            task.cancel()
        if drivers:
            await asyncio.wait(drivers, timeout=CANCEL_SECONDS)
        if self._database is not None:
            from dbos import DBOS  # noqa: PLC0415 - as above

            await self._in_thread(DBOS.destroy)
            await self._in_thread(self._database.dispose)
            self._database = None
        await self._in_thread(self._lease.release)
        self._threads.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Call a blocking function on the engine's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


class _QueueSlot:
    """A slot that cannot be lent: DBOS counts a run from when it is taken from the queue until its driver ends."""

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        yield


_SLOT: Final = _QueueSlot()


async def _drive(run_id: str) -> None:
    """The function that is registered with DBOS: drive a run by the engine that is open."""
    from dbos import DBOS  # noqa: PLC0415 - as above

    driver = DBOS.workflow_id
    if _current is None or driver is None:
        raise asyncio.CancelledError  # the engine was closed
    await _current.run(run_id, driver)


@functools.cache
def _freeze_loaded_objects() -> None:
    """Exempt everything that is loaded by now from garbage collection, once per process.

    A full collection over a hundred thousand objects stops every thread for 60 ms.
    """
    gc.freeze()


def _import() -> Any:
    preload("dbos")  # takes a quarter of a second
    import dbos  # noqa: PLC0415 - imported above

    return dbos


def _make_pool(url: str, max_seconds: Callable[[], float]) -> "sqlalchemy.Engine":
    """The connection pool for DBOS. We make it so that we can close it: DBOS leaves connections of its threads open.

    `max_seconds`: how long a statement may take. DBOS itself would wait forever on a silent connection.
    """
    import sqlalchemy  # noqa: PLC0415 - loaded with DBOS

    from workflowlookup.store.postgres import SERVER_TCP_KEEPALIVE, TCP_KEEPALIVE, Connection  # noqa: PLC0415

    class DbosConnection(Connection):
        """Has its own name in warnings: a thread of DBOS may hold one when it ends."""

    def connect(_dialect: object, _record: object, cargs: tuple[str, ...], cparams: dict[str, Any]) -> Connection:
        connection = DbosConnection.connect(*cargs, **cparams)
        try:
            connection.max_seconds = STATEMENT_SECONDS
            connection.execute(SERVER_TCP_KEEPALIVE)
            connection.execute(f"SET idle_in_transaction_session_timeout TO '{IDLE_SECONDS}s'".encode())
            if connection.info.server_version >= _CHECKS_CLIENTS:
                connection.execute("SET client_connection_check_interval TO '1s'")
            connection.commit()  # else the pool would roll it back
        except BaseException:
            connection.close()
            raise
        return connection

    def limit(connection: Any, *_: object) -> None:
        connection.max_seconds = max_seconds()

    def drop_read_only(context: "sqlalchemy.ExceptionContext") -> None:
        if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
            context.is_disconnect = True  # a session stays read-only after the database is writable again

    address = sqlalchemy.make_url(f"postgresql{url[url.index('://') :]}").set(drivername="postgresql+psycopg")
    options = {"application_name": "workflowlookup-engine", "connect_timeout": CONNECT_SECONDS, **TCP_KEEPALIVE}
    pool = sqlalchemy.create_engine(address, pool_size=_POOL, max_overflow=0, pool_timeout=30, connect_args=options)
    sqlalchemy.event.listen(pool, "do_connect", connect)
    sqlalchemy.event.listen(pool, "checkout", limit)
    sqlalchemy.event.listen(pool, "handle_error", drop_read_only)
    return pool


def tables_version(url: str) -> int | None:
    """The schema version of DBOS in a database; None when there are no tables, or they cannot be read."""
    import psycopg  # noqa: PLC0415 - only for PostgreSQL

    with contextlib.suppress(psycopg.Error), psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
        if connection.execute("SELECT to_regclass('dbos.dbos_migrations')").fetchone() != (None,):
            row = connection.execute("SELECT MAX(version) FROM dbos.dbos_migrations").fetchone()
            return int(str(row[0])) if row is not None and row[0] is not None else None
    return None
