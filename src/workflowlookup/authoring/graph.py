"""The flow of a workflow as a picture has it: nodes in document order, loops around their bodies, and edges.

With a context the walk that an agent would make is laid over it: which steps are taken, how often, and which are
passed over and why. The renderers (`mermaid`, `svg`, the tree of the command line) read these values and nothing else.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from workflowlookup.language.conditions import Condition, in_words, walk
from workflowlookup.language.contract import how_to_send, need_of_loop
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
from workflowlookup.language.patterns import Budget
from workflowlookup.language.text import first_few, how_often, plural
from workflowlookup.language.values import Context, brief, lookup

MOST_VARIABLES: Final = 4
MOST_VALUE: Final = 40
"""How much of a context is told as the reason why a step is passed over."""

START: Final = "(start)"
END: Final = "(end)"


class NodeKind(StrEnum):
    """What a node is."""

    STEP = "step"
    PARALLEL = "parallel"
    CALL = "call"
    LOOP = "loop"


class NodeState(StrEnum):
    """What becomes of a node in a context."""

    TAKEN = "taken"
    SKIPPED = "skipped"
    WAITING = "waiting"


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A step or a loop, in words; `number` counts as a reader would: 2, 2.1, 3."""

    id: str
    number: str
    kind: NodeKind
    title: str
    parent: str = ""
    condition: str = ""
    repeats: str = ""
    confirmation: str = ""
    criteria: int = 0
    delegations: tuple[str, ...] = ()
    calls: str = ""
    """What the server calls by itself."""
    state: NodeState | None = None
    times: int = 0
    """How often a step is handed out, or a loop goes round."""
    because: str = ""
    """Why it was passed over, at least once."""
    body: tuple["GraphNode", ...] = ()

    def facts(self) -> Iterator[str]:
        """What there is to say about a node beside its title and its condition."""
        if self.repeats:
            yield f"repeats {self.repeats}"
        if self.calls:
            yield f"the server calls {self.calls}"
        if self.criteria:
            yield plural(self.criteria, "criterion", "criteria")
        if self.delegations:
            yield f"in parallel: {', '.join(self.delegations)}"
        if self.confirmation:
            yield self.confirmation
        if self.state and self.kind is NodeKind.LOOP:
            yield plural(self.times, "iteration")
        elif self.times > 1:
            yield f"taken {self.times} times"


class Edge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From one node to another; `id?` is the question whether a step runs, asked before it."""

    source: str
    target: str
    label: str = ""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow to be drawn."""

    id: str
    name: str
    version: str
    flow: tuple[GraphNode, ...]
    path: tuple[str, ...] | None = None
    """The instances handed out in the context, in order; None without one."""
    warnings: tuple[str, ...] = ()

    def nodes(self) -> Iterator[GraphNode]:
        """Every node, loops before their bodies."""
        return _walk(self.flow)

    def edges(self) -> Iterator[Edge]:
        """Every edge, in the order of the flow."""
        return _edges(self.flow, START, END)


def draw(workflow: Workflow, context: Context | None = None) -> Graph:
    """The graph of a workflow; with a context (also an empty one), what becomes of each step in it."""
    route = _Route() if context is None else _walk_through(workflow, context)
    return _drawn(workflow, route, has_path=context is not None)


def draw_path(
    workflow: Workflow, path: Sequence[str], skipped: Sequence[Skipped], waiting: str, *, is_whole: bool
) -> Graph:
    """The graph with the way that a run took: what it did, what it passed over, the step that it waits at."""
    route = _Route()
    route.path = list(path)
    route.pass_over(skipped, lambda _: "")  # the values are not what they were
    route.count(workflow)
    route.waiting, _ = split_instance(waiting)
    route.is_whole = is_whole
    return _drawn(workflow, route, has_path=True)


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
    """How often a loop goes round: `until done is true, at most 5 times`."""
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


def describe_confirmation(wanted: Confirmation | None) -> str:
    """When a person is asked, and whose word counts; nothing when nobody is."""
    if wanted is None or wanted.condition is False:
        return ""
    person = " by a person" if wanted.by == "person" else ""
    before = " before it is done" if wanted.when == "before" else ""
    condition = f" if {in_words(wanted.condition)}" if wanted.condition is not True and wanted.condition else ""
    return f"asks for confirmation{person}{before}{condition}"


# ── nodes and edges ─────────────────────────────────────────────────────────────────────────────────────────────


def _nodes(steps: Sequence[Step], route: "_Route", parent: str, prefix: str) -> Iterator[GraphNode]:
    for count, step in enumerate(steps, 1):
        number, times = f"{prefix}{count}", route.times[step.id]
        node = GraphNode(
            id=step.id,
            number=number,
            kind=NodeKind.STEP,
            title=step.title,
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
            yield replace(node, kind=kind, criteria=len(step.requirements), delegations=delegations, calls=calls)


def _delegate(item: Context) -> str:
    return str(item.get("workflowId") or item.get("title") or item.get("id") or "delegate")


def _walk(nodes: Sequence[GraphNode]) -> Iterator[GraphNode]:
    for node in nodes:
        yield node
        yield from _walk(node.body)


def _edges(nodes: Sequence[GraphNode], start: str, end: str) -> Iterator[Edge]:
    """The edges of a sequence; without a `start` it is the body of a loop, whose end leads back to its beginning."""
    ends = [(start, "")] if start else []
    for node in nodes:
        entry = _entry(node)
        yield from (Edge(source=source, target=entry, label=label) for source, label in ends)
        ends = [(node.id, "")]
        if node.condition:
            yield Edge(source=entry, target=node.id, label="yes")
            ends.append((entry, "no"))
        if node.body:
            yield from _edges(node.body, "", _entry(node.body[0]))
    yield from (Edge(source=source, target=end, label=label or ("" if start else "again")) for source, label in ends)


def _entry(node: GraphNode) -> str:
    return f"{node.id}?" if node.condition else node.id


# ── the path taken ──────────────────────────────────────────────────────────────────────────────────────────────


class _Route:
    """What an agent met on its way."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.times: collections.Counter[str] = collections.Counter()
        self.because: dict[str, str] = {}
        self.warnings: tuple[str, ...] = ()
        self.is_whole = False
        self.waiting = ""

    def count(self, workflow: Workflow) -> None:
        """How often each step was handed out, and each loop went round."""
        self.times.update(split_instance(instance_id)[0] for instance_id in self.path)
        rounds = {each for instance_id in self.path for each in loops_around(workflow, instance_id)}
        self.times.update(loop_id for loop_id, _ in rounds)

    def state_of(self, step_id: str) -> NodeState | None:
        if step_id == self.waiting:
            return NodeState.WAITING
        return (NodeState.TAKEN if self.times[step_id] else NodeState.SKIPPED) if self.knows(step_id) else None

    def pass_over(self, skipped: Sequence[Skipped], known: Callable[[Skipped], str]) -> None:
        """Note why steps were passed over, with what is known of the values that decided."""
        for skip in skipped:
            step_id, _ = split_instance(skip.step_id)
            if step_id not in self.because:
                values = known(skip)
                self.because[step_id] = explain_skip(skip)["because"] + (f" ({values})" if values else "")

    def knows(self, step_id: str) -> bool:
        """Whether it is known what becomes of a step."""
        return self.is_whole or self.times[step_id] > 0 or step_id in self.because


def _known(condition: Condition, scope: Context) -> str:
    """What the variables of a condition are: `size is "small", owner is not set`."""
    values = {part["var"]: lookup(scope, part["var"]) for part in walk(condition) if "var" in part}
    words = [f"{name} is {'not set' if value is None else brief(value, MOST_VALUE)}" for name, value in values.items()]
    return first_few(words, MOST_VARIABLES)


def _walk_through(workflow: Workflow, context: Context) -> _Route:
    """Complete whatever comes next until nothing does, or the bound is met."""

    def known(skip: Skipped) -> str:
        return _known(skip.condition, scope_of(workflow, skip.step_id, context))

    route = _Route()
    warnings: dict[str, None] = {}
    for found in walk_ahead(workflow, (), context, Budget()):
        warnings |= dict.fromkeys(found.warnings)
        route.pass_over(found.skipped, known)
        if found.step is None or len(route.path) >= MAX_INSTANCES:
            break
        route.path.append(found.instance_id)
    route.count(workflow)
    route.is_whole = found.is_complete
    if found.need is not None:
        warnings[how_to_send(workflow, found.instance_id, need_of_loop(workflow, found.need))] = None
    elif not route.is_whole:
        warnings[f"The walk was cut after {MAX_INSTANCES:,} steps; the rest is not marked"] = None
    route.warnings = tuple(warnings)
    return route
