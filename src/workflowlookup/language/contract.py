"""Context contracts: which variables a step needs, and which of them are missing or have a wrong value.

A workflow may declare `contextSchema`, a JSON Schema of the context. A step may name the variables that it `requires`
and `produces`. `workflow_next` lists unmet needs beside the step; a run does not go on without them.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.formats.schemas import Misfit, ValueSchema, dotted, show, with_description
from workflowlookup.language.model import Contract, LoopStep, PromptStep, Step, Workflow
from workflowlookup.language.navigation import EXTENT_SCHEMAS, LoopNeed, find_step
from workflowlookup.language.values import Context, Json, lookup
from workflowlookup.language.verdicts import VariableDeclaration, declaration

MAX_MISFITS: Final = 5
MAX_PRODUCT_WARNINGS: Final = 20


class Need(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A variable that a step needs: what it must be, which step produces it, and an example to send."""

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
    """The needs of the step that the context does not meet: missing variables, then wrong values.

    With `is_done`, the variables that the step `produces` are needed too.
    """
    if workflow.contract is None:
        return ()
    needed = workflow.contract.needs[step.id]
    if is_done:
        needed = (*needed, *step.produces)
    missing = [name for name in needed if lookup(context, name) is None]
    misfits = {str(misfit.path[0]): misfit for misfit in _misfits(workflow, context)}
    return tuple(_need(workflow, name, misfits.get(name)) for name in dict.fromkeys((*missing, *misfits)))


def missing_product_warnings(
    workflow: Workflow, completed: Iterable[str], context: Context, missing: Iterable[Need]
) -> list[str]:
    """Warnings about variables that completed steps produce and the context lacks, except those in `missing`."""
    if workflow.contract is None:
        return []
    sets, variables = workflow.contract.sets, workflow.contract.variables
    ids = dict.fromkeys([instance_id.partition("@")[0] for instance_id in completed])
    unset = {name: step_id for step_id in ids for name in sets.get(step_id, ()) if lookup(context, name) is None}
    for need in missing:
        unset.pop(need.variable, None)
    return [
        f"Step '{step_id}' is completed, but '{name}', which it produces, is not set: "
        f"expected {variables[name].expected}"
        for name, step_id in itertools.islice(unset.items(), MAX_PRODUCT_WARNINGS)
    ]


def produced_by(step: Step, *, optional: bool = True) -> list[str]:
    """The variables that a step sets, with or without the optional ones."""
    captures = step.captures if isinstance(step, PromptStep) else ()
    return [*step.produces, *(capture.name for capture in captures if optional or not capture.is_optional)]


def misfitting(workflow: Workflow, variables: Context) -> tuple[Need, ...]:
    """The variables whose value does not fit `contextSchema`."""
    return tuple(_need(workflow, str(misfit.path[0]), misfit) for misfit in _misfits(workflow, variables))


def need_of_loop(workflow: Workflow, need: LoopNeed) -> Need:
    """The list or count that a loop needs before it can be entered."""
    extent = ValueSchema(need.schema)
    examples = (value_schema(workflow, need.variable).example, extent.example)
    fits = extent.validator.is_valid
    found = {} if need.actual is None else {"found": show(need.actual)}
    return Need(
        variable=need.variable,
        expected=_EXTENT_WORDS[need.schema["type"]],
        example={"context": {need.variable: next(value for value in examples if fits(value))}},
        produced_by=workflow.producers.get(need.variable, msgspec.UNSET),
        **found,
    )


def how_to_send(workflow: Workflow, loop_id: str, need: Need) -> str:
    """Why there is no next step yet, and what to send."""
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
    """An example value for each variable that a caller must send: required, and produced by no step."""
    required = [name for step in workflow.steps.values() for name in step.requires]
    names = dict.fromkeys((*_schema(workflow).get("required", ()), *required))
    needs = [_need(workflow, name, None) for name in names if name not in workflow.producers]
    return {need.variable: need.example["context"][need.variable] for need in needs}


def _required_variables(workflow: Workflow, step: Step) -> Iterator[str]:
    """The variables that the step and the loops around it require."""
    yield from step.requires
    for loop_id in workflow.enclosing[step.id]:
        yield from workflow.steps[loop_id].requires


def _misfits(workflow: Workflow, context: Context) -> Iterator[Misfit]:
    """The misfits of single variables with `contextSchema`."""
    schema = workflow.context_schema
    if schema is not None:
        yield from (misfit for misfit in schema.misfits(context) if misfit.path)


def refuse_misfits(workflow: Workflow, context: Context, changes: Context) -> None:
    """Raises `InvalidParams` if changes of the context do not fit `contextSchema`."""
    schema, merged = workflow.context_schema, {**context, **changes}
    if not changes or schema is None:
        return
    problems = [
        msgspec.structs.replace(misfit, path=("context", *misfit.path)).sentence()
        for misfit in schema.misfits(merged)
        if not changes.keys().isdisjoint((misfit.path[0],) if misfit.path else misfit.unknown)
    ]
    if problems:
        raise InvalidParams("; ".join(problems[:MAX_MISFITS]))


def input_misfits(workflow: Workflow, run_input: Context, changes: Context) -> Iterator[str]:
    """Sentences about input variables that the changes would give a value that `inputSchema` forbids."""
    schema = workflow.input_schema or ValueSchema()
    declared = schema.schema.get("properties", {}) if isinstance(schema.schema, Mapping) else {}
    inputs = {name: value for name, value in changes.items() if name in run_input or name in declared}
    if not inputs:
        return
    for misfit in schema.misfits({**run_input, **inputs}):
        if not misfit.path or misfit.path[0] in inputs:  # no path: about several variables, as with `not`
            yield msgspec.structs.replace(misfit, path=("context", *misfit.path)).sentence()


def _need(workflow: Workflow, name: str, misfit: Misfit | None) -> Need:
    value = value_schema(workflow, name)
    return Need(
        variable=name,
        expected=value.expected if misfit is None else _expected(misfit, value.schema),
        example={"context": {name: value.example}},
        produced_by=workflow.producers.get(name, msgspec.UNSET),
        found=msgspec.UNSET if misfit is None else _describe_actual(misfit),
    )


def value_schema(workflow: Workflow, name: str) -> ValueSchema:
    """The JSON Schema of a variable: from the contract, else from the loop that uses it as its list or count."""
    declared = workflow.contract.variables if workflow.contract is not None else {}
    return declared.get(name) or ValueSchema(_declarations(workflow)(name))


def contract_of(workflow: Workflow) -> Contract:
    """The contract of a workflow, from its schema and its steps."""
    steps = workflow.steps.values()
    required = _schema(workflow).get("required", ())
    names = dict.fromkeys([name for step in steps for name in (*step.requires, *produced_by(step))])
    needed_always = [name for name in required if name not in workflow.producers]
    declared = _declarations(workflow)
    return Contract(
        variables={name: ValueSchema(declared(name)) for name in (*names, *required)},
        needs={step.id: (*_required_variables(workflow, step), *needed_always) for step in steps},
        sets={step.id: tuple(produced_by(step, optional=False)) for step in steps},
    )


def _declarations(workflow: Workflow) -> Callable[[str], Json]:
    """A function from variable to JSON Schema: from `contextSchema`, else its capture, else a loop that uses it."""
    in_context_schema = {
        key: VariableDeclaration(schema) for key, schema in _schema(workflow).get("properties", {}).items()
    }
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
        schema = declaration(name, in_context_schema).schema
        if isinstance(schema, Mapping):
            return schema
        return captured.get(name, used.get(name, schema))

    return declared


def _expected(misfit: Misfit, schema: Json) -> str:
    """What the failed keyword expects, with the description of the variable if the misfit is about all of it."""
    return with_description(misfit.expected, schema) if len(misfit.path) == 1 else f"{misfit.expected} there"


def _describe_actual(misfit: Misfit) -> str:
    if misfit.missing:
        return f"without '{misfit.missing}'"
    return misfit.actual if len(misfit.path) == 1 else f"wrong at {dotted(misfit.path)} ({misfit.actual})"


def _schema(workflow: Workflow) -> Mapping[str, Any]:
    schema = workflow.context_schema.schema if workflow.context_schema is not None else {}
    return schema if isinstance(schema, Mapping) else {}
