"""What the server has to look at for a run: snapshots of the root, measures before a step, proofs of an output.

Pure questions about a run; `taking` decides what follows from the answers, and `proving` looks at the world.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final, TypeAlias

import msgspec

from workflowlookup.language.conditions import describe, walk
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.proof import AnyProof, CommandProof, FileProof, GitProof, Since, is_at_start
from workflowlookup.language.values import Context, assign, brief, lookup
from workflowlookup.runs.proofs.state import NO_PROOFS, PROOF_VARIABLE
from workflowlookup.runs.run import Run

MAX_VALUE: Final = 100
"""Limit on the characters of a variable in a reason."""
_TEMPLATE: Final = re.compile(r"\{\{[^{}]*\}\}")


class SnapshotDue(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the root has to be taken."""

    since: Since
    globs: tuple[str, ...] = ()
    """The files that proofs look at, for a root that is not a repository."""


Due: TypeAlias = SnapshotDue | AnyProof


def due_at_start(run: Run, step: PromptStep, step_id: str, scope: Context, budget: Budget) -> Iterator[Due]:
    """What has to be looked at before a step is handed out, without what was looked at already."""
    every = list(_proofs_of(run.workflow)) if run.run_snapshot is None else []
    if any(_needs(proof, "run") for proof in every):
        yield SnapshotDue(since="run", globs=snapshot_globs(every))
    has_snapshot = run.step_snapshot is not None and run.step_snapshot[0] == step_id
    if not has_snapshot and any(_needs(proof, "step") for proof in step.proofs):
        yield SnapshotDue(since="step", globs=snapshot_globs(step.proofs))
    taken = run.proofs.get(step_id, NO_PROOFS).judgements
    for proof in step.proofs:
        if is_at_start(proof) and proof.name not in taken and _applies(proof, (scope,), budget):
            yield proof


def due_for_output(run: Run, step: PromptStep, with_output: Context, budget: Budget) -> Iterator[AnyProof]:
    """The proofs of an output of the current step. As for rules, it is enough if the condition may hold in one of two
    contexts: when the step was handed out, or with what came with the output.
    """
    for proof in step.proofs:
        if not is_at_start(proof) and _applies(proof, (run.scope, with_output), budget):
            yield proof


def switched_off(run: Run, changes: Context, captured: Context, budget: Budget) -> dict[str, str]:
    """By name: the proofs of the current step that are not due for an output with these variables, and why.

    Without those whose condition is about measures only: the server itself has decided about them.
    """
    with_output = assign(scope_of(run.workflow, run.current, {**run.context, **changes}, run.extents), captured)
    due = {proof.name for proof in due_for_output(run, run.step, with_output, budget)}
    reasons: dict[str, str] = {}
    for proof in run.step.proofs:
        if is_at_start(proof) or proof.name in due or proof.condition is None:
            continue
        names = dict.fromkeys(str(part["var"]) for part in walk(proof.condition) if "var" in part)
        declared = [name for name in names if name.partition(".")[0] != PROOF_VARIABLE]
        if declared:
            values = ", ".join(f"{name} is {brief(lookup(with_output, name), MAX_VALUE)}" for name in declared)
            reasons[proof.name] = f"It applies only if {describe(proof.condition)}; {values}."
    return reasons


def all_due(run: Run, budget: Budget) -> list[Due]:
    """What is due in a run that waits for proofs, in order: what was taken of it and what is left."""
    proving = run.proving
    if proving is None:
        return []
    if proving.request.reason == "output":
        return list(due_for_output(run, run.step, scope_with_output(run), budget))
    taken = [proof for proof in run.step.proofs if proof.name in proving.judgements]
    return [*taken, *due_at_start(run, run.step, run.current, run.scope, budget)]


def next_due(run: Run, budget: Budget) -> Due | None:
    """What has to be looked at next; None if nothing is left, or a proof of the output has failed."""
    taken = run.proving.judgements if run.proving is not None else {}
    is_output = run.proving is not None and run.proving.request.reason == "output"
    if is_output and any(judgement.verdict == "failed" for judgement in taken.values()):
        return None
    return next((due for due in all_due(run, budget) if _is_left(due, taken)), None)


def _is_left(due: Due, taken: Collection[str]) -> bool:
    """Whether it is not among the names of the proofs that were taken. A snapshot is due only until it is taken."""
    return isinstance(due, SnapshotDue) or due.name not in taken


def scope_with_output(run: Run) -> Context:
    """The variables that proofs see: with those that came with the output, once there is one."""
    if run.proving is None or run.proving.request.reason == "start":
        return run.scope
    request = run.proving.request
    scope = scope_of(run.workflow, run.current, {**run.context, **request.context}, run.extents)
    return assign(scope, request.captured)


def last_tree(run: Run) -> str:
    """The digest of the files when the last proof of the current output was taken; empty if there is none."""
    if run.proving is None or run.proving.request.reason != "output":
        return ""
    return next((one.tree for one in reversed(list(run.proving.judgements.values())) if one.tree), "")


def _applies(proof: AnyProof, contexts: tuple[Context, ...], budget: Budget) -> bool:
    condition = proof.condition
    return condition is None or any(condition.may_hold(context, budget) for context in contexts)


def _proofs_of(workflow: Workflow) -> Iterator[AnyProof]:
    for step in workflow.steps.values() if workflow.has_proofs else ():
        if isinstance(step, PromptStep):
            yield from step.proofs


def _needs(proof: AnyProof, since: Since) -> bool:
    """Whether a proof compares with a snapshot."""
    match proof:
        case CommandProof(against=against):
            return against is not None and against.base == since
        case FileProof(changed=changed):
            return changed == since
        case GitProof():
            return proof.since == since and bool(proof.changed or proof.unchanged or proof.commits)
    return False


def snapshot_globs(proofs: "list[AnyProof] | tuple[AnyProof, ...]") -> tuple[str, ...]:
    """The globs of the files whose changes matter. A variable may have its value only later: it matches anything."""
    paths = [proof.path for proof in proofs if isinstance(proof, FileProof) and proof.changed]
    return tuple(dict.fromkeys(_TEMPLATE.sub("*", path) for path in paths))
