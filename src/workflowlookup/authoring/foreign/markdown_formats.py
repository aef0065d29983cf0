"""Formats that are one page of Markdown: Agent Skills, Claude commands, workflows of Windsurf and Cline, any page."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.foreign import signals
from workflowlookup.authoring.foreign.draft import Draft, DraftStep, Note, NotImportable, Place, Source
from workflowlookup.authoring.foreign.page import Page, read_page, trimmed
from workflowlookup.authoring.foreign.splitting import Split, StepLines, split, without_marker
from workflowlookup.language.text import first_few, plural
from workflowlookup.language.values import Json

SKILL_FILE: Final = "skill.md"
MARKDOWN_SUFFIXES: Final = (".md", ".markdown", ".mdc")
_INPUT: Final = "arguments"


def is_skill(source: Source) -> bool:
    return source.main.rpartition("/")[2].lower() == SKILL_FILE


def is_markdown(source: Source) -> bool:
    return source.main.lower().endswith(MARKDOWN_SUFFIXES)


def is_command(source: Source) -> bool:
    return is_markdown(source) and "commands" in source.location.split("/")[:-1]


def is_in(*folders: str) -> Callable[[Source], bool]:
    """Recognises a page in one of these folders."""

    def recognises(source: Source) -> bool:
        return is_markdown(source) and any(f"/{folder}/" in f"/{source.location}" for folder in folders)

    return recognises


def read_skill(source: Source) -> Draft:
    page = read_page(source.data, source.main)
    name, folder = text_of(page.header.get("name")), source.folder_name
    notes: list[Note] = []
    if not name:
        name = folder or "skill"
        notes.append(Note(f"The front matter has no name, so the folder gives it: '{name}'", Place(source.main, 1, 1)))
    elif folder and folder != name:
        text = f"The skill calls itself '{name}' and its folder '{folder}'. The name of the skill counts"
        notes.append(Note(text, Place(source.main, 1, 1)))
    return read_body(page, name, notes)


def read_command(source: Source) -> Draft:
    """A command. What the user wrote after its name is an input of the workflow."""
    data = source.data.replace(b"${ARGUMENTS}", b"$ARGUMENTS")
    has_arguments = b"$ARGUMENTS" in data
    page = read_page(data.replace(b"$ARGUMENTS", b"{{%s}}" % _INPUT.encode()), source.main)
    draft = read_body(page, stem(source), ())
    if not has_arguments:
        return draft
    hint = text_of(page.header.get("argument-hint"))
    about = f"What the user wrote after the name of the command{f': {hint}' if hint else ''}."
    schema = {"type": "object", "properties": {_INPUT: {"type": "string", "description": about}}}
    note = Note(f"`$ARGUMENTS` is the input `{_INPUT}` of the workflow, `{{{{{_INPUT}}}}}` in its text")
    return msgspec.structs.replace(
        draft,
        fields={**draft.fields, "inputSchema": schema},
        parameters=frozenset({_INPUT}),
        guessed=[*draft.guessed, note],
    )


def read_markdown(source: Source) -> Draft:
    page = read_page(source.data, source.main)
    return read_body(page, text_of(page.header.get("name")) or text_of(page.header.get("title")) or stem(source), ())


def stem(source: Source) -> str:
    """The name of the main file without its ending."""
    return source.location.rpartition("/")[2].split(".", 1)[0]


def text_of(value: Json) -> str:
    """A text or number of the front matter as text; empty for anything else."""
    return str(value).strip() if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""


def version_of(version: Json) -> dict[str, Json]:
    """The field `version` of a document, if this is a semantic version."""
    return {"version": version} if isinstance(version, str) and re.fullmatch(r"\d+\.\d+\.\d+", version) else {}


def _metadata(page: Page) -> Mapping[str, Json]:
    metadata = page.header.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


# ── a page in parts ─────────────────────────────────────────────────────────────────────────────────────────────


def read_body(page: Page, name: str, notes: Sequence[Note]) -> Draft:
    """The draft of a page. Raises `NotImportable` if it has no text."""
    parts = split(page)
    if all(page.is_blank(*lines) for step in parts.steps for lines in step.text) and not parts.is_split:
        after = " after the front matter" if page.body > 1 else ""
        raise NotImportable(f"{page.file}, line {page.body}: there is no text{after}, so there is nothing to follow.")
    read = [read_step(page, part, parts) for part in parts.steps]
    guessed = [*notes, *_guesses(page, parts)]
    description = text_of(page.header.get("description"))
    if not description:
        description, place = _first_paragraph(page, parts)
        guessed.append(Note("The front matter has no description, so the first paragraph is it", place))
    return Draft(
        name=name,
        title=signals.plain(parts.title.text) if parts.title is not None else "",
        description=" ".join(description.split()),
        steps=[step for step, _ in read],
        split=parts.words,
        is_split=parts.is_split,
        guidance=list(_guidance(page, parts)),
        fields=version_of(page.header.get("version")) or version_of(_metadata(page).get("version")),
        header=page.header,
        guessed=guessed,
        left_out=[*left_out(page), *(note for _, notes in read for note in notes)],
    )


def read_step(page: Page, part: StepLines, parts: Split) -> tuple[DraftStep, Sequence[Note]]:
    """A step of the page, and what of it was left out."""
    title = part.title or (parts.title.text if parts.title is not None else "")
    suggestions, notes = signals.suggestions(page, title, part.text)
    text = "\n\n".join(filter(None, (page.text(*lines) for lines in part.text)))
    if part.text[0][0] == part.first:  # the item of a list, with its number
        first, after = part.text[0]
        text = without_marker(trimmed(page.lines[first - 1 : after - 1]))
    last = max(after for _, after in part.text) - 1
    while last > part.first and not page.line(last).strip():
        last -= 1
    place = Place(page.file, part.first, last)
    return DraftStep(title=signals.plain(title), text=text, place=place, suggestions=suggestions), notes


def _guidance(page: Page, parts: Split) -> Iterator[tuple[str, Place]]:
    for first, after in parts.guidance:
        if not page.is_blank(first, after):
            filled = [number for number in range(first, after) if page.line(number).strip()]
            yield page.text(first, after), Place(page.file, filled[0], filled[-1])


def _first_paragraph(page: Page, parts: Split) -> tuple[str, Place]:
    """The first lines of prose after the title; else the title."""
    start = parts.title.after if parts.title is not None else page.body
    for number in range(start, page.end):
        line = page.line(number)
        if line.strip() and line.lstrip()[0] not in "#>|-*`<=+" and number not in page.code_lines:
            after = number
            while after < page.end and page.line(after).strip():
                after += 1
            return signals.plain(page.text(number, after).replace("\n", " ")), Place(page.file, number, after - 1)
    first = next(number for number in range(page.body, page.end) if page.line(number).strip())
    return signals.plain(page.line(first)).strip("#-*> "), Place(page.file, first, first)


def _guesses(page: Page, parts: Split) -> Iterator[Note]:
    if page.header_problem is not None:
        why, line = page.header_problem
        text = f"The front matter is not YAML: {why}. Each of its lines `key: value` was read as text"
        yield Note(text, Place(page.file, line, line))
    for words, line in parts.passed_over:
        yield Note(f"These are not the steps: {words}", Place(page.file, line, line))


_FOR_THE_PROGRAM: Final = frozenset({
    "allowed-tools", "disallowed-tools", "tools", "model", "effort", "hooks", "context", "agent", "background", "paths",
    "user-invocable", "disable-model-invocation", "globs", "alwaysApply", "auto_execution_mode", "mode", "subtask",
})  # fmt: skip
"""Fields of the front matter that only the program obeys for which the file was written."""


def left_out(page: Page) -> Iterator[Note]:
    """What of a page has no meaning here."""
    names = [f"`{name}`" for name in page.header if name in _FOR_THE_PROGRAM]
    if names:
        text = f"{first_few(names, 20)}: only the program obeys this for which the file was written"
        yield Note(text, Place(page.file, 1, page.body - 1))
    yield from signals.executed_when_loaded(page)
    lines = signals.flow(page)
    if lines:
        text = f"Branches and loops in words stay text, here in {plural(len(lines), 'line')}: "
        yield Note(text + first_few([str(line) for line in lines], 20), Place(page.file, lines[0], lines[-1]))
