"""Findings about documents: a severity, a path, a sentence about the problem, and a suggestion."""

from enum import StrEnum

import msgspec

from workflowlookup.language.formats.schemas import PathTo, dotted
from workflowlookup.language.proof import Flaw
from workflowlookup.language.values import Json


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a document: where, what, and what to do about it."""

    severity: Severity
    path: PathTo
    message: str
    suggestion: str


def error_at(path: PathTo, message: str, suggestion: str, document: Json) -> Finding:
    """An error of the document at this path; its message ends with the step."""
    where = location_in(document, path[: step_depth(path)])
    return Finding(severity=Severity.ERROR, path=path, message=f"{message} {where}".rstrip(), suggestion=suggestion)


def proof_error_at(path: PathTo, flaw: Flaw, document: Json) -> Finding:
    """As `error_at`, for a flaw of a proof; its message ends with the step and the field."""
    message = f"{flaw.message} {location_in(document, path)}"
    return Finding(severity=Severity.ERROR, path=path, message=message, suggestion=flaw.remedy)


def step_depth(path: PathTo) -> int:
    """The length of the part of the path that leads to the innermost step."""
    depth = 0
    for index, part in enumerate(path[:-1]):
        if part in ("steps", "body") and isinstance(path[index + 1], int) and index == depth:
            depth = index + 2
    return depth


def location_in(document: Json, path: PathTo) -> str:
    """`in step 2 ('reproduce')`; empty at the top level, where the field is enough."""
    depth = step_depth(path)
    if not depth:
        return f"in '{dotted(path)}'" if path else ""
    node = document
    for part in path[:depth]:
        node = node[part]
    number = ".".join(str(part + 1) for part in path[:depth] if isinstance(part, int))
    name = node.get("id") if isinstance(node, dict) else None
    rest = dotted(path[depth:])
    return (
        f"in step {number}" + (f" ('{name}')" if isinstance(name, str) else "") + (f", field '{rest}'" if rest else "")
    )
