"""Checks runs from other journals before they are imported.

All code that reads runs relies on valid documents and on times that a calendar can show; `exchange.replay` checks that
the events could have happened.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.document.checking import is_valid_document
from workflowlookup.runs.events import ProofTaken, Record, Started
from workflowlookup.runs.exchange import replay
from workflowlookup.runs.run import Run
from workflowlookup.runs.run_document import hash_of
from workflowlookup.trust import IMPORTED

FOREIGN: Final = "another journal"
"""The witness of a proof of an imported run."""
RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_TIME: Final = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds."""
MAX_CLOCK_AHEAD: Final = 86_400_000
"""By how many milliseconds the clock of the exporting machine may be ahead."""


def check_import(run_id: str, records: Sequence[Record]) -> Run:
    """The run that the records fold to. Raises `InvalidParams` when they are not a valid run."""
    if RUN_ID.fullmatch(run_id) is None:
        raise InvalidParams(f"'{run_id}' is not a valid run id")
    started = records[0].event if records else None
    if not isinstance(started, Started):
        raise InvalidParams(f"run '{run_id}' does not begin with its start")
    document = bytes(started.document)
    if hash_of(document) != started.hash or not is_valid_document(msgspec.json.decode(document)):
        raise InvalidParams(f"the document of run '{run_id}' is not what it was when the run was started")
    time = 0
    for record in records:
        if not time <= record.time <= MAX_TIME:
            raise InvalidParams(f"event {record.sequence} of run '{run_id}' has an impossible time")
        time = record.time
    return replay(run_id, records)


def refuse_future(run_id: str, records: Sequence[Record], now: int) -> None:
    """Raises `InvalidParams` for a run with an event in the future."""
    late = next((record for record in records if record.time > now + MAX_CLOCK_AHEAD), None)
    if late is not None:
        raise InvalidParams(
            f"event {late.sequence} of run '{run_id}' has an impossible time: it is in the future. If the clock of the "
            "exporting machine was wrong, import the run once that time has passed"
        )


def as_imported(records: Sequence[Record], source: str) -> list[Record]:
    """The records, marked as imported. What they say about the origin of their document cannot be verified here, so no
    trust that was given on this machine applies to them; neither can their proofs, or whether their root is here. They
    start a chain of their own, which includes the last hash of the original.
    """
    head = records[-1].hash if records else ""
    return _with_source(records, origin=IMPORTED, imported_from=source, imported_head=head)


def without_source(records: Sequence[Record]) -> list[Record]:
    """The records without what differs between a run and its import."""
    return _with_source(records, origin=IMPORTED, imported_from="", imported_head="")


def _with_source(records: Sequence[Record], **changes: str) -> list[Record]:
    plain = [_with_foreign_proof(msgspec.structs.replace(record, hash="")) for record in records]
    if plain and isinstance(started := plain[0].event, Started):
        event = msgspec.structs.replace(started, root="", machine="", **changes)
        plain[0] = msgspec.structs.replace(plain[0], event=event)
    return plain


def _with_foreign_proof(record: Record) -> Record:
    """The record; a proof says that it was taken elsewhere."""
    event = record.event
    if not isinstance(event, ProofTaken) or event.judgement.witness.startswith(FOREIGN):
        return record
    witness = f"{FOREIGN}: {event.judgement.witness}" if event.judgement.witness else FOREIGN
    judgement = msgspec.structs.replace(event.judgement, witness=witness)
    return msgspec.structs.replace(record, event=msgspec.structs.replace(event, judgement=judgement))
