"""Judges an output: `judge` applies the check that `criteria.compile_criteria` has compiled, `judge_step` also reads
the captures of the step.
"""

from typing import Final

from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language.captures import capture_values
from workflowlookup.language.formats.patterns import BadPattern, Budget
from workflowlookup.language.formats.schemas import BadSchema
from workflowlookup.language.model import LoopStep, Step, Verdict
from workflowlookup.language.rules import CriteriaCheck, Issue
from workflowlookup.language.text import is_blank
from workflowlookup.language.values import Context, assign

_PASSED: Final = Verdict()
_BLANK: Final = Issue(message="Output is empty or invalid.", suggestion="Give an output that says what was done.")


def judge(
    check: CriteriaCheck | None, output: str, context: Context, budget: Budget, *, handed_out: Context | None = None
) -> Verdict:
    """Whether the output meets the criteria; without criteria, whether it is not blank.

    `handed_out` is the context before the changes sent with the output, if there were any (see `CriteriaCheck`).

    Raises `InvalidCriteria` for criteria that cannot be applied, `InvalidWorkflow` for a malformed JSON Schema in them.
    """
    if check is None:
        return Verdict(issues=(_BLANK,)) if is_blank(output) else _PASSED
    try:
        issues = check(output, (context,) if handed_out is None else (handed_out, context), budget)
    except BadPattern as flaw:
        details = f"Invalid regex pattern: {flaw}"
        raise InvalidCriteria(f"{details}. Ask the author to fix it.", details=details) from flaw
    except BadSchema as flaw:
        details = f"Invalid JSON schema: {flaw}"
        raise InvalidWorkflow(f"{details}. Ask the author to fix it.", details=details) from flaw
    return Verdict(issues=tuple(issues)) if issues else _PASSED


def judge_step(
    step: Step, output: str, context: Context, budget: Budget, *, handed_out: Context | None = None
) -> Verdict:
    """Whether the output meets the criteria of a step and has its captures; `handed_out` as for `judge`.

    The criteria see the captured variables in both contexts. The result of a call without criteria may be blank. Raises
    what `judge` does.
    """
    if isinstance(step, LoopStep):
        return judge(None, output, context, budget)
    captured = capture_values(step.captures, output, budget)
    if captured.values:
        context = assign(context, captured.values)
        handed_out = None if handed_out is None else assign(handed_out, captured.values)
    accepts_anything = step.call is not None and step.check is None
    issues = () if accepts_anything else judge(step.check, output, context, budget, handed_out=handed_out).issues
    if not step.captures:
        return Verdict(issues=issues) if issues else _PASSED
    return Verdict(issues=(*issues, *captured.issues), captured=captured.values)
