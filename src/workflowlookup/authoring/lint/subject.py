"""A document as the checks of `lint` need it: its steps with their loops, the variables there, and its prose.

Nothing here judges: `lint` has the checks.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.conditions import Condition, walk
from workflowlookup.language.document.building import build
from workflowlookup.language.document.findings import Severity
from workflowlookup.language.document.parts import capture_schema, repeated_by_id, variables_set_by
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import PathTo
from workflowlookup.language.model import Workflow
from workflowlookup.language.templates import filler
from workflowlookup.language.values import Json
from workflowlookup.language.verdicts import Scope, VariableDeclaration, declaration, understood

JsonObject = Mapping[str, Json]
Findings = Iterator[tuple[PathTo, str, str]]
"""Each with a path, the problem there, and how to fix it."""


class LocatedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a document, and the loops around it, outermost first."""

    path: PathTo
    step: JsonObject
    loops: tuple[JsonObject, ...] = ()

    @property
    def id(self) -> str:
        return str(self.step["id"])


class LintSubject(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A valid document, with what several checks need."""

    document: JsonObject
    max_prompt_tokens: int
    budget: Budget
    """The time for all conditions, patterns and names of the document together."""

    @functools.cached_property
    def steps(self) -> list[LocatedStep]:
        """Every step, in the order of execution; the body of a loop follows the loop."""
        top_level: dict[str, tuple[PathTo, JsonObject]] = {
            step["id"]: (("steps", index), step) for index, step in enumerate(self.document["steps"])
        }
        repeated = repeated_by_id(self.document)

        def visit(path: PathTo, step: JsonObject, loops: tuple[JsonObject, ...]) -> Iterator[LocatedStep]:
            yield LocatedStep(path=path, step=step, loops=loops)
            body = step.get("body", ())
            inner = [top_level[body]] if isinstance(body, str) else numbered((*path, "body"), body)
            for inner_path, inner_step in inner:
                yield from visit(inner_path, inner_step, (*loops, step))

        return [
            located
            for identifier, (path, step) in top_level.items()
            if identifier not in repeated
            for located in visit(path, step, ())
        ]

    @functools.cached_property
    def workflow(self) -> Workflow:
        return build(self.document)

    @functools.cached_property
    def contract(self) -> Scope:
        """The declared variables. One that a step produces is not set before that step, even if it is required."""
        captured = {
            name: VariableDeclaration(capture_schema(variable))
            for located in self.steps
            if isinstance(produces := located.step.get("produces"), Mapping)
            for name, variable in produces.items()
        }
        declared = captured | _declared(self.document.get("contextSchema"))
        return declared | {name: VariableDeclaration(declared[name].schema) for name in self.produced & declared.keys()}

    @functools.cached_property
    def produced(self) -> frozenset[str]:
        return frozenset(name for located in self.steps for name in variables_set_by(located.step))

    @functools.cached_property
    def prose(self) -> "Prose":
        return Prose(self.document)

    @functools.cached_property
    def has_contract(self) -> bool:
        return bool(self.contract) or any(located.step.get("produces") for located in self.steps)

    def scope(self, loops: Sequence[JsonObject]) -> Scope:
        """The variables inside these loops."""
        scope = self.contract
        for step in loops:
            scope = {**scope, **_loop_variables(step["loop"], scope)}
        return scope

    @functools.cached_property
    def _loops(self) -> Mapping[PathTo, Sequence[JsonObject]]:
        return {located.path: located.loops for located in self.steps}

    def enclosing(self, path: PathTo) -> Iterator[Json]:
        """The values around a path, from the document inwards, and the loops that repeat its step by id."""
        yield self.document
        yield from self._loops.get(path[:2], ())
        node: Json = self.document
        for part in path:
            node = node[part]
            yield node


class LintCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check of lint."""

    name: str
    find: Callable[[LintSubject], Findings]
    description: str
    severity: Severity = Severity.WARNING


def numbered(path: PathTo, items: Sequence[Json]) -> list[tuple[PathTo, Json]]:
    return [((*path, index), item) for index, item in enumerate(items)]


def _declared(schema: Json) -> dict[str, VariableDeclaration]:
    """The variables that the JSON Schema of the context declares."""
    fields = schema if isinstance(schema, Mapping) else {}
    properties = fields["properties"] if isinstance(fields.get("properties"), Mapping) else {}
    required = fields["required"] if isinstance(fields.get("required"), list) else []
    names = dict.fromkeys((*properties, *required))
    return {name: VariableDeclaration(properties.get(name, True), always_set=name in required) for name in names}


def _loop_variables(loop: JsonObject, scope: Scope) -> dict[str, VariableDeclaration]:
    limit = loop["maxIterations"]
    variables = {counter(loop): whole_number(1, limit)}
    if loop["type"] in ("for", "forEach"):
        variables[loop.get("indexVar", "currentIndex")] = whole_number(0, limit - 1)
    if loop["type"] == "forEach":
        items = understood(declaration(loop["items"], scope).schema)
        item = items.get("items", True) if "prefixItems" not in items else True
        variables[loop.get("itemVar", "currentItem")] = VariableDeclaration(item, always_set=True)
    return variables


def loop_variables(step: JsonObject) -> tuple[str, ...]:
    """The names of the variables that a loop sets for its body."""
    loop = step["loop"]
    return counter(loop), str(loop.get("itemVar", "currentItem")), str(loop.get("indexVar", "currentIndex"))


def whole_number(minimum: int, maximum: int) -> VariableDeclaration:
    return VariableDeclaration({"type": "integer", "minimum": minimum, "maximum": maximum}, always_set=True)


def counter(loop: JsonObject) -> str:
    return str(loop.get("iterationVar", "currentIteration"))


_FREE_NAMES: Final = frozenset({"outputRequired", "properties", "args", "variables"})
"""Fields whose members have names that the author chose."""

_NOT_PROSE: Final = frozenset(
    {
        *("id", "runCondition", "when", "condition", "requireConfirmation", "loop", "requires", "produces"),
        *("contextSchema", "call", "proof", "tools", "triggers"),
    }
)
"""Fields that use variables and do not ask the agent to set them."""

_TEMPLATE: Final = re.compile(r"\{\{[^{}\n]*\}\}")


def texts_in(node: Json, path: PathTo = ()) -> Iterator[tuple[PathTo, str]]:
    """Every text with its path; names that the author chose are in quotes."""
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
    """The texts that may ask the agent to set a variable; without templates, which only use it."""

    quoted_words: frozenset[str]

    def __init__(self, *nodes: Json) -> None:
        texts = (text for node in nodes for path, text in texts_in(node) if not _NOT_PROSE.intersection(path))
        self._text = "\n".join(_TEMPLATE.sub(" ", text) for text in texts)
        self._words = frozenset(_WORD.findall(self._text))
        self.quoted_words = frozenset(_QUOTED_WORD.findall(self._text))

    def mentions(self, name: str, *, quoted: bool = False) -> bool:
        if _WORD.fullmatch(name):
            return name in (self.quoted_words if quoted else self._words)
        prefix = r"[`'\"](?:context\.)?" if quoted else r"(?<![\w$])"
        return name in self._text and re.search(rf"{prefix}{re.escape(name)}(?![\w$])", self._text) is not None


def head_of(name: str) -> str:
    return name.partition(".")[0]


def variables_in_templates(text: str) -> dict[str, None]:
    unset: dict[str, None] = {}
    filler({}, unset)(text)
    return unset


def variables_in(condition: Condition) -> dict[str, None]:
    return {part["var"]: None for part in walk(condition) if "var" in part}
