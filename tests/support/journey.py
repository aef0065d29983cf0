"""A journey through a workflow that has everything, for tests that break it on the way: its calls, and its journal.

The calls can be sent again and again: what was stored before is answered as before.
"""

import os

import msgspec
import pytest

from support.client import Server
from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.runs.events import ConfirmationAsked, ConfirmationDenied, ConfirmationGiven, Event, Record
from workflowlookup.runs.fold import fold
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import Journal, RunQuery, RunSummary, summarise
from workflowlookup.store.journal_url import JournalUrl

IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"


def mostly_on(store: str) -> pytest.MarkDecorator:
    """The kind of the journal, for the fixture `journal_url`: both where there is time for it."""
    return pytest.mark.parametrize("journal_url", ["sqlite", "postgres"] if IS_SOAK else [store], indirect=True)


"""Whether there is time for the full figures; else a few of each kind must do."""

RUN = "the-run"
FLOW = document(
    step("plan", validationCriteria=[{"type": "length", "min": 5, "message": "Too short."}]),
    step("enlarge", runCondition={"var": "size", "equals": "large"}),
    loop("each-file", [step("review", prompt="Review {{file}}.")], type="forEach", items="files", itemVar="file"),
    step("release", requireConfirmation=True),
    step("close"),
    identifier="everything",
)
TWO_WAYS = ["completed", "cancelled"]


def start(run_id: str = RUN, workflow_id: str = "everything", **context: Json) -> tuple[str, JsonObject]:
    return "workflow_start", {"workflowId": workflow_id, "runId": run_id, "context": context}


def submit(step_id: str, output: str, run_id: str = RUN, **context: Json) -> tuple[str, JsonObject]:
    return "workflow_submit", {"runId": run_id, "stepId": step_id, "output": output, "context": context}


def relay(step_id: str, confirmed: bool, note: str) -> tuple[str, JsonObject]:
    return "workflow_submit", {"runId": RUN, "stepId": step_id, "confirmed": confirmed, "note": note}


def calls(end: str) -> list[tuple[str, JsonObject]]:
    """Refusals, a skip, a loop, changes of the context, a person who denies and one who agrees; and an end."""
    last = submit("close", "closed") if end == "completed" else ("workflow_cancel", {"runId": RUN, "reason": "enough"})
    return [
        start(size="small"),
        submit("plan", "no"),
        submit("plan", "a long plan", files=["a.py", "b.py"]),
        submit("review@1", "looks good", seen=1),
        submit("review@2", "looks bad"),
        submit("release", "out of the door"),
        relay("release", confirmed=False, note="not on a Friday"),
        submit("release", "out of the door on Monday", day="Monday"),
        relay("release", confirmed=True, note="go"),
        last,
    ]


def call(server: Server, tool: str, arguments: JsonObject) -> JsonObject:
    """What the server says, by the tool's own name: a result, or an error."""
    return server.request(tool, arguments)


# ── what the journal has ────────────────────────────────────────────────────────────────────────────────────────


def open_journal(journal_url: str) -> Journal:
    return JournalUrl(journal_url).open()


def read(journal_url: str, run_id: str = RUN) -> list[Record]:
    """The records of a run, which must be those of a run that rests, and agree with the line about it."""
    journal = open_journal(journal_url)
    try:
        records = journal.read(run_id)
        lines = [line for line in journal.summaries(RunQuery(limit=10_000)) if line.id == run_id]
    finally:
        journal.close()
    refuse_half(run_id, records, lines)
    return records


def refuse_half(run_id: str, records: list[Record], lines: list[RunSummary]) -> None:
    """Fail unless the records are whole calls, without gaps, and the run is listed as what they come to."""
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    assert lines == ([summarise(folded(run_id, records))] if records else [])


def folded(run_id: str, records: list[Record]) -> Run:
    """The run, which must rest."""
    run = fold(run_id, records)
    assert run.state != "running"
    return run


def without_times(records: list[Record]) -> list[Record]:
    return [msgspec.structs.replace(record, time=0, event=_without_nonce(record.event), hash="") for record in records]


def _without_nonce(event: Event) -> Event:
    """Each question to a person has a nonce of its own."""
    if isinstance(event, ConfirmationAsked):
        return msgspec.structs.replace(event, nonce="")
    if isinstance(event, ConfirmationGiven | ConfirmationDenied):
        return msgspec.structs.replace(event, question="")
    return event
