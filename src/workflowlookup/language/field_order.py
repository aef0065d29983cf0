"""The order of the fields of a document: that of `workflow.schema.json`, with the most important fields in front.

Fields that the schema does not have, such as `x-…`, follow in their original order.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from workflowlookup.language.values import Json
from workflowlookup.language.workflow_schema import workflow_schema

_FIRST: Final = (
    *("$schema", "id", "kind", "name", "type", "title"),
    *("agentRole", "runCondition", "requires", "guidance", "prompt", "call"),
    *("server", "tool", "provider", "workflow"),
)


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
