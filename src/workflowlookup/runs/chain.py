"""The hash chain of a run: each event is hashed together with the hash of the event before it.

The hash of event n is SHA-256 over the JSON array `[hash of n - 1, run id, n, time, by, body]`, where the body is the
text of the event as the journal stores it, and the hash before the first event is the empty text. So an event that was
edited, removed, reordered, inserted or moved to another run changes every hash after it. The journal computes and
compares the hashes; docs/decisions/0028 says what a chain shows and what it does not.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from workflowlookup.runs.events import NO_DOCUMENT, Event, Record, Started

_encode: Final = msgspec.json.Encoder().encode
_sha256: Final = hashlib.sha256


def body_of(event: Event) -> str:
    """The event as a journal stores it; the document is stored separately, and `Started` has its hash."""
    if isinstance(event, Started):
        event = msgspec.structs.replace(event, document=NO_DOCUMENT)
    return _encode(event).decode()


def event_hash(previous: str, run_id: str, sequence: int, time: int, by: str, body: str) -> str:  # noqa: PLR0913, PLR0917 - what is hashed
    """The hash of an event after the event with the hash `previous`, which is empty for the first."""
    return _sha256(_encode((previous, run_id, sequence, time, by, body))).hexdigest()


def with_hashes(run_id: str, records: Iterable[Record], head: str = "") -> Iterator[Record]:
    """The records with their hashes. `head`: the hash of the record before them."""
    for record in records:
        head = event_hash(head, run_id, record.sequence, record.time, record.by, body_of(record.event))
        yield msgspec.structs.replace(record, hash=head)
