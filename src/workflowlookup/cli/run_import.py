"""Imports runs that were exported, here or on another machine."""

import msgspec

from workflowlookup.app import make_services
from workflowlookup.cli.input import STANDARD_INPUT
from workflowlookup.cli.output import CommandError, refuse, write, write_json
from workflowlookup.cli.services import user_name
from workflowlookup.errors import InvalidParams, StorageError, WorkflowLookupError
from workflowlookup.language.text import plural
from workflowlookup.logs import audit
from workflowlookup.runs.events import Event, Record, Started
from workflowlookup.runs.exchange import ExportedRecord
from workflowlookup.settings import Settings


def import_runs(data: bytes, path: str, settings: Settings, *, is_json: bool) -> int:
    """Import the runs in the lines of a file, and print what was done. Returns the exit code."""
    exported = _parse(data, path)
    if not exported:
        raise CommandError(f"{path} has no events. `workflowlookup export RUN -o FILE` writes such a file.")
    runs = make_services(settings).runs
    source = "standard input" if path == STANDARD_INPUT else path
    outcome: dict[str, list[str]] = {"imported": [], "unchanged": [], "refused": []}
    for run_id, lines in exported.items():
        try:
            records = [_record(line) for line in lines]
            is_new = runs.import_run(run_id, records, source, lines[0].length)
            outcome["imported" if is_new else "unchanged"].append(run_id)
            if is_new:
                audit("import", by=user_name(), run=run_id, source=source)
        except StorageError:
            raise  # a fault of the journal, not of the run
        except WorkflowLookupError as refusal:
            refuse(refusal)
            outcome["refused"].append(run_id)
    if is_json:
        write_json(outcome)
        return int(bool(outcome["refused"]))
    if outcome["imported"]:
        write(f"Imported {plural(len(outcome['imported']), 'run')}: {', '.join(outcome['imported'])}")
    if outcome["unchanged"]:
        write(f"Imported before: {', '.join(outcome['unchanged'])}")
    return int(bool(outcome["refused"]))


def _parse(data: bytes, path: str) -> dict[str, list[ExportedRecord]]:
    """The lines by run, in the order of the file. Raises `InvalidParams` with the number of a wrong line."""
    decoder = msgspec.json.Decoder(ExportedRecord)
    lines: dict[str, list[ExportedRecord]] = {}
    for number, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            message = f"{path}, line {number}: {str(problem).rstrip('.')}. Each line must be an event from `export`"
            raise InvalidParams(message) from None
        lines.setdefault(line.run_id, []).append(line)
    return lines


def _record(line: ExportedRecord) -> Record:
    return Record(sequence=line.sequence, time=line.time, by=line.by, event=_compact(line.event), hash=line.hash)


def _compact(event: Event) -> Event:
    """The event with its document in compact JSON, even if another program has reformatted the file."""
    if not isinstance(event, Started):
        return event
    document = msgspec.json.encode(msgspec.json.decode(event.document))
    return msgspec.structs.replace(event, document=msgspec.Raw(document))
