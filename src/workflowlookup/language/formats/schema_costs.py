"""Estimates how much work it is to compile a JSON Schema and to check a value by it, before doing so.

The validator cannot be interrupted. So its steps are counted first, for the worst case in which no check ends early:
for every part of the value, all subschemas that apply to it, with references followed. The count for each pair of
subschema and part is computed once, and added for each time the validator would visit the pair, which may be
exponentially often.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from workflowlookup.language.formats.patterns import TooSlow, expanded_size, is_deterministic, may_backtrack
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Json, extent

MAX_SUBSCHEMAS: Final = 20_000
MAX_PATTERN_SIZE: Final = 400_000
"""Limit on the `expanded_size` of all patterns of a schema: some tenths of a second."""
MAX_STEPS: Final = 4_000_000
"""Limit on the steps of a check: some tenths of a second."""
MAX_ERROR_SIZE: Final = 1_000_000
"""Errors are collected only if all of them together have at most this many characters. The validator makes them all at
once, and each has a copy of its part of the value and of the constant that was expected."""
MAX_PAIRS: Final = 200_000
"""Limit on the pairs of subschema and part that are counted before the check is given up."""
BACKTRACK_LIMIT: Final = 10_000
"""Limit on how often a pattern backtracks, and on how many characters it looks ahead."""

_ERROR_OVERHEAD: Final = 200
_METASCHEMA_STEPS: Final = 400
"""Steps of a metaschema (built into the validator) for each part of a value."""
_DIVISION_STEPS: Final = 160
"""Steps of dividing a number by a fraction: the validator uses all digits of both."""
_BYTES_OF_SUBSCHEMA: Final = 1_000
_BYTES_OF_PART: Final = 150
_BYTES_OF_PLACE: Final = 60
_BYTES_OF_PATTERN: Final = 20_000

_SAME_VALUE: Final = ("not", "if", "then", "else")
_EACH_ITEM: Final = ("items", "contains", "additionalItems", "unevaluatedItems")
_OTHER_PROPERTIES: Final = ("additionalProperties", "unevaluatedProperties")
_NO_SUBSCHEMAS: Final = frozenset({"const", "enum", "examples", "default"})
_REPEATED_IN_ERRORS: Final = frozenset({"const", "enum", "not", "pattern"})


class TooLarge(ValueError):
    """The schema is too large to be compiled; the message says which part."""


class _Pattern:
    """The cost of searching a text for a pattern: steps for each text, and for each character of it."""

    def __init__(self, pattern: str) -> None:
        self.size = expanded_size(pattern)
        self.for_text = 1
        self._for_character = 1 if is_deterministic(pattern) else self.size
        self._looks_ahead = may_backtrack(pattern)
        if self._looks_ahead and (len(re.findall(r"[*+?}]", pattern)) > 1 or re.search(r"\)[*+{]", pattern)):
            self.for_text += BACKTRACK_LIMIT

    def steps(self, text: str) -> int:
        return self.for_text + len(text) * self.for_character(len(text))

    def for_character(self, length: int = BACKTRACK_LIMIT) -> int:
        """A pattern that looks ahead may read to the end of the text from each character, at 25 characters a step."""
        ahead = min(length, BACKTRACK_LIMIT) // 25 if self._looks_ahead else 0
        return max(self._for_character, ahead)


class _Subschema:
    """One subschema: its own cost, and the subschemas that it applies to the value and its parts."""

    def __init__(self) -> None:
        self.own = 1
        self.compared = 0
        """Steps to compare a list or an object with its constants, part by part."""
        self.divided = 0
        """Steps to divide a number, for `multipleOf`."""
        self.constants = 0
        """Size of the parts of the schema that its errors repeat."""
        self.pattern: _Pattern | None = None
        self.same: list[_Subschema] = []
        self.alternatives: list[_Subschema] = []
        self.properties: dict[str, _Subschema] = {}
        self.patterns: list[tuple[_Pattern, _Subschema]] = []
        self.others: list[_Subschema] = []
        self.names: _Subschema | None = None
        self.prefix: list[_Subschema] = []
        self.each: list[_Subschema] = []


class SchemaCosts:
    """The costs of one schema."""

    def __init__(self, schema: Json) -> None:
        """Raises `TooLarge`."""
        self._nodes: dict[int, _Subschema] = {}
        self._bases: dict[int, str] = {}
        self._named: dict[str, list[Json]] = {}
        self._dynamic: dict[str, list[Json]] = {}
        self._patterns: dict[str, _Pattern] = {}
        self._root_schema = schema
        self._pattern_size = 0
        try:
            self._index(schema, "", "$id")
            self._root = self._node(schema)
            if _Count(_steps).total(self._root, None) > MAX_SUBSCHEMAS:
                raise TooLarge("its references multiply too often")
            self._factors = _factors(self._root, {})
        except RecursionError:
            raise TooLarge("its references nest too deeply") from None
        except TooSlow:
            raise TooLarge("its references multiply too often") from None
        parts, characters = extent(schema)
        self.weight = (
            _BYTES_OF_SUBSCHEMA * len(self._nodes)
            + _BYTES_OF_PART * parts
            + characters
            + _BYTES_OF_PATTERN * len(self._patterns)
            + _BYTES_OF_PLACE * self._pattern_size
        )
        """Estimated bytes of the compiled schema."""

    def refuse(self, value: Json) -> None:
        """Raises `TooSlow` if checking the value could take more than `MAX_STEPS`."""
        parts, characters = extent(value)
        if self._factors[0] * parts + self._factors[1] * (characters + 1) > MAX_STEPS:
            self._count(_Count(_steps, MAX_STEPS), value)

    def error_size(self, value: Json) -> tuple[float, float]:
        """Upper bounds on the size of all errors, and of the first error with its alternatives. Raises `TooSlow`."""
        count = _Count(_ErrorSizes(value).of)
        return self._count(count, value), count.max_alternatives

    def _count(self, count: "_Count", value: Json) -> int:
        try:
            return count.total(self._root, value)
        except RecursionError:
            raise TooSlow("the JSON Schema and the value nest too deeply to be checked") from None

    # ── the graph ──

    def _index(self, schema: Json, base: str, id_keyword: str) -> None:
        """Index the names (`$id`, anchors) by which parts of the schema can be referred to."""
        if isinstance(schema, list):
            for part in schema:
                self._index(part, base, id_keyword)
        if not isinstance(schema, Mapping):
            return
        if len(self._bases) > MAX_SUBSCHEMAS:
            raise TooLarge(f"it has more than {MAX_SUBSCHEMAS:,} parts")
        if isinstance(schema.get("$schema"), str):
            id_keyword = "id" if "draft-04" in schema["$schema"] else "$id"
        identifier = schema.get(id_keyword)
        if isinstance(identifier, str):
            base, fragment = _resolved(base, identifier)
            self._named.setdefault(f"{base}#{fragment}" if fragment else base, []).append(schema)
        self._bases[id(schema)] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._named.setdefault(f"{base}#{schema[keyword]}", []).append(schema)
        if isinstance(schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(schema["$dynamicAnchor"], []).append(schema)
        if schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(schema)
        for keyword, value in schema.items():
            if keyword not in _NO_SUBSCHEMAS:
                self._index(value, base, id_keyword)

    def _referred(self, base: str, keyword: str, reference: str) -> list[_Subschema]:
        """The subschemas that a reference may lead to: several if a name is not unique."""
        url, fragment = _resolved(base, reference)
        resources = self._named.get(url, [] if url else [self._root_schema])
        if fragment.startswith("/"):
            targets = [_at_pointer(resource, fragment) for resource in resources]
        else:
            targets = list(self._named.get(f"{url}#{fragment}", []) if fragment else resources)
        if keyword != "$ref":
            targets += self._dynamic.get(fragment, [])
        nodes = [self._node(target) for target in targets if target is not None]
        if not nodes and "//json-schema.org/" in url:
            return [_metaschema()]
        if not nodes and keyword == "$ref":
            raise TooLarge(f"its reference '{shorten(reference, 60)}' leads to nothing in it")
        return nodes

    def _node(self, schema: Json) -> _Subschema:
        cached = self._nodes.get(id(schema)) if isinstance(schema, Mapping) else _Subschema()
        if cached is not None:
            return cached
        node = self._nodes[id(schema)] = _Subschema()
        base = self._bases.get(id(schema), "")
        for keyword, value in schema.items():
            if keyword in ("const", "enum"):
                node.compared += (
                    sum(extent(part)[0] - 1 for part in (value if isinstance(value, list) else [value])) // 2
                )
            if keyword == "multipleOf" and isinstance(value, float):
                node.divided = _DIVISION_STEPS
            if keyword in _REPEATED_IN_ERRORS:
                node.constants += sum(extent(value))
            if keyword in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                node.same += self._referred(base, keyword, value)
            elif keyword == "pattern" and isinstance(value, str):
                node.pattern = self._pattern(value)
            elif keyword in ("enum", "required") and isinstance(value, list):
                node.own += len(value)
            else:
                self._apply(node, keyword, value)
        return node

    def _apply(self, node: _Subschema, keyword: str, value: Json) -> None:
        """Add the subschemas of a keyword that has any."""
        if keyword in ("anyOf", "oneOf") and isinstance(value, list):
            node.alternatives += map(self._node, value)
        elif keyword == "allOf" and isinstance(value, list):
            node.same += map(self._node, value)
        elif keyword in ("dependentSchemas", "dependencies") and isinstance(value, Mapping):
            node.same += map(self._node, value.values())
            node.own += sum(len(names) for names in value.values() if isinstance(names, list))
        elif keyword == "dependentRequired" and isinstance(value, Mapping):
            node.own += sum(len(names) for names in value.values() if isinstance(names, list))
        elif keyword in _SAME_VALUE:
            node.same.append(self._node(value))
        elif keyword == "properties" and isinstance(value, Mapping):
            node.properties = {name: self._node(part) for name, part in value.items()}
        elif keyword == "patternProperties" and isinstance(value, Mapping):
            node.patterns = [(self._pattern(pattern), self._node(part)) for pattern, part in value.items()]
        elif keyword in _OTHER_PROPERTIES:
            node.others.append(self._node(value))
        elif keyword == "propertyNames":
            node.names = self._node(value)
        elif keyword in ("prefixItems", "items") and isinstance(value, list):
            node.prefix = [self._node(part) for part in value]
        elif keyword in _EACH_ITEM:
            node.each.append(self._node(value))

    def _pattern(self, pattern: str) -> _Pattern:
        if pattern not in self._patterns:
            self._patterns[pattern] = cached = _Pattern(pattern)
            self._pattern_size += cached.size
            if self._pattern_size > MAX_PATTERN_SIZE:
                reason = "is too large once its repetitions are expanded"
                if cached.size < MAX_PATTERN_SIZE:
                    reason = "is one too many: together the patterns are too large once their repetitions are expanded"
                raise TooLarge(f"its pattern '{shorten(pattern, 60)}' {reason}")
        return self._patterns[pattern]


def _metaschema() -> _Subschema:
    node = _Subschema()
    node.own = _METASCHEMA_STEPS
    node.others = node.each = [node]
    return node


def _resolved(base: str, reference: str) -> tuple[str, str]:
    """The URL of a reference, and its fragment."""
    if reference.startswith("#") and "%" not in reference:
        return base, reference[1:]
    from urllib.parse import unquote, urldefrag, urljoin  # noqa: PLC0415 - few schemas need it

    try:
        url, fragment = urldefrag(urljoin(base, reference))
    except ValueError:  # not a URL; the validator reports it
        return reference, ""
    return url, unquote(fragment)


def _at_pointer(schema: Json, pointer: str) -> Json:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, Mapping):
            schema = schema.get(name)
        elif isinstance(schema, list) and name.isdecimal() and len(name) < 10 and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return None
    return schema


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _children(node: _Subschema) -> Iterator[_Subschema]:
    yield from node.same
    yield from node.alternatives
    yield from node.properties.values()
    yield from (part for _, part in node.patterns)
    yield from node.others
    yield from node.prefix
    yield from node.each
    if node.names is not None:
        yield node.names


def _factors(node: _Subschema, cached: dict[int, tuple[float, float]]) -> tuple[float, float]:
    """Upper bounds on the steps of a subschema for each part of a value, and for each character in it.

    They are infinite for a subschema that refers back to itself.
    """
    if id(node) not in cached:
        cached[id(node)] = (math.inf, math.inf)
        patterns = [node.pattern] if node.pattern else []
        patterns += [pattern for pattern, _ in node.patterns]
        parts = float(node.own + node.compared + node.divided + sum(pattern.for_text for pattern in patterns))
        characters = float(sum(pattern.for_character() for pattern in patterns))
        for child in _children(node):
            more_parts, more_characters = _factors(child, cached)
            parts += more_parts
            characters += more_characters
        cached[id(node)] = (parts, characters)
    return cached[id(node)]


def _too_many_steps() -> TooSlow:
    return TooSlow(f"the JSON Schema would take more than {MAX_STEPS:,} steps for this value")


def _steps(node: _Subschema, value: Json) -> int:
    """The steps of a subschema itself, without those of the subschemas that it applies."""
    if isinstance(value, str) and node.pattern is not None:
        return node.own + node.pattern.steps(value)
    if isinstance(value, Mapping):
        return node.own + node.compared + sum(pattern.steps(name) for pattern, _ in node.patterns for name in value)
    if isinstance(value, list):
        return node.own + node.compared
    return node.own + (node.divided if isinstance(value, int | float) else 0)


class _ErrorSizes:
    """The maximum size of the errors of a subschema, for each part of one value."""

    def __init__(self, value: Json) -> None:
        self._sizes: dict[int, int] = {}
        self._measure(value)

    def of(self, node: _Subschema, part: Json) -> int:
        size = self._sizes[id(part)] if isinstance(part, (Mapping, list)) else _size(part)
        return node.own * (_ERROR_OVERHEAD + size) + node.constants

    def _measure(self, part: Json) -> int:
        if isinstance(part, Mapping):
            size = sum(len(name) + self._measure(inner) for name, inner in part.items())
        elif isinstance(part, list):
            size = sum(map(self._measure, part))
        else:
            return _size(part)
        self._sizes[id(part)] = size + 1
        return size + 1


def _size(scalar: Json) -> int:
    return len(scalar) if isinstance(scalar, str) else 1


class _Count:
    """Sums `weigh(subschema, part)` over all subschemas that apply to the parts of one value."""

    def __init__(self, weigh: Callable[[_Subschema, Json], int], limit: float = math.inf) -> None:
        self.max_alternatives = 0
        """The largest sum over the alternatives of one subschema, for one part of the value."""
        self._weigh = weigh
        self._limit = limit
        self._totals: dict[tuple[int, int], int] = {}
        self._pairs = 0

    def total(self, node: _Subschema, value: Json) -> int:
        """Raises `TooSlow`."""
        self._pairs += 1
        if self._pairs > MAX_PAIRS:
            raise _too_many_steps()
        key = (id(node), id(value))
        cached = self._totals.get(key)
        if cached is not None:
            return cached
        self._totals[key] = 1  # a subschema that refers back to itself for the same value ends here
        total = self._weigh(node, value) + sum(self.total(part, value) for part in node.same)
        if node.alternatives:
            alternatives = sum(self.total(part, value) for part in node.alternatives)
            self.max_alternatives = max(self.max_alternatives, alternatives)
            total += alternatives
        if isinstance(value, Mapping):
            total += self._of_properties(node, value)
        elif isinstance(value, list):
            total += sum(self.total(each, part) for each in node.each for part in value)
            total += sum(map(self.total, node.prefix, value))
        if total > self._limit:
            raise _too_many_steps()
        self._totals[key] = total
        return total

    def _of_properties(self, node: _Subschema, value: Mapping[str, Json]) -> int:
        if node.patterns or node.others or node.names is not None:
            self._pairs += len(value)
            return sum(self._of_property(node, name, part) for name, part in value.items())
        return sum(self.total(node.properties[name], value[name]) for name in node.properties.keys() & value.keys())

    def _of_property(self, node: _Subschema, name: str, value: Json) -> int:
        total = self.total(node.names, name) if node.names is not None else 0
        total += sum(self.total(part, value) for _, part in node.patterns)
        if name in node.properties:
            return total + self.total(node.properties[name], value)
        return total + sum(self.total(part, value) for part in node.others)
