"""Rehearsals: walk one case of a fixture as an agent would, and compare the outcome with what the case expects.

`rehearse` returns the outcome and every difference in words, and records it in a `Coverage`. `corrections` is what the
fixture would have to expect. No files here: `fixtures` has the format, `cli.commands.test_` the command.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.coverage import Coverage
from workflowlookup.authoring.fixtures import NOTHING, Case, DeclaredProofs, Outputs, RefusedOutput
from workflowlookup.authoring.rehearsed_proofs import CaseProofs, TakeProof, unknown_proofs, with_measures
from workflowlookup.errors import InvalidCriteria, InvalidParams, InvalidWorkflow
from workflowlookup.language.captures import capture_values
from workflowlookup.language.contract import declared_variables, how_to_send, misfitting, need_of_loop
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import PathTo, suggest
from workflowlookup.language.guidance import guide, requires_confirmation
from workflowlookup.language.model import LoopStep, PromptStep, Workflow
from workflowlookup.language.navigation import (
    NextStep,
    find_step,
    loops_around,
    next_step,
)
from workflowlookup.language.text import joined, shorten
from workflowlookup.language.validation import judge_step
from workflowlookup.language.values import Context, Json
from workflowlookup.runs.questions import refuse_misfitting_answers

MAX_PATH: Final = 1_000
"""The maximum number of steps of a case: a longer path is a failure, not a hang."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the case that does not match the outcome, and how it differs."""

    field: str
    message: str


class JudgedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one output: its issues, or why it cannot be judged."""

    key: str
    """The step as the case names it, with or without an iteration."""
    instance_id: str
    field: str
    """Such as `accept[0]`."""
    output: str
    expected: tuple[str, ...] | None
    """The issues that it should have; empty if it should be accepted; None for any issues."""
    issues: tuple[str, ...] = ()
    problem: str = ""
    proof: DeclaredProofs = {}
    """What the case declares for this output alone."""

    @property
    def is_as_expected(self) -> bool:
        return not self.problem and (bool(self.issues) if self.expected is None else self.issues == self.expected)


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a case."""

    path: tuple[str, ...]
    is_complete: bool
    iterations: Mapping[str, int]
    warnings: tuple[str, ...]
    judged: tuple[JudgedOutput, ...]
    assumed_proofs: tuple[str, ...] = ()
    """The proofs that were assumed to pass, as `step: name`."""
    need: str = ""
    """The data that a loop lacks, if that ended the walk."""
    differences: tuple[Difference, ...] = ()


def rehearse(workflow: Workflow, case: Case, coverage: Coverage, take: TakeProof | None = None) -> Rehearsal:
    """Walk the case to its end, record it in `coverage`, and compare.

    With `take`, the proofs of outputs that should be accepted are taken, except those that the case declares to fail.
    """
    context: dict[str, Json] = dict(case.context)
    path: list[str] = []
    judged: list[JudgedOutput] = []
    confirmed: set[str] = set()
    proofs = CaseProofs(workflow, case, take)
    differences: list[Difference] = []
    warnings: dict[str, None] = {}
    limit = MAX_PATH if case.complete else min(len(case.steps or ()), MAX_PATH)
    last = need = ""
    while True:
        loop_id = _loop_ended_by_hand(workflow, case, path)
        if loop_id:
            path.append(loop_id)
            last = ""
            continue
        budget = Budget()
        following = next_step(workflow, path, context, budget)
        step = following.step
        if step is not None and step.asks_before and following.instance_id not in confirmed:
            confirmed.add(following.instance_id)
            if answers := _answers(case, following, differences, budget):
                context |= answers
                continue  # the step may depend on the answers
        if measures := proofs.start(following):
            context = dict(with_measures(context, measures))
            continue  # the prompt may show them
        warnings |= dict.fromkeys(guide(workflow, following, budget).warnings)
        coverage.note_move(last, following, context, budget)
        if following.need is not None:
            need = how_to_send(workflow, following.instance_id, need_of_loop(workflow, following.need))
            break
        if step is None or len(path) >= limit:
            break
        coverage.note_step(following, budget)
        judged += _judge_outputs(case, following, coverage, proofs)
        last = following.instance_id
        path.append(last)
        context |= {**case.after.get(step.id, NOTHING), **case.after.get(last, NOTHING)}
        context |= _captured(case, step, last, budget)
        context = dict(with_measures(context, proofs.complete(following, {**following.context, **context})))
        if not step.asks_before:
            context |= _answers(case, following, differences, budget, {**following.context, **context})
    outcome = Rehearsal(
        path=tuple(path),
        is_complete=following.is_complete,
        need=need if len(path) < limit else "",
        iterations=_count_iterations(workflow, path),
        warnings=tuple(warnings),
        judged=tuple(judged),
        assumed_proofs=proofs.assumed,
    )
    if outcome.is_complete:
        coverage.note_end(outcome.path, outcome.iterations, following)
    return msgspec.structs.replace(outcome, differences=(*_differences(workflow, case, outcome), *differences))


def _answers(
    case: Case, following: NextStep, differences: list[Difference], budget: Budget, after: Context = NOTHING
) -> Mapping[str, Json]:
    """The answers of the person who confirms a step, if anybody must; `after` is the context once the step is done.

    Answers that do not match the question become a difference.
    """
    step = following.step
    if step is None or step.confirmation is None:
        return NOTHING
    key = following.instance_id if following.instance_id in case.answers else step.id
    contexts = (following.context, after or following.context)
    is_needed = any(requires_confirmation(step, context, budget) for context in contexts)
    if key not in case.answers or not is_needed:
        return NOTHING
    answers = case.answers[key]
    try:
        refuse_misfitting_answers(step.confirmation, answers)
    except InvalidParams as misfit:
        differences.append(Difference(field=f"answers.{key}", message=f"The question of '{key}': {misfit.remedy}"))
        return NOTHING
    return answers


def _captured(case: Case, step: PromptStep, instance_id: str, budget: Budget) -> dict[str, Json]:
    """The variables that a step sets in the context; its first output under `accept` counts as submitted."""
    outputs = case.outputs.get(instance_id) or case.outputs.get(step.id)
    if outputs is None or not outputs.accept:
        return {}
    captured = dict(capture_values(step.captures, outputs.accept[0], budget).values)
    if step.call is None or not step.call.save_as:
        return captured
    try:
        return {step.call.save_as: msgspec.json.decode(outputs.accept[0]), **captured}
    except (msgspec.DecodeError, RecursionError):
        return {step.call.save_as: outputs.accept[0], **captured}


def _loop_ended_by_hand(workflow: Workflow, case: Case, path: Sequence[str]) -> str:
    """The id of a loop, if the expected path has one here; else empty."""
    expected = (case.steps or ())[len(path) : len(path) + 1]
    return expected[0] if expected and isinstance(find_step(workflow, expected[0]), LoopStep) else ""


def _judge_outputs(case: Case, following: NextStep, coverage: Coverage, proofs: CaseProofs) -> Iterator[JudgedOutput]:
    step, instance_id = following.step, following.instance_id
    if step is None:
        return
    key = instance_id if instance_id in case.outputs else step.id
    for field, output, expected, own in _attempts(case.outputs.get(key, Outputs())):
        budget = Budget()
        issues: tuple[str, ...] = ()
        problem = ""
        try:
            verdict = judge_step(step, output, following.context, budget)
            issues = tuple(issue.message for issue in verdict.issues)
            scope = {**following.context, **verdict.captured}
            coverage.note_rules(step, output, scope, budget)
            if verdict.valid:
                coverage.note_output(step, scope, budget)
                proved = proofs.judge(following, scope, own, is_accepted=expected == ())
                coverage.note_proofs(step, proved)
                issues = proved.issues
        except (InvalidCriteria, InvalidWorkflow) as refusal:
            problem = refusal.remedy
        yield JudgedOutput(
            key=key,
            instance_id=instance_id,
            field=field,
            output=output,
            expected=expected,
            issues=issues,
            problem=problem,
            proof=own,
        )


def _attempts(outputs: Outputs) -> Iterator[tuple[str, str, tuple[str, ...] | None, DeclaredProofs]]:
    for index, text in enumerate(outputs.accept):
        yield f"accept[{index}]", text, (), NOTHING
    for index, item in enumerate(outputs.refuse):
        refused = RefusedOutput(output=item) if isinstance(item, str) else item
        yield f"refuse[{index}]", refused.output, refused.issues or None, refused.proof


def _count_iterations(workflow: Workflow, path: Sequence[str]) -> dict[str, int]:
    """For every loop, how many iterations were entered in total."""
    entered = {key for instance_id in path for key in loops_around(workflow, instance_id)}
    loops = [step.id for step in workflow.steps.values() if isinstance(step, LoopStep)]
    return {loop_id: sum(entered_id == loop_id for entered_id, _ in entered) for loop_id in loops}


# ── differences ─────────────────────────────────────────────────────────────────────────────────────────────────


def _differences(workflow: Workflow, case: Case, outcome: Rehearsal) -> Iterator[Difference]:
    yield from _unknown_names(workflow, case)
    if workflow.contract is not None:
        yield from _unknown_variables(workflow, case)
    if len(outcome.path) >= MAX_PATH and not outcome.is_complete:
        message = f"The path is longer than {MAX_PATH:,} steps and was abandoned; does a loop never end?"
        yield Difference(field="steps", message=f"{message} It ended with {_arrows(outcome.path[-3:])}")
        return
    if outcome.need:
        yield Difference(field="steps", message=outcome.need)
    if case.steps is not msgspec.UNSET and outcome.path != case.steps:
        yield Difference(field="steps", message=_path_difference(case.steps, outcome.path))
    if outcome.is_complete and not case.complete:
        yield Difference(field="complete", message="The workflow is complete, and more steps were expected")
    for loop_id, expected in (case.iterations or {}).items():
        actual = outcome.iterations.get(loop_id, expected)
        if actual != expected:
            message = f"The iterations of loop '{loop_id}' differ: expected {expected}, got {actual}"
            yield Difference(field=f"iterations.{loop_id}", message=message)
    if case.warnings is not msgspec.UNSET and outcome.warnings != case.warnings:
        message = f"Expected the warnings {_quoted_list(case.warnings)}; got {_quoted_list(outcome.warnings)}"
        yield Difference(field="warnings", message=message)
    for judged in outcome.judged:
        if not judged.is_as_expected:
            yield Difference(field=f"outputs.{judged.key}.{judged.field}", message=_verdict_difference(judged))
    judged_keys = {judged.key for judged in outcome.judged}
    for key, outputs in case.outputs.items():
        if key not in judged_keys and (outputs.accept or outputs.refuse) and find_step(workflow, key):
            message = f"The outputs of '{key}' were never judged: the step was not handed out"
            yield Difference(field=f"outputs.{key}", message=message)


def _unknown_names(workflow: Workflow, case: Case) -> Iterator[Difference]:
    """Names of steps and loops that do not exist: without this, nobody would check these expectations."""
    for field, names in (("after", case.after), ("answers", case.answers), ("outputs", case.outputs)):
        for name in names:
            if not isinstance(find_step(workflow, name), PromptStep):
                message = f"The workflow has no step {suggest(name, list(workflow.steps))} that is handed out"
                yield Difference(field=f"{field}.{name}", message=message)
    for key, outputs in case.outputs.items():
        own = [refused.proof for refused in outputs.refuse if isinstance(refused, RefusedOutput)]
        for declared in (outputs.proof, *own):
            for name, message in unknown_proofs(find_step(workflow, key), declared):
                yield Difference(field=f"outputs.{key}.proof.{name}", message=message)
    loops = [step.id for step in workflow.steps.values() if isinstance(step, LoopStep)]
    for name in case.iterations or ():
        if name not in loops:
            message = f"The workflow has no loop {suggest(name, loops)}"
            yield Difference(field=f"iterations.{name}", message=message)


def _unknown_variables(workflow: Workflow, case: Case) -> Iterator[Difference]:
    """Variables that the workflow does not mention, and values that its contract excludes."""
    words = set(_WORD.findall(msgspec.json.encode(workflow.document).decode()))
    for field, variables in (("context", case.context), *((f"after.{key}", case.after[key]) for key in case.after)):
        for name in variables:
            if words.isdisjoint(_WORD.findall(name)):
                message = f"The workflow has no variable {suggest(name, declared_variables(workflow))}"
                yield Difference(field=f"{field}.{name}", message=message)
        for need in misfitting(workflow, variables):
            yield Difference(field=f"{field}.{need.variable}", message=need.sentence())


_WORD: Final = re.compile(r"[\w$]+")


def _path_difference(expected: Sequence[str], actual: Sequence[str]) -> str:
    first = next((index for index, pair in enumerate(zip(expected, actual, strict=False)) if pair[0] != pair[1]), None)
    index = min(len(expected), len(actual)) if first is None else first
    wanted, got = (f"'{path[index]}'" if index < len(path) else "the end" for path in (expected, actual))
    return (
        f"The path differs at step {index + 1}: expected {wanted}, got {got}\n"
        f"expected: {_arrows(expected)}\n"
        f"got:      {_arrows(actual)}"
    )


def _verdict_difference(judged: JudgedOutput) -> str:
    subject = f"The output '{shorten(joined(judged.output), 40)}' of '{judged.instance_id}'"
    if judged.problem:
        return f"{subject} cannot be judged: {judged.problem}"
    if not judged.issues:
        return f"{subject} should be refused and was accepted"
    got = _quoted_list(judged.issues)
    if judged.expected:
        return f"{subject} was refused with other messages: expected {_quoted_list(judged.expected)}; got {got}"
    return f"{subject} should be accepted and was refused: {got}"


def _arrows(path: Sequence[str]) -> str:
    return " → ".join(path) or "(no step)"


def _quoted_list(texts: Sequence[str]) -> str:
    return "; ".join(f"'{text}'" for text in texts) or "(none)"


# ── corrections ─────────────────────────────────────────────────────────────────────────────────────────────────


def corrections(case: Case, outcome: Rehearsal) -> dict[PathTo, Json]:
    """The fields of the case that differ from the outcome, with the values of the outcome.

    Steps that the author left out are added. A path that was abandoned is not.
    """
    edits: dict[PathTo, Json] = {}
    if len(outcome.path) < MAX_PATH or outcome.is_complete:
        if outcome.path != case.steps:
            edits["steps",] = list(outcome.path)
        if outcome.is_complete and not case.complete:
            edits["complete",] = True
        for loop_id, count in outcome.iterations.items():
            if (case.iterations or {}).get(loop_id, count) != count:
                edits["iterations", loop_id] = count
        if case.iterations is msgspec.UNSET and case.steps is msgspec.UNSET and outcome.iterations:
            edits["iterations",] = dict(outcome.iterations)
        if case.warnings is not msgspec.UNSET and outcome.warnings != case.warnings:
            edits["warnings",] = list(outcome.warnings)
    for key in dict.fromkeys(judged.key for judged in outcome.judged if not judged.is_as_expected):
        edits["outputs", key] = _corrected_outputs([judged for judged in outcome.judged if judged.key == key])
        if case.outputs[key].proof:
            edits["outputs", key]["proof"] = dict(case.outputs[key].proof)
    return edits


def _corrected_outputs(judged: Sequence[JudgedOutput]) -> dict[str, Json]:
    """Each output under the verdict that it got; if iterations differ, the unexpected verdict counts."""
    by_field: dict[str, JudgedOutput] = {}
    for one in judged:
        if one.field not in by_field or not one.is_as_expected:
            by_field[one.field] = one
    accept: list[Json] = []
    refuse: list[Json] = []
    for one in by_field.values():
        was_accepted = not one.issues if not one.problem else one.expected == ()
        if was_accepted:
            accept.append(one.output)
        elif one.expected is None and not one.proof:
            refuse.append(one.output)
        else:
            issues = {} if one.expected is None else {"issues": list(one.issues or one.expected)}
            own = {"proof": dict(one.proof)} if one.proof else {}
            refuse.append({"output": one.output, **issues, **own})
    return {name: texts for name, texts in (("accept", accept), ("refuse", refuse)) if texts}
