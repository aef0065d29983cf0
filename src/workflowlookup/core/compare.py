"""What changed between two versions of a workflow, as an author would tell it: steps, conditions, criteria, words.

Steps are the same when their ids are. A change is said in words where there are words for it (conditions, loops,
confirmation, criteria), as a diff where it is text, and as JSON otherwise, so that no change of a field is left out.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from workflowlookup.core.document import walk_steps
from workflowlookup.core.graph import describe_confirmation, describe_loop, in_words
from workflowlookup.core.model import Loop, LoopStep, Requirement, Workflow
from workflowlookup.core.values import Json, json_equal


class Kind(StrEnum):
    """What happened."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that changed: before and after in words, or the lines of a unified diff."""

    kind: Kind
    what: str
    before: str = ""
    after: str = ""
    diff: tuple[str, ...] = ()


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to one step; without a step, to the workflow itself."""

    kind: Kind
    step: str = ""
    title: str = ""
    place: str = ""
    changes: tuple[Change, ...] = ()


def compare(before: Workflow, after: Workflow) -> tuple[Section, ...]:
    """Every change: first the workflow's own, then step by step in the order of the flow, then what was removed."""
    return tuple(_sections(before, after))


def _sections(before: Workflow, after: Workflow) -> Iterator[Section]:
    own = tuple(_fields(before.document, after.document, _WORKFLOW_FIELDS))
    if own:
        yield Section(kind=Kind.CHANGED, changes=own)
    old, new = _raw_steps(before), _raw_steps(after)
    old_places, new_places = _places(before), _places(after)
    moved = _moved(before, after)
    for step_id, place in new_places.items():
        title = after.steps[step_id].title
        if step_id not in old:
            yield Section(kind=Kind.ADDED, step=step_id, title=title, place=place)
            continue
        changes = list(_step_changes(before, after, step_id, old[step_id], new[step_id]))
        if step_id in moved:
            changes.insert(0, Change(kind=Kind.MOVED, what="place", before=old_places[step_id], after=place))
        if changes:
            yield Section(kind=Kind.CHANGED, step=step_id, title=title, changes=tuple(changes))
    for step_id, place in old_places.items():
        if step_id not in new:
            yield Section(kind=Kind.REMOVED, step=step_id, title=before.steps[step_id].title, place=place)


# ── where steps stand ───────────────────────────────────────────────────────────────────────────────────────────


def _raw_steps(workflow: Workflow) -> dict[str, Mapping[str, Json]]:
    return {step["id"]: step for _, step in walk_steps(workflow.document["steps"])}


def _places(workflow: Workflow) -> dict[str, str]:
    """Where each step stands, in words and in the order of the flow: `after plan, in loop each-file`."""
    last: dict[tuple[str, ...], str] = {}
    places: dict[str, str] = {}
    for step_id, loops in workflow.enclosing.items():
        where = f"after {last[loops]}" if loops in last else "at the start"
        places[step_id] = f"{where} of loop {loops[-1]}" if loops and loops not in last else where
        if loops and loops in last:
            places[step_id] += f", in loop {loops[-1]}"
        last[loops] = step_id
    return places


def _moved(before: Workflow, after: Workflow) -> set[str]:
    """The steps that stand in another loop, or in another order among those that stayed."""
    common = [step_id for step_id in before.enclosing if step_id in after.enclosing]
    moved = {step_id for step_id in common if before.enclosing[step_id][-1:] != after.enclosing[step_id][-1:]}
    for loop in {before.enclosing[step_id][-1:] for step_id in common}:
        stayed = {step_id for step_id in common if before.enclosing[step_id][-1:] == loop} - moved
        old = [step_id for step_id in before.enclosing if step_id in stayed]
        new = [step_id for step_id in after.enclosing if step_id in stayed]
        in_order = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        moved |= stayed - {step_id for block in in_order for step_id in old[block.a : block.a + block.size]}
    return moved


# ── fields ──────────────────────────────────────────────────────────────────────────────────────────────────────

Teller = Callable[[str, Json, Json], Iterator[Change]]


def _fields(old: Mapping[str, Json], new: Mapping[str, Json], tellers: Mapping[str, Teller | None]) -> Iterator[Change]:
    """The fields that differ, each told in its own way; None is told elsewhere."""
    for field in dict.fromkeys((*old, *new)):
        before, after = old.get(field), new.get(field)
        teller = tellers.get(field, _as_value)
        if teller is not None and not json_equal(before, after):
            yield from teller(field, before, after)


def _step_changes(
    before: Workflow, after: Workflow, step_id: str, old: Mapping[str, Json], new: Mapping[str, Json]
) -> Iterator[Change]:
    yield from _fields(old, new, _STEP_FIELDS)
    left, right = before.steps[step_id], after.steps[step_id]
    if isinstance(left, LoopStep) or isinstance(right, LoopStep):
        return
    if not json_equal(old.get("validationCriteria"), new.get("validationCriteria")):
        told = list(_sentences("criterion", _criteria(left.requirements), _criteria(right.requirements)))
        yield from told or _as_value("criteria", old.get("validationCriteria"), new.get("validationCriteria"))


def _criteria(requirements: Sequence[Requirement]) -> list[str]:
    return [
        requirement.sentence + (f" (if {in_words(requirement.condition)})" if requirement.condition else "")
        for requirement in requirements
    ]


def _as_value(field: str, before: Json, after: Json) -> Iterator[Change]:
    """Scalars as they are, the rest as JSON."""
    yield _replaced(field, _json(before), _json(after))


def _in_words(what: str, words: Callable[[Json], str]) -> Teller:
    def tell(_: str, before: Json, after: Json) -> Iterator[Change]:
        old, new = ("" if value is None else words(value) for value in (before, after))
        if old == new:  # the words are not fine enough: `equals` an object, for example
            old, new = _json(before), _json(after)
        yield _replaced(what, old, new)

    return tell


def _as_text(field: str, before: Json, after: Json) -> Iterator[Change]:
    """A unified diff of the words; one side may be missing."""
    if not isinstance(before, str | None) or not isinstance(after, str | None):
        yield from _as_value(field, before, after)
        return
    lines = difflib.unified_diff((before or "").split("\n"), (after or "").split("\n"), lineterm="", n=1)
    kind = Kind.ADDED if before is None else Kind.REMOVED if after is None else Kind.CHANGED
    yield Change(kind=kind, what=field, diff=tuple(lines)[2:])


def _as_list(field: str, before: Json, after: Json) -> Iterator[Change]:
    """Sentences that came, went, or were reworded; only their order may have changed."""
    told = list(_sentences(field, before or (), after or ()))
    yield from told or _as_value(field, before, after)


def _sentences(what: str, before: Sequence[str], after: Sequence[str]) -> Iterator[Change]:
    gone = [sentence for sentence in before if sentence not in after]
    come = [sentence for sentence in after if sentence not in before]
    for sentence in gone:
        near = difflib.get_close_matches(sentence, come, n=1)
        if near:
            come.remove(near[0])
        yield _replaced(what, sentence, near[0] if near else "")
    yield from (_replaced(what, "", sentence) for sentence in come)


def _replaced(what: str, before: str, after: str) -> Change:
    kind = Kind.CHANGED if before and after else Kind.ADDED if after else Kind.REMOVED
    return Change(kind=kind, what=what, before=before, after=after)


def _json(value: Json) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _loop_words(value: Json) -> str:
    return describe_loop(msgspec.convert(value, Loop))


def _confirmation_words(value: Json) -> str:
    if isinstance(value, Mapping) and "kind" in value:
        value = value.get("condition", True)
    return describe_confirmation(value)


_WORKFLOW_FIELDS: Final[Mapping[str, Teller | None]] = {
    "steps": None,
    "description": _as_text,
    "about": _as_text,
    "preconditions": _as_list,
    "clarificationPrompts": _as_list,
    "metaGuidance": _as_list,
}
_STEP_FIELDS: Final[Mapping[str, Teller | None]] = {
    "body": None,
    "validationCriteria": None,
    "prompt": _as_text,
    "agentRole": _as_text,
    "guidance": _as_list,
    "requires": _as_list,
    "produces": _as_list,
    "runCondition": _in_words("condition", in_words),
    "requireConfirmation": _in_words("confirmation", _confirmation_words),
    "loop": _in_words("loop", _loop_words),
}
