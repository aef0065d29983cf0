"""Reads a Markdown document: front matter, a heading for each step, its prompt, and what stands in `step` blocks.

`markdown-it-py` finds the headings and fences that count: those of the page itself, not those inside fences, lists,
quotes, HTML or comments. The rest is read by lines, so that a prompt is what the author wrote, to the letter.
"""

import codecs
import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.formats.positions import Finder, Position, yaml_finder
from workflowlookup.language.formats.schemas import PathTo
from workflowlookup.language.formats.syntax import (
    MAX_YAML_NODES,
    SyntaxProblem,
    line_and_column,
    parse_yaml,
    refuse_deep,
    too_many_nodes,
)
from workflowlookup.language.markdown.short_forms import (
    CRITERIA,
    ONE_OF,
    PROOFS,
    ShortForm,
    in_words,
    read_line,
)
from workflowlookup.language.values import Json, extent

STEP_LEVEL: Final = 2
"""The level of the headings of steps that are in no loop."""
MAX_LEVEL: Final = 6
FRONT_MARK: Final = "---"
SECTIONS: Final[Mapping[str, tuple[str, tuple[ShortForm, ...]]]] = {
    "criteria": ("validationCriteria", CRITERIA),
    "proof": ("proof", PROOFS),
}
"""By heading: the field of the step that the list below stands for, and its forms."""
MAX_LINES: Final = 8_000
"""Each line may be an element of its own, for the parser to visit."""
MAX_BLOCK_NESTING: Final = 16
"""How deep lists and quotes may nest, as the parser counts: a list counts twice."""

_BLOCK_RULES: Final = ("code", "fence", "blockquote", "hr", "list", "html_block", "heading", "lheading", "paragraph")
_BLOCK_INFO: Final = re.compile(r"(?:yaml[ \t]+)?step", re.IGNORECASE)
_ID: Final = re.compile(r"\{#([^\s{}]+)\}")
_ITEM: Final = re.compile(r"(?P<indent>[ \t]*)[-*+][ \t]+(?P<text>\S.*)")
_NESTED: Final = 2
_COMMENT: Final = "<!--"
_COMMENT_END: Final = "-->"


class Heading(msgspec.Struct, frozen=True):
    """A heading of the page itself; lines count from 0."""

    level: int
    text: str
    line: int


class YamlPart(msgspec.Struct, frozen=True):
    """The front matter, or a `step` block: where its YAML is, and the fields that it holds."""

    path: PathTo
    start: int
    """The first line of the YAML, from 0, and the line after it."""
    end: int
    indent: int
    fields: Mapping[str, Json]


class Reading(msgspec.Struct, frozen=True):
    """What a line of a list was read as."""

    path: PathTo
    value: Json


class Page(msgspec.Struct, frozen=True):
    """A Markdown document that was read."""

    lines: Sequence[str]
    document: dict[str, Json]
    parts: Sequence[YamlPart]
    readings: Sequence[Reading]
    comments: Sequence[str]
    """The HTML comments of its sections."""
    places: Mapping[PathTo, Position]
    """Where the values are that stand outside of YAML."""

    def yaml_of(self, part: YamlPart) -> str:
        """The YAML of a part, without the indentation of its fence."""
        margin = re.compile(f"^ {{0,{part.indent}}}")
        return "".join(f"{margin.sub('', line)}\n" for line in self.lines[part.start : part.end])

    def finder(self) -> Finder:
        """The function that returns the position of the value at a path, or of what is around it."""
        fields = {(*part.path, name): part for part in self.parts for name in part.fields}
        finders: dict[PathTo, Finder] = {}

        def find(path: PathTo) -> Position:
            for length in range(len(path), -1, -1):
                if (place := self.places.get(path[:length])) is not None:
                    return place
                if (part := fields.get(path[:length])) is not None:
                    if part.path not in finders:
                        finders[part.path] = yaml_finder(self.yaml_of(part).encode())
                    line, column = finders[part.path](path[len(part.path) :])
                    return line + part.start, column + part.indent
            return 1, 1

        return find


def parse_markdown(data: bytes) -> Json:
    """The document as a JSON value. Raises `SyntaxProblem`."""
    return read_page(data).document


def markdown_finder(data: bytes) -> Finder:
    return read_page(data).finder()


def read_page(data: bytes) -> Page:
    """The document, and where everything in it is. Raises `SyntaxProblem` with the position in the file."""
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        line, column = line_and_column(data, problem.start)
        raise _problem("The text is not UTF-8: bad byte", "Save the file as UTF-8", line - 1, column) from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if len(lines) > MAX_LINES:
        raise _problem(f"The document has more than {MAX_LINES:,} lines", "Split the workflow", MAX_LINES)
    return _Reader(lines).read()


def _problem(reason: str, suggestion: str, line: int, column: int = 1) -> SyntaxProblem:
    """`line` counts from 0."""
    where = f"line {line + 1}, column {column}"
    return SyntaxProblem(reason, suggestion, where=where, line=line + 1, column=column)


# ── headings and fences ─────────────────────────────────────────────────────────────────────────────────────────


class Outline(msgspec.Struct, frozen=True):
    """The headings of a text, and the lines of its `step` blocks: from the opening fence to the line after the last."""

    headings: Sequence[Heading]
    blocks: Mapping[int, int]


@functools.cache
def _parser() -> Any:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only for documents in Markdown

    parser = MarkdownIt("commonmark", {"maxNesting": MAX_BLOCK_NESTING})
    parser.core.ruler.enableOnly(["block"])
    parser.block.ruler.enableOnly(list(_BLOCK_RULES))
    return parser


def outline(lines: Sequence[str], first: int) -> Outline:
    """The outline of the lines from `first` on. Raises `SyntaxProblem`."""
    headings: list[Heading] = []
    blocks: dict[int, int] = {}
    tokens = _parser().parse("\n".join(lines[first:]))
    for position, token in enumerate(tokens):
        if token.nesting == 1 and token.level >= MAX_BLOCK_NESTING - 1:
            reason = f"Lists and quotes nest deeper than {MAX_BLOCK_NESTING // 2} levels"
            raise _problem(reason, "Nest them less deep", first + token.map[0])
        if token.level or token.map is None:
            continue
        line = first + token.map[0]
        if token.type == "heading_open":
            if token.markup in ("=", "-"):
                underline = first + token.map[1] - 1
                remedy = "Put a blank line above it if it is a rule; if it is a heading, begin its line with '## '"
                raise _problem("A line under a text makes it a heading of an older kind", remedy, underline)
            headings.append(Heading(len(token.markup), tokens[position + 1].content, line))
        elif token.type == "fence":
            end = first + token.map[1]
            if not _is_closed(token.markup, lines[end - 1], is_opening=end - 1 == line):
                raise _problem("The fence is never closed", f"End it with a line '{token.markup[:20]}'", line)
            if _BLOCK_INFO.fullmatch(token.info.strip()):
                blocks[line] = end
        elif token.type == "html_block" and (closing := _missing_end(token.content)):
            raise _problem("The comment or HTML element is never closed", f"End it with '{closing}'", line)
    return Outline(headings, blocks)


def _is_closed(mark: str, last: str, *, is_opening: bool) -> bool:
    """Whether a fence that began with this mark is closed by its last line."""
    closing = last.strip(" \t")
    return not is_opening and len(closing) >= len(mark) and set(closing) == {mark[0]}


_HTML_ENDS: Final = (
    (re.compile(r"\s*<!--"), "-->"),
    (re.compile(r"\s*<\?"), "?>"),
    (re.compile(r"\s*<!\[CDATA\["), "]]>"),
    *(
        (re.compile(rf"\s*<{name}(?=\s|>)", re.IGNORECASE), f"</{name}>")
        for name in ("script", "pre", "style", "textarea")
    ),
)
"""HTML that ends at a mark and not at a blank line: without the mark, it takes in the rest of the document."""


def _missing_end(html: str) -> str:
    return next((end for begin, end in _HTML_ENDS if begin.match(html) and end not in html.lower()), "")


# ── the document ────────────────────────────────────────────────────────────────────────────────────────────────


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._headings: Sequence[Heading] = ()
        self._blocks: dict[int, int] = {}
        self._parts: list[YamlPart] = []
        self._readings: list[Reading] = []
        self._comments: list[str] = []
        self._places: dict[PathTo, Position] = {(): (1, 1)}
        self._nodes = 0

    def read(self) -> Page:
        end = self._end_of_front_matter()
        document = self._yaml((), 1, end, 0)
        if "steps" in document:
            line = yaml_finder("\n".join(self._lines[1:end]).encode())(("steps",))[0]
            raise _problem("The front matter has 'steps'", "Write each step as a heading '## Title' below it", line)
        structure = outline(self._lines, end + 1)
        self._headings, self._blocks = structure.headings, dict(structure.blocks)
        start = next((at for at, heading in enumerate(structure.headings) if heading.level == STEP_LEVEL), None)
        if start is None:
            raise _problem("The document has no step", "Write each step as a heading '## Title'", len(self._lines) - 1)
        self._read_preface(document, end + 1, start)
        document["steps"] = self._steps((), "steps", STEP_LEVEL, start, len(structure.headings))
        for line in self._blocks:  # those that belong to a step were taken out
            remedy = "Move it there; to show such a block in a prompt, give it another info string, such as `yaml`"
            raise _problem("A `step` block must stand directly under the heading of its step", remedy, line)
        refuse_deep(document)
        return Page(self._lines, document, self._parts, self._readings, self._comments, self._places)

    def _end_of_front_matter(self) -> int:
        remedy = "Begin with a line '---', then the fields in YAML, such as 'id: my-workflow', then a line '---'"
        if self._lines[0].rstrip() != FRONT_MARK:
            raise _problem("The document does not begin with front matter", remedy, 0)
        end = next((at for at in range(1, len(self._lines)) if self._lines[at].rstrip() == FRONT_MARK), None)
        if end is None:
            raise _problem("The front matter is never closed", "End it with a line '---'", 0)
        return end

    def _yaml(self, path: PathTo, start: int, end: int, indent: int) -> dict[str, Json]:
        """The fields of front matter or of a block. Their YAML is what stands in these lines."""
        what = "step block" if path else "front matter"
        page = Page(self._lines, {}, (), (), (), {})
        text = page.yaml_of(YamlPart(path, start, end, indent, {})).encode()
        if not text.strip():
            raise _problem(
                f"The {what} is empty",
                "Write fields in it, such as 'id: my-workflow'" if not path else "Remove it",
                start - 1,
            )
        try:
            value = parse_yaml(text)
        except SyntaxProblem:
            parse_yaml(b"\n" * start + text)  # raises again, with positions in the file
            raise
        if not isinstance(value, dict):
            raise _problem(f"The {what} holds no fields", "Write one field in each line, such as 'name: value'", start)
        self._nodes += extent(value)[0]
        if self._nodes > MAX_YAML_NODES:
            raise too_many_nodes()
        self._parts.append(YamlPart(path, start, end, indent, value))
        return dict(value)

    def _read_preface(self, document: dict[str, Json], first: int, start: int) -> None:
        """Read what stands before the first step: the name, and the meta guidance."""
        lines = {line: self._lines[line] for line in range(first, self._headings[start].line)}
        for heading in self._headings[:start]:
            if heading.level > 1:
                continue
            if ("name",) in self._places:
                raise _problem(
                    "There are two headings of level 1", "Keep the one that is the name of the workflow", heading.line
                )
            if document.setdefault("name", heading.text) != heading.text:
                remedy = "Make them equal, or remove one of them"
                raise _problem("The heading of level 1 and 'name' in the front matter differ", remedy, heading.line)
            self._places["name",] = (heading.line + 1, 1)
            lines[heading.line] = ""
        text, line = _trimmed(list(lines.values()), first)
        if text:
            if "metaGuidance" in document:
                remedy = (
                    "Move the text there, or remove 'metaGuidance': the text before the first step is meta guidance"
                )
                raise _problem(
                    "The front matter has 'metaGuidance', and there is text before the first step", remedy, line
                )
            document["metaGuidance"] = [text]
            self._places["metaGuidance",] = self._places["metaGuidance", 0] = (line + 1, 1)

    def _steps(self, path: PathTo, field: str, level: int, start: int, stop: int) -> list[Json]:
        """The steps whose headings have this level, of the headings from `start` to `stop`."""
        steps: list[Json] = []
        while start < stop:
            after = self._next_heading(start, stop, level)
            place = (*path, field, len(steps))
            steps.append(self._step(place, start, after))
            start = after
        return steps

    def _next_heading(self, at: int, stop: int, level: int) -> int:
        """The first heading after this one with this level or a higher one."""
        return next((after for after in range(at + 1, stop) if self._headings[after].level <= level), stop)

    def _line_of(self, heading: int) -> int:
        return self._headings[heading].line if heading < len(self._headings) else len(self._lines)

    def _step(self, path: PathTo, at: int, stop: int) -> dict[str, Json]:
        """A step, with all headings up to `stop`, which is the next step."""
        heading = self._headings[at]
        if heading.level == 1:
            remedy = "Begin a step with '## '; in a prompt, use '###' or more"
            raise _problem("A heading of level 1 can only stand before the first step", remedy, heading.line)
        self._places[path] = self._places[(*path, "title")] = self._places[(*path, "id")] = (heading.line + 1, 1)
        fields, first = self._block(path, heading.line, self._line_of(at + 1 if at + 1 < stop else stop))
        step = self._title_and_id(heading, fields) | fields
        if "loop" in step:
            step.setdefault("type", "loop")
        is_loop = step.get("type") == "loop"
        inner = heading.level + 1
        parts = [
            part
            for part in range(at + 1, stop)
            if self._headings[part].level == inner and (is_loop or _section(self._headings[part]))
        ]
        end = self._line_of(parts[0] if parts else stop)
        self._set(step, path, "prompt", *_trimmed(self._lines[first:end], first))
        body: list[Json] = []
        after = parts[0] if parts else stop
        while after < stop:
            part, after = after, self._next_heading(after, stop, inner)
            if section := _section(self._headings[part]):
                self._read_section(step, path, section, part, after)
            elif is_loop:
                if not body:
                    self._places[(*path, "body")] = (self._headings[part].line + 1, 1)
                    self._refuse_twice(step, "body", self._headings[part].line)
                body.append(self._step((*path, "body", len(body)), part, after))
            else:
                remedy = "Move it above them: Criteria and Proof come last in a step"
                raise _problem(
                    "A heading follows the criteria or the proof of its step", remedy, self._headings[part].line
                )
        if body:
            step["body"] = body
        return step

    def _block(self, path: PathTo, heading: int, stop: int) -> tuple[dict[str, Json], int]:
        """The fields of the `step` block under a heading, and the line after it."""
        line = next((line for line in range(heading + 1, stop) if self._lines[line].strip(" \t")), stop)
        end = self._blocks.pop(line, None)
        if end is None:
            return {}, heading + 1
        indent = len(self._lines[line]) - len(self._lines[line].lstrip(" "))
        return self._yaml(path, line + 1, end - 1, indent), end

    def _title_and_id(self, heading: Heading, fields: Mapping[str, Json]) -> dict[str, Json]:
        before, mark, _ = heading.text.rpartition("{#")
        match = _ID.fullmatch(heading.text, len(before)) if mark else None
        title, identifier = (before.rstrip(" \t"), match[1]) if match else (heading.text, None)
        if match is None and "{#" in title:
            reason = "The id in the heading cannot be read"
            raise _problem(
                reason, "Write it at the end and without blanks, such as '## Title {#my-step}'", heading.line
            )
        if match is None and _section(heading):
            remedy = f"Write '{'#' * (heading.level + 1)} {title}' for the step above, or give it an id: '{{#my-step}}'"
            raise _problem(
                f"A heading of level {heading.level} is a step, and this one is called '{title}'", remedy, heading.line
            )
        if not title and "title" not in fields:
            raise _problem("The heading has no text", "Write the title of the step after it", heading.line)
        if title:
            self._refuse_twice(fields, "title", heading.line)
        if identifier:
            self._refuse_twice(fields, "id", heading.line)
        if identifier is None and "id" not in fields and not (identifier := id_from(title)):
            reason = "No id can be made from the title"
            raise _problem(reason, "Write one at the end of the heading, such as '{#my-step}'", heading.line)
        return ({"id": identifier} if identifier else {}) | ({"title": title} if title else {})

    def _set(self, step: dict[str, Json], path: PathTo, field: str, value: Json, line: int) -> None:
        if value:
            self._refuse_twice(step, field, line)
            step[field] = value
            self._places[(*path, field)] = (line + 1, 1)

    def _refuse_twice(self, fields: Mapping[str, Json], field: str, line: int) -> None:
        if field in fields:
            reason = f"The step block has '{field}', and so has the text of the step"
            raise _problem(reason, "Keep one of the two", line)

    # ── sections ────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_section(self, step: dict[str, Json], path: PathTo, section: str, at: int, stop: int) -> None:
        field, forms = SECTIONS[section]
        heading = self._headings[at].line
        if (*path, field) in self._places:
            raise _problem(
                f"The step has this section twice: '{self._headings[at].text}'", "Make one of the two", heading
            )
        self._places[(*path, field)] = (heading + 1, 1)
        values: list[Json] = []
        group: list[Json] | None = None
        for line, indent, text in self._items(heading + 1, self._line_of(stop)):
            if indent < _NESTED:
                group = None
            if forms is CRITERIA and text == ONE_OF and group is None:
                group = []
                values.append({"or": group})
                place: PathTo = (*path, field, len(values) - 1)
            else:
                value = read_line(text, forms)
                if value is None or (indent >= _NESTED and group is None):
                    raise _unreadable(text, section, forms, line, indent)
                target = values if group is None else group
                target.append(value)
                place = (*path, field, len(values) - 1) + (() if group is None else ("or", len(group) - 1))
                self._readings.append(Reading(place, value))
            self._places[place] = (line + 1, indent + 1)
        empty = next((value for value in values if value == {"or": []}), None)
        if empty is not None:
            line = self._places[(*path, field, values.index(empty))][0] - 1
            raise _problem(f"Nothing stands below '{ONE_OF}'", "Indent the alternatives below it by two blanks", line)
        if values:
            self._refuse_twice(step, field, heading)
            step[field] = values

    def _items(self, line: int, stop: int) -> Iterator[tuple[int, int, str]]:
        """The items of the list in these lines: line, indentation and text. Comments are left out."""
        item: tuple[int, int, str] | None = None
        while line < stop:
            text = self._lines[line]
            if text.lstrip(" \t").startswith(_COMMENT):
                line = self._after_comment(line, stop)
                continue
            if match := _ITEM.fullmatch(text):
                if item:
                    yield item
                item = (line, len(match["indent"].expandtabs(4)), match["text"].rstrip())
            elif text.strip(" \t"):
                if item is None or not text.startswith((" ", "\t")):
                    raise _unlisted(line)
                item = (item[0], item[1], f"{item[2]} {text.strip()}")
            line += 1
        if item:
            yield item

    def _after_comment(self, start: int, stop: int) -> int:
        """The line after a comment, whose last line has nothing behind it."""
        for line in range(start, stop):
            before, mark, rest = self._lines[line].partition(_COMMENT_END)
            if mark:
                if rest.strip():
                    raise _problem(
                        "Text follows a comment on its line", "Put it on a line of its own", line, len(before) + 4
                    )
                self._comments.append("\n".join(self._lines[start : line + 1]).strip())
                return line + 1
        raise _problem("The comment is never closed", f"End it with '{_COMMENT_END}'", start)


def _section(heading: Heading) -> str:
    """The section that a heading begins; empty if it begins none."""
    name = heading.text.casefold().rstrip(":")
    return name if name in SECTIONS else ""


def _unreadable(text: str, section: str, forms: tuple[ShortForm, ...], line: int, indent: int) -> SyntaxProblem:
    reason = f"The line under '{section.capitalize()}' cannot be read: {text[:80]}"
    remedy = f"Write one of these, with ': ' and a message after it, or use the step block: {in_words(forms)}"
    return _problem(reason, remedy, line, indent + 1)


def _unlisted(line: int) -> SyntaxProblem:
    remedy = "Begin it with '- ', or move it above the section, into the prompt"
    return _problem("The line is no item of the list", remedy, line)


def _trimmed(lines: Sequence[str], first: int) -> tuple[str, int]:
    """The text without its outer blank lines, and the line where it begins."""
    filled = [at for at, line in enumerate(lines) if line.strip(" \t")]
    if not filled:
        return "", first
    return "\n".join(lines[filled[0] : filled[-1] + 1]), first + filled[0]


_MAX_ID: Final = 50


def id_from(title: str) -> str:
    """The id of a step whose heading has none; empty if the title has no letters or digits for one."""
    plain = unicodedata.normalize("NFKD", title[:200].casefold()).encode("ascii", "ignore").decode()
    words = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:_MAX_ID].strip("-")
    return words if len(words) >= 3 else ""
