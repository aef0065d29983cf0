"""The HTTP headers of MCP, and the check that they agree with the body of a request.

Since 2026-07-28 headers repeat parts of a request, so that proxies can route it: the version, the method, the tool or
resource that it names, and the arguments that a tool's schema marks with `x-mcp-header`. Headers are pairs of bytes
with names in lower case, as in ASGI.
"""

import base64
import binascii
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.errors import HeaderMismatch, InvalidParams
from workflowlookup.language.values import Json
from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.protocol.versions import META_CAPABILITIES, META_VERSION

RawHeaders = Sequence[tuple[bytes, bytes]]
InputSchemaOf = Callable[[str], Mapping[str, Any] | None]
"""The input schema of a tool by its name; None for tools that mark no arguments."""
Path = tuple[str, ...]
"""The property names from the arguments down to one of them."""

SESSION: Final = b"mcp-session-id"
VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
LAST_EVENT: Final = b"last-event-id"
ARGUMENT: Final = "mcp-param-"
ANNOTATION: Final = "x-mcp-header"

_NAME_PARAMETERS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that `Mcp-Name` repeats, by method."""


@functools.lru_cache(32)
def accepts(header: bytes, *types: bytes) -> bool:
    """Whether an `Accept` header accepts all of these media types."""
    accepted = {part.partition(b";")[0].strip().lower() for part in header.split(b",")}
    return b"*/*" in accepted or all(
        media_type in accepted or media_type.partition(b"/")[0] + b"/*" in accepted for media_type in types
    )


@functools.lru_cache(32)
def is_json(header: bytes) -> bool:
    """Whether a `Content-Type` header says JSON."""
    return header.partition(b";")[0].strip().lower() == b"application/json"


def has_envelope(request: Request) -> bool:
    """Whether a request has its version in `_meta`, as all requests since 2026-07-28 do."""
    meta = request.params.get("_meta") if isinstance(request.params, dict) else None
    return isinstance(meta, dict) and META_VERSION in meta


def check_routing(request: Request, headers: RawHeaders, input_schema_of: InputSchemaOf) -> None:
    """Compare a request of the envelope era with its headers.

    Raises `InvalidParams` if it has no envelope, `HeaderMismatch` if the headers differ from it.
    """
    fields = dict(headers)
    repeated = len(fields) != len(headers)
    params = request.params if isinstance(request.params, dict) else {}
    meta = params.get("_meta")
    if not isinstance(meta, dict) or META_VERSION not in meta or META_CAPABILITIES not in meta:
        raise InvalidParams(f"_meta must be an object with '{META_VERSION}' and '{META_CAPABILITIES}'")
    if repeated:
        _refuse_repeated(headers, (VERSION, METHOD, NAME))
    if fields.get(VERSION, b"").decode("latin-1") != meta[META_VERSION]:
        raise _mismatch("MCP-Protocol-Version is not the version in the envelope of the request")
    if fields.get(METHOD, b"").decode("latin-1") != request.method:
        raise _mismatch("Mcp-Method is not the method of the request")
    key = _NAME_PARAMETERS.get(request.method)
    if key is None:
        return
    named = params.get(key)
    if isinstance(named, str) and _decode(fields.get(NAME)) != named:
        raise _mismatch(f"Mcp-Name is not the {key} of the request")
    arguments = params.get("arguments")
    if request.method == "tools/call" and isinstance(named, str) and isinstance(arguments, dict | None):
        schema = input_schema_of(named)
        if schema is not None and ANNOTATION.encode() in msgspec.json.encode(schema):
            _check_arguments(schema, arguments or {}, headers)


def _check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Json], headers: RawHeaders) -> None:
    """Compare the arguments that a schema marks with their headers. Both must be present and equal, or neither."""
    fields = dict(headers)
    marked = marked_arguments(schema)
    _refuse_repeated(headers, [name.encode() for name, _ in marked.values()])
    for path, (name, kind) in marked.items():
        value, sent = _value_at(arguments, path), fields.get(name.encode())
        argument = ".".join(path)
        rendered = _rendered(value)
        if rendered is None:
            if sent is not None:
                raise _mismatch(f"{name} is sent, but the argument {argument} has no value that it could repeat")
        elif sent is None:
            raise _mismatch(f"{name} is missing: it repeats the argument {argument}")
        elif not _agrees(kind, value, rendered, _decode(sent)):
            raise _mismatch(f"{name} is not the argument {argument} of the request")


def marked_arguments(schema: Mapping[str, Any]) -> dict[Path, tuple[str, str]]:
    """The header and the type of each argument that a schema marks, by its path.

    Clients ignore a tool whose schema has an invalid mark, so then no header is expected.
    """
    marked: dict[Path, tuple[str, str]] = {}
    names: set[str] = set()
    for path, part in _subschemas(schema, ()):
        if ANNOTATION not in part:
            continue
        token, kind = part[ANNOTATION], part.get("type")
        is_valid = path and isinstance(token, str) and _TOKEN.fullmatch(token) and kind in _PRIMITIVE
        if not is_valid or token.lower() in names:
            return {}
        names.add(token.lower())
        marked[path or ()] = (ARGUMENT + token.lower(), str(kind))
    return marked


def _subschemas(schema: object, path: Path | None) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """A schema and all schemas in it, each with its path; None for one that is not reached by `properties` alone."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            for name, part in value.items():
                yield from _subschemas(part, None if path is None else (*path, name))
        elif keyword in _OF_MANY and isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                yield from _subschemas(part, None)
        elif keyword in _OF_ONE:
            yield from _subschemas(value, None)


_PRIMITIVE: Final = ("string", "integer", "boolean")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The syntax of HTTP header names (RFC 9110, 5.6.2)."""
_OF_ONE: Final = frozenset(
    {"items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties"}
    | {"not", "if", "then", "else", "contentSchema"}
)
_OF_MANY: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "prefixItems", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
"""The keywords of JSON Schema that hold a schema, or several."""
_WHOLE: Final = re.compile(r"(-?[0-9]{1,400})(\.0+)?")
_BASE64: Final = re.compile(rb"=\?base64\?(.*)\?=")


def _value_at(arguments: Json, path: Path) -> Json:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments


def _rendered(value: Json) -> str | None:
    """A value as text for a header; None for null, lists and objects, which no header repeats."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _agrees(kind: str, value: Json, rendered: str, sent: str | None) -> bool:
    """Whether a header equals an argument; 42 and 42.0 are the same whole number."""
    whole = _WHOLE.fullmatch(sent or "") if kind == "integer" and not isinstance(value, str | bool) else None
    return int(whole[1]) == value if whole else sent == rendered


def _decode(value: bytes | None) -> str | None:
    """The text of a header, decoded if it is marked as base64; None when that is malformed."""
    if value is None:
        return None
    encoded = _BASE64.fullmatch(value)
    if encoded is None:
        return value.decode("latin-1")
    try:
        decoded = base64.b64decode(encoded[1], validate=True)
        return decoded.decode() if base64.b64encode(decoded) == encoded[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _refuse_repeated(headers: RawHeaders, names: Sequence[bytes]) -> None:
    """Raises `HeaderMismatch` if a header is sent twice: one reader would use the first, another the last."""
    sent = [name for name, _ in headers]
    for name in names:
        if sent.count(name) > 1:
            raise _mismatch(f"{name.decode('latin-1')} is sent more than once")


def _mismatch(problem: str) -> HeaderMismatch:
    return HeaderMismatch(f"The header {problem}.", details=f"the header {problem}")
