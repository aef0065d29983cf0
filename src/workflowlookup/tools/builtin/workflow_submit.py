"""`workflow_submit`: validates the output of a step and gives the next step; or relays a person's answer."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidParams, RunStateError
from workflowlookup.tools.arguments import RunId, RunStepId, StructArguments, Wait, server_only
from workflowlookup.tools.contract import ALWAYS_LOADED, Caller, Elicitation, Outcome, Result, Services, Tool
from workflowlookup.tools.result_schemas import RUN_SCHEMA

if TYPE_CHECKING:
    from workflowlookup.runs.run import Run
    from workflowlookup.tools.run_answers import Verdict


class SubmitArguments(msgspec.Struct, rename="camel"):
    """What `workflow_submit` takes."""

    run_id: Annotated[RunId, server_only("The run, from workflow_start")]
    step_id: Annotated[RunStepId, server_only("The step that the run waits for, with its iteration: review@2")]
    output: Annotated[
        str | None,
        Meta(description="The whole output of the step"),
        server_only("The whole output of the step; none if the run waits for context"),
    ] = None
    context: Annotated[
        dict[str, Any] | None,
        Meta(description="Variables to set"),
        server_only("Variables to set or change, such as those that the step produces"),
    ] = None
    confirmed: Annotated[
        bool | None,
        Meta(description="Instead of output: did the person agree?"),
        server_only("Instead of output, if the run waits for confirmation: whether the person agreed"),
    ] = None
    note: Annotated[
        str | None, Meta(description="The person's words"), server_only("With confirmed: what the person said")
    ] = None
    answers: Annotated[
        dict[str, Any] | None,
        Meta(description="The person's values"),
        server_only("With confirmed: the person's values for the fields of the question"),
    ] = None
    wait: Wait = None


def handle(services: Services, arguments: SubmitArguments, caller: Caller) -> Outcome:
    from workflowlookup.tools.elicitation import answered_run, elicit_confirmation  # noqa: PLC0415 - with the first run
    from workflowlookup.tools.pending_runs import await_run, is_at_work  # noqa: PLC0415

    earlier = None
    if (run := answered_run(services, arguments.run_id, caller)) is not None:
        outcome: Run | Elicitation = run  # the output was stored by the call that asked: it is not submitted again
        if run.open_question is not None:
            outcome = elicit_confirmation(services, run, caller)
    elif arguments.confirmed is not None:
        outcome = _relay(services, arguments, caller)
    else:
        outcome, earlier = _submit(services, arguments, caller)
    if isinstance(outcome, Elicitation):
        return outcome

    def make_answer(run: "Run") -> Result | Elicitation:
        return _answer_or_ask(services, run, caller, earlier)

    if is_at_work(outcome) and arguments.wait is not False:
        return await_run(services, outcome, caller, make_answer)
    return make_answer(outcome)


def _answer_or_ask(services: Services, run: "Run", caller: Caller, earlier: "Verdict | None") -> Result | Elicitation:
    """The state of the run with the earlier verdict; or the question, if a person is needed and can be asked."""
    from workflowlookup.tools.elicitation import elicit_confirmation, has_answer, may_elicit  # noqa: PLC0415
    from workflowlookup.tools.run_answers import answer  # noqa: PLC0415

    if run.open_question is not None:  # the question may have been answered meanwhile
        run = services.runs.get(run.id)
    if run.open_question is None or not may_elicit(services, run, caller) or has_answer(run, caller):
        return answer(services, run, caller, earlier, is_reply=True)
    outcome = elicit_confirmation(services, run, caller)
    if isinstance(outcome, Elicitation):
        return outcome
    return answer(services, outcome, caller, earlier, is_reply=True)


def _submit(services: Services, arguments: SubmitArguments, caller: Caller) -> "tuple[Run, Verdict | None]":
    runs, run_id, step = services.runs, arguments.run_id, arguments.step_id
    output, changes = arguments.output, arguments.context or {}
    if output is not None:
        run = runs.submit(run_id, step, output, changes, by=caller.name)
        return run, runs.earlier_verdict(run, step, output, changes)
    if not changes:
        raise InvalidParams("output is required, unless context has what the run waits for or confirmed is set")
    return runs.supply(run_id, step, changes, by=caller.name), None


def _relay(services: Services, arguments: SubmitArguments, caller: Caller) -> "Run | Elicitation":
    """The person's answer as the agent reports it; but a person who can be asked is asked."""
    from workflowlookup.tools.elicitation import elicit_confirmation, may_elicit  # noqa: PLC0415
    from workflowlookup.tools.run_answers import only_a_person  # noqa: PLC0415

    runs, run_id, step = services.runs, arguments.run_id, arguments.step_id
    run = runs.get(run_id)
    is_open = run.open_question is not None and run.current == step
    if is_open and may_elicit(services, run, caller):
        return elicit_confirmation(services, run, caller)
    if run.required_confirmer(services.confirmation) == "person":
        reason = only_a_person(services, run) if is_open else "Only a person may confirm here, not an agent."
        raise RunStateError(reason, runId=run_id, state=run.state, stepId=step)
    note, by = arguments.note or "", caller.name
    if arguments.confirmed:
        return runs.confirm(run_id, step, how="relayed", note=note, answers=arguments.answers or {}, by=by)
    return runs.deny(run_id, step, how="relayed", note=note, by=by)


TOOL = Tool(
    name="workflow_submit",
    title="Submit the output of a step of a run",
    description=(
        "Submits your output of the current step of a run. The answer has the next step, or verdict says what to fix. "
        "An accepted one counts once."
    ),
    arguments=StructArguments(SubmitArguments),
    output_schema=RUN_SCHEMA,
    example=(
        {"runId": "9f2c41d07b3e", "stepId": "reproduce", "output": "It crashes."},
        {
            "runId": "9f2c41d07b3e",
            "state": "waiting",
            "progress": {"done": 0, "total": 6},
            "waitingFor": "output",
            "verdict": {
                "valid": False,
                "issues": ["The reproduction is too thin to repeat."],
                "suggestions": [
                    "Review validation criteria and adjust output accordingly.",
                    "Add at least 139 more characters (now 11, at least 150 are needed).",
                ],
            },
            "attempts": 1,
            "step": {"id": "reproduce", "title": "Reproduce the failure"},
            "next": "Fix what verdict says, then call workflow_submit with stepId 'reproduce' and the whole output "
            "again.",
        },
    ),
    handler=handle,
    read_only=False,
    can_be_task=True,
    meta=ALWAYS_LOADED,
)
