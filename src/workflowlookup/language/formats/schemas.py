"""JSON Schema: validators that are safe for untrusted schemas and values, misfits in plain words, and examples.

The arguments of tools, workflow documents, variables and `schema` rules use this module. Validators never fetch
anything, patterns in schemas have a backtracking limit, and a check that would take too long is not started
(`schema_costs`). `jsonschema_rs` is imported with the first validator.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.cache import BoundedCache
from workflowlookup.errors import InvalidParams
from workflowlookup.language.formats.patterns import TooSlow
from workflowlookup.language.formats.schema_costs import BACKTRACK_LIMIT, MAX_ERROR_SIZE, SchemaCosts
from workflowlookup.language.text import choices, plural, shorten
from workflowlookup.language.values import Json, extent, is_number

if TYPE_CHECKING:
    import jsonschema_rs

MAX_NAMES_COMPARED: Final = 200
MAX_NAMES_RANKED: Final = 8
MAX_TYPO_LENGTH: Final = 60
MAX_MESSAGE: Final = 1_000
MAX_PARTS: Final = 5_000
"""The size of a value up to which all errors by one of our schemas are collected. The validator makes all of them at
once and takes long for each."""
MAX_ITEMS_SHOWN: Final = 100
"""Of a larger value, only this many items of each list are validated for errors."""

PathTo = tuple[str | int, ...]


class BadSchema(ValueError):
    """The JSON Schema itself is malformed; the message says how."""


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a value that does not fit a schema."""

    path: PathTo
    keyword: str
    expected: str
    actual: str
    missing: str = ""
    """The required field that is missing, if that is the problem."""
    unknown: tuple[str, ...] = ()
    """The fields that the schema does not allow, if that is the problem."""
    allowed: tuple[str, ...] = ()
    """The fields that it allows."""
    is_open: bool = False
    """Whether the schema also allows names that match a pattern."""
    example: Json = None
    """A value that would fit, if the schema has one."""

    def sentence(self, at: str | None = None) -> str:
        """`context.size must be a number; found 'big'`."""
        at = dotted(self.path) if at is None else at
        if self.missing:
            return f"{dotted((*self.path, self.missing))} is required"
        if self.unknown:
            names = ", ".join(suggest(name, self.allowed) for name in self.unknown[:5])
            return f"{at + ': ' if at else ''}unknown {'field' if len(self.unknown) == 1 else 'fields'} {names}"
        return f"{at or 'the value'} must be {self.expected}; found {self.actual}"


class Validator:
    """A compiled JSON Schema."""

    def __init__(self, schema: Json, compiled: "jsonschema_rs.Validator", costs: SchemaCosts | None) -> None:
        """`costs` is None for our own schemas: checking by them takes time linear in the size of the value."""
        self.schema = schema
        self.weight = costs.weight if costs is not None else 0
        self._compiled = compiled
        self._costs = costs

    def is_valid(self, value: Json) -> bool:
        """Whether the value fits. Raises `TooSlow` if the check would take too long."""
        if self._costs is not None:
            self._costs.refuse(value)
        return self._compiled.is_valid(value)

    def misfits(self, value: Json) -> Iterator[Misfit]:
        """The misfits of the value; only the first if there may be very many. Raises `TooSlow`."""
        if self.is_valid(value):
            return
        if self._costs is None and extent(value)[0] > MAX_PARTS:
            shortened = _with_short_lists(value)
            if extent(shortened)[0] > MAX_PARTS or self._compiled.is_valid(shortened):
                yield from self.first_misfit(value)
                return
            value = shortened
        try:
            all_errors, first_error = self._costs.error_size(value) if self._costs is not None else (0, 0)
        except TooSlow:
            all_errors = first_error = MAX_ERROR_SIZE + 1
        try:
            if all_errors <= MAX_ERROR_SIZE:
                for error in self._compiled.iter_errors(value):
                    yield _misfit(error, self.schema)
            elif first_error <= MAX_ERROR_SIZE:
                yield from self.first_misfit(value)
            else:
                yield Misfit(path=(), keyword="", expected="what the JSON Schema says", actual="too much to say where")
        except ValueError as problem:  # nested deeper than the validator goes
            yield Misfit(path=(), keyword="depth", expected="less deeply nested", actual=str(problem))

    def first_misfit(self, value: Json) -> Iterator[Misfit]:
        """The first misfit, for values so large that finding all of them would take too long."""
        import jsonschema_rs  # noqa: PLC0415 - as below

        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield _misfit(error, self.schema)


def _with_short_lists(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _with_short_lists(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_short_lists(part) for part in value[:MAX_ITEMS_SHOWN]]
    return value


def compile_schema(schema: Json, *, is_ours: bool = False) -> Validator:
    """A validator that checks `format` and stays offline. Raises `BadSchema`, also if the schema is too large."""
    import jsonschema_rs  # noqa: PLC0415 - costs 15 ms, and `initialize` needs none

    try:
        costs = None if is_ours else SchemaCosts(schema)
        compiled = jsonschema_rs.validator_for(
            schema,
            validate_formats=True,
            offline=True,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as problem:
        text = str(getattr(problem, "message", problem))
        raise BadSchema(text.partition("\n")[0]) from problem
    return Validator(schema, compiled, costs)


MAX_CACHED_BYTES: Final = 2 << 20
"""Limit on the cached schemas together, in estimated bytes."""

_validators: Final[BoundedCache[bytes, Validator]] = BoundedCache(
    512, max_weight=MAX_CACHED_BYTES, weigh=lambda validator: validator.weight
)


def clear_cache() -> None:
    """Drop all compiled schemas except our own."""
    _validators.clear()


def compile_schema_text(text: bytes) -> Validator:
    """`compile_schema` for a schema as JSON text; equal schemas are compiled once."""
    validator = _validators.get(text)
    if validator is None:
        validator = _validators[text] = compile_schema(msgspec.json.decode(text))
    return validator


def _misfit(error: Any, schema: Json) -> Misfit:
    kind = error.kind
    keyword: str = kind.name
    path = tuple(error.instance_path)
    missing = kind.property if keyword == "required" else ""
    if keyword == "anyOf" and all(len(branch) == 1 and branch[0].kind.name == "required" for branch in kind.context):
        missing = kind.context[0][0].kind.property  # any of several fields would do: name the usual one
    target = _resolve(schema, error.schema_path[:-1])
    subschema: Mapping[str, Json] = target if isinstance(target, Mapping) else {}
    is_unknown = keyword in ("additionalProperties", "unevaluatedProperties")
    examples = subschema.get("examples")
    expect = _EXPECTED.get(keyword)
    if keyword == "pattern" and "patternErrorMessage" in subschema:
        expected = str(subschema["patternErrorMessage"]).removeprefix("Must be ")
    elif keyword == "pattern":
        expected = _matching(getattr(kind, "pattern", "the pattern, within the limit on backtracking"), examples)
    else:
        expected = expect(kind) if expect else f"such that: {shorten(error.message, MAX_MESSAGE)}"
    return Misfit(
        path=path,
        keyword=keyword,
        expected=expected,
        actual=show(error.instance) + (_did_you_mean(error.instance, kind.options) if keyword == "enum" else ""),
        missing=missing,
        unknown=tuple(kind.unexpected) if is_unknown else (),
        allowed=tuple(subschema.get("properties", ())) if is_unknown else (),
        is_open="patternProperties" in subschema,
        example=examples[0] if isinstance(examples, list) and examples else None,
    )


def _resolve(schema: Json, path: Sequence[str | int]) -> Json:
    for part in path:
        try:
            schema = schema[int(part)] if isinstance(schema, list) else schema[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return schema


def _alternatives(kind: Any) -> str:
    """What an `anyOf` or `oneOf` expects, without the branches for values of another type."""
    branches = [[_misfit(error, None) for error in branch] for branch in kind.context]
    same_type = [branch for branch in branches if not any(misfit.keyword == "type" for misfit in branch)]

    def words(branch: Sequence[Misfit]) -> str:
        return " and ".join(
            f"with '{misfit.missing}'" if misfit.missing else misfit.expected or misfit.sentence() for misfit in branch
        )

    return f"one of: {choices(same_type or branches, words, ' | ')}"


_TYPE_WORDS: Final = {
    "string": "text ('string')",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list ('array')",
    "null": "null",
}

EXAMPLES_BY_FORMAT: Final[Mapping[str, str]] = {
    "date": "2026-01-31",
    "time": "09:00:00Z",
    "date-time": "2026-01-31T09:00:00Z",
    "duration": "P1D",
    "email": "someone@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def _in_format(name: str) -> str:
    example = EXAMPLES_BY_FORMAT.get(name)
    return f"a valid {name} such as {example}" if example else f"a valid {name}"


def _matching(pattern: str, examples: Json) -> str:
    example = f", such as {show(examples[0])}" if isinstance(examples, list) and examples else ""
    return f"text that matches {pattern}{example}"


_EXPECTED: Final[Mapping[str, Callable[[Any], str]]] = {
    "type": lambda kind: " or ".join(_TYPE_WORDS.get(name, name) for name in kind.types),
    "enum": lambda kind: f"one of {choices([option for option in kind.options if option is not None], show)}",
    "const": lambda kind: show(kind.expected_value),
    "format": lambda kind: _in_format(kind.format),
    "minLength": lambda kind: f"at least {plural(kind.limit, 'character')} long",
    "maxLength": lambda kind: f"at most {plural(kind.limit, 'character')} long",
    "minimum": lambda kind: f"at least {kind.limit}",
    "maximum": lambda kind: f"at most {kind.limit}",
    "exclusiveMinimum": lambda kind: f"greater than {kind.limit}",
    "exclusiveMaximum": lambda kind: f"less than {kind.limit}",
    "minItems": lambda kind: f"a list of at least {kind.limit}",
    "maxItems": lambda kind: f"a list of at most {kind.limit}",
    "minProperties": lambda kind: f"an object with at least {plural(kind.limit, 'field')}",
    "maxProperties": lambda kind: f"an object with at most {plural(kind.limit, 'field')}",
    "uniqueItems": lambda _: "a list without repeats",
    "anyOf": _alternatives,
    "oneOf": _alternatives,
    "required": lambda kind: f"an object with '{kind.property}'",
}


def expected_by(schema: Json) -> str:
    """What a JSON Schema expects, in a few words; only its common keywords are described."""
    if not isinstance(schema, Mapping):
        return "any value"
    if "const" in schema:
        return show(schema["const"])
    if isinstance(schema.get("enum"), list):
        return f"one of {choices(schema['enum'], show)}"
    kinds = schema.get("type")
    names = kinds if isinstance(kinds, list) else [kinds] if kinds else []
    words = " or ".join(
        _form_of_text(schema) if name == "string" else _TYPE_WORDS.get(name, str(name)) for name in names
    )
    return with_description(words or "any value", schema)


def _form_of_text(schema: Mapping[str, Json]) -> str:
    if isinstance(schema.get("format"), str):
        return _in_format(schema["format"])
    return _matching(schema["pattern"], schema.get("examples")) if "pattern" in schema else _TYPE_WORDS["string"]


def with_description(words: str, schema: Json) -> str:
    """What is expected, followed by the description in the schema."""
    description = schema.get("description") if isinstance(schema, Mapping) else None
    return f"{words}: {description}" if isinstance(description, str) else words


def show(value: Json) -> str:
    """A value in a few words, for a message."""
    if isinstance(value, str):
        return f"'{shorten(value, 60)}'"
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    try:
        return msgspec.json.encode(value).decode()[:60]
    except (msgspec.MsgspecError, OverflowError, ValueError):
        return "a number"


def dotted(path: Sequence[str | int]) -> str:
    """`steps[0].loop.count`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that is most similar, if one is similar enough."""
    import difflib  # noqa: PLC0415 - only mistakes need it

    if len(name) > MAX_TYPO_LENGTH:
        return None
    name = name.lower()
    allowed = [item for item in itertools.islice(allowed, MAX_NAMES_COMPARED) if len(item) <= 2 * MAX_TYPO_LENGTH]
    candidates = sorted(allowed, key=lambda item: _likeness(name, item.lower()), reverse=True)[:MAX_NAMES_RANKED]
    close = difflib.get_close_matches(name, [item.lower() for item in candidates], n=1, cutoff=0.7)
    return next((item for item in candidates if close and item.lower() == close[0]), None)


def _likeness(name: str, other: str) -> int:
    """How many first and last characters two names share: a cheap comparison before the thorough one."""
    shorter = min(len(name), len(other))
    first = next((index for index in range(shorter) if name[index] != other[index]), shorter)
    last = next((index for index in range(1, shorter + 1) if name[-index] != other[-index]), shorter + 1) - 1
    return min(first + last, shorter) - abs(len(name) - len(other))


def _did_you_mean(value: Json, options: Sequence[Json]) -> str:
    texts = [option for option in options if isinstance(option, str)]
    similar = nearest(value, texts) if isinstance(value, str) and len(value) <= MAX_TYPO_LENGTH else None
    return f" (did you mean '{similar}'?)" if similar else ""


def suggest(name: str, allowed: Iterable[str]) -> str:
    """`'promt' (did you mean 'prompt'?)`."""
    similar = nearest(name, allowed)
    return f"'{name}' (did you mean '{similar}'?)" if similar else f"'{name}'"


# ── the schema of a variable ────────────────────────────────────────────────────────────────────────────────────


class ValueSchema(msgspec.Struct, frozen=True, dict=True):
    """The JSON Schema of a variable, with the words and the example derived from it, each computed once."""

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
        """From the cache, which equal schemas share. Raises `BadSchema`."""
        return compile_schema_text(self._text)

    def misfits(self, value: Json) -> list[Misfit]:
        """The misfits of a value that a caller sent. Raises `InvalidParams` if the check would take too long."""
        try:
            return list(self.validator.misfits(value))
        except TooSlow as problem:
            remedy = "send less, or ask the author to simplify the schema"
            raise InvalidParams(f"the values were not checked, because {problem}: {remedy}") from problem


MAX_REPEATED: Final = 100
MAX_BRANCHES: Final = 2
MAX_DEPTH: Final = 4
"""Limits on examples, because branches multiply with every level and schemas are untrusted."""


def example_of(schema: Json, depth: int = 0) -> Json:
    """A value that fits a JSON Schema, if its common keywords are enough to find one. Null is the last choice."""
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
