"""What the cases of a workflow have covered so far: steps, conditions, rules and proofs. `rehearsal` records it."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from workflowlookup.authoring.rehearsed_proofs import Proved
from workflowlookup.language.conditions import CompiledCondition, describe
from workflowlookup.language.criteria import compile_criteria
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.model import LoopStep, PromptStep, Step, Workflow
from workflowlookup.language.navigation import (
    Iterations,
    NextStep,
    join_instance,
    loops_around,
    scope_of,
    split_instance,
)
from workflowlookup.language.proof import AnyProof, is_at_start
from workflowlookup.language.rules import Rule, each_rule
from workflowlookup.language.values import Context


class BranchCoverage(msgspec.Struct, kw_only=True):
    """A condition or a rule, and the outcomes that it had so far."""

    step: str
    name: str
    words: str
    outcomes: set[bool]


class Coverage:
    """What the cases of one workflow have covered so far. Conditions and rules count twice, for true and for false."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        steps = workflow.steps.values()
        self.steps = {step.id: False for step in steps if isinstance(step, PromptStep)}
        self.branches = {
            (step.id, name): BranchCoverage(step=step.id, name=name, words=describe(condition), outcomes=set())
            for step in steps
            for name, condition in conditions_of(step)
        }
        self.rules = {
            (step.id, name): BranchCoverage(
                step=step.id, name=name, words=rule.message or rule.describe(), outcomes=set()
            )
            for step in steps
            for name, rule in _rules_of(step)
        }
        self.rules |= {
            (step.id, f"proof {proof.name}"): BranchCoverage(
                step=step.id, name=f"proof {proof.name}", words=proof.words(), outcomes=set()
            )
            for step in steps
            for proof in _refusing_proofs(step)
        }

    def note_step(self, following: NextStep, budget: Budget) -> None:
        """Record that a step was taken. Its conditions are evaluated as `guide` evaluates them."""
        step = following.step
        if step is None:
            return
        self.steps[step.id] = True
        for name, condition in conditions_of(step):
            self._evaluate(step.id, name, condition, following.context, budget)
        for loop_id, _ in loops_around(self._workflow, following.instance_id):
            self._record(loop_id, "runCondition", answer=True)

    def note_output(self, step: PromptStep, scope: Context, budget: Budget) -> None:
        """Record the conditions that also depend on the variables that came with an output."""
        for name, condition in conditions_of(step):
            if name.startswith("condition of ") or (name == "confirmation" and not step.asks_before):
                self._evaluate(step.id, name, condition, scope, budget)

    def note_move(self, last: str, following: NextStep, context: Context, budget: Budget) -> None:
        """Record a move from one step to another: the skipped steps, and the conditions of loops on the way.

        The condition of a loop is evaluated at the end of an iteration, and for `while` also before the first.
        """
        for skipped in following.skipped:
            self._record(split_instance(skipped.step_id)[0], "runCondition", answer=False)
        before = loops_around(self._workflow, last)
        after = loops_around(self._workflow, following.instance_id)
        for loop_id, iterations in before:
            if (loop_id, iterations) not in after:
                self._evaluate_loop(loop_id, (*iterations[:-1], iterations[-1] + 1), context, budget)
        for loop_id, iterations in after:
            if iterations[-1] == 1 and (loop_id, iterations) not in before:
                self._evaluate_loop(loop_id, iterations, context, budget)

    def _evaluate_loop(self, loop_id: str, iterations: Iterations, context: Context, budget: Budget) -> None:
        """Evaluate the condition of a loop before an iteration, as navigation does."""
        loop = self._workflow.steps[loop_id].loop  # type: ignore[union-attr]
        *outer, iteration = iterations
        is_until = loop.type == "until"
        if loop.condition and not (is_until and iteration == 1):
            scope = scope_of(self._workflow, join_instance(loop_id, outer), context)
            scope = {**scope, loop.iteration_var: iteration - is_until}
            self._evaluate(loop_id, "loop condition", loop.condition, scope, budget)

    def note_end(self, path: Sequence[str], iterations: Mapping[str, int], last: NextStep) -> None:
        """Record the end: the condition of a `while` loop that was reached and never entered was false."""
        skipped_or_ended = {split_instance(skipped.step_id)[0] for skipped in last.skipped}
        skipped_or_ended |= {split_instance(instance_id)[0] for instance_id in path}
        for loop_id, count in iterations.items():
            enclosing = self._workflow.enclosing[loop_id]
            if count == 0 and loop_id not in skipped_or_ended and all(iterations[outer] for outer in enclosing):
                self._record(loop_id, "runCondition", answer=True)
                self._record(loop_id, "loop condition", answer=False)

    def _evaluate(self, step_id: str, name: str, condition: CompiledCondition, scope: Context, budget: Budget) -> None:
        """Record the outcome of a condition; one that takes too long has none."""
        with contextlib.suppress(TooSlow):
            self._record(step_id, name, answer=condition.holds(scope, budget))

    def _record(self, step_id: str, name: str, *, answer: bool) -> None:
        if (step_id, name) in self.branches:
            self.branches[step_id, name].outcomes.add(answer)

    def note_rules(self, step: PromptStep, output: str, context: Context, budget: Budget) -> None:
        """Record which rules applied to an output, and whether they passed."""
        for name, rule in _rules_of(step):
            if (issues := compile_criteria(rule)(output, (context,), budget)) is not None:
                self.rules[step.id, name].outcomes.add(not issues)

    def note_proofs(self, step: PromptStep, proved: Proved) -> None:
        """Record the verdicts of proofs that were declared or taken."""
        for name, verdict in proved.verdicts.items():
            self.rules[step.id, f"proof {name}"].outcomes.add(verdict == "pass")


def conditions_of(step: Step) -> Iterator[tuple[str, CompiledCondition]]:
    """The conditions of a step by name, without empty ones, which are always true."""
    named: list[tuple[str, CompiledCondition | bool | None]] = [("runCondition", step.run_condition)]
    if isinstance(step, LoopStep):
        named.append(("loop condition", step.loop.condition))
    else:
        named.append(("confirmation", step.confirmation.condition if step.confirmation else None))
        named += [(f"fragment {number}", fragment.when) for number, fragment in enumerate(step.prompt_fragments, 1)]
        named += [(f"condition of {name}", rule.condition) for name, rule in _rules_of(step)]
        named += [(f"condition of proof {proof.name}", proof.condition) for proof in step.proofs]
    for name, condition in named:
        if condition and not isinstance(condition, bool):
            yield name, condition


def _rules_of(step: Step) -> Iterator[tuple[str, Rule]]:
    if isinstance(step, PromptStep):
        for number, rule in enumerate(each_rule(step.criteria), 1):
            yield f"rule {number}", rule


def _refusing_proofs(step: Step) -> Iterator[AnyProof]:
    """The proofs of a step that can refuse an output."""
    return (proof for proof in (step.proofs if isinstance(step, PromptStep) else ()) if not is_at_start(proof))
