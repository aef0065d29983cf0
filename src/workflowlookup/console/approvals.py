"""The queue of questions to people: the oldest first, one on the screen, with the ones before and after it."""

from typing import Final

from starlette.responses import Response

from workflowlookup.console.request import Visit
from workflowlookup.console.run_pages import question_values
from workflowlookup.errors import RunNotFound
from workflowlookup.runs.events import ConfirmationDenied, ConfirmationGiven
from workflowlookup.runs.proofs.words import sentences_of
from workflowlookup.runs.titles import run_title
from workflowlookup.runs.triage import Triage
from workflowlookup.store.journal import RunOrder, RunQuery, now
from workflowlookup.store.loading import load_in_slices, read_in_slices, reading

MAX_QUEUE: Final = 200


async def approvals(visit: Visit) -> Response:
    """The queue, or for the script of a page, whether its question is still open."""
    return await _is_answered(visit) if visit.query("asked") else await _queue(visit)


async def _is_answered(visit: Visit) -> Response:
    """Nothing while the question of a page is open; else what to tell its reader, whose form stays as it is."""
    run_id, asked = visit.query("run"), visit.query("asked")
    await load_in_slices(visit.services.runs, run_id)
    run = visit.services.runs.get(run_id)
    if run.open_question is not None and run.question_id == asked:
        return Response(status_code=204)
    async with reading(visit.access.caller):
        records = await read_in_slices(visit.services.runs, run)
    answers = (ConfirmationGiven, ConfirmationDenied)
    answer = next((one for one in reversed(records) if isinstance(one.event, answers)), None)
    return visit.page("approval_live.html", run=run, answer=answer, following=visit.query("next"))


async def _queue(visit: Visit) -> Response:
    """The question of the run in the URL; if it is answered, of the run that waits longest."""
    query = RunQuery(triage=Triage.PERSON, now=now(), order=RunOrder.LONGEST_WAITING, limit=MAX_QUEUE)
    queue = visit.services.runs.summaries(query)
    ids = [run.id for run in queue]
    chosen = visit.query("run")
    position = ids.index(chosen) if chosen in ids else 0
    values = {"section": "approvals", "queue": queue, "position": position, "is_cut": len(queue) == MAX_QUEUE}
    if not queue:
        return visit.page("approvals.html", **values, run=None)
    try:
        await load_in_slices(visit.services.runs, ids[position])
        shown = visit.services.runs.get(ids[position])
    except RunNotFound:  # it was deleted a moment ago
        return visit.page("approvals.html", **values, run=None)
    async with reading(visit.access.caller):
        records = await read_in_slices(visit.services.runs, shown)
    return visit.page(
        "approvals.html",
        **values,
        run=shown,
        title=run_title(shown),
        previous=ids[position - 1] if position else "",
        following=ids[position + 1] if position + 1 < len(ids) else "",
        proofs=list(sentences_of(shown, shown.current)) if shown.current in shown.proofs else [],
        **question_values(visit, shown, records),
    )
