"""Trying a workflow in the browser without a run: the next step as the agent reads it, and the verdict on an output.

Nothing is stored: the page has the values, and each form sends all of them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from workflowlookup.console.request import Visit
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.contract import example_context
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import guide
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import find_step, next_step
from workflowlookup.language.values import MAX_CONTEXT_BYTES, Json
from workflowlookup.runs.why import Reason, explain_context
from workflowlookup.tools.builtin.workflow_start import find_startable
from workflowlookup.tools.builtin.workflow_validate import judge_output

MAX_COMPLETED: Final = 1_000


async def show(visit: Visit) -> Response:
    """The page as it begins: the declared inputs with their examples."""
    workflow = find_startable(visit.services, visit.path_param("workflow"))
    return _page(visit, workflow, {"context": _as_text(example_context(workflow))})


async def go_on(visit: Visit) -> Response:
    """The page after a form: the step for another context, the verdict on an output, or the step after it."""
    return _page(visit, find_startable(visit.services, visit.path_param("workflow")), visit.form)


def _page(visit: Visit, workflow: Workflow, form: Mapping[str, str]) -> Response:
    completed = [step for step in form.get("completed", "").split() if find_step(workflow, step) is not None]
    output, verdict, problem = form.get("output", ""), None, ""
    step: dict[str, Any] = {}
    reasons: tuple[Reason, ...] = ()
    context: Mapping[str, Json] = {}
    try:
        context = _context(form.get("context", ""))
        shown = form.get("step", "")
        if shown and output and form.get("do") in ("judge", "accept"):
            verdict = judge_output(workflow, shown, output, context)
            if verdict["valid"] and form.get("do") == "accept":
                context, completed = {**context, **verdict.get("captured", {})}, [*completed, shown][-MAX_COMPLETED:]
                output, verdict = "", None
        elif shown and form.get("do") == "skip":
            completed = [*completed, shown][-MAX_COMPLETED:]
        step = _next(workflow, completed, context)
        reasons = explain_context(workflow, context, Budget()).steps
    except (WorkflowLookupError, ValueError) as refusal:
        problem = refusal.explain() if isinstance(refusal, WorkflowLookupError) else str(refusal)
    return visit.page(
        "trial.html",
        section="library",
        workflow=workflow,
        context=_as_text(context) if context else form.get("context", "{}"),
        completed=completed,
        output=output,
        verdict=verdict,
        problem=problem,
        step=step,
        reasons=reasons,
    )


def _as_text(context: Mapping[str, Json]) -> str:
    return msgspec.json.format(msgspec.json.encode(context)).decode()


def _context(text: str) -> dict[str, Json]:
    """The variables that somebody typed as JSON. Raises `ValueError`."""
    if len(text.encode()) > MAX_CONTEXT_BYTES:
        raise ValueError(f"The context may have {MAX_CONTEXT_BYTES:,} bytes at most.")
    try:
        value = msgspec.json.decode(text.strip() or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise ValueError(f"The context is not a JSON object: {problem}.") from None
    return value


def _next(workflow: Workflow, completed: list[str], context: Mapping[str, Json]) -> dict[str, Any]:
    """The next step as the agent gets it; empty once the workflow is complete."""
    budget = Budget()
    following = next_step(workflow, completed, context, budget)
    if following.need is not None:
        return {"id": following.instance_id, "title": "", "prompt": f"It needs {following.need.variable} first."}
    if following.step is None:
        return {}
    guidance = guide(workflow, following, budget)
    return {
        "id": following.instance_id,
        "title": guidance.step.get("title", ""),
        "prompt": guidance.prompt,
        "criteria": guidance.criteria,
        "proofs": guidance.proofs,
        "asks": guidance.requires_confirmation,
        "warnings": guidance.warnings,
    }
