"""The rules that an output can be judged by: one function each, and the table `RULES`.

A rule is made ready once: its function here gives another one, which tells what is wrong with an output, and nothing
when all is well. A new rule is a struct in `model.py`, a function here, a line in `RULES` and a property in
`workflow.schema.json`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.core.model import ContainsRule, Issue, LengthRule, RegexRule, Rule, SchemaRule
from workflowlookup.core.patterns import Budget, TooSlow, compile_pattern
from workflowlookup.core.schemas import compile_schema_text, misfits
from workflowlookup.core.syntax import SyntaxProblem, parse_json
from workflowlookup.core.values import Context

_FENCE: Final = "```"
_BLANKS: Final = " \t\r\n"
_JSON_BEGINS_WITH: Final = frozenset('{["-0123456789tfn')
_MOST_MISFITS: Final = 5
MAX_JSON: Final = 256 * 1024

NO_MATCH: Final = "Output does not match pattern {}"
GIVEN_UP: Final = "The pattern {} took too long on this output and was given up"

Check = Callable[[str, Context, Budget], Sequence[Issue] | None]
"""What is wrong with an output; None when nothing is asked of it in this context. The context matters where rules are
put together; a rule by itself does not look at it."""


def contains(rule: ContainsRule) -> Check:
    value = rule.value
    message, suggestion = rule.message or f'Output must include "{value}"', f'Include the text "{value}" in the output.'
    absent = (Issue(message=message, suggestion=suggestion),)
    in_other_case = (Issue(message=message, suggestion=f"{suggestion} The case counts."),)

    def check(output: str, _: Context, __: Budget) -> Sequence[Issue]:
        if value in output:
            return ()
        return in_other_case if value.casefold() in output.casefold() else absent

    return check


def regex(rule: RegexRule) -> Check:
    """What it gives raises `BadPattern` for a pattern that does not compile."""
    pattern, flags = rule.pattern, rule.flags
    with_flags = f"{pattern} (flags {flags})" if flags else pattern
    absent = (
        Issue(
            message=rule.message or NO_MATCH.format(pattern),
            suggestion=f"Change the output so that it matches the pattern {with_flags}.",
        ),
    )

    def check(output: str, _: Context, budget: Budget) -> Sequence[Issue]:
        try:
            return () if compile_pattern(pattern, flags, budget)(output, budget) else absent
        except TooSlow:
            message = GIVEN_UP.format(pattern)
            suggestion = "Shorten the output; the author should simplify the pattern, which backtracks without end."
            return (Issue(message=message, suggestion=suggestion, is_undecided=True),)

    return check


def length(rule: LengthRule) -> Check:
    least, most = rule.min, rule.max

    def check(output: str, _: Context, __: Budget) -> Sequence[Issue]:
        found = len(output)
        if least is not None and found < least:
            message = rule.message or f"Output shorter than minimum length {least}"
            advice = f"Add at least {least - found} more characters (now {found}, at least {least} are needed)."
        elif most is not None and found > most:
            message = rule.message or f"Output exceeds maximum length {most}"
            advice = f"Remove at least {found - most} characters (now {found}, at most {most})."
        else:
            return ()
        return (Issue(message=message, suggestion=advice),)

    return check


def schema(rule: SchemaRule) -> Check:
    """JSON, bare or inside one Markdown code fence. What it gives raises `BadSchema` for a malformed JSON Schema."""

    def check(output: str, _: Context, __: Budget) -> Sequence[Issue]:
        validator = compile_schema_text(bytes(rule.schema))
        if len(output) > MAX_JSON:
            advice = f"Shorten the JSON to at most {MAX_JSON:,} characters (now {len(output):,})."
            return (Issue(message=rule.message or "Output is too long to be checked as JSON", suggestion=advice),)
        text = unfenced(output).lstrip(_BLANKS)
        if text and text[0] not in _JSON_BEGINS_WITH:
            return no_json(f"this begins with '{text[0]}', which no JSON does")
        try:
            value = parse_json(text.encode())
        except SyntaxProblem as problem:
            return no_json(f"{problem.message}. {problem.suggestions[0]}")
        found = list(itertools.islice(misfits(validator, value, msgspec.json.decode(rule.schema)), _MOST_MISFITS + 1))
        if not found:
            return ()
        sentences = "; ".join(misfit.sentence() for misfit in found[:_MOST_MISFITS])
        more = "; and more" if len(found) > _MOST_MISFITS else ""
        message = rule.message or f"Output does not fit the JSON Schema: {sentences}"
        return (Issue(message=message, suggestion=f"Fix the JSON: {sentences}{more}."),)

    def no_json(why: str) -> Sequence[Issue]:
        advice = f"Answer with JSON and nothing else: {why}."
        return (Issue(message=rule.message or "Output is not valid JSON", suggestion=advice),)

    return check


def unfenced(output: str) -> str:
    """What stands inside a single Markdown code fence; the output itself when there is none."""
    text = output.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return output
    _, newline, inside = text.removesuffix(_FENCE).partition("\n")
    return inside if newline and f"\n{_FENCE}" not in f"\n{inside}" else output


RULES: Final[Mapping[type, Callable[[Any], Check]]] = MappingProxyType(
    {ContainsRule: contains, RegexRule: regex, LengthRule: length, SchemaRule: schema}
)


def passes(rule: Rule, output: str, budget: Budget) -> bool:
    """Whether an output meets a rule, whatever its condition. Raises `BadPattern` and `BadSchema`."""
    return not RULES[type(rule)](rule)(output, {}, budget)
