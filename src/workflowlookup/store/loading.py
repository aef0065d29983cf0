"""Reads long runs on an event loop: in slices, so that other requests are served in between.

Pages and resources get excerpts of long outputs, which bounds the memory that a run takes. Rendering the records is
pure and belongs in a worker thread; the journal stays on the thread of the loop.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Iterable
from typing import Final

import msgspec

from workflowlookup.errors import RunStateError
from workflowlookup.language.text import Excerpt
from workflowlookup.runs.events import OutputAccepted, OutputRefused, ProofsDue, Record
from workflowlookup.runs.report import MAX_OUTPUT
from workflowlookup.runs.run import Run
from workflowlookup.store.run_cache import SLICE
from workflowlookup.store.runs_view import RunsView

LONG_EXCERPTS_BYTES: Final = 8 << 20
"""Until the records have so many bytes, excerpts have `MAX_OUTPUT` characters; after that `SHORT_EXCERPT`."""
SHORT_EXCERPT: Final = 4_000
MAX_BYTES: Final = 32 << 20
"""Of all records of a run with their excerpts; a larger run cannot be shown."""

_readers: Final[weakref.WeakValueDictionary[str, asyncio.Lock]] = weakref.WeakValueDictionary()


class Excerpts:
    """The records of a run, with excerpts of long outputs."""

    def __init__(self, run_id: str) -> None:
        self.records: list[Record] = []
        self._run_id = run_id
        self._bytes = 0

    def add(self, records: Iterable[Record]) -> None:
        """Raises `RunStateError` when the run is too long even with excerpts."""
        for record in records:
            short = _shortened(record, MAX_OUTPUT if self._bytes < LONG_EXCERPTS_BYTES else SHORT_EXCERPT)
            self._bytes += len(msgspec.json.encode(short.event, enc_hook=str))
            if self._bytes > MAX_BYTES:
                message = (
                    f"The run '{self._run_id}' is too long to be shown: its records have more than {MAX_BYTES:,} bytes "
                    f"without its long outputs. `workflowlookup export {self._run_id}` writes all of them."
                )
                raise RunStateError(message, runId=self._run_id)
            self.records.append(short)


def _shortened(record: Record, limit: int) -> Record:
    event = record.event
    if not isinstance(event, OutputAccepted | OutputRefused | ProofsDue):
        return record
    changes: dict[str, str] = {}
    if len(event.output) > limit:
        changes["output"] = Excerpt.of(event.output, limit)
    if isinstance(event, OutputAccepted) and len(event.value) > limit:
        changes["value"] = Excerpt.of(event.value, limit)
    return msgspec.structs.replace(record, event=msgspec.structs.replace(event, **changes)) if changes else record


def read_excerpts(runs: RunsView, run_id: str, after: int = 0) -> list[Record]:
    """The records of a run after a sequence, with excerpts of long outputs; none when there is no such run.

    Raises `RunStateError` when the run is too long.
    """
    excerpts = Excerpts(run_id)
    while records := runs.records(run_id, after):
        excerpts.add(records)
        after = records[-1].sequence
    return excerpts.records


async def load_in_slices(runs: RunsView, run_id: str) -> None:
    """Fold a run of any length into the cache."""
    while not runs.load_slice(run_id):  # noqa: ASYNC110 - this does not poll: each call folds a slice
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def reading(caller: str) -> AsyncIterator[None]:
    """A context in which the records of a run are in memory. Each caller has one at a time."""
    async with _readers.setdefault(caller, asyncio.Lock()):
        yield


async def slices_of(runs: RunsView, run: Run) -> AsyncIterator[list[Record]]:
    """The records that a run was folded from, in slices.

    Raises `RunNotFound` when the run is deleted meanwhile.
    """
    after = 0
    while after < run.sequence:
        records = runs.history(run.id, after, min(SLICE, run.sequence - after))
        if not records or runs.get(run.id).started != run.started:  # another run has this id now
            raise runs.not_found(run.id)
        yield records
        after = records[-1].sequence
        await asyncio.sleep(0)


async def read_in_slices(runs: RunsView, run: Run) -> list[Record]:
    """The records of `slices_of` with excerpts of long outputs. Call it within `reading`.

    Raises `RunNotFound`, and `RunStateError` when the run is too long.
    """
    excerpts = Excerpts(run.id)
    async for records in slices_of(runs, run):
        excerpts.add(records)
    return excerpts.records
