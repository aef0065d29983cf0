"""What a call is made with: its arguments, with the variables of the run in them."""

from collections.abc import Mapping

from workflowlookup.language.contract import unmet
from workflowlookup.language.guidance import fill_values, filler
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.values import Context, Json
from workflowlookup.runs.run import Run


def call_arguments(run: Run) -> Mapping[str, Json]:
    """What the current call is made with: its arguments, filled; the input of the run when a workflow has none."""
    call = run.step.call
    return run.input if call is None or call.arguments is None else _filled(call.arguments, run.scope, {})


def missing_for_call(workflow: Workflow, step: PromptStep, scope: Context) -> list[str]:
    """The variables that a call needs and that are not set, or of the wrong kind, each as a sentence."""
    needs = [need.sentence() for need in unmet(workflow, step, scope)]
    unset: dict[str, None] = {}
    if step.call is not None:
        _filled(step.call.arguments or {}, scope, unset)
    return [*needs, *(f"{name} is not set" for name in unset if not any(told.startswith(f"{name} ") for told in needs))]


def _filled(arguments: Mapping[str, Json], scope: Context, unset: dict[str, None]) -> Mapping[str, Json]:
    filled: Mapping[str, Json] = fill_values(arguments, scope, filler(scope, unset))
    return filled
