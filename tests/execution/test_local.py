"""What is special about the engine for a journal in a file: locks that end with their process, and nothing to load."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflowlookup.errors import StorageError
from workflowlookup.execution.engine import ConcurrencyLimits, Slot
from workflowlookup.execution.local import LocalEngine, RunLocks

DRIVE = """
import asyncio, sys
from workflowlookup.execution.engine import ConcurrencyLimits
from workflowlookup.execution.engine import engine_of

async def main():
    is_driven = asyncio.Event()
    async def drive(run_id, slot):
        is_driven.set()
    engine = engine_of(sys.argv[1]).make(sys.argv[1], drive, ConcurrencyLimits(1), False)
    await engine.open()
    await engine.start("run", 3)
    await is_driven.wait()
    await engine.close()

asyncio.run(main())
print(*sys.modules)
"""


def in_another_process(path: Path | str, what: str) -> str:
    """What comes of an expression over the locks of another process."""
    script = (
        f"from workflowlookup.execution.local import RunLocks\nlocks = RunLocks({str(path)!r})\nlocks.open()\n"
        f"print({what})\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[RunLocks]:
    made = RunLocks(str(tmp_path / "runs.sqlite.drivers"))
    made.open()
    yield made
    made.close()


def test_no_database_and_no_library_for_one_is_needed(sqlite_journal: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVE, sqlite_journal], capture_output=True, text=True, check=True, timeout=60
    )

    assert not {"dbos", "sqlalchemy", "sqlite3", "psycopg"} & set(done.stdout.split())
    assert os.listdir(os.path.dirname(sqlite_journal)) == ["runs.sqlite.drivers"]


def test_the_file_of_the_locks_is_private_and_empty(locks: RunLocks, tmp_path: Path) -> None:
    locks.acquire("run")

    status = (tmp_path / "runs.sqlite.drivers").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, 0)


def test_the_lock_of_a_run_excludes_others_and_only_for_that_run(locks: RunLocks, tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite.drivers"
    assert locks.acquire("one")

    assert in_another_process(path, "locks.acquire('one'), locks.acquire('two')") == "False True"
    locks.release("one")
    assert in_another_process(path, "locks.acquire('one')") == "True"


def test_a_child_does_not_keep_the_locks_of_a_process_that_ended(locks: RunLocks, tmp_path: Path) -> None:
    """An MCP server that we started may outlive us."""
    script = (
        f"import subprocess, os\nfrom workflowlookup.execution.local import RunLocks\n"
        f"locks = RunLocks({str(tmp_path / 'runs.sqlite.drivers')!r})\nlocks.open()\nassert locks.acquire('run')\n"
        "quiet = subprocess.DEVNULL\n"
        "print(subprocess.Popen(['sleep', '60'], stdout=quiet, stderr=quiet).pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout
    try:
        assert locks.acquire("run")
    finally:
        os.kill(int(child), 9)


def test_a_process_drives_the_runs_of_a_journal_once(sqlite_journal: str) -> None:
    async def drive(run_id: str, slot: Slot) -> None:
        """Nothing is driven."""

    async def both() -> None:
        first, second = (
            LocalEngine(sqlite_journal, drive, ConcurrencyLimits(1)),
            LocalEngine(sqlite_journal, drive, ConcurrencyLimits(1)),
        )
        await first.open()
        with pytest.raises(StorageError, match="this process drives its runs already"):
            await second.open()
        await first.close()
        await second.open()
        await second.close()

    asyncio.run(both())


def test_the_names_of_a_journal_have_the_same_locks(tmp_path: Path) -> None:
    """By whatever name, it is one journal."""
    real, link = tmp_path / "runs.sqlite", tmp_path / "link.sqlite"
    real.touch()
    link.symlink_to(real)
    is_driven = threading.Event()

    async def drive(run_id: str, slot: Slot) -> None:
        is_driven.set()
        await asyncio.Event().wait()

    async def hold() -> str:
        engine = LocalEngine(str(link), drive, ConcurrencyLimits(1))
        await engine.open()
        await engine.start("run", 3)
        taken = await asyncio.to_thread(in_another_process, f"{real}.drivers", "locks.acquire('run')")
        await engine.close()
        return taken

    assert asyncio.run(hold()) == "False"
    assert is_driven.is_set()
