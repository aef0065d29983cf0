"""Validation criteria: the rules that an output can be judged by, and groups of rules.

A rule is one struct, which says all that others need to know about it: how it judges, its words, what may be wrong with
it, and which of its fields may contain templates. A new rule is a struct here, a line in `RULES` and its `type` in
`workflow.schema.json`. Malformed criteria become `MalformedCriteria`, a value: the document still loads and guides an
agent, and only judging that step is refused. `validation` applies criteria to an output.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Self, TypeAlias

import msgspec

from workflowlookup.language.conditions import CompiledCondition, construct_from_json
from workflowlookup.language.formats.pattern_words import pattern_in_words
from workflowlookup.language.formats.patterns import BadPattern, Budget, TooSlow, compile_pattern
from workflowlookup.language.formats.schemas import (
    BadSchema,
    Misfit,
    PathTo,
    Validator,
    compile_schema,
    compile_schema_text,
)
from workflowlookup.language.formats.syntax import SyntaxProblem, parse_json
from workflowlookup.language.values import Context, Json, extent
from workflowlookup.language.workflow_schema import workflow_schema

_FENCE: Final = "```"
_BLANKS: Final = " \t\r\n"
_JSON_BEGINS_WITH: Final = frozenset('{["-0123456789tfn')
_MAX_MISFITS: Final = 5
MAX_JSON: Final = 256 * 1024

NO_MATCH: Final = "Output does not match pattern {}"
_SHORTEN: Final = "Shorten the output; the author should use fewer rules."
GIVEN_UP: Final = "The pattern {} took too long on this output and was given up"


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of an output: the author's message, and what would fix it."""

    message: str
    suggestion: str = ""
    """Empty if the message says it all."""
    is_undecided: bool = False
    """Whether the rule could not be applied. Then its negation fails too."""


RuleCheck = Callable[[str, Context, Budget], Sequence[Issue] | None]
"""The issues of an output by one rule; rules ignore the context."""

Contexts = tuple[Context, ...]
"""The context when the step was handed out, then the one with the changes sent with the output; one if equal."""

CriteriaCheck = Callable[[str, Contexts, Budget], Sequence[Issue] | None]
"""The issues of an output by criteria; None if none of the rules applies.

A rule applies if its condition holds in any of the contexts, and its templates take a variable from the first context
that has it. So the changes sent with an output cannot disable or alter a rule.
"""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement of an output. Every rule defines `check` and `words`."""

    texts: ClassVar[Sequence[str]] = ()
    """Names of fields with text to search for. They may contain templates, like the message."""
    patterns: ClassVar[Sequence[str]] = ()
    """Names of fields with patterns. They may contain templates, whose values are escaped."""

    message: str
    condition: CompiledCondition | None = None

    def check(self) -> RuleCheck:
        """The compiled check, without `condition`. The check may raise `BadPattern` and `BadSchema`."""
        raise NotImplementedError

    def words(self) -> str:
        """What it requires, as a sentence for a model."""
        raise NotImplementedError

    def flaws(self, budget: Budget) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - for rules that can have flaws
        """Why it cannot be applied to any output: pairs of a field and a reason. Raises `TooSlow`."""
        yield from ()

    def describe(self) -> str:
        """What it requires, followed by the author's message."""
        return f"{self.words()}: {self.message}" if self.message else self.words()


class ContainsRule(Rule, frozen=True, kw_only=True, tag="contains"):
    """The output contains a text. Case matters."""

    texts = ("value",)

    value: str

    def check(self) -> RuleCheck:
        value = self.value
        message = self.message or f'Output must include "{value}"'
        suggestion = f'Include the text "{value}" in the output.'
        absent = (Issue(message=message, suggestion=suggestion),)
        in_other_case = (Issue(message=message, suggestion=f"{suggestion} The case matters."),)

        def check(output: str, _: Context, budget: Budget) -> Sequence[Issue]:
            try:
                budget.charge(1 + len(output) // 200)
            except TooSlow:
                given_up = "The text was not searched for: the rules before it took too long"
                return (Issue(message=f"{message} ({given_up})", suggestion=_SHORTEN, is_undecided=True),)
            if value in output:
                return ()
            return in_other_case if value.casefold() in budget.folded(output) else absent

        return check

    def words(self) -> str:
        return f'The output contains the text "{self.value}" (with this case)'


class RegexRule(Rule, frozen=True, kw_only=True, tag="regex"):
    """The output matches an ECMAScript pattern."""

    patterns = ("pattern",)

    pattern: str
    flags: str = ""

    def check(self) -> RuleCheck:
        pattern, flags = self.pattern, self.flags

        @functools.cache
        def absent() -> Sequence[Issue]:
            words = pattern_in_words(pattern, flags)
            suggestion = f"The output must {words}." if words else ""
            return (Issue(message=self.message or NO_MATCH.format(pattern), suggestion=suggestion),)

        def check(output: str, _: Context, budget: Budget) -> Sequence[Issue]:
            try:
                return () if compile_pattern(pattern, flags, budget)(output, budget) else absent()
            except TooSlow:
                message = GIVEN_UP.format(pattern)
                suggestion = "Shorten the output; the author should simplify the pattern, which backtracks too much."
                return (Issue(message=message, suggestion=suggestion, is_undecided=True),)

        return check

    def words(self) -> str:
        return f"The output matches the regular expression /{self.pattern}/{self.flags}"

    def describe(self) -> str:
        return self.message or self.words()

    def flaws(self, budget: Budget) -> Iterator[tuple[str, str]]:
        try:
            compile_pattern(self.pattern, self.flags, budget)
        except BadPattern as problem:
            yield "pattern", f"The pattern '{self.pattern}' does not compile ({problem})"


class LengthRule(Rule, frozen=True, kw_only=True, tag="length"):
    """The length of the output is within limits."""

    min: int | None = None
    max: int | None = None

    def check(self) -> RuleCheck:
        least, most = self.min, self.max

        def check(output: str, _: Context, __: Budget) -> Sequence[Issue]:
            length = len(output)
            if least is not None and length < least:
                message = self.message or f"Output shorter than minimum length {least}"
                advice = f"Add at least {least - length} more characters (now {length}, at least {least} are needed)."
            elif most is not None and length > most:
                message = self.message or f"Output exceeds maximum length {most}"
                advice = f"Remove at least {length - most} characters (now {length}, at most {most})."
            else:
                return ()
            return (Issue(message=message, suggestion=advice),)

        return check

    def words(self) -> str:
        least, most = self.min, self.max
        if least and most is not None:
            return f"The output is {least} to {most} characters long"
        return f"The output is {f'at most {most}' if most is not None else f'at least {least or 0}'} characters long"


class SchemaText(bytes):
    """A JSON Schema as text, so that equal ones are compiled once."""

    def __new__(cls, schema: Json) -> Self:
        return super().__new__(cls, msgspec.json.encode(schema))


class SchemaRule(Rule, frozen=True, kw_only=True, tag="schema"):
    """The output is JSON, bare or inside one Markdown code fence, that fits a JSON Schema."""

    schema: SchemaText

    def check(self) -> RuleCheck:
        def check(output: str, _: Context, budget: Budget) -> Sequence[Issue]:
            if len(output) > MAX_JSON:
                advice = f"Shorten the JSON to at most {MAX_JSON:,} characters (now {len(output):,})."
                return (Issue(message=self.message or "Output is too long to be checked as JSON", suggestion=advice),)
            try:
                return budget.spend(lambda _: judge(output))
            except TooSlow as problem:
                message = "Checking this output by the JSON Schema was given up" + (
                    f": {problem}" if str(problem) else ""
                )
                suggestion = "Shorten the output; the author should simplify the JSON Schemas of this step."
                return (Issue(message=message, suggestion=suggestion, is_undecided=True),)

        def judge(output: str) -> Sequence[Issue]:
            validator = compile_schema_text(self.schema)
            text = unfenced(output).lstrip(_BLANKS)
            if text and text[0] not in _JSON_BEGINS_WITH:
                return no_json(f"this begins with '{text[0]}', and JSON never does")
            try:
                value = parse_json(text.encode())
            except SyntaxProblem as problem:
                return no_json(f"{problem.message}. {problem.suggestions[0]}")
            first = list(itertools.islice(validator.misfits(value), _MAX_MISFITS + 1))
            if not first:
                return ()
            sentences = "; ".join(misfit.sentence() for misfit in first[:_MAX_MISFITS])
            more = "; and more" if len(first) > _MAX_MISFITS else ""
            message = self.message or f"Output does not fit the JSON Schema: {sentences}"
            return (Issue(message=message, suggestion=f"Fix the JSON: {sentences}{more}."),)

        def no_json(why: str) -> Sequence[Issue]:
            advice = f"Answer with JSON and nothing else: {why}."
            return (Issue(message=self.message or "Output is not valid JSON", suggestion=advice),)

        return check

    def words(self) -> str:
        return f"The output is JSON that fits this JSON Schema: {self.schema.decode()}"

    def flaws(self, budget: Budget) -> Iterator[tuple[str, str]]:
        try:
            budget.spend(lambda _: compile_schema_text(self.schema))
        except BadSchema as problem:
            yield "schema", f"The JSON Schema of a rule is malformed ({problem})"


def unfenced(output: str) -> str:
    """The content of a single Markdown code fence; the output itself if it is not one."""
    text = output.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return output
    _, newline, inside = text.removesuffix(_FENCE).partition("\n")
    return inside if newline and f"\n{_FENCE}" not in f"\n{inside}" else output


RULES: Final[Mapping[str, type[Rule]]] = MappingProxyType(
    {str(kind.__struct_config__.tag): kind for kind in (ContainsRule, RegexRule, LengthRule, SchemaRule)}
)
"""By `type`, as the author writes it."""


# ── criteria: rules and groups of rules ─────────────────────────────────────────────────────────────────────────


class AllOf(msgspec.Struct, frozen=True, kw_only=True):
    """Every part must pass: a list, or `and`."""

    parts: tuple["Criterion", ...]


class AnyOf(msgspec.Struct, frozen=True, kw_only=True):
    """One part must pass: `or`."""

    parts: tuple["Criterion", ...]


class Not(msgspec.Struct, frozen=True, kw_only=True):
    """The part must not pass: `not`."""

    part: "Criterion"


class MalformedCriteria(msgspec.Struct, frozen=True, kw_only=True):
    """Malformed criteria. The document loads; judging the step is refused with this reason."""

    reason: str


Criterion: TypeAlias = Rule | AllOf | AnyOf | Not | MalformedCriteria


MAX_CRITERIA_PARTS: Final = 200
_PLAIN_PATTERN_MESSAGE: Final = "Output must match the pattern {pattern}"


def parse_criteria(data: Json) -> Criterion | None:
    """The criteria of a step; None if it has none."""
    if data is None or data == []:
        return None
    if not _criteria_validator().is_valid(data):
        return MalformedCriteria(reason="; ".join(misfit.sentence() for misfit in misfits_in(data)))
    try:
        return _group(data)
    except msgspec.ValidationError as problem:  # a rule that fits the schema but not its struct
        return MalformedCriteria(reason=str(problem))


def misfits_in(data: Json) -> Iterator[Misfit]:
    """The misfits of malformed criteria; of large ones only the first, because the validator finds all at once."""
    validator = _criteria_validator()
    return validator.first_misfit(data) if extent(data)[0] > MAX_CRITERIA_PARTS else validator.misfits(data)


def _criteria_schema() -> dict[str, Json]:
    schema = workflow_schema()
    return {**schema["$defs"]["criteria"], "$defs": schema["$defs"]}


@functools.cache
def _criteria_validator() -> Validator:
    return compile_schema(_criteria_schema(), is_ours=True)


def _group(data: Json) -> Criterion:
    if isinstance(data, list):
        return AllOf(parts=tuple(map(_group, data)))
    if isinstance(data, str):
        return RegexRule(pattern=data, message=_PLAIN_PATTERN_MESSAGE.format(pattern=data))
    if "and" in data:
        return AllOf(parts=tuple(map(_group, data["and"])))
    if "or" in data:
        return AnyOf(parts=tuple(map(_group, data["or"])))
    if "not" in data:
        return Not(part=_group(data["not"]))
    if data["type"] not in RULES:
        raise msgspec.ValidationError(f"there is no rule of type '{data['type']}'")
    return msgspec.convert(data, RULES[data["type"]], strict=False, dec_hook=construct_from_json)


def each_rule(criterion: Criterion | None) -> Iterator[Rule]:
    """All rules in a criterion, at any depth."""
    match criterion:
        case AllOf(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from each_rule(part)
        case Not(part=part):
            yield from each_rule(part)
        case Rule():
            yield criterion


def rules_in(criteria: Json, path: PathTo) -> Iterator[tuple[PathTo, Json]]:
    """All rules in criteria, at any depth, each with its path; none if the criteria are malformed."""
    waiting = [] if isinstance(parse_criteria(criteria), MalformedCriteria | None) else [(path, criteria)]
    while waiting:
        at, part = waiting.pop()  # from the end: a list of rules may be as long as a document
        group = next((key for key in ("and", "or", "not") if key in part), "") if isinstance(part, dict) else ""
        if isinstance(part, list):
            waiting += reversed([((*at, index), item) for index, item in enumerate(part)])
        elif group:
            waiting.append(((*at, group), part[group]))
        else:
            yield at, part


def flaws_in(criteria: Json, path: PathTo, budget: Budget) -> Iterator[tuple[PathTo, str]]:
    """Why well-formed rules cannot be applied, each reason with its path."""
    for at, data in rules_in(criteria, path):
        rule = _group(data)
        try:
            for field, flaw in rule.flaws(budget) if isinstance(rule, Rule) else ():
                yield (*at, field) if isinstance(data, Mapping) else at, flaw
        except TooSlow:
            yield at, "The pattern was not checked: the patterns before it took too long to compile"
