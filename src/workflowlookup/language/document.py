"""Checks documents and explains in plain words what is wrong. `building` builds the `Workflow` of a valid document.

`is_valid_document` is fast, for a whole library; `check` finds everything, for an author. A finding is a value. A
document with errors is not loaded. Warnings do not prevent loading, but `workflow_validate_json` counts them. Notes
name fields that are loaded but have no effect.
"""

import itertools
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import COMPARE_REMEDY, Condition, operators_in, walk
from workflowlookup.language.patterns import BadPattern, Budget, TooSlow, compile_pattern
from workflowlookup.language.proof import Flaw
from workflowlookup.language.proof_checks import (
    all_criteria,
    explain_misfit,
    flaws_of_proofs,
    is_criteria_path,
    without_criteria,
)
from workflowlookup.language.rules import flaws_in, rules_in
from workflowlookup.language.schemas import (
    BadSchema,
    Misfit,
    PathTo,
    compile_schema_text,
    dotted,
    step_validator,
    suggest,
    workflow_validator,
)
from workflowlookup.language.text import choices, shorten
from workflowlookup.language.triggers import pattern_of
from workflowlookup.language.values import Json, extent
from workflowlookup.language.verdicts import verdict

MAX_FINDINGS: Final = 100
"""Limit on findings of each kind: nobody reads more, and a hostile document could have any number."""
LARGE_DOCUMENT: Final = 2_000
"""The size from which a document, or a step, is not validated for all errors at once."""
_VALID_STEP: Final = {"id": "step", "title": "Step", "prompt": "Do it."}
MAX_LOOP_DEPTH: Final = 16
MAX_CONDITION_PARTS: Final = 8
"""The size of a condition up to which it is analysed for always being true or false."""


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


# ── validity ────────────────────────────────────────────────────────────────────────────────────────────────────


def is_valid_document(document: Json) -> bool:
    """Whether `check` would find no error; fast if the document is valid."""
    return not errors_in(document)


def errors_in(document: Json) -> list[Finding]:
    """The errors that `check` would find; fast if there are none."""
    if workflow_validator().is_valid(document):
        return [*itertools.islice(_structure(document, Budget()), MAX_FINDINGS)]
    findings = check(document)
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def check(document: Json) -> list[Finding]:
    """All findings about a document, errors first.

    Its patterns share the time budget of one request. Patterns that it does not suffice for are not checked.
    """
    budget = Budget()
    findings: list[Finding] = []
    if not workflow_validator().is_valid(document):
        misfits = _misfits(document)
        findings = [_from_misfit(misfit, document) for misfit in itertools.islice(misfits, MAX_FINDINGS)]
        if not any(finding.severity is Severity.ERROR for finding in findings):  # they may come after the warnings
            errors = _misfits(_without_criteria(document))
            findings += [_from_misfit(misfit, document) for misfit in itertools.islice(errors, MAX_FINDINGS)]
    if not any(finding.severity is Severity.ERROR for finding in findings):
        for results in (
            _structure(document, budget),
            _functions_referred_to(document),
            _conditions(document, budget),
            _criteria(document, budget),
            _not_acted_on(document),
        ):
            findings += itertools.islice(results, MAX_FINDINGS)
    return sorted(findings, key=lambda finding: list(Severity).index(finding.severity))


def _misfits(document: Json) -> Iterator[Misfit]:
    """The misfits of a document. A large one is validated step by step, because the validator finds all at once."""
    steps = document.get("steps") if isinstance(document, Mapping) else None
    if not isinstance(steps, list) or extent(document)[0] < LARGE_DOCUMENT:
        yield from workflow_validator().misfits(document)
        return
    yield from workflow_validator().misfits({**document, "steps": [_VALID_STEP]})
    for index, step in enumerate(steps):
        validator = step_validator()
        is_large = extent(step)[0] > LARGE_DOCUMENT
        for misfit in validator.first_misfit(step) if is_large else validator.misfits(step):
            yield msgspec.structs.replace(misfit, path=("steps", index, *misfit.path))


def _without_criteria(part: Json) -> Json:
    """A document, or its steps, without criteria, which only cause warnings."""
    if isinstance(part, list):
        return [_without_criteria(step) for step in part]
    if not isinstance(part, Mapping):
        return part
    rest = {name: value for name, value in part.items() if name != "validationCriteria"}
    if "proof" in rest:
        rest["proof"] = without_criteria(rest["proof"])
    return rest | {name: _without_criteria(part[name]) for name in ("steps", "body") if name in part}


def _from_misfit(misfit: Misfit, document: Json) -> Finding:
    depth = _step_depth(misfit.path)
    field = dotted(misfit.path[depth:])
    about_field = not misfit.missing and not misfit.unknown
    where = _where(document, misfit.path[:depth] if about_field else misfit.path)
    at = f" {where}" if where else ""
    flaw = explain_misfit(misfit, document)
    if flaw is not None:
        return _proof_error(flaw.path, flaw, document)
    if misfit.missing:
        message = f"Missing required property '{misfit.missing}'{at}"
        suggestion = _HOW_TO_ADD.get(misfit.missing, f"Add required '{misfit.missing}' field{at}")
    elif misfit.unknown:
        names = ", ".join(suggest(name, misfit.allowed) for name in misfit.unknown[:5])
        message = f"Unknown {'field' if len(misfit.unknown) == 1 else 'fields'} {names}{at}"
        free = "names that start with 'x-' are free for your own data"
        allowed = f"allowed here: {', '.join(misfit.allowed)}"
        suggestion = f"Rename or remove unknown fields; {free if misfit.is_open else allowed}"
    elif not misfit.path:
        message = f"The document must be {misfit.expected}; found {misfit.actual}"
        suggestion = "Write the workflow as one object with id, name, description and steps"
    else:
        subject = f"Field '{field}'" if field else "The step"
        message = f"{subject} must be {misfit.expected}; found {misfit.actual}{at}"
        suggestion = _HOW_TO_FIX.get(str(misfit.path[-1]), _make(misfit))
    lenient = "validationCriteria" in misfit.path or is_criteria_path(misfit.path)
    return Finding(
        severity=Severity.WARNING if lenient else Severity.ERROR,
        path=(*misfit.path, misfit.unknown[0]) if misfit.unknown else misfit.path,
        message=message,
        suggestion=suggestion,
    )


def _make(misfit: Misfit) -> str:
    is_form = misfit.keyword in ("type", "minItems", "minProperties")
    example = f", for example {msgspec.json.encode(misfit.example).decode()}" if is_form and misfit.example else ""
    return f"Make '{dotted(misfit.path)}' {misfit.expected}{example}"


_ID_FORM: Final = "Use lower-case letters, digits, hyphens, dots and underscores in ids; 3 to 64 characters"

_HOW_TO_ADD: Final[Mapping[str, str]] = {
    "id": "Add required 'id' field with a unique identifier such as 'my-workflow'",
    "name": "Add required 'name' field with a name that people read",
    "description": "Add required 'description' field with a meaningful description",
    "steps": "Add required 'steps' array with at least one step object",
    "title": "Add required 'title' field with a short name for the step",
    "prompt": "Add required 'prompt' field with what the agent is asked to do",
    "server": "Add required 'server' field: the MCP server, by its name in the settings",
    "tool": "Add required 'tool' field: the tool that is called",
    "provider": "Add required 'provider' field: the provider, by its name in the settings",
    "workflow": "Add required 'workflow' field: the id that the workflow has at the provider",
    "message": "Add required 'message' field that tells the agent what is missing",
    "maxIterations": "Add required 'maxIterations' field, from 1 to 1000, so that the loop always ends",
    "condition": "Add required 'condition' field: it ends while and until loops",
    "count": "Add required 'count' field: how often the loop runs, or the variable that says so",
    "items": "Add required 'items' field: the variable with the list",
    "body": "Add required 'body' field: the id of a step, or a list of steps",
    "var": "Name the variable in 'var' beside the operator",
}

_HOW_TO_FIX: Final[Mapping[str, str]] = {
    "id": _ID_FORM,
    "version": "Use semantic versioning for 'version', for example 1.0.0",
    "steps": "Give 'steps' a list with at least one step object",
    "agentRole": "Write 'agentRole' as 10 to 1024 characters that say who the agent should be",
    "maxIterations": "Set 'maxIterations' to a whole number from 1 to 1000",
}


def _step_depth(path: PathTo) -> int:
    """The length of the part of the path that leads to the innermost step."""
    depth = 0
    for index, part in enumerate(path[:-1]):
        if part in ("steps", "body") and isinstance(path[index + 1], int) and index == depth:
            depth = index + 2
    return depth


def _where(document: Json, path: PathTo) -> str:
    """`in step 2 ('reproduce')`; empty at the top level, where the field is enough."""
    depth = _step_depth(path)
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


# ── structure: rules beyond the schema ──────────────────────────────────────────────────────────────────────────


def walk_steps(steps: Sequence[Json], path: PathTo = ("steps",)) -> Iterator[tuple[PathTo, Mapping[str, Json]]]:
    """Every step of a document with its path, including the bodies of loops."""
    for index, step in enumerate(steps):
        yield (*path, index), step
        body = step.get("body")
        if isinstance(body, list):
            yield from walk_steps(body, (*path, index, "body"))


def _structure(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Duplicate ids, missing bodies, calls of undefined functions, and broken patterns and schemas."""
    ids: set[str] = set()
    loops: list[tuple[PathTo, Mapping[str, Json]]] = []
    calls: list[tuple[PathTo, Mapping[str, Json]]] = []
    captures: list[tuple[PathTo, Mapping[str, Json]]] = []
    for path, step in walk_steps(document["steps"]):
        identifier = step["id"]
        if identifier in ids:
            yield _error(path, f"Duplicate step id '{identifier}'", "Give every step a unique id", document)
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
            for flaw in flaws_of_proofs(step, budget):
                yield _proof_error((*path, *flaw.path), flaw, document)
    if loops:
        yield from _bodies(document, loops)
    if calls:
        yield from _calls(document, calls)
    for path, step in captures:
        yield from _captures(document, (*path, "produces"), step, budget)
    yield from _triggers(document, budget)
    yield from _schemas(document, budget)
    yield from _reserved_variables(document)


def _reserved_variables(document: Mapping[str, Json]) -> Iterator[Finding]:
    """Variables that would hide what proofs have measured. A workflow without proofs may have them."""
    steps = list(walk_steps(document["steps"]))
    if not any("proof" in step for _, step in steps):
        return
    for path, step in steps:
        loop_names = [step.get("loop", {}).get(field) for field in ("iterationVar", "itemVar", "indexVar")]
        for name in (*variables_set_by(step), *filter(None, loop_names)):
            if name.partition(".")[0] == "proof":
                message = f"The variable '{name}' would hide what proofs have measured"
                yield _error(path, message, "Give the variable another name than 'proof'", document)


def _triggers(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Patterns of triggers that do not compile."""
    for index, trigger in enumerate(document.get("triggers", ())):
        pattern = pattern_of(trigger)
        try:
            if pattern is not None:
                compile_pattern(*pattern, budget)
        except BadPattern as problem:
            message = f"The trigger '{shorten(trigger, 60)}' does not compile ({problem})"
            yield _error(("triggers", index), message, "Fix the pattern, or write words without slashes", document)
        except TooSlow:
            yield _unchecked(("triggers", index), f"The trigger '{shorten(trigger, 60)}'", document)


def _schemas(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Errors in the JSON Schemas of variables."""
    for field in [field for field in ("contextSchema", "inputSchema") if field in document]:
        try:
            budget.spend(lambda _, field=field: compile_schema_text(bytes(schema_text(document, field))))  # type: ignore[misc]
        except BadSchema as problem:
            message = f"The JSON Schema in '{field}' is malformed ({problem})"
            yield _error((field,), message, "Fix the schema, or leave it out", document)
        except TooSlow:
            yield _unchecked((field,), f"The JSON Schema in '{field}'", document)


def _captures(
    document: Mapping[str, Json], path: PathTo, step: Mapping[str, Json], budget: Budget
) -> Iterator[Finding]:
    """Errors in a `produces` map: variables that no output could set."""
    for name, declared in step["produces"].items():
        at = (*path, name)
        if "pattern" in declared and "pointer" in declared:
            yield _error(at, f"'{name}' has both a pattern and a pointer", "Keep only one of them", document)
        if "flags" in declared and "pattern" not in declared:
            yield _error((*at, "flags"), f"'{name}' has flags without a pattern", "Remove 'flags'", document)
        try:
            if "pattern" in declared:
                compile_pattern(declared["pattern"], declared.get("flags", ""), budget)
        except BadPattern as problem:
            message = f"The pattern of '{name}' does not compile ({problem})"
            yield _error((*at, "pattern"), message, "Fix the pattern", document)
        except TooSlow:
            yield _unchecked((*at, "pattern"), f"The pattern of '{name}'", document)
        schema_path = (*at, "schema") if "schema" in declared else at
        try:
            text = msgspec.json.encode(capture_schema(declared))
            budget.spend(lambda _, text=text: compile_schema_text(text))  # type: ignore[misc]
        except BadSchema as problem:
            yield _error(
                schema_path, f"The JSON Schema of '{name}' is malformed ({problem})", "Fix the schema", document
            )
        except TooSlow:
            yield _unchecked(schema_path, f"The JSON Schema of '{name}'", document)


def _unchecked(path: PathTo, what: str, document: Json) -> Finding:
    message = f"{what} was not checked: the patterns and schemas before it took too long"
    return _error(path, message, "Simplify the patterns and JSON Schemas of the document", document)


def _answers(document: Mapping[str, Json], path: PathTo, confirmation: Mapping[str, Json]) -> Iterator[Finding]:
    """An error in the JSON Schema of a person's answers."""
    try:
        compile_schema_text(bytes(schema_text(confirmation, "answers")) or b"true")
    except BadSchema as problem:
        message = f"The JSON Schema in 'answers' is malformed ({problem})"
        yield _error((*path, "requireConfirmation", "answers"), message, "Fix the schema, or leave it out", document)


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
            yield _error((*path, "body"), problem, remedy, document)
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
    in_scope = _functions_in_scope(document)
    for path, step in calls:
        functions = in_scope(path)
        for index, call in enumerate(step["functionCalls"]):
            at = (*path, "functionCalls", index)
            function = functions.get(call["name"])
            if function is None:
                yield _error(
                    at,
                    f"Call of undefined function {suggest(call['name'], functions)}",
                    "Define the function in 'functionDefinitions' of the workflow, the loop or the step",
                    document,
                )
                continue
            for problem in _bad_arguments(function, call["args"]):
                yield _error(
                    at, f"{problem} in the call of '{call['name']}'", "Pass what the function declares", document
                )


def repeated_by_id(document: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """By step id: the loop that has this step as its body."""
    return {step["body"]: step for _, step in walk_steps(document["steps"]) if isinstance(step.get("body"), str)}


def _functions_in_scope(document: Mapping[str, Json]) -> Callable[[PathTo], Mapping[str, Mapping[str, Json]]]:
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


def _error(path: PathTo, message: str, suggestion: str, document: Json) -> Finding:
    where = _where(document, path[: _step_depth(path)])
    return Finding(severity=Severity.ERROR, path=path, message=f"{message} {where}".rstrip(), suggestion=suggestion)


def _proof_error(path: PathTo, flaw: Flaw, document: Json) -> Finding:
    message = f"{flaw.message} {_where(document, path)}"
    return Finding(severity=Severity.ERROR, path=path, message=message, suggestion=flaw.remedy)


# ── warnings and notes ──────────────────────────────────────────────────────────────────────────────────────────


def _functions_referred_to(document: Mapping[str, Json]) -> Iterator[Finding]:
    """References to undefined functions."""
    in_scope = _functions_in_scope(document)
    for path, step in walk_steps(document["steps"]):
        references = step.get("functionReferences", ())
        functions = in_scope(path) if references else {}
        for reference in references:
            name = reference.partition("(")[0]
            if name not in functions:
                yield Finding(
                    severity=Severity.WARNING,
                    path=(*path, "functionReferences"),
                    message=f"Undefined function {suggest(name, functions)} {_where(document, path)}",
                    suggestion="Define the function in 'functionDefinitions', or remove the reference",
                )


def _conditions(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Conditions that never hold, because of a type or a contradiction, and conditions that always hold."""
    outcomes: dict[bytes, bool | None] = {}
    for path, condition in _all_conditions(document):
        has_impossible_parts = False
        for finding in _impossible_parts(document, path, condition, budget):
            has_impossible_parts = True
            yield finding
        if has_impossible_parts or not condition:
            continue
        key = msgspec.json.encode(condition)  # most documents repeat their conditions
        if key not in outcomes:
            is_small = sum(1 for _ in itertools.islice(walk(condition), MAX_CONDITION_PARTS + 1)) <= MAX_CONDITION_PARTS
            outcomes[key] = _verdict(condition, budget) if is_small else None
        outcome = outcomes[key]
        if outcome is False:
            yield _never(path, "its parts contradict each other", document)
        elif outcome is True:
            yield Finding(
                severity=Severity.WARNING,
                path=path,
                message=f"The condition always holds {_where(document, path)}".rstrip(),
                suggestion="Remove the condition, or correct what it compares with",
            )


def _verdict(condition: Condition, budget: Budget) -> bool | None:
    """`verdict`, with None if there is no time for it."""
    try:
        return budget.spend(lambda _: verdict(condition, {}, budget))
    except TooSlow:
        return None


def _impossible_parts(
    document: Mapping[str, Json], path: PathTo, condition: Condition, budget: Budget
) -> Iterator[Finding]:
    for at, part in _needed(condition, path):
        if part.get("or") == []:
            yield _never((*at, "or"), "'or' has no alternatives", document)
        for key, operator, expected in operators_in(part):
            try:
                flaw = operator.flaw(expected, budget) if operator.flaw is not None else ""
            except TooSlow:
                where = _where(document, path)
                yield Finding(
                    severity=Severity.WARNING,
                    path=(*at, key),
                    message=f"'{key}' was not checked: earlier patterns took too long {where}".rstrip(),
                    suggestion="Simplify the conditions and patterns of the document",
                )
                return
            if flaw:
                yield _never((*at, key), f"'{key}' {flaw}", document, operator.remedy)


def _needed(condition: Condition, path: PathTo) -> Iterator[tuple[PathTo, Condition]]:
    """The condition and the parts of it that must hold for it to hold."""
    yield path, condition
    for index, part in enumerate(condition.get("and", ())):
        yield from _needed(part, (*path, "and", index))


def _never(path: PathTo, reason: str, document: Json, remedy: str = COMPARE_REMEDY) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        path=path,
        message=f"The condition can never hold: {reason} {_where(document, path)}".rstrip(),
        suggestion=remedy,
    )


def _all_conditions(document: Mapping[str, Json]) -> Iterator[tuple[PathTo, Condition]]:
    for path, step in walk_steps(document["steps"]):
        yield from conditions_in(step, path)
        if "condition" in step.get("loop", ()):
            yield (*path, "loop", "condition"), step["loop"]["condition"]


def _criteria(document: Mapping[str, Json], budget: Budget) -> Iterator[Finding]:
    """Rules that fit the schema but cannot be applied."""
    for path, step in walk_steps(document["steps"]):
        for within, criteria in all_criteria(step):
            for at, flaw in flaws_in(criteria, (*path, *within), budget):
                judged = "output of this step" if within == ("validationCriteria",) else "proof"
                yield Finding(
                    severity=Severity.WARNING,
                    path=at,
                    message=f"{flaw} {_where(document, at)}",
                    suggestion=f"Fix the rule: until then the {judged} cannot be judged",
                )


_UNUSED_FIELDS: Final = (
    *("features", "assessments", "extensionPoints", "metricsProfile"),
    *("variables", "tags", "tips", "changelog", "autoRecognitionPatterns"),
)
_UNUSED_STEP_FIELDS: Final = (
    *("templateCall", "outputContract", "assessmentRefs", "assessmentConsequences", "notesOptional", "audit"),
    *("verification", "confirmationPrompt", "expectedOutput", "outputRequired"),
)


def _not_acted_on(document: Mapping[str, Json]) -> Iterator[Finding]:
    unused: list[tuple[PathTo, str]] = [((), field) for field in _UNUSED_FIELDS if field in document]
    for path, step in walk_steps(document["steps"]):
        unused += [(path, field) for field in _UNUSED_STEP_FIELDS if field in step]
        if "call" in step and "maxAttempts" in step:
            unused.append((path, "maxAttempts"))  # `retries` limits the attempts of a call
        if "loop" in step:
            unused += [(path, field) for field in ("guidance", "requireConfirmation") if field in step]
        if "conditionSource" in step.get("loop", ()):
            unused.append(((*path, "loop"), "conditionSource"))
    for path, field in unused:
        where = _where(document, path)
        yield Finding(
            severity=Severity.NOTE,
            path=(*path, field),
            message=f"'{field}' is loaded but not acted on" + (f" {where}" if where else ""),
            suggestion="Nothing needs to change; the field has no effect",
        )


# ── shared with `building` ────────────────────────────────────────────────────────────────────────────────────────────


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
