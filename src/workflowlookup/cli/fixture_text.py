"""Fixtures as text: written anew, or with single values replaced so that comments and layout around them stay.

A replaced value keeps its place and its style. What cannot be edited in place, such as a value behind an alias, is
noticed by reading the result again; then the whole text is written anew.
"""

import io
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from workflowlookup.core.schemas import PathTo
from workflowlookup.core.syntax import SyntaxProblem, parse_json, parse_yaml
from workflowlookup.core.values import Json

WIDTH: Final = 100
_ENDLESS: Final = 1 << 20
_OTHER_BREAKS: Final = re.compile("[\r\x85\u2028\u2029]")
"""What YAML takes for the end of a line too."""


class _Dumper(yaml.SafeDumper):
    """YAML as a person would write it: text of several lines after `|`, short lists and mappings on one line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    # The flags are PyYAML's.
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None
        if _OTHER_BREAKS.search(data):
            style = '"'
        elif "\n" in data:
            style = "|" if data[0].strip() and not data.endswith("\n\n") else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    def represent_sequence(self, tag: str, sequence: Any, flow_style: Any = None) -> yaml.SequenceNode:
        node = super().represent_sequence(tag, sequence, flow_style)
        node.flow_style = _fits_a_line(sequence)
        return node

    def represent_mapping(self, tag: str, mapping: Any, flow_style: Any = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        node.flow_style = _fits_a_line([*mapping, *mapping.values()])
        return node


_Dumper.add_representer(str, _Dumper.represent_str)


def _fits_a_line(values: Any) -> bool:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    is_plain = not any(isinstance(value, (dict, list)) and value for value in values)
    return is_plain and "\n" not in "".join(texts) and sum(len(text) + 2 for text in texts) < WIDTH - 20


def dump(value: Json, *, flow: bool = False) -> str:
    """The value as YAML, without a line break at the end; in block style, or all of it on one line."""
    dumper = _Dumper(io.StringIO(), sort_keys=False)
    node = dumper.represent_data(value)
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = flow or not value
    text = yaml.serialize(node, Dumper=_Dumper, width=_ENDLESS if flow else WIDTH, allow_unicode=True)
    return str(text).removesuffix("...\n").rstrip("\n")


def with_edits(text: str, extension: str, edits: Mapping[PathTo, Json]) -> str:
    """The text of a document with these values in it, and everything else as it was."""
    is_json = extension == ".json"
    before = (parse_json if is_json else parse_yaml)(text.encode())
    wanted = json.loads(json.dumps(before))  # a copy in which nothing is shared, as aliases are
    for path, value in edits.items():
        _set(wanted, path, value)
    if is_json:
        return json.dumps(wanted, indent=2, ensure_ascii=False) + "\n"
    edited = text
    for path in edits:
        edited = _edit(edited, path, wanted)
    return edited if _means(edited, wanted) else dump(wanted) + "\n"


def _means(text: str, value: Json) -> bool:
    try:
        return bool(parse_yaml(text.encode()) == value)
    except SyntaxProblem:
        return False


def _set(document: Json, path: PathTo, value: Json) -> None:
    for part in path[:-1]:
        document = document.setdefault(part, {}) if isinstance(document, dict) else document[part]
    document[path[-1]] = value


def _edit(text: str, path: PathTo, wanted: Json) -> str:
    """Put the value that `wanted` has at a path into the text; where there is no place for it, the one around it."""
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    key: Any = None
    for depth, part in enumerate(path):
        key, member = _member(node, part)
        if member is None:
            if node.flow_style:
                return _edit(text, path[:depth], wanted)
            return _insert(text, node, {str(part): _get(wanted, path[: depth + 1])})
        node = member
    value = _get(wanted, path)
    end = _end(text, node)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and value:
        start = node.start_mark
        return text[: start.index] + _indented(dump(value), start.column).lstrip() + text[end:]
    start = node.start_mark.index if key is None else key.end_mark.index
    return text[:start] + (": " if key is not None else "") + dump(value, flow=True) + text[end:]


def _member(node: Any, part: str | int) -> tuple[Any, Any]:
    """The key and the value at a part of the path; a list has no keys."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    return None, node.value[part]


def _insert(text: str, mapping: Any, entry: Mapping[str, Json]) -> str:
    end = _end(text, mapping)
    line_end = text.find("\n", end) if "\n" in text[end:] else len(text)
    lines = _indented(dump(dict(entry)), mapping.start_mark.column)
    return f"{text[:line_end]}\n{lines}{text[line_end:]}"


def _get(document: Json, path: PathTo) -> Json:
    for part in path:
        document = document[part]
    return document


def _end(text: str, node: Any) -> int:
    """Where the last character of a node is: PyYAML lets block styles reach up to what follows them."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(node, yaml.MappingNode) else last)
    start, end = node.start_mark.index, node.end_mark.index
    return int(start + len(text[start:end].rstrip()))


def _indented(text: str, column: int) -> str:
    return "\n".join(" " * column + line if line else line for line in text.split("\n"))
