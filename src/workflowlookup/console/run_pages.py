"""Pages of runs: the list, one run, its exports, and the forms by which a person acts on a run."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from workflowlookup.authoring.graph import draw_path
from workflowlookup.authoring.svg import as_fragment
from workflowlookup.console import timeline
from workflowlookup.console.queries import NO_SUCH_FILTER, TIMES, current, page_of, since_of
from workflowlookup.console.rendering import number_in
from workflowlookup.console.request import NotThere, Refused, Visit
from workflowlookup.errors import RunStateError
from workflowlookup.language.navigation import split_instance
from workflowlookup.language.patterns import Budget
from workflowlookup.language.text import how_often
from workflowlookup.language.values import Json
from workflowlookup.logs import audit
from workflowlookup.runs import report as reports
from workflowlookup.runs.events import (
    CallDue,
    ConfirmationDenied,
    ConfirmationGiven,
    OutputAccepted,
    OutputRefused,
    Record,
    Started,
    StepOffered,
)
from workflowlookup.runs.exchange import json_line
from workflowlookup.runs.questions import fields_of, question_of
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.runs.why import Explanation, Fate, Reason, explain_run
from workflowlookup.shares import Holding
from workflowlookup.store.journal import RunQuery, RunSummary
from workflowlookup.store.loading import read_in_slices, reading, slices_of
from workflowlookup.tools.builtin.workflow_start import find_startable

PAGE: Final = 50
MOST_ENTRIES: Final = 300
"""How many of the last events a page shows, unless all are asked for."""
MOST_REASONS: Final = 300
MOST_COUNTED: Final = 1_000
"""How many waiting runs are looked at to count those that wait for a person."""

STATES: Final = (
    ("", "All"),
    ("person", "Waiting for a person"),
    ("waiting", "Waiting"),
    ("work", "At work"),
    ("completed", "Completed"),
    ("failed", "Failed"),
    ("cancelled", "Cancelled"),
    ("unknown", "End unknown"),
)
SAID: Final = {
    "confirmed": "You confirmed the step.",
    "denied": "You did not confirm the step.",
    "cancelled": "You cancelled the run.",
    "again": "You started this run, with the input of the run before.",
}


# ── the list ────────────────────────────────────────────────────────────────────────────────────────────────────


async def runs(visit: Visit) -> Response:
    state, workflow_id = visit.asked("state"), visit.asked("workflow")
    since, time = since_of(visit)
    if state not in dict(STATES):
        raise Refused(400, NO_SUCH_FILTER)
    fits = FITS.get(state, lambda _: True)
    query = RunQuery(
        state={"person": "waiting", "work": None}.get(state, state or None),
        workflow_id=workflow_id or None,
        since=time,
        after=_place(visit.asked("after")),
    )
    shown, are_more = page_of(visit, query, PAGE, fits)
    waiting, _ = page_of(visit, RunQuery(state="waiting"), 99, _waits_for_person, MOST_COUNTED)
    chosen = {"state": state, "workflow": workflow_id, "since": since}
    return visit.page(
        "runs.html",
        place="runs",
        rows=shown,
        names=_names(visit, shown),
        next=_address(chosen, after=f"{shown[-1].started}.{shown[-1].id}") if are_more else "",
        filters=[(key, name, _address(chosen, state=key), key == state) for key, name in STATES],
        times=TIMES,
        is_filtered=any(chosen.values()),
        is_first=query.after is None,
        waiting=len(waiting),
        state=state,
        workflow_id=workflow_id,
        since=since,
    )


def _names(visit: Visit, rows: Sequence[RunSummary]) -> dict[str, str]:
    """By id: what workflows are called now; those that the library does not have go by their ids."""
    entries = visit.services.catalog.snapshot().entries
    files = {line.workflow_id: entries[line.workflow_id].file for line in rows if line.workflow_id in entries}
    return {line.workflow_id: line.workflow_id for line in rows} | {
        workflow_id: file.summary.name for workflow_id, file in files.items() if file.summary is not None
    }


def _waits_for_person(line: RunSummary) -> bool:
    return line.waiting_for == Waiting.CONFIRMATION


FITS: Final[Mapping[str, Callable[[RunSummary], bool]]] = {
    "person": _waits_for_person,
    "work": lambda line: line.waiting_for == Waiting.CALL,
}
"""What the journal is not asked for by its state."""


def _address(chosen: Mapping[str, str], **changed: str) -> str:
    words = {name: value for name, value in {**chosen, **changed}.items() if value}
    return f"/runs?{urlencode(words)}" if words else "/runs"


def _place(text: str) -> tuple[int, str] | None:
    """Where the page before ended."""
    first, _, run_id = text.partition(".")
    started = number_in(first)
    return None if started is None else (started, run_id)


# ── one run ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def run(visit: Visit) -> Response:
    found = visit.services.runs.get(visit.named("run"))
    first = 0 if visit.asked("events") == "all" else max(0, found.sequence - MOST_ENTRIES)
    return await _page(visit, "run.html", found, first, earlier=first, said=SAID.get(visit.asked("said"), ""))


async def live(visit: Visit) -> Response:
    """What is new since a sequence: entries for the timeline, and the parts that tell how the run stands."""
    found = visit.services.runs.get(visit.named("run"))
    after = number_in(visit.asked("after")) or 0
    if found.sequence <= after:
        return Response(status_code=204)
    return await _page(visit, "run_live.html", found, after)


async def _page(visit: Visit, template: str, found: Run, after: int, **more: Any) -> Response:
    """A template with all that is known of a run. The run may be long, so only what needs the journal or the library
    happens on the event loop.
    """
    may_run = visit.access.may("run", found.workflow.id)
    more["may_start"] = may_run and found.is_over and current(visit, found.workflow.id) is not None

    def fill(records: Sequence[Record]) -> Response:
        return visit.page(template, **_known(visit, found, records, after), **more)

    async with reading(visit.access.caller):
        return await asyncio.to_thread(fill, await read_in_slices(visit.services.runs, found))


def _known(visit: Visit, found: Run, records: Sequence[Record], after: int) -> dict[str, Any]:
    budget = Budget()
    explanation, took = explain_run(found, records, budget), durations(records)
    return {
        "place": "runs",
        "run": found,
        "title": timeline.title_of(found.workflow, found.current),
        "entries": list(timeline.entries(found, records, budget, after)),
        "flow": Markup(_flow(found, explanation, took)),  # noqa: S704 - made and escaped by us
        "reasons": explanation.steps[:MOST_REASONS],
        "more_reasons": max(0, len(explanation.steps) - MOST_REASONS),
        "warnings": explanation.warnings,
        "took": took,
        "judged": found.last_submission.output if found.last_submission else "",
        "issues": found.last_submission.issues if isinstance(found.last_submission, OutputRefused) else (),
        "judged_at": _judged_at(records),
        "asks": found.open_question is not None,
        "question": question_of(found, Budget()) if found.open_question is not None else None,
        "call": _call(found),
        "may_confirm": visit.access.may_confirm(found.required_confirmer(visit.services.confirmation)),
        "may_cancel": visit.access.may("run", found.workflow.id) and not found.is_over,
        "new_id": secrets.token_hex(6),
    }


def _call(found: Run) -> dict[str, Any] | None:
    """The call that the run is at: what is called, with what, and how that goes."""
    has_step = found.waiting_for in (Waiting.CALL, Waiting.CONFIRMATION)
    if not has_step or found.step.call is None:
        return None
    doing = found.calling
    return {
        "name": found.step.call.described,
        "arguments": found.call_arguments,
        "attempt": doing.attempt if doing else 0,
        "progress": doing.progress if doing else None,
        "failure": doing.failure if doing else "",
    }


def _judged_at(records: Sequence[Record]) -> int:
    """The sequence of the last output."""
    kinds = (OutputAccepted, OutputRefused)
    return next((one.sequence for one in reversed(records) if isinstance(one.event, kinds)), 0)


def durations(records: Sequence[Record]) -> dict[str, int]:
    """By step that was done: the milliseconds from its first offer to its last output."""
    offered: dict[str, int] = {}
    took: dict[str, int] = {}
    for record in records:
        match record.event:
            case StepOffered(step_id=step_id) | CallDue(step_id=step_id):
                offered.setdefault(step_id, record.time)
            case OutputAccepted(step_id=step_id) if step_id in offered:
                took[step_id] = record.time - offered[step_id]
    return took


def _flow(found: Run, explanation: Explanation, took: Mapping[str, int]) -> str:
    """The way of the run on the picture of its workflow, with the reasons on the cards."""
    waiting = "" if found.is_over else found.current
    is_whole = found.is_over and found.end is None
    graph = draw_path(found.workflow, explanation.path, explanation.skipped, waiting, is_whole=is_whole)
    by_step: dict[str, list[Reason]] = {}
    for reason in explanation.steps:
        by_step.setdefault(split_instance(reason.id)[0], []).append(reason)
    times: dict[str, list[int]] = {}
    for instance_id, time in took.items():
        times.setdefault(split_instance(instance_id)[0], []).append(time)
    return as_fragment(graph, "why", {step: _notes(reasons, times.get(step, [])) for step, reasons in by_step.items()})


def _notes(reasons: Sequence[Reason], times: Sequence[int]) -> list[str]:
    last = next((one for one in reversed(reasons) if one.fate is Fate.WAITS), reasons[-1])
    notes = [f"took {reports.duration(sum(times))}{' in all' if len(times) > 1 else ''}"] if times else []
    refused = sum(one.refused * one.times for one in reasons)
    if refused:
        notes.append(f"refused {how_often(refused)}: {' '.join(last.issues)}")
    failed = sum(one.failed * one.times for one in reasons)
    if failed:
        notes.append(f"its call failed {how_often(failed)}: {last.failure}")
    if last.fate in (Fate.SKIPPED, Fate.WOULD_BE_SKIPPED):
        values = ", ".join(dict.fromkeys(check.sentence() for check in last.checks))
        notes.append(f"{last.fate}: {values or last.because}")
    elif last.fate is Fate.WAITS:
        notes.append(last.because.rpartition("; ")[2])
    if last.confirmation and last.fate is not Fate.WAITS:
        notes.append(last.confirmation)
    return notes


# ── to take away ────────────────────────────────────────────────────────────────────────────────────────────────


async def output(visit: Visit) -> Response:
    """An output in full: as plain text, or as a part of the page that has its beginning."""
    found = visit.services.runs.get(visit.named("run"))
    sequence = number_in(visit.named("sequence"))
    records = visit.services.runs.history(found.id, sequence - 1, limit=1) if sequence else []
    if not records or not isinstance(event := records[0].event, OutputAccepted | OutputRefused):
        raise NotThere("output")
    if visit.request.headers.get("hx-request") == "true":
        return visit.page("output.html", text=event.output)
    return PlainTextResponse(event.output.encode(errors="replace"), headers=_sealed(found.id, f"output-{sequence}.txt"))


async def journal(visit: Visit) -> Response:
    found = visit.services.runs.get(visit.named("run"))
    audit("export", by=visit.by, run=found.id, workflow=found.workflow.id)
    return _Journal(visit, found, headers=_sealed(found.id, "journal.jsonl", is_file=True))


class _Journal(Response):
    """All records of a run, of which only a slice is in memory; the next waits until the client has read it."""

    media_type = "application/jsonl"

    def __init__(self, visit: Visit, run: Run, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        del self.headers["Content-Length"]
        self._visit = visit
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of ASGI
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            async for records in slices_of(self._visit.services.runs, self._run):
                lines = await asyncio.to_thread(self._lines, records)
                await send({"type": "http.response.body", "body": lines, "more_body": True})
        await send({"type": "http.response.body"})

    def _lines(self, records: Sequence[Record]) -> bytes:
        return "".join(json_line(self._run.id, record) for record in records).encode()


async def report(visit: Visit) -> Response:
    found = visit.services.runs.get(visit.named("run"))
    async with reading(visit.access.caller):
        records = await read_in_slices(visit.services.runs, found)
        text = (await asyncio.to_thread(reports.report_of, found, records)).encode(errors="replace")
    audit("export", by=visit.by, run=found.id, workflow=found.workflow.id)
    return Response(text, media_type="text/markdown", headers=_sealed(found.id, "report.md", is_file=True))


def _sealed(run_id: str, name: str, *, is_file: bool = False) -> dict[str, str]:
    """Headers for what strangers wrote: nothing in it is ever run."""
    kind = "attachment" if is_file else "inline"
    name = re.sub(r"[^A-Za-z0-9._-]", "", f"{run_id}-{name}")
    return {
        "Content-Disposition": f'{kind}; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }


# ── news ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def events(visit: Visit) -> Response:
    """The ids of runs as they change: of one run, or of all that the viewer may see."""
    run_id = visit.asked("run")
    if run_id:
        visit.services.runs.get(run_id)
    caller = visit.access.caller
    if visit.streams.is_full(caller):
        raise Refused(429, "Too many of your pages are open. Close some.")
    if visit.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return _EventStream(visit.streams.follow(visit.backend, run_id), visit.streams.hold(caller))


class _EventStream(StreamingResponse):
    """A stream that counts against the share of its caller until it has ended."""

    def __init__(self, content: AsyncIterator[bytes], holding: Holding) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._holding = holding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._holding.release()


MOST_NOTE: Final = 10_000
_NEW_ID: Final = re.compile("[0-9a-f]{12}")


async def confirm(visit: Visit) -> Response:
    return _answer(visit, ConfirmationGiven, "confirmed")


async def deny(visit: Visit) -> Response:
    return _answer(visit, ConfirmationDenied, "denied")


def _answer(visit: Visit, kind: type[ConfirmationGiven | ConfirmationDenied], said: str) -> Response:
    runs = visit.services.runs
    run, step = runs.get(visit.named("run")), visit.form.get("step", "")
    question = visit.form.get("question") or "none"  # an answer without its question counts for no other
    pinned = {"question": question, "note": _note(visit), "by": visit.client}
    if kind is ConfirmationDenied:
        runs.deny(run.id, step, how="console", **pinned)
    else:
        runs.confirm(run.id, step, how="console", answers=_answers(visit, run), **pinned)
    return _back(run.id, said)


def _answers(visit: Visit, run: Run) -> dict[str, Json]:
    """What was filled in for the fields of the question; an empty one is left out."""
    fields = fields_of(run, Budget())
    typed = [(field, visit.form.get(f"answer.{field.name}", "").replace("\0", "").strip()) for field in fields]
    return {field.name: field.parse(text) for field, text in typed if text}


async def cancel(visit: Visit) -> Response:
    run = visit.services.runs.cancel(visit.named("run"), _note(visit), by=visit.client)
    return _back(run.id, "cancelled")


async def again(visit: Visit) -> Response:
    """A new run with the input of this one, of the workflow as the library has it now."""
    runs = visit.services.runs
    run, new_id = runs.get(visit.named("run")), visit.form.get("new", "")
    if not _NEW_ID.fullmatch(new_id):
        raise Refused(400, "The form cannot be read. Load the page again.")
    started = runs.history(run.id, limit=1)[0].event
    if not run.is_over or not isinstance(started, Started):
        raise RunStateError("The run is not over. Go on with it, or cancel it first.")
    workflow, timeout = find_startable(visit.services, run.workflow.id), started.timeout
    new = runs.start(workflow, started.input, started.context, run_id=new_id, by=visit.client, timeout=timeout)
    return _back(new.id, "again")


def _note(visit: Visit) -> str:
    note = visit.form.get("note", "").replace("\0", "").replace("\r\n", "\n").strip()
    if len(note) > MOST_NOTE:
        raise Refused(413, f"A note may have {MOST_NOTE:,} characters at most.")
    return note


def _back(run_id: str, said: str) -> Response:
    return RedirectResponse(f"/runs/{run_id}?said={said}#now", 303)
