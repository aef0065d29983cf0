"""What changed between two versions of a workflow, as an author would describe it: steps, conditions, criteria, texts.

Steps correspond if they have the same id. A removed step and an added one with the same title, prompt or call are one
step with a new id. Conditions, loops, confirmation and criteria are described in words, texts as a diff and everything
else as JSON, so no change is left out.
"""

import bisect
import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from workflowlookup.authoring.graph import describe_confirmation, describe_loop
from workflowlookup.language.conditions import in_words
from workflowlookup.language.document.building import call_of, confirmation_of, loop_of, tools_of
from workflowlookup.language.document.parts import walk_steps
from workflowlookup.language.model import LoopStep, PromptStep, Requirement, Workflow
from workflowlookup.language.proof import PROOFS
from workflowlookup.language.values import Json, is_number, json_equal

MAX_LINE: Final = 120
"""Longer JSON is shown as a diff."""


class ChangeKind(StrEnum):
    """How a thing changed."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that changed: before and after in words, or the lines of a unified diff."""

    kind: ChangeKind
    what: str
    before: str = ""
    after: str = ""
    diff: tuple[str, ...] = ()


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of one step; without a step, of the workflow itself."""

    kind: ChangeKind
    step: str = ""
    title: str = ""
    place: str = ""
    changes: tuple[Change, ...] = ()


def compare(before: Workflow, after: Workflow) -> tuple[Section, ...]:
    """All changes: of the workflow itself, then of each step in the order of the flow, then the removed steps."""
    return tuple(_sections(before, after))


def _sections(before: Workflow, after: Workflow) -> Iterator[Section]:
    changes_of_workflow = tuple(_fields(before.document, after.document, _WORKFLOW_FIELDS))
    if changes_of_workflow:
        yield Section(kind=ChangeKind.CHANGED, changes=changes_of_workflow)
    old, new = _raw_steps(before), _raw_steps(after)
    renamed = _renamed(old, new)
    old = {renamed.get(step_id, step_id): step for step_id, step in old.items()}
    old_loops = {
        renamed.get(step_id, step_id): tuple(renamed.get(loop, loop) for loop in loops)
        for step_id, loops in before.enclosing.items()
    }
    old_positions, new_positions = _positions(old_loops), _positions(after.enclosing)
    moved = _moved(old_loops, after.enclosing)
    moves = dict(_moves(moved, old_positions, new_positions))
    for step_id, position in new_positions.items():
        title = after.steps[step_id].title
        if step_id not in old:
            yield Section(kind=ChangeKind.ADDED, step=step_id, title=title, place=position)
            continue
        changes = list(_step_changes(before, after, old[step_id], new[step_id]))
        kind = ChangeKind.CHANGED if changes else ChangeKind.MOVED
        if step_id in moves:
            changes.insert(0, moves[step_id])
        if changes:
            yield Section(kind=kind, step=step_id, title=title, changes=tuple(changes))
    for step_id, position in old_positions.items():
        if step_id not in new:
            yield Section(kind=ChangeKind.REMOVED, step=step_id, title=before.steps[step_id].title, place=position)


# ── positions of steps ──────────────────────────────────────────────────────────────────────────────────────────


def _raw_steps(workflow: Workflow) -> dict[str, Mapping[str, Json]]:
    return {step["id"]: step for _, step in walk_steps(workflow.document["steps"])}


def _renamed(old: Mapping[str, Mapping[str, Json]], new: Mapping[str, Mapping[str, Json]]) -> dict[str, str]:
    """By the old id of a step: its new id."""
    added = [step for step_id, step in new.items() if step_id not in old]
    renamed: dict[str, str] = {}
    for step_id in (step_id for step_id in old if step_id not in new):
        same = next((step for step in added if _is_same_step(old[step_id], step)), None)
        if same:
            added.remove(same)
            renamed[step_id] = same["id"]
    return renamed


def _is_same_step(old: Mapping[str, Json], new: Mapping[str, Json]) -> bool:
    """Whether a step is the same with another id: it has the same title, prompt or call."""
    has_same_content = any(key in old and old[key] == new.get(key) for key in ("title", "prompt", "call"))
    return has_same_content and ("loop" in old) is ("loop" in new)


Enclosing = Mapping[str, tuple[str, ...]]
"""By step, in the order of the flow: the loops around it."""


def _positions(enclosing: Enclosing) -> dict[str, str]:
    """The position of each step in words, in the order of the flow: `after plan, in loop each-file`."""
    last: dict[tuple[str, ...], str] = {}
    positions: dict[str, str] = {}
    for step_id, loops in enclosing.items():
        position = f"after {last[loops]}" if loops in last else "at the start"
        positions[step_id] = f"{position} of loop {loops[-1]}" if loops and loops not in last else position
        if loops and loops in last:
            positions[step_id] += f", in loop {loops[-1]}"
        last[loops] = step_id
    return positions


def _moved(before: Enclosing, after: Enclosing) -> set[str]:
    """The steps that are in another loop, or in another order among the steps that stayed."""
    common = [step_id for step_id in before if step_id in after]
    moved = {step_id for step_id in common if before[step_id][-1:] != after[step_id][-1:]}
    for loop in {before[step_id][-1:] for step_id in common}:
        stayed = {step_id for step_id in common if before[step_id][-1:] == loop} - moved
        old = [step_id for step_id in before if step_id in stayed]
        new = [step_id for step_id in after if step_id in stayed]
        rank = {step_id: position for position, step_id in enumerate(old)}
        in_order = _longest_increasing([rank[step_id] for step_id in new])
        moved |= stayed - {old[position] for position in in_order}
    return moved


def _longest_increasing(numbers: Sequence[int]) -> Iterator[int]:
    """A longest increasing subsequence, from its end: the steps that did not move."""
    ends: list[int] = []
    previous: dict[int, int | None] = {}
    for number in numbers:
        index = bisect.bisect(ends, number)
        previous[number] = ends[index - 1] if index else None
        ends[index : index + 1] = [number]
    number_or_none = ends[-1] if ends else None
    while number_or_none is not None:
        yield number_or_none
        number_or_none = previous[number_or_none]


def _moves(moved: set[str], old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, Change]]:
    """The moves. Steps that still follow each other moved together, and are one move of the first of them."""
    counts: dict[str, int] = {}
    leader = ""
    for step_id in filter(moved.__contains__, new):
        leader = leader if old[step_id] == new[step_id] else step_id
        counts[leader] = counts.get(leader, 0) + 1
    for step_id, count in counts.items():
        others = f", with the {count - 1} steps below it" if count > 2 else ", with the step below it" * (count - 1)
        yield step_id, Change(kind=ChangeKind.MOVED, what="place", before=old[step_id], after=new[step_id] + others)


# ── fields ──────────────────────────────────────────────────────────────────────────────────────────────────────

Describe = Callable[[str, Json, Json], Iterator[Change]]


def _fields(
    old: Mapping[str, Json], new: Mapping[str, Json], describers: Mapping[str, Describe | None]
) -> Iterator[Change]:
    """The fields that differ, each described in its own way; a describer of None leaves the field to others."""
    for field, before, after in _both(old, new):
        describe = describers.get(field, _as_value)
        if describe is not None and not json_equal(before, after):
            yield from describe(field, before, after)


def _step_changes(
    before: Workflow, after: Workflow, old: Mapping[str, Json], new: Mapping[str, Json]
) -> Iterator[Change]:
    yield from _fields(old, new, _STEP_FIELDS)
    old_step, new_step = before.steps[old["id"]], after.steps[new["id"]]
    if isinstance(old_step, LoopStep) or isinstance(new_step, LoopStep):
        return
    if not json_equal(old.get("validationCriteria"), new.get("validationCriteria")):
        changes = list(_sentences("criterion", _criteria(old_step.requirements), _criteria(new_step.requirements)))
        yield from changes or _as_value("criteria", old.get("validationCriteria"), new.get("validationCriteria"))
    if not json_equal(old.get("proof"), new.get("proof")):
        changes = list(_proofs(_Proofs(old_step, old), _Proofs(new_step, new)))
        yield from changes or _as_value("proof", old.get("proof"), new.get("proof"))


class _Proofs:
    """The proofs of a step by name: what the author wrote, and the sentence for it."""

    def __init__(self, step: PromptStep, data: Mapping[str, Json]) -> None:
        pairs = list(zip(step.proofs, data.get("proof", ()), strict=True))
        self.entries: Mapping[str, Mapping[str, Json]] = {proof.name: entry for proof, entry in pairs}
        requirements = [Requirement(sentence=proof.describe(), condition=proof.condition) for proof, _ in pairs]
        self.sentences = dict(zip(self.entries, _criteria(requirements), strict=True))


def _proofs(before: _Proofs, after: _Proofs) -> Iterator[Change]:
    for name in (*before.entries, *(name for name in after.entries if name not in before.entries)):
        old, new = before.entries.get(name), after.entries.get(name)
        if old is None or new is None:
            yield _replaced(f"proof {name}", before.sentences.get(name, ""), after.sentences.get(name, ""))
        elif not json_equal(old, new):
            tendency = _tendency(old, new)
            what = f"proof {name}" + (f" ({tendency})" if tendency else "")
            if before.sentences[name] == after.sentences[name]:
                yield from _as_value(what, old, new)
            else:
                yield _replaced(what, before.sentences[name], after.sentences[name])


def _tendency(old: Mapping[str, Json], new: Mapping[str, Json]) -> str:
    """Whether every change of a proof makes it `weaker` or `stronger`; empty if it is neither or unknown."""
    if old["kind"] != new["kind"]:
        return ""
    kind = PROOFS[old["kind"]]
    tendencies = set()
    for field, before, after in _both(old, new):
        if json_equal(before, after) or field in ("name", "message", "measure"):
            continue
        if field in (*kind.criteria, *kind.demands):
            tendencies.add(_more_demanded(before, after))
        elif field in ("condition", "at"):  # with either of them, the proof refuses less
            tendencies.add(_more_demanded(after, before))
        elif field == "exitCode":
            tendencies.add(_more_demanded(_codes(after), _codes(before)))
        else:
            tendencies.add("")
    return tendencies.pop() if len(tendencies) == 1 else ""


def _codes(value: Json) -> Json:
    return value if isinstance(value, list) else [0 if value is None else value]


def _more_demanded(before: Json, after: Json) -> str:
    if before in (None, []) or after in (None, []):
        return "stronger" if before in (None, []) else "weaker"
    if isinstance(before, list) and isinstance(after, list):
        lost = [item for item in before if item not in after]
        added = [item for item in after if item not in before]
        return "" if bool(lost) is bool(added) else "weaker" if lost else "stronger"
    if is_number(before) and is_number(after):
        return "weaker" if after < before else "stronger"
    return ""


def _as_when_unproved(field: str, before: Json, after: Json) -> Iterator[Change]:
    order = ("note", "ask", "refuse")
    old, new = before or "refuse", after or "refuse"
    if old != new:
        yield _replaced(f"{field} ({'weaker' if order.index(new) < order.index(old) else 'stronger'})", old, new)


def _criteria(requirements: Sequence[Requirement]) -> list[str]:
    return [
        requirement.sentence + (f" (if {in_words(requirement.condition)})" if requirement.condition else "")
        for requirement in requirements
    ]


def _as_value(field: str, before: Json, after: Json) -> Iterator[Change]:
    """Scalars as they are, the rest as JSON: on one line each, or as a diff if that is long."""
    old, new = _json(before), _json(after)
    if max(len(old), len(new)) > MAX_LINE and isinstance(after if before is None else before, (dict, list)):
        yield from _as_text(field, _json(before, indent=2), _json(after, indent=2))
    else:
        yield _replaced(field, old, new)


def _as_call(_: str, before: Json, after: Json) -> Iterator[Change]:
    """The name of what is called, and each other field of the call."""
    old, new = (call_of(value) if value else None for value in (before, after))
    names = tuple(call.described if call else "" for call in (old, new))
    if names[0] != names[1]:
        yield _replaced("call", *names)
    target = {"server", "tool", "provider", "workflow"}
    for field, old_value, new_value in _both(before or {}, after or {}):
        if field not in target and not json_equal(old_value, new_value):
            yield from _as_value(f"call {field}", old_value, new_value)


def _both(old: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    return ((field, old.get(field), new.get(field)) for field in dict.fromkeys((*old, *new)))


def _in_words(what: str, words: Callable[[Json], str]) -> Describe:
    def describe(_: str, before: Json, after: Json) -> Iterator[Change]:
        old, new = ("" if value is None else words(value) for value in (before, after))
        if old == new:  # the words leave out details, such as the members of an object
            old, new = _json(before), _json(after)
        yield _replaced(what, old, new)

    return describe


def _as_text(field: str, before: Json, after: Json) -> Iterator[Change]:
    """A unified diff of two texts; one may be missing."""
    if not isinstance(before, str | None) or not isinstance(after, str | None):
        yield from _as_value(field, before, after)
        return
    old, new = (text.split("\n") if text else [] for text in (before, after))
    lines = difflib.unified_diff(old, new, lineterm="", n=1)
    yield Change(kind=_kind(before, after), what=field, diff=tuple(lines)[2:])


def _as_list(field: str, before: Json, after: Json) -> Iterator[Change]:
    """Sentences that were added, removed or changed; if only their order changed, both lists."""
    changes = list(_sentences(field, before or (), after or ()))
    yield from changes or _as_value(field, before, after)


def _as_produced(field: str, before: Json, after: Json) -> Iterator[Change]:
    """The variables that a step sets, each with its declaration, if it has one."""
    yield from _as_list(field, _produced(before), _produced(after))


def _produced(value: Json) -> list[str]:
    if not isinstance(value, Mapping):
        return list(value or ())
    return [f"{name}: {_json(declared)}" if declared else name for name, declared in value.items()]


def _sentences(what: str, before: Sequence[str], after: Sequence[str]) -> Iterator[Change]:
    removed = [sentence for sentence in before if sentence not in after]
    added = [sentence for sentence in after if sentence not in before]
    for sentence in removed:
        similar = difflib.get_close_matches(sentence, added, n=1)
        if similar:
            added.remove(similar[0])
        yield _replaced(what, sentence, similar[0] if similar else "")
    yield from (_replaced(what, "", sentence) for sentence in added)


def _replaced(what: str, before: str, after: str) -> Change:
    return Change(kind=_kind(before, after), what=what, before=before, after=after)


def _kind(before: str | None, after: str | None) -> ChangeKind:
    return ChangeKind.CHANGED if before and after else ChangeKind.ADDED if after else ChangeKind.REMOVED


def _json(value: Json, indent: int | None = None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _confirmation_words(value: Json) -> str:
    confirmation = confirmation_of({"requireConfirmation": value})
    words = describe_confirmation(confirmation)
    if confirmation is None:
        return words
    details = [f'asks "{confirmation.question}"'] if confirmation.question else []
    details += [f"wants {_json(confirmation.answers)}"] if confirmation.answers else []
    return "; ".join([words, *details])


_WORKFLOW_FIELDS: Final[Mapping[str, Describe | None]] = {
    "steps": None,
    "whenUnproved": _as_when_unproved,
    "description": _as_text,
    "about": _as_text,
    "preconditions": _as_list,
    "clarificationPrompts": _as_list,
    "metaGuidance": _as_list,
    "triggers": _as_list,
}
_STEP_FIELDS: Final[Mapping[str, Describe | None]] = {
    "body": None,
    "validationCriteria": None,
    "proof": None,
    "prompt": _as_text,
    "agentRole": _as_text,
    "guidance": _as_list,
    "tools": _in_words("tools", lambda value: tools_of(value).describe()),
    "requires": _as_list,
    "produces": _as_produced,
    "runCondition": _in_words("condition", in_words),
    "requireConfirmation": _in_words("confirmation", _confirmation_words),
    "loop": _in_words("loop", lambda value: describe_loop(loop_of(value))),
    "call": _as_call,
}
