"""What may be wrong with the proofs of a document, in sentences for its author. `checking` makes findings of them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.formats.schemas import Misfit, PathTo
from workflowlookup.language.proof import PROOFS, Flaw, proofs_of
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Json

MAX_EXAMPLE: Final = 200
"""Limit on the author's own entry in a suggestion."""
_KINDS: Final = ", ".join(PROOFS)


# ── misfits with the schema ─────────────────────────────────────────────────────────────────────────────────────


def explain_misfit(misfit: Misfit, document: Json) -> Flaw | None:
    """A better sentence for some misfits of proofs; None for all others."""
    if misfit.unknown == ("proof",) and misfit.path:
        remedy = "Move 'proof' to a step of the body: a loop itself is never handed out"
        return Flaw(misfit.path, "A loop cannot have 'proof'", remedy)
    at = _entry_of(misfit.path)
    if at is None or len(at) != len(misfit.path):
        return None
    entry = document
    for part in at:
        entry = entry[part]
    kind = entry.get("kind") if isinstance(entry, Mapping) else None
    if misfit.missing == "kind":
        return Flaw(
            at, "A proof has no 'kind'", f"Write {_flat(entry)}: its kind ({_KINDS}) and its fields side by side"
        )
    if misfit.unknown:
        return _of_another_kind(at, misfit, kind)
    match (kind, misfit.keyword):
        case ("command", "not"):
            return Flaw(at, "A command has either 'use' or 'run', not both", "Remove one of them")
        case ("command", "anyOf"):
            remedy = (
                'Add "use" with the name of a command in the settings, or "run" with a list such as ["make", "test"]'
            )
            return Flaw(at, "A command needs 'use' or 'run'", remedy)
        case ("command", _) if "args" in entry and "use" not in entry:
            return Flaw((*at, "args"), "'args' is only for 'use'", "Write the arguments into 'run'")
        case ("git", "anyOf"):
            checks = "changed, unchanged, clean, commits, branch"
            return Flaw(at, "A proof of kind 'git' checks nothing", f"Add at least one of: {checks}")
    return None


def _entry_of(path: PathTo) -> PathTo | None:
    """The part of a path that leads to an entry of `proof`."""
    at = path.index("proof") + 2 if "proof" in path else None
    return path[:at] if at is not None and at <= len(path) and isinstance(path[at - 1], int) else None


def is_criteria_path(path: PathTo) -> bool:
    """Whether a path leads to criteria inside a proof: a flaw there prevents judging the proof, not loading."""
    at = _entry_of(path)
    return at is not None and len(path) > len(at) and path[len(at)] in _CRITERIA_FIELDS


_CRITERIA_FIELDS: Final = frozenset(field for kind in PROOFS.values() for field in kind.criteria)


def without_criteria(entries: Json) -> Json:
    """The value of `proof` without criteria, which only cause warnings."""
    if not isinstance(entries, list):
        return entries
    return [
        {name: value for name, value in entry.items() if name not in _CRITERIA_FIELDS}
        if isinstance(entry, Mapping)
        else entry
        for entry in entries
    ]


def _flat(entry: Json) -> str:
    """An entry with `type` for `kind`, or with its kind around its fields, as it should be; else an example."""
    fields: Mapping[str, Json] = {"kind": "command", "use": "test"}
    if isinstance(entry, Mapping):
        nested = next((name for name in entry if name in PROOFS), None)
        if isinstance(entry.get("type"), str) and entry["type"] in PROOFS:
            fields = {"kind": entry["type"], **{name: value for name, value in entry.items() if name != "type"}}
        elif nested is not None and isinstance(entry[nested], Mapping):
            fields = {"kind": nested, **entry[nested]}
    return shorten(msgspec.json.encode(fields).decode(), MAX_EXAMPLE)


def _of_another_kind(at: PathTo, misfit: Misfit, kind: Json) -> Flaw | None:
    for name in misfit.unknown:
        owners = [other for other, proof in PROOFS.items() if name in proof.__struct_encode_fields__]
        if owners:
            message = f"'{name}' is only for proofs of kind {' and '.join(owners)}, and this is of kind '{kind}'"
            return Flaw((*at, name), message, f"Remove '{name}'; allowed here: {', '.join(misfit.allowed)}")
    return None


# ── beyond the schema ───────────────────────────────────────────────────────────────────────────────────────────


def flaws_of_proofs(step: Mapping[str, Any], budget: Budget) -> Iterator[Flaw]:
    """What the schema cannot find in the proofs of a step; paths are within the step."""
    if "call" in step:
        remedy = "Move 'proof' to the next step, or judge the result by 'validationCriteria'"
        yield Flaw(("proof",), "A step with 'call' cannot have 'proof'", remedy)
    names: set[str] = set()
    for index, proof in enumerate(proofs_of(step)):
        at: PathTo = ("proof", index)
        if proof.name in names:
            remedy = "Give every proof of a step its own name"
            yield Flaw((*at, "name"), f"Duplicate proof name '{proof.name}'", remedy)
        names.add(proof.name)
        for path, text in proof.paths():
            if leaves_root(text):
                remedy = "Write a path relative to the root of the project, without '..'"
                yield Flaw((*at, *path), f"The path '{text}' leads out of the root", remedy)
        try:
            for flaw in proof.flaws(budget):
                yield Flaw((*at, *flaw.path), flaw.message, flaw.remedy)
        except TooSlow:
            message = f"Proof '{proof.name}' was not checked: the patterns and schemas before it took too long"
            yield Flaw(at, message, "Simplify the patterns and JSON Schemas of the document")


def leaves_root(path: str) -> bool:
    """Whether a path or glob is absolute or goes up, on any operating system."""
    return path.startswith(("/", "\\", "~")) or path[1:2] == ":" or ".." in re.split(r"[/\\]", path)


def all_criteria(step: Mapping[str, Any]) -> Iterator[tuple[PathTo, Json]]:
    """The criteria of a step and those in its proofs, each with its path within the step."""
    if "validationCriteria" in step:
        yield ("validationCriteria",), step["validationCriteria"]
    for index, entry in enumerate(step.get("proof", ())):
        for field in PROOFS[entry["kind"]].criteria:
            if field in entry:
                yield ("proof", index, field), entry[field]
