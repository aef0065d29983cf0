"""What the run tools answer: where a run stands, in few words, and what to do next.

An answer is made from the run, and from whose word counts where a person is needed: the same run, the same answer.
Loaded with the first call of a run tool, not before; the schemas of answers are in `run_schemas`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from workflowlookup.core.advance import loops_to_end, remedy_of
from workflowlookup.core.calls import call_arguments, name_call
from workflowlookup.core.events import EndUnknown, Failed, OutputAccepted, OutputRefused
from workflowlookup.core.guidance import filler
from workflowlookup.core.model import PromptStep
from workflowlookup.core.navigation import MOST_SKIPPED, Skipped, explain_skip, find_step
from workflowlookup.core.run import Run, State, Waiting
from workflowlookup.core.values import Json
from workflowlookup.tools.registry import Ask, Caller, Services
from workflowlookup.tools.workflow_next import tell, tell_need
from workflowlookup.tools.workflow_validate import REVIEW

CANCELLED: Final = "Start a new one with workflow_start if it is wanted again."
MOST_SHOWN: Final = 1_000
"""How many characters of an output a person is shown with a question."""


def answer(services: Services, run: Run, caller: Caller) -> dict[str, Json]:
    """Where the run stands, for the one who is to go on with it."""
    progress: dict[str, Json] = {"done": len(run.results)}
    if run.total is not None:
        progress["total"] = run.total
    reply: dict[str, Json] = {"runId": run.id, "state": run.state, "progress": progress}
    if run.waiting_for is not None:
        reply["waitingFor"] = run.waiting_for
    reply |= _verdict(run)
    if run.waiting_for is Waiting.OUTPUT:
        reply |= _step(run)
        reply["next"] = _next_for_output(run)
    elif run.waiting_for is Waiting.CONTEXT:
        reply |= tell_need(run.workflow, run.current, run.missing[0], run.warnings)
        del reply["step"]
        reply["next"] = _next_for_context(run)
    elif run.waiting_for is Waiting.CONFIRMATION:
        reply["confirmation"] = {"stepId": run.current, "title": title_of(run), "question": question(run)}
        reply["next"] = _next_for_confirmation(services, run, caller)
    elif run.waiting_for is Waiting.CALL:
        reply |= _at_work(services, run)
    else:
        reply |= _end(run)
    if isinstance(run.judged, OutputAccepted) and run.judged.warnings:
        reply["warnings"] = [*run.judged.warnings, *reply.get("warnings", ())]
    return reply


def answer_with_result(services: Services, run: Run, caller: Caller) -> dict[str, Json]:
    """As `answer`, for the caller of a workflow tool: with the result of a completed run, whoever did its steps."""
    told = answer(services, run, caller)
    return {**told, "result": result_of(run)} if run.state is State.COMPLETED else told


def _at_work(services: Services, run: Run) -> dict[str, Json]:
    """What the server does for the run now."""
    call = run.calling
    doing: dict[str, Json] = {"stepId": run.current, "title": title_of(run)}
    if run.step.call is not None:
        doing["calls"] = name_call(run.step.call)
    reply: dict[str, Json] = {"call": doing}
    if call is not None:
        doing["attempt"] = max(call.attempt, 1)
        if call.failure:
            doing["failure"] = call.failure
    if run.state is State.QUEUED:
        position, length = services.runs.queue_position(run.id)
        reply["queue"] = {"position": position, "length": length}
    told = (
        f"The server works on it. Call workflow_status with runId '{run.id}' to see how far it is, or workflow_cancel."
    )
    return {**reply, "next": told}


def result_of(run: Run) -> Json:
    """What came of a run, in one value: what its last call gave, or the output of its last step."""
    if not run.results:
        return None
    last = next(reversed(run.results))
    step = find_step(run.workflow, last)
    save_as = step.call.save_as if isinstance(step, PromptStep) and step.call is not None else ""
    return run.context[save_as] if save_as in run.context else run.results[last]


def _verdict(run: Run) -> dict[str, Json]:
    match run.judged:
        case OutputAccepted():
            return {"verdict": {"valid": True, "issues": [], "suggestions": []}}
        case OutputRefused(issues=issues, suggestions=suggestions, missing=missing):
            verdict = {"valid": False, "issues": issues, "suggestions": [REVIEW, *suggestions]}
            return {"verdict": verdict, "attempts": run.attempts, **({"missing": missing} if missing else {})}
    return {}


def _step(run: Run) -> dict[str, Json]:
    told = tell(run.workflow, run.offered)
    if isinstance(run.judged, OutputRefused):
        told.pop("missing", None)  # the refusal has named them, with those that the step should have produced
    return told


def _next_for_output(run: Run) -> str:
    submit = f"call workflow_submit with runId '{run.id}', stepId '{run.current}'"
    if isinstance(run.judged, OutputRefused):
        most = run.step.max_attempts
        left = "" if most is None else f" Attempts left: {most - run.attempts}."
        told = f"Mend what verdict says, then {submit} and the whole output again.{left}"
    elif run.current in run.answers:
        said = f': "{run.note}"' if run.note else "."
        told = f"A person did not agree to this step{said} Do it again with that in mind, then {submit} and the output."
    else:
        told = f"Do what guidance.prompt says, then {submit} and the full output."
    ends = " or ".join(f"'{loop_id}'" for loop_id in loops_to_end(run))
    return f"{told} When nothing is left for the loop to do, submit stepId {ends} instead." if ends else told


def _next_for_context(run: Run) -> str:
    example = msgspec.json.encode(run.missing[0].example["context"]).decode()
    return (
        f"Find out what missing asks for, then call workflow_submit with runId '{run.id}', stepId '{run.current}', "
        f"no output, and a context such as {example}."
    )


def _next_for_confirmation(services: Services, run: Run, caller: Caller) -> str:
    command = f"`workflowlookup confirm {run.id}` (or with --deny)"
    if not services.access.may_confirm(services.confirmation):
        return (
            f"Your token may not confirm. Have a person who may do it in the console, or with {command}, "
            f"then call workflow_status with runId '{run.id}'."
        )
    if may_ask(services, caller):
        return (
            f"The person has not answered. Call workflow_submit with runId '{run.id}', stepId '{run.current}' and "
            f"confirmed true to show them the form again, or have them run {command}."
        )
    if services.confirmation == "person":
        return f"Have the person run {command} in a terminal, then call workflow_status with runId '{run.id}'."
    return (
        "Show the person what confirmation.question says and wait for the answer. Then call workflow_submit with "
        f"runId '{run.id}', stepId '{run.current}', confirmed true or false, and the person's words as note."
    )


def _end(run: Run) -> dict[str, Json]:
    if run.state is State.COMPLETED:
        reply: dict[str, Json] = {"warnings": run.warnings} if run.warnings else {}
        if run.skipped:
            skips = list(run.skipped.items())[:MOST_SKIPPED]
            reply["skipped"] = [explain_skip(Skipped(step_id=step, condition=why)) for step, why in skips]
        if any(isinstance(step, PromptStep) and step.call is not None for step in run.workflow.steps.values()):
            reply["result"] = result_of(run)
        return {**reply, "next": "The run is complete: tell the user the outcome. workflow_status has the results."}
    stopped = stopped_in(run)
    what = {"stopped": stopped} if stopped else {}
    remedy = remedy_of(run)
    if isinstance(run.end, Failed):
        error = {
            "reason": run.end.reason,
            "remedy": remedy,
            **({"timedOut": True} if run.end.timed_out else {}),
            **remote_error(run),
        }
        return {"error": error, **what, "next": f"The run failed: tell the user why. {remedy}"}
    reason = {"reason": run.end.reason} if run.end and run.end.reason else {}
    if isinstance(run.end, EndUnknown):
        return {**reason, "next": f"It was started, and its end cannot be known here. {remedy}"}
    doubt = f"Its call may still be running. {remedy}" if run.may_run else CANCELLED
    return {**reason, **what, "next": f"The run is cancelled: stop. {doubt}"}


def remote_error(run: Run) -> dict[str, Json]:
    """What another system said about the failure that a run ended with: code, message, detail and output."""
    call = run.calling
    if call is None or call.error is None:
        return {}
    said: dict[str, Json] = msgspec.to_builtins(call.error)
    return said


def stopped_in(run: Run) -> list[dict[str, Json]]:
    """What became of the call that ran beneath a run when it ended."""
    call = run.calling
    if not run.is_over or call is None or not call.begun:
        return []
    if call.stopped is not None:
        return [{"stepId": call.step_id, "stopped": call.stopped.stopped, "told": call.stopped.told}]
    named = name_call(run.step.call) if run.step.call is not None else "what it called"
    told = f"nobody has said yet that {named} was stopped: it may still be running"
    return [{"stepId": call.step_id, "stopped": False, "told": told}]


def iso(milliseconds: int) -> str:
    """`2026-11-16T09:30:00.000Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ── a person's word ─────────────────────────────────────────────────────────────────────────────────────────────

_FORM: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "confirmed": {"type": "boolean", "title": "Go on?", "description": "Yes: the run goes on."},
        "note": {"type": "string", "title": "Note", "description": "What the agent should know; above all, why not."},
    },
    "required": ["confirmed"],
}


_QUESTION: Final = "confirm-{}-{}"
"""The key of a question: the run, and the sequence at which it was asked."""


def question_key(run: Run) -> str:
    """What the question to a person is known by, that the run waits for now."""
    return _QUESTION.format(run.id, run.sequence)


def may_ask(services: Services, caller: Caller) -> bool:
    """Whether the person is asked through the client."""
    return (
        services.confirmation != "agent" and caller.can_be_asked and services.access.may_confirm(services.confirmation)
    )


def asked_before(services: Services, run_id: str, caller: Caller) -> Run | None:
    """The run as it was when this call led to the question that is answered now."""
    prefix = _QUESTION.format(run_id, "")
    sequences = [int(key.removeprefix(prefix)) for key in caller.answers if key.startswith(prefix)]
    return services.runs.at(run_id, sequences[-1]) if sequences else None


def ask_person(services: Services, run: Run, caller: Caller) -> Run | Ask:
    """The run after the person's answer to what it waits for; the question, as long as there is no answer."""
    runs = services.runs
    answered = runs.after(run)
    if answered.sequence != run.sequence:  # by the person, before this call was sent again
        return answered
    key = question_key(run)
    said: Mapping[str, Any] | None = caller.answers.get(key)
    if said is None:
        return Ask(key=key, message=question(run), schema=_FORM)
    if said["action"] == "cancel":
        return run
    content = said.get("content") or {}
    agrees = said["action"] == "accept" and content["confirmed"]
    tell_runs = runs.confirm if agrees else runs.deny
    return tell_runs(run.id, run.current, note=content.get("note", ""), by=caller.name)


def question(run: Run) -> str:
    """What a person is asked, with what it is about."""
    output = run.judged.output if run.judged else ""
    shown = output if len(output) <= MOST_SHOWN else f"{output[:MOST_SHOWN]}… (the rest is in run://{run.id})"
    name = f"Step '{title_of(run)}' of '{run.workflow.name}'"
    if run.asked is not None and run.asked.reason == "call" and run.step.call is not None:
        arguments = msgspec.json.format(msgspec.json.encode(call_arguments(run))).decode()
        shown = arguments if len(arguments) <= MOST_SHOWN else f"{arguments[:MOST_SHOWN]}… (cut)"
        return f"{name} will call {name_call(run.step.call)}. Do you agree? If not, the run fails.\n\n{shown}"
    if isinstance(run.judged, OutputRefused):
        issues = " ".join(run.judged.issues)
        return (
            f"{name} was refused as often as it may be: {issues} Accept it as it is? If not, the run fails.\n\n{shown}"
        )
    return f"{name} is done. Do you agree, so that the run goes on?\n\n{shown}"


def title_of(run: Run) -> str:
    """The title of the step that the run is at."""
    return filler(run.scope, {})(run.step.title)
