"""Judging an output: `judge(criteria, output, context)` gives a `Verdict`.

A rule whose condition does not hold is left out of its group: it neither passes nor fails. A group with nothing left
passes. The messages are the author's, in the order in which they were written.
"""

from collections.abc import Sequence

from workflowlookup.core.conditions import Condition, evaluate
from workflowlookup.core.guidance import describe_criterion
from workflowlookup.core.model import AllOf, AnyOf, Criterion, Issue, Malformed, Not, Verdict
from workflowlookup.core.patterns import BadPattern
from workflowlookup.core.rules import RULES
from workflowlookup.core.schemas import BadSchema
from workflowlookup.core.values import Context
from workflowlookup.errors import InvalidCriteria, InvalidWorkflow

_find_rule = dict(RULES).get  # the same table, without the price of being read-only
_PASSED = Verdict()
_BLANK = Issue(message="Output is empty or invalid.", suggestion="Give an output that says what was done.")


def judge(criteria: Criterion | None, output: str, context: Context) -> Verdict:
    """Whether the output meets the criteria; without criteria, whether it says anything at all.

    Raises `InvalidCriteria` for criteria that cannot be judged by, `InvalidWorkflow` for such a JSON Schema in them.
    """
    if criteria is None:
        return Verdict(issues=() if output.strip() else (_BLANK,))
    try:
        issues = _issues(criteria, output, context)
        return Verdict(issues=tuple(issues)) if issues else _PASSED
    except BadPattern as problem:
        details = f"Invalid regex pattern: {problem}"
        raise InvalidCriteria(f"{details}. Ask the author to mend it.", details=details) from problem
    except BadSchema as problem:
        details = f"Invalid JSON schema: {problem}"
        raise InvalidWorkflow(f"{details}. Ask the author to mend it.", details=details) from problem


def _issues(criterion: Criterion, output: str, context: Context) -> Sequence[Issue] | None:
    """What is wrong; nothing when all is well, None when the criterion does not count."""
    rule = _find_rule(type(criterion))
    if rule is not None:
        condition: Condition | None = criterion.condition  # type: ignore[union-attr]
        return rule(criterion, output) if condition is None or evaluate(condition, context) else None
    match criterion:
        case AllOf(parts=parts):
            return [issue for part in parts for issue in _issues(part, output, context) or ()]
        case AnyOf(parts=parts):
            counted = _counted(parts, output, context)
            if not all(counted):
                return []
            lead = [_one_of(len(counted))] if len(counted) > 1 else []
            return [*lead, *(issue for found in counted for issue in found)]
        case Not(part=part):
            if not _counts(part, context):
                return None
            found = _issues(part, output, context)
            return [issue for issue in found if issue.is_undecided] if found else [_unwanted(describe_criterion(part))]
        case Malformed(reason=reason):
            raise InvalidCriteria(f"{reason}. Ask the author to mend the criteria.", details=reason)
    raise AssertionError(criterion)


def _counted(parts: Sequence[Criterion], output: str, context: Context) -> list[Sequence[Issue]]:
    return [found for part in parts if (found := _issues(part, output, context)) is not None]


def _counts(criterion: Criterion, context: Context) -> bool:
    """Whether there is a rule in it whose condition holds."""
    match criterion:
        case AllOf(parts=parts) | AnyOf(parts=parts):
            return any(_counts(part, context) for part in parts)
        case Not(part=part):
            return _counts(part, context)
        case Malformed():
            return True
        case rule:
            return evaluate(rule.condition, context)


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
