"""Proofs in a rehearsal: what a fixture says that they give, or what they give in the working directory.

Without a `take` nothing is taken: a proof that the fixture does not mention is assumed to pass, and listed as such.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from workflowlookup.authoring.fixtures import Case, DeclaredProof, DeclaredProofs, Outputs, ProofVerdict
from workflowlookup.language.conditions import CompiledCondition, describe
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.formats.schemas import suggest
from workflowlookup.language.model import PromptStep, Step, Workflow
from workflowlookup.language.navigation import NextStep, split_instance
from workflowlookup.language.proof import AnyProof, CommandProof, is_at_start
from workflowlookup.language.templates import fill_values, filler
from workflowlookup.language.values import Context, Json, assign
from workflowlookup.runs.events import Judgement

TakeProof: TypeAlias = Callable[[str, AnyProof, Context], Judgement]
"""Takes a proof of a step, by the instance id of the step, in a context."""
Measures: TypeAlias = Mapping[str, Mapping[str, Json]]
"""By the name of a proof: its measures."""
_VERDICTS: Final[Mapping[str, ProofVerdict]] = {"passed": "pass", "failed": "fail", "unproved": "unproved"}


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the proofs of a step: why the output is refused, and everything that was measured."""

    issues: tuple[str, ...] = ()
    measures: Measures = {}
    verdicts: Mapping[str, ProofVerdict] = {}
    """Of the proofs that the fixture declares or that were taken; the others are assumed to pass."""


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    verdict: ProofVerdict
    measures: Mapping[str, Json]
    reason: str = ""


class CaseProofs:
    """The proofs of one case, as the walk comes to them."""

    def __init__(self, workflow: Workflow, case: Case, take: TakeProof | None) -> None:
        self._when_unproved = workflow.when_unproved
        self._outputs = case.outputs
        self._take = take
        self._started: set[str] = set()
        self._assumed: dict[str, None] = {}
        self._accepted: dict[str, Proved] = {}
        """By instance: the proofs of its first accepted output, which counts as submitted."""

    @property
    def assumed(self) -> tuple[str, ...]:
        """The proofs that were assumed to pass, as `step: name`."""
        return tuple(self._assumed)

    def start(self, following: NextStep) -> Measures:
        """What is measured before a step is handed out; nothing if that was done."""
        if following.step is None or following.instance_id in self._started:
            return {}
        self._started.add(following.instance_id)
        proofs = applicable(following.step, following.context, Budget(), at_start=True)
        return self._prove(proofs, following, following.context, {}, self._take).measures

    def judge(self, following: NextStep, context: Context, own: DeclaredProofs, *, is_accepted: bool) -> Proved:
        """Judge one output whose criteria are met. `own` is what the case declares for it alone; only the proofs of
        outputs that should be accepted are really taken.
        """
        step = following.step
        if step is None or not step.proofs:
            return Proved()
        take = self._take if is_accepted else None
        proved = self._prove(applicable(step, context, Budget()), following, context, own, take)
        if is_accepted:
            self._accepted.setdefault(following.instance_id, proved)
        return proved

    def complete(self, following: NextStep, context: Context) -> Measures:
        """What is measured after a step, and note what was assumed."""
        step = following.step
        if step is None or not step.proofs:
            return {}
        proofs = list(applicable(step, context, Budget()))
        proved = self._accepted.get(following.instance_id)
        if proved is None:
            proved = self._prove(proofs, following, context, {}, self._take)
        if not proved.issues:
            unmentioned = [proof.name for proof in proofs if proof.name not in proved.verdicts]
            self._assumed |= dict.fromkeys(f"{following.instance_id}: {name}" for name in unmentioned)
        return proved.measures

    def _prove(
        self,
        proofs: Iterable[AnyProof],
        following: NextStep,
        context: Context,
        own: DeclaredProofs,
        take: TakeProof | None,
    ) -> Proved:
        """Take proofs in order, up to the first that fails, as a run does."""
        instance_id = following.instance_id
        outputs = self._outputs.get(instance_id) or self._outputs.get(split_instance(instance_id)[0]) or Outputs()
        declared = {**outputs.proof, **own}
        take_one = take and functools.partial(take, instance_id)
        measures: dict[str, Mapping[str, Json]] = {}
        verdicts: dict[str, ProofVerdict] = {}
        unproved: list[str] = []
        for proof in proofs:
            scope = with_measures(context, measures)
            result = _result(proof, declared.get(proof.name), scope, take_one)
            if result is None:
                continue
            measures[proof.name], verdicts[proof.name] = result.measures, result.verdict
            if result.verdict == "fail" and not is_at_start(proof):
                return Proved(issues=(_message(proof, result, scope),), measures=measures, verdicts=verdicts)
            if result.verdict == "unproved" and self._when_unproved == "refuse" and not is_at_start(proof):
                unproved.append(_message(proof, result, scope))
        return Proved(issues=tuple(unproved), measures=measures, verdicts=verdicts)


def applicable(step: PromptStep, context: Context, budget: Budget, *, at_start: bool = False) -> Iterator[AnyProof]:
    """The proofs that are taken in a context: when the step is handed out, or after its output."""
    for proof in step.proofs:
        if is_at_start(proof) is at_start and (proof.condition is None or proof.condition.may_hold(context, budget)):
            yield proof


def _result(
    proof: AnyProof,
    declared: DeclaredProof | None,
    context: Context,
    take: Callable[[AnyProof, Context], Judgement] | None,
) -> _Result | None:
    """The result of one proof; None if it is assumed to pass."""
    verdict, measures = split(declared) if declared is not None else ("pass", {})
    if take is not None and verdict == "pass":
        judgement = take(proof, context)
        return _Result(verdict=_VERDICTS[judgement.verdict], measures=judgement.measures, reason=judgement.reason)
    if declared is None:
        return None
    reason = _why_not(proof, measures, context) if verdict == "pass" and measures else ""
    return _Result(verdict="fail" if reason else verdict, measures=measures, reason=reason)


def split(declared: DeclaredProof) -> tuple[ProofVerdict, Mapping[str, Json]]:
    """The verdict and the measures that a fixture declares."""
    if isinstance(declared, str):
        return declared, {}
    measures = {name: value for name, value in declared.items() if name != "verdict"}
    verdict: ProofVerdict = declared.get("verdict", "pass")
    return verdict, measures


def _why_not(proof: AnyProof, measures: Mapping[str, Json], context: Context) -> str:
    """Why `holds` does not hold with the measures of the fixture; empty if it does or cannot be judged."""
    if not isinstance(proof, CommandProof) or proof.holds is None:
        return ""
    context = with_measures(context, {proof.name: measures})
    unset: dict[str, None] = {}
    condition = CompiledCondition(fill_values(dict(proof.holds), context, filler(context, unset)))
    try:
        return "" if unset or condition.holds(context, Budget()) else f"this does not hold: {describe(condition)}"
    except TooSlow:
        return ""


def _message(proof: AnyProof, result: _Result, context: Context) -> str:
    fill = filler(context, {})
    if result.verdict == "fail" and proof.message:
        return fill(proof.message)
    why = f"; {result.reason}" if result.reason else ""
    return f"Proof '{proof.name}' {'failed' if result.verdict == 'fail' else 'is unproved'}: {fill(proof.words())}{why}"


def with_measures(context: Context, measures: Measures) -> Context:
    """The context with measures as `proof.NAME.MEASURE`."""
    if not measures:
        return context
    earlier = context.get("proof")
    return assign(context, {"proof": {**(earlier if isinstance(earlier, Mapping) else {}), **measures}})


def unknown_proofs(step: Step | None, declared: DeclaredProofs) -> Iterator[tuple[str, str]]:
    """Names in a fixture that the step has no proof or measure for, each with a sentence."""
    if not isinstance(step, PromptStep):
        return  # the step itself is unknown
    proofs = {proof.name: proof for proof in step.proofs}
    for name, result in declared.items():
        proof = proofs.get(name)
        if proof is None:
            yield name, f"Step '{step.id}' has no proof {suggest(name, proofs)}"
            continue
        measures = proof.measures if isinstance(proof, CommandProof) else {}
        for measure in split(result)[1]:
            if measure not in measures:
                yield (
                    f"{name}.{measure}",
                    f"Proof '{name}' of step '{step.id}' measures no {suggest(measure, measures)}",
                )
