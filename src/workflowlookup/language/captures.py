"""Captures: reads variables from the output of a step, as the map form of `produces` declares them.

A value is found by a pattern, by a JSON pointer, or by its name: as a property if the output is JSON, else in a line
`name: value`. It is converted and checked by a JSON Schema. A value that is missing or does not fit is an issue of the
output, which shows a line that would fit. `validation.judge_step` uses this module.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.formats.patterns import Budget, TooSlow, extract
from workflowlookup.language.formats.schemas import show
from workflowlookup.language.formats.syntax import SyntaxProblem, parse_json
from workflowlookup.language.model import Capture
from workflowlookup.language.rules import MAX_JSON, Issue, unfenced
from workflowlookup.language.templates import as_words
from workflowlookup.language.values import Json, as_boolean, as_number, json_equal, loosely_equal

MISSING: Final = msgspec.UNSET
_CLOSING_QUOTES: Final[Mapping[str, str]] = {"\u201c": "\u201d", "\u2018": "\u2019"}
"""Quotes whose closing character differs from the opening one."""
_MARKS: Final = "".join(["*_`~\"'", *_CLOSING_QUOTES, *_CLOSING_QUOTES.values()])
MAX_MARKS: Final = 64
STEPS_PER_LINE: Final = 10
"""The cost of reading one line (see `Budget.charge`)."""
_JSON_STARTS: Final = ("{", "[", '"', "-", "t", "f", "n", *"0123456789")
"""The first characters of JSON. Checked first, because the parser is slow at reporting errors in prose."""
_LINE_START: Final = re.compile(r"[\s>#]*(?:(?:[-*+•]|\d{1,3}[.)])\s+)*")


class CaptureResult(msgspec.Struct, frozen=True):
    """The captured values by variable, and the issues of the output."""

    values: Mapping[str, Json]
    issues: tuple[Issue, ...]


_NO_CAPTURES: Final = CaptureResult({}, ())


def capture_values(captures: Sequence[Capture], output: str, budget: Budget) -> CaptureResult:
    """Capture each variable. Raises `BadPattern` and `BadSchema`, which valid documents do not cause."""
    if not captures:
        return _NO_CAPTURES
    document = _as_json(output)
    lines: Sequence[str] = []
    if document is MISSING:
        with contextlib.suppress(TooSlow):  # the captures below report it
            budget.charge(len(output) // 20)  # splitting a long output takes time
        lines = [line for line in reversed(output.splitlines()) if ":" in line]
    values: dict[str, Json] = {}
    issues: list[Issue] = []
    for capture in captures:
        try:
            raw_value = _find(capture, output, document, lines, budget)
            value = _fit(raw_value, capture, budget) if raw_value is not MISSING else MISSING
        except TooSlow:
            issues.append(_too_slow(capture))
            continue
        if value is not MISSING:
            values[capture.name] = value
        elif raw_value is not MISSING or not capture.is_optional:
            issues.append(_issue(capture, raw_value, is_json=document is not MISSING))
    return CaptureResult(values, tuple(issues))


# ── finding a value ────────────────────────────────────────────────────────────────────────────────────────────


def _find(capture: Capture, output: str, document: Json, lines: Sequence[str], budget: Budget) -> Json:
    if capture.pattern:
        raw_value = extract(capture.pattern, capture.flags, output, budget)
        return MISSING if raw_value is None else raw_value
    if capture.pointer is not None:
        return _at_pointer(document, capture.pointer)
    if document is not MISSING:
        value = document.get(capture.name, MISSING) if isinstance(document, dict) else MISSING
        return MISSING if value is None and "null" not in _kinds(_schema(capture)) else value
    for line in lines:
        budget.charge(STEPS_PER_LINE + len(line) // 100)
        if value := value_in_line(line, capture.name):
            return value
    return MISSING


def _as_json(output: str) -> Json:
    """The output parsed as JSON, bare or in one Markdown code fence; `MISSING` if it is not JSON."""
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
    """The value of a line `name: value`, or "". Markdown marks, quotes and list dashes around both are removed."""
    line = line[_LINE_START.match(line).end() :].rstrip()  # type: ignore[union-attr]
    marks = len(line) - len(line.lstrip(_MARKS))
    start = next((at for at in range(min(marks, MAX_MARKS) + 1) if line.startswith(name, at)), None)
    if start is None:
        return ""
    opened, rest = line[:start], line[start + len(name) :]
    before_colon, colon, value = rest.partition(":")
    if not colon or before_colon.strip(_MARKS + " \t"):
        return ""
    closing = _closing_marks(opened)
    if closing and not before_colon.strip():  # marks opened before the name close after the colon or after the value
        if value.startswith(closing):
            value = value.removeprefix(closing)
        elif value.endswith(closing):
            value = value.removesuffix(closing)
    return _unquoted(value)


def _unquoted(text: str) -> str:
    """The text without a leading list dash and without marks and quotes that enclose it."""
    text = text.strip()
    text = text[2:].lstrip() if text.startswith(("- ", "* ")) else text
    for _ in range(MAX_MARKS):
        if len(text) < 2 or text[0] not in _MARKS or text[-1] != _closing_marks(text[0]):
            break
        text = text[1:-1].strip()
    return text


def _closing_marks(opened: str) -> str:
    return "".join(_CLOSING_QUOTES.get(mark, mark) for mark in reversed(opened.strip()))


# ── converting a value ──────────────────────────────────────────────────────────────────────────────────────────


def _fit(raw_value: Json, capture: Capture, budget: Budget) -> Json:
    """The likeliest reading that fits the schema; `MISSING` if none fits."""

    def find(_: float) -> Json:
        fits = capture.value.validator.is_valid
        readings = _readings(raw_value, _schema(capture))
        return next((value for value in readings if _is_storable(value) and fits(value)), MISSING)

    return budget.spend(find)


def _readings(raw_value: Json, schema: Mapping[str, Json]) -> Iterator[Json]:
    """Values that the raw value may stand for, the likeliest first."""
    options = schema.get("enum", ())
    for is_equal in (json_equal, loosely_equal):
        yield from (option for option in options if is_equal(option, raw_value))
    for kind in _kinds(schema) if isinstance(raw_value, str) else ():
        match kind:
            case "string":
                yield raw_value
            case "integer" | "number":
                number = as_number(raw_value)
                yield int(number) if isinstance(number, float) and number.is_integer() else number
            case "boolean":
                yield as_boolean(raw_value)
            case _:
                yield _as_json(raw_value)
    yield raw_value


def _is_storable(value: Json) -> bool:
    """Whether a journal can store it as JSON: `as_number` also reads larger numbers."""
    if value is MISSING or (isinstance(value, float) and not math.isfinite(value)):
        return False
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def _schema(capture: Capture) -> Mapping[str, Json]:
    schema = capture.value.schema
    return schema if isinstance(schema, Mapping) else {}


def _kinds(schema: Mapping[str, Json]) -> Sequence[str]:
    kinds = schema.get("type", ())
    return [kinds] if isinstance(kinds, str) else kinds


# ── issues ──────────────────────────────────────────────────────────────────────────────────────────────────────


def describe_capture(capture: Capture) -> str:
    """What the output must contain, as one sentence for the agent."""
    expected = capture.value.expected
    if capture.is_optional:
        return f"If it is known, the output states {capture.name} ({expected}): {how_to_say(capture)}"
    return f"The output states {capture.name} ({expected}): {how_to_say(capture)}"


def how_to_say(capture: Capture, *, is_json: bool = False) -> str:
    """What to add to the output."""
    example = capture.value.example
    if capture.pattern:
        return f"a passage that matches /{capture.pattern}/{capture.flags}"
    if capture.pointer is None and not is_json:
        return f"the line `{capture.name}: {as_words(example)}`"
    as_json = msgspec.json.encode(example).decode()
    if capture.pointer is not None:
        return f"JSON with {as_json} at {capture.pointer or 'its top'}"
    return f'the property "{capture.name}": {as_json}'


def _issue(capture: Capture, raw_value: Json, *, is_json: bool) -> Issue:
    problem = "is not in the output" if raw_value is MISSING else f"is {show(raw_value)} in the output"
    how = how_to_say(capture, is_json=is_json)
    return Issue(message=f"{capture.name} {problem}: expected {capture.value.expected}. Add {how}.")


def _too_slow(capture: Capture) -> Issue:
    return Issue(
        message=f"{capture.name} was not found in time: reading this output took too long",
        suggestion="Shorten the output; the author should simplify the patterns and JSON Schemas of this step.",
        is_undecided=True,
    )
