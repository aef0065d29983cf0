"""Readable YAML: text in blocks, an indentation of two, and every comment beside the field that it is about.

The text becomes a tree whose entries hold their comments, so that a comment moves with its field. Scalars are copied as
the author wrote them, or written so that our parser and YAML 1.2 read the same. No library does this: `ruamel.yaml`
attaches a comment to the field above it, and writes `'1:30'` without quotes.
"""

import itertools
import json
import re
import textwrap
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from workflowlookup.language.formats.layout import WIDTH, CannotLayOut
from workflowlookup.language.values import Json

LEVEL: Final = 2
"""The indentation of a level."""
SHORT: Final = 60
"""A list or mapping of scalars that comes from JSON is on one line, up to this many columns."""


class YamlNode(msgspec.Struct, kw_only=True):
    """A value: the text of a scalar, or the entries of a list or mapping."""

    kind: Literal["scalar", "list", "mapping"] = "scalar"
    properties: str = ""
    """Its anchor and tag."""
    text: str = ""
    """A scalar on one line, as it is written."""
    content: str | None = None
    """The decoded text of a scalar: of a key, or to write the scalar again if `text` is empty."""
    block: tuple[str, list[str]] | None = None
    """A block scalar: its header and its lines, without indentation."""
    entries: list["YamlEntry"] = msgspec.field(default_factory=list)
    is_flow: bool = False
    head: list[str] = msgspec.field(default_factory=list)
    """The comments at the top of a document; they stay there if another field comes first."""
    tail: list[str] = msgspec.field(default_factory=list)
    """The comments after the last entry."""


class YamlEntry(msgspec.Struct, kw_only=True):
    """An item of a list, or a field of a mapping, with the lines above it and the comment beside it."""

    key: YamlNode | None
    value: YamlNode
    above: list[str] = msgspec.field(default_factory=list)
    beside: str = ""


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    """A comment in a text."""

    start: int
    line: int
    column: int
    text: str
    is_alone: bool


def formatted_yaml(text: str, value: Json) -> str:
    """Formatted YAML, in the order of the value, with all comments. Raises `CannotLayOut`."""
    tree = read_tree(text)
    if not has_anchors(text):  # an alias must stay below its anchor
        follow(tree, value)
    result = yaml_text(tree)
    if Counter(" ".join(comments_of(text)).split()) != Counter(" ".join(comments_of(result)).split()):
        raise CannotLayOut("a comment would be lost")
    return result


# ── values to a tree ────────────────────────────────────────────────────────────────────────────────────────────


def tree_of(value: Json) -> YamlNode:
    """The tree of a document that has no text yet, with a blank line between steps."""
    node = _fresh(value)
    node.is_flow = False
    for entry in node.entries:
        if entry.key and entry.key.content == "steps":
            entry.value.is_flow = False
            for step in entry.value.entries:
                step.value.is_flow = False
            for step in entry.value.entries[1:]:
                step.above = [""]
    return node


def text_of(value: Json, *, in_line: bool = False) -> str:
    """The text of a value: on one line, or a list or mapping on several lines."""
    node = _fresh(value)
    return _flow(node) if in_line or not node.entries else yaml_text(node).removesuffix("\n")


def _fresh(value: Json) -> YamlNode:
    if isinstance(value, str):
        return YamlNode(content=value)
    if isinstance(value, float):
        return YamlNode(text=re.sub(r"^([^.]+)e", r"\1.0e", repr(value)))  # YAML 1.1 needs the dot
    if not isinstance(value, (dict, list)):
        return YamlNode(text=json.dumps(value))
    if isinstance(value, dict):
        entries = [YamlEntry(key=YamlNode(content=name), value=_fresh(member)) for name, member in value.items()]
        node = YamlNode(kind="mapping", entries=entries)
    else:
        node = YamlNode(kind="list", entries=[YamlEntry(key=None, value=_fresh(item)) for item in value])
    is_plain = all(entry.value.kind == "scalar" for entry in node.entries)
    node.is_flow = is_plain and len(_flow(node)) <= SHORT
    return node


# ── text to a tree ──────────────────────────────────────────────────────────────────────────────────────────────


def read_tree(text: str) -> YamlNode:
    """The tree of valid YAML. Raises `CannotLayOut`."""
    if re.search("[\r\x85\u2028\u2029]", text):
        raise CannotLayOut("it has line breaks other than LF")
    return _Reader(text).read()


def comments_of(text: str) -> list[str]:
    return [comment.text for comment in _comments(text, _events(text))]


def has_anchors(text: str) -> bool:
    """Whether the text has anchors, so that the order of fields matters."""
    return any(getattr(event, "anchor", None) for event in _events(text))


def follow(node: YamlNode, value: Json) -> None:
    """Sort the fields of the tree into the order of the fields of the value."""
    if node.kind == "mapping":
        rank = {name: position for position, name in enumerate(value)}
        node.entries.sort(key=lambda entry: rank[_name(entry)])
    for position, entry in enumerate(node.entries):
        follow(entry.value, value[position if node.kind == "list" else _name(entry)])


def _name(entry: YamlEntry) -> str:
    return (entry.key.content if entry.key else None) or ""


def _events(text: str) -> list[Any]:
    import yaml  # noqa: PLC0415 - only for YAML

    return list(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*(?:[ \t]+|$|(?=\n)))*", re.MULTILINE)
_HEADER: Final = re.compile(r"([|>]-?)[ \t]*(?:#.*)?$")


def _properties(written: str) -> str:
    match = _PROPERTIES.match(written)
    return match[0] if match else ""


def _is_scalar(event: Any) -> bool:
    return hasattr(event, "implicit") and hasattr(event, "value")


def _comments(text: str, events: list[Any]) -> Iterator[Comment]:
    """The comments: text from `#` on that is outside of scalars, or in the header of a block."""
    start = 0
    for event in [*filter(_is_scalar, events), None]:
        end = len(text) if event is None else event.start_mark.index
        if event is not None and event.style in ("|", ">"):
            end = text.find("\n", end) if "\n" in text[end:] else len(text)
        for match in _COMMENT.finditer(text, start, end):
            newline = text.rfind("\n", 0, match.start())
            yield Comment(
                start=match.start(),
                line=text.count("\n", 0, match.start()),
                column=match.start() - newline - 1,
                text=match[0].rstrip(),
                is_alone=not text[newline + 1 : match.start()].strip(),
            )
        start = len(text) if event is None else event.end_mark.index


class _Reader:
    """Reads the events in one pass; `_waiting` are the comments that belong to no entry yet."""

    def __init__(self, text: str) -> None:
        events = _events(text)
        self._text = text
        self._lines = text.split("\n")
        self._waiting = deque(_comments(text, events))
        self._events = deque(event for event in events if event.start_mark is not None)
        self._end = 0
        """The last line of the latest value; for a block, the line of its header."""

    def read(self) -> YamlNode:
        while self._events and not hasattr(self._events[0], "anchor"):
            self._events.popleft()
        if not self._events:
            raise CannotLayOut("it holds no workflow")
        node = self._node(column=-1)
        if node.entries:
            node.head, node.entries[0].above = node.entries[0].above, []
        node.tail += self._above(len(self._text), None)
        return node

    def _node(self, column: int) -> YamlNode:
        """The next value; `column` is the column of the collection around it."""
        event = self._events.popleft()
        start, end = event.start_mark, event.end_mark
        kind = type(event).__name__
        self._end = start.line if getattr(event, "style", None) in ("|", ">") else end.line
        if kind == "AliasEvent":
            return YamlNode(text=f"*{event.anchor}")
        if kind == "ScalarEvent":
            return self._scalar(event)
        node = YamlNode(kind="mapping" if kind == "MappingStartEvent" else "list", is_flow=bool(event.flow_style))
        node.properties = _properties(self._text[start.index : end.index]).strip()
        if "\n" in self._text[start.index : end.index]:
            raise CannotLayOut("an anchor or a tag is on a line of its own")
        inner = column if node.is_flow else start.column
        while not type(self._events[0]).__name__.endswith("EndEvent"):
            node.entries.append(self._entry(inner, is_field=node.kind == "mapping"))
        if node.entries:  # the blank line above a collection belongs to the entry that holds it
            node.entries[0].above = _without_first_blanks(node.entries[0].above)
        self._end = self._events.popleft().end_mark.line
        node.tail = self._below(column)
        return node

    def _entry(self, column: int, *, is_field: bool) -> YamlEntry:
        first = self._events[0]
        above = self._above(first.start_mark.index, first.start_mark.line)
        key = self._node(column) if is_field else None
        if key is not None and (key.kind != "scalar" or key.block or not key.text):
            raise CannotLayOut("a key is more than a word")
        beside = self._beside(first.end_mark.line) if is_field else []
        value = self._node(column)
        beside += self._beside(self._end)
        return YamlEntry(key=key, value=value, above=above, beside="  ".join(beside))

    def _scalar(self, event: Any) -> YamlNode:
        start, end = event.start_mark.index, event.end_mark.index
        written = self._text[start:end]
        properties = _properties(written) if event.anchor or event.tag else ""
        bare = written[len(properties) :]
        node = YamlNode(properties=properties.strip(), content=event.value)
        if event.style in ("|", ">"):
            node.block = _block(bare)
        elif "\n" not in bare:
            node.text = bare or ("" if event.tag else "null")
        if "\n" in properties:
            raise CannotLayOut("an anchor or a tag is on a line of its own")
        return node

    def _above(self, before: int, line: int | None) -> list[str]:
        """The lines above an entry: comments before an offset, and a blank line for each gap."""
        lines: list[str] = []
        while self._waiting and self._waiting[0].start < before:
            comment = self._waiting.popleft()
            lines += [*self._gap(comment.line), comment.text]
        return lines + (self._gap(line) if line is not None else [])

    def _below(self, column: int) -> list[str]:
        """The comments at the end of a collection: those that are indented more than the collection around it."""
        lines: list[str] = []
        while self._is_next() and self._waiting[0].is_alone and self._waiting[0].column > column:
            comment = self._waiting.popleft()
            lines += [*self._gap(comment.line), comment.text]
        return lines

    def _beside(self, line: int) -> list[str]:
        comments: list[str] = []
        while self._is_next() and self._waiting[0].line == line and not self._waiting[0].is_alone:
            comments.append(self._waiting.popleft().text)
        return comments

    def _is_next(self) -> bool:
        """Whether a comment comes before the next event."""
        return bool(self._waiting) and self._waiting[0].start < self._events[0].start_mark.index

    def _gap(self, line: int) -> list[str]:
        return [""] if line > 0 and not self._lines[line - 1].strip() else []


def _block(written: str) -> tuple[str, list[str]] | None:
    """A block as it is written; None if it must be written again, because its header has more than its kind."""
    header, _, rest = written.partition("\n")
    kind = _HEADER.fullmatch(header)
    lines = rest.rstrip("\n").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip(" "))
    is_plain = margin and not any(line[:margin].strip() or (line[margin:] and not line.strip()) for line in lines)
    return (kind[1], [line[margin:] for line in lines]) if kind and is_plain else None


# ── a tree to text ──────────────────────────────────────────────────────────────────────────────────────────────


def yaml_text(node: YamlNode) -> str:
    if node.kind == "scalar" or not node.entries:
        raise CannotLayOut("it holds no workflow")
    node.is_flow = False
    return "\n".join([*node.head, *_lines(node, "")]) + "\n"


def _lines(node: YamlNode, indent: str) -> Iterator[str]:
    """The lines of a list or mapping in block style."""
    for position, entry in enumerate(node.entries):
        if entry.key is None and entry.value.entries:  # comments are above the dash, not between it and the field
            first = entry.value.entries[0]
            entry.above, first.above = [*entry.above, *_without_first_blanks(first.above)], []
        above = entry.above if position else _without_first_blanks(entry.above)
        yield from (indent + line if line else "" for line in above)
        yield from _entry_lines(entry, indent)
    yield from (indent + line if line else "" for line in node.tail)


def _without_first_blanks(lines: list[str]) -> list[str]:
    return list(itertools.dropwhile(lambda line: not line, lines))


def _entry_lines(entry: YamlEntry, indent: str) -> Iterator[str]:
    value = entry.value
    head = indent + ("-" if entry.key is None else _flow(entry.key) + ":")
    inner = indent + " " * LEVEL
    properties = f" {value.properties}" if value.properties else ""
    beside = f"  {entry.beside}" if entry.beside else ""
    if value.kind == "scalar":
        header, lines = _scalar_lines(value, inner, len(head) + len(properties) + 1)
        yield f"{head}{properties} {header}".rstrip() + beside
        yield from (inner + line if line else "" for line in lines)
    elif not value.entries or (_may_flow(value) and len(head + properties) + 1 + len(_flow(value)) <= WIDTH):
        yield f"{head} {_flow(value)}{beside}"
        yield from (inner + line if line else "" for line in value.tail)
    elif entry.key is None:
        if beside:
            yield indent + entry.beside
        if properties:
            yield head + properties
            yield from _lines(value, inner)
            return
        first, *rest = _lines(value, inner)
        yield f"{head} {first[len(inner) :]}"
        yield from rest
    else:
        yield head + properties + beside
        yield from _lines(value, inner)


def _may_flow(node: YamlNode) -> bool:
    """Whether a value can be on one line: it was written so, and has no comments and no line breaks."""
    if node.kind == "scalar":
        return node.block is None and "\n" not in (node.content or "")
    return (
        node.is_flow
        and not node.tail
        and all(not any(entry.above) and not entry.beside and _may_flow(entry.value) for entry in node.entries)
    )


def _flow(node: YamlNode) -> str:
    """A value on one line."""
    properties = f"{node.properties} " if node.properties else ""
    if node.kind == "scalar":
        return (properties + (node.text or _quoted(node.content or "", _PLAIN_IN_FLOW))).rstrip()
    parts = [(f"{_flow(entry.key)}: " if entry.key else "") + _flow(entry.value) for entry in node.entries]
    return properties + ("[{}]" if node.kind == "list" else "{{{}}}").format(", ".join(parts))


_WORDS: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_PLAIN_IN_FLOW: Final = re.compile(r"[^\W\d_](?:[\w ;.!?/()+'\"=$%&*@<>|~^`-]*[\w;.!?/()+'\"$%*@`-])?")
_PLAIN: Final = re.compile(r"[^\W\d_](?:[\w ;.!?/()+'\"=$%&*@<>|~^`,-]*[\w;.!?/()+'\"$%*@`,-])?")
_UNPRINTABLE: Final = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


def _quoted(text: str, plain: re.Pattern[str]) -> str:
    """The text without quotes if every parser reads it as text, else in double quotes."""
    if plain.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\U{ord(match[0]):08x}", quoted)


def _scalar_lines(node: YamlNode, indent: str, used: int) -> tuple[str, list[str]]:
    """A scalar after its key: the text on the same line, and the lines below."""
    if node.block is not None:
        return node.block
    if node.text and "\n" not in (node.content or ""):
        return node.text, []
    text = node.content or ""
    last_line = text.removesuffix("\n").rpartition("\n")[2]
    if _UNPRINTABLE.search(text) or not last_line.strip():  # a blank line at its end would look like one between fields
        return _quoted(text, _PLAIN), []
    if "\n" in text:
        margin = (
            str(LEVEL) if text.lstrip("\n")[0].isspace() else ""
        )  # else its leading blanks would count as indentation
        return (f"|{margin}", text[:-1].split("\n")) if text.endswith("\n") else (f"|{margin}-", text.split("\n"))
    line = _quoted(text, _PLAIN)
    if used + len(line) <= WIDTH or "  " in text or "\t" in text or text != text.strip():
        return line, []
    return ">-", textwrap.wrap(text, WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
