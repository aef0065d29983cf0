"""The short forms: a line of a list below `### Criteria` or `### Proof`, and the rule or proof that it stands for.

A form is one template in `CRITERIA` or `PROOFS`, from which both directions come: `{min:number}` is a field of the JSON
value, and its kind in `KINDS` says how it is written. After the form, `: ` and a text is the message; before the form
of a proof, a word and `: ` is its name. A value without a form is written in the `step` block.
"""

import functools
import re
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.language.values import Json, json_equal


class Kind(msgspec.Struct, frozen=True):
    """How a field is written within a form. `write` raises `TypeError` or `ValueError` for a value without a form."""

    pattern: str
    read: Callable[[str], Json]
    write: Callable[[Any], str]


def _code(text: str) -> str:
    if "`" in text or not text:
        raise ValueError(text)
    return f"`{text}`"


def _codes(texts: list[str]) -> str:
    return ", ".join(map(_code, texts))


KINDS: Final[Mapping[str, Kind]] = MappingProxyType({
    "number": Kind(r"\d{1,9}", int, "{:d}".format),
    "text": Kind(r'"(?:\\.|[^"\\])*"', msgspec.json.decode, lambda text: msgspec.json.encode(text).decode()),
    "pattern": Kind(r"(?:\\.|[^\\])+?", str, str),
    "flags": Kind(r"[gimsuy]*", str, str),
    "words": Kind(r"`[^`]+`", lambda code: shlex.split(code[1:-1]), lambda words: _code(shlex.join(words))),
    "code": Kind(r"`[^`]+`", lambda code: code[1:-1], _code),
    "codes": Kind(r"`[^`]+`(?:, `[^`]+`)*", lambda codes: codes[1:-1].split("`, `"), _codes),
    "since": Kind(r"step|run", str, str),
})  # fmt: skip

_FIELD: Final = re.compile(r"\{(\w+):(\w+)\}")
_MESSAGE: Final = r"(?: *: +(?P<message>\S.*))?"
_NAME: Final = r"(?:(?P<name>[A-Za-z_][A-Za-z0-9_-]*): +)?"


class ShortForm(msgspec.Struct, frozen=True):
    """One way to write a rule or a proof on a line."""

    template: str
    fixed: Mapping[str, Json]
    """The fields that every value of this form has."""
    example: str
    is_negated: bool = False
    """Whether the rule stands in `not`."""

    @property
    def is_proof(self) -> bool:
        return "kind" in self.fixed

    @property
    def fields(self) -> Mapping[str, Kind]:
        return {name: KINDS[kind] for name, kind in _FIELD.findall(self.template)}

    def read(self, line: str) -> Json:
        """The value of a line; None if it has another form."""
        match = _pattern(self.template, has_name=self.is_proof).fullmatch(line)
        if match is None:
            return None
        try:
            values = {name: kind.read(match[name]) for name, kind in self.fields.items()}
        except (ValueError, msgspec.DecodeError):  # text or a command with a broken escape or quote
            return None
        value = {**self.fixed, **{name: value for name, value in values.items() if value != ""}}
        if self.is_proof:
            return value | {name: match[name] for name in ("name", "message") if match[name]}
        value["message"] = match["message"] or ""
        return {"not": value} if self.is_negated else value

    def write(self, value: Json) -> str | None:
        """The line of a value; None if it has another form."""
        inner = value.get("not") if self.is_negated else value
        if not isinstance(inner, dict) or any(inner.get(name) != fixed for name, fixed in self.fixed.items()):
            return None
        try:
            line = _FIELD.sub(lambda match: KINDS[match[2]].write(inner.get(match[1], "")), self.template)
        except (TypeError, ValueError):
            return None
        name = f"{inner['name']}: " if self.is_proof and "name" in inner else ""
        message = f": {inner['message']}" if inner.get("message") else ""
        return f"{name}{line}{message}"


@functools.cache
def _pattern(template: str, *, has_name: bool) -> re.Pattern[str]:
    parts = _FIELD.split(template)  # text, name, kind, text, name, kind, …, text
    written = re.escape(parts[0])
    for name, kind, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        written += f"(?P<{name}>{KINDS[kind].pattern}){re.escape(text)}"
    return re.compile((_NAME if has_name else "") + written + _MESSAGE)


def _criterion(example: str, template: str, kind: str, *, is_negated: bool = False) -> ShortForm:
    return ShortForm(template, {"type": kind}, example, is_negated)


def _proof(example: str, template: str, kind: str, **fixed: Json) -> ShortForm:
    return ShortForm(template, {"kind": kind, **fixed}, example)


CRITERIA: Final = (
    _criterion("at least 150 characters", "at least {min:number} characters", "length"),
    _criterion("at most 1500 characters", "at most {max:number} characters", "length"),
    _criterion("150 to 1500 characters", "{min:number} to {max:number} characters", "length"),
    _criterion('contains "Symptom"', "contains {value:text}", "contains"),
    _criterion('does not contain "TODO"', "does not contain {value:text}", "contains", is_negated=True),
    _criterion("matches /^Result/im", "matches /{pattern:pattern}/{flags:flags}", "regex"),
    _criterion("does not match /simply/i", "does not match /{pattern:pattern}/{flags:flags}", "regex", is_negated=True),
)
PROOFS: Final = (
    _proof("`make test` passes", "{run:words} passes", "command"),
    _proof("`make test` passes within 300 seconds", "{run:words} passes within {timeout:number} seconds", "command"),
    _proof("`make test` fails", "{run:words} fails", "command", exitCode="nonzero"),
    _proof("the project's command `test` passes", "the project's command {use:code} passes", "command"),
    _proof(
        "the project's command `test` passes within 300 seconds",
        "the project's command {use:code} passes within {timeout:number} seconds",
        "command",
    ),
    _proof(
        *("the project's command `test` fails", "the project's command {use:code} fails", "command"), exitCode="nonzero"
    ),
    _proof("file `CHANGELOG.md` exists", "file {path:code} exists", "file"),
    _proof("file `notes.txt` does not exist", "file {path:code} does not exist", "file", exists=False),
    _proof(
        "file `CHANGELOG.md` has changed since the run began",
        "file {path:code} has changed since the {changed:since} began",
        "file",
    ),
    _proof("`src/**`, `tests/**` changed", "{changed:codes} changed", "git"),
    _proof("`src/**` changed since the step began", "{changed:codes} changed since the {since:since} began", "git"),
    _proof("`tests/**` unchanged", "{unchanged:codes} unchanged", "git"),
    _proof("`**` unchanged since the run began", "{unchanged:codes} unchanged since the {since:since} began", "git"),
    _proof("no uncommitted changes", "no uncommitted changes", "git", clean=True),
    _proof("`http://localhost:8000/health` answers", "{url:code} answers", "http"),
    _proof(
        "`http://localhost:8000/old` answers with status 404",
        "{url:code} answers with status {status:number}",
        "http",
    ),
)
ONE_OF: Final = "one of:"
"""Stands above an inner list of criteria: `or`."""


def read_line(line: str, forms: tuple[ShortForm, ...]) -> Json:
    """The value of a line without its dash; None if it has no form."""
    return next((value for form in forms if (value := form.read(line)) is not None), None)


def write_line(value: Json, forms: tuple[ShortForm, ...]) -> str | None:
    """The line of a value, without a dash; None if it has no form."""
    if not isinstance(value, dict):
        return None
    for form in forms:
        line = form.write(value)
        is_line = line is not None and line == line.strip() and not re.search(r"[\n\r]", line)
        if line is not None and is_line and json_equal(read_line(line, forms), value):
            return line
    return None


def write_lines(values: Json, forms: tuple[ShortForm, ...]) -> list[str] | None:
    """The list of these values; None if it is empty or one of them has no form."""
    if not isinstance(values, list) or not values:
        return None
    lines: list[str] = []
    for value in values:
        is_group = forms is CRITERIA and isinstance(value, dict) and list(value) == ["or"]
        inner = value["or"] if is_group else [value]
        written = [write_line(item, forms) for item in inner] if isinstance(inner, list) else []
        if not written or None in written:
            return None
        lines += [f"- {ONE_OF}", *(f"  - {line}" for line in written)] if is_group else [f"- {written[0]}"]
    return lines


def suggestion(line: str, source_line: int) -> str:
    """A short form as a comment, which has no effect. Without the comment marks it is a line of the list.

    `-->` would end the comment: in a text or a pattern, the escape means the same.
    """
    return f"<!-- suggested, from line {source_line}: - {line.replace('-->', '--' + ESCAPED_MARK)} -->"


ESCAPED_MARK: Final = r"\u003e"


def in_words(forms: tuple[ShortForm, ...]) -> str:
    """The forms that exist, for a line that has none."""
    examples = [f"- {form.example}" for form in forms] + ([f"- {ONE_OF}"] if forms is CRITERIA else [])
    return "; ".join(examples)
