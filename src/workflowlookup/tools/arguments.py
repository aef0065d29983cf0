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
from workflowlookup.language.formats.schemas import Misfit, Validator, ValueSchema, compile_schema
from workflowlookup.language.values import Json

MAX_MISFITS: Final = 5
LONG_LIST: Final = 1_000
"""If a list in the arguments is longer than this, only the first misfit is named: to find all would take long."""
SERVER_ONLY: Final = "x-server"
"""Key in `extra_json_schema`: keywords that the server checks and the docs show. `tools/list` leaves them out, because
models read it whole.
"""


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

    def __init__(self, struct: type[msgspec.Struct], *, is_closed: bool = False) -> None:
        """`is_closed`: clients see that no other arguments are allowed, as the spec demands for its tools."""
        self._struct = struct
        self._is_closed = is_closed
        self._is_optional = len(struct.__struct_defaults__) == len(struct.__struct_fields__)

    @functools.cached_property
    def schema(self) -> Mapping[str, Json]:
        schema = schema_of(self._struct)
        if self._is_closed:
            return schema
        return {name: value for name, value in schema.items() if name != "additionalProperties" and value != []}

    @functools.cached_property
    def full_schema(self) -> Mapping[str, Json]:
        """The schema by which the server checks: with what is `SERVER_ONLY`, and with null for what is optional."""
        return schema_of(self._struct, is_full=True)

    @functools.cached_property
    def _validator(self) -> Validator:
        return compile_schema(self.full_schema, is_ours=True)

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


def schema_of(struct: type[msgspec.Struct], *, is_full: bool = False) -> dict[str, Json]:
    """The JSON Schema, without `$ref`, of a struct without nested structs: as clients see it, or in full."""
    _, components = msgspec.json.schema_components([struct])
    (schema,) = components.values()
    return {
        "type": "object",
        "properties": {name: _shape(field, is_full=is_full) for name, field in schema["properties"].items()},
        "required": schema["required"],
        "additionalProperties": False,
    }


def _shape(field: dict[str, Json], *, is_full: bool) -> dict[str, Json]:
    inner = field["anyOf"][0] if "anyOf" in field else {}  # the other branch is null
    merged = {**inner, **field}
    shape = {
        name: value
        for name, value in merged.items()
        if name not in ("anyOf", SERVER_ONLY) and (name != "default" or value is not None)
    }
    if "items" in shape:
        shape["items"] = _shape(shape["items"], is_full=is_full)
    if not is_full:
        return shape
    shape |= {**inner.get(SERVER_ONLY, {}), **field.get(SERVER_ONLY, {})}
    if "anyOf" in field:
        shape["type"] = [shape["type"], "null"]
        shape |= {"enum": [*shape["enum"], None]} if "enum" in shape else {}
    return shape


# ── types that several tools share ──────────────────────────────────────────────────────────────────────────────


def server_only(description: str, **keywords: Json) -> Meta:
    """Keywords that only the server checks, and the description in the docs; clients see neither."""
    words = {"description": description} if description else {}
    return Meta(extra_json_schema={SERVER_ONLY: {**words, **keywords}})


WORKFLOW_ID: Final = "^[a-z0-9-][a-z0-9._-]*$"
_INSTANCE: Final = r"^[a-z0-9-][a-z0-9._-]*(@[0-9]+(\.[0-9]+)*)?$"
_SHORT_INSTANCE: Final = "^[a-z0-9._@-]+$"
"""As models see it."""

WorkflowId: TypeAlias = Annotated[
    str,
    Meta(
        extra_json_schema={
            "pattern": "^[a-z0-9._-]+$",
            "minLength": 3,
            "maxLength": 64,
            SERVER_ONLY: {"pattern": WORKFLOW_ID},
        }
    ),
]
StepId: TypeAlias = Annotated[
    str,
    Meta(
        extra_json_schema={
            "pattern": _SHORT_INSTANCE,
            "minLength": 3,
            "maxLength": 256,
            SERVER_ONLY: {"pattern": _INSTANCE},
        }
    ),
]
"""In a loop with the iteration: `review@2`."""
RunStepId: TypeAlias = Annotated[str, server_only("", pattern=_INSTANCE, minLength=3, maxLength=256)]
"""As `StepId`, in a tool of ours: the spec fixes what clients see of the others."""
RunId: TypeAlias = Annotated[str, server_only("", pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", maxLength=64)]
CompletedSteps: TypeAlias = Annotated[
    list[
        Annotated[
            str,
            Meta(
                extra_json_schema={
                    "pattern": _SHORT_INSTANCE,
                    SERVER_ONLY: {"pattern": _INSTANCE, "maxLength": 256},
                }
            ),
        ]
    ],
    Meta(extra_json_schema={"uniqueItems": True}),
]
Variables: TypeAlias = Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": True})]
Wait: TypeAlias = Annotated[
    bool | None,
    Meta(description="false: answer at once"),
    server_only("False: do not wait while the server works on the run; see workflow_status"),
]
