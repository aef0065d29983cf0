"""What changed between two versions of a workflow, as an author would tell it: steps, conditions, criteria, words.

Steps are the same when their ids are; one that is gone and a new one with its title or its prompt are one step with
another id. A change is said in words where there are words for it (conditions, loops,
confirmation, criteria), as a diff where it is text, and as JSON otherwise, so that no change of a field is left out.
"""

import bisect
import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from workflowlookup.authoring.graph import describe_confirmation, describe_loop
from workflowlookup.language.building import call_of, confirmation_of, loop_of
from workflowlookup.language.conditions import in_words
from workflowlookup.language.document import walk_steps
from workflowlookup.language.model import LoopStep, Requirement, Workflow
from workflowlookup.language.values import Json, json_equal

LONG: Final = 120
"""How many characters of JSON are told in one line."""


class ChangeKind(StrEnum):
    """What happened."""

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
    """What happened to one step; without a step, to the workflow itself."""

    kind: ChangeKind
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
        yield Section(kind=ChangeKind.CHANGED, changes=own)
    old, new = _raw_steps(before), _raw_steps(after)
    renamed = _renamed(old, new)
    old = {renamed.get(step_id, step_id): step for step_id, step in old.items()}
    old_loops = {
        renamed.get(step_id, step_id): tuple(renamed.get(loop, loop) for loop in loops)
        for step_id, loops in before.enclosing.items()
    }
    old_places, new_places = _places(old_loops), _places(after.enclosing)
    moved = _moved(old_loops, after.enclosing)
    moves = dict(_moves(moved, old_places, new_places))
    for step_id, place in new_places.items():
        title = after.steps[step_id].title
        if step_id not in old:
            yield Section(kind=ChangeKind.ADDED, step=step_id, title=title, place=place)
            continue
        changes = list(_step_changes(before, after, old[step_id], new[step_id]))
        kind = ChangeKind.CHANGED if changes else ChangeKind.MOVED
        if step_id in moves:
            changes.insert(0, moves[step_id])
        if changes:
            yield Section(kind=kind, step=step_id, title=title, changes=tuple(changes))
    for step_id, place in old_places.items():
        if step_id not in new:
            yield Section(kind=ChangeKind.REMOVED, step=step_id, title=before.steps[step_id].title, place=place)


# ── where steps stand ───────────────────────────────────────────────────────────────────────────────────────────


def _raw_steps(workflow: Workflow) -> dict[str, Mapping[str, Json]]:
    return {step["id"]: step for _, step in walk_steps(workflow.document["steps"])}


def _renamed(old: Mapping[str, Mapping[str, Json]], new: Mapping[str, Mapping[str, Json]]) -> dict[str, str]:
    """By the id of a step that is gone: the id that it has now."""
    come = [step for step_id, step in new.items() if step_id not in old]
    renamed: dict[str, str] = {}
    for step_id in (step_id for step_id in old if step_id not in new):
        same = next((step for step in come if _is_same_but_for_its_id(old[step_id], step)), None)
        if same:
            come.remove(same)
            renamed[step_id] = same["id"]
    return renamed


def _is_same_but_for_its_id(old: Mapping[str, Json], new: Mapping[str, Json]) -> bool:
    has_same_words = any(key in old and old[key] == new.get(key) for key in ("title", "prompt", "call"))
    return has_same_words and ("loop" in old) is ("loop" in new)


Enclosing = Mapping[str, tuple[str, ...]]
"""By step, in the order of the flow: the loops around it."""


def _places(enclosing: Enclosing) -> dict[str, str]:
    """Where each step stands, in words and in the order of the flow: `after plan, in loop each-file`."""
    last: dict[tuple[str, ...], str] = {}
    places: dict[str, str] = {}
    for step_id, loops in enclosing.items():
        where = f"after {last[loops]}" if loops in last else "at the start"
        places[step_id] = f"{where} of loop {loops[-1]}" if loops and loops not in last else where
        if loops and loops in last:
            places[step_id] += f", in loop {loops[-1]}"
        last[loops] = step_id
    return places


def _moved(before: Enclosing, after: Enclosing) -> set[str]:
    """The steps that stand in another loop, or in another order among those that stayed."""
    common = [step_id for step_id in before if step_id in after]
    moved = {step_id for step_id in common if before[step_id][-1:] != after[step_id][-1:]}
    for loop in {before[step_id][-1:] for step_id in common}:
        stayed = {step_id for step_id in common if before[step_id][-1:] == loop} - moved
        old = [step_id for step_id in before if step_id in stayed]
        new = [step_id for step_id in after if step_id in stayed]
        rank = {step_id: position for position, step_id in enumerate(old)}
        in_order = _longest_rise([rank[step_id] for step_id in new])
        moved |= stayed - {old[position] for position in in_order}
    return moved


def _longest_rise(numbers: Sequence[int]) -> Iterator[int]:
    """A longest series of the numbers that rises, from its end: what need not move to get from one order to another."""
    ends: list[int] = []
    before: dict[int, int | None] = {}
    for number in numbers:
        place = bisect.bisect(ends, number)
        before[number] = ends[place - 1] if place else None
        ends[place : place + 1] = [number]
    number_or_none = ends[-1] if ends else None
    while number_or_none is not None:
        yield number_or_none
        number_or_none = before[number_or_none]


def _moves(moved: set[str], old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, Change]]:
    """The moves; steps that still follow each other moved together, and are told with the first of them."""
    together: dict[str, int] = {}
    leader = ""
    for step_id in filter(moved.__contains__, new):
        leader = leader if old[step_id] == new[step_id] else step_id
        together[leader] = together.get(leader, 0) + 1
    for step_id, count in together.items():
        others = f", with the {count - 1} steps below it" if count > 2 else ", with the step below it" * (count - 1)
        yield step_id, Change(kind=ChangeKind.MOVED, what="place", before=old[step_id], after=new[step_id] + others)


# ── fields ──────────────────────────────────────────────────────────────────────────────────────────────────────

Teller = Callable[[str, Json, Json], Iterator[Change]]


def _fields(old: Mapping[str, Json], new: Mapping[str, Json], tellers: Mapping[str, Teller | None]) -> Iterator[Change]:
    """The fields that differ, each told in its own way; None is told elsewhere."""
    for field, before, after in _both(old, new):
        teller = tellers.get(field, _as_value)
        if teller is not None and not json_equal(before, after):
            yield from teller(field, before, after)


def _step_changes(
    before: Workflow, after: Workflow, old: Mapping[str, Json], new: Mapping[str, Json]
) -> Iterator[Change]:
    yield from _fields(old, new, _STEP_FIELDS)
    left, right = before.steps[old["id"]], after.steps[new["id"]]
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
    """Scalars as they are, the rest as JSON: in one line each, or as a diff when that is long."""
    old, new = _json(before), _json(after)
    if max(len(old), len(new)) > LONG and isinstance(after if before is None else before, (dict, list)):
        yield from _as_text(field, _json(before, indent=2), _json(after, indent=2))
    else:
        yield _replaced(field, old, new)


def _as_call(_: str, before: Json, after: Json) -> Iterator[Change]:
    """What is called, in words; and each field that says how."""
    old, new = (call_of(value) if value else None for value in (before, after))
    names = tuple(call.described if call else "" for call in (old, new))
    if names[0] != names[1]:
        yield _replaced("call", *names)
    known = {"server", "tool", "provider", "workflow"}
    for field, left, right in _both(before or {}, after or {}):
        if field not in known and not json_equal(left, right):
            yield from _as_value(f"call {field}", left, right)


def _both(old: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    return ((field, old.get(field), new.get(field)) for field in dict.fromkeys((*old, *new)))


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
    old, new = (text.split("\n") if text else [] for text in (before, after))
    lines = difflib.unified_diff(old, new, lineterm="", n=1)
    yield Change(kind=_kind(before, after), what=field, diff=tuple(lines)[2:])


def _as_list(field: str, before: Json, after: Json) -> Iterator[Change]:
    """Sentences that came, went, or were reworded; only their order may have changed."""
    told = list(_sentences(field, before or (), after or ()))
    yield from told or _as_value(field, before, after)


def _as_produced(field: str, before: Json, after: Json) -> Iterator[Change]:
    """Variables that a step sets, each with where it is found, if that is said."""
    yield from _as_list(field, _produced(before), _produced(after))


def _produced(value: Json) -> list[str]:
    if not isinstance(value, Mapping):
        return list(value or ())
    return [f"{name}: {_json(entry)}" if entry else name for name, entry in value.items()]


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
    return Change(kind=_kind(before, after), what=what, before=before, after=after)


def _kind(before: str | None, after: str | None) -> ChangeKind:
    return ChangeKind.CHANGED if before and after else ChangeKind.ADDED if after else ChangeKind.REMOVED


def _json(value: Json, indent: int | None = None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _confirmation_words(value: Json) -> str:
    wanted = confirmation_of({"requireConfirmation": value})
    words = describe_confirmation(wanted)
    if wanted is None:
        return words
    asks = [f'asks "{wanted.question}"'] if wanted.question else []
    asks += [f"wants {_json(wanted.answers)}"] if wanted.answers else []
    return "; ".join([words, *asks])


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
    "produces": _as_produced,
    "runCondition": _in_words("condition", in_words),
    "requireConfirmation": _in_words("confirmation", _confirmation_words),
    "loop": _in_words("loop", lambda value: describe_loop(loop_of(value))),
    "call": _as_call,
}
