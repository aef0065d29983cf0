"""Context contracts: what a step needs to know, and what is missing or of the wrong kind.

A workflow may declare `contextSchema`, a JSON Schema of the context; a step `requires` and `produces`, names of
variables. `workflow_next` tells the caller what is unmet beside the step; a run refuses to go on without it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.model import Contract, LoopStep, PromptStep, Step, Workflow
from workflowlookup.language.navigation import EXTENT_SCHEMAS, LoopNeed, find_step
from workflowlookup.language.schemas import Misfit, ValueSchema, dotted, show, with_description
from workflowlookup.language.values import Context, Json, lookup
from workflowlookup.language.verdicts import Declared, declaration

MAX_MISFITS: Final = 5
MAX_PRODUCT_WARNINGS: Final = 20


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
    contract = workflow.contract
    if contract is None:
        return ()
    needed = (*contract.needs[step.id], *contract.needed_always, *produces)
    missing = [name for name in needed if lookup(context, name) is None]
    wrong = {str(misfit.path[0]): misfit for misfit in _wrong(workflow, context)}
    return tuple(_need(workflow, name, wrong.get(name)) for name in dict.fromkeys((*missing, *wrong)))


def missing_product_warnings(
    workflow: Workflow, completed: Iterable[str], context: Context, missing: Iterable[Need]
) -> list[str]:
    """Which variables a completed step produces and the context lacks, without those that are missing anyway."""
    if workflow.contract is None:
        return []
    sets = workflow.contract.sets
    ids = dict.fromkeys([instance_id.partition("@")[0] for instance_id in completed])
    unset = {name: step_id for step_id in ids for name in sets.get(step_id, ()) if lookup(context, name) is None}
    for need in missing:
        unset.pop(need.variable, None)
    return [
        f"Step '{step_id}' is completed, but '{name}', which it produces, is not set: "
        f"expected {value_schema(workflow, name).expected}"
        for name, step_id in itertools.islice(unset.items(), MAX_PRODUCT_WARNINGS)
    ]


def produced_by(step: Step, *, optional: bool = True) -> list[str]:
    """The variables that a step sets; without the optional ones, those that are set once it is done."""
    captures = step.captures if isinstance(step, PromptStep) else ()
    return [*step.produces, *(capture.name for capture in captures if optional or not capture.is_optional)]


def misfitting(workflow: Workflow, variables: Context) -> tuple[Need, ...]:
    """Those of the variables whose value does not fit the contract."""
    return tuple(_need(workflow, str(misfit.path[0]), misfit) for misfit in _wrong(workflow, variables))


def need_of_loop(workflow: Workflow, need: LoopNeed) -> Need:
    """The list or the count without which a loop cannot be entered."""
    extent = ValueSchema(need.schema)
    examples = (value_schema(workflow, need.variable).example, extent.example)
    fits = extent.validator.is_valid
    found = {} if need.found is None else {"found": show(need.found)}
    return Need(
        variable=need.variable,
        expected=_EXTENT_WORDS[need.schema["type"]],
        example={"context": {need.variable: next(value for value in examples if fits(value))}},
        produced_by=workflow.producers.get(need.variable, msgspec.UNSET),
        **found,
    )


def how_to_send(workflow: Workflow, loop_id: str, need: Need) -> str:
    """Why nothing can be handed out, and what to send."""
    step = find_step(workflow, loop_id)
    what = "number of iterations" if isinstance(step, LoopStep) and step.loop.type == "for" else "list"
    example = msgspec.json.encode(need.example["context"]).decode()
    return (
        f"The loop '{loop_id}' comes next, and its {what} is missing: {need.sentence()}. "
        f"Put {need.variable} into the context, as in {example}; {_EMPTY[what]} skips the loop."
    )


_EXTENT_WORDS: Final[Mapping[str, str]] = {
    "array": "a list ('array')",
    "integer": "a whole number ('integer'), 0 or more",
}
_EMPTY: Final[Mapping[str, str]] = {"list": "an empty list", "number of iterations": "0"}


def declared_variables(workflow: Workflow) -> list[str]:
    return [*_schema(workflow).get("properties", {}), *workflow.producers]


def example_context(workflow: Workflow) -> dict[str, Json]:
    """A value for each variable that must be there at the start: required, and produced by no step."""
    required = [name for step in workflow.steps.values() for name in step.requires]
    names = dict.fromkeys((*_schema(workflow).get("required", ()), *required))
    needs = [_need(workflow, name, None) for name in names if name not in workflow.producers]
    return {need.variable: need.example["context"][need.variable] for need in needs}


def _wanted(workflow: Workflow, step: Step) -> Iterator[str]:
    """What the step and the loops around it require."""
    yield from step.requires
    for loop_id in workflow.enclosing[step.id]:
        yield from workflow.steps[loop_id].requires


def _wrong(workflow: Workflow, context: Context) -> Iterator[Misfit]:
    """Where the value of a variable does not fit the schema."""
    schema = workflow.context_schema
    if schema is not None:
        yield from (misfit for misfit in schema.misfits(context) if misfit.path)


def refuse_misfits(workflow: Workflow, context: Context, changes: Context) -> None:
    """Raises `InvalidParams` when changes of the context do not fit `contextSchema`."""
    schema, merged = workflow.context_schema, {**context, **changes}
    if not changes or schema is None:
        return
    found = [
        msgspec.structs.replace(misfit, path=("context", *misfit.path)).sentence()
        for misfit in schema.misfits(merged)
        if not changes.keys().isdisjoint((misfit.path[0],) if misfit.path else misfit.unknown)
    ]
    if found:
        raise InvalidParams("; ".join(found[:MAX_MISFITS]))


def input_misfits(workflow: Workflow, given: Context, changes: Context) -> Iterator[str]:
    """Which variables of the input would take a value that the input schema forbids."""
    schema = workflow.input_schema or ValueSchema()
    declared = schema.schema.get("properties", {}) if isinstance(schema.schema, Mapping) else {}
    inputs = {name: value for name, value in changes.items() if name in given or name in declared}
    if not inputs:
        return
    for misfit in schema.misfits({**given, **inputs}):
        if not misfit.path or misfit.path[0] in inputs:  # without a path it is about several, such as those of `not`
            yield msgspec.structs.replace(misfit, path=("context", *misfit.path)).sentence()


def _need(workflow: Workflow, name: str, misfit: Misfit | None) -> Need:
    value = value_schema(workflow, name)
    return Need(
        variable=name,
        expected=value.expected if misfit is None else _expected(misfit, value.schema),
        example={"context": {name: value.example}},
        produced_by=workflow.producers.get(name, msgspec.UNSET),
        found=msgspec.UNSET if misfit is None else _found(misfit),
    )


def value_schema(workflow: Workflow, name: str) -> ValueSchema:
    """The JSON Schema of a variable: by the contract, else by the loop that goes by it."""
    known = workflow.contract.variables if workflow.contract is not None else {}
    return known.get(name) or ValueSchema(_declarations(workflow)(name))


def contract_of(workflow: Workflow) -> Contract:
    """What the document says of variables, for `Workflow.contract`."""
    steps = workflow.steps.values()
    required = _schema(workflow).get("required", ())
    names = dict.fromkeys([name for step in steps for name in (*step.requires, *produced_by(step))])
    declared = _declarations(workflow)
    return Contract(
        variables={name: ValueSchema(declared(name)) for name in (*names, *required)},
        needs={step.id: tuple(_wanted(workflow, step)) for step in steps},
        needed_always=tuple(name for name in required if name not in workflow.producers),
        sets={step.id: tuple(produced_by(step, optional=False)) for step in steps},
    )


def _declarations(workflow: Workflow) -> Callable[[str], Json]:
    """What gives the JSON Schema of a variable: `contextSchema`, else the capture of it, else a loop that uses it."""
    known = {key: Declared(schema) for key, schema in _schema(workflow).get("properties", {}).items()}
    captured: dict[str, Json] = {}
    used: dict[object, Json] = {}
    for step in workflow.steps.values():
        if isinstance(step, LoopStep):
            for variable in (step.loop.items, step.loop.count) if step.loop.type in EXTENT_SCHEMAS else ():
                used.setdefault(variable, EXTENT_SCHEMAS[step.loop.type])
            continue
        for capture in step.captures:
            if workflow.producers.get(capture.name) == step.id:
                captured.setdefault(capture.name, capture.value.schema)

    def declared(name: str) -> Json:
        schema = declaration(name, known).schema
        if isinstance(schema, Mapping):
            return schema
        return captured.get(name, used.get(name, schema))

    return declared


def _expected(misfit: Misfit, schema: Json) -> str:
    """What the keyword wants that was not met; of a part of the variable, without the words about the whole."""
    return with_description(misfit.expected, schema) if len(misfit.path) == 1 else f"{misfit.expected} there"


def _found(misfit: Misfit) -> str:
    if misfit.missing:
        return f"without '{misfit.missing}'"
    return misfit.found if len(misfit.path) == 1 else f"wrong at {dotted(misfit.path)} ({misfit.found})"


def _schema(workflow: Workflow) -> Mapping[str, Any]:
    schema = workflow.context_schema.schema if workflow.context_schema is not None else {}
    return schema if isinstance(schema, Mapping) else {}
