"""`workflowlookup convert PATH`: converts a document between YAML and JSON without changing its meaning."""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Final

from workflowlookup.authoring.layout import CannotLayOut, encoded, json_text, refuse_repeats
from workflowlookup.authoring.yaml_layout import comments_of, tree_of, yaml_text
from workflowlookup.cli.commands.fmt import formatted_yaml
from workflowlookup.cli.configuration import read_text, replace_text
from workflowlookup.cli.output import CommandError, complain, shown_path, write, write_bytes
from workflowlookup.errors import StorageError
from workflowlookup.language.text import plural
from workflowlookup.language.values import Json
from workflowlookup.library.files import parse_document, read_bytes
from workflowlookup.settings import Settings

STANDARD_OUTPUT: Final = "-"

WRITERS: Final[Mapping[str, Callable[[Json], str]]] = {
    "json": json_text,
    "yaml": lambda document: yaml_text(tree_of(document)),
}


def document_text(document: Json, form: str) -> str:
    """The text of a document in JSON or YAML, parsed again to check it. Raises `CannotLayOut`."""
    return encoded(WRITERS[form](document), f".{form}", document).decode()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the document")
    parser.add_argument("--to", choices=tuple(WRITERS), help="target format (default: the other one)")
    parser.add_argument(
        "--output", metavar="FILE", help="target file; - is standard output (default: next to the document)"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if there is one")
    parser.add_argument("--replace", action="store_true", help="replace the document; the old one is kept as .bak")


def run(options: argparse.Namespace, _: Settings) -> int:
    path: str = options.path
    stem, extension = os.path.splitext(path)
    if extension not in (".json", ".yaml", ".yml"):
        message = f"{shown_path(path)} is not a workflow document: its name must end in .json, .yaml or .yml."
        raise CommandError(message, 2)
    is_yaml = extension != ".json"
    form = options.to or ("json" if is_yaml else "yaml")
    output = options.output or f"{stem}.{form}"
    if options.replace and (output == STANDARD_OUTPUT or os.path.realpath(output) == os.path.realpath(path)):
        raise CommandError("--replace needs a target file other than the document.", 2)
    data, _signature = read_bytes(path, os.path.dirname(os.path.realpath(path)))
    document = parse_document(data, path)
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    try:
        if is_yaml and form == "yaml":
            result = encoded(formatted_yaml(text, document), ".yaml", document).decode()
        else:
            if not is_yaml:
                refuse_repeats(text)
            result = document_text(document, form)
    except CannotLayOut as reason:
        raise CommandError(f"{shown_path(path)} cannot be converted, because {reason}.") from reason
    if is_yaml and form == "json" and (comments := comments_of(text)):
        complain(f"{plural(len(comments), 'comment')} dropped, because JSON has no comments.")
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
  workflowlookup convert my-workflow.json                       writes my-workflow.yaml
  workflowlookup convert my-workflow.json --replace             and keeps my-workflow.json as .bak
  workflowlookup convert my-workflow.yaml --output -            JSON on standard output
  workflowlookup convert old.yml --to yaml --output new.yaml    the same format, laid out again; comments stay"""
