"""Long runs on an event loop that serves others as well: they are folded and read slice by slice, with the turns of
others in between.

What is then made of the records is pure and belongs in a worker thread; the journal stays on the thread of the loop.
"""

import asyncio

from workflowlookup.core.events import Record
from workflowlookup.core.run import Run
from workflowlookup.runs.service import SLICE
from workflowlookup.runs.view import RunsView


async def load_in_slices(runs: RunsView, run_id: str) -> None:
    """Have a run folded, however long it is."""
    while not runs.load(run_id):  # noqa: ASYNC110 - it is not waited for: each call does a part of the work
        await asyncio.sleep(0)


async def read_in_slices(runs: RunsView, run: Run) -> list[Record]:
    """The records that a run was folded from, without those that were added since.

    Raises `RunNotFound` when the run is deleted meanwhile.
    """
    records = runs.history(run.id, limit=min(SLICE, run.sequence))
    while len(records) < run.sequence:
        await asyncio.sleep(0)
        part = runs.history(run.id, len(records), min(SLICE, run.sequence - len(records)))
        if not part or runs.get(run.id).started != run.started:  # another run has its id now
            raise runs.not_found(run.id)
        records += part
    return records
