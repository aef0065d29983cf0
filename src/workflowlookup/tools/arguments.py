"""The arguments of a tool: the JSON Schema that clients see, the check, and the value that the handler gets.

For a built-in tool all three come from one struct. The arguments of a workflow tool are validated by the schema that
its author wrote, and passed on unchanged. The constraints of a field are in its `extra_json_schema`, so that the JSON
Schema validator checks them: it is faster than msgspec at patterns, and names all misfits at once.
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
"""If a list in the arguments is longer than this, only the first misfit is named: to find all would take long."""


class SchemaArguments:
    """Arguments validated by the JSON Schema of an author, passed on unchanged."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema
        self._values = ValueSchema(schema)

    def decode(self, value: Json) -> Any:
        """The arguments as the handler gets them. Raises `InvalidParams` naming each invalid one."""
        if misfits := self._values.misfits(value):
            raise InvalidParams("; ".join(misfit.sentence() for misfit in misfits[:MAX_MISFITS]))
        return value


class StructArguments:
    """Arguments validated by the schema of a struct, passed on as an instance of it."""

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
        """The arguments as the handler gets them. Raises `InvalidParams` naming each invalid one."""
        if not value and self._is_optional:
            return self._struct()  # nothing to check, so the first workflow_list need not load a validator
        if not self._validator.is_valid(value):
            raise InvalidParams("; ".join(misfit.sentence() for misfit in self._misfits(value)))
        try:
            return msgspec.convert(value, self._struct, strict=False)  # 5.0 is an integer in JSON
        except msgspec.ValidationError as error:  # such as an integer that is too large
            raise InvalidParams(str(error)) from error

    def _misfits(self, value: Json) -> Iterable[Misfit]:
        fields = value.values() if isinstance(value, dict) else ()
        if any(isinstance(field, list) and len(field) > LONG_LIST for field in fields):
            return self._validator.first_misfit(value)
        return itertools.islice(self._validator.misfits(value), MAX_MISFITS)


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Json]:
    """The JSON Schema, without `$ref`, of a struct without nested structs; a field that may be null has two types."""
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
"""In a loop with the iteration: `review@2`."""
RunId: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 64})]
CompletedSteps: TypeAlias = Annotated[
    list[Annotated[str, Meta(extra_json_schema=_INSTANCE)]], Meta(extra_json_schema={"uniqueItems": True})
]
Variables: TypeAlias = Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": True})]
Wait: TypeAlias = Annotated[
    bool | None,
    Meta(description="False: do not wait while the server works on the run; see workflow_status"),
]
