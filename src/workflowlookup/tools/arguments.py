"""The arguments of a tool: the JSON Schema that clients see, the check, and the value that the handler gets.

For a built-in tool all three come from one struct. The arguments of a workflow tool are checked by the schema that its
author wrote, and passed on as they are. The constraints of a field are in its `extra_json_schema`, so that the JSON
Schema validator checks them: it is faster than msgspec at patterns, and names every misfit at once.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidParams
from workflowlookup.language.schemas import Misfit, Validator, ValueSchema, compile_schema
from workflowlookup.language.values import Json

MAX_MISFITS: Final = 5
LONG_LIST: Final = 1_000
"""Of arguments with a list longer than this only the first misfit is named: to name all of them would take long."""


class SchemaArguments:
    """Arguments that fit the JSON Schema of an author, passed on as they are."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema
        self._values = ValueSchema(schema)

    def decode(self, value: Json) -> Any:
        """The arguments as the handler gets them. Raises `InvalidParams` naming each one that does not fit."""
        if misfits := self._values.misfits(value):
            raise InvalidParams("; ".join(misfit.sentence() for misfit in misfits[:MAX_MISFITS]))
        return value


class StructArguments:
    """Arguments that fit a struct, passed on as an instance of it."""

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._struct = struct
        self._is_optional = len(struct.__struct_defaults__) == len(struct.__struct_fields__)

    @functools.cached_property
    def schema(self) -> Mapping[str, Json]:
        return schema_of(self._struct)

    @functools.cached_property
    def _validator(self) -> Validator:
        return compile_schema(self.schema, is_ours=True)

    def decode(self, value: Json) -> Any:
        """The arguments as the handler gets them. Raises `InvalidParams` naming each one that does not fit."""
        if not value and self._is_optional:
            return self._struct()  # nothing to check: the first workflow_list does not load a validator
        if not self._validator.is_valid(value):
            raise InvalidParams("; ".join(misfit.sentence() for misfit in self._misfits(value)))
        try:
            return msgspec.convert(value, self._struct, strict=False)  # 5.0 is an integer in JSON
        except msgspec.ValidationError as problem:  # such as an integer that is too large
            raise InvalidParams(str(problem)) from problem

    def _misfits(self, value: Json) -> Iterable[Misfit]:
        values = value.values() if isinstance(value, dict) else ()
        if any(isinstance(each, list) and len(each) > LONG_LIST for each in values):
            return self._validator.first_misfit(value)
        return itertools.islice(self._validator.misfits(value), MAX_MISFITS)


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Json]:
    """The JSON Schema of a struct without nested structs, without `$ref`; a field that may be null has two types."""
    _, components = msgspec.json.schema_components([struct])
    (schema,) = components.values()
    return {
        "type": "object",
        "properties": {name: _flat(field) for name, field in schema["properties"].items()},
        "required": schema["required"],
        "additionalProperties": False,
    }


def _flat(field: dict[str, Json]) -> dict[str, Json]:
    if "anyOf" in field:
        inner, _ = field.pop("anyOf")  # the other branch is null
        merged = {**inner, **field}
        field = {**merged, "type": [merged["type"], "null"]}
    return {key: value for key, value in field.items() if key != "default" or value is not None}


# ── types that several tools share ──────────────────────────────────────────────────────────────────────────────

_INSTANCE: Final = {"pattern": r"^[a-z0-9-][a-z0-9._-]*(@[0-9]+(\.[0-9]+)*)?$", "maxLength": 256}

WorkflowId: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"pattern": "^[a-z0-9-][a-z0-9._-]*$", "minLength": 3, "maxLength": 64})
]
StepId: TypeAlias = Annotated[str, Meta(extra_json_schema={**_INSTANCE, "minLength": 3})]
"""In a loop with the iteration, as in `review@2`."""
RunId: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 64})]
CompletedSteps: TypeAlias = Annotated[
    list[Annotated[str, Meta(extra_json_schema=_INSTANCE)]], Meta(extra_json_schema={"uniqueItems": True})
]
Variables: TypeAlias = Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": True})]
Wait: TypeAlias = Annotated[
    bool | None,
    Meta(description="False: do not wait while the server works on the run; workflow_status tells how far it is"),
]
