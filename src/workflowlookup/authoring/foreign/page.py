"""A page of Markdown as lines with headings, lists and code: as much of its structure as splitting it needs.

Only the blocks are parsed, never the text within a line. Lines are counted from 1, as in the file.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.authoring.foreign.draft import NotImportable
from workflowlookup.language.formats.syntax import SyntaxProblem, parse_yaml
from workflowlookup.language.values import Json

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_LINES: Final = 20_000
MAX_PARTS: Final = 2_000
"""Limit on the headings, and on the items of numbered lists: nobody follows a procedure with more."""
_FENCE: Final = re.compile(r"-{3,}[ \t]*$")
_KEY_LINE: Final = re.compile(r"(?P<key>[A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(?P<value>.*))?$")
_LONE_TAG: Final = re.compile(r" {0,3}</?(?!(?:pre|script|style|textarea)\b)[A-Za-z][\w-]*(?:\s[^<>]*)?>[ \t]*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """A heading that stands alone, not in a quotation or a list."""

    level: int
    text: str
    first: int
    """Its line."""
    after: int
    """The line after it: a heading that is underlined has two lines."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a list, with everything inside it."""

    first: int
    after: int


class OrderedList(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered list that stands alone, not in another block."""

    start: int
    """The number of its first item."""
    items: Sequence[Item]


class CodeBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A fenced block, wherever it stands."""

    language: str
    lines: Sequence[str]
    first: int
    """The line of its first line of code."""

    @property
    def after(self) -> int:
        """The line of the fence that ends it."""
        return self.first + len(self.lines)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A file of Markdown."""

    file: str
    lines: Sequence[str]
    """Without their ends; `lines[0]` is line 1."""
    header: Mapping[str, Json]
    """The front matter; empty if there is none."""
    header_problem: tuple[str, int] | None
    """Why the front matter is no YAML object, and the line. `header` then has its lines `key: value` as texts."""
    body: int
    """The first line after the front matter."""
    headings: Sequence[Heading]
    lists: Sequence[OrderedList]
    code: Sequence[CodeBlock]
    code_lines: frozenset[int]
    """Every line of a fenced block, with its fences."""
    bullets: frozenset[int]
    """The first line of each item of a list without numbers, wherever it stands."""

    @property
    def end(self) -> int:
        """The line after the last one."""
        return len(self.lines) + 1

    def text(self, first: int, after: int) -> str:
        """These lines without blank ones around them."""
        return "\n".join(trimmed(self.lines[first - 1 : after - 1]))

    def line(self, number: int) -> str:
        return self.lines[number - 1]

    def is_blank(self, first: int, after: int) -> bool:
        return not any(line.strip() for line in self.lines[first - 1 : after - 1])

    def section_end(self, heading: Heading) -> int:
        """The line of the next heading that is not below this one."""
        return next(
            (other.first for other in self.headings if other.first > heading.first and other.level <= heading.level),
            self.end,
        )

    def parent(self, line: int, level: int = 7) -> Heading | None:
        """The last heading before a line that is above this level."""
        before = [heading for heading in self.headings if heading.first < line and heading.level < level]
        return before[-1] if before else None


def trimmed(lines: Sequence[str]) -> Sequence[str]:
    """The lines without blank ones at both ends."""
    first, after = 0, len(lines)
    while first < after and not lines[first].strip():
        first += 1
    while after > first and not lines[after - 1].strip():
        after -= 1
    return lines[first:after]


def read_page(data: bytes, file: str) -> Page:
    """Read a file. Bytes that are not UTF-8 become replacement characters. Raises `NotImportable`.

    A tag alone on its line, such as `<steps>`, does not turn the lines below it to HTML: authors mark parts with it.
    """
    lines = _LINE_END.split(data.decode("utf-8-sig", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}"))
    if lines and not lines[-1]:
        lines.pop()
    _refuse_many(len(lines), "lines", MAX_LINES, file)
    header, problem, body = _front_matter(lines)
    visible = ("" if _LONE_TAG.fullmatch(line) else line for line in lines[body - 1 :])
    tokens = _parser().parse("\n".join(visible))
    headings, ordered = list(_headings(tokens, body)), list(_ordered_lists(tokens, body))
    _refuse_many(len(headings), "headings", MAX_PARTS, file)
    _refuse_many(sum(len(found.items) for found in ordered), "numbered items", MAX_PARTS, file)
    code = list(_code(tokens, body, lines))
    return Page(
        file=file,
        lines=lines,
        header=header,
        header_problem=problem,
        body=body,
        headings=headings,
        lists=ordered,
        code=code,
        code_lines=frozenset(number for block in code for number in range(block.first - 1, block.after + 1)),
        bullets=frozenset(_bullets(tokens, body)),
    )


def _refuse_many(count: int, things: str, limit: int, file: str) -> None:
    if count > limit:
        raise NotImportable(f"{file} has {count:,} {things}, and {limit:,} is the limit. Import a part of it.")


@functools.cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 - with the first page

    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["block"])
    return parser


# ── front matter ────────────────────────────────────────────────────────────────────────────────────────────────


def _front_matter(lines: Sequence[str]) -> tuple[Mapping[str, Json], tuple[str, int] | None, int]:
    """The front matter, why it is no YAML object and where, and the first line after it."""
    start = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    if start == len(lines) or not _FENCE.fullmatch(lines[start].strip()):
        return {}, None, 1
    end = next((number for number in range(start + 1, len(lines)) if _FENCE.fullmatch(lines[number].rstrip())), None)
    if end is None or not any(_KEY_LINE.match(line) for line in lines[start + 1 : end]):
        return {}, None, 1  # a rule at the top of the page
    inner = lines[start + 1 : end]
    try:
        header = parse_yaml("\n".join(inner).encode())
        problem = None if isinstance(header, dict) else ("it is not a list of `key: value`", start + 2)
    except SyntaxProblem as error:
        header, problem = None, (error.message, start + 1 + error.line)
    if problem is not None or not isinstance(header, dict):
        header = {match["key"]: (match["value"] or "").strip() for line in inner if (match := _KEY_LINE.match(line))}
    return {str(key): value for key, value in header.items()}, problem, end + 2


# ── blocks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _span(token: "Token", body: int) -> tuple[int, int]:
    first, after = token.map or (0, 0)
    return first + body, after + body


def _headings(tokens: Sequence["Token"], body: int) -> Iterator[Heading]:
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and inline.content.strip():
            first, after = _span(token, body)
            yield Heading(level=int(token.tag[1:]), text=" ".join(inline.content.split()), first=first, after=after)


def _ordered_lists(tokens: Sequence["Token"], body: int) -> Iterator[OrderedList]:
    items: list[Item] = []
    for token in tokens:
        if token.type == "ordered_list_open" and token.level == 0:
            start, items = int(token.attrs.get("start", 1)), []
        elif token.type == "list_item_open" and token.level == 1 and token.markup in (".", ")"):
            first, after = _span(token, body)
            items.append(Item(first=first, after=after))
        elif token.type == "ordered_list_close" and token.level == 0:
            yield OrderedList(start=start, items=items)


def _code(tokens: Sequence["Token"], body: int, lines: Sequence[str]) -> Iterator[CodeBlock]:
    for token in tokens:
        if token.type == "fence":
            first, after = _span(token, body)
            language = token.info.strip().split(" ", 1)[0].lower()
            yield CodeBlock(language=language, lines=lines[first : after - 2], first=first + 1)


def _bullets(tokens: Sequence["Token"], body: int) -> Iterator[int]:
    for token in tokens:
        if token.type == "list_item_open" and token.markup in ("-", "*", "+"):
            yield _span(token, body)[0]
