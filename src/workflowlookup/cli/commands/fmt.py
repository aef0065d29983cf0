"""`workflowlookup fmt PATH…`: formats documents in one style, without changing their meaning."""

import argparse
import os
from collections.abc import Iterable, Iterator

from workflowlookup.cli.configuration import replace_text
from workflowlookup.cli.documents import PATHS_HELP, document_directories, documents_in, path_hint, paths_or_project
from workflowlookup.cli.output import complain, refuse, shown_path, write, write_diff
from workflowlookup.errors import StorageError, WorkflowLookupError
from workflowlookup.language.field_order import ordered
from workflowlookup.language.formats.layout import CannotLayOut
from workflowlookup.language.forms import Form, encoded, form_of
from workflowlookup.language.text import plural
from workflowlookup.language.values import Json
from workflowlookup.library.files import is_document_name, parse_document, read_bytes
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help=f"a document, or a directory of them {PATHS_HELP}")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if something would change")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")


def run(options: argparse.Namespace, _: Settings) -> int:
    is_dry = options.check or options.diff
    changed = failed = total = 0
    for path, root in _documents(paths_or_project(options.paths)):
        total += 1
        try:
            data, _signature = read_bytes(path, root)
            document = parse_document(data, path)
            form = form_of(path)
            result = formatted(data, form, document) if form else data
            if result == data:
                continue
            changed += 1
            if options.diff:
                write_diff(path, data.decode(), result.decode())
            else:
                write("would change " if is_dry else "formatted ", (shown_path(path), "bold"))
            if not is_dry:
                replace_text(path, data.decode(), result.decode(), keep_copy=False)
        except CannotLayOut as reason:
            failed += 1
            complain(f"{shown_path(path)} was not changed, because {reason}.")
        except WorkflowLookupError as refusal:  # go on with the other documents
            failed += 1
            refuse(refusal)
            if not os.path.lexists(path):
                complain(path_hint(path))
    verb = "would change" if is_dry else "formatted"
    write(f"{plural(total, 'document')}, ", (f"{changed} {verb}", "yellow" if changed else "green"))
    return int(failed > 0 or (options.check and changed > 0))


def _documents(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each document with the directory that must contain it. Raises `WorkflowLookupError`."""
    for path in paths:
        if os.path.isdir(path):
            for directory in document_directories(path):
                files, refusal = documents_in(directory)
                if refusal:
                    raise refusal
                yield from ((file, directory) for file in files)
        elif os.path.exists(path) and not is_document_name(os.path.basename(path)):
            raise StorageError(f"{path} does not have the name of a workflow document.", file=path)
        else:
            yield path, os.path.dirname(os.path.realpath(path))


def formatted(data: bytes, form: Form, document: Json) -> bytes:
    """The formatted text of a document. Raises `CannotLayOut`."""
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    return encoded(form.lay_out(text, ordered(document)), form, document)


EXAMPLES = """\
  workflowlookup fmt                             every document of the project
  workflowlookup fmt --check                     for CI: exit code 1 if something would change
  workflowlookup fmt --diff my-workflow.yaml     what would change"""
