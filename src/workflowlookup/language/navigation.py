"""Which step comes next: a pure function of the workflow, the completed steps and the context.

The walk goes through the steps in document order. A loop is never handed out, only the steps of its body. The id of a
step in a loop carries its iteration: `review@2`, or `review@2.3` in nested loops, outermost first. So the list of
completed ids says how far every loop is, and no other state is needed.

How a loop is walked, iteration by iteration:

- An iteration *has history* if a completed id names it. Iterations up to the last one with history were entered.
- The loop's count, list or condition decides whether a further iteration is entered.
- A loop has ended if its own id or a step after it is completed. In a past iteration of an outer loop, an inner `while`
  or `until` loop starts no new iteration.
- A completed id without an iteration, from an older caller, counts for the earliest iteration that lacks it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.errors import InvalidWorkflow
from workflowlookup.language.conditions import MAX_CONDITION_TEXT, CompiledCondition, Condition, describe, walk
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.model import Loop, LoopStep, PromptStep, Step, Workflow
from workflowlookup.language.values import Context, Json, assign, lookup

MAX_INSTANCES: Final = 1000
"""Limit on the step instances of a predicted path."""
MAX_VISITS: Final = 100_000
"""Limit on the step instances that one walk visits, because nested loops multiply."""

MAX_SKIPPED: Final = 100
"""Limit on the skipped instances in an answer: enough to explain a path, few enough to send."""

MAX_UNKNOWN_IDS: Final = 20

_MAX_DIGITS: Final = 9
_ITERATIONS: Final = re.compile(rf"\d{{1,{_MAX_DIGITS}}}(?:\.\d{{1,{_MAX_DIGITS}}})*")

Iterations = tuple[int, ...]
Instance = tuple[str, Iterations]

Extents = Mapping[str, list[Json] | int]
"""By loop id, with the iterations around it: the list or count that was fixed when the loop was entered."""

NO_EXTENTS: Final[Extents] = {}

Iterating = Mapping[str, int]
"""By loop id, with the iterations around it: its current iteration. Earlier iterations are done."""

NOT_ITERATING: Final[Iterating] = {}


class LoopPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The position of a step in its innermost loop."""

    id: str
    iteration: int
    item: Json = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET
    total: int | msgspec.UnsetType = msgspec.UNSET


class Skipped(msgspec.Struct, frozen=True):
    """A skipped step, and its condition, which was not true."""

    step_id: str
    condition: Condition


class LoopNeed(msgspec.Struct, frozen=True):
    """A loop that cannot be entered, because the variable with its list or count is not set or has a wrong type."""

    loop_id: str
    """With the iterations around it."""
    variable: str
    schema: Mapping[str, Json]
    """The JSON Schema of the variable."""
    actual: Json


class NextStep(msgspec.Struct, frozen=True):
    """The next step, and how the walk got there. `step` is None if the workflow is complete or a loop needs data."""

    step: PromptStep | None
    instance_id: str
    context: Context
    """The caller's context with the variables of the loops around the step."""
    loop: LoopPosition | None
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...]
    completed: int
    ended_loops: tuple[str, ...] = ()
    """The loops in `iterating` that are over, innermost first."""
    in_run: bool = False
    """Whether a run hands it out; runs ask people themselves."""
    need: LoopNeed | None = None
    """The data that a loop needs before the walk can go on; then `instance_id` is that of the loop."""

    @property
    def is_complete(self) -> bool:
        return self.step is None and self.need is None


def split_instance(instance_id: str) -> Instance:
    """`review@2.3` is step `review`, iterations (2, 3); an id without `@` has none."""
    step_id, _, iterations = instance_id.partition("@")
    if iterations.isdecimal() and iterations.isascii() and len(iterations) < 10 and step_id:
        return step_id, (int(iterations),)
    if not step_id or not iterations or not _ITERATIONS.fullmatch(iterations):
        return instance_id, ()
    return step_id, tuple(map(int, iterations.split(".")))


def join_instance(step_id: str, iterations: Sequence[int]) -> str:
    return f"{step_id}@{'.'.join(map(str, iterations))}" if iterations else step_id


def find_step(workflow: Workflow, instance_id: str) -> Step | None:
    """The step of an id, with or without an iteration."""
    return workflow.steps.get(instance_id) or workflow.steps.get(split_instance(instance_id)[0])


def loops_around(workflow: Workflow, instance_id: str) -> list[Instance]:
    """The loops around an instance, outermost first, each with its current iteration: `(review-loop, (2, 3))`."""
    step_id, iterations = split_instance(instance_id)
    loops = workflow.enclosing.get(step_id, ())[: len(iterations)]
    return [(loop_id, iterations[: depth + 1]) for depth, loop_id in enumerate(loops)]


def is_inside(workflow: Workflow, instance_id: str, loop_id: str) -> bool:
    """Whether an instance is in any iteration of a loop; both ids carry the iterations around them."""
    step_id, iterations = split_instance(instance_id)
    loop, outer = split_instance(loop_id)
    return loop in workflow.enclosing[step_id] and iterations[: len(outer)] == outer


def scope_of(workflow: Workflow, instance_id: str, context: Context, extents: Extents = NO_EXTENTS) -> Context:
    """The context with the variables of the loops around an instance, as its conditions see it."""
    if "@" not in instance_id:
        return context
    step_id, iterations = split_instance(instance_id)
    scope = context
    for depth, loop_id in enumerate(workflow.enclosing.get(step_id, ())[: len(iterations)]):
        loop, iteration = workflow.steps[loop_id].loop, iterations[depth]  # type: ignore[union-attr]
        items = extents.get(join_instance(loop_id, iterations[:depth])) or lookup(scope, loop.items or "")
        variables: dict[str, Json] = {loop.iteration_var: iteration}
        if loop.type == "for":
            variables[loop.index_var] = iteration - 1
        elif isinstance(items, list) and 0 < iteration <= len(items):
            variables |= {loop.item_var: items[iteration - 1], loop.index_var: iteration - 1}
        scope = assign(scope, variables)
    return scope


def next_step(  # noqa: PLR0913 - where a run stands
    workflow: Workflow,
    completed: Collection[str],
    context: Context,
    budget: Budget,
    *,
    extents: Extents = NO_EXTENTS,
    iterating: Iterating = NOT_ITERATING,
) -> NextStep:
    """The first step that is not completed and whose condition holds.

    For loops in `iterating`, `completed` need not contain the steps of earlier iterations.
    """
    if workflow.has_loops:
        return next(walk_ahead(workflow, completed, context, budget, extents=extents, iterating=iterating))
    if type(completed) is list and completed == [
        *workflow.order[: len(completed)]
    ]:  # the usual case, and cheap to recognize
        return _next_in_line(workflow.flow[len(completed) :], (), context, budget, len(completed))
    done = workflow.ids.intersection(completed)
    unknown = [] if len(done) == len(completed) else [id_ for id_ in completed if id_ not in done]
    warnings = (_ignored_ids(unknown),) if unknown else ()
    return _next_in_line(workflow.flow, done, context, budget, len(done), warnings=warnings)


def _next_in_line(  # noqa: PLR0913 - where the walk stands
    steps: Sequence[Any],
    done: Collection[str],
    context: Context,
    budget: Budget,
    completed: int,
    *,
    warnings: tuple[str, ...] = (),
) -> NextStep:
    """The walk through steps without loops."""
    skipped: list[Skipped] = []
    for step in steps:
        if step.id in done:
            continue
        if step.run_condition is None or _holds(step.run_condition, context, budget, f"step '{step.id}'"):
            return NextStep(step, step.id, context, None, tuple(skipped), warnings, completed)
        skipped.append(Skipped(step.id, step.run_condition))
    return NextStep(None, "", context, None, tuple(skipped), warnings, completed)


def walk_ahead(  # noqa: PLR0913 - as for `next_step`
    workflow: Workflow,
    completed: Collection[str],
    context: Context,
    budget: Budget,
    *,
    extents: Extents = NO_EXTENTS,
    iterating: Iterating = NOT_ITERATING,
) -> Iterator[NextStep]:
    """The next step, then the one after it if only the completed steps change, and so on to the end.

    It is one walk: each result has only the skipped steps and warnings since the one before.
    """
    route = _Walk(workflow, completed, context, budget, extents=extents, iterating=iterating)
    for step, instance_id, scope, loop in route.steps(workflow.flow, "", context, is_past=False):
        yield route.result(step, instance_id, scope, loop)
        if step is None:  # at a loop that needs data
            return
    yield route.result(None, "", context, None)


def _holds(condition: CompiledCondition, context: Context, budget: Budget, location: str) -> bool:
    try:
        return condition.holds(context, budget)
    except TooSlow:
        raise _too_slow(location) from None


def _too_slow(location: str) -> InvalidWorkflow:
    """The walk stops here, because a condition that was not evaluated must not decide which steps are skipped."""
    details = f"Finding the next step took too long and was given up at {location}"
    return InvalidWorkflow(f"{details}. Send a smaller context; the author should simplify it.", details=details)


def _ignored_ids(unknown: Sequence[str]) -> str:
    """A warning about ids that the workflow does not have, in the order of the caller."""
    names = ", ".join(unknown[:MAX_UNKNOWN_IDS])
    return f"Ignored ids in completedSteps that this workflow does not have: {names}"


_WalkResult = tuple[PromptStep | None, str, Context, LoopPosition | None]


class _Walk:
    """One walk through a workflow; yields the instances that remain to do, and None at a loop that needs data."""

    def __init__(  # noqa: PLR0913 - as for `next_step`
        self,
        workflow: Workflow,
        completed: Collection[str],
        context: Context,
        budget: Budget,
        *,
        extents: Extents,
        iterating: Iterating,
    ) -> None:
        self.skipped: list[Skipped] = []
        self.warnings: list[str] = []
        self.ended_loops: list[str] = []
        self.need: LoopNeed | None = None
        self.completed = 0
        self._workflow = workflow
        self._root_context = context
        self._budget = budget
        self._extents = extents
        self._iterating = iterating
        self._visits = 0
        self._completed = frozenset(completed)
        self._last_iteration = dict(iterating)
        """By loop id, with the iterations around it: the last iteration with history."""
        self._credits: set[str] = set()
        """Completed ids of steps in loops without their iteration; each counts once."""
        try:
            budget.charge(len(completed))
        except TooSlow:
            raise _too_slow(f"the {len(completed):,} completed ids") from None
        unknown = self._note_history(completed)
        self.completed = len(completed) - len(unknown)
        if unknown:
            self.warnings.append(_ignored_ids(unknown))

    def result(
        self, step: PromptStep | None, instance_id: str, context: Context, position: LoopPosition | None
    ) -> NextStep:
        """An instance that the walk reached, with the skipped steps and warnings since the last one."""
        skipped, warnings, ended = tuple(self.skipped), tuple(self.warnings), tuple(self.ended_loops)
        self.skipped, self.warnings = [], []
        return NextStep(step, instance_id, context, position, skipped, warnings, self.completed, ended, need=self.need)

    def _note_history(self, completed: Collection[str]) -> list[str]:
        """Record the iterations that the completed ids name, and return the ids that this workflow does not have.

        The part before the last number, such as `review@2.`, is the same for all iterations, and is parsed once.
        """
        enclosing, last_iteration = self._workflow.enclosing, self._last_iteration
        loop_ids: dict[str, str | None] = {}
        unknown: list[str] = []
        for instance_id in completed:
            if instance_id in enclosing:
                if enclosing[instance_id]:
                    self._credits.add(instance_id)
                continue
            stem = instance_id.rstrip("0123456789")
            number = instance_id[len(stem) :]
            if number[:1] in ("", "0") or len(number) > _MAX_DIGITS:
                unknown.append(instance_id)
                continue
            if stem not in loop_ids:
                loop_ids[stem] = self._loop_around(instance_id)
            loop_id = loop_ids[stem]
            if loop_id is None:
                unknown.append(instance_id)
            elif (iteration := int(number)) > last_iteration.get(loop_id, 0):
                last_iteration[loop_id] = iteration
        return unknown

    def _loop_around(self, instance_id: str) -> str | None:
        """The id of the innermost loop around an instance, or None. Iterations of the outer loops are recorded."""
        step_id, iterations = split_instance(instance_id)
        loops = self._workflow.enclosing.get(step_id, ())
        if not iterations or len(iterations) != len(loops) or 0 in iterations:
            return None
        if join_instance(step_id, iterations) != instance_id:  # a number that begins with 0
            return None
        loop_ids = [join_instance(loop_id, iterations[:depth]) for depth, loop_id in enumerate(loops)]
        for loop_id, iteration in zip(loop_ids[:-1], iterations, strict=False):
            self._last_iteration[loop_id] = max(iteration, self._last_iteration.get(loop_id, 0))
        return loop_ids[-1]

    def steps(
        self,
        steps: Sequence[Step],
        at: str,
        context: Context,
        *,
        is_past: bool,
        position: LoopPosition | None = None,
    ) -> Iterator[_WalkResult]:
        """Walk through the steps of one level. `at` is the suffix of their ids: their iterations, as in `@2.3`."""
        last = len(steps) - 1  # the last step with history; credits are used up, so it only moves back
        for index, step in enumerate(steps):
            if isinstance(step, LoopStep):
                while last > index and not self._has_history(steps[last], at):
                    last -= 1
                has_ended = self._has_ended(step, at, is_passed=last > index)
                if not has_ended and self._runs(step, at, context, is_past=is_past):
                    extent = self._extent(step, at, context)
                    if _is_unfit(extent, step.loop):
                        loop_id, variable = step.id + at, _variable(step.loop)
                        self.need = LoopNeed(loop_id, variable, EXTENT_SCHEMAS[step.loop.type], extent)
                        yield None, loop_id, context, position
                        return
                    yield from self._loop(step, at, context, extent, is_past=is_past)
                elif has_ended:
                    self._note_unentered(step, at, context)
                self._note_end(step, at)
                continue
            self._visits += 1
            if step.id + at in self._completed or not self._runs(step, at, context, is_past=is_past):
                continue
            if step.id in self._credits:
                self._credits.remove(step.id)
                continue
            yield step, step.id + at, context, position

    def _note_end(self, loop: LoopStep, at: str) -> None:
        """Record that a loop and the loops in it are over, if they were iterating."""
        loop_id = loop.id + at
        if loop_id in self._iterating:
            inside = [other for other in self._iterating if is_inside(self._workflow, other, loop_id)]
            ended = self.ended_loops
            ended += [other for other in (*reversed(inside), loop_id) if other not in ended]

    def _runs(self, step: Step, at: str, context: Context, *, is_past: bool) -> bool:
        """Whether its condition holds. In a past iteration, a step that was skipped stays skipped.

        A condition on the loop's own variables never changes: if it holds now, it held in that iteration too.
        """
        if step.run_condition is None:
            return True
        if _holds(step.run_condition, context, self._budget, f"step '{step.id + at}'"):
            return not is_past or self._has_history(step, at) or self._has_fixed_condition(step)
        self.skipped.append(Skipped(step_id=step.id + at, condition=step.run_condition))
        return False

    def _note_unentered(self, loop: LoopStep, at: str, context: Context) -> None:
        """Record that a loop was skipped: a step after it is completed, and the loop was never entered."""
        if loop.id + at not in self._completed and not self._has_history(loop, at):
            self._runs(loop, at, context, is_past=True)

    def _has_fixed_condition(self, step: Step) -> bool:
        """Whether the condition of a step depends only on the variables of the loops around it."""
        loops = [self._workflow.steps[loop_id].loop for loop_id in self._workflow.enclosing[step.id]]  # type: ignore[union-attr]
        own = {name for loop in loops for name in (loop.iteration_var, loop.item_var, loop.index_var)}
        used = [part["var"] for part in walk(step.run_condition or {}) if "var" in part]
        return all(name.partition(".")[0] in own for name in used)

    def _has_ended(self, loop: LoopStep, at: str, *, is_passed: bool) -> bool:
        """Whether the loop's own id is completed, or a step after it at the same level is (`is_passed`)."""
        if loop.id + at in self._completed:
            return True
        if loop.id in self._credits:
            self._credits.remove(loop.id)
            return True
        if not is_passed:
            return False
        self._credits -= set(_ids(loop.body))  # an older caller completed these in this loop, which is over
        return True

    def _has_history(self, step: Step, at: str) -> bool:
        if step.id + at in self._completed or step.id in self._credits:
            return True
        return isinstance(step, LoopStep) and (step.id + at in self._last_iteration or self._has_credit(step))

    def _loop(
        self, step: LoopStep, at: str, context: Context, extent: list[Json] | int | None, *, is_past: bool
    ) -> Iterator[_WalkResult]:
        loop = step.loop
        instance_id = step.id + at
        items = extent if isinstance(extent, list) else None
        total = len(extent) if isinstance(extent, list) else extent
        if total == 0:
            self.warnings.append(f"Loop '{step.id}' was skipped: {_nothing_to_do(loop)}")
            return
        last = self._last_iteration.get(instance_id, 0)
        iteration = self._iterating.get(instance_id, 1) - 1
        while (iteration := iteration + 1) <= loop.max_iterations:
            if not self._enters(step, iteration, last, total, context, is_past=is_past):
                return
            if self._visits > MAX_VISITS:
                raise _too_slow(f"loop '{instance_id}', after {MAX_VISITS:,} steps and iterations")
            self._visits += 1
            inner = f"{at}.{iteration}" if at else f"@{iteration}"
            if self._is_done(step.body, inner):
                continue
            try:
                self._budget.charge(len(context))
            except TooSlow:
                raise _too_slow(f"loop '{instance_id}'") from None
            variables: dict[str, Json] = {loop.iteration_var: iteration}
            position = LoopPosition(id=step.id, iteration=iteration)
            if items is not None:
                item, index = items[iteration - 1], iteration - 1
                variables |= {loop.item_var: item, loop.index_var: index}
                position = LoopPosition(id=step.id, iteration=iteration, item=item, index=index, total=len(items))
            elif total is not None:
                variables[loop.index_var] = iteration - 1
                position = LoopPosition(id=step.id, iteration=iteration, total=total)
            yield from self.steps(
                step.body,
                inner,
                assign(context, variables),
                is_past=is_past or iteration < last,
                position=position,
            )
        if self._enters(step, iteration, last, total, context, is_past=is_past):
            self.warnings.append(f"Loop '{step.id}' ended at its limit of {loop.max_iterations} iterations")

    def _is_done(self, body: Sequence[Step], at: str) -> bool:
        for step in body:
            if step.id + at not in self._completed:
                return False
            self._visits += 1
        return True

    def _extent(self, step: LoopStep, at: str, context: Context) -> Json:
        """The list of a `forEach` or the count of a `for`: the fixed one, else the one in the context."""
        loop, instance_id = step.loop, step.id + at
        if loop.type not in EXTENT_SCHEMAS:
            return None
        extent: Json = self._extents.get(instance_id)
        if isinstance(extent, int):  # in older journals, which did not fix counts, a loop may be beyond its first count
            return max(extent, self._iterating.get(instance_id, 0))
        return extent_of(loop, context, self._root_context) if extent is None else extent

    def _enters(  # noqa: PLR0913 - all of it decides
        self, step: LoopStep, iteration: int, last: int, total: int | None, context: Context, *, is_past: bool
    ) -> bool:
        loop = step.loop
        if total is not None:
            return iteration <= total
        if iteration <= last or (iteration == last + 1 and self._has_credit(step)):
            return True
        if is_past:
            return False
        if iteration == 1 and loop.type == "until":
            return True
        if loop.condition is None:  # the agent ends the loop by completing its id
            return True
        scope = assign(context, {loop.iteration_var: iteration - (loop.type == "until")})
        holds = _holds(loop.condition, scope, self._budget, f"loop '{step.id}'")
        return holds is (loop.type == "while")

    def _has_credit(self, step: LoopStep) -> bool:
        return bool(self._credits) and any(
            inner.id in self._credits if isinstance(inner, PromptStep) else self._has_credit(inner)
            for inner in step.body
        )


def _ids(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        yield step.id
        if isinstance(step, LoopStep):
            yield from _ids(step.body)


def _variable(loop: Loop) -> str:
    """The variable with the list or count of a loop."""
    return str(loop.items if loop.type == "forEach" else loop.count)


def extent_of(loop: Loop, scope: Context, context: Context) -> Json:
    """The list or count of a loop, whether it fits or not.

    If the scope has none that fits, a variable of the context with the whole dotted name as its key is used.
    """
    if isinstance(loop.count, int):
        return loop.count
    name = _variable(loop)
    extents = [_whole(lookup(scope, name)), _whole(context.get(name))]
    return next((extent for extent in extents if not _is_unfit(extent, loop)), extents[0])


def _whole(value: Json) -> Json:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_unfit(extent: Json, loop: Loop) -> bool:
    """Whether the list or count of a `forEach` or `for` loop has a wrong type."""
    match loop.type:
        case "forEach":
            return not isinstance(extent, list)
        case "for":
            return not isinstance(extent, int) or isinstance(extent, bool) or extent < 0
    return False


EXTENT_SCHEMAS: Final[Mapping[str, Mapping[str, Json]]] = {
    "for": {"type": "integer", "minimum": 0, "examples": [3]},
    "forEach": {"type": "array"},
}
"""By type of loop: the JSON Schema of its list or count."""


def _nothing_to_do(loop: Loop) -> str:
    if loop.type == "forEach":
        return f"its list '{loop.items}' is empty"
    return f"its count '{loop.count}' is 0" if isinstance(loop.count, str) else "its count is 0"


def explain_skip(skipped: Skipped) -> dict[str, Json]:
    """Which step was skipped, and why; a very long condition is cut."""
    words = describe(skipped.condition)
    if len(words) > MAX_CONDITION_TEXT:
        return {"stepId": skipped.step_id, "because": f"not true: {words[:MAX_CONDITION_TEXT]}…"}
    return {"stepId": skipped.step_id, "condition": skipped.condition, "because": f"not true: {words}"}
