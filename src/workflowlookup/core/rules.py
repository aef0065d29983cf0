"""The rules that an output can be judged by: one generator each, and the table `RULES`.

A rule yields an `Issue` for what is wrong and nothing when all is well. A new rule is a struct in `model.py`, a
generator here, a line in `RULES` and a property in `workflow.schema.json`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.core.model import ContainsRule, Issue, LengthRule, RegexRule, SchemaRule
from workflowlookup.core.patterns import TooSlow, compile_pattern
from workflowlookup.core.schemas import compile_schema_text, misfits
from workflowlookup.core.syntax import SyntaxProblem, parse_json

_FENCE: Final = "```"
_MOST_MISFITS: Final = 5
MOST_JSON: Final = 256 * 1024


def contains(rule: ContainsRule, output: str) -> Iterator[Issue]:
    if rule.value not in output:
        hint = " The case counts." if rule.value.casefold() in output.casefold() else ""
        yield Issue(
            message=rule.message or f'Output must include "{rule.value}"',
            suggestion=f'Include the text "{rule.value}" in the output.{hint}',
        )


def regex(rule: RegexRule, output: str) -> Iterator[Issue]:
    """Raises `BadPattern` for a pattern that does not compile."""
    try:
        found = compile_pattern(rule.pattern, rule.flags)(output)
    except TooSlow:
        yield Issue(
            message=f"The pattern {rule.pattern} took too long on this output and was given up",
            suggestion="Shorten the output; the author should simplify the pattern, which backtracks without end.",
            is_undecided=True,
        )
        return
    if not found:
        flags = f" (flags {rule.flags})" if rule.flags else ""
        yield Issue(
            message=rule.message or f"Output does not match pattern {rule.pattern}",
            suggestion=f"Change the output so that it matches the pattern {rule.pattern}{flags}.",
        )


def length(rule: LengthRule, output: str) -> Iterator[Issue]:
    missing = (rule.min or 0) - len(output)
    if missing > 0:
        yield Issue(
            message=rule.message or f"Output shorter than minimum length {rule.min}",
            suggestion=f"Add at least {missing} more characters (now {len(output)}, at least {rule.min} are needed).",
        )
    if rule.max is not None and len(output) > rule.max:
        yield Issue(
            message=rule.message or f"Output exceeds maximum length {rule.max}",
            suggestion=f"Remove at least {len(output) - rule.max} characters (now {len(output)}, at most {rule.max}).",
        )


def schema(rule: SchemaRule, output: str) -> Iterator[Issue]:
    """JSON, bare or inside one Markdown code fence. Raises `BadSchema` for a malformed JSON Schema."""
    validator = compile_schema_text(bytes(rule.schema))
    if len(output) > MOST_JSON:
        yield Issue(
            message=rule.message or "Output is too long to be checked as JSON",
            suggestion=f"Shorten the JSON to at most {MOST_JSON:,} characters (now {len(output):,}).",
        )
        return
    try:
        value = parse_json(_unfenced(output).encode())
    except SyntaxProblem as problem:
        yield Issue(
            message=rule.message or "Output is not valid JSON",
            suggestion=f"Answer with JSON and nothing else: {problem.message}. {problem.suggestions[0]}.",
        )
        return
    found = list(itertools.islice(misfits(validator, value, msgspec.json.decode(rule.schema)), _MOST_MISFITS + 1))
    if found:
        sentences = "; ".join(misfit.sentence() for misfit in found[:_MOST_MISFITS])
        more = "; and more" if len(found) > _MOST_MISFITS else ""
        yield Issue(
            message=rule.message or f"Output does not fit the JSON Schema: {sentences}",
            suggestion=f"Mend the JSON: {sentences}{more}.",
        )


def _unfenced(output: str) -> str:
    """What stands inside a single Markdown code fence; the output itself when there is none."""
    text = output.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return output
    _, newline, inside = text.removesuffix(_FENCE).partition("\n")
    return inside if newline and f"\n{_FENCE}" not in f"\n{inside}" else output


RULES: Final[Mapping[type, Callable[[Any, str], Iterator[Issue]]]] = MappingProxyType(
    {ContainsRule: contains, RegexRule: regex, LengthRule: length, SchemaRule: schema}
)
