"""What the run tools answer: the state of a run, and what to do next.

An answer depends only on the run and on who may confirm its steps. This module is imported with the first call of a run
tool; the schemas of answers are in `result_schemas`.
"""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from workflowlookup.access import PERSON_KINDS
from workflowlookup.errors import JournalUnavailable, WorkflowLookupError
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import MAX_SKIPPED, Skipped, explain_skip
from workflowlookup.language.values import Json
from workflowlookup.runs.draft import loops_to_end, remedy_of
from workflowlookup.runs.events import EndUnknown, Failed, OutputAccepted, OutputRefused
from workflowlookup.runs.proofs.due import SnapshotDue, all_due
from workflowlookup.runs.proofs.state import NO_PROOFS
from workflowlookup.runs.proofs.words import proved, sentence_of, sentences_of
from workflowlookup.runs.questions import fields_of, title_of
from workflowlookup.runs.results import part_of, result_of, result_uri
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.tools.builtin.workflow_next import need_answer, step_answer
from workflowlookup.tools.builtin.workflow_validate import REVIEW
from workflowlookup.tools.contract import Caller, Services
from workflowlookup.tools.elicitation import may_elicit, question_text

RESTART: Final = "To run it again, call workflow_start."
MAX_DISMISSALS: Final = 2
"""How often a person may close a question before the agent must stop asking."""


MAX_SUGGESTIONS: Final = 6
"""An agent that has followed these is told the next ones; the issues are complete."""
STEP_FIELDS: Final = frozenset({"id", "title", "askForFiles", "loop"})
"""The fields of a step that an answer has beside `guidance`, whose prompt contains the others."""

Verdict: TypeAlias = OutputAccepted | OutputRefused


def answer(
    services: Services, run: Run, caller: Caller, earlier: Verdict | None = None, *, is_reply: bool = False
) -> dict[str, Json]:
    """The state of the run, and what to do next.

    `earlier` is the verdict on an output that was sent again after the run went on. `is_reply`: to `workflow_submit`,
    so that the caller knows how a run goes, the output that it has just sent, and the step that this was for.
    """
    if earlier is not None:
        now = answer(services, msgspec.structs.replace(run, last_submission=None), caller)
        guidance = f"This output was judged before, as verdict says, and the run has gone on. {now['next']}"
        return {**now, "verdict": _verdict(run, earlier), "next": guidance}
    budget = Budget()
    progress: dict[str, Json] = {"done": len(run.results)}
    if run.total is not None:
        progress["total"] = run.total
    reply: dict[str, Json] = {"runId": run.id, "state": run.state, "progress": progress}
    if run.waiting_for is not None:
        reply["waitingFor"] = run.waiting_for
    if run.last_submission is not None:
        reply["verdict"] = _verdict(run, run.last_submission)
    if isinstance(run.last_submission, OutputRefused):
        services.runs.note_answered(run)
        reply["attempts"] = run.attempts
        if run.last_submission.missing:
            reply["missing"] = run.last_submission.missing
    reply |= _rest(services, run, caller, budget, is_reply=is_reply)
    if isinstance(run.last_submission, OutputAccepted) and run.last_submission.warnings:
        reply["warnings"] = [*run.last_submission.warnings, *reply.get("warnings", ())]
    return reply


def _rest(services: Services, run: Run, caller: Caller, budget: Budget, *, is_reply: bool) -> dict[str, Json]:
    """What the run waits for, or how it ended, and what to do."""
    match run.waiting_for:
        case Waiting.OUTPUT if is_reply and isinstance(run.last_submission, OutputRefused):
            return {"step": {"id": run.current, "title": title_of(run)}, "next": _next_for_output(run, is_reply=True)}
        case Waiting.OUTPUT:
            return {**_step(run, budget), "next": _next_for_output(run, is_reply=is_reply)}
        case Waiting.CONTEXT:
            reply = need_answer(run.workflow, run.current, run.missing[0], run.warnings)
            return {**{name: value for name, value in reply.items() if name != "step"}, "next": _next_for_context(run)}
        case Waiting.CONFIRMATION:
            advice = _next_for_confirmation(services, run, caller, budget, is_reply=is_reply)
            return {"confirmation": _confirmation(run, budget, is_reply=is_reply), "next": advice}
        case Waiting.CALL:
            return _at_work(services, run)
        case Waiting.PROOF:
            with contextlib.suppress(WorkflowLookupError):  # this server does no work of its own
                services.execution.attend(run)
            return _proving(run, budget)
    return _end(run)


def answer_with_result(services: Services, run: Run, caller: Caller) -> dict[str, Json]:
    """As `answer`, for the caller of a workflow tool: always with the result of a completed run."""
    reply = answer(services, run, caller)
    if run.state is not State.COMPLETED:
        return reply
    result = result_in(run)
    return {**reply, **result, "next": _next_of_result(run, result)}


def _confirmation(run: Run, budget: Budget, *, is_reply: bool) -> dict[str, Json]:
    """The question that the run waits for."""
    question = question_text(run, budget, quotes_output=not is_reply)
    details: dict[str, Json] = {"stepId": run.current, "title": title_of(run), "question": question}
    fields = {field.name: field.schema for field in fields_of(run, budget)}
    return {**details, **({"answers": fields} if fields else {})}


def _at_work(services: Services, run: Run) -> dict[str, Json]:
    """The call that the server makes for the run now."""
    call = run.calling
    details: dict[str, Json] = {"stepId": run.current, "title": title_of(run)}
    if run.step.call is not None:
        details["calls"] = run.step.call.described
    reply: dict[str, Json] = {"call": details}
    if call is not None:
        details["attempt"] = max(call.attempt, 1)
        if call.failure:
            details["failure"] = call.failure
    if run.state is State.QUEUED:
        with contextlib.suppress(JournalUnavailable):  # the run may have just started: its call must not fail
            position, length = services.runs.queue_position(run.id)
            reply["queue"] = {"position": position, "length": length}
    advice = f"The server works on it. Call workflow_status with runId '{run.id}' for its progress, or workflow_cancel."
    return {**reply, "next": advice}


def _proving(run: Run, budget: Budget) -> dict[str, Json]:
    """What the server proves or measures now."""
    due = [one for one in all_due(run, budget) if not isinstance(one, SnapshotDue)]
    taken = run.proving.judgements if run.proving is not None else {}
    details: dict[str, Json] = {"stepId": run.current, "title": title_of(run)}
    details["due"] = [proof.name for proof in due if proof.name not in taken]
    details["taken"] = [sentence_of(judgement) for judgement in taken.values()]
    is_start = run.proving is not None and run.proving.request.reason == "start"
    what = "looks at the project before it hands out the step" if is_start else "proves what the output says"
    return {
        "proving": details,
        "next": f"The server {what}. Leave the files of the project as they are, and call workflow_status with runId "
        f"'{run.id}' for the outcome. workflow_cancel stops it.",
    }


def proof_counts(run: Run) -> dict[str, Json]:
    """How much of the run is proven; empty if nothing is to be."""
    counts = run.proof_counts
    if not counts.total:
        return {}
    names = ("taken", "passed", "failed", "waived", "unproved", *(("skipped",) if counts.skipped else ()))
    numbers = {name: getattr(counts, name) for name in names}
    return {"proofs": {**numbers, "summary": proved(counts)}}


def result_in(run: Run) -> dict[str, Json]:
    """The result of a run; if it is too long for an answer, its first part and where the rest is."""
    result = result_of(run)
    if result is None or result.is_short:
        return {"result": result.value if result is not None else None}
    return {"resultPart": {**part_of(result), "resource": result_uri(run.id)}}


def _next_of_result(run: Run, reply: Mapping[str, Json]) -> str:
    part: Any = reply.get("resultPart")
    if part is None:
        return "The run is complete: tell the user the outcome. workflow_status has the results."
    cut = f", of which {part['kept']:,} were stored" if "kept" in part else ""
    return (
        f"The run is complete. Its result has {part['characters']:,} characters{cut}; resultPart has the first "
        f"{part['to']:,}. Call workflow_status with runId '{run.id}' and resultFrom {part['to']} for the next part, or "
        f"read the resource {part['resource']}."
    )


def _verdict(run: Run, judged: Verdict) -> dict[str, Json]:
    sentences = list(sentences_of(run, judged.step_id))
    proofs = {"proofs": sentences} if sentences else {}
    if isinstance(judged, OutputAccepted):
        return {"valid": True, "issues": [], "suggestions": [], **proofs}
    taken = run.proofs.get(judged.step_id, NO_PROOFS).judgements.values()
    is_by_proofs = any(one.verdict != "passed" and not one.at_start for one in taken)  # the criteria were met then
    suggestions = [*(() if is_by_proofs else (REVIEW,)), *judged.suggestions[:MAX_SUGGESTIONS]]
    return {"valid": False, "issues": judged.issues, "suggestions": suggestions, **proofs}


def _step(run: Run, budget: Budget) -> dict[str, Json]:
    reply = step_answer(run.workflow, run.offered, budget)
    reply["step"] = {name: value for name, value in reply["step"].items() if name in STEP_FIELDS}
    if not reply["guidance"]["requiresConfirmation"]:
        del reply["guidance"]["requiresConfirmation"]
    if run.loop is not None:
        reply["step"]["loop"] = msgspec.structs.replace(run.loop, item=msgspec.UNSET)  # the prompt has it
    if isinstance(run.last_submission, OutputRefused):
        reply.pop("missing", None)  # the reply has those of the verdict
    return reply


def _next_for_output(run: Run, *, is_reply: bool) -> str:
    run_id = "" if is_reply else f"runId '{run.id}', "
    submit = f"call workflow_submit with {run_id}stepId '{run.current}'"
    if isinstance(run.last_submission, OutputRefused):
        limit = run.step.max_attempts
        remaining = "" if limit is None else f" Attempts left: {limit - run.attempts}."
        advice = f"Fix what verdict says, then {submit} and the whole output again.{remaining}"
    elif run.refused_by_person(run.current):
        note = f': "{run.note}"' if run.note else "."
        advice = (
            f"A person did not agree to this step{note} Do it again with that in mind, then {submit} and the output."
        )
    else:
        submit = f"submit the full output as stepId '{run.current}'" if is_reply else f"{submit} and the full output"
        advice = f"Do what guidance.prompt says, then {submit}."
    ends = " or ".join(f"'{loop_id}'" for loop_id in loops_to_end(run))
    return f"{advice} When nothing is left for the loop to do, submit stepId {ends} instead." if ends else advice


def _next_for_context(run: Run) -> str:
    example = msgspec.json.encode(run.missing[0].example["context"]).decode()
    return (
        f"Find out what missing asks for, then call workflow_submit with runId '{run.id}', stepId '{run.current}', "
        f"no output, and a context such as {example}."
    )


def _next_for_confirmation(services: Services, run: Run, caller: Caller, budget: Budget, *, is_reply: bool) -> str:
    status = f"call workflow_status with runId '{run.id}'"
    if not services.access.may_confirm(run.required_confirmer(services.confirmation)):
        return f"Your token may not answer this. {_tell_user(services, run)} Then {status}."
    if may_elicit(services, run, caller):
        again = f"call workflow_submit with runId '{run.id}', stepId '{run.current}' and confirmed true"
        if run.dismissals >= MAX_DISMISSALS:
            return (
                f"The person has closed the question {run.dismissals} times without an answer. Stop here and do not "
                f"ask again by yourself. {_tell_user(services, run)} When they want to see the form again, {again}."
            )
        purpose = "A person has to answer before the run goes on. To ask them with a form"
        if run.dismissals:
            purpose = "The person has not answered. To show them the form again"
        elsewhere = "" if run.needs_person else f" They can also answer {_place(services, run)}."
        return f"{purpose}, {again}.{elsewhere}"
    if run.required_confirmer(services.confirmation) == "person":
        return f"{only_a_person(services, run)} When they have, {status}."
    fields = ", ".join(field.name for field in fields_of(run, budget))
    values = f", what they chose for {fields} as answers" if fields else ""
    if is_reply:
        is_before = run.open_question is not None and run.open_question.reason in ("before", "call")
        output = "" if is_before else ", with your output,"
        return (
            f"Ask the person confirmation.question{output} and wait. Then submit confirmed true or false{values} and "
            "their words as note."
        )
    return (
        "Show the person what confirmation.question says and wait for the answer. Then call workflow_submit with "
        f"runId '{run.id}', stepId '{run.current}', confirmed true or false{values}, and the person's words as note."
    )


def only_a_person(services: Services, run: Run) -> str:
    """That the agent may not answer, and what it does instead."""
    return f"Only a person may answer this, not you. {_tell_user(services, run)}"


def _tell_user(services: Services, run: Run) -> str:
    """What the agent tells the user, who answers elsewhere. No command is named: an agent could run it."""
    waits = f"Tell the user that run '{run.id}' waits for their answer about step '{run.current}'"
    return f"{waits}; they answer {_place(services, run)}. Wait for that, and do not try to answer in their place."


def _place(services: Services, run: Run) -> str:
    """Where and how a person answers: `in the console with their passkey`."""
    kinds = services.person_confirmation if run.needs_person else PERSON_KINDS
    passkey = " with their passkey" if run.needs_person and "console" not in kinds else ""
    key = " with their key" if run.needs_person and "terminal" not in kinds else ""
    places = [f"in the console{passkey}"] if {"passkey", "console"} & set(kinds) else []
    if services.access.is_unrestricted and {"key", "terminal"} & set(kinds):
        places.append(f"in their own terminal{key}")
    return " or ".join(places) or "in a client that shows forms"


def _end(run: Run) -> dict[str, Json]:
    if run.state is State.COMPLETED:
        reply: dict[str, Json] = {"warnings": run.warnings} if run.warnings else {}
        if run.skipped:
            skips = list(run.skipped.items())[:MAX_SKIPPED]
            reply["skipped"] = [explain_skip(Skipped(step_id=step, condition=why)) for step, why in skips]
        if any(isinstance(step, PromptStep) and step.call is not None for step in run.workflow.steps.values()):
            reply |= result_in(run)
        return {**reply, **proof_counts(run), "next": _next_of_result(run, reply)}
    stopped = stopped_in(run)
    calls = {"stopped": stopped} if stopped else {}
    remedy = remedy_of(run)
    if isinstance(run.end, Failed):
        error = {
            "reason": run.end.reason,
            "remedy": remedy,
            **({"timedOut": True} if run.end.timed_out else {}),
            **remote_error(run),
        }
        return {"error": error, **calls, "next": f"The run failed: tell the user why. {remedy}"}
    reason = {"reason": run.end.reason} if run.end and run.end.reason else {}
    if isinstance(run.end, EndUnknown):
        return {**reason, "next": f"It was started, and its end cannot be known here. {remedy}"}
    doubt = f"Its call may still be running. {remedy}" if run.may_run else RESTART
    return {**reason, **calls, "next": f"The run is cancelled: stop. {doubt}"}


def remote_error(run: Run) -> dict[str, Json]:
    """What another system reported about the failure of a run: code, message, detail and output."""
    call = run.calling
    if call is None or call.error is None:
        return {}
    error: dict[str, Json] = msgspec.to_builtins(call.error)
    return error


def stopped_in(run: Run) -> list[dict[str, Json]]:
    """Whether the call that was running when the run ended was stopped."""
    call = run.calling
    if not run.is_over or call is None or not call.begun:
        return []
    if call.stopped is not None:
        return [{"stepId": call.step_id, "stopped": call.stopped.stopped, "told": call.stopped.told}]
    named = run.step.call.described if run.step.call is not None else "what it called"
    message = f"it is not known yet whether {named} was stopped: it may still be running"
    return [{"stepId": call.step_id, "stopped": False, "told": message}]


MIN_TIME: Final = -62_135_596_800_000
"""The year 1."""
MAX_TIME: Final = 253_402_300_799_000
"""The last second of the year 9999."""


def iso(milliseconds: int) -> str:
    """`2026-11-16T09:30:00.000Z`; a time out of range in a journal becomes the first or last that can be written."""
    moment = datetime.fromtimestamp(min(max(milliseconds, MIN_TIME), MAX_TIME) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
