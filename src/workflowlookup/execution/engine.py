"""The durable engine: DBOS, with everything that it needs to be trusted (docs/decisions has why).

What it keeps is only who drives which run, and which steps of it are done; what a run is, the journal says. A driver
whose process dies is taken over by the next engine that looks, and goes on by the journal.
"""

import asyncio
import concurrent.futures
import contextlib
import datetime as dt
import functools
import gc
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from workflowlookup.errors import StorageError
from workflowlookup.execution.leases import PATIENCE, FileLease, Lease, PostgresLease
from workflowlookup.providers.foreign_logs import join_log

if TYPE_CHECKING:
    import sqlalchemy
    from dbos import DBOS, DBOSConfig, WorkflowStatus

log = logging.getLogger(__name__)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

APPLICATION: Final = "workflowlookup"
VERSION: Final = "interp-1"
"""Of how runs are driven, never of the package: drivers of another version are not taken over."""
REAP_SECONDS: Final = 2.0
HOLD_SECONDS: Final = 1.0
"""How often it is seen to that the own sign of life is there; others look for it every `REAP_SECONDS`."""
KEEP_SECONDS: Final = 24 * 3600
"""How long drivers that are done are kept."""
_SWEEP_SECONDS: Final = 3600.0
_SWEEP_BATCH: Final = 500
_ACTIVE: Final = ["PENDING", "ENQUEUED", "DELAYED"]
_LAY_DOWN_SECONDS: Final = 2.0
_DEAD_SECONDS: Final = 0.5
_THREADS: Final = 32
_POOL: Final = 4

Act = Callable[[str, str], Coroutine[Any, Any, str]]
"""Does what a run needs at a step; the step that is then due, or nothing."""
Driver = Callable[[str, str, Callable[[str], Awaitable[str]]], Awaitable[None]]
"""Drives a run from a step on; the function that it is given does one step, durably."""

_registered: list[Any] = []
_current: "Engine | None" = None


class Engine:
    """DBOS at one place. There is at most one that is open in a process. For the worker's loop."""

    def __init__(
        self, place: str, driver: Driver, act: Act, look_after: Callable[[], Coroutine[Any, Any, None]] | None
    ) -> None:
        """`look_after` is done beside taking over, every few seconds; without it nothing is taken over."""
        self._place = place
        self._driver = driver
        self._act = act
        self._lease: Lease = PostgresLease(place) if "://" in place else FileLease(f"{beside(place)}.locks")
        self._threads = concurrent.futures.ThreadPoolExecutor(1, "workflowlookup-engine")
        """For what blocks; one, because a lease is for one thread at a time."""
        self._chores: list[asyncio.Task[None]] = []
        self._dbos: DBOS | None = None
        self._look_after = look_after

    @property
    def id(self) -> str:
        return self._lease.id

    async def open(self) -> None:
        """Raises `StorageError` when its place cannot be used."""
        global _current  # noqa: PLW0603 - DBOS is one a process, and so is what it calls
        _current = self
        try:
            await self._apart(self._lease.hold)
            await self._apart(self._lease.lock)  # DBOS makes its tables as if nobody else did
            await self._launch()
            await self._apart(self._lease.unlock)
            _spare_what_is_loaded()
        except asyncio.CancelledError:  # the server ends
            await self.close()
            raise
        except Exception as problem:  # broad on purpose: DBOS, SQLAlchemy and drivers raise what they like
            await self.close()
            raise self._unusable(problem) from problem
        self._chores = [asyncio.create_task(self._hold_for_ever()), asyncio.create_task(self._reap_for_ever())]

    def _unusable(self, problem: Exception) -> StorageError:
        where = beside(self._place) if "://" not in self._place else "in the journal's database"
        reason = str(problem).strip().partition("\n")[0]
        told = f"The engine that carries out calls, {where}, cannot be used: {reason}."
        return StorageError(told, details=told)

    async def _launch(self) -> None:
        join_log("dbos")
        dbos = await self._apart(_import)
        config: DBOSConfig = {
            "name": APPLICATION,
            "application_version": VERSION,
            "executor_id": self.id,
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "max_executor_threads": _THREADS,
            "log_level": "WARNING",
            "enable_otlp": False,
        }
        if "://" in self._place:
            config["system_database_url"] = "postgresql" + self._place[self._place.index("://") :]
            config["sys_db_pool_size"] = 2 * _POOL
        else:
            path = beside(self._place)
            config["system_database_url"] = f"sqlite:///{path}"
            config["system_database_engine"] = sqlite_engine(path)
        self._dbos = dbos.DBOS(config=config)
        if not _registered:
            _registered.append(dbos.DBOS.workflow(name="drive", max_recovery_attempts=None)(_drive))
        with _whole_transactions(config.get("system_database_engine")):
            dbos.DBOS.launch()  # here, so that DBOS takes this loop for its own

    # ── driving ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, run_id: str, sequence: int, step_id: str) -> bool:
        """Drive a run from a step that came due at a sequence; whether it is driven here now.

        Doing it twice, here or elsewhere, is doing it once.
        """
        from dbos import DBOS, SetWorkflowID  # noqa: PLC0415 - loaded with the engine

        name = f"{run_id}:{sequence}"
        with SetWorkflowID(name):
            handle = await DBOS.start_workflow_async(_registered[0], run_id, step_id)
        if not _is_elsewhere(handle):
            return True
        status = await handle.get_status()
        if status.status in _ACTIVE and not (self._look_after is None and await self._end_dead(status)):
            return False
        # It ended, and the run did not go on: its process died, or a fault of ours. Another try is another driver.
        with SetWorkflowID(f"{name}:{secrets.token_hex(3)}"):
            return not _is_elsewhere(await DBOS.start_workflow_async(_registered[0], run_id, step_id))

    async def _end_dead(self, status: "WorkflowStatus") -> bool:
        """Whether the driver of a run is dead; it is then ended for good, so that nobody takes it over beside us."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        owner = str(status.executor_id)
        if owner == self.id or status.status != "PENDING":
            return False
        for _ in range(PATIENCE):
            if await self._apart(self._lease.is_dead, owner):
                await DBOS.cancel_workflow_async(status.workflow_id)
                return True
            await asyncio.sleep(_DEAD_SECONDS)
        return False

    async def driven(self) -> set[str]:
        """The runs that have a driver, wherever it is."""
        return {status.workflow_id.partition(":")[0] for status in await self._active()}

    async def forsaken(self, is_driven: Callable[[str], bool]) -> dict[str, str]:
        """Drivers, by the run of each, that are said to be here and are not: the database went away in the moment in
        which they were begun, or while their end was told.
        """
        pending = await self._active(["PENDING"])
        ours = {status.workflow_id: status.workflow_id.partition(":")[0] for status in pending if self._is_ours(status)}
        return {run_id: driver for driver, run_id in ours.items() if not is_driven(run_id)}

    def _is_ours(self, status: Any) -> bool:
        return str(status.executor_id) == self.id

    async def end_driver(self, driver: str) -> None:
        """End a driver for good, so that another can be started in its place."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        await DBOS.cancel_workflow_async(driver)

    async def _active(self, status: list[str] = _ACTIVE) -> list[Any]:
        from dbos import DBOS  # noqa: PLC0415 - as above

        return await DBOS.list_workflows_async(status=status, name="drive", load_input=False, load_output=False)

    async def do(self, run_id: str, step_id: str) -> str:
        """One step, durably: once it is done, it is not done again by whoever takes over."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        done: str = await DBOS.run_step_async({"name": step_id}, self._act, run_id, step_id)
        return done

    # ── looking after others ────────────────────────────────────────────────────────────────────────────────────

    async def _hold_for_ever(self) -> None:
        """Keep the sign of life, whatever else takes how long: without it others take over what is being done here."""
        while True:
            await _tried("keeping the sign of life", self._apart(self._lease.hold))
            await asyncio.sleep(HOLD_SECONDS)

    async def _reap_for_ever(self) -> None:
        """None of what is to be done keeps the rest of it from being done."""
        swept = 0.0
        while True:
            if self._look_after is not None:
                await _tried("taking over from other engines", self._reap())
                await _tried("taking up runs", self._look_after())
            if time.monotonic() - swept > _SWEEP_SECONDS:
                swept = time.monotonic()
                await _tried("forgetting drivers", self.sweep())
            await asyncio.sleep(REAP_SECONDS)

    async def _reap(self) -> None:
        """Take over what dead engines were driving."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        for other in {str(status.executor_id) for status in await self._active(["PENDING"])} - {self.id}:
            if await self._apart(self._lease.is_dead, other):
                recover = DBOS._recover_pending_workflows  # noqa: SLF001 - there is no other way
                taken = await asyncio.to_thread(
                    recover, [other]
                )  # not on the lease's thread: it waits for the database
                await self._apart(self._lease.bury, other)
                log.info("took over %d runs from a process that ended", len(taken))

    async def sweep(self, keep_seconds: float = KEEP_SECONDS) -> int:
        """Forget drivers that are long done; how many they were."""
        from dbos import DBOS  # noqa: PLC0415 - as above

        before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=keep_seconds)
        forgotten = 0
        while True:
            old = await DBOS.list_workflows_async(
                status=["SUCCESS", "ERROR", "CANCELLED"],
                name="drive",
                end_time=before.isoformat(),
                limit=_SWEEP_BATCH,
                load_input=False,
                load_output=False,
            )
            if not old:
                return forgotten
            await DBOS.delete_workflows_async([status.workflow_id for status in old])
            forgotten += len(old)

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Let go of everything; what was being driven can be taken over at once."""
        global _current  # noqa: PLW0603 - as above
        for chore in self._chores:
            chore.cancel()
        if self._chores:
            await asyncio.wait(self._chores)
        if self._dbos is not None:
            drivers = [*self._dbos._workflow_tasks]  # noqa: SLF001 - DBOS has no way to lay work down
            if drivers and grace_seconds:
                await asyncio.wait(drivers, timeout=grace_seconds)
            for task in drivers:
                task.cancel()
            if drivers:
                await asyncio.wait(drivers, timeout=_LAY_DOWN_SECONDS)
            pool = self._dbos._sys_db.engine.pool  # noqa: SLF001 - DBOS leaves connections to the collector
            await self._apart(self._dbos.destroy)
            await self._apart(pool.dispose)
            self._dbos = None
        await self._apart(self._lease.release)
        if _current is self:
            _current = None
        self._threads.shutdown(wait=False)

    async def _apart(self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """What blocks, done on a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


async def _tried(what: str, work: Awaitable[object]) -> None:
    """Do something that is done again soon: the database may be away."""
    try:
        await work
    except Exception as problem:  # noqa: BLE001 - as above
        log.debug("%s failed: %r", what, problem)


async def _drive(run_id: str, step_id: str) -> None:
    """What is registered with DBOS: the engine that is open drives."""
    engine = _current
    if engine is None:
        raise asyncio.CancelledError  # the process is ending

    async def do(step: str) -> str:
        return await engine.do(run_id, step)

    await engine._driver(run_id, step_id, do)  # noqa: SLF001 - of this module


def _is_elsewhere(handle: object) -> bool:
    """Whether DBOS gave a handle to something that it does not run in this process."""
    return type(handle).__name__.endswith("Polling")


@functools.cache
def _spare_what_is_loaded() -> None:
    """Have Python's collector pass over what is there now, once: by now everything is loaded, and it stays.

    To go through a hundred thousand objects takes 60 ms in which no thread of the process does anything, and that now
    and then for as long as it runs.
    """
    gc.freeze()


def _import() -> Any:
    import dbos  # noqa: PLC0415 - a quarter of a second, and only when there is something to drive

    return dbos


def beside(place: str) -> str:
    """Where the engine keeps its own, beside a journal in a file."""
    path = os.path.abspath(os.path.expanduser(place))
    stem, extension = os.path.splitext(path)
    return f"{stem}.engine{extension}"


def sqlite_engine(path: str) -> "sqlalchemy.Engine":
    """A database that is safe and quick: a write-ahead log, synced at each commit, and few connections.

    DBOS would have a rollback journal and twenty. It also counts on `unixepoch('subsec')`, which SQLite has since 3.42.
    """
    import sqlalchemy  # noqa: PLC0415 - loaded with DBOS

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    engine = sqlalchemy.create_engine(
        f"sqlite:///{path}", pool_size=_POOL, max_overflow=0, pool_timeout=60, connect_args={"timeout": 30}
    )

    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 30000", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")
        if connection.execute("SELECT unixepoch('subsec')").fetchone()[0] is None:
            connection.create_function("unixepoch", -1, _unixepoch)

    sqlalchemy.event.listen(engine, "connect", prepare)
    return engine


@contextlib.contextmanager
def _whole_transactions(engine: "sqlalchemy.Engine | None") -> Iterator[None]:
    """Have all of a transaction of SQLite stored, or none: Python's driver stores each table as it is made.

    A process that is killed between two tables of DBOS would leave a database that no other can use.
    """
    if engine is None:
        yield
        return
    from sqlalchemy import event  # noqa: PLC0415 - loaded with DBOS

    def begin(connection: "sqlalchemy.Connection") -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "begin", begin)
    try:
        yield
    finally:
        event.remove(engine, "begin", begin)


def _unixepoch(*_: object) -> float:
    return time.time_ns() // 1_000_000 / 1000
