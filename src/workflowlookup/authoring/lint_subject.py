"""A document as the checks of `lint` ask about it: its steps with their loops, what is known there, what it tells.

Nothing here judges: `core.lint` has the checks.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.building import build
from workflowlookup.language.conditions import Condition, walk
from workflowlookup.language.document import capture_schema, repeated_by_id, variables_set_by
from workflowlookup.language.model import Workflow
from workflowlookup.language.patterns import Budget
from workflowlookup.language.schemas import PathTo
from workflowlookup.language.values import Json
from workflowlookup.language.verdicts import Scope, VariableDeclaration, declaration, understood

Object = Mapping[str, Json]


class LocatedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a document, and the loops around it, outermost first."""

    path: PathTo
    step: Object
    loops: tuple[Object, ...] = ()

    @property
    def id(self) -> str:
        return str(self.step["id"])


class LintSubject(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A sound document with what several checks ask of it."""

    document: Object
    max_prompt_tokens: int
    budget: Budget
    """The time that the conditions, patterns and names of the document may take together."""

    @functools.cached_property
    def places(self) -> list[LocatedStep]:
        """Every step, in the order in which they are walked."""
        top_level: dict[str, tuple[PathTo, Object]] = {
            step["id"]: (("steps", index), step) for index, step in enumerate(self.document["steps"])
        }
        repeated = repeated_by_id(self.document)

        def visit(path: PathTo, step: Object, loops: tuple[Object, ...]) -> Iterator[LocatedStep]:
            yield LocatedStep(path=path, step=step, loops=loops)
            body = step.get("body", ())
            inner = [top_level[body]] if isinstance(body, str) else numbered((*path, "body"), body)
            for inner_path, inner_step in inner:
                yield from visit(inner_path, inner_step, (*loops, step))

        return [
            place
            for identifier, (path, step) in top_level.items()
            if identifier not in repeated
            for place in visit(path, step, ())
        ]

    @functools.cached_property
    def workflow(self) -> Workflow:
        return build(self.document)

    @functools.cached_property
    def contract(self) -> Scope:
        """The variables that the workflow declares. What a step produces is not there before, even when required."""
        captured = {
            name: VariableDeclaration(capture_schema(entry))
            for place in self.places
            if isinstance(produces := place.step.get("produces"), Mapping)
            for name, entry in produces.items()
        }
        declared = captured | _declared(self.document.get("contextSchema"))
        return declared | {name: VariableDeclaration(declared[name].schema) for name in self.produced & declared.keys()}

    @functools.cached_property
    def produced(self) -> frozenset[str]:
        return frozenset(name for place in self.places for name in variables_set_by(place.step))

    @functools.cached_property
    def prose(self) -> "Prose":
        return Prose(self.document)

    @functools.cached_property
    def has_contract(self) -> bool:
        return bool(self.contract) or any(place.step.get("produces") for place in self.places)

    def scope(self, loops: Sequence[Object]) -> Scope:
        """The variables that are known inside of loops."""
        scope = self.contract
        for step in loops:
            scope = {**scope, **_loop_variables(step["loop"], scope)}
        return scope

    @functools.cached_property
    def _loops(self) -> Mapping[PathTo, Sequence[Object]]:
        return {place.path: place.loops for place in self.places}

    def around(self, path: PathTo) -> Iterator[Json]:
        """All that a place lies in, also the loops that repeat its step by its id."""
        yield self.document
        yield from self._loops.get(path[:2], ())
        node: Json = self.document
        for part in path:
            node = node[part]
            yield node


def numbered(path: PathTo, items: Sequence[Json]) -> list[tuple[PathTo, Json]]:
    return [((*path, index), item) for index, item in enumerate(items)]


def _declared(schema: Json) -> dict[str, VariableDeclaration]:
    """The variables of a JSON Schema of the context."""
    fields = schema if isinstance(schema, Mapping) else {}
    properties = fields["properties"] if isinstance(fields.get("properties"), Mapping) else {}
    required = fields["required"] if isinstance(fields.get("required"), list) else []
    names = dict.fromkeys((*properties, *required))
    return {name: VariableDeclaration(properties.get(name, True), always_set=name in required) for name in names}


def _loop_variables(loop: Object, scope: Scope) -> dict[str, VariableDeclaration]:
    most = loop["maxIterations"]
    variables = {counter(loop): whole_number(1, most)}
    if loop["type"] in ("for", "forEach"):
        variables[loop.get("indexVar", "currentIndex")] = whole_number(0, most - 1)
    if loop["type"] == "forEach":
        items = understood(declaration(loop["items"], scope).schema)
        item = items.get("items", True) if "prefixItems" not in items else True
        variables[loop.get("itemVar", "currentItem")] = VariableDeclaration(item, always_set=True)
    return variables


def loop_variables(step: Object) -> tuple[str, ...]:
    """The names that the body of a loop sees beside the context."""
    loop = step["loop"]
    return counter(loop), str(loop.get("itemVar", "currentItem")), str(loop.get("indexVar", "currentIndex"))


def whole_number(least: int, most: int) -> VariableDeclaration:
    return VariableDeclaration({"type": "integer", "minimum": least, "maximum": most}, always_set=True)


def counter(loop: Object) -> str:
    return str(loop.get("iterationVar", "currentIteration"))


_FREE_NAMES: Final = frozenset({"outputRequired", "properties", "args", "variables"})
"""Fields whose value has names that the author chose."""

_NOT_PROSE: Final = frozenset(
    {
        *("id", "runCondition", "when", "condition", "requireConfirmation", "loop", "requires", "produces"),
        *("contextSchema", "call"),
    }
)
"""Fields that use variables without telling anybody to set them."""

_TEMPLATE: Final = re.compile(r"\{\{[^{}\n]*\}\}")


def texts_in(node: Json, path: PathTo = ()) -> Iterator[tuple[PathTo, str]]:
    """Every text with its place; names that the author chose in quotes."""
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, list):
        for at, item in numbered(path, node):
            yield from texts_in(item, at)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            if not key.startswith("x-"):
                if path and path[-1] in _FREE_NAMES:
                    yield (*path, key), f'"{key}"'
                yield from texts_in(value, (*path, key))


_WORD: Final = re.compile(r"[\w$]+")
_QUOTED_WORD: Final = re.compile(r"[`'\"](?:context\.)?([\w$]+)")


class Prose:
    """What nodes of a document tell, without templates: they use a variable and do not set it."""

    quoted_words: frozenset[str]

    def __init__(self, *nodes: Json) -> None:
        told = (text for node in nodes for path, text in texts_in(node) if not _NOT_PROSE.intersection(path))
        self._text = "\n".join(_TEMPLATE.sub(" ", text) for text in told)
        self._words = frozenset(_WORD.findall(self._text))
        self.quoted_words = frozenset(_QUOTED_WORD.findall(self._text))

    def mentions(self, name: str, *, quoted: bool = False) -> bool:
        if _WORD.fullmatch(name):
            return name in (self.quoted_words if quoted else self._words)
        before = r"[`'\"](?:context\.)?" if quoted else r"(?<![\w$])"
        return name in self._text and re.search(rf"{before}{re.escape(name)}(?![\w$])", self._text) is not None


def head_of(name: str) -> str:
    return name.partition(".")[0]


def variables_in(condition: Condition) -> dict[str, None]:
    return {part["var"]: None for part in walk(condition) if "var" in part}
