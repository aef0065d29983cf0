"""The report of an import: what was taken, what was guessed and from which line, and what was left out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.foreign.draft import Draft, Note, SuggestionKind
from workflowlookup.authoring.foreign.writing import Provenance
from workflowlookup.language.markdown.short_forms import CRITERIA, PROOFS, write_line
from workflowlookup.language.text import one_line, plural, shorten
from workflowlookup.language.values import Json

MAX_LINES: Final = 200
"""Limit on the lines of each list."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a person should know before using an imported workflow."""

    id: str
    format: str
    source: str
    split: str
    is_split: bool
    taken: Sequence[Note]
    guessed: Sequence[Note]
    left_out: Sequence[Note]
    suspicious: Sequence[Note]

    def as_json(self) -> dict[str, Json]:
        lists = ("taken", "guessed", "left_out", "suspicious")
        return {
            "id": self.id,
            "format": self.format,
            "source": self.source,
            "split": self.split,
            "isSplit": self.is_split,
            **{
                "leftOut" if name == "left_out" else name: [_json(note) for note in getattr(self, name)]
                for name in lists
            },
        }


def _json(note: Note) -> dict[str, Json]:
    if note.place is None:
        return {"text": note.text}
    return {"file": note.place.file, "line": note.place.first, "lastLine": note.place.last, "text": note.text}


def report_of(  # noqa: PLR0913 - the parts of a report
    draft: Draft,
    document: Mapping[str, Json],
    words: str,
    provenance: Provenance,
    *,
    guessed: Sequence[Note],
    left_out: Sequence[Note],
    suspicious: Sequence[Note],
) -> Report:
    """The report of a document that was made of a draft."""
    how = f"Split by {draft.split}" if draft.is_split else "No numbered headings and no single numbered list: one step"
    return Report(
        id=document["id"],
        format=words,
        source=provenance.location + (f", commit {provenance.revision}" if provenance.revision else ""),
        split=how,
        is_split=draft.is_split,
        taken=list(_taken(draft, document)),
        guessed=[*draft.guessed, *guessed, *_suggested(draft)],
        left_out=[*draft.left_out, *left_out],
        suspicious=suspicious,
    )


def _taken(draft: Draft, document: Mapping[str, Json]) -> Iterator[Note]:
    for step in draft.steps:
        fields = [f"`{name}`" for name in step.fields]
        more = f", with {', '.join(fields)}" if fields else ""
        yield Note(f"step '{shorten(one_line(step.title), 128)}'{more}", step.place)
    for _, place in draft.guidance:
        yield Note("text outside of the steps, as `metaGuidance`", place)
    for name in draft.fields:
        if name in document:
            yield Note(f"`{name}`")


def _suggested(draft: Draft) -> Iterator[Note]:
    for step in draft.steps:
        for found in step.suggestions:
            match found.kind:
                case SuggestionKind.CRITERION:
                    form = write_line(found.value, CRITERIA)
                case SuggestionKind.PROOF:
                    form = write_line(found.value, PROOFS)
                case SuggestionKind.CONFIRMATION:
                    form = f"a person is asked, because of {shorten(one_line(found.quote), 80)!r}"
            if form is not None:
                yield Note(f"suggested {found.kind} of '{shorten(one_line(step.title), 60)}': {form}", found.place)


def report_text(report: Report, provenance: Provenance) -> str:
    """The report as Markdown."""
    lines = [
        f"# Import of {report.id}",
        "",
        f"- Format: {report.format}",
        f"- Source: {report.source}",
        f"- Licence: {_licence(provenance)}",
        f"- Steps: {report.split}",
        "",
        "Nothing of the source was executed. A suggestion is a comment in the workflow until you remove its marks.",
    ]
    for title, notes, nothing in (
        ("Suspicious", report.suspicious, "Nothing. Read it anyway: the check finds what nobody writes by accident."),
        ("Taken", report.taken, "Nothing."),
        ("Guessed", report.guessed, "Nothing."),
        ("Left out", report.left_out, "Nothing."),
    ):
        lines += ["", f"## {title}", "", *(_lines(notes) or [nothing])]
    lines += ["", "## Files that were read", ""]
    lines += [f"- `{path}`: SHA-256 {digest}" for path, digest in provenance.files.items()]
    return "\n".join(lines) + "\n"


def _licence(provenance: Provenance) -> str:
    parts = [provenance.license, f"see `{provenance.license_file}`" if provenance.license_file else ""]
    return "; ".join(filter(None, parts)) or "none found: ask the author before you share the workflow"


def _lines(notes: Sequence[Note]) -> list[str]:
    lines = [f"- {one_line(str(note))}" for note in notes[:MAX_LINES]]
    more = len(notes) - MAX_LINES
    return [*lines, f"- … and {plural(more, 'more line')}"] if more > 0 else lines
