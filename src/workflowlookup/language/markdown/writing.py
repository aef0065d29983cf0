"""Writes a document as Markdown, so that reading it gives the same value.

What can stand as text does: the name, the prompts, the criteria with short forms. The rest is YAML, in the front matter
and in `step` blocks.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from workflowlookup.language.formats.layout import CannotLayOut
from workflowlookup.language.formats.syntax import SyntaxProblem
from workflowlookup.language.formats.yaml_layout import comments_of, formatted_yaml, tree_of, yaml_text
from workflowlookup.language.markdown.reading import (
    FRONT_MARK,
    MAX_LEVEL,
    SECTIONS,
    STEP_LEVEL,
    outline,
    read_page,
)
from workflowlookup.language.markdown.short_forms import write_lines
from workflowlookup.language.values import Json

_END: Final = "# end of the text"


def markdown_text(document: Json) -> str:
    """The document as Markdown. Raises `CannotLayOut` for a value that no Markdown stands for."""
    steps = document.get("steps") if isinstance(document, dict) else None
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise CannotLayOut("it has no list of steps, and in Markdown each step is a heading")
    front = {name: value for name, value in document.items() if name != "steps"}
    preface: list[str] = []
    name = front.get("name")
    if isinstance(name, str) and _is_line(name) and not name.endswith("#"):
        preface += ["", f"# {name}"]
        del front["name"]
    advice: Json = front.get("metaGuidance")
    if isinstance(advice, list) and len(advice) == 1 and _can_stand(advice[0], STEP_LEVEL, MAX_LEVEL + 1):
        preface += ["", advice[0]]
        del front["metaGuidance"]
    lines = [FRONT_MARK, *_yaml(front), FRONT_MARK, *preface]
    for step in steps:
        lines += _step(step, STEP_LEVEL)
    return "\n".join(lines) + "\n"


def _yaml(fields: Mapping[str, Json]) -> list[str]:
    return yaml_text(tree_of(dict(fields))).removesuffix("\n").split("\n") if fields else ["{}"]


def _is_line(text: Json) -> bool:
    """Whether a text can stand in a heading."""
    return isinstance(text, str) and text != "" and text == text.strip() and not re.search(r"[\n\r]", text)


def _can_stand(text: Json, level: int, inner: int) -> bool:
    """Whether a text can stand between a heading of `level` and one of `inner`, and is read as it is.

    It must have no heading that would end it, and nothing that would take in what follows.
    """
    if not isinstance(text, str) or not text.strip(" \t\n") or "\r" in text:
        return False
    lines = text.split("\n")
    if not lines[0].strip(" \t") or not lines[-1].strip(" \t"):
        return False
    try:
        structure = outline([*lines, "", _END], 0)
    except SyntaxProblem:
        return False
    if not structure.headings:
        return False
    *headings, last = structure.headings
    return (
        last.line == len(lines) + 1
        and not structure.blocks
        and not any(heading.level <= level or _is_section(heading.text, heading.level, inner) for heading in headings)
    )


def _is_section(text: str, level: int, inner: int) -> bool:
    return level == inner and text.casefold().rstrip(":") in SECTIONS


def _written_out(body: Json) -> list[dict[str, Json]]:
    """The steps of a body that can stand as headings; empty if one of them cannot, or if it names a step."""
    is_list = isinstance(body, list) and all(isinstance(part, dict) and {"id", "title"} <= part.keys() for part in body)
    return list(body) if is_list else []


def _heading(fields: dict[str, Json], level: int) -> str:
    """The heading of a step. What it says is taken out of the fields."""
    missing = next((field for field in ("id", "title") if field not in fields), None)
    if missing:
        raise CannotLayOut(f"a step has no '{missing}', and in Markdown every step has a heading")
    heading = "#" * level
    title, identifier = fields["title"], fields["id"]
    if isinstance(identifier, str) and re.fullmatch(r"[^\s{}]+", identifier):
        if _is_line(title) and "{#" not in title:
            heading += f" {title}"
            del fields["title"]
        heading += f" {{#{identifier}}}"
        del fields["id"]
    if "loop" in fields:
        if "type" not in fields:
            raise CannotLayOut("a step has 'loop' without 'type', and in Markdown 'loop' says its type")
        if fields["type"] == "loop":
            del fields["type"]
    return heading


def _step(step: dict[str, Json], level: int) -> Iterator[str]:
    """The lines of a step, whose heading has this level."""
    fields = dict(step)
    heading = _heading(fields, level)
    is_loop = step.get("type") == "loop"
    inner = level + 1
    text: list[str] = []
    if _can_stand(step.get("prompt"), inner if is_loop else level, inner):
        text += ["", fields.pop("prompt")]
    body = _written_out(step.get("body")) if is_loop and inner <= MAX_LEVEL else []
    if body:
        del fields["body"]
    for name, (field, forms) in SECTIONS.items():
        lines = write_lines(step.get(field), forms) if inner <= MAX_LEVEL else None
        if lines:
            text += ["", f"{'#' * inner} {name.capitalize()}", "", *lines]
            del fields[field]
    yield from ("", heading)
    if fields:
        written = _yaml(fields)
        longest = max(map(len, itertools.chain.from_iterable(re.findall("`+", line) for line in written)), default=0)
        fence = "`" * max(3, longest + 1)
        yield from ("", f"{fence}step", *written, fence)
    yield from text
    for part in body:
        yield from _step(part, inner)


def formatted_markdown(text: str, document: Json) -> str:
    """The same text with its front matter and its `step` blocks laid out, in the order of the document.

    Raises `CannotLayOut`.
    """
    page = read_page(text.encode())
    lines = list(page.lines)
    for part in reversed([part for part in page.parts if part.fields]):
        value = document
        for name in part.path:
            value = value[name]
        order = {name: value[name] for name in value if name in part.fields}
        written = formatted_yaml(page.yaml_of(part), order).removesuffix("\n").split("\n")
        lines[part.start : part.end] = [" " * part.indent + line if line else line for line in written]
    return "\n".join(lines)


def markdown_comments(text: str) -> list[str]:
    """The comments of its YAML and of its sections."""
    page = read_page(text.encode())
    return [*itertools.chain.from_iterable(comments_of(page.yaml_of(part)) for part in page.parts), *page.comments]
