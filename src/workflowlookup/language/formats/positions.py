"""The positions of values in the text of a document.

`scan` reads valid JSON into a tree of offsets; the `install` command uses it for edits. A `Finder` returns the line and
column of a value, as editors count them.
"""

import bisect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from workflowlookup.language.formats.schemas import PathTo

Position = tuple[int, int]
"""Line and column, from 1."""

Finder = Callable[[PathTo], Position]

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_Tokens = Iterator[re.Match[str]]


class JsonNode(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON value in a text: from `start` up to `end`, with its members by name or number."""

    at: int
    """The start of its name in an object, else its own start."""
    start: int
    end: int
    members: dict[str | int, "JsonNode"]


def scan(text: str) -> JsonNode:
    """The tree of a text that is valid JSON."""
    tokens = _TOKEN.finditer(text)
    first = next(tokens)
    return _node(tokens, first, first.start())


def _node(tokens: _Tokens, first: re.Match[str], at: int) -> JsonNode:
    members: dict[str | int, JsonNode] = {}
    last = first
    if first[0] in ("{", "["):
        for last in tokens:
            if last[0] in ("}", "]"):
                break
            if last[0] == ",":
                continue
            if first[0] == "[":
                members[len(members)] = _node(tokens, last, last.start())
            else:
                next(tokens)  # the colon
                members[msgspec.json.decode(last[0])] = _node(tokens, next(tokens), last.start())
    return JsonNode(at=at, start=first.start(), end=last.end(), members=members)


def json_finder(data: bytes) -> Finder:
    text = data.decode("utf-8-sig")
    root = scan(text)
    lines = [0, *(newline.end() for newline in re.finditer("\n", text))]

    def find(path: PathTo) -> Position:
        node = root
        for part in path:
            if part not in node.members:
                break
            node = node.members[part]
        line = bisect.bisect_right(lines, node.at)
        return line, node.at - lines[line - 1] + 1

    return find


def yaml_finder(data: bytes) -> Finder:
    import yaml  # noqa: PLC0415 - only for YAML

    root: Any = yaml.compose(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def find(path: PathTo) -> Position:
        node = mark = root
        for part in path:
            if isinstance(node, yaml.MappingNode):
                member = next(((key, value) for key, value in node.value if key.value == part), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                member = (node.value[part], node.value[part])
            else:
                member = None
            if member is None:  # it comes from a merged mapping: use the value around it
                break
            mark, node = member
        return (mark.start_mark.line + 1, mark.start_mark.column + 1) if mark else (1, 1)

    return find
