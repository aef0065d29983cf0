"""A run as it is exchanged: JSON lines, a record each, as `export` writes them and `import` reads them."""

import msgspec

from workflowlookup.runs.events import Event, Record


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A record of a run."""

    run_id: str
    sequence: int
    time: int
    by: str = ""
    event: Event


def as_line(run_id: str, record: Record) -> str:
    line = Line(run_id=run_id, sequence=record.sequence, time=record.time, by=record.by, event=record.event)
    return msgspec.json.encode(line).decode() + "\n"
