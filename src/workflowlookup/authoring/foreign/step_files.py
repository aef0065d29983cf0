"""Procedures whose steps are files, as BMAD writes them: `steps/step-01-name.md`, in the order of their numbers."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.foreign import signals
from workflowlookup.authoring.foreign.draft import Draft, DraftStep, Note, Place, Source
from workflowlookup.authoring.foreign.markdown_formats import is_markdown, left_out, read_body, stem, text_of
from workflowlookup.authoring.foreign.page import Page, read_page

_STEP_FILE: Final = re.compile(
    r"(?P<folder>(?:.*/)?)(?:step|phase|stage)?[-_ ]?(?P<number>\d{1,4})(?P<letter>[a-z]?)(?:[-_ .].*)?\.md"
)
_FOLDER: Final = re.compile(r"(?:steps?|phases?|stages?)(?:[-_].*)?")


def has_step_files(source: Source) -> bool:
    """Whether at least two step files stand beside the main file, or in a folder `steps` there."""
    return is_markdown(source) and len(_step_files(source)) > 1


def _step_files(source: Source) -> list[str]:
    """The step files of one folder, in order."""
    base = source.main.rpartition("/")[0]
    folders: dict[str, list[tuple[int, str, str]]] = {}
    for path in source.files:
        match = _STEP_FILE.fullmatch(path)
        if match is None or path == source.main:
            continue
        folder = match["folder"].rstrip("/")
        inner = folder.removeprefix(base).strip("/")
        is_near = folder == base and path.rpartition("/")[2].startswith(("step", "phase", "stage"))
        if is_near or (folder != base and "/" not in inner and _FOLDER.fullmatch(inner)):
            folders.setdefault(folder, []).append((int(match["number"]), match["letter"], path))
    best = max(folders.values(), key=lambda files: (len(files) > 1, -len(files[0][2])), default=[])
    return [path for _, _, path in sorted(best)]


def read_step_files(source: Source) -> Draft:
    paths = _step_files(source)
    page = read_page(source.data, source.main)
    main = read_body(_with_text(page), text_of(page.header.get("name")) or source.folder_name or stem(source), ())
    read = [_read_step(read_page(source.files[path], path)) for path in paths]
    others = [path for path in source.files if _STEP_FILE.fullmatch(path) and path not in paths and path != source.main]
    notes: list[Note] = [*left_out(page), *(note for _, notes in read for note in notes)]
    if others:
        notes.append(Note(f"Step files of another branch are not steps: {', '.join(sorted(others)[:10])}"))
    top = page.headings[0] if main.title and page.headings else None
    start = top.after if top is not None else page.body
    guidance = (
        [] if page.is_blank(start, page.end) else [(page.text(start, page.end), Place(page.file, start, page.end - 1))]
    )
    return msgspec.structs.replace(
        main,
        steps=[step for step, _ in read],
        split=f"{len(paths)} step files",
        is_split=True,
        guidance=guidance,
        guessed=[note for note in main.guessed if "not the steps" not in note.text],
        left_out=notes,
    )


def _with_text(page: Page) -> Page:
    """The page; one without text gets a line, because its steps are elsewhere."""
    if not page.is_blank(page.body, page.end):
        return page
    return msgspec.structs.replace(page, lines=[*page.lines, "Follow the steps."])


def _read_step(page: Page) -> tuple[DraftStep, Sequence[Note]]:
    """A step file: its first heading is the title."""
    first = page.headings[0] if page.headings and page.is_blank(page.body, page.headings[0].first) else None
    start = page.body if first is None else first.after
    title = signals.plain(first.text) if first is not None else text_of(page.header.get("name")) or _words(page.file)
    suggestions, notes = signals.suggestions(page, title, [(start, page.end)])
    place = Place(page.file, 1, max(1, page.end - 1))
    step = DraftStep(title=title, text=page.text(start, page.end), place=place, suggestions=suggestions)
    return step, [*_header_notes(page), *left_out(page), *notes]


def _words(path: str) -> str:
    return re.sub(r"[-_]+", " ", path.rpartition("/")[2].rsplit(".", 1)[0]).capitalize()


def _header_notes(page: Page) -> Iterator[Note]:
    names = [f"`{name}`" for name in page.header if name not in ("name", "description")]
    if names:
        yield Note(f"The front matter of the step was left out: {', '.join(names)}", Place(page.file, 1, page.body - 1))
