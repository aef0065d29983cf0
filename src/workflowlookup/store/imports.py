"""What is refused of a run that comes from elsewhere: records that no live run could have.

Everything that reads runs relies on sound documents and on times that a calendar has; `core.replay` sees to the rest.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.document import is_sound
from workflowlookup.runs.events import Record, Started
from workflowlookup.runs.exchange import replay
from workflowlookup.runs.run import Run, hash_of

RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LATEST: Final = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds."""


def read_foreign(run_id: str, records: Sequence[Record]) -> Run:
    """The run that the records come to. Raises `InvalidParams` with what is wrong."""
    if RUN_ID.fullmatch(run_id) is None:
        raise InvalidParams(f"'{run_id}' is no id of a run")
    started = records[0].event if records else None
    if not isinstance(started, Started):
        raise InvalidParams(f"run '{run_id}' does not begin with its start")
    document = bytes(started.document)
    if hash_of(document) != started.hash or not is_sound(msgspec.json.decode(document)):
        raise InvalidParams(f"the document of run '{run_id}' is not what it was when the run was started")
    time = 0
    for record in records:
        if not time <= record.time <= LATEST:
            raise InvalidParams(f"event {record.sequence} of run '{run_id}' has a time that cannot be")
        time = record.time
    return replay(run_id, records)
