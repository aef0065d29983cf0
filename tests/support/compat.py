"""`make compat`: every document of a directory is loaded, shown and walked to its end, each branch in both directions.

The walker answers every step with an output and sets the variables that conditions name: for each condition it looks for a
context that makes it hold and one that does not, and walks with both. While and until loops are let go round, and ended.

Prints what was met (editions, features), what does not load and why, what is not acted on, and which branches no context can
take. Exits with 1 when a document that loads cannot be led: it never ends, hands out a step twice, says nothing, raises,
or does not go where the context leads.
"""

import collections
import itertools
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.json_values import Json, JsonObject
from workflowlookup.errors import InvalidCriteria, InvalidWorkflow, WorkflowLookupError
from workflowlookup.language.conditions import OPERATORS, Condition, evaluate, walk
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.document.findings import Severity
from workflowlookup.language.document.parts import CONFIRMATION_FIELDS, walk_steps
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import guide
from workflowlookup.language.model import LoopStep, PromptStep, Workflow
from workflowlookup.language.navigation import NextStep, next_step, split_instance
from workflowlookup.language.rules import parse_criteria, rules_in
from workflowlookup.language.validation import judge
from workflowlookup.language.values import as_number
from workflowlookup.library.files import is_document_name, parse_document, read_bytes, summarise
from workflowlookup.tools.resources import as_markdown

MAX_STEPS = 20_000
MAX_GUESSES = 20_000
ROUNDS = 2

# ── contexts that decide a condition ────────────────────────────────────────────────────────────────────────────

_ABSENT = object()


def rules_of(criteria: Json) -> list[Json]:
    """Every rule of criteria, however deep."""
    return [parse_criteria(rule) for _, rule in rules_in(criteria, ())]


def solve(condition: Condition, *, domains: Mapping[str, Sequence[Any]] | None = None) -> JsonObject | None:
    """Variables that make the condition hold, as few as will do; None when none were found.

    `domains` holds the values that a variable can have at all, such as the iterations of a loop.
    """
    parts = [part for part in walk(condition) if "var" in part]
    names = list(dict.fromkeys(str(part["var"]) for part in parts))
    choices = [
        list((domains or {}).get(name) or values_for([part for part in parts if part["var"] == name])) for name in names
    ]
    combinations: Iterator[tuple[Json, ...]] = itertools.product(*choices)
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MAX_GUESSES:
        dice = random.Random(0)
        combinations = (tuple(dice.choice(choice) for choice in choices) for _ in range(MAX_GUESSES))
    for values in combinations:
        context = {name: value for name, value in zip(names, values, strict=True) if value is not _ABSENT}
        if evaluate(condition, context, Budget()):
            return context
    return None


def values_for(parts: Sequence[Condition]) -> list[Json]:
    """Values of a variable on either side of everything that it is compared with."""
    values: list[Json] = [_ABSENT, "yes", False]
    numbers: list[float] = []
    texts: list[str] = []
    for part in parts:
        for key, expected in part.items():
            if key in ("equals", "not_equals", "contains"):
                values += [expected, [expected]]
                texts += [expected] if isinstance(expected, str) else []
            elif key == "in":
                values += expected
            elif key in ("startsWith", "endsWith"):
                texts.append(expected)
            elif key == "matches":
                texts += samples(expected)
            if key in OPERATORS and (number := as_number(expected)) is not None:
                numbers.append(number)
    numbers.sort()
    values += [number + change for number in numbers for change in (0, 1, -1)]
    values += [(low + high) / 2 for low, high in itertools.pairwise(numbers)]
    values += texts
    values += [" ".join(order) for order in itertools.islice(itertools.permutations(texts), 24)]
    unique: list[Json] = []
    for value in values:
        if not any(value is other or (type(value) is type(other) and value == other) for other in unique):
            unique.append(value)
    return unique


def samples(pattern: str) -> list[str]:
    """Texts that a simple pattern might match; a guess, which `solve` checks."""
    plain = re.sub(r"\\[bB]|[\^$]|\(\?[:=!]|\(\?P?<\w+>", "", pattern.replace("\\.", "\0"))
    plain = re.sub(r"\\d", "1", re.sub(r"\\w", "a", re.sub(r"\\s", " ", plain)))
    plain = re.sub(r"\[([^\]\\^])[^\]]*\]", r"\1", plain)
    alternatives = [re.sub(r"[()]", "", part) for part in plain.split("|")]
    first = re.sub(r"\(([^()|]*)[^()]*\)", r"\1", plain)
    texts = [re.sub(r"[*+?]|\{\d+(,\d*)?\}|\\", "", text) for text in (first, *alternatives, pattern)]
    return [text.replace(".", "x").replace("\0", ".") for text in texts]


# ── what there is to decide ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Branch:
    """A condition of a document, where it stands, and what must hold for it to be looked at."""

    place: str
    step_id: str
    condition: Condition
    before: tuple[Condition, ...]


def branches(workflow: Workflow) -> Iterator[Branch]:
    for step_id, step in workflow.steps.items():
        before = tuple(way_to(workflow, step_id))
        if step.run_condition:
            yield Branch("runCondition", step_id, step.run_condition, before)
            before = (*before, step.run_condition)
        if isinstance(step, LoopStep):
            if step.loop.condition:
                yield Branch("loop", step_id, step.loop.condition, before)
            continue
        wanted = step.confirmation.condition if step.confirmation is not None else None
        if isinstance(wanted, Mapping) and wanted:
            yield Branch("requireConfirmation", step_id, wanted, before)
        for fragment in step.prompt_fragments:
            if fragment.when:
                yield Branch("promptFragments", step_id, fragment.when, before)
        for rule in rules_of(_written(workflow, step_id).get("validationCriteria")):
            if rule.condition:
                yield Branch("validationCriteria", step_id, rule.condition, before)


def way_to(workflow: Workflow, step_id: str) -> Iterator[Condition]:
    """What must hold for the loops around a step to be entered."""
    for loop_id in workflow.enclosing[step_id]:
        around = workflow.steps[loop_id]
        assert isinstance(around, LoopStep)
        if around.run_condition:
            yield around.run_condition
        if around.loop.type == "while" and around.loop.condition:
            yield around.loop.condition


def _written(workflow: Workflow, step_id: str) -> Mapping[str, Any]:
    return next(step for _, step in walk_steps(workflow.document["steps"]) if step["id"] == step_id)


# ── the walk ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Seen:
    """What all the walks through one document met."""

    steps: int = 0
    walks: int = 0
    accepted: int = 0
    outputs: int = 0
    ways: set[tuple[str, str, str, bool]] = field(default_factory=set)

    def note(self, branch: Branch, *, held: bool) -> None:
        self.ways.add((branch.place, branch.step_id, repr(branch.condition), held))

    def has(self, branch: Branch, *, held: bool) -> bool:
        return (branch.place, branch.step_id, repr(branch.condition), held) in self.ways


class Walker:
    """Walks through one workflow as often as it takes."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.seen = Seen()
        self.branches = list(branches(workflow))
        self._loops = {step_id: step for step_id, step in workflow.steps.items() if isinstance(step, LoopStep)}

    def everything(self) -> list[str]:
        """Walk with nothing set, and then each branch both ways; the branches that no context was found for."""
        self.walk({}, {})
        closed: list[str] = []
        for branch in self.branches:
            for held in (True, False):
                if self.seen.has(branch, held=held):
                    continue
                context = self._context_for(branch, held=held)
                if context is not None:
                    self.walk(*context)
                    assert self.seen.has(branch, held=held), (
                        f"{branch.place} of {branch.step_id} was never {str(held).lower()} with {context[0]}"
                    )
                else:
                    closed.append(f"{branch.place} of {branch.step_id} is never {str(held).lower()}")
        return closed

    def _context_for(self, branch: Branch, *, held: bool) -> tuple[JsonObject, dict[str, int]] | None:
        """A context in which the branch is looked at and goes this way, and how often each loop must go round."""
        wanted: Condition = branch.condition if held else {"not": branch.condition}
        around = [*self.workflow.enclosing[branch.step_id], *([branch.step_id] if branch.place == "loop" else [])]
        domains: dict[str, Sequence[Any]] = {}
        for loop_id in around:
            loop = self._loops[loop_id].loop
            most = min(loop.max_iterations, loop.count if isinstance(loop.count, int) else 6)
            if loop_id == branch.step_id:
                most = 1  # its own condition is looked at when it is entered
            domains[loop.iteration_var] = range(1, most + 1)
            if loop.type in ("for", "forEach"):
                domains[loop.index_var] = range(most)
            if loop.type == "forEach":
                domains[str(loop.items)] = [[f"item-{number}" for number in range(1, most + 1)]]
            elif isinstance(loop.count, str):
                domains[loop.count] = range(1, most + 1)
        goal: Condition = {"and": [*branch.before, wanted]}
        solution = solve(goal, domains=domains)
        if solution is None:
            return None
        names = {str(part["var"]) for part in walk(goal) if "var" in part} - domains.keys()
        context: JsonObject = {**dict.fromkeys(names), **solution}
        rounds: dict[str, int] = {}
        for loop_id in around:
            loop = self._loops[loop_id].loop
            iteration, index = context.pop(loop.iteration_var, 1), context.pop(loop.index_var, 0)
            rounds[loop_id] = max(ROUNDS, iteration, index + 1)
            if loop.items and loop.item_var in context:
                context[loop.items] = [context.pop(loop.item_var)] * rounds[loop_id]
        return context, rounds

    def walk(self, context: JsonObject, rounds: Mapping[str, int]) -> None:
        """Complete whatever comes next until nothing does."""
        workflow = self.workflow
        completed: list[str] = []
        handed_out: set[str] = set()
        context = {**self._lists_and_counts(rounds), **context}
        given = dict(context)
        ended: set[str] = set()
        self.seen.walks += 1
        self._note_loops(None, context)
        while len(completed) < MAX_STEPS:
            current = next_step(workflow, completed, context, Budget())
            for skip in current.skipped:
                self._note_run(split_instance(skip.step_id)[0], held=False)
            if current.need is not None:  # an agent sends what is asked for
                supplied = {current.need.variable: self._lists_and_counts(rounds)[current.need.variable]}
                assert context.get(current.need.variable) != supplied[current.need.variable], "it was sent already"
                context, given = {**context, **supplied}, {**given, **supplied}
                continue
            if current.step is None:
                assert guide(workflow, current, Budget()).prompt.strip(), "the end has nothing to say"
                return
            self._note_loops(current, context)
            change = self._end_loops(current, rounds, ended)
            if change is not None:
                loop_id, variables = change
                ended.add(loop_id)
                if variables is None:
                    completed.append(loop_id)
                context = {**context, **(variables or {})}
                continue
            assert current.instance_id not in handed_out, f"{current.instance_id} was handed out twice"
            handed_out.add(current.instance_id)
            self._answer(current)
            completed.append(current.instance_id)
            if ended and len(self.workflow.enclosing[current.step.id]) < 2:
                context = {**context, **{name: value for name, value in given.items() if not self._ends(name, ended)}}
        raise AssertionError(f"no end after {MAX_STEPS:,} steps")

    def _ends(self, name: str, ended: set[str]) -> bool:
        """Whether a loop that was ended asks for the variable."""
        return any(
            part.get("var") == name for loop_id in ended for part in walk(self._loops[loop_id].loop.condition or {})
        )

    def _lists_and_counts(self, rounds: Mapping[str, int]) -> JsonObject:
        """What loops over lists and counts need to be entered."""
        needed: JsonObject = {}
        for loop_id, step in self._loops.items():
            times = rounds.get(loop_id, ROUNDS)
            if step.loop.items:
                needed[step.loop.items] = [f"item-{number}" for number in range(1, times + 1)]
            elif isinstance(step.loop.count, str):
                needed[step.loop.count] = times
        return needed

    def _end_loops(
        self, current: NextStep, rounds: Mapping[str, int], ended: set[str]
    ) -> tuple[str, JsonObject | None] | None:
        """The loop that has gone round often enough, and the variables that end it; None for its id."""
        step_id, iterations = split_instance(current.instance_id)
        for loop_id, iteration in zip(self.workflow.enclosing[step_id], iterations, strict=True):
            step = self._loops[loop_id]
            if step.loop.type not in ("while", "until") or iteration <= rounds.get(loop_id, ROUNDS) or loop_id in ended:
                continue
            condition = step.loop.condition
            if condition is None:
                return loop_id, None
            goal: Condition = condition if step.loop.type == "until" else {"not": condition}
            domains = {step.loop.iteration_var: (iteration,)}
            variables = solve(goal, domains=domains)
            if variables is None:
                return loop_id, None
            variables.pop(step.loop.iteration_var, None)
            names = {str(part["var"]) for part in walk(condition) if "var" in part} - {step.loop.iteration_var}
            return loop_id, {**dict.fromkeys(names), **variables}
        return None

    def _answer(self, current: NextStep) -> None:
        """Be told what to do, and have an output judged."""
        step = current.step
        assert step is not None
        guidance = guide(self.workflow, current, Budget())
        assert guidance.prompt.strip(), f"{current.instance_id} has nothing to say"
        assert guidance.step["title"].strip(), f"{current.instance_id} has no title"
        self.seen.steps += 1
        self._note_run(step.id, held=True)
        for loop_id in self.workflow.enclosing[step.id]:
            self._note_run(loop_id, held=True)
        for branch in self.branches:
            if branch.step_id == step.id and branch.place != "runCondition":
                self.seen.note(branch, held=evaluate(branch.condition, current.context, Budget()))
        try:
            self.seen.outputs += 1
            self.seen.accepted += judge(step.check, output_for(step, self.workflow), current.context, Budget()).valid
        except (InvalidCriteria, InvalidWorkflow):
            pass  # the document loads with a warning that says so

    def _note_run(self, step_id: str, *, held: bool) -> None:
        for branch in self.branches:
            if branch.step_id == step_id and branch.place == "runCondition":
                self.seen.note(branch, held=held)

    def _note_loops(self, current: NextStep | None, context: JsonObject) -> None:
        """The conditions of loops, as they are when the walk asks for the next step."""
        scope = current.context if current else context
        for branch in self.branches:
            if branch.place == "loop":
                loop = self._loops[branch.step_id].loop
                self.seen.note(branch, held=evaluate(branch.condition, {loop.iteration_var: 1, **scope}, Budget()))


def output_for(step: PromptStep, workflow: Workflow) -> str:
    """An output that meets most criteria: the texts that are asked for, and as long as is asked."""
    rules = list(rules_of(_written(workflow, step.id).get("validationCriteria")))
    texts = [getattr(rule, "value", "") for rule in rules] + [
        text for rule in rules if hasattr(rule, "pattern") for text in samples(rule.pattern)[:1]
    ]
    output = "\n".join(["This was done, checked and written down.", *texts])
    least = max((getattr(rule, "min", None) or 0 for rule in rules), default=0)
    return output + "." * (least - len(output))


# ── editions and features ───────────────────────────────────────────────────────────────────────────────────────

_HEAD_FIELDS = frozenset(
    "modelTier recommendedPreferences features assessments extensionPoints references validatedAgainstSpecVersion about "
    "examples metricsProfile promptBlocks promptFragments outputContract assessmentRefs assessmentConsequences "
    "notesOptional templateCall audit verification conditionSource parallelDelegations synthesis".split()
)
_LOOP_FIELDS = frozenset(
    "loop body functionDefinitions functionCalls functionReferences hasValidation agentRole".split()
)
_OWN_FIELDS = frozenset("contextSchema requires produces category modelHint".split())


def edition_of(document: Mapping[str, Any]) -> str:
    """The oldest edition of the format that has all the fields of a document."""
    steps = [step for _, step in walk_steps(document["steps"])]
    fields = {key for holder in (document, *steps, *(step.get("loop", {}) for step in steps)) for key in holder}
    conditions = {key for condition in conditions_in(document) for key in condition}
    nested = any("loop" in inner for step in steps for inner in step.get("body", ()) if isinstance(inner, dict))
    if fields & _OWN_FIELDS or nested or conditions & {"startsWith", "endsWith", "matches", "exists"}:
        return "workflowlookup"
    kinds = any(
        isinstance(wanted := step.get("requireConfirmation"), dict) and wanted.keys() & CONFIRMATION_FIELDS
        for step in steps
    )
    if fields & _HEAD_FIELDS or conditions & {"in", "contains"} or kinds or re.search(r"[._]", document["id"]):
        return "HEAD"
    asks = any(isinstance(step.get("requireConfirmation"), dict) for step in steps)
    if fields & _LOOP_FIELDS or asks or any(len(step.get("prompt", "")) > 2048 for step in steps):
        return "loops era"
    return "0.0.3"


def features_of(document: Mapping[str, Any]) -> Iterator[str]:
    """What a document makes use of."""
    for condition in conditions_in(document):
        yield from (f"condition {key}" for key in condition if key in OPERATORS or key in ("and", "or", "not"))
        if condition.keys() == {"var"}:
            yield "condition var alone"
    for _, step in walk_steps(document["steps"]):
        if "loop" in step:
            yield f"loop {step['loop']['type']}"
            yield "body by id" if isinstance(step["body"], str) else "body of steps"
            if isinstance(step["body"], list) and any("loop" in inner for inner in step["body"]):
                yield "nested loops"
        for name in (
            "runCondition",
            "promptBlocks",
            "promptFragments",
            "functionCalls",
            "functionReferences",
            "agentRole",
        ):
            if name in step:
                yield name
        if "parallelDelegations" in step:
            yield "parallel step"
        confirmation = step.get("requireConfirmation")
        if confirmation is not None:
            kind = (
                "boolean"
                if isinstance(confirmation, bool)
                else "object"
                if confirmation.keys() & CONFIRMATION_FIELDS
                else "condition"
            )
            yield f"confirmation {kind}"
        criteria = step.get("validationCriteria")
        yield from (f"rule {type(rule).__name__.removesuffix('Rule').lower()}" for rule in rules_of(criteria))
        if isinstance(criteria, dict):
            yield from (f"criteria {key}" for key in criteria if key in ("and", "or", "not"))
        if re.search(r"(?<!\{)\{\{\s*[\w.]+\s*\}\}", str(step)):
            yield "templates"


def conditions_in(document: Mapping[str, Any]) -> Iterator[Condition]:
    """Every condition and the conditions inside it."""
    for _, step in walk_steps(document["steps"]):
        confirmation = step.get("requireConfirmation")
        if isinstance(confirmation, dict):
            confirmation = confirmation.get("condition") if confirmation.keys() & CONFIRMATION_FIELDS else confirmation
        problems = [
            step.get("runCondition"),
            confirmation,
            step.get("loop", {}).get("condition"),
            *(fragment.get("when") for fragment in step.get("promptFragments", ())),
            *(rule.condition for rule in rules_of(step.get("validationCriteria"))),
        ]
        for condition in problems:
            if isinstance(condition, Mapping):
                yield from walk(condition)


# ── the report ──────────────────────────────────────────────────────────────────────────────────────────────────


def main(directory: str) -> int:
    out = Console(highlight=False, soft_wrap=True)
    root = Path(directory)
    paths = sorted(path for path in root.rglob("*") if is_document_name(path.name))
    if not paths:
        out.print(f"no documents in {directory}")
        return 1
    refused: list[tuple[str, str]] = []
    broken: list[tuple[str, str]] = []
    one_way: list[tuple[str, str]] = []
    unused: collections.Counter[str] = collections.Counter()
    editions: collections.Counter[str] = collections.Counter()
    features: collections.Counter[str] = collections.Counter()
    walks = handed_out = accepted = outputs = both = total = 0
    started = time.perf_counter()
    for path in track(paths, "walking", console=out, transient=True):
        name = str(path.relative_to(root))
        try:
            data, _ = read_bytes(str(path), str(root))
            document = parse_document(data, str(path))
            summarise(document, name)
        except WorkflowLookupError as refusal:
            refused.append((name, str(refusal).replace(str(path), name).removeprefix(f"{name}: ")))
            continue
        try:
            unused.update({str(finding.path[-1]) for finding in check(document) if finding.severity is Severity.NOTE})
            editions[edition_of(document)] += 1
            features.update(set(features_of(document)))
            workflow = build(document)
            as_markdown(workflow)
            walker = Walker(workflow)
            closed = walker.everything()
        except Exception as problem:  # noqa: BLE001 - the report names it, whatever it is
            broken.append((name, f"{type(problem).__name__}: {problem}"))
            continue
        seen = walker.seen
        one_way += [(name, reason) for reason in closed]
        walks, handed_out, accepted = walks + seen.walks, handed_out + seen.steps, accepted + seen.accepted
        outputs, both, total = outputs + seen.outputs, both + len(seen.ways), total + 2 * len(walker.branches)
    loaded = len(paths) - len(refused)
    for name, reason in refused:
        out.print(f"[yellow]does not load[/]  {escape(name)}: {escape(reason)}")
    for name, reason in broken:
        out.print(f"[red]cannot be led[/]  {name}: {reason}")
    for name, reason in one_way:
        out.print(f"[cyan]one way only[/]   {name}: {reason}")
    for feature, count in unused.most_common():
        out.print(f"[cyan]not acted on[/]   '{feature}' in {count} documents (they load, with a warning)")
    for title, counter in (("editions", editions), ("features", features)):
        out.print(f"[bold]{title}[/]: " + ", ".join(f"{name} {count}" for name, count in counter.most_common()))
    out.print(
        f"[bold]{loaded} of {len(paths)} documents load[/], {loaded - len(broken)} were led to their end in every direction: "
        f"{walks:,} walks, {handed_out:,} steps handed out, {accepted:,} of {outputs:,} outputs accepted, {both:,} of {total:,} "
        f"ways of branches taken, in {time.perf_counter() - started:.1f} s"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
