"""A journal on a full disk can be purged, and one that may not be written can be read."""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.client import Start
from support.command_line import BOUND, Cli
from support.make import document, step
from support.mounts import NAMESPACE, may_mount
from workflowlookup.language.document.building import build
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

WORKFLOW = build(document(step("only"), identifier="work"))
as_bound = pytest.mark.skipif(
    os.geteuid() == 0 and sys.platform != "linux", reason="root is not bound by permissions, and cannot be here"
)
READS = [
    ("runs",),
    ("runs", "--state", "waiting"),
    ("run", "show", "open"),
    ("why", "open"),
    ("export", "open"),
    ("stats",),
    ("token", "list", "--json"),
]
WRITES = [("cancel", "open"), ("purge", "--older-than", "0m", "--yes"), ("token", "create", "a")]


@pytest.fixture
def journal(cli: Cli) -> Path:
    """A journal with 60 finished runs, one that is open and one whose time is over."""
    path = cli.directory / "data" / "runs.sqlite"
    runs = Runs(SqliteJournal(str(path)))
    for number in range(60):
        run = runs.start(WORKFLOW, {}, {}, run_id=f"finished-{number:02}")
        runs.submit(run.id, "only", "x" * 6_000, {})
    runs.start(WORKFLOW, {}, {}, run_id="open")
    runs.start(WORKFLOW, {}, {}, run_id="late", timeout=0.001)
    runs.close()
    time.sleep(0.01)
    return path


def in_namespace(cli: Cli, script: str) -> str:
    """The output of a script that has mounts of its own."""
    done = subprocess.run(
        [*NAMESPACE, "sh", "-ec", script],
        capture_output=True,
        text=True,
        cwd=cli.directory,
        env=cli._environment() | {"PY": sys.executable, "WL": f"{sys.executable} -m workflowlookup"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SMALL_DISK = """
mkdir disk && mount -t tmpfs -o size=12m tmpfs disk && cp data/runs.sqlite{reserve} disk/
export WORKFLOWLOOKUP_JOURNAL=$PWD/disk/runs.sqlite
"""
FILL = """
dd if=/dev/zero of=disk/filler bs=1k 2> /dev/null || true
test "$(df --output=avail disk | tail -1)" -eq 0
"""
RESERVE = " data/runs.sqlite.reserve"


@may_mount
@pytest.mark.parametrize("reserve", [RESERVE, ""], ids=["with a reserve", "of an older version"])
def test_purge_works_on_a_full_disk(cli: Cli, journal: Path, reserve: str) -> None:
    out = in_namespace(
        cli,
        SMALL_DISK.format(reserve=reserve)
        + FILL
        + """
        $WL runs --state waiting | grep -c '^open '
        $WL purge --older-than 0m --yes | tail -1
        $PY -c "import sqlite3; print(*sqlite3.connect('disk/runs.sqlite').execute('PRAGMA integrity_check').fetchone())"
        $WL runs --json
        """,
    )

    seen, forgotten, whole, listed = out.split("\n", 3)
    assert (seen, forgotten, whole) == ("1", "Deleted 60 runs.", "ok")
    assert {run["runId"] for run in json.loads(listed)["runs"]} == {"open", "late"}


HOLDING = """
import subprocess, sys
from workflowlookup.errors import StorageError
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

runs = Runs(SqliteJournal("disk/runs.sqlite"))
workflow = runs.get("open").workflow
runs.start(workflow, {}, {}, run_id="before")
with open("disk/filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(1024)):
            pass
    except OSError:
        pass
try:
    for number in range(1_000):
        runs.start(workflow, {}, {"x": "y" * 10_000})
except StorageError as refusal:
    print(type(refusal).__name__)
purge = [sys.executable, "-m", "workflowlookup", "purge", "--older-than", "0m", "--yes"]
print(subprocess.run(purge, capture_output=True, text=True).stdout.splitlines()[-1])
print(runs.start(workflow, {}, {}, run_id="after").state)
"""


@may_mount
def test_purge_works_on_a_full_disk_while_another_process_has_the_journal_open(cli: Cli, journal: Path) -> None:
    (cli.directory / "holding.py").write_text(HOLDING)

    out = in_namespace(cli, SMALL_DISK.format(reserve=RESERVE) + "$PY holding.py")

    assert out.splitlines() == ["NoRoom", "Deleted 60 runs.", "waiting"]


LOGGED = """
import os, signal, subprocess, sys
from workflowlookup.language.document.building import build
from workflowlookup.errors import StorageError
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

runs = Runs(SqliteJournal("disk/runs.sqlite"))
workflow = runs.get("open").workflow
runs.journal.query("PRAGMA wal_checkpoint(TRUNCATE)")
for number in range(80):
    runs.start(workflow, {}, {"x": "y" * 10_000})
with open("disk/filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(1024)):
            pass
    except OSError:
        pass
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
purge = [sys.executable, "-m", "workflowlookup", "purge", "--older-than", "0m", "--yes"]
print(subprocess.run(purge, capture_output=True, text=True).stdout.splitlines()[-1])
"""


@may_mount
@pytest.mark.parametrize("end", ["killed", "open"])
def test_purge_works_on_a_full_disk_with_new_pages_in_the_log(cli: Cli, journal: Path, end: str) -> None:
    (cli.directory / "logged.py").write_text(LOGGED)
    then = "" if end == "open" else "$WL purge --older-than 0m --yes | tail -1"

    out = in_namespace(cli, SMALL_DISK.format(reserve=RESERVE) + f"$PY logged.py {end} || true\n{then}")

    assert out.splitlines() == ["Deleted 60 runs."]


@may_mount
def test_purge_without_a_reserve_says_how_much_room_the_log_needs(cli: Cli, journal: Path) -> None:
    (cli.directory / "logged.py").write_text(LOGGED.replace("range(80)", "range(60)"))
    purge = "$WL purge --older-than 0m --yes"

    out = in_namespace(
        cli,
        SMALL_DISK.format(reserve="")
        + f"""
        $PY logged.py killed || true
        {purge} 2>&1 > /dev/null | sed 's/.*cannot be used: //'
        truncate -s -5M disk/filler
        {purge} | tail -1
        """,
    )

    refusal, forgotten = out.splitlines()
    assert re.fullmatch(
        r"its disk is full, and its write-ahead log \([0-9],[0-9]{3} KiB\) must be written into it before any purge\. "
        r"Make that much room on its disk, and purge again; no run is lost\.",
        refusal,
    )
    assert forgotten == "Deleted 60 runs."


@may_mount
def test_purge_without_a_reserve_says_that_another_process_has_the_journal_open(cli: Cli, journal: Path) -> None:
    (cli.directory / "holding.py").write_text(HOLDING.replace(".stdout.splitlines()[-1]", ".stderr"))

    out = in_namespace(cli, SMALL_DISK.format(reserve="") + "$PY holding.py 2>&1 || true")

    assert "its disk is full, and another process has it open. Make room on its disk; or stop the servers" in out


@may_mount
def test_a_full_disk_is_named_by_doctor(cli: Cli, journal: Path) -> None:
    out = in_namespace(cli, SMALL_DISK.format(reserve="") + FILL + "$WL doctor --json || true")

    (problem,) = json.loads(out)["problems"]
    assert "has room" in problem["problem"] or "Make room" in problem["problem"]


# ── read-only ───────────────────────────────────────────────────────────────────────────────────────────────────


def lock_file(journal: Path) -> None:
    os.chmod(journal, 0o400)


def lock_directory(journal: Path) -> None:
    os.chmod(journal.parent, 0o500)


@as_bound
@pytest.mark.parametrize("lock", [lock_file, lock_directory])
@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_read_only_journal_is_read_and_not_changed(
    cli: Cli, journal: Path, lock: Callable[..., None], words: tuple[str, ...]
) -> None:
    before = journal.read_bytes(), sorted(os.listdir(journal.parent))
    lock(journal)

    done = cli(*words, "--journal", str(journal), program=BOUND)

    os.chmod(journal.parent, 0o700)
    assert done.returncode == 0, done.stderr
    assert "open" in done.stdout or words[0] in ("stats", "token")
    assert (journal.read_bytes(), sorted(os.listdir(journal.parent))) == before


@as_bound
@pytest.mark.parametrize("lock", [lock_file, lock_directory])
@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_writes_to_a_read_only_journal_are_refused_with_a_remedy(
    cli: Cli, journal: Path, lock: Callable[..., None], words: tuple[str, ...]
) -> None:
    lock(journal)

    done = cli(*words, "--journal", str(journal), program=BOUND)

    os.chmod(journal.parent, 0o700)
    assert done.returncode == 1
    assert "Make the file and its directory writable" in done.stderr


@as_bound
@pytest.mark.parametrize("words", [*READS, ("db", "check"), ("doctor",)], ids=" ".join)
def test_a_journal_in_an_inaccessible_directory_is_not_treated_as_missing(
    cli: Cli, journal: Path, words: tuple[str, ...]
) -> None:
    os.chmod(journal.parent, 0o600)

    done = cli(*words, "--journal", str(journal), program=BOUND)

    os.chmod(journal.parent, 0o700)
    assert done.returncode == 1
    assert f"{journal}, cannot be used: Permission denied" in done.stdout + done.stderr


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_log_without_its_journal_is_not_treated_as_empty(cli: Cli, journal: Path, words: tuple[str, ...]) -> None:
    runs = Runs(SqliteJournal(str(journal)))
    runs.start(WORKFLOW, {}, {}, run_id="logged")
    log = journal.with_name("runs.sqlite-wal")
    written = log.read_bytes()
    runs.close()
    journal.unlink()
    log.write_bytes(written)

    done = cli(*words, "--journal", str(journal))

    assert done.returncode == 1
    assert "it was damaged (the file is empty, and its write-ahead log is not)" in done.stderr


@as_bound
def test_a_server_reads_a_read_only_journal_and_writes_when_it_is_writable(
    journal: Path, start: Start, library: Path
) -> None:
    os.chmod(journal, 0o400)
    server = start(directory=library, program=BOUND, WORKFLOWLOOKUP_JOURNAL=str(journal))

    assert server.result("workflow_status", {"runId": "open"})["state"] == "waiting"
    assert server.result("workflow_status", {"runId": "late"})["state"] == "waiting", "its end cannot be stored"
    assert len(server.result("workflow_runs", {"limit": 200})["runs"]) == 62
    submit = ("workflow_submit", {"runId": "open", "stepId": "only", "output": "done"})
    refused = server.error(*submit)
    assert refused["code"] == -32006
    assert "it is read-only. Make the file and its directory writable" in refused["data"]["details"]
    os.chmod(journal, 0o600)

    assert server.result(*submit)["state"] == "completed"


@may_mount
def test_a_journal_on_a_read_only_disk_is_read(cli: Cli, journal: Path) -> None:
    out = in_namespace(
        cli,
        """
        mount --bind data data && mount -o remount,bind,ro data
        export WORKFLOWLOOKUP_JOURNAL=$PWD/data/runs.sqlite
        $WL runs --limit 200 | grep -c work && $WL run show open && ($WL cancel open || true) 2>&1
        """,
    )

    counted, *shown, refused = out.strip().splitlines()
    assert counted == "62"
    assert "Run `open` of `work`" in "\n".join(shown)
    assert "it is read-only. Make the file and its directory writable" in refused


LEAVING_A_LOG = """
import os, sys
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

runs = Runs(SqliteJournal(sys.argv[1]))
runs.start(runs.get("open").workflow, {}, {}, run_id="logged")
os._exit(0)
"""


@as_bound
def test_the_write_ahead_log_of_a_killed_process_is_read(cli: Cli, journal: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVING_A_LOG, str(journal)], check=True)
    assert (journal.parent / "runs.sqlite-wal").stat().st_size
    os.chmod(journal, 0o400)

    done = cli("run", "show", "logged", "--journal", str(journal), program=BOUND)

    assert (done.returncode, "Run `logged` of `work`" in done.stdout) == (0, True), done.stderr
    with contextlib.closing(sqlite3.connect(journal)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM runs WHERE id = 'logged'").fetchone() == (1,)
