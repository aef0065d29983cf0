"""Reading a run of 100,000 events with its chain of hashes verified, beside the computation of the hashes alone."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from workflowlookup.language.document.building import build
from workflowlookup.runs import advance
from workflowlookup.runs.chain import event_hash
from workflowlookup.runs.draft import Moment
from workflowlookup.store.journal import summarise
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

EVENTS: Final = 100_000
READ: Final = "read and verified"
HASHES: Final = "hashes alone"
_RUN: Final = "measured"
_LOOP: Final = {"type": "for", "count": 1_000, "maxIterations": 1_000}
_STEP: Final = {"id": "work", "title": "Work", "prompt": "Do it, and say what you did."}
_INNER: Final = {"id": "inner", "type": "loop", "title": "Inner", "loop": _LOOP, "body": [_STEP]}
_WORKFLOW: Final = {
    "id": "measured-chain",
    "name": "Measured chain",
    "description": "A run to measure what it costs to verify it.",
    "version": "1.0.0",
    "steps": [{"id": "outer", "type": "loop", "title": "Outer", "loop": _LOOP, "body": [_INNER]}],
}


def measure(scratch: Path, rounds: int) -> Mapping[str, Sequence[float]]:
    """Milliseconds of processor time, for each round."""
    path = str(scratch / "chain.sqlite")
    _write(path)
    took: dict[str, list[float]] = {READ: [], HASHES: []}
    for number in range(rounds + 1):
        read, hashes = _read(path), _hash(path)
        if number:  # the first round only warms up
            took[READ].append(read)
            took[HASHES].append(hashes)
    return took


def _write(path: str) -> None:
    draft = advance.begin(_RUN, build(_WORKFLOW), {}, {}, Moment(time=1))
    records = list(draft.records)
    while len(records) < EVENTS:
        output = f"I read src/module_{len(records)}.py and noted what it needs. " * 2
        draft = advance.submit(draft.run, draft.run.current, output, {}, Moment(time=2, by="bench"))
        records += draft.records
    with closing(SqliteJournal(path)) as journal:
        journal.append(_RUN, 0, records, summarise(draft.run))


def _read(path: str) -> float:
    with closing(Runs(SqliteJournal(path))) as runs:
        start = time.process_time_ns()
        assert runs.get(_RUN).head
        return (time.process_time_ns() - start) / 1e6


def _hash(path: str) -> float:
    with closing(SqliteJournal(path)) as journal:
        rows = journal.query("SELECT sequence, time, who, body, hash FROM events ORDER BY sequence")
    head = ""
    start = time.process_time_ns()
    for sequence, at, by, body, _ in rows:
        head = event_hash(head, _RUN, sequence, at, by, body)
    elapsed = (time.process_time_ns() - start) / 1e6
    assert head == rows[-1][-1]
    return elapsed
