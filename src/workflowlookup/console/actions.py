"""What a viewer may do to a run: agree to a step or not, end it, start it anew. Each is safe to repeat."""

import re
from typing import Final

from starlette.responses import RedirectResponse, Response

from workflowlookup.console.request import Visit
from workflowlookup.console.security import Refused
from workflowlookup.errors import RunStateError
from workflowlookup.language.patterns import Budget
from workflowlookup.language.values import Json
from workflowlookup.runs.events import ConfirmationDenied, ConfirmationGiven, Started
from workflowlookup.runs.questions import fields_of
from workflowlookup.runs.run import Run
from workflowlookup.tools.builtin.workflow_start import find_startable

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
