"""Makes a workflow document of a draft, as a value and as Markdown with the suggestions in comments."""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.foreign.draft import Draft, DraftStep, Note, NotImportable, SuggestionKind
from workflowlookup.authoring.foreign.page import trimmed
from workflowlookup.authoring.foreign.splitting import without_number
from workflowlookup.language.document.checking import check
from workflowlookup.language.document.findings import Severity
from workflowlookup.language.formats.layout import CannotLayOut
from workflowlookup.language.formats.syntax import SyntaxProblem
from workflowlookup.language.markdown.reading import parse_markdown, read_page
from workflowlookup.language.markdown.short_forms import CRITERIA, PROOFS, suggestion, write_line
from workflowlookup.language.markdown.writing import markdown_text
from workflowlookup.language.templates import literal
from workflowlookup.language.text import one_line
from workflowlookup.language.values import Json, json_equal
from workflowlookup.language.workflow_schema import workflow_schema

SOURCE_FIELD: Final = "x-source"
CATEGORY: Final = "imported"
_FIELD_OF: Final[Mapping[str, str]] = {"name": "id", "title": "name", "description": "description"}
FALLBACK_ID: Final = "step"
FALLBACK_TITLE: Final = "Step"
MIN_ID: Final = 3
MAX_ID: Final = 64


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where a workflow comes from: the value of `x-source`."""

    format: str
    location: str
    """The path or the URL."""
    revision: str = ""
    """The commit."""
    license: str = ""
    license_file: str = ""
    files: Mapping[str, str]
    """The SHA-256 of each file that was read into the workflow."""


class _Limits(msgspec.Struct, frozen=True):
    """The longest texts that the schema of documents allows."""

    name: int
    description: int
    about: int
    title: int
    prompt: int
    guidance: int


def _limits() -> _Limits:
    schema = workflow_schema()
    fields, parts = schema["properties"], schema["$defs"]
    return _Limits(
        name=fields["name"]["maxLength"],
        description=fields["description"]["maxLength"],
        about=fields["about"]["maxLength"],
        title=parts["title"]["maxLength"],
        prompt=parts["prompt"]["maxLength"],
        guidance=fields["metaGuidance"]["items"]["maxLength"],
    )


def document_of(draft: Draft, provenance: Provenance) -> tuple[dict[str, Json], list[Note]]:
    """The document, and what was changed to fit it. Raises `NotImportable` for what no document can hold."""
    document, notes = _document(draft, provenance)
    if _errors(document):
        plain, notes = _document(_without_fields(draft), provenance)
        if errors := _errors(plain):
            raise NotImportable(f"No valid workflow can be made of it: {'; '.join(errors[:3])}.")
        return plain, [*notes, Note(f"Fields of the source do not fit a workflow: {'; '.join(_errors(document)[:3])}")]
    return document, notes


def _errors(document: Json) -> list[str]:
    return [finding.message for finding in check(document) if finding.severity is Severity.ERROR]


def _without_fields(draft: Draft) -> Draft:
    steps = [msgspec.structs.replace(step, fields={}) for step in draft.steps]
    return msgspec.structs.replace(draft, steps=steps, fields={}, parameters=frozenset())


def _document(draft: Draft, provenance: Provenance) -> tuple[dict[str, Json], list[Note]]:
    limits = _limits()
    notes: list[Note] = []
    name = one_line(draft.title) or _humanised(draft.name)
    steps = [part for step in draft.steps for part in _parts(step, draft, limits)]
    if len(steps) > len(draft.steps):
        notes.append(Note(f"A step has more than {limits.prompt:,} characters: steps '… (part 2)' continue it"))
    description = draft.description or name
    document: dict[str, Json] = {
        "id": identifier(draft.name) or CATEGORY,
        "name": _cut(name, limits.name),
        "description": _cut(description, limits.description),
        "category": CATEGORY,
        **draft.fields,
    }
    if document["id"] != draft.name:
        notes.append(Note(f"The id is '{document['id']}', because '{draft.name}' cannot be one"))
    if len(description) > limits.description:
        text = f"The description has {len(description):,} characters: its beginning is 'description', all of it 'about'"
        notes.append(Note(text))
        document["about"] = _cut(description, limits.about)
    advice = [part for text, _ in draft.guidance for part in _pieces(text, limits.guidance)]
    if advice:
        document["metaGuidance"] = advice
    used: set[str] = set()
    document["steps"] = [_step(step, draft.parameters, used, limits) for step in steps]
    stated = {name: value for name, value in draft.header.items() if document.get(_FIELD_OF.get(name, "")) != value}
    header = {"frontMatter": stated} if stated else {}
    document[SOURCE_FIELD] = {**msgspec.to_builtins(provenance), **header}
    return document, notes


def _step(step: DraftStep, keep: frozenset[str], used: set[str], limits: _Limits) -> dict[str, Json]:
    return {
        "id": _unused(step.identifier or without_number(step.title), used),
        "title": _cut(literal(step.title, keep), limits.title),
        "prompt": step.text,
        **step.fields,
        SOURCE_FIELD: str(step.place),
    }


def _parts(step: DraftStep, draft: Draft, limits: _Limits) -> Iterator[DraftStep]:
    """The step with its templates escaped, in as many parts as its length asks for. The first has all other fields."""
    title = one_line(step.title or draft.title) or _humanised(draft.name)
    is_long = len(title) > limits.title
    text = literal(f"{title}\n\n{step.text}".strip() if is_long or not step.text else step.text, draft.parameters)
    first, *others = _pieces(text, limits.prompt)
    yield msgspec.structs.replace(step, title=title, text=first)
    for number, piece in enumerate(others, 2):
        yield DraftStep(title=f"{_cut(title, limits.title // 2)} (part {number})", text=piece, place=step.place)


def _pieces(text: str, limit: int) -> list[str]:
    """The text cut before a blank line, else before a line, else anywhere, so that no piece is too long."""
    pieces: list[str] = []
    while len(text) > limit:
        cut = next((at for mark in ("\n\n", "\n") if (at := text.rfind(mark, limit // 2, limit)) > 0), limit)
        pieces.append(text[:cut])
        text = text[cut:].lstrip("\n")
    return [*pieces, text] if text else pieces


def _cut(text: str, limit: int) -> str:
    """The text, or as many of its words as the limit allows, with `…`."""
    if len(text) <= limit:
        return text
    space = text.rfind(" ", limit // 2, limit - 1)
    return f"{text[: space if space > 0 else limit - 1]}…"


# ── ids ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def identifier(text: str) -> str:
    """The id that is closest to a text; empty if none is."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9._]+", "-", re.sub(r"['\u2019]", "", ascii_text)).strip("-._")
    if len(words) > MAX_ID:
        words = words[: words.rfind("-", MAX_ID // 2, MAX_ID) if "-" in words[MAX_ID // 2 : MAX_ID] else MAX_ID]
    words = words.strip("-._")
    return words if len(words) >= MIN_ID or not words else f"{words}-workflow"[:MAX_ID]


def _unused(text: str, used: set[str]) -> str:
    """An id for a step that no other step has."""
    base = identifier(text)[: MAX_ID - 4].strip("-._") or FALLBACK_ID
    if base.endswith("-workflow"):
        base = base.removesuffix("workflow") + "step"
    candidates = (base if number == 1 else f"{base}-{number}" for number in itertools.count(1))
    found = next(candidate for candidate in candidates if candidate not in used)
    used.add(found)
    return found


def _humanised(name: str) -> str:
    words = one_line(re.sub(r"[-_]+", " ", name))
    return words[:1].upper() + words[1:] or FALLBACK_TITLE


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────────


def markdown_of(document: dict[str, Json], draft: Draft) -> str:
    """The document as Markdown. Each suggestion is a comment in its step. Raises `NotImportable`."""
    try:
        lines = markdown_text(document).split("\n")
        places = read_page("\n".join(lines).encode()).places
        starts = [places["steps", number][0] for number in range(len(document["steps"]))]
        steps = [part for step in draft.steps for part in _parts(step, draft, _limits())]
        for start, after, step in reversed(list(zip(starts, [*starts[1:], len(lines)], steps, strict=True))):
            part = lines[start - 1 : after - 1]
            lines[start - 1 : after - 1] = _with_suggestions(part, step)
        text = "\n".join(lines)
        is_same = json_equal(parse_markdown(text.encode()), document)
    except (CannotLayOut, SyntaxProblem) as problem:
        raise NotImportable(f"It cannot be written as Markdown: {problem}.") from problem
    if not is_same:
        raise NotImportable("It cannot be written as Markdown: the suggestions would change its meaning.")
    return text


def _with_suggestions(lines: Sequence[str], step: DraftStep) -> list[str]:
    """The lines of a step with comments at its end, and in its `step` block."""
    result = list(trimmed(lines))
    for kind, section, forms in (
        (SuggestionKind.CRITERION, "### Criteria", CRITERIA),
        (SuggestionKind.PROOF, "### Proof", PROOFS),
    ):
        comments = [
            suggestion(line, found.place.first)
            for found in step.suggestions
            if found.kind is kind and (line := write_line(found.value, forms)) is not None
        ]
        if comments and section in result:  # the step has such a list already
            result[result.index(section) + 1 : result.index(section) + 1] = ["", *comments]
        elif comments:
            result += ["", section, "", *comments]
    asked = next((found for found in step.suggestions if found.kind is SuggestionKind.CONFIRMATION), None)
    if asked is not None:
        block = next(number for number, line in enumerate(result) if line.endswith("```step"))
        comment = f"# requireConfirmation: true    # suggested, from line {asked.place.first}"
        result.insert(block + 1, comment)
    return [*result, ""]


def fixture_of(document: Mapping[str, Json]) -> dict[str, Json]:
    """A test fixture that walks through all steps."""
    steps = [step["id"] for step in document["steps"]]
    return {"workflow": document["id"], "cases": [{"name": "every step, in order", "steps": steps, "complete": True}]}
