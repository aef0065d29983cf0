"""What a viewer may do to a run: agree to a step or not, end it, start it anew. Each is safe to repeat."""

import re
from typing import Final

from starlette.responses import RedirectResponse, Response

from workflowlookup.console.guard import Refused
from workflowlookup.console.looking import find_run
from workflowlookup.console.text import number_in
from workflowlookup.console.visit import Visit
from workflowlookup.core.events import ConfirmationDenied, ConfirmationGiven, Started
from workflowlookup.core.run import Run, Waiting
from workflowlookup.errors import RunStateError

MOST_NOTE: Final = 10_000
_NEW_ID: Final = re.compile("[0-9a-f]{12}")


async def confirm(visit: Visit) -> Response:
    return _answer(visit, ConfirmationGiven, "confirmed")


async def deny(visit: Visit) -> Response:
    return _answer(visit, ConfirmationDenied, "denied")


def _answer(visit: Visit, kind: type[ConfirmationGiven | ConfirmationDenied], said: str) -> Response:
    run = _allowed(visit, "confirm")
    step, note = visit.form.get("step", ""), _note(visit)
    if not _is_said(visit, run, step, note, kind):
        tell = visit.house.runs.confirm if kind is ConfirmationGiven else visit.house.runs.deny
        tell(run.id, step, note=note, by=visit.by)
    return _back(run.id, said)


async def cancel(visit: Visit) -> Response:
    run = _allowed(visit, "run")
    visit.house.runs.cancel(run.id, _note(visit), by=visit.by)
    return _back(run.id, "cancelled")


async def again(visit: Visit) -> Response:
    """A new run with the input of this one, of the workflow as the library has it now."""
    run = _allowed(visit, "run")
    new_id = visit.form.get("new", "")
    if not _NEW_ID.fullmatch(new_id):
        raise Refused(400, "The form cannot be read. Load the page again.")
    started = visit.house.runs.history(run.id)[0].event
    if not run.is_over or not isinstance(started, Started):
        raise RunStateError("The run is not over. Go on with it, or cancel it first.")
    new = visit.house.runs.start(
        visit.house.resolve(run.workflow.id),
        started.input,
        started.context,
        run_id=new_id,
        by=visit.by,
        timeout=started.timeout,
    )
    return _back(new.id, "again")


def _allowed(visit: Visit, scope: str) -> Run:
    """The run. Raises `NotThere` for those who do not see it, and a refusal for those who may only look."""
    run = find_run(visit, visit.named("run"))
    if not visit.viewer.may(scope, run.workflow.id):
        raise Refused(403, f"You may look at this run, but this needs the scope '{scope}'.")
    return run


def _is_said(visit: Visit, run: Run, step: str, note: str, kind: type[ConfirmationGiven | ConfirmationDenied]) -> bool:
    """Whether this very form was sent before. Raises `RunStateError` when the run is not what the viewer saw."""
    seen = number_in(visit.form.get("sequence", "")) or 0
    if run.sequence == seen and run.waiting_for is Waiting.CONFIRMATION:
        return False
    sequence, answer = run.answers.get(step, (0, None))
    if sequence == seen + 1 and isinstance(answer, kind) and answer.note == note:
        return True
    raise RunStateError("The run has gone on since you looked at it. Look again before you decide.")


def _note(visit: Visit) -> str:
    note = visit.form.get("note", "").replace("\0", "").replace("\r\n", "\n").strip()
    if len(note) > MOST_NOTE:
        raise Refused(413, f"A note may have {MOST_NOTE:,} characters at most.")
    return note


def _back(run_id: str, said: str) -> Response:
    return RedirectResponse(f"/runs/{run_id}?said={said}#now", 303)
