"""JSON values, and how conditions compare them.

`json_equal` is equality as JSON has it: true is not 1, and 1 is 1.0. `loosely_equal` is equality as a person means
it when writing a condition: case and outer blanks do not count, "42" is 42, and "yes" is true.
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
"""What a workflow that says neither has."""
MAX_CONTEXT_BYTES: Final = 256 * 1024
"""How large a context may be, as JSON."""
MAX_TIMEOUT_SECONDS: Final = 365 * 86_400
"""How long anybody may give a run."""

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MAX_DIGITS: Final = 400
_TRUE: Final = frozenset({"true", "yes", "1"})
_FALSE: Final = frozenset({"false", "no", "0"})
_MAX_BOOLEAN_LENGTH: Final = 5
_MAX_FOLD_GROWTH: Final = 3
"""How many characters one character may become when its case is folded."""


def is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_number(value: Json) -> int | float | None:
    """The value of a number, or of text that reads as a decimal one."""
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
    """The value of a boolean, or of text that reads as one."""
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
    """A text as it is, anything else as JSON. Raises what `msgspec` does for what is no JSON."""
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
    """Deep equality as JSON has it."""
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
    """Equality as the author of a condition means it; null stands for a missing variable."""
    if left is None or right is None:
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right or _same_but_for_case(left.strip(), right.strip())
    if isinstance(left, str) or isinstance(right, str):
        text, other = (left, right) if isinstance(left, str) else (right, left)
        if isinstance(other, bool):
            return as_boolean(text) is other
        return is_number(other) and as_number(text) == other
    return json_equal(left, right)


def is_truthy(value: Json) -> bool:
    """Whether a variable that stands alone in a condition counts as true."""
    if isinstance(value, str):
        return value.strip() != "" and as_boolean(value) is not False
    return bool(value)


def lookup(context: Context, name: str) -> Json:
    """The variable: the literal key first, then a dotted path; None when there is none."""
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
    """The context with these variables set, without keys that would hide a part of one, as `task.size` of `task`."""
    rest = {name: value for name, value in context.items() if "." not in name or lookup(variables, name) is None}
    return {**rest, **variables}


def dotted_prefixes(name: str) -> Iterator[str]:
    """The variables that a key is or would stand for a part of: `a.b` and `a` of `a.b`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def is_set(context: Context, name: str) -> bool:
    """Whether there is such a variable, be it null."""
    outer, _, last = name.rpartition(".")
    return name in context or (bool(outer) and isinstance(found := lookup(context, outer), Mapping) and last in found)


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
    """How many parts a value has, names included, and how many characters are in it."""
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
    """About how many bytes a value takes in memory, and what is built from it."""
    parts, characters = extent(value)
    return _BYTES_OF_PART * parts + characters


def nests_deeper(text: bytes, value: Json, limit: int) -> bool:
    """As `deeper_than`, of the value of a JSON text: one with few brackets need not be walked."""
    return text.count(b"{") + text.count(b"[") > limit and deeper_than(value, limit)


def _same_but_for_case(left: str, right: str) -> bool:
    """Long texts are not folded for the sake of short ones: a condition may compare with thousands of them."""
    if len(left) > _MAX_FOLD_GROWTH * len(right) or len(right) > _MAX_FOLD_GROWTH * len(left):
        return False
    return left.casefold() == right.casefold()


def json_or_text(text: str) -> Json:
    """What a person typed: as JSON if it reads as such, else as it stands."""
    try:
        return msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return text


def brief(value: Json, most: int = 100) -> str:
    """A value as JSON; of a long one the beginning."""
    return shorten(msgspec.json.encode(value).decode(), most)


class Progress(msgspec.Struct, frozen=True):
    """How much of something is done, of how much if that is known, and a word on it."""

    done: float
    total: float | None
    message: str

    def __str__(self) -> str:
        """`3 of 10, uploading`."""
        amount = f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        return f"{amount}, {self.message}" if self.message else amount
