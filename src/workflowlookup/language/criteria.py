"""Criteria as a check and in words: `compile_criteria` compiles what `rules.parse_criteria` has parsed.

A rule whose condition does not hold is left out of its group: it neither passes nor fails. An empty group is left out
too, and empty criteria pass. The messages are the author's, in the author's order.
"""

import functools
from collections.abc import Sequence

import msgspec

from workflowlookup.errors import InvalidCriteria
from workflowlookup.language.conditions import MAX_CONDITION_TEXT, describe
from workflowlookup.language.formats.patterns import BadPattern, Budget, TooSlow
from workflowlookup.language.rules import (
    AllOf,
    AnyOf,
    Contexts,
    CriteriaCheck,
    Criterion,
    Issue,
    MalformedCriteria,
    Not,
    Rule,
    each_rule,
    parse_criteria,
)
from workflowlookup.language.templates import as_words, escape_pattern, filler, has_template
from workflowlookup.language.text import is_blank, shorten
from workflowlookup.language.values import Json, lookup


class CompiledCriteria:
    """Criteria of something other than an output, such as a file: a `CriteriaCheck`, compiled from JSON."""

    __slots__ = ("_check", "criterion")

    def __init__(self, source: Json) -> None:
        self.criterion = parse_criteria(source)
        """None for an empty list, which everything meets."""
        self._check = compile_criteria(self.criterion) if self.criterion is not None else None

    def __call__(self, output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        """As `CriteriaCheck`. Raises `InvalidCriteria`, `BadPattern` and `BadSchema` for criteria with a flaw."""
        return None if self._check is None else self._check(output, contexts, budget)


def compile_criteria(criterion: Criterion) -> CriteriaCheck:
    """The check for a criterion. A rule that cannot be applied raises only when it applies, not here."""
    match criterion:
        case AllOf(parts=parts):
            return _all_of([compile_criteria(part) for part in parts])
        case AnyOf(parts=parts):
            return _any_of([compile_criteria(part) for part in parts])
        case Not(part=part):
            return _opposite(part, compile_criteria(part))
        case MalformedCriteria(reason=reason):
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
    why = f"it applies only if {words}, and evaluating that took too long"
    undecided = (_undecided(message, why, "Shorten the output and the variables"),)

    def check_if_it_applies(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        try:
            applies = any(condition.holds(context, budget) for context in contexts)
        except TooSlow:
            return undecided
        return check(output, contexts, budget) if applies else None

    return check_if_it_applies


def _plain(rule: Rule) -> CriteriaCheck:
    check = rule.check()
    return lambda output, contexts, budget: check(output, contexts[-1], budget)


def has_templates(criterion: Criterion) -> bool:
    """Whether a text or pattern in it has templates, and so depends on the context."""
    return any(
        has_template(getattr(rule, field))
        for rule in each_rule(criterion)
        for field in ("message", *rule.texts, *rule.patterns)
    )


def _templated(rule: Rule) -> CriteriaCheck:
    """The check of a rule whose templates are filled for each output. It fails if a variable is not set."""

    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue]:
        unset: dict[str, None] = {}
        fill = filler({}, unset, lambda _, name: _value_of(contexts, name))
        fill_pattern = filler({}, unset, lambda _, name: escape_pattern(_value_of(contexts, name)))
        filled_fields = {field: fill(getattr(rule, field)) for field in rule.texts}
        filled_fields |= {field: fill_pattern(getattr(rule, field)) for field in rule.patterns}
        message = _fill_words(rule.message, contexts)
        try:
            budget.fill(len(message) + sum(map(len, filled_fields.values())))
        except TooSlow:
            return (_undecided("", "the templates of the rules before it became too long", "Shorten their values"),)
        filled = msgspec.structs.replace(rule, message=message, **filled_fields)
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
    """The value of a variable in a text to search for. Blank values count as not set: every output contains them."""
    values = (lookup(context, name) for context in contexts)
    return next((value for value in values if value is not None and not is_blank(as_words(value))), None)


def _fill_words(text: str, contexts: Contexts) -> str:
    """A filled text for the agent, in which blank values are harmless."""
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
        raise InvalidCriteria(f"{reason}. Ask the author to fix the criteria.", details=reason)

    return refuse


def _all_of(parts: Sequence[CriteriaCheck]) -> CriteriaCheck:
    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        issues: list[Issue] = []
        applies = False
        for part in parts:
            part_issues = part(output, contexts, budget)
            if part_issues is not None:
                applies = True
                issues += part_issues
        return issues if applies else None

    return check


def _any_of(parts: Sequence[CriteriaCheck]) -> CriteriaCheck:
    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        issues: list[Issue] = []
        failed = 0
        is_met = False
        for part in parts:
            part_issues = part(output, contexts, budget)
            if part_issues:
                failed += 1
                issues += part_issues
            elif part_issues is not None:
                is_met = True
        if is_met:
            return ()
        return [_one_of(failed), *issues] if failed > 1 else issues or None

    return check


def _opposite(part: Criterion, met: CriteriaCheck) -> CriteriaCheck:
    description = describe_criterion(part)
    always = None if has_templates(part) else (_must_not_hold(description),)

    def check(output: str, contexts: Contexts, budget: Budget) -> Sequence[Issue] | None:
        part_issues = met(output, contexts, budget)
        if part_issues is None:
            return None
        if part_issues:
            return [issue for issue in part_issues if issue.is_undecided]
        return always or (_must_not_hold(_fill_words(description, contexts)),)

    return check


@functools.lru_cache(maxsize=64)
def _one_of(alternatives: int) -> Issue:
    return Issue(
        message=f"One of these {alternatives} alternatives is needed:",
        suggestion="Meet at least one of the alternatives; the others are then not needed.",
    )


def _must_not_hold(description: str) -> Issue:
    return Issue(
        message=f"The output must not meet this: {description}",
        suggestion="Change the output so that this no longer holds.",
    )


# ── in words ───────────────────────────────────────────────────────────────────────────────────────────────────────


def describe_criterion(criterion: Criterion) -> str:
    """A criterion as one sentence for a model."""
    match criterion:
        case AllOf(parts=parts):
            return "All of these hold: " + _listed(parts)
        case AnyOf(parts=parts):
            return "At least one of these holds: " + _listed(parts)
        case Not(part=part):
            return "This must not hold: " + _nested(part)
        case MalformedCriteria(reason=reason):
            return f"The author's criteria are malformed ({reason}); the output of this step cannot be judged"
        case rule:
            return rule.describe()


def _listed(parts: Sequence[Criterion]) -> str:
    return "; ".join(f"({number}) {_nested(part)}" for number, part in enumerate(parts, 1))


def _nested(part: Criterion) -> str:
    """A part of a group; a rule with a condition says when it applies."""
    condition = part.condition if isinstance(part, Rule) else None
    return describe_criterion(part) + (f" (only when {describe(condition)})" if condition else "")
