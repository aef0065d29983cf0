"""Errors of a document that its schema cannot find, such as duplicate ids, circular loops and undefined functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.document.findings import Finding, error_at, proof_error_at
from workflowlookup.language.document.parts import (
    MAX_LOOP_DEPTH,
    capture_schema,
    functions_in_scope,
    schema_text,
    variables_set_by,
    walk_steps,
)
from workflowlookup.language.document.proof_checks import flaws_of_proofs
from workflowlookup.language.formats.patterns import BadPattern, Budget, TooSlow, compile_pattern
from workflowlookup.language.formats.schemas import BadSchema, PathTo, compile_schema_text, suggest
from workflowlookup.language.text import choices, shorten
from workflowlookup.language.triggers import pattern_of
from workflowlookup.language.values import Json


def structural_errors(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Duplicate ids, missing bodies, calls of undefined functions, and broken patterns and schemas."""
    ids: set[str] = set()
    loops: list[tuple[PathTo, Mapping[str, Json]]] = []
    calls: list[tuple[PathTo, Mapping[str, Json]]] = []
    captures: list[tuple[PathTo, Mapping[str, Json]]] = []
    has_proofs = False
    for path, step in walk_steps(document["steps"]):
        identifier = step["id"]
        if identifier in ids:
            yield error_at(path, f"Duplicate step id '{identifier}'", "Give every step a unique id", document)
        ids.add(identifier)
        if isinstance(step.get("body"), str):
            loops.append((path, step))
        if "functionCalls" in step:
            calls.append((path, step))
        if isinstance(step.get("produces"), dict):
            captures.append((path, step))
        if isinstance(step.get("requireConfirmation"), dict):
            yield from _answers(document, path, step["requireConfirmation"])
        if "proof" in step:
            has_proofs = True
            for flaw in flaws_of_proofs(step, budget):
                yield proof_error_at((*path, *flaw.path), flaw, document)
    if loops:
        yield from _bodies(document, loops)
    if calls:
        yield from _calls(document, calls)
    for path, step in captures:
        yield from _captures(document, (*path, "produces"), step, budget)
    yield from _triggers(document, budget)
    yield from _schemas(document, budget)
    if has_proofs:
        yield from _reserved_variables(document)


def _reserved_variables(document: Mapping[str, Json]) -> Iterator[Finding]:
    """Variables that would hide what proofs have measured. A workflow without proofs may have them."""
    for path, step in walk_steps(document["steps"]):
        loop_names = [step.get("loop", {}).get(field) for field in ("iterationVar", "itemVar", "indexVar")]
        for name in (*variables_set_by(step), *filter(None, loop_names)):
            if name.partition(".")[0] == "proof":
                message = f"The variable '{name}' would hide what proofs have measured"
                yield error_at(path, message, "Give the variable another name than 'proof'", document)


def _triggers(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Patterns of triggers that do not compile."""
    for index, trigger in enumerate(document.get("triggers", ())):
        pattern = pattern_of(trigger)
        try:
            if pattern is not None:
                compile_pattern(*pattern, budget)
        except BadPattern as problem:
            message = f"The trigger '{shorten(trigger, 60)}' does not compile ({problem})"
            yield error_at(("triggers", index), message, "Fix the pattern, or write words without slashes", document)
        except TooSlow:
            yield _unchecked(("triggers", index), f"The trigger '{shorten(trigger, 60)}'", document)


def _schemas(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Errors in the JSON Schemas of variables."""
    for field in [field for field in ("contextSchema", "inputSchema") if field in document]:
        try:
            budget.spend(lambda _, field=field: compile_schema_text(bytes(schema_text(document, field))))  # type: ignore[misc]
        except BadSchema as problem:
            message = f"The JSON Schema in '{field}' is malformed ({problem})"
            yield error_at((field,), message, "Fix the schema, or leave it out", document)
        except TooSlow:
            yield _unchecked((field,), f"The JSON Schema in '{field}'", document)


def _captures(
    document: Mapping[str, Json], path: PathTo, step: Mapping[str, Json], budget: Budget
) -> Iterator[Finding]:
    """Errors in a `produces` map: variables that no output could set."""
    for name, declared in step["produces"].items():
        at = (*path, name)
        if "pattern" in declared and "pointer" in declared:
            yield error_at(at, f"'{name}' has both a pattern and a pointer", "Keep only one of them", document)
        if "flags" in declared and "pattern" not in declared:
            yield error_at((*at, "flags"), f"'{name}' has flags without a pattern", "Remove 'flags'", document)
        try:
            if "pattern" in declared:
                compile_pattern(declared["pattern"], declared.get("flags", ""), budget)
        except BadPattern as problem:
            message = f"The pattern of '{name}' does not compile ({problem})"
            yield error_at((*at, "pattern"), message, "Fix the pattern", document)
        except TooSlow:
            yield _unchecked((*at, "pattern"), f"The pattern of '{name}'", document)
        schema_path = (*at, "schema") if "schema" in declared else at
        try:
            text = msgspec.json.encode(capture_schema(declared))
            budget.spend(lambda _, text=text: compile_schema_text(text))  # type: ignore[misc]
        except BadSchema as problem:
            yield error_at(
                schema_path, f"The JSON Schema of '{name}' is malformed ({problem})", "Fix the schema", document
            )
        except TooSlow:
            yield _unchecked(schema_path, f"The JSON Schema of '{name}'", document)


def _unchecked(path: PathTo, what: str, document: Json) -> Finding:
    message = f"{what} was not checked: the patterns and schemas before it took too long"
    return error_at(path, message, "Simplify the patterns and JSON Schemas of the document", document)


def _answers(document: Mapping[str, Json], path: PathTo, confirmation: Mapping[str, Json]) -> Iterator[Finding]:
    """An error in the JSON Schema of a person's answers."""
    try:
        compile_schema_text(bytes(schema_text(confirmation, "answers")) or b"true")
    except BadSchema as problem:
        message = f"The JSON Schema in 'answers' is malformed ({problem})"
        yield error_at((*path, "requireConfirmation", "answers"), message, "Fix the schema, or leave it out", document)


def _bodies(document: Mapping[str, Json], loops: Iterable[tuple[PathTo, Mapping[str, Json]]]) -> Iterator[Finding]:
    top_level = [step["id"] for step in document["steps"]]
    depths = _nesting(document["steps"], set(top_level))
    used: dict[str, str] = {}
    for path, loop in loops:
        body, owner = loop["body"], top_level[int(path[1])]
        problem = None
        if body not in depths:
            problem = f"Loop '{loop['id']}' has the body {suggest(body, top_level)}, a step that does not exist"
            remedy = "Refer to a step at the top level of this workflow, or write the steps into 'body'"
        elif body in used:
            problem = f"Step '{body}' is the body of two loops, '{used[body]}' and '{loop['id']}'"
            remedy = "Give each loop its own body"
        elif depths[owner] is None:
            problem = f"The body of loop '{loop['id']}' leads back to the loop itself (a circular reference)"
            remedy = "Refer to a step that does not contain the loop"
        elif depths[owner] > MAX_LOOP_DEPTH:  # type: ignore[operator]
            problem = f"Loops nest deeper than {MAX_LOOP_DEPTH} levels from loop '{loop['id']}' on"
            remedy = f"Keep loops within {MAX_LOOP_DEPTH} levels"
        if problem:
            yield error_at((*path, "body"), problem, remedy, document)
        else:
            used[body] = loop["id"]


def _nesting(steps: Sequence[Mapping[str, Json]], top_level: set[str]) -> dict[str, int | None]:
    """By top-level step: the depth of the loops from it on, with references followed; None for a cycle."""
    refers: dict[str, list[str]] = {}
    own: dict[str, int] = {}
    for step in steps:
        inside = list(walk_steps([step]))
        bodies = [inner.get("body") for _, inner in inside]
        refers[step["id"]] = [body for body in bodies if isinstance(body, str) and body in top_level]
        own[step["id"]] = max(path.count("body") + ("loop" in inner) for path, inner in inside)
    depths: dict[str, int] = {}
    waiting = {name: set(names) for name, names in refers.items()}
    referrers: dict[str, list[str]] = {name: [] for name in refers}
    for name, names in waiting.items():
        for other in names:
            referrers[other].append(name)
    ready = [name for name, names in waiting.items() if not names]
    while ready:
        name = ready.pop()
        depths[name] = own[name] + max((depths[other] for other in refers[name]), default=0)
        for other in referrers[name]:
            waiting[other].discard(name)
            if not waiting[other]:
                ready.append(other)
    return {name: depths.get(name) for name in refers}


def _calls(document: Mapping[str, Json], calls: Iterable[tuple[PathTo, Mapping[str, Json]]]) -> Iterator[Finding]:
    in_scope = functions_in_scope(document)
    for path, step in calls:
        functions = in_scope(path)
        for index, call in enumerate(step["functionCalls"]):
            at = (*path, "functionCalls", index)
            function = functions.get(call["name"])
            if function is None:
                yield error_at(
                    at,
                    f"Call of undefined function {suggest(call['name'], functions)}",
                    "Define the function in 'functionDefinitions' of the workflow, the loop or the step",
                    document,
                )
                continue
            for problem in _bad_arguments(function, call["args"]):
                yield error_at(
                    at, f"{problem} in the call of '{call['name']}'", "Pass what the function declares", document
                )


_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _bad_arguments(function: Mapping[str, Json], args: Mapping[str, Json]) -> Iterator[str]:
    for parameter in function.get("parameters", ()):
        name = parameter["name"]
        if name not in args:
            if parameter.get("required"):
                yield f"Missing required parameter '{name}'"
            continue
        value, kind = args[name], parameter["type"]
        if not isinstance(value, _JSON_TYPES[kind]) or (isinstance(value, bool) and kind == "number"):
            yield f"Parameter '{name}' must be of type '{kind}'"
        elif "enum" in parameter and value not in parameter["enum"]:
            options = choices(parameter["enum"], lambda option: shorten(str(option), 60))
            yield f"Parameter '{name}' must be one of {options}"
