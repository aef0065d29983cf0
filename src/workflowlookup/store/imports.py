"""What is refused of a run that comes from elsewhere: records that no live run could have.

Everything that reads runs relies on sound documents and on times that a calendar has; `core.replay` sees to the rest.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.document import is_valid_document
from workflowlookup.runs.events import Record, Started
from workflowlookup.runs.exchange import replay
from workflowlookup.runs.run import Run, hash_of
from workflowlookup.trust import IMPORTED

RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LATEST: Final = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds."""
MAX_AHEAD: Final = 86_400_000
"""How many milliseconds the clock of a machine that runs are imported from may be ahead."""


def read_foreign(run_id: str, records: Sequence[Record]) -> Run:
    """The run that the records come to. Raises `InvalidParams` with what is wrong."""
    if RUN_ID.fullmatch(run_id) is None:
        raise InvalidParams(f"'{run_id}' is no id of a run")
    started = records[0].event if records else None
    if not isinstance(started, Started):
        raise InvalidParams(f"run '{run_id}' does not begin with its start")
    document = bytes(started.document)
    if hash_of(document) != started.hash or not is_valid_document(msgspec.json.decode(document)):
        raise InvalidParams(f"the document of run '{run_id}' is not what it was when the run was started")
    time = 0
    for record in records:
        if not time <= record.time <= LATEST:
            raise InvalidParams(f"event {record.sequence} of run '{run_id}' has a time that cannot be")
        time = record.time
    return replay(run_id, records)


def refuse_future(run_id: str, records: Sequence[Record], now: int) -> None:
    """Raises `InvalidParams` for a run with an event in the future."""
    late = next((record for record in records if record.time > now + MAX_AHEAD), None)
    if late is not None:
        raise InvalidParams(
            f"event {late.sequence} of run '{run_id}' has a time that cannot be: it is in the future. If the clock "
            "of the machine that it comes from was wrong, import it when that time has come"
        )


def as_imported(records: Sequence[Record], source: str) -> list[Record]:
    """Records from elsewhere. Whatever they say of where their document is from and of what a person confirmed, nobody
    here has seen it: so no file that is trusted here counts for them.
    """
    if not records or not isinstance(started := records[0].event, Started):
        return list(records)
    event = msgspec.structs.replace(started, origin=IMPORTED, imported_from=source)
    return [msgspec.structs.replace(records[0], event=event), *records[1:]]
