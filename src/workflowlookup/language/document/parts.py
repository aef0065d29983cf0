"""Parts of a valid document as JSON values: its steps, and what they declare. Checks, lint and `building` share it."""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import Condition
from workflowlookup.language.document.proof_checks import all_criteria
from workflowlookup.language.formats.schemas import PathTo
from workflowlookup.language.rules import rules_in
from workflowlookup.language.values import Json

MAX_LOOP_DEPTH: Final = 16


def walk_steps(steps: Sequence[Json], path: PathTo = ("steps",)) -> Iterator[tuple[PathTo, Mapping[str, Json]]]:
    """Every step of a document with its path, including the bodies of loops."""
    for index, step in enumerate(steps):
        yield (*path, index), step
        body = step.get("body")
        if isinstance(body, list):
            yield from walk_steps(body, (*path, index, "body"))


def repeated_by_id(document: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """By step id: the loop that has this step as its body."""
    return {step["body"]: step for _, step in walk_steps(document["steps"]) if isinstance(step.get("body"), str)}


def functions_in_scope(document: Mapping[str, Json]) -> Callable[[PathTo], Mapping[str, Mapping[str, Json]]]:
    """A function from the path of a step to the functions that the step may call: those of the workflow, of the loops
    around the step (also those that refer to it by id), and its own.
    """
    repeated = repeated_by_id(document)
    of_workflow = {function["name"]: function for function in document.get("functionDefinitions", ())}

    def in_scope(path: PathTo) -> Mapping[str, Mapping[str, Json]]:
        scopes: list[Json] = []
        node: Json = document
        for part in path:
            node = node[part]
            if isinstance(node, dict):
                scopes.append(node)
        for _ in range(MAX_LOOP_DEPTH):
            loop = repeated.get(scopes[0]["id"])
            if loop is None:
                break
            scopes.insert(0, loop)
        own = {function["name"]: function for scope in scopes for function in scope.get("functionDefinitions", ())}
        return ChainMap(own, of_workflow) if own else of_workflow

    return in_scope


def schema_text(document: Mapping[str, Any], field: str) -> msgspec.Raw:
    """A JSON Schema of the document as text; empty if it has none."""
    return msgspec.Raw(msgspec.json.encode(document[field]) if field in document else b"")


CONFIRMATION_FIELDS: Final = frozenset({"kind", "condition", "when", "by", "question", "answers"})
"""The fields of the object form of `requireConfirmation`; an object with none of them is a condition."""


def is_confirmation_object(value: Json) -> bool:
    """Whether a `requireConfirmation` has the object form; other objects are a condition."""
    return isinstance(value, Mapping) and not CONFIRMATION_FIELDS.isdisjoint(value)


def variables_set_by(step: Mapping[str, Any]) -> Iterator[str]:
    """The variables that a step declares to set."""
    yield from step.get("produces", ())
    if save_as := step.get("call", {}).get("saveAs"):
        yield save_as
    yield from answer_schemas(step)


def answer_schemas(step: Mapping[str, Any]) -> Mapping[str, Json]:
    """By variable: the JSON Schema of a field that a person fills in when asked about the step."""
    confirmation = step.get("requireConfirmation")
    answers = confirmation.get("answers", {}) if isinstance(confirmation, Mapping) else {}
    properties: Mapping[str, Json] = answers.get("properties", {})
    return properties


def conditions_in(step: Mapping[str, Any], path: PathTo) -> Iterator[tuple[PathTo, Condition]]:
    """The conditions of a step, each with its path, except the condition of its loop."""
    if "runCondition" in step:
        yield (*path, "runCondition"), step["runCondition"]
    confirmation: Any = step.get("requireConfirmation")
    at: PathTo = (*path, "requireConfirmation")
    if is_confirmation_object(confirmation):
        at, confirmation = (*at, "condition"), confirmation.get("condition")
    if isinstance(confirmation, Mapping):
        yield at, confirmation
    for field, key in (("promptFragments", "when"), ("parallelDelegations", "runCondition")):
        for index, part in enumerate(step.get(field, ())):
            if key in part:
                yield (*path, field, index, key), part[key]
    for index, entry in enumerate(step.get("proof", ())):
        if "condition" in entry:
            yield (*path, "proof", index, "condition"), entry["condition"]
    for within, criteria in all_criteria(step):
        for at, rule in rules_in(criteria, (*path, *within)):
            if isinstance(rule, Mapping) and "condition" in rule:
                yield (*at, "condition"), rule["condition"]


_CAPTURE_FIELDS: Final = frozenset({"pattern", "flags", "pointer", "optional", "schema"})
"""The fields of a captured variable that are not keywords of its JSON Schema."""


def capture_schema(declared: Mapping[str, Any]) -> Json:
    """The JSON Schema of a captured variable: the keywords in its declaration, and `schema`."""
    keywords = {name: value for name, value in declared.items() if name not in _CAPTURE_FIELDS}
    if "schema" not in declared:
        return keywords
    return {"allOf": [declared["schema"]], **keywords} if keywords else declared["schema"]
