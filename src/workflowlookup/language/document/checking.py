"""Checks documents and explains in plain words what is wrong. `building` builds the `Workflow` of a valid document.

`is_valid_document` is fast, for a whole library; `check` finds everything, for an author. A finding is a value. A
document with errors is not loaded. Warnings do not prevent loading, but `workflow_validate_json` counts them. Notes
name fields that are loaded but have no effect. `structure` finds the errors that the schema cannot.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.language.conditions import COMPARE_REMEDY, Condition, operators_in, walk
from workflowlookup.language.document.findings import Finding, Severity, location_in, proof_error_at, step_depth
from workflowlookup.language.document.parts import conditions_in, functions_in_scope, walk_steps
from workflowlookup.language.document.proof_checks import (
    all_criteria,
    explain_misfit,
    is_criteria_path,
    without_criteria,
)
from workflowlookup.language.document.structure import structural_errors
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.formats.schemas import Misfit, PathTo, dotted, suggest
from workflowlookup.language.rules import flaws_in
from workflowlookup.language.values import Json, extent
from workflowlookup.language.verdicts import verdict
from workflowlookup.language.workflow_schema import step_validator, workflow_validator

MAX_FINDINGS: Final = 100
"""Limit on findings of each kind: nobody reads more, and a hostile document could have any number."""
LARGE_DOCUMENT: Final = 2_000
"""The size from which a document, or a step, is not validated for all errors at once."""
_VALID_STEP: Final = {"id": "step", "title": "Step", "prompt": "Do it."}
MAX_CONDITION_PARTS: Final = 8
"""The size of a condition up to which it is analysed for always being true or false."""


# ── validity ────────────────────────────────────────────────────────────────────────────────────────────────────


def is_valid_document(document: Json) -> bool:
    """Whether `check` would find no error; fast if the document is valid."""
    return not errors_in(document)


def errors_in(document: Json) -> list[Finding]:
    """The errors that `check` would find; fast if there are none."""
    if workflow_validator().is_valid(document):
        return [*itertools.islice(structural_errors(document, Budget()), MAX_FINDINGS)]
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
            structural_errors(document, budget),
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
    depth = step_depth(misfit.path)
    field = dotted(misfit.path[depth:])
    about_field = not misfit.missing and not misfit.unknown
    where = location_in(document, misfit.path[:depth] if about_field else misfit.path)
    at = f" {where}" if where else ""
    flaw = explain_misfit(misfit, document)
    if flaw is not None:
        return proof_error_at(flaw.path, flaw, document)
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


# ── warnings and notes ──────────────────────────────────────────────────────────────────────────────────────────


def _functions_referred_to(document: Mapping[str, Json]) -> Iterator[Finding]:
    """References to undefined functions."""
    in_scope = functions_in_scope(document)
    for path, step in walk_steps(document["steps"]):
        references = step.get("functionReferences", ())
        functions = in_scope(path) if references else {}
        for reference in references:
            name = reference.partition("(")[0]
            if name not in functions:
                yield Finding(
                    severity=Severity.WARNING,
                    path=(*path, "functionReferences"),
                    message=f"Undefined function {suggest(name, functions)} {location_in(document, path)}",
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
                message=f"The condition always holds {location_in(document, path)}".rstrip(),
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
                where = location_in(document, path)
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
        message=f"The condition can never hold: {reason} {location_in(document, path)}".rstrip(),
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
                    message=f"{flaw} {location_in(document, at)}",
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
        where = location_in(document, path)
        yield Finding(
            severity=Severity.NOTE,
            path=(*path, field),
            message=f"'{field}' is loaded but not acted on" + (f" {where}" if where else ""),
            suggestion="Nothing needs to change; the field has no effect",
        )
