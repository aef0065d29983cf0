"""Variables out of outputs: what the map form of `produces` finds in the output of a step.

A value is found by a pattern, by a JSON pointer, or by its name: as a property when the output is JSON, else in a line
`name: value`. It is converted and checked by a JSON Schema. What is missing or does not fit is an issue of the output,
with the line that would be right. Nothing here knows of runs; `validation.judge_step` asks for it.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.guidance import as_words
from workflowlookup.language.model import Capture
from workflowlookup.language.patterns import Budget, TooSlow, extract
from workflowlookup.language.rules import MAX_JSON, Issue, unfenced
from workflowlookup.language.schemas import show
from workflowlookup.language.syntax import SyntaxProblem, parse_json
from workflowlookup.language.values import Json, as_boolean, as_number, json_equal, loosely_equal

MISSING: Final = msgspec.UNSET
_CLOSING: Final[Mapping[str, str]] = {"\u201c": "\u201d", "\u2018": "\u2019"}
"""Quotes that close otherwise than they open."""
_MARKS: Final = "".join(["*_`~\"'", *_CLOSING, *_CLOSING.values()])
MAX_MARKS: Final = 64
STEPS_PER_LINE: Final = 10
"""How many small steps it takes to read a line (see `Budget.charge`)."""
_JSON_STARTS: Final = ("{", "[", '"', "-", "t", "f", "n", *"0123456789")
"""How JSON may begin; most prose begins otherwise, and a parser takes long to say what is wrong with it."""
_LINE_START: Final = re.compile(r"[\s>#]*(?:(?:[-*+•]|\d{1,3}[.)])\s+)*")


class Captured(msgspec.Struct, frozen=True):
    """The values by name, and what is wrong with the output."""

    values: Mapping[str, Json]
    issues: tuple[Issue, ...]


_NOTHING: Final = Captured({}, ())


def capture(captures: Sequence[Capture], output: str, budget: Budget) -> Captured:
    """What the output says of each variable. Raises `BadPattern` and `BadSchema`, which sound documents do not have."""
    if not captures:
        return _NOTHING
    document = _as_json(output)
    lines: Sequence[str] = []
    if document is MISSING:
        with contextlib.suppress(TooSlow):  # the clock runs while the output is divided
            budget.spend(lambda _: None)
        lines = [line for line in reversed(output.splitlines()) if ":" in line]
    values: dict[str, Json] = {}
    issues: list[Issue] = []
    for wanted in captures:
        try:
            found = _find(wanted, output, document, lines, budget)
            value = _fit(found, wanted, budget) if found is not MISSING else MISSING
        except TooSlow:
            issues.append(_too_slow(wanted))
            continue
        if value is not MISSING:
            values[wanted.name] = value
        elif found is not MISSING or not wanted.is_optional:
            issues.append(_issue(wanted, found, is_json=document is not MISSING))
    return Captured(values, tuple(issues))


# ── where a value stands ────────────────────────────────────────────────────────────────────────────────────────


def _find(wanted: Capture, output: str, document: Json, lines: Sequence[str], budget: Budget) -> Json:
    if wanted.pattern:
        found = extract(wanted.pattern, wanted.flags, output, budget)
        return MISSING if found is None else found
    if wanted.pointer is not None:
        return _at_pointer(document, wanted.pointer)
    if document is not MISSING:
        value = document.get(wanted.name, MISSING) if isinstance(document, dict) else MISSING
        return MISSING if value is None and "null" not in _kinds(_schema(wanted)) else value
    for line in lines:
        budget.charge(STEPS_PER_LINE + len(line) // 100)
        if value := value_in_line(line, wanted.name):
            return value
    return MISSING


def _as_json(output: str) -> Json:
    """The output as JSON, alone or in one Markdown code fence; `MISSING` when it is something else."""
    text = unfenced(output).strip()
    if not text.startswith(_JSON_STARTS) or len(text) > MAX_JSON:
        return MISSING
    try:
        return parse_json(text.encode("utf-8", "replace"))
    except SyntaxProblem:
        return MISSING


def _at_pointer(document: Json, pointer: str) -> Json:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(name, MISSING)
        elif isinstance(document, list) and name.isascii() and name.isdecimal() and len(name) < 10:
            document = document[int(name)] if int(name) < len(document) else MISSING
        else:
            return MISSING
    return document


def value_in_line(line: str, name: str) -> str:
    """The value of a line `name: value`, without Markdown marks, quotes and list dashes around either; else nothing."""
    line = line[_LINE_START.match(line).end() :].rstrip()  # type: ignore[union-attr]
    marks = len(line) - len(line.lstrip(_MARKS))
    start = next((at for at in range(min(marks, MAX_MARKS) + 1) if line.startswith(name, at)), None)
    if start is None:
        return ""
    opened, rest = line[:start], line[start + len(name) :]
    before_colon, colon, value = rest.partition(":")
    if not colon or before_colon.strip(_MARKS + " \t"):
        return ""
    closing = _closing(opened)
    if closing and not before_colon.strip():  # what opened before the name closes behind the colon, or the value
        if value.startswith(closing):
            value = value.removeprefix(closing)
        elif value.endswith(closing):
            value = value.removesuffix(closing)
    return _bare(value)


def _bare(text: str) -> str:
    """The text without a list dash before it, and without marks and quotes that stand on both sides of it."""
    text = text.strip()
    text = text[2:].lstrip() if text.startswith(("- ", "* ")) else text
    for _ in range(MAX_MARKS):
        if len(text) < 2 or text[0] not in _MARKS or text[-1] != _closing(text[0]):
            break
        text = text[1:-1].strip()
    return text


def _closing(opened: str) -> str:
    return "".join(_CLOSING.get(mark, mark) for mark in reversed(opened.strip()))


# ── what it is read as ──────────────────────────────────────────────────────────────────────────────────────────


def _fit(found: Json, wanted: Capture, budget: Budget) -> Json:
    """The value that was meant and fits the schema; `MISSING` when there is none."""

    def find(_: float) -> Json:
        fits = wanted.value.validator.is_valid
        readings = _readings(found, _schema(wanted))
        return next((value for value in readings if _can_be_kept(value) and fits(value)), MISSING)

    return budget.spend(find)


def _readings(found: Json, schema: Mapping[str, Json]) -> Iterator[Json]:
    """What a value may be read as, the likeliest first."""
    options = schema.get("enum", ())
    for is_equal in (json_equal, loosely_equal):
        yield from (option for option in options if is_equal(option, found))
    for kind in _kinds(schema) if isinstance(found, str) else ():
        match kind:
            case "string":
                yield found
            case "integer" | "number":
                number = as_number(found)
                yield int(number) if isinstance(number, float) and number.is_integer() else number
            case "boolean":
                yield as_boolean(found)
            case _:
                yield _as_json(found)
    yield found


def _can_be_kept(value: Json) -> bool:
    """Whether it is JSON that a journal can hold: `as_number` also reads what is larger."""
    if value is MISSING or (isinstance(value, float) and not math.isfinite(value)):
        return False
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def _schema(wanted: Capture) -> Mapping[str, Json]:
    schema = wanted.value.schema
    return schema if isinstance(schema, Mapping) else {}


def _kinds(schema: Mapping[str, Json]) -> Sequence[str]:
    kinds = schema.get("type", ())
    return [kinds] if isinstance(kinds, str) else kinds


# ── what is wrong ───────────────────────────────────────────────────────────────────────────────────────────────


def describe_capture(wanted: Capture) -> str:
    """What the output must say, as one sentence for the agent."""
    expected = wanted.value.expected
    if wanted.is_optional:
        return f"If it is known, the output says {wanted.name} ({expected}): {how_to_say(wanted)}"
    return f"The output says {wanted.name} ({expected}): {how_to_say(wanted)}"


def how_to_say(wanted: Capture, *, is_json: bool = False) -> str:
    """What to add to the output."""
    example = wanted.value.example
    as_json = msgspec.json.encode(example).decode()
    if wanted.pattern:
        return f"a passage that matches /{wanted.pattern}/{wanted.flags}"
    if wanted.pointer is not None:
        return f"JSON with {as_json} at {wanted.pointer or 'its top'}"
    return f'the property "{wanted.name}": {as_json}' if is_json else f"the line `{wanted.name}: {as_words(example)}`"


def _issue(wanted: Capture, found: Json, *, is_json: bool) -> Issue:
    problem = "is not in the output" if found is MISSING else f"is {show(found)} in the output"
    how = how_to_say(wanted, is_json=is_json)
    return Issue(
        message=f"{wanted.name} {problem}: expected {wanted.value.expected}. Add {how}.",
        suggestion=f"Add {how} to the output.",
    )


def _too_slow(wanted: Capture) -> Issue:
    return Issue(
        message=f"{wanted.name} could not be looked for: it took too long on this output and was given up",
        suggestion="Shorten the output; the author should simplify the patterns and JSON Schemas of this step.",
        is_undecided=True,
    )
