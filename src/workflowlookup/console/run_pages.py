"""Pages of a run: the run, its exports, and the forms by which a person acts on a run."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from workflowlookup.authoring.graph import draw_run
from workflowlookup.authoring.svg import as_fragment
from workflowlookup.console import passkey_forms, timeline
from workflowlookup.console.queries import current
from workflowlookup.console.rendering import parse_number
from workflowlookup.console.request import PageNotFound, RequestRefused, Visit
from workflowlookup.console.timeline import TimelineView
from workflowlookup.errors import RunStateError
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.navigation import split_instance
from workflowlookup.language.text import duration, how_often
from workflowlookup.language.values import Json
from workflowlookup.logs import audit
from workflowlookup.runs import report as reports
from workflowlookup.runs.checks import ANOTHER_QUESTION
from workflowlookup.runs.events import (
    CallDue,
    ConfirmationDenied,
    ConfirmationGiven,
    OutputAccepted,
    OutputRefused,
    ProofsDue,
    Record,
    Started,
    StepOffered,
)
from workflowlookup.runs.exchange import Exporter
from workflowlookup.runs.proofs.due import SnapshotDue, all_due
from workflowlookup.runs.proofs.words import sentence_of
from workflowlookup.runs.questions import fields_of, question_of
from workflowlookup.runs.results import result_of
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.signing import text_to_sign
from workflowlookup.runs.titles import run_title
from workflowlookup.runs.why import Explanation, Fate, Reason, explain_run
from workflowlookup.shares import Holding
from workflowlookup.store.journal import now
from workflowlookup.store.loading import read_in_slices, reading, slices_of
from workflowlookup.tools.builtin.workflow_start import find_startable

MAX_EVENTS: Final = 300
"""How many of the last events a page shows, unless the viewer wants all."""
MAX_REASONS: Final = 300

NOTICES: Final = {
    "confirmed": "You confirmed the step.",
    "denied": "You did not confirm the step.",
    "cancelled": "You cancelled the run.",
    "paused": "You paused the run.",
    "resumed": "You resumed the run.",
    "again": "You started this run, with the input of the run before.",
}


# ── one run ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def run(visit: Visit) -> Response:
    shown = visit.services.runs.get(visit.path_param("run"))
    notice = NOTICES.get(visit.query("notice"), "")
    return await _page(visit, "run.html", shown, _view(visit, shown), notice=notice)


async def live(visit: Visit) -> Response:
    """What is new after a sequence: entries for the timeline, and the parts of the page that show the state."""
    shown = visit.services.runs.get(visit.path_param("run"))
    after = parse_number(visit.query("after")) or 0
    if shown.sequence <= after:
        return Response(status_code=204)
    view = _view(visit, shown)
    is_behind = view.until is not None and view.until < after  # the page shows older events only
    view = msgspec.structs.replace(view, after=shown.sequence if is_behind else after, limit=None)
    return await _page(visit, "run_live.html", shown, view)


_CHOICES: Final = ("order", "show", "events", "event")
"""What the URL of a run says about its timeline."""


def _view(visit: Visit, shown: Run) -> TimelineView:
    """The events that the URL asks for: the last ones, those around one, or all of them."""
    view = TimelineView(
        newest_first=visit.query("order") == "newest",
        refusals_only=visit.query("show") == "refusals",
        limit=None if visit.query("events") == "all" else MAX_EVENTS,
    )
    event = parse_number(visit.query("event")) or 0
    if 0 < event <= shown.sequence and view.limit is not None:
        first = max(0, min(event - MAX_EVENTS // 2, shown.sequence - MAX_EVENTS))
        view = msgspec.structs.replace(view, after=first, until=first + MAX_EVENTS)
    return view


def _address(visit: Visit, shown: Run, path: str = "", **changed: str) -> str:
    """The URL of the run with the choices of this page, some of them changed."""
    choices = {name: visit.query(name) for name in _CHOICES} | changed
    words = urlencode({name: value for name, value in choices.items() if value})
    return f"/runs/{quote(shown.id, safe='')}{path}{'?' if words else ''}{words}"


def _switches(visit: Visit, shown: Run, view: TimelineView) -> list[tuple[str, str, bool]]:
    """The links that change the timeline: name, URL, whether it is chosen."""
    return [
        ("Oldest first", _address(visit, shown, order=""), not view.newest_first),
        ("Newest first", _address(visit, shown, order="newest"), view.newest_first),
        ("All events", _address(visit, shown, show=""), not view.refusals_only),
        ("Refusals only", _address(visit, shown, show="refusals", event=""), view.refusals_only),
    ]


async def _page(visit: Visit, template: str, shown: Run, view: TimelineView, **more: Any) -> Response:
    """A page about a run. The run may be long, so only what needs the journal or the library happens on the event
    loop; a thread does the rest.
    """
    may_run = visit.access.may("run", shown.workflow.id)
    more["may_start"] = may_run and shown.is_over and current(visit, shown.workflow.id) is not None

    def fill(records: Sequence[Record]) -> Response:
        return visit.page(template, **_values(visit, shown, records, view), **more)

    async with reading(visit.access.caller):
        return await asyncio.to_thread(fill, await read_in_slices(visit.services.runs, shown))


def _values(visit: Visit, shown: Run, records: Sequence[Record], view: TimelineView) -> dict[str, Any]:
    budget = Budget()
    explanation, took = explain_run(shown, records, budget), durations(records)
    groups = timeline.groups(shown, records, budget, view)
    sequences = [entry.sequence for group in groups for entry in group.entries]
    return {
        "section": "runs",
        "run": shown,
        "title": run_title(shown),
        "lasted": (shown.updated if shown.is_over else now()) - shown.started,
        "spent": timeline.time_split(shown, records, now()),
        "result": result_of(shown) if shown.state is State.COMPLETED else None,
        "groups": groups,
        "earlier": 0 if view.refusals_only else max(0, min(sequences, default=1) - 1),
        "later": 0 if view.refusals_only else shown.sequence - max(sequences, default=shown.sequence),
        "view": view,
        "switches": _switches(visit, shown, view),
        "all_events": _address(visit, shown, events="all", event=""),
        "last_events": _address(visit, shown, events="", event=""),
        "live_url": _address(visit, shown, "/live", after=str(shown.sequence)),
        "variables": timeline.variables(shown, records),
        "flow": Markup(_flow(shown, explanation, took)),  # noqa: S704 - we generated and escaped it
        "reasons": explanation.steps[:MAX_REASONS],
        "more_reasons": max(0, len(explanation.steps) - MAX_REASONS),
        "warnings": explanation.warnings,
        "took": took,
        **question_values(visit, shown, records),
        "proving": list(_proving(shown, budget)),
        "may_cancel": visit.access.may("run", shown.workflow.id) and not shown.is_over,
        "new_id": secrets.token_hex(6),
    }


def question_values(visit: Visit, shown: Run, records: Sequence[Record]) -> dict[str, Any]:
    """The open question of a run, what it is about, and whether and how the viewer may answer it."""
    return {
        "judged": _judged(shown),
        "judged_at": _judged_at(records),
        "issues": shown.last_submission.issues if isinstance(shown.last_submission, OutputRefused) else (),
        "asks": shown.open_question is not None,
        "question": question_of(shown, Budget()) if shown.open_question is not None else None,
        "call": _call(shown),
        "signing": _signing(visit, shown),
        "may_confirm": visit.access.may_confirm(shown.required_confirmer(visit.services.confirmation)),
    }


def _signing(visit: Visit, shown: Run) -> dict[str, str] | None:
    """For an answer that must be signed: why this page cannot do that, if so. None for other answers."""
    services = visit.services
    if not shown.needs_person or "console" in services.person_confirmation:
        return None
    obstacle = passkey_forms.obstacle(visit)
    if "passkey" not in services.person_confirmation:
        obstacle = "The setting person_confirmation allows no passkeys."
    elif not obstacle and not services.people.passkeys(passkey_forms.rp_id(visit)):
        obstacle = "No passkey is registered for this console."
    return {"obstacle": obstacle}


def _call(shown: Run) -> dict[str, Any] | None:
    """The current call of the run: its name, arguments, progress and last failure."""
    has_step = shown.waiting_for in (Waiting.CALL, Waiting.CONFIRMATION)
    if not has_step or shown.step.call is None:
        return None
    calling = shown.calling
    return {
        "name": shown.step.call.described,
        "arguments": shown.call_arguments,
        "attempt": calling.attempt if calling else 0,
        "progress": calling.progress if calling else None,
        "failure": calling.failure if calling else "",
    }


def _judged(shown: Run) -> str:
    """The last output; also one that is being proven, or could not be."""
    if shown.proving is not None:
        return shown.proving.request.output
    return shown.last_submission.output if shown.last_submission else ""


def _proving(shown: Run, budget: Budget) -> Iterator[str]:
    """What the server proves now: what was taken, and what is due."""
    if shown.waiting_for != Waiting.PROOF or shown.proving is None:
        return
    yield from map(sentence_of, shown.proving.judgements.values())
    for due in all_due(shown, budget):
        if isinstance(due, SnapshotDue):
            yield f"due: a snapshot of the project at the start of the {due.since}"
        elif due.name not in shown.proving.judgements:
            yield f"due: {due.name}"


def _judged_at(records: Sequence[Record]) -> int:
    """The sequence of the last output."""
    kinds = (OutputAccepted, OutputRefused, ProofsDue)
    return next((one.sequence for one in reversed(records) if isinstance(one.event, kinds)), 0)


def durations(records: Sequence[Record]) -> dict[str, int]:
    """By completed step: milliseconds from its first offer to its last output."""
    offered: dict[str, int] = {}
    took: dict[str, int] = {}
    for record in records:
        match record.event:
            case StepOffered(step_id=step_id) | CallDue(step_id=step_id):
                offered.setdefault(step_id, record.time)
            case OutputAccepted(step_id=step_id) if step_id in offered:
                took[step_id] = record.time - offered[step_id]
    return took


def _flow(shown: Run, explanation: Explanation, took: Mapping[str, int]) -> str:
    """The picture of the workflow with the path of the run, and the reasons on each step."""
    graph = draw_run(shown, explanation)
    by_step: dict[str, list[Reason]] = {}
    for reason in explanation.steps:
        by_step.setdefault(split_instance(reason.id)[0], []).append(reason)
    times: dict[str, list[int]] = {}
    for instance_id, time in took.items():
        times.setdefault(split_instance(instance_id)[0], []).append(time)
    return as_fragment(graph, "why", {step: _notes(reasons, times.get(step, [])) for step, reasons in by_step.items()})


def _notes(reasons: Sequence[Reason], times: Sequence[int]) -> list[str]:
    last = next((one for one in reversed(reasons) if one.fate is Fate.WAITS), reasons[-1])
    notes = [f"took {duration(sum(times))}{' in all' if len(times) > 1 else ''}"] if times else []
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


# ── exports ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def output(visit: Visit) -> Response:
    """A whole output: as plain text, or as a fragment for the page of the run."""
    shown = visit.services.runs.get(visit.path_param("run"))
    sequence = parse_number(visit.path_param("sequence"))
    records = visit.services.runs.history(shown.id, sequence - 1, limit=1) if sequence else []
    if not records or not isinstance(event := records[0].event, OutputAccepted | OutputRefused | ProofsDue):
        raise PageNotFound("output")
    if visit.request.headers.get("hx-request") == "true":
        return visit.page("output.html", text=event.output)
    return PlainTextResponse(
        event.output.encode(errors="replace"), headers=_sandboxed(shown.id, f"output-{sequence}.txt")
    )


async def journal(visit: Visit) -> Response:
    shown = visit.services.runs.get(visit.path_param("run"))
    audit("export", by=visit.by, run=shown.id, workflow=shown.workflow.id)
    return _Journal(visit, shown, headers=_sandboxed(shown.id, "journal.jsonl", is_file=True))


class _Journal(Response):
    """All records of a run, read in slices: the next slice is read when the client has received the one before."""

    media_type = "application/jsonl"

    def __init__(self, visit: Visit, run: Run, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        del self.headers["Content-Length"]
        self._visit = visit
        self._run = run
        self._exporter = Exporter(run)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the signature of ASGI
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            async for records in slices_of(self._visit.services.runs, self._run):
                lines = await asyncio.to_thread(self._lines, records)
                await send({"type": "http.response.body", "body": lines, "more_body": True})
        await send({"type": "http.response.body"})

    def _lines(self, records: Sequence[Record]) -> bytes:
        return self._exporter.lines(records).encode()


async def report(visit: Visit) -> Response:
    shown = visit.services.runs.get(visit.path_param("run"))
    async with reading(visit.access.caller):
        records = await read_in_slices(visit.services.runs, shown)
        text = (await asyncio.to_thread(reports.report_of, shown, records)).encode(errors="replace")
    audit("export", by=visit.by, run=shown.id, workflow=shown.workflow.id)
    return Response(text, media_type="text/markdown", headers=_sandboxed(shown.id, "report.md", is_file=True))


def _sandboxed(run_id: str, name: str, *, is_file: bool = False) -> dict[str, str]:
    """Headers for untrusted content: the browser never executes it."""
    kind = "attachment" if is_file else "inline"
    name = re.sub(r"[^A-Za-z0-9._-]", "", f"{run_id}-{name}")
    return {
        "Content-Disposition": f'{kind}; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }


# ── notifications ────────────────────────────────────────────────────────────────────────────────────────────────


async def events(visit: Visit) -> Response:
    """A stream of the ids of changed runs: of one run, or of all that the viewer may see."""
    run_id = visit.query("run")
    if run_id:
        visit.services.runs.get(run_id)
    caller = visit.access.caller
    if visit.streams.is_full(caller):
        raise RequestRefused(429, "You have too many live pages open. Close some.")
    if visit.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return _EventStream(visit.streams.follow(visit.backend, run_id), visit.streams.hold(caller))


class _EventStream(StreamingResponse):
    """A stream that counts against the limit of its caller until it ends."""

    def __init__(self, content: AsyncIterator[bytes], holding: Holding) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._holding = holding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._holding.release()


# ── actions: safe to repeat ──────────────────────────────────────────────────────────────────────────────────────

MAX_NOTE_LENGTH: Final = 10_000
_NEW_ID: Final = re.compile("[0-9a-f]{12}")


async def challenge(visit: Visit) -> Response:
    """Options for the browser to sign the answer in this form with a passkey."""
    run = visit.services.runs.get(visit.path_param("run"))
    visit.access.require("confirm", run.workflow.id)
    _refuse_other_question(visit, run)
    text = _text_to_sign(visit, run, agrees=visit.form.get("decision") == "confirm")
    return JSONResponse(passkey_forms.signing_options(visit, text))


def _text_to_sign(visit: Visit, run: Run, *, agrees: bool) -> bytes:
    return text_to_sign(run, agrees=agrees, note=_note(visit), answers=_answers(visit, run) if agrees else {})


def _refuse_other_question(visit: Visit, run: Run) -> None:
    if run.open_question is None or visit.form.get("question") != run.question_id:
        raise RunStateError(ANOTHER_QUESTION, runId=run.id)


async def confirm(visit: Visit) -> Response:
    return _answer(visit, ConfirmationGiven, "confirmed")


async def deny(visit: Visit) -> Response:
    return _answer(visit, ConfirmationDenied, "denied")


def _answer(visit: Visit, kind: type[ConfirmationGiven | ConfirmationDenied], notice: str) -> Response:
    runs = visit.services.runs
    run, step = runs.get(visit.path_param("run")), visit.form.get("step", "")
    question = visit.form.get("question") or "none"  # an answer without its question answers no other
    answer: dict[str, Any] = {"question": question, "note": _note(visit), "by": visit.client, "how": "console"}
    if visit.form.get("passkey"):
        _refuse_other_question(visit, run)
        text = _text_to_sign(visit, run, agrees=kind is ConfirmationGiven)
        answer |= {"how": "passkey", "signature": passkey_forms.read_signature(visit, text)}
    if kind is ConfirmationDenied:
        runs.deny(run.id, step, **answer)
    else:
        runs.confirm(run.id, step, answers=_answers(visit, run), **answer)
    if queue := visit.form.get("queue"):
        return RedirectResponse(f"/approvals?{urlencode({'run': queue})}", 303)
    return _back(run.id, notice)


def _answers(visit: Visit, run: Run) -> dict[str, Json]:
    """The values for the fields of the question; empty ones are left out."""
    fields = fields_of(run, Budget())
    values = [(field, visit.form.get(f"answer.{field.name}", "").replace("\0", "").strip()) for field in fields]
    return {field.name: field.parse(text) for field, text in values if text}


async def cancel(visit: Visit) -> Response:
    run = visit.services.runs.cancel(visit.path_param("run"), _note(visit), by=visit.client)
    return _back(run.id, "cancelled")


async def pause(visit: Visit) -> Response:
    run = visit.services.runs.pause(visit.path_param("run"), _note(visit), by=visit.client)
    return _back(run.id, "paused")


async def resume(visit: Visit) -> Response:
    run = visit.services.runs.resume(visit.path_param("run"), by=visit.client)
    return _back(run.id, "resumed")


async def start_again(visit: Visit) -> Response:
    """Start a new run with the same input, of the version in the library."""
    runs = visit.services.runs
    run, new_id = runs.get(visit.path_param("run")), visit.form.get("new", "")
    if not _NEW_ID.fullmatch(new_id):
        raise RequestRefused(400, "The form cannot be read. Load the page again.")
    started = runs.history(run.id, limit=1)[0].event
    if not run.is_over or not isinstance(started, Started):
        raise RunStateError("The run is not over. Continue it, or cancel it first.")
    workflow, timeout = find_startable(visit.services, run.workflow.id), started.timeout
    new = runs.start(workflow, started.input, started.context, run_id=new_id, by=visit.client, timeout=timeout)
    return _back(new.id, "again")


def _note(visit: Visit) -> str:
    note = visit.form.get("note", "").replace("\0", "").replace("\r\n", "\n").strip()
    if len(note) > MAX_NOTE_LENGTH:
        raise RequestRefused(413, f"A note may have {MAX_NOTE_LENGTH:,} characters at most.")
    return note


def _back(run_id: str, notice: str) -> Response:
    return RedirectResponse(f"/runs/{run_id}?notice={notice}#now", 303)
