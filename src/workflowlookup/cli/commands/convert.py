"""`workflowlookup convert PATH`: converts a document between Markdown, YAML and JSON without changing its meaning."""

import argparse
import os
from typing import Final

from workflowlookup.cli.configuration import read_text, replace_text
from workflowlookup.cli.output import CommandError, complain, shown_path, write, write_bytes
from workflowlookup.errors import StorageError
from workflowlookup.language.formats.layout import CannotLayOut, refuse_repeats
from workflowlookup.language.forms import (
    FORMS,
    JSON,
    SUFFIXES_IN_WORDS,
    YAML,
    document_text,
    encoded,
    form_named,
    form_of,
    split_suffix,
    suffix_of,
)
from workflowlookup.language.text import plural
from workflowlookup.library.files import parse_document, read_bytes
from workflowlookup.settings import Settings

STANDARD_OUTPUT: Final = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the document")
    parser.add_argument(
        "--to",
        choices=list(dict.fromkeys(form.name for form in FORMS.values())),
        help="target form (default: yaml for JSON, else json)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="target file; - is standard output (default: next to the document)"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if there is one")
    parser.add_argument("--replace", action="store_true", help="replace the document; the old one is kept as .bak")


def run(options: argparse.Namespace, _: Settings) -> int:
    path: str = options.path
    source = form_of(path)
    if source is None:
        raise CommandError(
            f"{shown_path(path)} is not a workflow document: its name must end in {SUFFIXES_IN_WORDS}.", 2
        )
    target = form_named(options.to) if options.to else YAML if source is JSON else JSON
    output = options.output or split_suffix(path)[0] + suffix_of(target)
    if options.replace and (output == STANDARD_OUTPUT or os.path.realpath(output) == os.path.realpath(path)):
        raise CommandError("--replace needs a target file other than the document.", 2)
    data, _signature = read_bytes(path, os.path.dirname(os.path.realpath(path)))
    document = parse_document(data, path)
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    try:
        if source is target:
            result = encoded(target.lay_out(text, document), target, document).decode()
        else:
            if source is JSON:
                refuse_repeats(text)
            result = document_text(document, target)
    except CannotLayOut as reason:
        raise CommandError(f"{shown_path(path)} cannot be converted, because {reason}.") from reason
    lost = len(source.comments(text)) - len(target.comments(result))
    if lost > 0:
        why = "JSON has no comments" if target is JSON else "only the meaning is converted"
        complain(f"{plural(lost, 'comment')} dropped, because {why}.")
    if output == STANDARD_OUTPUT:
        write_bytes(result.encode())
        return 0
    before = read_text(output)
    if before is not None and not options.force:
        raise CommandError(
            f"{shown_path(output)} exists. Replace it with --force, or choose another file with --output."
        )
    replace_text(output, before, result)
    write((f"Wrote {shown_path(output)}.", "green"))
    if options.replace:
        _rename_to_backup(path)
    elif os.path.realpath(output) != os.path.realpath(path):
        write(f"Both files have the same id now: remove {shown_path(path)}, or use --replace next time.")
    return 0


def _rename_to_backup(path: str) -> None:
    copy = f"{path}.bak"
    try:
        os.replace(path, copy)
    except OSError as problem:
        raise StorageError(f"{path} cannot be renamed: {problem.strerror}.", file=path) from problem
    write(f"{shown_path(path)} is now {shown_path(copy)}, which the library does not read.")


EXAMPLES = """\
  workflowlookup convert my-workflow.json --to markdown         writes my-workflow.workflow.md
  workflowlookup convert my-workflow.json                       writes my-workflow.yaml
  workflowlookup convert my-workflow.json --replace             and keeps my-workflow.json as .bak
  workflowlookup convert my-workflow.yaml --output -            JSON on standard output
  workflowlookup convert old.yml --to yaml --output new.yaml    the same format, laid out again; comments stay"""
