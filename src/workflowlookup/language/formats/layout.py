"""Readable JSON, and what every layout has in common."""

from collections.abc import Sequence
from typing import Any, Final

from workflowlookup.language.values import Json

WIDTH: Final = 100
"""The maximum length of a line; only text that cannot be broken is longer."""


class CannotLayOut(ValueError):
    """The text cannot be laid out without a loss. The message is a reason, to be written after "because"."""


def json_text(document: Json) -> str:
    """JSON with an indentation of two; a value that fits is on one line, except the document itself."""
    return _json(document, indent="", used=WIDTH) + "\n"


def _json(value: Json, indent: str, used: int) -> str:
    """The value as JSON; `used` columns of its first line are occupied."""
    import json  # noqa: PLC0415 - the first list must not wait for it

    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value or used + len(line) < WIDTH:  # a comma may follow
        return line
    inner = indent + "  "
    if isinstance(value, list):
        lines = [inner + _json(item, inner, len(inner)) for item in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    lines = []
    for name, member in value.items():
        head = f"{inner}{json.dumps(name, ensure_ascii=False)}: "
        lines.append(head + _json(member, inner, len(head)))
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def refuse_repeats(text: str) -> None:
    """Raises `CannotLayOut` if an object has a field twice, because one would be lost."""
    import json  # noqa: PLC0415 - as above

    json.loads(text, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise CannotLayOut(f"the field '{name}' is written twice")
        members[name] = value
    return members
