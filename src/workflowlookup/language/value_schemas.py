"""The JSON Schema of a variable: what its value must be, in words and by an example."""

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.patterns import TooSlow
from workflowlookup.language.schemas import (
    EXAMPLES_BY_FORMAT,
    BadSchema,
    Misfit,
    Validator,
    compile_schema,
    compile_schema_text,
    expected_by,
)
from workflowlookup.language.values import Json, is_number


class ValueSchema(msgspec.Struct, frozen=True, dict=True):
    """The JSON Schema of a variable; what is derived from it is computed once, when it is first needed."""

    schema: Json = True

    @functools.cached_property
    def expected(self) -> str:
        """What the value must be, in words."""
        return expected_by(self.schema)

    @functools.cached_property
    def example(self) -> Json:
        """A value that fits."""
        return example_of(self.schema)

    @functools.cached_property
    def _text(self) -> bytes:
        return msgspec.json.encode(self.schema)

    @property
    def validator(self) -> Validator:
        """Shared by equal schemas, and compiled again when it was not used for long. Raises `BadSchema`."""
        return compile_schema_text(self._text)

    def misfits(self, value: Json) -> list[Misfit]:
        """Where a value that a caller sent does not fit. Raises `InvalidParams` when that would take too long."""
        try:
            return list(self.validator.misfits(value))
        except TooSlow as problem:
            remedy = "send less, or have the author simplify the schema"
            raise InvalidParams(f"the values were not checked, because {problem}: {remedy}") from problem


MAX_REPEATED: Final = 100
MAX_BRANCHES: Final = 2
MAX_DEPTH: Final = 4
"""Limits on examples: branches multiply with every level, and schemas come from strangers."""


def example_of(schema: Json, depth: int = 0) -> Json:
    """A value that fits a JSON Schema, if its common keywords suffice to find one; null only as a last resort."""
    candidates = [*_candidates(schema, depth)] if isinstance(schema, Mapping) and depth <= MAX_DEPTH else []
    if not candidates:
        return "…"
    try:
        fits = compile_schema(schema).is_valid
    except BadSchema:  # a subschema with a `$ref` into the whole schema
        return candidates[0]
    try:
        return next((value for value in candidates if value is not None and fits(value)), candidates[0])
    except TooSlow:
        return candidates[0]


def _candidates(schema: Mapping[str, Json], depth: int) -> Iterator[Json]:
    yield from (schema[keyword] for keyword in ("const", "default") if keyword in schema)
    for keyword in ("examples", "enum"):
        yield from schema.get(keyword, ())
    for keyword in ("anyOf", "oneOf", "allOf"):
        rest = {name: value for name, value in schema.items() if name != keyword}
        for part in schema.get(keyword, ())[:MAX_BRANCHES]:
            yield example_of({**rest, **part} if isinstance(part, Mapping) else rest, depth + 2)
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        match kind:
            case "string":
                yield from (
                    EXAMPLES_BY_FORMAT.get(schema.get("format", ""), "…"),
                    "…" * _at_least(schema, "minLength"),
                    "",
                )
            case "integer" | "number":
                yield from _numbers(schema)
            case "boolean":
                yield from (True, False)
            case "array":
                item = example_of(schema.get("items", {}), depth + 1)
                yield from ([item] * max(1, _at_least(schema, "minItems")), [])
            case "object":
                properties = schema.get("properties", {})
                names = schema.get("required", properties)
                yield {name: example_of(properties.get(name, {}), depth + 1) for name in names}
            case "null":
                yield None


def _at_least(schema: Mapping[str, Json], keyword: str) -> int:
    return int(min(schema.get(keyword, 0), MAX_REPEATED))


def _numbers(schema: Mapping[str, Json]) -> Iterator[Json]:
    least, most = schema.get("minimum", 1), schema.get("maximum", 1)
    yield from (least, 1, 0, math.ceil(least), math.floor(most), schema.get("multipleOf", 1))
    for keyword, step in (("exclusiveMinimum", 1), ("exclusiveMaximum", -1)):
        if is_number(schema.get(keyword)):
            yield math.floor(schema[keyword]) + step
