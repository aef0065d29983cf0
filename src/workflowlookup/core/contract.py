"""Context contracts: what a step needs to know, and what is missing or of the wrong kind.

A workflow may declare `contextSchema`, a JSON Schema of the context; a step `requires` and `produces`, names of
variables. `workflow_next` tells the caller what is unmet beside the step; a run refuses to go on without it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.core.model import PromptStep, Workflow
from workflowlookup.core.schemas import compile_schema_text, expected_by, misfits
from workflowlookup.core.values import Context, Json, lookup
from workflowlookup.errors import InvalidParams

MOST_MISFITS: Final = 5


class Need(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A variable that a step needs: what it should be, who should have set it, and how to send it."""

    variable: str
    expected: str
    example: Mapping[str, Json]
    produced_by: str | msgspec.UnsetType = msgspec.UNSET
    found: str | msgspec.UnsetType = msgspec.UNSET

    def sentence(self) -> str:
        """`taskSize is not set: expected one of 'small', 'large' (step 'triage' produces it)`."""
        problem = "is not set" if self.found is msgspec.UNSET else f"is {self.found}"
        source = "" if self.produced_by is msgspec.UNSET else f" (step '{self.produced_by}' produces it)"
        return f"{self.variable} {problem}: expected {self.expected}{source}"


def unmet(workflow: Workflow, step: PromptStep, context: Context, *, is_done: bool = False) -> tuple[Need, ...]:
    """The variables that the step needs and the context lacks, then those of the wrong kind.

    A step that is done must also have produced what it `produces`.
    """
    produces = step.produces if is_done else ()
    if not workflow.has_contract and not produces:
        return ()
    missing = [name for name in (*_wanted(workflow, step), *produces) if lookup(context, name) is None]
    wrong = dict(_wrong(workflow, context))
    return tuple(_need(workflow, name, wrong.get(name)) for name in dict.fromkeys((*missing, *wrong)))


def _wanted(workflow: Workflow, step: PromptStep) -> Iterator[str]:
    """What the step and the loops around it require, and what the schema requires and no step produces."""
    yield from step.requires
    for loop_id in workflow.enclosing[step.id]:
        yield from workflow.steps[loop_id].requires
    yield from (name for name in _schema(workflow).get("required", ()) if name not in workflow.producers)


def _wrong(workflow: Workflow, context: Context) -> Iterator[tuple[str, str]]:
    """Variables whose value does not fit the schema, with what was found."""
    if not workflow.context_schema:
        return
    validator = compile_schema_text(bytes(workflow.context_schema))
    if validator.is_valid(context):
        return
    for misfit in misfits(validator, context):
        if misfit.path and not misfit.missing:
            yield str(misfit.path[0]), misfit.found
        elif misfit.path:
            yield str(misfit.path[0]), f"without '{misfit.missing}'"


def refuse_misfits(workflow: Workflow, context: Context, changes: Context) -> None:
    """Raises `InvalidParams` when changes of the context do not fit `contextSchema`."""
    if not changes or not workflow.context_schema:
        return
    validator = compile_schema_text(bytes(workflow.context_schema))
    merged = {**context, **changes}
    if validator.is_valid(merged):
        return
    found = [
        msgspec.structs.replace(misfit, path=("context", *misfit.path)).sentence()
        for misfit in misfits(validator, merged, _schema(workflow))
        if not changes.keys().isdisjoint((misfit.path[0],) if misfit.path else misfit.unknown)
    ]
    if found:
        raise InvalidParams("; ".join(found[:MOST_MISFITS]))


def _need(workflow: Workflow, name: str, found: str | None) -> Need:
    schema = _schema(workflow).get("properties", {}).get(name, {})
    return Need(
        variable=name,
        expected=expected_by(schema),
        example={"context": {name: example_of(schema)}},
        produced_by=workflow.producers.get(name, msgspec.UNSET),
        found=msgspec.UNSET if found is None else found,
    )


def _schema(workflow: Workflow) -> Mapping[str, Any]:
    schema: Json = workflow.document.get("contextSchema", {})
    return schema if isinstance(schema, Mapping) else {}


_BY_TYPE: Final[Mapping[str, Json]] = {"string": "…", "boolean": True, "null": None}


def example_of(schema: Json, depth: int = 0) -> Json:
    """A value that fits a JSON Schema as far as its plain keywords say."""
    if not isinstance(schema, Mapping) or depth > 4:
        return "…"
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    for keyword in ("examples", "enum"):
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            return schema[keyword][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "array":
        return [example_of(schema.get("items", {}), depth + 1)]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: example_of(properties.get(name, {}), depth + 1) for name in schema.get("required", properties)}
    return _BY_TYPE.get(str(kind), "…")
