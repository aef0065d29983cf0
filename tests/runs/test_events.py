"""Everything that reads the events of runs says something about each of them.

A new event fails here at every reader that does not know it yet, and the message names the reader.
"""

import ast
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import workflowlookup
from support.json_values import Json, JsonObject
from workflowlookup.console import timeline
from workflowlookup.runs import events, exchange, fold, report
from workflowlookup.runs.events import Event, StepSkipped, kind_of
from workflowlookup.runs.fold import TRANSITIONS
from workflowlookup.store import run_writer

SOURCE = Path(workflowlookup.__file__).parent
EVENTS: tuple[type[Any], ...] = Event.__args__
NAMES = {event.__name__ for event in EVENTS}


def names(*kinds: type) -> set[str]:
    return {kind.__name__ for kind in kinds}


def mentioned(module: str) -> set[str]:
    """The events that the code of a module has a case for."""
    tree = ast.parse((SOURCE / module).read_text())
    return {name_of(node) for node in ast.walk(tree)} & NAMES


def name_of(node: ast.AST | None) -> str:
    """`StepOffered` of `StepOffered` and of `events.StepOffered`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


FIRST = {"Started"}
FOLLOWING = {
    *("StepOffered", "StepSkipped", "LoopEntered", "LoopIterated", "LoopLeft", "Completed"),
    *("ContextAsked", "ContextRestored", "ConfirmationAsked", "CallDue"),
}
"""What no call begins with: it follows from another event."""
NOT_DECISIVE = {
    *("CallBegun", "CallAcknowledged", "CallProgressed", "CallStopped", "ConfirmationDismissed"),
    *("ProofClaimed", "SnapshotTaken"),
    *("Completed", "Failed", "EndUnknown", "Cancelled"),
    *("Paused", "Resumed", "StopBlocked", "StopReleased", "SessionChanged", "ToolRefused"),
}
"""What decides nothing about a step: `why`, the statistics and the durations leave it out."""
BY_THE_SERVER = {
    *("CallBegun", "CallAcknowledged", "CallProgressed", "CallFailed", "CallStopped", "SnapshotTaken", "ProofTaken"),
    *("ProofClaimed", "Failed", "EndUnknown"),
}
"""What no caller does, so that the audit log leaves it out."""
CONTEXT = {"ContextChanged", "ContextRestored", "ContextAsked"}
LOOPS = {"LoopEntered", "LoopIterated", "LoopLeft"}
ASKING = {"ConfirmationAsked", "ConfirmationGiven", "ConfirmationDenied"}

CONSUMERS: dict[str, set[str]] = {
    "TRANSITIONS in runs/fold.py": names(*{kind for allowed in TRANSITIONS.values() for kind in allowed}),
    "_EFFECTS in runs/fold.py": names(*fold._EFFECTS) | FIRST,
    "_DECISIONS in runs/exchange.py (or FOLLOWING here)": names(*exchange._DECISIONS) | FIRST | FOLLOWING,
    "_WORDS in runs/report.py": names(*report._EventWriter._WORDS),
    "_WORDS in console/timeline.py": names(*timeline._WORDS, StepSkipped),
    "runs/advance.py, runs/draft.py, runs/proofs/taking.py or runs/server_calls.py, which bring it about": mentioned(
        "runs/advance.py"
    )
    | mentioned("runs/draft.py")
    | mentioned("runs/proofs/taking.py")
    | mentioned("runs/server_calls.py"),
    # These take an interest in some events; the others are named here, so that nobody forgets to think of them.
    "_from_journal in runs/why.py (or NOT_DECISIVE here)": mentioned("runs/why.py") | NOT_DECISIVE | {"LoopIterated"},
    "runs/statistics.py or runs/proofs/statistics.py (or NOT_DECISIVE here)": mentioned("runs/statistics.py")
    | mentioned("runs/proofs/statistics.py")
    | {"ProofsDue"}
    | NOT_DECISIVE
    | FIRST
    | CONTEXT
    | LOOPS,
    "ACTIONS in store/run_writer.py (or FOLLOWING or BY_THE_SERVER here)": names(*run_writer.ACTIONS)
    | FOLLOWING
    | BY_THE_SERVER,
    "durations in console/run_pages.py (or NOT_DECISIVE here)": mentioned("console/run_pages.py")
    | {"StepSkipped", "CallFailed", "ProofsDue", "ProofTaken"}
    | NOT_DECISIVE
    | FIRST
    | CONTEXT
    | LOOPS
    | ASKING,
}


@pytest.mark.parametrize("reader", CONSUMERS)
def test_every_reader_of_events_knows_every_event(reader: str) -> None:
    unknown = sorted(NAMES - CONSUMERS[reader])

    assert not unknown, f"{reader} says nothing about {', '.join(unknown)}"


def test_every_event_can_be_stored_in_a_journal() -> None:
    defined = {
        name
        for name, value in vars(events).items()
        if isinstance(value, type) and issubclass(value, events._Event) and not name.startswith("_")
    }

    assert defined == NAMES, "Event in runs/events.py lacks one"
    assert len({kind_of(msgspec.convert(sample(kind), kind)) for kind in EVENTS}) == len(EVENTS)


def sample(kind: type[Any]) -> JsonObject:
    fields = msgspec.structs.fields(kind)
    needed = {field.encode_name: field.type for field in fields if field.required}
    tag = {"event": kind.__struct_config__.tag} if kind.__struct_config__.tag else {}
    return tag | {name: sample_value(type_) for name, type_ in needed.items()}


def sample_value(type_: Any) -> Json:
    plain: dict[Any, Json] = {str: "", int: 1, float: 1.0, bool: True}
    if typing.get_origin(type_) is typing.Literal:
        return str(typing.get_args(type_)[0])
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return sample(type_)
    return plain.get(type_, [] if "tuple" in str(type_) else {})


def test_every_module_that_reads_journals_is_listed_here() -> None:
    """So that a new reader is asked about every new event as well."""
    listed = {word for reader in CONSUMERS for word in reader.replace(",", " ").split() if word.endswith(".py")}
    readers = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if goes_through_journals(path)}

    assert len(readers) > 5
    assert readers <= listed, "add it to CONSUMERS"


def goes_through_journals(path: Path) -> bool:
    """Whether a module matches the events of records, or has a table by kind of event."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    matched = [node.subject for node in nodes if isinstance(node, ast.Match)]
    tables = [node.keys for node in nodes if isinstance(node, ast.Dict)]
    return any(isinstance(subject, ast.Attribute) and subject.attr == "event" for subject in matched) or any(
        len([key for key in keys if name_of(key) in NAMES]) > 1 for keys in tables
    )


def test_every_field_that_may_differ_exists() -> None:
    fields = {field for kind in EVENTS for field in kind.__struct_fields__}

    assert fields >= exchange._MAY_DIFFER
