"""Replaces single values in the text of a JSON or YAML document; in YAML, comments and layout around them stay.

The result is parsed again. If it does not mean what it should, for example because a value is behind an alias, the
whole text is generated from the value, without the comments.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from workflowlookup.language.formats.layout import json_text
from workflowlookup.language.formats.schemas import PathTo
from workflowlookup.language.formats.syntax import SyntaxProblem, parse_json, parse_yaml
from workflowlookup.language.formats.yaml_layout import text_of
from workflowlookup.language.values import Json

TextEdit = tuple[int, int, str]
"""Start, end, and the text that replaces what is between them."""


def json_with_edits(text: str, edits: Mapping[PathTo, Json]) -> str:
    return json_text(_edited(parse_json(text.encode()), edits))


def yaml_with_edits(text: str, edits: Mapping[PathTo, Json]) -> str:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(mark)
    expected = _edited(parse_yaml(text.encode()), edits)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    edited = _apply(text, [_text_edit(text, root, path, expected) for path in edits])
    return mark + (edited if _means(edited, expected) else text_of(expected) + "\n")


def _edited(document: Json, edits: Mapping[PathTo, Json]) -> Json:
    edited = json.loads(json.dumps(document))  # a copy without shared parts, which YAML aliases make
    for path, value in edits.items():
        node = edited
        for part in path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node[part]
        node[path[-1]] = value
    return edited


def _means(text: str, value: Json) -> bool:
    try:
        return bool(parse_yaml(text.encode()) == value)
    except SyntaxProblem:
        return False


def _apply(text: str, text_edits: Iterable[TextEdit]) -> str:
    """The text with all edits; one inside the range of another is already part of that."""
    parts: list[str] = []
    at = 0
    for start, end, new in sorted(dict.fromkeys(text_edits), key=lambda edit: (edit[0], -_indent(edit[2]))):
        if start >= at:
            parts += [text[at:start], new]
            at = end
    return "".join([*parts, text[at:]])


def _indent(inserted: str) -> int:
    """The indentation of inserted lines: of several insertions at one position, the innermost come first."""
    return len(inserted) - len(inserted.lstrip())


def _text_edit(text: str, root: Any, path: PathTo, document: Json) -> TextEdit:
    """The edit that writes the value at a path; if the text has no such path, the value around it."""
    node, key = root, None
    for depth, part in enumerate(path):
        member_key, member = _member(node, part)
        if member is None:
            if node.flow_style:
                path = path[:depth]
                break
            return _insertion(text, node, {str(part): _get(document, path[: depth + 1])})
        node, key = member, member_key
    value = _get(document, path)
    end = _end(text, node)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and value:
        start = node.start_mark
        return start.index, end, _indented(text_of(value), start.column).lstrip()
    start = node.start_mark.index if key is None else key.end_mark.index
    return start, end, (": " if key is not None else "") + text_of(value, in_line=True)


def _member(node: Any, part: str | int) -> tuple[Any, Any]:
    """The key and the value at a part of the path; a list has no keys."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    return None, node.value[part]


def _insertion(text: str, mapping: Any, member: Mapping[str, Json]) -> TextEdit:
    """The edit that appends a member to a mapping."""
    end = _end(text, mapping)
    line_end = text.find("\n", end) if "\n" in text[end:] else len(text)
    return line_end, line_end, "\n" + _indented(text_of(dict(member)), mapping.start_mark.column)


def _get(document: Json, path: PathTo) -> Json:
    for part in path:
        document = document[part]
    return document


def _end(text: str, node: Any) -> int:
    """The end of the text of a node. PyYAML counts the blank space after a block as part of it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(node, yaml.MappingNode) else last)
    start, end = node.start_mark.index, node.end_mark.index
    return int(start + len(text[start:end].rstrip()))


def _indented(text: str, column: int) -> str:
    return "\n".join(" " * column + line if line else line for line in text.split("\n"))
