"""The rules that an output can be judged by: one function each, and the table `RULES`.

A rule gives an `Issue` for what is wrong and nothing when all is well. A new rule is a struct in `model.py`, a
function here, a line in `RULES` and a property in `workflow.schema.json`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.core.model import ContainsRule, Issue, LengthRule, RegexRule, SchemaRule
from workflowlookup.core.patterns import TooSlow, compile_pattern
from workflowlookup.core.schemas import compile_schema_text, misfits
from workflowlookup.core.syntax import SyntaxProblem, parse_json

_FENCE: Final = "```"
_BLANKS: Final = " \t\r\n"
_JSON_BEGINS_WITH: Final = frozenset('{["-0123456789tfn')
_MOST_MISFITS: Final = 5
MOST_JSON: Final = 256 * 1024


def contains(rule: ContainsRule, output: str) -> Sequence[Issue]:
    if rule.value in output:
        return ()
    hint = " The case counts." if rule.value.casefold() in output.casefold() else ""
    return [
        Issue(
            message=rule.message or f'Output must include "{rule.value}"',
            suggestion=f'Include the text "{rule.value}" in the output.{hint}',
        )
    ]


def regex(rule: RegexRule, output: str) -> Sequence[Issue]:
    """Raises `BadPattern` for a pattern that does not compile."""
    try:
        if compile_pattern(rule.pattern, rule.flags)(output):
            return ()
    except TooSlow:
        message = f"The pattern {rule.pattern} took too long on this output and was given up"
        suggestion = "Shorten the output; the author should simplify the pattern, which backtracks without end."
        return [Issue(message=message, suggestion=suggestion, is_undecided=True)]
    flags = f" (flags {rule.flags})" if rule.flags else ""
    return [
        Issue(
            message=rule.message or f"Output does not match pattern {rule.pattern}",
            suggestion=f"Change the output so that it matches the pattern {rule.pattern}{flags}.",
        )
    ]


def length(rule: LengthRule, output: str) -> Sequence[Issue]:
    found = len(output)
    if rule.min is not None and found < rule.min:
        missing = rule.min - found
        return [
            Issue(
                message=rule.message or f"Output shorter than minimum length {rule.min}",
                suggestion=f"Add at least {missing} more characters (now {found}, at least {rule.min} are needed).",
            )
        ]
    if rule.max is not None and found > rule.max:
        return [
            Issue(
                message=rule.message or f"Output exceeds maximum length {rule.max}",
                suggestion=f"Remove at least {found - rule.max} characters (now {found}, at most {rule.max}).",
            )
        ]
    return ()


def schema(rule: SchemaRule, output: str) -> Sequence[Issue]:
    """JSON, bare or inside one Markdown code fence. Raises `BadSchema` for a malformed JSON Schema."""
    validator = compile_schema_text(bytes(rule.schema))
    if len(output) > MOST_JSON:
        return [
            Issue(
                message=rule.message or "Output is too long to be checked as JSON",
                suggestion=f"Shorten the JSON to at most {MOST_JSON:,} characters (now {len(output):,}).",
            )
        ]
    text = _unfenced(output).lstrip(_BLANKS)
    if text and text[0] not in _JSON_BEGINS_WITH:
        return [
            Issue(
                message=rule.message or "Output is not valid JSON",
                suggestion=f"Answer with JSON and nothing else: this begins with '{text[0]}', which no JSON does.",
            )
        ]
    try:
        value = parse_json(text.encode())
    except SyntaxProblem as problem:
        return [
            Issue(
                message=rule.message or "Output is not valid JSON",
                suggestion=f"Answer with JSON and nothing else: {problem.message}. {problem.suggestions[0]}.",
            )
        ]
    found = list(itertools.islice(misfits(validator, value, msgspec.json.decode(rule.schema)), _MOST_MISFITS + 1))
    if not found:
        return ()
    sentences = "; ".join(misfit.sentence() for misfit in found[:_MOST_MISFITS])
    more = "; and more" if len(found) > _MOST_MISFITS else ""
    return [
        Issue(
            message=rule.message or f"Output does not fit the JSON Schema: {sentences}",
            suggestion=f"Mend the JSON: {sentences}{more}.",
        )
    ]


def _unfenced(output: str) -> str:
    """What stands inside a single Markdown code fence; the output itself when there is none."""
    text = output.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return output
    _, newline, inside = text.removesuffix(_FENCE).partition("\n")
    return inside if newline and f"\n{_FENCE}" not in f"\n{inside}" else output


RULES: Final[Mapping[type, Callable[[Any, str], Sequence[Issue]]]] = MappingProxyType(
    {ContainsRule: contains, RegexRule: regex, LengthRule: length, SchemaRule: schema}
)
