"""JSON values, and how conditions compare them.

`json_equal` is the equality of JSON: true is not 1, and 1 is 1.0. `loosely_equal` is what the author of a condition
means by equal: case and surrounding spaces are ignored, "42" equals 42, and "yes" equals true.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from workflowlookup.language.text import shorten

Json: TypeAlias = Any
"""None, bool, int, float, str, and lists and dicts (with text keys) of these."""

Context: TypeAlias = Mapping[str, Json]

DEFAULT_VERSION: Final = "1.0.0"
DEFAULT_CATEGORY: Final = "workflow"
"""The version and category of a workflow that declares none."""
MAX_CONTEXT_BYTES: Final = 256 * 1024
"""Limit on the size of a context as JSON."""
MAX_TIMEOUT_SECONDS: Final = 365 * 86_400
"""Limit on the timeout of a run."""

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MAX_DIGITS: Final = 400
_TRUE: Final = frozenset({"true", "yes", "1"})
_FALSE: Final = frozenset({"false", "no", "0"})
_MAX_BOOLEAN_LENGTH: Final = 5
_MAX_FOLD_GROWTH: Final = 3
"""Limit on the number of characters that one becomes by case folding."""


def is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_number(value: Json) -> int | float | None:
    """The number, or the value of a text that is a decimal number; else None."""
    kind = type(value)
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is not str:
        return None
    text = value.strip()
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)


def as_boolean(value: Json) -> bool | None:
    """The boolean, or the value of a text that means true or false; else None."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip()
        word = word.casefold() if len(word) <= _MAX_BOOLEAN_LENGTH else ""
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
    return None


def text_or_json(value: Json) -> str:
    """A text unchanged, any other value as JSON. Raises what `msgspec` raises if it is not JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def as_text(value: Json) -> str | None:
    """A scalar as a person would write it; None for null, lists and objects."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 4 * _MAX_DIGITS:
        return None  # Python refuses to write integers of thousands of digits
    return str(value) if is_number(value) else None


def json_equal(left: Json, right: Json) -> bool:
    """Deep equality of JSON values."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(json_equal(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(json_equal, left, right))
    return bool(left == right)


def loosely_equal(left: Json, right: Json) -> bool:
    """Equality as the author of a condition means it; null means a missing variable."""
    if left is None or right is None:
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right or _equal_ignoring_case(left.strip(), right.strip())
    if isinstance(left, str) or isinstance(right, str):
        text, other = (left, right) if isinstance(left, str) else (right, left)
        if isinstance(other, bool):
            return as_boolean(text) is other
        return is_number(other) and as_number(text) == other
    return json_equal(left, right)


def is_truthy(value: Json) -> bool:
    """Whether a variable without an operator counts as true in a condition."""
    if isinstance(value, str):
        return value.strip() != "" and as_boolean(value) is not False
    return bool(value)


def lookup(context: Context, name: str) -> Json:
    """The value of a variable: by the literal key, else by a dotted path; None if there is none."""
    if name in context:
        return context[name]
    if "." not in name:
        return None
    value: Json = context
    for part in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal() and len(part) < 10:
            index = int(part)
            value = value[index] if index < len(value) else None
        else:
            return None
    return value


def assign(context: Context, variables: Context) -> dict[str, Json]:
    """The context with these variables set. Literal keys that would hide a part of one, as `task.size`, are removed."""
    rest = {name: value for name, value in context.items() if "." not in name or lookup(variables, name) is None}
    return {**rest, **variables}


def dotted_prefixes(name: str) -> Iterator[str]:
    """The name and its prefixes at dots: `a.b` and `a` for `a.b`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def is_set(context: Context, name: str) -> bool:
    """Whether the variable exists, even if it is null."""
    outer, _, last = name.rpartition(".")
    return name in context or (
        bool(outer) and isinstance(outer_value := lookup(context, outer), Mapping) and last in outer_value
    )


def deeper_than(value: Json, limit: int) -> bool:
    """Whether lists and objects nest deeper than `limit`; safe for values of any depth."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def extent(value: Json) -> tuple[int, int]:
    """The number of parts of a value, including names, and the number of characters."""
    parts = characters = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        parts += 1
        if isinstance(part, str):
            characters += len(part)
        elif isinstance(part, Mapping):
            parts += len(part)
            characters += sum(map(len, part))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return parts, characters


_BYTES_OF_PART: Final = 250


def json_bytes(value: Json) -> int:
    """Estimated bytes of a value in memory, including what is built from it."""
    parts, characters = extent(value)
    return _BYTES_OF_PART * parts + characters


def nests_deeper(text: bytes, value: Json, limit: int) -> bool:
    """`deeper_than` for the value of a JSON text; faster, because a text with few brackets is not walked."""
    return text.count(b"{") + text.count(b"[") > limit and deeper_than(value, limit)


def _equal_ignoring_case(left: str, right: str) -> bool:
    """Texts of very different length are not folded, because a condition may compare with thousands of texts."""
    if len(left) > _MAX_FOLD_GROWTH * len(right) or len(right) > _MAX_FOLD_GROWTH * len(left):
        return False
    return left.casefold() == right.casefold()


def json_or_text(text: str) -> Json:
    """What a person typed: the value if it is JSON, else the text."""
    try:
        return msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return text


def brief(value: Json, limit: int = 100) -> str:
    """A value as JSON, cut if it is long."""
    return shorten(msgspec.json.encode(value).decode(), limit)


class Progress(msgspec.Struct, frozen=True):
    """How much of something is done, the total if known, and a message."""

    done: float
    total: float | None
    message: str

    def __str__(self) -> str:
        """`3 of 10, uploading`."""
        amount = f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        return f"{amount}, {self.message}" if self.message else amount
