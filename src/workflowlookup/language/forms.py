"""The forms of a document as a file: JSON, YAML and Markdown, by the suffix of the file's name.

A `Form` says everything that others need to know about it; nobody else asks for the suffix of a document. What only
some commands need is imported when it is used, so that a list of workflows waits for no parser that it does not need.
"""

import codecs
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from workflowlookup.language.formats.layout import CannotLayOut, json_text, refuse_repeats
from workflowlookup.language.formats.positions import Finder, json_finder, yaml_finder
from workflowlookup.language.formats.schemas import PathTo
from workflowlookup.language.formats.syntax import parse_json, parse_yaml
from workflowlookup.language.values import Json, json_equal


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """One form. Texts have LF as line break, and no byte order mark."""

    name: str
    """As in `convert --to`; messages say `title`."""
    title: str
    parse: Callable[[bytes], Json]
    """The document as a JSON value. Raises `SyntaxProblem`."""
    find: Callable[[bytes], Finder]
    """The positions of the values in a valid text."""
    readings: Callable[[bytes], Sequence[tuple[PathTo, Json]]] = lambda _: ()
    """Where a text has a short form in place of a JSON value, and the value; in reading order."""
    write: Callable[[Json], str]
    """The text of a document that has none yet. Raises `CannotLayOut`."""
    lay_out: Callable[[str, Json], str]
    """The text in one style, with its comments, in the order of the value that it holds. Raises `CannotLayOut`."""
    comments: Callable[[str], list[str]]
    """The comments, which another form might lose."""
    edit: Callable[[str, Mapping[PathTo, Json]], str] | None = None
    """The text with the values at these paths replaced; only fixtures are edited, and none is Markdown."""


# ── JSON and YAML ───────────────────────────────────────────────────────────────────────────────────────────────


def _lay_out_json(text: str, document: Json) -> str:
    refuse_repeats(text)
    return json_text(document)


def _edit_json(text: str, edits: Mapping[PathTo, Json]) -> str:
    from workflowlookup.language.formats.text_edits import json_with_edits  # noqa: PLC0415 - for few commands

    return json_with_edits(text, edits)


def _write_yaml(document: Json) -> str:
    from workflowlookup.language.formats.yaml_layout import tree_of, yaml_text  # noqa: PLC0415 - for few commands

    return yaml_text(tree_of(document))


def _lay_out_yaml(text: str, document: Json) -> str:
    from workflowlookup.language.formats.yaml_layout import formatted_yaml  # noqa: PLC0415 - for few commands

    return formatted_yaml(text, document)


def _yaml_comments(text: str) -> list[str]:
    from workflowlookup.language.formats.yaml_layout import comments_of  # noqa: PLC0415 - for few commands

    return comments_of(text)


def _edit_yaml(text: str, edits: Mapping[PathTo, Json]) -> str:
    from workflowlookup.language.formats.text_edits import yaml_with_edits  # noqa: PLC0415 - for few commands

    return yaml_with_edits(text, edits)


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_markdown(data: bytes) -> Json:
    from workflowlookup.language.markdown.reading import parse_markdown  # noqa: PLC0415 - only for Markdown

    return parse_markdown(data)


def _find_in_markdown(data: bytes) -> Finder:
    from workflowlookup.language.markdown.reading import markdown_finder  # noqa: PLC0415 - only for Markdown

    return markdown_finder(data)


def _markdown_readings(data: bytes) -> Sequence[tuple[PathTo, Json]]:
    from workflowlookup.language.markdown.reading import read_page  # noqa: PLC0415 - only for Markdown

    return [(reading.path, reading.value) for reading in read_page(data).readings]


def _write_markdown(document: Json) -> str:
    from workflowlookup.language.markdown.writing import markdown_text  # noqa: PLC0415 - only for Markdown

    return markdown_text(document)


def _lay_out_markdown(text: str, document: Json) -> str:
    from workflowlookup.language.markdown.writing import formatted_markdown  # noqa: PLC0415 - only for Markdown

    return formatted_markdown(text, document)


def _markdown_comments(text: str) -> list[str]:
    from workflowlookup.language.markdown.writing import markdown_comments  # noqa: PLC0415 - only for Markdown

    return markdown_comments(text)


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────

JSON: Final = Form(
    name="json",
    title="JSON",
    parse=parse_json,
    find=json_finder,
    write=json_text,
    lay_out=_lay_out_json,
    comments=lambda _: [],
    edit=_edit_json,
)
YAML: Final = Form(
    name="yaml",
    title="YAML",
    parse=parse_yaml,
    find=yaml_finder,
    write=_write_yaml,
    lay_out=_lay_out_yaml,
    comments=_yaml_comments,
    edit=_edit_yaml,
)
MARKDOWN: Final = Form(
    name="markdown",
    title="Markdown",
    parse=_parse_markdown,
    find=_find_in_markdown,
    readings=_markdown_readings,
    write=_write_markdown,
    lay_out=_lay_out_markdown,
    comments=_markdown_comments,
)
FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {".json": JSON, ".yaml": YAML, ".yml": YAML, ".workflow.md": MARKDOWN}
)
"""By suffix of the file's name. Of several suffixes of a form, the first is used for new files."""
DOCUMENT_SUFFIXES: Final = tuple(FORMS)
SUFFIXES_IN_WORDS: Final = ", ".join(FORMS)


def split_suffix(path: str) -> tuple[str, str]:
    """The path without the suffix of its form, and that suffix; empty if it has none of them."""
    suffix = next((suffix for suffix in FORMS if path.endswith(suffix)), "")
    return path.removesuffix(suffix), suffix


def form_of(path: str) -> Form | None:
    """The form of a file by its name; None if a file with this name is no document."""
    return FORMS.get(split_suffix(path)[1])


def form_of_text(data: bytes) -> Form:
    """The form of a text that has no file name: JSON begins with a bracket, Markdown with front matter that ends."""
    start = data.lstrip(codecs.BOM_UTF8 + b" \t\r\n")
    if start[:1] in (b"{", b"[", b""):
        return JSON
    first, *others = (line.rstrip() for line in start.split(b"\n"))
    return MARKDOWN if first == b"---" and b"---" in others else YAML


def suffix_of(form: Form) -> str:
    """The suffix of a new file of this form."""
    return next(suffix for suffix, other in FORMS.items() if other is form)


def form_named(name: str) -> Form:
    return next(form for form in FORMS.values() if form.name == name)


def with_edits(text: str, path: str, edits: Mapping[PathTo, Json]) -> str:
    """The text of a fixture with these values replaced."""
    form = form_of(path)
    if form is None or form.edit is None:
        raise ValueError(path)
    newline = "\r\n" if "\r\n" in text else "\n"
    return form.edit(text.replace("\r\n", "\n"), edits).replace("\n", newline)


# ── check ───────────────────────────────────────────────────────────────────────────────────────────────────────


def encoded(text: str, form: Form, document: Json) -> bytes:
    """The bytes of the text, after parsing them and comparing the result with the document.

    Raises `CannotLayOut`.
    """
    if not isinstance(document, dict):
        raise CannotLayOut("it holds no workflow")
    try:
        data = text.encode()
        read_back = form.parse(data)
    except UnicodeEncodeError as error:
        raise CannotLayOut("a text in it is not valid Unicode") from error
    except ValueError as error:  # what the parser refuses
        raise CannotLayOut(f"it could not be read back ({error})") from error
    if not json_equal(read_back, document):
        raise CannotLayOut("it would not mean the same")
    return data


def document_text(document: Json, form: Form) -> str:
    """The text of a document that has none yet, parsed again to check it. Raises `CannotLayOut`."""
    return encoded(form.write(document), form, document).decode()
