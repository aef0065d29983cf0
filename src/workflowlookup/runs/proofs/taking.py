"""Proofs in a run: what follows when a snapshot or a proof was taken, and when a person decides about what could not be
proven.

Like `advance`, these functions return a `Draft` and store nothing.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from workflowlookup.errors import RunStateError
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.rules import Issue
from workflowlookup.language.templates import filler
from workflowlookup.language.values import Context
from workflowlookup.runs import events
from workflowlookup.runs.checks import is_over_error, position_data
from workflowlookup.runs.draft import (
    Draft,
    Moment,
    accept_and_go_on,
    accept_output,
    go_on_or_fail,
    refuse_output,
    retry_or_end,
    storable,
)
from workflowlookup.runs.events import Judgement, Snapshot
from workflowlookup.runs.proofs.due import Due, SnapshotDue, due_for_output, next_due, scope_with_output
from workflowlookup.runs.proofs.state import NO_PROOFS, Proving
from workflowlookup.runs.proofs.words import describe
from workflowlookup.runs.run import Run, Waiting

NO_REASON: Final = "no reason is known"
DEFAULT_REMEDY: Final = "Make it true, then submit the output again."
MAX_TAIL: Final = 2_048
"""Limit on the stored characters of the output of a proof."""
MAX_TEXT: Final = 2_000
"""Limit on the stored characters of a summary, a reason and a remedy, each."""


def claim(run: Run, claimed: events.ProofClaimed, at: Moment) -> Draft:
    """A witness takes what is due next, or needs longer for it. Raises `RunStateError` if something else is due, or
    while the claim of another witness is valid.
    """
    due = _due_now(run, at.budget)
    if due is None or claimed.step_id != run.current or claimed.name != name_of(due):
        raise _not_due(run, f"proof '{claimed.name}'" if claimed.name else "a snapshot")
    before = _proving(run).claim
    if before is not None and before.witness != claimed.witness and before.until > at.time:
        raise RunStateError(f"Another witness, {before.witness}, takes it already.", **position_data(run, ""))
    return Draft(run, at).add(claimed)


def name_of(due: Due) -> str:
    """The name of a proof; empty for a snapshot."""
    return "" if isinstance(due, SnapshotDue) else due.name


def take_snapshot(run: Run, since: Literal["run", "step"], snapshot: Snapshot, at: Moment) -> Draft:
    """A snapshot of the root was taken. Raises `RunStateError` if that one is not due."""
    due = _due_now(run, at.budget)
    if not isinstance(due, SnapshotDue) or due.since != since:
        raise _not_due(run, f"a snapshot of the {since}")
    draft = Draft(run, at).add(events.SnapshotTaken(step_id=run.current, since=since, snapshot=snapshot))
    return _conclude_if_done(draft, run)


def take_proof(run: Run, judgement: Judgement, at: Moment) -> Draft:
    """A proof was taken. Raises `RunStateError` if another one is due.

    The first that fails refuses the output; one that could not be judged does so only after all others were taken.
    After a claim, what follows is left to `conclude`, which the driver of the run calls: a witness decides nothing.
    """
    due = _due_now(run, at.budget)
    if due is None or isinstance(due, SnapshotDue) or due.name != judgement.name:
        raise _not_due(run, f"proof '{judgement.name}'")
    is_start = _proving(run).request.reason == "start"
    judgement = msgspec.structs.replace(
        judgement,
        kind=str(due.__struct_config__.tag),
        at_start=is_start,
        summary=storable(judgement.summary)[:MAX_TEXT],
        reason=storable(judgement.reason)[:MAX_TEXT],
        remedy=storable(judgement.remedy)[:MAX_TEXT],
        tail=storable(judgement.tail)[-MAX_TAIL:],
    )
    draft = Draft(run, at).add(events.ProofTaken(step_id=run.current, judgement=judgement))
    return _conclude_if_done(draft, run)


def conclude(run: Run, at: Moment) -> Draft:
    """Nothing is due any more: witnesses took it, or a condition is not true any more. Raises `RunStateError` if
    something is due.
    """
    if _due_now(run, at.budget) is not None:
        raise RunStateError("Not all proofs have been taken.", **position_data(run, ""))
    return _conclude(Draft(run, at))


def _due_now(run: Run, budget: Budget) -> Due | None:
    """What is due next; None if nothing is. Raises `RunStateError` if the run does not wait for proofs."""
    if run.is_over:
        raise is_over_error(run)
    if run.waiting_for is not Waiting.PROOF:
        raise RunStateError("The run does not wait for proofs.", **position_data(run, ""))
    return next_due(run, budget)


def _not_due(run: Run, what: str) -> RunStateError:
    message = f"At step '{run.current}', {what} is not due now. `workflow_status` says what the run waits for."
    return RunStateError(message, **position_data(run, ""))


def _proving(run: Run) -> Proving:
    assert run.proving is not None  # every caller has checked that the run waits for proofs, or for a person's decision
    return run.proving


def _conclude_if_done(draft: Draft, before: Run) -> Draft:
    is_claimed = _proving(before).claim is not None
    return draft if is_claimed or next_due(draft.run, draft.at.budget) is not None else _conclude(draft)


def _conclude(draft: Draft) -> Draft:
    """Hand out the step, or decide about its output."""
    run = draft.run
    proving = _proving(run)
    request = proving.request
    if request.reason == "start":
        return draft.add(events.StepOffered(step_id=run.current, loop=run.loop, warnings=run.warnings))
    if any(judgement.verdict == "failed" for judgement in proving.judgements.values()):
        return _refuse(draft)
    unproved = [one for one in proving.judgements.values() if one.verdict == "unproved"]
    if unproved and run.workflow.when_unproved == "refuse":
        return _refuse(draft)
    if unproved and run.workflow.when_unproved == "ask":
        return draft.add(events.ConfirmationAsked(step_id=run.current, reason="unproved", nonce=draft.at.nonce))
    notes = tuple(f"Not proven: {describe(one)}: {one.reason or NO_REASON} {one.remedy}".rstrip() for one in unproved)
    accepted = events.OutputAccepted(
        step_id=run.current,
        output=request.output,
        key=request.key,
        captured=request.captured,
        warnings=(*request.warnings, *notes),
    )
    return accept_and_go_on(draft, accepted, request.context, scope_with_output(run), go_on=go_on_or_fail)


def _refuse(draft: Draft, hints: Sequence[str] = ()) -> Draft:
    request, judgements = _proving(draft.run).request, _not_passed(draft.run)
    issues = [_issue(draft.run, one) for one in judgements]
    tails = [f"The end of what '{one.summary}' wrote:\n{one.tail}" for one in judgements if one.tail]
    refused = refuse_output(draft, request.output, request.context, issues, (), hints=[*tails, *hints])
    return retry_or_end(draft, refused)


def _not_passed(run: Run) -> list[Judgement]:
    """What speaks against the output: the proof that failed, or those that could not be judged."""
    judgements = _proving(run).judgements.values()
    failed = [one for one in judgements if one.verdict == "failed"]
    return failed or [one for one in judgements if one.verdict == "unproved"]


def _issue(run: Run, judgement: Judgement) -> Issue:
    """What the agent has to know: what was checked, why that is not enough, and what to do."""
    proof = next((one for one in run.step.proofs if one.name == judgement.name), None)
    message = filler(scope_with_output(run), {})(proof.message) if proof is not None and proof.message else ""
    verdict = "failed" if judgement.verdict == "failed" else "could not be taken"
    summary = f" ({judgement.summary})" if judgement.summary else ""
    sentence = f"Proof '{judgement.name}'{summary} {verdict}: {judgement.reason or NO_REASON}"
    return Issue(
        message=f"{message.rstrip()} {sentence}" if message else sentence, suggestion=judgement.remedy or DEFAULT_REMEDY
    )


# ── a person's decision ─────────────────────────────────────────────────────────────────────────────────────────


def accept_unproved(draft: Draft) -> None:
    """A person accepted the output without these proofs, which is recorded."""
    request = _proving(draft.run).request
    accepted = events.OutputAccepted(
        step_id=request.step_id,
        output=request.output,
        key=request.key,
        captured=request.captured,
        warnings=request.warnings,
        waived=tuple(one.name for one in _not_passed(draft.run)),
    )
    accept_output(draft, accepted, request.context)


def refuse_unproved(draft: Draft, note: str) -> Draft:
    """A person did not accept the output without these proofs."""
    return _refuse(draft, hints=[f"A person did not accept it without proof{f': {note}' if note else '.'}"])


def waived_by_acceptance(run: Run, changes: Context, budget: Budget) -> tuple[str, ...]:
    """The proofs of the current step that did not pass, if a person accepts its refused output as it is."""
    taken = run.proofs.get(run.current, NO_PROOFS).judgements
    due = due_for_output(run, run.step, {**run.scope, **changes}, budget)
    return tuple(one.name for one in due if one.name not in taken or taken[one.name].verdict != "passed")
