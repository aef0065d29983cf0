"""Parses JSON and YAML documents, with hints that say how to fix a syntax error.

Documents are hostile until checked: nesting is bounded, YAML has only the types of JSON (no dates, no tags), and the
expansion of aliases is bounded. The caller checks the size before the text is in memory.
"""

import codecs
import functools
import itertools
import math
import re
from typing import Any, Final

import msgspec

from workflowlookup.language.values import Json, deeper_than, nests_deeper

MAX_NESTING: Final = 64
MAX_YAML_NODES: Final = 100_000
_WHEN_EMPTY: Final = "Write the workflow, or start from an example"


class SyntaxProblem(ValueError):
    """A syntax error: where, why, and what to do about it."""

    def __init__(self, reason: str, *suggestions: str, where: str = "", line: int = 1, column: int = 1) -> None:
        self.reason = reason
        self.message = f"{reason} at {where}" if where else reason
        super().__init__(self.message)
        self.suggestions = suggestions
        self.line = line
        self.column = column


class TooDeep(SyntaxProblem):
    """Lists and objects nest deeper than `MAX_NESTING`."""

    def __init__(self) -> None:
        super().__init__(
            f"The document nests deeper than {MAX_NESTING} levels",
            f"Keep lists and objects within {MAX_NESTING} levels of nesting",
        )


class RepeatedField(SyntaxProblem):
    """An object has the same field twice."""

    def __init__(self, name: str, value: Json) -> None:
        """`value` is the document with only the last field of that name."""
        super().__init__(
            f"JSON syntax error: the field '{name}' is written twice in one object", "Remove one of the two"
        )
        self.value = value


def parse_json(text: bytes) -> Json:
    """The JSON value; a byte order mark is ignored. Raises `SyntaxProblem` with the position and a hint."""
    text = text.removeprefix(codecs.BOM_UTF8)
    if not text or text.isspace():
        raise SyntaxProblem("JSON syntax error: the document is empty", _WHEN_EMPTY)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise _json_problem(text, str(problem)) from None
    except RecursionError:
        raise TooDeep from None
    if nests_deeper(text, value, MAX_NESTING):
        raise TooDeep
    if msgspec.json.format(text, indent=-1) != msgspec.json.encode(
        value
    ):  # only the spelling may differ, or a field is repeated
        _refuse_repeated(text, value)
    return value


def _refuse_repeated(text: bytes, value: Json) -> None:
    import json  # noqa: PLC0415 - hardly ever needed

    def refuse(pairs: list[tuple[str, Any]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise RepeatedField(name, value)
            names.add(name)

    json.loads(text, object_pairs_hook=refuse, parse_int=float)


def _not_utf8(text: bytes, position: int) -> SyntaxProblem:
    line, column = line_and_column(text, position)
    return SyntaxProblem(
        "The text is not UTF-8: bad byte",
        "Save the file as UTF-8",
        where=f"line {line}, column {column}",
        line=line,
        column=column,
    )


def _json_problem(text: bytes, fallback: str) -> SyntaxProblem:
    """The error as the standard library reports it, which is better than msgspec, with a hint from the text there."""
    import json  # noqa: PLC0415 - the first list must not wait for it

    try:
        string = text.decode()
    except UnicodeDecodeError as problem:
        return _not_utf8(text, problem.start)
    try:
        json.loads(string, parse_int=float)  # Python refuses to read integers of more than 4,300 digits
    except json.JSONDecodeError as problem:
        reason, position = _trailing_comma(string, problem.pos) or (problem.msg, problem.pos)
        hint = _json_hint(string, position, reason)
        if not string[position:].strip() or reason.startswith("Unterminated string"):
            reason, position = "Unexpected end of JSON input", len(string)
    except RecursionError:
        return TooDeep()
    else:  # accepted there, refused by msgspec: NaN, a lone surrogate, a number out of range
        is_number = fallback.startswith(("Number", "Integer"))
        reason, position = "A number out of range" if is_number else "A value that JSON does not have", 0
        hint = "Use only what JSON has: numbers that fit a double, true, false, null, and text in valid Unicode"
    line, column = string.count("\n", 0, position) + 1, position - (string.rfind("\n", 0, position) + 1) + 1
    return SyntaxProblem(
        f"JSON syntax error: {reason}",
        hint,
        "Validate JSON syntax using a JSON validator or formatter",
        where=f"position {position} (line {line}, column {column})",
        line=line,
        column=column,
    )


def _trailing_comma(text: str, position: int) -> tuple[str, int] | None:
    """The position of a bracket after a trailing comma, because Python versions report this error differently."""
    rest = text[position:].lstrip(", \t\r\n")
    if rest[:1] in ("}", "]") and "," in text[len(text[:position].rstrip(" \t\r\n,")) : len(text) - len(rest)]:
        return "Unexpected comma", len(text) - len(rest)
    return None


def _json_hint(text: str, position: int, reason: str) -> str:
    rest = text[position:].lstrip()
    before = text[:position].rstrip()
    if not rest or reason.startswith("Unterminated"):
        return "Check for missing closing braces, brackets, or quotes" + _unclosed(text)
    if rest.startswith(("//", "/*", "#")):
        return "Remove the comment: JSON does not allow comments (YAML does)"
    if rest[0] in "}]" and before.endswith(","):
        return f"Remove the comma before '{rest[0]}'"
    if rest[0] == "'":
        return 'Use double quotes (") instead of single quotes'
    if rest.startswith(("True", "False", "None")):
        return "Write true, false and null in lower case"
    if "delimiter" in reason:
        missing = ":" if ":" in reason else ","
        return f"Add the missing '{missing}' before this position, or close the open bracket or quote"
    if reason.startswith("Expecting property name"):
        return "Put the name of the field in double quotes"
    if reason == "Extra data":
        return "Remove everything after the end of the document; it has exactly one value"
    if reason.startswith("Invalid control character"):
        return "Write line breaks inside text as \\n"
    return "Check the text around this position for missing commas, brackets, or quotes"


def _unclosed(text: str) -> str:
    """Which brackets are still open at the end of the text."""
    open_brackets: list[str] = []
    in_text = escaped = False
    for character in text:
        if in_text:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_text = False
        elif character == '"':
            in_text = True
        elif character in "{[":
            open_brackets.append("}" if character == "{" else "]")
        elif character in "}]" and open_brackets:
            open_brackets.pop()
    missing = ('"' if in_text else "") + "".join(reversed(open_brackets))
    return f": the text ends where {missing[:20]} is expected" if missing else ""


def parse_yaml(text: bytes) -> Json:
    """The YAML document as a JSON value. Raises `SyntaxProblem`."""
    import yaml  # noqa: PLC0415 - only for those who write YAML

    try:
        _refuse_large_yaml(text)
        value = yaml.load(text, Loader=_json_loader())  # noqa: S506 - a safe loader, narrowed to JSON types
    except yaml.MarkedYAMLError as problem:
        raise _yaml_problem(text, problem) from None
    except SyntaxProblem:
        raise
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as problem:
        reason = str(problem).partition("\n")[0] or type(problem).__name__
        raise SyntaxProblem(f"YAML syntax error: {reason}", "Save the file as UTF-8 text, without tags") from None
    except RecursionError:
        raise TooDeep from None
    if value is None and not _NO_CONTENT.sub(b"", text).strip():
        raise SyntaxProblem("YAML syntax error: the document is empty", _WHEN_EMPTY)
    if _count_nodes(value, {}) > MAX_YAML_NODES:
        raise too_many_nodes()
    refuse_deep(value)
    return value


def refuse_deep(value: Json) -> None:
    """Raises `TooDeep`."""
    if deeper_than(value, MAX_NESTING):
        raise TooDeep


_NO_CONTENT: Final = re.compile(rb"#.*|^---|^\.\.\.|\xef\xbb\xbf", re.MULTILINE)


def _yaml_problem(text: bytes, error: Any) -> SyntaxProblem:
    problem, mark, opened = error.problem or error.context, error.problem_mark or error.context_mark, error.context_mark
    if "end of stream" in problem and "quoted" in (error.context or ""):
        problem, mark = "the quote is never closed", opened  # the end of the text is not helpful
    elif "another document" in problem:
        problem = "found another document"
    elif "expected ':'" in problem:
        mark = opened
    row, column = (mark.line, mark.column) if mark else (0, 0)
    start = (opened.line, opened.column) if opened else None
    return SyntaxProblem(
        f"YAML syntax error: {problem}",
        _yaml_hint(problem, text.decode(errors="replace"), (row, column), start),
        where=f"line {row + 1}, column {column + 1}",
        line=row + 1,
        column=column + 1,
    )


_Position = tuple[int, int]
"""Line and column, from 0."""

_BREAK: Final = "\r\n|[\n\r\x85\u2028\u2029]"
_LINE: Final = r"\s*(?:-\s+)*(?:[^\s:#'\"{\[][^:]*:\s+)?(?P<value>.*)"
_NEEDS_QUOTES: Final = frozenset("{[@`%*&!")


def _yaml_hint(problem: str, text: str, stopped: _Position, opened: _Position | None) -> str:
    """What is likely to fix the error. `opened` is the start of the construct that the parser could not finish."""
    row, column = stopped
    line = next(itertools.islice(re.split(_BREAK, text), row, None), "")
    value = re.match(_LINE, line)["value"]  # type: ignore[index]  # matches any line
    begin = f"line {opened[0] + 1}, column {opened[1] + 1}" if opened else "the position above"
    if "tab" in problem or line[column : column + 1] == "\t":
        return "Indent with spaces: YAML allows no tabs there"
    if "twice" in problem:
        return f"Remove one of the two, or rename it; the first is at {begin}"
    if "quote" in problem:
        return f"Close the quote that opens at {begin}"
    if "escape" in problem:
        return "Use single quotes, in which a backslash is plain text, or write it twice"
    if "line break" in problem:
        return f"Begin the text on a new line below '{value[:1]}', or put it in quotes"
    if "mapping values" in problem and ": " in line[:column]:
        return "Put text that contains ': ' in quotes, as in title: \"Announce: the end\""
    if value[:1] in ("'", '"'):
        return f"The text ends at the second {value[0]}: write {value[0]} within it as {_ESCAPED[value[0]]}"
    if "',' or" in problem:
        return f"Close the bracket that opens at {begin}, or put a comma between its members"
    if value[:1] in _NEEDS_QUOTES:
        return f"Put text that begins with '{value[0]}' in quotes, as in title: \"{value[:20]}\""
    if "another document" in problem:
        return "Keep one document per file: remove '---' and everything after it"
    return "Check the indentation and the quotes around this position; long text goes after '|'"


_ESCAPED: Final = {"'": "''", '"': '\\"'}


def _refuse_large_yaml(text: bytes) -> None:
    """Refuse too much nesting and too many aliases, from the event stream of the parser.

    The C loader recurses without a limit, which would crash the process, and copies aliases and merge keys.
    """
    import yaml  # noqa: PLC0415 - as above

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    sizes: dict[str, int] = {}
    open_collections: list[tuple[str | None, int]] = []
    nodes = 0
    while (event := loader.get_event()) is not None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            nodes += 1
        elif kind is yaml.AliasEvent:
            nodes += sizes.get(event.anchor, 1)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            open_collections.append((event.anchor, nodes))
            nodes += 1
            if len(open_collections) > MAX_NESTING:
                raise TooDeep
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            anchor, before = open_collections.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        if nodes > MAX_YAML_NODES:
            raise too_many_nodes()


def too_many_nodes() -> SyntaxProblem:
    return SyntaxProblem(
        f"The document has more than {MAX_YAML_NODES:,} names and values once its aliases are expanded",
        "Use fewer aliases and merge keys, or split the workflow",
    )


def _count_nodes(value: Json, counted: dict[int, int], depth: int = 0) -> int:
    """The number of values with aliases expanded; each shared value is counted once and reused."""
    if depth > MAX_NESTING:
        raise TooDeep
    if not isinstance(value, (dict, list)):
        is_json = isinstance(value, (str, int, type(None))) or (isinstance(value, float) and math.isfinite(value))
        if not is_json:
            raise SyntaxProblem(f"YAML value without a counterpart in JSON: {value!r}", "Put the value in quotes")
        return 1
    if id(value) not in counted:
        children = value.values() if isinstance(value, dict) else value
        counted[id(value)] = 1 + sum(_count_nodes(child, counted, depth + 1) for child in children)
    return counted[id(value)]


@functools.cache
def _json_loader() -> Any:
    """PyYAML's C loader with the plain types of JSON: `no`, `12:30`, `010` and dates are text, and so are keys."""
    import yaml  # noqa: PLC0415 - as above

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class JsonLoader(base):  # type: ignore[misc]
        def __init__(self, stream: bytes) -> None:
            super().__init__(stream)
            self._being_merged: list[Any] = []

        yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own spelling
            first: [
                (tag, pattern)
                for tag, pattern in resolvers
                if not tag.endswith((":timestamp", ":bool", ":int", ":float"))
            ]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Json]:  # noqa: FBT001, FBT002 - PyYAML's
            merged: dict[str, Json] = {}
            mapping: dict[str, Json] = {}
            marks: dict[str, Any] = {}
            for key_node, value_node in node.value:
                if key_node.tag == "tag:yaml.org,2002:merge":
                    merged |= self._merged(value_node)
                    continue
                if not isinstance(key_node, yaml.ScalarNode):
                    problem = "a list or an object is used as the name of a field"
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                key = self.construct_object(key_node, deep=deep)
                if not isinstance(key, str):
                    key = str(key_node.value)
                if key in mapping:
                    raise yaml.constructor.ConstructorError(
                        None, marks[key], f"the field '{key}' is written twice", key_node.start_mark
                    )
                marks[key] = key_node.start_mark
                mapping[key] = self.construct_object(value_node, deep=deep)
            return merged | mapping

        def _merged(self, node: Any) -> dict[str, Json]:
            """The fields of a merge key, built from the nodes. PyYAML fills objects later, so an object whose anchor is
            in the same object would still be empty.
            """
            if node in self._being_merged:
                problem = "an object is merged into itself"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            if isinstance(node, yaml.MappingNode):
                self._being_merged.append(node)
                fields = self.construct_mapping(node)
                self._being_merged.remove(node)
                return fields
            parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
            if not all(isinstance(part, yaml.MappingNode) for part in parts):
                problem = "a merge key takes an object or a list of objects"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            fields = {}
            for part in reversed(parts):
                fields |= self._merged(part)
            return fields

    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"-?(0|[1-9][0-9]*)", "-0123456789"),
        ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", "-0123456789"),
    ):
        JsonLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))
    return JsonLoader


def line_and_column(text: bytes, position: int) -> tuple[int, int]:
    """Line and column, from 1, of a byte offset."""
    before = text[:position].decode(errors="replace")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
