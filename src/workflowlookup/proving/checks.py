"""Criteria for something in the world: a stream, a file, the body of an answer."""

from collections.abc import Iterator

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.criteria import CompiledCriteria
from workflowlookup.language.patterns import BadPattern, Budget
from workflowlookup.language.rules import AllOf, AnyOf, ContainsRule, Criterion
from workflowlookup.language.schemas import BadSchema
from workflowlookup.proving.contract import CannotJudge, ProofTask

Fault = tuple[str, str]
"""Why a proof failed, and what to do about it."""


def unmet_criteria(
    criteria: CompiledCriteria, text: str, subject: str, task: ProofTask, budget: Budget
) -> Iterator[Fault]:
    """The criteria that a text does not meet. Raises `CannotJudge` if the others cannot be applied."""
    try:
        issues = criteria(text, (task.context,), budget) or ()
    except (WorkflowLookupError, BadPattern, BadSchema) as problem:
        raise CannotJudge(
            f"The criteria for {subject} cannot be applied: {problem}.", "Ask the author to fix them."
        ) from problem
    for issue in issues:
        if not issue.is_undecided:
            yield f"{subject}: {issue.message}", issue.suggestion
    for issue in issues:
        raise CannotJudge(f"{subject}: {issue.message}", issue.suggestion)


def may_be_cut(criteria: CompiledCriteria) -> bool:
    """Whether meeting them with a part of a text means that the whole text meets them too."""
    return criteria.criterion is None or _only_contains(criteria.criterion)


def _only_contains(criterion: Criterion) -> bool:
    match criterion:
        case AllOf(parts=parts) | AnyOf(parts=parts):
            return all(map(_only_contains, parts))
        case _:
            return isinstance(criterion, ContainsRule)
