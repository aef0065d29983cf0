"""The layout of a document as text: the order of its fields, readable JSON, and a check that the meaning stays.

The order is that of `workflow.schema.json`, with the most important fields in front. Fields that the schema does not
have, such as `x-…`, follow in their original order. YAML is laid out in `yaml_layout`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from workflowlookup.language.values import Json, json_equal
from workflowlookup.language.workflow_schema import workflow_schema
from workflowlookup.library.files import PARSERS

WIDTH: Final = 100
"""The maximum length of a line; only text that cannot be broken is longer."""

_FIRST: Final = (
    *("$schema", "id", "kind", "name", "type", "title"),
    *("agentRole", "runCondition", "requires", "guidance", "prompt", "call"),
    *("server", "tool", "provider", "workflow"),
)


class CannotLayOut(ValueError):
    """The text cannot be laid out without a loss. The message is a reason, to be written after "because"."""


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ordered(document: Json) -> Json:
    """The document with its fields in the order of the schema."""
    schema = workflow_schema()
    return _ordered(document, schema, schema)


def _ordered(value: Json, schema: Json, root: Json) -> Json:
    parts = list(_parts(schema, root))
    if isinstance(value, list):
        items = {"anyOf": [part["items"] for part in parts if "items" in part]}
        return [_ordered(item, items, root) for item in value]
    if not isinstance(value, dict):
        return value
    schemas: dict[str, list[Json]] = {}
    for part in parts:
        for name, member in part.get("properties", {}).items():
            schemas.setdefault(name, []).append(member)
    names = list(dict.fromkeys([*(name for name in _FIRST if name in schemas), *schemas]))
    rank = {name: position for position, name in enumerate(names)}
    return {
        name: _ordered(value[name], {"anyOf": schemas.get(name, [])}, root)
        for name in sorted(value, key=lambda name: rank.get(name, len(rank)))
    }


def _parts(schema: Json, root: Json) -> Iterator[Mapping[str, Json]]:
    """The schema with all its references and branches that apply to the same value."""
    if not isinstance(schema, dict):
        return
    yield schema
    if "$ref" in schema:
        target = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        yield from _parts(target, root)
    branches = [schema.get("then"), schema.get("else")]
    for keyword in ("allOf", "anyOf", "oneOf"):
        branches += schema.get(keyword, ())
    for branch in branches:
        yield from _parts(branch, root)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────


def json_text(document: Json) -> str:
    """JSON with an indentation of two; a value that fits is on one line, except the document itself."""
    return _json(document, indent="", used=WIDTH) + "\n"


def _json(value: Json, indent: str, used: int) -> str:
    """The value as JSON; `used` columns of its first line are occupied."""
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
    json.loads(text, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise CannotLayOut(f"the field '{name}' is written twice")
        members[name] = value
    return members


# ── check ───────────────────────────────────────────────────────────────────────────────────────────────────────


def encoded(text: str, extension: str, document: Json) -> bytes:
    """The bytes of the text, after parsing them and comparing the result with the document.

    Raises `CannotLayOut`.
    """
    if not isinstance(document, dict):
        raise CannotLayOut("it holds no workflow")
    try:
        data = text.encode()
        read_back = PARSERS[extension](data)
    except ValueError as error:  # a lone surrogate, or what the parser refuses
        raise CannotLayOut(f"it could not be read back ({error})") from error
    if not json_equal(read_back, document):
        raise CannotLayOut("it would not mean the same")
    return data
