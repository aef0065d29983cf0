"""The flow of a workflow as a graph: nodes in document order, loops around their bodies, and edges.

With a context, the graph also has the path that an agent would take: which steps are taken, how often, and which are
skipped and why. The renderers (`mermaid`, `svg`, the tree of the command line) read only these values.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from workflowlookup.language.conditions import Condition, in_words, walk
from workflowlookup.language.contract import how_to_send, need_of_loop
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import Confirmation, Loop, LoopStep, Step, Workflow
from workflowlookup.language.navigation import (
    MAX_INSTANCES,
    Skipped,
    explain_skip,
    loops_around,
    scope_of,
    split_instance,
    walk_ahead,
)
from workflowlookup.language.text import first_few, how_often, plural
from workflowlookup.language.values import Context, brief, lookup
from workflowlookup.runs.run import Run, State
from workflowlookup.runs.titles import step_title
from workflowlookup.runs.why import Explanation

MAX_VARIABLES: Final = 4
MAX_VALUE: Final = 40
"""How many variables, and how many characters of each, the reason of a skipped step shows."""

START: Final = "(start)"
END: Final = "(end)"


class NodeKind(StrEnum):
    """The kind of a node."""

    STEP = "step"
    PARALLEL = "parallel"
    CALL = "call"
    LOOP = "loop"


class NodeState(StrEnum):
    """What happens to a node in a context."""

    TAKEN = "taken"
    SKIPPED = "skipped"
    WAITING = "waiting"
    FAILED = "failed"
    CANCELLED = "cancelled"


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A step or a loop, described in words; `number` is hierarchical: 2, 2.1, 3."""

    id: str
    number: str
    kind: NodeKind
    title: str
    parent: str = ""
    condition: str = ""
    repeats: str = ""
    confirmation: str = ""
    criteria: int = 0
    proofs: int = 0
    delegations: tuple[str, ...] = ()
    calls: str = ""
    """What the server calls in this step."""
    state: NodeState | None = None
    times: int = 0
    """How often a step is taken, or how many iterations a loop has."""
    because: str = ""
    """Why it was skipped, at least once."""
    body: tuple["GraphNode", ...] = ()

    def facts(self) -> Iterator[str]:
        """The properties of a node, without its title and its condition."""
        if self.repeats:
            yield f"repeats {self.repeats}"
        if self.calls:
            yield f"the server calls {self.calls}"
        if self.criteria:
            yield plural(self.criteria, "criterion", "criteria")
        if self.proofs:
            yield plural(self.proofs, "proof")
        if self.delegations:
            yield f"in parallel: {', '.join(self.delegations)}"
        if self.confirmation:
            yield self.confirmation
        if self.state and self.kind is NodeKind.LOOP:
            yield plural(self.times, "iteration")
        elif self.times > 1:
            yield f"taken {self.times} times"


class Edge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From one node to another; `id?` is the condition of the node `id`, which stands before it."""

    source: str
    target: str
    label: str = ""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of a workflow."""

    id: str
    name: str
    version: str
    flow: tuple[GraphNode, ...]
    path: tuple[str, ...] | None = None
    """The instances that are taken in the context, in order; None without a context."""
    warnings: tuple[str, ...] = ()

    def nodes(self) -> Iterator[GraphNode]:
        """Every node, loops before their bodies."""
        return _walk(self.flow)

    def edges(self) -> Iterator[Edge]:
        """Every edge, in the order of the flow."""
        return _edges(self.flow, START, END)


def draw(workflow: Workflow, context: Context | None = None) -> Graph:
    """The graph of a workflow; with a context (also an empty one), with the path taken in it."""
    route = _Route() if context is None else _walk_through(workflow, context)
    return _drawn(workflow, route, has_path=context is not None)


def draw_run(run: Run, explanation: Explanation) -> Graph:
    """The graph with the path of a run: the steps taken, the steps skipped, and the step at which it waits or ended."""
    return _drawn(run.workflow, _RouteOfRun(run, explanation), has_path=True)


def _drawn(workflow: Workflow, route: "_Route", *, has_path: bool) -> Graph:
    return Graph(
        id=workflow.id,
        name=workflow.name,
        version=workflow.version,
        flow=tuple(_nodes(workflow.flow, route, "", "")),
        path=tuple(route.path) if has_path else None,
        warnings=route.warnings,
    )


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────────


def describe_loop(loop: Loop) -> str:
    """How often a loop repeats: `until done is true, at most 5 times`."""
    limit = f", at most {how_often(loop.max_iterations)}"
    match loop.type:
        case "while" | "until" if loop.condition is None:
            return f"until the agent ends it{limit}"
        case "while" | "until":
            return f"{loop.type} {in_words(loop.condition or {})}{limit}"
        case "for" if isinstance(loop.count, str):
            return f"as often as {loop.count} says{limit}"
        case "for":
            return how_often(min(int(loop.count or 0), loop.max_iterations))
    return f"for each {loop.item_var} of {loop.items}{limit}"


def describe_confirmation(confirmation: Confirmation | None) -> str:
    """Who confirms a step, when and under which condition; empty if nobody does."""
    if confirmation is None or confirmation.condition is False:
        return ""
    person = " by a person" if confirmation.by == "person" else ""
    time = " before it is done" if confirmation.when == "before" else ""
    condition = confirmation.condition
    suffix = f" if {in_words(condition)}" if condition and condition is not True else ""
    return f"asks for confirmation{person}{time}{suffix}"


# ── nodes and edges ─────────────────────────────────────────────────────────────────────────────────────────────


def _nodes(steps: Sequence[Step], route: "_Route", parent: str, prefix: str) -> Iterator[GraphNode]:
    for count, step in enumerate(steps, 1):
        number, times = f"{prefix}{count}", route.times[step.id]
        node = GraphNode(
            id=step.id,
            number=number,
            kind=NodeKind.STEP,
            title=route.title_of(step),
            parent=parent,
            condition=in_words(step.run_condition) if step.run_condition else "",
            confirmation="" if isinstance(step, LoopStep) else describe_confirmation(step.confirmation),
            state=route.state_of(step.id),
            times=times,
            because=route.because.get(step.id, ""),
        )
        if isinstance(step, LoopStep):
            body = tuple(_nodes(step.body, route, step.id, f"{number}."))
            yield replace(node, kind=NodeKind.LOOP, repeats=describe_loop(step.loop), body=body)
        else:
            delegations = tuple(_delegate(item.content) for item in step.parallel_delegations)
            kind = NodeKind.PARALLEL if delegations else NodeKind.CALL if step.call else NodeKind.STEP
            calls = step.call.described if step.call else ""
            yield replace(
                node,
                kind=kind,
                criteria=len(step.requirements),
                proofs=len(step.proofs),
                delegations=delegations,
                calls=calls,
            )


def _delegate(item: Context) -> str:
    return str(item.get("workflowId") or item.get("title") or item.get("id") or "delegate")


def _walk(nodes: Sequence[GraphNode]) -> Iterator[GraphNode]:
    for node in nodes:
        yield node
        yield from _walk(node.body)


def _edges(nodes: Sequence[GraphNode], start: str, end: str) -> Iterator[Edge]:
    """The edges of a sequence. Without a `start` it is the body of a loop, whose end leads back to its first node."""
    ends = [(start, "")] if start else []
    for node in nodes:
        first = _first_id(node)
        yield from (Edge(source=source, target=first, label=label) for source, label in ends)
        ends = [(node.id, "")]
        if node.condition:
            yield Edge(source=first, target=node.id, label="yes")
            ends.append((first, "no"))
        if node.body:
            yield from _edges(node.body, "", _first_id(node.body[0]))
    yield from (Edge(source=source, target=end, label=label or ("" if start else "again")) for source, label in ends)


def _first_id(node: GraphNode) -> str:
    return f"{node.id}?" if node.condition else node.id


# ── the path taken ──────────────────────────────────────────────────────────────────────────────────────────────


class _Route:
    """The path of an agent through a workflow."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.times: collections.Counter[str] = collections.Counter()
        self.because: dict[str, str] = {}
        self.warnings: tuple[str, ...] = ()
        self.is_whole = False
        self.current: tuple[str, NodeState | None] = ("", None)
        """The step at which a run waits or ended, and its state."""

    def title_of(self, step: Step) -> str:
        """The title as authors write it, with its templates."""
        return step.title

    def count(self, workflow: Workflow) -> None:
        """Count how often each step was taken, and the iterations of each loop."""
        self.times.update(split_instance(instance_id)[0] for instance_id in self.path)
        rounds = {each for instance_id in self.path for each in loops_around(workflow, instance_id)}
        self.times.update(loop_id for loop_id, _ in rounds)

    def state_of(self, step_id: str) -> NodeState | None:
        if step_id == self.current[0] and self.current[1] is not None:
            return self.current[1]
        return (NodeState.TAKEN if self.times[step_id] else NodeState.SKIPPED) if self.is_decided(step_id) else None

    def skip(self, skipped: Sequence[Skipped], values_of: Callable[[Skipped], str]) -> None:
        """Note why steps were skipped, with the values that decided it."""
        for skip in skipped:
            step_id, _ = split_instance(skip.step_id)
            if step_id not in self.because:
                values = values_of(skip)
                self.because[step_id] = explain_skip(skip)["because"] + (f" ({values})" if values else "")

    def is_decided(self, step_id: str) -> bool:
        """Whether it is known if a step is taken or skipped."""
        return self.is_whole or self.times[step_id] > 0 or step_id in self.because


class _RouteOfRun(_Route):
    """The path of a run, whose titles have values."""

    def __init__(self, run: Run, explanation: Explanation) -> None:
        super().__init__()
        self._run = run
        self.path = list(explanation.path)
        self.skip(explanation.skipped, lambda _: "")  # the values may have changed since
        self.count(run.workflow)
        self.current = split_instance(run.current)[0], _AT.get(run.state, NodeState.WAITING)
        self.is_whole = run.state is State.COMPLETED

    def title_of(self, step: Step) -> str:
        scope = self._run.scope if step.id == self.current[0] else self._run.context
        return step_title(self._run.workflow, step.id, scope, None)


_AT: Final = {
    State.FAILED: NodeState.FAILED,
    State.UNKNOWN: NodeState.FAILED,
    State.CANCELLED: NodeState.CANCELLED,
    State.COMPLETED: None,
}
"""The node of the current step of a run that is over."""


def _values_in(condition: Condition, scope: Context) -> str:
    """The values of the variables of a condition: `size is "small", owner is not set`."""
    values = {part["var"]: lookup(scope, part["var"]) for part in walk(condition) if "var" in part}
    words = [f"{name} is {'not set' if value is None else brief(value, MAX_VALUE)}" for name, value in values.items()]
    return first_few(words, MAX_VARIABLES)


def _walk_through(workflow: Workflow, context: Context) -> _Route:
    """Complete one step after another until the workflow is complete, or the limit is reached."""

    def values_of(skip: Skipped) -> str:
        return _values_in(skip.condition, scope_of(workflow, skip.step_id, context))

    route = _Route()
    warnings: dict[str, None] = {}
    for following in walk_ahead(workflow, (), context, Budget()):
        warnings |= dict.fromkeys(following.warnings)
        route.skip(following.skipped, values_of)
        if following.step is None or len(route.path) >= MAX_INSTANCES:
            break
        route.path.append(following.instance_id)
    route.count(workflow)
    route.is_whole = following.is_complete
    if following.need is not None:
        warnings[how_to_send(workflow, following.instance_id, need_of_loop(workflow, following.need))] = None
    elif not route.is_whole:
        warnings[f"The path was cut after {MAX_INSTANCES:,} steps; the rest is not marked"] = None
    route.warnings = tuple(warnings)
    return route
