"""What it costs to keep a run: `workflow_start` and `workflow_submit` beside bare commits of SQLite, on the same disk.

Two servers take part: one with an empty journal, and one with a journal of many waiting runs, which is written in SQL.
The bare commits have the same pragmas, lie in the same directory and store as many bytes.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from client import Peer, Request, direct_calls

EMPTY: Final = "empty journal"
FILLED: Final = "filled journal"
BARE_COMMITS: Final = "bare commits"
START: Final = "workflow_start"
SUBMIT: Final = "workflow_submit"

STEPS: Final = 52
WORKFLOW: Final[dict[str, Any]] = {
    "id": "measured-run",
    "name": "Measured run",
    "description": "A run to measure what it costs to keep it.",
    "version": "1.0.0",
    "steps": [
        {
            "id": f"step-{number}",
            "title": f"Step {number}",
            "prompt": "Read the code before you propose anything, and note the files that you opened.",
            "validationCriteria": [{"type": "length", "min": 20, "message": "Say more."}],
        }
        for number in range(STEPS)
    ],
}
CALLS: Final = {START: 10, SUBMIT: STEPS - 1}
"""How many there are in a round."""
EVENTS: Final = 100
"""How many records a waiting run has in the filled journal."""
IDLE_SECONDS: Final = 2.0

_COPY_EVENTS: Final = """
    INSERT INTO events (run, sequence, time, who, kind, body)
    SELECT ids.id, sequence, time, who, kind, body FROM events, temp.ids WHERE run = ? ORDER BY 1, 2
"""
_NOT_COPIED: Final = ("id", "hashed", "head")
"""Hashes contain the id of their run; without them, the copies are like runs of an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What was measured of runs."""

    waiting: int
    """How many runs the filled journal has; each has `EVENTS` records."""
    took_us: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]  # tool, contestant, round
    memory_mb: Mapping[str, float]  # journal
    idle_cpu_ms: Mapping[str, float]  # journal; in IDLE_SECONDS


def measure(
    command: Sequence[str], environment: Mapping[str, str], scratch: Path, *, waiting: int, rounds: int
) -> RunFigures:
    """Start and submit, all in turns within a round; then look at the servers while they have nothing to do."""
    places = {EMPTY: scratch / "empty.sqlite", FILLED: scratch / "filled.sqlite"}
    environments = {name: {**environment, "WORKFLOWLOOKUP_JOURNAL": str(place)} for name, place in places.items()}
    with _peer(command, environments[FILLED]) as peer:
        template = _begin(peer)[0]
        _walk(peer, template, EVENTS // 2 - 1)
    sizes = _sizes(places[FILLED], template)
    _fill(places[FILLED], template, waiting)
    took: dict[str, dict[str, list[list[float]]]] = {tool: {} for tool in CALLS}
    with ExitStack() as stack:
        peers = {name: stack.enter_context(_peer(command, environments[name])) for name in places}
        bare = stack.enter_context(closing(_bare(scratch / "bare.sqlite")))
        for number in range(rounds + 1):
            for name in [*peers, BARE_COMMITS][:: 1 if number % 2 else -1]:
                if name == BARE_COMMITS:
                    times_by_tool = {
                        tool: [_commit(bare, sizes[tool]) for _ in range(calls)] for tool, calls in CALLS.items()
                    }
                else:
                    times_by_tool = _calls(peers[name])
                if number:  # the first round only warms up
                    for tool, times in times_by_tool.items():
                        took[tool].setdefault(name, []).append([elapsed * 1e3 for elapsed in times])
    memory, idle = {}, {}
    for name in places:
        with _peer(command, environments[name]) as peer:
            run_id = _begin(peer)[0]
            _walk(peer, run_id, 5)
            peer.ask(direct_calls("workflow_runs", [{"limit": 200}]))
            peer.ask(direct_calls("workflow_runs", [{"state": "waiting", "limit": 200}]))
            memory[name], before = peer.resident_mb(), peer.cpu_ms()
            time.sleep(IDLE_SECONDS)
            idle[name] = peer.cpu_ms() - before
    return RunFigures(waiting=waiting, took_us=took, memory_mb=memory, idle_cpu_ms=idle)


# ── our server ──────────────────────────────────────────────────────────────────────────────────────────────────


def _peer(command: Sequence[str], environment: Mapping[str, str]) -> Peer:
    peer = Peer(command, environment)
    try:
        peer.ready()
    except BaseException:
        peer.close()
        raise
    return peer


def _begin(peer: Peer) -> tuple[str, float]:
    """A new run, and the milliseconds that it took to begin it."""
    reply, elapsed = peer.ask(direct_calls(START, [{"workflowId": WORKFLOW["id"], "context": {"ticket": "T-1"}}]))
    return str(reply["runId"]), elapsed


def _walk(peer: Peer, run_id: str, steps: int) -> list[float]:
    """Submit so many steps of a run; the milliseconds of each."""
    return [peer.ask(call)[1] for call in _submissions(run_id, steps)]


def _submissions(run_id: str, steps: int) -> Iterator[Request]:
    for number in range(steps):
        output = f"Step {number} is done: I read src/module_{number}.py and noted what it needs. " * 2
        yield direct_calls(SUBMIT, [{"runId": run_id, "stepId": f"step-{number}", "output": output}])


def _calls(peer: Peer) -> dict[str, list[float]]:
    """Some starts, and then all steps but the last of the run that was started last."""
    begun = [_begin(peer) for _ in range(CALLS[START])]
    return {START: [elapsed for _, elapsed in begun], SUBMIT: _walk(peer, begun[-1][0], CALLS[SUBMIT])}


# ── journals ────────────────────────────────────────────────────────────────────────────────────────────────────


def _sizes(place: Path, run_id: str) -> dict[str, int]:
    """How many bytes a start and a submission store, without what the database adds to them."""
    with closing(sqlite3.connect(place)) as connection:
        rows = connection.execute(
            "SELECT LENGTH(run) + LENGTH(who) + LENGTH(kind) + LENGTH(body) + 16 FROM events WHERE run = ?"
            " ORDER BY sequence",
            (run_id,),
        ).fetchall()
    sizes = [size for (size,) in rows]
    return {START: sum(sizes[:2]), SUBMIT: sum(sizes[2:]) // (len(sizes[2:]) // 2)}


def _fill(place: Path, run_id: str, number: int) -> None:
    """Copy a run so many times, under ids like those of other runs."""
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(runs)") if name not in _NOT_COPIED]
        connection.execute("BEGIN")
        connection.execute("CREATE TEMP TABLE ids AS SELECT '' AS id, 0 AS number LIMIT 0")
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO temp.ids SELECT lower(hex(randomblob(6))), i FROM n",
            (number,),
        )
        values = ", ".join("started - ids.number" if name == "started" else name for name in columns)
        connection.execute(
            f"INSERT INTO runs (id, {', '.join(columns)})"
            f" SELECT ids.id, {values} FROM runs, temp.ids WHERE runs.id = ?",
            (run_id,),
        )
        connection.execute(_COPY_EVENTS, (run_id,))
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _bare(place: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(place, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE stored (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return connection


def _commit(connection: sqlite3.Connection, size: int) -> float:
    """The milliseconds of one durable commit."""
    body = "x" * size
    start = perf_counter_ns()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO stored (body) VALUES (?)", (body,))
    connection.execute("COMMIT")
    return (perf_counter_ns() - start) / 1e6
