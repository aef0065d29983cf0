"""Judging an output by compiled criteria: `compile_criteria` makes a check, `judge` applies it.

A rule whose condition does not hold is left out of its group: it neither passes nor fails. So is a group with nothing
left; criteria with nothing left pass. The messages are the author's, in the order in which they were written.
"""

import functools
from collections.abc import Sequence
from typing import Final

import msgspec

from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language.captures import capture_values
from workflowlookup.language.conditions import describe
from workflowlookup.language.guidance import as_words, describe_criterion, escape_pattern, filler, has_template
from workflowlookup.language.model import LoopStep, Step, Verdict
from workflowlookup.language.navigation import MAX_CONDITION_TEXT
from workflowlookup.language.patterns import BadPattern, Budget, TooSlow
from workflowlookup.language.rules import (
    AllOf,
    AnyOf,
    Contexts,
    CriteriaCheck,
    Criterion,
    Issue,
    Malformed,
    Not,
    Rule,
    each_rule,
)
from workflowlookup.language.schemas import BadSchema
from workflowlookup.language.text import is_blank, shorten
from workflowlookup.language.values import Context, Json, assign, lookup

_PASSED: Final = Verdict()
_BLANK: Final = Issue(message="Output is empty or invalid.", suggestion="Give an output that says what was done.")


def judge(
    check: CriteriaCheck | None, output: str, context: Context, budget: Budget, *, handed_out: Context | None = None
) -> Verdict:
    """Whether the output meets the criteria; without criteria, whether it says anything at all.

    `handed_out` is the context without what came with the output, if anything did (see `CriteriaCheck`).

    Raises `InvalidCriteria` for criteria that cannot be judged by, `InvalidWorkflow` for such a JSON Schema in them.
    """
    if check is None:
        return Verdict(issues=(_BLANK,)) if is_blank(output) else _PASSED
    try:
        issues = check(output, (context,) if handed_out is None else (handed_out, context), budget)
    except BadPattern as flaw:
        details = f"Invalid regex pattern: {flaw}"
        raise InvalidCriteria(f"{details}. Ask the author to mend it.", details=details) from flaw
    except BadSchema as flaw:
        details = f"Invalid JSON schema: {flaw}"
        raise InvalidWorkflow(f"{details}. Ask the author to mend it.", details=details) from flaw
    return Verdict(issues=tuple(issues)) if issues else _PASSED


def judge_step(
    step: Step, output: str, context: Context, budget: Budget, *, handed_out: Context | None = None
) -> Verdict:
    """Whether the output meets the criteria of a step and says what the step produces; `handed_out` as for `judge`.

    The criteria see what came out of the output, in either context. The result of a call may be blank where no criteria
    ask for more. Raises what `judge` does.
    """
    if isinstance(step, LoopStep):
        return judge(None, output, context, budget)
    captured = capture_values(step.captures, output, budget)
    if captured.values:
        context = assign(context, captured.values)
        handed_out = None if handed_out is None else assign(handed_out, captured.values)
    is_free = step.call is not None and step.check is None
    issues = () if is_free else judge(step.check, output, context, budget, handed_out=handed_out).issues
    if not step.captures:
        return Verdict(issues=issues) if issues else _PASSED
    return Verdict(issues=(*issues, *captured.issues), captured=captured.values)


def compile_criteria(criterion: Criterion) -> CriteriaCheck:
    """A function that judges by a criterion; what cannot be applied is refused when it counts, and not before."""
    match criterion:
        case AllOf(parts=parts):
            return _all_of([compile_criteria(part) for part in parts])
        case AnyOf(parts=parts):
            return _any_of([compile_criteria(part) for part in parts])
        case Not(part=part):
            return _opposite(part, compile_criteria(part))
        case Malformed(reason=reason):
            return _refusal(reason)
        case rule:
            return _check_of_rule(rule)


def _check_of_rule(rule: Rule) -> CriteriaCheck:
    check = _templated(rule) if has_templates(rule) else _plain(rule)
    condition = rule.condition
    if not condition:
        return check
    words = shorten(describe(condition), MAX_CONDITION_TEXT)
    message = "" if has_template(rule.message) else rule.message
    why = f"it counts only if {words}, and finding that out took too long"
    undecided = (_undecided(message, why, "Shorten the output and the variables"),)

    def check_if_it_counts(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        try:
            counts = any(condition.holds(context, budget) for context in contexts)
        except TooSlow:
            return undecided
        return check(output, contexts, budget) if counts else None

    return check_if_it_counts


def _plain(rule: Rule) -> CriteriaCheck:
    check = rule.check()
    return lambda output, contexts, budget: check(output, contexts[-1], budget)


def has_templates(criterion: Criterion) -> bool:
    """Whether what it asks depends on the context beyond its condition."""
    return any(
        has_template(getattr(rule, field))
        for rule in each_rule(criterion)
        for field in ("message", *rule.texts, *rule.patterns)
    )


def _templated(rule: Rule) -> CriteriaCheck:
    """A rule whose templates are filled for each output; one that needs a variable without a value never passes."""

    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue]:
        unset: dict[str, None] = {}
        fill = filler({}, unset, lambda _, name: _value_of(contexts, name))
        fill_pattern = filler({}, unset, lambda _, name: escape_pattern(_value_of(contexts, name)))
        searched = {field: fill(getattr(rule, field)) for field in rule.texts}
        searched |= {field: fill_pattern(getattr(rule, field)) for field in rule.patterns}
        message = _fill_words(rule.message, contexts)
        try:
            budget.fill(len(message) + sum(map(len, searched.values())))
        except TooSlow:
            return (_undecided("", "the templates of the rules before it became too long", "Shorten their values"),)
        filled = msgspec.structs.replace(rule, message=message, **searched)
        if unset:
            return (_undecided(filled.message, f"{', '.join(unset)} is not set in the context, or blank", "Set it"),)
        try:
            return filled.check()(output, contexts[-1], budget) or ()
        except BadPattern as flaw:
            return (
                _undecided(filled.message, f"its pattern does not compile with these values ({flaw})", "Shorten them"),
            )

    return check


def _value_of(contexts: Contexts, name: str) -> Json:
    """What stands for a variable in what is searched for: a blank text would be found in every output."""
    values = (lookup(context, name) for context in contexts)
    return next((value for value in values if value is not None and not is_blank(as_words(value))), None)


def _fill_words(text: str, contexts: Contexts) -> str:
    """A text for the agent, in which blank values do no harm."""
    return filler(
        {}, {}, lambda _, name: next((v for context in contexts if (v := lookup(context, name)) is not None), None)
    )(text)


def _undecided(message: str, why: str, remedy: str) -> Issue:
    words = f"{message.rstrip('.')}: a rule cannot be judged" if message else "A rule cannot be judged"
    return Issue(
        message=f"{words}, because {why}.", suggestion=f"{remedy}, and send the output again.", is_undecided=True
    )


def _refusal(reason: str) -> CriteriaCheck:
    def refuse(_: str, __: Contexts, ___: Budget) -> Sequence[Issue]:
        raise InvalidCriteria(f"{reason}. Ask the author to mend the criteria.", details=reason)

    return refuse


def _all_of(parts: Sequence[CriteriaCheck]) -> CriteriaCheck:
    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        issues: list[Issue] = []
        counts = False
        for part in parts:
            found = part(output, contexts, budget)
            if found is not None:
                counts = True
                issues += found
        return issues if counts else None

    return check


def _any_of(parts: Sequence[CriteriaCheck]) -> CriteriaCheck:
    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        issues: list[Issue] = []
        failed = 0
        is_met = False
        for part in parts:
            found = part(output, contexts, budget)
            if found:
                failed += 1
                issues += found
            elif found is not None:
                is_met = True
        if is_met:
            return ()
        return [_one_of(failed), *issues] if failed > 1 else issues or None

    return check


def _opposite(part: Criterion, met: CriteriaCheck) -> CriteriaCheck:
    description = describe_criterion(part)
    always = None if has_templates(part) else (_unwanted(description),)

    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        found = met(output, contexts, budget)
        if found is None:
            return None
        if found:
            return [issue for issue in found if issue.is_undecided]
        return always or (_unwanted(_fill_words(description, contexts)),)

    return check


@functools.lru_cache(maxsize=64)
def _one_of(alternatives: int) -> Issue:
    return Issue(
        message=f"One of these {alternatives} alternatives is needed:",
        suggestion="Meet at least one of the alternatives; the others may then be left.",
    )


def _unwanted(description: str) -> Issue:
    return Issue(
        message=f"The output must not meet this: {description}",
        suggestion=f"Change the output so that this no longer holds: {description}",
    )
